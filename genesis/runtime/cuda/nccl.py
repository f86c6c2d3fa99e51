"""Collectives on CUDA: NCCL, by a small table of its functions, on our streams and memory.

The library is the one that torch's wheels bring, or the system's; no torch is loaded. The table holds what has been the
same since NCCL 2.10: pointers, counts and enumerations.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Callable
from ctypes import c_char_p, c_int, c_size_t, c_void_p
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from genesis.runtime.collectives import DistBackendError
from genesis.runtime.cuda.c_functions import CFunction, address_of_function, c_function
from genesis.runtime.cuda.cuda_python_driver import driver
from genesis.runtime.cuda.stream import current_device
from genesis.runtime.ledger import ledger
from genesis.runtime.nccl_options import NcclConfig, NcclOptions

if TYPE_CHECKING:
    from genesis.runtime.collectives import KeyStore
    from genesis.runtime.cuda.collective_work import Buffer, CollectiveWork
    from genesis.runtime.cuda.driver import Call, StreamHandle

VARIABLE: Final = "GENESIS_NCCL"
"""Environment variable: the path of libnccl.so.2, where it is not found by itself."""

GRAPHS: Final = "GENESIS_NCCL_GRAPHS"
"""Environment variable: 0 keeps collectives out of CUDA graphs; programs with them are launched step by step."""

DTYPES: Final = {"int8": 0, "uint8": 1, "bool": 1, "int32": 2, "int64": 4, "float16": 6, "float32": 7, "float64": 8,
                 "bfloat16": 9}
"""ncclDataType_t."""

REDUCTIONS: Final = {"sum": 0, "product": 1, "max": 2, "min": 3, "avg": 4}
"""ncclRedOp_t."""

BYTES: Final = 1
"""ncclUint8: data that only moves goes as bytes, whatever its dtype."""


class _UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


UNSET: Final = -(2**31)
"""NCCL_CONFIG_UNDEF_INT: leaves a setting to NCCL."""


class _Config(ctypes.Structure):
    """ncclConfig_t as it was in version 2.17, which its third field says; later ones have more at the end."""

    _fields_ = [("size", c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("blocking", c_int),
                ("cga_cluster_size", c_int), ("min_ctas", c_int), ("max_ctas", c_int), ("net_name", c_char_p)]


def _config(asked: NcclConfig) -> _Config:
    sizes = [UNSET if x is None else x for x in (asked.cga_cluster_size, asked.min_ctas, asked.max_ctas)]
    return _Config(ctypes.sizeof(_Config), 0xcafebeef, 21700, UNSET, *sizes, None)


_FUNCTIONS: Final[dict[str, tuple[type, ...]]] = {
    "ncclGetVersion": (ctypes.POINTER(c_int),),
    "ncclGetUniqueId": (ctypes.POINTER(_UniqueId),),
    "ncclCommInitRank": (ctypes.POINTER(c_void_p), c_int, _UniqueId, c_int),
    "ncclCommInitRankConfig": (ctypes.POINTER(c_void_p), c_int, _UniqueId, c_int, ctypes.POINTER(_Config)),
    "ncclCommDestroy": (c_void_p,),
    "ncclCommAbort": (c_void_p,),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
    "ncclAllReduce": (c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
    "ncclReduce": (c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, c_void_p, c_void_p),
    "ncclBroadcast": (c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
    "ncclAllGather": (c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p),
    "ncclReduceScatter": (c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
    "ncclSend": (c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
    "ncclRecv": (c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
}
"""Function → the types of its arguments. Each returns an ncclResult_t."""


class Nccl:
    """The library.

    Raises:
        DistBackendError: it is not there.
    """

    def __init__(self) -> None:
        # Registering a graph's buffers asks the other ranks: a rank that builds a graph anew would wait for them.
        os.environ.setdefault("NCCL_GRAPH_REGISTER", "0")
        found = library_path()
        try:
            self._library = ctypes.CDLL(found)
        except OSError as error:
            raise DistBackendError(f"NCCL is not available: {error}\n  try: install nvidia-nccl-cu13 (torch's CUDA "
                                   f"wheels bring it), or set {VARIABLE} to the path of libnccl.so.2") from None
        for name, arguments in _FUNCTIONS.items():
            function = getattr(self._library, name)
            function.argtypes, function.restype = list(arguments), c_int
        self._library.ncclGetErrorString.argtypes, self._library.ncclGetErrorString.restype = [c_int], c_char_p
        self._library.ncclGetLastError.argtypes, self._library.ncclGetLastError.restype = [c_void_p], c_char_p
        self._functions: dict[str, CFunction] = {}

    @property
    def version(self) -> int:
        """The version, as 10000 · major + 100 · minor + patch."""
        found = c_int(0)
        self.call("ncclGetVersion", ctypes.byref(found))
        return found.value

    def call(self, name: str, *arguments: object) -> None:
        """Call a function.

        Raises:
            DistBackendError: it failed.
        """
        status = getattr(self._library, name)(*arguments)
        if status:
            self._fail(name, status)

    def call_of(self, name: str, *arguments: object) -> Call:
        """A call into C of a function that is part of a group: it raises as `call` does, and the group is over then."""
        types = _FUNCTIONS[name]
        given = [x if isinstance(x, type) else type(x) for x, type in zip(arguments, types, strict=True)]
        return partial(self._in_c(name), *given)

    def _in_c(self, name: str) -> CFunction:
        found = self._functions.get(name)
        if found is None:
            address = address_of_function(getattr(self._library, name))
            found = self._functions[name] = c_function(address, partial(self._fail_in_group, name))
        return found

    def _fail_in_group(self, name: str, status: int) -> NoReturn:
        if name not in ("ncclGroupStart", "ncclGroupEnd"):
            self._library.ncclGroupEnd()
        self._fail(name, status)

    def _fail(self, name: str, status: int) -> NoReturn:
        text = (self._library.ncclGetErrorString(status) or b"").decode()
        last = (self._library.ncclGetLastError(None) or b"").decode().strip()
        raise DistBackendError(f"{name}: {text}{f' ({last})' if last else ''}; NCCL_DEBUG=INFO says more")


def library_path() -> str:
    """Where libnccl.so.2 is: as the environment says, beside torch's other wheels, or where the system looks."""
    given = os.environ.get(VARIABLE)
    if given:
        return given
    spec = importlib.util.find_spec("nvidia")  # a namespace: the wheels have their folders in it
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for path in sorted(Path(folder).glob("*/lib/libnccl.so.2")):
            return str(path)
    return "libnccl.so.2"


@cache
def nccl() -> Nccl:
    """The process's one library."""
    return Nccl()


class NcclTransport:
    """A group of processes on GPUs, one each (`runtime.collectives.DeviceTransport`).

    Args:
        store: has keys for this group alone.
        rank, size: of this process in the group.
        timeout: how long the others are waited for.
        options: settings of NCCL's.

    Attributes:
        high_priority: its kernels go before others.
    """

    blocks = False

    def __init__(self, store: KeyStore, rank: int, size: int, timeout: timedelta, options: NcclOptions | None = None):
        self.rank, self.size = rank, size
        options = options or NcclOptions()
        self.high_priority = options.is_high_priority_stream
        self.capturable = os.environ.get(GRAPHS) != "0"
        self._nccl, self._device = nccl(), current_device()
        driver().use(self._device)
        unique = _UniqueId()
        if rank == 0:
            self._nccl.call("ncclGetUniqueId", ctypes.byref(unique))
            store.set("id", bytes(unique))
        else:
            store.wait(["id"], timeout)
            ctypes.memmove(ctypes.byref(unique), store.get("id"), ctypes.sizeof(unique))
        self._aborted = False
        self._communicator = c_void_p()
        if options.config == NcclConfig():
            self._nccl.call("ncclCommInitRank", ctypes.byref(self._communicator), size, unique, rank)
        else:
            self._nccl.call("ncclCommInitRankConfig", ctypes.byref(self._communicator), size, unique, rank,
                            ctypes.byref(_config(options.config)))

    def compare(self, text: str) -> None:
        """Nothing: the watchdog compares what ranks have begun."""

    def run(self, work: CollectiveWork, stream: StreamHandle) -> None:
        """Give the stream the collective; does not wait for it."""
        for call in self.calls(work, stream):
            call()

    def calls(self, work: CollectiveWork, stream: StreamHandle) -> list[Call]:
        """The calls into C that `run` makes: nothing comes between that one collective began and the next one did."""
        return calls_of(self._nccl, work, self._communicator, c_void_p(driver().stream_number(stream)))

    def abort(self) -> None:
        """End what hangs: kernels that wait for others return."""
        self._aborted = True
        ledger.abort()  # first: whoever waits for the GPU goes on as soon as its kernels return
        self._nccl.call("ncclCommAbort", self._communicator)

    def close(self) -> None:
        """Let go of the communicator."""
        if self._aborted:
            return
        from genesis.runtime.cuda.bound_plan import forget_graphs_with_collectives
        forget_graphs_with_collectives()
        driver().use(self._device)
        driver().synchronize()
        self._nccl.call("ncclCommDestroy", self._communicator)


def calls_of(library: Nccl, work: CollectiveWork, communicator: c_void_p, stream: c_void_p) -> list[Call]:
    """The library's calls that give a stream a collective."""
    found = _Calls(library, communicator, stream)
    _RUNS[work.step.op](found, work)
    return found.calls


class _Calls:
    """NCCL's calls for one communicator and one stream, as they are asked for."""

    def __init__(self, library: Nccl, communicator: c_void_p, stream: c_void_p):
        self._library, self._end = library, (communicator, stream)
        self.calls: list[Call] = []

    def __call__(self, name: str, *arguments: object) -> None:
        self.calls.append(self._library.call_of(name, *arguments, *self._end))

    def grouped(self, calls: Callable[[], None]) -> None:
        """Calls that NCCL runs as one."""
        self.calls.append(self._library.call_of("ncclGroupStart"))
        calls()
        self.calls.append(self._library.call_of("ncclGroupEnd"))


def _reducing(name: str) -> Callable[[_Calls, CollectiveWork], None]:
    def run(call: _Calls, work: CollectiveWork) -> None:
        more = (work.step.peer,) if name == "ncclReduce" else ()

        def each() -> None:
            for x, y in zip(work.operands, work.results, strict=True):
                if x.count:
                    call(name, x.address, y.address, x.count, _dtype(x), _how(work, x), *more)
        call.grouped(each)
    return run


def _broadcast(call: _Calls, work: CollectiveWork) -> None:
    def each() -> None:
        for x, y in zip(work.operands, work.results, strict=True):
            if x.count:
                call("ncclBroadcast", x.address, y.address, x.count * x.itemsize, BYTES, work.step.peer)
    call.grouped(each)


def _all_gather(call: _Calls, work: CollectiveWork) -> None:
    def each() -> None:
        for x, y in zip(work.operands, work.results, strict=True):
            if x.count:
                call("ncclAllGather", x.address, y.address, x.count * x.itemsize, BYTES)
    call.grouped(each)


def _reduce_scatter(call: _Calls, work: CollectiveWork) -> None:
    def each() -> None:
        for x, y in zip(work.operands, work.results, strict=True):
            if y.count:
                call("ncclReduceScatter", x.address, y.address, y.count, _dtype(x), _how(work, x))
    call.grouped(each)


def _all_to_all(call: _Calls, work: CollectiveWork) -> None:
    (x,), (y,), step = work.operands, work.results, work.step

    def each() -> None:
        for name, buffer, rows in (("ncclSend", x, step.sent), ("ncclRecv", y, step.received)):
            width = buffer.count // max(sum(rows), 1) * buffer.itemsize
            at = buffer.address
            for peer, count in enumerate(rows):
                if count * width:
                    call(name, at, count * width, BYTES, peer)
                at += count * width
    call.grouped(each)


def _messages(call: _Calls, work: CollectiveWork) -> None:
    def each() -> None:
        for name, buffers, peers in (("ncclSend", work.operands, work.step.sent),
                                     ("ncclRecv", work.results, work.step.received)):
            for x, peer in zip(buffers, peers, strict=True):
                if x.count:
                    call(name, x.address, x.count * x.itemsize, BYTES, peer)
    call.grouped(each)


_RUNS: Final[dict[str, Callable[[_Calls, CollectiveWork], None]]] = {
    "all_reduce": _reducing("ncclAllReduce"), "reduce_to": _reducing("ncclReduce"), "broadcast": _broadcast,
    "all_gather": _all_gather, "reduce_scatter": _reduce_scatter, "all_to_all": _all_to_all,
    "messages": _messages}


def _how(work: CollectiveWork, x: Buffer) -> int:
    """The reduction of the operand's elements. Booleans are bytes of 0 and 1: their sum is whether any is true, not a
    byte of 2, and their product whether all are."""
    reduce = work.step.reduce
    return REDUCTIONS[{"sum": "max", "product": "min"}.get(reduce, reduce) if x.dtype == "bool" else reduce]


def _dtype(buffer: Buffer) -> int:
    found = DTYPES.get(buffer.dtype)
    if found is None:
        raise DistBackendError(f"NCCL reduces no {buffer.dtype}\n  try: another dtype, such as int32")
    return found
