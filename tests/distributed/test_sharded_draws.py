"""Dropout on several ranks drops what dropout on one process drops, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest

import genesis
from genesis import distributed as dist
from genesis import nn
from genesis.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from genesis.frontend.draw_parts import drawing_part
from genesis.models import AutoModelForCausalLM, config_for
from genesis.nn import functional as F
from genesis.nn.parallel import DistributedDataParallel
from tests.distributed.ranks import Ranks, device_type


@pytest.mark.parametrize("dim, place, count", [(0, 0, 2), (0, 1, 2), (1, 1, 3), (-1, 2, 3)])
def test_a_part_draws_the_bits_of_its_place(dim: int, place: int, count: int) -> None:
    x = genesis.ones(6, 3, 9, requires_grad=True)
    genesis.manual_seed(3)
    whole = F.dropout(x, 0.4)
    whole.sum().backward()
    genesis.manual_seed(3)
    part = genesis.ones(6, 3, 9).chunk(count, dim)[place].clone().requires_grad_()
    with drawing_part(dim, place, count):
        mine = F.dropout(part, 0.4)
    mine.sum().backward()
    assert x.grad is not None and part.grad is not None
    assert mine.tolist() == whole.chunk(count, dim)[place].tolist()
    assert part.grad.tolist() == x.grad.chunk(count, dim)[place].tolist()


def test_a_compiled_function_knows_which_part_it_drew_for() -> None:
    run = genesis.compile(lambda x: F.dropout(x, 0.5))
    x = genesis.ones(4, 8)
    found = []
    for _ in range(3):
        genesis.manual_seed(1)
        whole = run(genesis.ones(8, 8)).tolist()
        for place in (0, 1):
            genesis.manual_seed(1)
            with drawing_part(0, place, 2):
                found.append(run(x).tolist() == whole[4 * place:4 * place + 4])
    assert all(found)


def rows(rank: int, size: int) -> list[Any]:
    """Rows of a module whose results are exact: powers of two, sums of few."""
    genesis.manual_seed(0)
    module: Any = nn.Sequential(nn.Dropout(0.25), nn.Flatten(), nn.Dropout(0.5))
    if size > 1:
        module.add_module("last", nn.Linear(12, 1, bias=False))
        module = DistributedDataParallel(module)
        module.module.pop(3)
    x = genesis.arange(96.0).view(8, 3, 4).chunk(size)[rank]
    genesis.manual_seed(9)
    return [module(x).tolist() for _ in range(2)]


def test_rows_of_data_parallel_ranks(ranks: Ranks) -> None:
    alone = rows(0, 1)
    found = ranks(rows)
    for call in (0, 1):
        assert [row for rank in found for row in rank[call]] == alone[call]


def columns(rank: int, size: int) -> list[Any]:
    genesis.manual_seed(0)
    first, last = nn.Linear(4, 8, bias=False), nn.Linear(8, 4, bias=False)
    with genesis.no_grad():  # whole numbers: sums in any order are equal
        for layer in (first, last):
            layer.weight.copy_(genesis.randint(-3, 4, layer.weight.shape).float())
    model = nn.Sequential(first, nn.Dropout(0.5), last)
    if size > 1:
        parallelize_module(model, dist.init_device_mesh(device_type(), (size,)), {
            "0": ColwiseParallel(), "1": SequenceParallel(sequence_dim=-1), "2": RowwiseParallel()})
    genesis.manual_seed(9)
    x = genesis.arange(24.0).view(6, 4).requires_grad_()
    y = model(x)
    y.sum().backward()
    assert x.grad is not None
    return [y.tolist(), x.grad.tolist()]


def test_columns_of_tensor_parallel_ranks(ranks: Ranks) -> None:
    alone = columns(0, 1)
    assert all(found == alone for found in ranks(columns))


def losses(rank: int, size: int, sequence: bool) -> list[float]:
    genesis.manual_seed(5)
    model = AutoModelForCausalLM.from_config(config_for(
        "gpt2", vocab_size=17, n_positions=16, n_embd=8, n_layer=1, n_head=4, initializer_range=0.3,
        resid_pdrop=0.3, embd_pdrop=0.3, attn_pdrop=0.3))
    if size > 1:
        parallelize_module(model, dist.init_device_mesh(device_type(), (size,)), model.tp_plan(size, sequence))
    genesis.manual_seed(6)
    ids = genesis.tensor([[3, 1, 4, 1], [5, 9, 2, 6]])
    return [model(ids, labels=ids).loss.item() for _ in range(3)]


@pytest.mark.parametrize("sequence", [False, True])
def test_a_transformer_that_ranks_share_drops_the_same(two: Ranks, sequence: bool) -> None:
    """Losses differ by rounding alone; another mask makes them differ by tenths."""
    alone = losses(0, 1, sequence)
    assert max(alone) - min(alone) > 0.01, "the dropout is not seen"
    for found in two(losses, sequence):
        assert found == pytest.approx(alone, rel=1e-5)
