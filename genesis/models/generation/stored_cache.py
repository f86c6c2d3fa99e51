"""Keys and values in a file, and how caches take them: a prompt that was read once serves many answers.

A file holds, of each layer, the tokens that a later query may see: all of them, or the last of a window. Slots that are
not filled are not written, so that a cache of another capacity or another kind can go on from it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import genesis
from genesis import Tensor
from genesis.utils.serialization import load, save

FORMAT: Final = "genesis-kv-cache-1"


@dataclass(frozen=True)
class StoredCache:
    """What a cache has written to a file.

    Attributes:
        seen: how many tokens went through the model.
        padding: (B,) how many slots of each row come before its text, or None.
        layers: (keys, values) of each, (B, heads, tokens, size): of the last tokens, oldest first.
        metadata: what else was saved with it.
    """

    seen: int
    padding: Tensor | None
    layers: Sequence[tuple[Tensor, Tensor]]
    metadata: Mapping[str, Any]


def write_cache(stored: StoredCache, path: str | os.PathLike[str]) -> None:
    """Write it, all or nothing."""
    save({"format": FORMAT, "seen": stored.seen, "padding": stored.padding, "metadata": dict(stored.metadata),
          "layers": [{"keys": keys, "values": values} for keys, values in stored.layers]}, path)


def read_cache(path: str | os.PathLike[str], device: Any = None, mmap: bool = False) -> StoredCache:
    """Read it; with `mmap` what is not used is not read from the disk.

    Raises:
        ValueError: the file is damaged, or another one.
    """
    contents = load(path, map_location=device, mmap=mmap)
    if not isinstance(contents, dict) or contents.get("format") != FORMAT:
        raise ValueError(f"{os.fspath(path)} holds no cache of keys and values, which cache.save(path) and genesis "
                         "cache_prompt write")
    try:
        found = StoredCache(contents["seen"], contents["padding"],
                            [(layer["keys"], layer["values"]) for layer in contents["layers"]], contents["metadata"])
        good = found.seen >= 0 and all(
            keys.ndim == 4 and keys.shape == values.shape and keys.shape[2] <= found.seen
            for keys, values in found.layers) and isinstance(found.metadata, dict)
    except (KeyError, TypeError, AttributeError):
        good = False
    if not good:
        raise ValueError(f"{os.fspath(path)} is damaged: its layers are not those of a cache")
    return found


def check_tokens(tokens: Tensor, seen: int, window: int | None, own: Tensor | None) -> None:
    """Raise ValueError where tokens are missing that a query would see, or are of another form than a layer's own.

    Args:
        tokens: (B, heads, T, size), the last of those that were seen.
        seen: how many that were.
        window: how many tokens a query of the layer looks back, itself included; None for all.
        own: what the layer has; None if it is empty.
    """
    needed = seen if window is None else min(seen, window - 1)
    if tokens.shape[2] < needed:
        raise ValueError(f"a layer has the last {tokens.shape[2]} of {seen} tokens, and this model looks back further: "
                         f"{needed}")
    if own is not None and (_form(own) != _form(tokens) or own.dtype is not tokens.dtype):
        raise ValueError(f"its (rows, heads, size of a head) are {_form(tokens)} in {tokens.dtype}, this cache's "
                         f"{_form(own)} in {own.dtype}")


def from_first_slot(tokens: Tensor, seen: int, slots: int) -> Tensor:
    """The last of `seen` tokens, each in the slot of its number; zeros elsewhere.

    Raises:
        ValueError: there are fewer slots.
    """
    if slots < seen:
        raise ValueError(f"it has {seen} tokens, this cache {slots} slots")
    return genesis.cat([_zeros(tokens, seen - tokens.shape[2]), tokens, _zeros(tokens, slots - seen)], 2)


def to_last_slot(tokens: Tensor, slots: int) -> Tensor:
    """The last tokens, as many as there are slots, the last one in the last slot; zeros before them."""
    kept = tokens[:, :, max(0, tokens.shape[2] - slots):]
    return genesis.cat([_zeros(tokens, slots - kept.shape[2]), kept], 2)


def _form(x: Tensor) -> tuple[int, int, int]:
    return x.shape[0], x.shape[1], x.shape[3]


def _zeros(like: Tensor, slots: int) -> Tensor:
    return genesis.zeros(*like.shape[:2], slots, like.shape[3], dtype=like.dtype, device=like.device)
