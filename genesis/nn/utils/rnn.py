"""Sequences of several lengths: padded to one, or packed, step after step, without padding."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.types import int64
from genesis.ops.creation import tensor
from genesis.ops.parts import cat, stack

__all__ = ["PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence",
           "pad_sequence", "unpack_sequence", "unpad_sequence"]


class _Fields(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Fields):
    """The elements of sequences, step after step, the longest sequence first; made by `pack_padded_sequence`.

    Attributes:
        data: (all elements, ...).
        batch_sizes: int64, on the CPU: for each step, how many sequences have it.
        sorted_indices: where each sequence was in the batch; None where the batch was sorted.
        unsorted_indices: the inverse.
    """

    __slots__ = ()

    def __new__(cls, data: Tensor, batch_sizes: Tensor, sorted_indices: Tensor | None = None,
                unsorted_indices: Tensor | None = None) -> PackedSequence:
        """The inverse permutation is worked out where it is not given."""
        return super().__new__(cls, data, batch_sizes, sorted_indices,
                               invert_permutation(sorted_indices) if unsorted_indices is None else unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The elements on another device or with another dtype."""
        data = self.data.to(*args, **kwargs)
        indices = [None if x is None else x.to(data.device) for x in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(data, self.batch_sizes, *indices)

    def cpu(self) -> PackedSequence:
        """The sequence on the CPU."""
        return self.to("cpu")

    def cuda(self, device: Any = None) -> PackedSequence:
        """The sequence on a GPU."""
        return self.to("cuda" if device is None else device)

    def float(self) -> PackedSequence:
        """The packed sequence in float32."""
        return self._replace(data=self.data.float())

    def double(self) -> PackedSequence:
        """The packed sequence in float64."""
        return self._replace(data=self.data.double())

    def half(self) -> PackedSequence:
        """The packed sequence in float16."""
        return self._replace(data=self.data.half())

    def long(self) -> PackedSequence:
        """The packed sequence in int64."""
        return self._replace(data=self.data.long())

    def int(self) -> PackedSequence:
        """The packed sequence in int32."""
        return self._replace(data=self.data.int())

    def short(self) -> PackedSequence:
        """The packed sequence in int16."""
        return self._replace(data=self.data.short())

    def char(self) -> PackedSequence:
        """The packed sequence in int8."""
        return self._replace(data=self.data.char())

    def byte(self) -> PackedSequence:
        """The packed sequence in uint8."""
        return self._replace(data=self.data.byte())

    def pin_memory(self) -> PackedSequence:
        """The packed sequence in page-locked memory."""
        return self._replace(data=self.data.pin_memory())

    def is_pinned(self) -> bool:
        """Whether the elements are in page-locked memory."""
        return bool(self.data.is_pinned())

    @property
    def is_cuda(self) -> bool:
        """Whether the elements are on a GPU."""
        return self.data.is_cuda

    def lengths(self) -> list[builtins.int]:
        """The lengths of the sequences, the longest first."""
        sizes = self.batch_sizes.tolist()
        return [sum(size > i for size in sizes) for i in range(sizes[0])] if sizes else []


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes one.

    >>> import genesis
    >>> invert_permutation(genesis.tensor([2, 0, 1]))
    tensor([1, 2, 0])
    """
    return None if permutation is None else permutation.argsort()


def _places(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """(step, sequence) of all elements, step after step; the longest sequence is first."""
    return [(t, i) for t in range(lengths[0]) for i, length in enumerate(lengths) if length > t]


def pack_padded_sequence(input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False,
                         enforce_sorted: bool = True) -> PackedSequence:
    """Pack padded sequences.

    Args:
        input: (time, batch, ...), with `batch_first` (batch, time, ...).
        lengths: of each sequence, in a list or on the CPU.
        batch_first: see input.
        enforce_sorted: the lengths never grow; otherwise the sequences are sorted.

    Raises:
        RuntimeError: a length is not positive, or they grow where that is not allowed.

    >>> import genesis
    >>> packed = pack_padded_sequence(genesis.tensor([[1, 2, 0], [3, 4, 5]]), [2, 3], True, enforce_sorted=False)
    >>> packed.data.tolist(), packed.batch_sizes.tolist()
    ([3, 1, 4, 2, 5], [2, 2, 1])
    """
    counts = [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
    batch, time = (0, 1) if batch_first else (1, 0)
    if len(counts) != input.shape[batch]:
        raise failure("pack_padded_sequence", f"Expected `len(lengths)` to be equal to batch_size, but got "
                      f"{len(counts)} (batch_size={input.shape[batch]})", [("input", input)])
    if not counts or min(counts) <= 0:
        raise failure("pack_padded_sequence", "Length of all samples has to be greater than 0", [("input", input)],
                      hint="leave empty sequences out")
    if max(counts) > input.shape[time]:
        raise failure("pack_padded_sequence", f"a length of {max(counts)} is more than the {input.shape[time]} steps "
                      "of the input", [("input", input)])
    order = None
    if enforce_sorted:
        if any(a < b for a, b in itertools.pairwise(counts)):
            raise failure("pack_padded_sequence", "`lengths` array must be sorted in decreasing order when "
                          "`enforce_sorted` is True", hint="enforce_sorted=False")
    else:
        numbers = sorted(range(len(counts)), key=lambda i: -counts[i])
        order = tensor(numbers, dtype=int64, device=input.device)
        input, counts = input.index_select(batch, order), [counts[i] for i in numbers]
    flat = input.flatten(0, 1)
    steps, width = input.shape[time], len(counts)
    rows = [i * steps + t if batch_first else t * width + i for t, i in _places(counts)]
    data = flat.index_select(0, tensor(rows, dtype=int64, device=input.device))
    return PackedSequence(data, _sizes(counts), order)


def _sizes(counts: Sequence[int]) -> Tensor:
    return tensor([sum(n > t for n in counts) for t in range(counts[0])], dtype=int64)


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
                        total_length: int | None = None) -> tuple[Tensor, Tensor]:
    """The inverse of `pack_padded_sequence`: the padded sequences, and their lengths on the CPU.

    Args:
        sequence: packed.
        batch_first: the result is (batch, time, ...).
        padding_value: of the padding.
        total_length: the result's time; the longest sequence's by default.
    """
    counts = sequence.lengths()
    steps = counts[0] if total_length is None else total_length
    if steps < counts[0]:
        raise failure("pad_packed_sequence", "Expected total_length to be at least the length of the longest sequence "
                      f"in input, but got total_length={steps} and max sequence length being {counts[0]}",
                      error=ValueError)
    order = list(range(len(counts))) if sequence.unsorted_indices is None else sequence.unsorted_indices.tolist()
    number = {place: row for row, place in enumerate(_places(counts))}
    padding = len(number)
    rows = [[number.get((t, order[i]), padding) for i in range(len(counts))] for t in range(steps)]
    if batch_first:
        rows = [list(column) for column in zip(*rows, strict=True)]
    data = sequence.data
    room = cat([data, data.new_full((1, *data.shape[1:]), padding_value)])
    found = room.index_select(0, tensor(rows, dtype=int64, device=data.device).flatten())
    return found.unflatten(0, (len(rows), len(rows[0]))), tensor([counts[i] for i in order], dtype=int64)


def pad_sequence(sequences: Sequence[Tensor] | Tensor, batch_first: bool = False, padding_value: float = 0.0,
                 padding_side: str = "right") -> Tensor:
    """Sequences (length, ...) as one tensor, (time, batch, ...) or with `batch_first` (batch, time, ...).

    >>> import genesis
    >>> pad_sequence([genesis.ones(1), genesis.ones(2)], batch_first=True).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    listed = list(sequences)
    if padding_side not in ("left", "right"):
        raise failure("pad_sequence", f"padding_side should be one of ['left', 'right'], but got {padding_side!r}")
    if not listed:
        raise failure("pad_sequence", "received an empty list of sequences")
    longest = max(x.shape[0] for x in listed)
    padded = []
    for x in listed:
        room = x.new_full((longest - x.shape[0], *x.shape[1:]), padding_value)
        padded.append(cat([x, room] if padding_side == "right" else [room, x]))
    return stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The sequences in a padded tensor."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[:int(n)] for row, n in zip(rows, lengths.tolist(), strict=True)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences (length, ...).

    >>> import genesis
    >>> pack_sequence([genesis.tensor([1, 2]), genesis.tensor([3])]).data.tolist()
    [1, 3, 2]
    """
    return pack_padded_sequence(pad_sequence(sequences), [x.shape[0] for x in sequences], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a packed one.

    >>> import genesis
    >>> unpack_sequence(pack_sequence([genesis.tensor([1.0, 2.0]), genesis.tensor([3.0])]))
    [tensor([1., 2.]), tensor([3.])]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
