"""The registry drives this test: every op on a batch gives what it gives on each example.

Each operand alone is the batch's, then all are: an operand that is shared takes another way through most rules.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from genesis.func.batching import Batch
from genesis.ir import Node
from genesis.ir.node import OPS
from genesis.ir.ops import control
from genesis.ir.ops.samples import Case, Literal
from genesis.ir.types import DType, float32
from tests.evaluate import evaluate
from tests.ops.test_registry import CONTROL, LEAVES, LINALG, RANDOM, THROUGH_FORWARD, build, dtypes, leaf, rng

COUNTED = {"nonzero": "how many there are is an attribute", "compress": "how many there are is an attribute"}
INTERNAL = {"sort_runs", "merge_runs", "digit_counts", "digit_scatter", "digit_elements", "segment_parts",
            "segment_add", "segment_put", "row_put", "lines_added", "lines_summed", "exact_sums",
            "taken_in_rows", "rows_added", "row_number", "reduce_splits",
            "flash_attention", "flash_attention_dq", "flash_attention_dkv",
            "convolution_last", "convolution_input_last", "convolution_weight_last",
            "recompute", "adamw", "sgd",
            "adagrad", "adadelta", "rmsprop", "rprop", "asgd", "adamax", "nadam", "radam", "amsgrad", "norm_parts",
            "total_norm",
            "clip_by_norm", "clip_by_value", "bincount"}
"""Made by passes, or of whole programs: no function of a user's records them."""

TESTED = [name for name, op in OPS.items()
          if name not in LEAVES | CONTROL | RANDOM | THROUGH_FORWARD | LINALG | INTERNAL | COUNTED.keys()
          and op.samples is not None]
SIZE = 2


def examples(case: Case, dtype: DType, seed: Any) -> list[list[Any]]:
    """The operands' values of each example."""
    return [list(build(case, dtype, "contiguous", (seed, i)).values) for i in range(SIZE)]


def results(node: Node) -> list[Node]:
    """An op's results."""
    return [node] if type(node.type) is not tuple else [control.item(node, index=i) for i in range(len(node.type))]


def ways(case: Case) -> list[set[int]]:
    """Which operands are the batch's."""
    tensors = [i for i, x in enumerate(case.operands) if not isinstance(x, Literal)]
    return [set(tensors), *([{i} for i in tensors] if len(tensors) > 1 else [])]


@pytest.mark.parametrize("name", TESTED)
def test_an_op_on_a_batch_gives_what_it_gives_on_each_example(name: str) -> None:
    op = OPS[name]
    dtype = float32 if float32 in dtypes(op) else dtypes(op)[0]
    for position, case in enumerate(op.samples.cases):
        values = examples(case, dtype, (name, position))
        literals = build(case, dtype, "contiguous", 0).operands
        for mapped in ways(case):
            compare(op, case, values, literals, mapped)


def compare(op: Any, case: Case, values: list[list[Any]], literals: Any, mapped: set[int]) -> None:
    """The rewritten op beside the op on each example; what is not mapped is the first example's."""
    batch, feeds, operands = Batch(SIZE, "error"), {}, []
    for i, spec in enumerate(case.operands):
        if isinstance(spec, Literal):
            operands.append(literals[i])
            continue
        value = np.stack([row[i] for row in values]) if i in mapped else values[0][i]
        node = leaf(i, value.shape, literals[i].type.dtype)
        feeds[node] = value
        operands.append(batch.stand_in(node) if i in mapped else node)
    got = evaluate(batch.all_of(results(op(*operands, **case.attributes))), feeds)
    for e in range(SIZE):
        own, nodes = {}, []
        for i, spec in enumerate(case.operands):
            if isinstance(spec, Literal):
                nodes.append(literals[i])
                continue
            value = values[e if i in mapped else 0][i]
            nodes.append(leaf(i, value.shape, literals[i].type.dtype))
            own[nodes[-1]] = value
        want = evaluate(results(op(*nodes, **case.attributes)), own)
        for x, y in zip(got, want, strict=True):
            np.testing.assert_allclose(x[e], y, 2e-4, 2e-5 * max(op.samples.scale, 1),
                                       err_msg=f"{op.name}, operands {mapped} of the batch")


def test_operands_differ_between_examples() -> None:
    """Otherwise the test above would pass with the first example's operands for all."""
    case = OPS["add"].samples.cases[0]
    first, second = examples(case, float32, 0)
    assert not np.array_equal(first[0], second[0])
    assert rng(0).random() == rng(0).random()
