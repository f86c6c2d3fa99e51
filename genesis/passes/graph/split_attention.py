"""Attention of one query to many keys, as a model that writes one token after another has: the keys are shared out.

A program of the attention kernel has a tile of queries and walks over all keys. With one query there are as few
programs as heads, and each walks far. Here each piece of the keys is a head of its own, and the pieces' results are
weighed by their share of the sum (Dao et al. 2023, Flash-Decoding). Query heads that share a head of keys are the rows
of one tile, so that the keys are read once; that is all that is done where heads and batch are enough programs.
"""

from __future__ import annotations

import math
from typing import Final

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node, literal
from genesis.ir.ops.attention import group_size
from genesis.ir.ops.control import item
from genesis.ir.ops.flash_attention import flash_attention
from genesis.ir.ops.movement import expand, permute, reshape
from genesis.ir.ops.pointwise import eq, exp, where_
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.reduction import max, spread, sum
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import hint
from genesis.passes.gpu import Gpu

SHORTEST_PIECE: Final = 64
"""Fewest keys of a piece: a tile of the kernel."""

LONGER_PIECE: Final = 128
"""Fewest keys of a piece where shorter ones are more than enough programs: each piece is one more to add up (H200,
2026-11: a token's step of Qwen3-0.6B at 4096 of context 0.963 ms with 68 pieces of 64 keys a head, 0.903 with 34)."""

PROGRAMS: Final = 2
"""Programs for each multiprocessor that are enough."""

MOST_PROGRAMS: Final = 5
"""Programs for each multiprocessor that have room at once, about: more pieces begin when others have ended."""


def split_attention(graph: Graph, gpu: Gpu) -> Graph:
    """One query's attention to all keys → its attention to each piece of them, and their weighed sum.

    before: %3 = flash_attention(%q: (1,16,1,128), %k: (1,8,4096,128), %v)
    after:  %3 = flash_attention(%q: (1,512,2,128), %k: (1,512,64,128), %v)      # 64 pieces of 8 heads, 2 rows each
            %4 = sum(mul(%3, …), axes=(2,))                                       # with weights from its lse
    """
    kept = {node.inputs[0] for node in graph.nodes if _is_result(node, 1)}

    def replaced(node: Node) -> Node | None:
        return _shared_out(node.inputs[0], gpu) if _is_result(node, 0) and node.inputs[0] not in kept else None
    return rewrite(graph, replaced)


def _is_result(node: Node, index: int) -> bool:
    return node.op is item and node.inputs[0].op is flash_attention and node["index"] == index


def _pieces(heads: int, keys: int, gpu: Gpu) -> int:
    """How many pieces of the keys give every multiprocessor work; 1 where they have it, or too few keys to share."""
    if keys.__class__ is int and keys % SHORTEST_PIECE == 0 and 2 * hint(heads) <= PROGRAMS * gpu.multiprocessors:
        many = hint(heads) * (keys // SHORTEST_PIECE) > PROGRAMS * gpu.multiprocessors and keys % LONGER_PIECE == 0
        return _pieces_of_tiles(hint(heads), keys // (LONGER_PIECE if many else SHORTEST_PIECE), gpu)
    found = 1
    while (hint(heads) * found * 2 <= PROGRAMS * gpu.multiprocessors and is_multiple(keys, found * 2)
           and hint(keys) // (found * 2) >= SHORTEST_PIECE):
        found *= 2
    return found


def _pieces_of_tiles(heads: int, tiles: int, gpu: Gpu) -> int:
    """The number of pieces of whole tiles by which the busiest multiprocessor has the fewest tiles; of such numbers the
    largest, as short walks wait for memory together."""
    def of_busiest(pieces: int) -> int:
        return -(-heads * pieces // gpu.multiprocessors) * (tiles // pieces)
    fitting = [n for n in range(1, tiles + 1) if tiles % n == 0 and heads * n <= MOST_PROGRAMS * gpu.multiprocessors]
    return min(fitting, key=lambda n: (of_busiest(n), -n))


def _shared_out(node: Node, gpu: Gpu) -> Node | None:
    q, k, v, *mask = node.inputs
    if q.type.ndim != 4 or node["causal"] or not (q.type.shape[2].__class__ is int and q.type.shape[2] == 1):
        return None
    batch, heads, _, size = q.type.shape
    keys, value_size = v.type.shape[2:]
    heads, rows = int(heads), int(group_size(q.type, k.type))  # those of a model: symbolic sizes become what they are
    shared = heads // rows
    pieces = _pieces(batch * shared, keys, gpu)
    if pieces == 1 and rows == 1:
        return None
    inner, all_heads = keys // pieces, shared * pieces
    tiles = reshape(q, shape=(batch, shared, 1, rows, size))
    tiles = reshape(expand(tiles, shape=(batch, shared, pieces, rows, size)), shape=(batch, all_heads, rows, size))
    seen = [reshape(permute(reshape(x, shape=(batch, shared, rows, pieces, inner)), axes=(0, 1, 3, 2, 4)),
                    shape=(batch, all_heads, rows, inner)) for x in mask]
    found = flash_attention(tiles, reshape(k, shape=(batch, all_heads, inner, size)),
                            reshape(v, shape=(batch, all_heads, inner, value_size)), *seen,
                            **{**node.attributes, "beside": False})
    shape = node.types[0].shape  # of one token: by heads or beside each other, they lie in one order
    if pieces == 1:
        return reshape(item(found, index=0), shape=shape)
    parts = reshape(item(found, index=0), shape=(batch, shared, pieces, rows, value_size))
    lse = reshape(item(found, index=1), shape=(batch, shared, pieces, rows, 1))
    return reshape(downcast(_weighed(upcast(parts), lse, bool(mask)), q), shape=shape)


def _weighed(parts: Node, lse: Node, masked: bool) -> Node:
    """The sum over axis 2 of the parts, each with its share exp(lse) of the whole; that saw no key where lse is ∞."""
    lse = expand(lse, shape=parts.type.shape)
    if masked:
        lse = where_(eq(lse, literal(math.inf)), -math.inf, lse)
    top = max(lse, axes=(2,))
    if masked:
        top = where_(eq(top, literal(-math.inf)), 0.0, top)
    weights = exp(lse - spread(top, lse, (2,)))
    total = sum(weights, axes=(2,))
    if masked:
        total = where_(eq(total, literal(0.0)), 1.0, total)
    return sum(parts * weights, axes=(2,)) / total
