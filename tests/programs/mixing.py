"""Maps that are inverted, and images whose styles mix: triangular factors, masked densities, a weight an example."""

from __future__ import annotations

import math
from typing import Any

from .lab import Lab, program


@program(chaotic=True)
def masked_flow(lab: Lab) -> Any:
    """A flow of masked densities (MADE) with dimensions mixed by a matrix that is kept as its LU factors."""
    T, nn, F = lab.T, lab.nn, lab.F
    size, hidden = 3, 8

    class Mixing(nn.Module):
        """x Wᵀ with W = P L U, whose determinant is that of U's diagonal."""

        def __init__(self) -> None:
            super().__init__()
            P, L, U = T.linalg.lu(T.linalg.qr(lab.normal(size, size)).Q)
            self.register_buffer("P", P)
            self.register_buffer("sign", T.sign(T.diagonal(U)))
            self.lower, self.upper = nn.Parameter(L.tril(-1)), nn.Parameter(U.triu(1))
            self.scale = nn.Parameter(T.diagonal(U).abs().log())

        def weight(self) -> Any:
            lower = self.lower.tril(-1) + T.eye(size)
            return self.P @ lower @ (self.upper.triu(1) + T.diag(self.sign * self.scale.exp()))

        def forward(self, x: Any) -> tuple[Any, Any]:
            return x @ self.weight().T, self.scale.sum()

    class Masked(nn.Module):
        """Each dimension is scaled and shifted by those before it."""

        def __init__(self) -> None:
            super().__init__()
            order, inner = T.arange(1, size + 1), T.arange(hidden) % (size - 1) + 1
            dtype = T.get_default_dtype()
            self.register_buffer("into", (inner[:, None] >= order[None]).to(dtype), persistent=False)
            self.register_buffer("out", (order[:, None] > inner[None]).to(dtype).repeat(2, 1), persistent=False)
            self.first, self.second = nn.Linear(size, hidden), nn.Linear(hidden, 2 * size)

        def parts(self, x: Any) -> Any:
            h = T.tanh(F.linear(x, self.first.weight * self.into, self.first.bias))
            shift, scale = F.linear(h, self.second.weight * self.out, self.second.bias).chunk(2, dim=1)
            return shift, T.tanh(scale)

        def forward(self, x: Any) -> tuple[Any, Any]:
            shift, scale = self.parts(x)
            return (x - shift) * T.exp(-scale), -scale.sum(1)

        @T.no_grad()
        def inverse(self, z: Any) -> Any:
            x = T.zeros_like(z)
            for i in range(size):
                shift, scale = self.parts(x)
                x[:, i] = z[:, i] * scale[:, i].exp() + shift[:, i]
            return x

    mixing, masked = Mixing(), lab.same(Masked())
    base = T.distributions.MultivariateNormal(T.zeros(size), T.eye(size))
    optimizer = lab.optim.Adam([*mixing.parameters(), *masked.parameters()], lr=1e-2)

    @lab.step
    def step(x: Any) -> Any:
        y, first = mixing(x)
        z, second = masked(y)
        loss = -(base.log_prob(z) + first + second).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    losses = [step(lab.normal(8, size).cumsum(dim=1)) for _ in range(10)]
    z = lab.normal(4, size)
    back = T.linalg.solve(mixing.weight(), masked.inverse(z).T).T
    again, _ = masked(mixing(back)[0])
    assert T.allclose(again, z)
    return losses, back, T.linalg.slogdet(mixing.weight()), sorted(mixing.state_dict()), sorted(masked.state_dict())


@program(chaotic=True)
def mixed_styles(lab: Lab) -> Any:
    """A generator whose convolutions are each example's own, as one of many groups, with a penalty on its slopes."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Equalized(nn.Module):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(T.empty(outputs, inputs)), nn.Parameter(T.empty(outputs))
            self.scale = 1 / math.sqrt(inputs)

        def forward(self, x: Any) -> Any:
            return F.leaky_relu(F.linear(x, self.weight * self.scale, self.bias), 0.2) * 2**0.5

    class Modulated(nn.Module):
        def __init__(self, inputs: int, outputs: int, kernel: int = 3) -> None:
            super().__init__()
            self.kernel, self.style = kernel, nn.Linear(4, inputs)
            self.weight = nn.Parameter(T.empty(1, outputs, inputs, kernel, kernel))

        def forward(self, x: Any, w: Any) -> Any:
            batch, channels, height, width = x.shape
            weight = self.weight * self.style(w).view(batch, 1, channels, 1, 1)
            weight = weight * T.rsqrt(weight.pow(2).sum([2, 3, 4], keepdim=True) + 1e-8)
            x = F.conv2d(x.reshape(1, batch * channels, height, width), weight.view(-1, *weight.shape[2:]),
                         padding=self.kernel // 2, groups=batch)
            return x.view(batch, -1, height, width)

    class Generator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mapping = nn.Sequential(Equalized(4, 4), Equalized(4, 4))
            self.start = nn.Parameter(T.empty(1, 4, 4, 4))
            self.inner, self.colours = Modulated(4, 4), Modulated(4, 3, kernel=1)
            taps = T.tensor([1.0, 3.0, 3.0, 1.0])
            self.register_buffer("blur", (taps[None] * taps[:, None] / 64)[None, None])

        def styles(self, z: Any) -> Any:
            return self.mapping(z * T.rsqrt(z.pow(2).mean(dim=1, keepdim=True) + 1e-8))

        def forward(self, w: Any) -> Any:
            x = self.inner(self.start.repeat(len(w), 1, 1, 1), w)
            x = F.interpolate(x, scale_factor=2)
            x = F.conv2d(F.pad(x, (2, 1, 2, 1)), self.blur.repeat(4, 1, 1, 1), groups=4)
            return self.colours(x, w)

    def with_deviation(x: Any) -> Any:
        """A channel more: how much examples of a group differ."""
        groups = x.view(2, -1, 1, *x.shape[1:])
        spread = (groups.var(0, unbiased=False) + 1e-8).sqrt().mean([2, 3, 4], keepdim=True).squeeze(2)
        return T.cat([x, spread.repeat(2, 1, *x.shape[2:])], dim=1)

    model = lab.same(Generator())
    critic = lab.same(nn.Sequential(nn.Conv2d(4, 6, 3, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(96, 1)))
    ours, its = (lab.optim.Adam(part.parameters(), lr=2e-3, betas=(0.0, 0.99)) for part in (model, critic))
    mean_length = T.zeros(())

    @lab.step
    def generate(z: Any, noise: Any) -> Any:
        w = model.styles(z)
        images = model(w)
        slopes, = T.autograd.grad((images * noise / 8).sum(), w, create_graph=True)
        lengths = slopes.pow(2).sum(1).sqrt()
        with T.no_grad():
            mean_length.lerp_(lengths.mean(), 0.1)
        loss = F.softplus(-critic(with_deviation(images))).mean() + 2 * (lengths - mean_length).pow(2).mean()
        ours.zero_grad()
        loss.backward()
        ours.step()
        return loss

    @lab.step
    def judge(z: Any, real: Any) -> Any:
        with T.no_grad():
            fake = model(model.styles(z))
        real = real.detach().requires_grad_()
        said = critic(with_deviation(real))
        slopes, = T.autograd.grad(said.sum(), real, create_graph=True)
        loss = F.softplus(critic(with_deviation(fake))).mean() + F.softplus(-said).mean()
        loss = loss + 5 * slopes.pow(2).flatten(1).sum(1).mean()
        its.zero_grad()
        loss.backward()
        its.step()
        return loss
    losses = [(judge(lab.normal(4, 4), lab.normal(4, 3, 8, 8)), generate(lab.normal(4, 4), lab.normal(4, 3, 8, 8)))
              for _ in range(5)]
    return losses, mean_length, model.state_dict()
