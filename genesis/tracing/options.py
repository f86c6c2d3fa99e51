"""The options of `genesis.compile`, which are torch's: what they mean here, and sentences for those that do not.

A wish for speed that is not granted is no error: programs that name it go on, and are told.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from genesis.ir.errors import failure

BACKENDS = ("genesis", "inductor", "eager")
"""Backends that `compile` takes: both of the first two are Genesis' own compiler, the last is none."""
_NO_BACKENDS = {
    "cudagraphs": "is not a backend here: replays on a GPU are CUDA graphs anyway",
    "aot_eager": "is not a backend here: nothing is between recording and compiling",
    "aot_eager_decomp_partition": "is not a backend here: nothing is between recording and compiling",
}
"""Backends of torch's, and why they are none here."""
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_NO_MODES = {"lite": "is not a mode here: every program is compiled by the same passes"}
"""Modes of torch's, and why they are none here."""
_TUNED = 'kernels are timed for all programs, or for none: genesis.config.tune = "max", or genesis tune script.py'


def check_options(fullgraph: Any, dynamic: Any, backend: Any, mode: Any, options: Any) -> None:
    """Raise for an option of `compile` that means nothing here."""
    for name, value, kinds in (("fullgraph", fullgraph, (bool,)), ("dynamic", dynamic, (bool, type(None)))):
        if not isinstance(value, kinds):
            raise failure("compile", f"{name} is a {type(value).__name__}, expected a bool", error=TypeError)
    if mode is not None and options is not None:
        raise failure("compile", "either mode or options can be specified, but not both at the same time")
    check_backend(backend)
    if mode is not None and mode not in _MODES:
        raise failure("compile", f"mode={mode!r} {_NO_MODES.get(mode, 'is unknown')}",
                      hint=f"one of the modes {', '.join(_MODES)}")
    if mode is not None and mode.startswith("max-autotune"):
        warnings.warn(f"compile: mode={mode!r} changes nothing; {_TUNED}", stacklevel=4)
    if options:
        raise failure("compile", f"options are those of torch's backend, and {', '.join(map(repr, options))} is none "
                      "of Genesis'", hint="the settings of genesis.config, which hold for all programs")


def check_backend(backend: str | Callable[..., Any] | None) -> None:
    """Raise RuntimeError for a backend that is none of Genesis'."""
    if backend is None or (isinstance(backend, str) and backend in BACKENDS):
        return
    what = f"backend={backend!r} {_NO_BACKENDS.get(backend, 'is unknown')}" if isinstance(backend, str) else (
        "a function of the user's cannot be the backend: there is no FX graph to give to it")
    raise failure("compile", what, hint=f"one of {', '.join(BACKENDS)}; a device's backend is registered with "
                  "genesis.engine.backends.register")
