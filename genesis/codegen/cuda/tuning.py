"""Tuning: of a schedule's choices that no row of the user's table answers, the best candidates are timed.

    groups ─ emit, noting ─▶ open choices ─ the model's best ─▶ kernels ─ compile ─▶ trials ─ timer ─▶ rows of the table

The candidate that would be taken without is always among those timed, and stays unless another is faster by more than
`GAIN`, as times are noisy. A candidate that does not compile, or that the GPU cannot start, is left out; where memory
has no room for the operands nothing is decided. What is asked of symbolic sizes meanwhile becomes no guard: they are
those at hand, and the row is for their classes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from genesis.codegen.cuda.alone import plan_of_one
from genesis.codegen.cuda.choice_table import Key, Row, Rows
from genesis.codegen.cuda.choices import Candidate, Taken, deciding, noting
from genesis.codegen.cuda.compile import MOST_WORKERS, CompilationFailed, key_of
from genesis.codegen.cuda.emit import emit_anew
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.lower import Compile
from genesis.codegen.cuda.source import KernelSource
from genesis.passes.groups import Group
from genesis.passes.structural_memo import aside
from genesis.runtime.plan import KernelImage, Plan

TIMED_KINDS: Final = frozenset({"matmul", "attention", "attention_backward", "loop"})
"""Kinds of groups whose time does not depend on what is in memory."""

MOST_TIMED: Final = 6
"""Candidates of a choice that are timed, at most: that of today, then the model's best."""

GAIN: Final = 0.02
"""The part of its time by which a candidate has to be faster than the one that would be taken without."""

log = logging.getLogger("genesis")


class NotTimed(RuntimeError):
    """A kernel could not be timed; the message says why.

    Attributes:
        memory: whether there was no room for its operands.
    """

    def __init__(self, problem: str, memory: bool = False):
        super().__init__(problem)
        self.memory = memory


@dataclass(frozen=True)
class Trial:
    """A kernel that is to be timed.

    Attributes:
        plan: its launch.
        taken: the choice that it was made for, and the candidate.
    """

    plan: Plan
    taken: Taken


Timer = Callable[[Trial], float]
"""Microseconds of a trial's kernel. Raises `NotTimed`."""


def tune(groups: Iterable[Group], rows: Rows, compile: Compile, timer: Timer, gpu: GpuModel) -> list[Row]:
    """Time the open choices of these groups' kernels. Returns the rows that were added to `rows`."""
    found: list[Row] = []
    timed = [group for group in groups if group.kind in TIMED_KINDS]
    left: set[Key] = set()
    with aside():
        while asked := _open(timed, rows, left, gpu):  # what is decided for one choice may lead to another
            left.update(asked)
            made = [(taken, group, _kernels(group, taken, rows, gpu)) for taken, group in asked.values()]
            images = iter(compiled([source for *_, kernels in made for _, source in kernels], compile))
            for taken, group, kernels in made:
                row = _timed(taken, _trials(taken, group, kernels, images), timer)
                if row is not None:
                    rows.add(row)
                    found.append(row)
    return found


def _open(groups: Sequence[Group], rows: Rows, left: set[Key], gpu: GpuModel) -> dict[Key, tuple[Taken, Group]]:
    """The choices that no row answers, and a group that has each; those that are `left` were tried."""
    found: dict[Key, tuple[Taken, Group]] = {}
    for group in groups:
        with deciding(rows), noting() as taken:
            emit_anew(group, gpu)
        for x in taken:
            key = x.choice.key
            if key not in rows and key not in left and key not in found and len(x.choice.candidates) > 1:
                found[key] = x, group
                break
    return found


Kernels = list[tuple[Candidate, KernelSource]]
"""Kernels that differ, and the candidate that each was made with."""


def _kernels(group: Group, today: Taken, rows: Rows, gpu: GpuModel) -> Kernels:
    """Today's candidate, then the model's best."""
    ordered = sorted(today.choice.candidates, key=lambda candidate: candidate.microseconds)
    found: dict[str, tuple[Candidate, KernelSource]] = {}
    for candidate in {candidate.name: candidate for candidate in (today.candidate, *ordered)}.values():
        with deciding(rows, {today.choice.key: candidate.name}):
            source = emit_anew(group, gpu)
        found.setdefault(key_of(source, gpu), (candidate, source))
        if len(found) == MOST_TIMED:
            break
    return list(found.values())


def _trials(today: Taken, group: Group, kernels: Kernels, images: Iterator[KernelImage | None]) -> list[Trial]:
    """The kernels that compiled, to be timed; each takes the next of the images."""
    found = []
    for candidate, source in kernels:
        image = next(images)
        plan = None if image is None else plan_of_one(source, image, group)
        if plan is not None:
            found.append(Trial(plan, Taken(today.choice, candidate, "forced")))
    return found


def _timed(today: Taken, trials: Sequence[Trial], timer: Timer) -> Row | None:
    """The row of a choice; None if none of its kernels, or not today's, can be timed."""
    times: list[tuple[float, Candidate]] = []
    first: float | None = None
    for trial in trials:
        candidate = trial.taken.candidate
        try:
            time = timer(trial)
        except NotTimed as problem:
            log.warning("config.tune: %s %s was not timed: %s", today.choice.key.kind, candidate.name, problem)
            if problem.memory or candidate is today.candidate:
                return None
            continue
        if candidate is today.candidate:
            first = time
        times.append((time, candidate))
    if first is None:
        return None
    best, candidate = min(times, key=lambda row: row[0])
    if best > (1 - GAIN) * first:
        best, candidate = first, today.candidate
    return Row(today.choice.key, candidate.name, best, first)


def compiled(sources: Sequence[KernelSource], compile: Compile) -> list[KernelImage | None]:
    """The images of sources, compiled side by side; None for one that does not compile."""
    alone = partial(_compiled_alone, compile=compile)
    with ThreadPoolExecutor(MOST_WORKERS) as threads:
        return [*map(alone, sources[:1]), *threads.map(alone, sources[1:])]  # the first starts the workers


def _compiled_alone(source: KernelSource, compile: Compile) -> KernelImage | None:
    try:
        return compile([source])[0]
    except CompilationFailed as problem:
        log.info("config.tune: a candidate of %s does not compile: %s", source.name, problem)
        return None
