"""What code does with a name, and where a value goes that a call gives: read off bytecode, which varies by Python."""

from __future__ import annotations

import dis
import types
from typing import Any

import pytest

from genesis.tracing.updates import (
    only_appended,
    only_appended_in,
    only_counted,
    only_counted_in,
    only_stored,
    only_stored_in,
)
from genesis.tracing.value_walk import way_out
from genesis.tracing.walk_state import Answer, Method


def code_of(source: str) -> types.CodeType:
    space: dict[str, Any] = {}
    exec(source, space)
    found: types.CodeType = space["f"].__code__
    return found


def leaves(source: str) -> bool:
    """Whether each value that `x.item()` gives in f only leaves it."""
    code = code_of(source)
    steps = list(dis.get_instructions(code))
    calls = [next(later.offset for later in steps[at:] if later.opname.startswith("CALL"))
             for at, step in enumerate(steps) if step.argval == "item"]
    assert calls
    return all(way_out(code, offset) is not None for offset in calls)


@pytest.mark.parametrize("body", [
    "return x.item()", "v = x.item()\n return v", "return {'a': x.item(), 'b': [y.item()]}, x",
    "with x:\n  return x.item()", "if y:\n  v = x.item()\n else:\n  v = 0\n return v", "y.losses.append(x.item())",
    "y.last = x.item()", "v = x.item()\n y.n += 1\n return v, x", "LOSSES.append(x.item())\n return x",
    "v = x.item()\n y.losses.append(v)\n y.last = v\n return v", "y.last = x.item()\n return x.shown, y",
    "v = x.item()\n return v + 1", "return -x.item() / 3", "y.total += x.item()",
    "y.total += x.item()\n return y.total",
    "for r in x:\n  v = r.item()\n return v", "y.last = x.item()\n return y.last", "return round(x.item(), 3)",
    "t = 0.0\n for r in x:\n  t += r.item() * 2\n  g(r)\n return t / 3", "return abs(x.item())",
    "return {k: v.item() for k, v in x} | {'n': y.item()}", "y['a'].append(x.item())",
    "y['a'].append(x.item())\n y['b'].append(x.item())", "y['a'] = x.item()\n y['b'] = x.item()",
    "l = []\n for r in x:\n  l.append(r.item())\n  g(r)\n return l", "y.l.append(x.item())\n return x.item()",
    "with y:\n  t = x.item()\n return t", "try:\n  t = x.item()\n finally:\n  g()\n return t",
    "y.update(x.item(), 3)", "y.l.append((y.n, x.item()))\n y.n += 1", "y.eval()\n return x.item()",
])
def test_a_value_that_only_leaves(body: str) -> None:
    assert leaves(f"def f(x, y):\n {body}")


@pytest.mark.parametrize("body", [
    "return f'{x.item():.3f}'", "return f'{x.item()}'", "if x.item() > 3: return x",
    "y.l.append(x.item())\n return y.l[-1]", "v = x.item()\n return (v for _ in x)",
    "yield x.item()", "v = x.item()\n return lambda: v",
    "y.last = x.item()\n z = y\n return z.last", "l = y.l = []\n l.append(x.item())\n return l[0]",
    "for r in x:\n  y.l.append(r.item())\n  g(r)",
    "y['a'] = x.item()\n return y['a'] > 3", "y['a'] = x.item()\n return y[y.k]",
    "try:\n  t = x.item()\n  g()\n except ValueError:\n  return t > 3\n return t",
    "y.last = x.item()\n return y.g(3)[0]",
    "t = x.item()\n while t > 3:\n  t -= 1\n return t", "y.l += [x.item()]", "t = x.item()\n return t if t else 3",
    "y.l.append(x.item())\n for r in y.l: g(r)", "return 3 % x.item()", "y.l.append(x.item())\n return y.k[y.l]",
    "return x.item() or 3", "y[x.item()] = 1", "return {x.item(): 1}", "return [*x.item()]",
    "v = x.item()\n return locals()", "global LAST\n y.last = x.item()\n LAST = x", "y.last = x.item()\n g().n = 3",
    "y.n += 1\n y.l.append(x.item())\n y.n += 1", "y['n'] = 0\n y['l'] = x.item()\n y['n'] += 1",
    "y.l.append(0)\n y.l.append(x.item())", "y.last = x.item()\n del y.other", "y.last = x.item()\n y[0:2] = x",
    "y.last = x.item()\n return g().n", "y[x] = 0\n y['l'] = x.item()",
])
def test_a_value_that_something_may_look_at(body: str) -> None:
    assert not leaves(f"def f(x, y):\n {body}")


def way_from(source: str, name: str, **given: Any) -> Any:
    """The way out of what the first call of this name gives."""
    code = code_of(source)
    steps = list(dis.get_instructions(code))
    called = next(i for i, step in enumerate(steps) if step.argval == name)
    return way_out(code, next(x.offset for x in steps[called:] if x.opname.startswith("CALL")), **given)


@pytest.mark.parametrize(("body", "leaves"), [
    ("return g(x)", True), ("v = g(x)\n return v, x", True), ("g(x)\n h(x)[0] = 3", False),
    ("g(x)\n return y.last", False), ("g(x)\n return y['a']", False), ("g(x)\n return x.shown", True),
    ("g(x)\n with y: return 3", False),
])
def test_where_what_is_called_has_kept_the_value_nobody_looks(body: str, leaves: bool) -> None:
    source = f"def f(x, y):\n {body}"
    assert (way_from(source, "g", kind=None, there=True, hidden=frozenset(["last"])) is not None) == leaves


@pytest.mark.parametrize(("body", "put", "stored"), [
    ("y.last = x.item()\n y.flag = True", [], [(("y",), "last"), (("y",), "flag")]),
    ("y.flag = True\n y.last = x.item()", [], [(("y",), "last")]),
    ("y.l.append(x.item())\n y.d['n'] += 1\n y.k.append(3)",
     [(("y", "l"), None), (("y", "d"), "n")], []),  # whoever admits the call of `y.k.append` notes that
    ("y.d['n'] += 1\n y.d['l'] = x.item()", [(("y", "d"), "l")], []),
    ("y.n += 1\n y.l.append(x.item())\n y.d[3] = x", [(("y", "l"), None), (("y", "d"), None)], []),
])
def test_what_is_kept_after_the_value_is_put_there_along_with_it(body: str, put: list[Any], stored: list[Any]) -> None:
    way = way_from(f"def f(x, y):\n {body}", "item")
    assert (set(way.put), set(way.stored)) == (set(put), set(stored))


@pytest.mark.parametrize(("body", "name", "expected"), [
    ("y.last = x.item()\n return y.shown", "looked_up", [("y", "shown")]),
    ("y.last = x.item()\n y.n += 1\n y.d['n'] += 2", "fixed", [("y", "n"), ("y", "d", ("n",))]),
    ("y.last = x.item()\n return -y.n", "plain", [("y", "n")]),
    ("y.last = x.item()\n n = x.shape[0]\n y.n += n", "plain", [("y", "n"), Answer(Method(("x",), "size"))]),
    ("y.last = x.item()\n a, b = x.max(1)\n y.n = -b", "plain", [Answer(Method(("x",), "max"))]),
    ("y.last = x.item()\n n = x.sum()\n n += 1", "plain", None),  # it may be a view of what others have
])
def test_what_has_to_be_asked_when_the_call_runs(body: str, name: str, expected: list[Any]) -> None:
    way = way_from(f"def f(x, y):\n {body}", "item")
    assert (way if expected is None else set(getattr(way, name))) == (None if expected is None else set(expected))


@pytest.mark.parametrize(("body", "counted"), [
    ("s.n += 1", True), ("s.n = s.n + 1", True), ("global n\n n += 2", True), ("for i in s: s.n -= 3", True),
    ("s.n += 1; return s.n", False), ("s.n = t.n + 1", False), ("s.n *= 2", False), ("s.n += s.n", False),
    ("s.n += 1.5", False), ("x = s.n + 1", False), ("del s.n", False), ("pass", False),
])
def test_a_counter_that_nobody_reads(body: str, counted: bool) -> None:
    assert only_counted("n", [code_of(f"def f(s, t):\n {body}")]) == counted


@pytest.mark.parametrize(("does", "body", "expected"), [
    (only_appended, "s.l.append(1)", True), (only_appended, "s.l.append(1); return len(s.l)", False),
    (only_appended, "s.l = []", False), (only_appended, "l = s.l", False),
    (only_stored, "s.l = 3", True), (only_stored, "s.l = s.l", False), (only_stored, "return s.l", False),
])
def test_what_is_only_written(does: Any, body: str, expected: bool) -> None:
    assert does("l", [code_of(f"def f(s):\n {body}")]) == expected


@pytest.mark.parametrize(("body", "expected"), [
    ("s.d['k'].append(1)", True), ("s.d['k'].append(1)\n s.d['j'] = g(s.d['j'])\n s.d['n'] += 1", True),
    ("s.d['k'].append(1)\n del s.d['j']", True), ("s.d['k'].append(1)\n return s.d['k'][-1]", False),
    ("s.d['k'].append(1)\n return s.d['l']", False), ("s.d['k'].append(1)\n s.d['l'] = []", False),
    ("s.d['k'].append(1)\n return s.d", False), ("s.d['k'].append(1)\n return s.d[s]", False),
    ("s.d['k'].append(1)\n s.d[3] = 3", False),
])
def test_a_list_of_a_dictionary_that_has_other_items(body: str, expected: bool) -> None:
    """The list is under both "k" and "l"."""
    assert only_appended_in("d", [code_of(f"def f(s):\n {body}")], {"k", "l"}) == expected


@pytest.mark.parametrize(("does", "body", "expected"), [
    (only_counted_in, "s.d['k'] += 1", True), (only_counted_in, "s.d['j'] += 1", False),
    (only_counted_in, "s.d['k'] += 1; return s.d", False), (only_stored_in, "s.d['k'] = 3", True),
    (only_stored_in, "s.d['k'] = s.d", False), (only_stored_in, "s.d[s] = 3", False),
])
def test_an_item_that_is_only_written(does: Any, body: str, expected: bool) -> None:
    assert does("d", "k", [code_of(f"def f(s):\n {body}")]) == expected
