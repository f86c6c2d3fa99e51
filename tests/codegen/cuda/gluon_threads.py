"""Run a kernel's text in Gluon on the CPU: its groups of warps are threads, of which one runs at a time.

Triton has no interpreter for Gluon. This one stands for what a program says to the copy engine, the tensor cores and
its barriers, and leaves layouts out. What may happen late does, at random times from a seed: a copy to shared memory
writes when it ends and leaves nonsense until then, a copy from it and a product read when they end. So a wait that is
missing is seen as a wrong number, an arrival too many as an error, and groups that wait for each other as a deadlock.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from genesis.codegen.cuda.source import Exchange, From, KernelSource, MatrixMap, TensorTable
from genesis.ir.node import Node
from tests.codegen.cuda.run_interpreted import _memory, torch_dtype


class Tensor(torch.Tensor):
    """What a program's registers hold."""

    type = SimpleNamespace(layout=None)  # type: ignore[assignment]


class Whole(int):
    """A number that a program casts, as are its quotients and remainders."""

    def to(self, _: object) -> Whole:
        """Itself."""
        return self

    def __floordiv__(self, by: int) -> Whole:
        return Whole(int(self) // by)

    def __mod__(self, by: int) -> Whole:
        return Whole(int(self) % by)


def tensor(x: torch.Tensor) -> Tensor:
    """A copy as registers hold it."""
    return x.clone().as_subclass(Tensor)


class Pointer:
    """A pointer into memory, or a tensor of them."""

    def __init__(self, memory: torch.Tensor, offset: Any = 0):
        self.memory, self.offset = memory.view(-1), offset

    def __add__(self, more: Any) -> Pointer:
        return Pointer(self.memory, self.offset + more)


class Barrier:
    """A counted barrier: `arrivals` that are missing, bytes that are, and the phases that have ended."""

    def __init__(self) -> None:
        self.count = self.missing = self.bytes = self.phase = 0

    def arrive(self, count: int, nbytes: int = 0) -> None:
        """Count arrivals, or bytes that have come (negative ones are expected)."""
        self.missing, self.bytes = self.missing - count, self.bytes - nbytes
        assert self.missing >= 0, "more arrive than the barrier counts"
        if not self.missing and not self.bytes:
            self.missing, self.phase = self.count, self.phase + 1


class Shared:
    """A piece of shared memory, or a row of barriers."""

    def __init__(self, data: Any, dtype: torch.dtype):
        self.data, self.dtype = data, dtype

    def index(self, at: int) -> Any:
        """One of its parts."""
        return self.data[at] if isinstance(self.data, list) else Shared(self.data[at], self.dtype)

    def permute(self, order: Sequence[int]) -> Shared:
        """Its axes in another order."""
        return Shared(self.data.permute(*order), self.dtype)

    def slice(self, start: int, size: int, axis: int) -> Shared:
        """A part of it."""
        return Shared(self.data.narrow(axis, start, size), self.dtype)

    def reinterpret(self, dtype: torch.dtype, shape: Sequence[int], layout: object) -> Shared:
        """The same memory in another shape."""
        return Shared(self.data.view(*shape), dtype)

    def load(self, layout: object) -> Tensor:
        """Its elements."""
        return tensor(self.data)

    def store(self, value: torch.Tensor) -> None:
        """Write them."""
        self.data.copy_(value)


class Map:
    """A stack of matrices in memory, of which blocks are copied."""

    def __init__(self, x: MatrixMap, memory: torch.Tensor):
        self.sizes = [*(n for n, _ in x.outer), *x.shape]
        strides = [*(n for _, n in x.outer), x.stride, 1]
        self.view = torch.as_strided(memory, self.sizes, strides, x.start)
        self.dtype, self.layout = memory.dtype, None
        self.block_type = SimpleNamespace(shape=list(x.block), nbytes=torch.Size(x.block).numel() * memory.itemsize)

    def part(self, at: Sequence[int]) -> tuple[torch.Tensor, tuple[slice, ...]]:
        """What of the block at a place lies in memory, and where that is in the block."""
        ends = [min(n, start + size) for n, start, size in zip(self.sizes, at, self.block_type.shape, strict=True)]
        inside = tuple(slice(a, max(a, b)) for a, b in zip(at, ends, strict=True))
        return self.view[inside], tuple(slice(0, max(0, b - a)) for a, b in zip(at, ends, strict=True))


class Product:
    """A product that the tensor cores are at."""

    def __init__(self, a: Any, b: Shared, total: Any, use_acc: bool):
        self.a, self.b, self.total, self.use_acc, self.value = a, b, total, use_acc, None

    def end(self) -> None:
        """Read the operands."""
        total = self.total.value if isinstance(self.total, Product) else self.total
        a = self.a.data if isinstance(self.a, Shared) else self.a
        product = a.float() @ self.b.data.float()
        self.value = (total + product if self.use_acc else product).as_subclass(Tensor)


class Run:
    """Threads that take turns, and what is under way."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.turn = threading.Condition()
        self.running: threading.Thread | None = None
        self.waiting: dict[threading.Thread, Callable[[], bool]] = {}
        self.copies: list[Callable[[], None]] = []
        self.own = threading.local()
        self.error: BaseException | None = None

    def start(self, parts: Sequence[Callable[[], None]]) -> None:
        """Run the parts until all have ended."""
        threads = [threading.Thread(target=self._run, args=(part,), daemon=True) for part in parts]
        self.waiting = dict.fromkeys(threads, lambda: True)
        for thread in threads:
            thread.start()
        with self.turn:
            self._next()
        for thread in threads:
            thread.join()
        if self.error is not None:
            raise self.error

    def _run(self, part: Callable[[], None]) -> None:
        self.own.stores, self.own.products = [], []
        me = threading.current_thread()
        with self.turn:
            self.turn.wait_for(lambda: self.running is me or self.error is not None)
        try:
            if self.error is None:
                part()
                assert not self.own.stores and not self.own.products, "a group ends before its copies and products"
        except BaseException as error:
            self.error = self.error or error
        with self.turn:
            try:
                self._next()
            except AssertionError as error:  # of a copy that ends
                self.error = self.error or error
                self.turn.notify_all()

    def _next(self) -> None:
        """Let copies end and another thread run."""
        while True:
            while self.copies and self.random.random() < 0.3:
                self.copies.pop(self.random.randrange(len(self.copies)))()
            ready = [thread for thread, test in self.waiting.items() if test()]
            if ready:
                self.running = self.random.choice(ready)
                del self.waiting[self.running]
                break
            if not self.copies:
                self.running = None
                if self.waiting and self.error is None:
                    self.error = AssertionError(f"deadlock: {len(self.waiting)} groups wait")
                break
        self.turn.notify_all()

    def wait(self, barrier: Barrier, parity: int) -> None:
        """Until the phase of this parity has ended."""
        self._until(lambda: barrier.phase & 1 != parity)

    def arrive(self, barrier: Barrier, count: int) -> None:
        """Arrive at a barrier; others may go first from here."""
        barrier.arrive(count)
        self.others()

    def _until(self, test: Callable[[], bool]) -> None:
        me = threading.current_thread()
        with self.turn:
            self.waiting[me] = test
            self._next()
            self.turn.wait_for(lambda: self.running is me or self.error is not None)
        if self.error is not None:
            raise AssertionError("another group has failed")

    def others(self) -> None:
        """Others may go first from here."""
        self._until(lambda: True)

    def read(self, map: Map, at: Sequence[int], full: Barrier, block: Shared) -> None:
        """A copy to shared memory."""
        assert list(block.data.shape) == map.block_type.shape
        block.data.fill_(float("nan"))

        def end() -> None:
            part, inside = map.part(at)
            block.data.zero_()
            block.data[inside] = part
            full.arrive(0, map.block_type.nbytes)
        self.copies.append(end)

    def write(self, map: Map, at: Sequence[int], block: Shared) -> None:
        """A copy from shared memory."""
        def end() -> None:
            part, inside = map.part(at)
            part.copy_(block.data[inside])
        self.own.stores.append(end)

    def written(self, left: int) -> None:
        """Wait for the thread's copies from shared memory."""
        while len(self.own.stores) > left:
            self.own.stores.pop(0)()

    def product(self, a: Any, b: Shared, total: Any, use_acc: bool = True, is_async: bool = False) -> Product:
        """Start a product."""
        assert is_async
        self.own.products.append(Product(a, b, total, use_acc))
        return self.own.products[-1]

    def products(self, left: int, deps: tuple[Product, ...]) -> Any:
        """Wait for all but the last products."""
        while len(self.own.products) > left:
            self.own.products.pop(0).end()
        found = tuple(x if x.value is None else x.value for x in deps)
        assert left or not any(isinstance(x, Product) for x in found), "the product that is asked for is under way"
        return found if len(found) > 1 else found[0]


class Copies:
    """A program's copies of elements to shared memory, in groups that it waits for."""

    def __init__(self, run: Run):
        self.random = run.random
        self.groups: list[list[Callable[[], None]]] = [[]]

    def start(self, block: Shared, at: Pointer, mask: torch.Tensor | None = None) -> None:
        """A copy: what the mask leaves out is 0."""
        block.data.fill_(float("nan"))

        def end() -> None:
            inside = torch.ones(block.data.shape, dtype=torch.bool) if mask is None else mask.expand(block.data.shape)
            places = torch.where(inside, at.offset, 0)
            assert not ((places < 0) | (places >= len(at.memory))).any(), "a copy from outside of the memory"
            block.data.copy_(torch.where(inside, at.memory[places], 0))
        self.groups[-1].append(end)

    def commit(self) -> None:
        """The copies since the last one are a group. Some end early."""
        for group in self.groups:
            if group and self.random.random() < 0.3:
                group.pop(self.random.randrange(len(group)))()
        self.groups.append([])

    def wait(self, left: int) -> None:
        """Until all groups but the last ones have ended."""
        while len(self.groups) - 1 > left:
            for end in self.groups.pop(0):
                end()


def _language(run: Run, started: list[Callable[[], None]], number: int) -> SimpleNamespace:
    """What the kernel calls `tl`."""
    def allocate(dtype: torch.dtype, shape: Sequence[int], layout: object) -> Shared:
        if layout == "barriers":
            return Shared([Barrier() for _ in range(shape[0])], dtype)
        return Shared(torch.full(list(shape), float("nan") if dtype.is_floating_point else 77, dtype=dtype), dtype)

    def specialize(parts: Any, warps: object, registers: object) -> None:
        started.extend(lambda f=function, given=given: f(*given) for function, given in parts)

    def both(torch_one: Any, python_one: Any) -> Any:
        return lambda a, b: (python_one(a, b) if not isinstance(a, torch.Tensor) and not isinstance(b, torch.Tensor)
                             else torch_one(torch.as_tensor(a), torch.as_tensor(b)).as_subclass(Tensor))

    def atomic_add(at: Pointer, more: int, sem: str = "", scope: str = "") -> Whole:
        if sem:  # who waits for another's flag
            run.others()
        old = int(at.memory[at.offset])
        at.memory[at.offset] += more
        return Whole(old)

    def exchange(at: Pointer, value: int, sem: str = "", scope: str = "") -> None:
        at.memory[at.offset] = value

    def store(at: Pointer, value: torch.Tensor, mask: torch.Tensor | None = None) -> None:
        inside = slice(None) if mask is None else mask.expand(value.shape)
        at.memory[at.offset.expand(value.shape)[inside]] = value[inside].to(at.memory.dtype)

    def load(at: Pointer, mask: torch.Tensor | None = None, other: float = 0, volatile: bool = False) -> Tensor:
        if mask is None:
            return tensor(at.memory[at.offset])
        inside = torch.where(mask, at.offset, 0)
        return tensor(torch.where(mask, at.memory[inside], other).to(at.memory.dtype))

    def largest(x: torch.Tensor, axis: int) -> Any:
        found = x.amax(axis)
        return Whole(found) if not found.ndim else found

    def full(shape: Sequence[int], value: Any, dtype: torch.dtype, layout: object = None) -> Tensor:
        return tensor(torch.full(list(shape), value, dtype=dtype))

    ignored = lambda *_, **__: None  # noqa: E731
    return SimpleNamespace(
        shared_memory_descriptor=Shared,
        constexpr=int, int32=torch.int32, int64=torch.int64, float32=torch.float32, bfloat16=torch.bfloat16,
        float16=torch.float16, allocate_shared_memory=allocate, warp_specialize=specialize, atomic_add=atomic_add,
        atomic_xchg=exchange, store=store, load=load, barrier=ignored, max=largest, full=full, static_range=range,
        program_id=lambda axis: Whole(number),
        cdiv=lambda a, b: -(-a // b), minimum=both(torch.minimum, min), maximum=both(torch.maximum, max),
        zeros=lambda shape, dtype, layout=None: full(shape, 0, dtype), sum=lambda x, axis: x.sum(axis),
        assume=ignored, dot_fma=lambda a, b, total: total + a @ b,
        arange=lambda a, b, layout=None: tensor(torch.arange(a, b)), exp2=torch.exp2, log2=torch.log2,
        reshape=lambda x, shape: x.reshape(*shape), permute=lambda x, order: x.permute(*order),
        split=lambda x: (x[..., 0], x[..., 1]), fma=lambda a, b, c: a * b + c, where=torch.where,
        convert_layout=lambda x, layout, assert_trivial=False: x,
        NVMMADistributedLayout=ignored, DotOperandLayout=ignored, SliceLayout=ignored,
        BlockedLayout=ignored, SwizzledSharedLayout=ignored,
        NVMMASharedLayout=SimpleNamespace(get_default_for=ignored))


def run_gluon(kernel: KernelSource, memory: dict[Node, torch.Tensor], seed: int = 0, launches: int = 1) -> None:
    """Run a kernel, over the memory of its arguments, so many times."""
    def argument(x: Any) -> Any:
        if isinstance(x, MatrixMap):
            return Map(x, _memory(x.node, memory))
        if isinstance(x, TensorTable):
            return Pointer(torch.tensor(x.entries))
        if isinstance(x, Exchange):
            return Pointer(torch.zeros(x.type.shape, dtype=torch_dtype(x.type.dtype)))
        if isinstance(x, From):
            return Pointer(_memory(x.node, memory).reshape(-1)[x.start:])
        return x if isinstance(x, int) else Pointer(_memory(x, memory))

    text = "\n".join(line for line in kernel.source.splitlines()
                     if not line.startswith(("import ", "from ", "    fence_")))
    given = [argument(x) for x in kernel.args]
    names = [name for name, kind in kernel.signature.items() if kind != "constexpr"]
    nothing = lambda *_: None  # noqa: E731
    for launch in range(launches):
        run, started = Run(seed + launch), []
        for number in range(kernel.grid[0]):
            def init(barrier: Barrier, count: int) -> None:
                barrier.count = barrier.missing = count

            module: dict[str, Any] = {
                "tl": _language(run, started, number), "gluon": SimpleNamespace(jit=lambda f: f),
                "cuda": SimpleNamespace(gdc_wait=nothing, gdc_launch_dependents=nothing),
                "mbarrier": SimpleNamespace(
                    MBarrierLayout=lambda: "barriers", init=init, wait=run.wait,
                    arrive=run.arrive,
                    expect=lambda barrier, nbytes: barrier.arrive(1, -nbytes)),
                "tma": SimpleNamespace(async_load=run.read, async_store=run.write, store_wait=run.written),
                "warpgroup_mma": run.product, "warpgroup_mma_wait": run.products, "fence_async_shared": nothing}
            copies = Copies(run)
            module["async_copy"] = SimpleNamespace(async_load=copies.start, commit_group=copies.commit,
                                                   wait_group=copies.wait)
            exec(compile(f"from __future__ import annotations\n{text}", kernel.name, "exec"), module)
            module[kernel.name](**dict(zip(names, given, strict=True)), **kernel.constexprs)
        run.start(started)
        for x, pointer in zip(kernel.args, given, strict=True):
            assert not isinstance(x, TensorTable) or tuple(pointer.memory.tolist()) == x.entries, "changed counters"
            assert not isinstance(x, Exchange) or x.offset or not pointer.memory.any(), "flags that are left"
