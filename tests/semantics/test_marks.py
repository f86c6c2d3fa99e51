"""What says how gradients flow through a tensor: requires_grad, is_leaf, grad_fn after writes, detach, backward."""

from __future__ import annotations

import pytest
from torch_programs import check

PROGRAMS = []


def program(function):
    """Lists the function as a program to compare."""
    PROGRAMS.append(function)
    return function


def marks(*tensors):
    """What torch and Genesis say of these tensors, as plain values."""
    return [(x.requires_grad, x.is_leaf, x.grad_fn is None, x.detach().clone()) for x in tensors]


def refused(function):
    """Whether the call raises a RuntimeError."""
    try:
        function()
    except RuntimeError:
        return True
    return False


def _loss(T):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    return w, (w * w).sum()


@program
def a_loss_is_halved_after_its_backward(T, nn, optim, np):
    w, loss = _loss(T)
    loss.backward()
    loss /= 2
    return marks(loss, w), w.grad, refused(loss.backward)


@program
def a_total_begins_as_the_first_loss(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    total = None
    for step in range(3):
        loss = (w * w).sum() * (step + 1)
        loss.backward()
        if total is None:
            total = loss
        else:
            total += loss
    return marks(total), w.grad


@program
def a_loss_that_was_read_is_written_to(T, nn, optim, np):
    w, loss = _loss(T)
    loss.item()
    loss.backward()
    loss.item()
    loss.mul_(3)
    first = marks(loss)
    loss.add_(w.sum())
    return first, marks(loss), refused(loss.backward)


@program
def a_loss_is_replaced_after_its_backward(T, nn, optim, np):
    w, loss = _loss(T)
    loss.backward()
    seen = []
    for write in (lambda: loss.copy_(w.sum()), loss.zero_, lambda: loss.fill_(3.0)):
        write()
        seen.append((marks(loss), refused(loss.backward)))
    return seen, w.grad


@program
def a_vector_is_written_by_parts_after_its_backward(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    y = w * w
    y.backward(T.ones(2))
    y[0] = 3
    y.mul_(w)
    return marks(y), refused(lambda: y.sum().backward())


@program
def a_view_of_a_loss_is_written_after_its_backward(T, nn, optim, np):
    _, loss = _loss(T)
    loss.backward()
    view = loss.view(1)
    view.mul_(2)
    return marks(view, loss), refused(loss.backward)


@program
def a_loss_gets_a_dimension_after_its_backward(T, nn, optim, np):
    _, loss = _loss(T)
    loss.backward()
    loss.unsqueeze_(0)
    loss.clamp_(0, 4).sqrt_()
    return marks(loss)


@program
def data_takes_no_history_over(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    x = T.zeros(2)
    x.data = w * 3
    return marks(x, x * 2)


@program
def data_of_a_computed_tensor_keep_its_history(T, nn, optim, np):
    """As people project activations: the values are other ones, gradients flow as if they were the old ones."""
    w = T.tensor([1.0, 2.0], requires_grad=True)
    h = w * 3
    h.data = h.data.clamp(max=4)
    found = marks(h, h[:1])
    (h * h * w).sum().backward()
    return found, w.grad


@program
def data_in_a_loop(T, nn, optim, np):
    w = h = T.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for _ in range(4):
        h = h * 1.5
        h.data = h.data.clamp(max=2)
    h.prod().backward()
    return h.detach(), w.grad


@program
def data_that_are_a_part_of_another_tensor(T, nn, optim, np):
    w = T.tensor([1.0, 2.0, 3.0], requires_grad=True)
    z = T.arange(12.0).reshape(3, 4)
    h = w * 3
    h.data = z[:, 1]
    h.mul_(w)
    h[:2] *= 2
    found = marks(h), h.stride(), z.clone(), z.requires_grad
    (h * h).sum().backward()
    return found, w.grad


@program
def data_of_another_order_and_dtype(T, nn, optim, np):
    w = T.ones(2, 3, requires_grad=True)
    h = w * 3
    h.data = T.arange(6.0, dtype=T.float64).reshape(3, 2).t()
    (h * h).sum().backward()
    return marks(h), h.dtype == T.float64, w.grad, w.grad.dtype == T.float32


@program
def data_of_a_view(T, nn, optim, np):
    w = T.ones(3, requires_grad=True)
    h = w * 3
    v = h[:2]
    v.data = T.zeros(2)
    (v.sum() + h.sum()).backward()
    return v.detach(), h.detach(), w.grad


@program
def data_under_no_grad(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    h = w.exp()
    with T.no_grad():
        h.data = T.ones(2)
        found = marks(h, h * 2)
    (h * w).sum().backward()
    return found, w.grad


@program
def data_are_exchanged(T, nn, optim, np):
    w = T.ones(3, requires_grad=True)
    a, b = w * 2, w * 3
    a.data, b.data = b.data, a.data
    (a * a + b).sum().backward()
    return a.detach(), b.detach(), w.grad


@program
def data_of_a_tensor_with_a_hook(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    h = w * 3
    seen = []
    h.retain_grad()
    h.register_hook(lambda g: seen.append(g.clone()))
    h.data = T.ones(2)
    (h * h).sum().backward()
    return seen, h.grad, w.grad


@program
def data_that_gradients_cannot_flow_through(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    h = w * 3
    plain = T.zeros(2)
    plain.data = T.tensor([True, False])
    layer = nn.Linear(2, 2)
    return [refused(lambda x=x, value=value: setattr(x, "data", value)) for x in (w, h)
            for value in (T.ones(2, dtype=T.int64), T.tensor([True, False]))], marks(w, h, plain), refused(
                lambda: layer._apply(lambda x: x.long())), layer.weight.dtype == T.float32


def _computed(T):
    w = T.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    return w, w * 3


def gradients(T, y, *xs):
    """d(sum y)/dx of each, None where y does not depend on it; or that it is refused."""
    if not y.requires_grad:
        return "no gradient"
    try:
        return T.autograd.grad(y.sum(), xs, retain_graph=True, allow_unused=True)
    except RuntimeError:
        return "refused"


WRITES = {
    "copy_": lambda T, d, u: d.copy_(u),
    "add_": lambda T, d, u: d.add_(u),
    "mul_": lambda T, d, u: d.mul_(u),
    "addcmul_": lambda T, d, u: d.addcmul_(u, u),
    "fill_": lambda T, d, u: d.fill_(u.sum()),
    "setitem": lambda T, d, u: d.__setitem__(slice(None), u),
    "setitem of a row": lambda T, d, u: d.__setitem__(0, u[1]),
    "setitem by a mask": lambda T, d, u: d.__setitem__(d > 4, u.sum()),
    "masked_fill_": lambda T, d, u: d.masked_fill_(d > 4, u.sum()),
    "index_add_": lambda T, d, u: d.index_add_(0, T.tensor([1, 0]), u),
    "a row's add_": lambda T, d, u: d[1].add_(u[0]),
    "its transpose's copy_": lambda T, d, u: d.t().copy_(u),
    "twice": lambda T, d, u: d.add_(u).mul_(u),
    "a constant after it": lambda T, d, u: d.mul_(u).fill_(2.0),
    "without gradients": lambda T, d, u: d.mul_(2),
    "under no_grad": lambda T, d, u: T.no_grad()(d.mul_)(u),
}

DETACH = {
    "detach": lambda T, y: y.detach(),
    "data": lambda T, y: y.data,
    "detach of a detached one": lambda T, y: y.detach().detach(),
    "detach of a leaf": lambda T, y: y.detach().requires_grad_().detach(),
}


@pytest.mark.parametrize("read", [False, True], ids=["pending", "read"])
@pytest.mark.parametrize("detach", DETACH)
@pytest.mark.parametrize("write", WRITES)
def test_a_write_through_a_detached_tensor_is_its_history_alone(write, detach, read):
    """Others see the value; their gradient is that of before."""
    def program(T, nn, optim, np):
        w, y = _computed(T)
        u = T.tensor([[0.5, 0.25], [2.0, 1.0]], requires_grad=True)
        d = DETACH[detach](T, y)
        row = d[0]
        WRITES[write](T, d, u)
        if read:
            d.sum().item()
        seen = [marks(w, y, d, row, d[0], y[0])]
        for x in (y, d, row, d * 2, d * d, y * 2, d[1], row * d[1], d.detach()):
            seen.append((gradients(T, x, w), gradients(T, x, u), gradients(T, x, w, u)))
            if read:
                x.sum().item()
        return seen
    check(program)


@program
def a_parameter_is_written_through_its_data(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    v = T.tensor([3.0, 4.0], requires_grad=True)
    d = w.data
    d.mul_(v)
    (w * 2).sum().backward()
    first = marks(w, d), w.grad, v.grad
    (d * d).sum().backward()
    return first, w.grad, v.grad


@program
def two_detached_tensors_have_two_histories(T, nn, optim, np):
    w, y = _computed(T)
    a, b = y.detach(), y.detach()
    u, v = T.tensor(2.0, requires_grad=True), T.tensor(5.0, requires_grad=True)
    a.add_(u)
    b.add_(v)
    y.sub_(1)
    return marks(y, a, b), [gradients(T, x, w, u, v) for x in (y, a, b, a + b, a + b + y)]


@program
def sums_are_kept_beside_a_loss(T, nn, optim, np):
    w, loss = _loss(T)
    total = loss.detach()
    for _ in range(3):
        total += (w * w).sum()
        loss.item()
    total.backward()
    return marks(total, loss, w), w.grad


@program
def detached_in_place_then_written_to(T, nn, optim, np):
    w, y = _computed(T)
    y.detach_()
    before = marks(y, y[0])
    y.mul_(w)
    return before, marks(y, y[0]), gradients(T, y, w), gradients(T, y[0], w)


@program
def data_that_is_another_tensors_takes_no_history_over(T, nn, optim, np):
    w, y = _computed(T)
    x = T.zeros(2, 2)
    x.data = y.detach()
    return marks(x, y), gradients(T, x * 2, w)


@program
def a_leaf_over_computed_memory_is_read_under_no_grad(T, nn, optim, np):
    _, y = _computed(T)
    d = y.detach().requires_grad_()
    with T.no_grad():
        z = d * 2
    d.requires_grad_(False)
    return marks(z, d), marks(d * 2)


@program
def a_view_from_no_grad_has_no_gradient(T, nn, optim, np):
    w, y = _computed(T)
    with T.no_grad():
        views = [w[0], y[0], w.t(), y.view(4), y.as_strided((2,), (1,))]
    seen = marks(*views), marks(views[0][0]), [gradients(T, v * 2, w) for v in views]
    for v in views:
        seen += marks(v * 2), refused(lambda v=v: v.mul_(2))
    return seen


@program
def a_view_from_no_grad_is_written_under_no_grad(T, nn, optim, np):
    w, y = _computed(T)
    with T.no_grad():
        w[0].mul_(2)
        y[1].add_(1)
        y.t()[1].mul_(3)
    (y * 2).sum().backward()
    return marks(w, y), w.grad


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_program(program):
    check(program)


DETACHED = {
    "median": lambda T, x: x.median(0).values,
    "median of all": lambda T, x: x.median(),
    "nanmedian": lambda T, x: x.nanmedian(1).values,
    "mode": lambda T, x: x.mode(0).values,
    "kthvalue": lambda T, x: x.kthvalue(2, 0, True).values,
    "quantile": lambda T, x: x.quantile(0.3),
    "norm": lambda T, x: T.linalg.norm(x),
    "matrix_norm": lambda T, x: T.linalg.matrix_norm(x, float("inf"), keepdim=True),
    "roll": lambda T, x: x.roll(1),
    "rot90": lambda T, x: x.rot90(),
    "kron": lambda T, x: T.kron(x, x),
    "diag": lambda T, x: x[0].diag(),
    "einsum, a sum": lambda T, x: T.einsum("ij->j", x),
    "einsum, a trace": lambda T, x: T.einsum("ii", x),
    "einsum, a product": lambda T, x: T.einsum("i,j->ij", x[0], x[1]),
    "affine_grid": lambda T, x: T.nn.functional.affine_grid(x[None, :2], (1, 1, 2, 2)),
    "diag_embed": lambda T, x: x.diag_embed(),
    "put": lambda T, x: x.put(T.tensor([0]), T.tensor([5.0])),
    "addr": lambda T, x: T.addr(x, x[0], x[0]),
    "solve": lambda T, x: T.linalg.solve(x, x[0]),
    "softmax of a number": lambda T, x: x[0, 0].softmax(0),
    "pixel_shuffle": lambda T, x: T.nn.functional.pixel_shuffle(x.view(1, 1, 3, 3), 1),
    "adaptive_avg_pool2d": lambda T, x: T.nn.functional.adaptive_avg_pool2d(x.view(1, 3, 3), 2),
}


@pytest.mark.parametrize("op", DETACHED)
def test_detach_of_a_result_in_place(op):
    """Some results show a part of a memory of their own: that is no view of anybody's."""
    def program(T, nn, optim, np):
        x = (T.arange(9.0).view(3, 3) * 1.3 + T.eye(3)).requires_grad_()
        y = DETACHED[op](T, x)
        before = marks(y)
        y.detach_()
        y.mul_(2)
        return before, marks(y)
    check(program, rtol=1e-4)  # a solution of linear equations


def test_a_view_of_a_tensor_that_is_there_is_not_detached_in_place():
    def program(T, nn, optim, np):
        x = T.ones(2, 3, requires_grad=True) * 2
        row = x[0]
        return refused(row.detach_), marks(row, x)
    check(program)
