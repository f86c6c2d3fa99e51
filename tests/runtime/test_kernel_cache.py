"""The kernel cache: what was put is got, and what was damaged is missing."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from genesis.runtime.kernel_cache import CachedKernel, KernelCache, default_directory

KEY = "kernel source\nnum_warps=4\nsm_90\ntriton 3.6.0"
CUBIN = bytes(range(256)) * 5 + b"\n\n"
META = {"name": "add", "num_warps": 4, "shared_bytes": 0}


@pytest.fixture
def cache(tmp_path):
    return KernelCache(tmp_path / "deep" / "cache")


def test_an_entry_comes_back_as_it_was(cache):
    assert cache.get(KEY) is None
    assert cache.put(KEY, CUBIN, META)
    assert cache.get(KEY) == CachedKernel(CUBIN, META)
    assert KernelCache(cache.directory).get(KEY) == CachedKernel(CUBIN, META)
    assert cache.get(KEY + " ") is None


def test_only_the_owner_can_look_inside(cache):
    os.makedirs(cache.directory, mode=0o777)
    cache.put(KEY, CUBIN, META)
    assert stat.S_IMODE(cache.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(cache.path(KEY).stat().st_mode) == 0o600


def test_a_directory_that_others_can_write_to_is_not_trusted(cache):
    cache.put(KEY, CUBIN, META)
    cache.directory.chmod(0o777)
    assert cache.get(KEY) is None


@pytest.mark.parametrize("damage", [
    lambda content: b"",
    lambda content: content[:-1],
    lambda content: content[:40],
    lambda content: content + b"x",
    lambda content: content[:200] + bytes([content[200] ^ 1]) + content[201:],
    lambda content: content.replace(b'"num_warps":4', b'"num_warps":8'),
    lambda content: content.replace(b"genesis-kernel-1", b"genesis-kernel-0"),
    lambda content: b"\x00" * len(content),
], ids=["empty", "a byte short", "cut in the head", "longer", "a bit flipped", "meta changed", "other format", "zeros"])
def test_a_damaged_entry_is_missing_and_is_written_anew(cache, damage):
    cache.put(KEY, CUBIN, META)
    path = cache.path(KEY)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get(KEY) is None
    assert cache.put(KEY, CUBIN, META)
    assert cache.get(KEY) == CachedKernel(CUBIN, META)


def test_a_write_that_fails_leaves_no_entry_and_raises_nothing(cache, monkeypatch):
    def full_disk(handle):
        raise OSError("no space left on device")
    monkeypatch.setattr(os, "fsync", full_disk)
    assert not cache.put(KEY, CUBIN, META)
    assert list(cache.directory.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    cache = KernelCache(tmp_path / "file" / "cache")
    assert not cache.put(KEY, CUBIN, META)
    assert cache.get(KEY) is None


WRITER = """
import sys
from genesis.runtime.kernel_cache import KernelCache
cache = KernelCache(sys.argv[1])
for _ in range(30):
    cache.put("shared", b"cubin" * 10000, {"writer": sys.argv[2]})
    assert cache.get("shared").cubin == b"cubin" * 10000
"""


def test_two_processes_write_the_same_entry(cache):
    command = [sys.executable, "-c", WRITER, str(cache.directory)]
    writers = [subprocess.Popen([*command, str(number)]) for number in range(2)]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert [path.suffix for path in cache.directory.iterdir()] == [".kernel"]


def test_clear_removes_all(cache):
    cache.put(KEY, CUBIN, META)
    cache.put("other", CUBIN, META)
    assert cache.clear() == 2
    assert cache.get(KEY) is None


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("GENESIS_CACHE_DIR", str(tmp_path))
    assert default_directory() == tmp_path
    monkeypatch.delenv("GENESIS_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_directory() == tmp_path / ".cache" / "genesis"
