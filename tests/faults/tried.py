"""A file of the faults that were tried, so that each place of the code is tried once, over many runs and programs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TextIO

from tests.faults.events import Place
from tests.faults.trial import Verdict


class Tried:
    """The faults in a file, a line each: device, kind, error, statement, place, outcome, and what is inconsistent.

    A place is tried once for a device, an error and a statement, whichever program has them: "opt.step()" of two
    optimizers runs the same lines but for those of their own. Lines move when the code changes: a file is of one
    commit.
    """

    def __init__(self, path: Path):
        self._path = path
        self._found: set[tuple[str, ...]] = set()
        self._file: TextIO | None = None
        if path.exists():
            self._found = {tuple(line.split("\t")[:5]) for line in path.read_text().splitlines()}

    def is_new(self, device: str, kind: str, error: str, text: str, place: Place) -> bool:
        """Whether this fault has not been tried; from now on it has."""
        key = (device, kind, error, text, str(place))
        new = key not in self._found
        self._found.add(key)
        return new

    def write(self, device: str, kind: str, error: str, place: Place, verdict: Verdict) -> None:
        """Add what came of a fault."""
        if self._file is None:
            self._file = self._path.open("a")
        self._file.write("\t".join((device, kind, error, verdict.text, str(place), verdict.outcome,
                                    verdict.problem.replace("\n", " "))) + "\n")
        self._file.flush()


def summary(paths: list[Path]) -> str:
    """A table of what was tried in these files: by device, kind and statement."""
    tried: Counter[tuple[str, ...]] = Counter()
    wrong: Counter[tuple[str, ...]] = Counter()
    ends: Counter[tuple[str, ...]] = Counter()
    for path in paths:
        for line in path.read_text().splitlines():
            device, kind, _, text, _, outcome, problem = line.split("\t")
            key = (text, device, kind)
            tried[key] += 1
            wrong[key] += bool(problem)
            ends[key] += outcome == "at a with's end"
    rows = [f"| `{text}` | {device} | {kind} | {tried[key]} | {wrong[key]} | {ends[key]} |"
            for key in sorted(tried) for text, device, kind in [key]]
    head = "| statement | device | fault at each | tried | inconsistent | at a with's end |\n|---|---|---|---|---|---|"
    last = f"\n{tried.total()} faults, {wrong.total()} inconsistent, {ends.total()} at a with's end"
    return "\n".join([head, *rows, last])
