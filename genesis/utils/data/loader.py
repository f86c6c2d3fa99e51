"""Batches of a dataset, one after another."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Generic

from genesis.frontend.at_once import Change, at_once, changes
from genesis.frontend.generator import Generator
from genesis.frontend.tensor import Tensor
from genesis.ir.suggest import Suggesting
from genesis.ir.types import cpu
from genesis.ops.creation import DeviceLike, as_tensor, device_from
from genesis.utils.data.collate import (
    as_arrays,
    as_tensors,
    converted,
    default_collate,
    default_convert,
    stacked,
)
from genesis.utils.data.dataset import IterableDataset, Sample
from genesis.utils.data.passes import Pass, Place, Raised, Standing, each
from genesis.utils.data.sampler import (
    BatchSampler,
    RandomOrder,
    RandomSampler,
    Sampler,
    SequentialSampler,
    kept_seed,
)
from genesis.utils.data.workers import Ended, Failure, Workers


class DataLoader(Suggesting, Generic[Sample]):
    """Batches of a dataset.

    Args:
        dataset: `dataset[i]` is a sample, or an `IterableDataset`.
        batch_size: samples a batch; None gives samples themselves.
        shuffle: in another random order in each pass.
        sampler, batch_sampler: which indices come, instead of `shuffle`; lists of them, instead of `batch_size` too.
        num_workers: processes that make batches meanwhile; 0 makes them here, when they are asked for.
        collate_fn: samples → a batch; `default_collate` by default, and `default_convert` of samples themselves.
        pin_memory: batches lie in page-locked memory, where there is a GPU.
        pin_memory_device: taken for torch's sake: page-locked memory is so for all GPUs.
        drop_last: leave the last batch out if it is smaller.
        timeout: seconds that a batch may take; 0 for any.
        worker_init_fn: called with its number in each worker. Random numbers of Python's, numpy's and Genesis' begin
            anew with each batch there, but those that it seeds.
        multiprocessing_context: "fork" or such a context, which is what workers are; taken for torch's sake.
        generator: of the order, and of the workers' seeds; the CPU's by default.
        prefetch_factor: batches that each worker makes ahead; 2 by default.
        persistent_workers: keep the workers for the next pass.
        in_order: taken for torch's sake: batches come in the order of their indices.
        prefetch_device: a GPU; batches come there, each copied from page-locked memory on a stream of its own while the
            program computes with the one before. Genesis' own, not torch's.

    `state_dict()` says where a pass stands, `load_state_dict()` lets the next one go on there: with the same order,
    from the next batch on. A sampler of this module draws its order again from where its generator stood; one of your
    own must give the same indices again, and an iterable dataset is read from its start up to there. What a dataset
    draws at random in a worker comes again, too; where there are none it is the program's generators that it draws
    from.

    Raises:
        ValueError: arguments that exclude each other, or workers that are no forks.

    >>> import genesis
    >>> loader = DataLoader(range(5), batch_size=2)
    >>> [batch.tolist() for batch in loader], len(loader)
    ([[0, 1], [2, 3], [4]], 3)
    """

    _made = False

    def __init__(self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None,
                 sampler: Sampler[Any] | Iterable[Any] | None = None,
                 batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None, num_workers: int = 0,
                 collate_fn: Callable[[list[Any]], Any] | None = None, pin_memory: bool = False,
                 drop_last: bool = False, timeout: float = 0, worker_init_fn: Callable[[int], Any] | None = None,
                 multiprocessing_context: Any = None, generator: Generator | None = None, *,
                 prefetch_factor: int | None = None, persistent_workers: bool = False, pin_memory_device: str = "",
                 in_order: bool = True, prefetch_device: DeviceLike = None):
        iterable = isinstance(dataset, IterableDataset)
        _check(iterable, batch_size, shuffle, sampler, batch_sampler, num_workers, drop_last, timeout, prefetch_factor,
               persistent_workers)
        _check_forks(multiprocessing_context, num_workers)
        self.multiprocessing_context = multiprocessing_context
        self.dataset, self.num_workers, self.pin_memory, self.drop_last = dataset, num_workers, pin_memory, drop_last
        self.timeout, self.worker_init_fn, self.generator = timeout, worker_init_fn, generator
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.persistent_workers = persistent_workers
        self.batch_size = None if batch_sampler is not None else batch_size
        self.collate_fn: Callable[[Any], Any] = collate_fn if collate_fn is not None else (
            default_convert if self.batch_size is None and batch_sampler is None else default_collate)
        self.pin_memory_device = pin_memory_device
        self.prefetch_device = None if prefetch_device is None else device_from(prefetch_device)
        self._shuffles = bool(shuffle)
        self.sampler = sampler if sampler is not None else (
            None if iterable else RandomSampler(dataset) if shuffle else SequentialSampler(dataset))
        self.batch_sampler = batch_sampler
        if batch_sampler is None and batch_size is not None and not iterable:
            assert self.sampler is not None
            self.batch_sampler = BatchSampler(self.sampler, batch_size, drop_last)
        self._workers: Workers | None = None
        self._passes = 0
        self._place = Place()
        self._pass: weakref.ref[Pass] | None = None
        self._made = True

    def __setattr__(self, name: str, value: Any) -> None:
        """Raise ValueError for what a pass may be in the middle of; `object.__setattr__` goes around this."""
        if name in _SET_ONCE and self._made:
            raise ValueError(f"DataLoader: {name} cannot be set when the loader is made; make another")
        super().__setattr__(name, value)

    def __len__(self) -> int:
        """How many batches a pass has."""
        if isinstance(self.dataset, IterableDataset):
            count = len(self.dataset)  # type: ignore[arg-type]
            if self.batch_size is None:
                return count
            return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
        return len(self.batch_sampler if self.batch_sampler is not None else self.sampler)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        """A pass. The order is drawn now."""
        standing = self._place.now
        seed, skip = standing.seed, standing.given
        if not standing.resumed or seed is None:
            seed, skip = kept_seed(self.generator, lambda seed: [
                (object.__setattr__, self, "_place", Place(Standing(seed)))]), 0
        else:
            self._place = Place(standing._replace(resumed=False))
        place, indices = self._place, self._indices(seed, self._place)
        batches = self._placed(self._made_elsewhere(indices, skip, seed) if self.num_workers else
                               self._made_here(indices, skip))
        now = self._pass() if self._pass is not None else None
        if now is not None and self.persistent_workers:
            now.begin(batches, place)
            return now
        found = Pass(batches, place, self.__len__)
        self._pass = weakref.ref(found)
        return found

    def _placed(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Batches of tensors, where they belong."""
        if self.prefetch_device is not None and self.prefetch_device is not cpu:
            from genesis.utils.data.page_locked import copied_ahead
            return copied_ahead(batches, self._finished, self.prefetch_device)
        make: Callable[[Any], Tensor] = as_tensor
        if self.pin_memory:
            from genesis import cuda
            if cuda.is_available():
                from genesis.utils.data.page_locked import locked_tensor
                make = locked_tensor
            else:
                warnings.warn("DataLoader: pin_memory=True, but there is no GPU: batches lie in ordinary memory",
                              stacklevel=3)
        return each(batches, lambda batch: self._finished(batch, make))

    def state_dict(self) -> dict[str, Any]:
        """Where the pass stands: the seed of its order, or the state that a sampler drew it from, and how many batches
        it has given; and the states of its own generator and of the sampler's, which the next passes draw from."""
        now, drawing = self._place.now, self._drawing()
        states = {"drawn_at": now.drawn_at,
                  "generator": None if self.generator is None else self.generator.get_state(),
                  "sampler": None if drawing is None or drawing.generator is None else drawing.generator.get_state()}
        return {"seed": now.seed, "batches": now.given,
                **{name: state for name, state in states.items() if state is not None}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next pass go on where a `state_dict` says."""
        drawing = self._drawing()
        place = Place(Standing(state["seed"], state["batches"], True, state.get("drawn_at")))
        found: list[Change] = [(object.__setattr__, self, "_place", place)]
        for name, own in (("generator", self.generator), ("sampler", None if drawing is None else drawing.generator)):
            if own is not None and name in state:
                found += own.moved_to(Generator().set_state(state[name]))
        at_once(changes((), found))

    def _drawing(self) -> RandomOrder | None:
        """The sampler that draws the orders of passes; None where they follow from a pass' seed, or from what is the
        user's own."""
        sampler = self.sampler
        if isinstance(self.batch_sampler, BatchSampler):
            sampler = self.batch_sampler.sampler if type(self.batch_sampler) is BatchSampler else None
        elif self.batch_sampler is not None:
            sampler = None
        if self._shuffles or not isinstance(sampler, RandomOrder) or type(sampler).__iter__ is not RandomOrder.__iter__:
            return None
        return sampler

    def _indices(self, seed: int, place: Place) -> Iterator[Any]:
        """Indices, or lists of them, for each batch; for an iterable dataset, how many samples to take."""
        if self._shuffles and isinstance(self.sampler, RandomSampler):
            self.sampler.generator = Generator()
            self.sampler.generator.manual_seed(seed)
        if isinstance(self.dataset, IterableDataset):
            size = self.batch_size
            while True:
                yield size
        source = self.batch_sampler if self.batch_sampler is not None else self.sampler
        assert source is not None
        if (drawing := self._drawing()) is not None:
            if place.now.drawn_at is None:
                generator = drawing.source()
                place.now = place.now._replace(drawn_at=generator.get_state())
            else:
                generator = Generator().set_state(place.now.drawn_at)
            order = drawing.order(generator)
            source = source.batches(order) if isinstance(source, BatchSampler) else order
        yield from source

    def _fetch(self, source: Any, indices: Any) -> Any:
        """A batch as arrays; runs in a worker or here.

        Raises:
            StopIteration: an iterable dataset has no more.
        """
        if isinstance(self.dataset, IterableDataset):
            if indices is None:
                return self._collated(next(source), single=True)
            samples = list(islice(source, indices))
            if not samples or (self.drop_last and len(samples) < indices):
                raise StopIteration
            return self._collated(samples)
        try:
            if self.batch_sampler is None:
                return self._collated(source[indices], single=True)
            if hasattr(source, "__getitems__"):
                return self._collated(source.__getitems__(indices))
            return self._collated([source[i] for i in indices])
        except StopIteration as error:  # a `next` too many is no end of the data
            raise RuntimeError(f"DataLoader: the dataset or collate_fn raised StopIteration at {indices}") from error

    def _collated(self, samples: Any, single: bool = False) -> Any:
        if self.collate_fn is default_collate and not single:
            return _Stacked(stacked(samples, self._stays_here))
        found = samples if self.collate_fn is default_convert else self.collate_fn(samples)
        return found if self._stays_here else as_arrays(found)

    @property
    def _stays_here(self) -> bool:
        """Is what `collate_fn` makes the batch itself, which goes nowhere?"""
        return not self.num_workers and not self.pin_memory and self.prefetch_device in (None, cpu)

    def _finished(self, batch: Any, make: Callable[[Any], Tensor]) -> Any:
        """A batch of tensors, which are made of arrays by `make`."""
        if isinstance(batch, _Stacked):
            return converted(batch.data, make)
        found = batch if self._stays_here else as_tensors(batch, make)
        return converted(found, make, tuples=list) if self.collate_fn is default_convert else found

    def _made_here(self, indices: Iterator[Any], skip: int) -> Iterator[Any]:
        source = iter(self.dataset) if isinstance(self.dataset, IterableDataset) else self.dataset
        for number, which in enumerate(indices):
            if number < skip and not isinstance(self.dataset, IterableDataset):
                continue
            try:
                batch = self._fetch(source, which)
            except StopIteration:
                return
            except Exception as error:
                batch = Raised(error)
            if number >= skip:
                yield batch

    def _made_elsewhere(self, indices: Iterator[Any], skip: int, seed: int) -> Iterator[Any]:
        """Batches in order; each worker is a few ahead."""
        workers = self._workers
        if workers is None:
            workers = Workers(self.num_workers, self.dataset, self._fetch, seed, self.worker_init_fn)
            if self.persistent_workers:
                self._workers = workers
                weakref.finalize(self, workers.close)
        try:
            yield from self._ordered(workers, indices, skip, seed)
        finally:
            if not self.persistent_workers:
                workers.close()

    def _ordered(self, workers: Workers, indices: Iterator[Any], skip: int, seed: int) -> Iterator[Any]:
        self._passes += 1
        iterable = isinstance(self.dataset, IterableDataset)
        epoch, asked, wanted = self._passes, 0, 0
        over: set[int] = set()
        here: dict[int, Any] = {}
        if not iterable:
            asked = wanted = sum(1 for _ in islice(indices, skip))
            skip = 0

        def ask() -> None:
            nonlocal asked
            turn = asked % len(workers)
            if turn in over:
                here[asked] = Ended(turn)
            elif (which := next(indices, _NONE)) is not _NONE:
                workers.ask(turn, asked, epoch, seed, which)
            else:
                return
            asked += 1
        for _ in range(len(workers) * (self.prefetch_factor or 1)):
            ask()
        while wanted < asked and len(over) < len(workers):
            while wanted not in here:
                came, number, batch = workers.answer(self.timeout)
                if came == epoch:  # not what a pass that was left asked for
                    here[number] = batch
            batch = here.pop(wanted)
            wanted += 1
            if isinstance(batch, Failure):
                batch = Raised(batch.again())
            if isinstance(batch, Ended):
                over.add(batch.worker)
                ask()
                continue
            ask()
            if skip:
                skip -= 1
                continue
            yield batch


class _Stacked:
    """A batch that `stacked` made: every array is a tensor to be."""

    def __init__(self, data: Any):
        self.data = data


_NONE = object()

_SET_ONCE = frozenset({"dataset", "batch_size", "batch_sampler", "sampler", "drop_last", "persistent_workers"})
"""Attributes of a loader that nobody sets anew, as in torch."""


def _check_forks(context: Any, num_workers: int) -> None:
    """Raise ValueError unless workers may be forks, if there are any, and none are spoken of if there are not."""
    if context is not None and not num_workers:
        raise ValueError("DataLoader: multiprocessing_context needs workers: num_workers > 0")
    method = context.get_start_method() if hasattr(context, "get_start_method") else context
    if method not in (None, "fork"):
        raise ValueError(f"DataLoader: multiprocessing_context={method!r}, but workers are forks; leave it out")


def _check(iterable: bool, batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, num_workers: int,
           drop_last: bool, timeout: float, prefetch_factor: int | None, persistent_workers: bool) -> None:
    rules = [
        (num_workers < 0, f"num_workers={num_workers} is negative; 0 makes batches in this process"),
        (timeout < 0, f"timeout={timeout} is negative"),
        (num_workers == 0 and prefetch_factor is not None, "prefetch_factor needs workers: num_workers > 0"),
        (prefetch_factor is not None and prefetch_factor < 1, f"prefetch_factor={prefetch_factor} makes nothing ahead"),
        (num_workers == 0 and persistent_workers, "persistent_workers needs workers: num_workers > 0"),
        (iterable and bool(shuffle), "an IterableDataset has its own order: shuffle must stay out"),
        (iterable and (sampler is not None or batch_sampler is not None),
         "an IterableDataset has its own order: no sampler"),
        (sampler is not None and bool(shuffle), "sampler and shuffle exclude each other"),
        (batch_sampler is not None and (batch_size != 1 or bool(shuffle) or sampler is not None or drop_last),
         "batch_sampler excludes batch_size, shuffle, sampler and drop_last"),
        (batch_size is None and drop_last, "batch_size=None makes no batches: drop_last must stay out"),
    ]
    for broken, message in rules:
        if broken:
            raise ValueError(f"DataLoader: {message}")
