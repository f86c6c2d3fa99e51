"""Low-rank layers: they begin as nothing, are all that is learnt, and become part of the weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import genesis
from genesis import optim
from genesis.models import LlamaConfig, LlamaForCausalLM, LoRA

IDS = genesis.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


def small(**fields: object) -> LlamaForCausalLM:
    genesis.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{  # type: ignore[arg-type]
        "vocab_size": 11, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
        "initializer_range": 0.3, **fields}))


def trained(model: LlamaForCausalLM, lora: LoRA, steps: int = 3) -> list[float]:
    optimizer = optim.AdamW(lora.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(IDS, labels=IDS).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_they_begin_as_nothing_and_learn() -> None:
    model = small(tie_word_embeddings=True)
    plain, before = model(IDS).logits.tolist(), {n: p.tolist() for n, p in model.named_parameters()}
    lora = LoRA(model, rank=4)
    assert model(IDS).logits.tolist() == plain
    assert len(lora.layers) == 14 and all("lora" in n for n, p in model.named_parameters() if p.requires_grad)
    losses = trained(model, lora)
    assert losses[-1] < losses[0]
    assert {n.replace(".base", ""): p.tolist() for n, p in model.named_parameters() if "lora" not in n} == before


def test_merged_weights_compute_the_same() -> None:
    model = small()
    names = set(model.state_dict())
    lora = LoRA(model, rank=4, alpha=8.0, targets=("q_proj", "down_proj"))
    trained(model, lora)
    apart, weight = model(IDS).logits.tolist(), model.model.layers[0].self_attn.q_proj.base.weight.numpy().copy()
    matrices = {name: x.numpy() for name, x in lora.state_dict().items()}
    assert lora.merge() is model
    assert set(model.state_dict()) == names and all(p.requires_grad for p in model.parameters())
    assert np.allclose(model(IDS).logits.tolist(), apart, atol=1e-5)  # float32 products in another order
    name = "model.layers.0.self_attn.q_proj."
    wanted = weight + 8.0 / 4 * matrices[name + "lora_B"] @ matrices[name + "lora_A"]
    assert np.allclose(model.model.layers[0].self_attn.q_proj.weight.tolist(), wanted, atol=1e-6)


def test_their_state_goes_into_another_model() -> None:
    model, other = small(), small()
    lora, second = LoRA(model, rank=2), LoRA(other, rank=2)
    trained(model, lora)
    second.load_state_dict(lora.state_dict())
    assert other(IDS).logits.tolist() == model(IDS).logits.tolist()
    with pytest.raises(ValueError, match="another rank"):
        LoRA(small(), rank=3).load_state_dict(lora.state_dict())


def test_beside_weights_of_low_precision() -> None:
    model = small().to(genesis.bfloat16)
    lora = LoRA(model, rank=2)
    assert {p.dtype for p in lora.parameters()} == {genesis.float32}
    with genesis.autocast("cpu"):
        losses = trained(model, lora)
    assert losses[-1] < losses[0]
    lora.merge()
    assert {p.dtype for p in model.parameters()} == {genesis.bfloat16}


def test_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="rank=0 is no rank"):
        LoRA(small(), rank=0)
    for targets in (("nothing",), "nothing"):
        with pytest.raises(ValueError, match="no linear layer named nothing"):
            LoRA(small(), targets=targets)
    assert len(LoRA(small(), targets="q_proj").layers) == 2


def test_a_folder_has_no_place_for_them(tmp_path: Path) -> None:
    """Nothing could read the names of a model that is not merged."""
    model = small()
    lora = LoRA(model, rank=2)
    with pytest.raises(ValueError, match=r"has low-rank layers.*lora.merge\(\) first"):
        model.save_pretrained(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    lora.merge()
    model.save_pretrained(tmp_path / "model")
    assert LlamaForCausalLM.from_pretrained(tmp_path / "model")(IDS).logits.tolist() == model(IDS).logits.tolist()


def test_a_step_on_a_gpu_has_the_gradients_of_the_cpu(host_driver: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """There layers that share an input are read for all of them at once, and a scale multiplies what is small."""
    from genesis.passes.graph import scale_products, thin_products
    joined: list[int] = []
    original = thin_products._joined

    def noted(group: list[object], *rest: object) -> object:
        joined.append(len(group))
        return original(group, *rest)  # type: ignore[arg-type]
    for module in (scale_products, thin_products):
        monkeypatch.setattr(module, "FEWEST_ELEMENTS", 64)
    monkeypatch.setattr(thin_products, "THIN", 4)
    monkeypatch.setattr(thin_products, "_joined", noted)

    def gradients(device: str, low: bool) -> list[np.ndarray]:
        model = small(num_hidden_layers=1).to(genesis.bfloat16)  # weights that both have
        lora = LoRA(model if low else model.float(), rank=2)
        genesis.manual_seed(1)
        with genesis.no_grad():
            for p in lora.parameters():
                p.copy_(genesis.randn(p.shape) * 0.3)
        model.to(device)
        ids = IDS.to(device)
        with genesis.autocast(device, dtype=genesis.bfloat16, enabled=low):
            model(ids, labels=ids).loss.backward()
        return [p.grad.cpu().numpy() for p in lora.parameters() if p.grad is not None]

    def errors(found: list[np.ndarray]) -> np.ndarray:
        """Of each gradient, beside that in float32."""
        return np.array([np.linalg.norm(x - y) / np.linalg.norm(y) for x, y in zip(found, exact, strict=True)])
    exact, cpu, gpu = gradients("cpu", low=False), gradients("cpu", low=True), gradients("cuda", low=True)
    assert sorted(set(joined)) == [2, 3], "gates; queries, keys and values"
    # Numbers of 8 bits, rounded some 20 times: gradients of queries and keys, differences of like ones, by 7 to 17 %.
    assert len(gpu) == 14 and (errors(gpu) < 2 * errors(cpu) + 0.03).all()
