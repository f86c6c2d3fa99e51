"""A variational autoencoder learns pictures of bars that are drawn here: no download.

Kingma and Welling (2014). The code of a picture is a normal distribution; `rsample` lets gradients flow to its mean and
scale. At the end the decoder draws pictures of codes that no picture had.
"""

import genesis
from genesis import Tensor, nn
from genesis.distributions import Normal, kl_divergence

SIDE = 8


def bars(count: int) -> Tensor:
    """Pictures [count, 64] with one row and one column lit."""
    picture, which = genesis.zeros(count, SIDE, SIDE), genesis.arange(count)
    picture[which, genesis.randint(0, SIDE, (count,))] = 1.0
    picture[which, :, genesis.randint(0, SIDE, (count,))] = 1.0
    return picture.flatten(1)


class VAE(nn.Module):
    """A picture → the distribution of its code → the logits of a picture."""

    def __init__(self, code: int = 8, width: int = 128):
        super().__init__()
        self.code = code
        self.encoder = nn.Sequential(nn.Linear(SIDE * SIDE, width), nn.ReLU(), nn.Linear(width, 2 * code))
        self.decoder = nn.Sequential(nn.Linear(code, width), nn.ReLU(), nn.Linear(width, SIDE * SIDE))

    def forward(self, x: Tensor) -> tuple[Tensor, Normal]:
        mean, log_scale = self.encoder(x).chunk(2, dim=1)
        posterior = Normal(mean, log_scale.exp())
        return self.decoder(posterior.rsample()), posterior


def loss_of(model: VAE, x: Tensor) -> Tensor:
    """The negative evidence bound in nats a picture: what is missed in it, and what its code tells."""
    logits, posterior = model(x)
    missed = nn.functional.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    told = kl_divergence(posterior, Normal(0.0, 1.0)).sum()
    return (missed + told) / len(x)


def train(steps: int = 1500, batch: int = 64) -> VAE:
    """Train on pictures that never repeat."""
    genesis.manual_seed(0)
    model = VAE()
    optimizer = genesis.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(steps):
        loss = loss_of(model, bars(batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 250 == 0 or step == steps - 1:
            print(f"step {step:4d}  loss {loss.item():.2f}")
    return model


@genesis.no_grad()
def draw(model: VAE, count: int = 4) -> str:
    """New pictures side by side."""
    pictures = (model.decoder(genesis.randn(count, model.code)) > 0).view(count, SIDE, SIDE)
    return "\n".join("   ".join("".join(" #"[dot] for dot in row) for row in rows)
                     for rows in pictures.transpose(0, 1).tolist())


if __name__ == "__main__":
    print(draw(train()))
