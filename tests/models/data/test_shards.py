"""Tokens on the disk: documents come back as they were, windows keep them apart, a damaged folder is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from genesis.cli.main import main
from genesis.models.data import TokenFolder, TokenWindows, copy_tokenizer, read_texts, write_tokens
from genesis.models.text import Tokenizer, byte_tokenizer, write_byte_tokenizer
from genesis.utils.data import DataLoader
from tests.models.text.small import write_folder

pytest.importorskip("tokenizers")

TEXTS = ["first", "", "the second is longer", "ä", "x" * 40]
DOCUMENTS = [[*text.encode(), 256] for text in TEXTS if text]


@pytest.mark.parametrize("shard_tokens", [1, 20, 1000])
def test_documents_come_back(tmp_path: Path, shard_tokens: int) -> None:
    found = write_tokens(TEXTS, byte_tokenizer(), tmp_path, shard_tokens)
    assert len(found.shards) == {1: 4, 20: 2, 1000: 1}[shard_tokens]
    assert [document.tolist() for document in found] == DOCUMENTS
    assert found[-1].tolist() == DOCUMENTS[-1] and [x.tolist() for x in found[1:3]] == DOCUMENTS[1:3]
    with pytest.raises(IndexError, match="document 4 of 4"):
        found[4]


def test_many_tokens_take_four_bytes(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    tokenizer._tokens.add_tokens([f"<token {i}>" for i in range(70000)])
    found = write_tokens(["<token 69999>"], tokenizer, tmp_path)
    assert found.dtype == "uint32" and found[0].tolist() == [70256, 256]


def test_windows_are_all_tokens_and_the_next(tmp_path: Path) -> None:
    write_tokens(TEXTS, byte_tokenizer(), tmp_path)
    stream = [token for document in DOCUMENTS for token in document]
    rows = TokenWindows(tmp_path, 10)
    assert len(rows) == (len(stream) - 1) // 10
    for i, row in enumerate(rows[i] for i in range(len(rows))):
        assert row["input_ids"].tolist() == stream[10 * i:10 * i + 10]
        assert row["targets"].tolist() == stream[10 * i + 1:10 * i + 11]
    batch = next(iter(DataLoader(rows, batch_size=2)))
    assert batch["targets"].tolist() == [stream[1:11], stream[11:21]]


@pytest.mark.parametrize("shard_tokens", [20, 1000])
def test_windows_that_keep_documents_apart(tmp_path: Path, shard_tokens: int) -> None:
    """Against the definition, a token at a time."""
    folder = write_tokens(TEXTS, byte_tokenizer(), tmp_path, shard_tokens)
    rows = TokenWindows(tmp_path, 7, documents=True)
    place = 0
    for tokens, ends in folder.shards:
        owner = [int(np.searchsorted(ends, i, side="right")) for i in range(len(tokens))]
        for start in range(0, (len(tokens) - 1) // 7 * 7, 7):
            row, place = rows[place], place + 1
            assert row["documents"].tolist() == [owner[start + i] - owner[start] for i in range(7)]
            for i in range(7):
                same = owner[start + i] == owner[start + i + 1]
                assert row["targets"][i] == (tokens[start + i + 1] if same else -100)
                assert row["position_ids"][i] == sum(owner[start + j] == owner[start + i] for j in range(i))
    assert place == len(rows)


def test_too_few_tokens_for_a_window(tmp_path: Path) -> None:
    write_tokens(["abc"], byte_tokenizer(), tmp_path)
    with pytest.raises(ValueError, match="has 4 tokens, too few for a row of 4"):
        TokenWindows(tmp_path, 4)


def test_a_damaged_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no tokens: there is no tokens\.json"):
        TokenFolder(tmp_path)
    write_tokens(TEXTS, byte_tokenizer(), tmp_path)
    with pytest.raises(ValueError, match="holds tokens already"):
        write_tokens(TEXTS, byte_tokenizer(), tmp_path)
    ends = tmp_path / "00000.documents.bin"
    whole = ends.read_bytes()
    ends.write_bytes(whole[8:16] + whole[:8] + whole[16:])
    with pytest.raises(ValueError, match="its ends are not those of"):
        TokenFolder(tmp_path)
    ends.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="has 31 bytes, not 4 numbers of uint64"):
        TokenFolder(tmp_path)
    ends.unlink()
    with pytest.raises(FileNotFoundError, match=r"has no 00000\.documents\.bin"):
        TokenFolder(tmp_path)


def test_texts_of_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.txt").write_text("B")
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "one"}\n\n{"text": "two"}\n')
    (tmp_path / "in" / "left.out").write_text("no")
    (tmp_path / "own.out").write_text("named")
    assert list(read_texts([tmp_path / "in", tmp_path / "own.out"])) == ["one", "two", "B", "named"]


@pytest.mark.parametrize(("line", "message"), [
    ("[1]", "line 2: this is no JSON object"), ("{", "line 2: this is no JSON"),
    ('{"txt": "x"}', "line 2: there is no text in the field 'text'; there are txt"),
    ('{"text": 5}', "line 2: the field 'text' is no text but 5"),
    (r'{"text": "a\ud800b"}', "line 2: this has half a character")])
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n' + line)
    with pytest.raises(ValueError, match=message):
        list(read_texts([tmp_path / "a.jsonl"]))


def test_tokens_take_nobodys_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is refused changes nothing: the tokenizer of the tokens that are there, or of a model, stays."""
    other = write_folder(tmp_path / "model")
    (tmp_path / "a.txt").write_text("some text")
    assert main(["data", str(tmp_path / "a.txt"), "-t", str(other), "-o", str(tmp_path / "tokens")]) == 0
    for folder, message in ((tmp_path / "tokens", "holds tokens already"), (other, "holds a model")):
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert main(["data", str(tmp_path / "a.txt"), "-t", "bytes", "-o", str(folder)]) == 2
        assert message in capsys.readouterr().err
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_tokenizer_takes_the_place_of_another(tmp_path: Path) -> None:
    """A command that was killed, or one of before, leaves one: its tokens would be read by the wrong tokenizer."""
    other, folder = write_folder(tmp_path / "model"), tmp_path / "tokens"
    copy_tokenizer(other, folder)
    (folder / "chat_template.jinja").write_text("of another model")
    (tmp_path / "third").mkdir()
    write_byte_tokenizer(tmp_path / "third")
    copy_tokenizer(tmp_path / "third", folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "third").iterdir()}
    copy_tokenizer(folder, folder)
    assert Tokenizer.from_pretrained(folder).encode("a") == [97]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("some text")
    words = ["data", str(tmp_path / "a.txt"), "-t", "bytes", "-o", str(tmp_path / "tokens")]
    assert main(words) == 0
    assert "10 tokens of 1 documents in 1 files" in capsys.readouterr().out
    assert Tokenizer.from_pretrained(tmp_path / "tokens").decode(TokenFolder(tmp_path / "tokens")[0]) == "some text"
    assert json.loads((tmp_path / "tokens" / "tokens.json").read_text())["vocab_size"] == 257
    assert main(words) == 2
    assert "holds tokens already" in capsys.readouterr().err
    assert main(["data", str(tmp_path / "none"), "-t", "bytes", "-o", str(tmp_path / "x")]) == 2
    assert main(["data", str(tmp_path / "a.txt"), "-t", str(tmp_path), "-o", str(tmp_path / "y")]) == 2
    assert "has no tokenizer.json" in capsys.readouterr().err
    assert main([*words[:-1], str(tmp_path / "z"), "--shard-tokens", "0"]) == 2
