"""Where an object is loaded from: a path, or an open file of the user's, as bytes with a known size."""

from __future__ import annotations

import errno
import io
import os
import stat
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from genesis.ir.errors import failure


@dataclass(frozen=True)
class Source:
    """Bytes to load from; a context that closes the file where it was opened by its path.

    Attributes:
        file: at the first of them; it can seek.
        size: how many there are from there on.
        name: for messages.
        path: of the file, where it was opened by its path.
    """

    file: BinaryIO
    size: int
    name: str
    path: str | None

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        if self.path is not None:
            self.file.close()


def opened(f: Any) -> Source:
    """A path's file; or a file object of the user's from where it stands, which stays open.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError and other OSError: there is no such file.
        ValueError: it is a pipe or a device, which would be read for ever, or an object that cannot seek.
        TypeError: it is neither a path nor a file that is open for bytes.
    """
    if isinstance(f, (str, bytes, os.PathLike)):
        file = _regular(f)
        return Source(file, os.fstat(file.fileno()).st_size, repr(os.fspath(f)), cast(str, os.fspath(f)))
    if not all(hasattr(f, name) for name in ("read", "seek", "tell")):
        raise failure("load", f"a {type(f).__name__} is neither a path nor an open file", error=TypeError,
                      hint='a path, open(path, "rb"), or io.BytesIO(data)')
    if isinstance(f, io.TextIOBase):
        raise failure("load", "the file is open for text", error=TypeError, hint='open(path, "rb")')
    try:
        start = f.tell()
        size = f.seek(0, os.SEEK_END) - start
        f.seek(start)
    except (OSError, ValueError) as error:
        raise failure("load", f"the file cannot seek ({error})", error=ValueError,
                      hint="load(io.BytesIO(f.read())), or a path") from None
    return Source(cast(BinaryIO, f), max(size, 0), f"a {type(f).__name__}", None)


def _regular(path: Any) -> BinaryIO:
    """A regular file, open for reading. A pipe or a device would be read for ever."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "no file to load", os.fspath(path)) from None
    kind = os.fstat(handle).st_mode
    if stat.S_ISREG(kind):
        return open(handle, "rb", buffering=0)
    os.close(handle)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise failure("load", f"{os.fspath(path)!r} is no regular file", error=ValueError)


def read_into(file: BinaryIO, into: memoryview) -> int:
    """Fill memory from a file; returns the number of bytes that there were."""
    done = 0
    readinto = getattr(file, "readinto", None)
    while done < len(into):
        if readinto is not None:
            count = readinto(into[done:])
        else:
            part = file.read(len(into) - done)
            count = len(part)
            into[done:done + count] = part
        if not count:
            break
        done += count
    return done


def read_exactly(file: BinaryIO, count: int) -> bytes:
    """The next bytes of a file, fewer where it ends before."""
    parts = []
    while count and (part := file.read(count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


class Sink:
    """An open file of the user's that takes all that is written to it, whatever it takes at once.

    Raises:
        TypeError: it cannot be written to, or takes text.
    """

    def __init__(self, file: Any):
        if not hasattr(file, "write"):
            raise failure("save", f"a {type(file).__name__} is neither a path nor an open file", error=TypeError,
                          hint='a path, open(path, "wb"), or io.BytesIO()')
        if isinstance(file, io.TextIOBase):
            raise failure("save", "the file is open for text", error=TypeError, hint='open(path, "wb")')
        self._file = file

    def write(self, data: Any) -> int:
        """All of the bytes."""
        view = memoryview(data).cast("B")
        total = len(view)
        while view:
            taken = self._file.write(view)
            view = view[taken:] if isinstance(taken, int) else view[:0]  # who says nothing takes all
        return total
