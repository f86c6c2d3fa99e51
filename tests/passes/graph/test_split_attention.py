"""Into how many pieces the keys of one query are cut."""

from __future__ import annotations

import pytest

from genesis.codegen.cuda.gpu_model import H200
from genesis.ir import Graph
from genesis.ir.node import Node
from genesis.ir.ops.control import item
from genesis.ir.ops.flash_attention import flash_attention
from genesis.ir.types import bfloat16
from genesis.passes.graph.split_attention import MOST_PROGRAMS, SHORTEST_PIECE, split_attention
from tests.codegen.cuda.programs import inputs


def keys_of_a_piece(keys: int, heads: int = 8, batch: int = 1) -> tuple[int, int]:
    """(keys of each piece, programs) for one query of 2 × heads heads."""
    q, k, v = inputs((batch, 2 * heads, 1, 128), (batch, heads, keys, 128), (batch, heads, keys, 128), dtype=bfloat16)
    y = item(flash_attention(q, k, v, causal=False, scale=1.0), index=0)
    found: Node = next(x for x in split_attention(Graph((q, k, v), (y,)), H200).nodes if x.op is flash_attention)
    shape = found.inputs[1].type.shape
    return int(shape[2]), int(shape[0] * shape[1])


@pytest.mark.parametrize(("keys", "piece"), [(512, 64), (4352, 128), (4608, 128), (1 << 15, 512)])
def test_a_piece_is_whole_tiles_and_all_of_them_have_room_at_once(keys: int, piece: int) -> None:
    found, programs = keys_of_a_piece(keys)
    assert found == piece and found % SHORTEST_PIECE == 0
    assert programs <= MOST_PROGRAMS * H200.multiprocessors


def test_no_multiprocessor_has_many_more_tiles_than_another() -> None:
    """4 rows of 8 heads: in 8 pieces some multiprocessors would have 18 of 17.5 tiles, in 9 pieces 24."""
    piece, programs = keys_of_a_piece(4608, batch=4)
    assert -(-programs // H200.multiprocessors) * piece // SHORTEST_PIECE == 18


def test_keys_that_are_no_whole_tiles_are_cut_by_powers_of_two() -> None:
    assert keys_of_a_piece(4640)[0] == 145
    assert keys_of_a_piece(4640 + 1)[0] == 4641


@pytest.mark.parametrize("keys", [64, 4608])
def test_heads_that_lie_beside_each_other_stay_so(keys: int) -> None:
    q, k, v = inputs((1, 16, 1, 128), (1, 8, keys, 128), (1, 8, keys, 128), dtype=bfloat16)
    y = item(flash_attention(q, k, v, causal=False, scale=1.0, beside=True), index=0)
    found = split_attention(Graph((q, k, v), (y,)), H200)
    assert found.outputs[0].type is y.type and y.type.shape == (1, 1, 16, 128)
    assert not any(node["beside"] for node in found.nodes if node.op is flash_attention)


def test_heads_that_are_programs_enough_keep_their_keys() -> None:
    assert keys_of_a_piece(4608, batch=64) == (4608, 512)
