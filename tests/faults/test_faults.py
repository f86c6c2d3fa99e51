"""A fault at any instant leaves a state that the program had between two statements.

    pytest tests/faults                      # a sample
    pytest tests/faults -m sweep             # each line, opcode, allocation and call of each program, in parts; of the
                                             # many whose lines others have, some lines and opcodes
    python -m tests.faults --kinds line      # the table of docs/reliability.md
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import genesis
from tests.faults import signals
from tests.faults.adverse_programs import ADVERSE_PROGRAMS
from tests.faults.combined_programs import COMBINED, COMBINED_PROGRAMS
from tests.faults.events import Place, Traced, _exits_of, chosen, injected, turns_of
from tests.faults.known import KNOWN
from tests.faults.programs import PROGRAMS, Case, Statement
from tests.faults.rank_programs import RANK_PROGRAMS
from tests.faults.signals import count_signals
from tests.faults.table import ERRORS, KINDS, Row, count, quiet_collector
from tests.faults.trial import Bench, Program, Verdict
from tests.faults.waiting_programs import WAITING_PROGRAMS
from tests.faults.written_programs import WITH_WORKERS, WRITTEN_PROGRAMS
from tests.sweeping import by_default, sweep_but

PARTS = {"line": 2, "opcode": 12, "allocation": 1, "call": 1, "depth": 1, "limit": 12}
"""The parts that the faults of a kind are counted in, each about 15 s of a processor."""

COMBINED_STEPS = {"line": 16, "opcode": 144, "allocation": 1, "call": 1, "depth": 1, "limit": 144}
"""Of the faults of a kind, each how manieth is tried in `COMBINED_PROGRAMS`, which differ by their optimizers, and in
`REPRESENTED`."""

REPRESENTED = (
    *(f"compiled listed twice in {name}" for name in COMBINED if name not in ("SGD", "NAdam", "Muon")),
    *(f"listed twice in {name}" for name in ("SGD", "SGD momentum", "Adam", "Adadelta", "Adagrad", "Adamax", "NAdam",
                                             "RAdam", "RMSprop", "Rprop", "amsgrad")),
    "step of LBFGS",  # the search has its steps, too
    "capture",  # of state
    "grad scaler",  # scaled and listed twice
    "autocast",  # low precision
    "clipped buckets", "buckets of Adagrad", "buckets of SGD momentum",  # clip norm, and buckets of AdamW
    "second length",  # the third has the same lines
    "third size",  # the second
)
"""Programs whose lines others have, by a few of each (`test_what_is_represented_has_hardly_a_line_of_its_own`): of
their faults a sample is tried, of those of the others each."""

PATHS = {"flush of a known plan": "reads", "compile": "compile", "backward": "own derivative",
         "optimizer's step": "step of AdamW", "load": "loading", "capture": "capture of state",
         "replay": "compiled step", "run on stand-ins": "third length", "plan of other sizes": "second size",
         "replay of another length": "third length in training"}
"""The engine's ways → a program that takes it, each of whose faults the sweep tries."""

OFTEN = ("reads", "step of AdamW", "step of SGD momentum", "batch norm", "mixed dtypes", "compiled step",
         "compiled SGD momentum", "loading", "buckets of AdamW", "sharded loading", "carried state", "per sample",
         "compiled all with Muon", "step of LBFGS with a search", "loader")
"""The programs of the sample."""

SAMPLE = {"line": 599, "opcode": 4999, "allocation": 2, "call": 9, "depth": 5, "limit": 1499}
"""Of the faults of a kind, each how manieth is in the sample."""


def check(row: Row, all_of_them: bool) -> None:
    """Nothing is inconsistent but what is known; what is known is, where all faults were tried."""
    assert row.tried or row.kind == "allocation", "no fault was injected"  # a plan may keep the memory that it had
    missed = row.outcomes["not reached"]  # now and then a table is forgotten that was not before
    assert row.device != "cpu" or missed <= 3 + row.tried / 10, f"{missed} of {row.tried} instants did not come"
    if (row.program, row.kind) in KNOWN:
        assert row.inconsistent or not all_of_them, "mended: take it out of KNOWN"
        return
    assert not row.inconsistent, "\n".join(f"{v.text} at {v.place}: {v.problem}" for v in row.inconsistent[:20])


OF_EACH_KIND = ("reads", "batch norm", "compiled step", "carried state", "loader", "loading")
"""The programs of the sample that other kinds than lines are tried in: what each runs first takes as long as all of a
kind's faults."""


@pytest.mark.parametrize(("program", "kind"), sweep_but(
    lambda program, kind: kind == "line" or program in OF_EACH_KIND, OFTEN, KINDS))
def test_a_sample_of_faults(program: str, kind: str) -> None:
    row = count(program, "cpu", kind, SAMPLE[kind])
    check(row, False)


ON_GPU = {"reads": 1, "step of AdamW": 4, "compiled step": 1, "loading": 2, "compiled low precision": 1}
"""The programs whose opcodes are tried on the pretended GPU, in as many parts of a few minutes in the sweep: reads that
are flushed, a step with its backward, a replay, loads, and a step whose weights have copies in bfloat16."""


@pytest.mark.parametrize("program", ["compile", "moving", "second length", "schedule OneCycleLR"])
def test_a_stack_that_ends_in_a_compile_a_move_a_schedule_or_a_run_on_stand_ins(program: str) -> None:
    """RecursionError at each third depth (of a move at each second): what was pending stays so, and modes and locks
    are left as they were."""
    check(count(program, "cpu", "depth", 2 if program == "moving" else 3), False)


@by_default("*-opcode", "reads-call", "compiled step-call")
@pytest.mark.parametrize("kind", ["call", "opcode"])
@pytest.mark.parametrize("program", ON_GPU)
def test_a_sample_of_faults_on_a_gpu(program: str, kind: str) -> None:
    check(count(program, "h200", kind, {"call": 5, "opcode": 2999 * ON_GPU[program]}[kind]), False)


def test_a_run_beside_a_second_stream_is_made_or_not() -> None:
    """Its writes are started where storages are told of them: an update was made twice, as nobody was told of one."""
    check(count("streams", "h200", "line", 97), False)


BEGINNING = ("cuda/collective_work.py", "cuda/staged_transport.py", "runtime/ledger.py", "cuda/bound_plan.py")
"""What begins a collective."""


@by_default("reduced staged, apart-line", "reduced of C-line")
@pytest.mark.parametrize("kind", ["line", "opcode"])
@pytest.mark.parametrize("program", RANK_PROGRAMS)
def test_collectives_among_writes_in_place_are_begun_with_them_or_none_is_made(program: str, kind: str) -> None:
    """What waits for other ranks runs lines of Python: a Ctrl-C there came between two of the program's writes, and no
    storage was told of the first ones."""
    with Bench("h200") as bench, quiet_collector():
        running = Program(program, "cuda", bench.driver)
        found = list[Verdict]()
        for unit in (u for u in running.units if u.statement.text.startswith(("value", "opt.step"))):
            places = running.places(unit, kind)
            turns = turns_of(places)
            there = [at for at in chosen(places) if places[at].file.endswith(BEGINNING)]
            tried = there[::1 + len(there) // (80 if kind == "line" else 400)]
            found += [running.trial(unit, kind, at, KeyboardInterrupt, places[at], turns[at], by_place=True)
                      for at in tried]
    assert len(found) > (8 if "graphs" in program else 20) and not [v for v in found if v.problem], found
    assert sum(v.outcome == "not reached" for v in found) < len(found) / 4


@pytest.mark.parametrize("program", ["step of AdamW", "compiled step"])
def test_a_few_signals(program: str) -> None:
    check(count_signals(program, "cpu", 25), False)


MORE_PARTS = {
    "second length": {"line": 8, "opcode": 72}, "third length": {"line": 8, "opcode": 72},
    "second length in training": {"line": 5, "opcode": 48}, "third length in training": {"line": 2, "opcode": 12},
    "second size": {"line": 12, "opcode": 96}, "third size": {"line": 6, "opcode": 40},
}
"""Parts of programs that run anew on stand-ins, or compile, after each fault (15 to 30 ms each, up to 67,000)."""


def parts_of(program: str, kind: str) -> int:
    """How many parts a program's faults of a kind are counted in: together they have each fault once."""
    return MORE_PARTS.get(program, PARTS).get(kind, PARTS[kind])


def errors_of(kind: str) -> tuple[type[BaseException], ...]:
    """What the sweep raises where each opcode is tried, too: an interrupt at a line is one at the line's first opcode
    (`test_events.py`)."""
    return (MemoryError,) if kind == "line" else ERRORS[kind]


def _whole() -> list[str]:
    """The programs each of whose faults is tried."""
    return [x for x in PROGRAMS if x not in (
        *COMBINED_PROGRAMS, *WRITTEN_PROGRAMS, *ADVERSE_PROGRAMS, *WAITING_PROGRAMS, *REPRESENTED)]


def _parts() -> list[Any]:
    return [(program, kind, part) for program in _whole() for kind in KINDS
            for part in range(parts_of(program, kind))]


@pytest.mark.sweep
@pytest.mark.parametrize(("program", "kind", "part"), _parts())
def test_each_fault(program: str, kind: str, part: int) -> None:
    check(count(program, "cpu", kind, parts_of(program, kind), part, errors=errors_of(kind)), True)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", COMBINED_PROGRAMS)
def test_some_faults_of_each_optimizer(program: str, kind: str) -> None:
    check(count(program, "cpu", kind, COMBINED_STEPS[kind]), kind in ("allocation", "call"))


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", REPRESENTED)
def test_some_faults_of_programs_whose_lines_others_have(program: str, kind: str) -> None:
    check(count(program, "cpu", kind, COMBINED_STEPS[kind]), kind in ("allocation", "call"))


@pytest.mark.sweep
def test_what_is_represented_has_hardly_a_line_of_its_own() -> None:
    """A line that is reached only there, under whichever statement, is tried by chance."""
    elsewhere = set[Place]().union(*map(_lines, _whole()))
    own = {program: _lines(program) - elsewhere for program in REPRESENTED}
    assert not {program: lines for program, lines in own.items() if len(lines) > 8}


def _lines(program: str) -> set[Place]:
    with Bench("cpu"), quiet_collector():
        running = Program(program)
        return {place for unit in running.units for place in running.places(unit, "line")}


def test_each_way_of_the_engine_has_a_program_whose_faults_are_all_tried() -> None:
    assert {*PATHS.values()} <= {*_whole()} and {*REPRESENTED} < {*PROGRAMS}
    assert {(program, kind) for program, kind, _ in _parts()} >= {(x, kind) for x in PATHS.values() for kind in KINDS}


@by_default("capture of shared state")
@pytest.mark.parametrize("program", WAITING_PROGRAMS)
def test_what_waits_where_a_step_begins_is_made_or_waits(program: str) -> None:
    check(count(program, "cpu", "call", 9), True)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", [
    name for name in (*WRITTEN_PROGRAMS, *ADVERSE_PROGRAMS, *WAITING_PROGRAMS) if name != WITH_WORKERS])
def test_some_faults_of_programs_as_users_write_them(program: str, kind: str) -> None:
    check(count(program, "cpu", kind, COMBINED_STEPS[kind]), kind in ("allocation", "call"))


@pytest.mark.sweep
def test_some_lines_around_the_workers_of_a_loader() -> None:
    """Each is tried with processes of its own, which takes a fifth of a second."""
    check(count(WITH_WORKERS, "cpu", "line", 151), False)


@pytest.mark.sweep
@pytest.mark.parametrize(("program", "part"), [(name, part) for name, parts in ON_GPU.items() for part in range(parts)])
def test_each_opcode_on_a_gpu(program: str, part: int) -> None:
    check(count(program, "h200", "opcode", ON_GPU[program], part), True)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["line", "allocation", "call"])
@pytest.mark.parametrize("program", [*ON_GPU, "batch norm", "low precision", "all with AdamW"])
def test_faults_on_a_gpu(program: str, kind: str) -> None:
    check(count(program, "h200", kind, 11 if kind == "line" else 1), False)


def test_a_second_signal_while_the_first_one_is_on_its_way() -> None:
    """Who presses Ctrl-C twice: what ends a program after an exception may be ended by another."""
    check(count_signals("batch norm", "cpu", 40, twice=True), False)


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("program", ["step of AdamW", "compiled step", "dropout", "batch norm"])
def test_signals(program: str, part: int) -> None:
    check(count_signals(program, "cpu", 250, part), False)


def test_signals_come_anywhere_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in its first call alone, whose capture takes longer than a signal is waited for."""
    found: list[int] = []
    plain = signals._Long.interrupted

    def interrupted(self: Any, case: Any, unit: Any, raised: KeyboardInterrupt) -> Any:
        found.append(unit.first)
        return plain(self, case, unit, raised)
    monkeypatch.setattr(signals._Long, "interrupted", interrupted)
    check(count_signals("compiled state", "cpu", 30), False)
    assert sum(first > 0 for first in found) > 20


@by_default("schedule OneCycleLR", "loader", "all with SGD nesterov")
@pytest.mark.parametrize("program", [name for name in PROGRAMS if name != WITH_WORKERS])
def test_a_run_under_signals_comes_to_its_end(program: str) -> None:
    """Thirty iterations: schedules have as many steps, loaders are begun again, and values stay numbers."""
    check(count_signals(program, "cpu", 5), False)


@pytest.mark.parametrize("kind", ["line", "opcode"])
def test_a_function_that_is_captured_stops_between_its_own_statements(kind: str) -> None:
    """It counts its calls, keeps its last loss and appends it, each in a line of its own."""
    found = trials("capture of state", kind, ("programs.py",), 3 if kind == "opcode" else 1)
    assert {"before", "between"} <= {v.outcome for v in found} and not [v for v in found if v.problem], found
    assert len({v.place for v in found}) >= 8


@pytest.mark.parametrize(("program", "statement", "error", "files"), [
    ("compiled step", "loss = step(x, y)", KeyError, ("tracing/checks.py", "engine/flushing.py")),
    ("compiled forward", "out = net(x)", KeyError, ("tracing/replay_call.py", "frontend/at_once.py")),
    ("capture", "loss = step(x, y)", TimeoutError, ("tracing/call_capture.py", "engine/flushing.py")),
    ("step of AdamW", "loss.backward()", KeyError, ("autograd/gradients.py", "frontend/writes.py")),
    ("step of AdamW", "opt.step()", RuntimeError, ("engine/recorded_since.py", "frontend/pending.py")),
    ("reads", "x[0] = z", RuntimeError, ("ops/common.py", "ops/indexing.py", "frontend/views.py")),
    ("reads", "z = x @ w", RuntimeError, ("frontend/recording.py", "ir/node.py")),
    ("second length", "", RuntimeError, ("ir/node.py",)),
], ids=lambda x: str(x) if isinstance(x, str) else None)
def test_a_handlers_error_passes_what_asks_for_its_class(program: str, statement: str, error: type[Exception],
                                                         files: tuple[str, ...]) -> None:
    """`except KeyError`, where another thread may have drawn, did all again: behind a replay's draws, it drew twice."""
    with Bench("cpu"), quiet_collector():
        running = Program(program)
        unit = next(u for u in running.units if u.statement.text.startswith(statement))
        places = running.places(unit, "limit")
        turns = turns_of(places)
        there = [at for at in chosen(places) if places[at].file.endswith(files)]
        found = [running.trial(unit, "limit", at, error, places[at], turns[at]) for at in there[::1 + len(there) // 40]]
    assert len(found) > 4 and not [v for v in found if v.problem], found


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of one that has no block yet
def test_a_handlers_error_where_memory_of_a_gpu_is_taken_passes() -> None:
    """`except KeyError`, where no shelf has a block of the size, took a handler's for that: a time limit was lost.
    Where a shelf has one, Python looks for no signals until the storage has it."""
    from genesis.runtime.cuda.storage import CUDAStorage

    kept: list[Any] = []

    def taken() -> None:
        kept.append(CUDAStorage(512, genesis.device("cuda")))
    with Bench("h200"):
        for _ in range(3):  # a size that is asked for again has a shelf, from which the next ones are taken
            for _ in range(99):
                taken()
            kept.clear()
        instants, quick = Traced("limit", ("runtime/cuda/storage.py",)), 0
        while not (places := instants.places(taken)):
            quick += 1
        assert quick > 9
        for at in range(len(places)):
            kept.clear()
            while not instants.places(taken):
                pass
            fault = injected(KeyError)
            with pytest.raises(KeyError, match="injected"):
                instants.fail(taken, at, fault)
            fault.__traceback__ = None
    assert len(places) > 2


@pytest.mark.parametrize("program", ["listed twice in AdamW", "compiled listed twice in NAdam"])
def test_a_step_in_several_layers_is_made_or_not(program: str) -> None:
    """The second update of a parameter that is listed twice reads what the first one wrote: a fault between the two
    left a part of the parameters a step further."""
    with Bench("cpu"), quiet_collector():
        running = Program(program)
        unit = next(u for u in running.units if u.statement.text in ("opt.step()", "loss = step(x, y)"))
        places = running.places(unit, "line")
        turns = turns_of(places)
        there = [at for at in chosen(places) if places[at].file.startswith(("optim/", "frontend/writes.py"))]
        found = [running.trial(unit, "line", at, KeyboardInterrupt, places[at], turns[at])
                 for at in there[::1 + len(there) // 40]]
    assert len(found) > 4 and not [v for v in found if v.problem], found


@pytest.mark.parametrize(("program", "statement", "file"), [
    ("compiled recurrence", "loss = step()", "tracing/replay_step.py"),
    ("compiled rates", "rated = rates(x)", "tracing/replay_call.py")])
def test_a_schedule_in_a_replay_takes_its_step_with_it_or_not(program: str, statement: str, file: str) -> None:
    """It steps before the plan runs, which takes its rates: an interrupt in between left it an epoch ahead, and of two
    schedules for one rate the first one's was left."""
    files = (file, "tracing/replay_sources.py", "tracing/step_gradients.py", "frontend/session.py",
             "lr_scheduler/base.py")
    with Bench("cpu"), quiet_collector():
        running = Program(program)
        unit = next(u for u in running.units if u.statement.text == statement)
        places = running.places(unit, "line")
        turns = turns_of(places)
        there = [at for at in chosen(places) if places[at].file.endswith(files)]
        found = [running.trial(unit, "line", at, KeyboardInterrupt, places[at], turns[at])
                 for at in there[::1 + len(there) // 75]]
    assert len(found) > 20 and not [v for v in found if v.problem], found


@pytest.mark.parametrize(("iteration", "error"), [(0, KeyboardInterrupt), (0, MemoryError), (1, MemoryError)])
def test_what_a_captured_call_keeps_behind_its_step_stays_with_that(iteration: int, error: type[BaseException],
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """The step is run when the call is over. After an interrupt all of it stays pending, so a schedule that was taken
    back was an epoch behind the weights. Without memory it is dropped, and a state that was kept was ahead of them."""
    def target(device: str) -> Case:
        found = PROGRAMS["compiled recurrence"](device)
        found.target = (found.starts[iteration], found.starts[iteration + 1])
        return found
    monkeypatch.setitem(PROGRAMS, "capture of recurrence", target)
    with Bench("cpu"), quiet_collector():
        running = Program("capture of recurrence")
        (unit, *_) = running.units
        places = running.places(unit, "line")
        turns = turns_of(places)
        there = [at for at in chosen(places) if places[at].file.endswith(("cpu/executor.py", "engine/running.py"))]
        found = [running.trial(unit, "line", at, error, places[at], turns[at])
                 for at in there[::1 + len(there) // 16]]
    assert len(found) > 8 and not [v for v in found if v.problem], found


READ_LAST = {("value read last", "opcode"): 8, ("capture of a value read last", "line"): 7, ("tallies", "line"): 7,
             ("capture of tallies", "line"): 7}
"""(program, kind of instants) → each how manieth instant is tried by default: 25 to 80 are, 10 to 65 ms each."""


@pytest.mark.parametrize(("program", "kind"), READ_LAST)
def test_values_that_a_call_reads_last_are_all_kept_or_none(program: str, kind: str) -> None:
    """One is appended and stored: at once, and no number that stands for it stays where an exception comes before."""
    check_reads_last(program, kind, READ_LAST[program, kind])


@pytest.mark.sweep
@pytest.mark.parametrize(("program", "kind"), READ_LAST)
def test_they_are_at_each_instant(program: str, kind: str) -> None:
    check_reads_last(program, kind, 1)


def check_reads_last(program: str, kind: str, every: int) -> None:
    """Each `every`-th instant where such values are looked for, read and put leaves all of them or none."""
    rooms = ("tracing/slots.py", "tracing/last_values.py", "tracing/compiled_function.py", "tracing/call_capture.py")
    found = trials(program, kind, rooms, every)
    assert len(found) > 20 and not [v for v in found if v.problem], found


def trials(program: str, kind: str, files: tuple[str, ...], every: int = 1) -> list[Verdict]:
    """An interrupt at each `every`-th instant of a kind in these files, while the program's first unit runs."""
    with Bench("cpu"), quiet_collector():
        running = Program(program)
        unit = running.units[0]
        places = running.places(unit, kind)
        turns = turns_of(places)
        return [running.trial(unit, kind, at, KeyboardInterrupt, places[at], turns[at])
                for at in [at for at in chosen(places) if places[at].file.endswith(files)][::every]]


@pytest.mark.sweep
@pytest.mark.parametrize("program", [*ON_GPU, "compiled state"])
def test_signals_on_a_gpu(program: str) -> None:
    check(count_signals(program, "h200", 100), False)


def test_a_signal_inside_of_the_pretended_gpu_is_met_behind_it() -> None:
    """Half a kernel of Triton's interpreter leaves that switched on. Other threads are there, as xdist's are."""
    done: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def launch() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        done.append(len(done))
    with pytest.raises(KeyboardInterrupt):
        signals._undisturbed(launch)()
    assert done == [0] and signal.getsignal(signal.SIGINT) is before


def test_a_fault_that_is_inconsistent_is_found() -> None:
    """The checks themselves: a step that counts first and computes later is told from one that does both."""
    with Bench("cpu"):
        program = Program("step of AdamW")
        unit = next(u for u in program.units if u.statement.text == "opt.step()")
        case = program.case(unit.first)
        program._know(unit)
        for state in case.opt.state.values():
            state["step"] += 1
        outcome, problem = program._judged(case, unit, KeyboardInterrupt("injected"), KeyboardInterrupt)
        assert (outcome, "step" in problem) == ("state", True)
        place = program.places(unit, "line")[0]
        verdict = program.trial(unit, "line", 0, KeyboardInterrupt, place, 0)
        assert (verdict.outcome, verdict.problem, verdict.place.line) == ("before", "", place.line)
        assert genesis.is_grad_enabled()


def test_an_instant_that_does_not_come_is_told() -> None:
    """A fault that nobody injects proves nothing: it is no outcome of the program."""
    with Bench("cpu"):
        program = Program("reads")
        unit, place = program.units[0], program.places(program.units[0], "opcode")[0]
        assert program.trial(unit, "opcode", 0, KeyboardInterrupt, place, 99).outcome == "not reached"
        row = Row("reads", "cpu", "opcode", tried=40)
        row.outcomes["not reached"] = 8
        with pytest.raises(AssertionError, match="8 of 40"):
            check(row, True)


def test_instants_are_those_of_runs_that_have_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that takes another way in its first runs, as after other tests: instants of these never come again."""
    runs: list[Any] = []

    class Settling(Case):
        """Its only statement does more in the first four runs."""

        def __init__(self) -> None:
            super().__init__()
            self.statements, self.starts, self.target = [Statement("f()", self._ran)], [0, 1], (0, 1)

        def _ran(self) -> None:
            runs.append(repr(genesis.nn.Linear(1, 1)) if len(runs) < 4 else str(genesis.float32))

        def kept(self) -> Iterator[tuple[str, Any]]:
            return iter(())
    monkeypatch.setitem(PROGRAMS, "settling", lambda device: Settling())
    check(count("settling", "cpu", "line", errors=(KeyboardInterrupt,)), True)


def test_a_bad_index_is_told_each_time_on_the_pretended_gpu() -> None:
    """A kernel that had read the same bytes before was not run again, so the second bad index gave a value."""
    with Bench("h200"):
        x = genesis.arange(6.0).cuda()
        genesis.eval(x)
        for place in (0, 1, 0, 99, 1, 99, 99, 0):
            index = genesis.tensor([place]).cuda()
            if place == 99:
                with pytest.raises(IndexError, match="99"):
                    x[index].tolist()
            else:
                assert x[index].tolist() == [place]


def test_stand_ins_are_put_back_where_a_with_ends() -> None:
    """A traced number stayed on the user's module, where the exception came before the context was left."""
    from genesis.tracing import symbolic_call
    began = symbolic_call._undone.__wrapped__.__code__.co_firstlineno  # type: ignore[attr-defined]
    with Bench("cpu"):
        program = Program("second length")
        unit = program.units[0]
        places = program.places(unit, "line")
        turns, tried = turns_of(places), 0
        for at, place in enumerate(places):
            if place.file == "tracing/symbolic_call.py" and began <= place.line < began + 12:
                verdict, tried = program.trial(unit, "line", at, MemoryError, place, turns[at]), tried + 1
                assert (verdict.outcome, verdict.problem) == ("lost", ""), place
    assert tried >= 6


def test_what_stays_on_an_object_where_a_with_ends_is_counted_apart() -> None:
    """Between the block's end and the call of `__exit__` a traced number is still on the user's module."""
    from genesis.tracing.symbolic_call import SymbolicCall
    exits = _exits_of(SymbolicCall._take_over.__code__)
    with Bench("cpu"):
        program = Program("second position")
        unit = program.units[0]
        places = program.places(unit, "opcode")
        turns, found = turns_of(places), []
        for at, place in enumerate(places):
            if place.file == "tracing/symbolic_call.py" and place.offset in exits:
                verdict = program.trial(unit, "opcode", at, MemoryError, place, turns[at])
                assert not verdict.problem, place
                found.append(verdict.outcome)
    assert "at a with's end" in found
