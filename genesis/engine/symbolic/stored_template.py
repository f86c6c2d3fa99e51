"""Templates on disk: a process that never saw a size fills in its plan from what another one compiled for its class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from genesis.engine.symbolic.filling import ArenaRequests, Filling
from genesis.ir.size_class import SizeClass
from genesis.runtime.plan import KernelImage
from genesis.runtime.plan_form import PlanForm, from_json
from genesis.runtime.stored_form import Field, Malformed, Stored


class StoredTemplate:
    """A template that another process compiled. What it was made for, for people, is not kept with it.

    Attributes:
        background: it was compiled before anybody asked for it (`engine/background.py`).
    """

    def __init__(self, filling: Filling, background: bool = False):
        self.plan, self.background = filling.plan, background


def template_as_json(filling: Filling, background: bool = False) -> Stored:
    """What a file says of a template."""
    arena = filling.arena
    return {**({"background": True} if background else {}),
            "form": filling.form.as_json(), "made_for": filling.made_for,
            "classes": {name: asdict(found) for name, found in filling.classes.items()},
            "requests": [[value, gone] for value, gone in arena.requests], "bytes": list(arena.bytes),
            "lent": [list(lent) for lent in arena.lent], "values": list(arena.values)}


def template_from_json(stored: Stored, kernels: Callable[[str], KernelImage | None]) -> StoredTemplate | None:
    """The template that `template_as_json` described; None when it is of another version, or a kernel is missing.

    Raises:
        Malformed: it is no description of a template. Its plan for the sizes that it was made for is checked as one on
            disk is.
    """
    try:
        made_for = {name: _count(value) for name, value in stored["made_for"].items()}
        form = from_json(stored["form"], kernels, made_for)
        if form is None:
            return None
        classes = {name: _class(**stored["classes"][name]) for name in made_for}
        arena = ArenaRequests([(_count(value), bool(gone)) for value, gone in stored["requests"]], stored["bytes"],
                              [tuple(map(_count, lent)) for lent in stored["lent"]],  # type: ignore[misc]  # three
                              list(map(_count, stored["values"])))
        filling = Filling(form, classes, made_for, arena, ran=False)
        _check(form, filling, made_for)
    except Malformed:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, AssertionError) as error:
        raise Malformed(f"no template ({type(error).__name__}: {error})") from error
    return StoredTemplate(filling, stored.get("background") is True)


def _check(form: PlanForm, filling: Filling, made_for: dict[str, int]) -> None:
    """Check that memory is planned as it was for the sizes at hand, and that these are of the template's classes."""
    values = form.evaluate(made_for)
    planned = filling.arena.planned(values)
    if len(planned.starts) != len(form.moving) or planned.arena_bytes > filling.own.arena_bytes:
        raise Malformed("memory is planned in another way than it was")
    if any(size not in filling.classes[name] for name, size in made_for.items()):
        raise Malformed("the sizes that it was made for are of other classes")


def _class(least: Field, most: Field, unit: Field, typical: Field, parted: Field) -> SizeClass:
    return SizeClass(_count(least), _count(most), _count(unit), _count(typical), bool(parted))


def _count(x: Field) -> int:
    if (type(x) is not int and type(x) is not bool) or x < 0:
        raise Malformed(f"{x!r} is no count")
    return x
