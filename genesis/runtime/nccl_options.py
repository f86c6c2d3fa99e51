"""What a group asks of NCCL. It knows no library: a group is told before its transport is made."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class NcclConfig:
    """NCCL's settings of a communicator, with torch's names; None leaves one to NCCL.

    Args:
        min_ctas, max_ctas: thread blocks that a collective takes at least, at most: each keeps a multiprocessor from
            other kernels.
        cga_cluster_size: thread blocks of a cluster.
    """

    min_ctas: int | None = None
    max_ctas: int | None = None
    cga_cluster_size: int | None = None


@dataclass
class NcclOptions:
    """`pg_options` of a group whose backend is NCCL.

    Args:
        is_high_priority_stream: a collective's thread blocks go before those of other kernels that wait for a place.

    Attributes:
        config: NCCL's own settings.
    """

    is_high_priority_stream: bool = False
    config: NcclConfig = field(default_factory=NcclConfig)
