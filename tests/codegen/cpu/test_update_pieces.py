"""Updates on the CPU run over pieces of the parameters: which ones does not show in any bit."""

from __future__ import annotations

from typing import Any

import pytest

import genesis
from genesis.codegen.cpu.lowerings import update_rules


@pytest.mark.parametrize("name", ["Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD", "Adamax", "NAdam", "RAdam"])
def test_pieces_have_the_bits_of_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[Any]:
        genesis.manual_seed(0)
        parameters = [genesis.randn(*shape).requires_grad_() for shape in ((7, 50), (3,), (128,), (2, 2), (65,))]
        optimizer = getattr(genesis.optim, name)(parameters, lr=0.1)
        for _ in range(3):
            for p in parameters:
                p.grad = genesis.randn(*p.shape)
            optimizer.step()
        return [p.tolist() for p in parameters]
    whole = run()
    genesis.compiler.reset()
    taken: list[int] = []
    on_piece = update_rules._on_piece
    monkeypatch.setattr(update_rules, "_on_piece", lambda *given: taken.append(1) or on_piece(*given))
    monkeypatch.setattr(update_rules, "PIECE", 4 * 70)  # 64 parameters of each of four roles
    assert run() == whole
    assert len(taken) >= 3 * 9
