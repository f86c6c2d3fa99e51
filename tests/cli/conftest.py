"""What tests of the command line share."""

from __future__ import annotations

from typing import Any

import pytest

import genesis


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The functions that the test has had compiled, in order."""
    found: list[Any] = []
    compile = genesis.compile

    def noted(*args: Any, **options: Any) -> Any:
        found.append(compile(*args, **options))
        return found[-1]
    monkeypatch.setattr(genesis, "compile", noted)
    return found
