"""The loop: the model reads what it has written.

The prompt goes through the model in chunks; then each token goes through alone. A step is compiled once for a cache: it
reads the tokens before from the cache's memory and its place in the text from a number in the device's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeGuard, runtime_checkable

import genesis
import genesis.nn.functional as F
from genesis import Tensor
from genesis.ir.errors import failure
from genesis.models.generation.caches import KVCache, cache_for
from genesis.models.generation.sampling import Sampling

if TYPE_CHECKING:
    from genesis.distributed import DeviceMesh

PREFILL_CHUNK = 2048
"""Tokens of a prompt that go through the model at once."""

WORTH: Final = 8
"""Chunks of a prompt that a capture is worth. Of 28 layers it takes the host 125 to 210 ms, recording 24, a replay 1
(measured on a GPU that does nothing)."""

FEWEST: Final = 16
EACH_POWER: Final = 256
"""Rows up to which a product takes as long as its weights take to come from memory."""


def padded_length(tokens: int) -> int:
    """The length as which a chunk of so many tokens is read on a GPU, whose kernels and memory are planned for lengths.

    A prompt of each length is few programs so: powers of two up to 256, where rows more cost nothing, and four lengths
    between two powers from there on, of which at most a fifth is read in vain.

    >>> [padded_length(tokens) for tokens in (1, 17, 129, 256, 257, 513, 1500, 2048)]
    [16, 32, 256, 256, 320, 640, 1536, 2048]
    """
    power = max(FEWEST, 1 << (tokens - 1).bit_length())
    return power if power <= EACH_POWER else -(-tokens // (power // 8)) * (power // 8)


@dataclass(frozen=True)
class Step:
    """One token of each row.

    Attributes:
        tokens: (B,) what was chosen, on the device.
        scores: (B, V) what it was chosen by, float32.
    """

    tokens: Tensor
    scores: Tensor

    @property
    def logprobs(self) -> Tensor:
        """(B, V) logarithms of the probabilities that the tokens were chosen from; computed when asked for."""
        return F.log_softmax(self.scores, dim=-1)


@runtime_checkable
class Streamer(Protocol):
    """What transformers' streamers are."""

    def put(self, value: Tensor) -> Any:
        """Take the prompts, (B, T), and then each step's tokens, (B,)."""

    def end(self) -> Any:
        """There are no more."""


class Decoder:
    """A model, a cache and how tokens are chosen.

    Args:
        model: a `CausalLM`.
        cache: empty, or with the tokens before; a new one by default.
        sampling: how tokens are chosen.
        seed: of the draws; None for another text each time.
        capacity: slots of a new cache.

    Attributes:
        padded_on: the kinds of devices on which chunks of prompts are read as some of a few lengths (`padded_length`).
    """

    padded_on: ClassVar[Set[str]] = {"cuda"}

    def __init__(self, model: Any, batch: int, capacity: int, sampling: Sampling, seed: int | None = None,
                 cache: KVCache | None = None):
        self.model, self.sampling, self.batch = model, sampling, batch
        self.device = next(model.parameters()).device
        genesis.eval(*model.parameters(), *model.buffers())  # what fills them is no part of the first prompt's program
        if cache is not None:
            cache.require(model, batch)
        self.cache = cache_for(model, batch, capacity) if cache is None else cache
        genesis.eval(*self.cache.tensors())  # nor is this, which is a program of its own
        self.occurred: Tensor | None = None
        if sampling.repetition_penalty != 1:
            self.occurred = genesis.zeros(batch, model.spec.vocab_size, dtype=genesis.bool, device=self.device)
        self.generator = None if sampling.greedy else genesis.Generator(device=self.device)
        self._read_before: set[tuple[int, bool]] = set()
        self._captured: set[tuple[int, bool]] = set()
        self._last: tuple[int, Tensor] | None = None  # how many tokens of the last chunk count, and which is the last
        self._seed(seed)

    @classmethod
    def of(cls, model: Any, batch: int, capacity: int, sampling: Sampling, seed: int | None = None,
           cache: KVCache | None = None) -> Decoder:
        """A decoder; for a cache that had one for this model and sampling that one, whose step is captured already."""
        kept = None if cache is None else cache.decoder
        if isinstance(kept, Decoder) and kept._serves(model, batch, sampling):
            kept._begin(seed)
            return kept
        if cache is None:
            return cls(model, batch, capacity, sampling, seed)
        made = cls(_twin(model), batch, capacity, sampling, seed, cache)
        cache.keep(made, model)
        return made

    def _serves(self, model: Any, batch: int, sampling: Sampling) -> bool:
        return vars(self.model) is vars(model) and type(self.model) is type(model) and (
            self.batch, self.sampling) == (batch, sampling) and self.device == next(model.parameters()).device

    def _begin(self, seed: int | None) -> None:
        """Be as a new decoder is, but for its step: of prompts a program for each length would be kept."""
        genesis.eval(*self.model.parameters(), *self.model.buffers())
        self.cache.require(self.model, self.batch)
        genesis.eval(*self.cache.tensors())
        if self.occurred is not None:
            self.occurred.zero_()
        self._read_before, self._captured = set(), set()
        self.__dict__.pop("_following", None)
        self._seed(seed)

    def _seed(self, seed: int | None) -> None:
        if self.generator is not None:
            self.generator.seed() if seed is None else self.generator.manual_seed(seed)
            _seed_alike(self.generator, self.model.tp_mesh)

    @cached_property
    def _next(self) -> Callable[[Tensor, int | None], Step]:
        """`_computed`, compiled; what compiles is imported when the first token is there already."""
        return genesis.compile(self._computed)

    @cached_property
    def _following(self) -> Callable[[Tensor, int | None, Tensor], Tensor]:
        return genesis.compile(self._read)

    def prefill(self, ids: Tensor | Sequence[Sequence[int]], padding: Tensor | None = None,
                chunk: int = PREFILL_CHUNK) -> Step:
        """Read prompts, (B, T), of which each row begins behind its padding; choose the first tokens.

        Tokens are shared out on the host, where they came from: on the device that would be another program for each
        length. Those of one chunk that lies on the device, of a length that is read as it is, stay there.

        Raises:
            ValueError: there is padding behind tokens that the cache holds.
        """
        if padding is not None and self.cache.seen:
            raise failure("generate", f"prompts of unequal lengths behind the {self.cache.seen} tokens of a cache: "
                          "their padding would stand inside of the text", error=ValueError,
                          hint="one call for each length, with a cache for its rows alone")
        if not self.cache.seen:  # where a read before was interrupted its padding is there still
            self.cache.padding = padding
        width = ids.shape[1] if isinstance(ids, Tensor) else len(ids[0])
        whole, sizes = self.cache.seen + width, [min(chunk, width - start) for start in range(0, width, chunk)]
        lengths = [self._length(size) for size in sizes]
        given = ids if lengths == [width] and self.occurred is None and self._lies_whole(ids) else None
        rows: list[list[int]] = []
        if given is None:
            rows = ids.tolist() if isinstance(ids, Tensor) else [list(row) for row in ids]
            self._note_prompts(rows, padding)
        last, read = None, set()
        for number, (size, length) in enumerate(zip(sizes, lengths, strict=True)):
            start = number * chunk
            tokens = given if given is not None else genesis.tensor(
                [row[start:start + size] + [0] * (length - size) for row in rows], dtype=genesis.int64,
                device=self.device)
            last = self._read_part(tokens, size, whole, lengths[number + 1:].count(length))
            read.add((length, self.cache.first))
        self._read_before |= read
        assert last is not None
        return self._chosen(last)

    def _length(self, tokens: int) -> int:
        """How many tokens a chunk of so many is read as: more, where what follows its last token is never seen."""
        spec, padded = self.model.spec, padded_length(tokens)
        if self.device.type not in self.padded_on or (spec.rotary is not None
                                                      and self.model.model.rotary_emb.by_length):
            return tokens
        table = not spec.position_table or self.cache.seen + padded <= spec.position_table
        return padded if table and padded <= self.cache.room() else tokens

    def _lies_whole(self, ids: Tensor | Sequence[Sequence[int]]) -> TypeGuard[Tensor]:
        """Are these tokens a memory of the device's as it is, which a program can read without another for its size?"""
        if not isinstance(ids, Tensor) or ids.device != self.device or ids.dtype is not genesis.int64 or (
                ids.part is not None):
            return False
        genesis.eval(ids)
        return True

    def _read_part(self, tokens: Tensor, real: int, whole: int, later: int) -> Tensor:
        """Read a chunk, (B, length), of which the first so many tokens count, and behind which as many more of its
        length follow; what the last of them predicts.

        Tokens behind the last do not count: those before do not see them, and the next ones take their slots.
        """
        if self._last is None or self._last[0] != real:
            self._last = real, genesis.tensor([real - 1], dtype=genesis.int64, device=self.device)
        by_length = self.model.model.reserve(tokens, self.cache, real) is not None
        logits = self._reader(tokens.shape[1], later)(tokens, whole if by_length else None, self._last[1])
        genesis.eval(logits, *self.cache.tensors())
        self.cache.settle()
        return logits

    def _reader(self, length: int, later: int) -> Callable[[Tensor, int | None, Tensor], Tensor]:
        """What reads so many tokens: it is captured, and replayed from then on, where as many chunks of this length
        follow as a capture is worth, or one was a part of an earlier prompt. A text's first chunk looks at itself only:
        it is another program than those behind it."""
        kind = length, self.cache.first
        if (later < WORTH or self.cache.first) and kind not in self._read_before | self._captured:
            return self._read
        self._captured.add(kind)
        return self._following

    def _read(self, tokens: Tensor, length: int | None, last: Tensor) -> Tensor:
        return self.model.following(tokens, length, self.cache, last)

    def step(self, tokens: Tensor) -> Step:
        """Read one token of each row, (B,); choose the next."""
        step = self._next(tokens, self.model.model.reserve(tokens.unsqueeze(1), self.cache))
        self.cache.settle()
        return step

    def _computed(self, tokens: Tensor, length: int | None) -> Step:
        return self._chosen(self.model.following(tokens.unsqueeze(1), length, self.cache))

    def _chosen(self, logits: Tensor) -> Step:
        tokens, scores = self.sampling.choose(logits, self.occurred, self.generator)
        if self.occurred is not None:
            counts = genesis.zeros(self.occurred.shape, dtype=genesis.int32, device=tokens.device)
            counts = counts.scatter_add(1, tokens.unsqueeze(1), genesis.ones_like(tokens, dtype=genesis.int32)[:, None])
            self.occurred.logical_or_(counts > 0)
        return Step(tokens, scores)

    def _note_prompts(self, rows: list[list[int]], padding: Tensor | None) -> None:
        """Remember which tokens occurred, for the penalty."""
        if self.occurred is None:
            return
        import numpy as np
        occurred = np.zeros(self.occurred.shape, dtype=np.bool_)
        for row, tokens, before in zip(occurred, rows, [0] * len(rows) if padding is None else padding.tolist(),
                                       strict=True):
            row[[token for token in tokens[before:] if 0 <= token < len(row)]] = True  # the table says what is none
        self.occurred.logical_or_(genesis.tensor(occurred, device=self.device))


def _twin(model: Any) -> Any:
    """Another object with the attributes of this one, and with all that they become: there is one dictionary of them.

    What is captured holds what it was captured of. Of the twin it holds the parts and the weights, and when the model
    itself is dropped the cache is told (`KVCache.keep`), and drops these.
    """
    twin = object.__new__(type(model))
    object.__setattr__(twin, "__dict__", vars(model))
    return twin


def _seed_alike(generator: genesis.Generator, mesh: DeviceMesh | None) -> None:
    """Give processes that share a model the seed of the first: they choose the same tokens."""
    if mesh is not None:
        from genesis.distributed import broadcast_object_list
        told: list[int] = [generator.initial_seed()]
        broadcast_object_list(told, group=mesh.get_group(), group_src=0)
        generator.manual_seed(told[0])


def left_padded(prompts: Sequence[Sequence[int]], device: Any, fill: int = 0) -> tuple[Tensor, Tensor | None]:
    """Prompts of unequal lengths as rows that end together, and how much each was padded; None where none was.

    >>> left_padded([[1, 2, 3], [4]], None)
    (tensor([[1, 2, 3],
            [0, 0, 4]]), tensor([0, 2]))
    """
    if any(isinstance(prompt, int) for prompt in prompts):
        raise failure("generate", "a list of tokens is one prompt, not several", error=TypeError,
                      hint="[tokens] for one prompt")
    if not prompts or not all(prompts):
        raise ValueError("generate: every prompt needs a token at least")
    for token in chain.from_iterable(prompts):
        if not hasattr(token, "__index__"):
            raise failure("generate", f"{token!r} is no token: tokens are integers", error=TypeError)
    longest = max(map(len, prompts))
    rows = [[fill] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
    ids = genesis.tensor(rows, dtype=genesis.int64, device=device)
    if all(len(prompt) == longest for prompt in prompts):
        return ids, None
    return ids, genesis.tensor([longest - len(prompt) for prompt in prompts], device=device)


def generate(model: Any, ids: Tensor | Sequence[Sequence[int]], max_new_tokens: int = 128, temperature: float = 1.0,
             top_k: int | None = None, top_p: float = 1.0, min_p: float = 0.0, repetition_penalty: float = 1.0,
             stop: Sequence[int] | int | None = None, seed: int | None = None,
             attention_mask: Tensor | Sequence[Sequence[int]] | None = None, cache: KVCache | None = None,
             streamer: Callable[[Tensor], Any] | Streamer | None = None, pad_token_id: int | None = None) -> Tensor:
    """Continue texts.

    Args:
        model: a `CausalLM`.
        ids: (B, T) tokens, int64, or lists of tokens of unequal lengths.
        max_new_tokens: how many to add at most.
        temperature, top_k, top_p, min_p, repetition_penalty: see `Sampling`; a temperature of 0 takes the likeliest.
        stop: tokens that end a row; they are part of it.
        seed: of the draws; None for another text each time.
        attention_mask: (B, T), zero for padding, which must lie before the text.
        cache: with the tokens before, or empty with room for all; a new one by default. Afterwards it holds all but the
            last new token, which the next call's prompts begin with.
        streamer: called with each step's (B,) tokens; or an object such as transformers' `TextStreamer`, whose `put`
            gets the prompts first and then these, and whose `end` is called behind the last ones.
        pad_token_id: what follows a row that has ended; the first of `stop` by default, or 0.

    Returns:
        (B, T + new tokens): the prompts, left-padded, and what follows.

    Raises:
        TypeError: `stop` is a string, or tokens are no integers.
        ValueError: an empty prompt, a mask of another shape or beside lists, padding behind a text or behind what a
            cache holds, no room in the cache or in a table of positions, a cache of another model's or batch's, or
            fewer than no new tokens.

    >>> from genesis.models import LlamaConfig, LlamaForCausalLM
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
    ...                                      num_attention_heads=2))
    >>> generate(model, genesis.tensor([[1, 2, 3]]), max_new_tokens=4, seed=0).shape
    genesis.Size([1, 7])
    """
    stops = _stop_tokens(stop)
    fill = pad_token_id if pad_token_id is not None else (stops[0] if stops else 0)
    device = next(model.parameters()).device
    padding = None
    if hasattr(ids, "shape"):
        prompts = _rows_of_tokens(ids)
        if attention_mask is not None:
            padding = _padding_of(_tensor(attention_mask), prompts).to(device)
    elif attention_mask is not None:
        raise failure("generate", "prompts as lists are padded here, so that they take no attention_mask",
                      error=ValueError, hint="leave attention_mask out, or give ids as a tensor")
    else:
        prompts, padding = left_padded(ids, "cpu", fill)
        padding = None if padding is None else padding.to(device)
    steps = decode(model, prompts, max_new_tokens, Sampling(temperature, top_k, top_p, min_p, repetition_penalty), seed,
                   padding, cache)
    told: list[list[int] | Tensor] = []
    ended = [False] * prompts.shape[0]
    put = streamer.put if isinstance(streamer, Streamer) else streamer
    if isinstance(streamer, Streamer):
        streamer.put(prompts)
    with closing(steps):  # however it ends, an exception of the streamer's too, dropout is what it was
        for step in steps:
            tokens = step.tokens
            told.append(tokens)
            if stops:
                chosen = [fill if over else token for over, token in zip(ended, tokens.tolist(), strict=True)]
                told[-1] = chosen
                if any(ended):
                    tokens = genesis.tensor(chosen, dtype=genesis.int64, device=device)
                ended = [old or token in stops for old, token in zip(ended, chosen, strict=True)]
            if put is not None:
                put(tokens)
            if stops and all(ended):
                break
    if isinstance(streamer, Streamer):
        streamer.end()
    # Put together on the host: on the device it would be another program for each number of tokens.
    columns = [x.tolist() if isinstance(x, Tensor) else x for x in told]
    rows = [row + [column[i] for column in columns] for i, row in enumerate(prompts.tolist())]
    return genesis.tensor(rows, dtype=genesis.int64, device=device)


def _stop_tokens(stop: Any) -> list[int]:
    """One token or several, of a tensor or an array as well.

    Raises:
        TypeError: some are no integers.
    """
    given = stop.tolist() if hasattr(stop, "tolist") else stop
    stops = [] if given is None else list(given) if isinstance(given, (Sequence, Set)) and not isinstance(
        given, str) else [given]
    if any(isinstance(x, str) for x in stops):
        raise failure("generate", f"stop={stop!r} has strings, and a model knows tokens only", error=TypeError,
                      hint="tokenizer.encode(...) for tokens; stream_generate(model, tokenizer, ...) ends at strings")
    for token in stops:
        if not hasattr(token, "__index__"):
            raise failure("generate", f"stop has {token!r}, which is no token: tokens are integers", error=TypeError)
    return [int(token) for token in stops]


def _tensor(given: Any) -> Tensor:
    """A tensor, or an array or lists as one."""
    return given if isinstance(given, Tensor) else genesis.tensor(given)


def _rows_of_tokens(ids: Any) -> Tensor:
    """A tensor, or an array of numpy's, as (B, T) int64.

    Raises:
        ValueError: it has another number of dimensions, or no element.
        TypeError: it holds no integers.
    """
    rows = _tensor(ids)
    if rows.ndim != 2 or not rows.numel():
        raise failure("generate", "prompts are of shape (batch, tokens), a token each at least", [("ids", rows)],
                      "ids.unsqueeze(0) for one prompt", ValueError)
    if rows.dtype.kind != "int":
        raise failure("generate", "tokens are integers", [("ids", rows)], "ids.long()", TypeError)
    return rows.long()


def decode(model: Any, ids: Tensor, max_new_tokens: int, sampling: Sampling, seed: int | None = None,
           padding: Tensor | None = None, cache: KVCache | None = None) -> Generator[Step, None, None]:
    """The steps of `generate`, for as long as they are asked for. Dropout is off until it ends or is closed."""
    if max_new_tokens < 0:
        raise ValueError(f"generate: max_new_tokens={max_new_tokens} is out of range: it is 0 or more")
    if max_new_tokens == 0:
        return
    training = [module for module in model.modules() if module.training]
    model.eval()
    sharded = [x for x in (model, model.model) if getattr(x, "shows_parts", False)]
    try:
        for module in sharded:  # what their forwards would gather: a step calls the modules inside
            module.unshard()
        with genesis.no_grad():
            decoder = Decoder.of(model, ids.shape[0], ids.shape[1] + max_new_tokens, sampling, seed, cache)
            step = decoder.prefill(ids, padding)
        yield step
        for _ in range(max_new_tokens - 1):
            with genesis.no_grad():
                step = decoder.step(step.tokens)
            yield step
    finally:
        for module in sharded:
            module.reshard()
        for module in training:
            module.training = True


def _padding_of(attention_mask: Tensor, prompts: Tensor) -> Tensor:
    """(B, T) → (B,), how many zeros each row begins with.

    Raises:
        ValueError: it is of another shape than the prompts, a row has no one, or a zero follows a one.
    """
    if attention_mask.shape != prompts.shape:
        raise failure("generate", "the attention mask has a number for each token",
                      [("attention_mask", attention_mask), ("ids", prompts)], error=ValueError)
    mask = attention_mask.ne(0)
    padding = (~mask).sum(1)
    if bool((padding == mask.shape[1]).any()):
        raise ValueError("generate: every prompt needs a token at least: a row of the attention mask is 0 everywhere")
    columns = genesis.arange(mask.shape[1], device=mask.device)
    if bool((mask != (columns >= padding.unsqueeze(1))).any()):
        raise ValueError("generate: padding must lie before the text; let the tokenizer pad on the left")
    return padding
