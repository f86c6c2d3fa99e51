"""The check of an index that a template looks through: taken out of its loop, and told once at the end."""

from __future__ import annotations

from genesis.codegen.cuda.kernel_ir import Checked
from genesis.codegen.cuda.templates.rows import Rows


def checked_outside(rows: Rows, length: int | None) -> tuple[list[str], tuple[int, bool, str] | None]:
    """The operands' lines, and (size, whether negative ones count from the end, report) of an index that they check,
    by this length if one is given.

    Such a check is taken out of them, 30 of 110 instructions for each 32 elements: it would wait for the index where
    it is loaded ahead. What was outside is kept, and told once at the end.
    """
    lines = rows.operand_lines()
    checks = [s for s in rows.kernel.statements if isinstance(s, Checked)]
    if len(checks) != 1 or checks[0].node["ignored"] is not None or checks[0].out.name not in rows.names[0] or (
            length is not None and checks[0].node["size"] != length):
        return lines, None
    name, size, negative = checks[0].out.name, checks[0].node["size"], checks[0].node["negative"]
    begin, end = f"{name} = g_in_range(", f", {size}, {negative}, "
    return [f"{name} = {line[len(begin):].partition(end)[0]}" if line.startswith(begin) else line for line in lines], (
        size, negative, checks[0].report)
