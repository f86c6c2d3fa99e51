"""`fully_shard`: a module whose parameters are gathered where its forward begins, and belong to all ranks otherwise."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import wraps
from typing import Any, Final

from genesis.autograd.hooks import renew_at
from genesis.distributed.mesh import DeviceMesh
from genesis.distributed.run import current
from genesis.frontend.draw_parts import drawing_part
from genesis.frontend.recording import read, wrap
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.sequences import sequence_of
from genesis.nn.modules.container import ModuleDict, ModuleList
from genesis.nn.modules.module import Module
from genesis.nn.parallel.fsdp.gathered import Gathered
from genesis.nn.parallel.fsdp.group import ParameterGroup
from genesis.nn.parallel.fsdp.policy import MixedPrecisionPolicy
from genesis.runtime.contexts import Switched, Temporary


class _Forward:
    """The forward of an outermost sharded module, while it runs.

    Attributes:
        last: what was gathered last, and is to be gathered again.
    """

    def __init__(self) -> None:
        self.last: weakref.ref[Gathered] | None = None


_running: Final[list[_Forward]] = []
"""The forward that runs, if one does."""


class FSDPModule(Module):
    """What `fully_shard` adds to a module's class, with torch's names."""

    _group: ParameterGroup | None
    _place: tuple[int, int]
    """This rank's place among those that have samples of their own, and their number."""

    def __deepcopy__(self, memo: dict[int, Any]) -> FSDPModule:
        """Refused, as by torch's."""
        raise failure("deepcopy", "FSDP does not support deepcopy. Please use state dict for serialization.",
                      hint="make the other model as this one was made, and get_model_state_dict of this one",
                      error=AssertionError)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._gathering(super().__call__, args, kwargs)

    def _gathering(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What forward, or a method that is registered as one, gives with whole parameters."""
        group = self._group
        outermost = not _running
        if not outermost:
            return self._call_gathered(call, group, outermost, args, kwargs)
        with Temporary(lambda: Switched([(_running.append, _Forward())], [(_running.clear,)])), \
                drawing_part(0, *self._place):
            return self._call_gathered(call, group, outermost, args, kwargs)

    def _call_gathered(self, call: Callable[..., Any], group: ParameterGroup | None, outermost: bool,
                       args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if group is None:
            return call(*args, **kwargs)
        return self._call_whole(call, group, outermost, args, kwargs)

    def _call_whole(self, call: Callable[..., Any], group: ParameterGroup, outermost: bool, args: tuple[Any, ...],
                    kwargs: dict[str, Any]) -> Any:
        """Forward with whole parameters, in the policy's dtypes."""
        policy = group.policy
        if policy.param_dtype is not None and policy.cast_forward_inputs:
            args, kwargs = _mapped((args, kwargs), _caster(policy.param_dtype))
        wanted = group.reshard_after_forward
        found = group.unshard(not outermost if wanted is None else wanted)
        if group.keeps_after_backward:
            group.held = found
        if found.reshard and found is not group.held:
            found.before, _running[0].last = _running[0].last, weakref.ref(found)
        assert found.tensors is not None
        with group.in_place(found.tensors):
            result = call(*args, **kwargs)
        if found is not group.held:
            found.end_forward()
        if policy.output_dtype is not None:
            result = _mapped(result, _caster(policy.output_dtype))
        return self._renewing(result, found) if found.reshard else result

    def _renewing(self, result: Any, found: Gathered) -> Any:
        """The result, with tensors of its own where backward begins to gather."""
        own: list[Any] = []

        def copied(x: Tensor) -> Tensor:
            if not x.requires_grad:
                return x
            own.append(wrap(read(x)))
            return own[-1]
        result = _mapped(result, copied)
        renew_at(own, [found])
        return result

    def unshard(self, async_op: bool = False) -> None:
        """Gather the module's own parameters now, and keep them, for forwards and for who reads them, till `reshard`
        or the end of a backward through them."""
        group = self._group
        if group is not None:
            group.held = group.unshard(False)
            group.show_whole()

    @property
    def shows_parts(self) -> bool:
        """Whether the module's own parameters are this rank's parts now, as they are but for forwards and `unshard`."""
        return self._group is not None and not self._group.is_whole

    def reshard(self) -> None:
        """Give up the whole parameters that `unshard`, or a forward, has kept."""
        if self._group is not None:
            self._group.give_up()

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Whether backward reduces gradients; otherwise it accumulates whole ones, which the next one that does reduces
        with its own."""
        for group in self._groups(recurse):
            group.reduces = requires_gradient_sync

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Accepted for torch's sake: nothing waits for a last backward."""

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Accepted where it is True: replicas of shards are always reduced with them."""
        if not requires_all_reduce:
            raise failure("set_requires_all_reduce", "gradients of shards and of replicas are reduced together",
                          hint="set_requires_gradient_sync(False) accumulates without any", error=NotImplementedError)

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether backward gathers again what a forward has gathered."""
        for group in self._groups(recurse):
            group.reshard_after_forward = reshard_after_forward

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Whether what was gathered is given up after backward. If not, the next forward reads it: for accumulation,
        while no optimizer steps."""
        for group in self._groups(recurse):
            group.keeps_after_backward = not reshard_after_backward
            if reshard_after_backward:
                group.give_up()

    def set_modules_to_backward_prefetch(self, modules: Sequence[FSDPModule]) -> None:
        """Which modules' parameters backward gathers together with this one's, instead of those that were used before
        it."""
        if self._group is not None:
            self._group.next_in_backward = [x._group for x in modules if x._group is not None]

    def set_modules_to_forward_prefetch(self, modules: Sequence[FSDPModule]) -> None:
        """Accepted for torch's sake: gathers of a forward are recorded in its order, and no gather waits for another's
        module to end."""

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Divide sums of gradients by this, instead of by the number of ranks."""
        for group in self._groups(False):
            group.divide_factor = factor

    def _groups(self, recurse: bool) -> Iterator[ParameterGroup]:
        for module in self.modules() if recurse else (self,):
            if isinstance(module, FSDPModule) and module._group is not None:
                yield module._group


def _caster(dtype: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: x.to(dtype) if x.dtype.is_floating_point else x


def _mapped(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Nested tuples, lists and dictionaries with what the function makes of their tensors."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        return type(value)((key, _mapped(item, function)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return sequence_of(type(value), [_mapped(item, function) for item in value])
    return value


_classes: Final[dict[type, type]] = {}
"""Class of a module → the class that it has when it is sharded."""


def fully_shard(module: Any, *, mesh: DeviceMesh | None = None, reshard_after_forward: bool | int | None = None,
                shard_placement_fn: Any = None, mp_policy: MixedPrecisionPolicy | None = None,
                offload_policy: Any = None, ignored_params: Collection[Any] | None = None) -> Any:
    """Shard a module's parameters over all ranks, but for those of modules in it that are sharded already.

    Each rank keeps its chunk along dimension 0 of each parameter (`nn.ShardedParameter`), and an optimizer that is made
    afterwards has state for that chunk alone. Forward gathers all of them by one collective, backward gathers them
    again, reduces gradients to their mean over all ranks, and gives each rank those of its chunks. Processes with the
    same seed drop, of their samples, what one process with all samples drops of them (samples lie along the first
    dimension). Call it on the
    blocks of a model, then on the model.

    Args:
        module: gets the class `FSDPModule` beside its own, in place. Of a list each module does, and has collectives of
            its own.
        mesh: the ranks; of two dimensions (replicas, shards). None is all.
        reshard_after_forward: True: whole parameters are given up after forward (ZeRO 3). False: they are kept for
            backward (ZeRO 2). A number: so many neighbours keep them together. None: True, but for the outermost
            module.
        mp_policy: dtypes to compute and reduce in.
        ignored_params: parameters that stay whole.
        shard_placement_fn, offload_policy: None.

    Returns:
        The module.

    Raises:
        ValueError: a parameter has no dimension, the number of ranks to reshard to does not fit, the module is
            sharded already, or is a list or dictionary of modules, which nobody calls.
        NotImplementedError: other placements, or offloading.

    >>> import genesis
    >>> from genesis import distributed as dist, nn
    >>> from genesis.distributed.fsdp import fully_shard
    >>> dist.init_process_group("gloo", store=dist.TCPStore("127.0.0.1", 0, is_master=True), rank=0, world_size=1)
    >>> model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False))
    >>> for layer in model:
    ...     _ = fully_shard(layer)
    >>> _ = fully_shard(model)
    >>> model(genesis.ones(3, 2)).sum().backward()
    >>> model[0].weight.grad.shape, type(model[0]).__name__
    (genesis.Size([2, 2]), 'FSDPLinear')
    >>> dist.destroy_process_group()
    """
    if shard_placement_fn is not None or offload_policy is not None:
        raise failure("fully_shard", "shard_placement_fn and offload_policy are not there",
                      hint="leave them out: parameters are sharded along dimension 0, on their device",
                      error=NotImplementedError)
    if isinstance(module, (list, tuple)):
        return [fully_shard(each, mesh=mesh, reshard_after_forward=reshard_after_forward, mp_policy=mp_policy,
                            ignored_params=ignored_params) for each in module]
    if isinstance(module, FSDPModule):
        raise failure("fully_shard", f"{type(module).__name__} is sharded already", error=ValueError)
    if isinstance(module, (ModuleList, ModuleDict)):
        raise failure("fully_shard", f"fully_shard does not support containers that do not implement forward: "
                      f"{type(module).__name__}", error=ValueError, hint="fully_shard each of its modules")
    found = _parameters_of(module, set(map(id, ignored_params or ())))
    if mesh is None:
        world = current().groups[0]  # one group for all modules: its collectives are in one order
        mesh = DeviceMesh(next((x.device.type for x in found), "cpu"), world.ranks, _groups=[world])
    if mesh.ndim > 2:
        raise failure("fully_shard", f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}", error=ValueError)
    group = ParameterGroup(found, mesh, mp_policy or MixedPrecisionPolicy(), reshard_after_forward) if found else None
    kind = type(module)
    if kind not in _classes:
        _classes[kind] = type(f"FSDP{kind.__name__}", (FSDPModule, kind), {
            "__module__": kind.__module__, "made_of": kind})
    object.__setattr__(module, "__class__", _classes[kind])
    object.__setattr__(module, "_group", group)
    object.__setattr__(module, "_place", _place_in(mesh))
    return module


def register_fsdp_forward_method(module: Any, method_name: str) -> None:
    """Let a method of a sharded module begin and end as forward does: with whole parameters, as `generate`, `encode`
    and `decode` need them. Of a module that is not sharded nothing changes.

    Raises:
        ValueError: it has no such method.
    """
    if not isinstance(module, FSDPModule):
        return
    method = getattr(module, method_name, None)
    if not callable(method):
        raise failure("register_fsdp_forward_method", f"{type(module).__name__} does not have a method {method_name}",
                      error=ValueError)

    @wraps(method)
    def gathering(*args: Any, **kwargs: Any) -> Any:
        return module._gathering(method, args, kwargs)
    object.__setattr__(module, method_name, gathering)


def _place_in(mesh: DeviceMesh) -> tuple[int, int]:
    here, found = mesh.get_coordinate(), 0
    for at, size in zip(here or (), mesh.shape, strict=False):
        found = found * size + at
    return found, mesh.size()


def _parameters_of(module: Module, ignored: set[int]) -> dict[Any, tuple[list[tuple[Module, str]], str]]:
    """Parameter → the places where it is, its name: those that no sharded module below has."""
    sharded = {id(p) for each in module.modules() if isinstance(each, FSDPModule) for p in each.parameters()}
    found: dict[Any, tuple[list[tuple[Module, str]], str]] = {}
    for prefix, each in module.named_modules():
        if isinstance(each, FSDPModule):
            continue
        for name, p in each._parameters.items():
            if p is not None and id(p) not in ignored and id(p) not in sharded:
                full = f"{prefix}.{name}" if prefix else name
                found.setdefault(p, ([], full))[0].append((each, name))
    return found
