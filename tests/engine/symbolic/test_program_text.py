"""The text of a program over symbols: read for some sizes, it is the program that is captured of these sizes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import genesis
import genesis.nn.functional as F
from genesis import nn
from genesis.engine import plans
from genesis.engine.capture import Captured, build_graph, capture
from genesis.engine.symbolic.plan_template import PlanTemplate
from genesis.engine.symbolic.program_text import PARTS, read_program, write_program
from genesis.engine.symbolic.shape_erased import Member, ShapeErased
from genesis.engine.symbolic.shape_erased_key import NotWritable, shape_erased_key
from genesis.engine.symbolic.stored_template import template_as_json
from genesis.ir.printer import print_graph
from genesis.ir.size_trace import tracing
from genesis.ir.types import Device
from tests.engine.symbolic.idle import counting
from tests.sweeping import each_value


@dataclass
class Program:
    """A program that was compiled: what is known of it before it runs, as its nodes are in memory afterwards.

    Attributes:
        text, plain: over symbols, and over the numbers that it was captured with.
        erased: its shape-erased key, as text, and its graph.
    """

    template: PlanTemplate
    member: Member
    text: Any
    plain: Any
    erased: str
    numbers: list[int]
    graph: str


Seen = list[Program]


def described(captured: Captured) -> tuple[str, list[int], str]:
    """Shape-erased key, numbers and graph."""
    erased, numbers = shape_erased_key(captured.key)
    return repr(erased), numbers, print_graph(build_graph(captured))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    """The programs that are compiled on an idle GPU, with their templates."""
    found: Seen = []
    make = plans._template

    def noting(captured: Captured, *rest: Any) -> PlanTemplate:
        template = make(captured, *rest)
        guards = dict(template.trace.guards)
        text, plain = (json.loads(json.dumps(write_program(captured, key))) for key in (template.key, captured.key))
        assert template.trace.guards == guards and tracing() is None, "writing a text asks sizes nothing"
        found.append(Program(template, rest[-1], text, plain, *described(captured)))
        return template
    monkeypatch.setattr(plans, "_template", noting)
    with counting():
        yield found


def on_gpu(*shape: int, dtype: Any = None) -> Any:
    x = genesis.zeros(*shape, dtype=dtype).cuda()
    genesis.eval(x)
    return x


def attention(n: int) -> None:
    x = on_gpu(3, n, 8)
    genesis.eval(F.softmax(x @ x.transpose(1, 2) * 0.5, -1) @ x)


def gpt_step(n: int) -> None:
    genesis.manual_seed(0)
    embed, block, head = model = nn.ModuleList(
        [nn.Embedding(32, 16), nn.TransformerEncoderLayer(16, 2, 32), nn.Linear(16, 32)]).cuda()
    optimizer = genesis.optim.AdamW(model.parameters(), lr=0.1)
    tokens = on_gpu(2, n, dtype=genesis.int64)
    loss = F.cross_entropy(head(block(embed(tokens))).view(-1, 32), tokens.view(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def images(n: int) -> None:
    genesis.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)).to("cuda")
    loss = model(on_gpu(4, 3, n, n)).square().mean()
    loss.backward()
    genesis.eval(loss, *[p.grad for p in model.parameters()])


def cached(n: int) -> None:
    """Its place moves, and how much of it is read."""
    ring, k = on_gpu(1, 2, 700, 8), on_gpu(1, 2, 1, 8)
    ring[:, :, n:n + 1] = k * 2
    genesis.eval(ring, F.scaled_dot_product_attention(k, ring[:, :, :n + 1], ring[:, :, :n + 1]))


def numbers(n: int) -> None:
    """Those that JSON has odd words for, the user's, and random ones."""
    x, scale = on_gpu(n, 5), 0.5 + n * 0
    y = F.pad((x * scale + -0.0).clamp(-1e30, float("inf")), (1, 2), value=-0.0).cumsum(0)
    genesis.eval(y, x.sort(0).values, genesis.randn(n, 3, device="cuda"))


def checkpointed(n: int) -> None:
    layer = nn.Linear(8, 8).cuda()
    x = on_gpu(n, 8)
    y = genesis.utils.checkpoint.checkpoint(lambda x: F.gelu(layer(x)), x, use_reentrant=False).sum()
    y.backward()
    genesis.eval(y, layer.weight.grad)


PROGRAMS = [attention, gpt_step, images, cached, numbers, checkpointed]


@each_value
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("other", [101, 77, 250, 40])
def test_read_for_other_sizes_it_is_what_these_capture(seen: Seen, program: Callable[[int], None], other: int) -> None:
    """Key and graph: the same ops, attributes, types, and lines of the user's."""
    program(99)
    before = seen.copy()
    genesis.engine.reset()
    del seen[:]
    program(other)
    later = {known.erased: known for known in seen}
    compared = 0
    for known in before:
        text, own = read_program(known.text), (known.erased, known.numbers, known.graph)
        assert described(text.at(known.template.made_for)) == own
        assert described(read_program(known.plain).at({})) == own
        there = later.get(known.erased)
        if there is not None:
            sizes = known.template.form.sizes(there.numbers)
            assert described(text.at(sizes)) == (there.erased, there.numbers, there.graph)
            compared += 1
    assert compared, "no program of one size is one of the other"


def by_formulas(template: dict[str, Any]) -> Any:
    """A template with formulas in the places of their numbers: those that guards alone have are counted there."""
    values = template["form"].pop("values")

    def formula(number: Any) -> Any:
        kind, a, b = values[number] if number.__class__ is int else ("number", number, None)
        if kind in ("symbol", "number"):
            return a
        if kind == "+":
            return ["+", a, sorted(([k, *map(formula, factors)] for k, *factors in b), key=str)]
        return [kind, formula(a), formula(b)]

    def written(x: Any) -> Any:
        if isinstance(x, list):
            return formula(x[1]) if len(x) == 2 and x[0] == "$" else [written(y) for y in x]
        return {name: written(y) for name, y in x.items()} if isinstance(x, dict) else x
    return written(template)


@each_value
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("other", [101, 104, 250, 40])
def test_its_template_is_the_one_that_is_made_when_such_a_size_occurs(seen: Seen, program: Callable[[int], None],
                                                                      other: int) -> None:
    """What is compiled in the background has the kernels, formulas, guards and memory of what is compiled in the
    foreground: each of their texts."""
    program(99)
    before = [(known, known.member._shape_erased.history(), known.erased) for known in seen]
    del seen[:]
    program(other)
    foreground = {known.erased: known for known in seen}
    compared = 0
    for known, history, erased in before:
        there = foreground.get(erased)
        if there is not None:
            captured = read_program(known.text).at(known.template.form.sizes(there.numbers))
            key, numbers = shape_erased_key(captured.key)
            member = ShapeErased.of_history(*history).member(captured, set(known.member.fixed), numbers)
            made = plans._template(captured, Device("cuda"), key, member)
            one, two = (template_as_json(template.filling) for template in (made, there.template))
            guards, expected = one["form"].pop("guards"), two["form"].pop("guards")
            assert by_formulas(one) == by_formulas(two)
            # Which of two sizes a pass asks for first may differ from compile to compile: a < b, or b >= a.
            assert len(guards) == len(expected) and made.form.guarded(
                made.form.evaluate(made.form.sizes(there.numbers)))
            assert [kernel.source for kernel in made.form.kernels] == [
                kernel.source for kernel in there.template.form.kernels]
            compared += 1
    assert compared or (other == 101 and program is cached), "no program is compiled for the other size"


def test_what_is_no_text_is_refused(seen: Seen) -> None:
    attention(99)
    text = seen[-1].text
    for part in PARTS:
        with pytest.raises(ValueError, match="no text of a program"):
            read_program({**text, part: None})
    with pytest.raises(ValueError, match="another version"):
        read_program({**text, "format": 0})


def test_a_program_of_values_in_several_nodes_has_no_text() -> None:
    x = genesis.ones(3)
    genesis.eval(x)
    captured = capture([(x * 2).storage.node])
    captured.twins = {captured.order[0]: captured.order[1]}
    with pytest.raises(NotWritable, match="share a memory"):
        write_program(captured, captured.key)
