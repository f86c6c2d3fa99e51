"""Runs a plan that keeps shadow weights: low-precision copies of some inputs (`passes/fusion/shadow_weights.py`).

The plan reads the copies, overwrites their sources, and overwrites the copies to match. A copy that does not show its
source's content (the first run; somebody else wrote to the source) is made anew before:

    run 1                          refresh: weight → copy      plan: reads copy, writes weight and copy
    run 2                                                      plan: reads copy, writes weight and copy
    weight.copy_(checkpoint)
    run 3                          refresh: weight → copy      plan: reads copy, writes weight and copy
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from genesis.ir.types import TensorType
from genesis.runtime import shadow_weights
from genesis.runtime.cuda.driver import StreamHandle
from genesis.runtime.cuda.executor import CudaExecutor, Started, completed
from genesis.runtime.cuda.storage import CUDAStorage
from genesis.runtime.plan import Memories, Plan
from genesis.runtime.shadow_weights import ShadowWeight


class _BoundInputs(NamedTuple):
    """A plan's inputs with their shadow weights.

    Attributes:
        executor: the executor that they were bound for.
        stamp: the stamp of the inputs then; None if they have none.
        version: the version of the table of shadow weights then.
        copies: the shadow weights of the inputs at `plan.kept`.
        others: other plans' shadow weights of inputs that this plan overwrites without them.
        memories: the inputs, then the copies' memories.
    """

    executor: ShadowWeightsExecutor
    stamp: object
    version: int
    copies: tuple[ShadowWeight, ...]
    others: tuple[ShadowWeight, ...]
    memories: Memories[CUDAStorage]


class ShadowWeightsExecutor:
    """A plan with shadow weights that is ready to run on its GPU.

    Args:
        plan: its inputs are those that `run` is given, then the copies; `plan.kept` are their sources' positions.

    Raises:
        DriverError: a kernel cannot be loaded.
    """

    def __init__(self, plan: Plan):
        assert plan.refresh is not None
        self.plan = plan
        self._body = CudaExecutor(plan, invalidates=False)
        self._refresh = CudaExecutor(plan.refresh, invalidates=False)
        given = len(plan.inputs) - len(plan.kept)
        self._kept = list(zip(plan.kept, plan.inputs[given:], strict=True))
        self._written = [at for at in plan.updates if at < given]

    def run(self, inputs: Sequence[CUDAStorage], numbers: Sequence[bool | int | float] = ()) -> list[CUDAStorage]:
        """See `CudaExecutor.run`. A run that fails leaves copies that the next run makes anew."""
        return completed(self.start(inputs, numbers), self.explained)

    def explained(self, error: Exception) -> Exception:
        """See `CudaExecutor.explained`."""
        return self._body.explained(error)

    def start(self, inputs: Sequence[CUDAStorage], numbers: Sequence[bool | int | float] = ()) -> Started:
        """See `CudaExecutor.start`. The copies are invalid until the last of the calls that are returned."""
        bound = self._bind(inputs)
        for copy in bound.others:
            copy.valid = False
        valid = all(copy.valid for copy in bound.copies)
        for copy in bound.copies:
            copy.valid = False
        if not valid:
            sources = [inputs[at] for at in self.plan.kept]
            self._refresh.run([*sources, *(copy.memory for copy in bound.copies)])
        if isinstance(inputs, Memories):
            bound.memories.rewritten = inputs.rewritten
        outputs, writes = self._body.start(bound.memories, numbers)
        if isinstance(inputs, Memories):
            inputs.outputs = bound.memories.outputs
        for at, copy in zip(self.plan.kept, bound.copies, strict=True):
            writes.append(partial(setattr, copy, "valid", not inputs[at].pinned))  # others may write where they know it
        return outputs, writes

    def owing(self, inputs: Sequence[CUDAStorage], calls: Sequence[Callable[[], object]],
              made: int) -> Callable[[], object] | None:
        """See `CudaExecutor.owing`."""
        return self._body.owing(inputs, calls, made)  # which hold the copies, to make them valid at last

    def launches(self) -> list[tuple[str, Callable[[StreamHandle], object]]]:
        """See `CudaExecutor.launches`."""
        return self._body.launches()

    def release(self) -> None:
        """Give back all memory and graphs; the next run makes them anew."""
        self._body.release()
        self._refresh.release()

    def _bind(self, inputs: Sequence[CUDAStorage]) -> _BoundInputs:
        """The inputs with their shadow weights: those of the last run with this list, while they are still right."""
        known = inputs.extended if isinstance(inputs, Memories) else None
        if (isinstance(known, _BoundInputs) and known.executor is self
                and known.stamp is inputs.stamp  # type: ignore[attr-defined]
                and known.version == shadow_weights.version[0]):
            return known
        copies = tuple([self._copy_of(inputs[at], kind) for at, kind in self._kept])
        others = shadow_weights.all_of(inputs[at] for at in self._written) - set(copies)
        memories = Memories([*inputs, *(copy.memory for copy in copies)])
        stamp = inputs.stamp if isinstance(inputs, Memories) else None
        bound = _BoundInputs(self, stamp, shadow_weights.version[0], copies, tuple(others), memories)
        if isinstance(inputs, Memories):
            inputs.extended = bound  # kept by the list, so that no plan keeps a model's memory
        return bound

    def _copy_of(self, source: CUDAStorage, kind: TensorType) -> ShadowWeight:
        """The source's shadow weight; a missing one is allocated."""
        found = shadow_weights.find(source, kind.dtype)
        if found is None:
            memory = CUDAStorage(kind.nbytes, kind.device, "shadow weight: a low-precision copy of a weight")
            found = shadow_weights.add(source, kind.dtype, memory)
        return found
