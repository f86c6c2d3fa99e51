"""What a tensor says of itself, and methods that change what it shows: all as torch's."""

from __future__ import annotations

import pytest
import torch

import genesis

QUESTIONS = ["is_floating_point", "is_complex", "is_signed", "is_conj", "is_neg", "is_inference", "numel", "get_device"]
DTYPES = ["float32", "bfloat16", "int64", "uint8", "bool"]


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_and_methods_answer_as_torchs(name, dtype):
    ours, theirs = genesis.ones(2, 3, dtype=getattr(genesis, dtype)), torch.ones(2, 3, dtype=getattr(torch, dtype))
    wanted = getattr(theirs, name)()
    assert getattr(ours, name)() == wanted
    assert getattr(genesis, name)(ours) == wanted


@pytest.mark.parametrize("name", ["is_cpu", "is_cuda", "is_sparse", "is_quantized", "is_meta", "is_nested", "is_mkldnn",
                                  "is_mps", "is_xpu", "is_xla", "is_vulkan", "is_sparse_csr"])
def test_properties_answer_as_torchs(name):
    assert getattr(genesis.ones(2), name) is getattr(torch.ones(2), name)


def test_the_rest():
    x, y = genesis.ones(2, 3), torch.ones(2, 3)
    assert x.ndimension() == y.ndimension() and x.dim_order() == y.dim_order() and x.t().dim_order() == (1, 0)
    assert x.is_set_to(x[:]) and not x.is_set_to(x.clone()) and not x.is_set_to(x.t())
    assert genesis.is_tensor(x) and not genesis.is_tensor(y) and genesis.is_same_size(x, x + 1)
    assert genesis.is_nonzero(genesis.tensor(2)) and not genesis.is_nonzero(genesis.tensor([False]))
    assert not (x.is_pinned() or x.is_shared() or x.is_distributed())
    assert [row.tolist() for row in reversed(genesis.arange(3))] == [2, 1, 0]


def test_memory_formats_are_accepted():
    x, y = (lib.arange(24.0).reshape(2, 3, 2, 2) for lib in (genesis, torch))
    for lib, z in ((genesis, x), (torch, y)):
        moved = z.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
        for form in (lib.contiguous_format, lib.channels_last, lib.channels_last_3d):
            assert z.is_contiguous(memory_format=form) is (form is lib.contiguous_format)
            assert moved.is_contiguous(memory_format=form) is (form is lib.channels_last)
        for found in (z.to(memory_format=lib.channels_last), z.contiguous(memory_format=lib.channels_last),
                      z.clone(memory_format=lib.preserve_format)):
            assert found.tolist() == z.tolist()
        assert lib.zeros_like(z, memory_format=lib.preserve_format).shape == z.shape and z.layout is lib.strided
        assert lib.nn.Conv2d(3, 3, 1).to(memory_format=lib.channels_last)(z).shape == (2, 3, 2, 2)


def test_the_default_device_is_told():
    assert genesis.get_default_device().type == torch.get_default_device().type == "cpu"


def test_only_devices_of_which_there_may_be_several_have_an_index():
    for lib in (genesis, torch):
        there = [lib.device("cpu"), lib.ones(2).device, lib.empty(2, device="meta").device, lib.device("cuda:1")]
        assert [device.index for device in there] == [None, None, None, 1]
        assert [lib.empty(2, device=name).get_device() for name in ("cpu", "meta")] == [-1, -1]


def test_dtypes_have_torchs_short_names():
    for name in ("float", "double", "half", "int", "long", "short"):
        assert getattr(genesis, name).name == str(getattr(torch, name)).removeprefix("torch.")


@pytest.mark.parametrize("call", [
    lambda lib, x: x.t_(), lambda lib, x: x.transpose_(0, 1), lambda lib, x: x.swapaxes_(1, 0),
    lambda lib, x: x.unsqueeze_(1), lambda lib, x: x[None].squeeze_(0), lambda lib, x: x.as_strided_((2,), (2,), 1),
    lambda lib, x: x.resize_(2, 2), lambda lib, x: x.resize_as_(lib.ones(3, 1)), lambda lib, x: x.resize_(6),
    lambda lib, x: x.set_(lib.ones(4)), lambda lib, x: x.fill_diagonal_(7), lambda lib, x: x.tril_(-1),
    lambda lib, x: lib.zeros(7, 2).fill_diagonal_(3, wrap=True), lambda lib, x: lib.zeros(3, 3, 3).fill_diagonal_(1),
    lambda lib, x: x.triu_(1), lambda lib, x: x.cumsum_(0), lambda lib, x: x.cumprod_(1), lambda lib, x: x.sgn_(),
    lambda lib, x: x.addmm_(lib.ones(2, 4), lib.ones(4, 3), beta=0.5), lambda lib, x: x.renorm_(2, 0, 1.0),
    lambda lib, x: x.addr_(lib.ones(2), lib.ones(3), alpha=2), lambda lib, x: x[0].addmv_(lib.ones(3, 2), lib.ones(2)),
    lambda lib, x: x.addbmm_(lib.ones(4, 2, 2), lib.ones(4, 2, 3)),
    lambda lib, x: x[None].baddbmm_(lib.ones(1, 2, 2), lib.ones(1, 2, 3)),
    lambda lib, x: lib.exp_(x), lambda lib, x: lib.clamp_(x, 1, 3), lambda lib, x: lib.zero_(x),
    lambda lib, x: x.H, lambda lib, x: x.mH, lambda lib, x: x.real, lambda lib, x: x.adjoint(),
])
def test_in_place_and_other_methods_do_what_torchs_do(call):
    ours, theirs = (lib.arange(6.0).reshape(2, 3) for lib in (genesis, torch))
    found, wanted = call(genesis, ours), call(torch, theirs)
    for x, y in ((found, wanted), (ours, theirs)):
        assert x.shape == tuple(y.shape) and torch.allclose(torch.tensor(x.tolist()), y)


def test_a_larger_size_keeps_the_elements():
    x = genesis.arange(4.0)
    y = x[2:]
    assert x.resize_(6)[:4].tolist() == [0, 1, 2, 3]
    assert y.tolist() == [2, 3]


def test_gradients_flow_through_a_view_in_place():
    for lib in (genesis, torch):
        x = lib.ones(2, 3, requires_grad=True)
        y = x * lib.arange(6.0).reshape(2, 3)
        y.t_()
        (y * lib.arange(6.0).reshape(3, 2)).sum().backward()
        assert x.grad.tolist() == [[0, 2, 8], [3, 12, 25]]


@pytest.mark.parametrize("call, message", [
    (lambda lib: lib.ones(2, 3, requires_grad=True).t_(), "a leaf|view"),
    (lambda lib: lib.ones(2, requires_grad=True).resize_(3), "resize variables that require grad"),
    (lambda lib: lib.ones(2).fill_diagonal_(1), "dimensions must larger than 1"),
    (lambda lib: lib.ones(2, 3, 4).fill_diagonal_(1), "equal length"),
    (lambda lib: lib.ones(2).imag, "non-complex"),
    (lambda lib: lib.ones(2, 3, 4).H, "2-D"),
    (lambda lib: lib.is_nonzero(lib.ones(2)), "ambiguous"),
    (lambda lib: lib.is_nonzero(lib.ones(0)), "ambiguous"),
    (lambda lib: lib.empty_strided((2, 3), (1,)), "dimensionality of"),
    (lambda lib: lib.empty_permuted((2, 3), (1, 1)), "[Dd]uplicate"),
])
def test_errors_are_torchs(call, message):
    for lib in (genesis, torch):
        with pytest.raises(RuntimeError, match=message):
            call(lib)


def test_a_buffer_is_shared():
    memory = bytearray(8)
    x = genesis.frombuffer(memory, dtype=genesis.int32)
    x.fill_(1)
    assert memory == b"\1\0\0\0\1\0\0\0"
    assert genesis.frombuffer(memory, dtype=genesis.uint8, count=2, offset=3).tolist() == [0, 1]
    for lib in (genesis, torch):
        with pytest.raises(ValueError, match="multiple of element size"):
            lib.frombuffer(bytearray(7), dtype=lib.int32)


def test_limits_without_a_dtype_are_of_the_default_one() -> None:
    for T in (genesis, torch):
        try:
            T.set_default_dtype(T.float64)
            assert T.finfo().bits == 64 and T.finfo().eps == 2.0**-52
        finally:
            T.set_default_dtype(T.float32)
        assert T.finfo().bits == 32 and T.broadcast_shapes((4, 1), (3,)).numel() == 12


def test_a_storage_is_all_of_the_memory() -> None:
    for T in (genesis, torch):
        x = T.arange(6.0).reshape(2, 3)
        part = x[1]
        storage = part.storage()
        assert storage.tolist() == [0, 1, 2, 3, 4, 5] and len(storage) == storage.size() == 6 and storage[1] == 1
        assert storage.data_ptr() == x.storage().data_ptr() == x.data_ptr() and storage.nbytes() == 24
        assert storage.element_size() == 4 and storage.dtype is T.float32 and not storage.is_shared()
        assert storage.data_ptr() != x.clone().storage().data_ptr()
        assert part.untyped_storage().data_ptr() == storage.untyped().data_ptr()
