"""Whole models train on CUDA as on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genesis
from genesis.models.gpt import GPT, GPTConfig
from genesis.nn import functional as F

from .compare import array, integers, numbers, on_gpu_only

ROOT = Path(__file__).resolve().parents[2]


def gpt(device: str, **options: Any) -> Any:
    """A model of one layer with the same weights on every device."""
    genesis.manual_seed(0)
    config = GPTConfig(vocab_size=13, context=6, layers=1, heads=2, dim=8, **options)
    return GPT(config).to(device)


def losses(device: str, steps: int, compiled: bool = False, clip: bool = False, **options: Any) -> list[float]:
    """Of a training run."""
    model = gpt(device, **options)
    optimizer = genesis.optim.AdamW(model.parameters(), lr=0.02)

    def step(x: Any, y: Any) -> Any:
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            genesis.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss
    run = genesis.compile(step) if compiled else step
    data = integers(0, 13, steps, 2, 7)
    found = [run(genesis.tensor(x[:, :-1], device=device), genesis.tensor(x[:, 1:], device=device)) for x in data]
    return [loss.item() for loss in found]


def test_gpt_trains_as_on_the_cpu(cuda):
    """1e-4 after five steps: AdamW divides small gradients by themselves, so roundings grow."""
    np.testing.assert_allclose(losses("cuda", 5), losses("cpu", 5), rtol=1e-4)


def test_a_compiled_step(cuda):
    np.testing.assert_allclose(losses("cuda", 4, compiled=True), losses("cpu", 4), rtol=1e-4)


def test_with_dropout_and_clipping(cuda):
    np.testing.assert_allclose(losses("cuda", 2, clip=True, dropout=0.2), losses("cpu", 2, clip=True, dropout=0.2),
                               rtol=1e-4)


def test_unfused(cuda, monkeypatch):
    monkeypatch.setattr(genesis.config, "fuse", False)
    np.testing.assert_allclose(losses("cuda", 2), losses("cpu", 2), rtol=1e-4)


def test_autocast_to_bfloat16(cuda):
    """The CPU rounds each result to bfloat16, a fused kernel its outputs: a few 2⁻⁸ of the loss."""
    found = []
    for device in ("cpu", "cuda"):
        model = gpt(device)
        optimizer = genesis.optim.AdamW(model.parameters(), lr=0.02)
        data = genesis.tensor(integers(0, 13, 2, 7), device=device)
        found.append([])
        for _ in range(2):
            with genesis.autocast(device, dtype=genesis.bfloat16):
                _, loss = model(data[:, :-1], data[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found[-1].append(loss.item())
        assert all(p.dtype is genesis.float32 and p.grad.dtype is genesis.float32 for p in model.parameters())
    np.testing.assert_allclose(found[1], found[0], rtol=2e-2)
    assert found[1][-1] < found[1][0]


def test_gradients_of_every_parameter(cuda):
    gradients = []
    for device in ("cpu", "cuda"):
        model = gpt(device)
        data = genesis.tensor(integers(0, 13, 2, 7), device=device)
        model(data[:, :-1], data[:, 1:])[1].backward()
        genesis.eval([p.grad for p in model.parameters()])
        gradients.append({name: array(p.grad) for name, p in model.named_parameters()})
    for name, want in gradients[0].items():
        np.testing.assert_allclose(gradients[1][name], want, rtol=1e-4, atol=1e-5 * np.abs(want).max(), err_msg=name)


def test_accumulation_over_micro_batches_and_a_changing_batch(cuda):
    found = []
    for device in ("cpu", "cuda"):
        genesis.manual_seed(0)
        model = genesis.nn.Sequential(genesis.nn.Linear(4, 5), genesis.nn.ReLU(), genesis.nn.Linear(5, 2)).to(device)
        optimizer = genesis.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        kept = []
        for step in range(4):
            optimizer.zero_grad()
            for micro in range(2):
                x = genesis.tensor(numbers(3 + step % 2, 4, seed=10 * step + micro), device=device)
                loss = model(x).square().mean() / 2
                loss.backward()
            optimizer.param_groups[0]["lr"] *= 0.5
            optimizer.step()
            kept.append(loss)
        found.append([*(loss.item() for loss in kept), *(array(p.detach()).sum() for p in model.parameters())])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-6)


def test_a_loss_read_before_the_backward_and_an_evaluation(cuda):
    found = []
    for device in ("cpu", "cuda"):
        genesis.manual_seed(0)
        model = genesis.nn.Linear(4, 3).to(device)
        optimizer = genesis.optim.AdamW(model.parameters(), lr=0.1)
        x, y = genesis.tensor(numbers(5, 4), device=device), genesis.tensor([0, 1, 2, 1, 0], device=device)
        values = []
        for _ in range(3):
            loss = F.cross_entropy(model(x), y)
            values.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with genesis.no_grad():
                values.append(F.cross_entropy(model(x), y).item())
        found.append(values)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_checkpoints_move_between_devices(cuda, tmp_path):
    model = gpt("cuda")
    genesis.save(model.state_dict(), str(tmp_path / "model.safetensors"))
    other = gpt("cpu")
    with genesis.no_grad():
        for p in other.parameters():
            p.zero_()
    other.load_state_dict(genesis.load(str(tmp_path / "model.safetensors")))
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        np.testing.assert_array_equal(array(p.detach()), array(q.detach()))


WITHOUT_TORCH = """
import sys, types
stub = None
if {host}:
    # Triton's interpreter imports torch to compare types; it gets a torch that can do nothing.
    stub = sys.modules["torch"] = types.ModuleType("torch")
    stub.Tensor = stub.dtype = type("Tensor", (), {{}})
    from genesis.engine.backends import FakeCUDABackend
    from genesis.runtime.fake_cuda.driver import HostDriver
    FakeCUDABackend(HostDriver()).__enter__()
import genesis
from genesis.models.gpt import GPT, GPTConfig
genesis.manual_seed(0)
model = GPT(GPTConfig(vocab_size=13, context=6, layers=1, heads=2, dim=8, dropout=0.1)).to("cuda")
optimizer = genesis.optim.AdamW(model.parameters(), lr=0.02)
data = genesis.randint(0, 13, (2, 7), device="cuda")
losses = []
for step in range(2):
    _, loss = model(data[:, :-1], data[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    genesis.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
print(losses, next(iter(model.state_dict().values())).cpu().tolist()[0][:2])
assert all(0 < loss < 10 for loss in losses)
assert sys.modules.get("torch") is stub, "torch was imported"
users = [name for name, module in sys.modules.items() if name.startswith("genesis") and "torch" in vars(module)]
assert not users and not any(name.startswith("torch.") for name in sys.modules), users
print("no torch")
"""


@pytest.mark.parametrize("host", [True, pytest.param(False, marks=pytest.mark.gpu)], ids=["host", "gpu"])
def test_a_cuda_process_never_imports_torch(host):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH.format(host=host)], capture_output=True, text=True,
                          cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, timeout=240)
    assert done.returncode == 0 and "no torch" in done.stdout, done.stdout + done.stderr


@on_gpu_only
@pytest.mark.parametrize("compiled", [True, False])
def test_a_larger_batch_after_a_smaller_one(cuda, compiled):
    """From 16384 tokens on the rows of the embedding are sorted digit by digit; each size also runs as a graph."""
    def losses_on(device: str, sizes: list[int]) -> list[float]:
        genesis.manual_seed(0)
        model = GPT(GPTConfig(vocab_size=5000, context=1024, layers=2, heads=2, dim=64)).to(device)
        optimizer = genesis.optim.AdamW(model.parameters(), lr=1e-3)

        def step(x: Any, y: Any) -> Any:
            _, loss = model(x, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss
        run = genesis.compile(step) if compiled else step
        found = []
        for number, size in enumerate(sizes):
            tokens = np.random.default_rng(number).integers(0, 5000, (size, 1025))
            found.append(run(*(genesis.tensor(x, device=device) for x in (tokens[:, :-1], tokens[:, 1:]))))
        return [loss.item() for loss in found]
    sizes = [16, 16, 24, 24, 24, 16, 24]
    np.testing.assert_allclose(losses_on("cuda", sizes), losses_on("cpu", sizes), rtol=1e-4)
