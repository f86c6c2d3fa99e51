"""Real text that every machine has: the sources of Python's standard library, as bytes."""

from __future__ import annotations

import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

MAX_FILE_BYTES = 200_000
"""Bytes of a source file that is read, at most."""

MAX_CORPUS_BYTES = 6_000_000
"""Bytes of all texts together, at most."""

VALIDATION_SHARE = 0.1
"""The part of the files that is kept for validation."""

# Tests and test data of the library, third-party packages, and tables that are not prose or code.
LEFT_OUT = frozenset({"test", "tests", "idlelib", "idle_test", "lib2to3", "site-packages", "dist-packages",
                      "encodings", "pydoc_data", "__pycache__", "ensurepip", "turtledemo"})


@dataclass(frozen=True)
class Corpus:
    """Two disjoint sets of files, each joined into one array of bytes.

    Attributes:
        train: uint8[n].
        validation: uint8[m], from other files.
        files: how many files each of them holds: (train, validation).
        origin: the folder they come from.
    """

    train: Bytes
    validation: Bytes
    files: tuple[int, int]
    origin: str


def load(root: Path | None = None, limit: int = MAX_CORPUS_BYTES) -> Corpus:
    """The standard library of the running Python, or another folder of `.py` files.

    A file belongs to the validation split when the hash of its name says so, so the split is the
    same in every run and a file is never in both. Files are taken in the order of that hash until
    `limit` bytes are read: a capped corpus is a fair sample, not the start of the alphabet.

    Raises:
        FileNotFoundError: the folder holds too little text for both splits.
    """
    root = root or Path(sysconfig.get_paths()["stdlib"])
    train: list[bytes] = []
    validation: list[bytes] = []
    total = 0
    for path in sorted(_sources(root), key=lambda path: (_draw(path, root), path)):
        text = path.read_bytes()
        if total + len(text) > limit:
            break
        total += len(text)
        # The order is by the hash itself; a second draw keeps the split independent of the cap.
        (validation if _draw(path, root, "split") < VALIDATION_SHARE else train).append(text)
    if not train or not validation:
        raise FileNotFoundError(f"{root} holds too few Python files to train on ({len(train)} for training, "
                                f"{len(validation)} for validation). Install the standard library's sources.")
    return Corpus(_joined(train), _joined(validation), (len(train), len(validation)), str(root))


def _sources(root: Path) -> list[Path]:
    return [path for path in root.rglob("*.py")
            if not LEFT_OUT.intersection(path.relative_to(root).parts) and 0 < path.stat().st_size <= MAX_FILE_BYTES]


def _draw(path: Path, root: Path, salt: str = "order") -> float:
    """A number in [0, 1) that depends on the file's name alone."""
    name = f"{salt}:{path.relative_to(root).as_posix()}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64


def _joined(texts: list[bytes]) -> Bytes:
    return np.frombuffer(b"".join(texts), dtype=np.uint8)
