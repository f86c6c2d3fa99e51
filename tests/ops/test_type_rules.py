"""What an op's type rule refuses, whoever records it: passes and lowerings rely on operands that fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from genesis.ir import OPS, tensor_type
from genesis.ir.ops import leaves
from genesis.ir.types import Device, DType, bool_, cpu, float32, float64, int64

GPU = Device("cuda", 0)


def some(*shape: int, dtype: DType = float32, device: Device = cpu, index: int = 0) -> Any:
    """An input of this type."""
    return leaves.input(index=index, type=tensor_type(shape, dtype, device))


REFUSED: dict[str, tuple[str, Callable[[], Any]]] = {
    "an axis twice": ("not distinct", lambda: OPS["sum"](some(3, 4), axes=(0, 0))),
    "an axis that is not there": ("not distinct", lambda: OPS["sum"](some(3, 4), axes=(2,))),
    "the largest of nothing": ("no element to reduce", lambda: OPS["max"](some(0, 4), axes=(0,))),
    "the place of the smallest of nothing": ("no element to reduce", lambda: OPS["argmin"](some(4, 0), axis=1)),
    "a slice beyond the end": ("does not fit size 3", lambda: OPS["slice"](some(3), starts=(1,), stops=(4,),
                                                                          steps=(1,))),
    "a slice before the start": ("does not fit", lambda: OPS["slice"](some(3), starts=(-1,), stops=(2,), steps=(1,))),
    "a slice backwards": ("does not fit", lambda: OPS["slice"](some(3), starts=(0,), stops=(2,), steps=(-1,))),
    "a slice of fewer dimensions": ("needs one start", lambda: OPS["slice"](some(3, 3), starts=(0,), stops=(2,),
                                                                           steps=(1,))),
    "a negative pad": ("needs one low", lambda: OPS["pad"](some(3), low=(-1,), high=(0,))),
    "a concat of two dtypes": ("joins one dtype", lambda: OPS["concat"](some(2), some(2, dtype=float64), axis=0)),
    "a concat of two devices": ("joins one dtype on one device", lambda: OPS["concat"](some(2), some(2, device=GPU),
                                                                                      axis=0)),
    "a concat of two widths": ("differ outside", lambda: OPS["concat"](some(2, 3), some(2, 4), axis=0)),
    "a region of another dtype": ("cannot take", lambda: OPS["assign"](some(3), some(2, dtype=float64), starts=(0,),
                                                                      stops=(2,), steps=(1,))),
    "a region of another size": ("cannot take", lambda: OPS["assign"](some(3), some(3), starts=(0,), stops=(2,),
                                                                     steps=(1,))),
    "an expand to fewer": ("does not broadcast", lambda: OPS["expand"](some(3, 1), shape=(2, 4))),
    "a permutation with an axis twice": ("permut", lambda: OPS["permute"](some(3, 1), axes=(0, 0))),
    "a reshape to another number": ("5", lambda: OPS["reshape"](some(3, 2), shape=(5,))),
    "a product of two dtypes": ("dtypes", lambda: OPS["matmul"](some(2, 3), some(3, 2, dtype=float64))),
    "a product of two devices": ("two devices", lambda: OPS["matmul"](some(2, 3), some(3, 2, device=GPU))),
    "a product of other lengths": ("cannot be multiplied", lambda: OPS["matmul"](some(2, 3), some(4, 2))),
    "a linear layer on another device": ("two devices", lambda: OPS["linear"](some(2, 3), some(4, 3, device=GPU))),
    "a linear layer of another dtype": ("dtypes", lambda: OPS["linear"](some(2, 3), some(4, 3, dtype=float64))),
    "a bias of another length": ("bias of shape", lambda: OPS["linear"](some(2, 3), some(4, 3), some(3))),
    "a choice by numbers": ("must be bool", lambda: OPS["where"](some(3), some(3), some(3))),
    "a choice on another device": ("two devices", lambda: OPS["where"](
        some(3, dtype=bool_, device=GPU), some(3), some(3, index=1))),
    "a choice of another shape": ("the condition has shape", lambda: OPS["where"](some(2, dtype=bool_), some(3),
                                                                                 some(3, index=1))),
    "a sum of two devices": ("device", lambda: OPS["add"](some(3), some(3, device=GPU))),
    "an index of floats": ("integer dtype", lambda: OPS["take"](some(3), some(2), axis=0)),
    "an index on another device": ("the index is on cuda", lambda: OPS["take"](
        some(3), some(2, dtype=int64, device=GPU), axis=0)),
    "a gather that is wider": ("does not fit", lambda: OPS["gather"](some(3, 2), some(1, 4, dtype=int64), axis=0)),
    "rows of another width": ("these rows are", lambda: OPS["index_add"](some(3, 2), some(2, dtype=int64), some(2, 3),
                                                                        axis=0)),
    "scattered elements of another dtype": ("does not fit", lambda: OPS["scatter"](
        some(3, 2), some(1, 2, dtype=int64), some(1, 2, dtype=float64), axis=0)),
    "a norm's weight of another size": ("must have shape", lambda: OPS["layer_norm"](some(2, 3), some(2), ndim=1,
                                                                                    eps=1e-5)),
    "a norm's weight on another device": ("two devices", lambda: OPS["rms_norm"](
        some(2, 3), some(3, device=GPU), ndim=1, eps=1e-5)),
    "the norm of nothing": ("no tensor", lambda: OPS["total_norm"](norm_type=2.0)),
    "the norm on two devices": ("several devices", lambda: OPS["total_norm"](some(2), some(2, device=GPU),
                                                                           norm_type=2.0)),
    "clipping on two devices": ("several devices", lambda: OPS["clip_by_norm"](some(), some(), some(2, device=GPU))),
    "five of Philox's words": ("takes 1, 2 or 4", lambda: OPS["random_bits"](
        some(dtype=int64), some(dtype=int64), shape=(2,), word=0, words=3)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    message, make = REFUSED[name]
    with pytest.raises((RuntimeError, IndexError, TypeError), match=message):
        make()
