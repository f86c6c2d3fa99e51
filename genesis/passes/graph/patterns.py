"""Rules as data: what a program says in one form, in the form that a backend has a kernel for.

A backend lists the rules that it wants by name. They run before legalize, while composites still
have their names; where a rule does not fit, the node stays and is decomposed, and `genesis why`
prints the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from genesis.ir.graph import Graph, rewrite_nodes, substitute
from genesis.ir.node import Node, Op
from genesis.ir.ops import attention, convolution
from genesis.ir.ops.control import item
from genesis.ir.ops.flash_attention import (
    flash_attention,
    flash_attention_dkv,
    flash_attention_dq,
    gradient_of_scores,
)
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.reduction import sum
from genesis.ir.types import TensorType
from genesis.passes.gpu import Gpu
from genesis.passes.graph.channels_last import last, refuse_convolution, refuse_convolution_weight, weight_last
from genesis.passes.groups import MissedFusion

Results = tuple[Node, ...]


@dataclass(frozen=True)
class Pattern:
    """One rule.

    Attributes:
        op: what it replaces.
        reason: what it is good for.
        refuse: node → why it stays, None when it is replaced.
        build: node and the GPU it is for → its results in the new form.
    """

    op: Op
    reason: str
    refuse: Callable[[Node], str | None]
    build: Callable[[Node, Gpu], Results]


def apply_patterns(graph: Graph, rules: Sequence[str], gpu: Gpu | None) -> tuple[Graph, tuple[MissedFusion, ...]]:
    """Replace what the rules with these names fit; also returns where they did not, and why.

        before: %3: bf16[2,8,4] = sdpa(%0, %1, %2, …)    after: %3 = flash_attention(%0, %1, %2, …)
                                                                %4: bf16[2,8,4] = item(%3, index=0)
    """
    wanted = {PATTERNS[name].op: PATTERNS[name] for name in rules}
    if not any(node.op in wanted for node in graph.nodes):
        return graph, ()
    assert gpu is not None, "every rule is for a kernel of a GPU"
    results: dict[Node, Results] = {}
    missed: list[MissedFusion] = []

    def rule(node: Node) -> Node | None:
        if node.op is item:
            several = results.get(node.inputs[0])
            return None if several is None else several[node["index"]]
        pattern = wanted.get(node.op)
        if pattern is None:
            return None
        why = pattern.refuse(node)
        if why is not None:
            missed.append(MissedFusion(node.inputs[0], node, why))
            return None
        found = pattern.build(node, gpu)
        if type(node.type) is tuple:
            results[node] = found
            return None
        return found[0]

    return substitute(graph, rewrite_nodes(graph.nodes, rule)), tuple(missed)


# Attention

LARGEST_HEAD = 256
"""Maximum head size: a tile of larger queries and its sums do not fit a multiprocessor's shared memory."""


def flash_refusal(q: TensorType, v: TensorType, scale: float) -> str | None:
    """Why no kernel can run attention without a score matrix on such operands; None if one can."""
    if q.dtype.name not in ("float16", "bfloat16", "float32"):
        return f"{q.dtype.name} attention keeps its scores in memory: the kernel is for float16, bfloat16 and float32"
    if max(q.shape[-1], v.shape[-1]) > LARGEST_HEAD:
        return f"a head of {max(q.shape[-1], v.shape[-1])} elements is too large for one tile ({LARGEST_HEAD})"
    if not scale > 0:
        return f"the kernel takes the largest product for the largest score, so scale must be positive, not {scale}"
    if not q.numel or not v.numel:
        return "there is nothing to attend to"
    return None


def _refuse_sdpa(node: Node) -> str | None:
    q, _, v = node.inputs[:3]
    return flash_refusal(q.type, v.type, node["scale"])


def _refuse_sdpa_backward(node: Node) -> str | None:
    q, _, v = node.inputs[1:4]
    return flash_refusal(q.type, v.type, node["scale"])


def _flash(node: Node) -> Results:
    return (item(flash_attention(*node.inputs, **node.attributes), index=0),)


def _flash_backward(node: Node) -> Results:
    """The forward's node is the program's own, so its lse is computed once for both.

    The gradient of a mask that is added is as large as the scores: if anybody wants it, it is made in memory.
    """
    g, q, k, v, y, *mask = node.inputs
    lse = item(flash_attention(q, k, v, *mask, **node.attributes), index=1)
    delta = sum(upcast(g) * upcast(y), axes=(g.type.ndim - 1,))
    operands = (g, q, k, v, lse, delta, *mask)
    dkv = flash_attention_dkv(*operands, **node.attributes)
    results = (flash_attention_dq(*operands, **node.attributes), item(dkv, index=0), item(dkv, index=1))
    if len(node.types) == 3:
        return results
    return (*results, downcast(gradient_of_scores(*operands, **node.attributes)[1], mask[0]))


PATTERNS: dict[str, Pattern] = {
    "flash_attention": Pattern(attention.sdpa, "the scores never reach memory", _refuse_sdpa,
                               lambda node, gpu: _flash(node)),
    "flash_attention_backward": Pattern(attention.sdpa_backward, "probabilities are made again from the log-sum-exp",
                                        _refuse_sdpa_backward, lambda node, gpu: _flash_backward(node)),
    "convolution_last": Pattern(convolution.convolution, "a window's channels lie side by side", refuse_convolution,
                                lambda node, gpu: last(node)),
    "convolution_input_last": Pattern(convolution.convolution_input, "as the convolution", refuse_convolution,
                                      lambda node, gpu: last(node)),
    "convolution_weight_last": Pattern(
        convolution.convolution_weight, "as the convolution; many programs share the sum", refuse_convolution_weight,
        weight_last),
}
