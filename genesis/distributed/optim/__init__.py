"""Torch's name for an optimizer whose state is shared out; what it is is in `genesis.optim.zero_redundancy`.

In: parameters, and the class of an optimizer. Out: one whose state lies on all ranks, a part on each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from genesis.frontend.later import names_later

if TYPE_CHECKING:
    from genesis.optim.zero_redundancy import ZeroRedundancyOptimizer as ZeroRedundancyOptimizer

__getattr__, __dir__ = names_later(__name__)
