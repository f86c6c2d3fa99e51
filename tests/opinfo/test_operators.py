"""Genesis beside PyTorch, on the samples of PyTorch's own operator tests.

For every operator of torch's table whose name Genesis has (see `operators.py`): values and dtypes of the results,
gradients, second derivatives, in-place forms, and that wrong arguments raise torch's type of error. The default
run takes the first few samples in the main dtypes; `-m sweep` takes all samples, in all real dtypes.

One operator:                pytest tests/opinfo -k "cumsum"
with all samples and dtypes: pytest tests/opinfo -k "cumsum" -m ""
exactly that one:            pytest "tests/opinfo/test_operators.py::test_forward[cumsum]"

An operator's failures come in one message, a line a sample. Known differences are in `differences.py`.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import genesis
from tests.opinfo.differences import known
from tests.opinfo.judging import disagreement
from tests.opinfo.operators import OPERATORS, Operator, seed
from tests.opinfo.values import DTYPE, Translation, Untranslatable, differs, parts, shown

MAIN = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
FEW = 3
DRAWN = 48
"""Of how many samples a few are taken: some operators have thousands, and making them takes longer than running one."""
MOST_LINES = 12

by_name = pytest.mark.parametrize("operator", OPERATORS, ids=repr)
differentiable = pytest.mark.parametrize(
    "operator", [o for o in OPERATORS if o.info.supports_autograd and not o.random], ids=repr)
writing = pytest.mark.parametrize("operator", [o for o in OPERATORS if o.in_place is not None], ids=repr)
refusing = pytest.mark.parametrize("operator", [o for o in OPERATORS if o.info.error_inputs_func is not None], ids=repr)


@by_name
def test_forward(operator):
    check(operator, "forward", forward, MAIN, FEW)


@pytest.mark.sweep
@by_name
def test_forward_of_all_samples(operator):
    check(operator, "forward", forward, tuple(DTYPE))


@differentiable
def test_gradient(operator):
    check(operator, "gradient", gradient, (torch.float64,), FEW, grad=True)


@pytest.mark.sweep
@differentiable
def test_gradient_of_all_samples(operator):
    check(operator, "gradient", gradient, (torch.float64, torch.float32), grad=True)


@pytest.mark.sweep
@differentiable
def test_second_derivative(operator):
    if operator.info.supports_gradgrad:
        check(operator, "second", second, (torch.float64,), grad=True)


@writing
def test_in_place(operator):
    check(operator, "in_place", in_place, MAIN, FEW)


@pytest.mark.sweep
@writing
def test_in_place_of_all_samples(operator):
    check(operator, "in_place", in_place, tuple(DTYPE))


@refusing
def test_errors(operator):
    """What torch refuses is refused, with the same type of exception (or a more precise one)."""
    problems = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for wrong in operator.info.error_inputs("cpu"):
            sample = wrong.sample_input
            try:
                arguments = translated(Translation(), sample)
            except Untranslatable:
                continue
            if known(operator.name, "errors", sample, torch.float32) or not refused_by_torch(operator, sample):
                continue
            try:
                genesis.eval([x for x in parts(operator.function(*arguments[0], **arguments[1]))
                              if isinstance(x, genesis.Tensor)])
            except wrong.error_type:
                continue
            except Exception as error:
                problems.append(f"{described(sample)}: {in_short(error)}, not {wrong.error_type.__name__}")
            else:
                problems.append(f"{described(sample)}: no {wrong.error_type.__name__} ({wrong.error_regex:.80})")
    report(operator, problems)


def refused_by_torch(operator: Operator, sample: Any) -> bool:
    """Some wrong inputs are of torch's table only: its own functions take them."""
    try:
        operator.info.op(sample.input, *sample.args, **sample.kwargs)
    except Exception:
        return True
    return False


Test = Callable[[Operator, Any, torch.dtype], str]


def check(operator: Operator, test: str, run: Test, dtypes: tuple[torch.dtype, ...], most: int | None = None,
          grad: bool = False) -> None:
    """Run the samples; all of an operator's failures are one message."""
    problems = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype, sample in samples(operator, dtypes, most, grad):
            if known(operator.name, test, sample, dtype):
                continue
            try:
                problem = run(operator, sample, dtype)
            except Untranslatable:
                continue
            except Exception as error:
                problem = in_short(error)
            if problem:
                problems.append(f"{str(dtype).removeprefix('torch.')} {described(sample)}: {problem}")
    report(operator, problems)


def samples(operator: Operator, dtypes: tuple[torch.dtype, ...], most: int | None,
            grad: bool) -> Iterator[tuple[torch.dtype, Any]]:
    """(dtype, sample) for the dtypes that torch supports; `most` a dtype, spread over its samples."""
    supported = operator.info.supported_backward_dtypes("cpu") if grad else operator.info.supported_dtypes("cpu")
    for dtype in dtypes:
        if dtype in supported:
            seed(0)
            made = list(itertools.islice(operator.info.sample_inputs("cpu", dtype, requires_grad=grad),
                                         400 if most is None else DRAWN))
            step = 1 if most is None else max(len(made) // most, 1)
            for sample in made[::step][:most]:
                yield dtype, sample


def described(sample: Any) -> str:
    """The call in a line."""
    return shown((sample.input, *sample.args)) + (" " + shown(sample.kwargs) if sample.kwargs else "")


def in_short(error: Exception) -> str:
    """The exception without the line that it was raised for, which is one of these files."""
    lines = [x.strip() for x in str(error).splitlines() if not x.strip().startswith("at ")]
    return f"{type(error).__name__}: {'; '.join(lines)}"[:250]


def report(operator: Operator, problems: list[str]) -> None:
    """Fail with the first problems, if there are any."""
    if problems:
        more = [f"... and {len(problems) - MOST_LINES} more"] if len(problems) > MOST_LINES else []
        pytest.fail("\n".join([f"{operator.name}: {len(problems)} samples differ", *problems[:MOST_LINES], *more]),
                    pytrace=False)


def translated(translate: Translation, sample: Any) -> tuple[tuple, dict]:
    """The sample as arguments of Genesis's function."""
    return (translate(sample.input), *translate(sample.args)), translate(sample.kwargs)


def forward(operator: Operator, sample: Any, dtype: torch.dtype) -> str:
    """The results' dtypes, shapes and values."""
    args, kwargs = translated(Translation(), sample)
    theirs = list(parts(operator.info.op(sample.input, *sample.args, **sample.kwargs)))
    ours = list(parts(operator.function(*args, **kwargs)))
    drawn = operator.random or sample.kwargs.get("dropout_p")
    return disagreement(operator, sample, dtype, ours, theirs, not drawn)


def gradients(operator: Operator, sample: Any, create_graph: bool = False,
              device: str = "cpu") -> tuple[list[Any], list[Any], Translation]:
    """(ours, torch's) gradients of the weighted results by every tensor that wants one."""
    translate = Translation(device, grad=True)
    args, kwargs = translated(translate, sample)
    theirs = flowing(operator.info.op(sample.input, *sample.args, **sample.kwargs), torch.Tensor)
    ours = flowing(operator.function(*args, **kwargs), genesis.Tensor)
    if not translate.leaves or not theirs:
        return [], [], translate
    if len(ours) != len(theirs):
        raise AssertionError(f"gradients flow through {len(ours)} results, not {len(theirs)}")
    weights = weights_for(theirs, 0)
    wanted = torch.autograd.grad(theirs, [x for x, _ in translate.leaves],
                                 [torch.tensor(w).to(x.dtype) for w, x in zip(weights, theirs, strict=True)],
                                 create_graph=create_graph, allow_unused=True)
    found = genesis.autograd.grad(ours, [x for _, x in translate.leaves],
                                  [genesis.tensor(w, device=x.device).to(x.dtype)
                                   for w, x in zip(weights, ours, strict=True)],
                                  create_graph=create_graph, allow_unused=True)
    return list(found), list(wanted), translate


def flowing(result: Any, kind: type) -> list[Any]:
    """The tensors of a result that gradients flow through."""
    return [x for x in parts(result) if isinstance(x, kind) and x.requires_grad]


def weights_for(tensors: list[torch.Tensor], seed: int) -> list[np.ndarray]:
    """A different weight for each element, so that no two of them can be mistaken for each other."""
    random = np.random.default_rng(seed)
    return [np.asarray(random.uniform(0.5, 1.5, tuple(x.shape))) for x in tensors]


def compare(found: list[Any], wanted: list[Any]) -> str:
    """None stands for zeros."""
    for position, (x, y) in enumerate(zip(found, wanted, strict=True)):
        if x is None and y is None:
            continue
        if y is None:
            problem = "a gradient where torch has none" if bool((x != 0).any()) else ""
        elif x is None:
            problem = "" if not y.any() else "no gradient where torch has one"
        else:
            problem = differs(x, y.detach(), loose=10 if y.dtype is torch.float32 else 1)  # sums in another order
        if problem:
            return f"operand {position}: {problem}"
    return ""


def gradient(operator: Operator, sample: Any, dtype: torch.dtype) -> str:
    """The gradients by all operands at once."""
    if sample.kwargs.get("dropout_p"):
        return ""
    found, wanted, _ = gradients(operator, sample)
    return compare(found, wanted)


def second(operator: Operator, sample: Any, dtype: torch.dtype) -> str:
    """The gradients of a weighted sum of the gradients."""
    if sample.kwargs.get("dropout_p"):
        return ""
    found, wanted, translate = gradients(operator, sample, create_graph=True)
    pairs = [(x, y) for x, y in zip(found, wanted, strict=True) if y is not None and y.requires_grad]
    if not pairs:
        return ""
    if any(x is None for x, _ in pairs):
        return "no gradient where torch has one"
    weights = weights_for([y for _, y in pairs], 1)
    theirs = sum((y * torch.tensor(w).to(y.dtype)).sum() for (_, y), w in zip(pairs, weights, strict=True))
    ours = sum((x * genesis.tensor(w).to(x.dtype)).sum() for (x, _), w in zip(pairs, weights, strict=True))
    wanted = list(torch.autograd.grad(theirs, [x for x, _ in translate.leaves], allow_unused=True))
    if not ours.requires_grad:
        return "the gradient cannot be differentiated" if any(y is not None and y.any() for y in wanted) else ""
    return compare(list(genesis.autograd.grad(ours, [x for _, x in translate.leaves], allow_unused=True)), wanted)


def in_place(operator: Operator, sample: Any, dtype: torch.dtype) -> str:
    """Either both refuse to write, or both write the same."""
    args, kwargs = translated(Translation(), sample)
    if not isinstance(sample.input, torch.Tensor):
        return ""
    target = sample.input.clone()
    if target.is_contiguous() is not sample.input.is_contiguous():
        return ""
    try:
        operator.info.inplace_variant(target, *sample.args, **sample.kwargs)
        refused = None
    except Exception as error:
        refused = error
    ours = args[0]
    try:
        returned = operator.in_place(ours, *args[1:], **kwargs)  # type: ignore[misc]
        genesis.eval(ours)
    except Exception as error:
        if refused is not None:
            return ""
        raise error
    if refused is not None:
        return f"written, where torch raises {refused}"[:200]
    if returned is not ours:
        return "another tensor is returned"
    return disagreement(operator, sample, dtype, [ours], [target], not operator.random)
