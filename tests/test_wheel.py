"""The built wheel is enough: installed into an empty environment, it runs the quick start."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.wheel


def test_the_wheel_runs_the_quick_start(tmp_path: Path) -> None:
    """From a folder that is not the project's, so that only what was installed can be imported."""
    pins = (ROOT / "constraints.txt").read_text().split()
    torch = next(line for line in pins if line.startswith("torch=="))
    pip = [sys.executable, "-m", "pip"]
    subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)], check=True)
    wheel, = tmp_path.glob("*.whl")
    venv.create(tmp_path / "empty", with_pip=True)
    python = str(tmp_path / "empty" / "bin" / "python")
    constrained = [python, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*constrained, torch], check=True)
    subprocess.run([*constrained, str(wheel)], check=True)
    script = tmp_path / "quickstart.py"
    script.write_text((ROOT / "examples" / "quickstart.py").read_text())
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([python, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=300, env=alone)
    assert done.returncode == 0, done.stderr
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("step")]
    assert len(losses) > 2 and losses[-1] < losses[0] / 10
    where = subprocess.run([python, "-c", "import genesis; print(genesis.__file__)"], capture_output=True, text=True,
                           cwd=tmp_path, check=True, env=alone).stdout
    assert str(tmp_path) in where
