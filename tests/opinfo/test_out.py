"""`out=` on the samples of PyTorch's own operator tests: what is written where, and what is refused."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import genesis
from tests.opinfo.differences import known
from tests.opinfo.judging import disagreement
from tests.opinfo.operators import OPERATORS, Operator, look_up
from tests.opinfo.test_operators import described, in_short, report, samples, translated
from tests.opinfo.values import DTYPE, Translation, Untranslatable, parts


def takes_out(operator: Operator) -> bool:
    """Does Genesis's function of this name have the keyword?"""
    function = look_up(genesis, operator.info.name)
    return (inspect.isfunction(function) and "out" in inspect.signature(function).parameters
            and operator.name != "normal.in_place")


FEW = 3
WRITING = [o for o in OPERATORS if takes_out(o)]
by_name = pytest.mark.parametrize("operator", WRITING, ids=repr)


def cases(operator: Operator, dtypes: tuple[torch.dtype, ...],
          most: int = FEW) -> Iterator[tuple[Any, Any, tuple, dict]]:
    """(sample, torch's result, our arguments) of the first samples that can be had."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype, sample in samples(operator, dtypes, most, grad=False):
            if known(operator.name, "forward", sample, dtype) or "out" in sample.kwargs:
                continue
            if sample.kwargs.get("as_tuple"):  # torch refuses an out for as many results as there are dimensions
                continue
            try:
                args, kwargs = translated(Translation(), sample)
            except Untranslatable:
                continue
            result = operator.info.op(sample.input, *sample.args, **sample.kwargs)
            if all(isinstance(x, torch.Tensor) for x in parts(result)):
                yield sample, result, args, kwargs


def outs(result: Any, make: Callable[[torch.Tensor], Any]) -> Any:
    """What to give as `out`: a tensor, or a tuple of them."""
    made = tuple(make(x) for x in parts(result))
    return made if isinstance(result, (tuple, list)) else made[0]


def with_gaps(x: torch.Tensor) -> Any:
    """Every other element of a tensor of ones."""
    shape = (*x.shape[:-1], 2 * x.shape[-1] + 1) if x.ndim else (3,)
    whole = genesis.ones(*shape, dtype=DTYPE[x.dtype])
    return whole[..., 1::2] if x.ndim else whole[1]


def empty(x: torch.Tensor) -> Any:
    """A tensor without elements."""
    return genesis.empty(0, dtype=DTYPE[x.dtype])


@by_name
def test_the_result_is_written(operator: Operator) -> None:
    check_written(operator, FEW)


@pytest.mark.sweep
@by_name
def test_the_result_of_more_samples_is_written(operator: Operator) -> None:
    check_written(operator, 8)


def check_written(operator: Operator, most: int) -> None:
    """Results go into memory with gaps, and into an empty tensor that grows: of few samples those of the first into
    both, the others' in turn. The values are torch's."""
    problems, seen = [], 0
    made = cases(operator, (torch.float32, torch.int64, torch.bool), most)
    for number, (sample, result, args, kwargs) in enumerate(made):
        for make in (with_gaps, empty)[number % 2:1 + number % 2] if number and most == FEW else (with_gaps, empty):
            given = outs(result, make)
            try:
                found = operator.function(*args, **kwargs, out=given)
            except Exception as error:
                problems.append(f"{described(sample)}: {in_short(error)}")
                continue
            seen += 1
            dtype = sample.input.dtype if isinstance(sample.input, torch.Tensor) else torch.float32
            written = list(parts(found))
            if any(x is not into for x, into in zip(written, parts(given), strict=False)):
                problems.append(f"{described(sample)}: another tensor is returned")
            elif problem := disagreement(operator, sample, dtype, written, list(parts(result)), not operator.random):
                problems.append(f"{described(sample)}: {problem}")
    report(operator, problems)
    assert seen


@by_name
def test_a_lower_category_is_refused(operator: Operator) -> None:
    for _, result, args, kwargs in cases(operator, (torch.float32,)):
        if all(x.dtype.is_floating_point for x in parts(result)) and "dtype" not in kwargs:
            given = outs(result, lambda x: genesis.zeros(x.shape, dtype=genesis.bool))
            with pytest.raises(RuntimeError, match=r"can't be cast to the desired output|not implemented for .*bool"):
                operator.function(*args, **kwargs, out=given)


@pytest.mark.parametrize("operator", [o for o in WRITING if o.info.supports_autograd and not o.random], ids=repr)
def test_gradients_are_refused(operator: Operator) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype, sample in samples(operator, (torch.float64,), FEW, grad=True):
            result = operator.info.op(sample.input, *sample.args, **sample.kwargs)
            if known(operator.name, "gradient", sample, dtype) or not any(x.requires_grad for x in parts(result)):
                continue
            args, kwargs = translated(Translation(grad=True), sample)
            given = outs(result, lambda x: genesis.zeros(x.shape, dtype=DTYPE[x.dtype]))
            with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
                operator.function(*args, **kwargs, out=given)
