"""Every public name of torch's, in all of its public modules, is here, or asking for it says what to use instead.

`genesis/ir/absent.py` is the list of what is left out, in families, and `genesis/ir/torch_paths.py` that of paths.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import warnings
from collections import Counter
from functools import cache

import pytest
import torch

import genesis
from genesis.ir.absent import MODULES, NAMES, Absent
from genesis.ir.torch_paths import NEVER, PATHS, Path

from .torch_names import Name, methods, names

SPACES = """Tensor nn nn.functional nn.utils.rnn nn.init nn.attention nn.parallel nn.modules.batchnorm optim optim.adamw
    optim.lr_scheduler optim.swa_utils utils.data utils.checkpoint autograd autograd.graph amp cuda
    cuda.amp cuda.memory backends.cudnn backends.cuda distributed distributions func linalg special
    signal.windows sparse jit compiler profiler random version testing accelerator mps xpu cpu multiprocessing"""


@cache
def found() -> tuple[Name, ...]:
    return tuple(names())


@cache
def left_out() -> tuple[tuple[str, str], ...]:
    return tuple((x.space, x.name) for x in found() if x.kind != "there")


def test_every_public_name_is_there_or_says_what_to_use_instead() -> None:
    assert [f"{x.space}.{x.name}: {x.sentence}" for x in found() if x.kind == "missing"] == []


def test_the_walk_sees_all_of_torch() -> None:
    spaces = {x.space for x in found()}
    assert set(SPACES.split()) <= spaces
    count = Counter(x.kind for x in found())
    assert count["there"] > 2500


def test_what_another_library_gives_a_class_of_torchs_is_no_name_of_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    before = methods(torch.nn.Module)
    monkeypatch.setattr(torch.nn.Module, "smart_apply", lambda self: None, raising=False)
    assert methods(torch.nn.Module) == before and "register_buffer" in before


def test_what_is_left_out_is_no_attribute() -> None:
    assert not hasattr(genesis, "fx") and not hasattr(genesis.cuda, "CUDAGraph")
    with pytest.raises(AttributeError, match=r"no attribute 'fx': genesis\.explain"):
        _ = genesis.fx
    with pytest.raises(ImportError, match=r"there is no module 'genesis\.onnx': save a state_dict"):
        importlib.import_module("genesis.onnx")


@pytest.mark.parametrize("name", ["distributed.fsdp.wrap", "backends.cudnn.rnn", "signal.windows.windows"])
def test_a_module_below_one_file_says_what_to_use_instead(name: str) -> None:
    with pytest.raises(ImportError, match=rf"there is no module 'genesis\.{re.escape(name)}': \w+"):
        importlib.import_module(f"genesis.{name}")
    with pytest.raises(ImportError, match="No module named"):
        importlib.import_module(f"genesis.{name.rpartition('.')[0]}.no_such_module")


def test_what_torch_is_said_to_have_removed_or_to_warn_of() -> None:
    """A row's sentence is about torch: each of its names warns or raises there, and no other is said to."""
    square = torch.eye(2)
    asked = {"lstsq": lambda: torch.lstsq(square, square), "symeig": lambda: torch.symeig(square),
             "solve": lambda: torch.solve(square, square), "matrix_rank": lambda: torch.matrix_rank(square),
             "resize": lambda: square.resize(4), "resize_as": lambda: square.resize_as(square),
             "volatile": lambda: square.volatile, "reinforce": lambda: square.reinforce(),
             "Container": torch.nn.Container, "NLLLoss2d": torch.nn.NLLLoss2d,
             "nuclear_norm": lambda: torch.nuclear_norm(square),
             "frobenius_norm": lambda: torch.frobenius_norm(square, 1)}
    said = {name for row in NAMES if row.sentence.startswith("torch ") for name in row.names.split("|")}
    assert said == set(asked)
    for name, ask in asked.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                ask()
            except Exception as error:
                caught.append(error)
        assert caught, name


@pytest.mark.parametrize("row", [*NAMES, *MODULES], ids=lambda row: f"{row.space} {row.names[:30]}")
def test_a_row_leaves_something_out(row: Absent) -> None:
    private = row.space == "*" and "futures" in row.names
    assert private or any(re.fullmatch(row.names, name) and row.space in ("*", space, *homes_of(space))
                          for space, name in left_out())


@cache
def homes_of(space: str) -> tuple[str, ...]:
    return tuple(home for path in PATHS if path_matches(path, space) for home in path.homes.split())


def path_matches(path: Path, space: str) -> bool:
    package, _, name = space.rpartition(".")
    return path.package == package and re.fullmatch(path.names, name) is not None


@pytest.mark.parametrize("row", PATHS, ids=lambda row: f"{row.package} {row.names[:30]}")
def test_a_path_of_torchs_leads_to_the_names(row: Path) -> None:
    """Each of a row's modules is one of torch's, and has a name of the one there."""
    for name in row.names.split("|"):
        if re.fullmatch(r"\w+", name):
            path = f"{row.package}.{name}".lstrip(".")
            importlib.import_module(f"torch.{path}")
            importlib.import_module(f"genesis.{path}")
    assert genesis.optim.adamw.AdamW is genesis.optim.AdamW
    assert importlib.import_module("genesis.nn.modules.loss").BCELoss is genesis.nn.BCELoss


@pytest.mark.parametrize("row", NEVER, ids=lambda row: row.names[:30])
def test_what_is_never_there_is_not_available(row: Path) -> None:
    for name in row.names.split("|"):
        path = f"genesis.{row.package}.{name}".replace("..", ".")
        module = importlib.import_module(path)
        assert module.is_available() is False
        with pytest.raises(AttributeError, match=re.escape(row.homes)):
            _ = module.current_device


def test_a_misspelt_name_is_answered_with_the_right_one() -> None:
    for space, wrong, right in ((genesis.cuda, "synchronise", "synchronize"), (genesis.nn, "Conv2D", "Conv2d"),
                                (genesis.utils.data, "DataLoder", "DataLoader")):
        with pytest.raises(AttributeError, match=f"did you mean '{right}'"):
            getattr(space, wrong)


def test_torchs_own_names_of_private_parts_that_programs_import() -> None:
    for path, name in (("nn.modules.batchnorm", "_BatchNorm"), ("nn.modules.batchnorm", "_NormBase"),
                       ("nn.modules.conv", "_ConvNd"), ("nn.modules.loss", "_Loss"),
                       ("nn.modules.loss", "_WeightedLoss"),
                       ("nn.modules.utils", "_pair"), ("nn.modules.dropout", "_DropoutNd"),
                       ("optim.lr_scheduler", "_LRScheduler")):
        for library in ("torch", "genesis"):
            assert hasattr(importlib.import_module(f"{library}.{path}"), name), (library, path, name)
    assert isinstance(genesis.nn.BatchNorm2d(2), importlib.import_module("genesis.nn.modules.batchnorm")._BatchNorm)
    assert torch.nn.modules.utils._pair(3) == genesis.nn.modules.utils._pair(3)


def test_a_module_with_the_name_of_a_function_is_called_as_it() -> None:
    """`import torch.autograd.gradcheck` leaves `torch.autograd.gradcheck` a function."""
    first = "import genesis.autograd.gradcheck; print(callable(genesis.autograd.gradcheck))"  # nobody asked before
    assert subprocess.run([sys.executable, "-c", first], capture_output=True, text=True, check=True).stdout == "True\n"
    module = importlib.import_module("genesis.autograd.gradcheck")
    x = genesis.ones(2, dtype=genesis.float64, requires_grad=True)
    assert genesis.autograd.gradcheck(lambda x: x * x, x) and module.gradgradcheck(lambda x: x * x, x)


@pytest.mark.parametrize("module, names", [
    ("genesis.distributed.tensor.parallel", ["ColwiseParallel", "RowwiseParallel", "parallelize_module"]),
    ("genesis.distributed.fsdp", ["FSDPModule", "MixedPrecisionPolicy", "fully_shard"]),
    ("genesis.autograd", ["Function", "grad"])])
def test_a_star_brings_names_that_come_later(module: str, names: list[str]) -> None:
    found: dict[str, object] = {}
    exec(f"from {module} import *", found)
    assert set(names) <= found.keys()
    assert not [name for name, x in found.items() if name != "__builtins__" and (
        name.startswith("_") or name in ("annotations", "TYPE_CHECKING", "names_later"))]
