"""Programs of several fields: detection, a radiance field, private gradients, a flow of splines."""

from __future__ import annotations

import math
from typing import Any

from .lab import Lab, program


def overlaps(T: Any, a: Any, b: Any) -> Any:
    """Intersection over union of boxes (left, top, right, bottom): (n, m)."""
    low, high = T.max(a[:, None, :2], b[None, :, :2]), T.min(a[:, None, 2:], b[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    areas = [(x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1]) for x in (a, b)]
    return shared / (areas[0][:, None] + areas[1] - shared)


def without_overlaps(T: Any, boxes: Any, scores: Any, most: float) -> list[int]:
    """The best boxes of those that lie on each other, best first: the loop reads values."""
    left, kept = scores.argsort(), []
    while left.numel() > 0:
        best, left = left[-1], left[:-1]
        kept.append(best.item())
        left = left[overlaps(T, boxes[best][None], boxes[left])[0].le(most)]
    return kept


@program
def detection(lab: Lab) -> Any:
    """Boxes are matched to anchors by assignments to masks, the hardest empty ones are kept, detections suppressed."""
    T, nn, F = lab.T, lab.nn, lab.F
    body = lab.same(nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
                                  nn.MaxPool2d(2, ceil_mode=True), nn.Conv2d(8, 7, 3, padding=1)))
    centre = (T.arange(4) + 0.5) / 4
    down, right = T.meshgrid(centre, centre, indexing="ij")
    middle = T.stack([right, down], -1).view(-1, 2)
    anchors = T.cat([middle - 0.2, middle + 0.2], 1)
    optimizer = lab.optim.SGD(body.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)

    def matched(truth: Any, label: Any) -> tuple[Any, Any]:
        found = overlaps(T, truth, anchors)
        best, of = found.max(0)
        favourite = found.argmax(1)
        best.index_fill_(0, favourite, 2.0)
        for j in range(favourite.size(0)):
            of[favourite[j]] = j
        kinds = label[of] + 1
        kinds[best < 0.3] = 0
        return truth[of], kinds

    @lab.step
    def step(images: Any, truths: Any, labels: Any) -> Any:
        out = body(images).permute(0, 2, 3, 1).reshape(len(truths), 16, 7)
        targets, kinds = (T.stack(x) for x in zip(*map(matched, truths, labels), strict=True))
        positive = kinds > 0
        place = F.smooth_l1_loss(out[..., :4][positive], targets[positive], reduction="sum")
        each = F.cross_entropy(out[..., 4:].transpose(1, 2), kinds, reduction="none")
        empty = each.detach().clone()
        empty[positive] = 0
        rank = empty.sort(1, descending=True)[1].sort(1)[1]
        hard = rank < 3 * positive.sum(1, keepdim=True)
        loss = (place + each[positive | hard].sum()) / positive.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    losses = []
    for i in range(10):
        corners = [lab.uniform(2 + (i + j) % 2, 2) * 0.5 for j in range(2)]
        truths = [T.cat([c, c + 0.2 + 0.3 * lab.uniform(*c.shape)], 1) for c in corners]
        losses.append(step(lab.normal(2, 3, 16, 16), truths, [lab.ints(2, len(c)) for c in corners]).item())
    with T.no_grad():
        out = body.eval()(lab.normal(1, 3, 16, 16)).permute(0, 2, 3, 1).reshape(16, 7)
        scores = out[:, 4:].softmax(-1)[:, 1]
        return losses, without_overlaps(T, anchors + 0.05 * out[:, :4].tanh(), scores, 0.3)


@program(chaotic=True)
def radiance_field(lab: Lab) -> Any:
    """Rays through planes of features, rendered twice: the second samples lie where the first found something."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.planes = nn.Parameter(T.zeros(3, 4, 8, 8))
            self.hidden, self.out = nn.Linear(22, 16), nn.Linear(16, 4)

        def forward(self, at: Any) -> Any:
            flat = at.reshape(-1, 3)
            waves = [f(flat * 2.0 ** i) for i in range(3) for f in (T.sin, T.cos)]
            sides = T.stack([flat[:, [0, 1]], flat[:, [0, 2]], flat[:, [1, 2]]])
            seen = F.grid_sample(self.planes, sides[:, None], padding_mode="border", align_corners=True)
            features = T.cat([*waves, seen.squeeze(2).sum(0).t()], -1)
            return self.out(F.relu(self.hidden(features))).view(*at.shape[:-1], 4)

    def render(field: Any, start: Any, way: Any, depth: Any) -> Any:
        raw = field(start[:, None] + way[:, None] * depth[..., None])
        far = T.full_like(depth[:, :1], 1e10)
        length = T.cat([depth[:, 1:] - depth[:, :-1], far], -1) * way[:, None].norm(dim=-1)
        alpha = 1 - T.exp(-F.relu(raw[..., 3]) * length)
        through = T.cumprod(T.cat([T.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        weight = alpha * through
        return (weight[..., None] * raw[..., :3].sigmoid()).sum(-2) + 1 - weight.sum(-1, keepdim=True), weight

    def finer(depth: Any, weight: Any, count: int) -> Any:
        share = weight + 1e-5
        below = T.cumsum(share / share.sum(-1, keepdim=True), -1)
        below = T.cat([T.zeros_like(below[:, :1]), below], -1)
        at = T.linspace(0.0, 1.0, count).expand(len(depth), count).contiguous()
        index = T.searchsorted(below, at, right=True)
        pair = T.stack([(index - 1).clamp(min=0), index.clamp(max=below.shape[-1] - 1)], -1)
        wide = (*pair.shape[:2], below.shape[-1])
        low, high = below[:, None].expand(wide).gather(2, pair).unbind(-1)
        first, last = depth[:, None].expand(wide).gather(2, pair).unbind(-1)
        gap = high - low
        return first + (at - low) / T.where(gap < 1e-5, T.ones_like(gap), gap) * (last - first)
    coarse, fine = lab.same(Field()), lab.same(Field())
    optimizer = lab.optim.Adam([*coarse.parameters(), *fine.parameters()], lr=5e-3)

    @lab.step
    def step(way: Any, target: Any, jitter: Any) -> Any:
        start = T.tensor([0.1, 0.0, 2.0]).expand_as(way)
        depth = 0.5 + (T.arange(8) + jitter) / 8 * 2.5
        first, weight = render(coarse, start, way, depth)
        more = finer((depth[:, 1:] + depth[:, :-1]) / 2, weight[:, 1:-1], 6).detach()
        second, _ = render(fine, start, way, T.cat([depth, more], -1).sort(-1).values)
        smooth = (coarse.planes[..., 1:] - coarse.planes[..., :-1]).square().mean()
        loss = F.mse_loss(second, target) + F.mse_loss(first, target) + 0.01 * smooth
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    losses = [step(lab.normal(12, 3), lab.uniform(12, 3), lab.uniform(12, 8)).item() for _ in range(10)]
    return losses, fine.state_dict()


@program(quick=True)
def private_gradients(lab: Lab) -> Any:
    """A gradient for each sample by vmap, each clipped; new parameters at each step; then an ensemble in one call."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(5, 7), nn.Linear(7, 3)

        def forward(self, x: Any) -> Any:
            return self.second(F.relu(self.first(x)))
    model = lab.same(Model())
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss_of(parameters: Any, x: Any, y: Any) -> Any:
        return F.cross_entropy(T.func.functional_call(model, parameters, (x[None],)), y[None])
    of_each = T.func.vmap(T.func.grad_and_value(loss_of), in_dims=(None, 0, 0))

    @lab.step
    def step(parameters: Any, x: Any, y: Any) -> Any:
        gradients, losses = of_each(parameters, x, y)
        norms = T.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
        factor = (1 / (norms + 1e-6)).clamp(max=1.0)
        return {name: parameters[name] - 0.1 * T.einsum("n,n...->...", factor, g) / len(x)
                for name, g in gradients.items()}, losses.mean()
    losses = []
    for _ in range(10):
        parameters, loss = step(parameters, lab.normal(6, 5), lab.ints(3, 6))
        losses.append(loss.item())
    several, buffers = T.func.stack_module_state([lab.same(Model()) for _ in range(4)])

    def predict(p: Any, b: Any, x: Any) -> Any:
        return T.func.functional_call(model, (p, b), (x,))
    together = T.func.vmap(predict, in_dims=(0, 0, None))(several, buffers, lab.normal(8, 5))
    curve = T.func.hessian(lambda x: model(x).logsumexp(-1))(lab.normal(5))
    return losses, parameters, together, curve


def rational_quadratic(lab: Lab, x: Any, widths: Any, heights: Any, slopes: Any) -> tuple[Any, Any]:
    """A monotone spline of [-1, 1] through knots, and the logarithm of its slope (Durkan et al. 2019)."""
    T, F = lab.T, lab.F

    def knots(raw: Any) -> tuple[Any, Any]:
        parts = 1e-3 + (1 - 1e-3 * raw.shape[-1]) * raw.softmax(-1)
        at = 2 * F.pad(parts.cumsum(-1), (1, 0)) - 1
        at[..., 0], at[..., -1] = -1.0, 1.0
        return at, at[..., 1:] - at[..., :-1]
    (left, width), (bottom, height) = knots(widths), knots(heights)
    slopes = 1e-3 + F.softplus(slopes)
    bin_of = ((x[..., None] >= left[..., :-1]).sum(-1) - 1)[..., None]
    x0, w, y0, h, d0, d1 = (z.gather(-1, bin_of)[..., 0] for z in (
        left, width, bottom, height, slopes, slopes[..., 1:]))
    t, s = (x - x0) / w, h / w
    between = s + (d0 + d1 - 2 * s) * t * (1 - t)
    y = y0 + h * (s * t.pow(2) + d0 * t * (1 - t)) / between
    slope = s.pow(2) * (d1 * t.pow(2) + 2 * s * t * (1 - t) + d0 * (1 - t).pow(2))
    return y, T.log(slope) - 2 * T.log(between)


@program(chaotic=True)
def spline_flow(lab: Lab) -> Any:
    """An autoregressive flow of splines: masks choose what is mapped, and results are assigned to them."""
    T, nn = lab.T, lab.nn
    size, bins = 3, 5

    class Masked(nn.Linear):  # type: ignore[misc, name-defined]
        def __init__(self, mask: Any) -> None:
            super().__init__(mask.shape[1], mask.shape[0])
            self.register_buffer("mask", mask)

        def forward(self, x: Any) -> Any:
            return lab.F.linear(x, self.mask * self.weight, self.bias)
    degrees = T.arange(12) % (size - 1)
    inward = (T.arange(size)[None] <= degrees[:, None]).float()
    outward = (degrees[None] < T.arange(size).repeat_interleave(3 * bins + 1)[:, None]).float()
    net = lab.same(nn.Sequential(Masked(inward), nn.Tanh(), Masked(outward)))
    base = T.distributions.Independent(T.distributions.Normal(T.zeros(size), T.ones(size)), 1)
    optimizer = lab.optim.RMSprop(net.parameters(), lr=1e-2, momentum=0.5, centered=True)

    @lab.step
    def step(x: Any) -> Any:
        given = net(x).view(len(x), size, -1).split([bins, bins, bins + 1], -1)
        inside = (x > -1) & (x < 1)
        y, steepness = x.clone(), T.zeros_like(x)
        y[inside], steepness[inside] = rational_quadratic(lab, x[inside], *(part[inside] for part in given))
        loss = -(base.log_prob(y) + steepness.sum(-1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    losses = [step(lab.normal(16, size) * 0.6).item() for _ in range(10)]
    assert all(map(math.isfinite, losses))
    return losses, net.state_dict()
