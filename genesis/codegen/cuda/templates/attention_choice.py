"""What attention's kernels can be made with: tiles of queries and keys, and forms that are streamed.

Which is best for 16-bit operands has been measured (`measured_choices.txt`). The model orders the others: what the
products take, what is read for each tile that is kept, and what registers spill. For float32, which has no dot
instruction, the first tile is that of a rule: sums of queries fill the same registers whatever the head's size is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from genesis.codegen.cuda.choices import Candidate, choose, size_class
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.templates.product_choice import BLOCK_MICROSECONDS, IEEE_SLOWER, dot_of
from genesis.ir.sym_int import hint
from genesis.ir.types import DType, float32
from genesis.passes.product_times import MEASURED_AT

HEADS: Final = (64, 128, 256)
"""Classes of head sizes: the first that is no smaller counts."""

PRODUCTS: Final = {"flash_attention": 2, "flash_attention_dq": 3, "flash_attention_dkv": 4}
"""Attention's ops → products of a tile of queries and a tile of keys that each makes."""

FLOAT32_SUMS: Final = 4096
"""Elements of a float32 tile's sums: queries times a head."""

REGISTERS: Final = 200
"""Registers of a thread beyond which what it holds is taken to be spilled."""

READ_BYTES: Final = 64 * 1463
"""Bytes a microsecond that a multiprocessor reads from the L2, reckoned with 64 a cycle."""

EACH_TILE: Final = 0.15
"""Microseconds that a tile takes beside its products: bounds, maxima, waiting for the others; reckoned."""


@dataclass(frozen=True)
class AttentionTile:
    """Queries and keys of a tile, warps, and how many tiles are loaded ahead."""

    i: int
    j: int
    num_warps: int
    num_stages: int

    @property
    def name(self) -> str:
        """Its parameters, as tables of choices write them."""
        return f"{self.i}x{self.j} warps={self.num_warps} stages={self.num_stages}"


GRID: Final = tuple(AttentionTile(i, j, warps, stages) for i in (16, 32, 64, 128) for j in (32, 64, 128)
                    for warps in (4, 8) for stages in (1, 2, 3, 4))


@dataclass(frozen=True)
class Form:
    """How a head size is streamed.

    Attributes:
        keys: of a tile.
        stages: tiles of keys, and of values, in shared memory.
        kept: whether a result has shared memory of its own, or that of its queries.
    """

    keys: int
    stages: int
    kept: bool

    @property
    def name(self) -> str:
        """Its parameters, as tables of choices write them."""
        return f"keys={self.keys} stages={self.stages}{'' if self.kept else ' shared'}"


FORMS: Final = (Form(128, 3, True), Form(128, 2, True), Form(64, 2, False))
"""The forms that kernels were tried in, those that keep most in shared memory first."""


@dataclass(frozen=True)
class Problem:
    """An attention's sizes.

    Attributes:
        op: which of its kernels.
        batch: heads of all rows.
        head: the larger of a query's and a value's size.
        masked: whether a mask is added.
    """

    op: str
    dtype: DType
    batch: int
    queries: int
    keys: int
    head: int
    causal: bool
    masked: bool

    @property
    def words(self) -> dict[str, str | int]:
        """The problem, as tables write it."""
        sees = "masked" if self.masked else "causal" if self.causal else "all"
        return {"dot": dot_of(self.dtype), "head": head_class(self.head), "sees": sees,
                "batch": size_class(self.batch), "queries": size_class(self.queries), "keys": size_class(self.keys)}


def head_class(head: int) -> int:
    """The class of a head's size."""
    return next(most for most in HEADS if head <= most)


def tile_for(problem: Problem, gpu: GpuModel) -> AttentionTile:
    """The tile of a kernel that is not streamed, before it is made to fit."""
    candidates = sorted((Candidate(tile.name, tile, _microseconds(tile, problem, gpu)) for tile in GRID),
                        key=lambda candidate: candidate.microseconds)
    if problem.dtype is float32:
        first = _float32_tile(head_class(problem.head))
        candidates.sort(key=lambda candidate: candidate.value != first)
    return choose(problem.op, problem.words, gpu, candidates[0], lambda: candidates[1:])


def form_for(problem: Problem, forms: tuple[Form, ...], gpu: GpuModel) -> Form:
    """Which of the forms that there is room for is streamed: by the model the one that keeps most."""
    best = _streamed_microseconds(problem, gpu)
    candidates = [Candidate(form.name, form, best * (1 + place / 10)) for place, form in enumerate(forms)]
    return choose("streamed_attention", problem.words, gpu, candidates[0], lambda: candidates[1:])


@cache
def _float32_tile(head: int) -> AttentionTile:
    return AttentionTile(FLOAT32_SUMS // head, 32, 8, 2 if head <= 128 else 1)


def _scores(problem: Problem) -> int:
    scores = hint(problem.batch) * hint(problem.queries) * hint(problem.keys)
    return scores // 2 if problem.causal else scores


def _products_microseconds(problem: Problem, gpu: GpuModel) -> float:
    """The time of all products, if multiprocessors were always at them."""
    done = PRODUCTS[problem.op] * _scores(problem) * head_class(problem.head) / (128 * 256 * 64)
    slower = IEEE_SLOWER if dot_of(problem.dtype) == "ieee" else problem.dtype.itemsize / 2
    return done * BLOCK_MICROSECONDS * slower * (MEASURED_AT / max(gpu.dot_flops, 1)) / gpu.multiprocessors


def _streamed_microseconds(problem: Problem, gpu: GpuModel) -> float:
    return _products_microseconds(problem, gpu)


def _microseconds(tile: AttentionTile, problem: Problem, gpu: GpuModel) -> float:
    """The model of a tile."""
    by_keys, head = problem.op == "flash_attention_dkv", head_class(problem.head)
    kept = tile.j if by_keys else tile.i
    sums = kept * head * (2 if by_keys else 1)
    held = (sums + 2 * tile.i * tile.j) / (32 * tile.num_warps)
    spills = max(1.0, held / REGISTERS) ** 2
    read = _scores(problem) / kept * 2 * head * problem.dtype.itemsize / READ_BYTES / gpu.multiprocessors
    tiles = _scores(problem) / (tile.i * tile.j) / gpu.multiprocessors
    waits = EACH_TILE * (5 - tile.num_stages) / 2
    return (_products_microseconds(problem, gpu) + read + tiles * waits) * spills
