"""Programs that differentiate in ways of their own: inside a backward, of unrolled copies, along planned futures."""

from __future__ import annotations

import copy
import math
from typing import Any

from .lab import Lab, program


@program(chaotic=True)
def reversible_blocks(lab: Lab) -> Any:
    """Activations are not kept: a block's backward computes its inputs from its outputs, and differentiates there."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Reversible(T.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, f: Any, g: Any, *weights: Any) -> Any:
            with T.no_grad():
                left, right = T.chunk(x, 2, dim=-1)
                left = left + f(right)
                right = right + g(left)
            ctx.blocks, ctx.weights = (f, g), len(weights)
            ctx.y = T.cat([left, right], dim=-1).detach()
            return ctx.y.clone()

        @staticmethod
        def backward(ctx: Any, slope: Any) -> Any:
            f, g = ctx.blocks
            (y1, y2), (d1, d2) = T.chunk(ctx.y, 2, dim=-1), T.chunk(slope, 2, dim=-1)
            with T.enable_grad():
                y1 = y1.detach().requires_grad_()
                through_g = g(y1)
            of_g = T.autograd.grad(through_g, [y1, *g.parameters()], d2)
            d1 = d1 + of_g[0]
            with T.enable_grad():
                x2 = (y2 - through_g).detach().requires_grad_()
                through_f = f(x2)
            of_f = T.autograd.grad(through_f, [x2, *f.parameters()], d1)
            assert ctx.weights == len(of_f) + len(of_g) - 2
            return (T.cat([d1, d2 + of_f[0]], dim=-1), None, None, *of_f[1:], *of_g[1:])

    def part() -> Any:
        return lab.same(nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)))
    blocks = nn.ModuleList([nn.ModuleList([part(), part()]) for _ in range(3)])
    head = lab.same(nn.Linear(8, 3))
    named = [*blocks.named_parameters(prefix="blocks"), *head.named_parameters(prefix="head")]
    optimizer = lab.optim.AdamW(named, lr=1e-2)

    @lab.step
    def step(x: Any, y: Any) -> Any:
        for f, g in blocks:
            x = Reversible.apply(x, f, g, *f.parameters(), *g.parameters())
        loss = F.cross_entropy(head(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    losses = [step(lab.normal(6, 8), lab.ints(3, 6)).item() for _ in range(10)]
    return losses, optimizer.param_groups[0]["param_names"][:2], blocks[0][0][1].weight


@program(chaotic=True)
def architecture_search(lab: Lab) -> Any:
    """Weights of mixed operations learn from a copy that is one step ahead, by differences of two gradients."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.head = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4, 3)
            self.choices = nn.ModuleList([nn.ModuleList([
                nn.Identity(), nn.MaxPool2d(3, stride=1, padding=1),
                nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False),
                nn.Sequential(nn.ReLU(), nn.Conv2d(4, 4, 3, padding=2, dilation=2, groups=4, bias=False),
                              nn.BatchNorm2d(4, affine=False))]) for _ in range(2)])
            self.alphas = T.full((2, 4), 1e-3, requires_grad=True)  # no parameter: another optimizer's

        def forward(self, x: Any) -> Any:
            x = self.stem(x)
            for weights, choices in zip(F.softmax(self.alphas, dim=-1), self.choices, strict=True):
                x = sum(w * choice(x) for w, choice in zip(weights, choices, strict=True))
            return self.head(x.mean((2, 3)))

        def loss(self, x: Any, y: Any) -> Any:
            return F.cross_entropy(self(x), y)
    model = lab.same(Mixed())
    optimizer = lab.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=3e-4)
    searcher = lab.optim.Adam([model.alphas], lr=3e-2, betas=(0.5, 0.999))

    def flat(tensors: Any) -> Any:
        return T.cat([x.reshape(-1) for x in tensors])

    def one_step_ahead(x: Any, y: Any) -> Any:
        weights = flat(model.parameters()).data
        try:
            momentum = flat([optimizer.state[p]["momentum_buffer"] for p in model.parameters()]).mul_(0.9)
        except KeyError:
            momentum = T.zeros_like(weights)
        slope = flat(T.autograd.grad(model.loss(x, y), list(model.parameters()))).data + 3e-4 * weights
        moved = weights.sub(momentum + slope, alpha=0.05)
        ahead, state, at = copy.deepcopy(model), model.state_dict(), 0
        for name, p in model.named_parameters():
            state[name] = moved[at:at + p.numel()].view(p.shape)
            at += p.numel()
        ahead.load_state_dict(state)
        return ahead

    def shift(vector: Any, by: Any) -> None:
        for p, v in zip(model.parameters(), vector, strict=True):
            p.data.add_(v * by)
    found = []
    for _ in range(4):
        (x, y), (held_x, held_y) = ((lab.normal(4, 1, 6, 6), lab.ints(3, 4)) for _ in range(2))
        ahead = one_step_ahead(x, y)
        held = ahead.loss(held_x, held_y)
        held.backward()
        vector = [p.grad.data for p in ahead.parameters()]
        reach = 1e-2 / flat(vector).norm()
        slopes = []
        for by in (reach, -2 * reach):
            shift(vector, by)
            slopes.append(T.autograd.grad(model.loss(x, y), [model.alphas])[0])
        shift(vector, reach)
        model.alphas.grad = ahead.alphas.grad.data.sub((slopes[0] - slopes[1]) / (2 * reach), alpha=0.05)
        searcher.step()
        optimizer.zero_grad()
        loss = model.loss(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5)
        optimizer.step()
        found += [held.item(), loss.item()]
    return found, model.alphas


@program(chaotic=True)
def planned_futures(lab: Lab) -> Any:
    """A model of an environment, planned with by a tree search, learns values as chances over a support; gradients
    are halved along its own states."""
    T, nn, F = lab.T, lab.nn, lab.F
    reach, actions = 4, 3

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen, self.moved = nn.Linear(5, 8), nn.Linear(8 + actions, 8)
            self.reward, self.value, self.policy = (nn.Linear(8, n) for n in (2 * reach + 1, 2 * reach + 1, actions))

        def scaled(self, x: Any) -> Any:
            least, most = x.min(1, keepdim=True)[0], x.max(1, keepdim=True)[0]
            width = most - least
            width[width < 1e-5] += 1e-5
            return (x - least) / width

        def begin(self, x: Any) -> Any:
            h = self.scaled(F.elu(self.seen(x)))
            return self.value(h), self.policy(h), h

        def go_on(self, h: Any, action: Any) -> Any:
            chosen = T.zeros(action.shape[0], actions).scatter_(1, action, 1.0)
            h = self.scaled(F.elu(self.moved(T.cat((h, chosen), dim=1))))
            return self.value(h), self.reward(h), self.policy(h), h

    def number(logits: Any) -> Any:
        support = T.arange(-reach, reach + 1).to(logits.dtype).expand(logits.shape)
        x = (support * T.softmax(logits, dim=1)).sum(1, keepdim=True)
        return T.sign(x) * (((T.sqrt(1 + 0.004 * (x.abs() + 1.001)) - 1) / 0.002) ** 2 - 1)

    def chances(x: Any) -> Any:
        x = (T.sign(x) * (T.sqrt(x.abs() + 1) - 1) + 0.001 * x).clamp(-reach, reach)
        low = x.floor()
        share = x - low
        found = T.zeros(*x.shape, 2 * reach + 1)
        found.scatter_(2, (low + reach).long().unsqueeze(-1), (1 - share).unsqueeze(-1))
        place = low + reach + 1
        share = share.masked_fill_(place > 2 * reach, 0.0)
        place = place.masked_fill_(place > 2 * reach, 0.0)
        return found.scatter_(2, place.long().unsqueeze(-1), share.unsqueeze(-1), reduce="add")
    model = lab.same(Model())
    optimizer = lab.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-4)

    class Node:
        def __init__(self, prior: float):
            self.prior, self.visits, self.total, self.reward = prior, 0, 0.0, 0.0
            self.children: list[Node] = []
            self.state: Any = None

        def expand(self, policy: Any, state: Any, reward: float = 0.0) -> None:
            self.state, self.reward = state, reward
            chances = T.softmax(T.tensor([policy[0][a] for a in range(actions)]), dim=0)
            self.children = [Node(p) for p in chances.tolist()]

    def searched(seen: list[float]) -> list[float]:
        root = Node(0.0)
        with T.no_grad():
            _, policy, state = model.begin(T.tensor(seen, dtype=T.get_default_dtype()).unsqueeze(0))
            root.expand(policy, state)
            for _ in range(6):
                node, path = root, [root]
                while node.children:
                    parent = node
                    scores = [(c.reward + 0.9 * c.total / c.visits if c.visits else 0.0)
                              + 1.25 * c.prior * math.sqrt(parent.visits) / (1 + c.visits) for c in parent.children]
                    action = max(range(actions), key=scores.__getitem__)
                    node = parent.children[action]
                    path.append(node)
                value, reward, policy, state = model.go_on(parent.state, T.tensor([[action]]).to(parent.state.device))
                back = number(value).item()
                node.expand(policy, state, number(reward).item())
                for node in reversed(path):
                    node.total, node.visits = node.total + back, node.visits + 1
                    back = node.reward + 0.9 * back
        return [child.visits / root.visits for child in root.children]

    @lab.step
    def step(seen: Any, taken: Any, values: Any, rewards: Any, policies: Any) -> Any:
        values, rewards = chances(values), chances(rewards)
        value, policy, h = model.begin(seen)
        first = values[:, 0] * F.log_softmax(value, dim=1)
        loss = -first.sum(1) - (policies[:, 0] * F.log_softmax(policy, dim=1)).sum(1)
        for i in range(taken.shape[1]):
            value, reward, policy, h = model.go_on(h, taken[:, i])
            h.register_hook(lambda slope: slope * 0.5)
            each = -sum((told * F.log_softmax(x, dim=1)).sum(1) for told, x in (
                (values[:, i + 1], value), (rewards[:, i], reward), (policies[:, i + 1], policy)))
            each.register_hook(lambda slope: slope / 2)
            loss = loss + each
        loss = loss.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    found: list[Any] = []
    for _ in range(6):
        found.append(searched(lab.draws.standard_normal(5).tolist()))
        policies = T.softmax(lab.normal(4, 3, actions), dim=-1)
        found.append(step(lab.normal(4, 5), lab.ints(actions, 4, 2, 1), lab.normal(4, 3) * 3, lab.normal(4, 2),
                          policies).item())
    return found
