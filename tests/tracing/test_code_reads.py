"""What a code object can look up, in the instructions of each supported Python."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from typing import Any

import pytest

from genesis.tracing import code_reads
from genesis.tracing.code_reads import imported, reads


def looks_up() -> Any:
    """Globals, attributes of theirs, imports of two levels."""
    import os.path

    from .nearby import thing  # type: ignore[import-not-found]
    return dis.opmap.get(thing), os.path.sep.join, looks_up


def small_ints_apart(code: Any) -> Iterator[Any]:
    """The instructions as 3.14 writes them: small integers are no constants."""
    for instruction in dis.Bytecode(code):
        small = instruction.opname == "LOAD_CONST" and type(instruction.argval) is int
        yield instruction._replace(opname="LOAD_SMALL_INT") if small else instruction


@pytest.fixture(params=["this Python's", "3.14's"])
def instructions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of which Python the instructions are."""
    if request.param == "3.14's":
        monkeypatch.setattr(code_reads.dis, "get_instructions", small_ints_apart)
    reads.cache_clear()
    yield
    reads.cache_clear()


@pytest.mark.usefixtures("instructions")
def test_chains_and_imports() -> None:
    found = reads(looks_up.__code__)
    assert {("dis", "opmap", "get"), ("looks_up",)} <= set(found.chains)
    assert found.imports == ((0, "os.path"), (1, "nearby"))
    assert list(imported(found, {"__package__": "a.b"})) == ["os", "os.path", "a", "a.b", "a.b.nearby"]
