"""The error of a call of torch's, told as that of the op that asked for it.

Calls carry no more than a label for this: errors are rare. An equal program of another line runs the same plan: the
label's line is that of the first, a replay has this one, and for all others the engine finds theirs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import torch

from genesis.ir.errors import LinAlgError
from genesis.ir.failed_op import failed
from genesis.ir.misplaced import Line, Typed, allowed_in, index_of, is_outside, line_of, misplaced
from genesis.ir.ops.checked import CHECKED
from genesis.ir.source import PACKAGE
from genesis.ir.types import TensorType, cpu, dtype_named, tensor_type
from genesis.runtime.plan import Call

if TYPE_CHECKING:
    from numpy import ndarray

_HOMES: Final = (PACKAGE, os.path.dirname(torch.__file__) + os.sep)
"""Where code is whose errors are told with the op that it computes."""

_TAKING_AN_INDEX = {op.name: op for op in CHECKED}


class NoSolution(LinAlgError, torch.linalg.LinAlgError):
    """A `LinAlgError` by the name of either library."""


class _Operand(NamedTuple):
    """A tensor of torch's as messages describe it."""

    type: TensorType


def told(error: Exception, call: Call, operands: Sequence[object]) -> Exception:
    """The error to raise for one of this call's: with the op, its operands and the user's line.

    A MemoryError where torch found no memory; what code that is neither torch's nor Genesis' raised stays what it is.
    """
    if "can't allocate memory" in str(error):
        return MemoryError(str(error))
    if isinstance(error, RecursionError):  # which says where the reader stands, not what the op is given
        return error
    library = type(error).__module__.partition(".")[0]
    if library not in ("builtins", "torch", "genesis") or not _is_of_torch(error.__traceback__):
        return error
    name, _, line = call.label.partition("  # ")
    at = line_of(call.source)
    at = Line(at.text or line, at.called)
    shown = cast("list[Typed]", [_shown(x) for x in operands])
    op = _TAKING_AN_INDEX.get(name)
    if op is not None and isinstance(error, (IndexError, RuntimeError)):
        allowed, index = allowed_in(op, shown, cast("dict[str, int]", call.attributes)), index_of(op, operands)
        assert allowed is not None and isinstance(index, torch.Tensor)
        outside = torch.as_tensor(is_outside(cast("ndarray", index), allowed), dtype=torch.bool, device=index.device)
        if outside.any():
            return misplaced(op, shown, int(index[outside].flatten()[0]), allowed, at)
    if isinstance(error, torch.linalg.LinAlgError):
        error = NoSolution(str(error))
    return failed(error, name, shown, at.text)


def _is_of_torch(traceback: TracebackType | None) -> bool:
    """Whether the innermost line that raised is of a lowering or of torch."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_HOMES)


def _shown(operand: object) -> object:
    if not isinstance(operand, torch.Tensor):
        return operand
    return _Operand(tensor_type(tuple(operand.shape), dtype_named(str(operand.dtype).partition(".")[2]), cpu))
