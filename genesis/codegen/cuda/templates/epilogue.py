"""What a matmul kernel does with a tile of its product before it is stored: pointwise ops, as in a loop kernel.

The tile's rows are x and its columns are r of a loop over (all rows, columns). In it the product is no memory but the
sum in registers; everything else (biases, residuals, masks, several results) is read, computed and written as a loop
kernel would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from genesis.codegen.cuda.block_sizes import Blocks
from genesis.codegen.cuda.build_kernel import build
from genesis.codegen.cuda.emitter import Body
from genesis.codegen.cuda.kernel_ir import Kernel, Load, Part, Statement, Store
from genesis.codegen.cuda.lowerings import POINTER, held, triton_type
from genesis.ir.node import Node
from genesis.ir.size_divisors import gcd
from genesis.passes.fusion.index_map import Expr
from genesis.passes.groups import Group

PRODUCT: Final = "in0"
"""What the loop kernel calls the product."""


class Result(NamedTuple):
    """A kernel's result as a matrix in its memory: rows `stride` elements apart, from element `start` on."""

    node: Node
    stride: int
    start: int


@dataclass(frozen=True)
class Epilogue:
    """The text of an epilogue.

    Attributes:
        lines: statements after `total` is known.
        pointers: parameter → Triton type, for what they read and write.
        args: the nodes of these parameters, in order.
        aligned: those of the parameters that are tensors.
        tiles: parameter → matrix, of results that are written a piece at a time, by `put`.
        ahead: statements before the product is summed up: a load whose values its lines find in `ahead_pieces`.
    """

    lines: tuple[str, ...]
    pointers: dict[str, str]
    args: tuple[Node, ...]
    aligned: tuple[str, ...]
    tiles: dict[str, Result] = field(default_factory=dict)
    ahead: tuple[str, ...] = ()


PLACES: Final = ("x = batch * rows + i[:, None]", "x_mask = i[:, None] < rows", "r = j[None, :]",
                 "r_mask = j[None, :] < columns")
"""Lines that say where the elements of rows i and columns j are."""


def epilogue(group: Group, product: Node, shape: tuple[int, int, int], tile: tuple[int, int],
             index64: bool, by_tiles: Callable[[Node], bool] | None = None, also_put: bool = False,
             ragged_rows: bool = False, piece: int = 0, ahead: bool = False, gluon: bool = False) -> Epilogue:
    """The epilogue of a matmul group.

    Args:
        shape: batches, and the rows and columns of each.
        tile: rows and columns of a block of the product.
        by_tiles: where blocks are streamed: of a result in memory, whether it may be written as a piece of a matrix
            like the product.
        also_put: whether the product is written so, too, after the others.
        ragged_rows: whether a tile may have fewer rows than its block though blocks divide them all.
        piece: columns that are computed at a time; 0 for the whole tile. A tile that reaches past the end may have
            pieces that are all behind it.
        ahead: whether 16-bit values of the product's size are loaded before it is summed up: registers have room for
            them beside the sums, and the load takes as long as these do.
        gluon: whether the kernel is in Gluon, where all values of an expression lie in registers alike.
    """
    batch, rows, columns = shape
    outputs = tuple(x for x in group.outputs if x is not product)
    read = (product, *(x for x in group.inputs if x is not product))
    kernel = build(Group("loop", group.nodes, read, outputs, group.reason, ((batch * rows, "x"), (columns, "r")),
                         slices=group.slices))
    tiles = {x.name: x.node for x in kernel.arguments
             if by_tiles is not None and x.name != PRODUCT and x.node in outputs and by_tiles(x.node)}
    stored = {s.argument: Result(tiles[s.argument], *place) for s in kernel.statements
              if isinstance(s, Store) and s.argument in tiles and (place := _tile_at(s)) is not None}
    ragged = tuple(gcd(size, block) != block for size, block in ((rows, tile[0]), (columns, tile[1])))
    kept = _Surroundings(
        block=(tile[0], piece or tile[1]), ragged=(ragged[0] or ragged_rows, ragged[1]),
        stored=product in group.outputs, streamed=by_tiles is not None, gluon=gluon or by_tiles is not None,
        ahead=ahead, maps={x: f"{x}_map" for x in stored}, count=len(stored) + also_put)
    body = _Body(kernel, kept, index64)
    used = {s.argument for s in kernel.statements if hasattr(s, "argument")}
    arguments = [x for x in kernel.arguments if x.name != PRODUCT and x.name in used and x.name not in body.maps]
    lines = [*PLACES, *body.lines()]
    return Epilogue(tuple(lines), {x.name: POINTER[x.node.dtype.name] for x in arguments},
                    tuple(x.node for x in arguments), tuple(x.name for x in arguments if x.role != "number"),
                    {body.maps[name]: stored[name] for name in body.maps}, tuple(body.loaded_ahead))


def _tile_at(s: Store) -> tuple[int, int] | None:
    """(stride, start) of the matrix of which it writes element (x, r); None if that is none."""
    terms = {atom.name: k for atom, k in s.address.terms if atom.kind == "var"}
    if len(s.address.terms) != 2 or set(terms) != {"x", "r"} or s.vars != s.value.vars:
        return None
    unit = terms["r"].__class__ is int and terms["r"] == 1
    return (terms["x"], s.address.constant) if unit else None


def put(parameter: str, value: str, number: int, count: int) -> str:
    """The line that writes a piece of a tile: which of `count` such lines this is decides which block it goes through,
    as two take turns."""
    block = str(number % 2) if count % 2 == 0 else f"(piece + {number}) % 2"
    return f"put({parameter}, out_block, {block}, {value}, row, at)"


@dataclass(frozen=True)
class _Surroundings:
    """What the lines of an epilogue are within.

    Attributes:
        block: rows and columns of a block of the product.
        ragged: whether it may reach beyond the product's rows, its columns, whatever symbolic sizes are.
        stored: whether the product is a result, too, so that all see it rounded.
        streamed: whether it comes a piece at a time: the product is `part` from column `at` on, not `total`.
        gluon: whether the kernel is in Gluon.
        ahead: whether a load may be done before the product is summed up.
        maps: result → the name of the tensor map that it is stored through.
        count: results that are stored so, the product included.
    """

    block: tuple[int, int]
    ragged: tuple[bool, bool]
    stored: bool
    streamed: bool
    gluon: bool
    ahead: bool
    maps: dict[str, str]
    count: int


class _Body(Body):
    """Statements over a block of the product, rounded if it is stored, too, so that all see one value.

    Attributes:
        loaded_ahead: the lines of the load that is done before the product is summed up; none before there is one.
        puts: stores through tensor maps so far.
    """

    reciprocals = False
    starts_apart = False

    def __init__(self, kernel: Kernel, kept: _Surroundings, index64: bool):
        super().__init__(kernel, Blocks(*kept.block, False, 4), index64)
        self.kept, self.maps = kept, kept.maps
        self.ragged_x, self.ragged_r = kept.ragged
        self.total, self.first = ("part", "at") if kept.streamed else ("total", "tile_j * J")
        self.puts, self.loaded_ahead = 0, list[str]()

    def statement(self, s: Statement) -> list[str]:
        return self.column_sums(s) if isinstance(s, Part) else super().statement(s)

    def column_sums(self, s: Part) -> list[str]:
        """What a tile, or a piece of one, adds to its columns' sums: a row of the result for each row of tiles."""
        value = self.use(s.operand, s.operand.dtype)
        inside = f"tl.where(x_mask, {value}, 0.0)" if self.ragged_x else value
        total = f"tl.sum({inside}.to(tl.float32), 0)"
        return [f"tl.store({s.argument} + (tile_i * columns + j), {total}, mask=j < columns)"]

    def store(self, s: Store) -> list[str]:
        found = self.maps.get(s.argument)
        if found is None:
            return super().store(s)
        value = f"{self.stored_value(s)}.to({triton_type(self.dtypes[s.argument])})"
        self.puts += 1
        return [put(found, value, self.puts - 1, self.kept.count)]

    def counts_up(self, e: Expr, by: int) -> bool:
        return not self.kept.gluon and super().counts_up(e, by)  # words of neighbours that are joined lie otherwise

    def load(self, s: Load) -> list[str]:
        if s.argument != PRODUCT:
            whole = self.kept.ahead and s.out.vars == "xr" and s.out.dtype.itemsize == 2 and not s.bounds
            return self.load_ahead(s) if whole and not self.loaded_ahead else super().load(s)
        rounded = f"{self.total}.to({triton_type(s.out.dtype)})" if self.kept.stored else self.total
        return [f"{s.out.name} = {rounded}.to({triton_type(held(s.out.dtype))})"]

    def load_ahead(self, s: Load) -> list[str]:
        """Take a piece of what was loaded for the whole tile."""
        line, = super().load(s)
        upcast = "" if held(s.out.dtype) is s.out.dtype else f".to({triton_type(held(s.out.dtype))})"
        self.loaded_ahead = [*PLACES, line.removesuffix(upcast).replace(s.out.name, "ahead", 1)]
        return [f"{s.out.name} = ahead_pieces[piece]{upcast}"]
