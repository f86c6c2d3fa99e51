"""Keys and values of the tokens that a model has seen.

A cache has slots. Token i of a row lies in slot i, counted from the row's first token or padding. Attention goes by
slots: a query sees the slots up to its own, within its layer's window. Where a row's text begins at a later slot, the
slots before are padding (`padding`), and positions count from there.

A read is reserved, computed and settled. It counts when it is settled, in one statement of the host's: what raises
before, an interrupt too, leaves the cache as it was. The slots that were written by then lie behind those that count,
and the next read writes over them. So may a read be longer than what it counts.

    kind                  keys of a layer           a step's shapes
    StaticCache           all its capacity          the same for every token: one plan
    GrowingCache          those that are there      another for every token
    SlidingWindowCache    the window's              the same for every token
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar

import genesis
from genesis import Tensor
from genesis.ir.types import DType
from genesis.models.architecture import Architecture
from genesis.models.generation.stored_cache import (
    StoredCache,
    check_tokens,
    from_first_slot,
    read_cache,
    to_last_slot,
    write_cache,
)
from genesis.models.transformer import SettledCache

SLOTS = 256
"""Capacities are made multiples of this: few programs serve all texts, and keys can be shared out evenly."""

FAR = 1 << 40
"""A slot that no query sees: it is behind all of them."""


class LayerKeys:
    """The keys and values of one layer: (B, heads, slots, size) each.

    Attributes:
        kind: layers of one kind have their keys in the same slots, and share a mask.
        window: how many tokens a query looks back, itself included; None for all.
    """

    kind: ClassVar[str]
    window: int | None
    keys: Tensor | None
    values: Tensor | None

    def slots(self, new: Tensor) -> Tensor:
        """The slots of all keys that attention looks at, those of the new tokens included."""
        raise NotImplementedError

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append the new tokens' (B, heads, T, size) each; returns all that attention looks at."""
        raise NotImplementedError

    def state(self) -> dict[str, Tensor]:
        """Its memory, by name."""
        return {} if self.keys is None or self.values is None else {"keys": self.keys, "values": self.values}

    def tokens(self, x: Tensor, seen: int) -> Tensor:
        """The part of its keys or values that belongs to the last of so many tokens, (B, heads, T, size)."""
        raise NotImplementedError

    def in_slots(self, tokens: Tensor, seen: int) -> Tensor:
        """Such tokens where they belong: what `tokens` would give again."""
        raise NotImplementedError

    def restore(self, seen: int) -> None:
        """Be as before a read that was interrupted, when so many tokens were there.

        Raises:
            ValueError: it cannot be told what is there.
        """


class KVCache(SettledCache):
    """The keys and values of all layers.

    Attributes:
        layers: one for each of the model's.
        seen: how many slots are filled; a number of the program's.
        reading: how many more there are with those of a read that has begun and is not settled.
        filled: (1,) `seen` in the device's memory, which a step reads and a plan does not depend on. The first tokens
            set it: before them it is anything.
        padding: (B,) how many slots of each row come before its text, or None.
        slots: (T,) those of the tokens that are being read, for the layers; None where none are.
        first: there were no tokens before those that were reserved last. They look at themselves only, not at all of
            the capacity.
        decoder: what reads into it, whose captured step the next call of `generate` replays; None once its model is
            dropped.
    """

    layers: list[LayerKeys]

    def __init__(self) -> None:
        self.seen = self.reading = 0
        self.first = False
        self.decoder: Any = None
        self._model: weakref.ref[Any] | None = None
        self.slots: Tensor | None = None
        self.filled: Tensor | None = None
        self.padding: Tensor | None = None
        self.layers = []

    def __getstate__(self) -> dict[str, Any]:
        """What a copy has: not what reads into this one, which knows the model."""
        return {**self.__dict__, "decoder": None, "_model": None}

    def __copy__(self) -> KVCache:
        """A copy has keys and values of its own: they are written where they lie."""
        return deepcopy(self)

    def keep(self, decoder: Any, model: Any) -> None:
        """Let the next call of `generate` go on with this decoder, for as long as the model is there."""
        cache = weakref.ref(self)

        def drop(dropped: weakref.ref[Any]) -> None:
            kept = cache()
            if kept is not None and kept._model is dropped:
                kept.decoder = kept._model = None
        self.decoder, self._model = decoder, weakref.ref(model, drop)

    def reserve(self, queries: int, device: Any, count: int | None = None) -> int:
        """Begin to read tokens, of which the first so many count; all by default. Returns how many there are with them.

        Raises:
            ValueError: there is no room for them, or what an interrupted read has left is not to be told.
        """
        self._restore()
        if self.filled is None:  # from the host: what fills it is no part of the program that reads a text's beginning
            self.filled = genesis.tensor([0], dtype=genesis.int64, device=device)
        self.check(queries)
        self.first = not self.seen
        self.reading = queries if count is None else count
        return self.seen + self.reading

    def advance(self, queries: int, count: Tensor | None = None) -> Tensor:
        """The slots of the tokens that were reserved: (T,) int64. Looks at the device's memory only, so that a compiled
        step is the same for every token.

        Args:
            count: (1,) int64, how many of them count; all by default. Those behind them are written over by what comes
                next, and no query before sees them.
        """
        assert self.filled is not None
        new = genesis.arange(queries, device=self.filled.device)
        if self.first:  # whatever was read into it before
            self.slots = new
            self.filled.fill_(queries) if count is None else self.filled.copy_(count)
        else:
            self.slots = self.filled + new
            self.filled.add_(queries if count is None else count)
        return self.slots

    def leave(self) -> None:
        """No layer asks for the slots again: what a step leaves behind is its keys and values, and their number."""
        self.slots = None

    def settle(self) -> None:
        """The tokens that were reserved are read, or recorded: they are seen."""
        self.seen, self.reading = self.seen + self.reading, 0

    def clear(self) -> None:
        """Hold no token, for another text; the memory stays, and captures that know it.

        >>> from genesis.models import LlamaConfig, LlamaForCausalLM
        >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=50, hidden_size=16, intermediate_size=32,
        ...                                      num_hidden_layers=1, num_attention_heads=2))
        >>> cache = cache_for(model, batch=1, capacity=16)
        >>> first = model.generate([[1, 2, 3]], 4, temperature=0, cache=cache)
        >>> cache.clear()
        >>> bool((model.generate([[1, 2, 3]], 4, temperature=0, cache=cache) == first).all())
        True
        """
        self.seen = self.reading = 0
        self.slots = self.padding = None
        for layer in self.layers:
            layer.restore(0)

    def _restore(self) -> None:
        """Be as before a read that was not settled."""
        if not self.reading:
            return
        self.slots = None
        for layer in self.layers:
            layer.restore(self.seen)
        if self.filled is not None and self.seen:
            self.filled.copy_(genesis.tensor([self.seen], dtype=genesis.int64, device=self.filled.device))
        self.reading = 0

    def room(self) -> int:
        """How many tokens may be read into it of which the last do not count."""
        return 0

    def check(self, queries: int) -> None:
        """Raise ValueError if the cache has no room for this many tokens more."""

    def require(self, model: Any, batch: int) -> None:
        """Raise ValueError unless it has a model's layers and heads, in its dtype and on its device, for this many
        rows."""
        spec, weight = model.cached, next(model.parameters())
        if len(self.layers) != spec.layers:
            raise ValueError(f"a cache of {len(self.layers)} layers for a model of {spec.layers}")
        for layer in self.layers:
            keys = layer.state().get("keys")
            if keys is None:
                continue
            found, wanted = (keys.shape[0], keys.shape[1], keys.shape[3]), (batch, spec.kv_heads, spec.head_dim)
            if found != wanted:
                raise ValueError(f"a cache for (rows, heads, size of a head) {found}; the model and the prompts have "
                                 f"{wanted}")
            if keys.dtype is not weight.dtype or keys.device != weight.device:
                raise ValueError(f"a cache of {keys.dtype} on {keys.device} for a model of {weight.dtype} on "
                                 f"{weight.device}: make it with dtype={weight.dtype}, device={str(weight.device)!r}, "
                                 "or by cache_for(model, batch, capacity)")

    def __getitem__(self, layer: int) -> LayerKeys:
        return self.layers[layer]

    def tensors(self) -> Iterator[Tensor]:
        """All its memory."""
        for layer in self.layers:
            yield from layer.state().values()

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors())

    def save(self, path: str | os.PathLike[str], **metadata: str | int) -> None:
        """Write what is filled to a file, from which `load_into` makes it again, and what else there is to say."""
        self._restore()
        write_cache(self._stored(self.seen, metadata), path)

    def _stored(self, first: int, metadata: Mapping[str, Any]) -> StoredCache:
        """Its first tokens, as far as they are there."""
        def kept(layer: LayerKeys, name: str) -> Tensor:
            tokens = layer.tokens(layer.state()[name], self.seen)
            return tokens[:, :, :max(0, tokens.shape[2] - (self.seen - first))]
        return StoredCache(first, self.padding, [(kept(layer, "keys"), kept(layer, "values"))
                                                 for layer in self.layers if layer.state()], metadata)

    def take(self, other: KVCache, first: int) -> None:
        """Fill this empty cache with the first tokens of another one, of any kind and capacity.

        Raises:
            ValueError: the other has fewer tokens, or windows that have left what a query behind these would see; there
                is no room, or it is of another model. This cache stays as it is.
        """
        other._restore()
        if first > other.seen:
            raise ValueError(f"a cache of {other.seen} tokens has no first {first}")
        stored = other._stored(first, {})
        if self._as_it_lies(other):  # what a length decides is a program of its own on a GPU: whole slots are copied
            stored = replace(stored, layers=[(x.state()["keys"], x.state()["values"]) for x in other.layers])
        self._fill(stored, "the other cache")

    def _as_it_lies(self, other: KVCache) -> bool:
        """Have both caches token i of all layers in slot i, with as many layers?"""
        return len(self.layers) == len(other.layers) and all(
            isinstance(layer, _StaticLayer) for layer in chain(self.layers, other.layers))

    def load_into(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Fill this empty cache from a file that `save` wrote, of a cache of any kind and capacity.

        Returns:
            What else was saved with it.

        Raises:
            ValueError: the file is another one, of another model's cache or of more tokens than there is room for. The
                cache stays as it is.
        """
        stored = read_cache(path, self._device())
        self._fill(stored, os.fspath(path))
        return dict(stored.metadata)

    def _device(self) -> Any:
        return self.layers[0].state()["keys"].device if self.layers[0].state() else None

    def _fill(self, stored: StoredCache, name: str) -> None:
        """Take what was stored under this name.

        Raises:
            ValueError: it does not fit.
        """
        if len(stored.layers) != len(self.layers) and (stored.layers or stored.seen):
            raise ValueError(f"{name} holds a cache of {len(stored.layers)} layers, this one has {len(self.layers)}")
        found = []
        try:
            for layer, pair in zip(self.layers, stored.layers, strict=False):
                for tokens in pair:
                    check_tokens(tokens, stored.seen, layer.window, layer.keys)
                found.append([layer.in_slots(tokens, stored.seen) for tokens in pair])
        except ValueError as error:
            raise ValueError(f"{name} does not fit: {error}") from None
        self.reading = stored.seen
        for layer, (keys, values) in zip(self.layers, found, strict=False):
            layer.keys, layer.values = keys, values
        self.padding = stored.padding
        self.filled = genesis.tensor([stored.seen], dtype=genesis.int64, device=self._device())
        self.settle()


class _StaticLayer(LayerKeys):
    kind = "static"

    keys: Tensor
    values: Tensor

    def __init__(self, cache: KVCache, shape: tuple[int, ...], window: int | None, dtype: DType, device: Any):
        self._cache, self.window = cache, window
        self.keys = genesis.zeros(shape, dtype=dtype, device=device)
        self.values = genesis.zeros(shape, dtype=dtype, device=device)

    def slots(self, new: Tensor) -> Tensor:
        return genesis.arange(self.keys.shape[2], device=new.device)

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        slots = self._cache.slots
        assert slots is not None
        for memory, new in ((self.keys, keys), (self.values, values)):
            if self._cache.first:  # a slice is written by the kernel that makes it
                memory[:, :, :new.shape[2]] = new
            else:
                memory.index_copy_(2, slots, new.to(memory.dtype))  # under autocast they are of a lower dtype
        return self.keys, self.values

    def tokens(self, x: Tensor, seen: int) -> Tensor:
        return x[:, :, :seen]

    def in_slots(self, tokens: Tensor, seen: int) -> Tensor:
        slots = self.keys.shape[2]
        if tokens.shape[2] > seen <= slots:  # slots as they lie, of which the first hold tokens
            kept = tokens[:, :, :slots]
            return from_first_slot(kept, kept.shape[2], slots)
        return from_first_slot(tokens, seen, slots)


class StaticCache(KVCache):
    """A cache of a fixed capacity. Every token's step has the same shapes, so all run one plan.

    Args:
        spec: the model's architecture.
        batch: rows.
        capacity: slots of a row.
        dtype, device: of keys and values.

    >>> from genesis.models import Architecture
    >>> spec = Architecture(vocab_size=9, dim=8, layers=1, heads=2, kv_heads=1, head_dim=4, hidden=8, context=16)
    >>> cache = StaticCache(spec, batch=1, capacity=16)
    >>> cache.nbytes
    512
    """

    def __init__(self, spec: Architecture, batch: int, capacity: int, dtype: DType = genesis.float32,
                 device: Any = None):
        super().__init__()
        self.capacity = capacity
        shape = batch, spec.kv_heads, capacity, spec.head_dim
        self.layers = [_StaticLayer(self, shape, spec.windows[i], dtype, device) for i in range(spec.layers)]

    def room(self) -> int:
        """The slots that are free."""
        return self.capacity - self.seen

    def check(self, queries: int) -> None:
        """Raise ValueError if the capacity is less than what is there and this many tokens more."""
        if self.seen + queries > self.capacity:
            raise ValueError(f"{queries} tokens more than the {self.seen} in a cache of {self.capacity} slots")


class _GrowingLayer(LayerKeys):
    kind = "growing"

    def __init__(self, cache: KVCache, window: int | None) -> None:
        self._cache, self.window = cache, window
        self.keys = self.values = None

    def slots(self, new: Tensor) -> Tensor:
        return genesis.arange(self._cache.seen + self._cache.reading, device=new.device)

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        if self.keys is not None and self.values is not None:
            keys, values = genesis.cat([self.keys, keys], 2), genesis.cat([self.values, values], 2)
        self.keys, self.values = keys, values
        return keys, values

    def tokens(self, x: Tensor, seen: int) -> Tensor:
        return x

    def in_slots(self, tokens: Tensor, seen: int) -> Tensor:
        return from_first_slot(tokens, seen, seen)

    def restore(self, seen: int) -> None:
        if not seen:
            self.keys = self.values = None
        elif self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[:, :, :seen], self.values[:, :, :seen]


class GrowingCache(KVCache):
    """A cache that takes the memory of the tokens that are there, and is copied when it grows."""

    def __init__(self, spec: Architecture):
        super().__init__()
        self.layers = [_GrowingLayer(self, spec.windows[i]) for i in range(spec.layers)]


class _WindowLayer(LayerKeys):
    """The last tokens, oldest first; the slots before the text's beginning are far behind every query."""

    keys: Tensor
    values: Tensor

    def __init__(self, cache: KVCache, shape: tuple[int, ...], dtype: DType, device: Any):
        self._cache, self.window = cache, shape[2] + 1
        self.keys = genesis.zeros(shape, dtype=dtype, device=device)
        self.values = genesis.zeros(shape, dtype=dtype, device=device)
        self.kind = f"window of {shape[2]}"  # type: ignore[misc]

    def slots(self, new: Tensor) -> Tensor:
        before = self.keys.shape[2]
        past = new[:1] - before + genesis.arange(before, device=new.device)
        return genesis.cat([genesis.where(past < 0, FAR, past), new])

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        before = self.keys.shape[2]
        keys, values = genesis.cat([self.keys, keys], 2), genesis.cat([self.values, values], 2)
        self.keys.copy_(keys[:, :, keys.shape[2] - before:])
        self.values.copy_(values[:, :, values.shape[2] - before:])
        return keys, values

    def tokens(self, x: Tensor, seen: int) -> Tensor:
        return x[:, :, max(0, x.shape[2] - seen):]

    def in_slots(self, tokens: Tensor, seen: int) -> Tensor:
        return to_last_slot(tokens, self.keys.shape[2])

    def restore(self, seen: int) -> None:
        if seen:  # the slots before a text's beginning are seen by none
            raise ValueError("a read into this cache was interrupted, and windows of some layers have moved by then, "
                             "perhaps: read the text into a new one")


class SlidingWindowCache(KVCache):
    """A cache of models whose layers look back a window only: those keep its tokens, the others all up to a capacity.

    Args:
        spec: the model's architecture, with `windows`.
        batch: rows.
        capacity: slots of a row in the layers without a window.
        dtype, device: of keys and values.
    """

    def __init__(self, spec: Architecture, batch: int, capacity: int, dtype: DType = genesis.float32,
                 device: Any = None):
        super().__init__()

        def layer(window: int | None) -> LayerKeys:
            if window is None or window > capacity:
                return _StaticLayer(self, (batch, spec.kv_heads, capacity, spec.head_dim), window, dtype, device)
            return _WindowLayer(self, (batch, spec.kv_heads, window - 1, spec.head_dim), dtype, device)
        self.layers = [layer(window) for window in spec.windows]
        self.capacity = capacity if any(isinstance(x, _StaticLayer) for x in self.layers) else None

    def check(self, queries: int) -> None:
        """Raise ValueError if a layer without a window has no room for this many tokens more."""
        if self.capacity is not None and self.seen + queries > self.capacity:
            raise ValueError(f"{queries} tokens more than the {self.seen} in a cache of {self.capacity} slots")


def cache_for(model: Any, batch: int, capacity: int) -> KVCache:
    """The cache that suits a model, for this many tokens at least: of windows where layers have shorter ones."""
    capacity = -(-capacity // SLOTS) * SLOTS
    weight = next(model.parameters())
    kind = SlidingWindowCache if any(w is not None and w < capacity for w in model.spec.windows) else StaticCache
    return kind(model.cached, batch, capacity, dtype=weight.dtype, device=weight.device)
