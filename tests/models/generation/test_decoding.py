"""The loop: rows that end, caches that are full, saved and read again, prompts in chunks."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genesis
from genesis import engine
from genesis.models import Architecture, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM
from genesis.models.generation import GrowingCache, SlidingWindowCache, StaticCache, cache_for, generate
from genesis.models.generation.decoding import Decoder, decode
from genesis.models.generation.sampling import Sampling
from genesis.models.lora import LoRA
from genesis.models.text import write_byte_tokenizer
from tests.faults.events import Traced
from tests.faults.events import chosen as chosen_of
from tests.sweeping import by_default, each_value, sweep_but

SIZES = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "max_position_embeddings": 128, "initializer_range": 0.3}


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    genesis.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES)).eval()


def test_a_row_that_has_ended_is_filled(model: LlamaForCausalLM) -> None:
    free = generate(model, [[1, 2], [3, 4]], 12, temperature=0).tolist()
    stop = free[0][4]
    stopped = generate(model, [[1, 2], [3, 4]], 12, temperature=0, stop=stop, pad_token_id=49).tolist()
    for row, whole in zip(stopped, free, strict=True):
        end = whole.index(stop, 2) if stop in whole[2:] else len(row)
        assert row[:end + 1] == whole[:end + 1] and set(row[end + 1:]) <= {49}


def test_tokens_that_lie_on_the_device_as_they_are_read_stay_there(
        model: LlamaForCausalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their way to the host and back is a fifth of a millisecond of a prompt of 2,048. A view of other memory would be
    another program."""
    read: list[Any] = []
    part = Decoder._read_part

    def noted(self: Decoder, tokens: Any, *given: int) -> Any:
        read.append(tokens)
        return part(self, tokens, *given)
    monkeypatch.setattr(Decoder, "_read_part", noted)
    ids = genesis.tensor([list(range(1, 10))])
    longer = genesis.cat([ids, ids], 1)
    wanted = None
    for given, stays in ((ids, True), (ids + 0, True), (longer[:, :9], False), (ids.int(), False),
                         (ids.tolist(), False)):
        with genesis.no_grad():
            scores = Decoder(model, 1, 40, Sampling(temperature=0)).prefill(given).scores
        assert (read.pop() is given) == stays
        wanted = scores if wanted is None else wanted
        assert bool((scores == wanted).all())
    with genesis.no_grad():
        decoder = Decoder(model, 1, 40, Sampling(temperature=0, repetition_penalty=1.3))
        decoder.prefill(ids)
    assert read.pop() is not ids, "which tokens occurred is noted on the host"
    assert decoder.occurred is not None and set(ids[0].tolist()) < set(decoder.occurred.nonzero()[:, 1].tolist())


def test_a_read_leaves_its_keys_and_values_alone(model: LlamaForCausalLM) -> None:
    """So that a step behind a prompt of any length is the same as one behind a step."""
    with genesis.no_grad():
        decoder = Decoder(model, 1, 40, Sampling(temperature=0))
        assert isinstance(decoder.cache, StaticCache)
        step = decoder.prefill([[1, 2, 3]])
        assert decoder.cache.slots is None
        for _ in range(4):
            step = decoder.step(step.tokens)
            assert decoder.cache.slots is None
        assert genesis.explain(decoder._next).captures == 1


@pytest.mark.parametrize("kind", ["static", "growing", "window"])
def test_a_cache_that_is_cleared_takes_another_text(kind: str) -> None:
    """Whatever was read into it, padding too; the same memory, so that what knows it is not captured again."""
    genesis.manual_seed(0)
    model = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=4 if kind == "window" else None)).eval()
    cache = {"static": StaticCache(model.spec, 2, 24), "growing": GrowingCache(model.spec),
             "window": SlidingWindowCache(model.spec, 2, 24)}[kind]
    texts: list[list[list[int]]] = [[[1, 2, 3], [4]], [[5, 6], [7, 8]], [[9], [1, 2, 3, 4, 5]]]
    alone = [generate(model, text, 6, temperature=0).tolist() for text in texts]
    held = [id(tensor) for tensor in cache.tensors()]
    for text, wanted in zip(texts, alone, strict=True):
        assert generate(model, text, 6, temperature=0, cache=cache).tolist() == wanted
        assert cache.seen == max(map(len, text)) + 5 and cache.filled is not None and cache.filled.item() == cache.seen
        cache.clear()
        assert (cache.seen, cache.padding) == (0, None)
    assert [id(tensor) for tensor in cache.tensors()] == held


@pytest.mark.parametrize("sampling", [
    {"temperature": 0}, {"seed": 3}, {"temperature": 0, "repetition_penalty": 9.0}], ids=["greedy", "drawn", "penalty"])
def test_the_next_call_with_a_cache_replays_the_step_of_the_one_before(model: LlamaForCausalLM,
                                                                       sampling: dict[str, Any]) -> None:
    """Behind its tokens, and for another text; with other options it is another step."""
    cache = cache_for(model, 2, 64)
    for first in (1, 2, 3):
        prompts = [[first, 2, 3], [4, first, 7]]
        wanted = generate(model, prompts, 6, **sampling).tolist()
        assert generate(model, prompts, 6, cache=cache, **sampling).tolist() == wanted
        generate(model, [row[-1:] for row in wanted], 4, cache=cache, **sampling)
        cache.clear()
    step = cache.decoder._next
    assert genesis.explain(step).captures == 1
    generate(model, prompts, 3, temperature=0.5, cache=cache)
    assert cache.decoder._next is not step


def test_a_copy_of_a_cache_has_no_copy_of_the_model(model: LlamaForCausalLM) -> None:
    cache = cache_for(model, 1, 64)
    last = generate(model, [[1, 2, 3]], 4, temperature=0, cache=cache)[:, -1:]
    copied = deepcopy(cache)
    assert copied.decoder is None and cache.decoder is not None
    found = [generate(model, last, 6, temperature=0, cache=held).tolist() for held in (copied, cache)]
    assert found[0] == found[1] and copied.decoder is not cache.decoder


def test_a_cache_keeps_no_model_alive(model: LlamaForCausalLM) -> None:
    """Its decoder goes with the model that the user drops, whose weights may be most of a GPU's memory."""
    own = deepcopy(model)
    cache = cache_for(own, 1, 64)
    last = generate(own, [[1, 2, 3]], 4, temperature=0, cache=cache)[:, -1:]
    step = cache.decoder._next
    generate(own, last, 4, temperature=0, cache=cache)
    assert cache.decoder._next is step
    dropped = [weakref.ref(x) for x in (own, own.lm_head, own.lm_head.weight, step)]
    del own, step
    gc.collect()
    assert [x() for x in dropped] == [None] * 4 and cache.decoder is None
    cache.clear()
    wanted = generate(model, [[1, 2, 3]], 6, temperature=0).tolist()
    assert generate(model, [[1, 2, 3]], 6, temperature=0, cache=cache).tolist() == wanted
    held = weakref.ref(cache.layers[0].keys)
    del cache
    gc.collect()
    assert held() is None, "nor does a model keep a cache"


def test_another_model_takes_the_decoder_of_a_cache(model: LlamaForCausalLM) -> None:
    """That the model before is dropped later is nothing to it."""
    before = deepcopy(model)
    with genesis.no_grad():
        before.lm_head.weight.neg_()
    cache = cache_for(model, 1, 64)
    generate(before, [[1, 2, 3]], 4, temperature=0, cache=cache)
    cache.clear()
    wanted = generate(model, [[1, 2, 3]], 4, temperature=0).tolist()
    assert generate(model, [[1, 2, 3]], 4, temperature=0, cache=cache).tolist() == wanted
    kept = cache.decoder
    del before
    gc.collect()
    assert cache.decoder is kept


@pytest.mark.parametrize("change", [
    lambda model: model.lm_head.register_forward_hook(lambda module, given, found: -found),
    lambda model: setattr(model, "lm_head", genesis.nn.Linear(32, 50)),
    lambda model: setattr(model.model.layers[0], "mlp", genesis.nn.Linear(32, 32)),
    lambda model: setattr(model, "following", lambda *given: -type(model).following(model, *given)),
    lambda model: setattr(model, "spec", replace(model.spec, vocab_size=50)),
    lambda model: model.load_state_dict({name: -x for name, x in model.state_dict().items()}, assign=True),
    lambda model: model.half().float(),
    lambda model: LoRA(model, 2).merge(),
    lambda model: genesis.compile(model)],
    ids=["hook", "head", "part", "method", "attribute", "loaded", "cast", "merged", "compiled"])
def test_a_model_that_changes_between_calls_gives_what_it_gives(model: LlamaForCausalLM,
                                                                change: Callable[[Any], Any]) -> None:
    own = deepcopy(model)
    cache = cache_for(own, 1, 64)
    for _ in range(2):
        generate(own, [[1, 2, 3]], 4, temperature=0, cache=cache)
        cache.clear()
    change(own)
    wanted = generate(own, [[1, 2, 3]], 6, temperature=0).tolist()
    for _ in range(2):
        assert generate(own, [[1, 2, 3]], 6, temperature=0, cache=cache).tolist() == wanted
        cache.clear()


def test_a_shallow_copy_of_a_cache_has_tokens_of_its_own(model: LlamaForCausalLM) -> None:
    """Tokens are written where they lie: those of one would be written over by the other's."""
    cache = cache_for(model, 1, 64)
    last = generate(model, [[1, 2, 3]], 4, temperature=0, cache=cache)[:, -1:]
    copied = copy(cache)
    wanted = generate(model, last, 6, temperature=0, cache=cache).tolist()
    assert generate(model, last, 6, temperature=0, cache=copied).tolist() == wanted


@pytest.mark.parametrize("kind", ["static", "window"])
@pytest.mark.parametrize("low", [genesis.bfloat16, genesis.float16])
def test_texts_go_on_under_autocast(kind: str, low: Any) -> None:
    """Keys and values are computed in the low dtype there, and a cache of the weights' holds them as they are. Scores
    differ by roundings from those with a cache that grows, whose products are of other sizes."""
    genesis.manual_seed(0)
    model = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=4 if kind == "window" else None)).eval()
    found = []
    with genesis.autocast("cpu", dtype=low):
        for cache in ((StaticCache if kind == "static" else SlidingWindowCache)(model.spec, 2, 24),
                      GrowingCache(model.spec)):
            ids = genesis.tensor([[1, 2, 3], [4, 5, 6]])
            steps = decode(model, ids, 8, Sampling(temperature=0), cache=cache)
            found.append([(step.tokens.tolist(), step.scores.numpy()) for step in steps])
    for (tokens, scores), (wanted, near) in zip(*found, strict=True):
        assert tokens == wanted
        np.testing.assert_allclose(scores, near, atol=8 * float(genesis.finfo(low).eps) * abs(near).max())


def test_a_prompt_in_chunks_is_the_prompt(model: LlamaForCausalLM) -> None:
    prompt = genesis.tensor([list(range(1, 30))])
    found = []
    for chunk in (4, 29, 100):
        with genesis.no_grad():
            found.append(Decoder(model, 1, 40, Sampling(temperature=0)).prefill(prompt, chunk=chunk).logprobs)
    assert (found[0] - found[1]).abs().max().item() < 1e-4 and bool((found[1] == found[2]).all())


@pytest.mark.parametrize("scaling", [
    {"rope_type": "longrope", "long_factor": [1.0, 2.0, 3.0, 4.0], "short_factor": [1.0] * 4, "factor": 4.0,
     "original_max_position_embeddings": 8}, {"rope_type": "dynamic", "factor": 4.0}], ids=lambda x: x["rope_type"])
def test_positions_of_all_chunks_go_by_the_whole_prompt(scaling: dict[str, Any]) -> None:
    """Where angles depend on a text's length, the first chunk of a long prompt has those of a long text."""
    model = LlamaForCausalLM(LlamaConfig(**{**SIZES, "max_position_embeddings": 8},
                                         rope_parameters={"rope_theta": 100.0, **scaling})).eval()
    prompt = genesis.tensor([list(range(1, 20))])
    with genesis.no_grad():
        some, whole = (Decoder(model, 1, 40, Sampling(temperature=0)).prefill(prompt, chunk=chunk).logprobs
                       for chunk in (4, 19))
        expected = genesis.nn.functional.log_softmax(model(prompt).logits[:, -1], -1)
    np.testing.assert_allclose(some.numpy(), expected.numpy(), atol=1e-4)
    np.testing.assert_allclose(whole.numpy(), expected.numpy(), atol=1e-4)


@pytest.mark.parametrize("kind", ["static", "growing", "window"])
def test_chunks_of_a_long_prompt_are_replays(kind: str) -> None:
    """Where a capture is worth it; few are recorded, unless a prompt before had some as long. So is the first."""
    model = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=4 if kind == "window" else None)).eval()
    rows, padding = genesis.tensor([[*range(1, 22)], [0, 0, 0, *range(1, 19)]]), genesis.tensor([0, 3])
    found = []
    for chunk, captures, hits in ((2, 1, 8), (4, 0, 0), (100, 0, 0)):
        cache = {"static": StaticCache, "growing": GrowingCache, "window": SlidingWindowCache}[kind](
            *(model.spec, 2, 60) if kind != "growing" else (model.spec,))
        with genesis.no_grad():
            decoder = Decoder(model, 2, 60, Sampling(temperature=0), cache=cache)
            step = decoder.prefill(rows, padding, chunk=chunk)
            told = genesis.explain(decoder._following)
            if kind != "growing":  # whose chunks differ in their keys' sizes
                assert (told.captures, told.hits) == (captures, hits), told
            found.append([step.logprobs, decoder.step(step.tokens).logprobs,
                          decoder.prefill(rows[:, :8], chunk=chunk).logprobs])
            told = genesis.explain(decoder._following)
            if kind != "growing" and chunk == 4:
                assert (told.captures, told.hits) == (1, 1), told
    for whole, *others in zip(*found[::-1], strict=True):
        for some in others:
            assert (some - whole).abs().max().item() < 1e-4


@pytest.mark.parametrize("kind", [StaticCache, SlidingWindowCache])
def test_all_chunks_of_a_length_are_two_programs(kind: type[Any]) -> None:
    """The text's first, which looks at itself, and all behind it; so it is with the next prompt, in another cache."""
    model = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=4)).eval()
    genesis.eval(*model.parameters(), *model.buffers())
    found: list[int] = []
    for _ in range(2):
        plans: list[Any] = []
        with genesis.no_grad(), engine.observe(plans.append):
            decoder = Decoder(model, 1, 40, Sampling(temperature=0), cache=kind(model.spec, 1, 40))
            decoder.prefill(genesis.tensor([list(range(1, 13))]), chunk=4)
        found.append(sum(len(plan.graph.nodes) > 50 for plan in plans))
    assert found == [2, 0]


@pytest.mark.parametrize("kind", [StaticCache, SlidingWindowCache, GrowingCache])
@pytest.mark.parametrize("window", [None, 4, 40])
@pytest.mark.parametrize("padded", [False, True])
def test_the_first_tokens_of_a_cache_look_at_themselves_only(kind: type[Any], window: int | None, padded: bool,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """Their keys are theirs, not all of the capacity: where nothing else hides one attention is the plain triangle."""
    model = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=window)).eval()
    genesis.eval(*model.parameters(), *model.buffers())
    ids, padding = genesis.tensor([list(range(1, 13)), [0, 0, *range(1, 11)]]), genesis.tensor([0, 2])
    cache = kind(model.spec) if kind is GrowingCache else kind(model.spec, 2, 40)
    attention, told = genesis.nn.functional.scaled_dot_product_attention, []

    def noted(q: genesis.Tensor, k: genesis.Tensor, v: genesis.Tensor, **options: Any) -> genesis.Tensor:
        told.append((options["attn_mask"] is None, options["is_causal"], k.shape[-2]))
        return attention(q, k, v, **options)
    monkeypatch.setattr(genesis.nn.functional, "scaled_dot_product_attention", noted)
    with genesis.no_grad():
        decoder = Decoder(model, 2, 40, Sampling(temperature=0), cache=cache)
        step = decoder.prefill(ids, padding if padded else None)
    plain = not padded and window != 4
    assert told == [(plain, plain, 12)] * model.spec.layers
    present = genesis.tensor([[1] * 12, [0, 0, *[1] * 10]]) if padded else None
    positions = None if present is None else (genesis.arange(12) - padding[:, None]).clamp(min=0)
    with genesis.no_grad():
        whole = model(ids, present, positions).logits[:, -1]
    np.testing.assert_allclose(step.scores.numpy(), whole.numpy(), atol=1e-4)
    later = decoder.step(step.tokens)
    ids = genesis.cat([ids, step.tokens[:, None]], 1)
    if present is not None and positions is not None:
        present = genesis.cat([present, genesis.ones(2, 1, dtype=genesis.int64)], 1)
        positions = genesis.cat([positions, positions[:, -1:] + 1], 1)
    with genesis.no_grad():
        whole = model(ids, present, positions).logits[:, -1]
    np.testing.assert_allclose(later.scores.detach().numpy(), whole.numpy(), atol=1e-4)


@pytest.mark.parametrize("prompt", [[[7]], [[1, 2, 3, 4, 5]], [[1, 2, 3], [4, 5, 6]]], ids=["one", "five", "two rows"])
@pytest.mark.parametrize("window", [None, 4])
def test_a_step_is_captured_once(window: int | None, prompt: list[list[int]]) -> None:
    """Whatever the prompt's length was: a capture takes as long as many tokens."""
    model = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=window)).eval()
    with genesis.no_grad():
        decoder = Decoder(model, len(prompt), 40, Sampling(temperature=0))
        step = decoder.prefill(genesis.tensor(prompt), chunk=3)
        for _ in range(6):
            step = decoder.step(step.tokens)
    assert (genesis.explain(decoder._next).captures, genesis.explain(decoder._next).hits) == (1, 5)


@pytest.mark.parametrize("kind", ["static", "growing", "window"])
def test_a_cache_is_saved_and_goes_on(kind: str, tmp_path: Path) -> None:
    genesis.manual_seed(0)
    model = (MistralForCausalLM(MistralConfig(**SIZES, sliding_window=6)) if kind == "window" else
             LlamaForCausalLM(LlamaConfig(**SIZES))).eval()

    def cache() -> StaticCache | GrowingCache | SlidingWindowCache:
        if kind == "growing":
            return GrowingCache(model.spec)
        return (SlidingWindowCache if kind == "window" else StaticCache)(model.spec, 1, 40)
    prompt = [[1, 2, 3, 4, 5, 6, 7, 8, 9]]
    whole = generate(model, [[*prompt[0], 10, 11]], 6, temperature=0).tolist()[0][11:]
    kept = cache()
    with genesis.no_grad():
        model(genesis.tensor(prompt), cache=kept)
    kept.save(str(tmp_path / "prompt.safetensors"), model="llama")
    again = cache()
    assert again.load_into(str(tmp_path / "prompt.safetensors")) == {"model": "llama"}
    assert generate(model, [[10, 11]], 6, temperature=0, cache=again).tolist()[0][2:] == whole


WINDOWS = [1, 2, 6, 100]
PAIRS = [("static", "window"), ("window", "static"), ("growing", "static"), ("static", "growing"),
         ("window", "growing"), ("growing", "window")]
PROMPTS = [[[1, 2, 3]], [[1, 2, 3, 4, 5, 6, 7, 8, 9], [4, 5]]]


@each_value
@pytest.mark.parametrize(("rows", "kinds", "window"), sweep_but(
    lambda rows, kinds, window: (PROMPTS.index(rows) + PAIRS.index(kinds) + WINDOWS.index(window)) % 3 == 0,
    PROMPTS, PAIRS, WINDOWS))
def test_a_saved_cache_goes_on_in_one_of_another_kind(rows: list[list[int]], kinds: tuple[str, str], window: int,
                                                      tmp_path: Path) -> None:
    """`cache_for` chooses the kind by the capacity: a short prompt's is static, that of a long answer has windows."""
    kind, other = kinds
    genesis.manual_seed(0)
    model = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=window)).eval()

    def cache(kind: str) -> StaticCache | GrowingCache | SlidingWindowCache:
        if kind == "growing":
            return GrowingCache(model.spec)
        return (SlidingWindowCache if kind == "window" else StaticCache)(model.spec, len(rows), 40)
    kept, again = cache(kind), cache(other)
    first = generate(model, rows, 1, temperature=0, cache=kept)[:, -1:]
    kept.save(tmp_path / "prompt")
    again.load_into(tmp_path / "prompt")
    whole = generate(model, rows, 9, temperature=0)[:, -8:]
    assert generate(model, first, 8, temperature=0, cache=again)[:, 1:].tolist() == whole.tolist()


def test_a_cache_that_does_not_fit_is_refused(model: LlamaForCausalLM, tmp_path: Path) -> None:
    path = str(tmp_path / "cache.safetensors")
    kept = StaticCache(model.spec, 1, 8)
    generate(model, [[1, 2, 3]], 1, temperature=0, cache=kept)
    kept.save(path)
    for other, message in (
            (StaticCache(model.spec, 2, 8), r"size of a head\) are \(1, 2, 8\) .* this cache's \(2, 2, 8\)"),
            (StaticCache(replace(model.spec, head_dim=4), 1, 8), r"this cache's \(1, 2, 4\)"),
            (StaticCache(model.spec, 1, 8, dtype=genesis.bfloat16), "in genesis.bfloat16"),
            (StaticCache(replace(model.spec, layers=3, windows=(), experts=()), 1, 8), "2 layers, this one has 3")):
        before = [x.tolist() for x in other.tensors()]
        with pytest.raises(ValueError, match=message):
            other.load_into(path)
        assert other.seen == 0 and [x.tolist() for x in other.tensors()] == before


def test_a_cache_of_another_window_is_refused(model: LlamaForCausalLM, tmp_path: Path) -> None:
    """Tokens that a window had forgotten cannot be looked back to."""
    short = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=3)).eval()
    kept = SlidingWindowCache(short.spec, 1, 16)
    generate(short, [[1, 2, 3, 4, 5]], 1, temperature=0, cache=kept)
    kept.save(tmp_path / "cache")
    with pytest.raises(ValueError, match="the last 2 of 5 tokens, and this model looks back further: 5"):
        StaticCache(model.spec, 1, 16).load_into(tmp_path / "cache")


@pytest.mark.parametrize("contents", [
    {"x": 1}, [1], 3, {"format": "genesis-kv-cache-1"},
    {"format": "genesis-kv-cache-1", "seen": "2", "padding": None, "layers": [], "metadata": {}},
    {"format": "genesis-kv-cache-1", "seen": 2, "padding": None, "layers": [{"keys": 1, "values": 2}], "metadata": {}},
    {"format": "genesis-kv-cache-1", "seen": 2, "padding": None, "metadata": {},
     "layers": [{"keys": genesis.ones(1, 2, 3, 4), "values": genesis.ones(1, 2, 3, 4)}]}], ids=str)
def test_a_file_that_holds_no_cache(contents: Any, model: LlamaForCausalLM, tmp_path: Path) -> None:
    genesis.save(contents, tmp_path / "file")
    with pytest.raises(ValueError, match=r"holds no cache|is damaged"):
        StaticCache(model.spec, 1, 8).load_into(tmp_path / "file")


@pytest.mark.parametrize("capacity", [9, 16, 64])
def test_a_prompt_cache_goes_on_in_another_capacity(capacity: int, model: LlamaForCausalLM, tmp_path: Path) -> None:
    """Of 24 slots five are filled; where fewer than those and the answer's are left, there is no room."""
    kept = StaticCache(model.spec, 1, 24)
    with genesis.no_grad():
        model(genesis.tensor([[1, 2, 3, 4, 5]]), cache=kept)
    kept.save(str(tmp_path / "prompt"))
    again, small = StaticCache(model.spec, 1, capacity), StaticCache(model.spec, 1, 4)
    again.load_into(str(tmp_path / "prompt"))
    whole = model.generate([[1, 2, 3, 4, 5, 6]], 3, temperature=0).tolist()[0][6:]
    assert model.generate([[6]], 3, temperature=0, cache=again).tolist()[0][1:] == whole
    with pytest.raises(ValueError, match="it has 5 tokens, this cache 4 slots"):
        small.load_into(str(tmp_path / "prompt"))


@pytest.mark.parametrize(("sizes", "batch", "dtype", "message"), [
    ({}, 2, genesis.float32, r"a cache for .* \(2, 2, 8\); the model and the prompts have \(1, 2, 8\)"),
    ({"kv_heads": 4}, 1, genesis.float32, r"\(1, 4, 8\)"),
    ({"layers": 1}, 1, genesis.float32, "a cache of 1 layers for a model of 2"),
    ({}, 1, genesis.bfloat16, "a cache of genesis.bfloat16 on cpu for a model of genesis.float32 on cpu")])
def test_a_cache_of_another_model_is_refused(sizes: dict[str, int], batch: int, dtype: Any, message: str,
                                             model: LlamaForCausalLM) -> None:
    cache = StaticCache(replace(model.spec, **sizes), batch, 16, dtype=dtype)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        model.generate([[1, 2]], 3, cache=cache)


@pytest.mark.parametrize(("ids", "error", "message"), [
    (genesis.tensor([1, 2]), ValueError, r"shape \(batch, tokens\).*\n  ids: .*\n.*\n  try: ids.unsqueeze"),
    (genesis.zeros(1, 0, dtype=genesis.int64), ValueError, "a token each at least"),
    (genesis.ones(1, 2), TypeError, "tokens are integers"),
    ([1, 2], TypeError, "one prompt, not several"), ([[1, 2.5]], TypeError, "2.5 is no token"),
    ([[1], ["a"]], TypeError, "'a' is no token")])
def test_prompts_of_another_form_are_refused(ids: Any, error: type[Exception], message: str,
                                             model: LlamaForCausalLM) -> None:
    with pytest.raises(error, match=message):
        model.generate(ids, 3)


@pytest.mark.parametrize("form", [list, tuple, set, np.array, genesis.tensor, lambda x: x[0], lambda x: np.int64(x[0])])
def test_stop_tokens_in_any_form(form: Any, model: LlamaForCausalLM) -> None:
    free = model.generate([[1, 2]], 12, temperature=0).tolist()[0]
    assert model.generate([[1, 2]], 12, temperature=0, stop=form([free[5]])).tolist()[0] == free[:free.index(
        free[5], 2) + 1]


@pytest.mark.parametrize("stop", [1.5, [1.5], [None], np.array([1.5])])
def test_stop_tokens_are_integers(stop: Any, model: LlamaForCausalLM) -> None:
    with pytest.raises(TypeError, match="which is no token"):
        model.generate([[1, 2]], 3, stop=stop)


def test_prompts_of_unequal_lengths_behind_a_filled_cache_are_refused(model: LlamaForCausalLM) -> None:
    """Padding hides the first slots of a cache, which are the text's there."""
    cache = StaticCache(model.spec, 2, 32)
    generate(model, [[1, 2, 3], [4, 5, 6]], 1, temperature=0, cache=cache)
    with pytest.raises(ValueError, match="unequal lengths behind the 3 tokens of a cache"):
        generate(model, [[7, 8], [9]], 4, cache=cache)
    assert cache.seen == 3 and cache.padding is None


def test_a_number_of_new_tokens(model: LlamaForCausalLM) -> None:
    assert model.generate([[1, 2]], 0).tolist() == [[1, 2]]
    with pytest.raises(ValueError, match="max_new_tokens=-1 is out of range"):
        model.generate([[1, 2]], -1)


@pytest.mark.parametrize("stop", ["x", ["x"], [3, "x"]])
def test_stop_strings_need_a_tokenizer(stop: Any, model: LlamaForCausalLM) -> None:
    with pytest.raises(TypeError, match=r"a model knows tokens only\n(.*\n)?  try: .*stream_generate"):
        model.generate([[1, 2]], 3, stop=stop)


def test_prompts_of_numpy_and_of_small_integers(model: LlamaForCausalLM) -> None:
    wanted = model.generate([[1, 2, 3]], 4, temperature=0).tolist()
    assert model.generate(np.array([[1, 2, 3]]), 4, temperature=0).tolist() == wanted
    assert model.generate(genesis.tensor([[1, 2, 3]], dtype=genesis.int32), 4, temperature=0).tolist() == wanted


def test_padding_behind_a_text_is_refused(model: LlamaForCausalLM) -> None:
    mask = genesis.tensor([[1, 1, 0]])
    with pytest.raises(ValueError, match="padding must lie before the text"):
        generate(model, genesis.tensor([[1, 2, 0]]), 3, attention_mask=mask)
    with pytest.raises(ValueError, match="every prompt needs a token"):
        generate(model, [[1], []], 3)


@pytest.mark.parametrize(("ids", "mask", "message"), [
    (genesis.tensor([[1, 2]]), genesis.ones(1, 3), r"a number for each token\n  attention_mask: .*\(1, 3\)"),
    (genesis.tensor([[1, 2]]), genesis.ones(2, 2), "a number for each token"),
    (genesis.tensor([[1, 2], [3, 4]]), genesis.tensor([[1, 1], [0, 0]]), "every prompt needs a token"),
    ([[1, 2], [3]], genesis.ones(2, 2), "take no attention_mask")])
def test_masks_of_other_prompts_are_refused(ids: Any, mask: genesis.Tensor, message: str,
                                            model: LlamaForCausalLM) -> None:
    with pytest.raises(ValueError, match=message):
        model.generate(ids, 3, attention_mask=mask)


def test_an_attention_mask_stands_for_left_padding(model: LlamaForCausalLM) -> None:
    rows = generate(model, [[1, 2, 3], [4]], 5, temperature=0)
    ids, mask = genesis.tensor([[1, 2, 3], [0, 0, 4]]), genesis.tensor([[1, 1, 1], [0, 0, 1]])
    assert generate(model, ids, 5, temperature=0, attention_mask=mask).tolist() == rows.tolist()
    alone = generate(model, [[4]], 5, temperature=0).tolist()[0]
    assert rows.tolist()[1][2:] == alone
    forms: tuple[Any, ...] = np.array, list  # as tokenizers give it
    for form in forms:
        assert generate(model, ids, 5, temperature=0, attention_mask=form(mask.tolist())).tolist() == rows.tolist()


def test_the_cache_that_suits_a_model() -> None:
    spec = {"vocab_size": 9, "dim": 8, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 4, "hidden": 8,
            "context": 16}

    class Model:
        def __init__(self, windows: tuple[int | None, ...]):
            self.spec = self.cached = Architecture(**spec, windows=windows)  # type: ignore[arg-type]

        def parameters(self) -> object:
            return iter([genesis.zeros(1)])
    assert type(cache_for(Model((None, None)), 1, 16)) is StaticCache
    assert type(cache_for(Model((4, None)), 1, 16)) is SlidingWindowCache
    assert cache_for(Model((4, 4)), 1, 16).nbytes == 2 * 2 * 3 * 4 * 4, "two layers, keys and values of three slots"


def test_dropout_is_off_and_comes_back(model: LlamaForCausalLM) -> None:
    model.train()
    first, again = (generate(model, [[1, 2]], 4, temperature=0).tolist() for _ in range(2))
    assert first == again and model.training
    model.eval()


def test_streamers_of_transformers(model: LlamaForCausalLM, tmp_path: Path) -> None:
    """One that prints, and one that a thread reads: both are told where the prompt is, and of the end."""
    transformers = pytest.importorskip("transformers")
    write_byte_tokenizer(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = transformers.TextIteratorStreamer(tokenizer, skip_prompt=True, timeout=5)
    whole = generate(model, [[7, 8, 9]], 6, temperature=0, streamer=texts).tolist()[0]
    assert "".join(texts) == tokenizer.decode(whole[3:])
    seen: list[list[int]] = []
    generate(model, [[7, 8, 9]], 6, temperature=0, streamer=lambda tokens: seen.append(tokens.tolist()))
    assert [token for row in seen for token in row] == whole[3:]


def test_a_model_trains_on_when_a_streamer_raises(model: LlamaForCausalLM) -> None:
    """Also while the exception is looked at: a notebook keeps it, and with it the frames that it came through. What was
    frozen by `eval()` stays so."""
    model.train()
    model.model.layers[0].eval()
    states = [module.training for module in model.modules()]

    def interrupted(tokens: genesis.Tensor) -> None:
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt) as kept:
        generate(model, [[1, 2]], 4, streamer=interrupted)
    assert kept.value and [module.training for module in model.modules()] == states
    model.eval()


@pytest.fixture
def padded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts are read as on a GPU."""
    monkeypatch.setattr(Decoder, "padded_on", {"cpu"})


@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 1.7}, {"temperature": 0.8, "seed": 3}], ids=str)
@pytest.mark.parametrize("prompts", [[[1, 2, 3]], [list(range(1, 30))], [[1, 2, 3, 4, 5], [4]]],
                         ids=["short", "long", "two"])
def test_what_is_read_behind_a_prompt_does_not_count(prompts: list[list[int]], options: dict[str, Any],
                                                   model: LlamaForCausalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens, and the cache for those that come next."""
    found = []
    for devices in ({"cuda"}, {"cpu"}):
        monkeypatch.setattr(Decoder, "padded_on", devices)
        cache = cache_for(model, len(prompts), 80)
        first = generate(model, prompts, 7, cache=cache, **{"temperature": 0.0, **options})
        assert cache.filled is not None
        assert cache.filled.item() == cache.seen == first.shape[1] - 1
        found.append([first, generate(model, first[:, -1:], 5, cache=cache, temperature=0)])
    assert [x.tolist() for x in found[0]] == [x.tolist() for x in found[1]]


FILES = tuple(f"models/{name}.py" for name in ("generation/caches", "generation/decoding", "transformer", "causal_lm"))


@by_default("padded-1", "window-1")
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", ["padded", "static", "growing", "window"])
def test_a_cache_goes_on_behind_an_interrupt(kind: str, layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever in these files' lines it comes, while a prompt is read or while a token is (each third of one layer's
    instants): what the cache says that it holds is there, and no padding. A window that has moved is told."""
    monkeypatch.setattr(Decoder, "padded_on", {"cpu"} if kind == "padded" else {"cuda"})
    sizes = {**SIZES, "num_hidden_layers": layers, "sliding_window": 4 if kind == "window" else None}
    model, text = MistralForCausalLM(MistralConfig(**sizes)).eval(), [1, 2, 3, 4, 5, 6, 7, 8, 9]
    with genesis.no_grad():
        expected = model(genesis.tensor([text])).logits[0].log_softmax(-1).numpy()
    spec, greedy, lines = model.spec, Sampling(temperature=0), Traced("line", FILES)
    refused = 0

    def decoder_behind(number: int) -> Decoder:
        cache = GrowingCache(spec) if kind == "growing" else (
            SlidingWindowCache if kind == "window" else StaticCache)(spec, 1, 64)
        made = Decoder(model, 1, 64, greedy, cache=cache)
        read(made, text[:number], [])
        return made

    def read(decoder: Decoder, prompt: list[int], tokens: list[int]) -> np.ndarray:
        step = decoder.prefill([prompt])
        for token in tokens:
            step = decoder.step(genesis.tensor([token]))
        return step.logprobs.numpy()
    with genesis.no_grad():
        read(decoder_behind(3), text[3:6], text[6:7])  # programs that are made once
        instants = chosen_of(lines.places(partial(read, decoder_behind(3), text[3:6], text[6:7])))
        for at in instants[::3 if layers == 1 else 1]:
            decoder = decoder_behind(3)
            with pytest.raises(KeyboardInterrupt):
                lines.fail(partial(read, decoder, text[3:6], text[6:7]), at, KeyboardInterrupt())
            seen = decoder.cache.seen
            assert seen in (3, 6, 7), lines.last.place
            try:
                found = read(decoder, text[seen:], [])
            except ValueError as error:
                assert kind == "window" and "was interrupted" in str(error), lines.last.place
                refused += 1
                continue
            assert decoder.cache.filled is not None
            assert decoder.cache.filled.item() == decoder.cache.seen == len(text), lines.last.place
            np.testing.assert_allclose(found[0], expected[-1], atol=1e-4, err_msg=str(lines.last.place))
    assert (0 < refused < len(instants)) == (kind == "window")


def test_an_interrupted_batch_leaves_no_padding(model: LlamaForCausalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions of the next prompts, which are all as long, would count from where these begin."""
    prompts = [[1, 2, 3], [4, 5, 6]]
    expected, cache = generate(model, prompts, 3, temperature=0), cache_for(model, 2, 20)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt
    with monkeypatch.context() as patch:
        patch.setattr(type(cache), "reserve", interrupted)
        with pytest.raises(KeyboardInterrupt):
            generate(model, [[1, 2, 3], [4]], 3, temperature=0, cache=cache)
    assert generate(model, prompts, 3, temperature=0, cache=cache).tolist() == expected.tolist()


@pytest.mark.parametrize("first", [0, 2, 5, 9])
@pytest.mark.parametrize("kinds", [*PAIRS, ("static", "small"), ("small", "static")], ids="-".join)
def test_a_cache_takes_the_first_tokens_of_another(kinds: tuple[str, str], first: int) -> None:
    """Of any kind, unless windows have left some of them."""
    model, text = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=4)).eval(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    made = {"static": lambda: StaticCache(model.spec, 1, 40), "small": lambda: StaticCache(model.spec, 1, 10),
            "growing": lambda: GrowingCache(model.spec), "window": lambda: SlidingWindowCache(model.spec, 1, 40)}
    old, new = (made[kind]() for kind in kinds)
    with genesis.no_grad():
        model(genesis.tensor([text[:9]]), cache=old)
        if kinds[0] == "window" and 0 < first < 9:
            with pytest.raises(ValueError, match="does not fit: a layer has the last"):
                new.take(old, first)
            return
        new.take(old, first)
        found = model(genesis.tensor([text[first:]]), cache=new).logits[0, -1]
        whole = model(genesis.tensor([text])).logits[0, -1]
    assert (new.seen, old.seen) == (10, 9)
    np.testing.assert_allclose(found.numpy(), whole.numpy(), atol=1e-4)
    with pytest.raises(ValueError, match="a cache of 9 tokens has no first 10"):
        made["static"]().take(old, 10)
    if kinds[0] != "window":
        with pytest.raises(ValueError, match="this cache 7 slots"):
            StaticCache(model.spec, 1, 7).take(old, 8)


def test_another_number_of_tokens_that_a_cache_takes_is_no_other_program(model: LlamaForCausalLM) -> None:
    """Of 28 layers that is a second of the host on a GPU."""
    plans: list[Any] = []
    old = cache_for(model, 1, 40)
    with genesis.no_grad():
        model(genesis.tensor([list(range(20))]), cache=old)
        for first in (4, 7, 12, 19):
            new, before = cache_for(model, 1, 300), len(plans)
            with engine.observe(plans.append):
                new.take(old, first)
                genesis.eval(*new.tensors())
    assert before > 0 and len(plans) == before, plans[before:]


def test_a_text_that_has_no_room_is_not_counted(model: LlamaForCausalLM) -> None:
    """In the model's table of positions, which is shorter than the cache."""
    from genesis.models import GPT2Config, GPT2LMHeadModel
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=8, n_embd=32, n_layer=1, n_head=4)).eval()
    cache, text = StaticCache(gpt2.spec, 1, 64), genesis.tensor([[1, 2, 3, 4, 5, 6]])
    with genesis.no_grad():
        gpt2(text, cache=cache)
        with pytest.raises(ValueError, match="table of 8 positions"):
            gpt2(text, cache=cache)
        found = gpt2(genesis.tensor([[7]]), cache=cache).logits[0, -1]
        whole = gpt2(genesis.tensor([[1, 2, 3, 4, 5, 6, 7]])).logits[0, -1]
    assert cache.seen == 7
    np.testing.assert_allclose(found.numpy(), whole.numpy(), atol=1e-4)


def test_prompts_of_many_lengths_are_few_programs(padded: None) -> None:
    """So are answers of many lengths, with penalties and stops as well."""
    model = LlamaForCausalLM(LlamaConfig(**{**SIZES, "num_hidden_layers": 3})).eval()
    options: dict[str, Any] = {"temperature": 0, "repetition_penalty": 1.2, "stop": 49}
    plans: list[Any] = []
    with engine.observe(plans.append):
        for length in (17, 20):
            generate(model, [list(range(1, length))], 6, **options)
        before = len(plans)
        for length in range(18, 30):
            generate(model, [list(range(1, length))], 32 - length, **options)
    assert before > 0 and len(plans) == before, [plan.graph for plan in plans[before:]]


def test_a_prompt_is_padded_where_there_is_room(padded: None) -> None:
    """Not beyond the cache or the model's table, and not where angles go by the text's length."""
    from genesis.models import GPT2Config, GPT2LMHeadModel
    llama = LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=40, n_embd=32, n_layer=1, n_head=4)).eval()
    scaled = LlamaForCausalLM(LlamaConfig(**{**SIZES, "rope_parameters": {"rope_theta": 1e4, "rope_type": "dynamic",
                                                                         "factor": 2.0}})).eval()
    greedy = Sampling(temperature=0)
    for chosen, cache, tokens, length in (
            (llama, StaticCache(llama.spec, 1, 40), 20, 32), (llama, StaticCache(llama.spec, 1, 31), 20, 20),
            (llama, GrowingCache(llama.spec), 20, 20), (gpt2, StaticCache(gpt2.spec, 1, 256), 30, 32),
            (gpt2, StaticCache(gpt2.spec, 1, 256), 39, 39), (scaled, StaticCache(scaled.spec, 1, 256), 20, 20)):
        decoder = Decoder(chosen, 1, 0, greedy, cache=cache)
        assert decoder._length(tokens) == length
        with genesis.no_grad():
            ids = genesis.tensor([[i % 50 for i in range(tokens)]])
            logits = decoder.prefill(ids).logprobs
            whole = genesis.nn.functional.log_softmax(chosen(ids).logits[:, -1], -1)
        np.testing.assert_allclose(logits.numpy(), whole.numpy(), atol=1e-4)
