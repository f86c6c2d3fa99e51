"""torch's signatures as data: of Python functions by `inspect`, of those in C from its stubs and operator schemas."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, get_overloads

import torch

_STUBS = {"": ("_C/_VariableFunctions.pyi", None), "Tensor": ("_C/__init__.pyi", "TensorBase"),
          "nn.functional": ("_C/_nn.pyi", None)}
"""Space → the stub file that says it, and the class inside, None for the file's own functions."""

_SELF = {"linalg": "linalg_", "special": "special_"}
"""Space → what torch's operators of it begin with."""

NUMPY = {"dim": ("axis",), "keepdim": ("keepdims",), "input": ("x", "a", "x1"), "other": ("x2",)}
"""numpy's words that functions of torch in C take beside their own (torch/csrc/utils/python_arg_parser.cpp)."""


def signatures(space: str, name: str, value: Any) -> list[Signature]:
    """The overloads of one of torch's functions or classes; none where torch itself does not say them.

    Defaults are torch's own; `...` where its stub does not tell, the name where the stub says one.
    """
    if inspect.isfunction(value) or inspect.isclass(value):
        return _of_python(space, name, value)
    found = _stub(space).get(name) or (_stub("").get(value.__name__) if inspect.isbuiltin(value) else None)
    if found:
        return found
    return list(_schemas(_SELF[space] + name)) if space in _SELF else []


def _of_python(space: str, name: str, value: Any) -> list[Signature]:
    if inspect.isclass(value) and inspect.isfunction(value.__init__) and (said := get_overloads(value.__init__)):
        return [_without_self(inspect.signature(overload)) for overload in said]
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):  # a class in C
        return []
    if any(x.kind is not Parameter.VAR_KEYWORD and x.kind is not Parameter.VAR_POSITIONAL
           for x in found.parameters.values()):
        return [found]
    inner = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]  # one of two, by an argument
    return [said for x in inner if inspect.isfunction(x) for said in signatures(space, name, x)]


def _without_self(signature: Signature) -> Signature:
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def in_c(value: Any) -> bool:
    """Whether C binds the arguments, and so takes numpy's words."""
    return not inspect.isclass(value) and not inspect.isfunction(value)


@cache
def _stub(space: str) -> dict[str, list[Signature]]:
    if space not in _STUBS:
        return {}
    file, inside = _STUBS[space]
    body = ast.parse((Path(torch.__file__).parent / file).read_text()).body
    if inside is not None:
        body = next(x.body for x in body if isinstance(x, ast.ClassDef) and x.name == inside)
    found: dict[str, list[Signature]] = {}
    for item in body:
        if isinstance(item, ast.FunctionDef) and all(x.arg != "self" for x in item.args.args[1:]):
            found.setdefault(item.name, []).append(_signature(item.args))  # else a deprecated order, add(alpha, self)
    return found


def _signature(given: ast.arguments) -> Signature:
    positional = [*given.posonlyargs, *given.args]
    required = len(positional) - len(given.defaults)
    made = []
    for i, x in enumerate(positional):
        alone = x in given.posonlyargs or x.arg == "self"
        made.append(Parameter(x.arg, Parameter.POSITIONAL_ONLY if alone else Parameter.POSITIONAL_OR_KEYWORD,
                              default=Parameter.empty if i < required else _default(given.defaults[i - required])))
    if given.vararg:
        made.append(Parameter(given.vararg.arg, Parameter.VAR_POSITIONAL))
    for name, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        made.append(Parameter(name.arg, Parameter.KEYWORD_ONLY,
                              default=Parameter.empty if default is None else _default(default)))
    return Signature(made)


def _default(said: ast.expr) -> Any:
    try:
        return ast.literal_eval(said)
    except ValueError:  # a name
        return getattr(torch, ast.unparse(said).removeprefix("torch."))


def _schemas(operator: str) -> Iterator[Signature]:
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{operator}"):
        if schema.overload_name.endswith("out") or "Dimname" in str(schema):
            continue
        made = []
        for x in schema.arguments:
            kind = Parameter.KEYWORD_ONLY if x.kwarg_only else Parameter.POSITIONAL_OR_KEYWORD
            made.append(Parameter("input" if x.name == "self" else x.name, kind,
                                  default=x.default_value if x.has_default_value() else Parameter.empty))
        yield Signature(made)
