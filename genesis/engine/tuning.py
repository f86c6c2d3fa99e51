"""`config.tune = "max"`: the user's own table of measured choices, and how it grows.

Before a schedule's kernels are made, the choices that the table does not answer are timed (`codegen/cuda/tuning.py`)
and written down. The table of a GPU is one file beside the compiled kernels; its key holds the GPU, Triton's version
and Genesis', so that times of another compiler decide nothing. It is written whole or not at all; of two processes
that time the same the first one's row stays in the file. A file that cannot be read is ignored, with a warning.

The digest of its rows is part of the name of plans on disk. So equal tables give equal bits, and a second process,
which finds its rows, times nothing.

In a job of several ranks all must choose alike, or replicas would differ in their last bits: there nothing is timed and
no user's table is read, which a warning says once. Shipped table and model are equal everywhere.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from genesis.codegen.cuda.choice_table import Malformed, Row, Rows, parsed
from genesis.config import config
from genesis.runtime.collectives import ranks
from genesis.runtime.disk_store import DiskStore, default_directory

if TYPE_CHECKING:
    from genesis.codegen.cuda.gpu_model import GpuModel
    from genesis.codegen.cuda.lower import Compile
    from genesis.codegen.cuda.tuning import Timer
    from genesis.passes.groups import Schedule
    from genesis.runtime.plan import Plan

FORMAT: Final = 1
"""Version of the tables; it grows when rows of an earlier one would be read wrongly."""


def tables(directory: Path | None = None) -> DiskStore:
    """Where tables are kept."""
    return DiskStore(directory or default_directory(), "tuned", FORMAT)


class UserTable:
    """The user's table for one GPU, in a directory.

    Attributes:
        rows: what it says, as far as this process knows; a row stays as it is.
    """

    def __init__(self, directory: Path, gpu: GpuModel):
        self._store = tables(directory)
        self._gpu = gpu
        self._key = json.dumps({"gpu": gpu.name, "capability": gpu.capability, "multiprocessors": gpu.multiprocessors,
                                "triton": version("triton"), "genesis": import_module("genesis").__version__})
        self.rows = Rows(self._read())

    def refresh(self) -> None:
        """Take over rows that other processes have added."""
        for row in self._read():
            self.rows.add(row)

    def keep(self, found: Sequence[Row]) -> None:
        """Write rows to the disk, beside those that are there."""
        rows = Rows(self._read())
        for row in found:
            rows.add(row)
        text = f"[{self._gpu.name}]\n{rows.text}"
        if not self._store.write(self._key, {"gpu": self._gpu.name}, text.encode()):
            warnings.warn(f"config.tune: the table of measured choices cannot be written in {self._store.directory}"
                          f"{_reason(self._store)}; another process will measure again. Try: another GENESIS_CACHE_DIR",
                          RuntimeWarning, stacklevel=2)

    def _read(self) -> Rows:
        entry = self._store.get(self._key)
        if entry is None:
            if self._store.has(self._key):
                self._warn("it is damaged, or somebody else may have written it")
            return Rows()
        try:
            return parsed(entry.content.decode()).get(self._gpu.name, Rows())
        except (Malformed, UnicodeDecodeError) as problem:
            self._warn(str(problem))
            return Rows()

    def _warn(self, problem: str) -> None:
        warnings.warn(f"config.tune: the table of measured choices of {self._gpu.name} in {self._store.directory} is "
                      f"ignored: {problem}. Try: `genesis cache clear --tuned`, and measure again",
                      RuntimeWarning, stacklevel=2)


def _reason(store: DiskStore) -> str:
    why = store.why_unused()
    return f" ({why})" if why is not None else ""


@cache
def _table_in(directory: Path, gpu: GpuModel) -> UserTable:
    return UserTable(directory, gpu)


def table_of(gpu: GpuModel) -> UserTable:
    """The user's table for a GPU."""
    return _table_in(default_directory(), gpu)


def user_rows(gpu: GpuModel) -> Rows | None:
    """The user's rows where they decide now, else None."""
    if config.tune != "max":
        return None
    count = ranks()
    if count > 1:
        _tell_ranks(count)
        return None
    return table_of(gpu).rows


@cache
def _tell_ranks(count: int) -> None:
    warnings.warn(f'config.tune = "max" measures nothing in a job of {count} ranks, which all have to choose alike: '
                  "the shipped table and the model decide. Try: config.tune = \"model\", which says the same",
                  RuntimeWarning, stacklevel=2)


def digest(gpu: GpuModel) -> str:
    """What the user's rows decide now, in short; empty where they decide nothing."""
    rows = user_rows(gpu)
    return "" if rows is None else rows.digest


def tune_schedule(schedule: Schedule, compile: Compile, timer: Timer, gpu: GpuModel) -> None:
    """Time what a schedule's kernels may choose and the user's table does not say, and keep it there."""
    rows = user_rows(gpu)
    if rows is None:
        return
    from genesis.codegen.cuda.tuning import tune
    table = table_of(gpu)
    table.refresh()
    found = tune(schedule.groups, rows, compile, timer, gpu)
    if found:
        table.keep(found)


def timed(plan: Plan) -> float:
    """Microseconds of a plan's only kernel, on the GPU.

    Raises:
        NotTimed: there is no room for its operands, or the GPU does not start it.
    """
    from genesis.codegen.cuda.tuning import NotTimed
    from genesis.runtime.cuda.kernel_timer import microseconds
    from genesis.runtime.cuda.memory_pool import OutOfMemoryError
    try:
        return microseconds(plan)
    except OutOfMemoryError as problem:
        raise NotTimed(f"there is no memory for its operands ({problem})", memory=True) from problem
    except RuntimeError as problem:
        raise NotTimed(str(problem)) from problem
