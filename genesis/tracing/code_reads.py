"""The names that a code object can look up: globals, chains of attributes on them, names of attributes."""

from __future__ import annotations

import builtins
import dis
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

from genesis.ir.source import Source

# Names of all supported versions: `LOAD_METHOD` until 3.11, `LOAD_FROM_DICT_OR_GLOBALS` since 3.12 (in annotations and
# type parameters of a class), `LOAD_SMALL_INT` since 3.14.
_ROOTS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "STORE_GLOBAL", "DELETE_GLOBAL"})
_LINKS = frozenset({"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR"})
_CONSTANTS = frozenset({"LOAD_CONST", "LOAD_SMALL_INT"})
_STORES = frozenset({"STORE_ATTR", "DELETE_ATTR"})
_COMPUTED = frozenset({"getattr", "vars", "__dict__", "attrgetter", "methodcaller", "dir", "__getattribute__"})


@dataclass(frozen=True)
class Reads:
    """Names in a code object and in the code nested in it.

    Attributes:
        chains: a global's name, then attributes that are read of it right away: `a.b.c` is ("a", "b", "c").
        only_asked: those of `chains` of which the code asks nothing but whether something is in them.
        imports: (level, name) of modules that the code imports itself.
        names: all attributes that it reads or writes, and its strings, which getattr may use.
        uncertain: those of `names` that may be missing now and there later: written ones, and strings.
        computed: attributes are looked up under names that are computed.
    """

    chains: tuple[tuple[str, ...], ...]
    only_asked: frozenset[tuple[str, ...]]
    imports: tuple[tuple[int, str], ...]
    names: frozenset[str]
    uncertain: frozenset[str]
    computed: bool


@lru_cache(maxsize=512)
def instructions_of(code: types.CodeType) -> tuple[dis.Instruction, ...]:
    """The instructions of a code object: `dis` takes longer than the capture that asks for them several times.

    >>> instructions_of((lambda x: x).__code__)[-1].opname
    'RETURN_VALUE'
    """
    return tuple(dis.get_instructions(code))


@lru_cache(maxsize=4096)
def reads(code: types.CodeType) -> Reads:
    """The names that the code, and code nested in it, can look up."""
    chains: dict[tuple[str, ...], bool] = {}  # whether all that is done with it is to ask what is in it
    imports: dict[tuple[int, str], None] = {}
    names: set[str] = set()
    uncertain: set[str] = set()
    for each in _nested(code):
        chain: tuple[str, ...] = ()
        names.update(each.co_names)
        strings = set(_strings(each.co_consts))
        names |= strings
        uncertain |= strings
        constants: list[Any] = [0, 0]  # an import takes two: its level, what it imports from there
        for instruction in instructions_of(each):
            kind, name = instruction.opname, instruction.argval
            if kind in _CONSTANTS:
                constants.append(name)
            if chain and kind in _LINKS:
                chain = (*chain, name)
            elif kind not in ("CACHE", "EXTENDED_ARG"):
                chains[chain] = kind == "CONTAINS_OP" and chains.get(chain, True)
                chain = (name,) if kind in _ROOTS else ()
            if kind in _STORES:
                uncertain.add(name)
            elif kind == "IMPORT_NAME":
                imports[constants[-2], name] = None
        chains[chain] = False
    chains.pop((), None)
    asked = frozenset(chain for chain, only in chains.items() if only)
    return Reads(tuple(chains), asked, tuple(imports), frozenset(names), frozenset(uncertain),
                 not _COMPUTED.isdisjoint(names))


def compares_unknown_objects(code: types.CodeType, namespace: Mapping[str, Any]) -> bool:
    """Whether the code asks with `is` for something that may be a number: neither a constant that is none, nor a global
    (an attribute of a module or class included) that is none.

    >>> compares_unknown_objects((lambda x: x is None).__code__, {})
    False
    >>> compares_unknown_objects((lambda x, y: x is y).__code__, {})
    True
    """
    number: Any = 0  # what the last instructions put on the stack, 0 where nobody knows
    for step in dis.get_instructions(code):
        if step.opname == "IS_OP" and isinstance(number, (int, float)) and not isinstance(number, bool):
            return True
        if step.opname in _CONSTANTS:
            number = step.argval
        elif step.opname in _ROOTS:
            number = namespace.get(step.argval, getattr(builtins, step.argval, 0))
        elif step.opname in _LINKS and step.argval == "dtype":  # of tensors; nobody calls a number that
            number = None
        elif step.opname in _LINKS and isinstance(number, (types.ModuleType, type)):
            number = getattr(number, step.argval, 0)
        elif step.opname not in ("CACHE", "EXTENDED_ARG"):
            number = 0
    return False


def imported(what: Reads, namespace: Mapping[str, Any]) -> Iterator[str]:
    """Full names of the modules that the code imports, the packages around them first."""
    for level, name in what.imports:
        package = str(namespace.get("__package__") or namespace.get("__name__") or "").split(".")
        around = package[:len(package) - level + 1] if level else []
        yield from accumulate((*around, *filter(None, name.split("."))), "{}.{}".format)


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def inner(codes: Iterable[types.CodeType]) -> set[types.CodeType]:
    """The code of functions, lambdas, comprehensions and classes that these code objects define."""
    return {each for code in codes for each in _nested(code) if each is not code}


def _strings(constants: Iterable[Any]) -> Iterator[str]:
    for constant in constants:
        if isinstance(constant, str):
            if constant.isidentifier():
                yield constant
        elif isinstance(constant, (tuple, frozenset)):
            yield from _strings(constant)


def place_of(name: str, codes: Iterable[types.CodeType]) -> str:
    """" at file:line function" of the first place that writes the name, or else names it; '' if there is none."""
    found = ""
    for code in codes:
        for instruction in instructions_of(code):
            if instruction.argval == name and isinstance(name, str):
                where = f" at {Source(code, instruction.offset)}"
                if instruction.opname.startswith(("STORE_", "DELETE_")):
                    return where
                found = found or where
    return found
