"""`benchmarks/llm_steps.py`: torch's side is the model of Genesis' side, and the script runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import genesis
from genesis.models import LlamaConfig, LlamaForCausalLM, LoRA, Qwen3Config, Qwen3ForCausalLM

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def llm_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield __import__("llm_steps")
    for name in set(sys.modules) - before:
        if (BENCHMARKS / f"{name}.py").exists():
            del sys.modules[name]


@pytest.mark.parametrize("row", ["full", "lora"])
def test_both_have_the_loss_and_gradients_of_the_same_weights(row: str, llm_steps: Any) -> None:
    import torch_llm
    fields, batch, length = llm_steps.shape_of(row, True)
    kind, config = (LlamaForCausalLM, LlamaConfig) if row == "lora" else (Qwen3ForCausalLM, Qwen3Config)
    ours: Any = kind(config(**fields, initializer_range=0.2)).train()
    theirs = torch_llm.Model(fields, row != "lora")
    if row == "lora":
        LoRA(ours, llm_steps.RANK)
        torch_llm.with_low_rank(theirs, llm_steps.RANK)
    parameters = dict(ours.named_parameters())
    assert parameters.keys() == dict(theirs.named_parameters()).keys()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if name.endswith("lora_B"):  # else the gradients of A are 0
                genesis.nn.init.normal_(parameters[name], std=0.1)
            parameter.copy_(torch.from_numpy(parameters[name].detach().numpy().copy()))
    ids = genesis.randint(0, fields["vocab_size"], (batch, length))
    loss, wanted = ours(ids, labels=ids).loss, theirs(torch.from_numpy(ids.numpy().copy()))
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)
    loss.backward()
    wanted.backward()
    for name, parameter in theirs.named_parameters():
        assert (parameter.grad is None) == (parameters[name].grad is None)
        if parameter.grad is not None:
            found = torch.from_numpy(parameters[name].grad.numpy())
            assert torch.allclose(found, parameter.grad, rtol=1e-3, atol=1e-5), name


@pytest.mark.parametrize(("row", "blocks"), [("full", 1), ("lora", 2)])
def test_parts_compute_what_the_whole_does_and_a_block_is_compiled_once(row: str, blocks: int, llm_steps: Any) -> None:
    """Once for each kind of input: low-rank layers learn from the second block's input on."""
    import torch_llm
    torch._dynamo.reset()
    fields, batch, length = llm_steps.shape_of(row, True)
    torch.manual_seed(0)
    model = torch_llm.Model({**fields, "num_hidden_layers": 12}, row != "lora").train()
    if row == "lora":
        torch_llm.with_low_rank(model, llm_steps.RANK)
    ids = torch.randint(0, fields["vocab_size"], (batch, length))
    wanted = torch.autograd.grad(model(ids), learnt := [p for p in model.parameters() if p.requires_grad])
    programs: list[Any] = []

    def noted(program: Any, inputs: Any) -> Any:
        programs.append(program)
        return program.forward
    model.compile_parts(backend=noted)
    for found, gradient in zip(torch.autograd.grad(model(ids), learnt), wanted, strict=True):
        assert torch.allclose(found, gradient, atol=1e-6)
    assert len(programs) == blocks + 1


def test_a_tiny_run(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(BENCHMARKS / "llm_steps.py"), "--tiny", "--rows", "prefill", "--rounds", "1",
                    "--out", str(tmp_path)], check=True, capture_output=True)
    [row] = json.loads((tmp_path / "llm_steps.json").read_text())["rows"]
    assert row["row"] == "prefill" and row["genesis"]["ms"] > 0 and row["torch"]["ms"] > 0


def test_a_side_that_takes_too_long_is_told(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(BENCHMARKS / "llm_steps.py"), "--tiny", "--rows", "prefill", "--sides", "torch",
                    "--seconds", "0.1", "--out", str(tmp_path)], check=True, capture_output=True)
    [row] = json.loads((tmp_path / "llm_steps.json").read_text())["rows"]
    assert row == {"row": "prefill", "mode": "default", "parts": False, "torch": {"failed": "it took more than 0.1 s"}}
