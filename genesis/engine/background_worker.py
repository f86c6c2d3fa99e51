"""The process that compiles ahead (`background.py`).

It reads one JSON object a line, each with sizes of a program, and answers with one line for each size:
{"what", "count", "sizes", "seconds", "peak_bytes"} and "error" where something went wrong. It never touches a GPU, and
ends when its input does, whatever it is doing.

A size is compiled by the functions that compile it in the user's process, for a program that is the same: its key names
the templates on disk, and has to give the name that the user's process has sent.
"""

from __future__ import annotations

import faulthandler
import json
import os
import queue
import shutil
import tempfile
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TextIO

from genesis.codegen.cuda.compile import compile_with, used_by_workers
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.worker import private_pipes
from genesis.codegen.cuda.workers import FOLDER, used_here
from genesis.config import settings
from genesis.engine.backends import cuda_backend, register
from genesis.engine.background import COMPILERS
from genesis.engine.plans import make_ahead, template_name
from genesis.engine.symbolic.program_text import ProgramText, read_program
from genesis.engine.symbolic.shape_erased import Member, ShapeErased
from genesis.engine.symbolic.shape_erased_key import shape_erased_key
from genesis.ir.types import Device
from genesis.runtime.stored_form import Stored

IDLE_SECONDS: Final = 60.0
"""How long the process waits for more to do: it holds a few hundred megabytes."""

MOST_SECONDS: Final = 300
"""How long one size may take. A process that is stuck in a compiler for longer ends."""

MOST_PROGRAMS: Final = 64
"""Programs whose texts are kept for further sizes."""

MOST_TOLD: Final = 1000
"""Characters of an error that are told."""

_NO_SUCH_SIZE: Final = (RuntimeError, TypeError, ValueError, IndexError, ZeroDivisionError, OverflowError)
"""What ops say of shapes, where no program of a structure has such sizes."""

History = tuple[list[tuple[int, int]], list[int], list[list[int]]]
"""`ShapeErased.history`."""


@dataclass(frozen=True)
class Program:
    """A program that was read about.

    Attributes:
        fixed: its inputs that are no data.
        erased: its shape-erased key.
        settings: those that it is compiled under.
    """

    text: ProgramText
    device: Device
    gpu: GpuModel
    fixed: frozenset[int]
    erased: tuple
    settings: tuple

    def compiled(self, sizes: dict[str, int], history: History) -> str:
        """Write the template of the class of these sizes, unless it is there; what came of it (`make_ahead`)."""
        try:
            captured = self.text.at(sizes)
            erased, numbers = shape_erased_key(captured.key)
        except _NO_SUCH_SIZE as error:
            return f"there is no such program: {type(error).__name__}"
        if erased != self.erased:
            return "it is another program for such sizes"
        member = ShapeErased.of_history(*history).member(captured, set(self.fixed), numbers)
        return make_ahead(captured, self.device, erased, member)


class OtherProgram(ValueError):
    """This process would compile something else than the one that asked: what makes plans was changed meanwhile."""


def read_about(about: Stored, history: History) -> Program:
    """The program that a message is about.

    Raises:
        OtherProgram: it would be compiled in another way here.
        NotWritable, ValueError, KeyError, ...: the message is none of this version.
    """
    gpu = GpuModel(**{**about["gpu"], "capability": tuple(about["gpu"]["capability"])})
    register("cuda", lambda index: cuda_backend(gpu), numbered=True)
    text, device = read_program(about["text"]), Device(about["device"])
    captured = text.at(about["base"])
    erased, numbers = shape_erased_key(captured.key)
    found = Program(text, device, gpu, frozenset(about["fixed"]), erased, tuple(about["settings"]))
    with settings(found.settings):
        member: Member = ShapeErased.of_history(*history).member(captured, set(found.fixed), numbers)
        if template_name(erased, member, device) != about["name"]:
            raise OtherProgram("it is compiled in another way here")
    return found


def serve() -> None:
    """Compile what is asked for, until the input ends or nothing has come for a minute."""
    requests, answers = private_pipes()
    os.set_blocking(answers.fileno(), False)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests, lines), daemon=True).start()
    compile_with(int(os.environ.get(COMPILERS, "1")))
    programs: OrderedDict[int, Program] = OrderedDict()
    waiting: list[Request] = []
    while True:
        try:
            while True:
                waiting += _read(json.loads(lines.get(not waiting, IDLE_SECONDS)), programs, answers)
        except queue.Empty:
            if not waiting:
                _leave()
        request = waiting[-1]  # next to what has just occurred
        _compile(request, request.sizes.pop(0), answers)
        if not request.sizes:
            waiting.pop()


@dataclass(frozen=True)
class Request:
    """Sizes of a program that were asked for, the likeliest first; those that were compiled are no more in it."""

    program: Program
    history: History
    directory: str
    sizes: list[dict[str, int]]


def _read(message: Stored, programs: OrderedDict[int, Program], answers: TextIO) -> list[Request]:
    """What a message asks for: one request, or none."""
    number, sizes, directory = message["program"], message["sizes"], message["directory"]
    first, moving, samples = message["history"]
    history = [(at, size) for at, size in first], moving, samples
    os.environ["GENESIS_CACHE_DIR"] = directory
    try:
        if "about" in message:
            programs[number] = read_about(message["about"], history)
            if len(programs) > MOST_PROGRAMS:
                programs.popitem(last=False)
    except Exception as error:  # whatever it is, the other programs' sizes are compiled
        _say(answers, "its program could not be read", len(sizes), {}, f"{type(error).__name__}: {error}"[:MOST_TOLD])
        return []
    if number not in programs:
        _say(answers, "its program was forgotten, or could not be read", len(sizes), {}, "")
        return []
    return [Request(programs[number], history, directory, sizes)]


def _compile(request: Request, sizes: dict[str, int], answers: TextIO) -> None:
    """Compile a program for some sizes, and tell what came of it."""
    program, wrong = request.program, ""
    os.environ["GENESIS_CACHE_DIR"] = request.directory
    register("cuda", lambda index: cuda_backend(program.gpu), numbered=True)
    faulthandler.dump_traceback_later(MOST_SECONDS, exit=True)
    try:
        with settings(program.settings):
            what = program.compiled(sizes, request.history)
    except Exception as error:  # the user's process compiles that size itself, and tells of it
        what, wrong = "it failed", f"{type(error).__name__}: {error}"[:MOST_TOLD]
    faulthandler.cancel_dump_traceback_later()
    _say(answers, what, 1, sizes, wrong)


def _say(answers: TextIO, what: str, count: int, sizes: dict[str, int], error: str) -> None:
    """Answer. One that nobody reads for long is dropped; who reads has gone, then this process soon ends."""
    used = used_here() + used_by_workers()
    answer = {"what": what, "count": count, "sizes": sizes, "seconds": used.seconds, "peak_bytes": used.peak_bytes,
              **({"error": error} if error else {})}
    with suppress(BlockingIOError, BrokenPipeError):
        os.write(answers.fileno(), json.dumps(answer).encode() + b"\n")


def _listen(requests: TextIO, lines: queue.SimpleQueue[str]) -> None:
    """Hand on what comes, and end this process when its input does."""
    for line in requests:
        if line.endswith("\n"):
            lines.put(line)
    _leave()


def _leave() -> None:
    folder = tempfile.gettempdir()
    if os.path.basename(folder).startswith(FOLDER):  # made for this process
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)
