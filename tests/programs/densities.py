"""Densities that are learnt: by their scores, by a flow that can be undone, as mixtures of what comes next, by weights
that are averaged, and by what was left over of a classifier's confidence."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from .lab import Lab, program


@program(chaotic=True)
def scores(lab: Lab) -> Any:
    """The gradient of a log density: by its exact divergence, by that along random lines, and from noise alone."""
    T, nn = lab.T, lab.nn
    net = lab.same(nn.Sequential(nn.Linear(2, 16), nn.Softplus(), nn.Linear(16, 16), nn.Softplus(), nn.Linear(16, 2)))
    optimizer = lab.optim.Adam(net.parameters(), lr=1e-3)

    def exact(x: Any) -> Any:
        x.requires_grad_(True)
        score = net(x)
        divergence = T.zeros(x.shape[0])
        for axis in range(x.shape[1]):
            divergence += T.autograd.grad(score[:, axis].sum(), x, create_graph=True, retain_graph=True)[0][:, axis]
        return (T.norm(score, dim=-1) ** 2 / 2.0 + divergence).mean(dim=0)

    def sliced(x: Any, lines: Any) -> Any:
        again = x.unsqueeze(0).expand(3, *x.shape).contiguous().view(-1, *x.shape[1:]).requires_grad_()
        score = net(again)
        along = T.autograd.grad(T.sum(score * lines), again, create_graph=True)[0]
        return (T.sum(score * score, dim=-1) / 2.0 + T.sum(lines * along, dim=-1)).view(3, -1).mean(0).mean()

    def of_noise(x: Any, noise: Any, sigma: float = 0.1) -> Any:
        moved = x + noise * sigma
        return 0.5 * ((net(moved) + (moved - x) / sigma**2) ** 2).sum(dim=-1).mean(dim=0)

    def step(loss: Any) -> float:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss)
    found = []
    for _ in range(3):
        x = lab.normal(8, 2)
        found += [step(exact(x)), step(sliced(x, lab.normal(24, 2))), step(of_noise(x, lab.normal(8, 2)))]
    walker = lab.normal(5, 2)
    for _ in range(4):
        walker = walker + 0.05 * net(walker).data + math.sqrt(0.1) * lab.normal(5, 2)
    return found, walker


@program(chaotic=True)
def flow_of_convolutions(lab: Lab) -> Any:
    """Glow: norms that begin with a batch, 1 × 1 convolutions as factors, and couplings; undone in the end."""
    T, nn, F = lab.T, lab.nn, lab.F

    class ActNorm(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.loc, self.scale = nn.Parameter(T.zeros(1, channels, 1, 1)), nn.Parameter(T.ones(1, channels, 1, 1))
            self.register_buffer("begun", T.tensor(0, dtype=T.uint8))

        def forward(self, x: Any) -> Any:
            if self.begun.item() == 0:
                with T.no_grad():
                    flat = x.permute(1, 0, 2, 3).contiguous().view(x.shape[1], -1)
                    self.loc.data.copy_(-flat.mean(1).view(1, -1, 1, 1))
                    self.scale.data.copy_(1 / (flat.std(1).view(1, -1, 1, 1) + 1e-6))
                self.begun.fill_(1)
            return self.scale * (x + self.loc), x.shape[2] * x.shape[3] * T.sum(T.log(T.abs(self.scale)))

        def reverse(self, y: Any) -> Any:
            return y / self.scale - self.loc

    class Mixed(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            p, low, high = T.linalg.lu(T.linalg.qr(lab.normal(channels, channels))[0])
            diagonal = T.diag(high)
            for name, value in {"p": p, "above": T.triu(T.ones(channels, channels), 1), "sign": T.sign(diagonal),
                                "eye": T.eye(channels)}.items():
                self.register_buffer(name, value)
            self.low, self.high = nn.Parameter(low), nn.Parameter(T.triu(high, 1))
            self.logs = nn.Parameter(T.log(T.abs(diagonal)))

        def weight(self) -> Any:
            low = self.low * self.above.T + self.eye
            high = self.high * self.above + T.diag(self.sign * T.exp(self.logs))
            return (self.p @ low @ high).unsqueeze(2).unsqueeze(3)

        def forward(self, x: Any) -> Any:
            return F.conv2d(x, self.weight()), x.shape[2] * x.shape[3] * T.sum(self.logs)

        def reverse(self, y: Any) -> Any:
            return F.conv2d(y, self.weight().squeeze().inverse().unsqueeze(2).unsqueeze(3))

    class Coupling(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.net = lab.same(nn.Sequential(nn.Conv2d(channels // 2, 6, 3, padding=1), nn.ReLU(inplace=True),
                                              nn.Conv2d(6, channels, 1)))

        def parts(self, kept: Any) -> Any:
            scale, shift = self.net(kept).chunk(2, 1)
            return T.sigmoid(scale + 2), shift

        def forward(self, x: Any) -> Any:
            kept, changed = x.chunk(2, 1)
            scale, shift = self.parts(kept)
            return T.cat([kept, (changed + shift) * scale], 1), T.sum(T.log(scale).view(x.shape[0], -1), 1)

        def reverse(self, y: Any) -> Any:
            kept, changed = y.chunk(2, 1)
            scale, shift = self.parts(kept)
            return T.cat([kept, changed / scale - shift], 1)

    def squeezed(x: Any) -> Any:
        count, channels, height, width = x.shape
        x = x.view(count, channels, height // 2, 2, width // 2, 2).permute(0, 1, 3, 5, 2, 4)
        return x.contiguous().view(count, channels * 4, height // 2, width // 2)
    flow = nn.ModuleList([make(4) for _ in range(2) for make in (ActNorm, Mixed, Coupling)])
    optimizer = lab.optim.Adam(flow.parameters(), lr=1e-3)

    def through(x: Any) -> Any:
        total = 0
        for part in flow:
            x, more = part(x)
            total = total + more
        return x, total

    @lab.step
    def step(x: Any) -> Any:
        z, total = through(squeezed(x))
        log_density = (-0.5 * (z**2 + math.log(2 * math.pi))).view(z.shape[0], -1).sum(1)
        loss = -(log_density + total - math.log(32) * 16).mean() / (math.log(2) * 16)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    found = [step(lab.uniform(5, 1, 4, 4) + lab.uniform(5, 1, 4, 4) / 32).item() for _ in range(5)]
    with T.no_grad():
        x = squeezed(lab.uniform(5, 1, 4, 4))
        z = back = through(x)[0]
        for part in reversed(flow):
            back = part.reverse(back)
    return found, z, bool((back - x).abs().max() < 1e-8)


@program(chaotic=True)
def mixtures_over_time(lab: Lab) -> Any:
    """A world model's memory: a GRU whose output is a mixture for the next latent; the rate falls on a plateau."""
    T, nn, F, D = lab.T, lab.nn, lab.F, lab.T.distributions

    class Memory(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.out = nn.GRU(3, 8, batch_first=True), nn.Linear(8, (2 * 2 + 1) * 3 + 2)

        def forward(self, action: Any, latent: Any) -> Any:
            out = self.out(self.rnn(T.cat([action, latent], dim=-1))[0])
            means = out[:, :, :6].view(out.size(0), out.size(1), 3, 2)
            spread = T.exp(out[:, :, 6:12].view_as(means))
            return means, spread, F.log_softmax(out[:, :, 12:15], dim=-1), out[:, :, -2], out[:, :, -1]

    def surprise(following: Any, means: Any, spread: Any, shares: Any) -> Any:
        each = shares + T.sum(D.Normal(means, spread).log_prob(following.unsqueeze(-2)), dim=-1)
        most = T.max(each, dim=-1, keepdim=True)[0]
        return -T.mean(most.squeeze() + T.log(T.sum(T.exp(each - most), dim=-1)))
    model = lab.same(Memory())
    optimizer = lab.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.9, centered=True, momentum=0.5)
    schedule = lab.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", factor=0.5, patience=0)
    ends = nn.BCEWithLogitsLoss(pos_weight=T.tensor(2.0))
    found = []
    for _ in range(6):
        action, latent, following, reward = (lab.normal(3, 4, k) for k in (1, 2, 2, 1))
        means, spread, shares, reward_of, end_of = model(action, latent)
        mixture = D.MixtureSameFamily(D.Categorical(logits=shares), D.Independent(D.Normal(means, spread), 1))
        loss = (surprise(following, means, spread, shares) + F.mse_loss(reward_of, reward.squeeze(-1))
                + ends(end_of, (lab.uniform(3, 4) > 0.7).to(latent.dtype))) / 4
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step(loss.item())
        found.append((loss.item(), -mixture.log_prob(following).mean().item(), optimizer.param_groups[0]["lr"]))
    return found, mixture.mean, mixture.variance


@program(chaotic=True)
def weights_around_an_average(lab: Lab) -> Any:
    """SWAG: a module whose parameters become buffers of their mean, their square's and their last deviations."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Posterior(nn.Module):
        def __init__(self, base: Any, kept: int = 3) -> None:
            super().__init__()
            self.register_buffer("count", T.zeros([1], dtype=T.long))
            self.base, self.kept, self.places = base, kept, []
            self.base.apply(self.prepare)

        def prepare(self, module: Any) -> None:
            for name in list(module._parameters):
                data = module._parameters.pop(name).data
                module.register_buffer(f"{name}_mean", data.new(data.size()).zero_())
                module.register_buffer(f"{name}_square", data.new(data.size()).zero_())
                module.register_buffer(f"{name}_deviations", data.new_empty((0, data.numel())).zero_())
                self.places.append((module, name))

        def collect(self, model: Any) -> None:
            n = self.count.item()
            for (module, name), p in zip(self.places, model.parameters(), strict=True):
                mean = module.__getattr__(f"{name}_mean") * n / (n + 1.0) + p.data / (n + 1.0)
                square = module.__getattr__(f"{name}_square") * n / (n + 1.0) + p.data**2 / (n + 1.0)
                rows = T.cat((module.__getattr__(f"{name}_deviations"), (p.data - mean).view(-1, 1).t()), dim=0)
                module.__setattr__(f"{name}_deviations", rows[1:] if n + 1 > self.kept else rows)
                module.__setattr__(f"{name}_mean", mean)
                module.__setattr__(f"{name}_square", square)
            self.count.add_(1)

        def sample(self, scale: float = 0.5) -> None:
            for module, name in self.places:
                mean, square = module.__getattr__(f"{name}_mean"), module.__getattr__(f"{name}_square")
                rows = module.__getattr__(f"{name}_deviations")
                own = T.clamp(square - mean**2, 1e-30).sqrt() * lab.normal(*mean.shape)
                common = rows.t().matmul(lab.normal(rows.size(0), 1)).view_as(mean) / (self.kept - 1) ** 0.5
                module.__setattr__(name, mean + scale**0.5 * (own + common))

    def network() -> Any:
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    net, posterior = lab.same(network()), Posterior(network())
    optimizer = lab.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    x, y = lab.normal(16, 4), lab.ints(2, 16)

    @lab.step
    def step() -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss
    found = []
    for turn in range(8):
        found.append(step())
        if turn > 2:
            posterior.collect(net)
    chances = []
    for _ in range(3):
        posterior.sample()
        chances.append(F.softmax(posterior.base(x), dim=-1))
    return found, T.stack(chances).mean(0), dict(posterior.state_dict())


@program(chaotic=True)
def calibration(lab: Lab) -> Any:
    """Quantiles in order, of a network that only rises; then a temperature by LBFGS, and the error that it leaves."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Rising(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.b, self.o = (nn.Parameter(T.zeros(*shape)) for shape in ((8, 1), (8,), (3, 8)))

        def forward(self, x: Any) -> Any:
            first, *more = F.linear(T.tanh(F.linear(x, F.softplus(self.w), self.b)), self.o.exp()).split(1, dim=1)
            return T.cat([first, first + T.cumsum(F.softplus(T.cat(more, 1)), 1)], 1)
    model, levels = lab.same(Rising()), T.tensor([0.1, 0.5, 0.9])
    optimizer = lab.optim.Adam(model.parameters(), lr=0.05)

    @lab.step
    def step(x: Any, y: Any) -> Any:
        error = y - model(x)
        loss = T.max((levels - 1) * error, levels * error).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    found = [step(lab.normal(16, 1), lab.normal(16, 1)) for _ in range(6)]
    logits, labels = lab.normal(30, 4) * 3, lab.ints(4, 30)
    temperature = nn.Parameter(T.ones(1) * 1.5)
    fitting = lab.optim.LBFGS([temperature], lr=0.01, max_iter=20)

    def closure() -> Any:
        fitting.zero_grad()
        loss = F.cross_entropy(logits / temperature.unsqueeze(1).expand(logits.size(0), logits.size(1)), labels)
        loss.backward()
        return loss
    fitting.step(closure)

    def error_of(logits: Any) -> Any:
        sure, guess = T.max(F.softmax(logits, dim=1), 1)
        right, error, edges = guess.eq(labels), T.zeros(1, device=logits.device), T.linspace(0, 1, 6)
        for low, high in pairwise(edges):
            inside = sure.gt(low.item()) * sure.le(high.item())
            share = inside.to(sure.dtype).mean()
            if share.item() > 0:
                error += T.abs(sure[inside].mean() - right[inside].to(sure.dtype).mean()) * share
        return error
    return found, temperature, error_of(logits), error_of(logits / temperature.detach())
