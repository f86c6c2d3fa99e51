"""What templates share: the block sizes of a product's kernel, and lines of text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tile:
    """Block sizes of C and of the sum, warps, and how many blocks are loaded ahead."""

    i: int
    j: int
    k: int
    num_warps: int
    num_stages: int


def indented(lines: list[str]) -> list[str]:
    """The lines as the body of a loop."""
    return ["    " + line for line in lines]
