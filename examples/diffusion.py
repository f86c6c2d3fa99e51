"""A diffusion model learns points on a spiral: noise goes in, a spiral comes out.

Ho, Jain and Abbeel (2020): a network learns which noise was added to a point; sampling takes it away step by step. What
samples is a running average of the weights (EMA), which is better than any of them.
"""

import copy

import genesis
from genesis import Tensor, nn

TIMES = 50
BETAS = genesis.linspace(1e-4, 0.15, TIMES)
KEPT = (1 - BETAS).cumprod(0)  # how much of a point's variance is left at each time


def spiral(count: int) -> Tensor:
    """Points [count, 2]."""
    angle = 3 * genesis.pi * genesis.rand(count).sqrt()
    return genesis.stack([angle.cos(), angle.sin()], dim=1) * angle[:, None] / 5


class Denoiser(nn.Module):
    """A noisy point and its time → the noise in it."""

    def __init__(self, width: int = 96):
        super().__init__()
        self.time = nn.Embedding(TIMES, width)
        self.enter, self.leave = nn.Linear(2, width), nn.Linear(width, 2)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        hidden = self.enter(x) + self.time(time)
        for layer in self.layers:
            hidden = hidden + layer(nn.functional.silu(hidden))
        return self.leave(hidden)


class Average:
    """A model whose weights follow those of another one slowly."""

    def __init__(self, model: nn.Module, decay: float = 0.995):
        self.model, self.decay = copy.deepcopy(model).requires_grad_(False), decay

    @genesis.no_grad()
    def follow(self, model: nn.Module) -> None:
        for average, new in zip(self.model.parameters(), model.parameters(), strict=True):
            average.lerp_(new, 1 - self.decay)


def loss_of(model: nn.Module, x: Tensor) -> Tensor:
    """Add noise of a random time, and see how well the model tells it."""
    time, noise = genesis.randint(0, TIMES, (len(x),)), genesis.randn_like(x)
    kept = KEPT[time][:, None]
    return nn.functional.mse_loss(model(kept.sqrt() * x + (1 - kept).sqrt() * noise, time), noise)


def train(steps: int = 3000, batch: int = 256) -> nn.Module:
    """The averaged model."""
    genesis.manual_seed(0)
    model = Denoiser()
    average, optimizer = Average(model), genesis.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(steps):
        loss = loss_of(model, spiral(batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.follow(model)
        if step % 500 == 0 or step == steps - 1:
            print(f"step {step:4d}  loss {loss.item():.3f}")
    return average.model


@genesis.no_grad()
def sample(model: nn.Module, count: int = 400) -> Tensor:
    """Points [count, 2] out of noise."""
    x = genesis.randn(count, 2)
    for time in reversed(range(TIMES)):
        noise = model(x, genesis.full((count,), time))
        x = (x - BETAS[time] / (1 - KEPT[time]).sqrt() * noise) / (1 - BETAS[time]).sqrt()
        if time:
            x += BETAS[time].sqrt() * genesis.randn_like(x)
    return x


def distance(points: Tensor) -> float:
    """How far the points are from the spiral, on average."""
    return genesis.cdist(points, spiral(2000)).min(dim=1).values.mean().item()


if __name__ == "__main__":
    model = train()
    print(f"distance of noise {distance(genesis.randn(400, 2)):.3f}, of samples {distance(sample(model)):.3f}")
