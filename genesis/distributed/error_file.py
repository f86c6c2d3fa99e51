"""What torchrun's report says of a process that failed: it reads a file that the process leaves, as those leave that
torch's `record` decorates."""

from __future__ import annotations

import json
import os
import time
import traceback
from contextlib import suppress
from types import TracebackType
from typing import Final

VARIABLE: Final = "TORCHELASTIC_ERROR_FILE"
"""Environment variable: where torchrun looks."""


def leave_error(error: BaseException, trace: TracebackType | None, now: float | None = None) -> None:
    """Write the exception that ends this process, with its traceback and time, where torchrun started it and nobody has
    written it. A disk that takes nothing keeps nobody from seeing the exception itself."""
    path = os.environ.get(VARIABLE)
    if not path or os.path.exists(path):
        return
    told = {"message": f"{type(error).__name__}: {error}", "extraInfo": {
        "py_callstack": "".join(traceback.format_exception(type(error), error, trace)),
        "timestamp": str(int(time.time() if now is None else now))}}
    with suppress(OSError), open(path, "w") as file:
        json.dump({"message": told}, file)
