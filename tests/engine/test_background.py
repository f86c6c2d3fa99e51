"""Compiling ahead: what the process in the background writes, that it ends, and that nobody notices where it fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import genesis
import genesis.nn.functional as F
from genesis import config, engine
from genesis.cli.main import main
from genesis.codegen.cuda import lower
from genesis.codegen.cuda.gpu_model import H200
from genesis.engine import background, background_worker, plans
from genesis.engine.symbolic.neighbours import ahead, neighbours
from genesis.engine.symbolic.plan_writer import write_form
from genesis.ir.size_class import class_of
from genesis.runtime.cuda.cuda_python_driver import install
from tests.engine.symbolic.idle import IdleDriver

ROOT = Path(__file__).parents[2]
PATIENCE = 240.0
"""Seconds that a process of the lowest priority has on a machine with other work."""


def until(done: Callable[[], Any], what: str, patience: float = PATIENCE) -> None:
    """Wait for it."""
    end = time.monotonic() + patience
    while not done():
        assert time.monotonic() < end, f"{what} has not come: {background.report()}"
        time.sleep(0.05)


def peak_of(pid: int) -> int:
    """The most bytes of memory that a process had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) << 10


def is_over() -> bool:
    """Whether all that was asked for was answered."""
    found = background.report()
    return found.asked > 0 and found.answered == found.asked


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A GPU that does nothing, whose kernels Triton compiles, and a cache of its own; nothing is compiled ahead yet."""
    background.end()
    monkeypatch.setenv(plans.VARIABLE, "1")
    monkeypatch.setenv("GENESIS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(config, "background_compile", True)
    engine.reset()
    install(IdleDriver(memory_bytes=1 << 28))
    yield tmp_path / "cache"
    assert not background.report().error
    background.end()
    engine.reset()
    install(None)


def rows(n: int) -> Any:
    """Run a program of one kernel over rows of this length; gives its plan."""
    x = genesis.zeros(3, n).cuda()
    genesis.eval(x)
    genesis.eval(F.softmax(x * 2.5, -1))
    return engine.last_plan()


def text_of(plan: Any) -> Any:
    """A plan and its kernels as text."""
    form = write_form(plan, [], None, ())[0]
    return form.as_json(), [kernel.source for kernel in form.kernels]


def test_the_next_classes_are_found_on_disk(gpu: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is compiled in this process any more, and the plans are those that it would have made."""
    assert [rows(n).origin for n in (99, 101, 103)] == ["compiled", "compiled", "other size"]
    until(is_over, "what is next to 101")
    monkeypatch.setattr(lower, "emit", None)  # code generation would fail
    found = {}
    for n in (104, 96, 98, 100, 200, 176, 130, 50, 33):
        plan = rows(n)
        found[n] = text_of(plan.plan)
        assert (plan.origin, plan.background) == ("disk", True) or plan.origin == "other size"
    made = background.report()
    assert made.started == 1 and not made.died and made.peak_bytes > 0 and made.seconds > 0
    monkeypatch.undo()
    background.end()
    monkeypatch.setenv(plans.VARIABLE, "1")
    monkeypatch.setenv("GENESIS_CACHE_DIR", str(tmp_path / "foreground"))
    assert not config.background_compile
    for n, expected in found.items():
        engine.reset()
        assert [rows(size).origin for size in (99, 101)] == ["compiled"] * 2
        assert text_of(rows(n).plan) == expected, n
        for path in (tmp_path / "foreground").glob("*.template"):
            path.unlink()
        for path in (tmp_path / "foreground").glob("*.plan"):
            path.unlink()
    assert background.report().asked == 0


def test_several_processes_compile_where_there_are_processors(gpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their templates are found, what they took is counted, and they end with the process that asks them."""
    monkeypatch.setitem(background.VARIABLES, background.COMPILERS, "2")
    for n in (99, 101, 103):
        rows(n)
    until(is_over, "what is next to 101")
    worker = background._process._worker
    assert worker is not None
    compilers = [int(pid) for task in Path(f"/proc/{worker.pid}/task").iterdir()
                 for pid in (task / "children").read_text().split()]
    assert 1 <= len(compilers) <= 2
    made = background.report()
    each = [peak_of(pid) for pid in (worker.pid, *compilers)]
    assert made.made and not made.died and 0.9 * sum(each) < made.peak_bytes <= sum(each) and made.seconds > 0
    assert (rows(200).origin, engine.last_plan().background) == ("disk", True)
    background.end()
    until(lambda: not any(map(is_there, compilers)), "the compilers' end", 60)


def test_one_size_starts_no_process(gpu: Path) -> None:
    for _ in range(3):
        rows(99)
    assert background.report() == background.Report()


@pytest.mark.parametrize("setting, value", [("background_compile", False), ("tune", "max")])
def test_settings_that_start_none(gpu: Path, monkeypatch: pytest.MonkeyPatch, setting: str, value: Any) -> None:
    monkeypatch.setattr(config, setting, value)
    for n in (99, 101, 103):
        rows(n)
    assert background.report() == background.Report()


@pytest.mark.parametrize("name, value", [(plans.VARIABLE, "0"), ("LOCAL_RANK", "1"), ("CUDA_LAUNCH_BLOCKING", "1")])
def test_variables_that_start_none(gpu: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """Kept off the disk; another rank of this host compiles ahead; lines are part of programs."""
    monkeypatch.setenv(name, value)
    for n in (99, 101, 103):
        rows(n)
    assert background.report() == background.Report()


def test_a_cache_that_cannot_be_written_starts_none(gpu: Path) -> None:
    gpu.mkdir(mode=0o777)
    gpu.chmod(0o777)  # others could write to it: it is left alone
    for n in (99, 101, 103):
        rows(n)
    assert background.report() == background.Report() and not list(gpu.iterdir())


def test_a_process_that_is_killed_is_replaced_and_told_of(gpu: Path) -> None:
    for n in (99, 101):
        rows(n)
    for times in range(1, background.MOST_DEATHS + 1):
        worker = background._process._worker
        assert worker is not None
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
        assert rows(101 << times).plan.steps  # goes on, and asks another one
        assert background.report().died == times
    rows(5000)
    found = background.report()
    assert found.started == background.MOST_DEATHS and background._process._worker is None
    assert f"{found.died} of {found.started} processes died" in found.lines()


def is_stopped(pid: int) -> bool:
    """Whether all threads of a process have stopped."""
    states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(states) == {"T"}


def test_a_stuck_process_keeps_nobody_waiting(gpu: Path) -> None:
    """Its pipe is full: what comes then is dropped, and counted, while it is stopped."""
    for n in (99, 101):
        rows(n)
    worker = background._process._worker
    assert worker is not None and worker.stdin is not None
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        until(lambda: is_stopped(worker.pid), "its stop")  # what it is just reading would make room
        pipe = worker.stdin.fileno()
        while room := background._room(pipe):  # two messages of 450 bytes follow: a kilobyte left would take both
            os.write(pipe, b" " * min(room, 1024))
        signal.signal(signal.SIGALRM, partial(_fail, "the pipe was waited for"))
        signal.alarm(int(PATIENCE))  # a write that waits would do so for ever
        rows(1000)
        assert background.report().dropped > 0 and is_stopped(worker.pid)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        os.kill(worker.pid, signal.SIGKILL)


def _fail(what: str, *about: Any) -> None:
    raise AssertionError(what)


def test_an_error_of_its_own_is_only_reported(gpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any) -> Any:
        raise LookupError("planted")
    monkeypatch.setattr(background, "write_program", broken)
    assert [rows(n).origin for n in (99, 101, 103)] == ["compiled", "compiled", "other size"]
    assert background.report().error == "LookupError: planted"
    background.end()


def test_a_program_that_is_made_otherwise_there_is_not_made(gpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when Genesis' own files were changed after this process has read them."""
    plain = plans.template_name
    monkeypatch.setattr(plans, "template_name", lambda *given: plain(*given)[::-1])
    for n in (99, 101):
        rows(n)
    until(is_over, "the refusal")
    found = background.report()
    assert not found.made and set(found.others) == {"its program could not be read"}
    assert found.error == "OtherProgram: it is compiled in another way here"
    background.end()


CHILD = """
import os, sys, time
import genesis, genesis.nn.functional as F
from genesis.engine import background
from genesis.runtime.cuda.cuda_python_driver import install
from tests.engine.symbolic.idle import IdleDriver
install(IdleDriver(memory_bytes=1 << 28))
def rows(n):
    x = genesis.zeros(3, n).cuda()
    genesis.eval(x)
    genesis.eval(F.softmax(x * 2.5, -1))
for n in (99, 101):
    rows(n)
worker = background._process._worker
"""


def child(code: str, cache: Path) -> subprocess.Popen[str]:
    """A program of a user's, which has started a process in the background."""
    return subprocess.Popen([sys.executable, "-c", CHILD + code], stdout=subprocess.PIPE, text=True, cwd=ROOT, env={
        **os.environ, "GENESIS_CACHE_DIR": str(cache), plans.VARIABLE: "1", "GENESIS_BACKGROUND_COMPILE": "1",
        "PYTHONPATH": str(ROOT)})


def is_there(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("ending", ["signal", "exit", "fork"])
def test_it_ends_with_the_process_that_started_it(tmp_path: Path, ending: str) -> None:
    """Also when that one is killed, at its end, and when a process that it has forked lives on. No folder stays."""
    code = {"signal": "time.sleep(600)", "exit": "sys.exit(0)",
            "fork": "child = os.fork()\nif child:\n    print(child, flush=True)\n    os._exit(0)\n"
                    "rows(300)\nassert background.report().started == 1\ntime.sleep(600)"}
    program = child("print(worker.pid, worker.folder, os.nice(0), flush=True)\n" + code[ending], tmp_path)
    assert program.stdout is not None
    pid, folder, nice = program.stdout.readline().split()
    if ending == "signal":
        assert is_there(int(pid)) and os.getpriority(os.PRIO_PROCESS, int(pid)) in (int(nice), 19)
        until(lambda: os.getpriority(os.PRIO_PROCESS, int(pid)) == 19, "the lowest priority", 60)
        program.kill()
    program.wait(60)
    until(lambda: not is_there(int(pid)), "its end", 60)
    if ending == "fork":
        forked = int(program.stdout.readline())
        assert is_there(forked)
        os.kill(forked, signal.SIGKILL)
    until(lambda: not Path(folder).exists(), "the end of its folder", 60)


def test_a_program_without_a_file_is_not_run_again(tmp_path: Path) -> None:
    """It was started with -c, as from a notebook: only one line is printed, and what is asked for is compiled."""
    program = child("print('run', flush=True)\nend = time.time() + 240\n"
                    "while time.time() < end and background.report().answered < background.report().asked:\n"
                    "    time.sleep(0.1)\nprint(len(background.report().made), background.report().error)", tmp_path)
    lines = program.communicate(timeout=PATIENCE * 2)[0].splitlines()
    assert lines[0] == "run" and len(lines) == 2 and int(lines[1].split()[0]) > 5


def test_the_commands_tell_what_was_compiled_ahead(gpu: Path, tmp_path: Path,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text("import time, genesis\nfrom genesis.engine import background\n"
                      "for n in (99, 101, 104):\n"
                      "    x = genesis.zeros(3, n).cuda()\n    genesis.eval(x)\n    genesis.eval((x * 2.5).cumsum(1))\n"
                      "    while background.report().answered < background.report().asked:\n        time.sleep(0.05)\n")
    assert main(["why", "recompile", str(script)]) == 0
    told = capsys.readouterr().out
    assert "its template was compiled in the background, before a size of its class occurred" in told
    assert "# in the background: " in told and " sizes compiled ahead: n0 = 3, n1 = 96" in told
    assert main(["cache", "list"]) == 0
    listed = [line for line in capsys.readouterr().out.splitlines() if " template " in line]
    assert sum(line.endswith(", compiled in the background") for line in listed) == len(background.report().made) > 5
    assert not all(line.endswith("background") for line in listed)


@pytest.mark.parametrize("size", [2, 7, 15, 17, 24, 33, 48, 64, 65, 72, 100, 128, 1000, 1024, 1025])
def test_neighbours_are_each_of_another_kind_and_next_to_the_size(size: int) -> None:
    found = neighbours(size)
    assert size not in found and len(set(found)) == len(found) >= 5
    assert all(class_of(other).shared and size / 4 <= other <= max(size * 4, 31) for other in found)
    same = {str(class_of(other)) for other in range(2, 2049)
            if class_of(other).shared and (other - 1).bit_length() == (size - 1).bit_length() and size > 15}
    assert same - {str(class_of(size))} <= {str(class_of(other)) for other in found}


def test_one_symbol_changes_at_a_time() -> None:
    found = list(ahead({"n0": 4, "n1": 100}, {"n0", "n1"}))
    assert all((sizes["n0"] == 4) != (sizes["n1"] == 100) for sizes in found)
    assert list(ahead({"n0": 4, "n1": 100}, {"n1"})) == [sizes for sizes in found if sizes["n0"] == 4]


def test_a_program_s_sizes_are_bounded(gpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each class that occurs has neighbours; together they are no more than a number."""
    given: Counter[int] = Counter()

    def give(process: Any, program: background.Ahead, what: Any, sizes: int) -> bool:
        given[program.number] += sizes
        return True
    monkeypatch.setattr(background._Process, "give", give)
    monkeypatch.setattr(background, "MOST_SIZES", 20)
    for n in (99, 101, *range(65, 95, 2), 201, 401):  # those of the class of 101 change nothing
        rows(n)
    assert given and set(given.values()) == {20}


def test_what_is_handed_over_is_json_and_short(gpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program once, then sizes alone."""
    given: list[bytes] = []
    write = os.write

    def noted(handle: int, line: bytes) -> int:
        worker = background._process._worker
        if worker is not None and worker.stdin is not None and handle == worker.stdin.fileno():
            given.append(line)
        return write(handle, line)
    monkeypatch.setattr(os, "write", noted)
    for n in (99, 101, 103, 1000):
        rows(n)
    messages = [json.loads(line) for line in given]
    assert ["about" in message for message in messages].count(True) == len({m["program"] for m in messages})
    assert len(given[-1]) < 2000


def test_what_has_occurred_last_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """And of one request the likeliest sizes."""
    order: list[Any] = []
    messages = [json.dumps({"sizes": sizes}) for sizes in ([1, 2], [3, 4])]

    def read(message: Any, programs: Any, answers: Any) -> list[Any]:
        return [background_worker.Request(None, None, "", message["sizes"])]  # type: ignore[arg-type]

    def listen(requests: Any, lines: Any) -> None:
        for message in messages:
            lines.put(message)

    class Inline:
        def __init__(self, target: Any, args: Any, daemon: bool):
            self.start = lambda: target(*args)

    def left() -> None:
        raise SystemExit
    pipe = os.pipe()
    monkeypatch.setattr(background_worker, "private_pipes", lambda: (None, os.fdopen(pipe[1], "w")))
    monkeypatch.setattr(background_worker, "compile_with", lambda most: None)
    monkeypatch.setattr(background_worker, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(background_worker, "_read", read)
    monkeypatch.setattr(background_worker, "_listen", listen)
    monkeypatch.setattr(background_worker, "_leave", left)
    monkeypatch.setattr(background_worker, "_compile", lambda request, size, answers: order.append(size))
    monkeypatch.setattr("threading.Thread", Inline)
    with pytest.raises(SystemExit):
        background_worker.serve()
    os.close(pipe[0])
    assert order == [3, 4, 1, 2]


def test_the_text_of_another_version_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    monkeypatch.setattr(background_worker, "_say", lambda answers, *what: said.append(what))
    monkeypatch.setenv("GENESIS_CACHE_DIR", "")
    message = {"program": 3, "sizes": [{"n0": 2}], "directory": "", "history": [[], [], []]}
    assert background_worker._read(message, OrderedDict(), None) == []  # type: ignore[arg-type]
    about = {"gpu": asdict(H200), "text": {"format": 0}, "device": "cuda:0"}
    monkeypatch.setattr(background_worker, "register", lambda *given, **more: None)
    assert background_worker._read({**message, "about": about}, OrderedDict(), None) == []  # type: ignore[arg-type]
    assert [(what, count) for what, count, *_ in said] == [
        ("its program was forgotten, or could not be read", 1), ("its program could not be read", 1)]
    assert said[1][-1] == "ValueError: no text of a program, or of another version"


def interrupted_at(number: int, function: Callable[[], Any]) -> bool:
    """Call it; a KeyboardInterrupt comes at one of the lines of `background.py` that it runs. False: it has fewer."""
    left = [number]

    def traced(frame: FrameType, event: str, value: Any) -> Any:
        if frame.f_code.co_filename != background.__file__:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == -1:
                raise KeyboardInterrupt
        return traced
    sys.settrace(traced)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return left[0] < 0


def test_an_interrupt_at_any_line_leaves_none_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that is read where nothing comes would keep the program for as long as the process lives: none is found
    before reading from it returns at once."""
    monkeypatch.setattr(background, "COMMAND", ("sleep", "60"))
    program = background.Ahead(0, None, "{}")  # type: ignore[arg-type]  # it is a text by now
    for number in count():
        process = background._Process()
        reached = interrupted_at(number, partial(process.give, program, {"sizes": []}, 1))
        found = process._worker
        for pipe in () if found is None else (found.stdin, found.stdout):
            assert pipe is not None and not os.get_blocking(pipe.fileno()), number
        assert process.give(program, {"sizes": []}, 1) and process.report.started in (1, 2)
        process.end()
        if not reached:
            break
    assert number > 20


def test_what_is_no_answer_is_told_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of one, after an interrupt between two reads: who asks what came of it gets the others."""
    said = 'ahead"}\n[]\n{"what": "made", "sizes": {"n0": 7}, "count": 1, "seconds": 1.5, "peak_bytes": 5}\n'
    monkeypatch.setattr(background, "COMMAND", ("printf", "%s", said))
    process = background._Process()
    process._start()
    until(lambda: process.listen() or process._worker is None, "its end", 60)
    assert process.report.made == [{"n0": 7}] and process.report.error == "no answer: b'[]'"


def test_sizes_that_were_lost_with_a_process_are_waited_for_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "COMMAND", ("sleep", "60"))
    process = background._Process()
    assert process.give(background.Ahead(0, None, "{}"), {"sizes": [{}, {}]}, 2)  # type: ignore[arg-type]
    assert "not yet: 2" in process.report.lines()
    worker = process._worker
    assert worker is not None
    worker.kill()
    worker.wait()
    process.listen()
    assert process.report.lines()[1:] == ["their process had ended: 2", "1 of 1 processes died"]


def test_a_program_that_cannot_be_read_ends_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong there: three processes that ended would be the last, and nobody sees their errors."""
    def broken(*given: Any) -> Any:
        raise AttributeError("planted " * 1000)
    said: list[Any] = []
    monkeypatch.setattr(background_worker, "_say", lambda answers, *what: said.append(what))
    monkeypatch.setattr(background_worker, "read_about", broken)
    monkeypatch.setenv("GENESIS_CACHE_DIR", "")
    message = {"program": 3, "sizes": [{"n0": 2}], "directory": "", "history": [[], [], []], "about": {}}
    assert background_worker._read(message, OrderedDict(), None) == []  # type: ignore[arg-type]
    assert said[0][:2] == ("its program could not be read", 1)
    assert said[0][-1].startswith("AttributeError: planted") and len(said[0][-1]) == background_worker.MOST_TOLD


def test_on_the_cpu_nothing_is_compiled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans there are filled in for any size, and no process is worth starting."""
    def started(*given: Any, **more: Any) -> Any:
        raise AssertionError("a process was started")
    background.end()
    monkeypatch.setattr(config, "background_compile", True)
    monkeypatch.setattr(background, "compile_ahead", started)
    engine.reset()
    for n in (99, 101, 103, 1000):
        genesis.eval(F.softmax(genesis.zeros(3, n) * 2.5, -1))
    assert engine.last_plan().origin == "other size"
