"""What is inconsistent today, by program and kind. It only shrinks: a row that is mended fails the sweep until it is
taken out."""

from __future__ import annotations

from tests.faults.programs import PROGRAMS

KNOWN: frozenset[tuple[str, str]] = frozenset({
    *((program, kind) for program in PROGRAMS for kind in ("line", "opcode", "signal")),
})
"""(program, kind): some fault of the kind leaves an inconsistent state."""
