"""A graph network learns the two halves of a club from four labelled members: sparse products, no download.

Two layers of Kipf and Welling (2017) on Zachary's kind of graph, made at random: members know their own half well.
"""

import genesis
from genesis import nn

genesis.manual_seed(0)
COUNT = 40
half = (genesis.arange(COUNT) >= COUNT // 2).long()
chance = genesis.where(half[:, None] == half[None, :], 0.3, 0.02)
knows = (genesis.rand(COUNT, COUNT) < chance).float().triu(1)
knows = knows + knows.T + genesis.eye(COUNT)
scale = knows.sum(1).rsqrt()
adjacency = (scale[:, None] * knows * scale[None, :]).to_sparse()


class GraphNetwork(nn.Module):
    """Members begin as themselves; each layer mixes what neighbours know."""

    def __init__(self, hidden: int = 16):
        super().__init__()
        self.first, self.second = nn.Linear(COUNT, hidden), nn.Linear(hidden, 2)

    def forward(self, features: genesis.Tensor) -> genesis.Tensor:
        hidden = genesis.sparse.mm(adjacency, self.first(features)).relu()
        return genesis.sparse.mm(adjacency, self.second(hidden))


model, features = GraphNetwork(), genesis.eye(COUNT)
labelled = genesis.tensor([0, 1, COUNT - 2, COUNT - 1])
optimizer = genesis.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
for step in range(60):
    logits = model(features)
    loss = nn.functional.cross_entropy(logits[labelled], half[labelled])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0 or step == 59:
        print(f"step {step:2d}  loss {loss.item():.4f}")
print("right", (model(features).argmax(1) == half).float().mean().item())
