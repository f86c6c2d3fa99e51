"""Attention without a score matrix in memory (Dao 2023, FlashAttention-2): the forward, and what all kernels share.

A program takes a tile of queries (I) and walks over tiles of keys (J). It keeps the largest score
and the sum of each row so far, and corrects what it has when a larger score turns up (Milakov and
Gimelshein 2018). Scores are in base 2: exp2 is the instruction that the GPU has, and the scale takes
the factor log2 e in.

Tiles that every row sees whole need no bounds and are walked first; a second loop, with bounds, takes the
tiles on the causal diagonal and a last ragged one. Tiles beyond the diagonal are never visited.

A mask is read tile by tile through a view, so that sizes over which it is broadcast cost nothing; where it is a row or
a column of the tile, that is what is loaded. A masked row may see no key: its sums stay 0, and its lse is ∞. Scores
with a mask are kept in base e: in base 2 the most negative bfloat16 would become -∞.

A head of k and v that query heads share is read by each of their programs; the program that makes its gradients walks
over all of these heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import prod

from genesis.codegen.cuda.block_sizes import block_for, power_of_two
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.loops import any_needs_int64, module, multiples_of_16
from genesis.codegen.cuda.lowerings import POINTER, triton_type
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.attention_choice import PRODUCTS, AttentionTile, Form, Problem, form_for, tile_for
from genesis.codegen.cuda.templates.attention_keys import (
    SEEN_BLOCK,
    any_seen,
    hides_keys,
    keys_asked_for,
    masks_keys,
    seen_range,
)
from genesis.codegen.cuda.templates.operands import address, input_of
from genesis.codegen.cuda.templates.streamed_attention import forms_with_room, refusal
from genesis.codegen.cuda.templates.streamed_attention_gluon import emit_streamed_attention
from genesis.codegen.cuda.templates.tile import LN_2, LOG2_E, indented, rounding
from genesis.ir.node import Node
from genesis.ir.ops.attention import group_size
from genesis.ir.sym_int import literal_value
from genesis.ir.types import DType, bool_
from genesis.passes.fusion.index_map import Expr
from genesis.passes.fusion.operand_view import OperandView, operand_view
from genesis.passes.fusion.slices import slice_view
from genesis.passes.fusion.views import stored_as
from genesis.passes.groups import Group, Slice


class Attention:
    """An attention group's sizes, operands and names; the lines that every kernel of the family has.

    Attributes:
        node: the op.
        queries, keys: lengths.
        head, value_head: sizes of a query's and of a value's vector; `D` and `E` are their padded sizes.
        dtype: of the operands, as Triton calls it; `precision` is what its dots are told.
        mask: the mask's dtype, None without one.
        shared: how many query heads share a head of k and v.
        beside: whether the `heads` of a token lie beside each other in the results.
        index64: whether addresses need 64 bits.
    """

    def __init__(self, group: Group, gpu: GpuModel, matrices: tuple[str, ...], rows: tuple[str, ...] = ()):
        self.group, self.gpu = group, gpu
        self.node = next(n for n in group.nodes if n.op.name in PRODUCTS)
        operands = dict(zip((*matrices, *rows, "mask"), self.node.inputs, strict=False))
        matrices = (*matrices, "mask") if "mask" in operands else matrices
        q, v = operands["q"], operands["v"]
        self.mask: DType | None = operands["mask"].dtype if "mask" in operands else None
        self.shared = group_size(q.type, v.type)
        self.queries, self.keys = q.shape[-2], v.shape[-2]
        self.head, self.value_head = q.shape[-1], v.shape[-1]
        self.batch = prod(q.shape[:-2])
        self.dtype = triton_type(q.dtype)
        self.causal: bool = self.node["causal"]
        self.beside: bool = self.node["beside"]
        self.heads: int = q.shape[-3] if self.beside else 1
        self.scale: float = self.node["scale"]
        self.views: dict[str, OperandView] = {name: operand_view(operands[name], group.inputs)
                                              for name in matrices}
        self.memory: dict[str, Node] = {name: input_of(view.base, group) for name, view in self.views.items()}
        self.memory |= {name: input_of(operands[name], group) for name in rows}
        self.index64 = any_needs_int64(*(view.base.type.numel for view in self.views.values()),
                                       *(group.memory_type(x).numel for x in group.outputs))
        self.precision = rounding(q.dtype)
        self.problem = Problem(self.node.op.name, q.dtype, self.batch, self.queries, self.keys,
                               max(self.head, self.value_head), self.causal, self.mask is not None)

    @cached_property
    def tile(self) -> AttentionTile:
        """The tile of a kernel that is not streamed."""
        tile = self._fitted(tile_for(self.problem, self.gpu))
        return self._with_room(tile, self.problem.dtype.itemsize, self.gpu)

    @cached_property
    def form(self) -> Form:
        """The form of one that is."""
        return form_for(self.problem, forms_with_room(self), self.gpu)

    def _with_room(self, tile: AttentionTile, itemsize: int, gpu: GpuModel) -> AttentionTile:
        """The tile for what a program's shared memory has room for: fewer tiles loaded ahead, then fewer rows kept."""
        by_keys = self.node.op.name == "flash_attention_dkv"
        width = self.padded(self.head) + self.padded(self.value_head)
        kept_width = self.padded(self.head) if self.node.op.name == "flash_attention" else width  # of q alone, or two
        while True:
            kept, passing = (tile.j, tile.i) if by_keys else (tile.i, tile.j)
            ahead = max(tile.num_stages - 1, 1) * passing * width
            if itemsize * (kept * kept_width + ahead + kept * passing) <= gpu.block_shared_memory or kept == 16:
                return tile
            if tile.num_stages > 2:
                tile = replace(tile, num_stages=tile.num_stages - 1)
            else:
                rows = {"j" if by_keys else "i": kept // 2}
                tile = replace(tile, **rows, num_warps=max(tile.num_warps // 2, 4))

    def _fitted(self, tile: AttentionTile) -> AttentionTile:
        """No tile larger than the matrix; a dot wants at least 16 a side."""
        def fit(block: int, size: int) -> int:
            return max(16, block_for(size, block))
        return AttentionTile(fit(tile.i, self.queries), fit(tile.j, self.keys), tile.num_warps, tile.num_stages)

    def output(self, index: int) -> Node | None:
        """The memory of one of the op's results, None if nobody reads it."""
        if type(self.node.type) is not tuple:
            return self.group.outputs[0]
        for node in self.group.outputs:
            made = stored_as(node)
            if made.op.name == "item" and made["index"] == index:
                return node
        return None

    @property
    def integer(self) -> str:
        """The conversion to 64-bit addresses, where needed."""
        return ".to(tl.int64)" if self.index64 else ""

    def place(self, axis: str, read: str) -> list[str]:
        """Which tile of queries ("i") or keys ("j") a program has, and where the matrices of its batch start."""
        length, block = ("queries", "I") if axis == "i" else ("keys", "J")
        # Under a causal mask the last queries and the first keys have the most work: these programs start first.
        tile = "tiles - 1 - tl.program_id(0) % tiles" if axis == "i" and self.causal else "tl.program_id(0) % tiles"
        return [
            f"tiles = tl.cdiv({length}, {block})",
            f"tile = {tile}",
            f"{'batch' if axis == 'i' else 'heads'} = (tl.program_id(0) // tiles){self.integer}",
            f"{axis} = tile * {block} + tl.arange(0, {block}){self.integer}",
            "d = tl.arange(0, D)",
            "e = tl.arange(0, E)",
            *self.starts(axis, read),
        ]

    def starts(self, axis: str, read: str) -> list[str]:
        """Where the matrices `read` of this program start; `heads` is the number of a head of k and v."""
        lines = [f"heads = batch // {self.shared}" if self.shared > 1 else "heads = batch"] if axis == "i" else []
        names = [*read, *(["mask"] if self.mask is not None and ("q" in read or axis == "i") else [])]
        for name in names:
            number = "heads" if name in ("k", "v") else "batch"
            lines.append(f"{name}_at = {name} + {address(self.views[name].batch, number)}")
        return lines

    def masked_scores(self, transposed: bool) -> list[str]:
        """Lines that turn `scores` into those that count, with scale and mask, in base e (`transposed`: (J, I))."""
        view, rows = self.views["mask"], "j" if transposed else "i"
        axes = {name: "[:, None]" if name == rows else "[None, :]" for name in "ij"}
        parts, limits = [], []
        for name, part, length in (("i", view.row, "queries"), ("j", view.column, "keys")):
            if part.terms:
                parts.append(f"({address(part, name)}){axes[name]}")
                limits.append(f"({name} < {length}){axes[name]}")
        at = f"mask_at + ({' + '.join(parts)})" if parts else "mask_at + tl.zeros([1, 1], tl.int32)"
        bounds = f", mask={' & '.join(limits)}, other=0" if limits else ""
        lines = [f"m = tl.load({at}{bounds})"]
        if self.mask is bool_:
            return [*lines, f'scores = tl.where(m, scores * {self.scale}, float("-inf"))']
        return [*lines, f"scores = tl.fma(scores, {self.scale}, m.to(tl.float32))"]

    def load(self, name: str, masked: bool) -> str:
        """The line that loads a tile of q, k, v or g; rows past the end are 0 if they are masked."""
        view, row = self.views[name], "i" if name in "qg" else "j"
        column, size, padded = ("d", self.head, self.padded(self.head)) if name in "qk" else (
            "e", self.value_head, self.padded(self.value_head))
        parts = [f"{_along(view.row, row)}[:, None]", f"{_along(view.column, column)}[None, :]"]
        limits = [f"({row} < {'queries' if row == 'i' else 'keys'})[:, None]"] if masked else []
        limits += [f"({column} < {size})[None, :]"] if padded != size else []
        mask = f", mask={' & '.join(limits)}, other=0" if limits else ""
        return f"{name}_tile = tl.load({name}_at + ({' + '.join(parts)}){mask})"

    def load_row(self, name: str, masked: bool, other: str = "0") -> str:
        """The line that loads a tile of lse or delta."""
        mask = f", mask=i < queries, other={other}" if masked else ""
        return f"{name}_row = tl.load({name} + (batch * queries + i){mask})"

    def store(self, name: str, axis: str, value: str, output: Node | None = None) -> str:
        """The line that stores a tile of a result: contiguous in its own shape, with `beside` token by token, or where
        the slice lies that the output is."""
        length = "queries" if axis == "i" else "keys"
        column, size = ("d", self.head) if name in ("dq", "dk") else ("e", self.value_head)
        mask = f"({axis} < {length})[:, None]" + (
            f" & ({column} < {size})[None, :]" if self.padded(size) != size else "")
        number = "heads" if name in ("dk", "dv") else "batch"
        found = None if output is None else self.group.slice_of(output)
        if found is not None:
            return self._store_slice(name, found, (number, axis, column), value, mask)
        row = f"{number} * {length} + {axis}[:, None]"
        if self.beside:
            heads = self.heads // (self.shared if number == "heads" else 1)
            row = f"({number} // {heads} * {length} + {axis}[:, None]) * {heads} + {number} % {heads}"
        at = f"({row}) * {size} + {column}[None, :]"
        return f"tl.store({name} + ({at}), ({value}).to({self.dtype}), mask={mask})"

    def _store_slice(self, name: str, found: Slice, names: tuple[str, str, str], value: str, mask: str) -> str:
        view = slice_view(found, self.beside)
        assert view is not None, "`slices_of` has asked"
        number, row, column = names
        at = (f"{address(view.batch, number)} + {_along(view.row, row)}[:, None] + "
              f"{_along(view.column, column)}[None, :]")
        return f"tl.store({name} + ({at}), ({value}).to({self.dtype}), mask={mask})"

    @staticmethod
    def padded(size: int) -> int:
        """A head size as a block size."""
        return max(16, power_of_two(size))

    @property
    def padded_head(self) -> int:
        """A streamed head's size in shared memory: whole rows of what the copy engine swizzles."""
        return max(64, power_of_two(self.head))

    @property
    def ragged_keys(self) -> bool:
        """Does the last tile of keys reach past the end?"""
        return self.keys % self.tile.j != 0

    @property
    def one_tile(self) -> bool:
        """Are all keys one tile, whatever the sizes are?"""
        keys = literal_value(self.keys)
        return not self.causal and keys is not None and keys <= self.tile.j

    @property
    def ragged_queries(self) -> bool:
        """Does the last tile of queries reach past the end?"""
        return self.queries % self.tile.i != 0

    def key_ranges(self) -> list[str]:
        """Lines for `full`, where the keys end that all rows of tile i see, and `end`, where those of any row do."""
        whole = "keys // J * J" if self.ragged_keys else "keys"
        if not self.causal:
            return [f"full = {whole}", "end = keys"]
        return [f"full = tl.minimum(tile * I // J * J, {whole})", "end = tl.minimum(tile * I + I, keys)"]

    def visible(self) -> str:
        """Which scores of a tile (I, J) count, in the second loop over keys."""
        parts = ["(j[None, :] <= i[:, None])"] if self.causal else []
        parts += ["(j < keys)[None, :]"] if self.ragged_keys else []
        return " & ".join(parts)

    def source(self, name: str, lines: list[str], outputs: dict[str, Node | None], axis: str,
               before: Sequence[str] = ()) -> KernelSource:
        """The finished kernel; `axis` is the one that programs share out. Lines `before` do not wait."""
        used = {x: node for x, node in self.memory.items()
                if any(f"({x} + " in line or f"= {x} + " in line for line in (*before, *lines))}
        pointers = {**used, **{x: node for x, node in outputs.items() if node is not None}}
        sizes = {"queries": self.queries, "keys": self.keys}
        constexprs = {"I": self.tile.i, "J": self.tile.j, "D": self.padded(self.head),
                      "E": self.padded(self.value_head),
                      **({"SEEN": SEEN_BLOCK} if any("SEEN" in line for line in lines) else {})}
        signature = {**{x: POINTER[node.dtype.name] for x, node in pointers.items()}, **dict.fromkeys(sizes, "i32"),
                     **dict.fromkeys(constexprs, "constexpr")}
        tiles = -(-self.queries // self.tile.i) * self.batch if axis == "i" else (
            -(-self.keys // self.tile.j) * (self.batch // self.shared))
        return KernelSource(
            name, module(name, signature, lines, before=before), signature, constexprs,
            (*pointers.values(), *sizes.values()), (*pointers, *multiples_of_16(sizes)), (tiles, 1, 1),
            self.tile.num_warps, self.tile.num_stages, label=name, flushes=True)  # so small weights do not count


def emit_attention(group: Group, gpu: GpuModel) -> KernelSource:
    """The forward: y = softmax(q·kᵀ·scale)·v and lse = log Σ exp(q·kᵀ·scale), whichever is wanted."""
    a = Attention(group, gpu, ("q", "k", "v"))
    refused = refusal(a, gpu)
    if refused is None:
        return emit_streamed_attention(a)
    y, lse = a.output(0), a.output(1)
    asked = keys_asked_for(a) if y is not None else []
    placed = a.place("i", "qkv" if y is not None else "qk")
    lines = [*(() if asked else placed), a.load("q", a.ragged_queries),
             'best = tl.full([I], float("-inf"), tl.float32)', "total = tl.zeros([I], tl.float32)",
             *(["sums = tl.zeros([I, E], tl.float32)"] if y is not None else []),
             *(_one_tile(a, y is not None) if a.one_tile else _all_tiles(a, y is not None))]
    share, log = "1.0 / total", f"(best + tl.log2(total)) * {LN_2}"
    if a.mask is not None:
        share = "tl.where(total > 0, 1.0 / total, 0.0)"
        log = f'tl.where(total > 0, best + tl.log2(total) * {LN_2}, float("inf"))'
    if y is not None:
        lines.append(a.store("y", "i", f"sums * ({share})[:, None]"))
    if lse is not None:
        lines.append(f"tl.store(lse + (batch * queries + i), {log}, mask=i < queries)")
    source = a.source("attention" if y is not None else "attention_lse", lines, {"y": y, "lse": lse}, "i",
                      before=[*placed, *asked] if asked else ())
    return replace(source, note=f"its tiles are not streamed, because {refused}")


def _along(part: Expr, variable: str) -> str:
    """A part of an address along one variable, also where it is the same for all: there is one row, say."""
    return f"({address(part, variable)})" if part.terms else f"tl.zeros_like({variable})"


def _all_tiles(a: Attention, values: bool) -> list[str]:
    """The loops over tiles of keys: those that every row sees whole, then those with bounds."""
    skips = masks_keys(a)
    lines = [*a.key_ranges(), *(seen_range(a) if skips else []),
             f"for start in range({'begin' if skips else 0}, full, J):",
             *indented(_online_softmax(a, values, masked=False))]
    if a.causal or a.ragged_keys:
        lines += ["for start in range(full, end, J):", *indented(_online_softmax(a, values, masked=True))]
    return lines


def _one_tile(a: Attention, values: bool) -> list[str]:
    """Keys that are one tile, without a loop; nothing of them is read where a mask hides them all."""
    lines = ["start = 0", *_online_softmax(a, values, masked=a.ragged_keys)]
    if not hides_keys(a):
        return lines
    return [*any_seen(a), "if seen:", *indented(lines)]


def _online_softmax(a: Attention, values: bool, masked: bool) -> list[str]:
    """A tile of keys: scores, the new maximum, what it makes of the sums so far."""
    ragged = masked and a.ragged_keys
    scale = a.scale * LOG2_E
    early = values and a.one_tile  # in a loop it is the pipeline that loads values ahead
    lines = [f"j = start + tl.arange(0, J){a.integer}", *([a.load("v", ragged)] if early else []), a.load("k", ragged),
             f"scores = tl.dot(q_tile, tl.trans(k_tile){a.precision})"]
    if a.mask is not None:
        lines += a.masked_scores(transposed=False)
    if masked:
        lines.append(f'scores = tl.where({a.visible()}, scores, float("-inf"))')
    if a.mask is not None:  # a row that has seen no key yet counts from 0
        lines += ["larger = tl.maximum(best, tl.max(scores, 1))",
                  'base = tl.where(larger == float("-inf"), 0.0, larger)',
                  f"p = tl.exp2((scores - base[:, None]) * {LOG2_E})", f"shrink = tl.exp2((best - base) * {LOG2_E})"]
    else:  # key 0 is in the first tile and every row sees it, so `larger` is finite from the start
        lines += [f"larger = tl.maximum(best, tl.max(scores, 1) * {scale})",
                  f"p = tl.exp2(tl.fma(scores, {scale}, -larger[:, None]))",
                  "shrink = tl.exp2(best - larger)"]
    lines.append("total = tl.fma(total, shrink, tl.sum(p, 1))")
    if values:
        lines += [*([] if early else [a.load("v", ragged)]), "sums = sums * shrink[:, None]",
                  f"sums = tl.dot(p.to({a.dtype}), v_tile, sums{a.precision})"]
    return [*lines, "best = larger"]
