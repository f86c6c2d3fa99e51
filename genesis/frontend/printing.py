"""Printing tensors: as PyTorch prints them, with the options of `set_printoptions`.

All elements of a tensor that are shown have one format: whole numbers, digits behind the point, or exponents where
the largest and the smallest are far apart. A tensor of more than `threshold` elements shows the first and the last of
each dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from genesis.frontend.default_dtypes import get_default_dtype
from genesis.ir.errors import failure
from genesis.ir.types import cpu
from genesis.runtime.contexts import Switched, Temporary

PREFIX: Final = "tensor("
"""The text before the elements; lines below the first are indented by its length."""

FAR_APART: Final = 1000.0
"""Ratio of the largest to the smallest absolute value beyond which numbers print with exponents, as in torch."""

LARGE: Final = 1e8
"""Absolute value beyond which numbers print with exponents, as in torch."""

SMALL: Final = 1e-4
"""Absolute value below which numbers print with exponents, unless all are whole, as in torch."""


@dataclass(frozen=True)
class PrintOptions:
    """The options that `set_printoptions` sets."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


PROFILES: Final = {"default": PrintOptions(), "short": PrintOptions(precision=2, edgeitems=2),
                   "full": PrintOptions(threshold=math.inf)}

_options = [PROFILES["default"]]


def set_printoptions(precision: int | None = None, threshold: float | None = None, edgeitems: int | None = None,
                     linewidth: int | None = None, profile: str | None = None, sci_mode: bool | None = None) -> None:
    """Set how tensors print from now on; an option that is None stays as it is.

    Args:
        precision: digits after the decimal point.
        threshold: number of elements beyond which only the edges are shown.
        edgeitems: how many elements are shown at each end of a dimension then.
        linewidth: characters of a line.
        profile: "default", "short" or "full": sets all of the above at once, before the others are set.
        sci_mode: True for exponents, False for none; None (also where it is not given) as the numbers demand.

    Raises:
        ValueError: there is no such profile.

    >>> import genesis
    >>> genesis.set_printoptions(precision=2)
    >>> genesis.tensor([3.14159, 2.71828])
    tensor([3.14, 2.72])
    >>> genesis.set_printoptions(profile="default")
    """
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    _options[0] = _changed(profile, sci_mode, **given)


def _changed(profile: str | None = None, sci_mode: bool | None = None, **given: Any) -> PrintOptions:
    """The options as `set_printoptions` makes them."""
    if profile is not None and profile not in PROFILES:
        raise failure("set_printoptions", f"there is no profile {profile!r}",
                      hint=f"the profiles are {', '.join(PROFILES)}", error=ValueError)
    start = _options[0] if profile is None else PROFILES[profile]
    return replace(start, sci_mode=sci_mode, **{name: x for name, x in given.items() if x is not None})


def get_printoptions() -> dict[str, Any]:
    """The options that are set now, by name."""
    options = _options[0]
    return {name: getattr(options, name) for name in PrintOptions.__dataclass_fields__}


def printoptions(**options: Any) -> Temporary:
    """A context inside which these options of `set_printoptions` are set.

    >>> import genesis
    >>> with genesis.printoptions(sci_mode=True):
    ...     print(genesis.tensor([1.0, 2.0]))
    tensor([1.0000e+00, 2.0000e+00])
    """
    def look() -> Switched:
        before = _options[0]
        return Switched([(_options.__setitem__, 0, _changed(**{"sci_mode": before.sci_mode, **options}))],
                        [(_options.__setitem__, 0, before)])
    return Temporary(look)


def tensor_text(tensor: Any) -> str:
    """The text of `repr(tensor)`, for which the tensor is computed."""
    import numpy as np

    from genesis.frontend.host_values import host_copy
    options, usual = _options[0], get_default_dtype()
    notes = [f"device='{tensor.device}'"] if tensor.device is not cpu else []
    array = np.empty(0) if (is_meta := tensor.device.type == "meta") else host_copy(tensor)
    if is_meta:
        body = "..."
        notes.append(f"size={tuple(tensor.shape)}")
        if tensor.dtype is not usual:
            notes.append(f"dtype={tensor.dtype!r}")
    elif not array.size:
        body = "[]"
        if array.ndim != 1:
            notes.append(f"size={tuple(tensor.shape)}")
        if tensor.dtype is not usual:
            notes.append(f"dtype={tensor.dtype!r}")
    else:
        body = _body(array, tensor.dtype.kind, options)
        if tensor.dtype is not usual and tensor.dtype.name not in ("int64", "bool"):
            notes.append(f"dtype={tensor.dtype!r}")
    if tensor.requires_grad:
        notes.append("requires_grad=True" if tensor.is_leaf else f"grad_fn={tensor.grad_fn!r}")
    return _with_notes(PREFIX + body, notes, options)


def _with_notes(text: str, notes: list[str], options: PrintOptions) -> str:
    """The text with notes after the elements, on a new line where the last one is full."""
    used = len(text) - text.rfind("\n") + 1
    for note in notes:
        fits = used + len(note) + 2 <= options.linewidth
        text += f", {note}" if fits else f",\n{' ' * len(PREFIX)}{note}"
        used = used + len(note) + 2 if fits else len(PREFIX) + len(note)
    return text + ")"


def _body(array: Any, kind: str, options: PrintOptions) -> str:
    """The text of the elements in brackets."""
    import numpy as np
    summarized = array.size > options.threshold
    if kind == "float":
        array = array.astype(np.float64)
    shown = _edges(array, options.edgeitems) if summarized else array
    text, width = _float_format(shown, options) if kind == "float" else (str, max(len(str(x)) for x in shown.flat))
    return _nested(array, len(PREFIX), summarized, lambda x: text(x).rjust(width), width, options)


def _nested(array: Any, indent: int, summarized: bool, text: Callable[[Any], str], width: int,
            options: PrintOptions) -> str:
    """The text of rows in brackets, each dimension on lines of its own; `indent` is the column of its bracket."""
    edge = options.edgeitems
    if not array.ndim:
        return text(array.item())
    cut = summarized and len(array) > 2 * edge
    whole = [*range(edge), *range(len(array) - edge, len(array))] if cut else range(len(array))
    if array.ndim == 1:
        parts = [text(x) for x in array[list(whole)].tolist()]
        parts[edge:edge] = [" ..."] if cut else []
        each = max(1, (options.linewidth - indent) // (width + 2))
        lines = [", ".join(parts[i:i + each]) for i in range(0, len(parts), each)]
        return f"[{f',{chr(10)}{chr(32) * (indent + 1)}'.join(lines)}]"
    parts = [_nested(array[i], indent + 1, summarized, text, width, options) for i in whole]
    parts[edge:edge] = ["..."] if cut else []
    return f"[{(',' + chr(10) * (array.ndim - 1) + ' ' * (indent + 1)).join(parts)}]"


def _edges(array: Any, edge: int) -> Any:
    """The elements that a summary shows."""
    for axis in range(array.ndim):
        if array.shape[axis] > 2 * edge:
            array = array.take([*range(edge), *range(array.shape[axis] - edge, array.shape[axis])], axis)
    return array


def _float_format(shown: Any, options: PrintOptions) -> tuple[Callable[[float], str], int]:
    """The one format of all numbers, and the width in it of the widest number that is finite and not 0."""
    import numpy as np
    values = shown[np.isfinite(shown) & (shown != 0)]
    sizes = np.abs(values)
    whole = bool((values == np.ceil(values)).all())
    far = bool(values.size) and bool(sizes.max() / sizes.min() > FAR_APART or sizes.max() > LARGE
                                     or (sizes.min() < SMALL and not whole))
    digits = options.precision

    def exponent(x: float) -> str:
        return f"{x:.{digits}e}"

    def integer(x: float) -> str:
        return f"{x:.0f}." if math.isfinite(x) else f"{x:.0f}"

    def point(x: float) -> str:
        return f"{x:.{digits}f}"
    wanted = far if options.sci_mode is None or not values.size else options.sci_mode
    text = exponent if wanted else integer if whole else point
    return text, max(map(len, map(text, values.tolist())), default=1)
