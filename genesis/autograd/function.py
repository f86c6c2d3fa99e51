"""Functions with a backward of the user's own."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from genesis.frontend import session
from genesis.frontend.boundaries import Boundary, Gradients, insert_boundary, read_through
from genesis.frontend.grad_mode import enable_grad, mode, no_grad
from genesis.frontend.recording import TensorBase, read, wrap
from genesis.frontend.state import state
from genesis.ir.errors import failure
from genesis.ir.suggest import suggesting


class FunctionCtx:
    """The context in which a function's forward leaves values for its backward; users may set attributes of their own.

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

    def save_for_forward(self, *tensors: Any) -> None:
        """Accepted for torch's sake: there is no forward mode that would ask for them."""

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors that `save_for_backward` kept. Under `create_graph` gradients flow through inputs and outputs.

        Raises:
            RuntimeError: one was written to since.
        """
        return tuple(saved.unpack() if isinstance(saved, _Saved) else saved for saved in self._saved)

    def mark_dirty(self, *tensors: Any) -> None:
        """Declare that forward wrote to these inputs, and returns them."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Declare that these outputs have no gradient."""
        self._constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Set whether backward gets zeros (the default) or None for outputs that no gradient arrived at."""
        self._materialize = value


class _Saved:
    """An input, or a tensor that forward made, as it was saved."""

    def __init__(self, tensor: Any):
        self.tensor, self._version = tensor, tensor._version
        self._storage = weakref.ref(tensor.storage)

    def unpack(self) -> Any:
        """The saved tensor; an error if it was written to."""
        storage = self._storage()
        if storage is not None and storage.version != self._version:
            raise failure("backward", "one of the variables needed for gradient computation has been modified by an "
                          f"inplace operation: it is at version {storage.version}; expected version {self._version} "
                          "instead", [("saved", self.tensor)], hint="write to a copy: x.clone()")
        return self.tensor


class _SavedOutput(_Saved):
    """A saved output: its value, and how to find it behind the boundary when backward asks for it.

    The output itself refers to the boundary, which refers to the saved values: holding it would keep all of it forever.
    """

    def __init__(self, output: Any, value: Any, boundary: Boundary, position: int):
        super().__init__(output)
        self.tensor, self._boundary, self._position = value, weakref.ref(boundary), position
        self._node = weakref.ref(output.storage.node)

    def unpack(self) -> Any:
        """The output as later values have read it, or its value read through the boundary again."""
        value = super().unpack()
        node, boundary = self._node(), self._boundary()
        if boundary is None or not mode.enabled:
            return value
        return wrap(read_through(boundary, self._position, read(value)) if node is None else node)


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

    generate_vmap_rule = False
    """Accepted for torch's sake: `genesis.func.vmap` rewrites what forward and backward record, and needs no rule."""

    setup_context: Callable[..., Any] | None = None
    vmap: Callable[..., Any] | None = None

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the result or results; the first argument is `ctx` unless there is a setup_context."""
        raise NotImplementedError("a genesis.autograd.Function needs a forward")

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Compute a gradient for each argument of forward."""
        raise NotImplementedError("this genesis.autograd.Function has no backward")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Call the function.

        Raises:
            RuntimeError: forward marked as dirty what it does not return, or a leaf that requires grad.
            TypeError: forward saved something other than tensors.
        """
        running = None if state.session is None else session.active()
        if running is not None:
            running.note_own_backward(cls.__name__)
        if cls.generate_vmap_rule and cls.vmap is not None:
            raise failure(cls.__name__, "has both generate_vmap_rule=True and a vmap staticmethod",
                          hint="leave out one of them")
        ctx = FunctionCtx()
        ctx.needs_input_grad = tuple(isinstance(x, TensorBase) and x.requires_grad for x in args)  # type: ignore
        differentiable = mode.enabled and any(ctx.needs_input_grad)
        with enable_grad():
            origins = [wrap(read(x)) if needed else None for x, needed in zip(args, ctx.needs_input_grad, strict=True)]
        with no_grad():
            if cls.setup_context is None:
                found = cls.forward(ctx, *args)
            else:
                found = cls.forward(*args)
                cls.setup_context(ctx, args, found)
        outputs = found if isinstance(found, tuple) else (found,)
        _check(cls.__name__, ctx, outputs, differentiable)
        if not differentiable:
            ctx._saved = tuple(x if x is None else _Saved(x) for x in ctx._saved)
            return found
        with no_grad():
            values = {id(x): wrap(read(x)) for x in ctx._saved if any(x is y for y in outputs) and x is not None}
        boundary = _Call(cls, ctx, args, origins, outputs, running)
        results = tuple(_result(x, args, ctx, boundary, i) for i, x in enumerate(outputs))
        ctx._saved = tuple(None if x is None else _saved(x, outputs, results, values, boundary) for x in ctx._saved)
        return results if isinstance(found, tuple) else results[0]


def _check(name: str, ctx: FunctionCtx, outputs: Sequence[Any], differentiable: bool) -> None:
    """Raise unless forward used its ctx as it should."""
    for position, x in enumerate(ctx._saved):
        if x is not None and not isinstance(x, TensorBase):
            raise failure(name, f"save_for_backward can only save variables, but argument {position} is of type "
                          f"{type(x).__name__}", hint="set an attribute of ctx", error=TypeError)
    for x in ctx._dirty:
        if not any(x is y for y in outputs):
            raise failure(name, "Some elements marked as dirty during the forward method were not returned as output",
                          [("dirty", x)], hint="return what mark_dirty was called with")
        if differentiable and x.is_leaf and x.requires_grad:
            raise failure(name, "a leaf Variable that requires grad is being used in an in-place operation.",
                          [("dirty", x)], hint="call it with a copy: x.clone()")


def _saved(x: Any, outputs: Sequence[Any], results: Sequence[Any], values: dict[int, Any],
           boundary: Boundary) -> _Saved:
    for position, (output, result) in enumerate(zip(outputs, results, strict=True)):
        if x is output:
            if result.requires_grad:
                return _SavedOutput(result, values[id(x)], boundary, position)
            return _Saved(values[id(x)])
    return _Saved(x)


def _result(x: Any, args: Sequence[Any], ctx: FunctionCtx, boundary: Boundary, position: int) -> Any:
    """An output of forward, read through the boundary."""
    if not isinstance(x, TensorBase):
        return x
    given = any(x is y for y in args) and not any(x is y for y in ctx._dirty)
    if any(x is y for y in ctx._constant) or x.spec.dtype.kind != "float":
        return x.detach() if given else x  # type: ignore[attr-defined]
    if given:
        with no_grad():
            x = wrap(read(x))
    insert_boundary(x, boundary, position)
    return x


class _Call(Boundary):
    """The boundary of one call of a function."""

    owns_origins = True

    def __init__(self, function: type[Function], ctx: FunctionCtx, args: Sequence[Any], origins: list[Any],
                 outputs: Sequence[Any], running: session.Session | None):
        self._made_in = None if running is None else weakref.ref(running)
        self.function, self.ctx, self.origins = function, ctx, origins
        self.outputs = len(outputs)
        self._tensors = [isinstance(x, TensorBase) for x in args]
        self._types = [x.spec if isinstance(x, TensorBase) else None for x in outputs]

    @property
    def records(self) -> bool:  # type: ignore[override]
        """Whether the capture that runs has seen the forward, so that it may see the backward."""
        return self._made_in is not None and self._made_in() is session.active()

    @property
    def holds_values(self) -> bool:
        """Whether forward saved anything."""
        return any(x is not None for x in self.ctx._saved)

    @property
    def saved(self) -> list[Any]:
        """What forward saved; a program that asks its `ctx` for it when backward is over asks too late, as in torch."""
        return [x.tensor for x in self.ctx._saved if x is not None]

    def pull(self, gradients: Sequence[Any]) -> Gradients:
        """The gradients that the function's backward makes of the outputs'."""
        from genesis.ops.creation import zeros
        given = [zeros(kind.shape, dtype=kind.dtype, device=kind.device)
                 if g is None and kind is not None and self.ctx._materialize else g
                 for g, kind in zip(gradients, self._types, strict=True)]
        found = self.function.backward(self.ctx, *given)
        parts = list(found) if isinstance(found, (tuple, list)) else [found]
        while len(parts) > len(self.origins) and parts[-1] is None:
            parts.pop()
        name = f"{self.function.__name__}Backward"
        if len(parts) != len(self.origins):
            raise failure(name, f"function {name} returned an incorrect number of gradients (expected "
                          f"{len(self.origins)}, got {len(parts)})")
        for position, (is_tensor, part) in enumerate(zip(self._tensors, parts, strict=True)):
            if part is not None and not is_tensor:
                raise failure(name, f"function {name} returned a gradient different than None at position "
                              f"{position + 1}, but the corresponding forward input was not a Variable")
        return [(origin, self._fitted(position, origin, part)) for position, (origin, part)
                in enumerate(zip(self.origins, parts, strict=True)) if origin is not None and part is not None]

    def _fitted(self, position: int, origin: Any, part: Any) -> Any:
        """A gradient with the shape and dtype of the argument."""
        name = f"{self.function.__name__}Backward"
        if part.spec.device is not origin.spec.device:
            raise failure(name, f"Function {name} returned an invalid gradient at index {position} - expected device "
                          f"{origin.spec.device} but got {part.spec.device}")
        if part.spec.shape != origin.spec.shape:
            if not _expands(origin.spec.shape, part.spec.shape):
                raise failure(name, f"Function {name} returned an invalid gradient at index {position} - got "
                              f"{list(part.spec.shape)} but expected shape compatible with {list(origin.spec.shape)}")
            part = part.sum_to_size(origin.spec.shape)
        return part.to(origin.spec.dtype)


def _expands(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    """Whether the small shape broadcasts to the large one."""
    return len(small) <= len(large) and all(a in (1, b) for a, b in zip(reversed(small), reversed(large), strict=False))


class _Once(Boundary):
    """The boundary of a gradient that was computed without a graph."""

    def pull(self, gradients: Sequence[Any]) -> Gradients:
        """Raise: the gradient cannot be differentiated."""
        raise failure("backward", "trying to differentiate twice a function that was marked with @once_differentiable")


class InplaceFunction(Function):
    """A `Function`, by torch's name of old for one that may write to its arguments."""


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator for a backward whose gradients are not differentiable: differentiating them raises.

    >>> import genesis
    >>> class Cube(genesis.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x ** 3
    ...     @staticmethod
    ...     @genesis.autograd.once_differentiable
    ...     def backward(ctx, gradient):
    ...         return 3 * ctx.saved_tensors[0] ** 2 * gradient
    >>> x = genesis.tensor([2.0], requires_grad=True)
    >>> genesis.autograd.grad(Cube.apply(x).sum(), x)
    (tensor([12.]),)
    """
    @functools.wraps(backward)
    def inside(ctx: Any, *gradients: Any) -> Any:
        with no_grad():
            found = backward(ctx, *gradients)
        differentiable = any(isinstance(g, TensorBase) and g.requires_grad for g in gradients)  # type: ignore
        if not mode.enabled or not differentiable:
            return found
        parts = found if isinstance(found, tuple) else (found,)
        for x in parts:
            if x is not None:
                insert_boundary(x, _Once())
        return found
    return inside

__getattr__ = suggesting(__name__)
