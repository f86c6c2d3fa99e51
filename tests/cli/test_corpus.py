"""The demo's text and its bar."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from genesis.cli.bigram import bigram_counts, bigram_cross_entropy, conditional_entropy
from genesis.cli.corpus import MAX_CORPUS_BYTES, MAX_FILE_BYTES, load


def as_bytes(text: bytes) -> np.ndarray:
    return np.frombuffer(text, dtype=np.uint8)


def write_files(root: Path, count: int) -> None:
    for i in range(count):
        (root / f"module{i}.py").write_text(f"# file {i:03d}\n" * 10)


def contents(data: np.ndarray) -> set[bytes]:
    """The distinct lines of a split: which files it holds."""
    return set(data.tobytes().splitlines())


class TestCorpus:
    def test_standard_library_is_enough_text(self) -> None:
        text = load()
        assert len(text.train) > 1_000_000
        assert len(text.validation) > 100_000
        assert len(text.train) + len(text.validation) <= MAX_CORPUS_BYTES

    def test_no_file_is_in_both_splits(self, tmp_path: Path) -> None:
        write_files(tmp_path, 60)
        text = load(tmp_path)
        assert text.files[0] + text.files[1] == 60
        assert contents(text.train).isdisjoint(contents(text.validation))

    def test_split_is_the_same_every_time_and_whatever_else_is_there(self, tmp_path: Path) -> None:
        write_files(tmp_path, 60)
        before = contents(load(tmp_path).validation)
        for i in range(20):
            (tmp_path / f"another{i}.py").write_text("# more\n")
        assert contents(load(tmp_path).validation) - {b"# more"} == before

    def test_cap_limits_the_whole(self, tmp_path: Path) -> None:
        write_files(tmp_path, 60)
        text = load(tmp_path, limit=4000)
        assert 0 < len(text.train) + len(text.validation) <= 4000

    def test_leaves_out_tests_and_huge_files(self, tmp_path: Path) -> None:
        write_files(tmp_path, 60)
        (tmp_path / "test").mkdir()
        (tmp_path / "test" / "test_it.py").write_text("# a test\n")
        (tmp_path / "huge.py").write_text("# huge\n" * (MAX_FILE_BYTES // 7 + 1))
        text = load(tmp_path)
        assert not {b"# a test", b"# huge"} & (contents(text.train) | contents(text.validation))

    def test_too_little_text_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="too few Python files"):
            load(tmp_path)


class TestBigrams:
    def test_counts_pairs(self) -> None:
        counts = bigram_counts(as_bytes(b"aabab"))
        assert counts[ord("a"), ord("a")] == 1
        assert counts[ord("a"), ord("b")] == 2
        assert counts[ord("b"), ord("a")] == 1
        assert counts.sum() == 4

    def test_entropy_of_a_fair_coin_after_each_a(self) -> None:
        # After every "a" comes "b" or "c", each half of the time; after those always "a".
        data = as_bytes(b"abac" * 1000 + b"a")
        assert conditional_entropy(data) == pytest.approx(math.log(2) / 2)

    def test_entropy_of_independent_bytes_is_that_of_one_byte(self) -> None:
        data = np.random.default_rng(0).integers(0, 4, 200_000).astype(np.uint8)
        assert conditional_entropy(data) == pytest.approx(math.log(4), abs=1e-3)

    def test_own_entropy_is_the_harder_bar(self) -> None:
        text = load()
        assert conditional_entropy(text.validation) < bigram_cross_entropy(text.train, text.validation)

    def test_a_model_of_nothing_knows_nothing(self) -> None:
        assert bigram_cross_entropy(as_bytes(b"a"), as_bytes(b"xyz")) == pytest.approx(math.log(256))
