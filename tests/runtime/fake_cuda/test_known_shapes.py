"""Numbers and shapes that are made once a launch are those that each operation would have made for itself."""

from __future__ import annotations

import pytest
import torch

from genesis.codegen.cuda.source import define
from genesis.runtime.fake_cuda.interpreter import interpreting

SOURCE = '''
import triton
import triton.language as tl


@triton.jit
def numbers(x_ptr, out_ptr, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index)
    shifted = x >> 3
    words = x.to(tl.uint64, bitcast=True)
    thirds = (words >> 3) + words // 3 + words % 3
    few = (x.to(tl.int32) * 3).to(tl.int64) + (x.to(tl.int32) > 3) + tl.sum((index + 3)[None, :], 0)
    row = tl.zeros([2, BLOCK], tl.int64) + shifted[None, :]
    tl.store(out_ptr + index, tl.sum(row + 3, 0) + few)
    tl.store(out_ptr + BLOCK + index, thirds.to(tl.int64, bitcast=True))
'''


@pytest.mark.parametrize("block", [1, 8])
def test_one_number_beside_operands_of_all_kinds(block: int) -> None:
    values = [(-1) ** i * (1 << 60) // (i + 1) - 5 * i for i in range(block)]
    x, out = torch.tensor(values), torch.full((2 * block,), -1)
    with interpreting():
        function = define(SOURCE)["numbers"]
        function.run(x_ptr=x, out_ptr=out, BLOCK=block, grid=(1, 1, 1), warmup=False)

    def low(value: int) -> int:
        return (value + (1 << 31)) % (1 << 32) - (1 << 31)
    first = [2 * ((v >> 3) + 3) + low(low(v) * 3) + (low(v) > 3) + i + 3 for i, v in enumerate(values)]
    words = [v % (1 << 64) for v in values]
    second = [(w >> 3) + w // 3 + w % 3 for w in words]
    assert out[:block].tolist() == first
    assert [v % (1 << 64) for v in out[block:].tolist()] == second
