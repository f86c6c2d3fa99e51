"""Pages say what is so: numbers that a benchmark wrote, commands that work as printed, files that are there."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

import genesis
from genesis.cli.main import main
from tests.generated_pages import check_page

ROOT = Path(__file__).resolve().parent.parent


def test_the_page_on_accuracy_shows_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("accuracy", ROOT / "benchmarks" / "accuracy.py")
    assert spec is not None and spec.loader is not None
    accuracy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(accuracy)
    check_page(ROOT / "docs" / "accuracy.md", accuracy.markdown())
    assert "| tanh |" in accuracy.markdown()
    sys.modules.pop("record", None)


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = re.compile(r"^    (genesis (?:dump|passes|why|ops) (?!script\.py)[^#\n]*)", re.MULTILINE)
LINK = re.compile(r"\]\((?!http)([^)#]+)")


COMMANDS = COMMAND.findall((ROOT / "README.md").read_text(encoding="utf-8"))


def test_a_command_of_the_readme_works_as_printed() -> None:
    """With the environment's folder on the path, as after `source .venv/bin/activate`, from the project's folder."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(shlex.split(COMMANDS[0]), capture_output=True, text=True, cwd=ROOT, timeout=120,
                          env={**os.environ, "PATH": path})
    assert done.returncode == 0, done.stderr
    assert "# plan " in done.stdout


@pytest.mark.parametrize("command", COMMANDS[1:])
def test_what_the_readme_s_commands_ask_for(command: str, monkeypatch: pytest.MonkeyPatch,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    """The others, in this process: what differs is behind the command's name."""
    monkeypatch.chdir(ROOT)
    genesis.engine.reset()  # what is shown are the plans that are made
    name, *words = shlex.split(command)
    assert name == "genesis" and main(words) == 0
    assert "# plan " in capsys.readouterr().out


def test_the_readme_shows_commands() -> None:
    assert len(COMMANDS) == 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    broken = [target for target in LINK.findall(text) if not (page.parent / target).exists()]
    assert broken == []


# The map

MAP = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
QUESTIONS = dict(re.findall(r"^\| ((?:does|is) [^|]+\?) \| ([^|]+) \|$", MAP, re.MULTILINE))
FILE = re.compile(r"`((?:\w+/)*\w+\.py)`")


def test_the_map_names_files_that_are_there() -> None:
    """By their ends: a paragraph on a room leaves out its name."""
    there = [f"/{path.relative_to(ROOT)}" for folder in ("genesis", "tests", "benchmarks")
             for path in (ROOT / folder).rglob("*.py")]
    assert [name for name in FILE.findall(MAP) if not any(path.endswith(f"/{name}") for path in there)] == []


def test_the_map_has_every_room() -> None:
    rooms = {path.parent.name for path in (ROOT / "genesis").glob("*/__init__.py")}
    assert rooms - set(re.findall(r"(\w+)/", MAP)) == set()


IN_AND_OUT = re.compile(r"\bIn: .*\bOut: |\bIn and out: |\b[Ii]n (?:come|goes)\b.*\b(?:out (?:come|go)|goes out)"
                        r"|\bcomes? in\b.*\bgo(?:es)? out\b|─▶", re.DOTALL)
"""How a room's docstring says it: "In: …. Out: ….", a sentence, or arrows."""


@pytest.mark.parametrize("room", sorted(path.parent for path in (ROOT / "genesis").rglob("*/__init__.py")),
                         ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_room_says_what_comes_in_and_what_goes_out(room: Path) -> None:
    said = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8")))
    assert room == ROOT / "genesis" or IN_AND_OUT.search(said or "")


@pytest.mark.parametrize(("question", "names"), [
    ("does `x + y` become a node?", {"__add__": "ops/operators.py", "def make(": "ir/node.py"}),
    ("is a tile chosen?", {"def choose_blocks(": "codegen/cuda/blocks.py"}),
    ("is a guard checked?", {"class Checks": "tracing/checks.py", "class Guards": "tracing/guards.py"}),
    ("is memory reused?", {"def plan_memory(": "passes/memory/plan_memory.py"}),
    ("is a row of the pass list added?", {"PASSES": "passes/pipeline.py"}),
])
def test_the_map_answers_by_path(question: str, names: dict[str, str]) -> None:
    assert len(QUESTIONS) == 5
    for name, file in names.items():
        assert f"`{file}`" in QUESTIONS[question]
        assert name in (ROOT / "genesis" / file).read_text(encoding="utf-8")


def test_a_node_is_made_where_the_map_says() -> None:
    """The functions that `x + y` calls, in order: those that the first answer names are among them, in its order."""
    x, y = genesis.ones(3), genesis.ones(3)
    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.append(f"{Path(frame.f_code.co_filename).as_posix()} {frame.f_code.co_name}")
    sys.setprofile(note)
    try:
        x + y
    finally:
        sys.setprofile(None)
    named = re.findall(r"`([\w/]+\.py)` \(`(\w+)`\)", QUESTIONS["does `x + y` become a node?"])
    assert len(named) == 4
    rest = iter(called)
    for file, name in named:
        assert any(found.endswith(f"/genesis/{file} {name}") for found in rest), f"{name} of {file} is not called there"


# Adding an op: the page's code is the code

ADD_AN_OP = ROOT / "docs" / "contributing" / "add-an-op.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_op_that_the_page_adds_is_there_as_it_shows() -> None:
    """Each block of code stands in one of the files that the page names, letter by letter."""
    text = ADD_AN_OP.read_text(encoding="utf-8")
    files = [ROOT / name for name in re.findall(r"`(genesis/[\w/]+\.py)`", text)]
    sources = [file.read_text(encoding="utf-8") for file in files]
    blocks = BLOCK.findall(text)
    assert len(blocks) == 5
    assert [block for block in blocks if not any(block in source for source in sources)] == []


def test_the_page_on_adding_an_op_has_every_field_that_a_row_states() -> None:
    from genesis.ir.ops.entry import pointwise
    stated = {name for name, field in inspect.signature(pointwise).parameters.items()
              if field.kind is inspect.Parameter.KEYWORD_ONLY}
    rows = set(re.findall(r"^\| (\w+) \|", ADD_AN_OP.read_text(encoding="utf-8"), re.MULTILINE))
    assert stated <= rows


def test_the_op_of_the_page_is_one_call_on_the_cpu_and_a_line_of_a_loop_on_cuda(
        capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", "entr"]) == 0
    shown = capsys.readouterr().out
    assert "one torch call" in shown
    assert "in a loop kernel" in shown


def test_the_tests_that_the_page_names_are_there() -> None:
    named = re.findall(r"\btests/[\w/]+(?:\.py)?", ADD_AN_OP.read_text(encoding="utf-8"))
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_pages_name_are_there(page: Path) -> None:
    """`passes/pipeline.py` is meant from `genesis/` or from the project's folder."""
    named = set(re.findall(r"(?<![\w/.])((?:[a-z_0-9]+/)+[a-z_0-9]+\.py)", page.read_text(encoding="utf-8")))
    missing = [name for name in sorted(named) if not any((root / name).exists() for root in (ROOT, ROOT / "genesis"))]
    assert missing == []


def test_the_page_for_users_of_torch_is_current() -> None:
    from .coming_from_pytorch import PAGE, page
    check_page(PAGE, page())
