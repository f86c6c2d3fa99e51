"""What equal structures have in common is worked out once."""

from __future__ import annotations

from typing import Any

import pytest

from genesis.codegen.cuda import emit as emitting
from genesis.codegen.cuda.emit import emit
from genesis.ir import Graph, Node
from genesis.ir.ops import movement
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.ops.contraction import matmul
from genesis.ir.size_trace import Trace
from genesis.passes import structural_memo as memo
from genesis.passes.fusion.fuse import fuse
from genesis.passes.fusion.operand_view import _operand_view, operand_view
from genesis.passes.groups import Group
from genesis.passes.structural_memo import group_structure, memoized, structure_below
from tests.codegen.cuda.programs import check, inputs


def layer(x: Node, w: Node) -> Node:
    """A softmax of a product of views."""
    turned = movement.permute(movement.reshape(x, shape=(8, 4)), axes=(1, 0))
    y = matmul(turned, w)
    e = p.exp(y - movement.expand(movement.reshape(r.max(y, axes=(1,)), shape=(4, 1)), shape=(4, 8)))
    return movement.reshape(e * 2.0, shape=(32,))


def model(layers: int) -> Graph:
    """Layers with a weight each."""
    x, *weights = inputs((32,), *[(8, 8)] * layers)
    y = x
    for w in weights:
        y = layer(y, w)
    return Graph((x, *weights), (y,))


def test_a_layer_is_emitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten layers of two kernels are the texts that five are: the first layer's, the last one's, and one in between."""
    emitted: list[Group] = []
    real = emitting.emit_anew

    def counted(group: Group, *more: Any):  # type: ignore[no-untyped-def]
        emitted.append(group)
        return real(group, *more)
    monkeypatch.setattr(emitting, "emit_anew", counted)
    counts = []
    for layers in (5, 10):
        monkeypatch.setattr(memo, "_closed", {})
        emitted.clear()
        assert len([emit(group) for group in fuse(model(layers)).groups]) == 2 * layers
        counts.append(len(emitted))
    assert counts == [5, 5]


def test_each_layer_has_its_own_arguments() -> None:
    schedule = fuse(model(4))
    for group in schedule.groups:
        named = {x for x in emit(group).args if isinstance(x, Node)}
        assert named == {*group.inputs, *group.outputs}


def test_a_rolled_program_means_the_same() -> None:
    graph = model(3)
    check(graph.inputs, *graph.outputs, tolerance=1e-4)


def test_structures() -> None:
    """Equal for the same function of the ends, in the order they are met; else not."""
    a, b, c = inputs((4,), (4,), (4,))
    ends = {a, b, c}
    one, (x, y) = structure_below(p.exp(a * 2.0) + b, ends)
    assert (x, y) == (a, b)
    assert structure_below(p.exp(b * 2.0) + c, ends) == (one, [b, c])
    assert structure_below(p.exp(b * 2.0) + b, ends)[0] != one   # one end, read twice
    assert structure_below(p.exp(b * 3.0) + c, ends)[0] != one
    assert structure_below(p.sin(b * 2.0) + c, ends)[0] != one
    wide, = inputs((4, 1))
    assert structure_below(p.exp(wide * 2.0) + wide, {wide})[0] != one


def test_a_group_that_reads_something_else_has_no_structure() -> None:
    a, b = inputs((4,), (4,))
    y = p.exp(a)
    assert group_structure([y, y + b], {a: 0}) is None
    assert group_structure([y, y + b], {a: 0, b: 1}) is not None


@pytest.mark.parametrize("view", [
    lambda x: x,
    lambda x: movement.permute(x, axes=(1, 0)),
    lambda x: movement.reshape(movement.permute(movement.reshape(x, shape=(2, 6, 4)), axes=(1, 0, 2)), shape=(12, 4)),
    lambda x: movement.slice(x, starts=(2, 0), stops=(10, 4), steps=(2, 1)),
    lambda x: movement.pad(movement.permute(x, axes=(1, 0)), low=(0, 1), high=(0, 0), value=0.0),
])
def test_an_operand_is_read_where_it_lies(view) -> None:  # type: ignore[no-untyped-def]
    """Twice, of two tensors: the answer that is kept is the one that would be worked out."""
    for x in inputs((12, 4), (12, 4)):
        assert operand_view(view(x)) == _operand_view(view(x), ())


def test_answers_are_kept_for_the_sizes_that_are_open() -> None:
    """Asking a size something is noted by the trace: another trace has to ask again."""
    asked: list[int] = []
    with Trace(B=8):
        assert memoized("question", lambda: asked.append(1) or 1) == memoized("question", lambda: 2) == 1
    with Trace(B=16):
        assert memoized("question", lambda: 3) == 3
    assert asked == [1]
