"""Compiling ahead: the classes of sizes next to those that have occurred, in a process that nobody waits for.

A size of a new class is compiled when it occurs, for which a step of a training run waits a second and more. Once a
size of a program was seen to change, the classes next to it (`symbolic/neighbours.py`) are compiled before they occur.
Passes hold Python's interpreter, and a trace is active for a whole process, so it takes another one
(`background_worker.py`). It gets the program's text (`symbolic/program_text.py`) and values of the symbols, compiles as
this process would, and writes a template to the disk, where whoever meets a size of that class looks for one anyway. So
nothing that a program computes depends on whether it was there, or in time.

The process is one for each of the user's, with the lowest priority; where there are many processors a few more compile
its kernels. It is started when there is something to compile, and ends with the process that started it, or after a
minute without work. To hand it something is one write to a pipe that is never waited for: what does not fit is dropped.
What goes wrong there shows in `report`, and nowhere else.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import sys
import termios
from array import array
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final

from genesis.config import config
from genesis.engine.backends import backend_of
from genesis.engine.capture import communicates
from genesis.engine.symbolic.neighbours import ahead
from genesis.engine.symbolic.program_text import write_program
from genesis.engine.symbolic.shape_erased_key import NotWritable
from genesis.ir.interrupting import of_computing
from genesis.runtime.disk_store import default_directory
from genesis.runtime.stored_form import Stored

if TYPE_CHECKING:
    from genesis.codegen.cuda.workers import Worker
    from genesis.engine.capture import Captured
    from genesis.engine.symbolic.plan_template import PlanTemplate
    from genesis.engine.symbolic.shape_erased import Member, ShapeErased
    from genesis.ir.types import Device

Name = Callable[[], str]
"""What makes a name when it is asked for: it is made of a long text."""

COMMAND: Final = (sys.executable, "-P", "-c", "import os; os.nice(19); "
                  "from genesis.engine.background_worker import serve; serve()")
"""How the process is started. Nothing of the user's is run again, and what it imports has the lowest priority, too."""

PIPE_BYTES: Final = 1 << 20
"""Bytes of messages that may wait for the process: what every user may ask of Linux for a pipe. A GPT's step of 12
layers has about a quarter of it."""

SLACK: Final = 4096
"""Bytes of a pipe that a message may take beyond its own: it begins on a page."""

MOST_SIZES: Final = 96
"""Sizes of a program that are asked for at most. One size has about 50 kinds up to 1024; the classes of two that change
at once (height and width) would be hundreds, each some seconds of a processor and a hundred kilobytes of the disk."""

MOST_SHOWN: Final = 80
"""Bytes of an answer that is none which a report shows."""

MOST_DEATHS: Final = 3
"""Processes that may die before their time, after which there are no more."""

LOST: Final = "their process had ended"
"""What came of sizes whose process died before it answered. They are not asked for again."""

COMPILERS: Final = "GENESIS_BACKGROUND_COMPILERS"
"""Variable of the process's environment: how many processes compile its kernels; 1: it compiles them itself."""

MOST_COMPILERS: Final = 4
"""These, at most: each holds 200 MB, and a step of 60 kernels waits for its largest."""

CORES_EACH: Final = 4
"""Processors of the machine for each of them."""

VARIABLES: Final = {"GENESIS_BACKGROUND_COMPILE": "0", "OMP_NUM_THREADS": "1",
                    COMPILERS: str(max(1, min(MOST_COMPILERS, len(os.sched_getaffinity(0)) // CORES_EACH)))}
"""Environment of the process, beside that of compile workers."""


@dataclass
class Report:
    """What came of compiling ahead in this process.

    Attributes:
        asked: sizes that the process was given.
        made: templates that it wrote, each with the sizes that it was made for.
        others: what came of the others → how often.
        dropped: sizes for which there was no room in the pipe.
        started, died: processes, and those of them that ended before their time.
        seconds: processor time that it and the compilers of its kernels took, by the process's account.
        peak_bytes: the most memory that a process had, with these.
        error: the last thing that went wrong, '' where nothing did.
    """

    asked: int = 0
    made: list[dict[str, int]] = field(default_factory=list)
    others: dict[str, int] = field(default_factory=dict)
    dropped: int = 0
    started: int = 0
    died: int = 0
    seconds: float = 0.0
    peak_bytes: int = 0
    error: str = ""

    @property
    def answered(self) -> int:
        """Sizes of which is known what came of them."""
        return len(self.made) + sum(self.others.values())

    def lines(self) -> list[str]:
        """The report for people; nothing where nothing was asked for.

        >>> Report(asked=3, made=[{"n0": 97}], others={"it was there": 1}, started=1).lines()
        ['1 of 3 sizes compiled ahead: n0 = 97', 'it was there: 1', 'not yet: 1']
        """
        if not self.asked and not self.error:
            return []
        made = "; ".join(", ".join(f"{name} = {size}" for name, size in sizes.items()) for sizes in self.made)
        lines = [f"{len(self.made)} of {self.asked} sizes compiled ahead{': ' if made else ''}{made}"]
        lines += [f"{why}: {times}" for why, times in self.others.items()]
        waiting = self.asked - self.answered
        return [*lines, *([f"not yet: {waiting}"] if waiting > 0 else []),
                *([f"no room for {self.dropped}"] if self.dropped else []),
                *([f"{self.died} of {self.started} processes died"] if self.died else []),
                *([f"the last error: {self.error}"] if self.error else [])]


@dataclass
class Ahead:
    """A program whose sizes are compiled ahead.

    Attributes:
        number: of the program, among this process's.
        template: one of its templates; all have the same symbols.
        about: what the process in the background has to know of it, as JSON.
        asked: values of the symbols that were asked for.
    """

    number: int
    template: PlanTemplate
    about: str
    asked: set[tuple[int, ...]] = field(default_factory=set)


def compile_ahead(captured: Captured, device: Device, member: Member, programs: ShapeErased, name: Name) -> None:
    """Have the classes next to a program's sizes compiled, some of which were seen to change.

    Args:
        captured: the program, before it runs.
        programs: those of its shape-erased key.
        name: of the templates for its sizes, as the process in the background has to find it, too.
    """
    try:
        if programs.written and _wanted(device):
            _ask(captured, device, member, programs, name)
    except of_computing(Exception) as error:  # nobody asked for this: what goes wrong is told by `report`
        _process.report.error = f"{type(error).__name__}: {error}"


def report() -> Report:
    """What came of compiling ahead in this process, up to now."""
    _process.listen()
    return _process.report


def end() -> None:
    """End the process in the background, and forget what it has done."""
    global _process
    _process.end()
    _process = _Process()


def _wanted(device: Device) -> bool:
    """Whether sizes are compiled ahead: for a GPU, by one of several ranks."""
    return (config.background_compile and config.tune != "max" and backend_of(device).compiles_apart
            and os.environ.get("LOCAL_RANK", "0") == "0" and os.environ.get("CUDA_LAUNCH_BLOCKING") != "1"
            and not getattr(sys, "frozen", False) and not _process.over)


def _ask(captured: Captured, device: Device, member: Member, programs: ShapeErased, name: Name) -> None:
    known = programs.ahead.get(member.fixed)
    if known is None:
        template = _template_of(member, programs)
        if template is None or any(map(communicates, captured.order)):
            return
        known = programs.ahead[member.fixed] = Ahead(next(_numbers), template, _about(
            captured, device, member, template, name))
    if not known.about:
        return
    form = known.template.form
    moving = {name for name, position in form.symbols if position in programs.moving}
    wanted = [sizes for sizes in ahead(form.sizes(member.numbers), moving) if tuple(sizes.values()) not in known.asked]
    del wanted[MOST_SIZES - len(known.asked):]
    if wanted and _process.give(known, {"history": programs.history(), "sizes": wanted}, len(wanted)):
        known.asked.update(tuple(sizes.values()) for sizes in wanted)


def _template_of(member: Member, programs: ShapeErased) -> PlanTemplate | None:
    """A template of this process whose formulas give the program's numbers."""
    for template in reversed(programs.of_inputs(member.fixed)):
        form = template.form
        values = form.evaluate(form.sizes(member.numbers))
        if template.key and all(member.numbers[at] == values[value] for at, value in form.open):
            return template
    return None


def _about(captured: Captured, device: Device, member: Member, template: PlanTemplate, name: Name) -> str:
    """What is to be known of a program, '' where it has no text."""
    try:
        text = write_program(captured, template.key)
    except NotWritable:
        return ""
    return json.dumps({"text": text, "device": str(device), "settings": config.key(), "fixed": sorted(member.fixed),
                       "gpu": asdict(backend_of(device).gpu), "name": name(),  # type: ignore[call-overload]  # a GPU's is a dataclass
                       "base": template.form.sizes(member.numbers)}, separators=(",", ":"))


class _Process:
    """The process in the background, from this side.

    Attributes:
        report: what came of it.
        over: there will be no other one: too many died, or this process was forked.
    """

    def __init__(self) -> None:
        self.report, self.over = Report(), False
        self._worker: Worker | None = None
        self._given: set[int] = set()  # programs that it has read about
        self._rest = b""

    def give(self, program: Ahead, what: Stored, sizes: int) -> bool:
        """Hand over sizes of a program; returns whether that worked. They are dropped where there is no room."""
        self.listen()
        worker = self._worker or self._start()
        if worker is None:
            return False
        message = {"program": program.number, "directory": str(default_directory()), **what}
        text = json.dumps(message, separators=(",", ":"))
        if program.number not in self._given:
            text = f'{text[:-1]},"about":{program.about}}}'
        line = text.encode() + b"\n"
        assert worker.stdin is not None
        try:
            written = os.write(worker.stdin.fileno(), line) if _room(worker.stdin.fileno()) >= len(line) else 0
        except BlockingIOError:
            written = 0
        except BrokenPipeError:  # it has just ended
            self.listen()
            written = 0
        if written == len(line):
            self._given.add(program.number)
            self.report.asked += sizes
            return True
        self.report.dropped += sizes
        if written:  # what follows would be no message
            self.end()
        return False

    def listen(self) -> None:
        """Read what it has said, and whether it is still there."""
        worker = self._worker
        if worker is None:
            return
        assert worker.stdout is not None
        code = worker.poll()
        with suppress(BlockingIOError):
            while found := os.read(worker.stdout.fileno(), 1 << 16):
                self._rest += found
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            try:
                self._note(json.loads(line))
            except (ValueError, LookupError, TypeError):  # an interrupt came between two parts of it, say
                self.report.error = f"no answer: {line[:MOST_SHOWN]!r}"
        if code is not None:
            self.end()
            self.report.died += code != 0
            self.over = self.report.died >= MOST_DEATHS

    def _note(self, answer: Stored) -> None:
        report = self.report
        if answer["what"] == "made":
            report.made.append(answer["sizes"])
        else:
            report.others[answer["what"]] = report.others.get(answer["what"], 0) + answer["count"]
        report.error = answer.get("error", report.error)
        report.seconds, report.peak_bytes = answer["seconds"], max(report.peak_bytes, answer["peak_bytes"])

    def _start(self) -> Worker | None:
        from genesis.codegen.cuda.workers import Worker
        if self.over:
            return None
        if not self.report.started:
            os.register_at_fork(after_in_child=self.forget)
            atexit.register(self.end)
        worker = Worker(COMMAND, VARIABLES, quiet=True)
        try:
            assert worker.stdin is not None and worker.stdout is not None
            os.set_blocking(worker.stdin.fileno(), False)
            os.set_blocking(worker.stdout.fileno(), False)
            with suppress(OSError):  # its user has many such pipes: there is room for small programs
                fcntl.fcntl(worker.stdin.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            self._given, self._rest = set(), b""
            self.report.started += 1
            self._worker = worker  # last: whoever finds it reads from it, and is not to wait
        except BaseException:
            from genesis.codegen.cuda.workers import end
            self._worker = None
            end(worker)
            raise
        return worker

    def end(self) -> None:
        """End it, whatever it does."""
        worker, self._worker = self._worker, None
        if worker is not None:
            from genesis.codegen.cuda.workers import end
            end(worker)
            waiting = self.report.asked - self.report.answered
            if waiting > 0:
                self.report.others[LOST] = self.report.others.get(LOST, 0) + waiting

    def forget(self) -> None:
        """In a forked process: it is the other one's, and must see the end of the pipe when that one ends."""
        worker, self._worker, self.over = self._worker, None, True
        if worker is not None:
            worker.returncode = 0  # of whose child it is no child: there is nothing to wait for
            for pipe in (worker.stdin, worker.stdout):
                assert pipe is not None
                pipe.close()


def _room(pipe: int) -> int:
    """Bytes that can be written to a pipe at once."""
    waiting = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
    return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) - waiting[0] - SLACK


_numbers = count()
_process = _Process()
