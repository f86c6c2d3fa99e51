"""The built wheel is enough: installed into an empty environment, it runs the quick start."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.wheel


def _run(*command: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a command that sees nothing of the environment's modules: pip would take them for installed."""
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, env=alone, text=True, **how)


def test_the_wheel_runs_the_quick_start(tmp_path: Path) -> None:
    """From a folder that is not the project's, so that only what was installed can be imported."""
    pins = (ROOT / "constraints.txt").read_text().split()
    torch = next(line for line in pins if line.startswith("torch=="))
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT),
         check=True)
    wheel, = tmp_path.glob("*.whl")
    venv.create(tmp_path / "empty", with_pip=True)
    python = str(tmp_path / "empty" / "bin" / "python")
    install = (python, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"))
    _run(*install, torch, check=True)
    _run(*install, str(wheel), check=True)
    script = tmp_path / "quickstart.py"
    script.write_text((ROOT / "examples" / "quickstart.py").read_text())
    done = _run(python, str(script), capture_output=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("step")]
    assert len(losses) > 2 and losses[-1] < losses[0] / 10
    where = _run(python, "-c", "import genesis; print(genesis.__file__)", capture_output=True, cwd=tmp_path, check=True)
    assert str(tmp_path) in where.stdout
