"""Windows over tokens on the disk: all rows are full, and documents may be kept apart by a mask."""

from __future__ import annotations

import os
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from genesis.models.data.shards import TokenFolder
from genesis.utils.data import Dataset

if TYPE_CHECKING:
    import numpy as np

IGNORED: Final = -100
"""The target where no token counts, as in `cross_entropy`."""


class TokenWindows(Dataset["dict[str, np.ndarray]"]):
    """Every window of `context` tokens of a folder of tokens, one after another. What remains of a shard is left out.

    Args:
        folder: that `genesis data` wrote.
        context: tokens of a row.
        documents: a token sees those of its own document only, positions count from its beginning in the row, and
            the last token of one does not predict the first of the next.

    A sample has `input_ids` and `targets`, (context,) int64 each, and with `documents` also `documents` (a number for
    each text) and `position_ids`.

    Raises:
        ValueError: fewer tokens than one window needs.

    >>> import tempfile
    >>> from genesis.models.data import write_tokens
    >>> from genesis.models.text import byte_tokenizer
    >>> folder = write_tokens(["ab", "cde", "f"], byte_tokenizer(), tempfile.mkdtemp()).path
    >>> rows = TokenWindows(folder, context=4, documents=True)
    >>> len(rows), rows[0]["input_ids"].tolist(), rows[0]["targets"].tolist(), rows[0]["documents"].tolist()
    (2, [97, 98, 256, 99], [98, 256, -100, 100], [0, 0, 0, 1])
    """

    def __init__(self, folder: str | os.PathLike[str], context: int, documents: bool = False):
        if context < 1:
            raise ValueError(f"TokenWindows: context={context} is no number of tokens: it is 1 or more")
        self.folder, self.context, self.documents = TokenFolder(folder), context, documents
        self._ends = list(accumulate((len(tokens) - 1) // context for tokens, _ in self.folder.shards))
        if not self._ends[-1]:
            raise ValueError(f"{folder} has {self.folder.tokens} tokens, too few for a row of {context} and the one "
                             "that follows")

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        import numpy as np
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        shard = bisect_right(self._ends, place)
        start = (place - (self._ends[shard - 1] if shard else 0)) * self.context
        tokens, ends = self.folder.shards[shard]
        row = tokens[start:start + self.context + 1].astype(np.int64)
        sample = {"input_ids": row[:-1], "targets": row[1:].copy()}
        if self.documents:
            sample.update(self._apart(sample["targets"], start, ends))
        return sample

    def _apart(self, targets: np.ndarray, start: int, ends: np.ndarray) -> dict[str, np.ndarray]:
        """The documents of a window and the places in them; forgets the targets across two."""
        import numpy as np
        places = np.arange(start, start + self.context, dtype=ends.dtype)  # of one dtype: else all ends are converted
        which = np.searchsorted(ends, places, side="right").astype(np.int64)
        targets[ends[which] == places + 1] = IGNORED
        first = np.searchsorted(which, which, side="left")
        return {"documents": which - which[0], "position_ids": np.arange(self.context) - first}
