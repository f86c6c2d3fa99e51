"""How the transformers are shared out over processes: heads, hidden units and the vocabulary.

    embed_tokens   rows of the table: each process has those of its tokens, and they are added
    self_attn      heads: q, k, v by outputs, o by inputs; one sum a layer
    mlp            hidden units: gate and up by outputs, down by inputs; one sum a layer; experts alike
    lm_head        the vocabulary: each process has its logits, and all are gathered

With `sequence_parallel` a part of the tokens lies on each process between those: sums become reduce_scatters, and what
goes into attention and feed-forward parts is gathered.
"""

from __future__ import annotations

from genesis.distributed.mesh import DeviceMesh
from genesis.distributed.tensor.placement import Partial, Replicate, Shard
from genesis.models.architecture import Architecture
from genesis.models.parts import Attention
from genesis.nn.modules.module import Module
from genesis.nn.parallel.tensor.prepare import GatheredInput, PrepareModuleOutput
from genesis.nn.parallel.tensor.style import ParallelStyle
from genesis.nn.parallel.tensor.weights import (
    ColwiseParallel,
    ReplicateParallel,
    RowwiseParallel,
    SequenceParallel,
    ShardedWeights,
)

Plan = dict[str, ParallelStyle]


class HeadParallel(GatheredInput):
    """Attention of which each process computes some heads."""

    def apply(self, module: Module, mesh: DeviceMesh) -> None:
        """Leave this process' heads."""
        assert isinstance(module, Attention)
        module.share_heads(mesh)
        super().apply(module, mesh)


def transformer_plan(spec: Architecture, ranks: int, path: str, sequence_parallel: bool = False) -> Plan:
    """The plan of a transformer.

    Args:
        spec: what it is made of.
        ranks: how many processes share it.
        path: of the `Transformer` in the model, with a dot behind.
        sequence_parallel: tokens are shared out between attention and feed-forward parts: a text's length is then a
            multiple of `ranks`.

    Raises:
        ValueError: heads cannot be shared out evenly.
    """
    if spec.heads % ranks or (spec.kv_heads % ranks and spec.kv_heads != 1):
        raise ValueError(f"{spec.heads} heads of queries and {spec.kv_heads} of keys cannot be shared out evenly over "
                         f"{ranks} ranks")
    between = Shard(1) if sequence_parallel else Replicate()
    plan: Plan = {path + "embed_tokens": RowwiseParallel(output_layouts=between)}
    for layer in range(spec.layers):
        here = f"{path}layers.{layer}."
        plan |= _attention_plan(spec, here + "self_attn", between)
        plan |= _feed_forward_plan(spec, layer, here + "mlp", between)
    if sequence_parallel:
        plan |= _between(spec, path)
    return plan


def _attention_plan(spec: Architecture, path: str, between: Shard | Replicate) -> Plan:
    shared = spec.kv_heads > 1
    plan: Plan = {path: HeadParallel(between), f"{path}.q_proj": ColwiseParallel(),
                  f"{path}.o_proj": RowwiseParallel(output_layouts=between)}
    for name in ("k_proj", "v_proj"):  # one head of keys is every process'
        plan[f"{path}.{name}"] = ColwiseParallel() if shared else ReplicateParallel()
    if spec.qk_norm:
        plan |= {f"{path}.{name}": ReplicateParallel() for name in ("q_norm", "k_norm")}
    return plan


def _feed_forward_plan(spec: Architecture, layer: int, path: str, between: Shard | Replicate) -> Plan:
    if spec.experts[layer] is not None:
        return {f"{path}.gate": ReplicateParallel(),
                f"{path}.experts": ShardedWeights({"gate_proj": 1, "up_proj": 1, "down_proj": 2}),
                path: _Experts(between)}
    plan: Plan = {path: GatheredInput(between), f"{path}.up_proj": ColwiseParallel(),
                  f"{path}.down_proj": RowwiseParallel(output_layouts=between)}
    if spec.gated:
        plan[f"{path}.gate_proj"] = ColwiseParallel()
    return plan


class _Experts(ParallelStyle):
    """A mixture of experts whose hidden units are shared out: what comes out of it is a term."""

    def __init__(self, between: Shard | Replicate):
        self._between = between

    def apply(self, module: Module, mesh: DeviceMesh) -> None:
        GatheredInput(self._between).apply(module, mesh)
        PrepareModuleOutput(output_layouts=Partial(), desired_output_layouts=self._between).apply(module, mesh)


def _between(spec: Architecture, path: str) -> Plan:
    """What each process does for its part of the tokens."""
    norms = [f"{path}layers.*.input_layernorm", f"{path}layers.*.post_attention_layernorm"]
    plan: Plan = {name: SequenceParallel(use_local_output=True) for name in (
        *norms, f"{path}norm", f"{path}dropout", f"{path}layers.*.dropout")}
    tables = ["embed_positions"] if spec.position_table else []
    tables += ["embed_segments"] if spec.segments else []
    for name in tables:
        plan[path + name] = PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(-2))
    if spec.norm_first:
        plan[path + "norm"] = _GatheredNorm()
    return plan


class _GatheredNorm(ParallelStyle):
    """The last norm: of a part of the tokens, and then all of them go to the head."""

    def apply(self, module: Module, mesh: DeviceMesh) -> None:
        SequenceParallel(use_local_output=True).apply(module, mesh)
        PrepareModuleOutput(output_layouts=Shard(1), desired_output_layouts=Replicate()).apply(module, mesh)
