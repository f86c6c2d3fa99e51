"""What a program switches on in torch is not seen in Genesis' values, nor Genesis in the program's.

`hostile` is all of it at once: default dtype and device, autocast, deterministic algorithms, modes for functions and
for dispatch that raise whatever reaches them. Every op of the CPU gives the bits that it gives without.
"""

from __future__ import annotations

import ast
import contextlib
import pathlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode

import genesis
from genesis import engine
from genesis.codegen.cpu import lower
from genesis.codegen.cpu.lowerings import LOWERINGS, composite
from genesis.engine.compilation import compile_graph
from genesis.ir import OPS, Node, literal, tensor_type
from genesis.ir.graph import Graph
from genesis.ir.node import make
from genesis.ir.ops import leaves
from genesis.ir.source import PACKAGE
from genesis.ir.types import cpu, float32, int64
from genesis.runtime.cpu import number_tensors, thread_modes
from genesis.runtime.cpu.straight_line import RUNS_BEFORE
from tests.ops import test_registry as registry

FACTORIES = {f.__name__ for f in _device_constructors()}


class NoFunction(TorchFunctionMode):
    """Nothing of Genesis' comes by a user's own mode."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} reached the program's function mode")


class NoDispatch(TorchDispatchMode):
    """Nor by one for dispatch."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} reached the program's dispatch mode")


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def autocast_of_a_gpu() -> Iterator[None]:
    """`torch.autocast("cuda")` switches nothing on where there is no GPU."""
    torch.set_autocast_enabled("cuda", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def forgotten_numbers() -> Iterator[None]:
    """Tensors of numbers that were made without modes are made again, and those that were made inside are let go of."""
    caches = (number_tensors._number_tensor, number_tensors._operand_tensor, composite._number)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@contextlib.contextmanager
def hostile() -> Iterator[None]:
    """All that a program may have switched on."""
    with contextlib.ExitStack() as stack:
        for context in (forgotten_numbers(), default_dtype(torch.float64), deterministic(), torch.device("meta"),
                        torch.autocast("cpu", torch.bfloat16), NoFunction(), NoDispatch()):
            stack.enter_context(context)
        yield


def test_every_factory_names_dtype_and_device() -> None:
    wrong = []
    for path in pathlib.Path(PACKAGE).rglob("*.py"):
        text = path.read_text()
        if "import torch" not in text and "from torch" not in text:
            continue
        nodes = list(ast.walk(ast.parse(text)))
        imported = {name.asname or name.name for x in nodes if isinstance(x, ast.ImportFrom) and x.module == "torch"
                    for name in x.names}
        for call in (x for x in nodes if isinstance(x, ast.Call)):
            f = call.func
            name = f.attr if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name) and f.value.id == "torch" \
                else f.id if isinstance(f, ast.Name) and f.id in imported else None
            if name in FACTORIES and not {"dtype", "device"} <= {word.arg for word in call.keywords}:
                wrong.append(f"{path.relative_to(PACKAGE)}:{call.lineno} {name}")
    assert not wrong


@pytest.mark.parametrize("context", [
    lambda: torch.device("meta"), lambda: torch.autocast("cpu"), autocast_of_a_gpu, torch.inference_mode, NoFunction,
    NoDispatch], ids=["device", "autocast", "autocast of a GPU", "inference", "function", "dispatch"])
def test_each_mode_is_seen_and_left_out(context: Callable[[], Any]) -> None:
    a = torch.ones(2, 2)
    made: list[torch.Tensor] = []
    assert not thread_modes.any_on()
    with context():
        assert thread_modes.any_on()
        with thread_modes.Without():
            made += [torch.zeros(2), a @ a]
        for call in thread_modes.without([lambda: made.append(torch.zeros(2)), lambda: made.append(a @ a)]):
            call()
    assert not thread_modes.any_on()
    for x in made:
        assert x.device.type == "cpu" and x.dtype is torch.float32 and not x.is_inference()
    assert made[1].tolist() == made[3].tolist() == [[2, 2], [2, 2]]


class Program:
    """Nodes over inputs, and what those inputs hold."""

    def __init__(self) -> None:
        self.inputs: list[Node] = []
        self.arrays: list[np.ndarray] = []
        self.roots: list[Node] = []

    def operand(self, value: Any) -> Node:
        """An input with this content, or a number of the formula."""
        if not isinstance(value, np.ndarray):
            return literal(value)
        self.arrays.append(np.ascontiguousarray(value))
        kind = tensor_type(value.shape, registry.DTYPES_OF_NUMPY[value.dtype])
        self.inputs.append(make(leaves.input, (), (len(self.inputs), kind)))
        return self.inputs[-1]

    def runs(self) -> list[bytes]:
        """The roots' bytes, by the loop over calls and by the straight line."""
        compiled = compile_graph(Graph(tuple(self.inputs), tuple(self.roots)), cpu)
        memories = []
        for x in self.arrays:
            memories.append(engine.allocate(x.nbytes, cpu))
            if x.nbytes:
                memories[-1].copy_from_host(x)
        found = []
        for _ in range(RUNS_BEFORE + 1):
            found = [memory.bytes.tobytes() for memory in compiled.run(memories, ())]
        return found


def program_of(name: str) -> Program:
    """The op on its samples of float32 and int64, whose results torch would give its default dtype."""
    op, program = OPS[name], Program()
    for at, case in enumerate(op.samples.cases):
        for dtype in (float32, int64):
            if dtype in registry.dtypes(op):
                built = registry.build(case, dtype, "contiguous", (name, at))
                node = op(*map(program.operand, built.values), **case.attributes)
                program.roots += [node] if not isinstance(node.type, tuple) else [
                    OPS["item"](node, index=i) for i in range(len(node.type))]
    return program


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the ops of the plans that are lowered meanwhile."""
    names: set[str] = set()
    usual = lower._Lowerer._label
    monkeypatch.setattr(lower._Lowerer, "_label", lambda self, node: (names.add(node.op.name), usual(self, node))[1])
    return names


def test_every_op_of_the_registry_gives_the_same_bits(ran: set[str]) -> None:
    differing = []
    for name in registry.TESTED:
        program = program_of(name)
        if not program.roots:
            continue
        expected = program.runs()
        try:
            with hostile():
                found = program.runs()
        except Exception as error:
            differing.append(f"{name}: {error!r}")
            continue
        if found != expected:
            differing.append(name)
    assert not differing
    assert len(ran) > 150


def beyond_the_registry() -> list[np.ndarray]:
    """What has no samples there: decompositions, draws, what gradients read that forwards have kept."""
    T, F, L = genesis, genesis.nn.functional, genesis.linalg
    T.manual_seed(0)
    draws = np.random.default_rng(0)

    def of(*shape: int, grad: bool = False) -> Any:
        return T.tensor(draws.standard_normal(shape).astype(np.float32)).requires_grad_(grad)
    found = [T.rand(5), T.randn(5), T.rand(5, dtype=T.bfloat16).float(), T.randint(7, (5,)), T.randperm(5),
             T.bernoulli(T.full((5,), 0.5)), T.rand(5, dtype=T.float64), T.randn(5, dtype=T.float64)]
    a, b = of(4, 4), of(4, 2)
    spd = a @ a.mT + 4 * T.eye(4)
    factors, pivots = L.lu_factor(a)
    found += [L.inv(a), L.solve(a, b), L.solve_triangular(a, b, upper=True), L.det(a), *L.slogdet(a), L.cholesky(spd),
              *L.qr(a), *L.eigh(spd), *L.svd(a), L.pinv(b), L.matrix_exp(a), factors, *T.lu_unpack(factors, pivots)]
    with contextlib.suppress(RuntimeError):
        found += [L.inv(spd), L.solve(spd, b), L.cholesky(spd)]
    found += [*L.inv_ex(a), *L.solve_ex(a, b), *L.cholesky_ex(spd)]
    x, image = of(2, 6, 8, grad=True), of(2, 4, 6, 6, grad=True)
    layer, rows = T.nn.LayerNorm(8), T.nn.LSTM(8, 8, batch_first=True)
    group = T.nn.GroupNorm(2, 4)
    y = layer(rows(layer(x))[0])
    heads = y.view(2, 6, 2, 4).transpose(1, 2)
    y = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True).sum()
    alone = of(2, 2, 6, 4, grad=True)
    read_before = F.scaled_dot_product_attention(alone, alone, alone)
    found += [read_before.detach().clone(), F.dropout(x, 0.3)]
    assert read_before.tolist()
    found += T.autograd.grad(read_before.sum(), [alone])
    z = group(F.max_pool2d(group(image), 2)) * F.adaptive_max_pool2d(image, 3)
    found += T.autograd.grad(y + z.sum(), [x, image, *layer.parameters(), *rows.parameters(), *group.parameters()])
    return [np.array(value.detach()) for value in found]


def steps(compiled: bool) -> list[np.ndarray]:
    """Steps of several optimizers, whose writes to memory are made after their plan has run."""
    T, draws, found = genesis, np.random.default_rng(0), []
    for optimizer in (T.optim.AdamW, T.optim.SGD, T.optim.RMSprop, T.optim.Adagrad, T.optim.NAdam, T.optim.Rprop):
        model = T.nn.Sequential(T.nn.Linear(4, 8), T.nn.BatchNorm1d(8), T.nn.ReLU(), T.nn.Linear(8, 1))
        for p in model.parameters():
            p.data = T.tensor(draws.standard_normal(p.shape).astype(np.float32))
        used = optimizer(model.parameters(), lr=0.01)

        def step(x: Any, model: Any = model, used: Any = used) -> Any:
            loss = model(x).square().mean()
            used.zero_grad()
            loss.backward()
            used.step()
            return loss
        step = T.compile(step) if compiled else step
        for _ in range(RUNS_BEFORE + 3):
            found.append(np.array(step(T.tensor(draws.standard_normal((3, 4)).astype(np.float32))).item()))
        found += [np.array(p.detach()) for p in model.parameters()]
    return found


def same_bits(work: Callable[[], list[np.ndarray]]) -> None:
    expected = work()
    with hostile():
        found = work()
    for number, (x, y) in enumerate(zip(found, expected, strict=True)):
        assert x.tobytes() == y.tobytes(), f"result {number}"


def test_all_other_ops_give_the_same_bits(ran: set[str]) -> None:
    same_bits(beyond_the_registry)
    assert not set(LOWERINGS) - ran - set(registry.TESTED) - registry.COLLECTIVES


@pytest.mark.parametrize("compiled", [False, True], ids=["undecorated", "compiled"])
def test_steps_give_the_same_bits(compiled: bool) -> None:
    same_bits(lambda: steps(compiled))


def test_numbers_that_are_read_among_fake_tensors() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    x = genesis.tensor([1.0, 2.0])
    with FakeTensorMode():
        assert (x * 3).sum().item() == 9 and (x * 3).tolist() == [3, 6]


def test_values_that_a_function_under_torch_func_reads() -> None:
    x = genesis.tensor([1.0, 2.0])

    def by_genesis(t: torch.Tensor) -> torch.Tensor:
        return t * t * float((x * 3).sum()) * torch.from_numpy((x + 1).numpy()).sum()
    assert torch.func.grad(by_genesis)(torch.tensor(2.0)) == 180
    assert torch.func.vmap(by_genesis)(torch.ones(2)).tolist() == [45, 45]


def state_of_torch() -> list[Any]:
    """What a program may ask of torch that Genesis could have changed."""
    return [torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled(), torch.initial_seed(),
            torch.get_rng_state().tolist(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"),
            torch.are_deterministic_algorithms_enabled(), torch.is_anomaly_enabled(), thread_modes.any_on(),
            torch.get_float32_matmul_precision(), torch.is_warn_always_enabled(), repr(torch.tensor([1 / 3])),
            torch.get_num_threads(), torch.multiprocessing.get_sharing_strategy(), torch.is_autocast_cache_enabled(),
            torch.backends.mkldnn.enabled, warnings.filters[0], len(warnings.filters),
            *map(str, (torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()))]


def of_torch(beside: Callable[[], object]) -> tuple[list[Any], list[Any]]:
    """A program of torch's that calls something between its lines."""
    states, values = [], []
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(4):
        beside()
        states.append(state_of_torch())
        with torch.autocast("cpu", torch.bfloat16):
            y = model(torch.randn(3, 4)).square().mean()
            beside()
            states.append(state_of_torch())
        optimizer.zero_grad()
        y.backward()
        beside()
        optimizer.step()
        values += [y.item(), torch.rand(2).tolist(), *(p.tolist() for p in model.parameters())]
    with torch.no_grad(), torch.device("meta"):
        beside()
        states.append(state_of_torch()[:4])
        values.append(str(torch.zeros(2).device))
    return states, values


def all_settings() -> None:
    """Genesis, whose settings have torch's names, and which draws and fails."""
    T = genesis
    T.manual_seed(1)
    T.set_default_dtype(T.float64)
    T.set_default_device("cpu")
    T.set_printoptions(precision=2)
    T.set_float32_matmul_precision("high")
    T.use_deterministic_algorithms(False)
    torch_steps = steps(True)
    assert torch_steps
    try:
        with T.inference_mode(), T.autocast("cpu"), T.autograd.set_detect_anomaly(False):
            beyond = T.rand(3).sum().item()
            assert beyond and repr(T.rand(3) / 3)
        with T.no_grad(), contextlib.suppress(RuntimeError):
            T.linalg.cholesky(-T.eye(2)).sum().item()
        with contextlib.suppress(IndexError):
            T.zeros(3)[T.tensor([7])].sum().item()
    finally:
        T.use_deterministic_algorithms(True)
        T.set_float32_matmul_precision("highest")
        T.set_printoptions(profile="default")
        T.set_default_device(None)
        T.set_default_dtype(T.float32)


def test_a_program_of_torch_is_what_it_was() -> None:
    all_settings()  # what imports leave behind is there before
    assert of_torch(all_settings) == of_torch(lambda: None)
