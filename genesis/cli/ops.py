"""Print what an op means: its operands, dtypes, gradient and decomposition, and how each backend runs it.

    genesis ops                   one line an op
    genesis ops softmax           one op's contract, with its gradient and decomposition as programs
    genesis ops --device cuda     how CUDA runs each op, and what goes through the host
    genesis ops --markdown        the table of docs/ops.md
"""

from __future__ import annotations

import argparse
import difflib
import sys

from genesis.cli import contract as c

HELP = "print what an op means and how each backend runs it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("name", nargs="?", help="an op, as the IR's text calls it")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="how this backend runs each op")
    parser.add_argument("--markdown", action="store_true", help="print docs/ops.md")


def run(arguments: argparse.Namespace) -> int:
    """Print. 0: printed; 2: there is no such op."""
    names = c.names()
    if arguments.name is not None and arguments.name not in names:
        near = difflib.get_close_matches(arguments.name, names)
        print(f"genesis ops: there is no op {arguments.name!r}" + (f"; near: {', '.join(near)}" if near else ""),
              file=sys.stderr)
        return 2
    if arguments.markdown:
        print(markdown(), end="")
    elif arguments.name is not None:
        print(one(arguments.name))
    else:
        print("\n".join(on_device(arguments.device) if arguments.device else everything()))
    return 0


def everything() -> list[str]:
    """A line for each op."""
    return [f"{name:24} {c.OPS[name].doc}" for name in c.names()]


def on_device(device: str) -> list[str]:
    """A line for each op: how the backend runs it; for CUDA, what goes through the host comes last."""
    lines = [f"{name:24} {getattr(c.contract(name), device)}" for name in c.names()]
    if device == "cuda":
        host = c.through_the_host()
        lines += ["", "through the host: " + (", ".join(host) if host else "no op"),
                  "read by functions whose result's shape depends on values: " + ", ".join(c.READ_BY_SHAPE)]
    return lines


def one(name: str) -> str:
    """All of an op's contract."""
    found = c.contract(name)
    op = found.op
    lines = [f"{name}: {op.doc}", "",
             f"kind            {op.kind}" + (", operands may be swapped" if op.commutative else ""),
             f"dtypes          {found.dtypes or 'given by its attributes'}",
             f"for example     {found.example or 'no sample'}",
             f"attributes      {found.attributes or 'none'}",
             f"accuracy        within {op.ulp:g} eps of the exact result",
             f"gradient        {found.gradient}",
             f"on the CPU      {found.cpu}",
             f"on CUDA         {found.cuda}"]
    lines += [f"    {kind:12}{text}" for kind, text in c.expressions(op).items()]
    sample = c.sample(op)
    if sample is not None and op.decompose is not None:
        lines += ["", "decomposition:", c.decomposition_text(sample)]
    if sample is not None and op.differentiable and any(x.type.dtype.kind == "float" for x in sample.inputs):
        lines += ["", "gradient (the last inputs are the results' gradients):", c.gradient_text(sample)]
    return "\n".join(lines)


_HEAD = """\
# Ops

What a program's graph is made of. This page is written by `genesis ops --markdown`, from the registry; a test keeps
it current. `genesis ops NAME` shows one op's gradient and decomposition as programs.

*Gradient*: "rule" is the op's own, "decomposition" is taken through the simpler ops. *CPU* and *CUDA*: how the backend
runs the op; what it has no kernel for is decomposed. """


def _tail() -> str:
    named = ", ".join(f"`{name}`" for name in c.READ_BY_SHAPE)
    return f"Functions whose result's shape depends on values read them: {named}."


def markdown() -> str:
    """docs/ops.md."""
    host = c.through_the_host()
    lines = [_HEAD + ("On CUDA these go through the host: " + ", ".join(host) + "." if host
                      else "No op goes through the host on CUDA.") + "\n" + _tail(), "",
             "| op | means | dtypes | example | attributes | gradient | made of | CPU | CUDA |",
             "|---|---|---|---|---|---|---|---|---|"]
    for name in c.names():
        found = c.contract(name)
        gradient = {"by its own rule": "rule", "through its decomposition": "decomposition"}.get(found.gradient, "none")
        cells = (f"`{name}`", found.op.doc, found.dtypes, found.example, found.attributes, gradient,
                 ", ".join(found.decomposition), found.cpu, found.cuda)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
