"""Agents that learn from what they remember or imagine: a world model, ranked memories, returns that are asked for."""

from __future__ import annotations

import math
import random
from collections import deque, namedtuple
from typing import Any

import numpy as np

from .lab import Lab, program


@program(chaotic=True, quick=True)
def imagined_futures(lab: Lab) -> Any:
    """Dreamer: a recurrent state with a random part is fitted to what was seen; an actor learns in what it imagines,
    while the model's parameters want no gradients, and a critic from the same states."""
    T, nn, F = lab.T, lab.nn, lab.F
    distributions = T.distributions
    random_size, kept_size, seen_size, action_size = 4, 8, 6, 2

    class States(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inward, self.cell = nn.Linear(random_size + action_size, kept_size), nn.GRUCell(kept_size, kept_size)
            self.before = nn.Linear(kept_size, 2 * random_size)
            self.after = nn.Linear(kept_size + seen_size, 2 * random_size)

        def first(self, batch: int) -> dict[str, Any]:
            zeros = {name: T.zeros(batch, random_size) for name in ("mean", "std", "drawn")}
            return dict(kept=T.zeros(batch, kept_size), **zeros)

        def made(self, numbers: Any, kept: Any) -> dict[str, Any]:
            mean, std = T.chunk(numbers, 2, dim=-1)
            std = F.softplus(std) + 0.1
            return {"mean": mean, "std": std, "drawn": mean + std * lab.normal(*mean.shape), "kept": kept}

        def imagine(self, state: dict[str, Any], action: Any) -> dict[str, Any]:
            kept = self.cell(F.elu(self.inward(T.cat([state["drawn"], action], -1))), state["kept"])
            return self.made(self.before(kept), kept)

        def observe(self, state: dict[str, Any], action: Any, seen: Any) -> tuple[dict[str, Any], dict[str, Any]]:
            prior = self.imagine(state, action)
            return self.made(self.after(T.cat([prior["kept"], seen], -1)), prior["kept"]), prior

    def features(state: dict[str, Any]) -> Any:
        return T.cat([state["drawn"], state["kept"]], -1)

    def drawn_from(state: dict[str, Any]) -> Any:
        return distributions.Independent(distributions.Normal(state["mean"], state["std"]), 1)

    def stacked(states: list[dict[str, Any]]) -> dict[str, Any]:
        return {name: T.stack([state[name] for state in states], 0) for name in states[0]}
    size = random_size + kept_size
    states, encoder = lab.same(States()), lab.same(nn.Sequential(nn.Linear(5, seen_size), nn.ELU()))
    decoder, rewards = lab.same(nn.Linear(size, 5)), lab.same(nn.Linear(size, 1))
    actor = lab.same(nn.Sequential(nn.Linear(size, 8), nn.ELU(), nn.Linear(8, action_size), nn.Tanh()))
    critic = lab.same(nn.Sequential(nn.Linear(size, 8), nn.ELU(), nn.Linear(8, 1)))
    model = [p for part in (states, encoder, decoder, rewards) for p in part.parameters()]
    of_model, of_actor, of_critic = (lab.optim.Adam(list(p), lr=5e-3)
                                     for p in (model, actor.parameters(), critic.parameters()))
    found: list[Any] = []
    for _ in range(5):
        seen, actions, given = lab.normal(5, 3, 5), lab.normal(5, 3, action_size), lab.normal(5, 3)
        embedded, state = encoder(seen), states.first(3)
        posts, priors = [], []
        for t in range(5):
            state, prior = states.observe(state, actions[t], embedded[t])
            posts.append(state)
            priors.append(prior)
        post, prior = stacked(posts), stacked(priors)
        x = features(post)
        likely = distributions.Independent(distributions.Normal(decoder(x), 1.0), 1).log_prob(seen).mean()
        likely = likely + distributions.Normal(rewards(x).squeeze(-1), 1.0).log_prob(given).mean()
        apart = distributions.kl_divergence(drawn_from(post), drawn_from(prior)).mean()
        loss = T.clamp(apart, min=0.5) - likely
        of_model.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model, 100.0)
        of_model.step()
        state, imagined = {name: v.detach().reshape(-1, v.shape[-1]) for name, v in post.items()}, []
        for p in model:
            p.requires_grad_(False)
        for _step in range(3):
            state = states.imagine(state, actor(features(state).detach()))
            imagined.append(features(state))
        x = T.stack(imagined)
        reward, value = rewards(x).squeeze(-1), critic(x).squeeze(-1)
        returns = [value[-1]]
        for t in reversed(range(2)):
            returns.insert(0, reward[t] + 0.95 * (0.05 * value[t + 1] + 0.95 * returns[0]))
        wanted = T.stack(returns[:-1])
        of_actor.zero_grad()
        lost = -(T.cumprod(T.full_like(wanted, 0.95), 0) * wanted).mean()
        lost.backward()
        of_actor.step()
        for p in model:
            p.requires_grad_(True)
        of_critic.zero_grad()
        wrong = -distributions.Normal(critic(x[:-1].detach()).squeeze(-1), 1.0).log_prob(wanted.detach()).mean()
        wrong.backward()
        of_critic.step()
        found += [loss.item(), norm, lost.item(), wrong.item()]
    return found


@program(chaotic=True)
def ranked_memories(lab: Lab) -> Any:
    """Rainbow's parts: returns of three steps, a tree of sums that draws by priority, heads of value and advantage, a
    network that follows by its state dict; pictures stay bytes until they are looked at."""
    T, nn, F = lab.T, lab.nn, lab.F
    Step = namedtuple("Step", "state action reward after ended")
    dice = random.Random(1)

    class Sums:
        def __init__(self, places: int) -> None:
            self.places, self.next, self.count = places, 0, 0
            self.tree, self.held = np.zeros(2 * places - 1), [None] * places

        def set(self, place: int, priority: float) -> None:
            at = place + self.places - 1
            change, self.tree[at] = priority - self.tree[at], priority
            while at > 0:
                at = (at - 1) // 2
                self.tree[at] += change

        def add(self, priority: float, step: Any) -> None:
            self.held[self.next] = step
            self.set(self.next, priority)
            self.next, self.count = (self.next + 1) % self.places, min(self.count + 1, self.places)

        def find(self, below: float) -> tuple[int, float]:
            at = 0
            while 2 * at + 1 < len(self.tree):
                at = 2 * at + 1
                if below > self.tree[at]:
                    below -= self.tree[at]
                    at += 1
            return at - self.places + 1, self.tree[at]

    class Dueling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.look = nn.Sequential(nn.Conv2d(4, 8, 4, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU())
            size = int(np.prod(self.look(T.zeros(1, 4, 12, 12)).size()))
            self.advantage = nn.Sequential(nn.Linear(size, 16), nn.ReLU(), nn.Linear(16, 3))
            self.value = nn.Sequential(nn.Linear(size, 16), nn.ReLU(), nn.Linear(16, 1))

        def forward(self, x: Any) -> Any:
            x = x.to(T.get_default_dtype()) / 256
            x = self.look(x).view(x.size()[0], -1)
            advantage = self.advantage(x)
            return self.value(x) + (advantage - advantage.mean(dim=1, keepdim=True))
    net, target = lab.same(Dueling()), Dueling()
    target.load_state_dict(net.state_dict())
    target.eval()
    optimizer = lab.optim.Adam(net.parameters(), lr=1e-3, eps=1.5e-4)
    memory, recent = Sums(16), deque(maxlen=3)

    def picture() -> Any:
        return lab.draws.integers(0, 255, (12, 12), dtype=np.uint8)
    frames = deque([picture() for _ in range(4)], maxlen=4)
    found: list[Any] = []
    for turn in range(22):
        state = np.stack(frames)
        with T.no_grad():
            values = net(T.from_numpy(state).unsqueeze(0).to(lab.device))
            action = values.argmax(1).item() if dice.random() > 0.3 else dice.randrange(3)
        frames.append(picture())
        recent.append(Step(state, action, float(action == 1), np.stack(frames), turn % 10 == 9))
        if len(recent) == 3:
            reward = sum(step.reward * 0.9 ** i for i, step in enumerate(recent))
            memory.add(1.0, recent[0]._replace(reward=reward, after=recent[-1].after, ended=recent[-1].ended))
        if turn < 12:
            continue
        each = memory.tree[0] / 6
        places, priorities = zip(*[memory.find(dice.uniform(each * i, each * (i + 1))) for i in range(6)], strict=True)
        batch = Step(*zip(*[memory.held[place] for place in places], strict=True))
        weights = T.tensor((memory.count * np.array(priorities) / memory.tree[0]) ** -0.4, dtype=T.get_default_dtype())
        before, after = (T.from_numpy(np.array(x)).to(lab.device) for x in (batch.state, batch.after))
        chosen, ended = T.LongTensor(batch.action).to(lab.device), T.BoolTensor(batch.ended).to(lab.device)
        had = net(before).gather(1, chosen.unsqueeze(-1)).squeeze(-1)
        with T.no_grad():
            best = net(after).max(1)[1]
            then = target(after).gather(1, best.unsqueeze(-1)).squeeze(-1)
            then[ended] = 0.0
        losses = F.smooth_l1_loss(had, then * 0.9 ** 3 + T.tensor(batch.reward), reduction="none")
        optimizer.zero_grad()
        (weights / weights.max() * losses).mean().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        optimizer.step()
        for place, lost in zip(places, losses.detach().cpu().numpy(), strict=True):
            memory.set(place, (abs(float(lost)) + 1e-5) ** 0.6)
        found += [losses.sum().item(), action, memory.tree[0]]
        if turn % 5 == 0:
            target.load_state_dict(net.state_dict())
    return found


@program
def returns_to_go(lab: Lab) -> Any:
    """A decision transformer: returns, states and actions take turns in one sequence, padded ones are masked, the loss
    is over rows that a mask chooses."""
    T, nn, F = lab.T, lab.nn, lab.F
    width, heads, turns = 24, 2, 6

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
            self.register_buffer("past", T.tril(T.ones(3 * turns, 3 * turns)).view(1, 1, 3 * turns, 3 * turns))

        def forward(self, x: Any, there: Any) -> Any:
            batch, length, _ = x.shape
            q, k, v = (f(x).view(batch, length, heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
            weights = q @ k.transpose(2, 3) / math.sqrt(width // heads)
            weights = weights.masked_fill(self.past[..., :length, :length] == 0, float("-inf"))
            weights = weights.masked_fill(there[:, None, None] == 0, T.finfo(weights.dtype).min)
            return self.out((F.softmax(weights, dim=-1) @ v).transpose(1, 2).contiguous().view(batch, length, width))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.first, self.second = Attention(), nn.LayerNorm(width), nn.LayerNorm(width)
            self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

        def forward(self, x: Any, there: Any) -> Any:
            x = self.first(x + self.attention(x, there))
            return self.second(x + self.mlp(x))

    class Decisions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.time, self.norm = nn.Embedding(50, width), nn.LayerNorm(width)
            self.of_return, self.of_state, self.of_action = (nn.Linear(n, width) for n in (1, 5, 2))
            self.blocks = nn.ModuleList([Block() for _ in range(2)])
            self.act = nn.Sequential(nn.Linear(width, 2), nn.Tanh())

        def forward(self, time: Any, state: Any, action: Any, to_go: Any, mask: Any) -> Any:
            batch, length, _ = state.shape
            at = self.time(time)
            parts = self.of_return(to_go) + at, self.of_state(state) + at, self.of_action(action) + at
            x = self.norm(T.stack(parts, dim=1).permute(0, 2, 1, 3).reshape(batch, 3 * length, width))
            there = T.stack((mask,) * 3, dim=1).permute(0, 2, 1).reshape(batch, 3 * length)
            for block in self.blocks:
                x = block(x, there)
            return self.act(x.reshape(batch, length, 3, width).permute(0, 2, 1, 3)[:, 1])
    model = lab.same(Decisions())
    optimizer = lab.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
    schedule = lab.optim.lr_scheduler.LambdaLR(optimizer, lambda at: min((at + 1) / 5, 1))

    @lab.step
    def step(time: Any, state: Any, action: Any, to_go: Any, mask: Any) -> Any:
        made = model(time, state, action, to_go, mask).view(-1, 2)[mask.view(-1) > 0]
        loss = F.mse_loss(made, action.view(-1, 2)[mask.view(-1) > 0], reduction="mean")
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        return loss
    losses = []
    for _ in range(8):
        lengths = lab.draws.integers(2, turns + 1, 4)
        mask = T.cat([T.cat([T.ones(int(n)), T.zeros(turns - int(n))]).unsqueeze(0) for n in lengths])
        time = T.arange(start=0, end=turns, step=1).repeat(4, 1) + lab.ints(40, 4, 1)
        states, actions, to_go = (lab.normal(4, turns, n) for n in (5, 2, 1))
        losses.append(step(time, states, actions.tanh(), to_go, mask))
        schedule.step()
    model.eval()
    with T.no_grad():
        asked = T.arange(3)[None], lab.normal(1, 3, 5), lab.normal(1, 3, 2), lab.normal(1, 3, 1)
        return losses, model(*asked, T.ones(1, 3, dtype=T.long))[0, -1]
