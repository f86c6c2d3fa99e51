"""Who catches every exception says why, unless it raises one again or hands the error on.

An `except Exception` that goes on as if nothing had been is where a defect of Genesis itself is hidden.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "genesis"
BROAD = {"Exception", "BaseException"}


def silent_handlers(text: str) -> Iterator[int]:
    """The lines of a module that catch all and neither raise, nor look at the error, nor say why behind a `#`."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.ExceptHandler, ast.Call)) or "#" in lines[node.lineno - 1]:
            continue
        if isinstance(node, ast.ExceptHandler) and (node.type is None or _is_broad(node.type)):
            if not any(isinstance(x, ast.Raise) or (isinstance(x, ast.Name) and x.id == node.name)
                       for x in ast.walk(node)):
                yield node.lineno
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "suppress" and any(map(_is_broad, node.args)):
            yield node.lineno


def _is_broad(expression: ast.expr) -> bool:
    return any(isinstance(x, ast.Name) and x.id in BROAD for x in ast.walk(expression))


def test_who_catches_all_says_why() -> None:
    assert [f"{path.relative_to(PACKAGE)}:{line}" for path in sorted(PACKAGE.rglob("*.py"))
            for line in silent_handlers(path.read_text())] == []


@pytest.mark.parametrize("handler, found", [
    ("except Exception:\n    pass", 1),
    ("except (ValueError, Exception):\n    x = 1", 1),
    ("except:\n    pass", 1),
    ("except Exception:  # a user's function may raise anything\n    pass", 0),
    ("except BaseException:\n    close()\n    raise", 0),
    ("except Exception as error:\n    answers.put(error)", 0),
    ("except ValueError:\n    pass", 0),
])
def test_a_silent_handler_is_noticed(handler: str, found: int) -> None:
    assert len(list(silent_handlers(f"try:\n    run()\n{handler}"))) == found


def test_suppressing_all_is_noticed() -> None:
    assert [*silent_handlers("with suppress(Exception):\n    run()")] == [1]
    assert [*silent_handlers("with suppress(Exception):  # it is told elsewhere\n    run()")] == []
