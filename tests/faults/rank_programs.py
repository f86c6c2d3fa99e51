"""Programs with collectives on a GPU among writes in place: as NCCL begins them, by calls into C, by way of the host,
and where a group's ranks meet for the first time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import genesis
from genesis import distributed as dist
from genesis import nn, optim
from genesis.nn import functional as F
from genesis.nn.parallel import DistributedDataParallel
from tests.faults.adverse_programs import moments
from tests.faults.further_programs import fill
from tests.faults.programs import Statement
from tests.faults.stateful_programs import Turning
from tests.faults.transports import MAKERS, apart_again, group_of


class Reduced(Turning):
    """A step by hand: values are overwritten before, by and after sums over ranks.

    Args:
        how: a row of `MAKERS`.
        apart: the ranks have not met where an iteration begins, and no plan is known.
    """

    def __init__(self, device: str, how: str, apart: bool = False):
        self.group, self._apart = group_of(how), apart
        self.w = genesis.linspace(-1, 1, 6).view(2, 3).clone().to(device)
        self.x = genesis.linspace(-1, 2, 12).view(4, 3).clone().to(device)
        self.mean, self.seen = genesis.zeros(2, 3).to(device), genesis.ones(4).to(device)
        super().__init__()

    def _begin(self) -> None:
        if self._apart:
            genesis.engine.reset()
            apart_again(self.group)

    def _sum(self, x: Any) -> None:
        dist.all_reduce(x, group=self.group)

    def _iteration(self) -> Iterator[Statement]:
        yield Statement("seen.mul_(0.5)", lambda: self._begin() or self.seen.mul_(0.5) is None or None)
        yield Statement("all_reduce(seen)", lambda: self._sum(self.seen))
        yield Statement("seen.add_(1)", lambda: self.seen.add_(1) is None or None)
        yield Statement("g = ...", lambda: {"g": (self.x @ self.w.t()).tanh().t() @ self.x * self.seen.sum()}, ("g",))
        yield Statement("all_reduce(g)", lambda: self._sum(self.names["g"]))
        yield Statement("w.sub_(g * 0.125)", lambda: self.w.sub_(self.names["g"] * 0.125) is None or None)
        yield Statement("mean.lerp_(w, 0.25)", lambda: self.mean.lerp_(self.w, 0.25) is None or None)
        yield Statement("all_reduce(mean)", lambda: self._sum(self.mean))
        yield Statement("mean.mul_(0.5)", lambda: self.mean.mul_(0.5) is None or None)
        yield Statement("broadcast(w, 0)", lambda: dist.broadcast(self.w, 0, group=self.group) and None)
        yield Statement("value = (w * mean).sum().item()",
                        lambda: {"value": (self.w * self.mean).sum().item()}, ("value",))

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from {"w": self.w, "mean": self.mean, "seen": self.seen}.items()


class Parallel(Turning):
    """A step under `DistributedDataParallel`, with batch norm, whose statistics are broadcast, and AdamW."""

    def __init__(self, device: str, how: str, apart: bool = False):
        self.group, self._apart = group_of(how), apart
        genesis.manual_seed(5)
        self.net = fill(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))).to(device)
        self.model = DistributedDataParallel(self.net, process_group=self.group, bucket_cap_mb=0.00002)
        self.opt = optim.AdamW(self.model.parameters(), lr=0.125)
        self.x = genesis.linspace(-1, 2, 12).view(4, 3).clone().to(device)
        self.y = genesis.tensor([0, 1, 1, 0]).to(device)
        super().__init__()

    def _begin(self) -> None:
        if self._apart:
            genesis.engine.reset()
            apart_again(self.group)
        self.opt.zero_grad()

    def _iteration(self) -> Iterator[Statement]:
        yield Statement("opt.zero_grad()", self._begin)
        yield Statement("loss = cross_entropy(model(x), y)",
                        lambda: {"loss": F.cross_entropy(self.model(self.x), self.y)}, ("loss",))
        yield Statement("loss.backward()", lambda: self.names["loss"].backward())
        yield Statement("opt.step()", self.opt.step)
        yield Statement("value = loss.item()", lambda: {"value": self.names["loss"].item()}, ("value",))

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from self.net.named_parameters()
        yield from self.net.named_buffers()
        yield from moments(self.opt, self.net.named_parameters())

    def graded(self) -> Iterator[tuple[str, Any]]:
        return self.net.named_parameters()


RANK_PROGRAMS: Final = {
    **{f"reduced {how}": lambda device, how=how: Reduced(device, how) for how in MAKERS},
    **{f"reduced {how}, apart": lambda device, how=how: Reduced(device, how, True) for how in ("of C", "staged")},
    **{f"parallel {how}": lambda device, how=how: Parallel(device, how) for how in ("of C", "staged")},
}
"""Name → what makes the program on a GPU. They are none of `PROGRAMS`, which run on the CPU as well."""
