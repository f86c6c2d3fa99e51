"""What a matmul kernel does with a tile of its product before it is stored: pointwise ops, as in a loop kernel.

The tile's rows are x and its columns are r of a loop over (all rows, columns). In it the product is no memory but the
sum in registers; everything else (biases, residuals, masks, several results) is read, computed and written as a loop
kernel would.
"""

from __future__ import annotations

from dataclasses import dataclass

from genesis.codegen.cuda.blocks import Blocks
from genesis.codegen.cuda.build_kernel import build
from genesis.codegen.cuda.emitter import Body
from genesis.codegen.cuda.kernel_ir import Kernel, Load
from genesis.codegen.cuda.lowerings import POINTER, held, triton_type
from genesis.ir.node import Node
from genesis.ir.sym_int import gcd
from genesis.passes.groups import Group

PRODUCT = "in0"
"""What the loop kernel calls the product."""


@dataclass(frozen=True)
class Epilogue:
    """The text of an epilogue.

    Attributes:
        lines: statements after `total` is known.
        pointers: parameter → Triton type, for what they read and write.
        args: the nodes of these parameters, in order.
        aligned: those of the parameters that are tensors.
    """

    lines: tuple[str, ...]
    pointers: dict[str, str]
    args: tuple[Node, ...]
    aligned: tuple[str, ...]


def epilogue(group: Group, product: Node, shape: tuple[int, int, int], tile: tuple[int, int],
             index64: bool) -> Epilogue:
    """The epilogue of a matmul group.

    Args:
        shape: batches, and the rows and columns of each.
        tile: rows and columns of a block of the product.
    """
    batch, rows, columns = shape
    outputs = tuple(x for x in group.outputs if x is not product)
    read = (product, *(x for x in group.inputs if x is not product))
    kernel = build(Group("loop", group.nodes, read, outputs, group.reason, ((batch * rows, "x"), (columns, "r"))))
    body = _Body(kernel, tile, index64, stored=product in group.outputs)
    body.ragged_x, body.ragged_r = (gcd(size, block) != block  # whatever symbolic sizes are
                                    for size, block in ((rows, tile[0]), (columns, tile[1])))
    used = {s.argument for s in kernel.statements if hasattr(s, "argument")}
    arguments = [x for x in kernel.arguments if x.name != PRODUCT and x.name in used]
    lines = ["x = batch * rows + i[:, None]", "x_mask = i[:, None] < rows", "r = j[None, :]",
             "r_mask = j[None, :] < columns", *body.lines()]
    return Epilogue(tuple(lines), {x.name: POINTER[x.node.dtype.name] for x in arguments},
                    tuple(x.node for x in arguments), tuple(x.name for x in arguments if x.role != "number"))


class _Body(Body):
    """Statements over a tile: the product is `total`, rounded if it is stored, too, so that all see one value."""

    def __init__(self, kernel: Kernel, tile: tuple[int, int], index64: bool, stored: bool):
        super().__init__(kernel, Blocks(*tile, False, 4), index64)
        self.first = "tile_j * J"
        self.stored = stored

    def load(self, s: Load) -> list[str]:
        if s.argument != PRODUCT:
            return super().load(s)
        rounded = f"total.to({triton_type(s.out.dtype)})" if self.stored else "total"
        return [f"{s.out.name} = {rounded}.to({triton_type(held(s.out.dtype))})"]
