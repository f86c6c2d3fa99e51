"""Random programs: views, writes, clones, gradients and reads at random points, against eager torch after each read."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch_programs import same

import genesis

SIZES = (2, 3, 4)


class Machine:
    """One pool of tensors in each framework, to which the same is done."""

    def __init__(self, grad: bool):
        self.pool: list[tuple] = []
        self.leaves: list[tuple] = []
        for k, shape in enumerate([(2, 3), (3,), (2, 3, 2), (4,)]):
            values = np.cos(np.arange(int(np.prod(shape)), dtype=np.float64) + k).reshape(shape)
            pair = tuple(T.tensor(values) for T in (genesis, torch))
            if grad and k % 2 == 0:
                self.leaves.append(tuple(x.requires_grad_() for x in pair))
                pair = tuple(x * 1.0 for x in pair)
            self.pool.append(pair)

    def do(self, action) -> None:
        """Apply the action to both; both refuse or none does."""
        outcomes = []
        for side in (0, 1):
            try:
                outcomes.append(action([pair[side] for pair in self.pool], (genesis, torch)[side]))
            except (RuntimeError, IndexError) as error:
                outcomes.append(error)
        failed = [isinstance(x, Exception) for x in outcomes]
        # torch takes a view from before its base got a gradient for a leaf, and refuses to write to it
        assume(failed[0] or not (failed[1] and "a leaf Variable that requires grad" in str(outcomes[1])))
        assert failed[0] == failed[1], outcomes
        if not failed[0] and outcomes[0] is not None:
            self.pool.append(tuple(outcomes))
            del self.pool[:-8]

    def read(self, index: int) -> None:
        """Both values are equal."""
        same(*self.pool[index % len(self.pool)], rtol=1e-9, atol=1e-9, where="read")

    def read_all(self) -> None:
        """All values and gradients are equal."""
        for ours, theirs in self.pool:
            same(ours, theirs, rtol=1e-9, atol=1e-9, where="end")
        for ours, theirs in self.leaves:
            same(ours.grad, theirs.grad, rtol=1e-9, atol=1e-9, where="gradient")


def _pick(pool, i):
    return pool[i % len(pool)]


def _view(x, kind, k):
    """One of the views of x."""
    n = x.ndim
    if kind == "transpose":
        return x.transpose(0, -1) if n else x.view(1)
    if kind == "flatten":
        return x.reshape(-1)
    if kind == "view":
        return x.view(-1)
    if kind == "slice":
        return x[k % 2:] if n else x.unsqueeze(0)
    if kind == "step":
        return x[..., ::2] if n else x.view(1, 1)
    if kind == "select":
        return x[k % max(x.shape[0], 1)] if n else x.view(1)
    if kind == "unsqueeze":
        return x.unsqueeze(k % (n + 1)) if n < 4 else x.flatten(0, 1)
    if kind == "squeeze":
        return x.squeeze()
    if kind == "narrow":
        return x.narrow(-1, 0, max(x.shape[-1] - 1, 0)) if n else x.view(1)
    if kind == "expand":
        return x.unsqueeze(0).expand(2, *x.shape) if n < 4 else x.select(0, 0)
    return x.detach()


VIEWS = ["transpose", "flatten", "view", "slice", "step", "select", "unsqueeze", "squeeze", "narrow", "expand",
         "detach"]
index, small = st.integers(0, 7), st.integers(0, 3)


def _write(pool, T, i, kind, j):
    """One of the writes to a tensor of the pool; nothing is returned.

    Where elements share memory Genesis refuses all writes but fills; torch only warns of some.
    """
    x, y = _pick(pool, i), _pick(pool, j)
    shared = any(stride == 0 and size > 1 for size, stride in zip(x.shape, x.stride(), strict=True))
    if shared and kind.startswith("set "):
        return
    if kind == "add":
        x.add_(0.5)
    elif kind == "mul":
        x.mul_(-1.5)
    elif kind == "tanh":
        x.tanh_()
    elif kind == "add tensor":
        x.add_(y.sum().tanh())
    elif kind == "copy":
        x.copy_(y.sin().sum() + T.ones(1, dtype=T.float64)[0])
    elif kind == "zero":
        x.zero_()
    elif kind == "set":
        x[0 if x.ndim else ...] = float(j)
    elif kind == "set tensor":
        x[..., 1:] = y.mean().cos()
    elif kind == "set mask":
        x[x.detach() > 0.25] = 0.125
    elif kind == "set index":
        x[T.tensor([0])] = y.abs().sum().tanh()
    else:
        x *= x.detach().cos()


WRITES = ["add", "mul", "tanh", "add tensor", "copy", "zero", "set", "set tensor", "set mask", "set index", "by itself"]


def _compute(pool, T, i, kind, j):
    """One of the ops that make a new tensor: row-major, as all results of Genesis are; torch's may be permuted."""
    x, y = _pick(pool, i), _pick(pool, j)
    results = {
        "mul": lambda: x * 2.0, "same": lambda: x * 2.0, "add": lambda: x + y.sum().tanh(), "self": lambda: x * x.sin(),
        "clone": lambda: x.clone(), "sum": lambda: x.sum(-1).tanh() if x.ndim else x.tanh(),
        "where": lambda: T.where(x > 0, x, -x), "index": lambda: x[[0, 0]] if x.ndim else x.clone(),
        "contiguous": lambda: x.contiguous(), "softmax": lambda: x.softmax(-1) if x.ndim else x.sin(),
        "matmul": lambda: (x.reshape(-1, 1) @ x.reshape(1, -1)).tanh()[:3, :3],
        "cat": lambda: T.cat([x.reshape(-1), y.reshape(-1)])[:6],
    }
    made = results[kind]()
    return made if T is genesis or made is x else made.clone(memory_format=torch.contiguous_format)


COMPUTED = ["mul", "same", "add", "self", "clone", "sum", "where", "index", "contiguous", "softmax", "matmul", "cat"]

steps = st.one_of(
    st.tuples(st.just("view"), index, st.sampled_from(VIEWS), small),
    st.tuples(st.just("write"), index, st.sampled_from(WRITES), index),
    st.tuples(st.just("write quietly"), index, st.sampled_from(WRITES), index),
    st.tuples(st.just("compute"), index, st.sampled_from(COMPUTED), index),
    st.tuples(st.just("read"), index, st.just(""), small),
)


def _run(machine, program):
    for what, i, kind, j in program:
        if what == "view":
            machine.do(lambda pool, T, i=i, kind=kind, j=j: _view(_pick(pool, i), kind, j))
        elif what == "write":
            machine.do(lambda pool, T, i=i, kind=kind, j=j: _write(pool, T, i, kind, j))
        elif what == "write quietly":
            def quietly(pool, T, i=i, kind=kind, j=j):
                with T.no_grad():
                    _write(pool, T, i, kind, j)
            machine.do(quietly)
        elif what == "compute":
            machine.do(lambda pool, T, i=i, kind=kind, j=j: _compute(pool, T, i, kind, j))
        else:
            machine.read(i)


SETTINGS = settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@SETTINGS
@given(st.lists(steps, max_size=14))
def test_values(program):
    """No gradients: every value is eager torch's."""
    machine = Machine(grad=False)
    _run(machine, program)
    machine.read_all()


COMPUTING = st.one_of(
    st.tuples(st.just("view"), index, st.sampled_from([v for v in VIEWS if v != "detach"]), small),
    st.tuples(st.just("write"), index, st.sampled_from(["add", "mul", "zero", "set", "add tensor", "set tensor"]),
              index),
    st.tuples(st.just("compute"), index, st.sampled_from(COMPUTED), index),
    st.tuples(st.just("read"), index, st.just(""), small),
)


@SETTINGS
@given(st.lists(COMPUTING, max_size=10))
def test_gradients(program):
    """The gradient of the sum of all that is left, where torch's own checks of versions do not object."""
    machine = Machine(grad=True)
    _run(machine, program)
    totals = [sum(pair[side].sum().tanh() for pair in machine.pool if pair[1].requires_grad) for side in (0, 1)]
    if not isinstance(totals[1], torch.Tensor):
        return
    try:
        totals[1].backward()
    except RuntimeError as error:
        assert any(said in str(error) for said in ("modified by an inplace operation", "more than one element"))
        return
    totals[0].backward()
    for ours, theirs in machine.leaves:
        if theirs.grad is None:
            assert ours.grad is None
        else:
            same(ours.grad, theirs.grad, rtol=1e-9, atol=1e-9, where="gradient")
    for ours, theirs in machine.pool:
        same(ours.detach(), theirs.detach(), rtol=1e-9, atol=1e-9, where="end")
