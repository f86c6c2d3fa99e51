"""Files from the web in torch's own cache, and the weights in them, which `genesis.load` reads and never executes."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import urllib.request
from typing import Any, BinaryIO, Final
from urllib.parse import urlparse

from genesis.ir.errors import failure
from genesis.ir.suggest import suggesting
from genesis.utils.atomic_file import replace_file
from genesis.utils.locations import MapLocation
from genesis.utils.serialization import load

HASH_IN_NAME: Final = re.compile(r"-([a-f0-9]*)\.")
"""The digits of a SHA-256 that a file's name has before its ending, as in resnet18-f37072fd.pth."""

PART: Final = 1 << 17
"""Bytes that are read at once."""

_chosen: str | None = None


def get_dir() -> str:
    """Where downloads are kept: what `set_dir` was given, else `hub` in $TORCH_HOME, in $XDG_CACHE_HOME/torch, or in
    ~/.cache/torch."""
    if _chosen is not None:
        return _chosen
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "torch")
    return os.path.join(os.path.expanduser(os.environ.get("TORCH_HOME", cache)), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Keep downloads in this folder."""
    global _chosen
    _chosen = os.path.expanduser(d)


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Write what an address gives to a file, all of it or nothing.

    Args:
        url: the address.
        dst: the file, which is replaced if it is there.
        hash_prefix: the first digits of its SHA-256.
        progress: accepted; no bar is drawn.

    Raises:
        RuntimeError: its SHA-256 begins with other digits.
        OSError: it cannot be fetched, or the file not be written.
    """
    def write(file: BinaryIO) -> None:
        seen = hashlib.sha256()
        request = urllib.request.Request(url, headers={"User-Agent": "genesis.hub"})
        with urllib.request.urlopen(request) as source:
            while part := source.read(PART):
                file.write(part)
                seen.update(part)
        digits = seen.hexdigest()
        if hash_prefix is not None and not digits.startswith(hash_prefix):
            raise failure("hub.download_url_to_file", f"invalid hash value (expected {hash_prefix!r}, got {digits!r})",
                          hint="the file is damaged, or another one than was meant")
    replace_file(os.path.expanduser(dst), write)


def load_state_dict_from_url(url: str, model_dir: str | None = None, map_location: MapLocation = None,
                             progress: bool = True, check_hash: bool = False, file_name: str | None = None,
                             weights_only: bool | None = None) -> Any:
    """The weights at an address, which are downloaded where they are not in the folder yet.

    Args:
        url: the address.
        model_dir: the folder; `checkpoints` in `get_dir()` by default.
        map_location: as of `genesis.load`.
        progress: accepted; no bar is drawn.
        check_hash: whether the SHA-256 begins with the digits in the file's name.
        file_name: what the file is called there; by default as in the address.
        weights_only: accepted: nothing in a file is ever executed.

    Raises:
        RuntimeError: with `check_hash`, its SHA-256 is another.
        OSError: it cannot be fetched, or not be written.
    """
    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else os.path.expanduser(model_dir)
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        print(f'Downloading: "{url}" to {path}', file=sys.stderr)
        digits = HASH_IN_NAME.search(name) if check_hash else None
        download_url_to_file(url, path, digits[1] if digits else None, progress)
    return load(path, map_location=map_location)


__getattr__ = suggesting(__name__)
