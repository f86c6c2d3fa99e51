"""Styles of modules with weights: Colwise and Rowwise (Shoeybi et al., Megatron-LM, 2019), SequenceParallel
(Korthikanti et al. 2022).

    Linear       weight          bias        goes in      comes out
    Colwise      Shard(0)        Shard(0)    Replicate    Shard(-1)
    Rowwise      Shard(1)        Replicate   Shard(-1)    Partial → Replicate
    Embedding    weight
    Colwise      Shard(1)                    Replicate    Shard(-1)
    Rowwise      Shard(0)                    Replicate    Partial → Replicate
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genesis.distributed.mesh import DeviceMesh
from genesis.distributed.tensor.placement import Placement, Replicate, Shard
from genesis.frontend.draw_parts import drawing_part
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.nn import functional as F
from genesis.nn.modules.linear import Linear
from genesis.nn.modules.module import Module
from genesis.nn.modules.sparse import Embedding
from genesis.nn.parallel.tensor.style import (
    PARTIAL,
    REPLICATE,
    ParallelStyle,
    become,
    entering,
    leaving,
    share_out,
    summed,
    summing,
)

LAST = Shard(-1)


class ColwiseParallel(ParallelStyle):
    """A Linear whose outputs, or an Embedding whose columns, are shared out.

    Args:
        input_layouts: how the input lies: Replicate() by default.
        output_layouts: how the output is to lie: Shard(-1), as it comes, by default.
        use_local_output: the output is a plain tensor; False hands it on with its layout, which the module that gets
            it (and no other op) knows of.
    """

    def __init__(self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None,
                 use_local_output: bool = True):
        self.input_layouts, self.output_layouts = (input_layouts or REPLICATE,), (output_layouts or LAST,)
        self.use_local_output = use_local_output

    def apply(self, module: Module, mesh: DeviceMesh) -> None:
        """Share the module out.

        Raises:
            NotImplementedError: it is no Linear and no Embedding.
        """
        given, wanted, local = self.input_layouts[0], self.output_layouts[0], self.use_local_output
        if isinstance(module, Linear):
            share_out(module, "weight", 0, mesh)
            share_out(module, "bias", 0, mesh)
            size = module.out_features
        elif isinstance(module, Embedding):
            share_out(module, "weight", 1, mesh)
            size = module.embedding_dim
        else:
            raise _unsupported(self, module)
        forward = type(module).forward
        floating = isinstance(module, Linear)

        def shared(self: Any, input: Tensor) -> Any:
            x = entering(input, mesh, given, REPLICATE, partial=True) if floating else input
            return leaving(forward(self, x), mesh, LAST, wanted, local, size)
        become(module, "Colwise", forward=shared)


class RowwiseParallel(ParallelStyle):
    """A Linear whose inputs, or an Embedding whose rows, are shared out: each process has a term of the result.

    Args:
        input_layouts: how the input lies: Shard(-1) by default; an Embedding's is Replicate().
        output_layouts: how the output is to lie: Replicate() by default.
        use_local_output: see `ColwiseParallel`.
    """

    def __init__(self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None,
                 use_local_output: bool = True):
        self.input_layouts, self.output_layouts = (input_layouts or LAST,), (output_layouts or REPLICATE,)
        self.use_local_output = use_local_output

    def apply(self, module: Module, mesh: DeviceMesh) -> None:
        """Share the module out.

        Raises:
            NotImplementedError: it is no Linear and no Embedding.
        """
        if isinstance(module, Linear):
            self._apply_to_linear(module, mesh)
        elif isinstance(module, Embedding):
            self._apply_to_table(module, mesh)
        else:
            raise _unsupported(self, module)

    def _apply_to_linear(self, module: Linear, mesh: DeviceMesh) -> None:
        share_out(module, "weight", 1, mesh)
        given, wanted, local = self.input_layouts[0], self.output_layouts[0], self.use_local_output

        def shared(self: Any, input: Tensor) -> Any:
            term = F.linear(entering(input, mesh, given, LAST), self.weight)
            y = leaving(term, mesh, PARTIAL, wanted, local)
            if self.bias is None:
                return y
            bias = self.bias if isinstance(wanted, Replicate) else summed(self.bias, mesh)
            return leaving(y + bias.to(y.dtype), mesh, wanted, wanted, local)
        become(module, "Rowwise", forward=shared)

    def _apply_to_table(self, module: Embedding, mesh: DeviceMesh) -> None:
        if module.max_norm is not None or module.scale_grad_by_freq:
            raise failure("RowwiseParallel", "a table that is shared out has no max_norm and no scale_grad_by_freq",
                          error=ValueError)
        share_out(module, "weight", 0, mesh)
        wanted, local = self.output_layouts[0], self.use_local_output
        (first, end), _ = module.weight.sharding.region()
        pad = module.padding_idx
        pad = pad - first if pad is not None and first <= pad < end else None

        def shared(self: Any, input: Tensor) -> Any:
            elsewhere = (input < first) | (input >= end)
            rows = F.embedding((input - first).clamp(0, end - first - 1), self.weight, pad)
            return leaving(rows.masked_fill(elsewhere.unsqueeze(-1), 0), mesh, PARTIAL, wanted, local)
        become(module, "Rowwise", forward=shared)


class ReplicateParallel(ParallelStyle):
    """A module that all processes have, each of which uses it for a part: gradients of its parameters are added."""

    def apply(self, module: Module, mesh: DeviceMesh) -> None:
        """Add the gradients."""
        for part in list(module.modules()):
            own = {name: summing(name, mesh) for name, p in part._parameters.items() if p is not None}
            if own:
                become(part, "Replicate", **own)


class SequenceParallel(ParallelStyle):
    """A norm or a dropout that each process computes for its part of the tokens; a dropout drops what that of all drops
    there.

    Args:
        sequence_dim: the dimension of the tokens. A plain input is this process' part along it.
        use_local_output: see `ColwiseParallel`.
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False):
        self.sequence_sharding, self.use_local_output = (Shard(sequence_dim),), use_local_output

    def apply(self, module: Module, mesh: DeviceMesh) -> None:
        """Share the module's work out."""
        ReplicateParallel().apply(module, mesh)
        own, local, forward = self.sequence_sharding[0], self.use_local_output, type(module).forward
        dim, place, count = self.sequence_sharding[0].dim, mesh.get_local_rank(), mesh.size()

        def shared(self: Any, input: Tensor) -> Any:
            x = entering(input, mesh, own, own)
            with drawing_part(dim, place, count):
                y = forward(self, x)
            return leaving(y, mesh, own, own, local)
        become(module, "Sequence", forward=shared)


class ShardedWeights(ParallelStyle):
    """A module whose parameters are shared out, and which is computed as it is: all that it does is done by parts.

    Args:
        dims: the dimension of each parameter, by its name.
    """

    def __init__(self, dims: Mapping[str, int]):
        self.dims = dims

    def apply(self, module: Module, mesh: DeviceMesh) -> None:
        """Share the parameters out."""
        for name, dim in self.dims.items():
            share_out(module, name, dim, mesh)


def _unsupported(style: ParallelStyle, module: Module) -> Exception:
    name = type(style).__name__
    return failure(name, f"{name} currently only supports nn.Linear and nn.Embedding, not {type(module).__name__}",
                   error=NotImplementedError)
