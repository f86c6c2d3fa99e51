"""Ops, nodes, and the table that makes equal nodes one node.

A `Node` is an op applied to nodes with attributes; its identity is exactly that, so building
`mul(x, y)` twice gives the same object and common subexpressions never exist. The table is
weak, its keys too: a node lives as long as a tensor, a graph or another node holds it. What a hook or
a user's function holds may be made of the very value that holds these: such a circle is collected.
Before the op, attributes or inputs of a living node change, `forget_equal` takes it out of the table.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable
from itertools import count
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from genesis.ir.opaque import Opaque
from genesis.ir.result_types import result_type
from genesis.ir.source import Source, TextSource
from genesis.ir.sym_int import value_of
from genesis.ir.types import DType, TensorType, bool_, cpu, float64, int64, tensor_type

Types = TensorType | tuple[TensorType, ...]
Autocast = Literal["low", "float32"]
Number = bool | int | float

if TYPE_CHECKING:
    from collections.abc import Mapping

    from genesis.ir.graph import Graph
    from genesis.ir.ops.samples import Samples
    from genesis.ir.types import Device

    Attr: TypeAlias = Number | str | DType | Device | TensorType | Graph | tuple["Attr", ...] | None
    """What an op has as an attribute; its type rule says which."""


FLOAT_ATTRIBUTES: Final = frozenset({
    "alpha", "beta", "bound", "correction", "delta", "eps", "input_scale", "label_smoothing", "least", "most",
    "norm_type", "p", "rtol", "scale", "slope", "threshold", "value"})
"""Names of attributes that may be floats."""


class Op:
    """One operation's whole meaning. Rows are made in `genesis/ir/ops/`.

    Attributes:
        name: the word in the IR text.
        attrs: attribute names in order; `defaults` gives the values that may be left out.
        infer: (*operand types, **attributes) → the result's type, or a tuple of types for an op
            with several results. Raises RuntimeError / TypeError / IndexError on bad operands.
        vjp: (g, *operands, y, **attributes) → the operands' gradients: one node, or a tuple with
            None where an operand has none. `g` is the result's gradient, a tuple (with None for
            unused results) when the op has several. None: the op has no gradient.
        decompose: (*operands, **attributes) → the same value from simpler ops (a tuple of nodes
            when the op has several results). None: the op is primitive.
        kind: leaf, pointwise, movement, reduction, scan, index, contract, random, norm,
            control or composite. Passes decide by kind, never by name.
        samples: what the registry-driven tests feed it (see ir/ops/samples.py).
        reference: (*numpy float64 arrays, **attributes) → the expected value, or None.
        ulp: k of the promise "within k·eps(dtype) of the exact result".
        commutative: operands may be swapped.
        weight, number, rounds, autocast, in_place: what `pointwise` (ir/ops/entry.py) says of them. Of the
            others `autocast` may be stated, and `weight` where one costs more than an addition an element.
        opaque: what fusion knows of an op with a kernel of its own; None: it is a line of a loop.
        associative: of a reduction: the result is the same reduction of the results of parts.
        placed: its attributes say where in a tensor, which a loop may change at each turn: a result's type is not
            remembered by them at once.
        raises: classes of what computing it raises where its operands have no result, such as singular matrices; where
            the user's program would catch one of these it is computed as it is recorded.
        differentiable: a gradient can flow through: the op has a vjp, or a decomposition to
            differentiate instead.
        has_floats: some attribute may be a float, whose sign matters where it is 0.
    """

    __slots__ = ("associative", "attrs", "autocast", "commutative", "decompose", "defaults", "differentiable", "doc",
                 "has_floats", "in_place", "infer", "kind", "name", "number", "opaque", "placed", "raises",
                 "reference", "rounds", "samples", "ulp", "vjp", "weight")

    def __init__(self, name: str, kind: str, infer: Callable[..., Types], *, attrs: tuple[str, ...] = (),
                 defaults: Mapping[str, Attr] | None = None, vjp: Callable | None = None,
                 decompose: Callable | None = None, doc: str = "", samples: Samples | None = None,
                 reference: Callable | None = None, ulp: float = 1.0, commutative: bool = False,
                 differentiable: bool | None = None, weight: int | None = None, number: Callable | None = None,
                 rounds: bool = False, autocast: Autocast | None = None, in_place: bool = False,
                 opaque: Opaque | None = None, associative: bool = False, placed: bool = False,
                 raises: tuple[type[Exception], ...] = ()):
        self.name, self.kind, self.infer, self.attrs = name, kind, infer, attrs
        self.defaults, self.vjp, self.decompose = defaults or {}, vjp, decompose
        self.doc, self.samples, self.reference, self.ulp = doc, samples, reference, ulp
        if weight is None and kind == "pointwise":
            raise TypeError(f"{name} has no weight: a pointwise op is stated by `pointwise` of ir/ops/entry.py")
        self.weight = 1 if weight is None else weight
        self.commutative, self.number = commutative, number
        self.rounds, self.autocast, self.in_place = rounds, autocast, in_place
        self.opaque, self.associative, self.placed, self.raises = opaque, associative, placed, raises
        self.differentiable = (vjp is not None or decompose is not None) if differentiable is None else differentiable
        self.has_floats = not FLOAT_ATTRIBUTES.isdisjoint(attrs)
        if name in OPS:
            raise ValueError(f"op {name!r} is registered twice")
        OPS[name] = self

    def __call__(self, *inputs: Node | Number, **attributes: Attr) -> Node:
        """Record the op. Attributes by name; Python numbers among the operands become literals."""
        defaults = self.defaults
        values = tuple(attributes.pop(name) if name in attributes else defaults[name] for name in self.attrs)
        if attributes:
            raise TypeError(f"{self.name} has no attribute {', '.join(attributes)}")
        return make(self, tuple(x if isinstance(x, Node) else literal(x) for x in inputs), values)

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __reduce__(self) -> tuple:
        return op_named, (self.name,)


OPS: Final[dict[str, Op]] = {}
"""The registry: every op by its name."""


def op_named(name: str) -> Op:
    """The registered op with this name."""
    try:
        return OPS[name]
    except KeyError:
        raise ValueError(f"no op is named {name!r}") from None


class SignedAttributes(tuple):
    """Attributes with -0.0 among them. 0.0 == -0.0 would make nodes and programs equal that differ in a sign: these are
    equal to no attributes but those with -0.0 in the same places, as they are in every key."""

    __slots__ = ()

    def _signs(self) -> list[int]:
        return [at for at, x in enumerate(self) if is_negative_zero(x)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SignedAttributes) and tuple.__eq__(self, other) and self._signs() == other._signs()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((tuple.__hash__(self), "signed"))


def is_negative_zero(x: object) -> bool:
    """Whether this is -0.0, which equals 0.0 and is another value."""
    return isinstance(x, float) and x == 0 and math.copysign(1.0, x) < 0


def told_apart(attrs: tuple) -> tuple:
    """Attributes that are equal only to those that mean the same: `SignedAttributes` where one is -0.0, and one object
    for all NaNs, which would be equal to no others."""
    for x in attrs:
        if isinstance(x, float) and (x == 0 or x != x):
            attrs = tuple([math.nan if x.__class__ is float and x != x else x for x in attrs])
            return SignedAttributes(attrs) if any(map(is_negative_zero, attrs)) else attrs
    return attrs


class Node:
    """One value of a program: immutable, equal only to itself.

    `buffer` is the engine's: the memory that holds the value once it has been computed. `hooks` is
    autograd's: the user's functions that gradients arriving here go through, and so is `boundary`, of a `watch` node
    whose gradient leaves the program: the `autograd` boundary, and which of its outputs this is. Nothing in the IR
    reads them.
    `needs_grad` says that a gradient can flow through the value, `shown` that it is the content of one
    tensor with such a gradient: an equal value of another tensor is another node, with a gradient of its own. Of
    results without one, such as an optimizer's hundreds, it says that no table has them, but whoever recorded the op.
    `number` counts the nodes in the order in which they were made: a node's is above those of its inputs.

    Immutable, but for what becomes a leaf of its memory once it was computed (`engine/histories.py`,
    `engine/running.py`), and a node that only its storage holds (`frontend/views.watched`). A node stands in
    the table under its op, attributes and inputs: whoever changes these of a living node calls `forget_equal` first, or
    an op that is recorded later finds it under what it was; and no input is younger than the node.
    """

    __slots__ = ("__weakref__", "attrs", "boundary", "buffer", "hooks", "inputs", "needs_grad", "number", "op", "shown",
                 "source", "type")

    op: Op
    inputs: tuple[Node, ...]
    attrs: tuple[Any, ...]
    type: TensorType  # of an op with several results a tuple of them: see `types`
    source: Source | TextSource | None
    needs_grad: bool
    shown: bool
    number: int
    buffer: Any  # what the IR does not look into
    hooks: Any
    boundary: tuple[object, int] | None

    def __getitem__(self, name: str) -> Any:
        """The attribute with this name; the op's type rule says of which type."""
        return self.attrs[self.op.attrs.index(name)]

    @property
    def attributes(self) -> dict[str, Any]:
        """All attributes by name."""
        return dict(zip(self.op.attrs, self.attrs, strict=True))

    @property
    def types(self) -> tuple[TensorType, ...]:
        """The types of all results, of one as of several."""
        found: Types = self.type
        return found if isinstance(found, tuple) else (found,)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the value."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """DType of the value's elements."""
        return self.type.dtype

    def __repr__(self) -> str:
        return f"<{self.op.name}: {self.type}>"

    # Arithmetic, for derivatives and decompositions: broadcasts, and takes Python numbers.
    def __add__(self, other: Node | Number) -> Node:
        return _arithmetic("add", self, other)

    def __radd__(self, other: Node | Number) -> Node:
        return _arithmetic("add", other, self)

    def __sub__(self, other: Node | Number) -> Node:
        return _arithmetic("sub", self, other)

    def __rsub__(self, other: Node | Number) -> Node:
        return _arithmetic("sub", other, self)

    def __mul__(self, other: Node | Number) -> Node:
        return _arithmetic("mul", self, other)

    def __rmul__(self, other: Node | Number) -> Node:
        return _arithmetic("mul", other, self)

    def __truediv__(self, other: Node | Number) -> Node:
        return _arithmetic("div", self, other)

    def __rtruediv__(self, other: Node | Number) -> Node:
        return _arithmetic("div", other, self)

    def __neg__(self) -> Node:
        return OPS["neg"](self)


_table: dict[tuple, weakref.ref[Node]] = {}
"""Every node that an equal one may be recorded of, by its op, attributes and the `id` of each operand: a living node
holds its operands, so no other node has their addresses. A key with the operands themselves would keep each of them
from outside, and with it whatever its hooks and its boundary hold: a value made of it, too."""

_source: Source | TextSource | None = None


_forget: Final = _table.pop
"""What a node's end calls: as `MethodType(_forget, key)`, which takes the weak reference as the default. No line of
Python runs there, where it would swallow an interrupt. A place that is another node's by now is not reached: the
reference was dropped with it."""


def _key(op: Op, inputs: tuple[Node, ...], attrs: tuple) -> tuple:
    """The node's key in the table; `make` has the same in its own lines."""
    return op, attrs, *map(id, inputs)


def forget_equal(nodes: Iterable[Node]) -> None:
    """Let these nodes be equal to none that is recorded from now on: their ops, recorded again, are new nodes, with the
    line that records them."""
    for node in nodes:
        key = _key(node.op, node.inputs, node.attrs)
        entry = _table.get(key)
        if entry is not None and entry() is node:
            _table.pop(key, None)


_new_node = Node.__new__
next_node_number: Final = count(1).__next__
"""Numbers of nodes, and of what is told apart by whether a node is older."""


def unique(op: Op, inputs: tuple[Node, ...], attrs: tuple, result: Types,
           source: Source | TextSource | None = None) -> Node:
    """A node that is equal to no other, such as the leaf for a tensor's memory: the table does not know it."""
    node = _new_node(Node)
    node.op, node.inputs, node.attrs = op, inputs, attrs
    node.type, node.source = result, source  # type: ignore[assignment]
    node.buffer = node.hooks = node.boundary = None
    node.needs_grad = node.shown = False
    node.number = next_node_number()
    return node


def make(op: Op, inputs: tuple[Node, ...], attrs: tuple = (), source: Source | TextSource | None = None) -> Node:
    """The node `op(inputs)` with these attributes: the existing one, unless it is a tensor's own, or a new one."""
    if op.has_floats:
        attrs = told_apart(attrs)
    key: tuple
    if (count := len(inputs)) == 1:  # a third of the time of a `map`, and most nodes have few operands
        a, = inputs
        key = (op, attrs, id(a))
    elif count == 2:
        a, b = inputs
        key = (op, attrs, id(a), id(b))
    elif count == 3:
        a, b, c = inputs
        key = (op, attrs, id(a), id(b), id(c))
    else:
        key = _key(op, inputs, attrs)
    entry = _table.get(key)
    if entry is not None:
        found = entry()
        if found is not None and not found.shown:
            if source is not None and found.source is None:
                found.source = source
            return found
    result = result_type(op, inputs, attrs)
    node = unique(op, inputs, attrs, result, source if source is not None else _source)
    if op.differentiable:
        for x in inputs:
            if x.needs_grad:
                node.needs_grad = _flows_through(result)
                break
        else:
            node.needs_grad = op.name == "watch"
    _table[key] = weakref.ref(node, MethodType(_forget, key))
    return node


def make_apart(op: Op, inputs: tuple[Node, ...], attrs: tuple = (),
               source: Source | TextSource | None = None) -> Node:
    """`make` for a value that one tensor is going to show, and that a gradient flows through, as through one of its
    operands: no equal node is looked for, and none will be found that is this one. Such a node is its tensor's own
    (`Node.shown`), so the table would hold it for nothing: half a microsecond to make and free one, and a third of the
    objects that Python's collector counts (`benchmarks/recording.py`)."""
    if op.has_floats:
        attrs = told_apart(attrs)
    result = result_type(op, inputs, attrs)
    node = unique(op, inputs, attrs, result, source if source is not None else _source)
    node.needs_grad = _flows_through(result)
    return node


def _flows_through(result: Types) -> bool:
    """Whether a gradient flows through a result of this type that depends on what a gradient flows through."""
    return type(result) is tuple or result.dtype.kind == "float"  # type: ignore[union-attr]


def leaf(op: Op, attrs: tuple, kind: TensorType) -> Node:
    """`make` of an op without operands, whose type is known: values that a program never had before are common among
    numbers, and to work out the type of each would take longer than to make its node."""
    entry = _table.get(key := (op, attrs))
    found = entry() if entry is not None else None
    if found is None:
        found = unique(op, (), attrs, kind, _source)
        _table[key] = weakref.ref(found, MethodType(_forget, key))
    return found


class located:
    """Nodes made inside that give no source of their own get this one.

    A class, as passes enter one for each node: the context of a generator takes three times as long, a twentieth of the
    time that it takes to compile a program of thousands of nodes.
    """

    __slots__ = ("_before", "_source")

    def __init__(self, source: Source | TextSource | None):
        self._source = source

    def __enter__(self) -> located:
        global _source
        self._before, _source = _source, self._source
        return self

    def move(self, source: Source | TextSource | None) -> None:
        """Nodes made from here on get this one: a rewrite of thousands of nodes enters one context."""
        global _source
        _source = source

    def __exit__(self, *raised: object) -> None:
        global _source
        _source = self._before


NUMBER_TYPES: Final = {
    bool: tensor_type((), bool_, cpu, weak=True),
    int: tensor_type((), int64, cpu, weak=True),
    float: tensor_type((), float64, cpu, weak=True),
}


def literal(value: bool | int | float) -> Node:
    """A number of a formula: a constant of the program, weakly typed.

    >>> literal(2.0).type
    f64~[]
    """
    if value.__class__ is float and is_negative_zero(value):
        return OPS["neg"](literal(0.0))
    if value != value:
        value = math.nan  # NaN differs from NaN, but this object is itself: one node
    kind = NUMBER_TYPES[type(value_of(value))]
    return leaf(OPS["const"], (value, kind), kind)


def _arithmetic(name: str, a: Node | Number, b: Node | Number) -> Node:
    left = a if isinstance(a, Node) else literal(a)
    right = b if isinstance(b, Node) else literal(b)
    first, second = left.type, right.type
    if first is not second and not first.weak and not second.weak:  # else there is nothing to expand, as nearly always
        left, right = broadcast(left, right)
    return make(OPS[name], (left, right))


def broadcast(*nodes: Node) -> tuple[Node, ...]:
    """The nodes expanded to their common shape; weakly typed numbers stay as they are."""
    shape = broadcast_shapes(*(n.type.shape for n in nodes if not n.type.weak))
    expand = OPS["expand"]
    return tuple(n if n.type.weak or n.type.shape == shape else make(expand, (n,), (shape,)) for n in nodes)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that all of these broadcast to, or RuntimeError.

    >>> broadcast_shapes((4, 1), (3,))
    (4, 3)
    """
    rank = max((len(s) for s in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for position, size in enumerate(shape, rank - len(shape)):
            if result[position] == 1:
                result[position] = size
            elif size != 1 and size != result[position]:
                raise RuntimeError(f"shapes {' and '.join(map(str, shapes))} do not broadcast: "
                                   f"sizes {result[position]} and {size} at dimension {position - rank}")
    return tuple(result)
