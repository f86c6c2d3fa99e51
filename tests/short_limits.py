"""Limits of what is pending that short loops reach: programs are cut after a hundred ops, not after many thousands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import genesis
from genesis import engine
from genesis.engine import limits
from genesis.frontend.state import state


def short_limits(nodes: int, often: int, nbytes: int | None = None, autouse: bool = True) -> Any:
    """A fixture of the module that holds it: these limits, and an engine that knows no program.

    Args:
        nodes: `config.pending_nodes`.
        often: how many turns of a loop make it one that repeats.
        nbytes: `config.pending_bytes`; None leaves it.
        autouse: whether each test of the module has them.
    """
    @pytest.fixture(autouse=autouse)
    def limited(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setattr(genesis.config, "pending_nodes", nodes)
        if nbytes is not None:
            monkeypatch.setattr(genesis.config, "pending_bytes", nbytes)
        monkeypatch.setattr(limits, "OFTEN", often)
        genesis.eval()
        engine.reset()
        state.look_at = 0
        yield
        state.look_at = 0
    return limited
