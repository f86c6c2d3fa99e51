"""The default limits of what is pending cut no step of `benchmarks/`: each is one plan, recorded as it is."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

import genesis
from genesis import engine
from tests.engine.test_limits import Cuts
from tests.sweeping import by_default

BENCHMARKS: Final = Path(__file__).resolve().parents[2] / "benchmarks"

LAYERS: Final = {"llama-1b": 16, "vit-b": 12, "moe": 8, "gpt2-b1": 12, "mlp": 0}
"""The models of `model_steps.py` with as many layers as are measured; their widths change no program."""

ORDINARY: Final = ("mobilenet", "senet", "googlenet", "unet", "diffusion", "experts", "transformer")
RECURRENT: Final = ("characters, LSTM 128, batch 32", "LSTMCell in a loop of 20")


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Imports a file of `benchmarks/`; precision and modules are afterwards what they were."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield importlib.import_module
    genesis.set_float32_matmul_precision("highest")
    for name in set(sys.modules) - before:
        if (BENCHMARKS / f"{name}.py").exists():
            del sys.modules[name]


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cuts]:
    genesis.eval()
    engine.reset()
    found = Cuts(monkeypatch)
    with engine.observe(found.plans.append):
        yield found


def is_one_plan(step: Callable[[], Any], cuts: Cuts, plans: int = 1) -> None:
    """Steps are cut nowhere and have one key, but for a first one that computes weights.

    `plans`: those of a step that reads values in its middle, or of the second step that gets a state and those behind.
    """
    step()
    before = len(cuts.plans)
    for _ in range(3):
        step()
    assert cuts.made == 0 and len(cuts.plans) - before <= plans


@by_default("vit-b", "moe", "gpt2-b1", "mlp")
@pytest.mark.parametrize("name", LAYERS)
def test_steps_of_whole_models(benchmark: Callable[[str], ModuleType], cuts: Cuts, name: str) -> None:
    model_steps = benchmark("model_steps")
    tiny = model_steps.ROWS[name].tiny
    sizes = {**tiny, "layers": LAYERS[name]} if LAYERS[name] else tiny
    ours = model_steps.GenesisSide(name, sizes, "cpu", None)
    _, step = model_steps.step_of(genesis, ours.model, ours.model, "cpu")
    is_one_plan(lambda: step(*ours.data[0]), cuts)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_steps(benchmark: Callable[[str], ModuleType], cuts: Cuts, name: str) -> None:
    is_one_plan(benchmark("ordinary_steps").step_of(genesis, name), cuts, plans=2 if name == "experts" else 1)


@pytest.mark.sweep
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_steps(benchmark: Callable[[str], ModuleType], cuts: Cuts, name: str) -> None:
    is_one_plan(benchmark("recurrent").MODELS[name](genesis, False), cuts, plans=2)


@pytest.mark.sweep
@pytest.mark.parametrize("row", ["full", "lora"])
def test_steps_of_language_models(benchmark: Callable[[str], ModuleType], cuts: Cuts, row: str,
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    llm_steps = benchmark("llm_steps")
    monkeypatch.setitem(llm_steps.TINY, "num_hidden_layers", 28 if row == "full" else 32)
    _, step, _ = llm_steps.genesis_side(row, tiny=True)
    is_one_plan(step, cuts)
