"""What a run reads, told by its content: a folder that was moved is the same, a file that was edited is another.

A run that goes on counts rows of its data, so that other data would give it some twice and others never.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genesis.cli.run_config import RunConfig


def inputs_of(config: RunConfig) -> Mapping[str, str]:
    """Field of the configuration → digest of what it names."""
    return {field: digest_of(path) for field, path in config.inputs().items()}


def digest_of(path: str) -> str:
    """A digest of a file, or of a folder of tokens or of a model: of its sizes and of samples all over its files.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    from genesis.models.data.shards import INDEX
    from genesis.models.folder import find_folder, fingerprint, sampled
    place = Path(path)
    if place.is_file():
        with place.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    if (place / INDEX).is_file():
        return sampled([place / INDEX, *sorted(place.glob("*.bin"))])
    return fingerprint(find_folder(path))
