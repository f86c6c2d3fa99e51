"""What is inconsistent today, by program and kind. It only shrinks: a row that is mended fails the sweep until it is
taken out."""

from __future__ import annotations

KNOWN: frozenset[tuple[str, str]] = frozenset({
    ("dropout", "signal"),  # 2 of 2,800 once, none of 1,400 since: a loss that did not require grad
})
"""(program, kind): some fault of the kind leaves an inconsistent state."""
