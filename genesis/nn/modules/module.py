"""`Module`: parameters, buffers and children under names, and a forward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from genesis.frontend import session
from genesis.frontend.at_once import Change, at_once, changes
from genesis.frontend.grad_mode import no_grad
from genesis.frontend.state import state as frontend
from genesis.frontend.tensor import Tensor, clear_gradients, data_changes
from genesis.ir.errors import failure, is_foreign, not_a_tensor, not_an_operand
from genesis.ir.suggest import check_keywords, unexpected
from genesis.ir.types import Device, DType, as_dtype, bfloat16, float16, float32, float64, not_a_dtype
from genesis.nn.modules import hooked_call, state
from genesis.nn.modules.hooks import HookKind, RemovableHandle, everywhere, marked
from genesis.nn.modules.state import IncompatibleKeys
from genesis.nn.modules.tree import Tree, changed, epoch, registering
from genesis.nn.parameter import Parameter
from genesis.ops.creation import device_from, empty_like
from genesis.ops.formats import ORDERS, MemoryFormat

Self = TypeVar("Self", bound="Module")


_IncompatibleKeys = IncompatibleKeys  # torch's name


def _addindent(s_: str, numSpaces: int) -> str:
    """A text whose lines behind the first one are moved to the right: torch's name, for texts of modules.

    >>> _addindent("a\\nb", 2)
    'a\\n  b'
    """
    return s_.replace("\n", "\n" + numSpaces * " ")


class Module(Tree):
    """A part of a network. Assigning a `Parameter` or a `Module` to an attribute registers it.

    Subclasses define `forward`; calling the module runs it.

    >>> import genesis
    >>> from genesis import nn
    >>> class Scale(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = nn.Parameter(genesis.tensor(3.0))
    ...
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> [name for name, _ in Scale().named_parameters()], Scale()(genesis.tensor(2.0)).item()
    (['factor'], 6.0)
    """

    training: bool
    _version = 1
    """Version of the module's part of a state dict, which `_load_from_state_dict` is told."""
    _forward_hooks: dict[int, Callable[..., Any]]
    _forward_pre_hooks: dict[int, Callable[..., Any]]
    _backward_hooks: dict[int, Callable[..., Any]]
    _backward_pre_hooks: dict[int, Callable[..., Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """An instance in training mode, without hooks."""
        if kwargs:
            check_keywords(cls, kwargs)
        self = super().__new__(cls)
        self.__dict__.update(training=True, _forward_hooks={}, _forward_pre_hooks={}, _backward_hooks={},
                             _backward_pre_hooks={})
        return self

    def __init__(self) -> None:
        """Nothing is left to do."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's result; subclasses define it."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if (self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks
                    or everywhere):
                return hooked_call.call(self, args, kwargs)
            return self.forward(*args, **kwargs)
        except (AttributeError, TypeError):  # it costs nothing to try
            for x in (*args, *kwargs.values()):
                if is_foreign(x):
                    raise not_an_operand(x) from None
            error = unexpected(type(self).forward, f"{type(self).__name__}.forward", kwargs) if kwargs else None
            if error is not None:
                raise error from None
            raise

    # Modes and gradients

    def train(self: Self, mode: bool = True) -> Self:
        """Training mode for this module and all below: dropout drops."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: Self) -> Self:
        """Evaluation mode: `train(False)`."""
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Whether all parameters want gradients."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        changed()
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the parameters' gradients, or overwrite them with 0."""
        clear_gradients(self.parameters(), set_to_none)

    def apply(self: Self, fn: Callable[[Module], None]) -> Self:
        """Call `fn` on every module, children before parents."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    # Devices and dtypes

    def to(self: Self, *args: Any, device: Any = None, dtype: DType | None = None, non_blocking: bool = False,
           memory_format: MemoryFormat | None = None) -> Self:
        """Move to a device, cast what is floating point to a dtype, or both.

        Takes `to(device)`, `to(dtype)`, `to(device, dtype)`, `to(tensor)` and the keywords. The
        parameters stay the same objects: an optimizer over them goes on working. `memory_format`
        is that of parameters and buffers with as many dimensions as it has; `non_blocking` changes nothing.
        """
        for argument in args:
            if isinstance(argument, DType) or argument.__class__ is type:
                dtype = as_dtype(argument)
            elif isinstance(argument, Tensor):
                device, dtype = argument.device, argument.dtype
            elif isinstance(argument, (str, int, Device)):
                device = argument
            elif argument is not None:
                raise not_a_tensor(argument) if is_foreign(argument) else not_a_dtype(argument)
        dtype = None if dtype is None else as_dtype(dtype)
        if dtype is not None and not dtype.is_floating_point:
            raise failure("Module.to", f"a module's dtype must be floating-point, not {dtype!r}", error=TypeError,
                          hint="cast tensors of other kinds one by one")
        home = None if device is None else device_from(device)

        def convert(tensor: Tensor) -> Tensor:
            if home is not None and tensor.device is not home:
                tensor = tensor.to(home)
            wanted = dtype if tensor.dtype.is_floating_point else None
            if memory_format in ORDERS and tensor.ndim == len(ORDERS[memory_format]):
                return tensor.to(wanted or tensor.dtype, memory_format=memory_format)
            return tensor if wanted is None or wanted is tensor.dtype else tensor.to(wanted)
        return self._convert(convert)

    def _apply(self: Self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replace every parameter's content, its gradient and every buffer by what `fn` makes of it.

        A module that overrides this is asked wherever modules are moved or cast.
        """
        for child in self.children() if recurse else ():
            child._apply(fn)
        _convert_all([self], fn)
        return self

    def _convert(self: Self, convert: Callable[[Tensor], Tensor]) -> Self:
        """`_apply` to all modules at once, all of it or nothing, where none has an `_apply` of its own."""
        listed = list(self.modules())
        if any(type(module)._apply is not Module._apply for module in listed):
            return self._apply(convert)
        _convert_all(listed, convert)
        return self

    def to_empty(self: Self, *, device: Any, recurse: bool = True) -> Self:
        """Move to a device; the values are not kept."""
        return self._apply(lambda tensor: empty_like(tensor, device=device), recurse)

    def type(self: Self, dst_type: DType | str) -> Self:
        """Cast parameters and buffers to a dtype, or to that of a class of tensors ("torch.FloatTensor")."""
        return self._convert(lambda tensor: tensor.type(dst_type))

    def share_memory(self: Self) -> Self:
        """Move parameters, buffers and the gradients that there are to where processes that are forked, or are sent
        the module, read and write them as well (`Tensor.share_memory_`): each trains the one model, with gradients of
        its own.

        Raises:
            RuntimeError: the module is on a GPU.
        """
        return self._apply(lambda tensor: tensor.share_memory_())

    def compile(self, *args: Any, **options: Any) -> None:
        """Run forward as `genesis.compile(forward, ...)` from now on."""
        compiled = import_module("genesis").compile  # what compiles modules knows them
        object.__setattr__(self, "forward", compiled(self.forward, *args, **options))
        changed()

    def cuda(self: Self, device: Any = None) -> Self:
        """Move to a GPU, the first by default."""
        return self.to("cuda" if device is None else device)

    def cpu(self: Self) -> Self:
        """Move to the CPU."""
        return self.to("cpu")

    def float(self: Self) -> Self:
        """Cast what is floating point to float32."""
        return self.to(float32)

    def double(self: Self) -> Self:
        """Cast what is floating point to float64."""
        return self.to(float64)

    def half(self: Self) -> Self:
        """Cast what is floating point to float16."""
        return self.to(float16)

    def bfloat16(self: Self) -> Self:
        """Cast what is floating point to bfloat16."""
        return self.to(bfloat16)

    # State

    def state_dict(self, *args: Any, destination: dict[str, Any] | None = None, prefix: str = "",
                   keep_vars: bool = False) -> dict[str, Any]:
        """Path → tensor for parameters and persistent buffers.

        The tensors are over the module's own memory, as torch's are: they show later updates. The positional arguments
        are `destination`, `prefix` and `keep_vars`, as of old.
        """
        given = dict(zip(("destination", "prefix", "keep_vars"), args, strict=False))
        destination = given.get("destination", destination)
        found = state.collect(self, Module, given.get("prefix", prefix), given.get("keep_vars", keep_vars))
        if destination is None:
            return found
        destination.update(found)
        if hasattr(destination, "_metadata"):
            destination._metadata.update(getattr(found, "_metadata", {}))
        return destination

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Put the module's own entries, not its children's, into a state dict; for overriding."""
        state.save_own(self, destination, prefix, keep_vars)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, local_metadata: dict[str, Any],
                              strict: bool, missing_keys: list[str], unexpected_keys: list[str],
                              error_msgs: list[str]) -> None:
        """Copy the module's own entries, not its children's, out of a state dict; for overriding."""
        state.load_own(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True,
                        assign: bool = False) -> IncompatibleKeys:
        """Copy values into the parameters and buffers, converting dtype and device.

        Args:
            state_dict: path → tensor.
            strict: both sides must have the same paths.
            assign: the module's tensors become those of the state dict, with their dtypes and devices.

        Returns:
            The paths that were missing and those that were unexpected.

        Raises:
            RuntimeError: shapes differ or, when strict, paths do; then nothing was copied, unless some module loads its
                part by a method or hook of its own.
        """
        return state.load(self, Module, state_dict, strict, assign)

    # Hooks

    def register_forward_hook(self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False,
                              always_call: bool = False) -> RemovableHandle:
        """Call hook(module, args, result) after every forward; what it returns replaces the result.

        With `with_kwargs` it is hook(module, args, kwargs, result). For a forward that raised (the result is None) only
        a hook with `always_call` is called.
        """
        return RemovableHandle(self._forward_hooks, marked(hook, with_kwargs, always_call), changed, prepend)

    def register_forward_pre_hook(self, hook: Callable[..., Any], *, prepend: bool = False,
                                  with_kwargs: bool = False) -> RemovableHandle:
        """Call hook(module, args) before every forward; what it returns replaces the arguments.

        With `with_kwargs` it is hook(module, args, kwargs), and returns both or None.
        """
        return RemovableHandle(self._forward_pre_hooks, marked(hook, with_kwargs), changed, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call hook(module, grad_input, grad_output) when the gradients by the inputs are there.

        Both are tuples, None where no gradient flows. What it returns replaces grad_input.
        """
        return RemovableHandle(self._backward_hooks, hook, changed, prepend)

    register_backward_hook = register_full_backward_hook

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call hook(module, grad_output) before the gradients go through the module; what it returns replaces them."""
        return RemovableHandle(self._backward_pre_hooks, hook, changed, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call hook(module, state_dict, prefix, local_metadata) when the module's part of a state dict is collected."""
        return RemovableHandle(state.hooks_of(self, "saved"), hook, changed)

    _register_state_dict_hook = register_state_dict_post_hook

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call hook(module, prefix, keep_vars) before the module's part of a state dict is collected."""
        return RemovableHandle(state.hooks_of(self, "saving"), hook, changed)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        before the module's part of a state dict is loaded."""
        return self._register_load_state_dict_pre_hook(partial(hook, self))

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., Any],
                                           with_module: bool = False) -> RemovableHandle:
        return RemovableHandle(state.hooks_of(self, "loading"), partial(hook, self) if with_module else hook, changed)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call hook(module, incompatible_keys) after the module's part of a state dict was loaded."""
        return RemovableHandle(state.hooks_of(self, "loaded"), hook, changed)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over attributes, of a copy or a file; for overriding."""
        self.__dict__.update(state)
        changed()

    # Printing

    def extra_repr(self) -> str:
        """The text between the parentheses of `repr`; subclasses define it."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def _children_texts(self) -> list[tuple[str, str]]:
        """What `repr` calls each child, and its text."""
        return [(name, repr(child)) for name, child in self._modules.items()]

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): " + text.replace("\n", "\n  ") for name, text in self._children_texts()]
        if not children and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines + children) + "\n)"


def _convert_all(modules: Iterable[Module], convert: Callable[[Tensor], Tensor]) -> None:
    """Replace the content of every parameter of these modules, its gradient, and every buffer."""
    found: list[Change] = []
    held: list[Any] = []
    seen: set[int] = set()
    with no_grad():
        for module in modules:
            for parameter in module._parameters.values():
                if parameter is None or id(parameter) in seen:
                    continue
                seen.add(id(parameter))
                held += [parameter.storage, parameter._grad]
                found += data_changes(parameter, convert(parameter.data))
                if parameter.grad is not None:
                    found.append((setattr, parameter, "_grad", convert(parameter.grad)))
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    held.append(buffer)
                    found.append((dict.__setitem__, module._buffers, name, convert(buffer)))
    session.rebound()
    frontend.grad_looks += 1
    at_once(changes((), found))
    del held
    changed()


def register_module_forward_hook(hook: Callable[..., Any], *, with_kwargs: bool = False,
                                 always_call: bool = False) -> RemovableHandle:
    """Call hook(module, args, result) after the forward of every module."""
    return _everywhere("forward", marked(hook, with_kwargs, always_call))


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, grad_input, grad_output) in the backward of every module."""
    return _everywhere("backward", hook)


register_module_backward_hook = register_module_full_backward_hook


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, grad_output) before the gradients go through any module."""
    return _everywhere("backward_pre", hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, name, parameter) when any module registers one; what it returns is registered instead."""
    return RemovableHandle(registering["parameter"], hook, changed)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, name, buffer) when any module registers one; what it returns is registered instead."""
    return RemovableHandle(registering["buffer"], hook, changed)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, name, submodule) when any module registers one; what it returns is registered instead."""
    return RemovableHandle(registering["module"], hook, changed)


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, args) before the forward of every module."""
    return _everywhere("forward_pre", hook)


def _everywhere(kind: HookKind, hook: Callable[..., Any]) -> RemovableHandle:
    return RemovableHandle(everywhere, (kind, hook), changed)


__all__ = ["Module", "Parameter", "RemovableHandle", "epoch", "register_module_backward_hook",
           "register_module_buffer_registration_hook", "register_module_forward_hook",
           "register_module_forward_pre_hook", "register_module_full_backward_hook",
           "register_module_full_backward_pre_hook", "register_module_module_registration_hook",
           "register_module_parameter_registration_hook"]
