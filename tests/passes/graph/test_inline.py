"""inline: calls of compiled functions become their graphs."""

from __future__ import annotations

from genesis.ir.parser import parse
from genesis.passes.graph.inline import inline
from tests.passes.texts import assert_text

SQUARE = "graph(%a: f32[4]) { %b: f32[4] = mul(%a, %a) return %b }"


def test_a_call_becomes_its_graph() -> None:
    assert_text(
        inline(parse(f"graph(%x: f32[4]) {{ %c: (f32[4],) = call(%x, graph={SQUARE}) %y: f32[4] = item(%c, index=0) "
                     "%z: f32[4] = exp(%y) return %z }")),
        "graph(%x: f32[4]) { %y: f32[4] = mul(%x, %x) %z: f32[4] = exp(%y) return %z }")


def test_numbers_follow_the_inputs() -> None:
    """The body's scalar 0 is the call's operand after its two tensors, here the caller's scalar 1."""
    body = ("graph(%a: f32[4], %b: f32[4]; 1 number) { %n: f64~[] = scalar(index=0) %c: f32[4] = mul(%b, %n) "
            "%d: f32[4] = add(%a, %c) return %d, %c }")
    assert_text(
        inline(parse(f"graph(%x: f32[4]; 2 numbers) {{ %n: f64~[] = scalar(index=1) %r: (f32[4],f32[4]) = call(%x, %x, "
                     f"%n, graph={body}) %y: f32[4] = item(%r, index=1) %z: f32[4] = item(%r, index=0) "
                     "return %y, %z }")),
        "graph(%x: f32[4]; 2 numbers) { %n: f64~[] = scalar(index=1) %c: f32[4] = mul(%x, %n) "
        "%d: f32[4] = add(%x, %c) return %c, %d }")


def test_calls_inside_calls_and_calls_of_calls() -> None:
    inner = f"graph(%a: f32[4]) {{ %c: (f32[4],) = call(%a, graph={SQUARE}) %b: f32[4] = item(%c, index=0) return %b }}"
    assert_text(
        inline(parse(f"graph(%x: f32[4]) {{ %c: (f32[4],) = call(%x, graph={inner}) %y: f32[4] = item(%c, index=0) "
                     f"%d: (f32[4],) = call(%y, graph={SQUARE}) %z: f32[4] = item(%d, index=0) return %z }}")),
        "graph(%x: f32[4]) { %y: f32[4] = mul(%x, %x) %z: f32[4] = mul(%y, %y) return %z }")


def test_results_that_are_operands_or_unused() -> None:
    body = "graph(%a: f32[4], %b: f32[2]) { %c: f32[4] = exp(%a) return %b, %c, %b }"
    assert_text(
        inline(parse(f"graph(%x: f32[4], %y: f32[2]) {{ %c: (f32[2],f32[4],f32[2]) = call(%x, %y, graph={body}) "
                     "%z: f32[2] = item(%c, index=2) return %z }")),
        "graph(%x: f32[4], %y: f32[2]) { return %y }")


def test_updates_of_the_caller_see_through_the_call() -> None:
    assert_text(
        inline(parse(f"graph(%x: f32[4]) {{ %c: (f32[4],) = call(%x, graph={SQUARE}) %y: f32[4] = item(%c, index=0) "
                     "update %x = %y return }")),
        "graph(%x: f32[4]) { %y: f32[4] = mul(%x, %x) update %x = %y return }")


def test_a_program_without_calls_is_left_alone() -> None:
    graph = parse("graph(%t: f32[2,3]) { %b: (f32[2,3],) = layer_norm_backward(%t, %t, ndim=1, eps=1e-05) "
                  "%c: f32[2,3] = item(%b, index=0) return %c }")
    assert inline(graph) is graph


def test_calls_nested_a_hundred_deep() -> None:
    text = "%b: f32[4] = exp(%a) return %b"
    for _ in range(100):
        text = (f"%c: (f32[4],) = call(%a, graph=graph(%a: f32[4]) {{ {text} }}) %b: f32[4] = item(%c, index=0) "
                "return %b")
    assert_text(inline(parse(f"graph(%a: f32[4]) {{ {text} }}")),
                "graph(%a: f32[4]) { %b: f32[4] = exp(%a) return %b }")
