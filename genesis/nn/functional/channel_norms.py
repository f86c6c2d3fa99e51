"""Norms of (n, channels, ...): batch, group, instance and local response norm. Statistics are in float32 at least."""

from __future__ import annotations

from genesis.frontend.autocast_policy import cast_for
from genesis.frontend.grad_mode import no_grad
from genesis.frontend.recording import emit, operand, read, record, require_tensors, wrap
from genesis.frontend.state import state
from genesis.frontend.tensor import Tensor
from genesis.frontend.writes import assign_all
from genesis.ir.errors import failure
from genesis.ir.node import Node, make
from genesis.ir.numbers import number
from genesis.ir.ops import channel_norm as ir
from genesis.ir.ops import control
from genesis.ir.ops.arithmetic import add_scaled
from genesis.ir.ops.pointwise import add, mul
from genesis.nn.functional.padding import pad
from genesis.nn.functional.pooling import avg_pool2d
from genesis.ops.conversion import copied

__all__ = ["batch_norm", "group_norm", "instance_norm", "local_response_norm"]


def batch_norm(input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None,
               bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """(x - mean) / √(variance + eps) · weight + bias, a mean and variance a channel (Ioffe and Szegedy 2015).

    Args:
        input: (n, channels, ...), floating point.
        running_mean, running_var: (channels). In training they become (1 - momentum) times themselves
            plus momentum times the mean and the unbiased variance of the input, in place.
        weight, bias: (channels), or None for 1 and 0.
        training: take mean and variance of the input; False takes the running ones.
        momentum: see above.
        eps: added to the variance.

    Returns:
        The input's shape and dtype.

    Raises:
        RuntimeError: shapes do not fit, or there are no running statistics where they are needed.
        ValueError: training with one value a channel.

    >>> import genesis
    >>> batch_norm(genesis.tensor([[1.0], [3.0]]), None, None, training=True, eps=0.0).tolist()
    [[-1.0], [1.0]]
    """
    return batch_norm_counted(input, running_mean, running_var, weight, bias, training, momentum, eps, None)


def batch_norm_counted(input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None,
                       bias: Tensor | None, training: bool, momentum: float, eps: float,
                       tracked: Tensor | None) -> Tensor:
    """`batch_norm`, which counts the batch in `tracked` at once with what it changes of the running statistics."""
    if input.spec.shape == (0,):  # torch takes a vector of nothing too
        return input.clone()
    _check_channels("batch_norm", input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    if not training:
        if running_mean is None or running_var is None:
            raise failure("batch_norm", "Expected running_mean and running_var to be defined when training=False",
                          [("input", input)])
        return _affine(ir.batch_norm_eval, (input, running_mean, running_var), weight, bias, (eps,))
    count = input.spec.numel // max(input.spec.shape[1], 1)
    if count == 1:
        raise failure("batch_norm", "Expected more than 1 value per channel when training, got input size "
                      f"{list(input.spec.shape)}", [("input", input)], error=ValueError)
    affine = () if weight is None else (weight,) if bias is None else (weight, bias)
    if count and type(momentum) is float and not state.volatile and not state.regions:
        node = emit(ir.batch_norm, tuple([operand(x) for x in (input, *affine)]), (eps,))
        y, mean, variance = [make(control.item, (node,), (i,), node.source) for i in range(3)]
        if not _follow(running_mean, mean, running_var, variance, momentum, count / (count - 1), tracked):
            followed([(running_mean, wrap(mean)), (running_var, wrap(variance) * (count / (count - 1)))], momentum,
                     tracked)
        if weight is not None or bias is None:
            return wrap(y)  # last, so that a loop may be cut there: nothing is read any more
        result = wrap(y)
    else:
        result, middle, spread = record(ir.batch_norm, (input, *affine), (eps,))
        statistics = [(running_mean, middle), (running_var, spread * (count / (count - 1)))] if count else []
        followed(statistics, momentum, tracked)  # an empty batch has none, and is counted
    return result + _column(bias, input) if weight is None and bias is not None else result


def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
               eps: float = 1e-5) -> Tensor:
    """(x - mean) / √(variance + eps) · weight + bias over each group of channels of each element (Wu and He 2018).

    Args:
        input: (n, channels, ...), floating point.
        num_groups: how many groups the channels make; divides their number.
        weight, bias: (channels), or None for 1 and 0.
        eps: added to the variance.

    Raises:
        RuntimeError: shapes do not fit.
        ValueError: one value a group.
    """
    input, weight, bias = cast_for(ir.group_norm, input, weight, bias)
    _check_channels("group_norm", input, weight=weight, bias=bias)
    return _affine(ir.group_norm, (input,), weight, bias, (num_groups, eps))


def instance_norm(input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
                  weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: bool = True,
                  momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """(x - mean) / √(variance + eps) · weight + bias over each channel of each element (Ulyanov et al. 2016).

    Args:
        input: (n, channels, ...), floating point.
        running_mean, running_var: (channels). With `use_input_stats` they follow the means over n of
            the elements' means and unbiased variances, as `batch_norm`'s do; without they are used.
        weight, bias: (channels), or None for 1 and 0.
        use_input_stats, momentum, eps: see above and `batch_norm`.

    Raises:
        RuntimeError: shapes do not fit, or there are no running statistics where they are needed.
        ValueError: one value a channel.
    """
    _check_channels("instance_norm", input, running_mean=running_mean, running_var=running_var, weight=weight,
                    bias=bias)
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise failure("instance_norm", "Expected running_mean and running_var to be defined when "
                          "use_input_stats=False", [("input", input)])
        return _affine(ir.batch_norm_eval, (input, running_mean, running_var), weight, bias, (eps,))
    channels, count = input.spec.shape[1], 1
    for size in input.spec.shape[2:]:
        count *= size
    if count == 1:
        raise failure("instance_norm", "Expected more than 1 spatial element when training, got input size "
                      f"{list(input.spec.shape)}", [("input", input)], error=ValueError)
    if input.spec.numel and (running_mean is not None or running_var is not None):
        with no_grad():
            rows = input.detach().flatten(2)
            followed([(running_mean, rows.mean(-1).mean(0)), (running_var, rows.var(-1).mean(0))], momentum)
    return _affine(ir.group_norm, (input,), weight, bias, (max(channels, 1), eps))


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x / (k + alpha·mean(x²))^beta, the mean over `size` neighbouring channels (Krizhevsky et al. 2012).

    Args:
        input: (n, channels, length, ...), floating point.
        size: how many channels; past the first and the last they count as 0.

    Raises:
        ValueError: fewer than three dimensions.
    """
    if input.spec.ndim < 3:
        raise failure("local_response_norm", f"Expected 3D or higher dimensionality input (got {input.spec.ndim} "
                      "dimensions)", [("input", input)], error=ValueError)
    if not input.spec.numel:
        return input
    n, channels = input.spec.shape[:2]
    squares = (input * input).reshape(n, 1, channels, -1)
    squares = pad(squares, (0, 0, size // 2, (size - 1) // 2))
    mean = avg_pool2d(squares, (size, 1), stride=1).reshape(input.spec.shape)
    return input / (mean * alpha + k).pow(beta)


def _check_channels(op: str, input: Tensor, **parameters: Tensor | None) -> None:
    require_tensors(input, *parameters.values())
    if input.spec.ndim < 2:
        raise failure(op, f"Expected at least 2 dimensions for input tensor but received {input.spec.ndim}",
                      [("input", input)], hint="(n, channels, ...)")
    for name, parameter in parameters.items():
        if parameter is not None and parameter.spec.shape != input.spec.shape[1:2]:
            raise failure(op, f"{name} should contain {input.spec.shape[1]} elements not {parameter.spec.numel}",
                          [("input", input), (name, parameter)])


def _column(value: Tensor, x: Tensor) -> Tensor:
    """A number a channel, to be broadcast against x."""
    return value.reshape(-1, *[1] * (x.spec.ndim - 2))


def _affine(op: ir.Op, operands: tuple[Tensor, ...], weight: Tensor | None, bias: Tensor | None,
            attrs: tuple) -> Tensor:
    if weight is None:
        y: Tensor = record(op, operands, attrs)
        return y if bias is None else y + _column(bias, y)
    result: Tensor = record(op, (*operands, weight) if bias is None else (*operands, weight, bias), attrs)
    return result


def _follow(running_mean: Tensor | None, mean: Node, running_var: Tensor | None, variance: Node, momentum: float,
            unbiased: float, tracked: Tensor | None) -> bool:
    """`followed` for a mean and a variance of the running ones' own dtype, as nodes: their values are nobody's tensors.
    False, and nothing done, where dtypes differ, or there are no running statistics."""
    if running_mean is None or running_var is None or (
            running_mean.spec is not mean.type or running_var.spec is not variance.type):
        return False
    written = [running_mean, running_var]
    with no_grad():
        rest = number(1 - momentum)
        contents = [emit(add_scaled, (emit(mul, (read(running), rest)), _constant(value), number(share)))
                    for running, value, share in ((running_mean, mean, momentum),
                                                  (running_var, variance, momentum * unbiased))]
        if tracked is not None:
            written.append(tracked)
            whole = tracked.spec.dtype.kind == "int"
            contents.append(emit(add, (read(tracked), number(1))) if whole else copied(tracked, tracked + 1))
        assign_all(written, contents)
    return True


def _constant(node: Node) -> Node:
    return make(control.stop_gradient, (node,)) if node.needs_grad else node


def followed(statistics: list[tuple[Tensor | None, Tensor]], momentum: float, tracked: Tensor | None = None) -> None:
    """running ← (1 - momentum)·running + momentum·value for each, and one batch more: all of it, or nothing."""
    with no_grad():
        written = [(running, running * (1 - momentum) + value.detach() * momentum)
                   for running, value in statistics if running is not None]
        if tracked is not None:
            written.append((tracked, tracked + 1))
        assign_all([x for x, _ in written], [copied(x, value) for x, value in written])
