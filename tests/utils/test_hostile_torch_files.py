"""Files of torch's that are not what they seem: each loads or raises ValueError, soon and without much memory."""

from __future__ import annotations

import io
import pickle
import random
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch

import genesis
from genesis.utils import restricted_pickle
from genesis.utils.torch_legacy import MAGIC

MOST_SECONDS = 20.0
"""For one file; most take a millisecond, those that use up what a pickle may do about five seconds."""

MOST_BYTES = 30_000_000
"""That reading may allocate, beside 500 times the file's size: an opcode of one byte makes a set of 216."""

STORAGE = b"(\x8c\x07storagectorch\nFloatStorage\n\x8c\x010\x8c\x03cpuK\x06tQ"
"""The opcodes of the storage "0" of six floats."""


def packed(program: bytes, more: dict[str, bytes] | None = None, compression: int = zipfile.ZIP_STORED) -> bytes:
    """An archive with a pickle and a storage of six floats."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in {"data.pkl": program, "data/0": bytes(24), **(more or {})}.items():
            archive.writestr("x/" + name, data)
    return file.getvalue()


def rebuilt(offset: Any, size: Any, stride: Any, storage: bytes = STORAGE) -> bytes:
    """A pickle of one tensor."""
    def number(x: Any) -> bytes:
        return pickle.dumps(x, 2)[2:-1]
    return (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(offset) + number(size) + number(stride)
            + b"\x89NtR.")


def loads(data: bytes) -> Any:
    """What is read, or the documented error; neither takes long or much memory."""
    tracemalloc.start()
    start = time.process_time()
    try:
        return genesis.load(io.BytesIO(data))
    except ValueError as error:
        assert "is damaged or no" in str(error), error
        return error
    finally:
        spent, (_, peak) = time.process_time() - start, tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert spent < MOST_SECONDS and peak < MOST_BYTES + 500 * len(data), (spent, peak, len(data))


def refused(data: bytes, message: str) -> None:
    found = loads(data)
    assert isinstance(found, ValueError), f"{found!r} was read; expected: {message}"
    assert message in str(found), str(found)


@pytest.mark.parametrize(("offset", "size", "stride", "message"), [
    (0, (7,), (1,), "reaches element 6 of a storage of 6"), (6, (1,), (1,), "reaches element 6"),
    (-1, (1,), (1,), "no offset"), (0, (2, 3), (1,), "other numbers of sizes"), (0, (-1,), (1,), "no numbers"),
    (0, (2,), (-1,), "no numbers"), (0, (1 << 62,), (0,), "no numbers"), (0, (1 << 40, 1 << 40), (0, 0), "elements"),
    (0, (2,), (1 << 61,), "reaches element"), (1 << 61, (1,), (1,), "reaches element"),
    (0, (1,) * 40, (1,) * 40, "40 dim"),
    (0, [6], [1], "no numbers"), (0, (True,), (1,), "no numbers"), (0, (1.0,), (1,), "no numbers"),
    (None, (1,), (1,), "no offset"),
])
def test_parts_lie_inside_of_their_storage(offset: Any, size: Any, stride: Any, message: str) -> None:
    refused(packed(rebuilt(offset, size, stride)), message)
    assert loads(packed(rebuilt(1, (2, 2), (1, 3)))).tolist() == [[0, 0], [0, 0]]
    assert loads(packed(rebuilt(5, (0, 1 << 40), (1, 1)))).shape == (0, 1 << 40), "a part of no elements is anywhere"


def test_storages_are_what_the_archive_has() -> None:
    for numel in (5, 7, 1 << 61, 0):
        storage = STORAGE.replace(b"K\x06", b"\x8a\x08" + numel.to_bytes(8, "little"))
        refused(packed(rebuilt(0, (1,), (1,), storage)), "has 24 bytes")
    refused(packed(rebuilt(0, (1,), (1,), STORAGE.replace(b"\x010", b"\x011"))), "has 0 bytes")
    refused(packed(rebuilt(0, (1,), (1,), STORAGE.replace(b"FloatStorage", b"DoubleStorage"))), "has 24 bytes")
    both = b"\x80\x02(" + rebuilt(0, (1,), (1,))[2:-1] + rebuilt(0, (1,), (1,), STORAGE.replace(
        b"FloatStorage", b"IntStorage"))[2:-1] + b"t."
    refused(packed(both), "is of float32[6] and of int32[6]")
    refused(packed(rebuilt(0, (24,), (1,), STORAGE.replace(b"FloatStorage", b"BoolStorage").replace(b"K\6", b"K\x18")),
                   {"data/0": b"\2" * 24}), "neither 0 nor 1")


def test_archives_that_are_more_than_they_seem() -> None:
    refused(packed(b"N.", compression=zipfile.ZIP_DEFLATED), "is compressed")
    refused(packed(b"N.", {"data/1": bytes(10_000_000)}, zipfile.ZIP_DEFLATED), "is compressed")
    whole = packed(rebuilt(0, (6,), (1,)))
    refused(whole.replace(b"x/data/0", b"y/data/0"), "has 0 bytes")
    refused(packed(b"N.", {"y/data.pkl": b"N."}), "more than one data.pkl")
    refused(packed(b"N.").replace(b"data.pkl", b"data.pkx"), "no data.pkl")
    refused(packed(b"N.", {"byteorder": b"middle"}), "byteorder")
    file = io.BytesIO()  # a thousand entries over the same bytes
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x/data.pkl", b"N.")
        archive.writestr("x/data/0", bytes(100_000))
        first = archive.infolist()[1]
        for i in range(1000):
            again = zipfile.ZipInfo(f"x/data/{i + 1}")
            again.header_offset, again.CRC = first.header_offset, first.CRC
            again.file_size = again.compress_size = first.file_size
            archive.filelist.append(again)
            archive.NameToInfo[again.filename] = again
    refused(file.getvalue(), "share bytes")


def programs() -> Iterator[tuple[str, bytes]]:
    yield "nested too deep", b"]" * 200 + b"a" * 199 + b"."
    yield "nested too deep", b")" + b"\x85" * 20_000 + b"."
    yield "nested too deep", b"}" + b"K\1}" * 200 + b"s" * 200 + b"."
    yield "contains itself", b"]q\0h\0a."
    yield "contains itself", b"}q\0K\1h\0s."
    yield "contains itself", b"]q\0h\0\x85a."
    yield "a tuple for a key", b"}" + b"K\1" + b"\x85q\0h\0\x86" * 30 + b"K\2s."
    yield "a tuple for a key", b"\x8f(K\1\x85\x85\x90."
    yield "a list for a key", b"}]K\1s."
    yield "a int for a key", b"}" + pickle.dumps((1 << 61) - 1, 2)[2:-1] + b"Ns."
    yield "malformed", b"t."
    yield "no mark", b"Nt."
    yield "where there is none", b"(0N(R."
    yield "malformed", b"h\5."
    yield "not one object", b"."
    yield "ends within", b"X\xff\xff\xff\xffab"
    yield "ends within", b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffab"
    yield "ends within", b"\x8e\0\0\0\0\0\0\0\x80ab"
    yield "an integer of", b"\x8b\xff\xff\xff\x7f."
    yield "an integer of", b"\x8b\xff\xff\xff\xff."
    yield "not one object", b"NN."
    yield "protocol 0", b"\x80\0N."
    yield "opcode", b"S'a'\n."
    yield "opcode", b"ios\nsystem\n(."
    yield "more than 200 characters", b"c" + b"a" * 300 + b"\nb\n."
    yield "named by two texts", b"NN\x93."
    yield "names os.system", b"\x8c\2os\x8c\6system\x93."
    yield "names builtins.eval", b"c__builtin__\neval\n."
    yield "of a kind that Genesis does not have", b"ctorch._utils\n_rebuild_tensor_v2.__globals__\n."
    yield "cannot be called", b"ctorch\nfloat32\n)R."
    yield "cannot be called", b"NNR."
    yield "other arguments", b"ccollections\nOrderedDict\nK\1\x85R."
    yield "other arguments", b"ctorch\nSize\nN\x85R."
    yield "other arguments", b"cbuiltins\nbytearray\nJ\0\0\0\x70\x85R."
    yield "other arguments", b"ccollections\nCounter\nX\3\0\0\0abc\x85\x85R."
    yield "other arguments", b"ccollections\nOrderedDict\n(K\1K\2K\3t\x85\x85R."
    tensor = rebuilt(0, (6,), (1,))[2:-1]
    yield "has hooks", b"ctorch._utils\n_rebuild_tensor_v2\n(" + STORAGE + b"K\0))\x89" + tensor + b"tR."
    yield "has hooks", b"ctorch._utils\n_rebuild_parameter\n(" + tensor + b"\x89" + tensor + b"tR."
    yield "names the device", b"ctorch\ndevice\n" + tensor + b"\x85R."
    yield "encodes something else", b"c_codecs\nencode\nX\1\0\0\0a" + tensor + b"\x86R."
    yield "is of a class", b"ctorch._tensor\n_rebuild_from_type_v2\nq\0(h\0ctorch\nTensor\n)NtR."
    yield "sets attributes of a list", b"]}b."
    yield "appends to a tuple", b")Na."
    yield "refers to something", b"NQ."
    yield "holds torch._utils._rebuild_tensor_v2 itself", b"ctorch._utils\n_rebuild_tensor_v2\n."
    yield "holds Memory itself", STORAGE + b"."
    yield "beyond 255", b"c_codecs\nencode\nX\2\0\0\0\xc4\x80\x8c\6latin1\x86R."


@pytest.mark.parametrize(("message", "program"), [(m, p) for m, p in programs()], ids=lambda x: str(x)[:24])
def test_programs_that_are_no_data(message: str, program: bytes) -> None:
    found = loads(packed(program))
    assert isinstance(found, ValueError), found
    assert message.replace("nested too deep", "inside of each other") in str(found), str(found)


def test_what_is_copied_again_and_again_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restricted_pickle, "MOST_WORK", 100_000)
    longest = b"(" + b"K\1" * 1000 + b"tq\2" + b"0]("
    assert loads(packed(longest + b"c__builtin__\nset\nh\2\x85R" * 50 + b"e.")) == [{1}] * 50
    refused(packed(longest + b"c__builtin__\nset\nh\2\x85R" * 5000 + b"e."), "takes more than")


def test_what_opcodes_make_is_bounded_by_their_number() -> None:
    for program in (b"(" * 40_000, b"]" * 40_000, b"\x8f" * 40_000, b"N" + b"2" * 40_000,
                    b"N" + b"".join(b"r" + struct.pack("<I", i * 9999) for i in range(20_000)),
                    b"]" + b"q\0h\0" * 20_000, b"(" + b"]" * 20_000 + b"t" + b"q\0h\0" * 20_000):
        loads(packed(program + b"."))


def mutants(data: bytes, draw: random.Random) -> bytes:
    """The bytes with some changed, cut out or doubled."""
    found = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4))):
        at = draw.randrange(len(found))
        kind = draw.randrange(5)
        if kind == 0:
            found[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            found[at] = draw.choice((0, 1, 0x28, 0x2E, 0x52, 0x68, 0x71, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        elif kind == 2:
            del found[at:at + draw.randrange(1, 9)]
        elif kind == 3:
            found[at:at] = found[at:at + draw.randrange(1, 40)]
        else:
            other = draw.randrange(len(found))
            size = draw.randrange(1, 20)
            found[at:at + size] = found[other:other + size]
    return bytes(found)


LEGACY_STORAGE = STORAGE[:-2] + b"NtQ"
"""The same storage as the legacy format asks for it."""


def legacy(program: bytes, keys: Any = ("0",), storages: tuple[tuple[int, bytes], ...] = ((6, bytes(24)),),
           version: Any = 1001) -> bytes:
    """A file of the legacy format."""
    values = (MAGIC, version, {"little_endian": True})
    return b"".join([*(pickle.dumps(value, 2) for value in values), program,
                     pickle.dumps(list(keys) if isinstance(keys, tuple) else keys, 2),
                     *(struct.pack("<q", count) + data for count, data in storages)])


ONE = rebuilt(0, (6,), (1,), LEGACY_STORAGE)


@pytest.mark.parametrize(("message", "data"), [
    ("of another version", legacy(ONE, version=1000)), ("of another version", legacy(ONE, version=[1] * 100)),
    ("not those that it asks for", legacy(ONE, keys=())), ("not those that it asks for", legacy(ONE, keys=("1",))),
    ("not those that it asks for", legacy(ONE, keys=("0", "0"))),
    ("not those that it asks for", legacy(ONE, keys=(0,))),
    ("not those that it asks for", legacy(ONE, keys={"0": 1})),
    ("not those that it asks for", legacy(ONE, keys=(["0"],))),
    ("has 5 elements, where 6", legacy(ONE, storages=((5, bytes(24)),))),
    ("has -1 elements, where 6", legacy(ONE, storages=((-1, bytes(24)),))),
    ("ends within the storage '0'", legacy(ONE, storages=((6, bytes(23)),))),
    ("ends within the storage '0'", legacy(ONE, storages=())),
    ("reaches element 6 of a storage of 6", legacy(rebuilt(0, (7,), (1,), LEGACY_STORAGE))),
    ("for a storage", legacy(rebuilt(0, (6,), (1,), STORAGE[:-2] + b"(X\1\0\0\0vK\0K\6ttQ"))),
    ("which is code", legacy(b"\x80\2(X\6\0\0\0moduleX\1\0\0\0mX\1\0\0\0fX\1\0\0\0stQ.")),
    ("has two sizes", legacy(ONE[:-1] + LEGACY_STORAGE.replace(b"K\6", b"K\5") + b".")),
    ("no storage", legacy(rebuilt(0, (6,), (1,), b"N"), keys=(), storages=())),
    ("of 200 float32 has 0 bytes", legacy(rebuilt(0, (6,), (1,), LEGACY_STORAGE.replace(b"K\6", b"K\xc8")))),
    ("bytes that are neither 0 nor 1", legacy(rebuilt(0, (2,), (1,), LEGACY_STORAGE.replace(b"Float", b"Bool").replace(
        b"K\6", b"K\2")), storages=((2, b"\2\1"),))),
    ("a name of more than 200 characters", legacy(ONE)[:60]), ("ends within an object", legacy(ONE)[:14]),
    ("itself", legacy(b"\x80\2]q\0h\0a.", (), ())),
], ids=str)
def test_legacy_files_that_lie(message: str, data: bytes) -> None:
    refused(data, message)


def test_a_legacy_file_is_read_or_refused_wherever_it_is_cut() -> None:
    whole = whole_file(2, True)
    assert not isinstance(loads(whole), ValueError)
    for end in [*range(0, len(whole), 9), len(whole) - 1]:
        assert isinstance(loads(whole[:end]), ValueError), end


@cache
def whole_file(protocol: int, legacy: bool = False) -> bytes:
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save({"model": layer.state_dict(), "optimizer": optimizer.state_dict(), "weight": layer.weight,
                "views": [layer.weight.detach().t(), layer.weight.detach()[0]], "size": torch.Size([1, 2]),
                "dtype": torch.float16, "device": torch.device("cpu"), "bytes": b"\xff", "set": {1, 2}, "c": 1j}, file,
               pickle_protocol=protocol, _use_new_zipfile_serialization=not legacy)
    return file.getvalue()


def mutated(seed: int, count: int) -> tuple[int, int]:
    """Mutated archives, archives with mutated pickles, and files of the legacy format: (read, refused)."""
    draw, read = random.Random(seed), 0
    for number in range(count):
        data = whole_file(2 + number % 4, number % 3 == 1)
        if number % 3 < 2:
            data = mutants(data, draw)
        else:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                parts = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
            data = packed(mutants(parts.pop("data.pkl"), draw), {k: v for k, v in parts.items() if k != "byteorder"})
        found = loads(data)
        if not isinstance(found, ValueError):
            read += 1
            repr(found)  # every element of what was read lies in memory
    return read, count - read


def test_mutated_files() -> None:
    read, refused = mutated(0, 120)
    assert read > 5 and refused > 50, "of both there have to be some"


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(1, 11))
def test_many_mutated_files(seed: int) -> None:
    mutated(seed, 3000)
