"""Each family gives what transformers gives: logits, gradients, steps of training, texts, folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis import models, optim
from genesis.models.generation import GrowingCache, generate
from tests.models.small import MODELS, SIZES, Pair, pair, tokens

pytest.importorskip("transformers")

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
"""Logits are sums of some hundred products of numbers near 1 in float32; angles are rounded in other places."""

FEW = ["qwen3, heads that do not fill the model, biases", "qwen3 of experts, a plain layer", "mistral, a window",
       "gpt2"]
"""One model of each kind of part; the rest is swept."""


@pytest.fixture(scope="module", params=MODELS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return pair(request.param, tmp_path_factory.mktemp("model"))


def test_logits(both: Pair) -> None:
    ids = tokens()
    with torch.no_grad():
        wanted = both.theirs(torch.tensor(ids)).logits
    np.testing.assert_allclose(both.ours(genesis.tensor(ids)).logits.detach(), wanted, **CLOSE)


def test_logits_beside_padding(both: Pair) -> None:
    """Padding behind the text in the second row, where nothing is asked of the logits."""
    ids, mask = tokens(), np.ones((2, 17), np.int64)
    mask[1, 11:] = 0
    with torch.no_grad():
        wanted = both.theirs(torch.tensor(ids), attention_mask=torch.tensor(mask)).logits.numpy()
    logits = both.ours(genesis.tensor(ids), attention_mask=genesis.tensor(mask)).logits.detach().numpy()
    np.testing.assert_allclose(logits[mask == 1], wanted[mask == 1], **CLOSE)


@pytest.mark.parametrize("name", [
    name if name in FEW else pytest.param(name, marks=pytest.mark.sweep) for name in MODELS if name != "dynamic rope"])
def test_greedy_texts_of_unequal_prompts(name: str, tmp_path: Path) -> None:
    """But dynamic rope, with which transformers keeps keys that were turned by other angles than the next ones."""
    both = pair(name, tmp_path)
    ids, mask = torch.tensor([[5, 6, 7, 8, 9], [0, 0, 0, 11, 12]]), torch.tensor([[1] * 5, [0, 0, 0, 1, 1]])
    wanted = both.theirs.generate(ids, attention_mask=mask, max_new_tokens=24, do_sample=False, pad_token_id=0).numpy()
    prompts = [[5, 6, 7, 8, 9], [11, 12]]
    np.testing.assert_array_equal(both.ours.generate(prompts, 24, temperature=0).numpy(), wanted)


def test_a_folder_that_is_written_is_read_by_transformers(both: Pair, tmp_path: Path) -> None:
    both.ours.save_pretrained(tmp_path, max_shard_bytes=20_000)
    assert (tmp_path / "model.safetensors.index.json").is_file(), "small shards"
    again = type(both.theirs).from_pretrained(tmp_path).eval()
    theirs, found = both.theirs.state_dict(), again.state_dict()
    assert theirs.keys() == found.keys()
    for name, value in theirs.items():
        assert torch.equal(value, found[name]), name
    with torch.no_grad():
        assert torch.equal(again(torch.tensor(tokens())).logits, both.theirs(torch.tensor(tokens())).logits)


@pytest.mark.parametrize("name", ["gpt2", *(pytest.param(name, marks=pytest.mark.sweep) for name in (
    "qwen3, windows in later layers, tied", "qwen3 of experts, a plain layer", "llama 3's rope", "qwen2"))])
def test_gradients_and_five_steps_of_adamw(name: str, tmp_path: Path) -> None:
    both = pair(name, tmp_path)
    ids = tokens()
    theirs = torch.optim.AdamW(both.theirs.parameters(), lr=1e-2, weight_decay=0.1)
    ours = optim.AdamW(both.ours.parameters(), lr=1e-2, weight_decay=0.1)
    for step in range(5):
        theirs.zero_grad()
        ours.zero_grad()
        wanted = both.theirs(torch.tensor(ids), labels=torch.tensor(ids)).loss
        loss = both.ours(genesis.tensor(ids), labels=genesis.tensor(ids)).loss
        wanted.backward()
        loss.backward()
        assert abs(loss.item() - wanted.item()) < 1e-4 * wanted.item(), step
        if step == 0:
            mine = both.ours.model.embed_tokens.weight.grad
            their = both.theirs.get_input_embeddings().weight.grad
            # Sums over tokens in another order: of qwen2 (largest 1.6) both are 6e-6 and 7e-6 from torch's in float64.
            largest = their.abs().max().item()
            np.testing.assert_allclose(mine, their, rtol=1e-4, atol=1e-5 * largest)
            mine, their = both.ours.model.layers[0].self_attn.o_proj.weight.grad, _output_gradient(both.theirs)
            np.testing.assert_allclose(mine, their, rtol=1e-3, atol=1e-6)
        theirs.step()
        ours.step()


@pytest.mark.parametrize("tied", [False, True])
def test_the_vector_of_padding_gets_no_gradient_where_it_is_read(tied: bool, tmp_path: Path) -> None:
    """As transformers' tables have it; a head that is tied to the table learns it all the same."""
    import transformers
    torch.manual_seed(0)
    config = transformers.Qwen3Config(**{**SIZES, "pad_token_id": 5, "head_dim": 12, "tie_word_embeddings": tied})
    theirs = transformers.Qwen3ForCausalLM(config).eval()
    theirs.save_pretrained(tmp_path)
    ours = models.AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = np.array([[5, 5, 8, 9, 5, 7]])
    theirs(torch.tensor(ids), labels=torch.tensor(ids)).loss.backward()
    ours(genesis.tensor(ids), labels=genesis.tensor(ids)).loss.backward()
    wanted = theirs.get_input_embeddings().weight.grad.numpy()
    assert (np.abs(wanted[5]).max() > 0) == tied
    np.testing.assert_allclose(ours.model.embed_tokens.weight.grad, wanted, rtol=1e-3, atol=1e-5)


def test_a_model_with_padding_begins_with_a_vector_of_zeros_for_it() -> None:
    config = models.LlamaConfig(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                                num_attention_heads=2, pad_token_id=-1)
    table = models.LlamaForCausalLM(config).model.embed_tokens.weight.detach().numpy()
    assert not table[8].any()
    assert table[:8].all()


@pytest.mark.parametrize("token", [9, -10, "0", 1.0, True])
def test_padding_is_a_token(token: Any) -> None:
    config = models.LlamaConfig(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                                num_attention_heads=2, pad_token_id=token)
    with pytest.raises(ValueError, match=r"pad_token_id=.* is none of 9 tokens"):
        config.architecture()


@pytest.mark.parametrize("padded", [False, True])
def test_the_loss_of_experts_has_their_balance_in_it_where_the_folder_says_so(padded: bool, tmp_path: Path) -> None:
    import transformers
    torch.manual_seed(0)
    theirs = transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**dict(
        SIZES, head_dim=12, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, mlp_only_layers=[1],
        output_router_logits=True, router_aux_loss_coef=0.7))).eval()
    theirs.save_pretrained(tmp_path)
    ours = models.AutoModelForCausalLM.from_pretrained(tmp_path)
    ids, mask = tokens(), np.ones((2, 17), np.int64)
    mask[1, 11:] = not padded
    given = {"labels": np.where(mask, ids, -100), **({"attention_mask": mask} if padded else {})}
    wanted = theirs(torch.tensor(ids), **{name: torch.tensor(x) for name, x in given.items()}).loss
    loss = ours(genesis.tensor(ids), **{name: genesis.tensor(x) for name, x in given.items()}).loss
    wanted.backward()
    loss.backward()
    assert abs(loss.item() - wanted.item()) < 1e-5 * wanted.item()
    for layer in (0, 2):
        np.testing.assert_allclose(ours.model.layers[layer].mlp.gate.weight.grad,
                                   theirs.model.layers[layer].mlp.gate.weight.grad, rtol=1e-3, atol=1e-5)
    assert not any(layer.mlp.gate._forward_hooks for layer in (ours.model.layers[0], ours.model.layers[2]))
    ours.config = ours.config.replace(output_router_logits=False)
    assert ours(genesis.tensor(ids), labels=genesis.tensor(ids)).loss.item() < loss.item() - 1


def _output_gradient(model: torch.nn.Module) -> torch.Tensor:
    named = dict(model.named_parameters())
    name = "transformer.h.0.attn.c_proj.weight"
    return named[name].grad.T if name in named else named["model.layers.0.self_attn.o_proj.weight"].grad


@pytest.mark.sweep
def test_two_hundred_greedy_tokens(tmp_path: Path) -> None:
    both = pair("qwen3, heads that do not fill the model, biases", tmp_path)
    prompt = [[3, 1, 4, 1, 5]]
    wanted = both.theirs.generate(torch.tensor(prompt), max_new_tokens=200, do_sample=False, pad_token_id=0).numpy()
    np.testing.assert_array_equal(generate(both.ours, prompt, 200, temperature=0).numpy(), wanted)


@pytest.mark.parametrize("name", [pytest.param("qwen2", marks=pytest.mark.sweep), "mistral, a window"])
def test_a_growing_cache_gives_the_same_text(name: str, tmp_path: Path) -> None:
    both = pair(name, tmp_path)
    fixed = generate(both.ours, [[3, 1, 4], [1]], 12, temperature=0)
    grown = generate(both.ours, [[3, 1, 4], [1]], 12, temperature=0, cache=GrowingCache(both.ours.spec))
    assert fixed.tolist() == grown.tolist()


def test_bfloat16_in_shards(tmp_path: Path) -> None:
    both = pair("qwen2", tmp_path, torch.bfloat16, "20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert both.ours.lm_head.weight.dtype is genesis.bfloat16
    with torch.no_grad():
        wanted = both.theirs(torch.tensor(tokens())).logits.float()
    logits = both.ours(genesis.tensor(tokens())).logits.detach().float()
    exact = models.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=genesis.float32)
    right = exact(genesis.tensor(tokens())).logits.detach().numpy()
    # bfloat16 has 8 bits: its own error is what the two may differ by.
    error = np.abs(wanted.numpy() - right).max()
    assert np.abs(logits.numpy() - right).max() < 1.5 * error


def test_packed_documents_do_not_see_each_other(tmp_path: Path) -> None:
    ours = pair("qwen2", tmp_path).ours
    ids = tokens(1, 12)
    documents = genesis.tensor([[0] * 5 + [1] * 7])
    positions = genesis.tensor([[*range(5), *range(7)]])
    packed = ours(genesis.tensor(ids), documents=documents, position_ids=positions).logits.detach().numpy()
    for part in (slice(0, 5), slice(5, 12)):
        alone = ours(genesis.tensor(ids[:, part])).logits.detach()
        np.testing.assert_allclose(packed[:, part], alone, **CLOSE)


def test_a_folder_of_a_model_without_its_head(tmp_path: Path) -> None:
    """As those on the hub of GPT-2 are: no name has the prefix."""
    both = pair("gpt2", tmp_path / "whole")
    both.theirs.transformer.save_pretrained(tmp_path / "base")
    again = models.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    ids = genesis.tensor(tokens())
    assert bool((again(ids).logits == both.ours(ids).logits).all())


@pytest.mark.parametrize(("field", "value"), [("type", "longrope"), ("rope_type", "longrope"), ("type", "yarn")])
def test_fields_of_transformers_4(field: str, value: str, tmp_path: Path) -> None:
    """Scaling apart from the base; the original context beside it, as Phi writes it."""
    import transformers
    torch.manual_seed(0)
    scaling: dict[str, Any] = {field: value, "factor": 4.0}
    if value == "longrope":
        scaling |= {"long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]}
    transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**SIZES)).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    fields = json.loads(path.read_text())
    del fields["rope_parameters"]
    fields |= {"rope_theta": 500.0, "rope_scaling": scaling, "original_max_position_embeddings": 8,
               "torch_dtype": fields.pop("dtype"), "_num_labels": 1, "output_past": True}
    path.write_text(json.dumps(fields))
    theirs = transformers.Qwen2ForCausalLM.from_pretrained(tmp_path).eval()
    ours = models.AutoModelForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        wanted = theirs(torch.tensor(tokens())).logits
    np.testing.assert_allclose(ours(genesis.tensor(tokens())).logits.detach(), wanted, **CLOSE)
