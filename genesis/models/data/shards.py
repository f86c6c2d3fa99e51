"""Tokens on the disk: a folder of files that are mapped when they are read.

    tokens.json             {"format": "genesis-tokens-1", "dtype": "uint16", "vocab_size": 50257, "end": 50256,
                             "shards": [{"tokens": 100000000, "documents": 81234}, …]}
    00000.tokens.bin        the tokens of all documents, one after another
    00000.documents.bin     where each document ends, uint64
    tokenizer.json, …       the tokenizer, so that what is trained on the tokens can be read

Numbers are little-endian. `tokens.json` is written last: a folder without it is no data set.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from genesis.models.folder import CONFIG, find_folder, read_json, write_json
from genesis.utils.atomic_file import replace_file

if TYPE_CHECKING:
    import numpy as np

    from genesis.models.text import Tokenizer

INDEX: Final = "tokens.json"
FORMAT: Final = "genesis-tokens-1"
TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
                          "generation_config.json")
"""What a folder's tokenizer is read from."""

SHARD_TOKENS: Final = 100_000_000
"""Tokens of a shard; its last document is never cut, so it may have more."""

TEXTS_AT_ONCE: Final = 256
"""Texts that are encoded together: the tokenizer shares them among its threads."""


def copy_tokenizer(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copy a folder's tokenizer into another folder, in place of one that is there. Each file is copied whole or not.

    Raises:
        FileNotFoundError: there is no such folder, or no tokenizer in it.
    """
    origin = find_folder(source)
    if not (origin / TOKENIZER_FILES[0]).is_file():
        raise FileNotFoundError(f"{origin} has no {TOKENIZER_FILES[0]}")
    folder = Path(target)
    folder.mkdir(parents=True, exist_ok=True)
    if folder.samefile(origin):
        return
    for name in TOKENIZER_FILES:
        if (origin / name).is_file():
            with (origin / name).open("rb") as file:
                replace_file(folder / name, partial(shutil.copyfileobj, file))
        else:
            (folder / name).unlink(missing_ok=True)


def check_free(folder: str | os.PathLike[str]) -> None:
    """Raise ValueError where tokens would take the place of others, or their tokenizer that of a model."""
    path = Path(folder)
    if (path / INDEX).exists():
        raise ValueError(f"{path} holds tokens already: write to another folder, or remove it")
    if (path / CONFIG).exists():
        raise ValueError(f"{path} holds a model: write to another folder")


def write_tokens(texts: Iterable[str], tokenizer: Tokenizer, folder: str | os.PathLike[str],
                 shard_tokens: int = SHARD_TOKENS) -> TokenFolder:
    """Write the tokens of documents; each ends with the tokenizer's end of text, where it has one.

    Args:
        texts: a document each; empty ones are left out.
        tokenizer: whose tokens they become.
        folder: is made if there is none.
        shard_tokens: how many tokens a file has before the next begins.

    Raises:
        ValueError: the folder holds tokens already, or a model, or there are no texts.

    >>> import tempfile
    >>> from genesis.models.text import byte_tokenizer
    >>> found = write_tokens(["ab", "cde"], byte_tokenizer(), tempfile.mkdtemp())
    >>> found.documents, found.tokens, [document.tolist() for document in found]
    (2, 7, [[97, 98, 256], [99, 100, 101, 256]])
    """
    import numpy as np
    path = Path(folder)
    check_free(path)
    if shard_tokens < 1:
        raise ValueError(f"write_tokens: shard_tokens={shard_tokens} is no number of tokens: it is 1 or more")
    path.mkdir(parents=True, exist_ok=True)
    dtype = np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")
    shards: list[dict[str, int]] = []
    documents = _encoded(texts, tokenizer)
    for first in documents:
        number = len(shards)
        with (path / _tokens(number)).open("wb") as tokens, (path / _documents(number)).open("wb") as ends:
            shards.append(_write_shard(first, documents, tokens, ends, dtype, shard_tokens))
            for file in (tokens, ends):
                file.flush()
                os.fsync(file.fileno())
    if not shards:
        raise ValueError("write_tokens: there are no texts")
    write_json(path / INDEX, {"format": FORMAT, "dtype": dtype.name, "vocab_size": tokenizer.vocab_size,
                              "end": tokenizer.end_id, "shards": shards})
    return TokenFolder(path)


def _encoded(texts: Iterable[str], tokenizer: Tokenizer) -> Iterator[list[int]]:
    """The tokens of each document."""
    end = [] if tokenizer.end_id is None else [tokenizer.end_id]
    several: list[str] = []

    def encoded() -> Iterator[list[int]]:
        for ids in tokenizer.encode_many(several):
            yield ids if ids[-1:] == end else ids + end
        several.clear()
    for text in texts:
        if text:
            several.append(text)
        if len(several) == TEXTS_AT_ONCE:
            yield from encoded()
    yield from encoded()


def _write_shard(first: list[int], more: Iterator[list[int]], tokens: BinaryIO, ends: BinaryIO, dtype: Any,
                 most: int) -> dict[str, int]:
    """Write documents until the shard is full; returns its entry in the index."""
    import numpy as np
    end = count = 0
    document: list[int] | None = first
    while document is not None:
        tokens.write(np.array(document, dtype).tobytes())
        end, count = end + len(document), count + 1
        ends.write(np.array(end, "<u8").tobytes())
        document = next(more, None) if end < most else None
    return {"tokens": end, "documents": count}


def _tokens(shard: int) -> str:
    return f"{shard:05d}.tokens.bin"


def _documents(shard: int) -> str:
    return f"{shard:05d}.documents.bin"


class TokenFolder(Sequence["np.ndarray"]):
    """The documents that `write_tokens` wrote, as arrays over mapped files.

    Attributes:
        path: the folder.
        vocab_size: of the tokenizer.
        end_id: the token that ends each document, or None.
        shards: (tokens, ends of documents) of each file.
        tokens, documents: how many there are.

    Raises:
        FileNotFoundError: there are no tokens in the folder, or a file is missing.
        ValueError: a file is not as it was written.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self.path = Path(folder)
        if not (self.path / INDEX).is_file():
            raise FileNotFoundError(f"{self.path} holds no tokens: there is no {INDEX} in it; "
                                    "genesis data TEXT… --tokenizer T -o FOLDER writes one")
        index = read_json(self.path / INDEX)
        try:
            if index["format"] != FORMAT or index["dtype"] not in ("uint16", "uint32"):
                raise ValueError(f"{self.path / INDEX} is not of the format {FORMAT}")
            counts = [(int(shard["tokens"]), int(shard["documents"])) for shard in index["shards"]]
            self.vocab_size = int(index["vocab_size"])
            self.end_id = None if index.get("end") is None else int(index["end"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"{self.path / INDEX} is damaged: {error}") from None
        self.dtype = index["dtype"]
        self.shards = [self._opened(number, *shard) for number, shard in enumerate(counts)]
        self.tokens, self.documents = (sum(column) for column in zip(*counts, strict=True))
        self._firsts = [sum(count for _, count in counts[:i]) for i in range(len(counts))]

    def _opened(self, number: int, tokens: int, documents: int) -> tuple[np.ndarray, np.ndarray]:
        import numpy as np
        found = []
        for name, dtype, count in ((_tokens(number), self.dtype, tokens), (_documents(number), "uint64", documents)):
            path, kind = self.path / name, np.dtype(dtype).newbyteorder("<")
            size = path.stat().st_size if path.is_file() else -1
            if size < 0:
                raise FileNotFoundError(f"{self.path} has no {name}")
            if count <= 0 or size != count * kind.itemsize:
                raise ValueError(f"{path} has {size} bytes, not {count} numbers of {dtype}")
            found.append(np.memmap(path, kind, "r", shape=(count,)))
        ends = found[1]
        if int(ends[-1]) != tokens or not bool((ends[:-1] < ends[1:]).all()):
            raise ValueError(f"{self.path / _documents(number)} is damaged: its ends are not those of {tokens} tokens")
        return found[0], ends

    def __len__(self) -> int:
        return self.documents

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"document {index} of {len(self)}")
        shard = max(i for i, first in enumerate(self._firsts) if first <= place)
        tokens, ends = self.shards[shard]
        local = place - self._firsts[shard]
        return tokens[int(ends[local - 1]) if local else 0:int(ends[local])]
