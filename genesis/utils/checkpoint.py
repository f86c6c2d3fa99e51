"""Activation checkpointing: keep what a part of the model reads, compute the rest again in the backward.

    y = genesis.checkpoint(block, x, use_reentrant=False)

Nothing runs twice when it is recorded: the part's boundaries are marked in the program, and differentiating it makes
a second computation from what came in. So dropout masks are the same, the part may have any arguments, nest, write
to tensors and be inside `genesis.compile`. Source: Chen et al., Training Deep Nets with Sublinear Memory Cost (2016).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from genesis.autograd.hooks import renew_at
from genesis.frontend.grad_mode import mode
from genesis.frontend.recording import Region, TensorBase, read, wrap
from genesis.frontend.state import state
from genesis.ir.node import make
from genesis.ir.ops import control, recompute
from genesis.ir.sequences import sequence_of
from genesis.ir.source import here
from genesis.ir.suggest import suggesting
from genesis.runtime.contexts import Switched, Temporary


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None,
               preserve_rng_state: bool = True, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)`, of which a backward keeps only what it reads.

    Args:
        function: any callable: a module, a closure. It is called once.
        args, kwargs: what it is called with, tensors or not.
        use_reentrant: accepted as in torch.utils.checkpoint; both values do the same here.
        preserve_rng_state: True; random numbers are counted, so the second computation always draws the same.

    Returns:
        What the function returns. Tensors in it that want gradients are equal ones with memory of their own.

    Raises:
        ValueError: `preserve_rng_state` is False, which would make the gradient that of another function.

    >>> import genesis
    >>> layer = genesis.nn.Linear(4, 4)
    >>> x = genesis.ones(2, 4, requires_grad=True)
    >>> y = checkpoint(lambda x: layer(x).relu(), x, use_reentrant=False)
    >>> y.sum().backward()
    >>> x.grad.shape
    genesis.Size([2, 4])
    """
    if not preserve_rng_state:
        raise ValueError("checkpoint: preserve_rng_state=False would recompute other random numbers than the "
                         "forward's; leave it at True, which costs nothing here")
    if not mode.enabled:
        return function(*args, **kwargs)
    region = Region()
    with Temporary(lambda: Switched([(state.regions.append, region)], [(state.regions.remove, region)])):
        result = function(*args, **kwargs)
        given: dict[int, Any] = {}
        _tensors(result, region, given)
        nodes = [read(x) for x in given.values()]
    if not nodes:
        return result
    end = make(recompute.leave, tuple(nodes), (region.number,), here())
    outside = {key: wrap(make(control.item, (end,), (i,), end.source)) for i, key in enumerate(given)}
    renew_at(outside.values(), region.renewals)
    return _replaced(result, outside)


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: bool | None = None) -> Any:
    """Run the functions of a sequence one after the other, in checkpointed segments of about equal length.

    Args:
        functions: a `Sequential`, or any iterable of callables of one argument.
        segments: how many; the last is not checkpointed, since its backward comes at once.
        input: what the first function is called with.

    >>> import genesis
    >>> model = genesis.nn.Sequential(*[genesis.nn.Linear(4, 4) for _ in range(4)])
    >>> checkpoint_sequential(model, 2, genesis.ones(1, 4), use_reentrant=False).shape
    genesis.Size([1, 4])
    """
    layers = list(functions)
    if not 0 < segments <= len(layers):
        raise ValueError(f"checkpoint_sequential: {len(layers)} functions do not make {segments} segments")
    size = len(layers) // segments
    for first in range(0, size * (segments - 1), size):
        input = checkpoint(_chain(layers[first:first + size]), input, use_reentrant=use_reentrant)
    return _chain(layers[size * (segments - 1):])(input)


def _chain(functions: Iterable[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        for function in functions:
            x = function(x)
        return x
    return run


def _tensors(value: Any, region: Region, found: dict[int, Any]) -> None:
    """The tensors in a result that the region computed and that want gradients, each once, by id."""
    if isinstance(value, TensorBase):
        if value.storage in region.own and read(value).needs_grad:
            found[id(value)] = value
    elif isinstance(value, dict):
        for item in value.values():
            _tensors(item, region, found)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _tensors(item, region, found)


def _replaced(value: Any, outside: dict[int, Any]) -> Any:
    """The result with its tensors as the program after the region sees them."""
    if isinstance(value, TensorBase):
        return outside.get(id(value), value)
    if isinstance(value, dict):
        return type(value)((key, _replaced(item, outside)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return sequence_of(type(value), [_replaced(item, outside) for item in value])
    return value


__all__ = ["checkpoint", "checkpoint_sequential"]

__getattr__ = suggesting(__name__)
