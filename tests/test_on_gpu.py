"""The account of a run of the GPU's tests: however it ends, it says what failed and what was running."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import on_gpu

ROOT = Path(__file__).parent.parent

TESTS = """
import os, signal, time
import pytest

pytestmark = pytest.mark.gpu

@pytest.fixture
def cuda():
    return None

def test_right(cuda):
    pass

def test_wrong(cuda):
    assert 1 + 1 == 3, "sums are wrong"

def test_endless(cuda):
    os.kill(os.getpid(), signal.SIGTERM)  # as when the time is over; not before the others have run
    time.sleep(600)
"""

RUN = "import sys; from tests import on_gpu; sys.exit(on_gpu.main(sys.argv[1:]))"

HANGING = """
import time
from tests import on_gpu
on_gpu.GRACE, pytest_main = 0.1, on_gpu.pytest.main
on_gpu.pytest.main = lambda *arguments: (pytest_main(*arguments), time.sleep(600))
"""
"""As xdist does where a process of its waits for a GPU."""


@pytest.mark.parametrize("ends", [True, False], ids=["pytest ends", "pytest does not end"])
def test_an_interrupted_run_says_what_failed_and_what_was_running(tmp_path: Path, ends: bool) -> None:
    (tmp_path / "test_few.py").write_text(TESTS)
    log = tmp_path / "log.txt"
    found = subprocess.run(
        [sys.executable, "-c", RUN if ends else HANGING + RUN, "--jobs", "0", "--log", str(log), "--",
         "--pretend-gpu", "600", "-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest", "-p", "no:cacheprovider",
         str(tmp_path / "test_few.py")],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, text=True, capture_output=True)
    assert found.returncode == pytest.ExitCode.INTERRUPTED, found.stderr
    at_once, _, account = found.stdout.partition("Account: ")
    assert "FAILED" in at_once and "sums are wrong" in at_once
    assert account.startswith("1 failed, 1 passed in ")
    lines = account.splitlines()
    assert [line for line in lines if line.startswith("failed: ") and line.endswith("test_wrong")]
    assert [line for line in lines if line.startswith("not ended after ") and line.endswith("test_endless")]
    assert ("pytest did not end" in account) is not ends
    assert account.splitlines()[:3] == log.read_text().partition("Account: ")[2].splitlines()[:3]


def test_a_machine_without_a_gpu_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test would be skipped, which looks like success."""
    monkeypatch.setattr(on_gpu, "missing_gpu", lambda: "no NVIDIA driver")
    assert on_gpu.main(["--log", str(tmp_path / "log.txt")]) == pytest.ExitCode.USAGE_ERROR
    assert "no NVIDIA driver" in capsys.readouterr().err
