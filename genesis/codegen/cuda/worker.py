"""Compile kernels in a process of their own: `python -P -m genesis.codegen.cuda.worker`.

Reads one JSON object a line (`KernelSource.key_parts`, "architecture" and "id") and answers each with one line:
{"id", "name", "cubin" (base64), "num_warps", "shared_bytes", "maps"} or {"id", "error"}, and "used" (`workers.Used`).
It never touches a GPU and ends when its input does.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from typing import Any, Final, TextIO

from genesis.codegen.cuda.packed_words import before_assembling
from genesis.codegen.cuda.workers import FOLDER, used_here

ENABLE_FP_FUSION: Final = False
"""Whether a·b + c may be contracted to one rounding. Off: a kernel rounds as each op is documented to."""


WITHOUT_PERMISSION: Final = 48 << 10
"""Bytes of shared memory, declared ones and a launch's together, that a launch gets if the driver was not asked for
more: it is asked where the launch's alone are more (`runtime/cuda/module.py`)."""

_DECLARED: Final = re.compile(r"^\s*\.shared[^;\[]*\[(\d+)\];", re.MULTILINE)
"""Shared memory that a kernel's text declares, in PTX."""


def compile_kernel(parts: dict[str, Any], architecture: int) -> dict[str, Any]:
    """Compile what `KernelSource.key_parts` describes for a compute capability, 90 for 9.0; `cubin` in the result is
    bytes."""
    compiled = compiled_by_triton(parts, architecture)
    metadata = compiled.metadata
    declared = sum(int(found) for found in _DECLARED.findall(compiled.asm["ptx"]))
    if declared and declared + metadata.shared > WITHOUT_PERMISSION:
        raise RuntimeError(f"{parts['name']} declares {declared} bytes of shared memory beside Triton's "
                           f"{metadata.shared}: no launch gets more than {WITHOUT_PERMISSION} bytes in this way. "
                           "Ask for them behind Triton's own (words_helper(beside=True))")
    return {"name": metadata.name, "cubin": compiled.asm["cubin"], "num_warps": metadata.num_warps,
            "shared_bytes": _with_words(metadata.shared, parts.get("shared", 0)),
            "maps": [[x["swizzle"], *x["block_size"]] for x in metadata.tensordesc_meta or ()]}


def _with_words(tritons: int, words: int) -> int:
    """Bytes of shared memory that a launch asks for: Triton's own, and behind them the kernel's words."""
    return -(-tritons // 16) * 16 + words if words else tritons


def compiled_by_triton(parts: dict[str, Any], architecture: int) -> Any:
    """What Triton makes of it: `metadata`, and the texts of its stages in `asm`."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from genesis.codegen.cuda.source import define

    function = define(parts["source"])[parts["name"]]
    signature = dict(parts["signature"])
    names = list(signature)
    divisors = {**dict.fromkeys(parts["aligned"], 16), **dict.fromkeys(parts["eights"], 8),
                **dict(parts.get("lesser", ()))}
    attributes = {(names.index(name),): [["tt.divisibility", divisor]] for name, divisor in divisors.items()}
    kind: Any = ASTSource
    if parts["language"] == "gluon":
        from triton.experimental.gluon._runtime import GluonASTSource
        kind, signature = GluonASTSource, {name: _laid_out(x) for name, x in signature.items()}
    source = kind(fn=function, signature=signature, constexprs=dict(parts["constexprs"]), attrs=attributes)
    with tempfile.TemporaryDirectory(prefix="kernel-") as folder, _settings(folder):
        return triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options_of(parts))


def _laid_out(kind: str) -> str:
    """A parameter's type, with the layout of its blocks in shared memory if it is a matrix's map."""
    if not kind.startswith("tensordesc<"):
        return kind
    import triton.experimental.gluon.language as gl
    dtype, _, sizes = kind.removeprefix("tensordesc<").removesuffix("]>").partition("[")
    layout = gl.NVMMASharedLayout.get_default_for([int(n) for n in sizes.split(",")], _GLUON_DTYPES[dtype](gl))
    return f"{kind.removesuffix('>')},{layout!r}>"


_GLUON_DTYPES: Final = {"fp16": lambda gl: gl.float16, "bf16": lambda gl: gl.bfloat16, "fp32": lambda gl: gl.float32}


def options_of(parts: dict[str, Any]) -> dict[str, Any]:
    """Triton's options for a kernel. By default its library of functions would make 0 of numbers below float32's normal
    range, and -0.0 the floor of -1e-40."""
    return {"num_warps": parts["num_warps"], "num_stages": parts["num_stages"], "enable_fp_fusion": ENABLE_FP_FUSION,
            "enable_reflect_ftz": parts["flushes"],
            **({"maxnreg": parts["registers"]} if "registers" in parts else {})}


@contextmanager
def _settings(folder: str) -> Iterator[None]:
    """Triton's own cache, kept out of the user's home, as Genesis caches what it compiles itself; and what is done to
    a kernel before it is assembled."""
    from triton import knobs
    with knobs.cache.scope(), knobs.runtime.scope():
        knobs.cache.dir = folder
        knobs.runtime.add_stages_inspection_hook = before_assembling
        yield


def serve() -> None:
    """Answer requests until the input ends, or nobody is left to read answers."""
    requests, answers = private_pipes()
    for line in requests:
        if not line.endswith("\n"):  # whoever asks died while asking
            break
        request = json.loads(line)
        try:
            found = compile_kernel(request, request["architecture"])
            answer = {**found, "cubin": base64.b64encode(found["cubin"]).decode()}
        except Exception:  # whatever Triton raises is the answer
            answer = {"error": traceback.format_exc()}
        try:
            print(json.dumps({"id": request["id"], **answer, "used": astuple(used_here())}), file=answers, flush=True)
        except BrokenPipeError:
            break
    folder = tempfile.gettempdir()
    if os.path.basename(folder).startswith(FOLDER):  # made for this worker
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)  # there is nothing to tidy up, and closing a broken pipe once more would complain


def private_pipes() -> tuple[TextIO, TextIO]:
    """Where requests come from and answers go. Nothing else uses these: a print, or Triton's assembler, which inherits
    standard output, must not end up between the answers, nor keep them open when this process is killed."""
    requests, answers = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


if __name__ == "__main__":
    serve()
