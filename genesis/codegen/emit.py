"""Group → kernel text: which emitter serves which kind of group."""

from __future__ import annotations

from collections.abc import Callable

from genesis.codegen.loops import emit_foreach, emit_loop
from genesis.codegen.source import KernelSource
from genesis.codegen.templates.attention import emit_attention
from genesis.codegen.templates.attention_backward import emit_attention_backward
from genesis.codegen.templates.matmul import emit_matmul
from genesis.codegen.templates.scan import emit_scan
from genesis.codegen.templates.scatter import emit_scatter
from genesis.passes.groups import Group


def emit(group: Group) -> KernelSource:
    """The kernel that computes a group. Needs no GPU and no places."""
    return _EMITTERS[group.kind](group)


_EMITTERS: dict[str, Callable[[Group], KernelSource]] = {
    "loop": emit_loop,
    "foreach": emit_foreach,
    "matmul": emit_matmul,
    "attention": emit_attention,
    "attention_backward": emit_attention_backward,
    "scan": emit_scan,
    "scatter": emit_scatter,
}
