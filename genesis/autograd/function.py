"""Functions with a backward of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from genesis.autograd.borders import Border, Gradients, stand_before
from genesis.gradmode import enable_grad, mode, no_grad
from genesis.ir.errors import failure
from genesis.recording import TensorBase, read, wrap


class FunctionCtx:
    """What a function's forward leaves for its backward.

    Attributes:
        needs_input_grad: for each argument of forward, whether its gradient is asked for.
    """

    def __init__(self) -> None:
        self.needs_input_grad: tuple[bool, ...] = ()
        self._saved: tuple[Any, ...] = ()
        self._dirty: tuple[Any, ...] = ()
        self._constant: tuple[Any, ...] = ()
        self._materialize = True

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors (or None) for backward; inputs and outputs of the function belong here, not on `ctx`."""
        self._saved = tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` kept.

        Raises:
            RuntimeError: one was written to since.
        """
        found: list[Any] = []
        for saved in self._saved:
            if saved is None:
                found.append(None)
                continue
            tensor, version = saved
            if tensor._version != version:
                raise failure("backward", "one of the variables needed for gradient computation has been modified by "
                              f"an inplace operation: it is at version {tensor._version}, not {version}",
                              [("saved", tensor)], hint="write to a copy: x.clone()")
            found.append(tensor)
        return tuple(found)

    def mark_dirty(self, *tensors: Any) -> None:
        """These inputs were written to by forward, which returns them."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """These outputs have no gradient."""
        self._constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (the default) or None for outputs that nothing arrived at."""
        self._materialize = value


class Function:
    """A differentiable function with forward and backward of its own, as static methods.

    forward(ctx, *args) computes without gradients; or forward(*args) with setup_context(ctx, inputs, output) beside
    it. backward(ctx, *gradients) takes a gradient for each output and returns one for each argument of forward, None
    for those without.

    >>> import genesis
    >>> class Double(genesis.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return 2 * x
    ...     @staticmethod
    ...     def backward(ctx, gradient):
    ...         return 2 * gradient
    >>> x = genesis.tensor([1.0, 2.0], requires_grad=True)
    >>> Double.apply(x).sum().backward()
    >>> x.grad
    tensor([2., 2.])
    """

    setup_context: Callable[..., Any] | None = None

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The result or results; the first argument is `ctx` unless there is a setup_context."""
        raise NotImplementedError("a genesis.autograd.Function needs a forward")

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """A gradient for each argument of forward."""
        raise NotImplementedError("this genesis.autograd.Function has no backward")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Call the function."""
        from genesis import session
        if session.current is not None and (running := session.active()) is not None:
            running.refuse(f"it calls {cls.__name__}, whose backward is Python of its own")
        ctx = FunctionCtx()
        ctx.needs_input_grad = tuple(isinstance(x, TensorBase) and x.requires_grad for x in args)  # type: ignore
        differentiable = mode.enabled and any(ctx.needs_input_grad)
        with enable_grad():
            origins: list[Any] = [wrap(read(x)) if needed else None for x, needed in zip(args, ctx.needs_input_grad, strict=True)]
        with no_grad():
            if cls.setup_context is None:
                found = cls.forward(ctx, *args)
            else:
                found = cls.forward(*args)
                cls.setup_context(ctx, args, found)
        outputs = found if isinstance(found, tuple) else (found,)
        ctx._saved = tuple(_kept(x, outputs) for x in ctx._saved)
        if not differentiable:
            return found
        border = _Call(cls, ctx, origins, outputs)
        results = tuple(_result(x, args, ctx, border, i) for i, x in enumerate(outputs))
        return results if isinstance(found, tuple) else results[0]


def _kept(x: Any, outputs: Sequence[Any]) -> Any:
    """A saved tensor with its version. Of an output only the value: the output itself leads to this."""
    if x is None:
        return None
    tensor = wrap(read(x)) if any(x is y for y in outputs) else x
    return tensor, tensor._version


def _result(x: Any, args: Sequence[Any], ctx: FunctionCtx, border: Border, position: int) -> Any:
    """An output, read through the border."""
    if not isinstance(x, TensorBase) or any(x is y for y in ctx._constant) or x.type.dtype.kind != "float":
        return x
    given = any(x is y for y in args)
    if given and not any(x is y for y in ctx._dirty):
        with no_grad():
            x = wrap(read(x))
    stand_before(x, border, position)
    return x


class _Call(Border):
    """One call of a function."""

    def __init__(self, function: type[Function], ctx: FunctionCtx, origins: list[Any], outputs: Sequence[Any]):
        self.function, self.ctx, self.origins = function, ctx, origins
        self.outputs = len(outputs)
        self._types = [x.type if isinstance(x, TensorBase) else None for x in outputs]

    def pull(self, gradients: Sequence[Any]) -> Gradients:
        """What the function's backward makes of the gradients."""
        from genesis.ops.creation import zeros
        given = [zeros(kind.shape, dtype=kind.dtype, device=kind.device)
                 if g is None and kind is not None and self.ctx._materialize else g
                 for g, kind in zip(gradients, self._types, strict=True)]
        found = self.function.backward(self.ctx, *given)
        parts = list(found) if isinstance(found, (tuple, list)) else [found]
        while len(parts) > len(self.origins) and parts[-1] is None:
            parts.pop()
        if len(parts) != len(self.origins):
            raise failure(f"{self.function.__name__}.backward", f"returned an incorrect number of gradients (expected "
                          f"{len(self.origins)}, got {len(parts)})")
        pairs = []
        for position, (origin, part) in enumerate(zip(self.origins, parts, strict=True)):
            if origin is None or part is None:
                continue
            if part.type.shape != origin.type.shape:
                part = part.sum_to_size(origin.type.shape)
            if part.type.device is not origin.type.device:
                raise failure(f"{self.function.__name__}.backward", f"gradient {position} is on another device",
                              [("argument", origin), ("gradient", part)])
            pairs.append((origin, part))
        return pairs


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """For a backward whose gradients are not differentiable themselves."""
    import functools

    @functools.wraps(backward)
    def inside(ctx: Any, *gradients: Any) -> Any:
        with no_grad():
            found = backward(ctx, *gradients)
        return tuple(None if x is None else x.detach() for x in found) if isinstance(found, tuple) else (
            None if found is None else found.detach())
    return inside
