"""Writing one token after another: products of few vectors, attention of one query, caches that are overwritten where
they lie, and a step that is one plan for every token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import genesis
import genesis.nn.functional as F
from genesis import engine, nn
from genesis.engine import last_plan
from genesis.models.generation.caches import StaticCache
from genesis.models.generation.decoding import Decoder
from genesis.models.generation.sampling import Sampling
from genesis.models.qwen3 import Qwen3Config, Qwen3ForCausalLM
from genesis.passes.fusion.side_by_side import FEWEST
from genesis.runtime.plan import Copy, Launch
from tests.sweeping import by_default

from .compare import array, numbers


def plan_steps() -> list[Any]:
    found = last_plan()
    assert found is not None
    return list(found.plan.steps)


def kernels() -> list[str]:
    return [step.kernel.name for step in plan_steps() if isinstance(step, Launch)]


@pytest.mark.parametrize("dtype", [genesis.float32, genesis.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("rows", "depth", "columns", "turned"), [
    (1, 64, 48, True), (1, 33, 1, False), (2, 100, 37, False), (3, 1030, 5, True), (4, 33, 70, True),
    (50, 64, 1, False), (50, 70, 3, True)])
def test_products_with_few_rows_or_columns(cuda: Any, rows: int, depth: int, columns: int, turned: bool,
                                           dtype: Any) -> None:
    x = genesis.tensor(numbers(rows, depth)).to(dtype)
    w = genesis.tensor(numbers(columns, depth) if turned else numbers(depth, columns)).to(dtype)
    weight = w.t() if turned else w
    expected = np.maximum(x.double().numpy() @ weight.double().numpy() + 1, 0)
    right = w.to("cuda").t() if turned else w.to("cuda")
    found = array(F.relu(x.to("cuda") @ right + 1).float())
    # Sums in float32 of exact products; then a result of eight bits in bfloat16.
    tolerance = 1e-5 if dtype is genesis.float32 else 2 ** -8
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


def test_a_batch_of_vectors_times_matrices(cuda: Any) -> None:
    a, b = numbers(3, 2, 2, 40), numbers(3, 2, 40, 24)
    found = genesis.tensor(a).to("cuda") @ genesis.tensor(b).to("cuda")
    np.testing.assert_allclose(array(found), a @ b, rtol=1e-5, atol=1e-5)


def test_a_gate_and_what_it_gates_are_one_kernel(cuda: Any) -> None:
    """As one row's products are reductions: two of one vector, their activation and the residual."""
    x, gate, up = (genesis.tensor(numbers(*shape)).to("cuda") for shape in ((1, 96), (64, 96), (64, 96)))
    genesis.eval(x, gate, up)
    found = F.silu(x @ gate.t()) * (x @ up.t()) + 1
    genesis.eval(found)
    assert len(kernels()) == 1
    g, u = array(x) @ array(gate).T, array(x) @ array(up).T
    np.testing.assert_allclose(array(found), g / (1 + np.exp(-g)) * u + 1, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_a_norm_is_computed_in_the_kernel_of_the_product_behind_it(cuda: Any, norm: str) -> None:
    x, gain, bias, weight = (genesis.tensor(numbers(*shape)) for shape in ((1, 1, 64), (64,), (64,), (48, 64)))

    def product(*operands: Any) -> Any:
        x, gain, bias, weight = operands
        made = F.rms_norm(x, (64,), gain, 1e-6) if norm == "rms" else F.layer_norm(x, (64,), gain, bias)
        return F.linear(made, weight) + made.sum()
    moved = [nn.Parameter(y.to("cuda")) for y in (x, gain, bias, weight)]
    with genesis.no_grad():
        found = product(*moved)
        genesis.eval(found)
    assert any("norm" in name and "sum" in name for name in kernels()), kernels()
    np.testing.assert_allclose(array(found), array(product(x, gain, bias, weight)), rtol=1e-5, atol=1e-5)


def test_residual_layers_are_a_kernel_each(cuda: Any) -> None:
    """The norm stands in each product's kernel; what came before the residual is not computed again."""
    x, gain, weight = (genesis.tensor(numbers(*shape)) for shape in ((1, 1, 64), (64,), (64, 64)))

    def layers(x: Any, gain: Any, weight: Any) -> Any:
        for _ in range(6):
            x = x + F.linear(F.rms_norm(x, (64,), gain, 1e-6), weight) * 0.1
        return x
    moved = [nn.Parameter(y.to("cuda")) for y in (x, gain, weight)]
    with genesis.no_grad():
        found = layers(*moved)
        genesis.eval(found)
    assert len(kernels()) == 6, kernels()
    np.testing.assert_allclose(array(found), array(layers(x, gain, weight)), rtol=1e-4, atol=1e-4)


def test_heads_that_share_keys_are_rows_of_one_tile(cuda: Any) -> None:
    """Where the batch has programs enough: half as many programs as heads, and the same values."""
    q, k, v = (nn.Parameter(genesis.tensor(numbers(3, *shape))) for shape in ((4, 1, 16), (2, 32, 16), (2, 32, 16)))

    def attention(device: str) -> Any:
        with genesis.no_grad():
            return F.scaled_dot_product_attention(q.to(device), k.to(device), v.to(device), enable_gqa=True)
    found = attention("cuda")
    genesis.eval(found)
    assert [step.grid[0] for step in plan_steps() if isinstance(step, Launch)] == [6]
    np.testing.assert_allclose(array(found), array(attention("cpu")), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("mask", "heads", "shared"), [
    ("none", 4, 2), ("lengths", 2, 2), ("lengths", 4, 1), ("added", 4, 2), ("nothing seen", 2, 2)])
def test_the_keys_of_one_query_are_shared_out(cuda: Any, mask: str, heads: int, shared: int) -> None:
    """Against the same attention computed on the CPU; the keys of a batch's rows end at different places."""
    batch, keys, size = 2, 128, 16
    q, k, v = (nn.Parameter(genesis.tensor(numbers(*shape)))
               for shape in ((batch, heads, 1, size), (batch, shared, keys, size), (batch, shared, keys, size)))
    places = np.arange(keys)
    masks: dict[str, Any] = {
        "none": None, "lengths": places < np.array([40, 100]).reshape(2, 1, 1, 1), "added": numbers(1, 1, 1, keys),
        "nothing seen": np.broadcast_to(places == 5, (2, 1, 1, keys)) & np.array([True, False]).reshape(2, 1, 1, 1)}
    given = masks[mask] if masks[mask] is None else genesis.tensor(np.ascontiguousarray(masks[mask]))

    def attention(device: str) -> Any:
        moved = None if given is None else given.to(device)
        with genesis.no_grad():
            return F.scaled_dot_product_attention(q.to(device), k.to(device), v.to(device), attn_mask=moved,
                                                  enable_gqa=heads != shared)
    found = attention("cuda")
    genesis.eval(found)
    assert len(kernels()) > 1
    np.testing.assert_allclose(array(found), array(attention("cpu")), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("kind", ["ties", "NaN"])
def test_the_argmax_of_a_long_row_is_looked_for_in_pieces(cuda: Any, op: str, kind: str) -> None:
    """Of equal elements the first, of NaN the first, wherever pieces end."""
    rows = np.zeros((2, 1 << 15), np.float32)
    rows[0, [5000, 30000]], rows[1, [7, 20000]] = (3, -3) if kind == "ties" else (np.nan, np.nan)
    rows[0, 31000], rows[1, 21000] = -3, 3
    x = nn.Parameter(genesis.tensor(rows).to("cuda"))
    with genesis.no_grad():
        found = getattr(x, op)(1)
        genesis.eval(found)
    assert len(kernels()) > 1
    assert array(found).tolist() == getattr(np, op)(rows, 1).tolist()


@pytest.mark.parametrize("write", ["index_copy_", "index_add_", "scatter_"])
def test_a_write_through_an_index_overwrites_the_memory_where_it_lies(cuda: Any, write: str) -> None:
    kept, expected = genesis.zeros(4, 32, 8, device="cuda"), np.zeros((4, 32, 8), np.float32)
    rows, at = numbers(4, 1, 8), np.array([5])
    places = np.full((4, 1, 8), 5) if write == "scatter_" else at
    index = genesis.tensor(places).to("cuda")
    new = genesis.tensor(rows).to("cuda")
    genesis.eval(kept, index, new)
    getattr(kept, write)(1, index, new)
    total = kept.sum()
    expected[:, at] = rows
    np.testing.assert_allclose(array(total), expected.sum(), rtol=1e-5, atol=1e-4)
    assert not any(isinstance(step, Copy) for step in plan_steps())
    np.testing.assert_array_equal(array(kept), expected)


@pytest.mark.parametrize("sampling", [
    Sampling(temperature=0), Sampling(temperature=0.8, top_k=5, repetition_penalty=1.2)], ids=["greedy", "drawn"])
def test_a_step_is_one_plan_for_every_token(cuda: Any, sampling: Sampling) -> None:
    genesis.manual_seed(1)
    config = Qwen3Config(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=8, intermediate_size=16, max_position_embeddings=64)
    model = Qwen3ForCausalLM(config).eval()
    ids = genesis.tensor([[3, 1, 4, 1, 5]])
    with genesis.no_grad():
        tokens = {}
        for device in ("cpu", "cuda"):
            model = model.to(device)
            decoder = Decoder(model, 1, 16, sampling, seed=0, cache=StaticCache(model.spec, 1, 16, device=device))
            step = decoder.prefill(ids.to(device))
            found = [step.tokens.item()]
            for _ in range(5):
                step = decoder.step(step.tokens)
                found.append(step.tokens.item())
            tokens[device] = found
            report = genesis.explain(decoder._next)
            assert (report.captures, report.hits) == (1, 4), report
    assert not any(isinstance(x, Copy) for x in plan_steps())
    if sampling.greedy:
        assert tokens["cpu"] == tokens["cuda"]


def test_a_layer_is_seven_kernels() -> None:
    """Queries beside keys and values, of which the values go into the cache; the norm and rotation of both, the
    keys' into the cache; attention's pieces and their sum; three products with what stands around them."""
    from genesis import engine
    from genesis.engine.backends import backend_named
    from genesis.passes.pipeline import run_passes
    config = Qwen3Config(vocab_size=64, hidden_size=256, num_hidden_layers=FEWEST + 3, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=128, intermediate_size=512, max_position_embeddings=512)
    model = Qwen3ForCausalLM(config).to(genesis.bfloat16).eval()

    def kernels_of(layers: int) -> int:
        cache = StaticCache(model.spec, 1, 512, dtype=genesis.bfloat16)
        token = genesis.zeros(1, 1, dtype=genesis.int64)
        model.model.layers = model.model.layers[:layers]
        model.model.reserve(token, cache)
        cache.settle()  # the first token of a text looks at itself only, and is another program
        length = model.model.reserve(token, cache)
        genesis.eval(token, *model.parameters(), *cache.tensors(), cache.filled)
        plans: list[Any] = []
        with genesis.no_grad(), engine.observe(plans.append):
            genesis.eval(model.following(token, length, cache))
        return len(run_passes(plans[-1].graph, backend_named("h200")).schedule.groups)
    most, fewer = kernels_of(FEWEST + 3), kernels_of(FEWEST + 2)
    assert most - fewer == 7


def test_layers_with_kernels_side_by_side_write_the_same(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genesis.passes.fusion.side_by_side.FEWEST", 2)
    genesis.manual_seed(2)
    config = Qwen3Config(vocab_size=40, hidden_size=16, num_hidden_layers=3, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=8, intermediate_size=16, max_position_embeddings=64)
    model = Qwen3ForCausalLM(config).eval()
    ids, scores = genesis.tensor([[3, 1, 4, 1, 5]]), []
    for device in ("cpu", "cuda"):
        with genesis.no_grad():
            model = model.to(device)
            cache = StaticCache(model.spec, 1, 16, device=device)
            decoder = Decoder(model, 1, 16, Sampling(temperature=0), cache=cache)
            step = decoder.prefill(ids.to(device))
            for token in (9, 2, 6):
                step = decoder.step(genesis.tensor([token], device=device))
                scores.append(array(step.scores))
    assert any("_beside_" in name for name in kernels()), kernels()
    np.testing.assert_allclose(scores[3:], scores[:3], rtol=1e-4, atol=1e-5)


@by_default("*padded rows*")
@pytest.mark.parametrize("prompts", [[[7, 1, 2]], [[7, 1, 2], [3, 4, 5, 6, 8]]], ids=["one", "padded rows"])
def test_prompts_are_read_as_some_of_a_few_lengths(cuda: Any, prompts: list[list[int]]) -> None:
    """The tokens are those of the CPU, which reads prompts as long as they are; another length compiles nothing."""
    sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
             "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "initializer_range": 0.3}
    here = Qwen3ForCausalLM(Qwen3Config(**sizes)).eval()
    there = Qwen3ForCausalLM(Qwen3Config(**sizes)).eval()
    there.load_state_dict(here.state_dict())
    there = there.to("cuda")
    plans: list[Any] = []
    for longer in ([], [9, 10]):
        rows = [[*longer, *row] for row in prompts]
        options: Any = {"max_new_tokens": 4 + len(longer), "temperature": 0, "repetition_penalty": 1.3}
        before = len(plans)
        with engine.observe(plans.append):
            found = there.generate(rows, **options)
        assert found.tolist() == here.generate(rows, **options).tolist()
        if longer:
            made = [plan for plan in plans[before:] if plan.origin == "compiled"]
            assert not [plan for plan in made if plan.plan.device.type == "cuda"]
