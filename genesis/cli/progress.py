"""Progress of a training run: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from math import isnan
from typing import Any, Final, Protocol, Self

from genesis.cli.record import TrainingStep

_PLAIN_LINES: Final = 20
"""How many lines of progress a run prints where its output is not a terminal."""


class Progress(Protocol):
    """Context manager that is told of every step whose loss is known."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

    def step(self, step: TrainingStep) -> None:
        """Training got this far."""

    def note(self, text: str) -> None:
        """Something to say once, without disturbing the bar."""


def make_progress(total: int) -> Progress:
    """The right kind for where stdout goes."""
    return LiveProgress(total) if sys.stdout.isatty() else PlainProgress(total)


def remaining(step: TrainingStep, first: TrainingStep, total: int) -> float:
    """Seconds until the last step, by the pace since the first step (which compiled the program).

    >>> remaining(TrainingStep(11, 2.0, 1e-3, 0.0, 7.0), TrainingStep(1, 5.0, 1e-3, 0.0, 2.0), 21)
    5.0
    """
    done = step.step - first.step
    return (step.elapsed - first.elapsed) / done * (total - step.step) if done else float("nan")


class PlainProgress:
    """A line now and then, for logs and pipes."""

    def __init__(self, total: int):
        self._total = total
        self._every = max(1, total // _PLAIN_LINES)
        self._first: TrainingStep | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def step(self, step: TrainingStep) -> None:
        self._first = self._first or step
        if step is self._first or step.step % self._every == 0 or step.step == self._total:
            left = remaining(step, self._first, self._total)
            eta = "" if isnan(left) else f"  eta {clock(left)}"
            print(f"step {step.step:>{len(str(self._total))}}/{self._total}  loss {step.loss:.4f}"
                  f"  {step.tokens_per_s:,.0f} tokens/s{eta}", flush=True)

    def note(self, text: str) -> None:
        print(text, flush=True)


class LiveProgress:
    """One line that moves: bar, loss, tokens per second, time to go."""

    def __init__(self, total: int):
        from rich import progress
        self._total = total
        self._first: TrainingStep | None = None
        self._bar = progress.Progress(
            progress.TextColumn("step"), progress.MofNCompleteColumn(), progress.BarColumn(bar_width=24),
            progress.TextColumn("loss [bold]{task.fields[loss]}[/bold]"),
            progress.TextColumn("{task.fields[speed]} tokens/s"), progress.TextColumn("eta {task.fields[eta]}"))
        self._task: Any = None

    def __enter__(self) -> Self:
        self._bar.start()
        self._task = self._bar.add_task("train", total=self._total, loss="...", speed="...", eta="...")
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def step(self, step: TrainingStep) -> None:
        self._first = self._first or step
        left = remaining(step, self._first, self._total)
        self._bar.update(self._task, completed=step.step, loss=f"{step.loss:.4f}", speed=f"{step.tokens_per_s:,.0f}",
                         eta=clock(left))

    def note(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)


def clock(seconds: float) -> str:
    """Minutes and seconds.

    >>> clock(75.2), clock(float("nan"))
    ('1:15', '...')
    """
    return "..." if isnan(seconds) else f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
