"""Networks that are run as dynamics: cellular automata, samples of an energy, an associative memory, a text's state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .lab import Lab, program


@program(chaotic=True)
def cellular_automaton(lab: Lab) -> Any:
    """A pattern grown from a seed: cells look at their neighbours, some fire, some are dead; a pool of states."""
    T, nn, F = lab.T, lab.nn, lab.F
    channels, side = 6, 8

    class Automaton(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3 * channels, 12), nn.Linear(12, channels, bias=False)
            slope = np.outer([1, 2, 1], [-1, 0, 1]) / 8
            self.register_buffer("looks", T.stack([T.tensor(k.astype(lab.dtype)) for k in (slope, slope.T)]))

        def alive(self, x: Any) -> Any:
            return F.max_pool2d(x[:, 3:4], kernel_size=3, stride=1, padding=1) > 0.1

        def forward(self, x: Any, steps: int) -> Any:
            for _ in range(steps):
                x = x.permute(0, 3, 1, 2)
                before = self.alive(x)
                kernels = self.looks[:, None, None].expand(2, channels, 1, 3, 3)
                seen = T.cat([x, *(F.conv2d(x, k, padding=1, groups=channels) for k in kernels)], 1)
                change = self.second(F.relu(self.first(seen.movedim(1, -1))))
                fires = lab.uniform(*change.shape[:3], 1) > 0.5
                x = x + (change * fires.to(change.dtype)).permute(0, 3, 1, 2)
                x = (x * (before & self.alive(x)).to(x.dtype)).permute(0, 2, 3, 1)
            return x
    model = lab.same(Automaton())
    model.second.weight.data.mul_(0.1)
    seed = np.zeros((side, side, channels), lab.dtype)
    seed[side // 2, side // 2, 3:] = 1
    pool, wanted = np.repeat(seed[None], 5, 0), lab.uniform(1, side, side, 4)
    optimizer = lab.optim.Adam(model.parameters(), lr=2e-3, betas=(0.5, 0.5))
    schedule = lab.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    found: list[Any] = []
    for _ in range(6):
        chosen = lab.draws.choice(5, 3, replace=False)
        x = T.from_numpy(pool[chosen]).to(lab.device)
        worst = ((x[..., :4] - wanted) ** 2).mean([1, 2, 3]).cpu().numpy().argsort()[::-1].copy()
        x = x[T.from_numpy(worst).to(lab.device)]
        x[:1] = T.from_numpy(seed).to(lab.device)
        x = model(x, 3)
        loss = F.mse_loss(x[..., :4], wanted.expand_as(x[..., :4]))
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            p.grad /= p.grad.norm() + 1e-8
        optimizer.step()
        schedule.step()
        pool[chosen[worst]] = x.detach().cpu().numpy()
        found += [loss.item(), schedule.get_last_lr()[0]]
    return [found, pool]


@program(chaotic=True)
def energy_model(lab: Lab) -> Any:
    """An image's energy, lowered where data is and raised where Langevin steps from a replay buffer lead."""
    T, nn = lab.T, lab.nn

    class Swish(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * T.sigmoid(x)
    energy = lab.same(nn.Sequential(nn.Conv2d(1, 6, 3, stride=2, padding=1), Swish(),
                                    nn.Conv2d(6, 8, 3, stride=2, padding=1), Swish(), nn.Flatten(), nn.Linear(32, 1)))
    kept = [lab.uniform(1, 1, 8, 8) * 2 - 1 for _ in range(6)]

    def samples(steps: int = 4) -> Any:
        fresh = lab.draws.binomial(6, 0.3)
        old = [kept[k] for k in lab.draws.integers(0, len(kept), 6 - fresh)]
        x = T.cat([lab.uniform(fresh, 1, 8, 8) * 2 - 1, *old], dim=0).detach()
        was = energy.training
        energy.eval()
        for p in energy.parameters():
            p.requires_grad = False
        x.requires_grad = True
        for _ in range(steps):
            x.data.add_(lab.normal(*x.shape).mul_(0.005)).clamp_(min=-1, max=1)
            energy(x).sum().backward()
            x.grad.data.clamp_(-0.03, 0.03)
            x.data.add_(-10 * x.grad.data)
            x.grad.detach_()
            x.grad.zero_()
            x.data.clamp_(min=-1, max=1)
        for p in energy.parameters():
            p.requires_grad = True
        energy.train(was)
        kept[:0] = x.detach().chunk(6, dim=0)
        del kept[12:]
        return x.detach()
    optimizer = lab.optim.Adam(energy.parameters(), lr=1e-3, betas=(0.0, 0.999))
    found: list[Any] = []
    for _ in range(6):
        real = (lab.uniform(6, 1, 8, 8) * 2 - 1).add_(lab.normal(6, 1, 8, 8), alpha=0.005).clamp_(-1, 1)
        made = samples()
        low, high = energy(T.cat([real, made])).chunk(2)
        optimizer.zero_grad(set_to_none=False)
        loss = low.mean() - high.mean() + 0.1 * (low ** 2 + high ** 2).mean()
        loss.backward()
        lab.nn.utils.clip_grad_norm_(energy.parameters(), max_norm=0.1)
        optimizer.step()
        found += [loss.item(), made.abs().mean()]
    return [found, kept[0]]


@program(chaotic=True)
def associative_memory(lab: Lab) -> Any:
    """A modern Hopfield layer that is iterated until it rests, behind retention in its parallel and recurrent form."""
    T, nn, F = lab.T, lab.nn, lab.F
    width, heads = 12, 3

    class Retention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            self.gate, self.norm = nn.Linear(width, width, bias=False), nn.GroupNorm(heads, width)
            self.register_buffer("decay", 1 - T.exp(T.linspace(math.log(1 / 32), math.log(1 / 512), heads)),
                                 persistent=False)

        def parts(self, x: Any) -> Any:
            return self.qkv(x).reshape(*x.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)

        def end(self, x: Any, y: Any) -> Any:
            return self.out(F.silu(self.gate(x)) * self.norm(y.reshape(-1, width)).view_as(x))

        def forward(self, x: Any) -> Any:
            q, k, v = self.parts(x)
            at = T.arange(x.shape[1])
            ago = at.unsqueeze(1) - at.unsqueeze(0)
            weight = self.decay[:, None, None] ** ago.clamp(min=0) * (ago >= 0)
            return self.end(x, (q @ k.mT * weight @ v).transpose(1, 2))

        def step_by_step(self, x: Any) -> Any:
            q, k, v = self.parts(x)
            state, rows = x.new_zeros(x.shape[0], heads, width // heads, width // heads), []
            for t in range(x.shape[1]):
                state = self.decay[:, None, None] * state + k[:, :, t, :, None] * v[:, :, t, None, :]
                rows.append((q[:, :, t, None, :] @ state).squeeze(-2))
            return self.end(x, T.stack(rows, dim=1))

    class Memory(nn.Module):
        def __init__(self, patterns: int = 5, sharpness: float = 2.0) -> None:
            super().__init__()
            self.patterns, self.sharpness = nn.Parameter(T.empty(patterns, width)), sharpness
            nn.init.trunc_normal_(self.patterns, std=0.5)

        def forward(self, x: Any) -> Any:
            for _ in range(4):
                recalled = F.softmax(self.sharpness * x @ self.patterns.T, dim=-1) @ self.patterns
                moved, x = T.linalg.vector_norm(recalled - x), recalled
                if moved.item() < 0.5:
                    break
            return x
    embed = lab.same(nn.Embedding(11, width))
    retention, memory, head = lab.same(Retention()), lab.same(Memory()), nn.Linear(width, 11, bias=False)
    head.weight = embed.weight
    parameters = [*embed.parameters(), *retention.parameters(), *memory.parameters()]
    optimizer = lab.optim.RAdam(parameters, lr=1e-2, weight_decay=0.01, decoupled_weight_decay=True)
    criterion = nn.CrossEntropyLoss(ignore_index=0)
    found: list[Any] = []
    for _ in range(8):
        tokens = lab.ints(10, 3, 7) + 1
        wanted = tokens.roll(1, dims=1)
        wanted[:, 0] = 0
        x = embed(tokens)
        x = x + retention(x)
        loss = criterion(head(x + memory(x)).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    x = lab.normal(2, 5, width)
    with T.no_grad():
        both = retention(x), retention.step_by_step(x)
    return [found, both, bool(T.allclose(*both, atol=1e-10))]


@program(chaotic=True)
def receptance(lab: Lab) -> Any:
    """Keys and values whose weights decay by channel (RWKV): running sums in the log domain, shifted tokens."""
    T, nn = lab.T, lab.nn
    width, layers = 8, 2

    class Mixing(nn.Module):
        def __init__(self, at: int) -> None:
            super().__init__()
            place = T.arange(width, dtype=T.get_default_dtype()) / (width - 1)
            self.decay = nn.Parameter(-5 + 8 * place ** (0.7 + 1.3 * at / (layers - 1)))
            self.first = nn.Parameter(T.full((width,), math.log(0.3)) + 0.5 * ((T.arange(width) + 1) % 3 - 1))
            self.shares = nn.ParameterDict({name: nn.Parameter(place.pow(power).view(1, 1, -1))
                                            for name, power in (("key", 1.0), ("value", 0.8), ("gate", 0.5))})
            self.layers = nn.ModuleDict({name: nn.Linear(width, width, bias=False)
                                         for name in ("key", "value", "gate", "out")})
            self.shift = nn.ZeroPad2d((0, 0, 1, -1))

        def forward(self, x: Any) -> Any:
            before = self.shift(x)
            key, value, gate = (self.layers[name](x * share + before * (1 - share))
                                for name, share in self.shares.items())
            fade, rows = -T.exp(self.decay), []
            above, below, most = (T.zeros_like(key[:, 0]) for _ in range(3))
            most = most - 1e38
            for k, v in zip(key.unbind(1), value.unbind(1), strict=True):
                largest = T.maximum(most, self.first + k)
                old, new = T.exp(most - largest), T.exp(self.first + k - largest)
                rows.append((old * above + new * v) / (old * below + new))
                largest = T.maximum(most + fade, k)
                old, new = T.exp(most + fade - largest), T.exp(k - largest)
                above, below, most = old * above + new * v, old * below + new, largest
            return self.layers["out"](T.sigmoid(gate) * T.stack(rows, dim=1))
    model = lab.same(nn.Sequential(nn.Embedding(9, width), *(Mixing(at) for at in range(layers)), nn.LayerNorm(width),
                                   nn.Linear(width, 9)))
    optimizer = lab.optim.NAdam(model.parameters(), lr=1e-2)

    @lab.step
    def step(tokens: Any) -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = lab.F.cross_entropy(model(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:])
        loss.backward()
        optimizer.step()
        return loss
    return [step(lab.ints(9, 3, 7)).item() for _ in range(8)]
