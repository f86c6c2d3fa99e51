"""Ways that are searched for: by natural gradients under a bound, by an optimizer that is itself learnt, by flows that
reward many ends, and by messages of a graph whose operands are told by their names."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np

from .lab import Lab, program


@program(chaotic=True)
def trust_regions(lab: Lab) -> Any:
    """TRPO: products with the Fisher matrix, conjugate gradients, and steps that are halved until they help."""
    T, nn, F = lab.T, lab.nn, lab.F
    net = lab.same(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)))
    seen, taken, advantage = lab.normal(20, 4), lab.ints(3, 20), lab.normal(20)

    def flat(parts: Any) -> Any:
        return T.cat([part.contiguous().view(-1) for part in parts])

    def logs() -> Any:
        return F.log_softmax(net(seen), 1)

    def solved(product: Any, b: Any) -> Any:
        x, r, p = T.zeros(b.size()), b.clone(), b.clone()
        square = T.dot(r, r)
        for _ in range(8):
            z = product(p)
            share = square / T.dot(p, z)
            x += share * p
            r -= share * z
            following = T.dot(r, r)
            p, square = r + following / square * p, following
            if square < 1e-10:
                break
        return x
    found = []
    for _ in range(3):
        before = logs().gather(1, taken.view(-1, 1)).squeeze()
        old = logs().detach()
        gain = (T.exp(before - before.detach()) * advantage).mean()
        slope = flat(T.autograd.grad(gain, net.parameters())).data

        def fisher(v: Any, old: Any = old) -> Any:
            divergence = (old.exp() * (old - logs())).sum(1).mean()
            first = flat(T.autograd.grad(divergence, net.parameters(), create_graph=True))
            return flat(T.autograd.grad((first * v).sum(), net.parameters())).data + v * 0.1
        way = solved(fisher, slope)
        length = T.sqrt(0.5 * (way * fisher(way)).sum(0, keepdim=True) / 1e-2)[0]
        start = nn.utils.parameters_to_vector(net.parameters()).detach().clone()
        for share in 0.5 ** np.arange(10):
            nn.utils.vector_to_parameters(start + share * way / length, net.parameters())
            with T.no_grad():
                after = (T.exp(logs().gather(1, taken[:, None]).squeeze() - before) * advantage).mean()
            if (after - gain).item() > 0:
                break
        found.append((gain.item(), after.item(), share, length.item()))
    return found, list(net.parameters())


@program(chaotic=True)
def learnt_steps(lab: Lab) -> Any:
    """Two cells, shared by all coordinates, give the steps of a small problem, and learn through three of them."""
    T, nn = lab.T, lab.nn

    class Steps(nn.Module):
        def __init__(self, hidden: int = 6) -> None:
            super().__init__()
            self.cells = nn.ModuleList([nn.LSTMCell(2, hidden), nn.LSTMCell(hidden, hidden)])
            self.out = nn.Linear(hidden, 1)

        def forward(self, gradient: Any, states: Any) -> Any:
            with T.no_grad():
                given, large = T.zeros(gradient.size()[0], 2), (T.abs(gradient) >= math.exp(-2)).squeeze()
                given[:, 0][large] = (T.log(T.abs(gradient[large]) + 1e-8) / 2).squeeze()
                given[:, 1][large] = T.sign(gradient[large]).squeeze()
                given[:, 0][~large] = -1
                given[:, 1][~large] = (math.exp(2) * gradient[~large]).squeeze()
            following = []
            for cell, state in zip(self.cells, states, strict=True):
                following.append(cell(given, state))
                given = following[-1][0]
            return self.out(given), following
    learner = lab.same(Steps())
    optimizer = lab.optim.Adam(learner.parameters(), lr=1e-2)
    found = []
    for _ in range(2):
        matrix, wanted = lab.normal(5, 5), lab.normal(5)
        theta, total = T.zeros(5, requires_grad=True), None
        states = [(T.zeros(5, 6), T.zeros(5, 6)) for _ in range(2)]
        for turn in range(1, 7):
            loss = T.sum((matrix.matmul(theta) - wanted) ** 2)
            total = loss if total is None else total + loss
            gradient = T.autograd.grad(loss, theta, retain_graph=True)[0].detach().view(-1, 1)
            move, states = learner(gradient, states)
            theta = theta + move.squeeze() * 0.1
            if turn % 3 == 0:
                optimizer.zero_grad()
                total.backward()
                optimizer.step()
                total, theta = None, theta.detach().requires_grad_(True)
                states = [tuple(part.detach() for part in state) for state in states]
            found.append(loss.item())
    return found, theta, list(learner.parameters())


@program(chaotic=True)
def flows_to_rewards(lab: Lab) -> Any:
    """A GFlowNet on a square: trajectories end by themselves, and are balanced against what their ends are worth."""
    T, nn, F, side = lab.T, lab.nn, lab.F, 8
    net = lab.same(nn.Sequential(nn.Linear(2 * side, 24), nn.LeakyReLU(), nn.Linear(24, 3)))
    total = nn.Parameter(T.zeros((1,)))
    optimizer = lab.optim.Adam([{"params": net.parameters(), "lr": 0.01}, {"params": [total], "lr": 0.1}])

    def reward(x: Any) -> Any:
        far = abs(x / (side - 1) * 2 - 1)
        return 1e-1 + 0.5 * (far > 0.5).prod(-1) + 2 * ((far < 0.8) * (far > 0.6)).prod(-1)
    found = []
    for _ in range(4):
        at, done, logs = T.zeros((4, 2), dtype=T.long), T.full((4,), False), T.zeros(4)
        while T.any(~done):
            seen = T.cat([F.one_hot(at[~done][:, axis], side) for axis in range(2)], -1).to(logs.dtype)
            logits = net(seen)
            logits[..., :-1] -= 1e9 * (at[~done] == side - 1).to(logits.dtype)
            gumbel = -(-lab.uniform(*logits.shape).log()).log()
            action = (logits.detach() + gumbel).argmax(-1)
            logs[~done] += logits.log_softmax(-1).gather(1, action.unsqueeze(1)).squeeze(1)
            ends, moved = action == 2, at[~done]
            moved.scatter_add_(1, action[:, None].clamp(max=1), (~ends)[:, None].long())
            at[~done] = moved
            following = done.clone()
            following[~done] |= ends
            done = following
        loss = (total + logs - reward(at.to(logs.dtype)).log()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append((loss.item(), total.item(), at.sum().item()))
    return found


@program(chaotic=True)
def named_messages(lab: Lab) -> Any:
    """Graph layers whose `message` says by its arguments' names what it wants of either end; graphs in batches."""
    T, nn, F = lab.T, lab.nn, lab.F

    def gathered(x: Any, index: Any, count: int, how: str) -> Any:
        where = index.view(-1, *[1] * (x.dim() - 1)).expand_as(x)
        found = x.new_zeros((count,) + x.size()[1:])
        if how == "amax":
            return found.scatter_reduce_(0, where, x, reduce="amax", include_self=False)
        found.scatter_add_(0, where, x)
        times = x.new_zeros(count).scatter_add_(0, index, x.new_ones(index.numel())).clamp_(min=1)
        return found / times.view(-1, *[1] * (x.dim() - 1)) if how == "mean" else found

    class Messages(nn.Module):
        how = "sum"

        def propagate(self, edges: Any, **given: Any) -> Any:
            ends = {"_i": edges[1], "_j": edges[0]}
            asked = {name: given[name[:-2]].index_select(0, ends[name[-2:]]) if name[-2:] in ends else given[name]
                     for name in inspect.signature(self.message).parameters}
            return gathered(self.message(**asked), edges[1], given["x"].size(0), self.how)

    class Convolution(Messages):
        def __init__(self, ins: int, outs: int) -> None:
            super().__init__()
            self.lin = nn.Linear(ins, outs, bias=False)

        def forward(self, x: Any, edges: Any) -> Any:
            edges = T.cat([edges, T.arange(x.size(0)).unsqueeze(0).repeat(2, 1)], dim=1)
            degree = T.zeros(edges.max() + 1).scatter_add_(0, edges[1], T.ones(edges.size(1)))
            inverse = degree.pow(-0.5)
            inverse[inverse == float("inf")] = 0
            return self.propagate(edges, x=self.lin(x), norm=inverse[edges[0]] * inverse[edges[1]])

        def message(self, x_j: Any, norm: Any) -> Any:
            return norm.view(-1, 1) * x_j

    class Attention(Messages):
        def __init__(self, ins: int, outs: int, heads: int = 2) -> None:
            super().__init__()
            self.heads, self.lin = heads, nn.Linear(ins, heads * outs, bias=False)
            self.att = nn.Parameter(T.randn(1, heads, 2 * outs))

        def forward(self, x: Any, edges: Any) -> Any:
            x = self.lin(x).view(x.size(0), self.heads, -1)
            return self.propagate(edges, x=x, index=edges[1], count=x.size(0)).flatten(1)

        def message(self, x_i: Any, x_j: Any, index: Any, count: int) -> Any:
            score = F.leaky_relu((T.cat([x_i, x_j], -1) * self.att).sum(-1), 0.2)
            score = (score - gathered(score.detach(), index, count, "amax")[index]).exp()
            return x_j * (score / (gathered(score, index, count, "sum")[index] + 1e-16)).unsqueeze(-1)

    class Edges(Messages):
        how = "amax"

        def __init__(self, ins: int, outs: int) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2 * ins, outs), nn.Tanh())

        def forward(self, x: Any, edges: Any) -> Any:
            return self.propagate(edges, x=x)

        def message(self, x_i: Any, x_j: Any) -> Any:
            return self.net(T.cat([x_i, x_j - x_i], -1))
    layers = lab.same(nn.ModuleList([Convolution(4, 8), Attention(8, 4), Edges(8, 6), nn.Linear(18, 2)]))
    optimizer = lab.optim.Adam(layers.parameters(), lr=0.01, weight_decay=5e-4)

    def graphs(sizes: list[int]) -> Any:
        edges, batch, first = [], [], 0
        for number, size in enumerate(sizes):
            edges.append(T.stack([lab.ints(size, 2 * size), lab.ints(size, 2 * size)]) + first)
            batch.append(T.full((size,), number, dtype=T.long))
            first += size
        joined = T.cat(edges, dim=-1)
        joined = T.cat([joined, joined.flip(0)], 1)
        key = T.unique(joined[0] * first + joined[1])
        joined = T.stack([T.div(key, first, rounding_mode="floor"), key % first])
        return lab.normal(first, 4), joined[:, joined[0] != joined[1]], T.cat(batch)

    @lab.step
    def step(x: Any, edges: Any, batch: Any, y: Any) -> Any:
        for layer in list(layers)[:3]:
            x = F.elu(layer(x, edges))
        logits = layers[3](T.cat([gathered(x, batch, 3, how) for how in ("sum", "mean", "amax")], 1))
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, (logits.argmax(dim=-1) == y).sum()
    return [step(*graphs([4, 6, 5]), lab.ints(2, 3)) for _ in range(5)], list(layers.parameters())
