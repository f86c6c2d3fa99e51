"""Hooks for `DistributedDataParallel.register_comm_hook(process_group, hook)`, with torch's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from genesis.distributed.collectives import all_reduce
from genesis.distributed.run import group_of
from genesis.distributed.work import Future
from genesis.frontend.tensor import Tensor
from genesis.ir.types import DType, bfloat16, float16

Hook = Callable[[Any, Any], Future]
"""(state, bucket) → a future of the bucket's reduced gradients, in one dimension."""


def _reduced(group: Any, x: Tensor) -> Future:
    """The mean of all processes' tensors. It is divided first: in 16 bits a sum may be too large."""
    found = group_of(group)
    assert found is not None
    mean = x / found.size()
    work = all_reduce(mean, group=found, async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0])


def allreduce_hook(process_group: Any, bucket: Any) -> Future:
    """The mean, as it is without a hook."""
    return _reduced(process_group, bucket.buffer())


def _compressed(group: Any, bucket: Any, dtype: DType) -> Future:
    given = bucket.buffer()
    return _reduced(group, given.to(dtype)).then(lambda done: done.value().to(given.dtype))


def fp16_compress_hook(process_group: Any, bucket: Any) -> Future:
    """The mean, in float16 on the way."""
    return _compressed(process_group, bucket, float16)


def bf16_compress_hook(process_group: Any, bucket: Any) -> Future:
    """The mean, in bfloat16 on the way."""
    return _compressed(process_group, bucket, bfloat16)


def _wrapped(hook: Hook, dtype: DType) -> Hook:
    def inside(state: Any, bucket: Any) -> Future:
        given = bucket.buffer()
        bucket.set_buffer(given.to(dtype))
        return hook(state, bucket).then(lambda done: done.value().to(given.dtype))
    return inside


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """The hook, given buckets in float16."""
    return _wrapped(hook, float16)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """The hook, given buckets in bfloat16."""
    return _wrapped(hook, bfloat16)
