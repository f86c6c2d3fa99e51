"""Sources: the line of the user's program where an op was recorded.

A location is kept as (code object, instruction offset): two attribute reads when an op is
recorded, turned into file, line and function only when somebody looks.
"""

from __future__ import annotations

import linecache
import os
import sys
from types import CodeType
from typing import Final

PACKAGE: Final = os.path.dirname(os.path.dirname(__file__)) + os.sep
"""The folder of Genesis, as its code objects name it: where a link leads to it, by the link's name."""

_USER_PACKAGES = tuple(f"{PACKAGE}{name}{os.sep}" for name in ("models", "cli"))


class _Internal(dict[str, bool]):
    """File → whether it is Genesis' own, worked out when it is first asked for."""

    def __missing__(self, filename: str) -> bool:
        inside = self[filename] = filename.startswith(PACKAGE) and not filename.startswith(_USER_PACKAGES)
        return inside


_internal = _Internal()


class Source:
    """One line of the user's program."""

    __slots__ = ("_code", "_offset")

    called = ""
    """The function that recorded the op, where the line need not name it."""

    def __init__(self, code: CodeType, offset: int):
        self._code, self._offset = code, offset

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._code is other._code and self._offset == other._offset

    def __hash__(self) -> int:
        return hash((id(self._code), self._offset))

    @property
    def filename(self) -> str:
        """Full path of the file."""
        return self._code.co_filename

    @property
    def line(self) -> int:
        """Line number, from 1."""
        for start, end, line in self._code.co_lines():
            if start <= self._offset < end and line is not None:
                return line
        return self._code.co_firstlineno

    @property
    def function(self) -> str:
        """Qualified name of the function, '' at module level."""
        name = self._code.co_qualname
        return "" if name == "<module>" else name.replace("<locals>.", "")

    @property
    def text(self) -> str:
        """The line itself, stripped ('' when the file cannot be read)."""
        return linecache.getline(self.filename, self.line).strip()

    def __str__(self) -> str:
        return f"{os.path.basename(self.filename)}:{self.line} {self.function}".rstrip()


class CalledSource(Source):
    """A line of the user's program that calls a function without naming it, as one that calls a module does."""

    __slots__ = ("called",)

    def __init__(self, code: CodeType, offset: int, called: str):
        super().__init__(code, offset)
        self.called = called


class TextSource:
    """A location that was read from IR text: only its printed form is known."""

    __slots__ = ("_printed",)
    filename = ""
    line = 0
    function = ""
    text = ""
    called = ""

    def __init__(self, printed: str):
        self._printed = printed

    @property
    def full(self) -> str:
        """The text with the file's folder, where that is known (`ir.ops.checked.line_of`)."""
        return self._printed

    def __eq__(self, other: object) -> bool:
        return type(other) is TextSource and self._printed == other._printed

    def __hash__(self) -> int:
        return hash(self._printed)

    def __str__(self) -> str:
        return self._printed


class SentSource(TextSource):
    """A line of a program of another process: what `line_of` said of it there, and the function that it calls."""

    __slots__ = ("_full", "called")

    def __init__(self, full: str, called: str):
        super().__init__(full.rpartition(os.sep)[2])
        self._full, self.called = full, called

    @property
    def full(self) -> str:
        """The text with the file's folder."""
        return self._full


def is_internal(filename: str) -> bool:
    """Whether a file is of Genesis itself; models and the CLI count as the user's."""
    return _internal[filename]


_new_source = object.__new__
_frame = sys._getframe


def here(inside: int = 0) -> Source | None:
    """The innermost frame outside Genesis (models and the CLI count as outside).

    `inside`: how many of the callers, the next ones, are Genesis' own for certain: to look at each takes 0.06 µs.
    """
    try:
        frame = _frame(1 + inside)
    except ValueError:  # C code has called one of these
        frame = _frame(1)
    while frame is not None:
        code = frame.f_code
        if not _internal[code.co_filename]:
            found = _new_source(Source)  # what `Source(...)` does, in half its time
            found._code, found._offset = code, frame.f_lasti
            return found
        frame = frame.f_back  # type: ignore[assignment]
    return None


def here_in(called: str) -> Source | None:
    """`here`, knowing the public function that records."""
    found = here()
    return None if found is None else CalledSource(found._code, found._offset, called)
