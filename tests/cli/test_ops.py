"""`genesis ops`: contracts as the registry has them, and the page that is written from them."""

from __future__ import annotations

import pytest

from genesis.cli import contract, ops
from genesis.cli.main import main
from genesis.ir import OPS
from tests.generated_pages import ROOT, check_page


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["ops", *words]) == 0
    return capsys.readouterr().out


def test_the_page_is_current() -> None:
    check_page(ROOT / "docs" / "ops.md", ops.markdown())


def test_every_op_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys).splitlines()
    assert [line.split()[0] for line in lines] == contract.names()
    assert "softmax" in contract.names() and "input" not in contract.names()


@pytest.mark.parametrize("name", contract.names())
def test_a_contract_prints(name: str) -> None:
    """Its decomposition and gradient are emitted for a sample, without an error."""
    text = ops.one(name)
    assert text.startswith(f"{name}: {OPS[name].doc}")
    assert ("\ndecomposition:" in text) == (OPS[name].decompose is not None and contract.sample(OPS[name]) is not None)


def test_a_contract_says_how_backends_run_the_op(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "tanh")
    assert "dtypes          floating-point" in text and "gradient        by its own rule" in text
    assert "on CUDA         in a loop kernel" in text and "libdevice.tanh" in text
    assert "mul(%1, %1)" in text.replace("%2", "%1"), "the gradient's program squares the result"
    assert "on CUDA         its decomposition" in printed(capsys, "softmax")
    assert "a matmul kernel" in printed(capsys, "matmul")


def test_what_goes_through_the_host_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--device", "cuda")
    host = contract.through_the_host()
    assert f"through the host: {', '.join(host) or 'no op'}" in text
    assert all(OPS[name].decompose is None for name in host)


def test_an_unknown_name_is_refused_with_a_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", "sofmax"]) == 2
    assert "softmax" in capsys.readouterr().err
