"""A network learns how a damped spring swings, from its differential equation alone: no data.

Raissi, Perdikaris and Karniadakis (2019): gradients of the network by its input are part of the loss, so that training
differentiates them once more (`create_graph`).
"""

import math

import genesis
from genesis import Tensor, nn

DAMPING, STIFFNESS, END = 1.0, 16.0, 2.0


def exact(time: Tensor) -> Tensor:
    """x'' + 2·DAMPING·x' + STIFFNESS·x = 0 with x(0) = 1 and x'(0) = 0."""
    omega = math.sqrt(STIFFNESS - DAMPING ** 2)
    return (-DAMPING * time).exp() * ((omega * time).cos() + DAMPING / omega * (omega * time).sin())


class Spring(nn.Module):
    """A time [n, 1] → where the spring is [n, 1]. It begins at 1, at rest, whatever the weights are."""

    def __init__(self, width: int = 32):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
                                    nn.Linear(width, 1))

    def forward(self, time: Tensor) -> Tensor:
        return 1 + time ** 2 * self.layers(time)


def derivative(y: Tensor, x: Tensor) -> Tensor:
    """dy/dx, each of its own x, to be differentiated again."""
    return genesis.autograd.grad(y.sum(), x, create_graph=True)[0]


def residual(model: Spring, time: Tensor) -> Tensor:
    """By how much the network misses the equation."""
    time = time.requires_grad_()
    place = model(time)
    speed = derivative(place, time)
    return derivative(speed, time) + 2 * DAMPING * speed + STIFFNESS * place


def train(steps: int = 1000, points: int = 128) -> Spring:
    """Train at random times."""
    genesis.manual_seed(0)
    model = Spring()
    optimizer = genesis.optim.Adam(model.parameters(), lr=5e-3)
    schedule = genesis.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        loss = residual(model, END * genesis.rand(points, 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 250 == 0 or step == steps - 1:
            print(f"step {step:4d}  loss {loss.item():.4f}")
    return model


@genesis.no_grad()
def error(model: Spring) -> float:
    """The largest distance from the exact solution."""
    time = genesis.linspace(0, END, 200).unsqueeze(1)
    return (model(time) - exact(time)).abs().max().item()


if __name__ == "__main__":
    print(f"largest error {error(train()):.4f}")
