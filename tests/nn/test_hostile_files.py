"""Files that are not what they seem: each loads or raises the documented ValueError, soon and without much memory."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError, safe_open

import genesis

STRUCTURE = "genesis.structure"
LARGEST = 1 << 62
MOST_SECONDS = 2.0
"""For one file; they take milliseconds. A shared machine may stop for longer than that, not for this long."""
MOST_BYTES = 30_000_000
"""That reading may allocate, beside twenty times the file's size: its JSON becomes Python's objects."""


def file_of(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def tensor(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def structured(text: str) -> bytes:
    return file_of({"__metadata__": {STRUCTURE: text}, "w": tensor()}, bytes(8))


JUNK: list[Any] = [None, True, -1, 0.5, float("nan"), float("inf"), LARGEST, 1 << 64, 10**400, "x", [], {}, [[]], [-1],
                   [None], ["2"], [2.0], [True], [1 << 64], [0, 8, 8], [8, 0], [0, LARGEST], [-8, 0], {"a": 1}]
FOREIGN = ["U16", "U32", "U64", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "F6_E3M2", "C64", "f32", "F32 ", "",
           "float32", "F128", "BF8", "I4", "\0", "F" * 10000]
WHOLE = file_of({"__metadata__": {STRUCTURE: json.dumps({"dict": [["w", {"tensor": "w"}], ["n", {"list": [1, {
    "tuple": [{"tensor": "b"}]}]}]]})}, "w": tensor("F32", [2, 3], [0, 24]), "b": tensor("BOOL", [2], [24, 26])},
    bytes(range(24)) + b"\0\1")


def truncated() -> Iterator[bytes]:
    for end in range(len(WHOLE)):
        yield WHOLE[:end]
    for more in (1, 8, 4096):
        yield WHOLE + bytes(more)


def lengths() -> Iterator[bytes]:
    for bits in range(64):
        for length in ((1 << bits) - 1, 1 << bits, -(1 << bits) % (1 << 64)):
            if length != len(WHOLE) - 8 - 26:
                yield length.to_bytes(8, "little") + WHOLE[8:]


def fields() -> Iterator[bytes]:
    for part in ("dtype", "shape", "data_offsets"):
        yield file_of({"w": {name: value for name, value in tensor().items() if name != part}}, bytes(8))
        for junk in JUNK:
            yield file_of({"w": {**tensor(), part: junk}}, bytes(8))
    for junk in JUNK:
        yield file_of({"w": junk}, bytes(8))
        yield file_of(json.dumps(junk).encode(), bytes(8))
        if junk != {} and junk != {"a": 1}:
            yield file_of({"__metadata__": junk})
        if type(junk) is not str:
            yield file_of({"__metadata__": {"a": junk}})


def dtypes() -> Iterator[bytes]:
    for word in FOREIGN:
        for size in (0, 1, 2, 4, 8):
            yield file_of({"w": tensor(word, [1], [0, size])}, bytes(size))
    yield file_of({"w": tensor("BOOL", [2], [0, 2])}, b"\1\2")


def layouts() -> Iterator[bytes]:
    one, two = ([0, 8], [8, 16])
    for a, b, size in ((one, one, 8), (one, [4, 12], 12), (one, [9, 17], 17), (one, two, 15), (one, two, 17),
                       (two, two, 16), ([8, 16], [16, 24], 24), (one, [8, 8], 8), (one, [0, 0], 8), (one, [16, 24], 24),
                       (one, two, 0)):
        yield file_of({"a": tensor(offsets=a), "b": tensor(offsets=b)}, bytes(size))
    for shape in ([LARGEST, 0], [0, LARGEST], [LARGEST, 4], [1 << 32, 1 << 32], [2] * 63, [2] * 64, [1] * 33,
                  [1] * 100000, [(1 << 63) - 1] * 1000, [1 << 63], [3], [2, 2], [1], [0], [2, 0]):
        yield file_of({"w": tensor("F32", shape, [0, 8])}, bytes(8))
    for shape in ([LARGEST, 0], [0, LARGEST], [1 << 31, 0, 1 << 30], [0] + [(1 << 63) - 1] * 9):
        yield file_of({"w": tensor("F32", shape, [0, 0])})


def texts() -> Iterator[bytes]:
    entry = json.dumps(tensor()).encode()
    yield file_of(b'{"w": ' + entry + b', "w": ' + entry + b"}", bytes(8))
    yield file_of(b'{"w": {"dtype": "F32", "dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}', bytes(8))
    yield file_of(b'{"__metadata__": {"a": "b", "a": "c"}}')
    yield file_of(b'{"__metadata__": {}, "__metadata__": {}}')
    for bad in (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xc0\xaf"):  # among them a lone surrogate
        yield file_of(b'{"' + bad + b'": ' + entry + b"}", bytes(8))
        yield file_of(b"{" + bad + b"}")
        yield file_of(b'{"__metadata__": {"a": "' + bad + b'"}}')
    for text in (b"{", b"{}}", b"{}{}", b"[]", b"{,}", b'{"a"}', b"{'a': 1}", b"{}\0", b"\0{}", b" {}", b'{"a": }',
                 b"nul", "{}".encode("utf-16"), b"\xef\xbb\xbf{}", b'{"a": 1' + b"1" * 5000 + b"}", b'{"a": NaN}',
                 b'{"a": 1e999}'):
        yield file_of(text)
    for depth in (100, 1000, 100_000, 2_000_000):
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
            yield file_of(b'{"w": ' + opening * min(depth, 700_000) + b"1" + closing * min(depth, 700_000) + b"}")
            yield file_of(b'{"w": ' + opening * min(depth, 700_000))


def structures() -> Iterator[bytes]:
    for junk in JUNK:
        if isinstance(junk, (list, dict)):
            yield structured(json.dumps(junk))
        for kind in ("tensor", "dict", "list", "tuple", "other"):
            if not (junk == [] or (kind in ("list", "tuple") and isinstance(junk, list)
                                   and not isinstance(junk[0], list))):
                yield structured(json.dumps({kind: junk}))
    for text in ("", "{", "nothing", '{"tensor": "w", "tensor": "w"}', '{"tensor": "w", "dict": []}', '{"tensor": "v"}',
                 '{"dict": [["a", 1], ["a", 2]]}', '{"dict": ["ab"]}', '{"dict": [[[1], 2]]}', '{"dict": [[{}, 2]]}',
                 '{"dict": [["a"]]}', '{"list": "ab"}', '{"tuple": {"a": 1}}', '1, "x": 2', '1}, "y": {"z": 2',
                 "[" * 100_000, '{"list":[' * 100_000, '{"list":[' * 5000 + "1" + "]}" * 5000, "1" * 5000, "\0"):
        yield structured(text)


def flipped() -> Iterator[bytes]:
    """Random bytes of a good file are others, in the header mostly. Some of these are good files."""
    draw = random.Random(0)
    for _ in range(600):
        content = bytearray(WHOLE)
        for _ in range(draw.choice((1, 1, 2, 8))):
            content[draw.randrange(8, len(WHOLE) - 26)] = draw.randrange(256)
        yield bytes(content)


def random_bytes() -> Iterator[bytes]:
    draw = random.Random(1)
    for size in range(200):
        yield draw.randbytes(size)
        yield file_of(draw.randbytes(size))
        yield file_of(b"{" + draw.randbytes(size))


KINDS: dict[str, tuple[Callable[[], Iterator[bytes]], int]] = {
    "truncated": (truncated, 250), "lengths": (lengths, 180), "fields": (fields, 150), "dtypes": (dtypes, 90),
    "layouts": (layouts, 29), "texts": (texts, 45), "structures": (structures, 100), "random": (random_bytes, 600)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_file_is_refused(kind: str, tmp_path: Path) -> None:
    """Every one, with the documented error, in time, without more memory than such a file may cost."""
    make, least = KINDS[kind]
    refused = 0
    for content in make():
        assert outcome(content, tmp_path / "file") == "refused", content[:200]
        refused += 1
    assert refused >= least


def test_a_file_with_other_bytes_loads_or_is_refused(tmp_path: Path) -> None:
    """And what safetensors' own reader refuses is refused here."""
    seen = {"loaded": 0, "refused": 0}
    for content in flipped():
        found = outcome(content, tmp_path / "file")
        seen[found] += 1
        try:
            with safe_open(tmp_path / "file", framework="np") as file:
                file.keys()
        except (SafetensorError, UnicodeDecodeError):
            assert found == "refused", content
    assert seen["refused"] > 300 and seen["loaded"] > 0


def outcome(content: bytes, path: Path) -> str:
    path.write_bytes(content)
    tracemalloc.start()
    start = time.perf_counter()
    try:
        genesis.load(path)
        return "loaded"
    except ValueError as error:
        assert type(error) is ValueError and "'" + str(path) + "'" in str(error)
        return "refused"
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert time.perf_counter() - start < MOST_SECONDS and peak < MOST_BYTES + 20 * len(content)


def test_the_file_they_are_made_of_is_good(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(WHOLE)
    found = genesis.load(tmp_path / "file")
    assert found["w"].shape == (2, 3) and found["n"][1][0].tolist() == [False, True]


def test_unusual_files_that_are_good(tmp_path: Path) -> None:
    """Names of any text, no tensors, tensors without elements, spaces behind the header, names we do not know."""
    for content, names in (
            (file_of({}), []), (file_of(b"{}" + b" " * 500), []),
            (file_of({"": tensor(), "é\0\n": tensor(offsets=[8, 16])}, bytes(16)), ["", "é\0\n"]),
            (file_of({"w": tensor(shape=[0, 5], offsets=[0, 0]), "v": tensor(shape=[], offsets=[0, 4])}, bytes(4)),
             ["v", "w"]), (file_of({"w": {**tensor(), "note": 1}}, bytes(8)), ["w"])):
        (tmp_path / "file").write_bytes(content)
        assert sorted(genesis.load(tmp_path / "file")) == names


# What is no file

def test_paths_that_are_no_files(tmp_path: Path) -> None:
    """None of them is waited for, and the error has the path."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dead").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder").mkdir()
    (tmp_path / "zeros").symlink_to("/dev/zero")
    (tmp_path / "file").write_bytes(WHOLE)
    for name, error in (("fifo", ValueError), ("loop", OSError), ("dead", FileNotFoundError),
                        ("none", FileNotFoundError), ("folder", IsADirectoryError), ("zeros", ValueError),
                        ("file/more", NotADirectoryError)):
        with pytest.raises(error, match=name):
            genesis.load(tmp_path / name)


def test_a_link_to_a_file_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(WHOLE)
    (tmp_path / "link").symlink_to("file")
    assert genesis.load(tmp_path / "link")["w"].shape == (2, 3)


LIMITED = """
import resource, sys
import genesis
genesis.load(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33))
try:
    genesis.load(sys.argv[1])
except MemoryError as error:
    assert sys.argv[1] in str(error)
    print("refused")
"""


def test_a_file_larger_than_memory_is_a_memory_error(tmp_path: Path) -> None:
    """A terabyte of holes: the file is as large as it says, and takes no room."""
    size = 1 << 40
    header = file_of({"w": tensor("U8", [size], [0, size])})
    with open(tmp_path / "large", "wb") as file:
        file.write(header)
        file.truncate(len(header) + size)
    (tmp_path / "small").write_bytes(WHOLE)
    done = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path / "large"), str(tmp_path / "small")],
                          capture_output=True, text=True, timeout=120)
    assert done.stdout == "refused\n", done.stderr


def test_negative_sizes_whose_product_fits(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(file_of({"w": tensor("F32", [-1, -2], [0, 8])}, bytes(8)))
    with pytest.raises(ValueError, match="damaged"):
        genesis.load(tmp_path / "file")
