"""The transformer that every family is: tables, blocks, a norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import genesis
from genesis import Tensor, nn
from genesis.models.architecture import Architecture
from genesis.models.masks import Mask, attention_mask
from genesis.models.parts import Block, LayerCache, norm_of


class Cache(Protocol):
    """Keys and values of all layers, and where the tokens are that they belong to: the least that one of your own has.

    Attributes:
        padding: (B,) how many places of each row come before its text, or None.
    """

    padding: Tensor | None

    def reserve(self, queries: int, device: object) -> int:
        """Count the next tokens; returns how many there are with them."""
        ...

    def advance(self, queries: int) -> Tensor:
        """The places of the tokens that were reserved: (T,)."""
        ...

    def __getitem__(self, layer: int) -> LayerCache: ...


class SettledCache:
    """A `Cache` in which tokens count once they are read, and not all that are read need count. (No abstract class: of
    those a capture asks whether any has been registered since.)

    Attributes:
        padding: see `Cache`.
        first: there were no tokens before those that were reserved last: they look at themselves alone.
    """

    padding: Tensor | None
    first: bool

    def reserve(self, queries: int, device: object, count: int | None = None) -> int:
        """Begin to read tokens, of which the first so many count; returns how many there are with them."""
        raise NotImplementedError

    def advance(self, queries: int, count: Tensor | None = None) -> Tensor:
        """The places of the tokens that were reserved, (T,); the same count is (1,) int64 here."""
        raise NotImplementedError

    def leave(self) -> None:
        """All layers have the tokens: what they were written by may go. A part of the program, as `advance` is."""
        raise NotImplementedError

    def settle(self) -> None:
        """The tokens count. The host's alone."""
        raise NotImplementedError

    def __getitem__(self, layer: int) -> Any:
        """A layer's `LayerCache`."""
        raise NotImplementedError


class Transformer(nn.Module):
    """Tokens in, vectors out: what a head predicts from.

    >>> from genesis.models.architecture import Rotary
    >>> spec = Architecture(vocab_size=50, dim=16, layers=2, heads=4, kv_heads=2, head_dim=4, hidden=32, context=64,
    ...                     rotary=Rotary())
    >>> Transformer(spec)(genesis.zeros(2, 8, dtype=genesis.int64)).shape
    genesis.Size([2, 8, 16])
    """

    def __init__(self, spec: Architecture):
        super().__init__()
        self.spec = spec
        self.embed_tokens = nn.Embedding(spec.vocab_size, spec.dim, spec.padding)
        if spec.position_table:
            self.embed_positions = nn.Embedding(spec.position_table, spec.dim)
        if spec.segments:
            self.embed_segments = nn.Embedding(spec.segments, spec.dim)
        if spec.rotary is not None:
            self.rotary_emb = nn.RotaryEmbedding(spec.head_dim, spec.context, spec.rotary.base, spec.rotary.scaling)
        self.dropout = nn.Dropout(spec.dropout.embedding)
        self.layers = nn.ModuleList(Block(spec, layer) for layer in range(spec.layers))
        self.norm = norm_of(spec)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None,
                cache: Cache | None = None, token_type_ids: Tensor | None = None,
                documents: Tensor | None = None) -> Tensor:
        """The last vectors.

        Args:
            input_ids: (B, T) tokens, int64.
            attention_mask: (B, S) whether each key is a token of the text; zero for padding. S is T and what is cached.
            position_ids: (T,) or (B, T) where each token stands in its text; 0, 1, 2, … by default.
            cache: keys and values of the tokens before; those of `input_ids` are appended.
            token_type_ids: (B, T) segments, for models that have a table of them; 0 by default.
            documents: (B, T) a number for each text that is packed into a row.

        Returns:
            (B, T, dim).

        Raises:
            ValueError: more tokens than a learned table of positions has rows.
        """
        length = self.reserve(input_ids, cache)
        x = self.computed(input_ids, length, attention_mask, position_ids, cache, token_type_ids, documents)
        if isinstance(cache, SettledCache):
            cache.settle()
        return x

    def reserve(self, input_ids: Tensor, cache: Cache | None, count: int | None = None) -> int | None:
        """Make room for the tokens in the cache; returns the text's length with them if the computation depends on it.

        Args:
            count: how many of them count, for a `SettledCache`; all by default.

        Raises:
            ValueError: there is no room, or no learned position for the last of them.
        """
        T, spec = input_ids.shape[1], self.spec
        if isinstance(cache, SettledCache):
            length = cache.reserve(T, input_ids.device, count)
        else:
            length = T if cache is None else cache.reserve(T, input_ids.device)
        if spec.position_table and length > spec.position_table:
            raise ValueError(f"a text of {length} tokens is longer than the model's table of "
                             f"{spec.position_table} positions")
        return length if spec.rotary is not None and self.rotary_emb.by_length else None

    def computed(self, input_ids: Tensor, length: int | None, attention_mask: Tensor | None = None,
                 position_ids: Tensor | None = None, cache: Cache | None = None, token_type_ids: Tensor | None = None,
                 documents: Tensor | None = None, count: Tensor | None = None) -> Tensor:
        """What `forward` gives, once `reserve` has made room. No number of Python's but `length` takes part.

        Args:
            count: (1,) int64, how many of the tokens count in a `SettledCache`; all by default.
        """
        spec, T = self.spec, input_ids.shape[1]
        if isinstance(cache, SettledCache):
            places = cache.advance(T, count)
        else:
            places = genesis.arange(T, device=input_ids.device) if cache is None else cache.advance(T)
        positions = places if position_ids is None else position_ids
        if position_ids is None and cache is not None and cache.padding is not None:
            positions = (places - cache.padding.unsqueeze(1)).clamp(min=0)
        x = self.dropout(self._embedded(input_ids, positions, token_type_ids))
        masks = self._masks(places, cache, attention_mask, documents)
        angles = None
        if spec.rotary is not None:
            cos, sin = self.rotary_emb(positions, length)
            angles = cos.to(x.dtype), sin.to(x.dtype)
        for layer, block in enumerate(self.layers):
            x = block(x, masks[layer], angles, None if cache is None else cache[layer])
        if isinstance(cache, SettledCache):
            cache.leave()
        return self.norm(x) if spec.norm_first else x

    def _embedded(self, input_ids: Tensor, positions: Tensor, segments: Tensor | None) -> Tensor:
        spec = self.spec
        x = self.embed_tokens(input_ids)
        if spec.segments:
            segments = genesis.zeros_like(input_ids) if segments is None else segments
            x = x + self.embed_segments(segments)
        if spec.position_table:
            x = x + self.embed_positions(positions)
        return x if spec.norm_first else self.norm(x)

    def _masks(self, places: Tensor, cache: Cache | None, present: Tensor | None,
               documents: Tensor | None) -> Sequence[Mask]:
        """A mask for each layer; layers of the same window and kind of cache share one."""
        made: dict[tuple[int | None, str], Mask] = {}
        alone = isinstance(cache, SettledCache) and cache.first
        found = []
        for layer, window in enumerate(self.spec.windows):
            kept = None if cache is None or alone else cache[layer]
            kind = window, "" if kept is None else kept.kind
            if kind not in made:
                made[kind] = attention_mask(
                    places, places if kept is None else kept.slots(places), self.spec.causal, window, present,
                    documents, None if cache is None else cache.padding, whole=kept is None)
            found.append(made[kind])
        return found


def draw_weights(model: nn.Module, deviation: float) -> None:
    """Normal weights of this deviation, biases and padding's vector of zero, norms of one: how these models begin."""
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
                nn.init.constant_(parameter, 0.0 if name == "bias" else 1.0)
            elif name == "bias":
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=float(deviation))
                if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                    nn.init.zeros_(parameter[module.padding_idx])
