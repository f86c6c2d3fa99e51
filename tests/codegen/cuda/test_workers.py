"""Compile workers: what they import, what reaches them, and what happens when they die. They are killed for real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from genesis.codegen.cuda import compile as compile_cuda
from genesis.codegen.cuda.compile import CompilationFailed, compile_sources
from genesis.codegen.cuda.workers import COMMAND, WorkerDied, WorkerPool
from tests.codegen.cuda.test_compile_cuda import kernels

FAKE = """
import json, os, signal, sys
log, behaviours = sys.argv[1], sys.argv[2:]
with open(log, "a") as file:
    file.write("started\\n")
with open(log) as file:
    behaviour = behaviours[min(len(file.readlines()), len(behaviours)) - 1]
def say(text):
    sys.stdout.write(text)
    sys.stdout.flush()
for line in sys.stdin:
    number = json.loads(line)["id"]
    answer = json.dumps({"id": number, "asked": line})
    if behaviour == "good":
        say(answer + "\\n")
    elif behaviour == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    elif behaviour == "dies in the middle":
        say(answer[: len(answer) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    elif behaviour == "closes":
        say(answer[: len(answer) // 2])
        os.close(1)
    elif behaviour == "other id":
        say(json.dumps({"id": number + 7}) + "\\n")
    elif behaviour == "no id":
        say("{}\\n")
    elif behaviour == "an answer late":
        say(json.dumps({"id": number - 1}) + "\\n" + answer + "\\n")
    elif behaviour == "words":
        say("hello\\n")
    elif behaviour == "a list":
        say(f"[{number}]\\n")
    elif behaviour == "bytes":
        os.write(1, b"\\xff\\xfe\\n")
    elif behaviour == "brackets":
        say("[" * 100000 + "\\n")
"""
BAD = ["dies", "dies in the middle", "closes", "other id", "no id", "an answer late", "words", "a list", "bytes",
       "brackets"]


@pytest.fixture
def pool_of(tmp_path: Path) -> Iterator[Callable[..., WorkerPool]]:
    """Makes pools whose n-th worker behaves like the n-th word, and later ones like the last."""
    (tmp_path / "fake.py").write_text(FAKE)
    made: list[WorkerPool] = []

    def make(*behaviours: str) -> WorkerPool:
        made.append(WorkerPool(2, (sys.executable, str(tmp_path / "fake.py"), str(tmp_path / "log"), *behaviours)))
        return made[-1]
    yield make
    for pool in made:
        pool.close()


def starts(folder: Path) -> int:
    return len((folder / "log").read_text().splitlines())


def children() -> set[int]:
    """The processes that this one started; what has ended and was not waited for is among them.

    A process is listed under the thread that started it, and moves to another one when that thread ends.
    """
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found |= set(map(int, (task / "children").read_text().split()))
        except OSError:  # the thread ended meanwhile
            continue
    return found


@pytest.mark.parametrize("bad", BAD)
def test_a_worker_that_does_not_answer_is_replaced_once(
        bad: str, pool_of: Callable[..., WorkerPool], tmp_path: Path) -> None:
    before = children()
    pool = pool_of(bad, "good")
    for turn in range(3):
        assert json.loads(pool.ask({"turn": turn})["asked"])["turn"] == turn
    assert starts(tmp_path) == 2, "the bad one left the pool, the good one stays"
    assert len(children() - before) == 1, "the bad one is gone, and was waited for"


@pytest.mark.parametrize("bad", BAD)
def test_a_second_death_is_an_error_and_the_next_kernel_gets_a_new_worker(
        bad: str, pool_of: Callable[..., WorkerPool], tmp_path: Path) -> None:
    before = children()
    pool = pool_of(bad, bad, "good")
    with pytest.raises(WorkerDied, match="the compile worker"):
        pool.ask({})
    assert children() == before
    assert "asked" in pool.ask({}) and starts(tmp_path) == 3


def test_idle_workers_that_were_killed_cost_nothing(pool_of: Callable[..., WorkerPool], tmp_path: Path) -> None:
    """All of them at once, which one retry alone would not survive if it took the next idle one."""
    pool = pool_of("good")
    before = children()
    threads = [threading.Thread(target=pool.ask, args=({},)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in children() - before:
        os.kill(process, signal.SIGKILL)
    assert "asked" in pool.ask({})
    time.sleep(0.2)  # by now the system has ended the last of them, whatever the call above met
    assert "asked" in pool.ask({}) and len(children() - before) == 1


def test_a_worker_that_cannot_be_started_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        WorkerPool(1, (str(tmp_path / "nothing"),)).ask({})


def test_a_stopped_worker_does_not_keep_the_program_from_ending(
        pool_of: Callable[..., WorkerPool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genesis.codegen.cuda.workers.PATIENCE", 0.1)
    before = children()
    pool = pool_of("good")
    pool.ask({})
    for process in children() - before:
        os.kill(process, signal.SIGSTOP)
    pool.close()
    assert children() == before


def test_a_forked_child_leaves_the_parents_workers_alone(pool_of: Callable[..., WorkerPool], tmp_path: Path) -> None:
    pool = pool_of("good")
    pool.ask({})
    child = os.fork()
    if child == 0:
        try:
            pool.close()
            answer = pool.ask({"from": "child"})
            pool.close()
            os._exit(0 if "child" in answer["asked"] else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert "asked" in pool.ask({}) and starts(tmp_path) == 2


# Real workers

@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerPool]:
    """A pool of real workers that compiling uses, one at a time."""
    made = WorkerPool(1)
    monkeypatch.setattr(compile_cuda, "_workers", lambda: made)
    yield made
    made.close()


def test_how_a_worker_is_started() -> None:
    assert COMMAND[1:] == ("-P", "-m", "genesis.codegen.cuda.worker")


def test_a_worker_imports_nothing_from_the_current_directory(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: WorkerPool) -> None:
    for name in ("base64", "json", "tempfile", "triton", "genesis"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\nraise SystemExit")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep + os.environ.get("PYTHONPATH", ""))
    assert compile_sources(kernels()[:1])[0].cubin[:4] == b"\x7fELF"
    assert not (tmp_path / "ran").exists()


def test_a_kernel_whose_worker_is_killed_compiles_all_the_same(pool: WorkerPool) -> None:
    """Killed as soon as it has started, and later while it is idle."""
    before, found = children(), []
    thread = threading.Thread(target=lambda: found.extend(compile_sources(kernels()[:1])))
    thread.start()
    while not (started := children() - before):
        time.sleep(0.01)
    time.sleep(0.3)  # into Python's start or Triton's import: it cannot have answered
    for process in started:
        os.kill(process, signal.SIGKILL)
    thread.join()
    assert found[0].cubin[:4] == b"\x7fELF"
    for process in children() - before:
        os.kill(process, signal.SIGKILL)
    assert compile_sources(kernels()[:1])[0].cubin[:4] == b"\x7fELF"


def test_a_kernel_that_kills_every_worker_is_an_error(pool: WorkerPool, tmp_path: Path) -> None:
    """As one that needs more memory than there is: it is tried twice, and the error says how the worker ended."""
    log = tmp_path / "log"
    deadly = replace(kernels()[0], source=(
        f"import os\nopen({str(log)!r}, 'a').write('x')\nos.kill(os.getpid(), 9)\n"))
    with pytest.raises(CompilationFailed, match="ended with status -9"):
        compile_sources([deadly])
    assert log.read_text() == "xx"
    assert compile_sources(kernels()[:1])[0].cubin[:4] == b"\x7fELF"


def test_no_worker_leaves_its_folder(pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that ends, nor one that is killed in the middle of a kernel, with what it had written by then."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    deadly = replace(kernels()[0], source=(
        "import os, tempfile\nopen(os.path.join(tempfile.gettempdir(), 'half.ptx'), 'w').write('x')\n"
        f"open({str(tmp_path / 'log')!r}, 'a').write(tempfile.gettempdir() + '\\n')\nos.kill(os.getpid(), 9)\n"))
    with pytest.raises(CompilationFailed):
        compile_sources([deadly])
    folders = {*map(Path, (tmp_path / "log").read_text().split())}
    assert len(folders) == 2 and all(folder.parent == tmp_path for folder in folders)
    compile_sources(kernels()[:1])
    idle, = tmp_path.glob("genesis-*")
    assert not any(idle.iterdir())
    pool.close()
    assert {path.name for path in tmp_path.iterdir()} == {"log"}


def test_a_program_that_is_killed_leaves_no_folder(tmp_path: Path) -> None:
    root = str(Path(__file__).resolve().parents[3])
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, start_new_session=True,
                          cwd=root, env={**os.environ, "PYTHONPATH": root, "TMPDIR": str(tmp_path)}) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "compiled\n"
        folder, = tmp_path.glob("genesis-*")
        program.kill()
    assert within_ten_seconds(lambda: not folder.exists())


def test_what_a_kernels_compilation_prints_is_no_answer(pool: WorkerPool, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither Python's print nor a process that inherits standard output, as Triton's assembler does."""
    source = kernels()[0]
    noisy = replace(source, source="import os\nprint('{}')\nos.system('echo {}')\n" + source.source)
    assert compile_sources([noisy])[0].cubin[:4] == b"\x7fELF"
    assert capfd.readouterr().err.count("{}") == 2


PROGRAM = """
import os, signal, sys, time
from genesis.codegen.cuda import compile as compile_cuda
from tests.codegen.cuda.test_compile_cuda import kernels
compile_cuda.MOST_WORKERS = 1
first = compile_cuda.compile_sources(kernels()[:1])
try:
    print("compiled", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    pass
pool = compile_cuda._workers()
worker = pool._waiting()
print("alive" if worker is not None else "dead", flush=True)
pool._idle.put(worker)
print(compile_cuda.compile_sources(kernels()[:1])[0].cubin == first[0].cubin, worker.pid, flush=True)
time.sleep(60)
"""


def test_ctrl_c_does_not_reach_workers_and_they_end_with_the_program() -> None:
    """The signal goes to the program's process group, as a terminal sends it. Then the program is killed outright."""
    root = str(Path(__file__).resolve().parents[3])
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, start_new_session=True,
                          cwd=root, env={**os.environ, "PYTHONPATH": root}) as program:
        assert program.stdout is not None
        try:
            assert program.stdout.readline() == "compiled\n"
            os.killpg(program.pid, signal.SIGINT)
            assert program.stdout.readline() == "alive\n"
            same, worker = program.stdout.readline().split()
            assert same == "True"
        finally:
            program.kill()
    assert gone(int(worker)), "a worker ends when its input does"


def gone(process: int) -> bool:
    """Whether it ends within ten seconds. A zombie that nobody waits for has ended."""
    def over() -> bool:
        try:
            return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True
    return within_ten_seconds(over)


def within_ten_seconds(true: Callable[[], bool]) -> bool:
    """Whether it comes true."""
    for _ in range(100):
        if true():
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("lines", ["", '{"id": 1, "na'], ids=["nothing", "half a request"])
def test_a_worker_ends_quietly_when_its_input_does(lines: str) -> None:
    done = subprocess.run(COMMAND, input=lines, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
