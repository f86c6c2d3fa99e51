"""Text as it is made."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, Literal

import genesis
import genesis.nn.functional as F
from genesis import Tensor
from genesis.models.generation.caches import KVCache
from genesis.models.generation.decoding import decode
from genesis.models.generation.sampling import Sampling
from genesis.models.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Fragment:
    """What one token added.

    Attributes:
        text: that can be shown; a token may add none (half a character, perhaps the beginning of a stop string).
        token: its id.
        scores: (V,) what it was chosen by, float32.
        prompt_tokens, prompt_speed: how many tokens the prompt had, and how many of them a second.
        generated_tokens, generation_speed: the same of the answer so far.
        peak_memory: bytes that the GPU held at most; 0 on the CPU.
        finish_reason: why it ends here: "stop" or "length"; None while it goes on.
    """

    text: str
    token: int
    scores: Tensor
    prompt_tokens: int
    prompt_speed: float
    generated_tokens: int
    generation_speed: float
    peak_memory: int
    finish_reason: Literal["stop", "length"] | None

    @property
    def logprobs(self) -> Tensor:
        """(V,) logarithms of the probabilities that the token was chosen from; computed when asked for."""
        return F.log_softmax(self.scores, dim=-1)


class StopStrings:
    """Text up to the first of some strings. What may be the beginning of one is held back.

    >>> stops = StopStrings(["END"])
    >>> stops.add("some E"), stops.add("N"), stops.add("Dxyz")
    (('some ', False), ('', False), ('', True))
    """

    def __init__(self, strings: Sequence[str]):
        self._strings = [s for s in strings if s]
        self._held = ""

    def add(self, text: str) -> tuple[str, bool]:
        """What of the text so far can be shown now, and whether a stop string was found."""
        self._held += text
        places = [place for s in self._strings if (place := self._held.find(s)) >= 0]
        if places:
            shown, self._held = self._held[:min(places)], ""
            return shown, True
        kept = max((n for s in self._strings for n in range(1, len(s)) if self._held.endswith(s[:n])), default=0)
        cut = len(self._held) - kept
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown, False

    def rest(self) -> str:
        """What is held back still."""
        rest, self._held = self._held, ""
        return rest


LONGEST: Final = 64
"""Tokens that are decoded for each new one, at the most: all of a long answer would take longer than the model."""

KEPT: Final = range(8, 12)
"""How many tokens before the next may be decoded with it: what a token stands for may depend on those before. Of bytes
one of four numbers begins with a character."""


class Detokenizer:
    """The text that each token adds. Bytes of a character that is not whole yet wait for the rest."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._shown = ""

    def add(self, token: int) -> str:
        """The new text."""
        self._ids.append(token)
        text = self._tokenizer.decode(self._ids)
        if text.endswith("\ufffd"):
            return ""
        new = text[len(self._shown):]
        self._shown = text
        if len(self._ids) >= LONGEST:
            self._forget(text)
        return new

    def _forget(self, text: str) -> None:
        """Keep the last tokens alone, if the text ends with what they stand for by themselves: else the cut is within a
        character."""
        for kept in KEPT:
            last = self._tokenizer.decode(self._ids[-kept:])
            if text.endswith(last):
                self._ids, self._shown = self._ids[-kept:], last
                return

    def rest(self) -> str:
        """What is held back still: the replacement of a character that did not become whole."""
        new = self._tokenizer.decode(self._ids)[len(self._shown):]
        self._shown += new
        return new


def stream_generate(model: Any, tokenizer: Tokenizer, prompt: str | Sequence[int], max_new_tokens: int = 256,
                    temperature: float = 0.0, top_k: int | None = None, top_p: float = 1.0, min_p: float = 0.0,
                    repetition_penalty: float = 1.0, stop: str | Sequence[str] = (), seed: int | None = None,
                    cache: KVCache | None = None, min_tokens_to_keep: int = 1) -> Iterator[Fragment]:
    """Continue a prompt, a fragment of text at a time.

    Args:
        model: a `CausalLM`.
        tokenizer: of the same folder.
        prompt: a text, or tokens.
        max_new_tokens: how many to add at most.
        temperature, top_k, top_p, min_p, repetition_penalty: see `Sampling`.
        stop: a string, or several, that end the answer and are not part of it; so do the tokenizer's `stop_ids`.
        seed: of the draws.
        cache: with the tokens before the prompt, or empty; a new one by default.
        min_tokens_to_keep: see `Sampling`.
    """
    ids = tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
    if not ids:
        raise ValueError("stream_generate: the prompt is empty")
    device = next(model.parameters()).device
    words, stops = Detokenizer(tokenizer), StopStrings([stop] if isinstance(stop, str) else stop)
    start = time.perf_counter()
    prompt_speed = since = 0.0
    sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty, min_tokens_to_keep)
    steps = decode(model, genesis.tensor([ids], device="cpu"), max_new_tokens, sampling, seed, cache=cache)
    with closing(steps):
        for count, step in enumerate(steps, 1):
            token = int(step.tokens.item())
            now = time.perf_counter()
            if count == 1:
                prompt_speed, since = len(ids) / (now - start), now
            ended = token in tokenizer.stop_ids
            text, found = ("", False) if ended else stops.add(words.add(token))
            reason: Literal["stop", "length"] | None = (
                "stop" if ended or found else "length" if count == max_new_tokens else None)
            if reason is not None and not found:
                shown, found = stops.add(words.rest())
                text += shown if found else shown + stops.rest()
                reason = "stop" if found else reason
            yield Fragment(text, token, step.scores[0], len(ids), prompt_speed, count,
                           (count - 1) / (now - since) if count > 1 else 0.0, _peak_memory(device), reason)
            if reason is not None:
                return


def _peak_memory(device: Any) -> int:
    return int(genesis.cuda.max_memory_allocated(device)) if device.type == "cuda" else 0
