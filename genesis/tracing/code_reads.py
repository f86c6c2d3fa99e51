"""The names that a code object can look up: globals, chains of attributes on them, names of attributes."""

from __future__ import annotations

import builtins
import dis
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any

from genesis.ir.source import Source
from genesis.tracing.instructions import CONSTANTS, instructions_of

# Names of all supported versions: `LOAD_METHOD` until 3.11, `LOAD_FROM_DICT_OR_GLOBALS` since 3.12 (in annotations and
# type parameters of a class).
_ROOTS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "STORE_GLOBAL", "DELETE_GLOBAL"})
_LINKS = frozenset({"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR"})
_ARGUMENTS = CONSTANTS | {"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_ATTR"}
"""Instructions that load an argument, or an attribute of one."""
_NO_STEPS = ("CACHE", "EXTENDED_ARG")
_NULL_BEHIND = sys.version_info >= (3, 13)
"""Whether the place for an object that a function is bound to is left behind the function, no longer before it."""
_STORES = frozenset({"STORE_ATTR", "DELETE_ATTR"})
_COMPUTED = frozenset({"getattr", "vars", "__dict__", "attrgetter", "methodcaller", "dir", "__getattribute__"})


@dataclass(frozen=True)
class Reads:
    """Names in a code object and in the code nested in it.

    Attributes:
        chains: a global's name, then attributes that are read of it right away: `a.b.c` is ("a", "b", "c").
        only_asked: those of `chains` of which the code asks nothing but whether something is in them.
        only_called: those of `chains` that the code does nothing with but call them, there and then.
        owners: (name, method) of attributes that it calls a method of, there and then.
        otherwise: names of attributes that it reads, writes or may use otherwise.
        matched: chains of classes whose positions a pattern names (`case Point(x, y)`); () of one that no chain shows.
        imports: (level, name) of modules that the code imports itself.
        names: all attributes that it reads or writes, and its strings, which getattr may use.
        uncertain: those of `names` that may be missing now and there later: written ones, and strings.
        computed: attributes are looked up under names that are computed.
    """

    chains: tuple[tuple[str, ...], ...]
    only_asked: frozenset[tuple[str, ...]]
    only_called: frozenset[tuple[str, ...]]
    owners: frozenset[tuple[str, str]]
    otherwise: frozenset[str]
    matched: frozenset[tuple[str, ...]]
    imports: tuple[tuple[int, str], ...]
    names: frozenset[str]
    uncertain: frozenset[str]
    computed: bool


@lru_cache(maxsize=4096)
def reads(code: types.CodeType) -> Reads:
    """The names that the code, and code nested in it, can look up.

    >>> reads((lambda x: math.pi * x.real).__code__).chains
    (('math', 'pi'),)
    """
    found = _Found()
    for each in _nested(code):
        found.of_names(each)
        _Walk(found, instructions_of(each)).run()
    return found.reads()


@dataclass
class _Found:
    """What walks along a code object, and the code nested in it, have found so far: see `Reads`.

    Attributes:
        asked: chain → whether all that is done with it is to ask what is in it.
        called: chain → whether all that is done with it is to call it.
    """

    asked: dict[tuple[str, ...], bool] = field(default_factory=dict)
    called: dict[tuple[str, ...], bool] = field(default_factory=dict)
    owners: set[tuple[str, str]] = field(default_factory=set)
    otherwise: set[str] = field(default_factory=set)
    matched: set[tuple[str, ...]] = field(default_factory=set)
    imports: dict[tuple[int, str], None] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    uncertain: set[str] = field(default_factory=set)

    def of_names(self, code: types.CodeType) -> None:
        """Add the names of a code object, and its strings."""
        strings = set(_strings(code.co_consts))
        self.names.update(code.co_names, strings)
        self.uncertain |= strings
        self.otherwise |= strings

    def reads(self) -> Reads:
        """All of it."""
        only_asked, only_called = (frozenset(chain for chain, only in each.items() if only)
                                   for each in (self.asked, self.called))
        return Reads(tuple(self.asked), only_asked, only_called, frozenset(self.owners), frozenset(self.otherwise),
                     frozenset(self.matched), tuple(self.imports), frozenset(self.names), frozenset(self.uncertain),
                     not _COMPUTED.isdisjoint(self.names))


class _Walk:
    """A walk along the instructions of one code object: what each tells is in `_RULES`.

    The chain that is being read off is () where the last instruction was no part of one; `_ended` is the chain that
    the last instruction ended.
    """

    def __init__(self, found: _Found, steps: Sequence[dis.Instruction]):
        self._found, self._steps = found, steps
        self._chain: tuple[str, ...] = ()
        self._ended: tuple[str, ...] = ()
        self._bound = self._begins = False  # a call's function: ends with the chain's last step, begins with its first
        self._constants: list[Any] = [0, 0]  # an import takes two: its level, what it imports from there

    def run(self) -> None:
        """Walk to the end."""
        of, other = _RULES.get, (_Walk._end,)
        for at, step in enumerate(self._steps):
            for rule in of(step.opname, other):
                rule(self, step, at)
        if self._chain:
            self._found.asked[self._chain] = self._found.called[self._chain] = False

    def _begin(self, step: dis.Instruction, at: int) -> None:
        """A global begins a chain."""
        self._chain, self._begins = (step.argval,), _has_null(step)

    def _link(self, step: dis.Instruction, at: int) -> None:
        """An attribute goes on with a chain; that of something else ends none."""
        if self._chain:
            self._chain, self._bound = (*self._chain, step.argval), _is_method(step)
        else:
            self._end(step, at)

    def _end(self, step: dis.Instruction, at: int) -> None:
        """Any other instruction ends a chain: it may do anything with its value."""
        if chain := self._chain:
            asked, called = self._found.asked, self._found.called
            asked[chain] = step.opname == "CONTAINS_OP" and asked.get(chain, True)
            called[chain] = called.get(chain, True) and (self._bound or (
                self._begins and _are_arguments(self._steps[at:])) or (_NULL_BEHIND and step.opname == "PUSH_NULL"))
        self._ended, self._chain, self._bound, self._begins = chain, (), False, False

    def _attribute(self, step: dis.Instruction, at: int) -> None:
        """An attribute is the owner of a method that is called there and then, or used otherwise."""
        behind = next((x for x in self._steps[at + 1:] if x.opname not in _NO_STEPS), step)
        if step.opname == "LOAD_ATTR" and not _has_null(step) and _is_method(behind):
            self._found.owners.add((step.argval, behind.argval))
        else:
            self._found.otherwise.add(step.argval)

    def _write(self, step: dis.Instruction, at: int) -> None:
        self._found.uncertain.add(step.argval)

    def _match(self, step: dis.Instruction, at: int) -> None:
        """A pattern of a class, which the chain before its keywords led to; the argument counts its positions."""
        if step.arg:
            self._found.matched.add(self._ended)

    def _constant(self, step: dis.Instruction, at: int) -> None:
        self._constants.append(step.argval)

    def _import(self, step: dis.Instruction, at: int) -> None:
        self._found.imports[self._constants[-2], step.argval] = None


_RULES: dict[str, tuple[Callable[[_Walk, dis.Instruction, int], None], ...]] = {
    **dict.fromkeys(_NO_STEPS, ()),
    **dict.fromkeys(CONSTANTS, (_Walk._constant, _Walk._end)),
    **dict.fromkeys(_ROOTS, (_Walk._end, _Walk._begin)),
    **dict.fromkeys(_LINKS, (_Walk._link, _Walk._attribute)),
    **dict.fromkeys(_STORES, (_Walk._link, _Walk._attribute, _Walk._write)),
    "MATCH_CLASS": (_Walk._match, _Walk._end),
    "IMPORT_NAME": (_Walk._import, _Walk._end),
}
"""What an instruction of this name tells, one after the other; any other one ends a chain."""


def _has_null(instruction: dis.Instruction) -> bool:
    """Whether the instruction leaves a place beside what it loads, which `dis` writes as NULL: a call begins there."""
    return instruction.argrepr != instruction.argval and "NULL" in instruction.argrepr


def _is_method(instruction: dis.Instruction) -> bool:
    """Whether the instruction loads a method that is called with the arguments that follow."""
    return instruction.opname == "LOAD_METHOD" or (instruction.opname == "LOAD_ATTR" and _has_null(instruction))


def _are_arguments(steps: Sequence[dis.Instruction]) -> bool:
    """Whether the instructions load simple arguments, and call what was there before these."""
    given = 0
    for step in steps:
        if step.opname in _ARGUMENTS and not _has_null(step):
            given += step.opname != "LOAD_ATTR"
        elif step.opname not in ("KW_NAMES", "PRECALL"):
            return step.opname == "CALL" and step.arg == given
    return False


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
        if step.opname in CONSTANTS:
            number = step.argval
        elif step.opname in _ROOTS:
            number = namespace.get(step.argval, getattr(builtins, step.argval, 0))
        elif step.opname in _LINKS and step.argval == "dtype":  # of tensors; nobody calls a number that
            number = None
        elif step.opname in _LINKS and isinstance(number, (types.ModuleType, type)):
            number = getattr(number, step.argval, 0)
        elif step.opname not in _NO_STEPS:
            number = 0
    return False


def matched_names(what: Reads, namespace: Mapping[str, Any]) -> frozenset[str] | None:
    """The attributes that patterns with positions ask for, which a class names (`case Point(x, y)`: `__match_args__`);
    None where the code does not show the class.

    >>> def turned(point):
    ...     match point:
    ...         case range(start) | slice(start):
    ...             return start
    >>> matched_names(reads(turned.__code__), {})
    frozenset({'__match_args__'})
    """
    found: set[str] = set()
    for chain in what.matched:
        value: Any = namespace.get(chain[0], getattr(builtins, chain[0], None)) if chain else None
        for name in chain[1:]:
            value = vars(value).get(name) if isinstance(value, types.ModuleType) else None
        if not isinstance(value, type):
            return None
        given = next((vars(x)["__match_args__"] for x in value.__mro__ if "__match_args__" in vars(x)), ())
        found |= {"__match_args__", *(given if type(given) is tuple else ())}
    return frozenset(found)


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
