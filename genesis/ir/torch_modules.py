"""The modules of `torch_paths`, made when they are first imported: each hands on the names of others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

from genesis.ir.suggest import MissingName
from genesis.ir.torch_paths import NEVER, PATHS, is_path, row_of


def names_from(module: str, homes: str) -> Callable[[str], object]:
    """A `__getattr__` for a module (PEP 562): each name of the homes that it lacks itself.

    Args:
        module: its full name.
        homes: as in `Path`.
    """
    def __getattr__(name: str) -> object:
        places = [import_module("genesis" if home == "." else f"genesis.{home}") for home in homes.split()]
        if not name.startswith("__"):
            for place in places:
                if hasattr(place, name):
                    return getattr(place, name)
        raise MissingName(f"module {module!r} has no attribute {name!r}", name,
                          lambda: [known for place in places for known in dir(place) if not known.startswith("_")],
                          module.partition(".")[2], places[0].__name__)
    return __getattr__


def fill(package: str, homes: str, modules: Sequence[str]) -> None:
    """Give modules of a package, whose files have some of the names that torch's have, the others, from the homes."""
    for name in modules:
        module = sys.modules[f"{package}.{name}"]
        if "__getattr__" not in vars(module):
            module.__getattr__ = names_from(module.__name__, homes)  # type: ignore[method-assign]


def _never(module: str, sentence: str) -> Callable[[str], object]:
    def __getattr__(name: str) -> object:
        ending = "" if name.startswith("__") else f": {sentence}"
        raise AttributeError(f"module {module!r} has no attribute {name!r}{ending}", name=name)
    return __getattr__


def _called_as(function: Callable[..., object]) -> type[ModuleType]:
    """The class of a module with the name of a function beside it (`autograd.gradcheck`): the import puts the module in
    the function's place, so that the module is called as the function."""
    class CalledModule(ModuleType):
        __wrapped__ = staticmethod(function)  # whose signature it has

        def __call__(self, *args: object, **kwargs: object) -> object:
            return function(*args, **kwargs)
    return CalledModule


class TorchPaths:
    """A finder and loader of imports: the modules of `PATHS` and `NEVER`.

    Not derived from `importlib.abc`, whose import takes longer than all else that `import genesis` does not need.
    """

    @classmethod
    def find_spec(cls, fullname: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """The spec of such a module; None for any other."""
        above = row_of(fullname.rpartition(".")[0], NEVER)
        if above is not None:
            raise ModuleNotFoundError(f"there is no module {fullname!r}: {above.homes}", name=fullname)
        return ModuleSpec(fullname, cls()) if is_path(fullname) else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """The import system makes the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Give it its names."""
        name, row = module.__name__, row_of(module.__name__, PATHS)
        if row is not None:
            module.__doc__ = f"torch's path to names of genesis.{row.homes}".rstrip(".")
            module.__getattr__ = names_from(name, row.homes)  # type: ignore[method-assign]
            if any(f"genesis.{path.package}" == name for path in PATHS):
                module.__path__ = []
            package, _, last = name.rpartition(".")
            function = getattr(sys.modules[package], last, None)  # one that it has later, too
            if callable(function):
                module.__class__ = _called_as(function)
            return
        row = row_of(name, NEVER)
        assert row is not None
        module.__doc__ = f"{row.homes[0].upper()}{row.homes[1:]}."
        module.__path__ = []
        module.is_available = lambda: False  # type: ignore[attr-defined]
        module.device_count = lambda: 0  # type: ignore[attr-defined]
        module.__getattr__ = _never(name, row.homes)  # type: ignore[method-assign]


def install() -> None:
    """Put the finder behind all others."""
    if not any(isinstance(finder, TorchPaths) for finder in sys.meta_path):
        sys.meta_path.append(TorchPaths())
