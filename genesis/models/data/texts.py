"""Documents of text files: a file is one, a line of a .jsonl file is one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

ENDINGS: Final = (".txt", ".md", ".jsonl")
"""Files that are read of a folder; one that is named itself may end otherwise."""


def read_texts(sources: Sequence[str | os.PathLike[str]]) -> Iterator[str]:
    """The documents of files and folders, in the order of their names.

    Args:
        sources: files of UTF-8 text, a document each; .jsonl files, a document in the field "text" of each line;
            folders, whose .txt, .md and .jsonl files are read.

    Raises:
        FileNotFoundError: there is no such file, or a folder has none to read.
        ValueError: a file is no UTF-8, or a line has no text.
    """
    for source in sources:
        for path in _files(Path(source)):
            if path.suffix == ".jsonl":
                for where, row in read_rows(path):
                    if "text" in row and not isinstance(row["text"], str):
                        raise ValueError(f"{where}: the field 'text' is no text but {row['text']!r:.40}")
                    if "text" not in row:
                        raise ValueError(f"{where}: there is no text in the field 'text'; "
                                         f"there are {', '.join(row) or 'no fields'}")
                    yield row["text"]
            else:
                yield read_text(path)


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, object) of each line of a .jsonl file; empty lines are left out.

    Raises:
        ValueError: a line is no JSON object.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            where = f"{path}, line {number}"
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{where}: this is no JSON ({error})") from None
            if not isinstance(row, dict):
                raise ValueError(f"{where}: this is no JSON object")
            if b"\\u" in line and not _is_text(row):
                raise ValueError(f"{where}: this has half a character, which is no text (\\ud800 to \\udfff by itself)")
            yield where, row


def _is_text(row: dict[str, Any]) -> bool:
    """Whether all texts of a line can be written as UTF-8."""
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _files(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    if not source.is_dir():
        raise FileNotFoundError(f"there is no file or folder {str(source)!r}")
    found = sorted(path for path in source.rglob("*") if path.suffix in ENDINGS and path.is_file())
    if not found:
        raise FileNotFoundError(f"{source} has no files that end in {', '.join(ENDINGS)}")
    return found


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        ValueError: it is no UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no UTF-8 text ({error})") from None
