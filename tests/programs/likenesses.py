"""Images that are made: translated both ways, in one step from noise, by points that are splatted, by derivatives."""

from __future__ import annotations

import copy
import itertools
import math
import random
from typing import Any

from .lab import Lab, program


@program(chaotic=True)
def unpaired_images(lab: Lab) -> Any:
    """CycleGAN: two generators and what brings an image back, critics that want no gradients meanwhile, a pool of
    former images, a loss whose target is a buffer that is expanded."""
    T, nn = lab.T, lab.nn

    class Residual(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.block = nn.Sequential(*[layer for last in (nn.ReLU(True), nn.Identity()) for layer in (
                nn.ReflectionPad2d(1), nn.Conv2d(channels, channels, 3), nn.InstanceNorm2d(channels), last)])

        def forward(self, x: Any) -> Any:
            return x + self.block(x)

    class Adversarial(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("real", T.tensor(1.0))
            self.register_buffer("made", T.tensor(0.0))
            self.loss = nn.MSELoss()

        def __call__(self, told: Any, real: bool) -> Any:
            return self.loss(told, (self.real if real else self.made).expand_as(told))

    class Pool:
        def __init__(self, size: int) -> None:
            self.size, self.images, self.dice = size, [], random.Random(3)

        def exchange(self, images: Any) -> Any:
            given = []
            for image in images:
                image = T.unsqueeze(image.data, 0)
                if len(self.images) < self.size:
                    self.images.append(image)
                elif self.dice.uniform(0, 1) > 0.5:
                    at = self.dice.randint(0, self.size - 1)
                    old = self.images[at].clone()
                    self.images[at], image = image, old
                given.append(image)
            return T.cat(given, 0)

    def generator() -> Any:
        return lab.same(nn.Sequential(
            nn.ReflectionPad2d(2), nn.Conv2d(3, 4, 5), nn.InstanceNorm2d(4), nn.ReLU(True), nn.Conv2d(4, 8, 3, 2, 1),
            nn.ReLU(True), Residual(8), nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1),
            nn.ReLU(True), nn.ReflectionPad2d(2), nn.Conv2d(4, 3, 5), nn.Tanh()))

    def critic() -> Any:
        return lab.same(nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2, True), nn.Conv2d(8, 1, 4, 1, 1)))

    def want_gradients(nets: Any, wanted: bool) -> None:
        for net in nets if isinstance(nets, list) else [nets]:
            for p in net.parameters():
                p.requires_grad = wanted
    to_b, to_a, of_a, of_b = generator(), generator(), critic(), critic()
    adversarial, near = Adversarial(), nn.L1Loss()
    of_generators = lab.optim.Adam(itertools.chain(to_b.parameters(), to_a.parameters()), lr=2e-3, betas=(0.5, 0.999))
    of_critics = lab.optim.Adam(itertools.chain(of_a.parameters(), of_b.parameters()), lr=2e-3, betas=(0.5, 0.999))
    schedules = [lab.optim.lr_scheduler.LambdaLR(o, lr_lambda=lambda at: 1 - max(0, at - 2) / 5)
                 for o in (of_generators, of_critics)]
    pools = Pool(3), Pool(3)
    found: list[Any] = []
    for _ in range(5):
        a, b = (lab.uniform(2, 3, 8, 8) * 2 - 1 for _ in range(2))
        made_b, made_a = to_b(a), to_a(b)
        want_gradients([of_a, of_b], False)
        of_generators.zero_grad()
        loss = adversarial(of_b(made_b), True) + adversarial(of_a(made_a), True)
        loss = loss + 10 * near(to_a(made_b), a) + 10 * near(to_b(made_a), b) + 5 * near(to_b(b), b)
        loss.backward()
        of_generators.step()
        want_gradients([of_a, of_b], True)
        of_critics.zero_grad()
        told = []
        for net, real, made in ((of_b, b, pools[0].exchange(made_b)), (of_a, a, pools[1].exchange(made_a))):
            wrong = (adversarial(net(real), True) + adversarial(net(made.detach()), False)) * 0.5
            wrong.backward()
            told.append(float(wrong))
        of_critics.step()
        for schedule in schedules:
            schedule.step()
        found += [float(loss), told, of_generators.param_groups[0]["lr"]]
    return found


@program
def one_step_from_noise(lab: Lab) -> Any:
    """A consistency model: what it makes of two neighbouring noises is to be the same; a teacher follows with a weight
    that changes, and so does the number of levels."""
    T, nn, F = lab.T, lab.nn, lab.F

    def levels(count: int, least: float = 0.002, most: float = 80.0, rho: float = 7.0) -> Any:
        low, high = least ** (1 / rho), most ** (1 / rho)
        return (low + T.arange(count) / (count - 1) * (high - low)) ** rho

    def beside(x: Any, other: Any) -> Any:
        return x.view(*x.shape, *((1,) * (other.ndim - x.ndim)))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(9, 32), nn.Linear(32, 8)

        def forward(self, x: Any, level: Any) -> Any:
            skip = 0.25 / ((level - 0.002) ** 2 + 0.25)
            out = 0.5 * (level - 0.002) / (level ** 2 + 0.25) ** 0.5
            hidden = F.silu(self.first(T.cat([x, level.log()[:, None] * 0.25], -1)))
            return beside(skip, x) * x + beside(out, x) * self.second(hidden)
    student = lab.same(Net())
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = lab.optim.RAdam(student.parameters(), lr=1e-3)
    losses = []
    for at in range(10):
        count = math.ceil(math.sqrt(at / 10 * (20 ** 2 - 2 ** 2) + 4) - 1) + 1
        keep = math.exp(2 * math.log(0.95) / count)
        noises = levels(count + 1)
        x, noise, which = lab.normal(16, 8), lab.normal(16, 8), lab.ints(count, 16)
        low, high = noises[which], noises[which + 1]
        made = student(x + beside(high, x) * noise, high)
        with T.no_grad():
            wanted = teacher(x + beside(low, x) * noise, low)
        far = 0.00054 * math.sqrt(8)
        loss = (T.sqrt((made - wanted) ** 2 + far ** 2) - far).mean()
        loss = loss + ((made - wanted).square().mean(-1) / (high - low)).mean() * 1e-3
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with T.no_grad():
            for p, q in zip(student.parameters(), teacher.parameters(), strict=True):
                q.mul_(keep).add_(p, alpha=1 - keep)
        losses.append(loss.item())
    with T.no_grad():
        x = lab.normal(4, 8) * 80
        for level in reversed(levels(4).tolist()[1:]):
            x = student(x, T.full((x.shape[0],), level, dtype=x.dtype)).clamp(-3, 3)
            x = x + lab.normal(4, 8) * math.sqrt(max(level ** 2 - 0.002 ** 2, 0)) * 0.01
    return losses, x


@program(quick=True)
def splatted_points(lab: Lab) -> Any:
    """Gaussians in the plane, sorted by depth and blended; parameters by name in groups, of which some are taken out of
    the optimizer with their states and put back, fewer."""
    T, nn = lab.T, lab.nn
    count, height, width = 12, 10, 12
    place = nn.Parameter(lab.uniform(count, 2) * 2 - 1)
    scale, angle = nn.Parameter(lab.normal(count, 2) * 0.2 - 1.5), nn.Parameter(lab.normal(count))
    color, solid = nn.Parameter(lab.normal(count, 3)), nn.Parameter(lab.normal(count))
    depth, wanted = lab.uniform(count), lab.uniform(height, width, 3)
    rows, columns = T.meshgrid(T.linspace(-1, 1, height), T.linspace(-1, 1, width), indexing="ij")
    pixels = T.stack([columns, rows], -1).view(-1, 2)
    optimizer = lab.optim.Adam([{"params": [place], "lr": 1e-2, "name": "place"},
                                {"params": [scale, angle], "lr": 5e-3, "name": "shape"},
                                {"params": [color, solid], "lr": 2e-2, "name": "color"}], lr=0.0, eps=1e-15)

    @lab.step
    def step() -> tuple[Any, Any]:
        cosine, sine = T.cos(angle), T.sin(angle)
        turn = T.stack([T.stack([cosine, -sine], -1), T.stack([sine, cosine], -1)], -2)
        spread = turn @ T.diag_embed(T.exp(scale))
        spread = spread @ spread.transpose(-1, -2) + 1e-4 * T.eye(2)
        size = spread[:, 0, 0] * spread[:, 1, 1] - spread[:, 0, 1] ** 2
        inverse = T.stack([spread[:, 1, 1], -spread[:, 0, 1], -spread[:, 1, 0], spread[:, 0, 0]], -1)
        inverse = inverse.view(-1, 2, 2) / size[:, None, None]
        order = T.argsort(depth)
        away = pixels[:, None] - place[order][None]
        power = -0.5 * T.einsum("pni,nij,pnj->pn", away, inverse[order], away)
        alpha = (T.sigmoid(solid[order]) * T.exp(power)).clamp(max=0.99)
        alpha = T.where(alpha < 1 / 255, T.zeros_like(alpha), alpha)
        through = T.cumprod(T.cat([T.ones_like(alpha[:, :1]), 1 - alpha[:, :-1]], 1), 1)
        image = ((alpha * through)[..., None] * T.sigmoid(color[order])).sum(1).view(height, width, 3)
        loss = 0.8 * (image - wanted).abs().mean() + 0.2 * (image - wanted).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss, image
    losses = []
    for at in range(8):
        loss, image = step()
        losses.append(loss.item())
        for group in optimizer.param_groups:
            if group["name"] == "place":
                group["lr"] = 1e-2 * 0.9 ** at
    keep = (T.sigmoid(solid) > 0.4).squeeze()
    group = optimizer.param_groups[0]
    old = group["params"][0]
    state = optimizer.state.get(old, None)
    for name in ("exp_avg", "exp_avg_sq"):
        state[name] = state[name][keep]
    del optimizer.state[old]
    fewer = group["params"][0] = nn.Parameter(old[keep].requires_grad_(True))
    optimizer.state[fewer] = state
    optimizer.zero_grad()
    (fewer ** 2).sum().backward()
    optimizer.step()
    return losses, image, fewer, int(keep.sum())


@program
def waves_by_derivatives(lab: Lab) -> Any:
    """A network of sines that is fitted by its gradient and its Laplacian: two derivatives of outputs by inputs, and a
    third one of these by the weights."""
    T, nn = lab.T, lab.nn

    class Sine(nn.Module):
        def __init__(self, inputs: int, outputs: int, rate: float) -> None:
            super().__init__()
            self.linear, self.rate = nn.Linear(inputs, outputs), rate

        def forward(self, x: Any) -> Any:
            return T.sin(self.rate * self.linear(x))

    def gradient(y: Any, x: Any) -> Any:
        return T.autograd.grad(y, [x], grad_outputs=T.ones_like(y), create_graph=True)[0]

    def divergence(y: Any, x: Any) -> Any:
        found = 0.0
        for i in range(y.shape[-1]):
            found += T.autograd.grad(y[..., i], x, T.ones_like(y[..., i]), create_graph=True)[0][..., i:i + 1]
        return found
    net = lab.same(nn.Sequential(Sine(2, 24, 3.0), Sine(24, 24, 2.0), nn.Linear(24, 1)))
    grid = T.stack(T.meshgrid(*(T.linspace(-1, 1, steps=10),) * 2, indexing="ij"), dim=-1).reshape(-1, 2)
    slopes, curves = lab.normal(100, 2), lab.normal(100, 1)
    optimizer = lab.optim.Adam(lr=1e-3, params=net.parameters())

    @lab.step
    def step() -> Any:
        at = grid.clone().detach().requires_grad_(True)
        slope = gradient(net(at), at)
        loss = (slope - slopes).pow(2).sum(-1).mean() + 1e-2 * ((divergence(slope, at) - curves) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return [step().item() for _ in range(10)]
