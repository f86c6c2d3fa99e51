"""Memory shared with numpy: whoever writes, the other sees it, and what was recorded before keeps the old values."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from torch_programs import check

import genesis
from genesis.frontend import storage

PROGRAMS = []


def program(function):
    """Lists the function as a program to compare."""
    PROGRAMS.append(function)
    return function


@program
def a_buffer_changes_between_recording_and_reading(T, nn, optim, np):
    a = np.arange(4, dtype=np.float32)
    x = T.from_numpy(a)
    y = x * 2
    a[:] = 100
    z = x * 2
    return y, z, x, a


@program
def a_loader_reuses_its_buffer(T, nn, optim, np):
    buffer = np.zeros((2, 3), np.float32)
    x = T.from_numpy(buffer)
    sums = []
    for i in range(4):
        buffer[:] = i
        sums.append((x + 1).sum())
    return sums


@program
def a_copying_constructor_is_safe(T, nn, optim, np):
    buffer = np.ones(3, np.float32)
    x = T.tensor(buffer)
    buffer[:] = 7
    return x, T.as_tensor(buffer), T.asarray([1, 2])


@program
def all_results_of_an_op_are_of_the_time_it_was_called(T, nn, optim, np):
    a = np.arange(400_000, dtype=np.float32).reshape(400, 1000)
    x = T.from_numpy(a)
    results = [*x.sort(descending=True), *x.max(1), *x.min(0), *x.topk(3), *x.cummax(1), *T.aminmax(x)]
    places, chosen = (x < 5).nonzero(as_tuple=True), x[x < 3]
    compressed = x.masked_select(x > 399_990)
    a[:] = -1
    return [r.reshape(-1)[:5] for r in results], places, chosen, compressed, x[0, :3]


@program
def a_write_to_the_tensor_is_seen_in_the_array(T, nn, optim, np):
    a = np.arange(4, dtype=np.float32)
    x = T.from_numpy(a)
    x.add_(1)
    first = a.copy()
    x[1:3] = 9
    second = a.copy()
    x.view(2, 2).t().mul_(2)
    return first, second, a


@program
def an_array_of_a_tensor_is_written_before_reading(T, nn, optim, np):
    t = T.arange(4).float()
    y = t * 2
    n = t.numpy()
    n[:] = -1
    return y, t, t + 1, n


@program
def an_array_of_a_tensor_sees_writes(T, nn, optim, np):
    t = T.arange(4).float()
    n = t.numpy()
    t.add_(1)
    first = n.copy()
    n[0] = 50
    t.mul_(2)
    return first, n, t


@program
def an_array_of_a_computed_tensor_below_a_pending_one(T, nn, optim, np):
    x = T.tensor([1.0, 2.0])
    y = x * 2
    z = y + 1
    n = y.numpy()
    n[:] = 0
    w = y + 1
    return z, y, w, x * 2


@program
def an_array_of_a_view(T, nn, optim, np):
    t = T.arange(12).float().view(3, 4)
    n = t[1:, 1::2].numpy()
    strides = n.strides
    n[0, 0] = 100
    t.add_(1)
    m = t.t().numpy()
    m[3, 0] = -1
    return n, strides, t, m


@program
def two_arrays_of_one_tensor(T, nn, optim, np):
    t = T.arange(3).float()
    a = t.numpy()
    b = t.numpy()
    b[0] = 9
    del b
    y = t + 1
    a[1] = 7
    return y, a, t


@program
def two_tensors_over_one_array(T, nn, optim, np):
    a = np.zeros(3, np.float32)
    x, y = T.from_numpy(a), T.from_numpy(a)
    x.add_(1)
    y.mul_(5)
    z = x + y
    x[0] = 7
    return x, y, z, a


@program
def a_part_of_an_array(T, nn, optim, np):
    a = np.zeros(6, np.float32)
    x = T.from_numpy(a[2:4])
    y = x + 1
    a[:] = 3
    z = x + 1
    x.add_(1)
    return y, z, a


@program
def gradients_with_a_shared_input(T, nn, optim, np):
    a = np.array([1.0, 2.0], np.float32)
    x = T.from_numpy(a)
    w = T.tensor([3.0, 4.0], requires_grad=True)
    y = w + x
    a[:] = 50
    y.sum().backward()
    return y, w.grad


@program
def gradients_of_a_shared_leaf(T, nn, optim, np):
    a = np.array([1.0, 2.0], np.float32)
    x = T.from_numpy(a).requires_grad_()
    (x * x * x).sum().backward()
    return x, x.grad


@program
def an_array_of_a_value_with_a_history(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    h = w * 3
    n = h.detach().numpy()
    before = h + 1
    n[:] = 10
    after = h + 1
    (before + after).sum().backward()
    return before, after, h, w.grad


@program
def a_parameter_shown_as_an_array_while_training(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    opt = optim.SGD([w], lr=0.1)
    n = w.detach().numpy()
    seen = []
    for _ in range(3):
        opt.zero_grad()
        (w * w).sum().backward()
        opt.step()
        seen.append(n.copy())
    n[:] = 5
    (w * w).sum().backward()
    return seen, w, w.grad


@program
def a_gradient_shown_as_an_array(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    (w * w).sum().backward()
    g = w.grad.numpy()
    (w * w).sum().backward()
    return g, w.grad


@program
def integers_bools_and_doubles(T, nn, optim, np):
    arrays = [np.arange(3), np.array([True, False]), np.array([1.5]), np.arange(4, dtype=np.uint8),
              np.zeros((0, 2), np.float32)]
    out = []
    for a in arrays:
        x = T.from_numpy(a)
        out += [x, x.numpy(), np.asarray(x), T.tensor(a)]
    return out


@program
def numpy_scalars_as_operands(T, nn, optim, np):
    x = T.ones(2)
    return x * np.float32(2.5), x + np.int64(2), x * np.float64(0.1)


@pytest.mark.parametrize("large", [False, True], ids=["snapshots", "computed-at-once"])
@pytest.mark.parametrize("run", PROGRAMS, ids=lambda f: f.__name__)
def test_program(run, large, monkeypatch):
    """Small contents are copied when read, large ones make their reader run: the numbers are the same."""
    if large:
        monkeypatch.setattr(storage, "SNAPSHOT_BYTES", 0)
    check(run)


def test_memory_is_not_copied_for_a_slice_of_a_large_array(monkeypatch):
    """Reading a batch of a big data set copies the batch, not the data set."""
    monkeypatch.setattr(storage, "SNAPSHOT_BYTES", 0)
    data = np.arange(20, dtype=np.float32).reshape(10, 2)
    x = genesis.from_numpy(data)
    monkeypatch.setattr(genesis.runtime.cpu.storage.CPUStorage, "clone", lambda self: pytest.fail("copied"))
    batch = x[2:4] * 1.0
    rows = x[[1, 3]]
    data[:] = 0
    assert batch.tolist() == [[4, 5], [6, 7]] and rows.tolist() == [[2, 3], [6, 7]]


def test_sharing_ends_with_the_last_array():
    """Once no array is left, the storage is an ordinary one again: nothing is copied or computed early."""
    x = genesis.tensor([1.0, 2.0])
    array = x.numpy()
    part = array[1:]
    del array
    gc.collect()
    assert x.storage.exported
    part[0] = 9
    del part
    gc.collect()
    assert not x.storage.exported
    x.add_(1)
    assert not x.storage.settled and x.tolist() == [2, 10]


def test_numpy_of_what_cannot_be_shared():
    x = genesis.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"detach\(\)\.numpy\(\)"):
        x.numpy()
    with pytest.raises(ValueError, match="strides"):
        genesis.from_numpy(np.zeros((3, 4), np.float32)[::-1])
