"""A vision transformer tells circles, squares and crosses apart that are drawn here, wherever they are.

Dosovitskiy et al. (2021): patches of a picture are words, and a class token reads them. The step is compiled.
"""

import genesis
from genesis import Tensor, nn

SIDE, PATCH = 24, 4
SHAPES = ("circle", "square", "cross")


def pictures(count: int) -> tuple[Tensor, Tensor]:
    """Noisy pictures [count, 1, 24, 24] of a shape of random place and size, and which it is."""
    label = genesis.randint(0, len(SHAPES), (count,))
    radius = 3 + 4 * genesis.rand(count, 1, 1)
    centre = 8 + 8 * genesis.rand(count, 2, 1, 1)
    grid = genesis.arange(float(SIDE))
    down, right = (grid[None, :, None] - centre[:, 0]).abs(), (grid[None, None, :] - centre[:, 1]).abs()
    circle = (down ** 2 + right ** 2).sqrt() <= radius
    square = genesis.maximum(down, right) <= 0.85 * radius
    cross = (genesis.minimum(down, right) <= 1) & (genesis.maximum(down, right) <= radius)
    shapes = genesis.stack([circle, square, cross], dim=1).float()
    picture = shapes[genesis.arange(count), label]
    return (picture + 0.2 * genesis.randn_like(picture)).unsqueeze(1), label


class VisionTransformer(nn.Module):
    """A picture → the logits of the shapes."""

    def __init__(self, width: int = 48, heads: int = 4, layers: int = 2):
        super().__init__()
        self.patches = nn.Conv2d(1, width, PATCH, stride=PATCH)
        self.token = nn.Parameter(genesis.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * genesis.randn(1, 1 + (SIDE // PATCH) ** 2, width))
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, activation="gelu", batch_first=True,
                                           norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(SHAPES))

    def forward(self, x: Tensor) -> Tensor:
        words = self.patches(x).flatten(2).transpose(1, 2)
        words = genesis.cat([self.token.expand(len(x), -1, -1), words], dim=1) + self.places
        return self.head(self.norm(self.encoder(words)[:, 0]))


def train(steps: int = 500, batch: int = 64) -> VisionTransformer:
    """Train with a learning rate that rises, then falls."""
    genesis.manual_seed(0)
    model = VisionTransformer()
    optimizer = genesis.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = genesis.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=steps)

    @genesis.compile
    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for number in range(steps):
        loss = step(*pictures(batch))
        schedule.step()
        if number % 50 == 0 or number == steps - 1:
            print(f"step {number:3d}  loss {loss.item():.3f}")
    return model


@genesis.no_grad()
def right(model: VisionTransformer, count: int = 300) -> float:
    """The part of new pictures that the model names."""
    x, y = pictures(count)
    return (model.eval()(x).argmax(1) == y).float().mean().item()


if __name__ == "__main__":
    print(f"right {right(train()):.3f}")
