"""What the judge of results lets pass, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import genesis
from tests.opinfo.judging import ATTENTION, SUMS_OF_PRODUCTS, disagreement
from tests.opinfo.operators import OPERATORS
from tests.opinfo.test_operators import samples
from tests.opinfo.values import array, differs, parts

BY_NAME = {o.name: o for o in OPERATORS}


def first_sample(name: str, dtype: torch.dtype, accepts: Any) -> Any:
    """The operator's first sample that is accepted."""
    return next(sample for _, sample in samples(BY_NAME[name], (dtype,), None, grad=False) if accepts(sample))


@pytest.mark.parametrize(("indices", "verdict"), [
    ([0, 2], ""), ([1, 2], ""), ([2, 1], ""), ([1, 1], "taken twice"), ([0, 3], "other elements"),
    ([0, 4], "out of range"), ([0, -1], "out of range")])
def test_indices_of_equal_elements(indices, verdict):
    """topk of [5, 5, 5, 1]: any two of the first three, but nothing else and no element twice."""
    sample = first_sample("topk", torch.int64, lambda sample: sample.input.ndim and len(sample.args) < 2)
    sample.input, sample.args = torch.tensor([5, 5, 5, 1]), (2,)
    theirs = list(torch.topk(sample.input, 2))
    ours = [genesis.tensor([5, 5]), genesis.tensor(indices)]
    found = disagreement(BY_NAME["topk"], sample, torch.int64, ours, theirs)
    assert verdict in found and bool(verdict) is bool(found)


def test_a_stable_order_is_not_open():
    sample = first_sample("sort", torch.int64, lambda sample: sample.kwargs.get("stable") and sample.input.ndim)
    sample.input, sample.args, sample.kwargs = torch.tensor([1, 1, 0]), (), {"stable": True}
    ours = [genesis.tensor([0, 1, 1]), genesis.tensor([2, 1, 0])]
    theirs = list(torch.sort(sample.input, stable=True))
    assert disagreement(BY_NAME["sort"], sample, torch.int64, ours, theirs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", sorted(SUMS_OF_PRODUCTS))
def test_a_lost_element_is_seen(name, dtype):
    """With 0 for an operand's largest element (in attention, a value's): what torch's own tolerance sees is seen."""
    operator, seen, different = BY_NAME[name], 0, 0
    for _, sample in samples(operator, (dtype,), 12, grad=False):
        operand = sample.args[1] if name == ATTENTION else next(parts(sample.input))
        lossy = sample.transform(lambda x, operand=operand: without_largest(x) if x is operand else x)
        want, got = (list(parts(operator.info.op(s.input, *s.args, **s.kwargs))) for s in (sample, lossy))
        ours = [genesis.tensor(array(x)) for x in got]
        different += any(differs(x, y) for x, y in zip(ours, want, strict=True))
        seen += bool(disagreement(operator, sample, dtype, ours, want))
    assert seen == different > 0


def without_largest(x: torch.Tensor) -> torch.Tensor:
    """Zero in place of the largest magnitude."""
    return torch.where(x.abs() == x.abs().max(), 0, x) if x.numel() else x
