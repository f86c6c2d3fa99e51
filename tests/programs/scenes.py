"""Images taken apart: boxes on a grid, transformations that are undone, and a picture in tables of hashed corners."""

from __future__ import annotations

import math
from typing import Any

from .lab import Lab, program


@program(chaotic=True)
def boxes_on_a_grid(lab: Lab) -> Any:
    """YOLO: each cell of a grid predicts boxes of three shapes; targets are scattered to the shape that fits best."""
    T, nn, F = lab.T, lab.nn, lab.F
    cells, classes = 4, 3
    shapes = T.tensor([[0.1, 0.15], [0.3, 0.25], [0.6, 0.7]])
    net = lab.same(nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8, momentum=0.03, eps=1e-4), nn.LeakyReLU(0.1, True),
        nn.Conv2d(8, 8, 3, 2, 1), nn.SiLU(), nn.Conv2d(8, 3 * (5 + classes), 1)))

    def fit(a: Any, b: Any) -> Any:
        shared = T.min(a[:, None], b[None]).prod(2)
        return shared / (a.prod(1)[:, None] + b.prod(1)[None] - shared)

    def targets(boxes: Any, wanted: Any) -> Any:
        image, kind = boxes[:, :2].long().t()
        at, size = boxes[:, 2:4] * cells, boxes[:, 4:6]
        overlaps = fit(size, shapes)
        _, best = overlaps.max(1)
        column, row = at.long().clamp_(0, cells - 1).t()
        there, absent = (T.zeros(*wanted.shape[:4], dtype=T.bool) for _ in range(2))
        absent.fill_(True)
        there[image, best, row, column] = 1
        absent[image, best, row, column] = 0
        for number, each in enumerate(overlaps):
            absent[image[number], each > 0.5, row[number], column[number]] = 0
        wanted[image, best, row, column, :2] = at - at.floor()
        wanted[image, best, row, column, 2:4] = T.log(size / shapes[best] + 1e-16)
        wanted[image, best, row, column, 4 + kind] = 1
        return there, absent, wanted
    optimizer = lab.optim.SGD([{"params": [p for p in net.parameters() if p.ndim > 1], "weight_decay": 5e-4},
                               {"params": [p for p in net.parameters() if p.ndim <= 1]}], lr=0.01, momentum=0.937,
                              nesterov=True)
    warm = lab.optim.lr_scheduler.LambdaLR(optimizer, [lambda at: min(1, (at + 1) / 4), lambda at: 0.5 ** (at // 3)])
    found: list[Any] = []
    for _ in range(8):
        across = (T.arange(cells)[:, None] + lab.uniform(cells, 1) * 0.9 + 0.05) / cells  # no two boxes have one cell
        image, kind = (lab.ints(n, cells, 1).to(T.get_default_dtype()) for n in (2, classes))
        boxes = T.cat([image, kind, across, lab.uniform(cells, 1) * 0.9 + 0.05, lab.uniform(cells, 2) * 0.6 + 0.05], 1)
        made = net(lab.uniform(2, 3, 16, 16)).view(2, 3, 5 + classes, cells, cells).permute(0, 1, 3, 4, 2).contiguous()
        there, absent, wanted = targets(boxes, T.zeros(*made.shape[:4], 4 + classes))
        place = T.sigmoid(made[..., :2])
        loss = F.mse_loss(place[there], wanted[..., :2][there]) + F.mse_loss(made[..., 2:4][there],
                                                                               wanted[..., 2:4][there])
        sure = made[..., 4]
        loss = loss + F.binary_cross_entropy_with_logits(sure[there], T.ones_like(sure[there]))
        loss = loss + 0.5 * F.binary_cross_entropy_with_logits(sure[absent], T.zeros_like(sure[absent]))
        loss = loss + F.binary_cross_entropy_with_logits(made[..., 5:][there], wanted[..., 4:][there])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warm.step()
        found += [loss.item(), int(there.sum()), int(absent.sum()), warm.get_last_lr()]
    return found


@program(chaotic=True)
def undone_steps(lab: Lab) -> Any:
    """Glow: a first batch scales the channels, 1 x 1 convolutions by their factors, couplings; samples go backwards."""
    T, nn, F = lab.T, lab.nn, lab.F

    class ActNorm(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.shift, self.scale = (nn.Parameter(T.zeros(1, channels, 1, 1)) for _ in range(2))
            self.register_buffer("begun", T.tensor(0, dtype=T.uint8))

        def forward(self, x: Any) -> Any:
            if self.begun.item() == 0:
                with T.no_grad():
                    flat = x.permute(1, 0, 2, 3).contiguous().view(x.shape[1], -1)
                    self.shift.data.copy_(-flat.mean(1).view(1, -1, 1, 1))
                    self.scale.data.copy_(-T.log(flat.std(1) + 1e-6).view(1, -1, 1, 1))
                    self.begun.fill_(1)
            return (x + self.shift) * self.scale.exp(), x.shape[2] * x.shape[3] * self.scale.sum()

        def back(self, y: Any) -> Any:
            return y * (-self.scale).exp() - self.shift

    class Mixing(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            q, _ = T.linalg.qr(lab.normal(channels, channels))
            order, low, up = T.linalg.lu(q)
            diagonal = T.diagonal(up)
            self.register_buffer("order", order)
            self.register_buffer("mask", T.triu(T.ones_like(up), 1))
            self.register_buffer("sign", T.sign(diagonal))
            self.register_buffer("one", T.eye(channels))
            self.low, self.up = nn.Parameter(low), nn.Parameter(T.triu(up, 1))
            self.size = nn.Parameter(T.log(T.abs(diagonal)))

        def weight(self) -> Any:
            low = self.low * self.mask.T + self.one
            return (self.order @ low @ (self.up * self.mask + T.diag(self.sign * T.exp(self.size))))[:, :, None, None]

        def forward(self, x: Any) -> Any:
            return F.conv2d(x, self.weight()), x.shape[2] * x.shape[3] * self.size.sum()

        def back(self, y: Any) -> Any:
            return F.conv2d(y, self.weight().squeeze().inverse()[:, :, None, None])

    class Coupling(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.net = lab.same(nn.Sequential(nn.Conv2d(channels // 2, 8, 3, padding=1), nn.ReLU(inplace=True),
                                              nn.Conv2d(8, channels, 3, padding=1)))
            self.net[-1].weight.data.mul_(0.1)

        def parts(self, kept: Any) -> Any:
            shift, scale = self.net(kept).chunk(2, 1)
            return shift, T.sigmoid(scale + 2)

        def forward(self, x: Any) -> Any:
            kept, changed = x.chunk(2, 1)
            shift, scale = self.parts(kept)
            return T.cat([kept, (changed + shift) * scale], 1), scale.log().flatten(1).sum(1)

        def back(self, y: Any) -> Any:
            kept, changed = y.chunk(2, 1)
            shift, scale = self.parts(kept)
            return T.cat([kept, changed / scale - shift], 1)

    class Flow(nn.Module):
        def __init__(self, channels: int = 4, steps: int = 2) -> None:
            super().__init__()
            self.steps = nn.ModuleList(kind(channels) for _ in range(steps) for kind in (ActNorm, Mixing, Coupling))

        def forward(self, x: Any) -> Any:
            x, total = F.pixel_unshuffle(x, 2), 0
            for step in self.steps:
                x, volume = step(x)
                total = total + volume
            return x, total

        def back(self, z: Any) -> Any:
            for step in reversed(self.steps):
                z = step.back(z)
            return F.pixel_shuffle(z, 2)
    model = Flow()
    optimizer = lab.optim.Adamax(model.parameters(), lr=1e-2, eps=1e-7)
    found: list[Any] = []
    for _ in range(6):
        x = T.floor(lab.uniform(4, 1, 8, 8) * 32) / 32 - 0.5 + lab.uniform(4, 1, 8, 8) / 32
        z, volume = model(x)
        prior = (-0.5 * math.log(2 * math.pi) - z**2 / 2).flatten(1).sum(1)
        loss = (-(prior + volume - math.log(32) * x[0].numel()) / (math.log(2) * x[0].numel())).mean()
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        optimizer.step()
        found += [loss.item(), volume.mean()]
    with T.no_grad():
        z, _ = model(x)
        return [found, T.allclose(model.back(z), x, atol=1e-8), model.back(0.7 * lab.normal(*z.shape))]


@program(chaotic=True)
def hashed_corners(lab: Lab) -> Any:
    """Instant-NGP in the plane: corners of grids of several resolutions are hashed into tables and interpolated."""
    T, nn, F = lab.T, lab.nn, lab.F
    levels, table, features = 3, 2**5, 2

    class Grid(nn.Module):
        def __init__(self, coarsest: int = 3, finest: int = 11) -> None:
            super().__init__()
            grown = math.exp((math.log(finest) - math.log(coarsest)) / (levels - 1))
            self.sizes = [math.floor(coarsest * grown**level + 1e-6) for level in range(levels)]
            self.tables = nn.ModuleList([nn.Embedding(table, features) for _ in range(levels)])
            for each in self.tables:
                nn.init.uniform_(each.weight, a=-1e-4, b=1e-4)
            self.register_buffer("corners", T.tensor([[i, j] for i in (0, 1) for j in (0, 1)]), persistent=False)

        def forward(self, x: Any) -> Any:
            found = []
            for size, each in zip(self.sizes, self.tables, strict=True):
                scaled = x * size
                corner = scaled.floor().long()
                inside = scaled - corner
                places = corner.unsqueeze(1) + self.corners
                hashed = places[..., 0] ^ (places[..., 1] * 2654435761)
                weights = T.where(self.corners.bool(), inside.unsqueeze(1), 1 - inside.unsqueeze(1)).prod(-1)
                found.append((each(hashed & (table - 1)) * weights.unsqueeze(-1)).sum(1))
            return T.cat(found, dim=-1)
    model = lab.same(nn.Sequential(Grid(), nn.Linear(levels * features, 8), nn.Softplus(), nn.Linear(8, 3),
                                   nn.Sigmoid()))
    slow = [p for name, p in model.named_parameters() if "tables" not in name]
    groups = [{"params": model[0].parameters(), "eps": 1e-15}, {"params": slow, "weight_decay": 1e-6}]
    optimizer = lab.optim.Adam(groups, lr=1e-2, betas=(0.9, 0.99))
    schedule = lab.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[4, 7], gamma=0.33)

    @lab.step
    def step(x: Any, wanted: Any) -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = F.huber_loss(model(x), wanted, delta=0.1)
        loss.backward()
        optimizer.step()
        return loss
    found: list[Any] = []
    for _ in range(10):
        x = lab.uniform(40, 2)
        wanted = T.stack([T.sin(6 * x[:, 0]), T.cos(4 * x[:, 1]), x.prod(1)], dim=1) * 0.4 + 0.5
        found += [step(x, wanted).item(), schedule.get_last_lr()[0]]
        schedule.step()
    return [found, model[0].tables[2].weight]
