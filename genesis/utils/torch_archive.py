"""The zip archive that `torch.save` writes: entries as they are, side by side, none of them compressed.

    name/data.pkl     the structure, a pickle            name/data/0, 1, …   the bytes of its storages
    name/byteorder    "little" or "big"                  name/version        of the format

Zip has ways to make little data much: compression, entries that share bytes, sizes that are not true. Here every entry
is stored, and all of them together are no longer than the file, so that reading takes no more memory than it has bytes.
"""

from __future__ import annotations

import struct
import zipfile
from dataclasses import dataclass
from typing import Final

from genesis.utils.safetensors_file import Damaged
from genesis.utils.sources import Source, read_exactly

LOCAL: Final = struct.Struct("<4s22xHH")
"""An entry's own header: signature, …, the lengths of its name and of what follows that."""

LONGEST_PICKLE: Final = 100_000_000
"""Bytes of the structure; as of the header of a safetensors file."""

MOST_ENTRIES: Final = 1_000_000
"""Storages, and a few more; each takes about a kilobyte of Python's objects before it is looked at."""

_MALFORMED: Final = (zipfile.BadZipFile, struct.error, ValueError, OverflowError, NotImplementedError, EOFError,
                     RuntimeError, KeyError, IndexError)


@dataclass(frozen=True)
class Archive:
    """The entries of a file of torch's.

    Attributes:
        source: the file.
        places: an entry's name below the archive's own → (its first byte in the file, its bytes).
        big: numbers are big-endian.
    """

    source: Source
    places: dict[str, tuple[int, int]]
    big: bool

    def read(self, name: str, most: int = LONGEST_PICKLE) -> bytes:
        """An entry's bytes.

        Raises:
            Damaged: there is no such entry, it is longer than that, or cut.
        """
        if name not in self.places:
            raise Damaged(f"its archive has no {name[:80]!r}")
        start, size = self.places[name]
        if size > most:
            raise Damaged(f"{name[:80]!r} has {size} bytes; at most {most} are read")
        self.source.file.seek(start)
        found = read_exactly(self.source.file, size)
        if len(found) != size:
            raise Damaged(f"it ends within {name[:80]!r}")
        return found


def open_archive(source: Source) -> Archive:
    """What is in an archive.

    Raises:
        Damaged: it is none of torch's, or not of the kind that is read.
    """
    start = source.file.tell()
    end = start + source.size
    try:
        with zipfile.ZipFile(source.file) as archive:
            entries = archive.infolist()
    except OSError as error:
        if error.errno is not None and error.errno != 22:  # EINVAL: a place before the start
            raise
        raise Damaged(f"its archive is malformed ({error})") from None
    except _MALFORMED as error:
        raise Damaged(f"its archive is malformed ({str(error)[:200]})") from None
    if len(entries) > MOST_ENTRIES:
        raise Damaged(f"its archive has {len(entries)} entries; at most {MOST_ENTRIES} are read")
    if any(entry.filename.endswith("/constants.pkl") for entry in entries):
        raise Damaged("it is a TorchScript program, whose code is not run; save model.state_dict() with torch.save")
    places: dict[str, tuple[int, int]] = {}
    for entry in entries:
        if entry.filename in places:
            raise Damaged(f"its archive has {entry.filename[:80]!r} twice")
        places[entry.filename] = _place(source, entry, start, end)
    if sum(size for _, size in places.values()) > source.size:
        raise Damaged("the entries of its archive share bytes")
    roots = [name.removesuffix("/data.pkl") for name in places if name.endswith("/data.pkl")]
    if len(roots) != 1:
        raise Damaged("its archive has no data.pkl, so torch.save did not write it" if not roots else
                      "its archive has more than one data.pkl")
    own = {name[len(roots[0]) + 1:]: place for name, place in places.items() if name.startswith(roots[0] + "/")}
    found = Archive(source, own, False)
    order = found.read("byteorder", 16) if "byteorder" in own else b"little"
    if order not in (b"little", b"big"):
        raise Damaged(f"its byteorder is {order!r}")
    return Archive(source, own, order == b"big")


def _place(source: Source, entry: zipfile.ZipInfo, start: int, end: int) -> tuple[int, int]:
    """Where an entry's bytes are; its own header has the say about where they begin."""
    name = entry.filename[:80]
    if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
        raise Damaged(f"{name!r} is compressed; torch.save stores entries as they are: extract the archive and pack "
                      "it with zip -0")
    if entry.flag_bits & 0x41:
        raise Damaged(f"{name!r} is encrypted")
    if not start <= entry.header_offset <= end - LOCAL.size:
        raise Damaged(f"{name!r} begins outside of the file")
    source.file.seek(entry.header_offset)
    header = read_exactly(source.file, LOCAL.size)
    if len(header) != LOCAL.size:
        raise Damaged(f"it ends within {name!r}")
    signature, name_length, extra_length = LOCAL.unpack(header)
    first = entry.header_offset + LOCAL.size + name_length + extra_length
    if signature != b"PK\3\4" or entry.file_size < 0 or first + entry.file_size > end:
        raise Damaged(f"{name!r} is not where its archive says")
    return first, entry.file_size
