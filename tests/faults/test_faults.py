"""A fault at any instant leaves a state that the program had between two statements.

    pytest tests/faults                      # a sample
    pytest tests/faults -m sweep             # each line, opcode, allocation and call of each program, in parts; of the
                                             # many that differ by their optimizer, some lines and opcodes
    python -m tests.faults --kinds line      # the table of docs/reliability.md
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.combined_programs import COMBINED_PROGRAMS
from tests.faults.known import KNOWN
from tests.faults.programs import PROGRAMS
from tests.faults.signals import count_signals
from tests.faults.table import KINDS, Row, count
from tests.sweeping import by_default, sweep_but

PARTS = {"line": 4, "opcode": 12, "allocation": 1, "call": 1}
"""The parts that the faults of a kind are counted in, each within a minute."""

COMBINED_STEPS = {"line": 16, "opcode": 144, "allocation": 1, "call": 1}
"""Of the faults of a kind, each how manieth is tried in `COMBINED_PROGRAMS`, which differ by their optimizers."""

OFTEN = ("reads", "step of AdamW", "step of SGD momentum", "batch norm", "mixed dtypes", "compiled step",
         "compiled SGD momentum", "loading", "buckets of AdamW", "sharded loading", "carried state", "per sample",
         "compiled all with Muon", "step of LBFGS with a search", "loader")
"""The programs of the sample."""

SAMPLE = {"line": 401, "opcode": 2999, "allocation": 2, "call": 9}
"""Of the faults of a kind, each how manieth is in the sample."""


def check(row: Row, all_of_them: bool) -> None:
    """Nothing is inconsistent but what is known; what is known is, where all faults were tried."""
    assert row.tried or row.kind == "allocation", "no fault was injected"  # a plan may keep the memory that it had
    if (row.program, row.kind) in KNOWN:
        assert row.inconsistent or not all_of_them, "mended: take it out of KNOWN"
        return
    assert not row.inconsistent, "\n".join(f"{v.text} at {v.place}: {v.problem}" for v in row.inconsistent[:20])


OF_EACH_KIND = ("reads", "batch norm", "compiled step", "carried state", "loader")
"""The programs of the sample that opcodes and allocations are tried in: what each runs first takes as long as all of a
kind's faults."""


@pytest.mark.parametrize(("program", "kind"), sweep_but(
    lambda program, kind: kind in ("line", "call") or program in OF_EACH_KIND, OFTEN, KINDS))
def test_a_sample_of_faults(program: str, kind: str) -> None:
    row = count(program, "cpu", kind, SAMPLE[kind])
    check(row, False)


ON_GPU = {"reads": 1, "step of AdamW": 4, "compiled step": 1, "loading": 2, "compiled low precision": 1}
"""The programs whose opcodes are tried on the pretended GPU, in as many parts of a few minutes in the sweep: reads that
are flushed, a step with its backward, a replay, loads, and a step whose weights have copies in bfloat16."""


@by_default("*-opcode", "reads-call", "compiled step-call")
@pytest.mark.parametrize("kind", ["call", "opcode"])
@pytest.mark.parametrize("program", ON_GPU)
def test_a_sample_of_faults_on_a_gpu(program: str, kind: str) -> None:
    check(count(program, "h200", kind, {"call": 5, "opcode": 1597 * ON_GPU[program]}[kind]), False)


@pytest.mark.parametrize("program", ["step of AdamW", "compiled step"])
def test_a_few_signals(program: str) -> None:
    check(count_signals(program, "cpu", 25), False)


OPCODE_PARTS = {"second length": 48, "second length in training": 48, "third length in training": 24, "second size": 48}
"""Parts of the opcodes of programs that run anew on stand-ins after each fault (30 to 50 ms each, up to 77,000): about
a minute each."""


def parts_of(program: str, kind: str) -> int:
    """How many parts a program's faults of a kind are counted in: together they have each fault once."""
    return OPCODE_PARTS.get(program, PARTS[kind]) if kind == "opcode" else PARTS[kind]


def _parts() -> list[Any]:
    return [(program, kind, part) for program in PROGRAMS if program not in COMBINED_PROGRAMS
            for kind in KINDS for part in range(parts_of(program, kind))]


@pytest.mark.sweep
@pytest.mark.parametrize(("program", "kind", "part"), _parts())
def test_each_fault(program: str, kind: str, part: int) -> None:
    check(count(program, "cpu", kind, parts_of(program, kind), part), True)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", COMBINED_PROGRAMS)
def test_some_faults_of_each_optimizer(program: str, kind: str) -> None:
    check(count(program, "cpu", kind, COMBINED_STEPS[kind]), kind in ("allocation", "call"))


@pytest.mark.sweep
@pytest.mark.parametrize(("program", "part"), [(name, part) for name, parts in ON_GPU.items() for part in range(parts)])
def test_each_opcode_on_a_gpu(program: str, part: int) -> None:
    check(count(program, "h200", "opcode", ON_GPU[program], part), True)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["line", "allocation", "call"])
@pytest.mark.parametrize("program", [*ON_GPU, "batch norm", "low precision", "all with AdamW"])
def test_faults_on_a_gpu(program: str, kind: str) -> None:
    check(count(program, "h200", kind, 11 if kind == "line" else 1), False)


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("program", ["step of AdamW", "compiled step", "dropout", "batch norm"])
def test_signals(program: str, part: int) -> None:
    check(count_signals(program, "cpu", 250, part), False)


def test_a_fault_that_is_inconsistent_is_found() -> None:
    """The checks themselves: a step that counts first and computes later is told from one that does both."""
    import genesis
    from tests.faults.events import Place
    from tests.faults.trial import Bench, Program
    with Bench("cpu"):
        program = Program("step of AdamW")
        unit = next(u for u in program.units if u.statement.text == "opt.step()")
        case = program.case(unit.first)
        program._know(unit)
        for state in case.opt.state.values():
            state["step"] += 1
        outcome, problem = program._judged(case, unit, KeyboardInterrupt("injected"), KeyboardInterrupt)
        assert (outcome, "step" in problem) == ("state", True)
        assert not program.trial(unit, "line", 0, KeyboardInterrupt, Place("", 0)).problem
        assert genesis.is_grad_enabled()
