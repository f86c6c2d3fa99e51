"""Imports go one way, and `import genesis` is light.

The table below is the layering of `docs/architecture.md`. A new arrow between layers is a decision: change the
table in the same commit, with its reason, or turn the arrow around.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import types
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import networkx
import pytest

import genesis
from genesis.engine import plans
from genesis.frontend.later import later_names
from genesis.ir.source import is_internal
from genesis.tracing.tracer import is_user_code

PACKAGE = Path(__file__).resolve().parent.parent / "genesis"

# data only: what lowering makes and the runtime runs
PLAN = ("genesis.runtime.plan", "genesis.runtime.plan_form", "genesis.runtime.overlap")
RECORDS = ("genesis.ir", "genesis.frontend")

# Room → what it may import besides itself and `genesis.config`. The row with the longest matching name counts.
LAYERS: dict[str, tuple[str, ...]] = {
    "genesis.config": (),
    "genesis.ir": (),
    # how Python counts references and collects, contexts that no exception leaves half entered, and which threads are
    # our own
    "genesis.frontend": ("genesis.ir", "genesis.runtime.references", "genesis.runtime.contexts",
                         "genesis.runtime.own_threads", "genesis.runtime.collector"),
    "genesis.passes": ("genesis.ir", *PLAN),
    "genesis.codegen": ("genesis.ir", "genesis.passes", *PLAN),
    # what a lowering and the executor know of numbers that torch takes as tensors
    "genesis.codegen.cpu.lowerings": ("genesis.ir", "genesis.passes", "genesis.codegen", *PLAN,
                                      "genesis.runtime.cpu.number_tensors"),
    # what a call of a collective asks for the data's way to other processes
    "genesis.codegen.cpu.lowerings.collectives": ("genesis.ir", "genesis.codegen", "genesis.runtime.collectives",
                                                   "genesis.runtime.ledger"),
    # how a plan for several sizes writes these down, and compares them: two tables without imports of their own;
    # and which exceptions are no errors of a computation
    "genesis.runtime": ("genesis.ir.types", "genesis.ir.place", "genesis.ir.polynomials", "genesis.ir.size_ranges",
                        "genesis.ir.interrupting"),
    # the op of a call that failed, and what is said of it: the same words as while recording
    "genesis.runtime.cpu.failed_call": ("genesis.ir", "genesis.runtime"),
    # tensors over memory of other libraries, and the GPU that "cuda" means: the runtime knows both
    "genesis.ops": (*RECORDS, "genesis.runtime"),
    "genesis.autograd": (*RECORDS, "genesis.ops"),
    # gradients between boundaries, and those whose NaN is looked for, are written out as nodes
    **dict.fromkeys(("genesis.autograd.anomaly", "genesis.autograd.backward_engine"),
                    (*RECORDS, "genesis.autograd", "genesis.ops", "genesis.passes.graph.autodiff",
                     "genesis.runtime.contexts")),
    "genesis.engine": (*RECORDS, "genesis.passes", "genesis.codegen", "genesis.runtime"),
    "genesis.random": RECORDS,
    **dict.fromkeys(("genesis.linalg", "genesis.signal", "genesis.special", "genesis.amp"), (*RECORDS, "genesis.ops")),
}
# Everything else (nn, optim, tracing, models, cli, ...) stands on top: it may see all of the above, and no circle.

CIRCLES = {
    ("genesis.ir.graph", "genesis.ir.ops.control", "genesis.ir.printer"):
        "a graph prints itself, and a call of a compiled function holds a graph",
    ("genesis.runtime.plan", "genesis.runtime.plan_edges"): "a plan knows its edges, worked out when asked for",
    ("genesis.codegen.cuda.templates.convolution", "genesis.codegen.cuda.templates.convolution_weight"):
        "the gradient by the weight walks the forward's coordinates, and the forward's table names it",
    ("genesis.ir.ops.block_rows", "genesis.ir.ops.exact_sums", "genesis.ir.ops.grouped_rows",
     "genesis.ir.ops.index_writes", "genesis.ir.ops.indexing", "genesis.ir.ops.line_sums", "genesis.ir.ops.movement",
     "genesis.ir.ops.reduction", "genesis.ir.ops.row_writes", "genesis.ir.ops.scan", "genesis.ir.ops.searching",
     "genesis.ir.ops.segments", "genesis.ir.ops.sort_steps", "genesis.ir.ops.sorting", "genesis.ir.ops.sum_forms"):
        "the derivative of an op of one family is made of ops of the others; a step of a sort means a sort",
    ("genesis.ops.comparison", "genesis.ops.indexing", "genesis.ops.searching", "genesis.ops.writing"):
        "torch's names fall back on each other: where(x) is nonzero(x), x[mask] is nonzero and gather",
    ("genesis.ops.creation", "genesis.ops.interop"): "as_tensor takes arrays, from_dlpack takes a device",
}
"""Circles of imports between files of one room, and why each stays."""


def modules() -> dict[str, Path]:
    """Dotted name → file of every module of the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def within(name: str, layer: str) -> bool:
    """Is the module that layer, or inside it?"""
    return name == layer or name.startswith(layer + ".")


def layer_of(name: str) -> str | None:
    """The row of the table for a module, None for what stands on top."""
    return max((layer for layer in LAYERS if within(name, layer)), key=len, default=None)


def imports(tree: ast.Module, module: str, is_package: bool) -> Iterator[tuple[str, int]]:
    """(imported module, line) for each import of Genesis, functions' own included, `TYPE_CHECKING` blocks not."""
    for node in _running_code(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if within(alias.name, "genesis"):
                    yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module.split(".")[:len(module.split(".")) - node.level + is_package]
                base = ".".join([*above, base] if base else above)
            if within(base, "genesis"):
                names = [f"{base}.{alias.name}" for alias in node.names]
                for name in dict.fromkeys(name if name in MODULES else base for name in names):
                    yield name, node.lineno


def _running_code(node: ast.AST) -> Iterator[ast.AST]:
    """All statements but those of `TYPE_CHECKING` blocks. An import is a statement: no expression is looked through."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr) or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            continue
        yield child
        yield from _running_code(child)


@cache
def imports_of(module: str) -> list[tuple[str, int]]:
    """The imports of a module of the package: its text is read once for all tests."""
    path = MODULES[module]
    return list(imports(ast.parse(path.read_text()), module, path.name == "__init__.py"))


def arrows_outside(module: str, found: Iterable[tuple[str, int]]) -> list[str]:
    """The imports of a module that the table does not allow."""
    layer = layer_of(module)
    if layer is None:
        return []
    allowed = (layer, "genesis.config", *LAYERS[layer])
    return [f"{module}:{line} imports {target}, which {layer} may not see"
            for target, line in found if not any(within(target, name) for name in allowed)]


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_one_way(module: str) -> None:
    assert arrows_outside(module, imports_of(module)) == []


@pytest.mark.parametrize("module, text", [
    ("genesis.ir.node", "from genesis.passes.fusion import fuse"),
    ("genesis.ir.node", "def late():\n    import genesis.engine"),
    ("genesis.passes.fusion.fuse", "import genesis"),
    ("genesis.passes.fusion.fuse", "from genesis.codegen.cuda.blocks import Blocks"),
    ("genesis.codegen.cuda.emitter", "from genesis.runtime.cuda.memory_pool import Pool"),
    ("genesis.runtime.plan", "from genesis.ir.node import Node"),
    ("genesis.frontend.tensor", "from genesis.ops.creation import tensor"),
    ("genesis.frontend.storage", "def late():\n    from genesis.engine import flush"),
    ("genesis.ir.node", "from ..engine import materialize"),
])
def test_a_wrong_arrow_is_noticed(module: str, text: str) -> None:
    assert len(arrows_outside(module, imports(ast.parse(text), module, False))) == 1


@pytest.mark.parametrize("module, text", [
    ("genesis.passes.fusion.fuse", "from genesis.ir.node import Node"),
    ("genesis.runtime.plan", "from genesis.ir.types import DType"),
    ("genesis.frontend.storage",
     "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from genesis.nn import Module"),
    ("genesis.nn.linear", "import genesis"),
])
def test_a_right_arrow_is_not(module: str, text: str) -> None:
    assert arrows_outside(module, imports(ast.parse(text), module, False)) == []


@cache
def all_arrows() -> list[tuple[str, str]]:
    """(importing module, imported module) of the whole package, functions' own imports included."""
    return [(module, target) for module in MODULES for target, _ in imports_of(module)
            if target in MODULES and target != module]


def circles(arrows: list[tuple[str, str]]) -> list[tuple[str, ...]]:
    """The groups of names that reach each other along the arrows."""
    found = networkx.strongly_connected_components(networkx.DiGraph(arrows))
    return sorted(tuple(sorted(group)) for group in found if len(group) > 1)


def room_of(module: str) -> str:
    """The folder beside `genesis/__init__.py` that a module is in."""
    return ".".join(module.split(".")[:2])


def test_no_circle_between_rooms() -> None:
    """The root brings all names together, and what stands on top uses it as a user would: it is no room."""
    between = [(room_of(a), room_of(b)) for a, b in all_arrows() if "genesis" not in (a, b)]
    assert circles([(a, b) for a, b in between if a != b]) == []


def test_circles_inside_a_room_have_a_reason() -> None:
    assert circles(all_arrows()) == sorted(CIRCLES)


def test_a_circle_is_noticed() -> None:
    assert circles([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]) == [("a", "b", "c")]


def test_three_modules_lie_loose() -> None:
    assert sorted(path.name for path in PACKAGE.glob("*.py")) == ["__init__.py", "__main__.py", "config.py"]


def test_every_room_says_what_it_is_for() -> None:
    silent = [module for module, path in MODULES.items()
              if path.name == "__init__.py" and not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


def test_what_makes_plans_is_part_of_a_plan_on_disk() -> None:
    """A plan on disk is found by the files of the engine's room and of all rooms below it."""
    below = {room_of(name).removeprefix("genesis.") for name in LAYERS["genesis.engine"]}
    assert {*plans.MAKING_FOLDERS} == {"engine", *below} - {"frontend"}  # which says what a program is, not its plan


def in_fresh_python(code: str, **environment: str) -> str:
    """What the code prints in a Python process of its own."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          cwd=PACKAGE.parent, env={**os.environ, **environment}).stdout


def test_import_loads_nothing_heavy() -> None:
    loaded = json.loads(in_fresh_python("import sys, json, genesis; print(json.dumps(sorted(sys.modules)))"))
    heavy = {"torch", "triton", "networkx", "cuda", "safetensors", "rich", "numpy", "ml_dtypes"}
    assert heavy.intersection(name.split(".")[0] for name in loaded) == set()


def test_import_loads_only_what_recording_needs() -> None:
    loaded = json.loads(in_fresh_python("import sys, json, genesis; print(json.dumps(sorted(sys.modules)))"))
    later = {"genesis.cuda", "genesis.tracing.compiled", "genesis.engine.compilation", "genesis.engine.plans",
             "genesis.runtime.plan", "genesis.runtime.cuda.driver", "genesis.codegen", "genesis.linalg", "genesis.func",
             "genesis.array_api", "genesis.models", "genesis.cli", "genesis.nn", "genesis.optim", "genesis.amp",
             "hashlib", "json", "tempfile", "ctypes", "difflib"}
    assert later.intersection(loaded) == {"json"}  # which this test's own line imports


MODULES_OF_A_PLAIN_IMPORT = 210
"""Files of Genesis that `import genesis` may read: 0.15 ms each, which is half of its time. What a script may do
without comes later: a row of the `TYPE_CHECKING` block of `genesis/__init__.py`, or an import where it is used."""


def test_a_plain_import_reads_few_files() -> None:
    """Their number, as time depends on the machine: `python benchmarks/compare_trees.py BEFORE . --only import`."""
    found = in_fresh_python("import sys, genesis; print(*[x for x in sys.modules if x.partition('.')[0] == 'genesis'])")
    assert MODULES_OF_A_PLAIN_IMPORT - 15 < len(found.split()) <= MODULES_OF_A_PLAIN_IMPORT


def test_the_collector_does_not_go_through_what_an_import_makes() -> None:
    """Neither while it comes nor behind it: tens of thousands of objects that stay are old at once."""
    found = in_fresh_python("""import gc
looked = []
gc.callbacks.append(lambda phase, at: phase == "start" and looked.append(sum(
    len(gc.get_objects(generation)) for generation in range(at["generation"] + 1))))
before = len(gc.get_objects())
import genesis
kept = [[] for _ in range(1000)]
print(len(gc.get_objects()) - before, max(looked), gc.isenabled(), gc.get_freeze_count())""")
    made, most, on, frozen = found.split()
    assert int(made) > 20_000 and int(most) < 2_000 and (on, frozen) == ("True", "0")


def test_an_import_leaves_what_a_program_has_frozen_and_a_collector_that_is_off() -> None:
    found = in_fresh_python("""import gc
gc.disable()
gc.freeze()
before = gc.get_freeze_count()
import genesis
print(gc.get_freeze_count() > before // 2 > 0, gc.isenabled())""")  # a few of them die
    assert found.split() == ["True", "False"]


def test_genesis_behind_a_link_knows_its_own_files(tmp_path: Path) -> None:
    """Code objects have the link's name: errors name the user's line, and calls are captured."""
    (tmp_path / "link").symlink_to(PACKAGE.parent)
    (tmp_path / "script.py").write_text("""import genesis
try:
    genesis.ones(2) + genesis.ones(3)
except RuntimeError as error:
    print("script.py:3: " in str(error))
double = genesis.compile(lambda x: x * 2)
for _ in range(4):
    double(genesis.ones(2)).tolist()
print(double.hits)""")
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, check=True, cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": str(tmp_path / "link")})
    assert done.stdout.split() == ["True", "3"]


def test_a_package_whose_name_begins_alike_is_the_users() -> None:
    beside = types.CodeType.replace(layer_of.__code__, co_filename=f"{PACKAGE}_tools/model.py")
    assert not is_internal(beside.co_filename) and is_user_code(beside)
    assert is_internal(f"{PACKAGE}/ops/shape.py") and not is_internal(f"{PACKAGE}/models/gpt.py")


def test_functions_are_bound_when_they_are_asked_for() -> None:
    """An import binds none of the hundreds, but for three methods of tensors that are written down as such; each stands
    in its place from then on. `x.hypot` is `hypot` itself."""
    found = in_fresh_python("""import genesis
from genesis.frontend import public_functions
print(len(public_functions._bound), "hypot" in vars(genesis), "hypot" in dir(genesis))
from genesis.nn import functional as F
before = "gelu" in vars(F), len(public_functions._bound)
first = genesis.hypot, F.gelu, genesis.Tensor.hypot
print(before[0], "gelu" in dir(F), len(public_functions._bound) - before[1])
print((genesis.hypot, F.gelu, genesis.Tensor.hypot) == first)
print([vars(x)[name] in first for x, name in ((genesis, "hypot"), (F, "gelu"), (genesis.Tensor, "hypot"))])""")
    assert found.splitlines() == ["3 False True", "False True 2", "True", "[True, True, True]"]


def test_a_star_takes_functions_types_and_the_rooms_of_a_training_script() -> None:
    found: dict[str, object] = {}
    exec("from genesis import *", found)
    assert found["nn"] is genesis.nn and found["optim"] is genesis.optim and found["hypot"] is genesis.hypot
    assert {"layer_norm", "float32", "Tensor", "save", "compile"} <= found.keys()
    assert found.keys().isdisjoint({"distributed", "models", "testing", "_bound", "cli"})


def names_for_type_checkers() -> dict[str, str]:
    """What `genesis/__init__.py` imports in its `TYPE_CHECKING` block, and from where."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    return {alias.name: node.module or "" for node in block.body if isinstance(node, ast.ImportFrom)
            for alias in node.names}


LATER = later_names("genesis")


def test_what_comes_later_is_what_editors_see() -> None:
    """One list: the compiled code of the block says what the text of it says."""
    assert len(LATER) > 50
    assert names_for_type_checkers() == LATER
    assert LATER.keys() <= set(dir(genesis))


def listed_names() -> list[str]:
    """Every name that `genesis/__init__.py` makes public, as type checkers read it: once for each time it is listed."""
    found: list[str] = []
    body = ast.parse((PACKAGE / "__init__.py").read_text()).body
    late = next(node for node in body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    for node in [*body, *late.body]:
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            tree = ast.parse((PACKAGE.parent / (node.module or "").replace(".", "/")).with_suffix(".py").read_text())
            own = {x.targets[0].id: x.value for x in tree.body
                   if isinstance(x, ast.Assign) and isinstance(x.targets[0], ast.Name)}
            found += ast.literal_eval(own["__all__"]) if "__all__" in own else own
        elif isinstance(node, ast.ImportFrom):
            found += [alias.name for alias in node.names if alias.asname == alias.name]
        elif isinstance(node, ast.Assign):
            found += [x.id for target in node.targets for x in ast.walk(target) if isinstance(x, ast.Name)]
    return [name for name in found if not name.startswith("_")]


MACHINERY = {"genesis", "Any", "TYPE_CHECKING"}
"""Names that the file needs for itself."""


def test_a_public_name_is_listed_once_and_for_type_checkers_too() -> None:
    """`import x` or `from y import x` alone says that a name is the file's own: strict checkers refuse `genesis.x`."""
    names = listed_names()
    rooms = {name for name, x in vars(genesis).items() if isinstance(x, types.ModuleType)}  # imported as submodules
    assert [name for name in names if names.count(name) > 1] == []
    public = {name for name in dir(genesis) if not name.startswith("_")}
    assert public - set(names) - rooms - MACHINERY == {"cuda_available"}, "which the file defines"


def names_that_come_together() -> list[list[str]]:
    """The names of each module; modules one by one, since they import each other."""
    return [[name for name, of in LATER.items() if of == place]
            for place in sorted(set(LATER.values()) - {"genesis"})] + [
                [name] for name, place in LATER.items() if place == "genesis"]


def test_names_that_come_later_are_their_modules() -> None:
    """Each group in a process that has asked for nothing else; the second time they are in the module itself."""
    groups = names_that_come_together()
    found = in_fresh_python(f"""import genesis, importlib, os
from genesis.frontend.later import later_names
for names in {groups}:
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    for name in names:
        before, place = name in vars(genesis), later_names("genesis")[name]
        x = getattr(genesis, name)
        module = importlib.import_module("genesis." + name if place == "genesis" else place)
        own = module if place == "genesis" else vars(module)[name]
        print(name, before, own in (x, getattr(x, "__wrapped__", None)), vars(genesis)[name] is x, flush=True)
    os._exit(0)""")
    assert found.splitlines() == [f"{name} False True True" for names in groups for name in names]


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'genesis' has no attribute 'no_such_name'"):
        genesis.no_such_name  # noqa: B018
