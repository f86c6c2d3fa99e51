"""An op is one entry: what a pointwise op's row states is what tensors, autocast and plans do, and no row is silent."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import genesis
from genesis.codegen.cpu.lowerings import LOWERINGS
from genesis.codegen.cuda.lowerings import POINTWISE as CUDA
from genesis.ir import OPS, Node, literal, tensor_type
from genesis.ir.node import Op
from genesis.ir.numbers import fold_numbers
from genesis.ir.ops.entry import pointwise
from genesis.ir.ops.samples import Literal
from genesis.ir.types import float32, int64
from genesis.passes.fusion.materialize import weight

ENTRIES = {name: op for name, op in OPS.items() if op.kind == "pointwise"}
STATED = {"weight": 1, "number": None, "rounds": False, "autocast": None, "in_place": False}


@pytest.mark.parametrize("field", STATED)
def test_a_row_that_leaves_a_field_out_is_no_row(field: str) -> None:
    fields = {name: value for name, value in STATED.items() if name != field}
    with pytest.raises(TypeError, match=field):
        pointwise("unfinished", lambda x: x, **fields)  # type: ignore[arg-type]
    assert "unfinished" not in OPS


def test_an_op_that_states_nothing_is_no_pointwise_op() -> None:
    with pytest.raises(TypeError, match=r"ir/ops/entry\.py"):
        Op("silent", "pointwise", lambda x: x)


@pytest.mark.parametrize("name", [n for n, op in ENTRIES.items() if op.decompose and n not in CUDA and n != "in_range"])
def test_a_decomposed_op_weighs_as_much_as_its_parts(name: str) -> None:
    """in_range is once for each index, not for each element, and weighs what keeps it out of inner loops."""
    x = _sample(ENTRIES[name])
    parts = _parts(x.op.decompose(*x.inputs, **x.attributes), set(x.inputs), set())  # type: ignore[misc]
    own = {"silu": 8, "gelu": 12}  # what their kernels take: both halves share x
    assert ENTRIES[name].weight == own.get(name, parts)


def _sample(op: Op) -> Node:
    case = op.samples.cases[0]
    kind = float32 if "float" in op.samples.kinds else int64
    operands = [literal(0.5) if isinstance(spec, Literal) else OPS["input"](index=i, type=tensor_type((3, 4), kind))
                for i, spec in enumerate(case.operands)]
    return op(*operands, **case.attributes)


def _parts(node: Node, given: set[Node], seen: set[Node]) -> int:
    if node in given or node in seen:
        return 0
    seen.add(node)
    if node.op.decompose is not None and node.op.name not in CUDA and node.op.kind == "pointwise":
        return _parts(node.op.decompose(*node.inputs, **node.attributes), given, seen)
    return weight(node) + sum(_parts(x, given, seen) for x in node.inputs if not node.type.weak)


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.kind == "linalg" and name != "pivots_to_rows"])
def test_a_decomposition_says_whether_a_matrix_may_have_none(name: str) -> None:
    """By what its call does with matrices that are singular, not positive definite, or not finite."""
    call, names = LOWERINGS[name].function, OPS[name].attrs
    attributes = {"upper": True, "unitriangular": False, "full_matrices": True, "complete": True, "rtol": -1.0,
                  "hermitian": False, "checked": True}
    raised = set()
    for matrix in (torch.zeros(3, 3), -torch.eye(3), torch.full((3, 3), float("nan"))):
        try:
            call(matrix, *[matrix] * ("solve" in name), **{each: attributes[each] for each in names})
        except Exception as error:
            raised.add(type(error))
    assert bool(raised) is bool(OPS[name].raises)
    assert all(issubclass(error, OPS[name].raises) for error in raised)


@pytest.mark.parametrize("name", ENTRIES)
def test_a_row_says_whether_tensors_have_the_op_in_place(name: str) -> None:
    assert hasattr(genesis.Tensor, f"{name}_") is ENTRIES[name].in_place


@pytest.mark.parametrize("name", [n for n, op in ENTRIES.items() if op.number is None])
def test_what_has_no_rule_for_numbers_is_not_folded(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} is computed on tensors only"):
        fold_numbers(ENTRIES[name], 0.5)


@pytest.mark.parametrize("name", [n for n, op in ENTRIES.items() if op.number and op.samples.kinds != ("int",)
                                  and all(not c.attributes for c in op.samples.cases)])
def test_where_python_raises_numbers_follow_ieee(name: str) -> None:
    """Extreme numbers give a number, never an OverflowError or ValueError; integers may have no quotient."""
    arity = len(ENTRIES[name].samples.cases[0].operands)
    for x in (1e308, -1e308, 0.0, -2.5, float("inf"), float("-inf"), float("nan")):
        if "float" in ENTRIES[name].samples.kinds:
            assert isinstance(fold_numbers(ENTRIES[name], *[x] * arity), (bool, int, float))


@pytest.mark.parametrize("name", [n for n, op in ENTRIES.items() if op.autocast == "float32" and hasattr(genesis, n)])
def test_a_row_in_float32_is_computed_there_under_autocast(name: str) -> None:
    x = genesis.full((3,), 0.5, dtype=genesis.bfloat16)
    operands: list[Any] = [x] * len(ENTRIES[name].samples.cases[0].operands)
    with genesis.autocast("cpu"):
        assert getattr(genesis, name)(*operands).dtype is genesis.float32
    assert getattr(genesis, name)(*operands).dtype is genesis.bfloat16


@pytest.mark.parametrize("name", [n for n, op in ENTRIES.items() if op.decompose is None])
def test_what_has_no_decomposition_has_a_line_in_each_lowering_table(name: str) -> None:
    assert name in LOWERINGS
    assert name in CUDA or name in ("cast", "bitcast"), "these two are conversions of the emitter's own"


def test_what_rounds_has_a_low_precision_form_on_cuda() -> None:
    assert [name for name, op in ENTRIES.items() if op.rounds and name != "cast" and not CUDA[name]["low"]] == []
