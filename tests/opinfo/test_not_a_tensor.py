"""A tensor of torch's, an array of numpy's or a number in a tensor's place is a TypeError that says what it is.

Asked of every operator of torch's table that Genesis has a name for, for each of its tensors in turn. What is taken as
the values it holds (by an index, a number, a list of values) is right by the other tests.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import genesis
from genesis.nn import functional as F
from tests.opinfo.operators import OPERATORS, Operator, seed
from tests.opinfo.test_operators import in_short, report, translated
from tests.opinfo.values import Translation, Untranslatable, array

OF_THE_OBJECT = {"H", "mH", "repeat", "resize_", "zero_", "normal.in_place"}
"""Called as methods and attributes of the object itself, whichever it is."""

ASKED = [o for o in OPERATORS if o.name not in OF_THE_OBJECT]


@pytest.mark.parametrize("operator", ASKED[::4], ids=repr)
def test_what_is_no_tensor_is_told(operator: Operator) -> None:
    check(operator, [max(few_samples(operator), key=count_of_tensors, default=None)])


@pytest.mark.sweep
@pytest.mark.parametrize("operator", ASKED, ids=repr)
def test_what_is_no_tensor_is_told_by_other_calls(operator: Operator) -> None:
    check(operator, [*few_samples(operator)])


@pytest.mark.parametrize("call", [
    lambda x, other: x.view(torch.float32), lambda x, other: genesis.add(x, x, out=other),
    lambda x, other: x.to(torch.float32), lambda x, other: x[other],
    lambda x, other: F.silu(3), lambda x, other: F.softsign(other), lambda x, other: F.tanhshrink(other),
    lambda x, other: F.conv1d(x[None], other[None]), lambda x, other: genesis.where(other > 0, x, x),
    lambda x, other: x.masked_fill(other > 0, 0)])
def test_what_the_table_does_not_ask(call: Any) -> None:
    with pytest.raises(TypeError, match=r"genesis (tensor|dtype)"):
        call(genesis.ones(2, 2), torch.ones(2, 2))


def test_the_name_of_a_dtype_is_no_device() -> None:
    with pytest.raises(RuntimeError, match=r"invalid device 'float64'(.|\n)*try: .*genesis\.float64"):
        genesis.ones(2).to("float64")


def check(operator: Operator, samples: list[Any]) -> None:
    problems = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in filter(None, samples):
            try:
                call = translated(Translation(), sample)
            except Untranslatable:
                continue
            for path, tensor in tensors(((sample.input, *sample.args), sample.kwargs)):
                for other in (tensor, array(tensor)):
                    problems += not_told(operator, *replaced(call, path, other), f"{path} is {type(other).__name__}")
                if path == (0, 0) and torch_refuses_a_number(operator, sample):
                    problems += not_told(operator, *replaced(call, path, 3), f"{path} is a number")
    report(operator, problems)


def few_samples(operator: Operator) -> Iterator[Any]:
    """A sample for each number of tensors that a call may have."""
    for dtype in (torch.float32, torch.int64, torch.bool):
        if dtype in operator.info.supported_dtypes("cpu"):
            seed(0)
            made = itertools.islice(operator.info.sample_inputs("cpu", dtype, requires_grad=False), 12)
            yield from {count_of_tensors(sample): sample for sample in made}.values()
            return


def count_of_tensors(sample: Any) -> int:
    return len([*tensors((sample.input, sample.args, sample.kwargs))])


def tensors(x: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], torch.Tensor]]:
    """(where, tensor) of those in nested tuples, lists and dictionaries."""
    if isinstance(x, torch.Tensor):
        yield path, x
    elif isinstance(x, (list, tuple, dict)):
        for key, y in x.items() if isinstance(x, dict) else enumerate(x):
            yield from tensors(y, (*path, key))


def replaced(x: Any, path: tuple[Any, ...], other: Any) -> Any:
    """The same but for what is at one place."""
    if not path:
        return other
    made = dict(x) if isinstance(x, dict) else list(x)
    made[path[0]] = replaced(x[path[0]], path[1:], other)
    return made if isinstance(x, (list, dict)) else tuple(made)


def torch_refuses_a_number(operator: Operator, sample: Any) -> bool:
    """Whether torch wants a tensor in the first place."""
    try:
        operator.info.op(3, *sample.args, **sample.kwargs)
    except TypeError:
        return True
    except Exception:
        return False
    return False


def not_told(operator: Operator, args: Any, kwargs: Any, what: str) -> list[str]:
    try:
        operator.function(*args, **kwargs)
    except TypeError as error:
        told = "genesis" in str(error) or "ensor" in str(error)
        return [] if told else [f"{what}: {in_short(error)}"]
    except Exception as error:
        return [f"{what}: {in_short(error)}"]
    return []
