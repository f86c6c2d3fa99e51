"""Torch's names for tensor parallelism; what they are is in `genesis.nn.parallel.tensor`, which stands on modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genesis.frontend.later import names_later

if TYPE_CHECKING:
    from genesis.nn.parallel.tensor import ColwiseParallel as ColwiseParallel
    from genesis.nn.parallel.tensor import ParallelStyle as ParallelStyle
    from genesis.nn.parallel.tensor import PrepareModuleInput as PrepareModuleInput
    from genesis.nn.parallel.tensor import PrepareModuleInputOutput as PrepareModuleInputOutput
    from genesis.nn.parallel.tensor import PrepareModuleOutput as PrepareModuleOutput
    from genesis.nn.parallel.tensor import RowwiseParallel as RowwiseParallel
    from genesis.nn.parallel.tensor import SequenceParallel as SequenceParallel
    from genesis.nn.parallel.tensor import VocabularyParallel as VocabularyParallel
    from genesis.nn.parallel.tensor import parallelize_module as parallelize_module
    from genesis.nn.parallel.tensor import split_cross_entropy as split_cross_entropy

__path__: list[str] = []
"""No folder: an import of a module below comes to the finder that says what to use instead (`ir/absent.py`)."""

__getattr__, __dir__ = names_later(__name__)
