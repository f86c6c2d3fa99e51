"""Views share memory, through any number of views, reading and writing."""

from __future__ import annotations

import pytest
from torch_programs import check

PROGRAMS = []


def program(function):
    """Lists the function as a program to compare."""
    PROGRAMS.append(function)
    return function


@program
def a_write_to_a_view_of_a_view_of_a_view(T, nn, optim, np):
    x = T.arange(24).float()
    a = x.view(2, 3, 4)
    b = a.transpose(0, 2)
    c = b[1:, ::2]
    c.mul_(-1)
    c[0, 1].add_(1000)
    return x, a, b, c


@program
def a_write_to_the_base_is_seen_by_views_made_before(T, nn, optim, np):
    x = T.arange(6).float()
    views = [x.view(2, 3), x[1:4], x.view(3, 2).t(), x[::2], x.unsqueeze(0), x.view(1, 6).squeeze(), x.flatten()]
    x.add_(10)
    x[3] = -1
    return views


@program
def two_overlapping_views(T, nn, optim, np):
    x = T.arange(8).float()
    a, b = x[:5], x[3:]
    a.add_(100)
    b.mul_(2)
    a[4] = 0
    return a, b, x


@program
def views_keep_the_storage_alive(T, nn, optim, np):
    v = T.arange(6).float().view(2, 3)[1]
    w = v[1:]
    w.add_(1)
    return v, w


@program
def diagonal_blocks(T, nn, optim, np):
    x = T.zeros(4, 4)
    for i in range(4):
        x[i, i] = i + 1
    x[:2, 2:] = 7
    x[2:].t()[0] = T.tensor([8.0, 9.0])
    return x


@program
def every_kind_of_view_writes_through(T, nn, optim, np):
    results = []
    for make in [lambda x: x.view(4, 3), lambda x: x.reshape(2, 6), lambda x: x.permute(1, 0), lambda x: x.t(),
                 lambda x: x.T, lambda x: x.transpose(0, 1), lambda x: x.squeeze(), lambda x: x.unsqueeze(1),
                 lambda x: x.flatten(),
                 lambda x: x.narrow(1, 1, 2), lambda x: x.select(0, 2), lambda x: x[1], lambda x: x[:, 2],
                 lambda x: x[0:2, 1:], lambda x: x[..., None], lambda x: x[::2, ::3], lambda x: x.split(2)[1],
                 lambda x: x.chunk(2, 1)[1], lambda x: x.unbind(1)[3], lambda x: x.movedim(0, 1), lambda x: x.detach(),
                 lambda x: x.view_as(x), lambda x: x.unflatten(1, (2, 2)), lambda x: x.mT, lambda x: x.swapaxes(0, 1)]:
        x = T.arange(12).float().view(3, 4)
        v = make(x)
        v.mul_(2).add_(T.ones(1))
        x[2, 3] += 50
        results += [x, v, tuple(v.shape), tuple(v.stride()), v.storage_offset(), v.is_contiguous()]
    return results


@program
def copies_do_not_write_through(T, nn, optim, np):
    results = []
    for make in [lambda x: x.t().reshape(12), lambda x: x.t().contiguous(), lambda x: x[[0, 2]], lambda x: x[x > 3],
                 lambda x: x.clone(), lambda x: x.repeat(2, 1), lambda x: x.flip(0), lambda x: x.tril(),
                 lambda x: x + 0, lambda x: T.cat([x]), lambda x: T.stack([x]),
                 lambda x: x.index_select(0, T.tensor([1]))]:
        x = T.arange(12).float().view(3, 4)
        v = make(x)
        v.add_(100)
        results += [x, v]
    return results


@program
def an_expanded_view_reads_what_is_written(T, nn, optim, np):
    x = T.tensor([[1.0], [2.0]])
    e = x.expand(2, 3)
    x.add_(10)
    return e, e.stride(), e.sum(), (e * T.ones(2, 3)).contiguous()


@program
def a_view_read_while_the_base_has_pending_writes(T, nn, optim, np):
    x = T.arange(6).float()
    v = x[2:]
    x.tolist()
    x.add_(1)
    before = v.sum().item()
    v.mul_(0)
    return before, x, v


@program
def views_of_a_view_after_flushes(T, nn, optim, np):
    x = T.arange(16).float().view(4, 4)
    seen = []
    row = x[1]
    for i in range(3):
        row += i
        seen.append(row.tolist())
        x.t()[i] *= 2
        seen.append(x.sum().item())
    return seen, x, row


@program
def gradients_through_views_of_a_leaf(T, nn, optim, np):
    w = T.arange(6).float().requires_grad_()
    m = w.view(2, 3)
    (m[0] * m[1] + m.t()[2].sum()).sum().backward()
    return w.grad, m.requires_grad, m.is_leaf


@program
def gradients_through_writes_to_views_of_a_result(T, nn, optim, np):
    w = T.arange(6).float().requires_grad_()
    y = w * 2
    v = y.view(2, 3)[:, 1:]
    v.mul_(T.tensor([[1.0, 2.0], [3.0, 4.0]]))
    y[0] = 100.0
    (y * y).sum().backward()
    return y, v, w.grad


@program
def a_kv_cache(T, nn, optim, np):
    cache = T.zeros(2, 5, 3)
    outs = []
    for t in range(5):
        cache[:, t] = T.full((2, 3), float(t + 1))
        outs.append(cache[:, :t + 1].sum(1))
    return outs, cache


@program
def slices_of_every_extent(T, nn, optim, np):
    x = T.arange(10)
    return [x[a:b:s] for a in (None, 0, 3, -4, 12, -12) for b in (None, 7, -1, 2, 0, 20) for s in (None, 1, 2, 4)]


@program
def slice_assignment_of_every_kind(T, nn, optim, np):
    x = T.zeros(4, 5)
    x[0] = 1
    x[1, :] = T.arange(5).float()
    x[2:, 1::2] = T.tensor([[7.0], [8.0]])
    x[..., -1] = T.arange(4)
    x[3, 0] = True
    x[0:0] = 99
    x[None, 1, 2] = T.tensor([3.5])
    x[:, 3:4] += 0.5
    x[1] = x[0] + x[2]
    return x


@program
def data_pointers_of_views(T, nn, optim, np):
    x = T.arange(12).float().view(3, 4)
    v = x[1:, 2:]
    return v.data_ptr() - x.data_ptr(), x.data_ptr() == x.view(12).data_ptr(), v.storage_offset()


@program
def empty_views(T, nn, optim, np):
    x = T.arange(6).float().view(2, 3)
    e = x[2:]
    e.add_(1)
    return x, e, e.sum(), x[:, 3:].reshape(-1), T.zeros(0, 3).t()


@program
def zero_dimensional_views(T, nn, optim, np):
    x = T.arange(3).float()
    s = x[1]
    s.add_(10)
    s.view(1).mul_(2)
    x.sub_(1)
    return s, x, s.item(), s.unsqueeze(0).expand(4)


@program
def writes_through_expanded_views(T, nn, optim, np):
    x = T.arange(6).float().view(2, 3)
    e = x.t().unsqueeze(0).expand(2, 3, 2)
    e[1].add_(10)
    e[0, :, 1].mul_(T.tensor([1.0, 2.0, 3.0]))
    y = T.ones(2, 1)
    y.expand(2, 3).zero_()
    z = T.ones(1)
    z.expand(4).fill_(7)
    z.expand(4)[1] = 8
    w = T.ones(2, 1, requires_grad=True)
    v = w * 2
    v.expand(2, 3)[:, 2].mul_(5)
    v.sum().backward()
    return x, e, y, z, v, w.grad


@program
def a_write_through_axes_in_a_circle(T, nn, optim, np):
    """Turning these axes back is another permutation than turning them."""
    x = T.arange(24).float().view(2, 3, 4)
    x.permute(1, 2, 0)[0].mul_(10)
    x.permute(2, 0, 1).add_(T.arange(24).float().view(4, 2, 3))
    return x


@program
def a_write_to_two_elements_that_are_one(T, nn, optim, np):
    x = T.zeros(3, 1)
    try:
        x.expand(3, 2).add_(T.ones(3, 2))
    except RuntimeError:
        return "refused", x
    return "written", x


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda f: f.__name__)
def test_program(run):
    check(run)
