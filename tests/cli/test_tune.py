"""`genesis tune`: run a script, time its kernels, print the table."""

from __future__ import annotations

from pathlib import Path

import pytest

import genesis
from genesis.cli.main import main
from genesis.codegen.cuda.tuning import Trial
from genesis.engine import tuning
from genesis.engine.backends import FakeCUDABackend
from genesis.runtime.fake_cuda.driver import HostDriver

SCRIPT = """
import sys
import genesis
x = genesis.ones(32, 96, device="cuda", dtype=genesis.bfloat16)
w = genesis.ones(96, 128, device="cuda", dtype=genesis.bfloat16)
genesis.eval(x, w)
genesis.eval(x @ w)
print("told", sys.argv[1:])
"""
OTHER = "64x64x128 warps=4 stages=3"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GENESIS_CACHE_DIR", str(tmp_path / "cache"))
    tuning._table_in.cache_clear()
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def gpu() -> FakeCUDABackend:
    """A GPU to which `OTHER` is fastest."""
    def timer(trial: Trial) -> float:
        return 7.0 if trial.taken.candidate.name == OTHER else 10.0
    return FakeCUDABackend(HostDriver(memory_bytes=16 << 20), timer)


def test_the_table_is_printed_and_kept(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with gpu():
        assert main(["tune", str(script), "--", "--steps", "1"]) == 0
        out, err = capsys.readouterr()
        assert "told ['--steps', '1']" in err
        lines = out.splitlines()
        assert lines[0] == "# Genesis host driver: 1 rows, 1 of them new"
        kind, *words = lines[2].split()
        assert kind == "product" and "dot=half" in words and words[-2:] == ["7.0", "10.0"] and OTHER in lines[2]
        assert genesis.config.tune == "model", "as before"
    tuning._table_in.cache_clear()
    with gpu():
        assert main(["tune", str(script)]) == 0
        out, err = capsys.readouterr()
        assert out.splitlines()[0].endswith("1 rows, 0 of them new") and out.splitlines()[2].endswith("known")
        assert "nothing was timed" in err


def test_why_and_dump_say_who_decided(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tuned = script.with_name("tuned.py")
    tuned.write_text(SCRIPT.replace("import genesis\n", 'import genesis\ngenesis.config.tune = "max"\n', 1))
    before = genesis.config.tune
    try:
        with gpu():
            assert main(["why", str(script)]) == 0
            assert "    made as product 64x64x64 warps=4 stages=4, by the model" in capsys.readouterr().out
            assert main(["why", str(tuned)]) == 0
            assert f"    made as product {OTHER}, tuned (7.0 µs, 10.0 without)" in capsys.readouterr().out
            genesis.engine.reset()
            assert main(["dump", str(tuned), "--stage", "kernels"]) == 0
            assert f"      made as product {OTHER}, tuned (7.0 µs, 10.0 without)" in capsys.readouterr().out
    finally:
        genesis.config.tune = before


def test_why_says_it_of_a_gpu_that_is_not_there(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text(SCRIPT.replace('device="cuda", ', ""))
    assert main(["why", str(script), "--target", "l4"]) == 0
    assert "made as product 64x64x64 warps=4 stages=4, by the model" in capsys.readouterr().out


def test_without_a_gpu_nothing_is_timed(script: Path, capsys: pytest.CaptureFixture[str],
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    with gpu() as backend:
        monkeypatch.setattr(backend, "device_count", lambda: 0)
        assert main(["tune", str(script)]) == 2
    assert "there is no GPU here" in capsys.readouterr().err


def test_a_script_that_is_not_there_and_ranks_are_refused(script: Path, capsys: pytest.CaptureFixture[str],
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    with gpu():
        assert main(["tune", "nowhere.py"]) == 2
        assert "there is no file nowhere.py" in capsys.readouterr().err
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert main(["tune", str(script)]) == 2
        assert "one of 2 ranks" in capsys.readouterr().err


def test_the_table_is_counted_and_cleared_with_the_cache(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with gpu():
        main(["tune", str(script)])
        capsys.readouterr()
        assert main(["cache"]) == 0 and "and 1 table" in capsys.readouterr().out
        assert main(["cache", "list", "--tuned"]) == 0
        assert "measured choices of Genesis host driver" in capsys.readouterr().out
        assert main(["cache", "clear", "--tuned"]) == 0 and "removed 1 table" in capsys.readouterr().out
        assert main(["cache"]) == 0 and "1 table" not in capsys.readouterr().out
