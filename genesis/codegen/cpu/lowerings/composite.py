"""Composites for which torch has one kernel, forward and backward."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, scalar_tensor
from torch.nn import functional

from genesis.codegen.cpu.lowerings.dtypes import CPU, number_tensor
from genesis.codegen.cpu.lowerings.table import Lowering, Outs, builtin, into
from genesis.runtime.plan import Direct

Types = tuple[Any, ...]
Attributes = dict[str, Any]

_aten = torch.ops.aten
_layer_norm_grad = builtin(_aten.native_layer_norm_backward.default)
_nll_loss_backward = builtin(_aten.nll_loss_backward.default)
_flash_attention = builtin(_aten._scaled_dot_product_flash_attention_for_cpu.default)
_flash_grad = builtin(_aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
_binary_cross_entropy_grad = builtin(_aten.binary_cross_entropy_backward.grad_input)
_huber_loss_grad = builtin(_aten.huber_loss_backward.out)
_smooth_l1_loss_grad = builtin(_aten.smooth_l1_loss_backward.grad_input)


# Softmax

def _softmax(outs: Outs, x: Tensor, axis: int) -> Any:
    return torch.softmax(x, axis, out=outs[0])


def _softmax_backward(outs: Outs, g: Tensor, y: Tensor, axis: int) -> None:
    torch._softmax_backward_data(g, y, axis, y.dtype, grad_input=outs[0])


def _log_softmax(outs: Outs, x: Tensor, axis: int) -> Any:
    return torch.log_softmax(x, axis, out=outs[0])


def _log_softmax_backward(outs: Outs, g: Tensor, y: Tensor, axis: int) -> None:
    torch._log_softmax_backward_data(g, y, axis, y.dtype, out=outs[0])


# Norms

def _one_dtype(types: Types, attributes: Attributes) -> bool:
    return attributes["ndim"] > 0 and types[0].numel > 0 and all(t.dtype is types[0].dtype for t in types)


def _one_at_least_float32(types: Types, attributes: Attributes) -> bool:
    return _one_dtype(types, attributes) and types[0].dtype.itemsize >= 4


def _layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, ndim: int,
                eps: float) -> Tensor:
    return torch.native_layer_norm(x, x.shape[-ndim:], weight, bias, eps)[0]


def _layer_norm_backward(g: Tensor, x: Tensor, weight: Tensor | None = None, *, ndim: int, eps: float) -> tuple:
    """Mean and 1 / std are computed again: the op has them neither as operands nor as results."""
    shape = x.shape[-ndim:]
    _, mean, inverse = torch.native_layer_norm(x, shape, None, None, eps)
    affine = weight is not None
    found = _layer_norm_grad(g, x, shape, mean, inverse, weight, weight,
                                                      [True, affine, affine])
    return found if affine else found[:1]


def _layer_norm_saving(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, ndim: int,
                       eps: float) -> tuple:
    return torch.native_layer_norm(x, x.shape[-ndim:], weight, bias, eps)


def _layer_norm_from_saved(g: Tensor, mean: Tensor, inverse: Tensor, x: Tensor, weight: Tensor | None = None, *,
                           ndim: int, eps: float) -> tuple:
    affine = weight is not None
    found = _layer_norm_grad(g, x, x.shape[-ndim:], mean, inverse, weight, weight,
                                                      [True, affine, affine])
    return found if affine else found[:1]


@lru_cache(64)
def _number(value: float, dtype: torch.dtype) -> Tensor:
    """A number in memory: torch makes one of a Python number in each call, which takes as long as a short row."""
    return torch.tensor(value, dtype=dtype, device=CPU)


def _rms_norm(outs: Outs, x: Tensor, weight: Tensor | None = None, *, ndim: int, eps: float) -> None:
    axes = tuple(range(-ndim, 0))
    count = 1
    for size in x.shape[-ndim:]:
        count *= size
    scale = torch.linalg.vector_norm(x, 2, axes, True)
    torch.addcmul(_number(eps, scale.dtype), scale, scale, value=1 / max(count, 1), out=scale).rsqrt_()
    torch.mul(x, scale, out=outs[0])
    if weight is not None:
        outs[0].mul_(weight)


# Cross-entropy, a loss for each row

def _cross_entropy(logits: Tensor, target: Tensor, ignore_index: int, label_smoothing: float) -> Tensor:
    return torch._C._nn.cross_entropy_loss(logits, target.long(), None, 0, ignore_index, label_smoothing)


def _nll_loss(logs: Tensor, target: Tensor, ignore_index: int) -> Tensor:
    return functional.nll_loss(logs, target.long(), ignore_index=ignore_index, reduction="none")


def _cross_entropy_backward(outs: Outs, g: Tensor, logits: Tensor, target: Tensor, ignore_index: int,
                            label_smoothing: float) -> None:
    """(softmax - goal) · g in the result's own memory, or in float32 for narrower dtypes."""
    low = logits.dtype.itemsize < 4
    if not (low or label_smoothing or logits.numel() > FEW_ELEMENTS):
        _few_cross_entropies_backward(outs, g, logits, target if target.dtype is torch.int64 else target.long(),
                                      ignore_index)
        return
    scores = torch.softmax(logits, 1, torch.float32) if low else torch.softmax(logits, 1, out=outs[0])
    ignored = torch.eq(target, ignore_index)
    rows = (target if target.dtype is torch.int64 else target.long()).masked_fill(ignored, 0).unsqueeze_(1)
    scores.scatter_add_(1, rows, number_tensor(label_smoothing - 1.0, scores.dtype).expand_as(rows))
    if label_smoothing:
        scores.sub_(label_smoothing / logits.shape[1])
    scores.mul_(g.masked_fill(ignored, 0).unsqueeze_(1))
    if low:
        outs[0].copy_(scores)


FEW_ELEMENTS = 1 << 15
"""Logits up to which a gradient of the cross entropy takes calls with results of its size, as torch's does: 7 µs of
calls where the ten that work in the result's memory take 15."""


def _few_cross_entropies_backward(outs: Outs, g: Tensor, logits: Tensor, target: Tensor, ignore_index: int) -> None:
    logs = torch.log_softmax(logits, 1)
    torch._C._nn.nll_loss_nd(logs, target, None, 0, ignore_index)  # looks at the class numbers, which the next does not
    chosen = _nll_loss_backward(g, logs, target, None, 0, ignore_index, number_tensor(1.0, logs.dtype))
    torch._log_softmax_backward_data(chosen, logs, 1, logs.dtype, out=outs[0])


# Attention

def _four(x: Tensor) -> Tensor:
    """(..., heads, rows, size) as (batch, heads, rows, size)."""
    if x.ndim == 4:
        return x
    if x.ndim < 4:
        return x.reshape(*[1] * (4 - x.ndim), *x.shape)
    return x.flatten(0, -4)


def _by_rows(x: Tensor) -> Tensor:
    """x, its rows element by element: the flash kernel takes all rows for such, and reads elements beside them of a
    transposed k."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _one_restriction(types: Types, attributes: Attributes) -> bool:
    """torch takes a mask or causal, not both."""
    return not (attributes["causal"] and len(types) > 3)


def _sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool, scale: float) -> Tensor:
    y = functional.scaled_dot_product_attention(_four(q), _four(k), _four(v), None if mask is None else _four(mask),
                                                0.0, causal, scale=scale, enable_gqa=q.shape[:-2] != k.shape[:-2])
    return y if q.ndim == 4 else y.reshape(*q.shape[:-1], v.shape[-1])


def _flash(types: Types, attributes: Attributes) -> bool:
    """The CPU flash kernel has one head size, no gradient for a mask, and wants elements."""
    _, q, k, v, _, *mask = types
    return q.shape[-1] == v.shape[-1] and q.numel > 0 and k.numel > 0 and not mask


def _sdpa_backward(g: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, *, causal: bool, scale: float) -> tuple:
    """The rows' log Σ exp is computed again by a forward: the op does not have it as an operand."""
    shapes = q.shape, k.shape, v.shape
    g, q, k, v = _four(g), _by_rows(_four(q)), _by_rows(_four(k)), _by_rows(_four(v))
    shared = q.shape[1] // k.shape[1]
    if shared > 1:  # the kernel wants as many heads everywhere
        k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
    y, logsumexp = _flash_attention(q, k, v, 0.0, causal, scale=scale)
    found = _flash_grad(
        g, q, k, v, y, logsumexp, 0.0, causal, scale=scale)
    if shared > 1:
        found = (found[0], *(x.unflatten(1, (-1, shared)).sum(2) for x in found[1:]))
    return tuple([x.reshape(shape) for x, shape in zip(found, shapes, strict=True)])


def _flash_alone(types: Types, attributes: Attributes) -> bool:
    """Four dimensions, one head size and as many heads everywhere: what torch's kernel takes as it is."""
    *_, q, k, v = types[:5] if len(types) > 3 else types
    return q.ndim == 4 and q.shape[1] == k.shape[1] and q.shape[-1] == v.shape[-1] and q.numel > 0 and k.numel > 0


def _sdpa_saving(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> tuple:
    return _flash_attention(_by_rows(q), _by_rows(k), _by_rows(v), 0.0, causal, scale=scale)


def _sdpa_from_saved(g: Tensor, sums: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, *, causal: bool,
                     scale: float) -> tuple:
    return _flash_grad(g, _by_rows(q), _by_rows(k), _by_rows(v), _by_rows(y), sums, 0.0, causal, scale=scale)


def _binary_cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return torch._C._nn.binary_cross_entropy(x, target, None, 0)


def _binary_cross_entropy_backward(outs: Outs, g: Tensor, x: Tensor, target: Tensor) -> None:
    _binary_cross_entropy_grad(g, x, target, None, 0, grad_input=outs[0])


def _huber_loss(outs: Outs, x: Tensor, target: Tensor, delta: float) -> Any:
    return torch._C._nn.huber_loss(x, target, 0, delta, out=outs[0])


def _huber_loss_backward(outs: Outs, g: Tensor, x: Tensor, target: Tensor, delta: float) -> None:
    _huber_loss_grad(g, x, target, 0, delta, grad_input=outs[0])


def _smooth_l1_loss(outs: Outs, x: Tensor, target: Tensor, beta: float) -> Any:
    return torch._C._nn.smooth_l1_loss(x, target, 0, beta, out=outs[0])


def _smooth_l1_loss_backward(outs: Outs, g: Tensor, x: Tensor, target: Tensor, beta: float) -> None:
    _smooth_l1_loss_grad(g, x, target, 0, beta, grad_input=outs[0])


def _cross(outs: Outs, a: Tensor, b: Tensor, axis: int) -> Any:
    return torch.linalg.cross(a, b, dim=axis, out=outs[0])


def _equal(outs: Outs, a: Tensor, b: Tensor) -> Any:
    return into(outs, scalar_tensor(torch.equal(a, b), dtype=torch.bool, device=CPU))


def _at_least_float32(types: Types, attributes: Attributes) -> bool:
    """float32 and float64; torch's kernel refuses values outside [0, 1]."""
    return types[0].dtype.itemsize >= 4


COMPOSITE: dict[str, Lowering] = {
    "cross": Lowering(_cross, allocates=True),
    "equal": Lowering(_equal, allocates=True),
    "softmax": Lowering(_softmax, in_place=(0,), allocates=True, direct=Direct(torch.softmax, ("axis",))),
    "softmax_backward": Lowering(_softmax_backward),
    "log_softmax": Lowering(_log_softmax, in_place=(0,), allocates=True, direct=Direct(torch.log_softmax, ("axis",))),
    "log_softmax_backward": Lowering(_log_softmax_backward),
    "layer_norm": Lowering(_layer_norm, "fresh", _one_dtype),
    "layer_norm_backward": Lowering(_layer_norm_backward, "fresh", _one_dtype),
    "layer_norm_saving": Lowering(_layer_norm_saving, "fresh", _one_at_least_float32),
    "layer_norm_from_saved": Lowering(_layer_norm_from_saved, "fresh", _one_at_least_float32),
    "rms_norm": Lowering(_rms_norm, supports=_one_at_least_float32, in_place=(0,)),
    "cross_entropy": Lowering(_cross_entropy, "fresh"),
    "cross_entropy_backward": Lowering(_cross_entropy_backward),
    "nll_loss": Lowering(_nll_loss, "fresh"),
    "huber_loss": Lowering(_huber_loss, allocates=True),
    "huber_loss_backward": Lowering(_huber_loss_backward),
    "smooth_l1_loss": Lowering(_smooth_l1_loss, allocates=True),
    "smooth_l1_loss_backward": Lowering(_smooth_l1_loss_backward),
    "binary_cross_entropy": Lowering(_binary_cross_entropy, "fresh", _at_least_float32),
    "binary_cross_entropy_backward": Lowering(_binary_cross_entropy_backward, supports=_at_least_float32),
    "sdpa": Lowering(_sdpa, "fresh", _one_restriction),
    "sdpa_backward": Lowering(_sdpa_backward, "fresh", _flash),
    "sdpa_saving": Lowering(_sdpa_saving, "fresh", _flash_alone),
    "sdpa_from_saved": Lowering(_sdpa_from_saved, "fresh", _flash_alone),
}
