"""What a public function says of a call that does not fit it: a wrong keyword, an argument left out, a foreign tensor.

Python binds arguments before a line of the function runs, and before 3.13 it names no keyword that is near. So the
functions of `genesis`, `genesis.nn.functional`, … and the methods of tensors are bound here: a function of the same
parameters takes what is left over, too, and calls the one that does the work. Genesis itself calls either. Keywords
that torch takes beside these (`axis=` for `dim=`) are put where they belong (`other_words`). A tensor without
dimensions that stands for a number becomes that number before the call, as in torch: nothing runs twice.

A call between costs 0.1 to 0.28 µs (`benchmarks/recording.py`), with keywords as without: all arguments go on by
position, to the same code with all of its parameters positional. Where that would be a tenth of a call and more, as of
a view, the function remembers what follows from its arguments (`frontend/view_geometry.py`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FunctionType, TracebackType
from typing import Any, Final

from genesis.frontend import recording
from genesis.frontend.other_orders import FIRST_OF_RANGE, ORDERS
from genesis.frontend.other_words import put
from genesis.frontend.recording import TensorBase
from genesis.ir.errors import failure, is_foreign, not_a_tensor
from genesis.ir.source import is_internal
from genesis.ir.suggest import did_you_mean, suggesting
from genesis.ir.types import DType, as_dtype, not_a_dtype

_VARARGS, _VARKEYWORDS = inspect.CO_VARARGS, inspect.CO_VARKEYWORDS
NO_PYTHON_TYPES: Final = frozenset({"type", "set_default_dtype"})
"""Functions that take no `float`, `int` or `bool` for a dtype, as torch's do not."""

_NUMBER: Final = r"(bool|int|float|str|None|Axis|Number|Sequence\[int\]|tuple\[int, \.\.\.\]| \| )+"
"""A pattern of the annotations of parameters that are numbers."""

_SIZES: Final = frozenset({"shape", "size", "sizes", "dims", "repeats"})
"""Names of parameters that are numbers, whatever their annotation is."""

_PLAIN: Final = frozenset({bool, int, float, str, type(None)})
"""Classes of what is no tensor, and holds none."""

_SEVERAL: Final = frozenset({tuple, list})
"""Classes of what may hold tensors that stand for numbers."""

_bound: dict[FunctionType, FunctionType] = {}


class _LeftOut:
    """The default of parameters that have none, so that a wrong keyword is told rather than what it stood for."""

    def __repr__(self) -> str:
        return "…"


LEFT_OUT: Final[Any] = _LeftOut()


def publish(names: dict[str, Any]) -> dict[str, FunctionType]:
    """Take the public functions out of this module's names, and return them: each is bound when it is asked for.

    To bind one takes 10 to 100 µs, and a program calls a few of the hundreds: the module's `__getattr__` binds these.
    A function that the module calls by a global name of its own may not be among them: see `bind_own`.
    """
    waiting = {name: value for name, value in names.items()
               if value.__class__ is FunctionType and not name.startswith("_")}
    for name in waiting:
        del names[name]
    return waiting


def published(names: dict[str, Any], module: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` (PEP 562) of a module whose public functions wait to be asked for."""
    waiting, otherwise = publish(names), suggesting(module)

    def __getattr__(name: str) -> object:
        if name not in waiting:
            return otherwise(name)
        found = names[name] = bound(waiting[name], module, name)
        return found

    def __dir__() -> list[str]:
        return sorted({*names, *waiting})
    return __getattr__, __dir__


def bind_own(names: dict[str, Any], module: str) -> None:
    """Put the bound function in the place of each public function that this module itself defines."""
    for name, value in names.items():
        if value.__class__ is FunctionType and not name.startswith("_") and value.__module__ == module:
            names[name] = bound(value, module, name)


def bound(function: FunctionType, module: str, name: str) -> FunctionType:
    """The function as users call it; one without parameters, or that takes any keyword, as it is.

    Args:
        module, name: where users find it, by which it is pickled.
    """
    code = function.__code__
    taken = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & _VARARGS)
    if not taken or code.co_flags & _VARKEYWORDS or hasattr(function, "__wrapped__"):
        return function
    found = _bound.get(function)
    if found is None:
        found = _binding(function, taken)
        found.__module__, found.__qualname__ = module, name
        found = _bound.setdefault(function, found)  # another thread may have been first
    return found


def is_public_method(name: str, value: Any) -> bool:
    """Whether this of a class is a method to be bound: one that takes more than `self`, and no operator."""
    if value.__class__ is not FunctionType or name.startswith("_"):
        return False
    code = value.__code__
    return code.co_argcount + code.co_kwonlyargcount > 1 or bool(code.co_flags & _VARARGS)


def _binding(function: FunctionType, taken: int) -> FunctionType:
    code = function.__code__
    variadic = code.co_flags & _VARARGS
    work = FunctionType(
        code.replace(co_argcount=taken, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=code.co_flags & ~_VARARGS),
        function.__globals__, function.__name__, None, function.__closure__)
    given = function.__kwdefaults__ or {}
    names = code.co_varnames[:taken]
    missing = (LEFT_OUT,) * (code.co_argcount - len(function.__defaults__ or ()))
    only = names[code.co_argcount:taken - bool(variadic)]
    required = (*range(len(missing)), *(i for i, name in enumerate(only, code.co_argcount) if name not in given))
    defaults = {**dict(zip(names, (*missing, *(function.__defaults__ or ())), strict=False)),
                **dict.fromkeys(only, LEFT_OUT), **given}
    converts = "dtype" in names and function.__name__ not in NO_PYTHON_TYPES
    dtype = names.index("dtype") if converts else None
    numbers = _numbers(names[:taken - bool(variadic)], function.__annotations__)
    usual = tuple([(i, repr(x) if (x := defaults[names[i]]) is None or x.__class__ is bool else "") for i in numbers])
    call = _template(taken, required, dtype, not variadic, usual)(
        work, LEFT_OUT, as_dtype,
        lambda values, more, unknown: _in_order(function, values, more, unknown, defaults),
        lambda more, unknown, values: _unfit(function, more, unknown, values),
        lambda values: tuple([_number(x) if i in numbers else x for i, x in enumerate(values)]),
        _raise_misplaced, _PLAIN, _SEVERAL)
    shape = call.__code__
    call.__code__ = shape.replace(
        co_argcount=code.co_argcount, co_posonlyargcount=code.co_posonlyargcount,
        co_kwonlyargcount=code.co_kwonlyargcount, co_flags=shape.co_flags | _VARARGS,
        co_varnames=names + shape.co_varnames[taken:],
        co_name=code.co_name, co_qualname=code.co_qualname, co_filename=code.co_filename,  # a capture goes by these
        co_firstlineno=code.co_firstlineno)
    call.__defaults__ = (*missing, *(function.__defaults__ or ()))
    call.__kwdefaults__ = {**dict.fromkeys(only, LEFT_OUT), **given}
    call.__name__, call.__doc__ = function.__name__, function.__doc__
    call.__annotations__ = function.__annotations__
    call.__wrapped__ = function  # type: ignore[attr-defined]  # `inspect` goes on to it
    return call


def _numbers(names: tuple[str, ...], annotations: dict[str, Any]) -> tuple[int, ...]:
    """The places of the parameters that are numbers."""
    return tuple([i for i, name in enumerate(names)
                  if name in _SIZES or re.fullmatch(_NUMBER, str(annotations.get(name, "")))])


@cache
def _template(taken: int, required: tuple[int, ...], dtype: int | None, catches: bool,
              usual: tuple[tuple[int, str], ...]) -> Callable[..., FunctionType]:
    """Makes functions of so many parameters, with names to be replaced, of which some have to be given.

    Args:
        dtype: the place of the one that is a dtype.
        catches: take arguments that are too many, too, to say so; else the last parameter has them.
        usual: the places of those that are numbers, and their defaults where these are constants of Python's. To ask
            whether a parameter has one of these takes a few ns.
    """
    names = "".join(f"p{i}, " for i in range(taken))
    more, catching = ("more", "*more, ") if catches else ("()", "")
    unfit = " or ".join(["unknown", *["more"] * catches, *(f"p{i} is left_out" for i in required)])
    converted = "" if dtype is None else f"""
        if p{dtype}.__class__ is type:
            p{dtype} = as_dtype(p{dtype})"""
    given = " or ".join([
        (f"p{i} is not {default} and " if default else "") + f"p{i}.__class__ not in plain and ("
        f"p{i}.__class__ not in several or not plain.issuperset(map(type, p{i})))" for i, default in usual])
    counted = f"""
        if {given}:
            {names}= numbers(({names}))""" if usual else ""
    program = f"""
def make(work, left_out, as_dtype, put, unfit, numbers, misplaced, plain, several):
    def call({names}{catching}**unknown):
        if {unfit}:
            {names}{"more, " * catches}= put(({names}), {more}, unknown)
            if {unfit}:
                raise unfit({more}, unknown, ({names})){converted}{counted}
        try:
            return work({names})
        except AttributeError as error:
            misplaced(error, ({names}))
            raise
    return call
"""
    space: dict[str, Any] = {}
    exec(compile(program, __file__, "exec"), space)  # code of Genesis' own, which may run in a call that is captured
    make = space["make"]
    make.__code__ = make.__code__.replace(co_consts=tuple([
        x.replace(co_linetable=_on_one_line(len(x.co_code) // 2)) if isinstance(x, CodeType) else x
        for x in make.__code__.co_consts]))
    return make


def _on_one_line(instructions: int) -> bytes:
    """The line table of code that is all on its first line, as a traceback shows a function's `def`.

    An entry says that up to eight instructions have no column (kind 13) and are 0 lines further than those before: see
    "Locations" in CPython's sources. To say so of the program's tree took longer than to compile it.
    """
    entries = [8] * (instructions // 8) + ([instructions % 8] if instructions % 8 else [])
    return b"".join(bytes((0x80 | 13 << 3 | count - 1, 0)) for count in entries)


def _in_order(function: FunctionType, values: tuple[Any, ...], more: tuple[Any, ...], unknown: dict[str, Any],
              defaults: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments of a call that does not fit, as torch takes them: with what other words stand for, taken out of
    `unknown`, and in the function's order; then, where the function can be given too many, what is still too many."""
    name, code = function.__name__, function.__code__
    names = code.co_varnames[:len(values)]
    values = put(name, unknown, names, values, defaults)
    found = dict(zip(names, values, strict=True))
    lower, upper = FIRST_OF_RANGE.get(name, ("", ""))
    if lower and found[lower] is LEFT_OUT and found[upper] is not defaults[upper]:
        found[lower] = 0
    if more and name in ORDERS:
        placed = (*values[:code.co_argcount], *more)
        try:
            given = None if any(x is LEFT_OUT for x in placed) else ORDERS[name](*placed)
        except TypeError:  # too many for that order, too
            given = None
        if given is not None:
            found.update(zip(names, given.placed, strict=False), **given.named)
            more = ()
    return tuple(found.values()) if code.co_flags & _VARARGS else (*found.values(), more)


def _unfit(function: FunctionType, more: tuple[Any, ...], unknown: dict[str, Any],
           values: tuple[Any, ...]) -> Exception:
    """The TypeError for keywords that the function does not take, for arguments that were left out or are too many."""
    code = function.__code__
    named = list(zip(code.co_varnames, values, strict=False))
    missing = [repr(name) for name, value in named if value is LEFT_OUT]
    if unknown:
        wrong = next(iter(unknown))
        keywords = code.co_varnames[code.co_posonlyargcount:code.co_argcount + code.co_kwonlyargcount]
        problem = f"got an unexpected keyword argument {wrong!r}{did_you_mean(wrong, keywords)}"
    elif more:
        most, least = code.co_argcount, code.co_argcount - len(function.__defaults__ or ())
        takes = f"{most}" if least == most else f"from {least} to {most}"
        problem = f"takes {takes} positional argument{'s' * (most != 1)} but {most + len(more)} were given"
    else:
        problem = f"missing {len(missing)} required argument{'s' * (len(missing) > 1)}: {' and '.join(missing)}"
    operands = [(name, value) for name, value in named if isinstance(value, TensorBase)]
    return failure(function.__name__, problem, operands, error=TypeError,
                   hint=f"{function.__name__}({_parameters(function)})")


def _parameters(function: FunctionType) -> str:
    """The parameters with their defaults, without types: `input, dim=None, keepdim=False`."""
    parameters = inspect.signature(function).parameters.values()
    plain = inspect.Signature([p.replace(annotation=p.empty) for p in parameters if p.name != "self"])
    return str(plain)[1:-1]


def _raise_misplaced(error: AttributeError, values: tuple[Any, ...]) -> None:
    """Raise what says of an attribute that was missing which argument is of another library, if one is."""
    better = misplaced_among(error, values)
    if better is not error:
        raise better from None


def _number(value: Any) -> Any:
    """The number of a tensor without dimensions, also of one in a tuple or list; else the value itself."""
    if isinstance(value, TensorBase) and not value.spec.ndim:
        return value.item()  # type: ignore[attr-defined]
    if isinstance(value, (tuple, list)):
        found = [_number(x) for x in value]
        return type(value)(found) if any(x is not y for x, y in zip(found, value, strict=True)) else value
    return value


def misplaced_among(error: AttributeError, values: tuple[Any, ...]) -> Exception:
    """What to raise for an attribute that was missing: which argument is of another library, or is no tensor at all.

    An error of a line that is not Genesis' own, as in a function that was given to this one, stays what it is.
    """
    asked = getattr(error.obj, "__self__", error.obj)  # torch's `type` is a method, which has no `shape`
    if not is_internal(_innermost(error.__traceback__)) or isinstance(asked, TensorBase):
        return error
    name, given = error.name or "", list(_flat(values))
    foreign = next((x for x in (asked, *given) if is_foreign(x)), None)  # asked: what an operator made of an argument
    if foreign is not None:
        return not_a_tensor(foreign)
    if not any(value is asked for value in given):
        return error
    if hasattr(recording._tensor_class, name):
        return not_a_tensor(asked)
    return not_a_dtype(asked) if hasattr(DType, name) else error


def _innermost(traceback: TracebackType | None) -> str:
    """The file of the line that raised."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return "" if traceback is None else traceback.tb_frame.f_code.co_filename


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        yield value
        if isinstance(value, (tuple, list)):
            yield from _flat(value)
