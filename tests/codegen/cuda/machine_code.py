"""The machine code of kernels, as NVIDIA's tool prints it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from typing import Final

from triton import knobs

INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?);", re.MULTILINE)
"""An instruction in what the disassembler prints: its address and its text."""


LATENCY: Final = 700
"""Cycles until global memory answers, about: more than a block of any kernel has instructions between its loads."""


def inner_loops(cubin: bytes, having: str) -> list[list[str]]:
    """The instructions of each loop that has one of this name, and no such loop in it.

    A loop is what jumps back on a condition. The others that jump back come from where a barrier is asked again,
    behind the kernel's end.
    """
    lines = instructions(cubin)
    spans = [(int(to[1], 16), at) for at, line in lines if (to := re.match(r"@.* BRA.* 0x([0-9a-f]+)", line))]
    loops = {}
    for first, last in spans:
        body = [line for at, line in lines if first <= at <= last]
        if any(having in line for line in body):
            loops[first, last] = body
    return [body for (first, last), body in loops.items()
            if not any((first, last) != (a, b) and first <= a and b <= last for a, b in loops)]


def instructions(cubin: bytes) -> list[tuple[int, str]]:
    """Addresses and texts of a kernel's instructions."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([knobs.nvidia.cuobjdump.path, "-sass", file.name], capture_output=True, text=True,
                              check=True).stdout
    return [(int(at, 16), line) for at, line in INSTRUCTION.findall(text)]


def waits(lines: list[str]) -> float:
    """How often a warp that runs instructions alone, in order, waits for global memory, in whole latencies: once where
    all loads are asked for before the first is used."""
    ready: dict[str, int] = {}
    time = waited = 0
    for line in lines:
        op, _, operands = re.sub(r"^@!?U?P\w+ ", "", line).partition(" ")
        used = re.findall(r"\bR(\d+)", operands)
        time += 1
        until = max((ready.pop(register) for register in used if register in ready), default=0)
        waited, time = waited + max(until - time, 0), max(until, time)
        if op.startswith("LDG."):
            count = 4 if ".128" in op else 2 if op.endswith(".64") else 1
            ready |= {str(int(used[0]) + k): time + LATENCY for k in range(count)}
    return waited / LATENCY
