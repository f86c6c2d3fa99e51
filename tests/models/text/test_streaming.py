"""Text as it is made: every fragment, the stop strings, the figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genesis.models import AutoModelForCausalLM
from genesis.models.generation import StaticCache, generate
from genesis.models.text import Tokenizer, stream_generate
from genesis.models.text.streaming import LONGEST, Detokenizer, StopStrings
from tests.models.text.small import write_folder

pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("model"))


def test_fragments_together_are_the_text(folder: Path) -> None:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), Tokenizer.from_pretrained(folder)
    fragments = list(stream_generate(model, tokenizer, "hello", max_new_tokens=12))
    ids = generate(model, [tokenizer.encode("hello")], 12, temperature=0)[0, 5:].tolist()
    assert [fragment.token for fragment in fragments] == ids
    assert "".join(fragment.text for fragment in fragments) == tokenizer.decode(ids)
    assert [fragment.finish_reason for fragment in fragments] == [None] * 11 + ["length"]
    last = fragments[-1]
    assert (last.prompt_tokens, last.generated_tokens, last.peak_memory) == (5, 12, 0)
    assert last.prompt_speed > 0 and last.generation_speed > 0
    assert abs(last.logprobs.exp().sum().item() - 1) < 1e-4


def test_it_ends_at_a_stop_token_and_at_a_stop_string(folder: Path) -> None:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), Tokenizer.from_pretrained(folder)
    whole = list(stream_generate(model, tokenizer, "hello", max_new_tokens=12))
    third = whole[2].token
    tokenizer.stop_ids = (third,)
    cut = list(stream_generate(model, tokenizer, "hello", max_new_tokens=12))
    first = next(i for i, fragment in enumerate(whole) if fragment.token == third)
    assert len(cut) == first + 1 and cut[-1].finish_reason == "stop" and cut[-1].text == ""


def test_a_stop_string_may_be_given_alone(folder: Path) -> None:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), Tokenizer.from_pretrained(folder)

    def told(stop: str | list[str]) -> list[str]:
        return [fragment.text for fragment in stream_generate(model, tokenizer, "hello", 8, stop=stop)]
    text = "".join(told([]))
    assert len(text) > 1
    unlike = text[0] + "\0" + text[-1]  # its letters occur, it does not
    assert "".join(told(unlike)) == text == "".join(told([unlike]))


def test_a_seed_gives_the_same_text_again(folder: Path) -> None:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), Tokenizer.from_pretrained(folder)

    def tokens(seed: int) -> list[int]:
        return [f.token for f in stream_generate(model, tokenizer, "hello", 10, temperature=1.0, top_p=0.95, seed=seed)]
    assert tokens(1) == tokens(1) != tokens(2)


def test_a_cache_without_room(folder: Path) -> None:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), Tokenizer.from_pretrained(folder)
    cache = StaticCache(model.spec, 1, 8)
    with pytest.raises(ValueError, match="1 tokens more than the 8 in a cache of 8 slots"):
        list(stream_generate(model, tokenizer, "hello", 10, cache=cache))


@pytest.mark.parametrize(("strings", "pieces", "shown"), [
    ([], ["a", "b"], "ab"),
    (["END"], ["some E", "ND more"], "some "),
    (["END"], ["E", "N", "E", "N", "D"], "EN"),
    (["aab"], ["a", "a", "a", "b"], "a"),
    (["x", "yz"], ["y", "z", "x"], ""),
    (["###"], ["ends with ##"], "ends with ##"),
    ([""], ["a"], "a"),
])
def test_stop_strings(strings: list[str], pieces: list[str], shown: str) -> None:
    stops, text = StopStrings(strings), ""
    for piece in pieces:
        new, found = stops.add(piece)
        text += new
        if found:
            break
    else:
        text += stops.rest()
    assert text == shown


def test_characters_of_several_tokens_are_shown_whole(folder: Path) -> None:
    tokenizer = Tokenizer.from_pretrained(folder)
    words, text = Detokenizer(tokenizer), "né 编\n  🙂 x"
    pieces = [words.add(token) for token in tokenizer.encode(text)]
    assert "".join(pieces) == text and "\ufffd" not in "".join(pieces) and "" in pieces
    assert words.rest() == ""
    first = tokenizer.encode("né")[1]
    assert words.add(first) == "" and words.rest() == "\ufffd" and words.rest() == ""


@pytest.mark.parametrize("text", ["word " * 100, "ä" * 200, "編譯器" * 60, "😀" * 80, "a 😀 smile, " * 40,
                                  "né編😀" * 40, "\n" * 150, "x\n" * 100],
                         ids=["words", "letters", "ideographs", "smiles", "mixed", "of all lengths", "lines",
                              "short lines"])
def test_a_long_answer_is_decoded_in_parts(text: str, folder: Path) -> None:
    """A token's text takes a time that does not grow with the answer."""
    tokenizer = Tokenizer.from_pretrained(folder)
    decoded: list[int] = []

    class Counted:
        def decode(self, ids: list[int]) -> str:
            decoded.append(len(ids))
            return tokenizer.decode(ids)
    words = Detokenizer(Counted())  # type: ignore[arg-type]
    assert "".join(words.add(token) for token in tokenizer.encode(text)) + words.rest() == text
    assert max(decoded) <= LONGEST + 4


@pytest.mark.parametrize("kind", ["metaspace", "word pieces"])
def test_decoders_that_look_at_the_tokens_before(kind: str) -> None:
    """The first piece of a text loses its space, a piece of a word has none before it."""
    from tokenizers import Tokenizer as Tokens
    from tokenizers import decoders, models
    decoder: Any
    if kind == "metaspace":
        pieces, decoder = ["\u2581the", "\u2581cat", "s", "\u2581", "!"], decoders.Metaspace()
    else:
        pieces, decoder = ["the", "cat", "##s", "##x", "!"], decoders.WordPiece()
    tokens = Tokens(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, pieces[0]))
    tokens.decoder = decoder
    tokenizer = Tokenizer(tokens, {}, [], None)
    ids = [i * i % 5 for i in range(3, 400, 2)] + [i % 5 for i in range(100)]
    words = Detokenizer(tokenizer)
    assert "".join(words.add(token) for token in ids) + words.rest() == tokenizer.decode(ids)
