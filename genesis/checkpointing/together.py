"""Ranks that write and read a checkpoint together: who does what, and how they hear of each other's errors.

    first rank              makes the directory that files are written to, under a name that is none of a checkpoint's
    each                    writes its files, brings them to the disk, reads them back, and says so
    first, when all have    writes the manifest, renames the directory, and says so

What is agreed on before is told by a collective, from the thread that trains. What is told afterwards goes through the
run's store, because it is a writer in the background that waits: no collective of the program is held up.

Of a checkpoint that each rank has whole the first rank to come is the writer, and the others wait for it. Whether all
ranks save or one alone does, as programs say it both ways, nobody has to be asked for that.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Protocol

from genesis.checkpointing import directory
from genesis.checkpointing.directory import Files, Stored, Unusable, Writers
from genesis.distributed.objects import all_gather_object
from genesis.distributed.run import current, group_of
from genesis.runtime.collectives import DistNetworkError
from genesis.utils.atomic_file import sync_directory

FIRST_WAIT: Final = 0.01
"""Seconds between the first looks for what another rank says; later ones are further apart."""

LOOKS_AFTER: Final = 1.0
"""Seconds between looks whether a rank that is waited for is still there."""


class Told(Protocol):
    """How ranks tell each other what they have done, from any thread."""

    rank: int
    size: int

    def tell(self, key: str, value: Any) -> None:
        """Say something, under a key that is said once."""

    def hear(self, key: str) -> Any:
        """What was said under a key, waited for.

        Raises:
            OSError: who would say it is gone.
        """


class Together:
    """The ranks of a group.

    Args:
        group: a process group; None is all.

    Attributes:
        rank, size: of this process, and how many there are.
    """

    def __init__(self, group: Any = None):
        run, found = current(), group_of(group)
        if found is None:
            raise ValueError("CheckpointManager: this process is outside of its process group")
        self._group, self._watchdog = found, run.watchdog
        self._store = run.store.clone()
        self.rank, self.size = found.rank(), found.size()

    @property
    def alive(self) -> bool:
        """Whether the group is there."""
        return self._group.alive

    def exchanged(self, value: Any) -> list[Any]:
        """What all ranks say, by rank; a collective."""
        found: list[Any] = [None] * self.size
        all_gather_object(found, value, self._group)
        return found

    def tell(self, key: str, value: Any) -> None:
        """Say something, under a key that is said once."""
        self._store.set(f"checkpoint/{self._group.key}/{key}", json.dumps(value))

    def hear(self, key: str) -> Any:
        """What was said under a key, waited for.

        Raises:
            OSError: a rank is gone, or nothing was said within the group's timeout.
        """
        full, began = f"checkpoint/{self._group.key}/{key}", time.monotonic()
        pause, looked = FIRST_WAIT, began
        while not self._store.check([full]):
            time.sleep(pause)
            now, pause = time.monotonic(), min(2 * pause, LOOKS_AFTER / 4)
            if now - looked > LOOKS_AFTER:
                looked, gone = now, self._watchdog.gone()
                if gone and not self._store.check([full]):
                    raise OSError(f"the checkpoint is not written: {gone}")
            if now - began > self._group.timeout.total_seconds():
                raise OSError(f"the checkpoint is not written: nothing was heard of {key} within {self._group.timeout}")
        return json.loads(self._store.get(full))

    # Saving

    def begin(self, folder: Path, step: int, names: Sequence[str], own_files: Callable[[], Writers]) -> Save:
        """Agree on a checkpoint, and on where its files go; all ranks call this.

        Args:
            folder: where checkpoints are.
            step: of the run.
            names: of what is saved.
            own_files: makes what writes this rank's files.

        Raises:
            ValueError: ranks save different things.
            OSError, TypeError, ValueError: this rank cannot; or RuntimeError, another one.
        """
        held, problem, target, writers = ExitStack(), None, "", {}
        try:
            writers = dict(own_files())
            if self.rank == 0:
                directory.remove_abandoned(folder)
                target = held.enter_context(directory.written_apart(folder, step)).name
        except Exception as error:
            problem = error
        said = self.exchanged((None if problem is None else _line(problem), step, list(names), target))
        try:
            if problem is not None:
                raise problem
            for rank, (wrong, *what, _) in enumerate(said):
                if wrong is not None:
                    raise RuntimeError(f"CheckpointManager.save: rank {rank} cannot save: {wrong}")
                if what != [*said[0][1:3]]:
                    raise ValueError(f"CheckpointManager.save: rank 0 saves step {said[0][1]} with {said[0][2]}, rank "
                                     f"{rank} step {what[0]} with {what[1]}")
        except BaseException as error:
            held.__exit__(type(error), error, error.__traceback__)
            raise
        return Save(self, folder / said[0][3], step, writers, held)

    def one_of_all(self, folder: Path, step: int, write: Callable[[], None]) -> Callable[[], None]:
        """What saves a checkpoint that each rank has whole: this writes it on the rank that is the first to save this
        step into this folder of this host, and waits for that on the others. A rank that no store answers writes.

        Raises:
            OSError: by what is returned: it could not be written, as its writer says.
        """
        folder.mkdir(parents=True, exist_ok=True)
        place = os.stat(folder)
        key = f"whole/{socket.gethostname()}/{place.st_dev}/{place.st_ino}/{step}"
        saved = current().saved
        saved[key] += 1  # a step that is saved again is another checkpoint
        key = f"{key}/{saved[key]}"
        try:
            is_first = self._store.add(f"checkpoint/{self._group.key}/{key}/ranks", 1) == 1
        except DistNetworkError:
            return write

        def save() -> None:
            if not is_first:
                problem = self.hear(key)
                if problem is not None:
                    raise OSError(problem)
                return
            problem = "its writer was interrupted"
            try:
                write()
                problem = None
            except Exception as error:
                problem = _line(error)
                raise
            finally:
                with suppress(DistNetworkError):  # all others have ended
                    self.tell(key, problem)
        return save

    # Loading

    def agreed(self, folder: Path) -> list[Path]:
        """The first rank's list of the checkpoints in a folder."""
        names = [path.name for path in directory.checkpoints(folder)] if self.rank == 0 else None
        return [folder / name for name in self.exchanged(names)[0]]

    def opened(self, path: Path) -> Stored:
        """A checkpoint that is whole: each rank reads some of its files.

        Raises:
            Unusable: it is not, as some rank has found.
        """
        stored, problem = None, None
        try:
            stored = directory.opened(path)
            mine = sorted(stored.files)[self.rank::self.size]
            directory.verify_files(path, {name: stored.files[name] for name in mine})
        except Unusable as error:
            problem = str(error)
        found = next((wrong for wrong in self.exchanged(problem) if wrong is not None), None)
        if found is not None or stored is None:
            raise Unusable(found or "it is not there")
        return stored


class Save:
    """A checkpoint that ranks have agreed on.

    Args:
        ranks: they.
        target: the directory that files are written to.
        step: of the run.
        writers: of this rank's files.
        held: what the first rank has entered to make the directory.
    """

    def __init__(self, ranks: Told, target: Path, step: int, writers: Writers, held: ExitStack):
        self._ranks, self._target, self._step, self._writers, self._held = ranks, target, step, writers, held

    def write(self) -> Path | None:
        """Write this rank's files; returns when there is a checkpoint: on the first rank, its directory.

        Raises:
            OSError: some rank could not write; then there is none.
        """
        done, first, path = f"{self._target.name}/done", self._ranks.rank == 0, None
        try:
            with self._held:
                self._ranks.tell(f"{self._target.name}/{self._ranks.rank}", self._own_files())
                if first:
                    path = self._publish()
        except BaseException as error:
            if first:  # what it has made is gone by now
                self._ranks.tell(done, _line(error))
            raise
        if first:
            self._ranks.tell(done, None)
            return path
        problem = self._ranks.hear(done)
        if problem is not None:
            raise OSError(problem)
        return None

    def _own_files(self) -> tuple[Files, str | None]:
        """What this rank has written, or why it could not."""
        try:
            files = directory.write_files(self._target, self._writers)
            directory.verify_files(self._target, files)
            return files, None
        except Unusable as error:
            return {}, f"rank {self._ranks.rank}: a file was written and read back otherwise: {error}"
        except Exception as error:
            return {}, f"rank {self._ranks.rank}: {_line(error)}"

    def _publish(self) -> Path:
        """When all ranks have written theirs, make a checkpoint of it."""
        files: Files = {}
        for rank in range(self._ranks.size):
            own, problem = self._ranks.hear(f"{self._target.name}/{rank}")
            if problem is not None:
                raise OSError(problem)
            files |= {name: (size, digest) for name, (size, digest) in own.items()}
        path = directory.publish(self._target, self._step, files)
        sync_directory(path.parent)
        return path


def _line(error: BaseException) -> str:
    said = str(error).split("\n")[0]
    return said if isinstance(error, OSError) else f"{type(error).__name__}: {said}"
