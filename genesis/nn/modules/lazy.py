"""Layers whose sizes the first input gives: afterwards they are the ordinary ones."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

from genesis.frontend.tensor import Tensor
from genesis.ir.types import int64
from genesis.nn.modules.channel_norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from genesis.nn.modules.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from genesis.nn.modules.linear import Linear
from genesis.nn.modules.module import Module
from genesis.nn.modules.tree import changed
from genesis.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy
from genesis.ops.creation import tensor

__all__ = ["LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d",
           "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d",
           "LazyInstanceNorm2d", "LazyInstanceNorm3d", "LazyLinear"]


class _Lazy(Module):
    """A layer that is made when its size is known. Until then its parameters have no shape, and keep their identity.

    A subclass names the layer that it becomes, the option that is found, and the dimension of the input that gives it,
    and of the weight, where a state that is loaded gives it.
    """

    becomes: ClassVar[type]
    found: ClassVar[str]
    along: ClassVar[int] = 1
    of_weight: ClassVar[int] = 0

    def __init__(self, *args: Any, **options: Any):
        super().__init__()
        self._arguments = args, options
        names = ("device", "dtype")
        place: dict[str, Any] = {name: options.get(name) for name in names}
        for name in ("weight", "bias"):
            wanted = name == "weight" or options.get("bias", True)
            self.register_parameter(name, UninitializedParameter(**place) if wanted else None)
        self._describe()

    def has_uninitialized_params(self) -> bool:
        """True until the first input."""
        return True

    def reset_parameters(self) -> None:
        """Nothing: there are no numbers to draw before the first input."""

    def _unsized(self) -> Any:
        """The layer of size 0, without memory."""
        args, options = self._arguments
        place = {"device": "meta", "dtype": options.get("dtype")}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that nothing is there to be drawn
            return self.becomes(**{self.found: 0}, **self._by_name(args), **{**options, **place})

    def _describe(self) -> None:
        """Have the layer's public attributes (`out_features`, `kernel_size`, ...); what is to be found is 0."""
        self.__dict__.update({name: value for name, value in vars(self._unsized()).items()
                              if name != "training" and not name.startswith("_")})

    def initialize_parameters(self, input: Tensor) -> None:
        """Become the layer for inputs like this one: its parameters are these, now with shapes and values."""
        self._become(input.shape[self.along])

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        """Become the layer that the state was saved of, and load it."""
        saved = state_dict.get(prefix + "weight", state_dict.get(prefix + "running_mean"))
        if not isinstance(saved, Tensor) or is_lazy(saved) or saved.ndim <= self.of_weight:
            super()._load_from_state_dict(state_dict, prefix, *rest)
            return
        groups = self.__dict__.get("groups", 1) if self.of_weight else 1
        self._become(saved.shape[self.of_weight] * groups)
        self._load_from_state_dict(state_dict, prefix, *rest)

    def _become(self, size: int) -> None:
        args, options = self._arguments
        made: Any = self.becomes(**{self.found: size}, **self._by_name(args), **options)
        made.train(self.training)
        for name, parameter in made._parameters.items():
            own = self._parameters.get(name)
            if own is not None and parameter is not None:
                own.data = parameter.data.to(own.device)
                made._parameters[name] = own.requires_grad_()
        for kept in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            made.__dict__[kept] = self.__dict__[kept]
        object.__setattr__(self, "__class__", self.becomes)
        self.__dict__.clear()
        self.__dict__.update(made.__dict__)
        changed()

    def _by_name(self, args: tuple[Any, ...]) -> dict[str, Any]:
        """The positional arguments by the names of the ordinary layer's, the found one left out."""
        import inspect
        names = [name for name in inspect.signature(self.becomes.__init__).parameters  # type: ignore[misc]
                 if name not in ("self", self.found)]
        return dict(zip(names, args, strict=False))

    def forward(self, input: Tensor) -> Tensor:
        """The first result: the layer is made, and computes it."""
        self.initialize_parameters(input)
        return self.forward(input)

    def extra_repr(self) -> str:
        """The layer's, of size 0."""
        text: str = self._unsized().extra_repr()
        return text


class _LazyNorm(_Lazy):
    """A norm, which has parameters only where it is affine, and statistics."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        by_position = self._by_name(args)
        for name in ("affine", "track_running_stats"):  # an InstanceNorm has neither unless it is lazy, as torch's
            if name not in by_position:
                options.setdefault(name, True)
        self._arguments = args, options
        self._describe()
        named = {**by_position, **options}
        if not named["affine"]:
            self.weight = self.bias = None
        if named["track_running_stats"]:
            for name in ("running_mean", "running_var"):
                self.register_buffer(name, UninitializedBuffer())
            self.register_buffer("num_batches_tracked", tensor(0, dtype=int64, device=options.get("device")))


def _lazy(becomes: type, found: str, along: int, of_weight: int = 0, base: type[_Lazy] = _Lazy) -> Any:
    doc = f"`{becomes.__name__}` whose `{found}` is size {along} of the first input; other arguments as of it."
    return type(f"Lazy{becomes.__name__}", (base,), {
        "becomes": becomes, "cls_to_become": becomes, "found": found, "along": along,
        "of_weight": of_weight, "__doc__": doc, "__module__": __name__})


LazyLinear = _lazy(Linear, "in_features", -1, 1)
LazyConv1d, LazyConv2d, LazyConv3d = (_lazy(layer, "in_channels", 1, 1) for layer in (Conv1d, Conv2d, Conv3d))
LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = (
    _lazy(layer, "in_channels", 1) for layer in (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d))
LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d = (
    _lazy(layer, "num_features", 1, base=_LazyNorm) for layer in (BatchNorm1d, BatchNorm2d, BatchNorm3d))
LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d = (
    _lazy(layer, "num_features", 1, base=_LazyNorm) for layer in (InstanceNorm1d, InstanceNorm2d, InstanceNorm3d))
