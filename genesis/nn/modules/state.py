"""State dicts: a module's parameters and persistent buffers by their paths, out and in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from genesis.frontend.grad_mode import no_grad
from genesis.frontend.recording import assign_all
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import not_an_operand
from genesis.ops.conversion import copied

if TYPE_CHECKING:
    from genesis.nn.modules.module import Module


class IncompatibleKeys(NamedTuple):
    """The keys that `load_state_dict` found on one side only."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def state_tensors(module: Module, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """(path, tensor) of all that a state dict holds, in the order of registration.

    Unlike `named_parameters`, a tensor that is registered twice is listed under both paths.
    """
    for name, parameter in module._parameters.items():
        if parameter is not None:
            yield prefix + name, parameter
    for name, buffer in module._buffers.items():
        if buffer is not None and name not in module._transient:
            yield prefix + name, buffer
    for name, child in module._modules.items():
        if child is not None:
            yield from state_tensors(child, f"{prefix}{name}.")


def collect(module: Module, prefix: str = "", keep_vars: bool = False) -> dict[str, Tensor]:
    """Path → tensor over the module's own memory, detached unless `keep_vars`."""
    return {path: tensor if keep_vars else tensor.detach() for path, tensor in state_tensors(module, prefix)}


def load(module: Module, state: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
    """Copy the values into the module's tensors; see `Module.load_state_dict`."""
    if not isinstance(state, Mapping):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state)}.")
    own = dict(state_tensors(module))
    missing = [path for path in own if path not in state]
    unexpected = [path for path in state if path not in own]
    problems = _differences(own, state)
    if strict and unexpected:
        problems.insert(0, f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
    if strict and missing:
        problems.insert(0, f"Missing key(s) in state_dict: {_quoted(missing)}. ")
    if problems:
        raise RuntimeError(f"Error(s) in loading state_dict for {type(module).__name__}:\n\t" + "\n\t".join(problems))
    with no_grad():
        found = {id(tensor): (tensor, copied(tensor, state[path])) for path, tensor in own.items() if path in state}
        assign_all([tensor for tensor, _ in found.values()], [node for _, node in found.values()])
    return IncompatibleKeys(missing, unexpected)


def _differences(own: Mapping[str, Tensor], state: Mapping[str, Any]) -> list[str]:
    """A line for each value that does not fit. Nothing is copied before all fit."""
    found = []
    for path, tensor in own.items():
        if path not in state:
            continue
        value = state[path]
        if not isinstance(value, Tensor):
            found.append(f'While copying the parameter named "{path}", expected a Tensor: {not_an_operand(value)}')
        elif value.shape != tensor.shape:
            found.append(f"size mismatch for {path}: copying a param with shape {tuple(value.shape)} from checkpoint, "
                         f"the shape in current model is {tuple(tensor.shape)}.")
    return found


def _quoted(paths: list[str]) -> str:
    return ", ".join(f'"{path}"' for path in paths)
