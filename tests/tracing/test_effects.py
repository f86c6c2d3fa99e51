"""What a call does besides computing: it happens at every call, compiled or not."""

from __future__ import annotations

import random
import threading
import time
import types
from pathlib import Path
from typing import Any

import pytest
from calls import Pair, ramp, values

import genesis

COUNT = 0
LOG: list[Any] = []
LAST: Any = None


class Counter:
    def __init__(self) -> None:
        self.calls = 0
        self.seen: list[int] = []


def run(function: Any, calls: int = 5) -> tuple[list[Any], str, int]:
    """(results, reasons, replays) of calls with x = [0, 1], [1, 2], ..."""
    compiled = genesis.compile(function)
    found = [values(compiled(ramp(2, start=i))) for i in range(calls)]
    return found, genesis.explain(compiled), compiled.hits


def refused_at_this_line(explanation: str, function: Any, reason: str) -> None:
    """The explanation names the reason and a line of the function."""
    first = function.__code__.co_firstlineno
    lines = {line for _, _, line in function.__code__.co_lines() if line}
    assert reason in explanation
    assert any(f"test_effects.py:{line} " in explanation for line in lines | {first}), explanation


def test_a_value_is_read() -> None:
    def item(x: Any) -> Any:
        return x * x.sum().item()

    def branch(x: Any) -> Any:
        return x * 2 if x.sum() > 4 else x + 1

    def array(x: Any) -> Any:
        return x + float((x * 2).numpy()[0])

    def listed(x: Any) -> Any:
        return x * (x + 1).tolist()[1]

    def shown(x: Any) -> Any:
        return x * len(str(x))

    def formatted(x: Any) -> Any:
        return x * len(f"{x.sum():.2f}")

    def number(x: Any) -> Any:
        return x * float(x.sum()) + int(x.sum())

    def member(x: Any) -> Any:
        return x * (2.0 in x)
    for function in (item, branch, array, listed, shown, formatted, number, member):
        found, reason, hits = run(function)
        assert found == [values(function(ramp(2, start=i))) for i in range(5)]
        assert hits == 0
        refused_at_this_line(reason, function, "a value is read while the function runs")


def test_printing(capsys: pytest.CaptureFixture) -> None:
    def prints(x: Any) -> Any:
        print("called")
        return x + 1
    _, reason, _ = run(prints)
    assert capsys.readouterr().out.count("called") == 5
    refused_at_this_line(reason, prints, "it calls print")


def test_a_module_that_imports_what_it_is_asked_for() -> None:
    """As numpy its `random`: the explanation names that, and not how the module comes to it."""
    lazy = types.ModuleType("lazy")
    exec(compile("def __getattr__(name):\n    return 2.0 if name == 'rate' else None", types.__file__, "exec"),
         lazy.__dict__)

    def asks(x: Any) -> Any:
        return x * lazy.rate
    found, reason, _ = run(asks)
    assert found[0] == values(ramp(2, start=0) * 2)
    refused_at_this_line(reason, asks, "it calls lazy.__getattr__('rate')")


def test_a_flag_that_each_call_turns() -> None:
    """The call after the next finds the flag as the first one did, and turns it as well."""
    counter = Counter()
    counter.calls = False

    def turns(x: Any) -> Any:
        counter.calls = not counter.calls
        return x * 2 if counter.calls else x * 3
    found, _, _ = run(turns)
    assert found == [values(ramp(2, start=i) * (3 if i % 2 else 2)) for i in range(5)]
    assert counter.calls is True


def test_counting() -> None:
    """Counters that are read, which are replayed once they were seen to change; `test_slots.py` has those that are not.
    """
    counter, count = Counter(), 0

    def attribute(x: Any) -> Any:
        counter.calls += 1
        return x + counter.calls

    def outer_variable(x: Any) -> Any:
        nonlocal count
        count += 1
        return x * count
    for function, expected in ((attribute, lambda x, i: x + i), (outer_variable, lambda x, i: x * i)):
        found, _, hits = run(function)
        assert hits == 2
        assert found == [values(expected(ramp(2, start=i), i + 1)) for i in range(5)]
    assert (counter.calls, count) == (5, 5)

    def in_a_list_that_is_read(x: Any) -> Any:
        counter.seen.append(1)
        return x + len(counter.seen)
    _, reason, hits = run(in_a_list_that_is_read)
    assert hits == 0
    refused_at_this_line(reason, in_a_list_that_is_read, "it changes")
    assert len(counter.seen) == 5


def test_collecting() -> None:
    def appends(x: Any) -> Any:
        LOG.append(x + 1)
        return x

    def remembers(x: Any) -> Any:
        global LAST
        LAST = x * 2
        return x + 1

    def new_attribute(x: Any) -> Any:
        holder.latest = x * 2  # type: ignore[attr-defined]
        return x + 1

    def on_a_function(x: Any) -> Any:
        on_a_function.latest = x * 2  # type: ignore[attr-defined]
        return x + 1
    holder = Counter()
    run(appends)
    assert [x.tolist() for x in LOG] == [[i + 1.0, i + 2.0] for i in range(5)]
    for function in (remembers, new_attribute, on_a_function):
        _, _, hits = run(function)
        assert hits >= 3
    expected = [8.0, 10.0]
    assert LAST.tolist() == holder.latest.tolist() == on_a_function.latest.tolist() == expected  # type: ignore[attr-defined]


def test_a_call_that_gives_another_value_each_time(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("")
    numbers, entries = iter(range(100)), (i for i in range(100))
    generator = random.Random(0)

    def draws(x: Any) -> Any:
        return x * random.random()

    def draws_an_integer(x: Any) -> Any:
        return x * random.randint(0, 10)

    def draws_from(x: Any) -> Any:
        return x * generator.random()

    def shuffles(x: Any) -> Any:
        items = [1, 2, 3]
        random.shuffle(items)
        return x * items[0]

    def imports(x: Any) -> Any:
        import random as chance
        return x * chance.random()

    def looks_at_the_clock(x: Any) -> Any:
        return x + time.time() * 0

    def writes(x: Any) -> Any:
        with open(path, "a") as file:
            file.write("x")
        return x

    def writes_by_path(x: Any) -> Any:
        path.write_text(path.read_text() + "x")
        return x

    def takes_the_next(x: Any) -> Any:
        return x + next(numbers)

    def loops(x: Any) -> Any:
        for i in entries:
            return x + i
    for function in (draws, draws_an_integer, draws_from, shuffles, imports, looks_at_the_clock, writes, writes_by_path,
                     takes_the_next, loops):
        _, reason, hits = run(function)
        assert hits == 0 and "recorded at each call" in reason, function.__name__
        assert "test_effects.py" in reason, reason
    assert path.read_text() == "x" * 10
    assert (next(numbers), next(entries)) == (5, 5)


def test_what_only_happens_inside_is_replayed() -> None:
    def function(x: Any) -> Any:
        items, table, counter = [], {}, Counter()
        for i in range(3):
            items.append(x * i)
            table[i] = x + i
            counter.calls += 1
        total = 0

        def add(y: Any) -> None:
            nonlocal total
            total = total + y
        for y in items:
            add(y)
        parts = [y * 2 for y in sorted(table.values(), key=lambda y: y.numel())]
        return total, parts, {k: v for k, v in table.items() if k}, counter.calls
    pair = Pair(function)
    for i in range(4):
        pair.same(ramp(2, start=i))
    assert pair.compiled.hits == 3


def test_an_exception() -> None:
    fail = [True]

    def function(x: Any) -> Any:
        y = x * 2
        if fail[0]:
            raise KeyError("no")
        return y
    compiled = genesis.compile(function)
    for _ in range(4):
        with pytest.raises(KeyError):
            compiled(ramp(2))
    fail[0] = False
    assert [compiled(ramp(1, start=i)).item() for i in range(3)] == [0.0, 2.0, 4.0]
    assert compiled.hits == 2
    fail[0] = True
    with pytest.raises(KeyError):
        compiled(ramp(2))


def test_a_shape_error_names_the_line() -> None:
    compiled = genesis.compile(lambda x, y: x @ y)
    with pytest.raises(RuntimeError, match=r"test_effects.py"):
        compiled(ramp(2, 3), ramp(2, 3))
    assert compiled(ramp(2, 3), ramp(3, 1)).shape == (2, 1)


def test_an_exception_after_a_write_keeps_the_write() -> None:
    def function(x: Any, bad: bool) -> Any:
        x.add_(1)
        if bad:
            raise ValueError
        return x * 1
    compiled = genesis.compile(function)
    x = ramp(1)
    for bad in (False, False, True, False, True, False):
        if bad:
            with pytest.raises(ValueError):
                compiled(x, bad)
        else:
            compiled(x, bad)
    assert x.item() == 7.0


def test_recursion_and_nesting() -> None:
    def power(x: Any, n: int) -> Any:
        return x if n == 0 else power(x, n - 1) * x
    inner = genesis.compile(lambda x: x * 2)
    scale = [3.0]
    inner_with_state = genesis.compile(lambda x: x * scale[0])
    Pair(power).settle(ramp(2), 3)

    def outer(x: Any) -> Any:
        return inner(inner_with_state(x)) + 1
    pair = Pair(outer)
    pair.settle(ramp(2))
    scale[0] = 4.0
    assert not pair.replays(ramp(2))
    pair.settle(ramp(2))
    assert inner.hits >= 1  # by the plain function

    fib = genesis.compile(lambda x, n: x if n < 2 else fib(x, n - 1) + fib(x, n - 2))
    assert [fib(ramp(1), 6).item() for _ in range(3)] == [13.0] * 3
    assert fib.hits == 2


def test_dropout_draws_anew() -> None:
    def noisy(x: Any) -> Any:
        return genesis.nn.functional.dropout(x, 0.5) + genesis.rand(8) + genesis.randn(8)
    compiled = genesis.compile(noisy)
    genesis.manual_seed(5)
    ours = [values(compiled(genesis.ones(8))) for _ in range(5)]
    genesis.manual_seed(5)
    assert ours == [values(noisy(genesis.ones(8))) for _ in range(5)]
    assert compiled.hits == 4 and len(set(map(str, ours))) == 5
    state = genesis.get_rng_state()
    compiled(genesis.ones(8))
    noisy_state = genesis.get_rng_state()
    genesis.set_rng_state(state)
    noisy(genesis.ones(8))
    assert genesis.equal(genesis.get_rng_state(), noisy_state)


def test_seeding_inside() -> None:
    def seeded(x: Any) -> Any:
        genesis.manual_seed(3)
        return x + genesis.rand(2)

    def reads_the_seed(x: Any) -> Any:
        return x + genesis.initial_seed() % 7

    def reads_the_state(x: Any) -> Any:
        return x + genesis.get_rng_state().float().sum()
    for function in (seeded, reads_the_seed, reads_the_state):
        compiled = genesis.compile(function)
        for i in range(4):
            genesis.manual_seed(i)
            ours = values(compiled(ramp(2)))
            genesis.manual_seed(i)
            assert ours == values(function(ramp(2)))
        assert compiled.hits == 0
        refused_at_this_line(genesis.explain(compiled), function, "generator")


def test_another_generator() -> None:
    generator = genesis.Generator()

    def draw(x: Any) -> Any:
        return x + genesis.rand(2, generator=generator)
    compiled = genesis.compile(draw)
    generator.manual_seed(1)
    ours = [values(compiled(ramp(2))) for _ in range(3)]
    generator.manual_seed(1)
    assert ours == [values(draw(ramp(2))) for _ in range(3)]
    generator = genesis.Generator().manual_seed(1)
    assert values(compiled(ramp(2))) == ours[0]


def test_modes_that_are_left_changed() -> None:
    def leaves_it_off(x: Any) -> Any:
        genesis.set_grad_enabled(False)
        return x * 2
    compiled = genesis.compile(leaves_it_off)
    for _ in range(4):
        try:
            compiled(ramp(1))
            assert not genesis.is_grad_enabled()
        finally:
            genesis.set_grad_enabled(True)
    assert compiled.hits == 0


def test_requires_grad_is_changed_inside() -> None:
    def function(x: Any) -> Any:
        x.requires_grad_()
        return (x * 2).sum()
    compiled = genesis.compile(function)
    for _ in range(4):
        x = ramp(2)
        compiled(x).backward()
        assert x.grad.tolist() == [2.0, 2.0]


def test_a_file_of_tensors_is_read_each_time(tmp_path: Path) -> None:
    path = str(tmp_path / "x.safetensors")

    def loaded(x: Any) -> Any:
        return x + genesis.load(path)["x"]
    compiled = genesis.compile(loaded)
    for i in range(4):
        genesis.save({"x": ramp(2, start=i)}, path)
        assert compiled(ramp(2)).tolist() == [1.0 + i, 3.0 + i]


def test_two_threads() -> None:
    scale = [2.0]
    first, second = genesis.compile(lambda x: x * scale[0] + 1), genesis.compile(lambda x: x - scale[0])
    failures: list[Any] = []
    barrier = threading.Barrier(3)

    def work(seed: int, shared: Any) -> None:
        barrier.wait()
        try:
            for i in range(40):
                n = 1 + (i + seed) % 3
                x = ramp(n, start=i)
                for compiled, factor in ((first, 1), (second, 0)):
                    expected = (x * 2 + 1) if factor else (x - 2)
                    if compiled(x).tolist() != expected.tolist():
                        failures.append((seed, i))
        except BaseException as error:
            failures.append(error)
    threads = [threading.Thread(target=work, args=(i, None)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert first.hits + second.hits > 200


def test_another_thread_works_while_this_one_captures() -> None:
    inside, done = threading.Event(), threading.Event()
    results: list[Any] = []

    def other() -> None:
        inside.wait(5)
        w = ramp(2).requires_grad_()
        optimizer = genesis.optim.SGD([w], lr=1.0)
        (w * w).sum().backward()
        optimizer.step()
        results.append(w.tolist())
        done.set()
    thread = threading.Thread(target=other, daemon=True)
    thread.start()

    class Wait:
        def __getattr__(self, name: str) -> Any:
            inside.set()
            done.wait(5)
            return 2.0
    wait = Wait()
    compiled = genesis.compile(lambda x: x * wait.factor)
    assert compiled(ramp(2)).tolist() == [2.0, 4.0]
    thread.join(60)
    assert not thread.is_alive(), "it waits for what nobody gives it"
    assert results == [[-1.0, -2.0]]


def test_a_module_that_is_made_in_a_call_and_dies_there_refuses_nothing() -> None:
    """The interpreter takes its entry out of the weak dictionary of modules; nobody calls that."""
    def step(x: Any) -> Any:
        return genesis.nn.MSELoss()(x, x * 2)
    found, explanation, hits = run(step)
    assert found == [values(genesis.nn.functional.mse_loss(ramp(2, start=i), ramp(2, start=i) * 2)) for i in range(5)]
    assert hits == 4, explanation
