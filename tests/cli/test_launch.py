"""genesis launch: processes that find each other, their output, their exit statuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = """
import os, sys, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
sys.stdout.write(f"rank {rank} of {size} {sys.argv[1:]} {os.environ['MASTER_ADDR']}\\n")  # a piece, which none cuts
sys.stdout.flush()
if "fail" in sys.argv and rank == 1:
    sys.exit(7)
if "fail" in sys.argv:
    sys.exit(3 if time.sleep(0.5) else 0)
"""


def launch(tmp_path: Path, *words: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return subprocess.run([sys.executable, "-m", "genesis", "launch", "-n", "3", *options, str(path), *words],
                          capture_output=True, text=True, timeout=120)


def test_each_rank_knows_its_place_and_the_first_is_heard(tmp_path: Path) -> None:
    done = launch(tmp_path, "--lr", "3")
    assert (done.returncode, done.stdout) == (0, "rank 0 of 3 ['--lr', '3'] 127.0.0.1\n")
    everyone = launch(tmp_path, options=("--all-output",))
    assert sorted(line.split()[1] for line in everyone.stdout.splitlines()) == ["0", "1", "2"]


def test_a_module_is_started_as_python_does_and_what_is_behind_two_dashes_goes_to_it(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "-m", "genesis", "launch", "-n", "1", "-m", "script", "a", "--", "--b"],
                          capture_output=True, text=True, timeout=120, cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(tmp_path)])})
    assert (done.returncode, done.stdout) == (0, "rank 0 of 1 ['a', '--', '--b'] 127.0.0.1\n"), done.stderr


def test_the_status_is_that_of_the_rank_that_failed(tmp_path: Path) -> None:
    done = launch(tmp_path, "fail")
    assert done.returncode == 7
    assert "rank 1 ended with exit status 7" in done.stderr


def test_a_signal_to_the_launcher_goes_to_all_ranks(tmp_path: Path) -> None:
    """They went on when it was ended, as a cluster ends a job, and held their GPUs."""
    (tmp_path / "script.py").write_text("""
import os, pathlib, signal, sys, time
here = pathlib.Path(__file__).parent / os.environ["RANK"]
def save(*_):
    here.write_text("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
here.write_text("begun")
time.sleep(100)
""")
    files = [tmp_path / str(rank) for rank in range(2)]
    launcher = subprocess.Popen([sys.executable, "-m", "genesis", "launch", "-n", "2", str(tmp_path / "script.py")])
    try:
        end = time.monotonic() + 60
        while not all(file.exists() and file.read_text() == "begun" for file in files):
            assert time.monotonic() < end, "the ranks do not begin"
            time.sleep(0.05)
        launcher.terminate()
        assert launcher.wait(60) == 128 + signal.SIGTERM
        assert [file.read_text() for file in files] == ["saved"] * 2
    finally:
        launcher.kill()


@pytest.mark.parametrize("count", ["0", "-1"])
def test_no_processes_are_none(count: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "genesis", "launch", "-n", count, "x.py"], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 2
