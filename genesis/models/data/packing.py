"""Rows of whole examples: as many as fit stand in one row, and do not see each other."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import TYPE_CHECKING

from genesis.models.data.examples import Example
from genesis.models.data.windows import IGNORED
from genesis.utils.data import Dataset

if TYPE_CHECKING:
    import numpy as np


def packed(lengths: Sequence[int], room: int) -> list[list[int]]:
    """Which examples share a row: the longest first, each into the row that it fills best.

    >>> packed([5, 3, 4, 1], room=8)
    [[0, 1], [2, 3]]
    """
    rows: list[list[int]] = []
    free: list[tuple[int, int]] = []  # (tokens left, row), sorted
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        place = bisect_left(free, (lengths[index], -1))
        if place == len(free):
            rows.append([index])
            left, row = room - lengths[index], len(rows) - 1
        else:
            left, row = free.pop(place)
            rows[row].append(index)
            left -= lengths[index]
        insort(free, (left, row))
    return rows


class PackedExamples(Dataset["dict[str, np.ndarray]"]):
    """Rows of `context` tokens that examples are packed into.

    Args:
        examples: to learn. One that is longer than a row is cut.
        context: tokens of a row.

    Attributes:
        cut: how many examples were too long.

    A sample has `input_ids`, `targets` (-100 where nothing is learnt), `documents` and `position_ids`, (context,) int64
    each. What is left of a row is a document of its own, of token 0.

    Raises:
        ValueError: no example has a token to learn.

    >>> rows = PackedExamples([Example((5, 6, 7), (False, True, True)), Example((8, 9), (True, True))], context=6)
    >>> {name: array.tolist() for name, array in rows[0].items()}
    {'input_ids': [5, 6, 7, 8, 9, 0], 'targets': [6, 7, -100, 9, -100, -100], 'documents': [0, 0, 0, 1, 1, 2], \
'position_ids': [0, 1, 2, 0, 1, 0]}
    """

    def __init__(self, examples: Sequence[Example], context: int):
        if context < 2:
            raise ValueError(f"PackedExamples: a row of {context} tokens predicts none")
        self.context, self.cut = context, sum(len(example.ids) > context for example in examples)
        self.examples = [e for e in examples if any(e.learnt[1:context])]
        if not self.examples:
            raise ValueError("PackedExamples: no example has a token to learn"
                             + (f" in its first {context}" if self.cut else ""))
        self.rows = packed([min(len(example.ids), context) for example in self.examples], context)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        import numpy as np
        sample = {name: np.zeros(self.context, np.int64)
                  for name in ("input_ids", "targets", "documents", "position_ids")}
        sample["targets"].fill(IGNORED)
        start = number = 0
        for number, example in enumerate((self.examples[i] for i in self.rows[index]), 1):
            ids, learnt = np.array(example.ids[:self.context]), np.array(example.learnt[:self.context])
            end = start + len(ids)
            sample["input_ids"][start:end] = ids
            sample["targets"][start:end - 1] = np.where(learnt[1:], ids[1:], IGNORED)
            sample["documents"][start:end] = number - 1
            sample["position_ids"][start:end] = np.arange(len(ids))
            start = end
        sample["documents"][start:] = number
        sample["position_ids"][start:] = np.arange(self.context - start)
        return sample
