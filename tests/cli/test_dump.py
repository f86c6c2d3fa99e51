"""`genesis dump` on small scripts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from genesis import engine
from genesis.cli.main import main
from genesis.passes.pipeline import PASSES, Pass

SCRIPT = """\
import sys
import genesis

print("the script says", sys.argv[1:])
x = genesis.ones(4, 8, requires_grad=True)
y = (x * 2).softmax(-1)
(y * y).sum().backward()
x.grad.sum().item()
(x.detach() + 1).sum().item()
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "small.py"
    path.write_text(SCRIPT)
    return str(path)


def status_of(*words: str) -> int:
    """Exit status of `genesis dump words...`, as in a new process: nothing is compiled yet."""
    engine.reset()
    return main(["dump", *words])


def dump(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert status_of(*words) == status
    return capsys.readouterr().out


@pytest.mark.parametrize("stage, expected", [
    ("capture", "grad("), ("grad", "softmax_backward("), ("canonical", "return"), ("legal", "return"),
    ("groups", "why"), ("kernels", "softmax"), ("plan", "arena"),
    ("peak", "the most is alive at"),
])
def test_stages_as_text_and_json(script: str, stage: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = dump(capsys, script, "--stage", stage, "--plan", "1")
    assert text.startswith("# plan 1 of 2, for cpu")
    assert expected in text
    row, = json.loads(dump(capsys, script, "--stage", stage, "--plan", "1", "--json"))
    assert (row["plan"], row["of"], row["stage"], row["target"]) == (1, 2, stage, "cpu")
    assert row["value"]


def test_graph_text_parses_back(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    from genesis.ir.parser import parse
    text = dump(capsys, script, "--stage", "canonical", "--plan", "1").split("\n", 2)[2]
    assert str(parse(text)) == text.rstrip("\n")


def test_last_plan_unless_asked(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert dump(capsys, script).startswith("# plan 2 of 2")
    assert len(json.loads(dump(capsys, script, "--all", "--json"))) == 2


def test_arguments_after_dashes_are_the_scripts(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(script, "--stage", "plan", "--", "--steps", "1") == 0
    printed = capsys.readouterr()
    assert "the script says ['--steps', '1']" in printed.err
    assert "the script says" not in printed.out


def test_triton_of_a_cpu_plan_needs_the_target(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(script, "--stage", "triton") == 2
    assert "--target cuda" in capsys.readouterr().err


def test_triton_needs_no_gpu(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = dump(capsys, script, "--stage", "triton", "--target", "cuda", "--plan", "1")
    assert "@triton.jit" in text
    assert "for cuda" in text
    grouped = dump(capsys, script, "--stage", "groups", "--target", "cuda", "--plan", "1")
    assert "@cuda:0" in grouped


def test_a_gpu_is_a_target_by_its_name(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name, waits in (("a100", False), ("h100", True)):
        text = dump(capsys, script, "--stage", "triton", "--target", name, "--plan", "1")
        assert f"for {name}: " in text and "@triton.jit" in text
        assert ("gdc_wait()" in text) == waits, "kernels overlap from compute capability 9.0 on"


def test_failing_script_shows_what_it_had_compiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "fails.py"
    path.write_text("import genesis\n(genesis.ones(3) + 1).sum().item()\nraise ValueError('on purpose')\n")
    assert status_of(str(path)) == 1
    printed = capsys.readouterr()
    assert "on purpose" in printed.err
    assert "plan 1 of 1" in printed.out


@pytest.mark.parametrize("text, words, problem", [
    ("x = 1", (), "computed nothing"), (SCRIPT, ("--plan", "3"), "there are 2 plans"), (None, (), "there is no file"),
])
def test_what_cannot_be_shown_is_said(tmp_path: Path, text: str | None, words: tuple[str, ...], problem: str,
                                      capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "script.py"
    if text is not None:
        path.write_text(text)
    assert status_of(str(path), *words) == 2
    assert problem in capsys.readouterr().err


def test_beside_the_cpus_groups_stands_what_cuda_would_run(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On the CPU every op is a call of its own: the groups say nothing. It needs no GPU."""
    text = dump(capsys, script, "--stage", "groups", "--plan", "1")
    own, beside = text.split("# the same program for cuda (NVIDIA H200), whose kernels compute several ops each")
    assert "on the CPU every op is a call of its own" in own and "@cuda" not in own
    assert "reductions and" in beside and "memory: arena" in beside
    assert beside.count("@triton.jit\ndef mul_softmax") == 1
    row, = json.loads(dump(capsys, script, "--stage", "groups", "--plan", "1", "--json"))
    assert {group["kind"] for group in row["value"]} == {"call"}
    assert {group["kind"] for group in row["beside"]["groups"]} == {"loop"}
    assert row["beside"]["plan"]["steps"] and "def mul_softmax" in row["beside"]["kernel"]["source"]
    for target in ("cpu", "cuda"):  # who names a target gets that
        assert "# the same program" not in dump(capsys, script, "--stage", "groups", "--target", target)


def test_a_program_that_cuda_cannot_run_says_so_beside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "inverse.py"
    path.write_text("import genesis\ngenesis.linalg.inv(genesis.eye(2) * 2).sum().item()\n")
    text = dump(capsys, str(path))
    assert "# cuda has no plan for this program: the backend has no lowering for inv" in text


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("row", PASSES, ids=lambda row: row.name)
def test_every_row_of_the_pass_list_is_a_stage(script: str, row: Pass, target: str,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    words = (script, "--stage", row.stage, "--target", target, "--plan", "1")
    first, second, *_ = dump(capsys, *words).splitlines()
    assert first == f"# plan 1 of 2, for {target}: {row.stage}, {row.doc}"
    assert second.startswith(f"# the pass {row.name}")
    found, = json.loads(dump(capsys, *words, "--json"))
    assert found["value"] and found["pass"]["name"] == row.name


def test_a_stage_is_asked_for_by_the_pass_that_it_comes_out_of(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = dump(capsys, script, "--stage", "autodiff", "--plan", "1").splitlines()
    assert shown[0].endswith(": grad, with its derivatives")
    size = re.fullmatch(r"# the pass autodiff: (\d+) nodes → (\d+) nodes, \d+\.\d\d ms", shown[1])
    assert size is not None and int(size[1]) < int(size[2])
    assert "# the pass split_k did not run for cpu" in dump(capsys, script, "--stage", "split_k", "--plan", "1")


def test_a_stage_that_is_none_is_told_with_the_nearest(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        status_of(script, "--stage", "canonicalise")
    assert exit.value.code == 2
    assert "no stage or pass is named 'canonicalise'; did you mean 'canonicalize'?" in capsys.readouterr().err


def test_the_command_alone_says_what_commands_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "run a script and print a stage of its compilation" in capsys.readouterr().err


def test_the_code_of_the_cpu_is_calls_over_places(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "softmax(arena+0)" in dump(capsys, script, "--stage", "code", "--plan", "1")


def test_an_unknown_target_is_told_what_there_is(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(script, "--target", "h300") == 2
    assert "--target h300 is no backend; did you mean 'h200'? there are cpu, cuda, " in capsys.readouterr().err


def test_a_backend_that_the_script_registers_is_a_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "own.py"
    path.write_text("from tests.backends.numpy_backend import NumpyBackend\n"
                    "from genesis.engine.backends import register\nimport genesis\n"
                    "own = NumpyBackend('ownarrays')\nregister('ownarrays', lambda index: own)\n"
                    "genesis.ones(4).softmax(0).sum().item()\n")
    words = (str(path), "--target", "ownarrays", "--stage")
    assert "on ownarrays every op is a call of its own" in dump(capsys, *words, "groups")
    legal, code = dump(capsys, *words, "legal"), dump(capsys, *words, "code")
    assert "softmax" not in legal.replace("own.py", "") and "@ownarrays = exp(" in legal and "exp(arena+" in code
    assert status_of(*words, "triton") == 2
    assert "this plan ran on ownarrays, as calls" in capsys.readouterr().err


def test_one_kernel(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = (script, "--stage", "triton", "--target", "cuda", "--plan", "1", "--kernel")
    text = dump(capsys, *words, "softmax")
    assert text.count("@triton.jit\ndef mul_softmax") == 1 == text.count("# mul_softmax")
    assert status_of(*words, "matmul") == 2
    assert "no kernel has 'matmul' in its name; there are" in capsys.readouterr().err
