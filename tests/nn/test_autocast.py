"""Autocast: which ops run in which precision, and that gradients keep the parameters' dtype."""

from __future__ import annotations

import threading

import pytest
import torch
from torch_peer import assert_same, both, numbers

import genesis
import genesis.nn.functional as F
from genesis import nn
from genesis.amp import autocast, is_autocast_enabled

X, WEIGHT = numbers(4, 6), numbers(5, 6, seed=1)
LOW = {
    "linear": lambda x, w: F.linear(x, w),
    "matmul": lambda x, w: x @ w.transpose(0, 1),
    "attention": lambda x, w: F.scaled_dot_product_attention(x, w, w),
}
WIDE = {
    "softmax": lambda x, ids: F.softmax(x, -1),
    "log_softmax": lambda x, ids: F.log_softmax(x, -1),
    "layer_norm": lambda x, ids: F.layer_norm(x, (6,)),
    "rms_norm": lambda x, ids: F.rms_norm(x, (6,)),
    "cross_entropy": lambda x, ids: F.cross_entropy(x, ids),
    "mse_loss": lambda x, ids: F.mse_loss(x, x * 2),
}
AS_IT_COMES = {
    "relu": lambda x: F.relu(x),
    "gelu": lambda x: F.gelu(x),
    "add": lambda x: x + x,
}


@pytest.mark.parametrize("name", LOW)
def test_products_run_low(name: str) -> None:
    x, w = genesis.tensor(X).requires_grad_(), genesis.tensor(WEIGHT).requires_grad_()
    with autocast("cpu"):
        y = LOW[name](x, w)
    assert y.dtype is genesis.bfloat16
    y.float().sum().backward()
    assert x.grad.dtype is w.grad.dtype is genesis.float32


@pytest.mark.parametrize("name", WIDE)
def test_sums_run_wide(name: str) -> None:
    x, ids = genesis.tensor(X).bfloat16(), genesis.tensor([0, 1, 2, 3])
    with autocast("cpu"):
        assert WIDE[name](x, ids).dtype is genesis.float32
    assert WIDE[name](x, ids).dtype is genesis.bfloat16


@pytest.mark.parametrize("name", AS_IT_COMES)
def test_other_ops_run_as_it_comes(name: str) -> None:
    with autocast("cpu"):
        assert AS_IT_COMES[name](genesis.tensor(X)).dtype is genesis.float32
        assert AS_IT_COMES[name](genesis.tensor(X).bfloat16()).dtype is genesis.bfloat16


def test_values_are_torchs() -> None:
    (x, tx), (w, tw) = both(X, grad=True), both(WEIGHT, grad=True)
    with autocast("cpu"):
        y = F.linear(x, w)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ty = torch.nn.functional.linear(tx, tw)
    assert_same(y, ty, rtol=2**-7)  # one rounding to bfloat16
    y.float().sum().backward()
    ty.float().sum().backward()
    assert_same(w.grad, tw.grad, rtol=2**-7)


def test_it_is_for_one_device_type_nests_and_ends() -> None:
    layer, x = nn.Linear(6, 2), genesis.tensor(X)
    with autocast("cuda"):
        assert layer(x).dtype is genesis.float32
        with autocast("cpu", dtype=genesis.float16):
            assert layer(x).dtype is genesis.float16
            with autocast("cpu", enabled=False):
                assert layer(x).dtype is genesis.float32 and not is_autocast_enabled("cpu")
            assert layer(x).dtype is genesis.float16 and is_autocast_enabled("cpu")
    assert layer(x).dtype is genesis.float32 and not is_autocast_enabled("cuda")


def test_it_is_a_decorator_and_ends_with_an_error() -> None:
    @genesis.autocast("cpu")
    def product(x: genesis.Tensor) -> genesis.Tensor:
        return F.linear(x, genesis.tensor(WEIGHT))
    assert product(genesis.tensor(X)).dtype is genesis.bfloat16
    with pytest.raises(RuntimeError):
        product(genesis.ones(2, 2))
    assert not is_autocast_enabled("cpu")


def test_it_is_for_one_thread() -> None:
    seen: list[bool] = []
    with autocast("cpu"):
        thread = threading.Thread(target=lambda: seen.append(is_autocast_enabled("cpu")))
        thread.start()
        thread.join()
    assert seen == [False]


def test_libraries_ask_by_torchs_names() -> None:
    assert genesis.get_autocast_dtype("cpu") is genesis.get_autocast_gpu_dtype() is genesis.bfloat16
    with autocast("cpu", dtype=genesis.float16):
        assert genesis.get_autocast_cpu_dtype() is genesis.get_autocast_dtype("cpu") is genesis.float16
        assert genesis.is_autocast_cpu_enabled() and genesis.is_autocast_enabled("cpu")
        assert not genesis.is_autocast_enabled() and genesis.get_autocast_dtype("cuda") is genesis.bfloat16
        genesis.clear_autocast_cache()
    assert not genesis.is_autocast_cpu_enabled() and genesis.is_autocast_cache_enabled()
    with pytest.raises(RuntimeError, match="'tpu' is unknown"):
        genesis.get_autocast_dtype("tpu")


def test_double_and_integers_stay() -> None:
    with autocast("cpu"):
        assert F.linear(genesis.tensor(X).double(), genesis.tensor(WEIGHT).double()).dtype is genesis.float64


def test_what_is_refused() -> None:
    with pytest.raises(RuntimeError, match="'tpu' is unknown"):
        autocast("tpu")
    with pytest.raises(RuntimeError, match="not a low precision"):
        autocast("cpu", dtype=genesis.float32)
