"""Random training steps over sizes that change, run plain and compiled in two equal worlds.

    python -m tests.tracing.size_programs.steps 0 1000    # these, with what differs made small
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from textwrap import indent
from typing import Any

import genesis
from tests.tracing.fuzzing import Fuzzer
from tests.tracing.programs.run import ramp, shown
from tests.tracing.size_programs.draw import FUNCTION, WORLD, Program, grown
from tests.tracing.size_programs.run import World, difference, read
from tests.tracing.size_programs.tables import EFFECTS, STATEMENTS

CALLS = 16
"""Calls of a step."""

ROWS = (7, 9, 12, 5, 31, 8, 2, 3, 4, 16, 6, 40, 1, 33, 11)
"""Rows of a batch; those of the first calls are taken from the first."""

PARTS = """
genesis.manual_seed(1)
s.lin, s.norm, s.drop, s.conv = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Conv1d(1, 2, 3, padding=1)
optim = genesis.optim
o = {optimizer}
schedule = {schedule}
mean = genesis.zeros(4, 4)

def rest():
    return sum(p.sum() for p in s.parameters() if p.requires_grad) / 1000
"""

OPTIMIZERS = (
    "optim.SGD(s.parameters(), lr=0.05)", "optim.SGD(s.parameters(), lr=0.05, momentum=0.9)",
    "optim.AdamW(s.parameters(), lr=0.01)", "optim.AdamW(s.parameters(), lr=0.01)",
    "optim.Adam(s.parameters(), lr=0.01, amsgrad=True)", "optim.RMSprop(s.parameters(), lr=0.01)",
    "optim.Adagrad(s.parameters(), lr=0.05)",
    "optim.AdamW([{'params': [s.w]}, {'params': s.lin.parameters(), 'lr': 0.1}])")

SCHEDULES = ("optim.lr_scheduler.StepLR(o, 2)", "optim.lr_scheduler.LambdaLR(o, lambda k: 1 / (k + 1))",
             "optim.lr_scheduler.CosineAnnealingLR(o, 9)")

MODELS = (
    "T.float() @ s.w", "s.lin(T.float())", "s.norm(s.lin(T.float())).exp()", "s.drop(T.float() @ s.w)",
    "s.conv(T.float()[:, None]).flatten(1)", "F.relu(T.float() @ s.w)", "s.lin(T.float() @ s.w) * N",
    "s.lin(genesis.cat([T.float(), T.float()]))", "(T.float() @ s.w).softmax(0)", "s.lin(T.float())[:N]",
    "s.lin(T.float()) if C else T.float() @ s.w", "s.drop(F.gelu(s.lin(T.float() / 9))) @ s.w",
    "genesis.checkpoint(lambda v: F.gelu(s.lin(v)), T.float())")

LOSSES = (
    "h.mean()", "h.square().mean()", "F.mse_loss(h, genesis.zeros_like(h))", "h.tanh().sum() / x.shape[0]",
    "h.tanh().sum() / N", "(h * N).tanh().mean()", "h.tanh().square().mean() if C else h.tanh().mean()",
    "F.cross_entropy(h, genesis.arange(h.shape[0]) % 4)", "sum(row.tanh().sum() for row in h)")

ALL = (" + rest()", " + rest()", " + rest()", "")
"""What gives all parameters a gradient: those that take turns in getting one count their steps apart."""

BEFORE = ("o.zero_grad()", "pass", "pass", "o.zero_grad(set_to_none=False)")

BETWEEN = (
    "pass", "pass", "pass", "nn.utils.clip_grad_norm_(s.parameters(), 1.0)",
    "nn.utils.clip_grad_value_(s.parameters(), 0.1)",
    "s.w.grad = s.w.grad * 0.5", "with genesis.no_grad(): s.lin.weight.mul_(0.99)", "if C: s.w.grad = None",
    "if s.w.grad is not None: s.w.grad.mul_(x.shape[0])", "if C: o.zero_grad()")

AFTER = (
    "o.zero_grad()", "o.zero_grad()", "o.zero_grad()", "pass", "schedule.step()", "o.zero_grad(); schedule.step()",
    "mean.lerp_(s.w.detach(), 0.1); o.zero_grad()", "s.last = loss.detach(); o.zero_grad()",
    "s.k += 1; o.zero_grad()", "s.seen.append(loss.detach()); o.zero_grad()", "o.zero_grad(); s.last = x.shape[0]",
    "(s.lin(x.float()).tanh().mean()).backward(); o.zero_grad()", "b[:x.shape[0]] = x[:8]; o.zero_grad()")

RESULTS = ("loss", "loss", "loss.detach()", "loss, x.shape[0]", "loss, h.detach()", "h.detach()[:2], n",
           "loss.item()", "None", "dict(loss=loss.detach(), n=N)", "loss, s.w", "s.w.grad")

CHANGES = (
    "o.param_groups[0]['lr'] = 0.02", "s.w.grad = None", "o.zero_grad()", "s.w.grad = ramp(4, 4) / 99",
    "genesis.manual_seed(3)", "s.w.data.mul_(0.5)", "s.train(not s.training)", "s.rate = 0.25", "s.k = 5",
    "s.w.requires_grad_(not s.w.requires_grad)", "kept = [p.grad for p in s.parameters()]",
    "o.load_state_dict(o.state_dict())",
    "handle = s.w.register_hook(lambda g: g * 2)", "s.drop.p = 0.5")


@dataclasses.dataclass(frozen=True)
class Step(Program):
    """A training step. `is_method` says nothing here.

    Attributes:
        parts: the text that makes its optimizer and schedule.
    """

    parts: str = ""

    def source(self) -> str:
        """The text that makes a world."""
        body = indent("\n".join(self.body), " " * 8)
        return WORLD.format(method="") + self.parts + FUNCTION.format(body=body)


class StepWorld(World):
    """A world in which a step is called."""

    def call(self, change: str, rows: int, other: int | None, numbers: tuple[Any, ...], tracked: bool,
             dtype: str) -> list[Any]:
        """What can be seen of a call, and of all that it trains."""
        net, optimizer = self.space["s"], self.space["o"]
        x = (ramp(rows, 4) / 9).to(getattr(genesis, dtype))
        y = x if other is None else (ramp(other, 4, start=2.0) / 9).to(getattr(genesis, dtype))
        seen = []
        try:
            exec(change, self.space)
            seen.append(shown((self.compiled or self.function)(x, y, *numbers)))
        except Exception as error:
            seen.append(type(error).__name__)
        held = [*net.named_parameters(), *net.named_buffers()]
        states = [optimizer.state.get(p) for p in net.parameters()]
        rates = [group["lr"] for group in optimizer.param_groups]
        kept = {name: vars(net)[name] for name in ("k", "rate", "cache", "last", "text", "seen", "training")}
        left = [[name, x, x.grad if x.is_leaf else None] for name, x in held]
        return [seen, *[read(part) for part in (left, states, rates, kept, self.space["mean"], self.space["b"],
                                                 genesis.get_rng_state())]]


def draw_step(seed: int) -> Step:
    """The step of a seed."""
    rng = random.Random(seed)
    effects = rng.choice((0.0, 0.0, 0.2))
    body = [grown(rng, rng.choice(EFFECTS if rng.random() < effects else STATEMENTS), 1)
            for _ in range(rng.choice((0, 0, 1, 2)))]
    body += [rng.choice(BEFORE), f"h = {grown(rng, rng.choice(MODELS), 1)}",
             f"loss = {grown(rng, rng.choice(LOSSES), 1)}{rng.choice(ALL)}",
             "loss.backward()", grown(rng, rng.choice(BETWEEN), 1), "o.step()", rng.choice(AFTER),
             f"return {grown(rng, rng.choice(RESULTS), 1)}"]
    parts = PARTS.format(optimizer=rng.choice(OPTIMIZERS), schedule=rng.choice(SCHEDULES))
    pair, numbers, calls = rng.choice(("same", "same", "equal", "other")), (rng.choice((5, 7, 9)), 2.5), []
    changes, moves = rng.choice((0.0, 0.0, 0.2)), rng.choice((0.0, 0.0, 0.0, 0.3))
    dtype = rng.choice(("float32", "float32", "float32", "int64"))
    for at in range(CALLS):
        rows = rng.choice(ROWS[:6] if at < 3 else ROWS)
        if rng.random() < moves:
            numbers = (rng.choice((5, 7, 9, 3, 0)), numbers[1])
        other = {"same": None, "equal": rows, "other": rng.choice(ROWS)}[pair]
        calls.append((rng.choice(CHANGES) if rng.random() < changes else "", rows, other, numbers, True, dtype))
    return Step(seed, False, tuple(body), tuple(calls), parts)


def step_difference(step: Program, counts: Counter[str]) -> str:
    """What differs between the plain calls and the compiled ones, '' for nothing."""
    return difference(step, counts, StepWorld)


FUZZER = Fuzzer(draw_step, step_difference)

if __name__ == "__main__":
    FUZZER.main()
