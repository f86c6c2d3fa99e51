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
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import genesis
from genesis.engine import plans

PACKAGE = Path(__file__).resolve().parent.parent / "genesis"

TENSORS = ("genesis.tensor", "genesis.ops", "genesis.autograd", "genesis.frontend.recording", "genesis.storage",
           "genesis.frontend.layouts", "genesis.frontend.grad_mode", "genesis.random", "genesis.frontend.printing", "genesis.frontend.session",
           "genesis.frontend.transfer", "genesis.linalg", "genesis.frontend.patches")
AUTOCAST = ("genesis.amp.autocast", "genesis.frontend.autocast_policy")  # asked by an op while it is recorded
PLAN = ("genesis.runtime.plan", "genesis.runtime.plan_form")  # data only: what lowering makes and the runtime runs

# Layer → what it may import besides itself and `genesis.config`. The row with the longest matching name counts.
LAYERS: dict[str, tuple[str, ...]] = {
    "genesis.config": (),
    "genesis.ir": (),
    "genesis.passes": ("genesis.ir", *PLAN),
    "genesis.codegen": ("genesis.ir", "genesis.passes", *PLAN),
    "genesis.runtime": ("genesis.ir.types", "genesis.ir.place"),
    "genesis.engine.capture": ("genesis.ir", "genesis.storage"),
    "genesis.engine.short_read": ("genesis.ir", "genesis.storage", "genesis.engine.capture"),
    "genesis.structure": ("genesis.ir",),
    "genesis.engine.symbolic.plan_template": ("genesis.ir", "genesis.engine.symbolic.symbolic_batch", "genesis.engine.compilation", "genesis.passes", "genesis.codegen",
                       "genesis.runtime"),
    "genesis.engine.plans": ("genesis.ir", "genesis.engine.capture", "genesis.engine.symbolic.symbolic_batch", "genesis.structure", "genesis.engine.compilation",
                      "genesis.engine.symbolic.plan_template", "genesis.codegen", "genesis.runtime", "genesis.frontend.recording"),
    "genesis.engine.symbolic.symbolic_batch": ("genesis.ir", "genesis.engine.capture"),
    "genesis.engine.saved_values": ("genesis.ir", "genesis.storage", "genesis.engine.capture", "genesis.passes"),
    "genesis.engine.compilation": ("genesis.ir", "genesis.passes", "genesis.codegen", "genesis.runtime"),
    "genesis.engine": ("genesis.ir", "genesis.engine.compilation", "genesis.engine.plans", "genesis.runtime", "genesis.engine.capture",
                       "genesis.engine.short_read", "genesis.engine.saved_values", "genesis.frontend.threads", *TENSORS),
    "genesis.frontend.threads": (),
    # autograd and transfer ask capture what a tensor was computed from and whether it is in memory
    **dict.fromkeys(TENSORS, ("genesis.ir", "genesis.engine", "genesis.runtime", *AUTOCAST, *TENSORS)),
    **dict.fromkeys(("genesis.autograd", "genesis.frontend.transfer"),
                    ("genesis.ir", "genesis.engine", "genesis.runtime", "genesis.engine.capture", *AUTOCAST, *TENSORS)),
    "genesis.tensor": ("genesis.ir", "genesis.engine", "genesis.runtime", "genesis.array_api", *AUTOCAST, *TENSORS),
    "genesis.autograd.anomaly": ("genesis.ir", "genesis.engine", "genesis.passes", *TENSORS),  # writes gradients out
    "genesis.autograd.backward_engine": ("genesis.ir", "genesis.engine.capture", "genesis.passes", *TENSORS),  # and so does this
    "genesis.amp": ("genesis.ir",),
    "genesis.amp.grad_scaler": ("genesis.ir", *TENSORS),  # `genesis.amp` imports it when it is asked for
}
# Everything else (nn, optim, models, cli, ...) stands on top: it may see all of the above and its equals.


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
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield child
            yield from _running_code(child)


def arrows_outside(module: str, text: str, is_package: bool = False) -> list[str]:
    """The imports of a module's text that the table does not allow."""
    layer = layer_of(module)
    if layer is None:
        return []
    allowed = (layer, "genesis.config", *LAYERS[layer])
    return [f"{module}:{line} imports {target}, which {layer} may not see"
            for target, line in imports(ast.parse(text), module, is_package)
            if not any(within(target, name) for name in allowed)]


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_one_way(module: str) -> None:
    path = MODULES[module]
    assert arrows_outside(module, path.read_text(), path.name == "__init__.py") == []


@pytest.mark.parametrize("module, text", [
    ("genesis.ir.node", "from genesis.passes import fuse"),
    ("genesis.ir.node", "def late():\n    import genesis.engine"),
    ("genesis.passes.fusion.fuse", "import genesis"),
    ("genesis.passes.fusion.fuse", "from genesis.codegen.index_map import Index"),
    ("genesis.codegen.emitter", "from genesis.runtime.cuda.memory_pool import Pool"),
    ("genesis.runtime.plan", "from genesis.ir.node import Node"),
    ("genesis.tensor", "from genesis.nn import Module"),
    ("genesis.ir.node", "from ..engine import materialize"),
])
def test_a_wrong_arrow_is_noticed(module: str, text: str) -> None:
    assert len(arrows_outside(module, text)) == 1


@pytest.mark.parametrize("module, text", [
    ("genesis.passes.fusion.fuse", "from genesis.ir.node import Node"),
    ("genesis.runtime.plan", "from genesis.ir.types import DType"),
    ("genesis.storage", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from genesis.nn import Module"),
    ("genesis.nn.linear", "import genesis"),
])
def test_a_right_arrow_is_not(module: str, text: str) -> None:
    assert arrows_outside(module, text) == []


def test_a_plan_on_disk_is_told_from_those_of_all_that_makes_plans() -> None:
    makers = ("genesis.engine.plans", "genesis.engine.compilation", "genesis.engine.symbolic.plan_template")
    seen = {name.split(".")[1] for maker in makers for name in (maker, *LAYERS[maker])}
    told = {*plans.MAKING_FOLDERS, *(name.removesuffix(".py") for name in plans.MAKING_MODULES)}
    assert seen - {"recording"} == told - {"config"}  # of recording it asks which tensors are parameters


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
    later = {"genesis.cuda", "genesis.tracing.compiled", "genesis.engine.compilation", "genesis.engine.plans", "genesis.runtime.plan",
             "genesis.runtime.cuda.driver", "genesis.codegen", "genesis.linalg", "genesis.func", "genesis.array_api",
             "genesis.models", "genesis.cli", "hashlib", "json", "tempfile", "ctypes"}
    assert later.intersection(loaded) == {"json"}  # which this test's own line imports


def test_import_is_quick(record_property: Callable[[str, object], None], tmp_path: Path) -> None:
    """60 to 80 ms of this process' own time on an idle machine; twice that keeps a busy one from failing.

    The first process writes the bytecode, which an installation has: the tree under test may have none.
    """
    code = "import time; start = time.process_time(); import genesis; print(time.process_time() - start)"
    bytecode = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    best = min(float(in_fresh_python(code, **bytecode)) for _ in range(6))
    record_property("import_seconds", best)
    print(f"import genesis: {best * 1000:.0f} ms")
    assert best < 0.16


def names_for_type_checkers() -> set[str]:
    """What `genesis/__init__.py` imports in its `TYPE_CHECKING` block."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    return {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}


def test_editors_see_the_names_that_come_later() -> None:
    assert names_for_type_checkers() == set(genesis.LATER)
    assert names_for_type_checkers() <= set(dir(genesis))


def names_that_come_together() -> list[list[str]]:
    """The names of each module; modules one by one, since they import each other."""
    return [[name for name, of in genesis.LATER.items() if of == place]
            for place in sorted(set(genesis.LATER.values()) - {"genesis"})] + [
                [name] for name, place in genesis.LATER.items() if place == "genesis"]


@pytest.mark.parametrize("names", names_that_come_together(), ids=" ".join)
def test_names_that_come_later_are_their_modules(names: list[str]) -> None:
    """In a process that has not asked for them; the second time they are in the module itself."""
    found = in_fresh_python(f"""import genesis, importlib
for name in {names}:
    before, place = name in vars(genesis), genesis.LATER[name]
    x = getattr(genesis, name)
    module = importlib.import_module("genesis." + name if place == "genesis" else place)
    own = module if place == "genesis" else vars(module)[name]
    print(before, x is own, vars(genesis)[name] is own)""")
    assert found.splitlines() == ["False True True"] * len(names)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'genesis' has no attribute 'no_such_name'"):
        genesis.no_such_name  # noqa: B018
