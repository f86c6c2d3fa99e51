"""`genesis.jit`: TorchScript's decorators over `genesis.compile`. Python stays Python: nothing is another language.

In: functions and modules. Out: functions that `genesis.compile` captures, and modules as they are.

>>> import genesis
>>> @genesis.jit.script
... def gate(x, y):
...     return x * genesis.sigmoid(y)
>>> gate(genesis.ones(1), genesis.zeros(1))
tensor([0.5000])
"""

from __future__ import annotations

from typing import Any, Final

from genesis.ir.suggest import suggesting
from genesis.nn.modules.module import Module

__all__ = ["Final", "RecursiveScriptModule", "ScriptFunction", "ScriptModule", "annotate", "export", "freeze", "ignore",
           "interface", "is_scripting", "is_tracing", "isinstance", "optimize_for_inference", "script",
           "script_if_tracing",
           "script_method", "trace", "unused"]

ScriptModule = RecursiveScriptModule = Module
"""A module is scripted as it is."""


def script(obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """A function or module compiled as `genesis.compile` does; a class as it is.

    Args:
        obj: what to compile.
        example_inputs: not needed: each call's arguments are looked at.
    """
    from genesis.tracing.compiled import compile
    return obj if type(obj) is type or (hasattr(obj, "__mro__") and not callable(obj)) else compile(obj)


def trace(func: Any, example_inputs: Any = None, optimize: Any = None, check_trace: bool = True,
          check_inputs: Any = None,
          check_tolerance: float = 1e-5, strict: bool = True, **options: Any) -> Any:
    """`script`: what depends on values in Python is looked at in each call, where torch's trace has it once for all."""
    return script(func)


def script_if_tracing(fn: Any) -> Any:
    """The function as it is: a trace that contains it sees its Python."""
    return fn


def ignore(drop: Any = False, **options: Any) -> Any:
    """The function, whose calls are not captured; without a function, a decorator."""
    from genesis.compiler import disable
    return disable(drop) if callable(drop) else disable


def unused(fn: Any) -> Any:
    """The function as it is."""
    return fn


export = script_method = interface = unused


def freeze(mod: Any, preserved_attrs: Any = None, optimize_numerics: bool = True) -> Any:
    """The module: parameters may go on changing."""
    return mod


def optimize_for_inference(mod: Any, other_methods: Any = None) -> Any:
    """The module: a plan is made for it as it is."""
    return mod


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Python's, for types without parameters."""
    import builtins
    return builtins.isinstance(obj, target_type)


def is_scripting() -> bool:
    """False: Python runs."""
    return False


def is_tracing() -> bool:
    """False: a capture runs the program, as it is, for its values."""
    return False


from genesis.tracing.compiled import CompiledFunction as ScriptFunction  # noqa: E402

__getattr__ = suggesting(__name__)
