"""Windows by torch's older names; opinfo has the samples of `signal.windows`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import genesis

NAMES = ["hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", [0, 1, 2, 5, 8])
@pytest.mark.parametrize("periodic", [True, False])
def test_a_window_is_torchs(name, length, periodic):
    found, wanted = (getattr(lib, name)(length, periodic, dtype=lib.float64) for lib in (genesis, torch))
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), atol=1e-12)


@pytest.mark.parametrize("call", [
    lambda w: w.hann(-1), lambda w: w.gaussian(4, std=0.0), lambda w: w.exponential(4, tau=-1.0),
    lambda w: w.exponential(4, center=1.0), lambda w: w.kaiser(4, beta=-1.0), lambda w: w.general_cosine(4, a=[]),
])
def test_what_torch_refuses_is_refused(call):
    for lib in (genesis, torch):
        with pytest.raises(ValueError):
            call(lib.signal.windows)
