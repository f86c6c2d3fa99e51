"""State dicts: a module's parameters and persistent buffers by their paths, out and in."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Tensor
from genesis.frontend.writes import assign_all
from genesis.ir.errors import not_an_operand
from genesis.nn.modules.tree import Tree
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
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def state_tensors(module: Module, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """(path, tensor) of all that a state dict holds, in the order of registration.

    Unlike `named_parameters`, a tensor that is registered twice is listed under both paths.
    """
    yield from _own_tensors(module, prefix)
    for name, child in module._modules.items():
        if child is not None:
            yield from state_tensors(child, f"{prefix}{name}.")


class StateDict(OrderedDict[str, Any]):
    """Path → tensor, as `Module.state_dict` gives it; `_metadata` has the version of each module's part, as torch's."""

    _metadata: dict[str, dict[str, Any]]

    def __init__(self, entries: Any = ()):
        super().__init__(entries)
        self._metadata = OrderedDict()

    def __repr__(self) -> str:
        return f"OrderedDict({list(self.items()) or ''})"  # torch's class, as which programs print it

    def copy(self) -> StateDict:
        """Another one with the same entries and versions."""
        other = StateDict(self)
        other._metadata = self._metadata
        return other


def versions(module: Module, prefix: str = "") -> dict[str, dict[str, Any]]:
    """Path → {"version": …} of the module and all below."""
    found = {prefix.removesuffix("."): {"version": module._version}}
    for name, child in module._modules.items():
        if child is not None:
            found.update(versions(child, f"{prefix}{name}."))
    return found


Hooks = dict[int, Callable[..., Any]]


def hooks_of(module: Module, when: str) -> Hooks:
    """The module's hooks "saving", "saved", "loading" or "loaded" a state dict."""
    found: Hooks = module.__dict__.setdefault("_state_hooks", {}).setdefault(when, {})
    return found


def _hooks(module: Module, when: str) -> list[Callable[..., Any]]:
    return list(module.__dict__.get("_state_hooks", {}).get(when, {}).values())


def _is_plain(module: Module, base: type[Module]) -> bool:
    """Whether nothing of the user's takes part in saving or loading any module of the tree; `base` is `Module`."""
    own = ("_save_to_state_dict", "_load_from_state_dict", "state_dict")
    return all("_state_hooks" not in part.__dict__ and type(part).get_extra_state is Tree.get_extra_state
               and all(getattr(type(part), name) is getattr(base, name) for name in own[:2])
               and (part is module or type(part).state_dict is base.state_dict) for part in module.modules())


def collect(module: Module, base: type[Module], prefix: str = "", keep_vars: bool = False) -> dict[str, Any]:
    """Path → tensor over the module's own memory, detached unless `keep_vars`."""
    if _is_plain(module, base):
        plain = StateDict((path, tensor if keep_vars else tensor.detach())
                          for path, tensor in state_tensors(module, prefix))
        plain._metadata.update(versions(module, prefix))
        return plain
    found: dict[str, Any] = StateDict()
    found._metadata[prefix.removesuffix(".")] = version = {"version": module._version}  # type: ignore[attr-defined]
    for hook in _hooks(module, "saving"):
        hook(module, prefix, keep_vars)
    module._save_to_state_dict(found, prefix, keep_vars)
    for name, child in module._modules.items():
        if child is not None:  # an own `state_dict` may take part
            child.state_dict(destination=found, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
    for hook in _hooks(module, "saved"):
        found = hook(module, found, prefix, version) or found
    return found


def save_own(module: Module, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
    """The entries of one module, not of its children."""
    for path, tensor in _own_tensors(module, prefix):
        destination[path] = tensor if keep_vars else tensor.detach()
    if type(module).get_extra_state is not Tree.get_extra_state:
        destination[prefix + "_extra_state"] = module.get_extra_state()


def _own_tensors(module: Module, prefix: str) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in module._parameters.items():
        if parameter is not None:
            yield prefix + name, parameter
    for name, buffer in module._buffers.items():
        if buffer is not None and name not in module._transient:
            yield prefix + name, buffer


def load(module: Module, base: type[Module], state: Mapping[str, Any], strict: bool = True,
         assign: bool = False) -> IncompatibleKeys:
    """Copy the values into the module's tensors; see `Module.load_state_dict`."""
    if not isinstance(state, Mapping):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state)}.")
    if not _is_plain(module, base):
        return _load_by_parts(module, dict(state), getattr(state, "_metadata", {}), strict)
    own = dict(state_tensors(module))
    old = getattr(state, "_metadata", {})
    missing = [path for path in own if path not in state and not _counted_later(path, old)]
    unexpected = [path for path in state if path not in own]
    problems = _differences(own, state)
    _refuse(module, problems, missing if strict else [], unexpected if strict else [])
    if assign:
        for path, tensor in own.items():
            if path in state:
                _adopt(module, path, tensor, state[path])
        return IncompatibleKeys(missing, unexpected)
    _copy({path: tensor for path, tensor in own.items() if path in state}, state)
    return IncompatibleKeys(missing, unexpected)


def _adopt(module: Module, path: str, tensor: Tensor, value: Tensor) -> None:
    """Make a value the parameter or buffer at a path."""
    from genesis.nn.parameter import Parameter
    where, _, name = path.rpartition(".")
    owner = module.get_submodule(where)
    if name not in owner._parameters:
        owner._buffers[name] = value
    else:
        owner._parameters[name] = (value if isinstance(value, Parameter)
                                   else Parameter(value, requires_grad=tensor.requires_grad))


def _copy(tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    with no_grad():
        found = {id(tensor): (tensor, copied(tensor, state[path])) for path, tensor in tensors.items()}
        assign_all([tensor for tensor, _ in found.values()], [node for _, node in found.values()])


def _refuse(module: Module, problems: list[str], missing: list[str], unexpected: list[str]) -> None:
    if unexpected:
        problems.insert(0, f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
    if missing:
        problems.insert(0, f"Missing key(s) in state_dict: {_quoted(missing)}. ")
    if problems:
        raise RuntimeError(f"Error(s) in loading state_dict for {type(module).__name__}:\n\t" + "\n\t".join(problems))


def _counted_later(path: str, metadata: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether this is a count of batches, which batch norm has since version 2 of its state: older ones lack it."""
    where, _, name = path.rpartition(".")
    return name == "num_batches_tracked" and (metadata.get(where, {}).get("version") or 1) < 2


def _load_by_parts(module: Module, state: dict[str, Any], metadata: Mapping[str, dict[str, Any]],
                   strict: bool) -> IncompatibleKeys:
    """Module after module, by their own methods and hooks, as torch loads."""
    missing: list[str] = []
    unexpected: list[str] = []
    problems: list[str] = []

    def part(owner: Module, prefix: str) -> None:
        version = metadata.get(prefix.removesuffix("."), {})
        for hook in _hooks(owner, "loading"):
            hook(state, prefix, version, strict, missing, unexpected, problems)
        owner._load_from_state_dict(state, prefix, version, strict, missing, unexpected, problems)
        for name, child in owner._modules.items():
            if child is not None:
                part(child, f"{prefix}{name}.")
        for hook in _hooks(owner, "loaded"):
            hook(owner, IncompatibleKeys(missing, unexpected))
    part(module, "")
    _refuse(module, problems, missing if strict else [], unexpected if strict else [])
    return IncompatibleKeys(missing, unexpected)


def load_own(module: Module, state: Mapping[str, Any], prefix: str, metadata: Mapping[str, Any], strict: bool,
             missing: list[str], unexpected: list[str], problems: list[str]) -> None:
    """Copy the entries of one module, not of its children, and note what does not fit."""
    own = dict(_own_tensors(module, prefix))
    old = {prefix.removesuffix("."): metadata}
    missing += [path for path in own if path not in state and not _counted_later(path, old)]
    found = _differences(own, state)
    problems += found
    if not found:
        _copy({path: tensor for path, tensor in own.items() if path in state}, state)
    extra = prefix + "_extra_state"
    if type(module).set_extra_state is not Tree.set_extra_state and extra in state:
        module.set_extra_state(state[extra])
    known = {*own, *({extra} if type(module).set_extra_state is not Tree.set_extra_state else ())}
    children = tuple(f"{prefix}{name}." for name in module._modules)
    unexpected += [path for path in state if path.startswith(prefix) and path not in known
                   and not path.startswith(children) and path not in unexpected]


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
            found.append(f"size mismatch for {path}: copying a param with shape {value.shape} from checkpoint, "
                         f"the shape in current model is {tensor.shape}.")
    return found


def _quoted(paths: list[str]) -> str:
    return ", ".join(f'"{path}"' for path in paths)
