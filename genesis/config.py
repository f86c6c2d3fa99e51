"""How programs are compiled: one typed object, `genesis.config`.

A plan remembers the settings that it was made under; after a change the next run makes, or finds, another.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Final


@dataclass(slots=True)
class Config:
    """The settings.

    Attributes:
        fuse: let a CUDA kernel compute several ops. Without, each op has a kernel of its own and rounds its
            result to its dtype, as eager PyTorch runs them; only views, widening casts, numbers and random
            bits are still computed where they are read.
        recompute: let fused CUDA kernels compute values again that are cheaper made than kept, and where that lowers a
            step's peak, up to one per cent of its time. What a user checkpoints is computed again whatever this says.
        spare_memory: spend all the memory traffic that `recompute` saves on computing more values again, so that a
            training step holds less, and takes 1 to 3 % longer.
        keep_shadow_weights: let an optimizer's kernel write the low-precision copies of the weights that the next step
            reads. They take memory of their own; without, each step casts the weights anew.
        deterministic: a program gives the same bits at every run. Without, CUDA kernels that add float32 or float64
            rows at equal indices may do so in any order (`use_deterministic_algorithms`).
        loss_chunk_bytes: about how many bytes of logits a loss may have in memory at a time. A product with more of
            them that only a loss reads (`F.cross_entropy(F.linear(x, weight), targets)`) is made by chunks of rows,
            and so are its gradients. Chunks are larger where gradients of the weight are added up over them and the
            program holds much beside. 0 makes all at once.
        float32_products: what GPUs do with the operands of float32 matrix products and of attention. "ieee": all bits
            count. "tf32": they are rounded to 10 bits behind the point for tensor cores, several times as fast.
            "bf16x3": each is the sum of two bfloat16 numbers, which is nearly as exact as float32, and between the
            two in speed. `set_float32_matmul_precision` and `backends.cuda.matmul.allow_tf32` set it.
        streamed_attention: let attention on Hopper take the kernels whose blocks the copy engine moves.
        prefetch_bytes: by how many bytes the most that a step has in memory at one time may grow so that collectives
            run beside kernels: sharded parameters are gathered ahead of what reads them, and gradients are kept till
            they have been reduced. Equal on all ranks, as it also says how far ahead of its use backward gathers a
            large module. The default, 1 GiB, is two layers of a model of 8e9 parameters in 16 bits, and less than a
            hundredth of an H200's memory. With 0 no module is gathered before it is needed, unless a step has room for
            it below its peak.
        tune: who decides which tile or form a GPU's kernel is made with. "model": a table that comes with Genesis, and
            a model where it has no row. "max": when products, attention and reductions of rows are first compiled, the
            best candidates are timed on the GPU, and the fastest are kept in a table of the user's own beside the
            compiled kernels: later processes take what it says, and have the same bits. It costs seconds for each
            new kernel. In a job of several ranks, which all have to choose alike, nothing is timed.
        pending_nodes: about how many recorded ops may wait to be computed; 0 sets no limit. A program that records more
            and reads nothing is cut, where its code repeats, and what is alive there is computed. A step of a deep
            model, which gradients flow through, may have four times as many, and nothing is cut between a backward
            and its step.
        pending_bytes: how many bytes of memories may be held by pending work alone, as batches of data whose results
            nobody has read; 0 sets no limit. They are counted apart from what tensors show, as parameters, state and
            whatever has a name.
        background_compile: when a size of a program on a GPU was seen to change, compile kernels and plans of the
            classes of sizes next to it before they occur, in a process of its own with the lowest priority, which
            writes them to the disk cache (`docs/sizes.md`). It changes no result. The environment variable
            GENESIS_BACKGROUND_COMPILE=0 switches it off from the start.

    Raises:
        AttributeError: there is no such setting.
        TypeError: the value has another type than the setting.
        ValueError: the setting has a few values, and this is none of them.

    >>> import genesis
    >>> genesis.config.fuse
    True
    >>> genesis.config.fuse = "no"
    Traceback (most recent call last):
    TypeError: config.fuse is a bool, not 'no'
    """

    fuse: bool = True
    recompute: bool = True
    spare_memory: bool = False
    keep_shadow_weights: bool = True
    deterministic: bool = True
    loss_chunk_bytes: int = 128 << 20
    float32_products: str = "ieee"
    streamed_attention: bool = True
    prefetch_bytes: int = 1 << 30
    tune: str = "model"
    pending_nodes: int = 4096
    pending_bytes: int = 32 << 20
    background_compile: bool = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "keep_copies":
            _renamed()
            name = "keep_shadow_weights"
        found = next((field for field in fields(self) if field.name == name), None)
        if found is None:
            raise AttributeError(f"there is no setting {name!r}; the settings are "
                                 f"{', '.join(field.name for field in fields(self))}")
        if type(value) is not type(found.default):
            raise TypeError(f"config.{name} is a {type(found.default).__name__}, not {value!r}")
        if value not in _CHOICES.get(name, (value,)):
            raise ValueError(f"config.{name} is one of {', '.join(_CHOICES[name])}, not {value!r}")
        object.__setattr__(self, name, value)

    @property
    def keep_copies(self) -> bool:
        """`keep_shadow_weights` by its former name."""
        _renamed()
        return self.keep_shadow_weights

    def key(self) -> tuple[Any, ...]:
        """What plans made now depend on: equal settings give equal keys. `IN_KEY` has their names."""
        return (self.fuse, self.recompute, self.spare_memory, self.keep_shadow_weights, self.deterministic,
                self.loss_chunk_bytes, self.float32_products, self.streamed_attention, self.prefetch_bytes, self.tune)

    def _set(self, key: tuple[Any, ...]) -> None:
        (self.fuse, self.recompute, self.spare_memory, self.keep_shadow_weights, self.deterministic,
         self.loss_chunk_bytes, self.float32_products, self.streamed_attention, self.prefetch_bytes, self.tune) = key


IN_KEY: Final = ("fuse", "recompute", "spare_memory", "keep_shadow_weights", "deterministic", "loss_chunk_bytes",
                 "float32_products", "streamed_attention", "prefetch_bytes", "tune")
"""The names of the settings in `Config.key`."""


def _renamed() -> None:
    warnings.warn("genesis.config.keep_copies is called keep_shadow_weights now", DeprecationWarning, stacklevel=3)


_CHOICES: Final = {"float32_products": ("ieee", "tf32", "bf16x3"), "tune": ("model", "max")}


config = Config(background_compile=os.environ.get("GENESIS_BACKGROUND_COMPILE", "1") not in ("", "0"))
"""The process's settings."""


@contextmanager
def settings(key: tuple[Any, ...]) -> Iterator[None]:
    """A context in which plans are made as with the settings of this `Config.key`."""
    before = config.key()
    try:
        config._set(key)
        yield
    finally:
        config._set(before)


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Whether programs give the same bits at every run; they do unless told otherwise, as `config.deterministic` says.

    Args:
        warn_only: changes nothing: every function has a deterministic way.

    >>> import genesis
    >>> genesis.use_deterministic_algorithms(False)
    >>> genesis.are_deterministic_algorithms_enabled()
    False
    >>> genesis.use_deterministic_algorithms(True)
    """
    config.deterministic = bool(mode)


def are_deterministic_algorithms_enabled() -> bool:
    """What `use_deterministic_algorithms` was told last; initially True."""
    return config.deterministic
