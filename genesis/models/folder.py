"""Folders of models, as Hugging Face's tools write them: `config.json`, safetensors files, perhaps an index of them.

Nothing in a folder is executed. Names of files come from the index, so they are checked before any is opened; the
header of a file is checked against its size before it is mapped (`utils/safetensors_file.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from genesis.ir.types import DType
from genesis.utils.atomic_file import replace_file
from genesis.utils.safetensors_file import Damaged, mapped, parse, write

if TYPE_CHECKING:
    import numpy as np

CONFIG: Final = "config.json"
WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
SHARD: Final = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
"""Names of the files of weights that are several."""

SAMPLES: Final = 64
SAMPLE_BYTES: Final = 4096
"""How much of each file tells a model from another: a page at so many places, which takes a few milliseconds."""

LONGEST_JSON: Final = 100_000_000
"""Bytes of the longest JSON file that is read."""


def find_folder(name: str | os.PathLike[str], revision: str = "main") -> Path:
    """The folder itself, or the one in Hugging Face's cache of a name such as "Qwen/Qwen3-0.6B".

    The cache is `$HF_HUB_CACHE`, `$HF_HOME/hub` or `~/.cache/huggingface/hub`. Nothing is downloaded.

    Args:
        name: a path, or `organisation/name`.
        revision: a branch, a tag or a commit, for a name.

    Raises:
        FileNotFoundError: there is neither; the message says where was looked.
    """
    path = Path(name)
    if str(name) and path.is_dir():
        return path
    parts = str(name).split("/")
    if len(parts) not in (1, 2) or not all(_is_plain(part) for part in parts):
        raise FileNotFoundError(f"there is no folder {str(name)!r}, and it is no name of a model (organisation/name)")
    if not all(_is_plain(part) for part in revision.split("/")):
        raise ValueError(f"{revision!r} is no name of a revision")
    kept = _hub_cache() / ("models--" + "--".join(parts))
    reference = kept / "refs" / revision
    commit = reference.read_text().strip() if reference.is_file() else revision
    found = kept / "snapshots" / commit
    if _is_plain(commit) and found.is_dir():
        return found
    raise FileNotFoundError(
        f"there is no folder {str(name)!r}, and the cache of models has no revision {revision!r} of it (looked at "
        f"{found}); Genesis downloads nothing: fetch it with Hugging Face's own tool, or give the path of a folder")


def _hub_cache() -> Path:
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache)
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    return Path(home) / "hub"


def _is_plain(name: str) -> bool:
    """One part of a path that leads nowhere else."""
    return name not in ("", ".", "..") and not set(name) & set("/\\\0")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is no JSON object, or larger than any configuration.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent} has no {path.name}")
    if path.stat().st_size > LONGEST_JSON:
        raise ValueError(f"{path} is larger than {LONGEST_JSON} bytes")
    try:
        found = parse(path.read_text(encoding="utf-8"))
    except (Damaged, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged ({error})") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is no JSON object")
    return found


def checked_file(folder: Path, name: Any) -> Path:
    """The file of a folder that an index names.

    Raises:
        ValueError: the name is no relative path below the folder to a safetensors file.
    """
    parts = PurePosixPath(name).parts if isinstance(name, str) else ()
    if not parts or not all(map(_is_plain, parts)) or not parts[-1].endswith(".safetensors"):
        raise ValueError(f"{folder / INDEX} names {name!r}, which is no safetensors file below the folder")
    return folder.joinpath(*parts)


def fingerprint(folder: Path) -> str:
    """What tells a folder's model from others, of the same sizes too: a digest of its configuration and of samples of
    its weights."""
    return sampled(sorted(folder.glob("*.safetensors")), (folder / CONFIG).read_bytes())


def sampled(files: Sequence[Path], first: bytes = b"") -> str:
    """A digest of some bytes, of files' names and sizes, and of samples at places all over each file."""
    found = hashlib.sha256(first)
    for path in files:
        size = path.stat().st_size
        found.update(f"{path.name} {size}".encode())
        with path.open("rb") as file:
            for i in range(SAMPLES):
                file.seek(i * max(0, size - SAMPLE_BYTES) // (SAMPLES - 1))
                found.update(file.read(SAMPLE_BYTES))
    return found.hexdigest()


class StoredWeights(Mapping[str, "np.ndarray"]):
    """The tensors of a folder by name, mapped: the bytes of one are read when it is used.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file or the index is damaged, or a tensor is in no file that the index names.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._arrays: dict[str, np.ndarray] = {}
        self.dtypes: dict[str, DType] = {}
        for path, names in self._files():
            found = self._read(path)
            for name in found if names is None else names:
                if name not in found:
                    raise ValueError(f"{path} has no tensor {name!r}, where the index says it is")
                self._arrays[name], self.dtypes[name] = found[name]

    def _files(self) -> Iterator[tuple[Path, list[str] | None]]:
        """The folder's files, and which tensors are wanted of each; None for all."""
        if not (self.folder / INDEX).is_file():
            yield self.folder / WEIGHTS, None
            return
        places = read_json(self.folder / INDEX).get("weight_map")
        if not isinstance(places, dict):
            raise ValueError(f"{self.folder / INDEX} has no weight_map")
        by_file: dict[Path, list[str]] = {}
        for name, file in places.items():
            by_file.setdefault(checked_file(self.folder, file), []).append(name)
        yield from by_file.items()

    def _read(self, path: Path) -> dict[str, tuple[np.ndarray, DType]]:
        if not path.is_file():
            pickled = sorted(p.name for p in self.folder.glob("*.bin"))
            raise FileNotFoundError(f"{self.folder} has no {path.name}" + (
                f"; {pickled[0]} is a pickle, which can run any program when it is read: convert it to safetensors"
                if pickled else ""))
        try:
            return mapped(path)[0]
        except (Damaged, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is damaged or no safetensors file ({error})") from None

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)


def write_weights(folder: Path, arrays: Mapping[str, tuple[DType, np.ndarray]], largest: int) -> None:
    """Write tensors as one file, or as several of at most `largest` bytes with an index, in place of those of before.

    Where files of before would be mixed with new ones the old index goes first: a folder that a kill leaves half
    written has no model, and none is made of two.
    """
    shards: list[dict[str, tuple[DType, np.ndarray]]] = [{}]
    filled = 0
    for name, (dtype, array) in arrays.items():
        if shards[-1] and filled + array.nbytes > largest:
            shards.append({})
            filled = 0
        shards[-1][name] = dtype, array
        filled += array.nbytes
    if len(shards) == 1:
        _write_shard(folder / WEIGHTS, shards[0])
        (folder / INDEX).unlink(missing_ok=True)
        _remove_shards(folder, ())
        return
    names = [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
    if any((folder / name).exists() for name in names):
        (folder / WEIGHTS).unlink(missing_ok=True)
        (folder / INDEX).unlink(missing_ok=True)
    for file, shard in zip(names, shards, strict=True):
        _write_shard(folder / file, shard)
    places = {name: file for file, shard in zip(names, shards, strict=True) for name in shard}
    write_json(folder / INDEX, {"metadata": {"total_size": sum(a.nbytes for _, a in arrays.values())},
                                "weight_map": dict(sorted(places.items()))})
    (folder / WEIGHTS).unlink(missing_ok=True)
    _remove_shards(folder, names)


def _remove_shards(folder: Path, kept: Sequence[str]) -> None:
    """Remove shards of before: some tools read all of a folder's, whatever its index says."""
    for path in folder.iterdir():
        if SHARD.fullmatch(path.name) and path.name not in kept:
            path.unlink()


def _write_shard(path: Path, shard: Mapping[str, tuple[DType, np.ndarray]]) -> None:
    replace_file(path, lambda file: write(file, shard, {"format": "pt"}))


def write_json(path: Path, value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Write a JSON file, whole or not at all."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"

    def put(file: BinaryIO) -> None:
        file.write(text.encode())
    replace_file(path, put)
