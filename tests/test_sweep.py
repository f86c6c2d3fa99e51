"""benchmarks/sweep.py: what is drawn, what is resumed, what counts as wrong, and that drawn cases are right."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import pytest
import torch

import genesis
from genesis.codegen.cuda.gpu_model import H200
from genesis.engine.backends import FakeCUDABackend
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.codegen.cuda.idle_gpu import Kept, compiles_for

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from in_turn import READY, run_in_turn
from sweep import (
    AHEAD_MS,
    MOST_AHEAD_MS,
    Bench,
    Journal,
    ahead_ms,
    call,
    leave,
    line_of,
    own_memory,
    relative_error,
    summary,
    without_failing_peers,
)
from sweep_cases import FAMILIES, LEAST_BYTES, LONGEST, MOST_BYTES, Operand, draw_case


@pytest.mark.parametrize("family", FAMILIES)
def test_a_case_depends_on_its_seed_and_number_alone(family: str) -> None:
    assert draw_case(family, 5, 3).text == draw_case(family, 5, 3).text
    assert len({draw_case(family, 5, number).text for number in range(12)}) > 6
    assert draw_case(family, 5, 3).text != draw_case(family, 6, 3).text


@pytest.mark.parametrize("family", FAMILIES)
def test_sizes_stay_in_the_promised_range(family: str) -> None:
    cases = [draw_case(family, 0, number) for number in range(100)]
    shapes = [x.shape for case in cases for x in case.operands]
    assert all(1 <= len(shape) <= 5 for shape in shapes)
    assert all(1 <= size <= LONGEST for shape in shapes for size in shape)
    assert max(case.nbytes for case in cases) < 4 * MOST_BYTES
    assert sum(case.nbytes >= LEAST_BYTES for case in cases) >= 60


def test_an_operand_is_a_view_of_its_memory() -> None:
    operand = Operand((3, 4, 5), order=(2, 0, 1), more=1)
    memory = torch.zeros(operand.memory_shape)
    assert memory.shape == (5, 3, 5)
    assert operand.view(memory).shape == (3, 4, 5)
    assert operand.view(memory).stride() == (5, 1, 15)


def test_a_contestant_that_fails_takes_no_part_and_the_others_do() -> None:
    """torch.compile refused a case, which counted as a wrong result of Genesis'."""
    def refuses(*operands: object) -> None:
        raise AssertionError("Unexpected tiling\nin a long text")

    case = draw_case("scan", 0, 0, scale=1e-3)
    bench = Bench(case, "cpu", lambda x: genesis.tensor(x.numpy()), 1)
    bench.functions = {"compile": refuses, "eager": case.function}
    row = {"key": "scan/0", "family": "scan", "text": "cumsum", "error": 0.5, "bytes": 1 << 24, "small": False,
           "ms": {"genesis": 1.0, "eager": 2.0}, **without_failing_peers(bench)}
    assert list(bench.functions) == ["eager"]
    assert line_of(row).endswith("compile failed: AssertionError: Unexpected tiling in a long text")
    assert summary([row])[0]["wrong"] == 0 and summary([row])[0]["worst"] == 2.0


def test_a_sweep_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    journal = Journal(path)
    journal.write({"begun": "sort/0", "text": "sort"})
    journal.write({"key": "sort/0", "family": "sort", "error": 0.5})
    journal.write({"begun": "sort/1", "text": "another"})
    again = Journal(path)
    assert again.rows["sort/0"]["error"] == 0.5
    assert again.rows["sort/1"]["problem"] == "the process died"


def test_a_case_whose_process_was_killed_for_being_late_is_left_and_not_wrong(tmp_path: Path) -> None:
    path = tmp_path / "3.jsonl"
    journal = Journal(path)
    for key in ("sort/1", "sort/2"):
        journal.write({"begun": key, "text": "sort(f32[3])"})
    leave(Journal(path), ["sort/1", "norm/0"])
    assert set(Journal(path).rows) == {"sort/2"}
    late, ready = run_in_turn([[sys.executable, "-c", "import time; time.sleep(60)"],
                               [sys.executable, "-c", f"print({READY!r}, flush=True); input()"]], ready_within=5)
    assert late.late and not ready.late


def test_a_wrong_result_counts_as_wrong_and_for_no_mean() -> None:
    right = {"family": "sort", "error": 0.5, "small": False, "ms": {"genesis": 1.0, "eager": 4.0, "compile": 2.0}}
    family, together = summary([right, {**right, "error": 1.5}, {**right, "small": True}])
    assert family == {"family": "sort", "geometric_mean": 2.0, "worst": 2.0, "cases": 1, "wrong": 1}
    assert together["family"] == "memory-bound"


@pytest.mark.parametrize(("got", "right"), [
    ([1.0, 2.0], True), ([1.0, 2.0 + 1e-5], True), ([1.0, 2.001], False), ([1.0, math.nan], False),
    ([1.0, math.inf], False)])
def test_errors_are_told_from_rounding(got: list[float], right: bool) -> None:
    want = torch.tensor([1.0, 2.0])
    assert (relative_error(torch.tensor(got), want, want, 1.0) <= 1) == right


@pytest.mark.parametrize(("ms", "least"), [(0, AHEAD_MS), (2, 72), (30, MOST_AHEAD_MS)])
def test_the_gpu_is_held_back_until_the_host_has_queued_a_round(ms: float, least: int) -> None:
    assert least <= ahead_ms(lambda _: time.sleep(ms / 1e3), lambda: None) <= MOST_AHEAD_MS


def test_what_torch_itself_is_off_is_allowed() -> None:
    want = torch.tensor([1.0, 2.0])
    assert relative_error(torch.tensor([1.0, 2.1]), torch.tensor([1.0, 1.9]), want, 1.0) <= 1


@pytest.mark.sweep
@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("family", FAMILIES)
def test_drawn_cases_are_right_on_the_cpu(family: str, number: int) -> None:
    case = draw_case(family, 1, number, scale=1e-2)
    assert Bench(case, "cpu", genesis.from_dlpack, sets=1).error(torch.from_dlpack) <= 1, case.text


@pytest.mark.sweep
@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("family", FAMILIES)
def test_drawn_cases_are_right_in_the_interpreter(family: str, number: int) -> None:
    case = draw_case(family, 2, number, scale=3e-4)
    with FakeCUDABackend(HostDriver(memory_bytes=1 << 28)):
        bench = Bench(case, "cpu", lambda x: genesis.from_dlpack(x).to("cuda"), sets=1)
        assert bench.error(lambda x: torch.from_dlpack(x.to("cpu"))) <= 1, case.text


@pytest.mark.sweep
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_of_drawn_cases_compile_at_their_size(family: str, number: int) -> None:
    """Forms that only large tensors have: what runs in the interpreter is a thousandth of them."""
    case = draw_case(family, 41, number)

    def empty(shape: tuple[int, ...], dtype: str) -> genesis.Tensor:
        found = genesis.empty(shape, dtype=getattr(genesis, dtype), device="cuda")
        genesis.eval(found)  # what is not computed yet is the number 0
        return found
    genesis.engine.reset()
    backend = Kept()
    with backend:
        inputs = [x.view(empty(x.memory_shape, x.dtype)).detach() for x in case.operands]
        wanted = [case.both and x.grad and not x.below for x in case.operands]
        inputs = [x.requires_grad_() if want else x for x, want in zip(inputs, wanted, strict=True)]
        y = case.function(genesis, *inputs) if case.both else None
        gradients = [] if y is None else [empty(tuple(y.shape), str(y.dtype).removeprefix("genesis."))]
        genesis.eval(*call(genesis, case, case.function, inputs, gradients))
        del inputs, gradients, y
    assert backend.sources
    for source in backend.sources:
        compiles_for(source, H200)


def test_operands_are_in_memory_of_their_own() -> None:
    """Of shared memory Genesis would compute each op at once, as others may write to it."""
    theirs = torch.ones(1 << 16)
    x = own_memory(theirs)
    theirs.zero_()
    assert x.sum().item() == 1 << 16


def test_processes_prepare_together_and_time_one_after_the_other(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = ("import sys; from pathlib import Path; log = open(sys.argv[1], 'a', buffering=1); name = sys.argv[2]\n"
              f"log.write('p' + name + '\\n'); print('{READY}', flush=True); sys.stdin.readline()\n"
              "log.write('b' + name + '\\n'); log.write('e' + name + '\\n')")
    run_in_turn([[sys.executable, "-c", script, str(log), name] for name in "12"], ready_within=60)
    lines = log.read_text().split()
    assert sorted(lines[:2]) == ["p1", "p2"] and lines[2:] == ["b1", "e1", "b2", "e2"]
