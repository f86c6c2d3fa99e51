"""What is computed by something cheaper: attention by windows, kernels, hashes and projections, layers by their fixed
point, gradients of a flow by its adjoint, and images by kernels that each example has made for itself."""

from __future__ import annotations

import itertools
import math
from typing import Any

from .lab import Lab, program


@program(chaotic=True, quick=True)
def attention_by_shortcuts(lab: Lab) -> Any:
    """Longformer's windows, Performer's kernel, Reformer's hashes and Linformer's projection of one query and key."""
    T, nn, F = lab.T, lab.nn, lab.F

    def with_window_before(x: Any, size: int, fill: float) -> Any:
        windows = x.view(len(x), -1, size, x.shape[-1])
        return T.cat([F.pad(windows, (0, 0, 0, 0, 1, 0), value=fill)[:, :-1], windows], dim=2)

    def by_windows(q: Any, k: Any, v: Any, size: int = 4) -> Any:
        places = T.arange(q.size(1)).view(1, -1, size)
        before = T.cat([F.pad(places, (0, 0, 1, 0), value=-1)[:, :-1], places], dim=-1)
        scores = T.einsum("bhie,bhje->bhij", q.view(len(q), -1, size, q.size(-1)), with_window_before(k, size, -1.0))
        hidden = (places[..., :, None] < before[..., None, :]) | (before[..., None, :] == -1)
        scores.mul_(q.size(-1) ** -0.5).masked_fill_(hidden, T.finfo(scores.dtype).min)
        return T.einsum("bhij,bhje->bhie", scores.softmax(-1), with_window_before(v, size, 0.0)).reshape(q.shape)

    def features(x: Any, projection: Any) -> Any:
        x = x * x.shape[-1] ** -0.25
        found = x @ projection.t()[None]
        largest = T.amax(found, dim=(-1, -2), keepdim=True).detach()
        return len(projection) ** -0.5 * (T.exp(found - (x ** 2).sum(-1, keepdim=True) / 2 - largest) + 1e-4)

    def by_kernel(q: Any, k: Any, v: Any) -> Any:
        weight = 1 / T.einsum("...nd,...nd->...n", q, k.cumsum(dim=-2) + 1e-6)
        context = T.einsum("...nd,...ne->...nde", k, v).cumsum(dim=-3)
        return T.einsum("...nde,...nd,...n->...ne", context, q, weight)

    def by_hashes(x: Any, rotations: Any) -> Any:
        rows, places, rounds = len(x), x.size(1), rotations.shape[1]
        turned = T.einsum("btf,fhi->bhti", x, rotations)
        buckets = T.argmax(T.cat([turned, -turned], dim=-1), dim=-1)
        buckets = (buckets + T.arange(rounds).view(1, -1, 1) * 4).reshape(rows, -1)
        ticks = T.arange(rounds * places).unsqueeze(0).expand_as(buckets)
        _, order = (places * buckets + ticks % places).sort(dim=-1)
        at = order % places
        chunks = x.gather(1, at[..., None].expand(-1, -1, x.size(-1))).view(rows, -1, 4, x.size(-1))
        scores = chunks @ F.normalize(chunks, dim=-1).transpose(-1, -2)
        at = at.view(rows, -1, 4)
        scores[at[..., :, None] == at[..., None, :]] = -5e4
        chances = T.exp(scores - T.logsumexp(scores, -1, keepdim=True))
        _, back = ticks.gather(1, order).sort(dim=-1)
        found = (chances @ chunks).view(rows, -1, x.size(-1)).gather(1, back[..., None].expand(-1, -1, x.size(-1)))
        return found.view(rows, rounds, places, -1).mean(1)

    into, out_of = lab.same(nn.Linear(5, 12)), lab.same(nn.Linear(4, 5))
    shorter, projection, rotations = nn.Parameter(lab.normal(3, 8)), lab.normal(6, 4), lab.normal(4, 2, 2)
    optimizer = lab.optim.Adadelta([*into.parameters(), *out_of.parameters(), shorter], lr=0.5)

    @lab.step
    def step(x: Any) -> Any:
        q, k, v = into(x).chunk(3, -1)
        found = by_windows(q, k, v) + by_kernel(features(q, projection), features(k, projection), v)
        found = found + by_hashes(q, rotations)
        fewer = [T.einsum("bnd,kn->bkd", given, shorter[:, :x.size(1)]) for given in (k, v)]
        loss = (out_of(found + F.scaled_dot_product_attention(q, *fewer)) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return [step(lab.normal(2, 8, 5)) for _ in range(10)], shorter


@program(chaotic=True)
def fixed_points(lab: Lab) -> Any:
    """A deep equilibrium: iterated to rest without gradients; a hook solves for the gradient in the same way."""
    T, nn = lab.T, lab.nn

    class Equilibrium(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.within, self.given = nn.Linear(4, 4, bias=False), nn.Linear(3, 4)
            self.turns: list[int] = []

        def once(self, z: Any, x: Any) -> Any:
            return T.tanh(0.5 * self.within(z) + self.given(x))

        def forward(self, x: Any) -> Any:
            with T.no_grad():
                z, turns, moved = T.zeros(len(x), 4), 0, math.inf
                while moved > 1e-12 and turns < 80:
                    z, before = self.once(z, x), z
                    moved, turns = T.norm(z - before).item(), turns + 1
            self.turns.append(turns)
            z = self.once(z, x)
            at = z.clone().detach().requires_grad_()
            again = self.once(at, x)

            def solved(gradient: Any) -> Any:
                found = gradient
                for _ in range(40):
                    found = T.autograd.grad(again, at, found, retain_graph=True)[0] + gradient
                return found
            z.register_hook(solved)
            return z
    model = lab.same(nn.Sequential(Equilibrium(), nn.Linear(4, 2)))
    optimizer = lab.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    found = []
    for _ in range(6):
        loss = nn.functional.cross_entropy(model(lab.normal(5, 3)), lab.ints(2, 5))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found, [turns > 4 for turns in model[0].turns], model.state_dict()


@program(chaotic=True)
def adjoint_states(lab: Lab) -> Any:
    """A neural ODE whose backward goes back in time beside its adjoint, and keeps no step of the forward."""
    T, nn = lab.T, lab.nn

    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2))
            self.asked = 0

        def forward(self, z: Any, t: Any) -> Any:
            self.asked += 1
            return self.net(T.cat([z, t.expand(len(z), 1)], -1))

    class Adjoint(T.autograd.Function):
        @staticmethod
        def forward(ctx: Any, start: Any, times: Any, flat: Any, flow: Any) -> Any:
            with T.no_grad():
                states = [start]
                for t, after in itertools.pairwise(times):
                    middle = states[-1] + (after - t) / 2 * flow(states[-1], t)
                    states.append(states[-1] + (after - t) * flow(middle, (t + after) / 2))
            ctx.flow = flow
            ctx.save_for_backward(times, T.stack(states), flat)
            return T.stack(states)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            times, states, flat = ctx.saved_tensors
            gradient, parameters = gradients[0], tuple(ctx.flow.parameters())
            state, shared = T.zeros_like(states[0]), T.zeros_like(flat)
            for number in range(len(times) - 1, 0, -1):
                state += gradient[number]
                with T.enable_grad():
                    t, z = times[number].detach().requires_grad_(True), states[number].detach().requires_grad_(True)
                    by = T.autograd.grad((ctx.flow(z, t),), (z, t, *parameters), grad_outputs=(state,),
                                         allow_unused=True, retain_graph=True)
                step = times[number] - times[number - 1]
                shared = shared + step * T.cat([(T.zeros_like(p) if g is None else g).flatten()
                                                for g, p in zip(by[2:], parameters, strict=True)])
                state = state + step * by[0]
            return state + gradient[0], None, shared, None
    flow = lab.same(Flow())
    optimizer = lab.optim.RMSprop(flow.parameters(), lr=1e-2)
    times, found = T.linspace(0.0, 1.0, 5), []
    for _ in range(6):
        states = Adjoint.apply(lab.normal(3, 2), times, nn.utils.parameters_to_vector(flow.parameters()), flow)
        loss = (states[-1] - 1).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss)
    return found, flow.asked, flow.state_dict()


@program(chaotic=True)
def modulated_images(lab: Lab) -> Any:
    """StyleGAN 2: kernels of each example's own by groups, r1 every second step, the length of paths to an image."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Scaled(nn.Module):
        def __init__(self, inputs: int, outputs: int, rate: float = 1.0) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(T.randn(outputs, inputs).div_(rate)), nn.Parameter(T.zeros(outputs))
            self.scale, self.rate = inputs ** -0.5 * rate, rate

        def forward(self, x: Any) -> Any:
            return F.linear(x, self.weight * self.scale, bias=self.bias * self.rate)

    class Modulated(nn.Module):
        def __init__(self, inputs: int, outputs: int, size: int, up: bool = False) -> None:
            super().__init__()
            self.outputs, self.size, self.up = outputs, size, up
            self.weight = nn.Parameter(T.randn(1, outputs, inputs, size, size))
            self.style = Scaled(3, inputs)
            kernel = T.tensor([1.0, 3.0, 3.0, 1.0])
            kernel = kernel[None, :] * kernel[:, None]
            kernel /= kernel.sum()
            self.register_buffer("kernel", kernel)

        def forward(self, x: Any, style: Any) -> Any:
            rows, channels, height, width = x.shape
            weight = self.weight * self.style(style).view(rows, 1, channels, 1, 1) / self.size / math.sqrt(channels)
            weight = weight * T.rsqrt(weight.pow(2).sum([2, 3, 4]) + 1e-8).view(rows, -1, 1, 1, 1)
            x = x.view(1, rows * channels, height, width)
            if not self.up:
                weight = weight.view(rows * self.outputs, channels, self.size, self.size)
                found = F.conv2d(x, weight, padding=self.size // 2, groups=rows)
                return found.view(rows, self.outputs, *found.shape[-2:])
            weight = weight.transpose(1, 2).reshape(rows * channels, self.outputs, self.size, self.size)
            found = F.pad(F.conv_transpose2d(x, weight, padding=0, stride=2, groups=rows), [1, 1, 1, 1])
            found = F.conv2d(found.reshape(-1, 1, *found.shape[2:]), T.flip(self.kernel * 4, [0, 1]).view(1, 1, 4, 4))
            return found.view(rows, self.outputs, *found.shape[-2:])

    class Generator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.start, self.strength = nn.Parameter(T.randn(1, 3, 4, 4)), nn.Parameter(T.zeros(1))
            self.mapping = nn.Sequential(Scaled(3, 3, 0.01), nn.LeakyReLU(0.2))
            self.first, self.second, self.image = Modulated(3, 3, 3), Modulated(3, 2, 3, up=True), Modulated(2, 1, 1)

        def forward(self, z: Any, noise: Any) -> Any:
            style = self.mapping(z * T.rsqrt(T.mean(z ** 2, dim=1, keepdim=True) + 1e-8))
            x = self.first(self.start.repeat(len(z), 1, 1, 1), style) + self.strength * noise
            x = self.second(F.leaky_relu(x, 0.2) * 2 ** 0.5, style)
            return self.image(F.leaky_relu(x, 0.2), style), style
    maker = lab.same(Generator())
    judge = lab.same(nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(64, 1)))
    making, judging = [lab.optim.Adam(x.parameters(), 1e-3, betas=(0.0, 0.99)) for x in (maker, judge)]

    def train(chosen: Any, other: Any) -> None:
        for module, wanted in ((chosen, True), (other, False)):
            for p in module.parameters():
                p.requires_grad = wanted
    found, mean = [], T.tensor(0.0)
    for turn in range(6):
        train(judge, maker)
        z = lab.normal(2, 3)
        fake, _ = maker(z, lab.normal(2, 1, 4, 4))
        real = lab.normal(2, 1, *fake.shape[2:])
        judged = F.softplus(judge(fake)).mean() + F.softplus(-judge(real)).mean()
        judge.zero_grad()
        judged.backward()
        judging.step()
        if turn % 2 == 0:
            real.requires_grad = True
            scores = judge(real)
            by_real, = T.autograd.grad(outputs=scores.sum(), inputs=real, create_graph=True)
            steepness = by_real.pow(2).reshape(len(real), -1).sum(1).mean()
            judge.zero_grad()
            (10 * steepness + 0 * scores[0]).sum().backward()
            judging.step()
            found.append(steepness)
        train(maker, judge)
        fake, _ = maker(z, lab.normal(2, 1, 4, 4))
        made = F.softplus(-judge(fake)).mean()
        maker.zero_grad()
        made.backward()
        making.step()
        fake, style = maker(z, lab.normal(2, 1, 4, 4))
        noise = lab.normal(*fake.shape) / math.sqrt(fake.shape[2] * fake.shape[3])
        by_style, = T.autograd.grad(outputs=(fake * noise).sum(), inputs=style, create_graph=True)
        lengths = T.sqrt(by_style.pow(2).sum(1) + 1e-9)
        mean = mean + 0.01 * (lengths.mean() - mean)
        uneven = (lengths - mean).pow(2).mean()
        mean = mean.detach()
        maker.zero_grad()
        uneven.backward()
        making.step()
        found += [judged, made, uneven, mean]
    return found, maker.state_dict()


@program(chaotic=True)
def toggled_optimizers(lab: Lab) -> Any:
    """Lightning's manual optimization: what an optimizer does not own wants no gradients while it is its turn."""
    T, nn, F = lab.T, lab.nn, lab.F
    binary = F.binary_cross_entropy_with_logits

    class Adversaries(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.maker = nn.Sequential(nn.Linear(3, 6), nn.LeakyReLU(0.2), nn.Linear(6, 4))
            self.judge = nn.Sequential(nn.Linear(4, 6), nn.LeakyReLU(0.2), nn.Linear(6, 1))
            self.logged: dict[str, list[Any]] = {}

        def log(self, name: str, value: Any) -> None:
            self.logged.setdefault(name, []).append(value.detach().clone())

        def toggled(self, chosen: Any, optimizers: list[Any]) -> dict[Any, bool]:
            before: dict[Any, bool] = {}
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    for p in group["params"]:
                        before.setdefault(p, p.requires_grad)
                        p.requires_grad = False
            for group in chosen.param_groups:
                for p in group["params"]:
                    p.requires_grad = before[p]
            return before

        def training_step(self, x: Any, z: Any, optimizers: list[Any]) -> None:
            for optimizer, name in zip(optimizers, ("maker", "judge"), strict=True):
                before = self.toggled(optimizer, optimizers)
                fake = self.maker(z)
                if name == "maker":
                    loss = binary(self.judge(fake), T.ones(len(x), 1).type_as(x))
                else:
                    real = binary(self.judge(x), T.ones(x.size(0), 1).type_as(x))
                    loss = (real + binary(self.judge(fake.detach()), T.zeros(x.size(0), 1).type_as(x))) / 2
                self.log(name, loss)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                for p, wanted in before.items():
                    p.requires_grad = wanted
    model = lab.same(Adversaries())
    optimizers = [lab.optim.Adam(model.maker.parameters(), lr=1e-2), lab.optim.AdamW(model.judge.parameters(), 1e-2)]
    for _ in range(10):
        model.training_step(lab.normal(5, 4), lab.normal(5, 3), optimizers)
    with_gradients = [name for name, p in model.named_parameters() if p.grad is not None and p.requires_grad]
    return {name: T.stack(values) for name, values in model.logged.items()}, with_gradients, model.state_dict()
