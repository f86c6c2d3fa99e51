"""`genesis profile`, and `genesis.utils.profile` of the documents that Genesis starts from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import genesis
from genesis import utils
from genesis.cli.main import main

SCRIPT = """
import sys
import genesis, time
print("mine", sys.argv[1:])
x = genesis.ones(64, 64)
print((x @ x).sum().item())
end = time.perf_counter() + 0.3  # long enough to be seen by who looks every millisecond
while time.perf_counter() < end:
    pass
if "fail" in sys.argv:
    raise ValueError("it fails")
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "small.py"
    path.write_text(SCRIPT)
    return str(path)


def test_the_command(script: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.json"
    assert main(["profile", script, "--trace", str(trace), "--rows", "3", "--", "a", "b"]) == 0
    out, err = capsys.readouterr()
    assert "mine ['a', 'b']" in err and "matmul" in out and "small.py:6" in out
    for part in ("Roofline", "The host's time by the line", "at the peak, held by"):
        assert part in out
    assert json.loads(trace.read_text())["traceEvents"]


def test_a_trace_lies_where_it_was_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the script goes elsewhere; and that there is no such place is said before it runs."""
    (tmp_path / "goes.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'other')!r})\n"
                                      f"os.chdir({str(tmp_path / 'other')!r})")
    monkeypatch.chdir(tmp_path)
    assert main(["profile", "goes.py", "--trace", "none/trace.json"]) == 2
    assert "there is no folder" in capsys.readouterr().err and not (tmp_path / "other").exists()
    assert main(["profile", "goes.py", "--trace", "trace.json"]) == 0
    assert (tmp_path / "trace.json").is_file()


def test_a_script_that_fails_is_shown_all_the_same(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", script, "--", "fail"]) == 1
    out, err = capsys.readouterr()
    assert "it fails" in err and "matmul" in out
    assert main(["profile", script + "x"]) == 2 and "there is no file" in capsys.readouterr().err
    assert main(["profile", script, "--sort", "bites"]) == 2 and "did you mean 'bytes'" in capsys.readouterr().err


@pytest.mark.parametrize(("command", "shown"), [("profile", "Kernels together"), ("dump", "plan 1 of 1")])
@pytest.mark.parametrize(("size", "leaving", "status"), [(31, "", 0), (32, "0", 0), (33, "3", 1),
                                                         (34, "'give --data'", 1)])
def test_a_script_that_leaves(command: str, shown: str, size: int, leaving: str, status: int, tmp_path: Path,
                              capsys: pytest.CaptureFixture[str]) -> None:
    """Its last words are what the user needs to know."""
    path = tmp_path / "leaves.py"
    path.write_text("import sys, genesis\n"
                    f"(genesis.ones({size}, {len(command)}) + 1).sum().item()\nsys.exit({leaving})\n")
    assert main([command, str(path)]) == status
    out, err = capsys.readouterr()
    assert shown in out and ("give --data" in err) == ("data" in leaving)


def test_a_decorator_of_functions_and_classes(capsys: pytest.CaptureFixture[str]) -> None:
    from genesis.utils.profile import print_profile_data, profile_data

    @utils.profile
    def double(x: int) -> int:
        """Twice as much."""
        if x < 0:
            raise ValueError
        return 2 * x

    @utils.profile
    class Model:
        kind = "linear"

        def forward(self, x: int) -> int:
            return double(x)
    assert [double(i) for i in range(3)] == [0, 2, 4] and Model().forward(4) == 8
    with pytest.raises(ValueError):
        double(-1)
    assert double.__doc__ == "Twice as much." and double.__name__ == "double"
    calls = {name.rpartition("<locals>.")[2]: entry["calls"] for name, entry in profile_data.items()}
    assert calls["double"] == 5 and calls["Model.forward"] == 1
    print_profile_data()
    out = capsys.readouterr().out
    assert out.startswith("Program cost ") and "double: 5 calls, " in out and out.rstrip().endswith("total seconds")
    with pytest.raises(TypeError, match="expected a function or a class, got a int"):
        utils.profile(3)  # type: ignore[operator]
    profile_data.clear()


def test_the_context_of_the_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import genesis.utils.profile as profiler
    with profiler.profile() as prof:
        x = genesis.randn(10, 10)
        y = genesis.matmul(x, x)
        genesis.eval(y)
    prof.print_stats()
    prof.export_chrome_trace(tmp_path / "profile.json")
    assert "matmul" in capsys.readouterr().out and (tmp_path / "profile.json").is_file()


def test_it_prints_at_the_programs_end_and_only_what_ran(tmp_path: Path) -> None:
    program = "from genesis.utils import profile\n@profile\ndef f(): pass\n{}"
    root = str(Path(__file__).resolve().parents[2])
    for body, wanted in (("f()", True), ("", False)):
        found = subprocess.run([sys.executable, "-c", program.format(body)], capture_output=True, text=True, check=True,
                               env={**os.environ, "PYTHONPATH": root})
        assert ("__main__.f: 1 calls" in found.stdout) == wanted and bool(found.stdout) == wanted
