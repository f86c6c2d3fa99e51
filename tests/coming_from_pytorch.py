"""Writes docs/coming-from-pytorch.md from the tables that the library reads: `python -m tests.coming_from_pytorch`."""

from __future__ import annotations

from pathlib import Path

from genesis.ir.absent import MODULES, NAMES, Absent
from genesis.ir.torch_paths import NEVER, PATHS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "coming-from-pytorch.md"

TEXT = """# Coming from PyTorch

Rename `torch` to `genesis`: names, signatures, dtype rules and errors are torch's. This page says what differs. Its
tables are made by `python -m tests.coming_from_pytorch` from those that the library itself reads, and a test holds the
page against them.

    import genesis as torch
    from genesis import nn

* Operations are recorded, and run when a value is read or an optimizer steps. `genesis.compile` is not needed; it saves
  the recording.
* A GPU is asked for as in torch. `allow_tf32` and `set_float32_matmul_precision` round products; convolutions keep
  float32's bits, which torch rounds unless told otherwise.
* Random numbers are others than torch's, for the same seed.
* Saved files are safetensors; `genesis.load` reads torch's files, tensors and plain containers only. A module is saved
  as its `state_dict()`: `save(model)` raises, as no program is read from a file.
* Tensors go to other processes as copies, but for those that `share_memory()` moved: processes that are forked or
  spawned train one model (Hogwild, A3C), on the CPU.
* A wrong keyword or name is told with the right one. Attributes of tensors (`x.sofmax`) have Python's own error, as
  looking would cost each call that is right; Python prints the right name under the traceback.
* `autocast` has one table of ops, that of torch's CUDA, and bfloat16 unless told otherwise, everywhere. torch's CPU
  leaves softmax, sums and norms in the low precision, and its CUDA takes float16.
* What fails by its values (a Cholesky decomposition, a solution, weights of `multinomial`, parameters and values of a
  distribution that are still to be computed, on the CPU) raises when what needs them is read;
  inside a `try` that catches it, at once, so that a program that goes on with another matrix does. A captured function
  with such a `try` is recorded at each call; around one, and around indices, the error comes with the read.
* A value that is written to behind autograd's back (`y.data.masked_fill_(...)` after something has read y) keeps, for
  gradients, what was read. torch's backward reads what is there by then.
* Gradients of `Embedding(sparse=True)` are dense. `SparseAdam` leaves rows whose gradient is 0 as they are, where torch
  goes by which rows were looked up.
* Under `utils.checkpoint` the running means of a batch norm move once a step; torch computes the forward again, and
  moves them twice.
* Optimizers count their steps in Python: `optimizer.state[p]["step"]` is an int, where torch has a tensor. Of a
  parameter that is listed twice SGD's momentum has one buffer from the first step on; torch begins with two, and keeps
  the second.
* On the CPU torch's `grid_sample` multiplies and adds in one rounding. At the very centre of an element, where its
  gradient by the grid jumps, the two may take different sides; spatial transformers that begin at the identity do.
* A program may use both libraries. What it sets in torch for its own calls (default device and dtype, autocast, modes,
  `torch.func`, deterministic algorithms) holds for torch alone, and Genesis' settings for Genesis. What is said to
  torch's CPU kernels holds for both, as Genesis calls them: threads, `set_flush_denormal`, and
  `set_float32_matmul_precision("medium")`, which rounds large products on some processors.
* Values that differ on purpose, and what is open, are listed in [open ends](open_ends.md).

## Names that are left out

Asking for one raises AttributeError (a module: ImportError) with the sentence, so that `hasattr` is False. Names are
regular expressions; "any" is everywhere.

| in | names | instead |
|---|---|---|
"""


def row_of(row: Absent) -> str:
    """A line of the first table."""
    space = "any" if row.space == "*" else f"`genesis.{row.space}`".replace(".`", "`")
    names = row.names.replace("|", "\\|")
    return f"| {space} | `{names}` | {row.sentence} |"


def page() -> str:
    """The whole page."""
    lines = [TEXT.rstrip("\n"), *map(row_of, MODULES), *map(row_of, NAMES), "",
             "## Paths whose names are elsewhere", "",
             "They import, and hand on the names.", "", "| torch's | names are in |", "|---|---|"]
    for path in PATHS:
        package = f"genesis.{path.package}".rstrip(".")
        homes = ", ".join(f"`genesis.{home}`".replace("..`", "`") for home in path.homes.split())
        lines.append("| `{}.{}` | {} |".format(package, path.names.replace("|", "\\|"), homes))
    lines += ["", "## What is never available", "", "`is_available()` is False.", "", "| module | |", "|---|---|"]
    for path in NEVER:
        package = f"genesis.{path.package}".rstrip(".")
        lines.append("| `{}.{}` | {} |".format(package, path.names.replace("|", "\\|"), path.homes))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
