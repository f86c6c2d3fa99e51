"""What a kernel says of its addresses is checked while the interpreter runs it: where neighbours begin, and that they
are neighbours.

Triton moves in one access what it is told to begin at multiples of two and more elements. What is said and not so is
an access at no multiple of its own width, of which a GPU makes an error that ends the process, and the interpreter
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from triton.runtime.interpreter import TensorHandle


def set_attr(handle: TensorHandle, name: str, values: Sequence[int]) -> None:
    """What the interpreter does with `tl.multiple_of` and `tl.max_contiguous`, and a check of both together.

    Raises:
        ValueError: neighbours do not begin at such multiples, or are none.
    """
    handle.attr[name] = values
    if name == "tt.contiguity":
        check(handle.data, handle.attr.get("tt.divisibility", (1,) * len(values)), values)


def check(data: np.ndarray, multiples: Sequence[int], runs: Sequence[int]) -> None:
    """Whether elements lie in runs along each axis, which begin at such multiples. Runs that begin anywhere say in
    which direction lanes go, and nothing that is relied on.

    Raises:
        ValueError: they do not.

    >>> check(np.arange(8), (4,), (4,))
    >>> check(np.arange(8) + 2, (4,), (4,))
    Traceback (most recent call last):
        ...
    ValueError: runs of 4 along axis 0 are said to begin at multiples of 4, and one begins at 2
    """
    for axis, (multiple, run) in enumerate(zip(multiples, runs, strict=True)):
        if multiple == 1:
            continue
        lines = np.moveaxis(data, axis, -1).astype(np.int64)
        starts = lines[..., ::run]
        if (wrong := starts[starts % multiple != 0]).size:
            raise ValueError(f"runs of {run} along axis {axis} are said to begin at multiples of {multiple}, and one "
                             f"begins at {wrong[0]}")
        within = np.arange(lines.shape[-1]) % run
        if not np.array_equal(lines, np.repeat(starts, run, axis=-1)[..., :lines.shape[-1]] + within):
            raise ValueError(f"runs of {run} along axis {axis} are said to be neighbours, and are not")
