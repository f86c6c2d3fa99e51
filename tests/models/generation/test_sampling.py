"""How a token is chosen, beside transformers' filters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis.models.generation import Sampling

LOGITS = np.random.default_rng(0).normal(size=(3, 50)).astype(np.float32) * 3


@pytest.mark.parametrize(("options", "warper"), [
    ({"temperature": 0.7}, ("TemperatureLogitsWarper", 0.7)),
    ({"top_k": 5}, ("TopKLogitsWarper", 5)),
    ({"top_p": 0.8}, ("TopPLogitsWarper", 0.8)),
    ({"top_p": 1e-6}, ("TopPLogitsWarper", 1e-6)),
    ({"min_p": 0.1}, ("MinPLogitsWarper", 0.1)),
    ({"min_p": 0.9, "min_tokens_to_keep": 3}, ("MinPLogitsWarper", 0.9, float("-inf"), 3)),
    ({"min_p": 0.01, "min_tokens_to_keep": 2}, ("MinPLogitsWarper", 0.01, float("-inf"), 2)),
    ({"min_p": 0.9, "min_tokens_to_keep": 60}, ("MinPLogitsWarper", 0.9, float("-inf"), 50)),
], ids=str)
def test_filters_are_those_of_transformers(options: dict[str, Any], warper: tuple[Any, ...]) -> None:
    process = pytest.importorskip("transformers.generation.logits_process")
    wanted = getattr(process, warper[0])(*warper[1:])(None, torch.tensor(LOGITS)).numpy()
    np.testing.assert_allclose(Sampling(**options).scores(genesis.tensor(LOGITS)), wanted, rtol=1e-6)


def test_the_penalty_is_that_of_transformers() -> None:
    process = pytest.importorskip("transformers.generation.logits_process")
    ids = torch.tensor([[1, 2], [3, 3], [49, 0]])
    wanted = process.RepetitionPenaltyLogitsProcessor(1.3)(ids, torch.tensor(LOGITS)).numpy()
    seen = np.zeros(LOGITS.shape, bool)
    for row, tokens in enumerate(ids.tolist()):
        seen[row, tokens] = True
    scores = Sampling(repetition_penalty=1.3).scores(genesis.tensor(LOGITS), genesis.tensor(seen))
    np.testing.assert_allclose(scores, wanted, rtol=1e-6)


def test_draws_have_the_filtered_probabilities() -> None:
    sampling = Sampling(temperature=1.5, top_k=4)
    logits = genesis.tensor(LOGITS[:1]).expand(4000, 50)
    generator = genesis.Generator()
    generator.manual_seed(3)
    tokens, scores = sampling.choose(logits, generator=generator)
    counts = np.bincount(tokens.numpy(), minlength=50) / 4000
    # A count of n draws has deviation √(p(1-p)/n) ≤ 0.008: five of them.
    np.testing.assert_allclose(counts, scores[0].softmax(-1), atol=0.04)
    assert (counts > 0).sum() == 4


def test_zero_temperature_takes_the_likeliest() -> None:
    tokens, scores = Sampling(temperature=0).choose(genesis.tensor(LOGITS))
    assert tokens.tolist() == LOGITS.argmax(1).tolist()
    np.testing.assert_allclose(scores.softmax(-1).sum(-1), 1, rtol=1e-5)


@pytest.mark.parametrize("options", [{"temperature": -1}, {"top_k": -1}, {"top_p": 0}, {"top_p": 1.1}, {"min_p": -0.1},
                                     {"min_p": 2}, {"min_tokens_to_keep": 0}, {"repetition_penalty": 0}], ids=str)
def test_numbers_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))}=.* is out of range: it is "):
        Sampling(**options)
