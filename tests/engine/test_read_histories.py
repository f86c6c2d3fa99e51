"""Reads in the middle of a forward: gradients go on through what an equal program without gradients has let go of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import genesis

TURNS = 4
MATRIX = np.random.default_rng(0).standard_normal((4, 4))


def gradient(T: Any, reads: tuple[int, ...]) -> float:
    """Of a recurrence whose first turn has no gradients in it, with the values of some turns read on the way."""
    s = T.tensor(0.3, dtype=T.float64, requires_grad=True)
    K = s.exp() * T.tensor(MATRIX)
    f = T.zeros(4, dtype=T.float64)
    for turn in range(TURNS):
        p = T.sigmoid(f)
        A = p * K.sum(0)
        if turn in reads:
            A.tolist()
        b = p * f  # alive during the next turn's read
        f = K @ (b - A)
    loss = A.sin().sum() + b.sum()
    found: float = T.autograd.grad(loss, s)[0].item()
    return found


@pytest.mark.parametrize("reads", [(0, 1), (1, 2), (0, 1, 2), (1, 2, 3), (0, 1, 2, 3)], ids=str)
def test_a_loop_that_reads_its_values(reads: tuple[int, ...]) -> None:
    expected = gradient(torch, ())
    for before in ((0, 1), reads, reads):
        assert gradient(genesis, before) == pytest.approx(expected, rel=1e-12)


def test_a_constant_that_was_read_beside_others_stays_what_it_is_in_captured_calls() -> None:
    """Its node is the one that the captured call's graph has: as the leaf of a memory, nothing could compute that."""
    def constant() -> Any:
        return genesis.zeros(2, 3, dtype=genesis.float64).float()

    def called(x: Any) -> Any:
        return x * 2, constant()
    compiled = genesis.compile(called)
    x = genesis.ones(2, 3)
    for _ in range(3):
        assert [found.tolist()[0] for found in compiled(x)] == [[2] * 3, [0] * 3]
    for _ in range(3):
        memory = genesis.ones(2, 3)
        genesis.eval(memory)
        read = constant()
        product = read * memory
        product.tolist()  # the second time by the plan of the first
        total = read + memory
        total.tolist()  # what is read from memory becomes a leaf
    del read, product, total
    for given in (lambda: x, lambda: x * 1, lambda: x.abs()):  # pending, so that a plan is made with what computes it
        doubled, zeros = compiled(given())
        assert doubled.tolist() == [[2] * 3] * 2 and zeros.tolist() == [[0] * 3] * 2
