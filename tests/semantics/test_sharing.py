"""Memory shared through DLPack and numpy's protocols: both sides see every write, what was recorded keeps its value."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest
import torch

import genesis
from genesis.ops.interop import strided_steps
from genesis.runtime import dlpack

DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool"]


def numbers(*shape: int) -> genesis.Tensor:
    return genesis.arange(int(np.prod(shape))).float().view(*shape)


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_sees_our_memory_and_we_see_its(dtype):
    ours = numbers(2, 3).to(getattr(genesis, dtype))
    theirs = torch.from_dlpack(ours)
    assert theirs.dtype is getattr(torch, dtype) and theirs.tolist() == ours.tolist()
    assert theirs.data_ptr() == ours.data_ptr()
    back = genesis.from_dlpack(theirs)
    assert back.dtype is ours.dtype and back.data_ptr() == theirs.data_ptr()
    theirs[0, 0] = 1
    assert ours[0, 0].item() == back[0, 0].item() == 1
    back[1] = 0
    assert theirs[1].tolist() == ours[1].tolist() == [0] * 3


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name != "bfloat16"])
def test_numpy_sees_our_memory_and_we_see_its(dtype):
    ours = numbers(4).to(getattr(genesis, dtype))
    array = np.from_dlpack(ours)
    assert array.dtype == dtype and array.__array_interface__["data"][0] == ours.data_ptr()
    array[0] = 1
    assert ours[0].item() == 1
    ours[1] = 0
    assert array[1] == 0
    other = genesis.from_dlpack(np.array([1, 0, 1], dtype))
    assert other.dtype is ours.dtype and other.tolist() == [1, 0, 1]


VIEWS = {
    "whole": lambda x: x,
    "transposed": lambda x: x.transpose(2, 1, 0) if isinstance(x, np.ndarray) else x.transpose(0, 2),
    "rows": lambda x: x[1:],
    "columns": lambda x: x[:, 1:3],
    "last column": lambda x: x[..., -1],
    "steps": lambda x: x[::2, ::3, 1::2],
    "one element": lambda x: x[1, 2, 3, ...],
    "nothing": lambda x: x[1:1],
    "row of ones": lambda x: x[:1, :, :1],
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_views_come_in_and_go_out_without_a_copy(name, library):
    whole = torch.arange(60.0).view(3, 4, 5) if library == "torch" else np.arange(60.0).reshape(3, 4, 5)
    view = VIEWS[name](whole)
    ours = genesis.from_dlpack(view)
    assert np.array_equal(np.asarray(ours), np.asarray(view))
    ours.mul_(2)
    assert np.array_equal(np.asarray(ours), np.asarray(view))
    if ours.numel():
        view[...] = -1
        assert (ours == -1).all()
    out = VIEWS[name](numbers(3, 4, 5))
    theirs = torch.from_dlpack(out) if library == "torch" else np.from_dlpack(out)
    assert np.array_equal(np.asarray(theirs), np.asarray(out.clone()))


@pytest.mark.parametrize("shape, strides", [
    ((2, 3), (3, 1)), ((2, 3), (1, 2)), ((2, 3), (10, 1)), ((2, 3), (12, 4)), ((3,), (0,)), ((2, 3), (0, 2)),
    ((2, 1, 3), (8, 99, 2)), ((2, 2, 2), (1, 8, 2)), ((), ()), ((4, 2), (2, 1)), ((1, 1), (5, 5)),
])
def test_steps_to_strides(shape, strides):
    """The movement ops select what numpy's strides do."""
    count = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    flat = genesis.arange(count)
    node = flat.storage.node
    for op, attrs in strided_steps(shape, strides, count):
        from genesis.ir.node import make
        node = make(op, (node,), attrs)
    from genesis.frontend.recording import wrap
    wanted = np.lib.stride_tricks.as_strided(np.arange(count), shape, [8 * stride for stride in strides])
    assert wrap(node).tolist() == wanted.tolist()


def test_windows_that_overlap_are_shared():
    assert strided_steps((2, 3), (3, 2), 8) is None and strided_steps((3, 3), (1, 1), 5) is None
    windows = torch.arange(5.0).as_strided((3, 3), (1, 1))
    ours = genesis.from_dlpack(windows)
    assert ours.tolist() == windows.tolist() and ours.data_ptr() == windows.data_ptr()
    ours[0, 1] = 9
    assert windows[1, 0] == 9


def test_negative_strides_are_copied():
    backwards = np.arange(3.0)[::-1]
    assert genesis.from_dlpack(backwards).tolist() == [2, 1, 0]
    with pytest.raises(BufferError, match="copy=False"):
        genesis.from_dlpack(backwards, copy=False)
    with pytest.raises(ValueError, match="no tensor has the array's strides"):
        genesis.from_numpy(backwards)


def test_what_was_recorded_keeps_its_value():
    theirs = torch.ones(4)
    ours = genesis.from_dlpack(theirs)
    before = ours * 2
    theirs.fill_(50)
    assert before.tolist() == [2] * 4 and (ours * 2).tolist() == [100] * 4
    ours.add_(1)
    assert theirs.tolist() == [51] * 4, "a write is there when the call returns"


def test_read_only_memory_is_copied():
    array = np.arange(3.0)
    array.flags.writeable = False
    ours = genesis.from_dlpack(array)
    ours.add_(1)
    assert array.tolist() == [0, 1, 2] and ours.tolist() == [1, 2, 3]
    with pytest.raises(BufferError, match="read-only"):
        genesis.from_dlpack(array, copy=False)


def test_copies_on_demand():
    array = np.zeros(2)
    copied = genesis.from_dlpack(array, copy=True)
    copied.add_(1)
    assert array.tolist() == [0, 0]
    ours = numbers(3)
    np.from_dlpack(ours, copy=True)[:] = 9
    assert ours.tolist() == [0, 1, 2]
    same = genesis.from_dlpack(ours)
    same.add_(1)
    assert ours.tolist() == [1, 2, 3]


def test_memory_lives_as_long_as_anybody_looks():
    array = np.from_dlpack(numbers(1000))
    gc.collect()
    assert array.tolist() == list(range(1000))
    theirs = torch.arange(1000)
    ours = genesis.from_dlpack(theirs)
    del theirs
    gc.collect()
    assert ours.tolist() == list(range(1000))


def test_the_owner_is_let_go_of():
    base = np.zeros(10)
    references = sys.getrefcount(base)
    ours = genesis.from_dlpack(base)
    assert sys.getrefcount(base) > references
    del ours
    gc.collect()
    assert sys.getrefcount(base) == references
    held = len(dlpack._handed_out)
    x = numbers(3)
    unused, theirs = x.__dlpack__(), torch.from_dlpack(x)
    assert len(dlpack._handed_out) == held + 2 and x.storage.exported
    del unused, theirs
    gc.collect()
    assert len(dlpack._handed_out) == held and not x.storage.exported


def test_capsules_old_and_new():
    x = numbers(2)
    assert "dltensor_versioned" in repr(x.__dlpack__(max_version=(1, 1)))
    assert '"dltensor"' in repr(x.__dlpack__()) and '"dltensor"' in repr(x.__dlpack__(max_version=(0, 8)))
    capsule = x.__dlpack__(max_version=(1, 0))
    assert genesis.from_dlpack(capsule).tolist() == [0, 1]
    with pytest.raises(RuntimeError, match="only once"):
        genesis.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="no DLPack tensor"):
        genesis.from_dlpack([1, 2])


def test_errors_of_handing_out():
    w = genesis.ones(2, requires_grad=True)
    with pytest.raises(BufferError, match=r"use tensor.detach\(\)"):
        w.__dlpack__()
    with pytest.raises(BufferError, match="device"):
        numbers(2).__dlpack__(dl_device=(2, 0))
    with pytest.raises(TypeError, match="no Genesis dtype"):
        genesis.from_dlpack(torch.ones(2, dtype=torch.complex64))
    with pytest.raises(AttributeError, match="not on a GPU"):
        numbers(2).__cuda_array_interface__  # noqa: B018
    assert not hasattr(numbers(2), "__cuda_array_interface__")
    assert numbers(2).__dlpack_device__() == (1, 0)


def test_numpys_array_protocol():
    x = numbers(3)
    shared = np.asarray(x)
    shared[0] = 7
    assert x[0].item() == 7
    assert np.asarray(x, np.float64).dtype == np.float64
    copied = np.array(x)
    copied[0] = 0
    assert x[0].item() == 7
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(x, np.int32, copy=False)
    with pytest.raises(RuntimeError, match="requires grad"):
        np.asarray(genesis.ones(2, requires_grad=True))
    assert genesis.ones(2, requires_grad=True).numpy(force=True).tolist() == [1, 1]


def test_addresses_and_sizes():
    x = numbers(2, 3)
    view = x[1:, 1:]
    assert view.data_ptr() == x.data_ptr() + 4 * 4 and view.storage_offset() == 4
    assert (x.element_size(), x.nbytes, view.nbytes) == (4, 24, 8)
    assert x.untyped_storage() == view.untyped_storage() != numbers(2, 3).untyped_storage()
    assert view.untyped_storage().nbytes() == len(x.untyped_storage()) == 24
    assert view.untyped_storage().data_ptr() == x.data_ptr()
    assert genesis.ones(0).data_ptr() == 0
