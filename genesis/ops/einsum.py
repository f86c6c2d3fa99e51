"""einsum: products and sums in Einstein's notation, as permutes, products and matrix products."""

from __future__ import annotations

import math
from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import TensorBase, owned
from genesis.ir.errors import failure, is_foreign
from genesis.ops.common import broadcast_shapes
from genesis.ops.diagonals import diagonal
from genesis.ops.linalg import matmul
from genesis.ops.shape import expand, permute, reshape

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["einsum"]

_ROOM = 52
"""Labels above are those of an ellipsis' dimensions."""


def einsum(equation: Any, *operands: Any) -> Tensor:
    """The sum of products that the equation says.

    Operands are taken from left to right, two at a time; what two share and nobody else needs is summed by a matrix
    product. Dimensions of size 1 broadcast.

    Args:
        equation: "ij,jk->ik": a letter for each dimension, "..." for any others; without "->" the letters that
            appear once, sorted.
        operands: one tensor for each part, or one list of them. Without an equation each is followed by the numbers
            of its dimensions (`...` for any others), and the result's may come last.

    Raises:
        RuntimeError: letters and shapes do not fit.
        ValueError: a dimension's number is not one of 0 to 51.

    >>> import genesis
    >>> genesis.einsum("ij,jk->ik", genesis.ones(2, 3), genesis.ones(3, 2))
    tensor([[3., 3.],
            [3., 3.]])
    >>> genesis.einsum("ii", genesis.tensor([[1., 2.], [3., 4.]]))
    tensor(5.)
    >>> genesis.einsum(genesis.ones(2, 3), [0, 1], genesis.ones(3, 2), [1, 2], [0, 2]).shape
    genesis.Size([2, 2])
    """
    if not isinstance(equation, str):
        equation, *operands = _equation([equation, *operands])  # type: ignore[assignment]
    listed = len(operands) == 1 and not isinstance(operands[0], TensorBase) and not is_foreign(operands[0])
    tensors = list(operands[0]) if listed else list(operands)
    inputs, output = _parsed(equation, tensors)
    sizes = _sizes(equation, inputs, tensors)
    parts = [_single(labels, x) for labels, x in zip(inputs, tensors, strict=True)]
    labels, found = parts[0]
    for number, (other_labels, other) in enumerate(parts[1:], 1):
        needed = set(output).union(*(later for later, _ in parts[number + 1:]))
        labels, found = _pair(labels, found, other_labels, other, needed)
    gone = [i for i, label in enumerate(labels) if label not in output]
    if gone:
        found = found.sum(gone)
        labels = [label for label in labels if label in output]
    found = permute(found, [labels.index(label) for label in output])
    result = expand(found, tuple(sizes[label] for label in output))
    return owned(result) if gone or len(parts) > 1 else result


def _equation(given: list[Any]) -> list[Any]:
    """The equation of operands that are followed by the numbers of their dimensions, and the operands."""
    tensors, numbers = given[::2], given[1::2]
    output = [tensors.pop()] if len(given) % 2 else []
    for listed in (*numbers, *output):
        for number in listed:
            if number is not ... and not 0 <= number < _ROOM:
                raise failure("einsum", f"subscript {number} is not within the valid range [0, {_ROOM})",
                              error=ValueError)
    texts = ["".join("..." if number is ... else (ascii_uppercase + ascii_lowercase)[number] for number in listed)
             for listed in (*numbers, *output)]
    left = ",".join(texts[:len(numbers)])
    return [f"{left}->{texts[-1]}" if output else left, *tensors]


def _parsed(equation: str, tensors: list[Tensor]) -> tuple[list[list[int]], list[int]]:
    """Labels of each operand and of the result; an ellipsis' dimensions have labels from `_ROOM` up."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise failure("einsum", f"the equation {equation!r} is for {len(terms)} operands, not for {len(tensors)}")
    inputs = []
    widest = 0
    for position, (term, x) in enumerate(zip(terms, tensors, strict=True)):
        named = len(term.replace("...", ""))
        rank = x.spec.ndim
        dots = rank - named if "..." in term else 0
        if dots < 0 or (named != x.spec.ndim and "..." not in term):
            raise failure("einsum", f"the number of subscripts in the equation ({named}) does not match the number of "
                          f"dimensions ({x.spec.ndim}) for operand {position}", [("operand", x)])
        widest = max(widest, dots)
        inputs.append((term, dots))
    listed = [_labels(equation, term, dots, widest) for term, dots in inputs]
    if arrow:
        output = _labels(equation, right, widest if "..." in right else 0, widest)
        if len(set(output)) < len(output):
            raise failure("einsum", f"a letter appears more than once in the output of {equation!r}")
        if not set(output) <= {label for one in listed for label in one} | set(range(_ROOM, _ROOM + widest)):
            raise failure("einsum", f"a letter of the output of {equation!r} does not appear in any input")
        return listed, output
    counts: dict[int, int] = {}
    for one in listed:
        for label in one:
            counts[label] = counts.get(label, 0) + 1
    once = sorted(label for label, count in counts.items() if count == 1 and label < _ROOM)
    return listed, [*range(_ROOM, _ROOM + widest), *once]


def _labels(equation: str, term: str, dots: int, widest: int) -> list[int]:
    before, found, after = term.partition("...")
    for letter in before + after:
        if not (letter.isascii() and letter.isalpha()):
            raise failure("einsum", f"subscripts are letters, not {letter!r}: {equation!r}", error=RuntimeError)
    middle = list(range(_ROOM + widest - dots, _ROOM + widest)) if found else []
    return [*map(_number, before), *middle, *map(_number, after)]


def _number(letter: str) -> int:
    """Upper case letters come before lower case ones, as torch sorts them."""
    return ord(letter) - ord("A") if letter.isupper() else ord(letter) - ord("a") + 26


def _sizes(equation: str, inputs: list[list[int]], tensors: list[Tensor]) -> dict[int, int]:
    """The size of each label's dimension."""
    sizes: dict[int, int] = {}
    for labels, x in zip(inputs, tensors, strict=True):
        for label, size in zip(labels, x.spec.shape, strict=True):
            known = sizes.get(label, 1)
            if size not in (1, known) and known != 1:
                raise failure("einsum", f"operands do not broadcast with {equation!r}: a letter has sizes {known} and "
                              f"{size}", [("operand", x)])
            sizes[label] = max(known, size) if 0 not in (known, size) else 0
    return sizes


def _single(labels: list[int], x: Tensor) -> tuple[list[int], Tensor]:
    """One dimension for each label: of a repeated one the diagonal."""
    labels = list(labels)
    while len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        first, second = [i for i, label in enumerate(labels) if label == twice][:2]
        if x.spec.shape[first] != x.spec.shape[second]:
            raise failure("einsum", f"a repeated letter has sizes {x.spec.shape[first]} and {x.spec.shape[second]}",
                          [("operand", x)])
        x = diagonal(x, 0, first, second)
        labels = [label for i, label in enumerate(labels) if i not in (first, second)] + [twice]
    return labels, x


def _pair(labels_a: list[int], a: Tensor, labels_b: list[int], b: Tensor,
          needed: set[int]) -> tuple[list[int], Tensor]:
    """The product of two operands, summed over what is not needed any more."""
    a, labels_a = _summed(a, labels_a, needed | set(labels_b))
    b, labels_b = _summed(b, labels_b, needed | set(labels_a))
    size_a, size_b = dict(zip(labels_a, a.spec.shape, strict=True)), dict(zip(labels_b, b.spec.shape, strict=True))
    shared = [label for label in labels_a if label in size_b]
    a, labels_a = _summed(a, labels_a, needed | {x for x in shared if size_a[x] == size_b[x]})
    b, labels_b = _summed(b, labels_b, needed | {x for x in shared if size_a[x] == size_b[x]})
    shared = [label for label in labels_a if label in labels_b]
    batch = [label for label in shared if label in needed]
    inner = [label for label in shared if label not in needed]
    rows = [label for label in labels_a if label not in shared]
    columns = [label for label in labels_b if label not in shared]
    batch_a, batch_b = ([sizes[label] for label in batch] for sizes in (size_a, size_b))
    left = permute(a, [labels_a.index(label) for label in (*batch, *rows, *inner)])
    right = permute(b, [labels_b.index(label) for label in (*batch, *inner, *columns)])
    depth = math.prod(size_a[label] for label in inner)
    height, width = (math.prod(sizes[label] for label in part)
                     for sizes, part in ((size_a, rows), (size_b, columns)))
    left, right = reshape(left, (*batch_a, height, depth)), reshape(right, (*batch_b, depth, width))
    product = matmul(left, right) if inner else left * right
    shape = (*broadcast_shapes(tuple(batch_a), tuple(batch_b)), *(size_a[label] for label in rows),
             *(size_b[label] for label in columns))
    return [*batch, *rows, *columns], reshape(product, shape)


def _summed(x: Tensor, labels: list[int], kept: set[int]) -> tuple[Tensor, list[int]]:
    """x summed over the labels that nobody else has."""
    gone = [i for i, label in enumerate(labels) if label not in kept]
    return (x.sum(gone), [label for label in labels if label in kept]) if gone else (x, labels)
