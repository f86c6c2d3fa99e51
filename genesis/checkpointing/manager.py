"""Checkpoints of a run: what is saved, when, how many are kept, and going on from the newest that is whole."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import genesis
from genesis import Tensor
from genesis.checkpointing import directory
from genesis.checkpointing.directory import Stored, Unusable
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

    Args:
        folder: where the checkpoints go, a directory each; is made if there is none.
        keep: how many are kept; None for all. An older one is deleted when the newer one was read back and is right.
        every: steps between two, for `due`.
        async_: writing goes on in a thread while the program trains. Values are those of the call: they are copied,
            on their device, before it returns.

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

    def __init__(self, folder: str | os.PathLike[str], *, keep: int | None = 3, every: int = 1000, async_: bool = True):
        if keep is not None and keep < 1:
            raise ValueError(f"CheckpointManager: keep={keep} keeps no checkpoint; None keeps all")
        if every < 1:
            raise ValueError(f"CheckpointManager: every={every} is no number of steps")
        self.folder, self.keep, self.every, self.async_ = Path(folder), keep, every, async_
        self._writer: threading.Thread | None = None
        self._error: BaseException | None = None

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
            TypeError, ValueError: something cannot be saved (`genesis.save`), or a name is taken.
            OSError: this save, or the one before in the background, could not be written.
        """
        self.wait()
        if step < 0:
            raise ValueError(f"CheckpointManager.save: step={step} is negative")
        states = {name: _copied(_state(value)) for name, value in {**objects, RANDOM: _random_states()}.items()}
        if RANDOM in objects:
            raise ValueError(f"CheckpointManager.save: the name {RANDOM!r} is taken, by the random generators' states")
        bad = [name for name in states if not name.isidentifier()]
        if bad:
            raise ValueError(f"CheckpointManager.save: {bad[0]!r} is no name for a file")
        genesis.eval(*_tensors(states))
        if not self.async_:
            self._write(step, states)
            return
        for name, state in states.items():
            _check(name, state)
        self._writer = OwnThread(target=self._write_quietly, args=(step, states), name="genesis-checkpoint")
        self._writer.start()

    def wait(self) -> None:
        """Wait until what was saved is on the disk.

        Raises:
            OSError: it could not be written.
        """
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

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
        skipped = []
        for path in directory.checkpoints(self.folder):
            try:
                stored = directory.opened(path)
                directory.verify(stored)
            except Unusable as error:
                skipped.append((path.name, str(error)))
                continue
            return self._load(stored, objects, tuple(skipped))
        return Resumed(0, None, {}, tuple(skipped))

    def _load(self, stored: Stored, objects: Mapping[str, Any], skipped: tuple[tuple[str, str], ...]) -> Resumed:
        names = {file.removesuffix(".safetensors") for file in stored.files}
        missing = sorted(set(objects) - names)
        if missing:
            raise ValueError(f"{stored.path} has no {missing[0]!r}; it has {', '.join(sorted(names - {RANDOM}))}")
        states = {name: load(stored.path / f"{name}.safetensors")["state"] for name in sorted(names)}
        for name, target in objects.items():
            if hasattr(target, "load_state_dict"):
                target.load_state_dict(states[name])
        _set_random_states(states.pop(RANDOM))
        rest = {name: state for name, state in states.items() if not hasattr(objects.get(name), "load_state_dict")}
        return Resumed(stored.step, stored.path, rest, skipped)

    def _write_quietly(self, step: int, states: Mapping[str, Any]) -> None:
        """In the background: an error is raised by the next call."""
        try:
            self._write(step, states)
        except BaseException as error:
            self._error = error

    def _write(self, step: int, states: Mapping[str, Any]) -> None:
        directory.remove_abandoned(self.folder)
        path = directory.write_checkpoint(self.folder, step, {
            f"{name}.safetensors": prepared({"state": state}) for name, state in states.items()})
        try:
            directory.verify(directory.opened(path))
        except Unusable as error:
            raise OSError(f"{path} was written and read back otherwise: {error}") from None
        self._delete_old()

    def _delete_old(self) -> None:
        """Delete the oldest beyond `keep`. What has no manifest of ours is not counted, and stays."""
        if self.keep is None:
            return
        owned = []
        for path in directory.checkpoints(self.folder):
            try:
                owned.append(directory.opened(path))
            except Unusable:
                continue
        for stored in owned[self.keep:]:
            try:
                directory.delete(stored)
            except OSError as error:
                warnings.warn(f"an old checkpoint cannot be deleted: {error}", stacklevel=2)


def _state(value: Any) -> Any:
    return value.state_dict() if hasattr(value, "state_dict") else value


def _copied(state: Any) -> Any:
    """The state with tensors of its own, on the devices where they were."""
    if isinstance(state, Tensor):
        return state.detach().clone()
    if isinstance(state, Mapping):
        return {key: _copied(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)([_copied(value) for value in state])
    return state


def _tensors(state: Any) -> list[Tensor]:
    if isinstance(state, Tensor):
        return [state]
    if isinstance(state, Mapping):
        state = list(state.values())
    return [x for value in state for x in _tensors(value)] if isinstance(state, (list, tuple)) else []


def _check(name: str, state: Any) -> None:
    """Raise what `save` raises for what cannot be saved, while the caller's line is on the stack."""
    from genesis.utils.serialization import _describe
    _describe(state, name, {}, {}, 0)


def _random_states() -> dict[str, Any]:
    states: dict[str, Any] = {"cpu": genesis.get_rng_state()}
    if genesis.cuda.is_initialized():
        states["cuda"] = genesis.cuda.get_rng_state_all()
    return states


def _set_random_states(states: Mapping[str, Any]) -> None:
    genesis.set_rng_state(states["cpu"])
    if "cuda" in states and genesis.cuda.is_available():
        genesis.cuda.set_rng_state_all(states["cuda"])
