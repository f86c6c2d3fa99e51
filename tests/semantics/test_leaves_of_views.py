"""A leaf that shows a part of a memory: its gradient has its own shape and order, and a step writes through it."""

from __future__ import annotations

import gc

import pytest
from torch_programs import check

import genesis
from genesis.frontend.recording import MOST_NOTED

VIEWS = {
    "transposed": lambda w: w.t(),
    "twice transposed": lambda w: w.t().t(),
    "rows of the transpose": lambda w: w.t()[1:],
    "another shape": lambda w: w.view(3, 2),
    "a row": lambda w: w[0],
    "a column": lambda w: w[:, 0],
    "the first elements": lambda w: w.view(-1)[:3],
    "every second element": lambda w: w.view(-1)[::2],
    "permuted": lambda w: w.view(1, 2, 3).permute(2, 0, 1),
    "one element": lambda w: w[1, 2],
    "a diagonal": lambda w: w.diagonal(),
    "strided": lambda w: w.as_strided((2, 2), (2, 1), 1),
}

MADE = {
    "a parameter": lambda T, nn, view: nn.Parameter(view),
    "requires_grad_": lambda T, nn, view: view.requires_grad_(),
    "data of a parameter": lambda T, nn, view: _with_data(nn.Parameter(T.zeros(2, 3)), view),
    "data of a leaf that had a gradient": lambda T, nn, view: _with_data(_differentiated(T), view),
    "set_ under no_grad": lambda T, nn, view: _set(T, nn.Parameter(T.zeros(2, 3)), view),
}


def _with_data(leaf, view):
    leaf.data = view
    return leaf


def _differentiated(T):
    leaf = T.zeros(2, 3, requires_grad=True)
    (leaf * 2).sum().backward()
    leaf.grad = None
    return leaf


def _set(T, leaf, view):
    with T.no_grad():
        leaf.set_(view)
    return leaf


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("made", MADE)
def test_trains_as_torch_does(made, view):
    def program(T, nn, optim, np):
        memory = T.arange(6.0).view(2, 3) * 0.5 - 1
        leaf = MADE[made](T, nn, VIEWS[view](memory))
        seen = [leaf.is_leaf, leaf.grad_fn is None]
        optimizer = optim.SGD([leaf], lr=0.01, momentum=0.9)
        for _ in range(2):
            optimizer.zero_grad()
            ((leaf * (T.arange(float(leaf.numel())) + 1).view(leaf.shape)) ** 2).sum().backward()
            seen.append(leaf.grad)
            optimizer.step()
        return seen, leaf, memory
    check(program)


CHANGES = {
    "t_": lambda w: w.t_(),
    "transpose_": lambda w: w.transpose_(0, 1),
    "swapaxes_ and unsqueeze_": lambda w: w.swapaxes_(0, 1).unsqueeze_(1),
    "unsqueeze_": lambda w: w.unsqueeze_(0),
    "squeeze_": lambda w: w.squeeze_(),
    "as_strided_": lambda w: w.as_strided_((2, 2), (1, 2)),
}


@pytest.mark.parametrize("shape", [(2, 3), (4, 1)])
@pytest.mark.parametrize("change", CHANGES)
def test_a_leaf_changed_in_place_under_no_grad(change, shape):
    def program(T, nn, optim, np):
        leaf = nn.Parameter(T.arange(float(shape[0] * shape[1])).view(shape))
        with T.no_grad():
            CHANGES[change](leaf)
        weight = (T.arange(float(leaf.numel())) + 1).view(leaf.shape)
        (leaf * leaf * weight).sum().backward()
        (again,) = T.autograd.grad((leaf ** 3).sum(), leaf)
        return leaf, leaf.grad, leaf.is_leaf, again
    check(program)


def test_a_model_on_one_flat_memory():
    def program(T, nn, optim, np):
        flat = T.arange(10.0) * 0.1 - 0.3
        a, b, c = nn.Parameter(flat[:3]), nn.Parameter(flat[3:9].view(2, 3)), nn.Parameter(flat[9])
        optimizer = optim.Adam([a, b, c], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            ((b @ a) * c).sum().backward()
            optimizer.step()
        return flat, a, b, c
    check(program)


def test_a_weight_and_its_transpose_are_two_leaves_over_one_memory():
    def program(T, nn, optim, np):
        weight = nn.Parameter(T.arange(6.0).view(3, 2))
        tied = nn.Parameter(weight.t())
        x = T.arange(12.0).view(4, 3)
        ((x @ weight) @ tied).sum().backward()
        seen = [weight.grad.clone(), tied.grad.clone()]
        with T.no_grad():
            weight.mul_(2)
        weight.grad = None
        ((x @ weight) @ tied).sum().backward()
        return seen, weight.grad, tied.grad, tied
    check(program)


def test_hooks_and_second_derivatives():
    def program(T, nn, optim, np):
        leaf = nn.Parameter((T.arange(6.0) - 2).view(2, 3).t())
        leaf.register_hook(lambda g: g * 10)
        (first,) = T.autograd.grad((leaf ** 3).sum(), leaf, create_graph=True)
        first.sum().backward()
        return first, leaf.grad
    check(program)


def test_filling_the_diagonal_of_a_parameter_made_of_a_view():
    def program(T, nn, optim, np):
        leaf = nn.Parameter(T.zeros(2, 3).t())
        with T.no_grad():
            leaf.fill_diagonal_(4.0)
        return leaf
    check(program)


def test_objects_are_searched_for_views_of_before_once(monkeypatch):
    """A program that toggles `requires_grad` (a GAN, an adversary) beside a kept `state_dict()` looked through the
    collector's objects each time: 0.12 s a parameter."""
    asked, usual = [], gc.get_objects
    monkeypatch.setattr(gc, "get_objects", lambda: asked.append(1) or usual())

    def program(T, nn, optim, np):
        layer, found = nn.Linear(3, 2), []
        layer.weight.data.view(-1).copy_(T.arange(6.0))
        kept = layer.state_dict()
        for on in (False, True, False, True):
            for p in layer.parameters():
                p.requires_grad = on
            views = [layer.weight.view(-1), layer.weight[0], layer.weight.as_strided((2,), (1,)), kept["weight"].t()]
            found += [p.requires_grad for p in (*layer.parameters(), *views)]
        layer.weight.requires_grad = False
        before, strided = layer.weight[0], layer.weight.as_strided((2,), (1,))
        of_view = before[1:]
        layer.weight.requires_grad = True
        (before.sum() + of_view.sum() + strided.sum() + layer.weight.sum()).backward()
        return found, before.requires_grad, of_view.requires_grad, strided.requires_grad, layer.weight.grad
    check(program)
    assert len(asked) <= 1


def test_nothing_is_searched_for_views_of_a_tensor_that_was_just_detached(monkeypatch):
    """`x.detach().requires_grad_()` at each turn (Langevin steps, normals of a surface), beside views of x.
    Objects were looked through each time, 20 ms and more; what the detached tensor has no views of needs none of it."""
    asked, usual = [], gc.get_objects
    monkeypatch.setattr(gc, "get_objects", lambda: asked.append(1) or usual())

    def program(T, nn, optim, np):
        x, found, kept = T.arange(6.0).view(2, 3) / 3, [], []
        for _ in range(4):
            kept.append(x[..., 1])
            x = x.detach().requires_grad_()
            slope, = T.autograd.grad((x ** 2).sum() + x[..., 1].exp().sum(), x)
            x = x - 0.1 * slope
            found += [v.requires_grad for v in kept]
        grad, hessian = T.func.grad(lambda z: (z[0] * z[1]).sin()), T.func.hessian(lambda z: (z[0] * z[1]).sin())
        return found, x, kept, grad(x[0].detach()), hessian(x[0].detach())
    check(program)
    assert not asked


def test_views_of_a_detached_tensor_and_of_what_it_was_detached_from_follow_each_its_own():
    def program(T, nn, optim, np):
        x = T.arange(6.0).view(2, 3) * 1
        of_x, detached, other = x[0], x.detach(), x.detach()
        of_detached = detached[1]
        found = []
        for one in (detached, x, other):
            one.requires_grad_()
            found.append([v.requires_grad for v in (x, of_x, detached, of_detached, other)])
        (of_x.sum() + of_detached.sum() * 2 + detached.sum() * 3 + x.sum() * 5).backward()
        return found, x.grad, detached.grad, other.grad
    check(program)


def test_ended_views_are_let_go_of():
    x = genesis.zeros(2, 3, requires_grad=True)
    x.requires_grad = False
    x.requires_grad = True
    x.requires_grad = False
    kept = [x[0] for _ in range(MOST_NOTED)]
    for _ in range(4 * MOST_NOTED):
        kept.append(x[1])
        del kept[0]
    assert x.storage.noted is not None and len(x.storage.noted) <= 2 * MOST_NOTED + 1
    assert kept[-1].tolist() == [0, 0, 0]
