"""Forms of layer norm, group norm and attention that give, beside their result, the statistics that their backward
needs; and of that backward with the statistics as operands.

Recording never makes these ops. A backend that has kernels for them has the pass `save_statistics`, which puts them in
the place of the ordinary ones where both are in a program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from genesis.ir.node import Node, Op
from genesis.ir.ops.attention import scores_of, sdpa, sdpa_backward
from genesis.ir.ops.channel_norm import group_norm, group_norm_backward, group_statistics
from genesis.ir.ops.control import item
from genesis.ir.ops.norm import layer_norm, layer_norm_backward, statistics_of
from genesis.ir.ops.statistics import logsumexp
from genesis.ir.types import TensorType, float32

if TYPE_CHECKING:
    from typing import Unpack

    from genesis.ir.ops.entry import Accurate


class Norm(TypedDict):
    """Attributes of a layer norm."""

    ndim: int
    eps: float


class Groups(TypedDict):
    """Attributes of a group norm."""

    groups: int
    eps: float


class Attention(TypedDict):
    """Attributes of an attention."""

    causal: bool
    scale: float


def _norm_types(x: TensorType, *affine: TensorType, **how: Unpack[Norm]) -> tuple[TensorType, ...]:
    rows = x.with_shape((*x.shape[:x.ndim - how["ndim"]], *(1,) * how["ndim"]))
    return (x, rows, rows)


def _norm(x: Node, *affine: Node, **how: Unpack[Norm]) -> tuple[Node, ...]:
    return (layer_norm(x, *affine, **how), *statistics_of(x, **how))


def _norm_gradients(g: TensorType, mean: TensorType, inverse: TensorType, x: TensorType, *weight: TensorType,
                    **how: float) -> tuple[TensorType, ...]:
    return (x, *weight, *weight)


def _norm_backward(g: Node, mean: Node, inverse: Node, x: Node, *weight: Node,
                   **how: Unpack[Norm]) -> tuple[Node, ...]:
    found = layer_norm_backward(g, x, *weight, **how)
    return tuple([item(found, index=i) for i in range(len(found.types))])


def _group_types(x: TensorType, *affine: TensorType, **how: Unpack[Groups]) -> tuple[TensorType, ...]:
    groups = x.with_shape((x.shape[0], how["groups"]))
    return (x, groups, groups)


def _group(x: Node, *affine: Node, **how: Unpack[Groups]) -> tuple[Node, ...]:
    return (group_norm(x, *affine, **how), *group_statistics(x, **how))


def _group_backward(g: Node, mean: Node, inverse: Node, x: Node, *weight: Node,
                    **how: Unpack[Groups]) -> tuple[Node, ...]:
    found = group_norm_backward(g, x, *weight, **how)
    return tuple([item(found, index=i) for i in range(len(found.types))])


def _attention_types(q: TensorType, k: TensorType, v: TensorType, **how: Unpack[Attention]) -> tuple[TensorType, ...]:
    rows = q.with_shape(q.shape[:-1])
    return (q.with_shape((*q.shape[:-1], v.shape[-1])), rows.with_dtype(float32) if q.dtype.itemsize < 4 else rows)


def _attention(q: Node, k: Node, v: Node, **how: Unpack[Attention]) -> tuple[Node, ...]:
    scores = scores_of(q, k, (), **how)
    return sdpa(q, k, v, **how), logsumexp(scores, axes=(scores.type.ndim - 1,), keepdims=False)


def _attention_gradients(g: TensorType, sums: TensorType, q: TensorType, k: TensorType, v: TensorType, y: TensorType,
                         **how: Unpack[Attention]) -> tuple[TensorType, ...]:
    return q, k, v


def _attention_backward(g: Node, sums: Node, q: Node, k: Node, v: Node, y: Node,
                        **how: Unpack[Attention]) -> tuple[Node, ...]:
    found = sdpa_backward(g, q, k, v, y, **how)
    return tuple([item(found, index=i) for i in range(3)])


_NORM: Accurate = {"attrs": ("ndim", "eps"), "ulp": 8}
_GROUPS: Accurate = {"attrs": ("groups", "eps"), "ulp": 8}
_SDPA: Accurate = {"attrs": ("causal", "scale"), "ulp": 16}

layer_norm_saving = Op("layer_norm_saving", "composite", _norm_types, **_NORM, decompose=_norm, differentiable=False,
                       doc="(layer_norm, mean of each row, 1 / √(variance + eps) of each row).")
layer_norm_from_saved = Op("layer_norm_from_saved", "composite", _norm_gradients, **_NORM, decompose=_norm_backward,
                           differentiable=False,
                           doc="layer_norm_backward of what arrives, a row's two statistics, x and the weight.")
group_norm_saving = Op("group_norm_saving", "composite", _group_types, **_GROUPS, decompose=_group,
                       differentiable=False,
                       doc="(group_norm, mean of each group, 1 / √(variance + eps) of each group).")
group_norm_from_saved = Op("group_norm_from_saved", "composite", _norm_gradients, **_GROUPS,
                           decompose=_group_backward, differentiable=False,
                           doc="group_norm_backward of what arrives, a group's two statistics, x and the weight.")
sdpa_saving = Op("sdpa_saving", "composite", _attention_types, **_SDPA, decompose=_attention, differentiable=False,
                 doc="(sdpa, log Σ exp of each row's scores), without a mask.")
sdpa_from_saved = Op("sdpa_from_saved", "composite", _attention_gradients, **_SDPA, decompose=_attention_backward,
                     differentiable=False,
                     doc="sdpa_backward of what arrives, log Σ exp of each row's scores, q, k, v and the result.")
