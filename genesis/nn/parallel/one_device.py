"""The parts of torch's `DataParallel`, over one device: there is one copy of a module, which gets the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genesis.nn.modules.data_parallel import DataParallel
from genesis.nn.modules.module import Module


def data_parallel(module: Module, inputs: Any, device_ids: Sequence[Any] | None = None, output_device: Any = None,
                  dim: int = 0, module_kwargs: dict[str, Any] | None = None) -> Any:
    """The module's result for these inputs.

    >>> import genesis
    >>> data_parallel(genesis.nn.Identity(), genesis.ones(2))
    tensor([1., 1.])
    """
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*given, **(module_kwargs or {}))


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Module]:
    """[the module]: it is not copied.

    Raises:
        ValueError: several devices.
    """
    return [DataParallel(network, devices).module]


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> tuple[Any, ...]:
    """(the inputs,): one device gets all."""
    DataParallel(Module(), target_gpus)
    return (inputs,)


def parallel_apply(modules: Sequence[Module], inputs: Sequence[Any], kwargs_tup: Sequence[dict[str, Any]] | None = None,
                   devices: Sequence[Any] | None = None) -> list[Any]:
    """Each module's result for its inputs."""
    given = [args if isinstance(args, (tuple, list)) else (args,) for args in inputs]
    return [module(*args, **options)
            for module, args, options in zip(modules, given, kwargs_tup or [{}] * len(modules), strict=True)]


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """The results one after another along a dimension."""
    from genesis.ops.rearrange import cat
    return outputs[0] if len(outputs) == 1 else cat(list(outputs), dim)
