"""Each operator of torch's table, called in every manner that torch takes (`manners.py`): values are torch's.

The default run calls each with its sample of the most arguments; `-m sweep` with 12 samples, in float32 and int64.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch

from tests.opinfo.judging import disagreement
from tests.opinfo.manners import MANNERS, Call, Pair, pairs
from tests.opinfo.operators import OPERATORS, Operator, seed
from tests.opinfo.test_operators import DRAWN, in_short, report
from tests.opinfo.values import Translation, Untranslatable, parts, shown

MANY = 12


class Difference(NamedTuple):
    """Calls that may differ: names of operators, why, and in which manners."""

    operators: frozenset[str]
    why: str
    manners: frozenset[str] = frozenset(MANNERS)


DIFFERENCES: tuple[Difference, ...] = (
    Difference(frozenset({"as_strided", "as_strided.partial_views"}),
               "the sample looks beyond its input into the rest of torch's storage, which is not brought over"),
    Difference(frozenset({"linalg.lstsq.grad_oriented", "linalg.pinv.singular"}),
               "torch's table calls a function of its own, which makes other arguments of the sample's"),
    Difference(frozenset({"to_sparse"}), "a sparse tensor is an object of its own, no Tensor"),
    Difference(frozenset({"max.reduction_with_dim", "min.reduction_with_dim", "max.binary", "min.binary"}),
               "a tensor at the place of dim is the other operand, unless keepdim says what it is",
               frozenset({"keywords", "numpy", "tensors"})),
    Difference(frozenset({"gradient"}), "spacing without dimensions is a number, not a tensor", frozenset({"tensors"})),
    Difference(frozenset({"unique_consecutive"}), "by position torch gives the empty result of what was not asked for",
               frozenset({"position"})),
)


@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
def test_in_every_manner(operator: Operator) -> None:
    report(operator, list(_problems(operator, torch.float32, 1)))


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
def test_all_samples_in_every_manner(operator: Operator, dtype: torch.dtype) -> None:
    report(operator, list(_problems(operator, dtype, MANY)))


def test_each_manner_is_one_that_torch_takes() -> None:
    """Were all of a manner's calls refused by torch, they would be compared with nothing."""
    operator = next(x for x in OPERATORS if x.name == "sum")
    sample = next(iter(_samples(operator, torch.float32, 1)))
    for name in ("keywords", "numpy", "position"):
        assert any(_theirs(pair, call) is not None for pair in pairs(operator) for call in MANNERS[name](pair, sample))


def _problems(operator: Operator, dtype: torch.dtype, most: int) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in _samples(operator, dtype, most):
            for pair in pairs(operator):
                for manner, made in MANNERS.items():
                    for call in () if _known(operator, manner) else made(pair, sample):
                        problem = _problem(operator, sample, dtype, pair, call)
                        if problem:
                            words = f"{shown(call.args)[1:-1]} {shown(call.kwargs)}"
                            yield f"{manner}: {pair.name}({words}): {problem}"


def _problem(operator: Operator, sample: Any, dtype: torch.dtype, pair: Pair, call: Call) -> str:
    translate = Translation()
    try:
        args, kwargs = translate(call.args), translate(call.kwargs)
        theirs = _theirs(pair, call)
        if theirs is None:
            return ""
        ours = list(parts(pair.ours(*args, **kwargs)))
        drawn = operator.random or sample.kwargs.get("dropout_p") or DRAWING in operator.name
        return disagreement(operator, sample, dtype, ours, theirs, not drawn)
    except Untranslatable:
        return ""
    except Exception as error:
        return in_short(error)


def _known(operator: Operator, manner: str) -> bool:
    return any(operator.name in row.operators and manner in row.manners for row in DIFFERENCES)


DRAWING = "multi_head_attention_forward"
"""An operator whose samples drop out."""


def _theirs(pair: Pair, call: Call) -> list[Any] | None:
    """torch's results, None where torch refuses the call."""
    try:
        return list(parts(pair.theirs(*call.args, **call.kwargs)))
    except Exception:
        return None


def _samples(operator: Operator, dtype: torch.dtype, most: int) -> list[Any]:
    """Those with the most arguments."""
    if dtype not in operator.info.supported_dtypes("cpu"):
        return []
    seed(0)
    made = list(itertools.islice(operator.info.sample_inputs("cpu", dtype), DRAWN))
    return sorted(made, key=lambda x: -len(x.args) - len(x.kwargs))[:most]
