"""What distributions of a user's own are written with, beside torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import genesis

PROBS = np.array([[0.0, 0.25, 0.75], [1.0, 0.0, 0.0]], np.float32)


def test_logits_and_probabilities() -> None:
    for binary in (False, True):
        for name in ("probs_to_logits", "logits_to_probs"):
            ours, theirs = (getattr(T.distributions.utils, name)(T.tensor(PROBS), binary) for T in (genesis, torch))
            np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize("diag", [0, -1, 1])
def test_triangles_as_vectors(diag: int) -> None:
    x = np.arange(18.0).reshape(2, 3, 3)
    ours, theirs = (T.distributions.utils.tril_matrix_to_vec(T.tensor(x), diag) for T in (genesis, torch))
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    mine, its = (T.distributions.utils.vec_to_tril_matrix(v, diag) for T, v in ((genesis, ours), (torch, theirs)))
    np.testing.assert_array_equal(mine.numpy(), its.numpy())
    for T in (genesis, torch):
        with pytest.raises(ValueError, match="outside"):
            T.distributions.utils.tril_matrix_to_vec(T.ones(2, 2), 5)
        with pytest.raises(ValueError, match="lower triangular"):
            T.distributions.utils.vec_to_tril_matrix(T.ones(5))


def of_the_users(T: Any) -> list[Any]:
    """A normal variable that is cut off, as policies have it."""
    utils = T.distributions.utils

    class Cut(T.distributions.Distribution):  # type: ignore[misc, name-defined]
        arg_constraints = {"loc": T.distributions.constraints.real, "scale": T.distributions.constraints.positive}
        support = T.distributions.constraints.real
        has_rsample = True

        def __init__(self, loc: Any, scale: Any, validate_args: Any = None):
            self.loc, self.scale = utils.broadcast_all(loc, scale)
            self.times = 0
            super().__init__(self.loc.size(), validate_args=validate_args)

        @utils.lazy_property
        def logits(self) -> Any:
            """Worked out once."""
            self.times += 1
            return utils.probs_to_logits(T.sigmoid(self.loc), is_binary=True)

        def rsample(self, sample_shape: Any = ()) -> Any:
            return (self.loc + 0 * self.scale).expand(self._extended_shape(T.Size(sample_shape))).clamp(-1, 1)

    loc = T.tensor([-2.0, 0.5], requires_grad=True)
    made = Cut(loc, 1.0)
    with T.no_grad():
        first = made.logits
    first.sum().backward()
    with pytest.raises(ValueError, match="scale"):
        Cut(0.0, -1.0, validate_args=True)
    assert isinstance(Cut.logits, property)
    return [made.scale, made.batch_shape, made.rsample((3,)), first.detach(), made.logits is first, made.times,
            loc.grad, repr(made)]


def test_a_distribution_of_the_users() -> None:
    for ours, theirs in zip(of_the_users(genesis), of_the_users(torch), strict=True):
        if isinstance(ours, genesis.Tensor):
            np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-6)
        else:
            assert ours == theirs or str(ours) == str(theirs).replace("torch", "genesis")
