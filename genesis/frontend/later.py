"""Names that a module imports when somebody first asks for them.

The module writes these imports down in a block under `if TYPE_CHECKING:`, where editors and type checkers read them and
which does not run. Its compiled code says what they are, so that no second list is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from types import CodeType

from genesis.ir.suggest import suggesting


@cache
def later_names(module: str) -> dict[str, str]:
    """Name → the module that it is from, for each import in a module's block under `if TYPE_CHECKING:`.

    >>> import genesis
    >>> later_names("genesis")["vmap"], "zeros" in later_names("genesis")
    ('genesis.func', False)
    """
    spec = sys.modules[module].__spec__
    code = spec.loader.get_code(module)  # type: ignore[union-attr]
    return dict(_imported_for_type_checkers(code))


def imported(module: str, name: str) -> object:
    """What a name of `later_names(module)` stands for; None for any other name."""
    place = later_names(module).get(name)
    if place is None:
        return None
    return import_module(f"{module}.{name}") if place == module else getattr(import_module(place), name)


def names_later(module: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` (PEP 562) of a module that has its names later; others are suggested the nearest.

    A name that was asked for once is the module's own from then on.
    """
    def __getattr__(name: str) -> object:
        if name == "__all__":  # for `from module import *`, which would else find no name that comes later
            own = [key for key, value in vars(sys.modules[module]).items() if value is not names_later
                   and not key.startswith("_") and getattr(value, "__module__", "").startswith("genesis.")]
            return sorted({*own, *later_names(module)})
        found = imported(module, name)
        if found is None:
            return suggesting(module)(name)
        vars(sys.modules[module])[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[module]), *later_names(module)})
    return __getattr__, __dir__


def _imported_for_type_checkers(code: CodeType) -> Iterator[tuple[str, str]]:
    import dis  # here: importing genesis asks for no later name
    place, taken, asked, end = "", False, False, -1
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_NAME":
            asked = step.argval == "TYPE_CHECKING"
        elif asked and "JUMP" in step.opname:
            end, asked = (step.argval if "IF_FALSE" in step.opname else -1), False  # a block under `not` runs
        elif step.opname == "IMPORT_NAME":
            place = step.argval
        elif step.opname == "IMPORT_FROM":
            taken = True
        elif step.opname == "STORE_NAME" and taken:
            taken = False
            if step.offset < end:
                yield step.argval, place
