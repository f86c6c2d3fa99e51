"""Golden text: the stages of a few dozen programs are those that were looked at and kept.

After a change that is meant, `UPDATE_GOLDEN=1 pytest tests/golden` writes the files anew; the
difference is then there to be read like any other change.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from genesis.ir.parser import parse
from genesis.ir.printer import print_graph
from genesis.ir.verify import verify
from tests.golden.programs import CUDA, PROGRAMS

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
UPDATE = os.environ.get("UPDATE_GOLDEN", "") not in ("", "0")


@cache
def generated(hash_seed: str) -> dict[str, str]:
    """The texts as a new process makes them."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-m", "tests.golden.stages"], cwd=ROOT, env=environment, text=True,
                          capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def kept(name: str) -> list[str]:
    """The files of the programs."""
    return [f"{name}.txt", *([f"{name}.cuda.txt"] if name in CUDA else [])]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    for file in kept(name):
        text = generated("0")[file]
        if UPDATE:
            (HERE / file).write_text(text)
        assert (HERE / file).read_text() == text, f"{file} differs; UPDATE_GOLDEN=1 keeps the new text if it is meant"


def test_nothing_depends_on_the_order_of_hashes() -> None:
    """Every byte, that of the generated kernels included, is the same under another hash seed."""
    assert generated("0") == generated("12345")


def test_no_file_without_a_program() -> None:
    expected = {file for name in PROGRAMS for file in kept(name)}
    if UPDATE:
        for path in HERE.glob("*.txt"):
            if path.name not in expected:
                path.unlink()
    assert {path.name for path in HERE.glob("*.txt")} == expected


@pytest.mark.parametrize("name", PROGRAMS)
def test_graphs_parse_back(name: str) -> None:
    """The kept text is the whole program: parsed and printed it is the same, and keeps the IR's rules."""
    for part in (HERE / f"{name}.txt").read_text().split("\n\n"):
        title, _, text = part.partition("\n")
        if title != "== groups" and text.strip() != "as before":
            graph = verify(parse(text))
            assert print_graph(graph, sources=False) == text.rstrip("\n")
