"""The plan that CUDA would get, beside one that runs op by op: where nothing was fused there is little to see.

No GPU has to be there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from genesis.cli.inspect import Program, compiled_for, work_of
from genesis.cli.stages import groups_data, groups_text, memory_line, plan_data

if TYPE_CHECKING:
    from genesis.codegen.cuda.source import KernelSource


@dataclass(frozen=True)
class Beside:
    """The plan that CUDA would get.

    Attributes:
        program: the program with its groups and memory; None if CUDA has no plan for it.
        refused: why not.
        gpu: the model of the GPU: the one at hand, or an H200.
        kernel: the generated kernel that computes the most ops.
    """

    program: Program | None
    refused: str = ""
    gpu: str = ""
    kernel: KernelSource | None = None


def beside(program: Program) -> Beside | None:
    """CUDA's plan of a program; None where the program's own has kernels."""
    if not program.is_calls:
        return None
    try:
        found = compiled_for(program.captured, "cuda")
    except RuntimeError as error:  # an op that goes through the host
        return Beside(None, str(error))
    return Beside(found, "", getattr(found.backend.gpu, "name", ""), _largest(found))


def _largest(program: Program) -> KernelSource | None:
    groups = sorted(program.schedule.groups, key=lambda group: len(work_of(group)), reverse=True)
    return next((source for group in groups if (source := program.backend.kernel_source(group)) is not None), None)


def beside_text(found: Beside) -> str:
    """Groups with their reasons, memory, one kernel."""
    if found.program is None:
        return f"# cuda has no plan for this program: {found.refused}"
    parts = [f"# the same program for cuda ({found.gpu}), whose kernels compute several ops each",
             groups_text(found.program), f"memory: {memory_line(plan_data(found.program))}"]
    if found.kernel is not None:
        parts.append(f"# the kernel that computes the most, {found.kernel.name}\n{found.kernel.source}")
    return "\n\n".join(parts)


def beside_data(found: Beside) -> dict[str, Any]:
    """The same as plain data."""
    if found.program is None:
        return {"target": "cuda", "refused": found.refused}
    kernel = found.kernel and {"name": found.kernel.name, "source": found.kernel.source}
    return {"target": "cuda", "gpu": found.gpu, "groups": groups_data(found.program), "plan": plan_data(found.program),
            "kernel": kernel}
