"""How a tensor prints: like torch, four digits, long dimensions summarised."""

from __future__ import annotations

from typing import Any

_THRESHOLD, _EDGE, _PRECISION = 1000, 3, 4


def tensor_text(tensor: Any) -> str:
    """The text of `repr(tensor)`. Computes the tensor."""
    from genesis.engine import host_copy
    array = host_copy(tensor)
    body = _body(array, tensor.dtype.kind)
    notes = []
    if tensor.dtype.name not in ("float32", "int64", "bool"):
        notes.append(f"dtype={tensor.dtype!r}")
    if tensor.is_cuda:
        notes.insert(0, f"device='{tensor.device}'")
    if array.size == 0 and array.ndim != 1:
        notes.insert(0, f"size={tuple(tensor.shape)}")
    if tensor.requires_grad:
        notes.append("requires_grad=True" if tensor.is_leaf else f"grad_fn={tensor.grad_fn!r}")
    return f"tensor({', '.join([body, *notes])})"


def _body(array: Any, kind: str) -> str:
    import numpy as np
    if kind == "float":
        array = array.astype(np.float64)
        formatter: Any = _float_format(array)
    elif kind == "bool":
        formatter = str
    else:
        width = max((len(str(x)) for x in _shown(array)), default=1)
        formatter = lambda x: str(x).rjust(width if array.ndim else 0)  # noqa: E731
    text = np.array2string(array, separator=", ", prefix="tensor(", threshold=_THRESHOLD, edgeitems=_EDGE,
                           max_line_width=80, formatter={"all": formatter})
    return text.replace("\n\n\n", "\n\n")


def _shown(array: Any) -> Any:
    """The elements that a summary shows."""
    import numpy as np
    if array.size > _THRESHOLD:
        for axis in range(array.ndim):
            if array.shape[axis] > 2 * _EDGE:
                array = np.concatenate([array.take(range(_EDGE), axis), array.take(range(-_EDGE, 0), axis)], axis)
    return array.ravel()


def _float_format(array: Any) -> Any:
    import numpy as np
    values = np.array(_shown(array))
    finite = np.abs(values[np.isfinite(values) & (values != 0)])
    whole = not finite.size or bool((finite == np.ceil(finite)).all())
    large, small = (finite.max(), finite.min()) if finite.size else (1.0, 1.0)
    if large / small > 1000 or large > 1e8 or small < 1e-4:
        exponent = large > 1e8 or small < 1e-4 or (large / small > 1000 and not whole)
    else:
        exponent = False
    if exponent:
        text = lambda x: f"{x:.{_PRECISION}e}"  # noqa: E731
    elif whole:
        text = lambda x: f"{x:.0f}." if np.isfinite(x) else str(x)  # noqa: E731
    else:
        text = lambda x: f"{x:.{_PRECISION}f}" if np.isfinite(x) else str(x)  # noqa: E731
    width = max((len(text(x)) for x in values), default=0) if array.ndim else 0
    return lambda x: text(x).rjust(width)
