"""Replacing a file by another, all of it or nothing, also when the program is killed or the machine stops.

The new content is written beside the old one, brought to the disk, and renamed. A writer holds a lock on what it
writes, so that the next one can tell what a killed writer left behind from what another one is writing now.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

ENDING: Final = ".genesis-save"
"""The ending of names of files that are being written."""

LONGEST_NAME: Final = 200
"""Bytes of a name that is repeated in the name of what is written beside it; file systems allow 255 in all."""


def replace_file(path: str | os.PathLike[str], write: Callable[[BinaryIO], None]) -> None:
    """Give a file the content that `write` writes. A link is followed; permissions of a file that is there stay.

    Raises:
        OSError: it cannot be written, with its path: no such folder, no permission, disk full, no regular file. The old
            content is as it was.
    """
    try:
        _replace(Path(os.path.realpath(path)), write)
    except OSError as error:
        if error.errno is None:
            raise type(error)(f"{error}: {os.fspath(path)!r}") from error
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def _replace(target: Path, write: Callable[[BinaryIO], None]) -> None:
    mode = _mode_of(target)
    _remove_abandoned(target)
    handle, beside = _create(target, 0o666 if mode is None else 0o600)
    try:
        with open(handle, "wb") as file:
            write(file)
            if mode is not None:
                os.fchmod(handle, mode)
            file.flush()
            os.fsync(handle)
            os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_directory(target.parent)


def _mode_of(target: Path) -> int | None:
    """The permissions of a file that is there; None if there is none."""
    try:
        found = os.stat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):  # a device would be gone afterwards
        raise OSError(errno.EINVAL, "not a regular file")
    return stat.S_IMODE(found.st_mode)


def _create(target: Path, mode: int) -> tuple[int, Path]:
    """A new locked file beside the target. The umask has its say, as with any new file."""
    while True:
        beside = target.parent / f"{_start(target)}{os.urandom(8).hex()}{ENDING}"
        handle = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        try:
            _lock(handle)
            if os.fstat(handle).st_nlink:
                return handle, beside
        except BlockingIOError:  # another writer looks at it, and will remove it, before it is locked
            beside.unlink(missing_ok=True)
        except BaseException:
            os.close(handle)
            beside.unlink(missing_ok=True)
            raise
        os.close(handle)


def _lock(handle: int) -> None:
    """Lock it, where the file system can; BlockingIOError if another process has."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # no locks: then nothing is ever taken for abandoned there
        pass


def _remove_abandoned(target: Path) -> None:
    """Remove what killed writers of this file have left. Nobody holds a lock on that."""
    pattern = re.compile(re.escape(_start(target)) + "[0-9a-f]{16}" + re.escape(ENDING))
    for name in os.listdir(target.parent):
        if not pattern.fullmatch(name):
            continue
        try:
            handle = os.open(target.parent / name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(target.parent / name)
        except OSError:  # the file is being written, or was removed meanwhile
            continue
        finally:
            os.close(handle)


def _start(target: Path) -> str:
    """The start of the names of temporary files beside a file."""
    name = target.name
    if len(os.fsencode(name)) > LONGEST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()[:32]
    return f".{name}."


def sync_directory(directory: Path) -> None:
    """Bring the names in a directory to the disk: until then a crash may show those of before."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems have no such thing
            raise
    finally:
        os.close(handle)
