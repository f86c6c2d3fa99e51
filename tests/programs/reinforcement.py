"""Reinforcement learning; environments are a few lines of arithmetic, actions are given or greedy."""

from __future__ import annotations

from collections import deque, namedtuple
from typing import Any

from .lab import Lab, program


def environment(state: list[float], action: int) -> tuple[list[float], float, bool]:
    """A point that is pushed left or right."""
    x, v = state
    v = 0.9 * v + (0.2 if action else -0.2)
    x += v
    return [x, v], 1.0 - abs(x), abs(x) > 1.5


@program(quick=True)
def reinforce(lab: Lab) -> Any:
    """Returns are whitened; log-probabilities are kept in a list until the episode ends."""
    T, nn = lab.T, lab.nn
    policy = lab.same(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2), nn.Softmax(dim=-1)))
    optimizer, eps = lab.optim.Adam(policy.parameters(), lr=1e-2), 1e-8
    losses = []
    for episode in range(10):
        state, log_probs, rewards = [0.1, 0.0], [], []
        for t in range(5 + episode % 2):
            m = T.distributions.Categorical(policy(T.tensor(state).unsqueeze(0)))
            action = T.tensor([(episode + t) % 2])
            log_probs.append(m.log_prob(action))
            state, reward, done = environment(state, action.item())
            rewards.append(reward)
            if done:
                break
        R, returns = 0.0, deque()
        for r in rewards[::-1]:
            R = r + 0.99 * R
            returns.appendleft(R)
        returns = T.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + eps)
        policy_loss = [-log_prob * R for log_prob, R in zip(log_probs, returns, strict=True)]
        optimizer.zero_grad()
        loss = T.cat(policy_loss).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@program
def actor_critic(lab: Lab) -> Any:
    """A shared body with two heads; advantages without gradient, an entropy bonus."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.affine1, self.action_head, self.value_head = nn.Linear(2, 8), nn.Linear(8, 2), nn.Linear(8, 1)

        def forward(self, x: Any) -> Any:
            x = F.relu(self.affine1(x))
            return F.softmax(self.action_head(x), dim=-1), self.value_head(x)
    model, Saved = lab.same(Policy()), namedtuple("Saved", ["log_prob", "value", "entropy"])
    optimizer, losses = lab.optim.Adam(model.parameters(), lr=3e-2), []
    for episode in range(10):
        state, saved, rewards = [0.1, 0.0], [], []
        for t in range(6):
            probs, value = model(T.tensor(state))
            m = T.distributions.Categorical(probs)
            action = T.tensor((episode + t) % 2)
            saved.append(Saved(m.log_prob(action), value, m.entropy()))
            state, reward, _ = environment(state, action.item())
            rewards.append(reward)
        R, returns, policy_losses, value_losses = 0.0, [], [], []
        for r in rewards[::-1]:
            R = r + 0.99 * R
            returns.insert(0, R)
        for (log_prob, value, entropy), R in zip(saved, T.tensor(returns), strict=True):
            policy_losses.append(-log_prob * (R - value.item()) - 0.01 * entropy)
            value_losses.append(F.smooth_l1_loss(value, T.tensor([R])))
        optimizer.zero_grad()
        loss = T.stack(policy_losses).sum() + T.stack(value_losses).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@program
def ppo(lab: Lab) -> Any:
    """Generalized advantages over a buffer, clipped ratios of a diagonal Gaussian, minibatches by index."""
    T, nn = lab.T, lab.nn
    Normal = T.distributions.Normal

    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.critic = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
            self.actor_mean = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
            self.actor_logstd = nn.Parameter(T.zeros(1, 2))

        def evaluate(self, x: Any, action: Any) -> Any:
            mean = self.actor_mean(x)
            probs = Normal(mean, T.exp(self.actor_logstd.expand_as(mean)))
            return probs.log_prob(action).sum(1), probs.entropy().sum(1), self.critic(x)
    agent = lab.same(Agent())
    optimizer = lab.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
    obs, actions, rewards, dones = lab.normal(8, 4, 3), lab.normal(8, 4, 2), lab.normal(8, 4), T.zeros(8, 4)
    dones[3, 1] = 1
    with T.no_grad():
        values = agent.critic(obs).squeeze(-1)
        old = agent.evaluate(obs.view(-1, 3), actions.view(-1, 2))[0]
        advantages, last = T.zeros_like(rewards), 0
        for t in reversed(range(7)):
            delta = rewards[t] + 0.99 * values[t + 1] * (1 - dones[t + 1]) - values[t]
            advantages[t] = last = delta + 0.99 * 0.95 * (1 - dones[t + 1]) * last
    b_obs, b_act, b_adv = obs.reshape((-1, 3)), actions.reshape((-1, 2)), advantages.reshape(-1)
    b_ret = b_adv + values.reshape(-1)

    @lab.step
    def step(i: Any) -> Any:
        new, entropy, value = agent.evaluate(b_obs[i], b_act[i])
        ratio = (new - old[i]).exp()
        adv = (b_adv[i] - b_adv[i].mean()) / (b_adv[i].std() + 1e-8)
        policy = T.max(-adv * ratio, -adv * T.clamp(ratio, 1 - 0.2, 1 + 0.2)).mean()
        loss = policy - 0.01 * entropy.mean() + 0.5 * 0.5 * ((value.view(-1) - b_ret[i]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        return loss, ((ratio - 1) - (new - old[i])).mean()
    return [step(lab.ints(32, 8)) for _ in range(10)]


@program(chaotic=True)
def soft_actor_critic(lab: Lab) -> Any:
    """Two critics, a squashed Gaussian, a learned temperature, and targets that follow slowly."""
    T, nn, F = lab.T, lab.nn, lab.F

    def network(ins: int, outs: int) -> Any:
        return lab.same(nn.Sequential(nn.Linear(ins, 12), nn.ReLU(), nn.Linear(12, outs)))
    actor, q1, q2, t1, t2 = network(3, 4), network(5, 1), network(5, 1), network(5, 1), network(5, 1)
    t1.load_state_dict(q1.state_dict())
    t2.load_state_dict(q2.state_dict())
    log_alpha = T.zeros(1, requires_grad=True)
    for_q = lab.optim.Adam([*q1.parameters(), *q2.parameters()], lr=1e-3)
    for_pi, for_alpha = lab.optim.Adam(actor.parameters(), lr=1e-3), lab.optim.Adam([log_alpha], lr=1e-3)

    def act(s: Any, noise: Any) -> Any:
        mean, log_std = actor(s).chunk(2, dim=-1)
        log_std = -5 + 0.5 * 7 * (T.tanh(log_std) + 1)
        normal = T.distributions.Normal(mean, log_std.exp())
        x = mean + log_std.exp() * noise
        y = T.tanh(x)
        return y, (normal.log_prob(x) - T.log(1 - y.pow(2) + 1e-6)).sum(1, keepdim=True)

    @lab.step
    def step(s: Any, a: Any, r: Any, s2: Any, n1: Any, n2: Any) -> Any:
        with T.no_grad():
            a2, logp = act(s2, n1)
            both = T.cat([s2, a2], 1)
            target = r + 0.99 * (T.min(t1(both), t2(both)) - log_alpha.exp() * logp)
        sa = T.cat([s, a], 1)
        q_loss = F.mse_loss(q1(sa), target) + F.mse_loss(q2(sa), target)
        for_q.zero_grad()
        q_loss.backward()
        for_q.step()
        pi, logp = act(s, n2)
        pi_loss = (log_alpha.exp().detach() * logp - T.min(q1(T.cat([s, pi], 1)), q2(T.cat([s, pi], 1)))).mean()
        for_pi.zero_grad()
        pi_loss.backward()
        for_pi.step()
        alpha_loss = (-log_alpha.exp() * (logp.detach() - 2)).mean()
        for_alpha.zero_grad()
        alpha_loss.backward()
        for_alpha.step()
        for net, slow in ((q1, t1), (q2, t2)):
            for p, tp in zip(net.parameters(), slow.parameters(), strict=True):
                tp.data.copy_(0.01 * p.data + 0.99 * tp.data)
        return q_loss, pi_loss, alpha_loss
    return [step(lab.normal(6, 3), lab.normal(6, 2), lab.normal(6, 1), lab.normal(6, 3), lab.normal(6, 2),
                 lab.normal(6, 2)) for _ in range(10)]


@program
def deep_q(lab: Lab) -> Any:
    """A replay memory of named tuples, a mask of states that are not final, soft targets by state dict."""
    T, nn = lab.T, lab.nn
    Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))

    def network() -> Any:
        return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
    policy, target = lab.same(network()), network()
    target.load_state_dict(policy.state_dict())
    optimizer = lab.optim.AdamW(policy.parameters(), lr=1e-2, amsgrad=True)
    memory: Any = deque(maxlen=100)
    state, losses = T.tensor([[0.1, 0.0]]), []
    for i in range(16):
        with T.no_grad():
            action = policy(state).max(1).indices.view(1, 1) if i % 3 else T.tensor([[i % 2]], dtype=T.long)
        observed, reward, done = environment(state[0].tolist(), int(action.item()))
        following = None if done else T.tensor(observed, dtype=T.get_default_dtype()).unsqueeze(0)
        memory.append(Transition(state, action, following, T.tensor([reward])))
        state = T.tensor([[0.1, 0.0]]) if following is None else following
        if len(memory) < 6:
            continue
        batch = Transition(*zip(*list(memory)[-6:], strict=True))
        mask = T.tensor(tuple(s is not None for s in batch.next_state), dtype=T.bool)
        q = policy(T.cat(batch.state)).gather(1, T.cat(batch.action))
        following_values = T.zeros(6)
        with T.no_grad():
            following_values[mask] = target(T.cat([s for s in batch.next_state if s is not None])).max(1).values
        expected = (following_values * 0.99) + T.cat(batch.reward)
        loss = nn.SmoothL1Loss()(q, expected.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        T.nn.utils.clip_grad_value_(policy.parameters(), 100)
        optimizer.step()
        theirs, ours = target.state_dict(), policy.state_dict()
        for key in ours:
            theirs[key] = ours[key] * 0.05 + theirs[key] * 0.95
        target.load_state_dict(theirs)
        losses.append(loss.item())
    return losses
