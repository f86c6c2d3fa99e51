"""Generates text with a cache of keys and values that is written here, in twenty lines: tensors that grow by `cat`.

    python examples/llm/train_tiny.py
    python examples/llm/cat_cache.py runs/tiny "The compiler "

A model asks its cache for a few things only, so any object that has them will do. Sizes that change from token to token
compile nothing once they are known to change. `genesis.models.generation` has caches of fixed memory, and sampling.
"""

from __future__ import annotations

import argparse

import genesis
from genesis import Tensor
from genesis.models import AutoModelForCausalLM, CausalLM
from genesis.models.text import Tokenizer


class CatLayer:
    """The keys and values of one layer: (B, heads, tokens, size) each, which grow with each token."""

    kind = "cat"

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def slots(self, new: Tensor) -> Tensor:
        """The places of all keys: 0, 1, 2, …, up to the last new one."""
        before = 0 if self.keys is None else self.keys.shape[2]
        return genesis.arange(before + new.shape[0], device=new.device)

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append."""
        if self.keys is not None and self.values is not None:
            keys, values = genesis.cat([self.keys, keys], 2), genesis.cat([self.values, values], 2)
        self.keys, self.values = keys, values
        return keys, values


class CatCache(list[CatLayer]):
    """A layer's keys and values for each of a model's layers."""

    padding = None

    def __init__(self, layers: int):
        super().__init__(CatLayer() for _ in range(layers))
        self.seen, self.device = 0, None

    def reserve(self, queries: int, device: object) -> int:
        """Count the next tokens."""
        self.seen, self.device = self.seen + queries, device
        return self.seen

    def advance(self, queries: int) -> Tensor:
        """Their places."""
        return genesis.arange(self.seen - queries, self.seen, device=self.device)


@genesis.no_grad()
def generate(model: CausalLM, ids: list[int], count: int) -> list[int]:
    """The likeliest tokens that follow."""
    cache, found = CatCache(model.spec.layers), list[int]()
    new = genesis.tensor([ids])
    for _ in range(count):
        token = model(new, cache=cache).logits[:, -1].argmax(-1)
        found.append(int(token.item()))
        new = token.unsqueeze(1)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("prompt")
    parser.add_argument("--tokens", type=int, default=60)
    options = parser.parse_args()
    tokenizer = Tokenizer.from_pretrained(options.folder)
    ids = tokenizer.encode(options.prompt)
    model = AutoModelForCausalLM.from_pretrained(options.folder)
    print(options.prompt + tokenizer.decode(generate(model, ids, options.tokens)))
