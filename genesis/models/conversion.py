"""The tensors of a folder become those of a model, and go back.

Most have the same names. Where a family packs, transposes or splits its weights, a `Conversion` says so once, for both
directions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    Convert = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]


def same(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """The arrays themselves."""
    return arrays


@dataclass(frozen=True)
class Conversion:
    """Tensors of a folder that are others in a model.

    Attributes:
        stored: their names in the folder.
        held: their names in the model.
        load: arrays of the folder → of the model.
        save: the way back.
    """

    stored: tuple[str, ...]
    held: tuple[str, ...]
    load: Convert = same
    save: Convert = same


def renamed(stored: str, held: str) -> Conversion:
    """The same tensor under another name."""
    return Conversion((stored,), (held,))


def transposed(stored: str, *held: str) -> Conversion:
    """A matrix that is stored transposed and, for several names, packed: their rows lie one after another."""
    import numpy as np
    return Conversion((stored,), held, lambda arrays: np.split(arrays[0].T, len(held)),
                      lambda arrays: [np.concatenate(arrays).T])


def packed(stored: str, *held: str) -> Conversion:
    """A tensor that holds several, one after another along its first axis."""
    import numpy as np
    return Conversion((stored,), held, lambda arrays: np.split(arrays[0], len(held)),
                      lambda arrays: [np.concatenate(arrays)])


def stacked(stored: Sequence[str], held: str) -> Conversion:
    """Many tensors of one shape that the model keeps as one."""
    import numpy as np
    return Conversion(tuple(stored), (held,), lambda arrays: [np.stack(arrays)], lambda arrays: list(arrays[0]))


def with_prefix(stored: Mapping[str, np.ndarray], prefix: str, head: str) -> Mapping[str, np.ndarray]:
    """A folder of a model without its head, whose names lack the prefix: it is put before all but the head's."""
    if any(name.startswith(prefix) for name in stored):
        return stored
    return {name if name.startswith(head) else prefix + name: array for name, array in stored.items()}


def without_prefix(stored: Mapping[str, np.ndarray], prefix: str) -> Mapping[str, np.ndarray]:
    """The model's own tensors of a folder that holds a head, too: their names begin with the prefix."""
    own = {name.removeprefix(prefix): array for name, array in stored.items() if name.startswith(prefix)}
    return own or stored


def load_all(stored: Mapping[str, np.ndarray], conversions: Iterable[Conversion],
             ignored: Callable[[str], bool]) -> Iterable[tuple[str, Callable[[], np.ndarray]]]:
    """The model's tensors by name, each read when it is asked for."""
    taken: set[str] = set()
    for conversion in conversions:
        if not all(name in stored for name in conversion.stored):
            continue
        taken.update(conversion.stored)
        made: dict[str, np.ndarray] = {}

        def part(name: str, conversion: Conversion = conversion, made: dict[str, np.ndarray] = made) -> np.ndarray:
            if name not in made:
                arrays = conversion.load([stored[source] for source in conversion.stored])
                made.update(zip(conversion.held, arrays, strict=True))
            return made.pop(name)
        for name in conversion.held:
            yield name, lambda name=name, part=part: part(name)  # type: ignore[misc]
    for name in stored:
        if name not in taken and not ignored(name):
            yield name, lambda name=name: stored[name]  # type: ignore[misc]


def save_all(held: Mapping[str, np.ndarray], conversions: Iterable[Conversion]) -> dict[str, np.ndarray]:
    """The folder's tensors by name."""
    left = dict(held)
    found: dict[str, np.ndarray] = {}
    for conversion in conversions:
        if all(name in left for name in conversion.held):
            arrays = conversion.save([left.pop(name) for name in conversion.held])
            found.update(zip(conversion.stored, arrays, strict=True))
    return {**found, **left}
