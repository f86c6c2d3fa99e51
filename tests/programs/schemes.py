"""Ways to train a network: on mixed examples, on its own guesses, and as if its weights were small integers."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

from .lab import Lab, program


@program
def mixed_examples(lab: Lab) -> Any:
    """Mixup and cutmix by turns, smoothed labels, weights that decay by group, and an average of all states."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Around(nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return self.inner(x) + x

    def then_norm(layer: Any) -> Any:
        return nn.Sequential(layer, nn.GELU(), nn.BatchNorm2d(8))
    model = lab.same(nn.Sequential(
        then_norm(nn.Conv2d(3, 8, 2, stride=2)),
        *(nn.Sequential(Around(then_norm(nn.Conv2d(8, 8, 5, groups=8, padding="same"))), then_norm(nn.Conv2d(8, 8, 1)))
          for _ in range(2)),
        nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(8, 4)))
    average = copy.deepcopy(model).eval().requires_grad_(False)
    decays: dict[bool, list[Any]] = {True: [], False: []}
    for name, p in model.named_parameters():
        decays[p.ndim > 1 and not name.endswith(".bias")].append(p)
    optimizer = lab.optim.AdamW([{"params": decays[True], "weight_decay": 0.05},
                                 {"params": decays[False], "weight_decay": 0.0}], lr=1e-2)
    schedule = lab.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=3, T_mult=2)

    @T.no_grad()
    def follow(decay: float) -> None:
        for kept, now in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
            if kept.dtype.is_floating_point:
                kept.mul_(decay).add_(now.detach(), alpha=1 - decay)
            else:
                kept.copy_(now)

    def smoothed(logits: Any, target: Any) -> Any:
        logs = F.log_softmax(logits, dim=-1)
        return (-0.9 * logs.gather(dim=-1, index=target.unsqueeze(1)).squeeze(1) - 0.1 * logs.mean(dim=-1)).mean()

    found: list[Any] = []
    for turn in range(8):
        x, y = lab.normal(6, 3, 8, 8), lab.ints(4, 6)
        order, share = T.from_numpy(lab.draws.permutation(6)), float(lab.draws.beta(1.0, 1.0))
        if turn % 2:
            x = share * x + (1 - share) * x[order, :]
        else:
            side, (row, column) = int(8 * np.sqrt(1 - share)) // 2, lab.draws.integers(8, size=2)
            (top, left), (low, right) = np.clip((row - side, column - side), 0, 8), np.clip(
                (row + side, column + side), 0, 8)
            x[:, :, top:low, left:right] = x[order, :, top:low, left:right]
            share = 1 - (low - top) * (right - left) / (x.size(-1) * x.size(-2))
        optimizer.zero_grad()
        logits = model(x)
        loss = smoothed(logits, y) * share + smoothed(logits, y[order]) * (1.0 - share)
        loss.backward()
        optimizer.step()
        schedule.step(turn / 8)
        follow(0.9)
        guess = T.max(logits.data, 1)[1]
        found += [loss.item(), (share * guess.eq(y).sum() + (1 - share) * guess.eq(y[order]).sum()).item()]
    return found, average(x), list(average.buffers()), schedule.get_last_lr()


@program
def own_guesses(lab: Lab) -> Any:
    """Labels for few examples; what the network is sure of on others it has to say of their changed copies, too."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Conv2d(3, 6, 3, 1, 1, bias=False), nn.BatchNorm2d(6, momentum=0.001)
            self.act, self.second = nn.LeakyReLU(0.1, inplace=True), nn.Conv2d(6, 6, 3, 2, 1, bias=False)
            self.head = nn.Linear(6, 4)

        def forward(self, x: Any) -> Any:
            x = self.second(self.act(self.norm(self.first(x))))
            return self.head(F.adaptive_avg_pool2d(x, 1).view(-1, 6))
    model = lab.same(Small())
    shadow = {name: p.data.clone() for name, p in model.named_parameters() if p.requires_grad}
    optimizer = lab.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    schedule = lab.optim.lr_scheduler.LambdaLR(optimizer, lambda turn: max(0.0, math.cos(7 / 16 * math.pi * turn / 10)))

    def dealt(x: Any, rows: int, columns: int) -> Any:
        """The batch, dealt into hands: each holds examples of all three kinds."""
        return x.reshape(rows, columns, *x.shape[1:]).transpose(0, 1).reshape(-1, *x.shape[1:])

    @lab.step
    def step(x: Any, y: Any, plain: Any, changed: Any) -> tuple[Any, Any]:
        model.zero_grad()
        logits = dealt(model(dealt(T.cat((x, plain, changed)), 2, 5)), 5, 2)
        known, (ours, theirs) = logits[:2], logits[2:].chunk(2)
        sure, guess = T.max(T.softmax(ours.detach(), dim=-1), dim=-1)
        mask = sure.ge(0.3).to(x.dtype)
        loss = F.cross_entropy(known, y) + (F.cross_entropy(theirs, guess, reduction="none") * mask).mean()
        loss.backward()
        optimizer.step()
        return loss, mask.mean()

    found = []
    for _ in range(6):
        x, plain = lab.normal(2, 3, 8, 8), lab.normal(4, 3, 8, 8)
        changed = T.flip(plain, (3,)).roll(shifts=(1, -1), dims=(2, 3))
        changed[:, :, 2:4, 2:4] = 0.5
        found.append(step(x, lab.ints(4, 2), plain, changed))
        schedule.step()
        for name, p in model.named_parameters():
            shadow[name] = 0.1 * p.data + 0.9 * shadow[name].clone()
    right = model(x).topk(2, 1, True, True)[1].t().eq(T.zeros(2, dtype=T.int64).reshape(1, -1).expand(2, 2))
    return found, shadow, [right[:k].reshape(-1).to(x.dtype).sum(0).mul_(50.0) for k in (1, 2)]


@program(chaotic=True)
def small_integers(lab: Lab) -> Any:
    """Weights and activations rounded to a few bits, with step sizes that are learnt, and one that is given."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Rounded(T.autograd.Function):  # type: ignore[misc, name-defined]
        """Learned step sizes (Esser et al. 2020)."""

        @staticmethod
        def forward(ctx: Any, x: Any, step: Any, low: int, high: int) -> Any:
            ctx.save_for_backward(x, step)
            ctx.bounds = low, high
            return (x / step).round().clamp_(low, high) * step

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x, step), (low, high) = ctx.saved_tensors, ctx.bounds
            q = x / step
            below, above = (q < low).to(g.dtype), (q > high).to(g.dtype)
            inside = 1.0 - below - above
            slope = below * low + above * high + inside * (q.round() - q)
            return inside * g, (slope * g).sum().unsqueeze(dim=0), None, None

    class Quantizer(nn.Module):
        def __init__(self, low: int, high: int) -> None:
            super().__init__()
            self.low, self.high = low, high
            self.size = nn.Parameter(T.full((1,), 0.1))
            self.register_buffer("begun", T.zeros(1))

        def forward(self, x: Any) -> Any:
            if self.training and self.begun == 0:
                self.size.data.copy_(2 * x.detach().abs().mean() / math.sqrt(self.high))
                self.begun.fill_(1)
            slower = self.size / math.sqrt(x.numel() * self.high)
            return Rounded.apply(x, (self.size - slower).detach() + slower, self.low, self.high)

    class Convolution(nn.Conv2d):  # type: ignore[misc, name-defined]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.of_weight, self.of_input = Quantizer(-8, 7), Quantizer(0, 15)

        def forward(self, x: Any) -> Any:
            return self._conv_forward(self.of_input(x), self.of_weight(self.weight), self.bias)

    class Head(nn.Linear):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            size = self.weight.abs().amax(1, keepdim=True) / 7
            rounded = T.clamp(T.round(self.weight / size), -8, 7) * size
            return F.linear(x, self.weight + (rounded - self.weight).detach(), self.bias)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Convolution(1, 4, 3, padding=1), Convolution(4, 6, 3, stride=2)
            self.head = Head(54, 3)

        def forward(self, x: Any) -> Any:
            x = F.hardswish(self.second(F.relu6(self.first(x))))
            return self.head(T.flatten(T.fake_quantize_per_tensor_affine(x, 0.0625, 10, 0, 255), 1))

    model = lab.same(Net())
    sizes = [p for name, p in model.named_parameters() if "size" in name]
    others = [p for name, p in model.named_parameters() if "size" not in name]
    optimizer = lab.optim.SGD([{"params": others}, {"params": sizes, "lr": 1e-3}], lr=0.02, momentum=0.9,
                              weight_decay=1e-4)

    @lab.step
    def step(x: Any, y: Any) -> tuple[Any, Any]:
        optimizer.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        return loss, logits
    return [step(lab.uniform(5, 1, 8, 8), lab.ints(3, 5)) for _ in range(8)], dict(model.named_buffers()), sizes
