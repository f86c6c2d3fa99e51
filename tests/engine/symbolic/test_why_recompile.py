"""Why a program was compiled again: classes, names in kernels, guards with their ranges."""

from __future__ import annotations

from pathlib import Path

import pytest

import genesis
from genesis import engine
from genesis.cli.main import main
from genesis.engine.symbolic.recompilation import guard_range, guard_text
from genesis.ir.size_trace import Trace
from tests.engine.symbolic.idle import counting

SCRIPT = """
import genesis
for size in ((4, 100), (4, 101), (4, 102), (4, 300), (4, 2000), (4, 3000), (2000, 2000)):
    x = genesis.zeros(*size).cuda()
    genesis.eval(x)
    genesis.eval(genesis.sort(x, 1).values)
"""


def test_the_command_names_classes_and_what_kernels_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    engine.reset()
    with counting():
        assert main(["why", "recompile", str(script)]) == 0
    text = capsys.readouterr().out
    assert "n1 is 101, and had always been 100: its kernels name that" in text
    assert "n1 is 300, of another class than 65 to 127, no multiple of 8" in text
    assert "other size in" in text and "n0 = 4 (axis 0 of input 0), n1 = 100 (axis 1 of input 0)" in text


def test_on_the_cpu_a_plan_is_filled_in_from_the_third_size_on(tmp_path: Path,
                                                               capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text("import genesis\nfor n in (7, 9, 12, 40):\n    print((genesis.ones(n, 3) * 2).sum(1).tolist())")
    engine.reset()
    assert main(["why", "recompile", str(script)]) == 0
    text = capsys.readouterr().out
    assert [line.split()[5] for line in text.splitlines() if line.startswith("# plan")] == [
        "compiled", "compiled", "other", "other"]
    assert text.count("cpu has no kernels to compile; a program's second size") == 2
    assert text.count("filled in from the plan that its program's second size has made") == 2


def test_other_words_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "again", "train.py"]) == 2
    assert "before it nothing but 'recompile', not 'again'" in capsys.readouterr().err


def test_a_guard_that_failed_is_told_with_its_range() -> None:
    """Random numbers come in pairs, so rows of an odd length have kernels of their own."""
    with counting() as backend:
        for n in (101, 103, 102):
            genesis.eval(genesis.randn(4, n, device="cuda").softmax(-1))
        told = backend.plans[-1].recompilation.lines()
    assert any("guard n1%2 != 0, which holds for n1 from 103 to 105" in line for line in told)


@pytest.mark.parametrize("kind, bound, expected", [
    ("<=", 700, "n from 513 to 700"), (">", 520, "n from 521 to 1023"), ("!=", 590, "n from 591 to 1023")])
def test_ranges_of_a_guard(kind: str, bound: int, expected: str) -> None:
    with Trace(n=601) as trace:
        size = trace.symbol("n") - bound
        assert guard_range(trace, kind, size, {"n": 601}) == expected
        assert guard_text(kind, size * 3) == f"n*3 {kind} {3 * bound}"
