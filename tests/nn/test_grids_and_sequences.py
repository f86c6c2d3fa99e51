"""Spatial transformers, antialiased resampling, distances of rows and CTC, beside torch's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch.nn import functional as TF
from torch_peer import assert_same, both, check_result, numbers

import genesis
from genesis import nn
from genesis.nn import functional as F


@pytest.mark.parametrize("mode, padding, align", [*itertools.product(
    ["bilinear", "nearest", "bicubic"], ["zeros", "border", "reflection"], [False, True])])
def test_grid_sample(mode: str, padding: str, align: bool) -> None:
    x, tx = both(numbers(2, 3, 4, 5), grad=True)
    grid, tgrid = both(1.7 * numbers(2, 6, 3, 2, seed=1).clip(-1.5, 1.5), grad=mode != "nearest")
    found, wanted = F.grid_sample(x, grid, mode, padding, align), TF.grid_sample(tx, tgrid, mode, padding, align)
    leaves = [(x, tx)] + [(grid, tgrid)] * (mode != "nearest")
    check_result(found, wanted, leaves, rtol=2e-4, atol=1e-5)  # cubic weights cancel where the image is constant


@pytest.mark.parametrize("padding, align", [*itertools.product(["zeros", "border", "reflection"], [False, True])])
def test_grid_sample_of_volumes(padding: str, align: bool) -> None:
    x, tx = both(numbers(1, 2, 3, 4, 5), grad=True)
    grid, tgrid = both(numbers(1, 2, 3, 2, 3, seed=1), grad=True)
    check_result(F.grid_sample(x, grid, padding_mode=padding, align_corners=align),
                 TF.grid_sample(tx, tgrid, padding_mode=padding, align_corners=align), [(x, tx), (grid, tgrid)],
                 rtol=2e-4)


@pytest.mark.parametrize("size, align", [*itertools.product([(2, 3, 4, 5), (2, 1, 1, 3), (2, 3, 2, 4, 3)],
                                                            [False, True])])
def test_affine_grid(size: tuple[int, ...], align: bool) -> None:
    n = len(size) - 2
    theta, ttheta = both(numbers(2, n, n + 1), grad=True)
    check_result(F.affine_grid(theta, size, align), TF.affine_grid(ttheta, list(size), align), [(theta, ttheta)])


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [(1, 1, 9, 12), (1, 1, 28, 28), (1, 1, 3, 6, 11)])
def test_the_identitys_grid_is_torchs_to_the_bit(size: tuple[int, ...], align: bool) -> None:
    """A spatial transformer begins there: each place is an element's centre, where a last bit turns a gradient."""
    theta = np.eye(len(size) - 2, len(size) - 1, dtype=np.float32)[None]
    np.testing.assert_array_equal(F.affine_grid(genesis.tensor(theta), size, align).numpy(),
                                  TF.affine_grid(torch.tensor(theta), list(size), align).numpy())


@pytest.mark.parametrize("mode, align, how", [*itertools.product(
    ["bilinear", "bicubic"], [False, True],
    [{"size": (3, 4)}, {"size": (13, 2)}, {"scale_factor": 0.4}, {"scale_factor": (0.3, 2.0)}])])
def test_antialias(mode: str, align: bool, how: dict) -> None:
    x, tx = both(numbers(2, 3, 9, 11), grad=True)
    check_result(F.interpolate(x, mode=mode, align_corners=align, antialias=True, **how),
                 TF.interpolate(tx, mode=mode, align_corners=align, antialias=True, **how), [(x, tx)], rtol=2e-4)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
def test_pdist(p: float) -> None:
    x, tx = both(numbers(5, 4), grad=True)
    if p == 0:  # a count of differences
        assert_same(F.pdist(x, p), TF.pdist(tx, p))
    else:
        check_result(F.pdist(x, p), TF.pdist(tx, p), [(x, tx)], rtol=1e-4)


TARGETS = np.array([[1, 2, 2, 4], [3, 1, 0, 0], [4, 4, 4, 1]])
LENGTHS = {"all": ([8, 8, 8], [4, 2, 4]), "shorter": ([8, 3, 5], [2, 2, 1]), "none": ([8, 4, 1], [0, 2, 1]),
           "impossible": ([3, 8, 8], [4, 2, 4])}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("reduction, in_a_row", [("none", False), ("mean", True), ("sum", False)])
def test_ctc_loss(lengths, reduction, in_a_row) -> None:  # type: ignore[no-untyped-def]
    inputs, labels = lengths
    x, tx = both(numbers(8, 3, 5), grad=True)
    targets = np.concatenate([row[:n] for row, n in zip(TARGETS, labels, strict=True)]) if in_a_row else TARGETS
    found = F.ctc_loss(x.log_softmax(-1), genesis.tensor(targets), inputs, labels, 0, reduction, True)
    wanted = TF.ctc_loss(tx.log_softmax(-1), torch.tensor(targets), inputs, labels, 0, reduction, True)
    check_result(found, wanted, [(x, tx)], rtol=2e-4)


def test_ctc_of_one_sequence_and_as_a_layer() -> None:
    x, tx = both(numbers(6, 5), grad=True)
    ids = [1, 3, 3]
    found = nn.CTCLoss(blank=2)(x.log_softmax(-1), genesis.tensor(ids), genesis.tensor(6), genesis.tensor(3))
    wanted = torch.nn.CTCLoss(blank=2)(tx.log_softmax(-1), torch.tensor(ids), torch.tensor(6), torch.tensor(3))
    check_result(found, wanted, [(x, tx)], rtol=2e-4)
    assert repr(nn.CTCLoss()) == repr(torch.nn.CTCLoss())


def test_a_target_that_is_too_long_is_infinitely_unlikely() -> None:
    for lib, f in ((genesis, F), (torch, TF)):
        assert f.ctc_loss(lib.zeros(1, 1, 3), lib.tensor([[1, 1]]), [1], [2]).item() == float("inf")


@pytest.mark.parametrize("call, error, message", [
    (lambda lib, f: f.grid_sample(lib.ones(1, 1, 2, 2), lib.ones(2, 1, 1, 2)), RuntimeError, "same batch size"),
    (lambda lib, f: f.grid_sample(lib.ones(1, 1, 2, 2), lib.ones(1, 1, 1, 3)), RuntimeError, "in last dimension"),
    (lambda lib, f: f.grid_sample(lib.ones(1, 1, 2), lib.ones(1, 1, 1)), RuntimeError, "5D input and grid"),
    (lambda lib, f: f.grid_sample(lib.ones(1, 1, 2, 2), lib.ones(1, 1, 1, 2), mode="no"), ValueError, "expected mode"),
    (lambda lib, f: f.grid_sample(lib.ones(1, 1, 2, 2, 2), lib.ones(1, 1, 1, 1, 3), mode="bicubic"), RuntimeError,
     "bicubic"),
    (lambda lib, f: f.affine_grid(lib.ones(1, 3, 3), [1, 1, 2, 2]), ValueError, "Expected a batch of 2D"),
    (lambda lib, f: f.affine_grid(lib.ones(1, 2, 3), [1, 2, 2]), NotImplementedError, "4D and 5D"),
    (lambda lib, f: f.interpolate(lib.ones(1, 1, 4), 2, mode="linear", antialias=True), ValueError, "restricted to"),
    (lambda lib, f: f.pdist(lib.ones(3)), RuntimeError, "2D"),
    (lambda lib, f: f.pdist(lib.ones(3, 2), -1.0), RuntimeError, "non-negative"),
    (lambda lib, f: f.ctc_loss(lib.zeros(2, 1, 3), lib.tensor([[1]]), [2], [1], blank=3), RuntimeError, "label range"),
    (lambda lib, f: f.ctc_loss(lib.zeros(2, 1, 3), lib.tensor([[1]]), [2, 2], [1]), RuntimeError, "batch_size"),
])
@pytest.mark.filterwarnings("ignore")
def test_errors_are_torchs(call, error, message) -> None:  # type: ignore[no-untyped-def]
    for lib, f in ((genesis, F), (torch, TF)):
        with pytest.raises(error, match=message):
            call(lib, f)
