"""Checkpoints of a run: what is saved, when, how many are kept, and going on from the newest that is whole."""

from __future__ import annotations

import operator
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import genesis
from genesis import Tensor
from genesis.checkpointing import directory
from genesis.checkpointing.beside import reader
from genesis.checkpointing.directory import Stored, Unusable, Writers
from genesis.checkpointing.parts import (
    PART_FILE,
    Keys,
    Part,
    Pieces,
    divided,
    fitted,
    is_shared,
    leaves,
    mapped,
    part_file,
    state_of,
)
from genesis.checkpointing.together import Together
from genesis.distributed.run import get_world_size, is_initialized, run_pending
from genesis.runtime.own_threads import OwnThread
from genesis.utils.serialization import load, prepared

RANDOM: Final = "rng"
"""The name under which the random generators' states are saved."""


@dataclass(frozen=True)
class Resumed:
    """What `resume` found.

    Attributes:
        step: of the checkpoint; 0 where there was none.
        path: its directory, or None.
        values: by name, what was saved that has no `load_state_dict`.
        skipped: newer checkpoints that could not be used, and why.
    """

    step: int
    path: Path | None
    values: Mapping[str, Any] = field(default_factory=dict)
    skipped: tuple[tuple[str, str], ...] = ()


class CheckpointManager:
    """Saves a run every so many steps, keeps the newest few checkpoints, and resumes.

    Where ranks have parts of parameters (`fully_shard`, `parallelize_module`) all of them call `save`, `wait` and
    `resume`: each writes its parts, and reads those of its own, of a checkpoint that any number of ranks have written.
    Where each has the whole (`DistributedDataParallel`) all of them may call `save`, or one alone: of those that save
    a step into one folder the first to come writes it, with its random generators, and `wait` of the others waits for
    that. `resume` is called on all.

    Args:
        folder: where the checkpoints go, a directory each; is made if there is none.
        keep: how many are kept; None for all. An older one is deleted when the newer one was read back and is right.
        every: steps between two, for `due`.
        async_: writing goes on in a thread while the program trains. Values are those of the call: they are copied,
            on their device, before it returns; from a GPU they come beside its work. An error of the last save is
            raised by `wait()`; a program that ends without it gets a warning.
        process_group: the ranks that have parts; None for all.

    >>> import tempfile
    >>> from genesis import nn
    >>> model = nn.Linear(2, 1)
    >>> manager = CheckpointManager(tempfile.mkdtemp(), keep=2, every=10, async_=False)
    >>> for step in range(1, 31):
    ...     if manager.due(step):
    ...         manager.save(step, model=model, seen={"tokens": step * 100})
    >>> found = manager.resume(model=model)
    >>> found.step, found.values["seen"]
    (30, {'tokens': 3000})
    """

    def __init__(self, folder: str | os.PathLike[str], *, keep: int | None = 3, every: int = 1000, async_: bool = True,
                 process_group: Any = None):
        if keep is not None and keep < 1:
            raise ValueError(f"CheckpointManager: keep={keep} keeps no checkpoint; None keeps all")
        if every < 1:
            raise ValueError(f"CheckpointManager: every={every} is no number of steps")
        self.folder = Path(folder).absolute()  # the program may go to another directory while a thread writes
        self.keep, self.every, self.async_ = keep, every, async_
        self._group = process_group
        self._together: Together | None = None
        self._writer: threading.Thread | None = None
        self._errors: list[BaseException] = []
        weakref.finalize(self, _tell, self._errors)

    def checkpoints(self) -> list[Path]:
        """The folders of the checkpoints that are there, newest first; whether one is whole, `resume` finds out."""
        return directory.checkpoints(self.folder)

    def due(self, step: int) -> bool:
        """Is it time to save, after this many steps?"""
        return step > 0 and step % self.every == 0

    def save(self, step: int, **objects: Any) -> None:
        """Save objects by name: their `state_dict()`, or themselves where they have none; and the random generators.

        Waits for the save before, if that is still being written.

        Raises:
            TypeError, ValueError: something cannot be saved (`genesis.save`), a name is taken, or the step is no whole
                number from 0 on.
            OSError: this save, or the one before in the background, could not be written.
        """
        step = _whole_number(step)
        self.wait()
        ranks = self._ranks_of(objects)
        write = self._prepared_alone(step, objects) if ranks is None else self._prepared_with(ranks, step, objects)
        if ranks is None and is_initialized() and get_world_size(self._group) > 1:
            write = self._ranks().one_of_all(self.folder, step, write)
        if not self.async_:
            write()
            return
        self._writer = OwnThread(target=self._quietly, args=(write,), name="genesis-checkpoint")
        self._writer.start()

    def _prepared_alone(self, step: int, objects: Mapping[str, Any]) -> Callable[[], None]:
        """What writes the states of now."""
        states = self._states(step, objects)
        read = reader(_tensors(states))

        def write() -> None:
            directory.remove_abandoned(self.folder)
            path = directory.write_checkpoint(self.folder, step, {
                f"{name}.safetensors": _writing({"state": state}, read) for name, state in states.items()})
            try:
                directory.verify(directory.opened(path))
            except Unusable as error:
                raise OSError(f"{path} was written and read back otherwise: {error}") from None
            self._delete_older(path)
        return write

    def _prepared_with(self, ranks: Together, step: int, objects: Mapping[str, Any]) -> Callable[[], None]:
        """What writes this rank's parts of the states of now. Nothing is written where a rank cannot."""
        def own_files() -> Writers:
            states, found = self._states(step, objects), {}
            read = reader(_tensors(states))
            for name, state in states.items():
                whole, parts = divided(state)
                if ranks.rank == 0:
                    found[f"{name}.safetensors"] = _writing({"state": whole}, read)
                if parts:
                    found[part_file(name, ranks.rank)] = _writing(parts, read)
            return found
        started = ranks.begin(self.folder, step, sorted(objects), own_files)

        def write() -> None:
            path = started.write()
            if path is not None:
                self._delete_older(path)
        return write

    def _states(self, step: int, objects: Mapping[str, Any]) -> dict[str, Any]:
        """Copies of the objects' states, which can be saved."""
        states = {name: _copied(state_of(value)) for name, value in {**objects, RANDOM: _random_states()}.items()}
        if RANDOM in objects:
            raise ValueError(f"CheckpointManager.save: the name {RANDOM!r} is taken, by the random generators' states")
        bad = [name for name in states if not name.isidentifier()]
        if bad:
            raise ValueError(f"CheckpointManager.save: {bad[0]!r} is no name for a file")
        genesis.eval(*_tensors(states))
        for name, state in states.items():
            _check(name, state)
        return states

    def _ranks_of(self, objects: Mapping[str, Any]) -> Together | None:
        """The ranks that have parts of the objects; None where this process has all."""
        return self._ranks() if any(map(is_shared, objects.values())) else None

    def _ranks(self) -> Together:
        if self._together is None or not self._together.alive:
            self._together = Together(self._group)
        return self._together

    def wait(self) -> None:
        """Wait until what was saved is on the disk.

        Raises:
            OSError: it could not be written.
        """
        if self._writer is not None and self._together is not None and self._together.alive:
            run_pending()  # a rank that waits for a collective of ours writes nothing meanwhile
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.join()
        if self._errors:
            raise self._errors.pop()

    def resume(self, **objects: Any) -> Resumed:
        """Load the newest checkpoint that is whole into objects, and the random generators.

        Args:
            objects: by the names of `save`; those with `load_state_dict` are loaded.

        Returns:
            What was found; a run that begins gets step 0.

        Raises:
            ValueError: the checkpoint has no such name, or a state does not fit its object.
        """
        self.wait()
        ranks = self._ranks_of(objects)
        skipped = []
        for path in directory.checkpoints(self.folder) if ranks is None else ranks.agreed(self.folder):
            try:
                stored = directory.opened(path) if ranks is None else ranks.opened(path)
                if ranks is None:
                    directory.verify(stored)
            except Unusable as error:
                skipped.append((path.name, str(error)))
                continue
            return self._load(stored, objects, tuple(skipped))
        return Resumed(0, None, {}, tuple(skipped))

    def _load(self, stored: Stored, objects: Mapping[str, Any], skipped: tuple[tuple[str, str], ...]) -> Resumed:
        names = {file.removesuffix(".safetensors") for file in stored.files if not PART_FILE.fullmatch(file)}
        missing = sorted(set(objects) - names)
        if missing:
            raise ValueError(f"{stored.path} has no {missing[0]!r}; it has {', '.join(sorted(names - {RANDOM}))}")
        states = {name: _read(stored, name, objects.get(name)) for name in sorted(names)}
        for name, target in objects.items():
            if hasattr(target, "load_state_dict"):
                target.load_state_dict(states[name])
        _set_random_states(states.pop(RANDOM))
        rest = {name: state for name, state in states.items() if not hasattr(objects.get(name), "load_state_dict")}
        return Resumed(stored.step, stored.path, rest, skipped)

    def _quietly(self, write: Callable[[], None]) -> None:
        """Write in the background: an error is raised by the next call, or told when no call can follow."""
        try:
            write()
        except BaseException as error:
            self._errors.append(error)

    def _delete_older(self, newest: Path) -> None:
        """Delete the oldest beyond `keep`, counted from the one that was just written and read back.

        What has no manifest of ours is not counted, and stays. So does a checkpoint of a later step, which is damaged
        and was skipped, or another run's: if it counted, the one that was just written would be the first to go.
        """
        if self.keep is None:
            return
        owned = []
        for path in directory.checkpoints(self.folder):
            if directory.order(path) > directory.order(newest):
                continue
            try:
                owned.append(directory.opened(path))
            except Unusable:
                continue
        for stored in owned[self.keep:]:
            try:
                directory.delete(stored)
            except OSError as error:
                warnings.warn(f"an old checkpoint cannot be deleted: {error}", stacklevel=2)


def _whole_number(step: Any) -> int:
    """A step's number, of Python or of numpy."""
    try:
        found = int(operator.index(step))
    except TypeError:
        raise TypeError(f"CheckpointManager.save: step={step!r} is no whole number") from None
    if found < 0:
        raise ValueError(f"CheckpointManager.save: step={step} is negative: steps count from 0")
    return found


def _tell(errors: list[BaseException]) -> None:
    """Warn of what no call of the manager has raised: the program has ended, or has dropped it."""
    for error in errors:
        warnings.warn(f"CheckpointManager: the last checkpoint was not written: {type(error).__name__}: {error}",
                      RuntimeWarning, stacklevel=2)


def _writing(state: Any, read: Callable[[Tensor], Any]) -> Callable[[BinaryIO], None]:
    """What writes a state, whose values are read only then."""
    return lambda file: prepared(state, read)(file)


def _read(stored: Stored, name: str, target: Any) -> Any:
    """An object's state, as it is loaded into the target."""
    state = load(stored.path / f"{name}.safetensors")["state"]
    files = [stored.path / file for file in stored.files
             if (found := PART_FILE.fullmatch(file)) is not None and found[1] == name]
    return fitted(state, Pieces(files), target)


def _copied(state: Any) -> Any:
    """The state with tensors of its own, on the devices where they were, and arrays."""
    import numpy as np

    def copy(x: Any, keys: Keys) -> Any:
        if isinstance(x, Part):
            return Part(_clone(x.tensor), x.layout)
        return _clone(x) if isinstance(x, Tensor) else x.copy() if isinstance(x, np.ndarray) else x
    return mapped(state, copy)


def _clone(x: Tensor) -> Tensor:
    return x.detach().clone(memory_format=genesis.contiguous_format)


def _tensors(state: Any) -> list[Tensor]:
    found = [x.tensor if isinstance(x, Part) else x for _, x in leaves(state)]
    return [x for x in found if isinstance(x, Tensor)]


def _check(name: str, state: Any) -> None:
    """Raise what `save` raises for what cannot be saved, while the caller's line is on the stack."""
    from genesis.utils.serialization import _describe
    _describe(divided(state)[0], name, {}, {}, 0)


def _random_states() -> dict[str, Any]:
    states: dict[str, Any] = {"cpu": genesis.get_rng_state()}
    if genesis.cuda.is_initialized():
        states["cuda"] = genesis.cuda.get_rng_state_all()
    return states


def _set_random_states(states: Mapping[str, Any]) -> None:
    genesis.set_rng_state(states["cpu"])
    if "cuda" in states and genesis.cuda.is_available():
        genesis.cuda.set_rng_state_all(states["cuda"])
