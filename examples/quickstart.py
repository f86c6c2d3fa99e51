"""Fit a sine with a small network: the README's ten lines, with the loss as it falls."""

import genesis
from genesis import nn

genesis.manual_seed(0)
x = genesis.linspace(-3, 3, 256).reshape(256, 1)
y = x.sin()
model = nn.Sequential(nn.Linear(1, 64), nn.GELU(), nn.Linear(64, 1))
optimizer = genesis.optim.AdamW(model.parameters(), lr=1e-2)

for step in range(300):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0 or step == 299:
        print(f"step {step:3d}  loss {loss.item():.5f}")
