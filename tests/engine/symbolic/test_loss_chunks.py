"""A loss by chunks of rows has one plan for a class of batches: where a chunk begins within a text is not asked."""

from __future__ import annotations

import pytest

import genesis
from genesis import engine, nn
from genesis.config import config
from tests.engine.symbolic.idle import counting

LENGTH, WIDTH, TOKENS = 256, 32, 4096


def test_batches_of_a_loss_by_chunks_share_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "loss_chunk_bytes", 1 << 18)
    with counting() as backend, genesis.device("cuda"):
        table, layer = nn.Embedding(TOKENS, WIDTH), nn.Linear(WIDTH, WIDTH)
        optimizer = genesis.optim.AdamW([table.weight, *layer.parameters()], lr=1e-3)

        def step(batch: int) -> str:
            x = genesis.zeros(batch, LENGTH, dtype=genesis.int64)
            genesis.eval(x)
            with genesis.autocast("cuda", dtype=genesis.bfloat16):
                logits = nn.functional.linear(nn.functional.gelu(layer(table(x))), table.weight)
                loss = nn.functional.cross_entropy(logits.view(-1, TOKENS).float(), x.view(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
            plan = engine.last_plan()
            assert plan is not None
            return plan.origin
        step(24)
        assert [step(batch) for batch in (18, 22)] == ["other size"] * 2
        kernels = len(backend.kernels)
        assert step(20) == "other size" and len(backend.kernels) == kernels
