"""What is inconsistent today, by program and kind. It only shrinks: a row that is mended fails the sweep until it is
taken out."""

from __future__ import annotations

KNOWN: frozenset[tuple[str, str]] = frozenset()
"""(program, kind): some fault of the kind leaves an inconsistent state."""
