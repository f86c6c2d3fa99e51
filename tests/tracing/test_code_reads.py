"""What a code object can look up, in the instructions of each supported Python."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from typing import Any

import pytest

from genesis.tracing import code_reads, updates
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


def test_code_is_taken_apart_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture asks for several names of the same code, and so does each later one: `dis` took a fifth of it."""
    def updated(x: Any) -> None:
        x.count += 1
        x.last = x
    taken: list[Any] = []
    original = dis.get_instructions
    monkeypatch.setattr(dis, "get_instructions", lambda code: taken.append(code) or original(code))
    for _ in range(2):
        assert updates.only_counted("count", [updated.__code__]) and updates.only_stored("last", [updated.__code__])
        assert not updates.only_stored("count", [updated.__code__])
        assert code_reads.place_of("last", [updated.__code__]).endswith("updated")
    assert taken == [updated.__code__]
