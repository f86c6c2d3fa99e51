"""The machine code of kernels, as NVIDIA's tool prints it."""

from __future__ import annotations

import re
import subprocess
import tempfile

from triton import knobs

INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?);", re.MULTILINE)
"""An instruction in what the disassembler prints: its address and its text."""


def inner_loops(cubin: bytes, having: str) -> list[list[str]]:
    """The instructions of each loop that has one of this name, and no such loop in it.

    A loop is what jumps back on a condition. The others that jump back come from where a barrier is asked again,
    behind the kernel's end.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([knobs.nvidia.cuobjdump.path, "-sass", file.name], capture_output=True, text=True,
                              check=True).stdout
    lines = [(int(at, 16), line) for at, line in INSTRUCTION.findall(text)]
    spans = [(int(to[1], 16), at) for at, line in lines if (to := re.match(r"@.* BRA.* 0x([0-9a-f]+)", line))]
    loops = {}
    for first, last in spans:
        body = [line for at, line in lines if first <= at <= last]
        if any(having in line for line in body):
            loops[first, last] = body
    return [body for (first, last), body in loops.items()
            if not any((first, last) != (a, b) and first <= a and b <= last for a, b in loops)]
