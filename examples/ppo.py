"""An agent learns to balance a pole on a cart by proximal policy optimization.

Schulman et al. (2017), on 16 carts at once. The carts are a few lines of physics (Barto, Sutton and Anderson 1983).
"""

import math
import random

import genesis
from genesis import Tensor, nn
from genesis.distributions import Categorical

CARTS, LENGTH = 16, 64


class Cart:
    """A cart on a track with a pole that falls. Its state is place, speed, angle and angular speed; an episode ends
    where it leaves the track, the pole falls, or 200 turns are over."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """A new episode."""
        self.state, self.turns = [random.uniform(-0.05, 0.05) for _ in range(4)], 0

    def push(self, right: bool) -> bool:
        """One turn of 0.02 s. True where the episode ended, and a new one began."""
        x, speed, angle, turning = self.state
        force, sine, cosine = 10.0 if right else -10.0, math.sin(angle), math.cos(angle)
        common = (force + 0.05 * turning ** 2 * sine) / 1.1
        falling = (9.8 * sine - cosine * common) / (0.5 * (4 / 3 - 0.1 * cosine ** 2 / 1.1))
        self.state = [x + 0.02 * speed, speed + 0.02 * (common - 0.05 * falling * cosine / 1.1),
                      angle + 0.02 * turning, turning + 0.02 * falling]
        self.turns += 1
        if abs(self.state[0]) < 2.4 and abs(self.state[2]) < 0.21 and self.turns < 200:
            return False
        self.start()
        return True


class Agent(nn.Module):
    """A state → what to do, and what the future is worth."""

    def __init__(self, width: int = 64):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2))
        self.critic = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, state: Tensor) -> tuple[Categorical, Tensor]:
        return Categorical(logits=self.actor(state)), self.critic(state).squeeze(-1)


@genesis.no_grad()
def play(agent: Agent, carts: list[Cart]) -> tuple[list[Tensor], float]:
    """States, actions, log-probabilities, advantages and returns of LENGTH turns of all carts; turns an episode."""
    kept: list[tuple[Tensor, ...]] = []
    for _ in range(LENGTH):
        state = genesis.tensor([cart.state for cart in carts])
        policy, value = agent(state)
        action = policy.sample()
        ended = [cart.push(bool(right)) for cart, right in zip(carts, action.tolist(), strict=True)]
        kept.append((state, action, policy.log_prob(action), value, genesis.tensor(ended).float()))
    states, actions, odds, values, ends = (genesis.stack(column) for column in zip(*kept, strict=True))
    value = agent(genesis.tensor([cart.state for cart in carts]))[1]
    advantage, advantages = genesis.zeros(len(carts)), []
    for turn in reversed(range(LENGTH)):  # generalized advantage estimation; each turn earns 1
        error = 1 + 0.99 * value * (1 - ends[turn]) - values[turn]
        advantage = error + 0.99 * 0.95 * (1 - ends[turn]) * advantage
        advantages.append(advantage)
        value = values[turn]
    gained = genesis.stack(advantages[::-1])
    data = states, actions, odds, gained, gained + values
    return [x.flatten(0, 1) for x in data], LENGTH * len(carts) / max(1.0, ends.sum().item())


def loss_of(agent: Agent, state: Tensor, action: Tensor, before: Tensor, gained: Tensor, target: Tensor) -> Tensor:
    """The clipped objective, the critic's error, and a bonus for being undecided."""
    policy, value = agent(state)
    ratio = (policy.log_prob(action) - before).exp()
    gained = (gained - gained.mean()) / (gained.std() + 1e-8)
    surrogate = genesis.min(ratio * gained, ratio.clamp(0.8, 1.2) * gained)
    return -surrogate.mean() + 0.5 * nn.functional.mse_loss(value, target) - 0.01 * policy.entropy().mean()


def train(rounds: int = 30, epochs: int = 4, batch: int = 256) -> Agent:
    """Play, then learn from what was played, four times over."""
    random.seed(0)
    genesis.manual_seed(0)
    agent, carts = Agent(), [Cart() for _ in range(CARTS)]
    optimizer = genesis.optim.Adam(agent.parameters(), lr=2.5e-3)
    for number in range(rounds):
        data, turns = play(agent, carts)
        for _ in range(epochs):
            for rows in genesis.randperm(len(data[0])).split(batch):
                loss = loss_of(agent, *[x[rows] for x in data])
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        if number % 5 == 0 or number == rounds - 1:
            print(f"round {number:2d}  turns an episode {turns:.0f}")
    return agent


if __name__ == "__main__":
    train()
