"""The GPT beside the same model written in torch, and what is around it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from torch import nn as tnn
from torch_peer import array_of, assert_same, both, copy_weights

import genesis
from genesis import optim
from genesis.models import GPT, GPT2LMHeadModel, GPTConfig
from genesis.nn.utils import clip_grad_norm_

SMALL = GPTConfig(vocab_size=50, context=16, layers=2, heads=2, dim=32)


class TorchBlock(tnn.Module):
    """A block with the names of ours."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.heads = config.heads
        self.norm1, self.norm2 = (tnn.LayerNorm(config.dim, bias=config.bias) for _ in range(2))
        self.attention, self.mlp = tnn.Module(), tnn.Module()
        self.attention.qkv = tnn.Linear(config.dim, 3 * config.dim, bias=config.bias)
        self.attention.out = tnn.Linear(config.dim, config.dim, bias=config.bias)
        self.mlp.up = tnn.Linear(config.dim, 4 * config.dim, bias=config.bias)
        self.mlp.down = tnn.Linear(4 * config.dim, config.dim, bias=config.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, D = x.shape
        q, k, v = (part.view(B, T, self.heads, -1).transpose(1, 2)
                   for part in self.attention.qkv(self.norm1(x)).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf)
        x = x + self.attention.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, D))
        return x + self.mlp.down(TF.gelu(self.mlp.up(self.norm2(x)), approximate="tanh"))


class TorchGPT(tnn.Module):
    """GPT-2 once more, in torch's words."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.position = tnn.Parameter(torch.randn(config.context, config.dim) * 0.02)
        self.token = tnn.Embedding(config.vocab_size, config.dim)
        self.blocks = tnn.ModuleList(TorchBlock(config) for _ in range(config.layers))
        self.norm = tnn.LayerNorm(config.dim, bias=config.bias)
        self.lm_head = tnn.Linear(config.dim, config.vocab_size, bias=False)
        self.lm_head.weight = self.token.weight

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.token(ids) + self.position[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.lm_head(self.norm(x))
        return logits, TF.cross_entropy(logits.flatten(0, 1), targets.flatten())


def pair(config: GPTConfig = SMALL) -> tuple[GPT, TorchGPT]:
    torch.manual_seed(0)
    ours, theirs = GPT(config), TorchGPT(config)
    copy_weights(ours, theirs)
    return ours, theirs


def batch(length: int = 16, rows: int = 3) -> tuple[Any, ...]:
    """ids of both frameworks, targets of both; one target does not count."""
    tokens = np.random.default_rng(0).integers(0, SMALL.vocab_size, (rows, length + 1))
    targets = tokens[:, 1:].copy()
    targets[0, 0] = -100
    return (*both(tokens[:, :-1]), *both(targets))


@pytest.mark.parametrize("config, length", [
    (SMALL, 16), (SMALL, 7), (GPTConfig(vocab_size=50, context=16, layers=1, heads=4, dim=32, bias=False), 16)],
    ids=["whole context", "shorter", "no bias"])
def test_loss_and_all_gradients_are_torchs(config: GPTConfig, length: int) -> None:
    ours, theirs = pair(config)
    ids, tids, targets, ttargets = batch(length)
    logits, loss = ours(ids, targets)
    tlogits, tloss = theirs(tids, ttargets)
    assert loss is not None
    loss.backward()
    tloss.backward()
    assert_same(loss, tloss, rtol=1e-5)
    assert_same(logits, tlogits, rtol=1e-4, atol=1e-5)
    expected = dict(theirs.named_parameters())
    assert {name for name, _ in ours.named_parameters()} == set(expected)
    for name, parameter in ours.named_parameters():
        assert_same(parameter.grad, expected[name].grad, rtol=1e-3, atol=1e-5)  # sums over all tokens, in another order


def test_training_follows_torchs_and_learns() -> None:
    """Ten AdamW steps with clipping on one batch: equal losses, far below the start."""
    ours, theirs = pair()
    ids, tids, targets, ttargets = batch()
    optimizer = optim.AdamW(ours.parameters(), lr=3e-3)
    peer = torch.optim.AdamW(theirs.parameters(), lr=3e-3)
    losses, expected = [], []
    for _ in range(10):
        _, loss = ours(ids, targets)
        loss.backward()
        clip_grad_norm_(ours.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        _, tloss = theirs(tids, ttargets)
        tloss.backward()
        tnn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        peer.step()
        peer.zero_grad()
        expected.append(tloss.item())
    np.testing.assert_allclose(losses, expected, rtol=1e-3)
    assert losses[-1] < losses[0] - 0.3


def test_it_starts_as_gpt2_does() -> None:
    model = GPT(GPTConfig(vocab_size=1000, context=64, layers=8, heads=2, dim=64))
    deviation = {name: array_of(parameter).std() for name, parameter in model.named_parameters()}
    assert abs(deviation["token.weight"] - 0.02) < 1e-3 and abs(deviation["position"] - 0.02) < 1e-3
    assert abs(deviation["blocks.3.mlp.up.weight"] - 0.02) < 1e-3
    assert abs(deviation["blocks.3.mlp.down.weight"] - 0.02 / 4) < 3e-4  # √(2·8) = 4
    assert deviation["blocks.3.attention.qkv.bias"] == 0
    _, loss = model(genesis.zeros(2, 64, dtype=genesis.int64), genesis.randint(0, 1000, (2, 64)))
    assert abs(loss.item() - math.log(1000)) < 0.2  # it knows nothing yet


def test_the_table_is_shared() -> None:
    model = GPT(SMALL)
    assert model.lm_head.weight is model.token.weight
    names = [name for name, _ in model.named_parameters()]
    assert "token.weight" in names and "lm_head.weight" not in names


def test_gpt2_has_124_million_parameters() -> None:
    """Counted from the shapes; nothing is computed, for nothing is read."""
    config = GPTConfig.gpt2()
    D, L = config.dim, config.layers
    block = 12 * D * D + 13 * D
    assert L * block + (config.vocab_size + config.context) * D + 2 * D == 124_439_808
    assert GPTConfig.gpt2(padded=True).vocab_size % 128 == 0
    small = GPT(SMALL)
    expected = 2 * (12 * 32 * 32 + 13 * 32) + (50 + 16) * 32 + 2 * 32
    assert small.parameter_count() == expected


def test_a_token_sees_only_the_ones_before() -> None:
    model = GPT(SMALL).eval()
    ids = np.zeros((1, 16), np.int64)
    changed = ids.copy()
    changed[0, 9:] = 7
    first, second = (array_of(model(genesis.tensor(tokens))[0]) for tokens in (ids, changed))
    assert np.array_equal(first[:, :9], second[:, :9]) and not np.allclose(first[:, 9:], second[:, 9:])


def test_generate_takes_the_likeliest() -> None:
    """Past the context, too; and the padded window gives what the model gives for the tokens alone."""
    model = GPT(SMALL)
    start = genesis.tensor([[3, 4], [5, 6]])
    made = model.generate(start, 20, temperature=0)
    assert made.shape == (2, 22) and made.dtype is genesis.int64 and model.training
    tokens = array_of(made)
    assert np.array_equal(tokens[:, :2], [[3, 4], [5, 6]])
    for length in (2, 9, 16, 21):
        logits, _ = model(genesis.tensor(tokens[:, max(0, length - 16):length]))
        assert np.array_equal(array_of(logits)[:, -1].argmax(-1), tokens[:, length])


def test_generate_samples_by_seed_among_the_top() -> None:
    model = GPT(SMALL)
    start = genesis.tensor([[1]])
    first, again, other = (array_of(model.generate(start, 12, seed=s)) for s in (0, 0, 1))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    greedy = array_of(model.generate(start, 5, temperature=0))
    assert np.array_equal(array_of(model.generate(start, 5, top_k=1, seed=3)), greedy)


def test_dropout_is_for_training_only() -> None:
    model = GPT(GPTConfig(vocab_size=50, context=16, layers=1, heads=2, dim=32, dropout=0.5))
    ids = genesis.zeros(1, 16, dtype=genesis.int64)
    assert not np.array_equal(array_of(model(ids)[0]), array_of(model(ids)[0]))
    model.eval()
    assert np.array_equal(array_of(model(ids)[0]), array_of(model(ids)[0]))


def test_autocast_keeps_the_loss() -> None:
    ours, _ = pair()
    ids, _, targets, _ = batch()
    _, loss = ours(ids, targets)
    with genesis.autocast("cpu"):
        logits, low = ours(ids, targets)
    assert logits.dtype is genesis.bfloat16 and low.dtype is genesis.float32
    assert abs(loss.item() - low.item()) < 0.02  # bfloat16 has 8 bits


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="not a multiple of heads"):
        GPTConfig(dim=10, heads=3)
    with pytest.raises(ValueError, match="17 tokens is longer than the context, 16"):
        GPT(SMALL)(genesis.zeros(1, 17, dtype=genesis.int64))


@pytest.mark.parametrize("bias", [True, False])
def test_it_can_be_saved_as_a_gpt2(bias: bool, tmp_path: Path) -> None:
    """As a folder that transformers reads, with all weights different from what they begin with."""
    transformers = pytest.importorskip("transformers")
    model = GPT(replace(SMALL, bias=bias))
    with genesis.no_grad():
        for parameter in model.parameters():
            parameter.copy_(genesis.randn(parameter.shape) * 0.3)
    GPT2LMHeadModel.from_gpt(model).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["bos_token_id"] is saved["eos_token_id"] is None, "else transformers takes GPT-2's, 50256"
    ids = [[1, 7, 3, 9, 2]]
    wanted = model(genesis.tensor(ids))[0].detach().numpy()
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        assert np.allclose(theirs(torch.tensor(ids)).logits.numpy(), wanted, atol=1e-4)
