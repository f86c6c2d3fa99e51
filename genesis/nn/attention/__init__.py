"""`genesis.nn.attention`: which kernels `scaled_dot_product_attention` may use, with torch's names.

In: names of kernels. Out: a context, inside of which values are what they are outside.

There is one way for each program: the flash kernel where it applies, else the formula. The choice is accepted and
remembered; it changes nothing that can be seen but time.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from genesis.ir.suggest import suggesting

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """The kernels of torch's."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: SDPBackend | Sequence[SDPBackend], set_priority: bool = False) -> Iterator[None]:
    """Names the kernels that may be used inside, in the order of preference with `set_priority`.

    Raises:
        AssertionError: something that is no `SDPBackend`.

    >>> import genesis
    >>> with sdpa_kernel(SDPBackend.MATH):
    ...     genesis.nn.functional.scaled_dot_product_attention(*[genesis.ones(1, 2, 4)] * 3).shape
    genesis.Size([1, 2, 4])
    """
    for backend in [backends] if isinstance(backends, SDPBackend) else backends:
        assert isinstance(backend, SDPBackend), f"Backend must be an SDPBackend, not {type(backend).__name__}"
    yield


__getattr__ = suggesting(__name__)


__getattr__ = suggesting(__name__)
