"""Layers of designs of their own: sets that are matched, columns that are chosen, edges that are splines, mixing by
triangles, and convolutions whose weights are each example's."""

from __future__ import annotations

import itertools
import math
from typing import Any

from .lab import Lab, program


def corners(T: Any, boxes: Any) -> Any:
    """(centre, size) → (left, top, right, bottom)."""
    x, y, w, h = boxes.unbind(-1)
    return T.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], dim=-1)


def generalized_overlaps(T: Any, a: Any, b: Any) -> Any:
    """Of each pair: intersection over union, less the share of the hull that neither covers."""
    assert (a[:, 2:] >= a[:, :2]).all() and (b[:, 2:] >= b[:, :2]).all()

    def area(lows: Any, highs: Any) -> Any:
        sides = (highs - lows).clamp(min=0)
        return sides[..., 0] * sides[..., 1]
    shared = area(T.max(a[:, None, :2], b[:, :2]), T.min(a[:, None, 2:], b[:, 2:]))
    union = area(a[:, :2], a[:, 2:])[:, None] + area(b[:, :2], b[:, 2:]) - shared
    hull = area(T.min(a[:, None, :2], b[:, :2]), T.max(a[:, None, 2:], b[:, 2:]))
    return shared / union - (hull - union) / hull


@program(chaotic=True)
def set_prediction(lab: Lab) -> Any:
    """A detector without anchors: queries attend to an image, and are matched with its objects at the least cost."""
    T, nn, F = lab.T, lab.nn, lab.F
    queries, classes = 4, 3

    class Detector(nn.Module):
        def __init__(self, size: int = 8) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, size, 4, 4)
            self.transformer = nn.Transformer(size, 2, 1, 1, 16, dropout=0.0)
            self.queries = nn.Parameter(T.empty(queries, size))
            self.rows, self.columns = (nn.Parameter(T.empty(8, size // 2)) for _ in range(2))
            self.kind, self.box = nn.Linear(size, classes + 1), nn.Linear(size, 4)

        def forward(self, images: Any) -> dict[str, Any]:
            x = self.patches(images)
            height, width = x.shape[-2:]
            place = T.cat([self.columns[:width].unsqueeze(0).repeat(height, 1, 1),
                           self.rows[:height].unsqueeze(1).repeat(1, width, 1)], dim=-1).flatten(0, 1).unsqueeze(1)
            asked = self.queries.unsqueeze(1).repeat(1, len(images), 1)
            found = self.transformer(place + 0.1 * x.flatten(2).permute(2, 0, 1), asked).transpose(0, 1)
            return {"logits": self.kind(found), "boxes": self.box(found).sigmoid()}

    @T.no_grad()
    def matched(found: dict[str, Any], targets: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
        pairs = []
        for logits, boxes, target in zip(found["logits"], found["boxes"], targets, strict=True):
            cost = (5 * T.cdist(boxes, target["boxes"], p=1) - logits.softmax(-1)[:, target["labels"]]
                    - 2 * generalized_overlaps(T, corners(T, boxes), corners(T, target["boxes"]))).tolist()
            count = len(target["labels"])
            best = min(itertools.permutations(range(queries), count),
                       key=lambda chosen, cost=cost: sum(cost[q][k] for k, q in enumerate(chosen)))
            pairs.append((T.as_tensor(best, dtype=T.int64), T.arange(count)))
        return pairs

    model = lab.same(Detector())
    optimizer = lab.optim.AdamW(model.parameters(), lr=1e-2)
    weights = T.ones(classes + 1)
    weights[-1] = 0.1

    @lab.step
    def step(images: Any, targets: list[dict[str, Any]]) -> tuple[dict[str, Any], Any]:
        found = model(images)
        pairs = matched(found, targets)
        at = (T.cat([T.full_like(q, i) for i, (q, _) in enumerate(pairs)]), T.cat([q for q, _ in pairs]))
        wanted = T.full(found["logits"].shape[:2], classes, dtype=T.int64)
        wanted[at] = T.cat([target["labels"][k] for target, (_, k) in zip(targets, pairs, strict=True)])
        boxes, like = found["boxes"][at], T.cat([t["boxes"][k] for t, (_, k) in zip(targets, pairs, strict=True)])
        overlaps = generalized_overlaps(T, corners(T, boxes), corners(T, like))
        losses = {"kinds": F.cross_entropy(found["logits"].transpose(1, 2), wanted, weights),
                  "boxes": F.l1_loss(boxes, like, reduction="none").sum() / len(like),
                  "overlaps": (1 - T.diag(overlaps)).sum() / len(like)}
        optimizer.zero_grad()
        sum(losses.values()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return losses, at[1]

    return [step(lab.normal(2, 3, 16, 16), [{"labels": lab.ints(classes, n), "boxes": lab.uniform(n, 4) * 0.4 + 0.2}
                                            for n in (2, 3)]) for _ in range(6)], model.queries


@program(chaotic=True)
def columns_by_attention(lab: Lab) -> Any:
    """A network for tables that chooses columns step by step, with a sparse softmax whose gradient is written out."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Sparsemax(T.autograd.Function):  # type: ignore[misc, name-defined]
        """The nearest point of the simplex (Martins and Astudillo 2016)."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x = x - x.max(dim=-1, keepdim=True)[0]
            ordered = T.sort(x, descending=True, dim=-1)[0]
            ranks = T.arange(1, x.size(-1) + 1, device=x.device, dtype=x.dtype)
            sums = ordered.cumsum(-1) - 1
            count = (ranks * ordered > sums).sum(dim=-1, keepdim=True)
            result = T.clamp(x - sums.gather(-1, count - 1) / count.to(x.dtype), min=0)
            ctx.save_for_backward(count, result)
            return result

        @staticmethod
        def backward(ctx: Any, slope: Any) -> Any:
            count, result = ctx.saved_tensors
            slope = slope.clone()
            slope[result == 0] = 0
            mean = slope.sum(dim=-1, keepdim=True) / count.to(slope.dtype)
            return T.where(result != 0, slope - mean, slope)

    class Chunked(nn.Module):
        """Batch norm over parts of a batch."""

        def __init__(self, size: int) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(size, momentum=0.1)

        def forward(self, x: Any) -> Any:
            return T.cat([self.norm(part) for part in x.chunk(math.ceil(x.shape[0] / 4), 0)], dim=0)

    class Gated(nn.Module):
        def __init__(self, shared: Any) -> None:
            super().__init__()
            self.shared, self.norm = shared, Chunked(16)

        def forward(self, x: Any) -> Any:
            return F.glu(self.norm(self.shared(x)), dim=-1)

    class Chooser(nn.Module):
        def __init__(self, steps: int = 2) -> None:
            super().__init__()
            shared = nn.Linear(6, 16, bias=False)
            self.first = nn.BatchNorm1d(6)
            self.parts = nn.ModuleList(Gated(shared) for _ in range(steps + 1))
            self.choices = nn.ModuleList(nn.Sequential(nn.Linear(4, 6, bias=False), Chunked(6)) for _ in range(steps))
            self.last = nn.Linear(4, 2, bias=False)

        def forward(self, x: Any) -> tuple[Any, Any, Any]:
            x = self.first(x)
            left, total, sparsity, importance = T.ones(x.shape), 0, 0, T.zeros(x.shape)
            seen = self.parts[0](x)[:, 4:]
            for choice, part in zip(self.choices, self.parts[1:], strict=True):
                mask = Sparsemax.apply(choice(seen) * left)
                sparsity = sparsity + (mask * T.log(mask + 1e-15)).sum(dim=1).mean()
                left = (1.3 - mask) * left
                decided, seen = part(mask * x).split([4, 4], dim=-1)
                decided = F.relu(decided)
                total = total + decided
                importance += mask * decided.sum(dim=1, keepdim=True)
            return self.last(total), sparsity / len(self.choices), importance

    model = lab.same(Chooser())
    optimizer = lab.optim.Adam(model.parameters(), lr=0.02)

    @lab.step
    def step(x: Any, y: Any) -> Any:
        logits, sparsity, importance = model(x)
        loss = F.cross_entropy(logits, y) - 1e-3 * sparsity
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss, importance.detach()
    names = [name for name, _ in model.named_parameters()]
    return [step(lab.normal(10, 6), lab.ints(2, 10)) for _ in range(8)], model.state_dict(), names


@program
def splines_on_edges(lab: Lab) -> Any:
    """A Kolmogorov-Arnold network: each edge is a spline, which is fitted to samples first and trained then."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Splines(nn.Module):
        def __init__(self, inputs: int, outputs: int, cells: int = 4, degree: int = 3) -> None:
            super().__init__()
            self.degree = degree
            knots = (T.arange(-degree, cells + degree + 1) * (2 / cells) - 1).expand(inputs, -1).contiguous()
            self.register_buffer("knots", knots)
            self.base = nn.Parameter(T.empty(outputs, inputs))
            self.weight = nn.Parameter(T.empty(outputs, inputs, cells + degree))

        def bases(self, x: Any) -> Any:
            """(examples, inputs) → the B-splines' values, by de Boor's recursion."""
            x, t = x.unsqueeze(-1), self.knots
            found = ((x >= t[:, :-1]) & (x < t[:, 1:])).to(x.dtype)
            for k in range(1, self.degree + 1):
                rising = (x - t[:, :-(k + 1)]) / (t[:, k:-1] - t[:, :-(k + 1)]) * found[:, :, :-1]
                falling = (t[:, k + 1:] - x) / (t[:, k + 1:] - t[:, 1:-k]) * found[:, :, 1:]
                found = rising + falling
            return found.contiguous()

        @T.no_grad()
        def fit(self, x: Any, y: Any) -> None:
            """The least squares of values y (examples, inputs, outputs) at x."""
            found = T.linalg.lstsq(self.bases(x).transpose(0, 1), y.transpose(0, 1)).solution
            self.weight.data.copy_(found.permute(2, 0, 1))

        def forward(self, x: Any) -> Any:
            return F.linear(F.silu(x), self.base) + F.linear(self.bases(x).flatten(1), self.weight.flatten(1))

    model = lab.same(nn.Sequential(Splines(2, 4), nn.LayerNorm(4), nn.Tanh(), Splines(4, 1)))
    x = lab.uniform(40, 2) * 2 - 1
    model[0].fit(x, T.sin(3 * x).unsqueeze(-1).repeat(1, 1, 4) * T.arange(1, 5))
    optimizer = lab.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-4)
    scheduler = lab.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    @lab.step
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y) + 1e-4 * sum(part.weight.abs().mean() for part in (model[0], model[3]))
        loss.backward()
        optimizer.step()
        return loss
    losses = []
    for number in range(10):
        batch = x[4 * number:4 * number + 4]
        losses.append(step(batch, T.exp(batch[:, :1] * batch[:, 1:])))
        scheduler.step()
    return losses, [part.weight for part in (model[0], model[3])]
