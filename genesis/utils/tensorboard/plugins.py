"""What TensorBoard's plugins read of a run beside numbers and pictures: embeddings as tables, curves of precision."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

MOST_THRESHOLDS: Final = 127
"""Thresholds of a curve at most: TensorBoard's plugin has room for that many, as torch's writer."""

LEAST: Final = 1e-7
"""Counts below divide as this: without any example precision and recall are 0, not NaN."""


def precision_curve(labels: np.ndarray, predictions: np.ndarray, thresholds: int,
                    weights: np.ndarray | None) -> np.ndarray:
    """(6, thresholds): true and false positives, true and false negatives, precision and recall, where a prediction of
    at least i / (thresholds - 1) counts as positive.

    >>> precision_curve(np.array([0, 1]), np.array([0.2, 0.9]), 3, None)[4:].tolist()
    [[0.5, 1.0, 0.0], [1.0, 1.0, 0.0]]
    """
    at = np.floor(predictions.ravel() * (thresholds - 1)).astype(np.int64)
    share = np.ones(at.shape) if weights is None else weights.ravel()
    positive = labels.ravel().astype(np.float64)
    true, false = (np.bincount(at, each * share, thresholds)[::-1].cumsum()[::-1] for each in (positive, 1 - positive))
    missed = true[0] - true
    return np.stack([true, false, false[0] - false, missed, true / np.maximum(LEAST, true + false),
                     true / np.maximum(LEAST, true + missed)])


def write_embedding(folder: str, rows: np.ndarray, labels: Sequence[Any] | None, header: Sequence[str] | None,
                    sprite: bytes | None, picture: tuple[int, int]) -> list[str]:
    """Write rows, their labels and the sheet of their pictures into a folder of the run; returns the lines that say so
    to the projector. `picture`: height and width of one."""
    os.makedirs(folder, exist_ok=True)
    name = os.path.basename(folder)
    _write_table(os.path.join(folder, "tensors.tsv"), rows.tolist())
    lines = [f'tensor_path: "{name}/tensors.tsv"']
    if labels is not None:
        table = labels if header is not None else [[label] for label in labels]
        _write_table(os.path.join(folder, "metadata.tsv"), [*([header] if header is not None else []), *table])
        lines.append(f'metadata_path: "{name}/metadata.tsv"')
    if sprite is not None:
        with open(os.path.join(folder, "sprite.png"), "wb") as file:
            file.write(sprite)
        height, width = picture
        lines += ["sprite {", f'image_path: "{name}/sprite.png"', f"single_image_dim: {width}",
                  f"single_image_dim: {height}", "}"]
    return lines


def _write_table(path: str, rows: Sequence[Sequence[Any]]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.writelines("\t".join(str(x).replace("\t", " ").replace("\n", " ") for x in row) + "\n" for row in rows)
