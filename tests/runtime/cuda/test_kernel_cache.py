"""The kernel cache: what was put is got, and what was damaged is missing."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from genesis.runtime.cuda.kernel_cache import CachedKernel, KernelCache, default_directory
from genesis.runtime.plan import KernelImage

KEY = "kernel source\nnum_warps=4\nsm_90\ntriton 3.6.0"
CUBIN = bytes(range(256)) * 5 + b"\n\n"
META = {"name": "add", "num_warps": 4, "shared_bytes": 0}


@pytest.fixture
def cache(tmp_path):
    return KernelCache(tmp_path / "deep" / "cache")


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_an_entry_comes_back_as_it_was(cache):
    assert cache.get(KEY) is None
    assert cache.put(KEY, CUBIN, META)
    assert cache.get(KEY) == CachedKernel(CUBIN, META)
    assert KernelCache(cache.directory).get(KEY) == CachedKernel(CUBIN, META)
    assert cache.get(KEY + " ") is None


def test_a_directory_that_is_made_is_its_owners_alone(cache):
    cache.put(KEY, CUBIN, META)
    assert mode_of(cache.directory) == 0o700
    assert mode_of(cache.path(KEY)) == 0o600


# Who may have written what is there

@pytest.mark.parametrize("mode", [0o700 | more for more in range(0o100)], ids=oct)
def test_a_directory_is_used_as_it_is_or_not_at_all(cache, mode):
    """For each permission of others: if they can write, nothing is read and nothing written; it is never changed."""
    cache.put(KEY, CUBIN, META)
    cache.directory.chmod(mode)
    trusted = not mode & 0o022
    assert (cache.get(KEY) == CachedKernel(CUBIN, META)) is trusted
    assert cache.put("other", CUBIN, META) is trusted
    assert (cache.get("other") is not None) is trusted and cache.path("other").exists() is trusted
    assert mode_of(cache.directory) == mode
    assert (cache.store.why_unused() is None) is trusted and cache.store.has(KEY) is trusted
    assert cache.clear() == (2 if trusted else 0) and cache.path(KEY).exists() is not trusted


@pytest.mark.parametrize("mode", [0o600 | more for more in range(0o100)], ids=oct)
def test_a_file_that_others_can_write_to_is_missing(cache, mode):
    cache.put(KEY, CUBIN, META)
    cache.path(KEY).chmod(mode)
    assert (cache.get(KEY) is not None) is not bool(mode & 0o022)
    assert cache.put(KEY, CUBIN, META) and cache.get(KEY) == CachedKernel(CUBIN, META)
    assert mode_of(cache.path(KEY)) == 0o600


def test_what_was_planted_in_an_open_directory_stays_untrusted(cache):
    """The directory was open to all, something was put there, then a kernel is to be written: nothing is repaired."""
    cache.directory.mkdir(parents=True)
    cache.directory.chmod(0o777)
    other = KernelCache(cache.directory.parent / "mine")
    other.put(KEY, b"planted", META)
    os.rename(other.path(KEY), cache.path(KEY))
    assert not cache.put("any", CUBIN, META)
    assert cache.get(KEY) is None and KernelCache(cache.directory).get(KEY) is None


@pytest.fixture
def as_another_user(cache, monkeypatch):
    """Makes a path belong to somebody else: really, where these tests may do that, else for whoever asks."""
    def give(path):
        if os.geteuid() == 0:
            os.chown(path, 12345, 12345, follow_symlinks=False)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    return give


@pytest.mark.parametrize("what", ["directory", "file"])
def test_what_belongs_to_another_user_is_not_trusted(cache, as_another_user, what):
    cache.put(KEY, CUBIN, META)
    as_another_user(cache.directory if what == "directory" else cache.path(KEY))
    assert cache.get(KEY) is None
    if what == "directory":
        assert not cache.put(KEY, CUBIN, META) and "belongs to user" in str(cache.store.why_unused())


def test_a_link_to_the_directory_is_followed_if_it_is_ours(cache, as_another_user):
    cache.put(KEY, CUBIN, META)
    link = cache.directory.parent / "link"
    link.symlink_to(cache.directory)
    assert KernelCache(link).get(KEY) == CachedKernel(CUBIN, META)
    as_another_user(link)
    assert KernelCache(link).get(KEY) is None and not KernelCache(link).put("other", CUBIN, META)


def test_a_link_in_place_of_an_entry_is_missing_and_is_replaced(cache):
    """What it leads to is neither read nor overwritten."""
    cache.put(KEY, CUBIN, META)
    elsewhere = cache.directory.parent / "elsewhere"
    os.rename(cache.path(KEY), elsewhere)
    cache.path(KEY).symlink_to(elsewhere)
    assert cache.get(KEY) is None
    assert cache.put(KEY, b"new", META) and cache.get(KEY) == CachedKernel(b"new", META)
    assert CUBIN in elsewhere.read_bytes()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("nowhere", path),
                                  lambda path: os.symlink(path, path)], ids=["fifo", "folder", "dead link", "loop"])
def test_what_is_no_file_is_missing(cache, make):
    """A fifo would be waited for."""
    cache.directory.mkdir(parents=True)
    cache.directory.chmod(0o700)
    make(cache.path(KEY))
    assert cache.get(KEY) is None


def test_a_kernels_file_under_another_name_is_missing(cache):
    """An entry holds its whole key, and is asked for it."""
    cache.put(KEY, CUBIN, META)
    cache.put("other", b"another kernel", META)
    os.replace(cache.path("other"), cache.path(KEY))
    assert cache.get(KEY) is None and cache.named(cache.name(KEY)) is None


# What is in an entry

def plant(cache, line, rest=CUBIN, head=b"genesis-kernel-1"):
    """An entry whose hash is right, whatever it holds."""
    body = line + b"\n" + rest
    cache.put(KEY, b"", {})
    cache.path(KEY).write_bytes(head + b" " + hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def line_of(**changes):
    return json.dumps({"key": KEY, "meta": META} | changes).encode()


@pytest.mark.parametrize("line", [
    b"", b"{", b"[]", b"null", b"7", b'"text"', b"\xff\xfe", b"[" * 100000, b'{"key": ' * 50000,
    json.dumps(META).encode(),
    line_of(key=None), line_of(key=3), line_of(key=[KEY]), line_of(key=KEY + " "), line_of(key=""),
    line_of(meta=None), line_of(meta=[]), line_of(meta="x"), line_of(meta=1), json.dumps({"key": KEY}).encode(),
    json.dumps({"meta": META}).encode(),
], ids=lambda line: repr(line[:40]))
def test_a_malformed_entry_with_a_right_hash_is_missing_and_written_anew(cache, line):
    plant(cache, line)
    assert cache.get(KEY) is None and cache.named(cache.name(KEY)) is None
    assert cache.put(KEY, CUBIN, META) and cache.get(KEY) == CachedKernel(CUBIN, META)


@pytest.mark.parametrize("head", [b"", b"genesis-kernel-0", b"genesis-kernel-11", b"genesis-plan-1"])
def test_an_entry_of_another_kind_or_version_is_missing(cache, head):
    plant(cache, line_of())
    assert cache.get(KEY) == CachedKernel(CUBIN, META)
    plant(cache, line_of(), head=head)
    assert cache.get(KEY) is None


WHOLE = {**META, "source": "text"}
NOT_ONE = {"name": [None, 3, "", [], {}], "num_warps": [None, 0, -1, 4.0, "4", True, 1 << 40, []],
           "shared_bytes": [None, -1, 1.5, "0", True, []], "source": [None, 3, ["text"], {}]}


def test_a_whole_entry_is_an_image(cache):
    cache.put(KEY, CUBIN, WHOLE)
    assert cache.get(KEY).image("entry") == KernelImage("add", CUBIN, 4, 0, "text", "entry")


@pytest.mark.parametrize("part, value", [(part, value) for part, values in NOT_ONE.items() for value in values])
def test_an_entry_with_a_wrong_field_is_no_image(cache, part, value):
    plant(cache, line_of(meta={**WHOLE, part: value}))
    assert cache.get(KEY).image("entry") is None


@pytest.mark.parametrize("part", WHOLE)
def test_an_entry_without_a_field_is_no_image(cache, part):
    plant(cache, line_of(meta={name: value for name, value in WHOLE.items() if name != part}))
    assert cache.get(KEY).image("entry") is None


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
from genesis.runtime.cuda.kernel_cache import KernelCache
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


def test_an_entry_is_on_the_disk_before_it_has_its_name(cache, monkeypatch):
    """Else a crash of the machine may leave the name, and no content."""
    synced, sync, replace = {}, os.fsync, os.replace

    def noting(handle):
        synced[os.fstat(handle).st_ino] = os.fstat(handle).st_size
        sync(handle)

    def checking(source, target, *, src_dir_fd, dst_dir_fd):
        found = os.stat(source, dir_fd=src_dir_fd)
        assert synced.get(found.st_ino) == found.st_size > len(CUBIN)
        replace(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr(os, "replace", checking)
    assert cache.put(KEY, CUBIN, META) and synced
    assert cache.get(KEY) == CachedKernel(CUBIN, META)


def test_what_a_killed_writer_left_is_removed_when_it_is_old(cache):
    """What another process is writing at this moment is left alone."""
    cache.put(KEY, CUBIN, META)
    old, new = (cache.directory / f"{name}.tmp" for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    KernelCache(cache.directory).put("other", CUBIN, META)
    assert not old.exists() and new.exists()
    cache.clear()
    assert list(cache.directory.iterdir()) == []


KILLED = """
import os, signal, sys
from genesis.runtime.cuda.kernel_cache import KernelCache
os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
KernelCache(sys.argv[1]).put("key", b"cubin", {})
"""


def test_a_writer_that_is_killed_leaves_no_entry(cache):
    done = subprocess.run([sys.executable, "-c", KILLED, str(cache.directory)])
    assert done.returncode == -9
    assert [path.suffix for path in cache.directory.iterdir()] == [".tmp"] and cache.get("key") is None


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


def test_a_users_number_without_a_name_or_a_home_has_a_cache_of_its_own(monkeypatch, tmp_path):
    """As in a container that runs as any number: there is no entry for it, and HOME is not set, or is nonsense."""
    def nobody(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("GENESIS_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for home in (None, "", "/", "relative"):
        if home is not None:
            monkeypatch.setenv("HOME", home)
        assert default_directory() == tmp_path / f"genesis-{os.geteuid()}"
    cache = KernelCache()
    assert cache.put(KEY, CUBIN, META) and cache.get(KEY) == CachedKernel(CUBIN, META)
    assert mode_of(cache.directory) == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the specification
    assert default_directory() == tmp_path / f"genesis-{os.geteuid()}"
    monkeypatch.setenv("GENESIS_CACHE_DIR", "~/kernels")  # of a home that nobody knows
    assert KernelCache().get(KEY) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a number without a name")
def test_a_process_of_such_a_user_has_one_for_real(monkeypatch):
    for name in ("GENESIS_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o1777)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        child = os.fork()
        if child == 0:
            try:
                os.setgid(54321)
                os.setuid(54321)
                cache = KernelCache()
                os._exit(0 if cache.put(KEY, CUBIN, META) and cache.get(KEY) else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert os.listdir(folder) == ["genesis-54321"]
        assert KernelCache(Path(folder) / "genesis-54321").get(KEY) is None, "it is not ours"
