"""What is inconsistent today, by program and kind. It only shrinks: a row that is mended fails the sweep until it is
taken out."""

from __future__ import annotations

from tests.faults.programs import PROGRAMS

KNOWN: frozenset[tuple[str, str]] = frozenset({
    *((program, kind) for program in PROGRAMS for kind in ("line", "opcode", "signal")),
    *((program, "call") for program in PROGRAMS if program not in (
        "reads", "step of SGD", "loss read first", "clip norm", "autocast", "compiled step", "compiled dropout")),
    *((program, "allocation") for program in ("compiled SGD momentum", "grad scaler", "loading")),
})
"""(program, kind): some fault of the kind leaves an inconsistent state."""
