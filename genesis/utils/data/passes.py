"""One pass over a loader's batches: what `iter(loader)` gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from genesis.frontend.tensor import Tensor

END = object()


class Standing(NamedTuple):
    """Where a pass stands: one value, so that an interrupt finds all of it or what was before.

    Attributes:
        seed: of its order; None behind its end.
        given: batches that were asked for and came, those that raised too.
        resumed: whether the next pass begins there.
        drawn_at: the state of the generator that a sampler drew the order from, before it did; None where none has.
    """

    seed: int | None = None
    given: int = 0
    resumed: bool = False
    drawn_at: Tensor | None = None


class Place:
    """Who moves on: a pass, and its loader while that pass is its newest.

    Attributes:
        now: where the pass stands.
    """

    __slots__ = ("now",)

    def __init__(self, now: Standing | None = None):
        self.now = now or Standing()


class Raised:
    """Stands for a batch that could not be made: its turn raises the exception, and the next one's turn comes after."""

    def __init__(self, error: BaseException):
        self.error = error


class Pass(Iterator[Any]):
    """The batches, in order.

    An exception of the dataset or of `collate_fn` is that batch's alone, as in torch: who catches it and asks again
    gets the next one. One that ends the pass (a worker died) comes again whoever asks: it is no end of the data.

    Args:
        batches: batches, or `Raised` in place of one.
        place: counts what was given.
        length: how many batches a whole pass has.
    """

    def __init__(self, batches: Iterator[Any], place: Place, length: Callable[[], int]):
        self._length = length
        self.begin(batches, place)

    def begin(self, batches: Iterator[Any], place: Place) -> None:
        """Go on as another pass. Loaders whose workers stay have one pass at a time, as torch's."""
        self._batches, self._place = batches, place
        self._broken: Exception | None = None

    def __next__(self) -> Any:
        if self._broken is not None:
            raise self._broken
        try:
            batch = next(self._batches, END)
        except Exception as error:
            self._broken = error
            raise
        if batch is END:
            self._place.now = Standing()
            raise StopIteration
        self._place.now = self._place.now._replace(given=self._place.now.given + 1)
        if isinstance(batch, Raised):
            raise batch.error
        return batch

    def __len__(self) -> int:
        return self._length()


def each(batches: Iterator[Any], finish: Callable[[Any], Any]) -> Iterator[Any]:
    """A function of each batch; `Raised` where it raises, or where there is no batch."""
    for batch in batches:
        yield attempted(batch, finish)


def attempted(batch: Any, finish: Callable[[Any], Any]) -> Any:
    """`finish(batch)`, or `Raised`."""
    if isinstance(batch, Raised):
        return batch
    try:
        return finish(batch)
    except Exception as error:
        return Raised(error)
