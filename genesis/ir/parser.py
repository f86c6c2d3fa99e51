"""The parser, which makes the graph of its text. The grammar is in `printer.py`.

Building goes through `make`, so the nodes are the very ones that were printed, types are inferred
again, and a type in the text that is not the inferred one is an error.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from genesis.ir.graph import Graph
from genesis.ir.node import OPS, Node, Op, literal, make
from genesis.ir.printer import type_text
from genesis.ir.source import TextSource
from genesis.ir.types import Device, TensorType, dtype_named, is_device, parse_type

if TYPE_CHECKING:
    from typing import TypeVar

    from genesis.ir.node import Attr, Types

    T = TypeVar("T")

_TOKEN = re.compile(r"""
    (?P<space>[ \t\n]+)
  | (?P<comment>\#[^\n]*)
  | (?P<name>%\w+)
  | (?P<type>[a-z]+\d*~?\[[\d,]*\](@\w+(:\d+)?)?)
  | (?P<number>-?(\d+(\.\d+)?(e[-+]?\d+)?|inf|nan)\b)
  | (?P<text>'([^'\\]|\\.)*'|"([^"\\]|\\.)*")
  | (?P<word>[A-Za-z_]\w*(:\d+)?)
  | (?P<mark>[(){}=:;,])
""", re.VERBOSE)

_SOURCE = re.compile(r"[ \t]*\#[ ]?(?P<printed>[^\n]+)")
_WORDS = {"True": True, "False": False, "None": None}


class ParseError(ValueError):
    """The text is not a graph; says where, and shows the line."""


def parse(text: str) -> Graph:
    """The graph with this text.

    >>> graph = parse('''
    ... graph(%x: f32[4,7,9]) {
    ...   %y: f32[4,7,9] = mul(%x, 2.5)   # train.py:3
    ...   return %y
    ... }''')
    >>> graph.outputs[0].op, str(graph.outputs[0].source)
    (<op mul>, 'train.py:3')
    """
    reader = _Reader(text)
    graph = _graph(reader)
    reader.expect("end")
    return graph


class _Reader:
    """The tokens of a text, one ahead."""

    def __init__(self, text: str):
        self.text = text
        self.kind, self.value, self.start, self.end = "", "", 0, 0
        self.consumed = 0  # the position at which the token before the current one ends
        self.advance()

    def advance(self) -> str:
        """Go to the next token; returns the one that was current."""
        before, self.consumed = self.value, self.end
        while True:
            self.start = self.end
            if self.start == len(self.text):
                self.kind, self.value = "end", "the end of the text"
                return before
            match = _TOKEN.match(self.text, self.start)
            if match is None:
                self.fail(f"{self.text[self.start]!r} begins nothing")
            self.end, self.kind, self.value = match.end(), str(match.lastgroup), match.group()
            if self.kind not in ("space", "comment"):
                return before

    def expect(self, kind: str, what: str = "") -> str:
        """The current token, which must be of this kind."""
        if self.kind != kind:
            self.fail(f"expected {what or kind}, found {self.value}")
        return self.advance() if kind != "end" else ""

    def take(self, value: str) -> bool:
        """Skip the current token if it is this word or mark."""
        if self.value != value or self.kind not in ("mark", "word"):
            return False
        self.advance()
        return True

    def need(self, *values: str) -> None:
        """Skip these words and marks, which must come now."""
        for value in values:
            if not self.take(value):
                self.fail(f"expected {value!r}, found {self.value}")

    def comment(self) -> TextSource | None:
        """The source in a comment right after the token that was consumed last."""
        match = _SOURCE.match(self.text, self.consumed)
        return TextSource(match["printed"].rstrip()) if match else None

    def fail(self, problem: str, at: int | None = None) -> NoReturn:
        """Raise ParseError with line, column and a caret."""
        position = self.start if at is None else at
        line = self.text.count("\n", 0, position) + 1
        begin = self.text.rfind("\n", 0, position) + 1
        shown = self.text[begin:].split("\n", 1)[0]
        column = position - begin + 1
        raise ParseError(f"line {line}, column {column}: {problem}\n  {shown}\n  {' ' * (column - 1)}^")


Names = dict[str, Node]


def _graph(reader: _Reader) -> Graph:
    reader.need("graph", "(")
    names: Names = {}
    inputs: list[Node] = []
    while reader.kind == "name":
        at, name = reader.start, reader.advance()
        reader.need(":")
        _define(reader, names, name, make(OPS["input"], (), (len(inputs), _type(reader))), at)
        inputs.append(names[name])
        if not reader.take(","):
            break
    numbers = 0
    if reader.take(";"):
        numbers = int(reader.expect("number", "how many numbers"))
        if not reader.take("number"):
            reader.need("numbers")
    reader.need(")", "{")
    updates: list[tuple[Node, Node]] = []
    while reader.kind == "name":
        _statement(reader, names)
    while reader.take("update"):
        state = _operand(reader, names)
        reader.need("=")
        updates.append((state, _operand(reader, names)))
    reader.need("return")
    outputs = [] if reader.value == "}" else _list(reader, lambda: _operand(reader, names))
    reader.need("}")
    return Graph(tuple(inputs), tuple(outputs), tuple(updates), numbers)


def _statement(reader: _Reader, names: Names) -> None:
    """name: type = op(operands, attributes)."""
    at, name = reader.start, reader.advance()
    reader.need(":")
    type_at = reader.start
    declared = _types(reader)
    reader.need("=")
    op_at, op = reader.start, OPS.get(reader.expect("word", "an op's name"))
    if op is None:
        reader.fail("no op has this name", op_at)
    reader.need("(")
    operands: list[Node] = []
    given: dict[str, Attr] = {}
    while not reader.take(")"):
        if reader.kind in ("name", "number") or reader.value in ("True", "False"):
            operands.append(_operand(reader, names))
        else:
            attribute_at, attribute = reader.start, reader.expect("word", "an operand or an attribute")
            if attribute not in op.attrs or attribute in given:
                reader.fail(f"{op.name} has the attributes {', '.join(op.attrs) or 'none'}, each once", attribute_at)
            reader.need("=")
            given[attribute] = _value(reader)
        if not reader.take(","):
            reader.need(")")
            break
    attributes = _all_attributes(reader, op, given, declared, op_at)
    try:
        node = make(op, tuple(operands), attributes, reader.comment())
    except Exception as error:
        reader.fail(f"{op.name}: {error}", op_at)
    if node.type != declared:
        reader.fail(f"{op.name} gives {type_text(node.type)}, not {type_text(declared)}", type_at)
    _define(reader, names, name, node, at)


def _all_attributes(reader: _Reader, op: Op, given: dict[str, Attr], declared: Types,
                    at: int) -> tuple[Attr | Types, ...]:
    implied = {**op.defaults, "type": declared, **given}
    for name in op.attrs:
        if name not in implied:
            reader.fail(f"{op.name} needs the attribute {name}", at)
    return tuple(implied[name] for name in op.attrs)


def _define(reader: _Reader, names: Names, name: str, node: Node, at: int) -> None:
    if name in names:
        reader.fail(f"{name} is defined twice", at)
    names[name] = node


def _operand(reader: _Reader, names: Names) -> Node:
    """A name that was defined before, or a literal."""
    if reader.kind == "name":
        if reader.value not in names:
            reader.fail(f"{reader.value} is not defined")
        return names[reader.advance()]
    if reader.value in ("True", "False"):
        return literal(reader.advance() == "True")
    if reader.kind != "number":
        reader.fail(f"expected an operand, found {reader.value}")
    return literal(_number(reader.advance()))


def _list(reader: _Reader, one: Callable[[], T]) -> list[T]:
    """One or more, separated by commas."""
    found = [one()]
    while reader.take(","):
        found.append(one())
    return found


def _tuple(reader: _Reader, one: Callable[[], T]) -> tuple[T, ...]:
    """Reads after "(" values up to ")", the last one perhaps followed by a comma."""
    found = []
    while not reader.take(")"):
        found.append(one())
        if not reader.take(","):
            reader.need(")")
            break
    return tuple(found)


def _types(reader: _Reader) -> TensorType | tuple[TensorType, ...]:
    return _tuple(reader, lambda: _type(reader)) if reader.take("(") else _type(reader)


def _type(reader: _Reader) -> TensorType:
    at, text = reader.start, reader.expect("type", "a type such as f32[4,8]")
    try:
        return parse_type(text)
    except (TypeError, ValueError, RuntimeError) as error:
        reader.fail(str(error), at)


def _value(reader: _Reader) -> Attr:
    """An attribute's value."""
    if reader.take("("):
        return _tuple(reader, lambda: _value(reader))
    if reader.kind == "number":
        return _number(reader.advance())
    if reader.kind == "text":
        return _string(reader.advance())
    if reader.kind == "type":
        return _type(reader)
    if reader.value == "graph":
        return _graph(reader)
    at, word = reader.start, reader.expect("word", "a value")
    if word in _WORDS:
        return _WORDS[word]
    try:
        return Device(word) if is_device(word) else dtype_named(word)
    except (TypeError, RuntimeError):
        reader.fail(f"{word} is no value", at)


def _number(text: str) -> int | float:
    if text == "nan":
        return math.nan  # the one NaN that compares equal to itself by identity, so nodes stay one
    return float(text) if any(c in text for c in ".en") else int(text)


def _string(text: str) -> str:
    return ast.literal_eval(text)

