"""torch's operator samples on CUDA: the first few of each operator, all in one plan, and their gradients in float64.

See `tests/opinfo` for where they come from and what is known to differ. One operator:
`pytest tests/gpu/test_operators.py -m "" -k "host and cumsum"`.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest
import torch

import genesis
from tests.opinfo.differences import known
from tests.opinfo.judging import disagreement
from tests.opinfo.operators import OPERATORS
from tests.opinfo.test_operators import (
    compare,
    described,
    differentiable,
    gradients,
    in_short,
    report,
    samples,
    translated,
)
from tests.opinfo.values import Translation, Untranslatable, parts

DTYPES = (torch.float32, torch.bfloat16, torch.int64)
FEW = 3


@pytest.mark.sweep
@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
def test_forward(cuda, operator):
    problems: list[str] = []
    pending: list[tuple[torch.dtype, Any, list[Any], list[Any]]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype, sample in samples(operator, DTYPES, FEW, grad=False):
            if known(operator.name, "forward", sample, dtype) or operator.random or sample.kwargs.get("dropout_p"):
                continue
            theirs = list(parts(operator.info.op(sample.input, *sample.args, **sample.kwargs)))
            try:
                args, kwargs = translated(Translation("cuda"), sample)
                if "device" in kwargs or takes_device(operator.function):
                    kwargs["device"] = "cuda"
                ours = list(parts(operator.function(*args, **kwargs)))
            except Untranslatable:
                continue
            except Exception as error:
                problems.append(f"{about(dtype, sample)}: {in_short(error)}")
                continue
            pending.append((dtype, sample, ours, theirs))
        genesis.eval([x for _, _, ours, _ in pending for x in ours if isinstance(x, genesis.Tensor)])
        for dtype, sample, ours, theirs in pending:
            found = elsewhere(ours) or disagreement(
                operator, sample, dtype, [x.cpu() if isinstance(x, genesis.Tensor) else x for x in ours], theirs)
            problems += [f"{about(dtype, sample)}: {found}"] if found else []
    report(operator, problems)


@pytest.mark.sweep
@differentiable
def test_gradient(cuda, operator):
    problems: list[str] = []
    pending: list[tuple[Any, list[Any], list[Any]]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype, sample in samples(operator, (torch.float64,), FEW, grad=True):
            if known(operator.name, "gradient", sample, dtype) or sample.kwargs.get("dropout_p"):
                continue
            try:
                pending.append((sample, *gradients(operator, sample, device="cuda")[:2]))
            except Untranslatable:
                continue
            except Exception as error:
                problems.append(f"{described(sample)}: {in_short(error)}")
        genesis.eval([x for _, ours, _ in pending for x in ours if x is not None])
        for sample, ours, theirs in pending:
            found = compare([x if x is None else x.cpu() for x in ours], theirs)
            problems += [f"{described(sample)}: {found}"] if found else []
    report(operator, problems)


def takes_device(function: Any) -> bool:
    """Is this a function of Genesis that makes tensors?"""
    return inspect.isfunction(function) and "device" in inspect.signature(function).parameters


def elsewhere(results: list[Any]) -> str:
    """What is not on the GPU."""
    lost = [x.device for x in results if isinstance(x, genesis.Tensor) and x.device.type != "cuda"]
    return f"a result is on {lost[0]}" if lost else ""


def about(dtype: torch.dtype, sample: Any) -> str:
    """The sample in a line."""
    return f"{str(dtype).removeprefix('torch.')} {described(sample)}"
