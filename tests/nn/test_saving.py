"""Writing files: whole or not at all, when the disk is full, when the writer is killed, whatever was there before."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from torch_peer import array_of

import genesis
from tests.faults.events import Depths


def run(script: str, *arguments: Any) -> str:
    """What a new process prints."""
    done = subprocess.run([sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# What is written

FRESH = """
import sys, genesis
for value in genesis.load(sys.argv[1]).values():
    print(value.dtype, value.tolist())
"""


def test_a_fresh_process_reads_every_dtype(tmp_path: Path) -> None:
    """bfloat16 among them, which numpy only knows once something has imported ml_dtypes."""
    names = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
    genesis.save({name: genesis.tensor([0, 1]).to(getattr(genesis, name)) for name in names}, tmp_path / "file")
    lines = run(FRESH, tmp_path / "file").splitlines()
    assert [line.split()[0] for line in lines] == [f"genesis.{name}" for name in names]
    assert "genesis.bfloat16 [0.0, 1.0]" in lines


def test_other_tools_read_what_is_written_and_the_other_way_round(tmp_path: Path) -> None:
    """Odd sizes before wide elements, names of any text, no elements, no dimensions; the metadata is ours."""
    arrays = {"ü.\n": np.arange(3, dtype=np.uint8), "b": np.arange(5.0),
              "half": np.arange(3).astype(ml_dtypes.bfloat16), "empty": np.zeros((0, 3), np.float32),
              "one": np.array(7, np.int64), "yes": np.array([True, False])}
    genesis.save({name: genesis.tensor(array) for name, array in arrays.items()}, tmp_path / "ours")
    with safe_open(tmp_path / "ours", framework="np") as file:
        assert "genesis.structure" in file.metadata()
    save_file(arrays, tmp_path / "theirs")
    found, back = load_file(tmp_path / "ours"), genesis.load(tmp_path / "theirs")
    assert found.keys() == back.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array)
        assert np.array_equal(array_of(back[name]), array) and back[name].shape == array.shape
    assert int.from_bytes((tmp_path / "ours").read_bytes()[:8], "little") % 8 == 0, "tensors are aligned"


def test_parts_of_one_tensor_are_not_each_other(tmp_path: Path) -> None:
    """Rows of one memory have the same shape and strides: what tells them apart is where they begin."""
    x = genesis.tensor([[1.0, 2.0], [3.0, 4.0]])
    genesis.save([x[0], x[1], x[0], x[:, 0], x[:, 1]], tmp_path / "file")
    back = genesis.load(tmp_path / "file")
    assert [part.tolist() for part in back] == [[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [1.0, 3.0], [2.0, 4.0]]
    assert back[0] is back[2]


def nested(depth: int, kind: str) -> Any:
    obj: Any = genesis.ones(1)
    for _ in range(depth):
        obj = {"list": [obj], "tuple": (obj,), "dict": {"a": obj}}[kind]
    return obj


@pytest.mark.parametrize("kind", ["list", "tuple", "dict"])
def test_deep_objects(kind: str, tmp_path: Path) -> None:
    genesis.save(nested(150, kind), tmp_path / "file")
    back = genesis.load(tmp_path / "file")
    for _ in range(150):
        back = back["a"] if kind == "dict" else back[0]
    assert back.item() == 1.0
    for depth in (151, 100_000):
        with pytest.raises(ValueError, match="more than 150"):
            genesis.save(nested(depth, kind), tmp_path / "file")


def test_a_good_file_is_not_damaged_where_its_reader_has_no_stack_left(tmp_path: Path) -> None:
    genesis.save({"a": {"b": [1, (2.0, genesis.ones(2))]}}, tmp_path / "x")
    genesis.load(tmp_path / "x")
    outcomes = set()
    for room in range(60):
        try:
            outcomes.add(Depths().fail(lambda: genesis.load(tmp_path / "x")["a"]["b"][0], room, RecursionError()))
        except RecursionError as error:
            outcomes.add(type(error))
    assert outcomes == {RecursionError, 1}


def test_what_contains_itself_is_refused(tmp_path: Path) -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="contains itself"):
        genesis.save(loop, tmp_path / "file")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("obj", [{"\ud800": genesis.ones(1)}, {"n": 10**5000}],
                         ids=["a lone surrogate", "a long number"])
def test_what_json_has_no_form_for_is_refused(obj: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="save: "):
        genesis.save(obj, tmp_path / "file")
    assert os.listdir(tmp_path) == []


# What was there before

@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o666, 0o755])
def test_a_file_keeps_its_permissions(mode: int, tmp_path: Path) -> None:
    genesis.save(1, tmp_path / "file")
    (tmp_path / "file").chmod(mode)
    genesis.save(2, tmp_path / "file")
    assert mode_of(tmp_path / "file") == mode and genesis.load(tmp_path / "file") == 2


@pytest.mark.parametrize("umask, mode", [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_has_those_that_the_umask_leaves(umask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        genesis.save(1, tmp_path / "file")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "file") == mode


def test_what_replaces_a_secret_file_is_never_open_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither when it is finished, nor while it is written."""
    genesis.save(1, tmp_path / "file")
    (tmp_path / "file").chmod(0o600)
    modes = []
    synced = os.fsync

    def watch(handle: int) -> None:
        modes.append([mode_of(path) for path in tmp_path.iterdir()])
        synced(handle)
    monkeypatch.setattr(os, "fsync", watch)
    genesis.save(2, tmp_path / "file")
    assert modes[0] == [0o600, 0o600]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "link").symlink_to("place/file")
    for value in (1, 2):
        genesis.save(value, tmp_path / "link")
        assert (tmp_path / "link").is_symlink() and genesis.load(tmp_path / "place" / "file") == value


def test_paths_that_cannot_be_written_are_os_errors_with_the_path(tmp_path: Path) -> None:
    """A device or a pipe is not replaced by a file."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "device").symlink_to("/dev/null")
    for name, error in (("fifo", OSError), ("folder", IsADirectoryError), ("loop", OSError), ("device", OSError),
                        ("none/file", FileNotFoundError), ("file/more", NotADirectoryError), ("n" * 256, OSError)):
        with pytest.raises(error, match=name) as caught:
            genesis.save(1, tmp_path / name)
        assert caught.value.errno is not None and caught.value.filename == str(tmp_path / name)
    assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode) and stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert len(os.listdir(tmp_path)) == 5


def test_the_longest_name(tmp_path: Path) -> None:
    for value in (1, 2):
        genesis.save(value, tmp_path / ("n" * 255))
    assert os.listdir(tmp_path) == ["n" * 255] and genesis.load(tmp_path / ("n" * 255)) == 2


# What goes wrong

LIMITED = """
import resource, sys, genesis
weights = genesis.ones(1_000_000)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
try:
    genesis.save(weights, sys.argv[1])
except OSError as error:
    print(type(error).__name__, error.errno, error.filename == sys.argv[1])
"""


def test_a_disk_that_takes_no_more_is_an_os_error(tmp_path: Path) -> None:
    """Really: the process may not write files of more than a megabyte. The old file is as it was."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    genesis.save(1, tmp_path / "file")
    assert run(LIMITED, tmp_path / "file").split() == ["OSError", str(errno.EFBIG), "True"]
    assert os.listdir(tmp_path) == ["file"] and genesis.load(tmp_path / "file") == 1


@pytest.mark.parametrize("call", ["fsync", "replace", "fchmod"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS], ids=os.strerror)
def test_each_call_may_fail(call: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    genesis.save(1, tmp_path / "file")

    def fail(*args: Any) -> None:
        raise OSError(number, os.strerror(number))
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError) as caught:
        genesis.save(2, tmp_path / "file")
    assert caught.value.errno == number and caught.value.filename == str(tmp_path / "file")
    assert os.listdir(tmp_path) == ["file"] and genesis.load(tmp_path / "file") == 1


def test_file_and_directory_are_brought_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content before the name, and then the name."""
    order = []
    synced, replaced = os.fsync, os.replace

    def sync(handle: int) -> None:
        order.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else f"file of {os.fstat(handle).st_size}")
        synced(handle)

    def replace(*args: Any) -> None:
        order.append("renamed")
        replaced(*args)
    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    genesis.save(genesis.ones(1000), tmp_path / "file")
    assert order == [f"file of {(tmp_path / 'file').stat().st_size}", "renamed", "folder"]


KILLED = """
import os, signal, sys, genesis
setattr(os, sys.argv[2], lambda *args: os.kill(os.getpid(), signal.SIGKILL))
genesis.save(2, sys.argv[1])
"""


@pytest.mark.parametrize("call", ["fchmod", "fsync", "replace"])
def test_what_a_killed_save_left_is_removed_by_the_next(call: str, tmp_path: Path) -> None:
    """And nothing else: files of other names, of the user, and of saves to other files stay."""
    genesis.save(1, tmp_path / "file")
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "file"), call])
    assert done.returncode == -signal.SIGKILL
    left = {name for name in os.listdir(tmp_path) if name != "file"}
    assert len(left) == 1 and genesis.load(tmp_path / "file") == 1
    others = {".file.backup", ".file.0123456789abcdef", ".file", "file.tmp", ".other.0123456789abcdef.genesis-save",
              ".file.mine.genesis-save"}
    for name in others:
        (tmp_path / name).write_bytes(b"the user's")
    genesis.save(3, tmp_path / "file")
    assert set(os.listdir(tmp_path)) == {"file", *others} and genesis.load(tmp_path / "file") == 3


def test_a_link_that_looks_like_a_remnant_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"precious")
    (tmp_path / ".file.0123456789abcdef.genesis-save").symlink_to("mine")
    genesis.save(1, tmp_path / "file")
    assert (tmp_path / "mine").read_bytes() == b"precious"


WRITER = """
import sys, genesis
for turn in range(40):
    genesis.save({"who": sys.argv[2], "w": genesis.full((2000,), float(sys.argv[2]))}, sys.argv[1])
    back = genesis.load(sys.argv[1])
    assert (back["w"] == float(back["who"])).all().item()
print("done")
"""


def test_writers_at_once(tmp_path: Path) -> None:
    """Two processes and three threads save to one file: each file that is there is whole, none removes another's."""
    command = [sys.executable, "-c", WRITER, str(tmp_path / "file")]
    writers = [subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True) for number in range(2)]
    failed: list[BaseException] = []

    def save(number: int) -> None:
        try:
            for _ in range(40):
                genesis.save({"who": str(number), "w": genesis.full((2000,), float(number))}, tmp_path / "file")
        except BaseException as error:
            failed.append(error)
    threads = [threading.Thread(target=save, args=(number,)) for number in (2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [writer.communicate()[0] for writer in writers] == ["done\n", "done\n"] and not failed
    assert os.listdir(tmp_path) == ["file"]
