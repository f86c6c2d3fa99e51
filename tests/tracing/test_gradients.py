"""Gradients through a replay are those of the plain call: which tensors get one, None for the others, and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from calls import ramp, values

import genesis

Program = tuple[Callable[..., Any], Callable[[int], Sequence[Any]], list[Any]]
"""(a function, the arguments of its call number i, the tensors to look at)."""


def weights() -> Any:
    return ramp(2).requires_grad_()


def block() -> Program:
    w = weights()

    def f() -> Any:
        with genesis.no_grad():
            t = w * 3
        return w + t
    return f, lambda i: (), [w]


def decorated() -> Program:
    w = weights()

    @genesis.no_grad()
    def tripled(x: Any) -> Any:
        return x * 3
    return lambda x: w * x + tripled(w), lambda i: (ramp(2, start=i),), [w]


def switched() -> Program:
    w = weights()

    def f() -> Any:
        genesis.set_grad_enabled(False)
        t = w * 3
        genesis.set_grad_enabled(True)
        return w + t
    return f, lambda i: (), [w]


def of_an_argument() -> Program:
    w = weights()

    def f(x: Any) -> Any:
        with genesis.no_grad():
            t = x * 3
        return x + t
    return f, lambda i: (w,), [w]


def of_a_computed_argument() -> Program:
    w = weights()

    def f(x: Any) -> Any:
        with genesis.no_grad():
            t = x * 3
        return x + t
    return f, lambda i: (w * 2,), [w]


def averaged() -> Program:
    w, average = weights(), genesis.zeros(2)

    def f(x: Any) -> Any:
        with genesis.no_grad():
            average.mul_(0.5).add_(w * 0.5)
        return w * x + average
    return f, lambda i: (ramp(2, start=i),), [w, average]


def target_network() -> Program:
    online, target = genesis.nn.Linear(2, 2), genesis.nn.Linear(2, 2)

    def f(x: Any) -> Any:
        with genesis.no_grad():
            for a, b in zip(target.parameters(), online.parameters(), strict=True):
                a.lerp_(b, 0.5)
            goal = target(x) + online(x)
        return (online(x) - goal) ** 2
    for parameter in (*online.parameters(), *target.parameters()):
        parameter.data = ramp(*parameter.shape)
    return f, lambda i: (ramp(1, 2, start=i),), [*online.parameters(), *target.parameters()]


def decayed() -> Program:
    w = weights()

    def f(x: Any) -> Any:
        with genesis.no_grad():
            w.mul_(0.5)
        return w * x
    return f, lambda i: (ramp(2, start=i),), [w]


def written_between_reads() -> Program:
    w = weights()

    def f(x: Any) -> Any:
        y = w * x
        with genesis.no_grad():
            w.mul_(0.5)
        z = w * x + y
        with genesis.no_grad():
            w.add_(z)
        return w * x, z
    return f, lambda i: (ramp(2, start=i),), [w]


def an_argument_is_written() -> Program:
    w = weights()

    def f(x: Any) -> Any:
        with genesis.no_grad():
            x.mul_(2)
        return x + w
    return f, lambda i: (ramp(2, start=i).requires_grad_(),), [w]


def unused() -> Program:
    a, b = weights(), weights()
    return lambda x: (x * a, x * b), lambda i: (ramp(2, start=i),), [a, b]


def unused_for_an_argument() -> Program:
    a, b = weights(), weights()
    return lambda x, y: (x.sum() * 2, y * x), lambda i: (a * 2, b), [a, b]


def through_integers() -> Program:
    a = weights()
    return lambda x: (x * 2, x > 1, x.argmax(), x.max(0), x.long()), lambda i: (a,), [a]


def a_chain_of_results() -> Program:
    a = weights()

    def f(x: Any) -> Any:
        y = x * a
        z = y * 3
        return z, y, z[1:], y > 0
    return f, lambda i: (ramp(2, start=i),), [a]


def with_a_leaf_inside() -> Program:
    a = weights()

    def f(x: Any) -> Any:
        y = x.detach().requires_grad_()
        found, = genesis.autograd.grad((y * y * y).sum(), y, create_graph=True)
        return found * x, x * 2
    return f, lambda i: (a,), [a]


def with_a_gradient_inside() -> Program:
    a = weights()

    def f(x: Any) -> Any:
        found, = genesis.autograd.grad((x * x * x).sum(), x, create_graph=True)
        return (found * found).sum()
    return f, lambda i: (a,), [a]


def copied_inside() -> Program:
    a = weights()

    def f(x: Any) -> Any:
        v, w = genesis.zeros(2), genesis.zeros(3)
        v.copy_(x * 2)
        w[1:].copy_(v)
        return w, v * 3
    return f, lambda i: (a,), [a]


PROGRAMS = [block, decorated, switched, of_an_argument, of_a_computed_argument, averaged, target_network, decayed,
            written_between_reads, an_argument_is_written, unused, unused_for_an_argument, through_integers,
            a_chain_of_results, with_a_leaf_inside, with_a_gradient_inside, copied_inside]


def listed(result: Any) -> list[Any]:
    if isinstance(result, tuple):
        return [x for part in result for x in listed(part)]
    return [result]


def history(program: Callable[[], Program], chosen: Callable[[list[Any]], list[Any]],
            compiled: bool) -> tuple[Any, int]:
    """(what three calls gave, each followed by a backward of some results, replays)."""
    f, arguments, looked_at = program()
    f = genesis.compile(f) if compiled else f
    found = []
    for i in range(3):
        for x in looked_at:
            x.grad = None
        given = arguments(i)
        results = listed(f(*given))
        genesis.autograd.backward([x.sum() for x in chosen([x for x in results if x.requires_grad])])
        found.append([values(results), values(list(given)), values(looked_at),
                      [None if x.grad is None else values(x.grad) for x in looked_at]])
    return found, getattr(f, "hits", 0)


@pytest.mark.parametrize("chosen", [lambda ys: ys[:1], lambda ys: ys[-1:], lambda ys: ys], ids=["first", "last", "all"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_backward_after_a_replay(program: Callable[[], Program], chosen: Any) -> None:
    plain, _ = history(program, chosen, False)
    ours, hits = history(program, chosen, True)
    assert ours == plain and hits == 2


def test_what_no_result_in_use_reaches_is_an_error() -> None:
    a, b = weights(), weights()
    compiled = genesis.compile(lambda x: (x * a, x * b))
    for _ in range(3):
        with pytest.raises(RuntimeError, match="not have been used"):
            genesis.autograd.grad(compiled(ramp(2))[0].sum(), b)
    assert compiled.hits == 2


def test_weight_decay_leaves_an_unused_parameter_alone() -> None:
    a, b = weights(), weights()
    optimizer = genesis.optim.AdamW([a, b], lr=0.1, weight_decay=1.0)
    compiled = genesis.compile(lambda x: (x * a, x * b))
    for _ in range(3):
        optimizer.zero_grad()
        compiled(ramp(2))[0].sum().backward()
        optimizer.step()
    assert b.tolist() == [1.0, 2.0] and b.grad is None and compiled.hits == 2


def test_enabled_inside_under_no_grad() -> None:
    w = weights()

    @genesis.compile
    def f() -> Any:
        with genesis.enable_grad():
            t = w * 3
        return t, w * 2
    for _ in range(3):
        w.grad = None
        with genesis.no_grad():
            t, u = f()
        assert t.requires_grad and not u.requires_grad
        t.sum().backward()
        assert w.grad.tolist() == [3.0, 3.0]
    assert f.hits == 2


def test_a_result_from_another_result_has_its_gradient() -> None:
    a = weights()

    @genesis.compile
    def f(x: Any) -> Any:
        y = x * a
        return y * y, y
    seen: list[Any] = []
    for i in range(3):
        z, y = f(ramp(2))
        y.register_hook(lambda g: seen.append(g.tolist()))
        y.retain_grad()
        z.sum().backward(retain_graph=True)
        assert y.grad.tolist() == [2.0, 8.0] and len(seen) == 2 * i + 1
        assert genesis.autograd.grad(z.sum(), y)[0].tolist() == [2.0, 8.0]
    assert f.hits == 2


def test_a_second_backward_through_a_sum_is_no_error_and_through_a_product_is_one() -> None:
    a, b = weights(), weights()
    added, multiplied = genesis.compile(lambda: a + b), genesis.compile(lambda: a * b)
    for _ in range(3):
        y = added()
        y.backward(genesis.ones(2))
        y.backward(genesis.ones(2))
        y = multiplied()
        y.backward(genesis.ones(2))
        with pytest.raises(RuntimeError, match="second time"):
            y.backward(genesis.ones(2))
    assert added.hits == multiplied.hits == 2


def test_what_computed_a_result() -> None:
    a = weights()
    compiled = genesis.compile(lambda: (a * 2).exp())
    names = []
    for _ in range(2):
        fn = compiled().grad_fn
        names.append([fn.name(), fn.next_functions[0][0].name()])
    assert names[0] == names[1] == ["ExpBackward0", "MulBackward0"]


def test_a_leaf_that_shares_the_memory_of_a_computed_tensor_keeps_its_gradient() -> None:
    w = weights()
    x = w * 2
    y = x.detach().requires_grad_()
    ((y * 3).sum() + x.sum()).backward()
    assert (w.grad.tolist(), y.grad.tolist()) == ([2.0, 2.0], [3.0, 3.0])


def test_a_buffer_that_gradients_flow_into_later() -> None:
    buffer, w = ramp(2), weights()

    @genesis.compile
    def f(x: Any) -> Any:
        with genesis.no_grad():
            return buffer * x
    for _ in range(3):
        assert not f(ramp(2)).requires_grad
    buffer.copy_(w * 2)
    for _ in range(3):
        assert not f(ramp(2)).requires_grad


def test_results_are_read_in_any_order() -> None:
    a = weights()
    compiled = genesis.compile(lambda x: (x > 1, x * 2, x.max(0)))
    for i in range(6):
        results = listed(compiled(a))
        expected = [[False, True], [2.0, 4.0], 2.0, 1]
        for at in (i % 4, (i + 1) % 4, (i + 2) % 4, (i + 3) % 4):
            assert results[at].tolist() == expected[at]
    assert compiled.hits == 5


def test_a_compiled_function_of_one_example_over_a_batch() -> None:
    from genesis.func import grad, hessian, vmap
    w = weights()

    def f(x: Any) -> Any:
        return (x * w).exp().sum()
    compiled = genesis.compile(f)
    for _ in range(3):
        for of in (lambda g: vmap(g)(ramp(3, 2)), lambda g: vmap(grad(g))(ramp(3, 2)), lambda g: hessian(g)(ramp(2)),
                   lambda g: g(ramp(2))):
            assert of(compiled).tolist() == of(f).tolist()
    assert compiled.hits >= 2


def test_a_gradient_of_a_gradient_of_a_replay() -> None:
    w = weights()

    def f(x: Any) -> Any:
        y = (x * w).exp()
        return y, y * 2
    found = []
    for g in (f, genesis.compile(f)):
        for _ in range(3):
            x, w.grad = ramp(2).requires_grad_(), None
            first, = genesis.autograd.grad(sum(y.sum() for y in g(x)), x, create_graph=True)
            (first * first).sum().backward()
            found.append((x.grad.tolist(), w.grad.tolist()))
    assert found == [found[0]] * 6


@pytest.mark.parametrize("whole", [True, False], ids=["step", "forward"])
def test_a_checkpoint_inside_a_replay(whole: bool) -> None:
    """With dropout, batch statistics, one in another, and sequences: the plain step's numbers, bit for bit."""
    def losses(wrap: Callable[[Any], Any]) -> tuple[list[float], Any]:
        genesis.manual_seed(1)
        blocks = genesis.nn.ModuleList(genesis.nn.Sequential(
            genesis.nn.Linear(4, 8), genesis.nn.BatchNorm1d(8), genesis.nn.Dropout(0.25), genesis.nn.Linear(8, 4))
            for _ in range(2))
        optimizer = genesis.optim.AdamW(blocks.parameters(), lr=0.01)

        def forward(x: Any) -> Any:
            x = genesis.checkpoint(lambda y: genesis.checkpoint(blocks[0], y).tanh(), x, use_reentrant=False)
            return genesis.utils.checkpoint.checkpoint_sequential(blocks, 2, x, use_reentrant=False)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = inside(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss
        compiled = wrap(step if whole else forward)
        inside, run = (forward, compiled) if whole else (compiled, step)
        found = [run(ramp(3, 4) * (i + 1)).item() for i in range(5)]
        return [*found, *(x for p in (*blocks.parameters(), *blocks.buffers()) for x in values(p.flatten()))], compiled
    expected, _ = losses(lambda function: function)
    found, compiled = losses(lambda function: genesis.compile(function, fullgraph=True))
    assert found == expected
    assert (genesis.explain(compiled).captures, genesis.explain(compiled).hits) == (1, 4)


def test_a_replay_inside_a_checkpoint() -> None:
    w = weights()
    compiled = genesis.compile(lambda x: (x * w).exp())
    for i in range(4):
        x, w.grad = ramp(2).requires_grad_(), None
        y = genesis.checkpoint(compiled, x) if i % 2 else compiled(x)
        y.sum().backward()
        assert x.grad.tolist() == pytest.approx([2.7182817, 109.1963]) and w.grad.tolist() == x.grad.tolist()
    assert compiled.hits == 3


def test_a_leaf_gets_the_content_of_another_tensor() -> None:
    for compiles in (False, True):
        w, other = weights(), ramp(2, start=5)

        def f(x: Any, w: Any = w, other: Any = other) -> Any:
            with genesis.no_grad():
                x.copy_(other)
                w.copy_(other)
            return x * 3, w.exp().log()
        g = genesis.compile(f) if compiles else f
        for _ in range(3):
            x, w.grad = ramp(2).requires_grad_(), None
            y, z = g(x)
            (y + z).sum().backward()
            assert (x.grad.tolist(), w.grad.tolist()) == ([3.0, 3.0], pytest.approx([1.0, 1.0]))
            assert x.tolist() == w.tolist() == [5.0, 6.0]


def test_a_write_of_what_requires_grad_to_a_tensor_that_stays_is_recorded() -> None:
    w, kept = weights(), ramp(2)
    compiled = genesis.compile(lambda x: kept.copy_(x * w) * 2)
    for i in range(3):
        w.grad = None
        compiled(ramp(2, start=i)).sum().backward()
        assert w.grad.tolist() == [2.0 * i, 2.0 * i + 2] and kept.requires_grad
    assert compiled.hits == 0


def test_hooks_of_a_parameter_are_called_at_every_compiled_step() -> None:
    seen: list[list[float]] = []
    w = ramp(2).requires_grad_()
    w.register_hook(lambda g: seen.append(g.tolist()))
    optimizer = genesis.optim.SGD([w], lr=0.5)

    @genesis.compile
    def step(x: Any) -> None:
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()
    for _ in range(5):
        step(ramp(2))
    assert seen == [[1.0, 2.0]] * 5


HOOKS: dict[str, Callable[[Any], Any]] = {
    "on the gradient": lambda w: w.register_hook(lambda g: g * 3),
    "after accumulation": lambda w: w.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", p.grad * 3)),
}


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("steps", [True, False], ids=["with a step", "gradients alone"])
def test_a_hook_that_a_parameter_gets_between_compiled_calls_is_called_until_it_is_removed(hook: str,
                                                                                           steps: bool) -> None:
    def trained(compile: Callable[[Any], Any]) -> list[list[float]]:
        w = ramp(2).requires_grad_()
        optimizer = genesis.optim.SGD([w], lr=0.5)

        def step(x: Any) -> None:
            optimizer.zero_grad()
            (w * w * x).sum().backward()
            if steps:
                optimizer.step()
        call, seen = compile(step), []
        for i in range(8):
            if i == 3:
                handle = HOOKS[hook](w)
            if i == 6:
                handle.remove()
            call(ramp(2))
            seen += [w.tolist(), w.grad.tolist()]
        return seen
    assert trained(genesis.compile) == trained(lambda function: function)


@pytest.mark.parametrize("by", ["a leaf that it closes over", "its argument"])
def test_gradients_that_a_compiled_function_asks_for_go_through_hooks_that_came_later(by: str) -> None:
    def found(compile: Callable[[Any], Any]) -> list[list[float]]:
        w = ramp(2).requires_grad_()
        call, seen = compile(lambda x: genesis.autograd.grad((w * w * x * x).sum(), x if x.requires_grad else w)[0]), []
        for i in range(5):
            x = ramp(2, start=i)
            if by == "its argument":
                x.requires_grad_()
            if i == 3:
                (x if x.requires_grad else w).register_hook(lambda g: g * 3)
            seen.append(call(x).tolist())
        return seen
    assert found(genesis.compile) == found(lambda function: function)


def test_a_hook_on_another_tensor_does_not_end_replays() -> None:
    w, other = ramp(2).requires_grad_(), ramp(2).requires_grad_()
    optimizer = genesis.optim.SGD([w], lr=0.5)

    @genesis.compile
    def step(x: Any) -> None:
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()
    for _ in range(3):
        step(ramp(2))
    other.register_hook(lambda g: g * 3)
    before = step.hits
    step(ramp(2))
    assert step.hits == before + 1


def test_gradients_that_are_set_to_zero_where_the_captured_call_found_none() -> None:
    w = weights()
    optimizer = genesis.optim.SGD([w], lr=0.1)

    def clear() -> None:
        optimizer.zero_grad(set_to_none=False)
    function = genesis.compile(clear)
    for i in range(12):
        w.grad = None if i in (0, 1, 2, 9) else genesis.full_like(w, float(i))
        function()
        assert (w.grad is None) == (i in (0, 1, 2, 9))
        assert w.grad is None or w.grad.tolist() == [0.0, 0.0]
    assert function.hits >= 4, genesis.explain(function)
