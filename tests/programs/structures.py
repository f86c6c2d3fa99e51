"""Programs over sets, memories and filters: point clouds, recurrence over segments, queues of keys, state spaces."""

from __future__ import annotations

import math
from typing import Any

from .lab import Lab, program


def neighbours(T: Any, x: Any, k: int) -> Any:
    """Of each point (columns of x) the differences to its k nearest ones, beside the point itself."""
    batch, channels, points = x.shape
    squares = (x ** 2).sum(dim=1, keepdim=True)
    distance = squares.transpose(2, 1) - 2 * T.matmul(x.transpose(2, 1), x) + squares
    index = distance.topk(k=k, dim=-1, largest=False)[1]
    index = (index + T.arange(0, batch).view(-1, 1, 1) * points).view(-1)
    rows = x.transpose(2, 1).contiguous()
    near = rows.view(batch * points, -1)[index, :].view(batch, points, k, channels)
    here = rows.view(batch, points, 1, channels)
    return T.cat((near - here.repeat(1, 1, k, 1), here.expand(-1, -1, k, -1)), dim=3).permute(0, 3, 1, 2).contiguous()


def far_apart(T: Any, points: Any, count: int) -> Any:
    """Farthest point sampling: each next one is the farthest from those that were taken."""
    batch, number, _ = points.shape
    taken, nearest = T.zeros(batch, count, dtype=T.long), T.full((batch, number), 1e10)
    at, rows = T.zeros(batch, dtype=T.long), T.arange(batch)
    for i in range(count):
        taken[:, i] = at
        distance = ((points - points[rows, at, :].view(batch, 1, 3)) ** 2).sum(-1)
        closer = distance < nearest
        nearest[closer] = distance[closer]
        at = nearest.max(-1)[1]
    return taken


@program(chaotic=True)
def point_clouds(lab: Lab) -> Any:
    """A learned alignment, edge convolutions over nearest neighbours, a ball of each sampled point."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Alignment(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.points = nn.Sequential(nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), nn.ReLU(), nn.Conv1d(8, 12, 1))
            self.matrix = nn.Linear(12, 9)

        def forward(self, x: Any) -> Any:
            found = self.matrix(F.relu(self.points(x).max(2)[0]))
            return found.view(-1, 3, 3) + T.eye(3)[None]

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.align = Alignment()
            self.edges = nn.Sequential(nn.Conv2d(6, 8, 1, bias=False), nn.BatchNorm2d(8), nn.LeakyReLU(0.2))
            self.head = nn.Linear(16, 4)

        def forward(self, x: Any) -> Any:
            matrix = self.align(x)
            x = T.bmm(x.transpose(2, 1), matrix).transpose(2, 1)
            x = self.edges(neighbours(T, x, 4)).max(dim=-1, keepdim=False)[0]
            pooled = F.adaptive_max_pool1d(x, 1).squeeze(-1), F.adaptive_avg_pool1d(x, 1).view(len(x), -1)
            return F.log_softmax(self.head(T.cat(pooled, 1)), dim=1), matrix
    model = lab.same(Classifier())
    optimizer = lab.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)

    @lab.step
    def step(x: Any, y: Any) -> Any:
        scores, matrix = model(x)
        skew = T.bmm(matrix, matrix.transpose(2, 1)) - T.eye(3)[None]
        loss = F.nll_loss(scores, y) + 0.001 * T.norm(skew, dim=(1, 2)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    found = []
    for _ in range(8):
        x = lab.normal(4, 3, 20)
        rows = x.transpose(2, 1)
        centres = far_apart(T, rows, 5)
        middle = T.gather(rows, 1, centres[..., None].expand(-1, -1, 3))
        inside = T.arange(20).view(1, 1, 20).repeat([4, 5, 1])
        inside[T.cdist(middle, rows) > 0.8] = 20
        inside = inside.sort(dim=-1)[0][:, :, :3]
        first = inside[:, :, 0].view(4, 5, 1).repeat([1, 1, 3])
        inside[inside == 20] = first[inside == 20]
        found.append([step(x, lab.ints(4, 4)).item(), centres, inside])
    return found


@program(chaotic=True)
def segments_with_memory(lab: Lab) -> Any:
    """Relative attention over a segment and the states of the one before; tied embeddings, one cycle of the rate."""
    T, nn, F = lab.T, lab.nn, lab.F
    width, heads, words, kept = 8, 2, 11, 4

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.r = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            self.out, self.norm = nn.Linear(width, width, bias=False), nn.LayerNorm(width)
            self.u, self.v = (nn.Parameter(T.Tensor(heads, width // heads).to(lab.device)) for _ in range(2))

        def forward(self, x: Any, r: Any, mask: Any, memory: Any) -> Any:
            both = T.cat([memory, x], 0)
            q, k, v = (y.view(*y.shape[:2], heads, -1) for y in T.chunk(self.qkv(self.norm(both)), 3, dim=-1))
            q, r = q[-len(x):], self.r(r).view(len(r), heads, -1)
            content = T.einsum("ibnd,jbnd->ijbn", q + self.u, k)
            place = T.einsum("ibnd,jnd->ijbn", q + self.v, r)
            place = T.cat([place.new_zeros(place.size(0), 1, *place.shape[2:]), place], dim=1)
            place = place.view(place.size(1), place.size(0), *place.shape[2:])[1:].view_as(content)
            scores = (content + place).mul_((width // heads) ** -0.5)
            scores = scores.masked_fill(mask[:, :, None, None], -float("inf"))
            mixed = T.einsum("ijbn,jbnd->ibnd", F.softmax(scores, dim=1), v)
            return x + self.out(mixed.contiguous().view(*x.shape))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.layers = nn.Embedding(words, width), nn.ModuleList([Attention() for _ in range(2)])
            self.register_buffer("rates", 1 / 100 ** (T.arange(0.0, width, 2.0) / width))
            self.out = nn.Linear(width, words)
            self.out.weight = self.words.weight

        def forward(self, x: Any, y: Any, memories: Any) -> Any:
            h, length = self.words(x), len(x) + len(memories[0])
            mask = T.triu(h.new_ones(len(x), length), diagonal=1 + len(memories[0])).bool()
            angles = T.outer(T.arange(length - 1, -1, -1.0), self.rates)
            places, states = T.cat([angles.sin(), angles.cos()], dim=-1), []
            for layer, memory in zip(self.layers, memories, strict=True):
                states.append(T.cat([memory, h], 0)[-kept:].detach())
                h = layer(h, places, mask, memory)
            return F.cross_entropy(self.out(h).view(-1, words), y.reshape(-1), label_smoothing=0.1), states
    model = lab.same(Model())
    optimizer = lab.optim.Adam(model.parameters(), lr=1e-2)
    schedule = lab.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.02, total_steps=10, anneal_strategy="linear")

    @lab.step
    def step(tokens: Any, *memories: Any) -> Any:
        loss, states = model(tokens[:-1], tokens[1:], memories)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        return loss, states
    memories = [T.zeros(kept, 3, width) for _ in range(2)]
    losses = []
    for _ in range(8):
        loss, memories = step(lab.ints(words, 6, 3), *memories)
        schedule.step()
        losses.append(math.exp(loss.item()))
    return losses, memories


@program(chaotic=True)
def images_over_time(lab: Lab) -> Any:
    """Convolutional recurrence over frames, a structural similarity in the loss."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Cell(nn.Module):
        def __init__(self, ins: int, hidden: int) -> None:
            super().__init__()
            self.hidden, self.gates = hidden, nn.Conv2d(ins + hidden, 4 * hidden, 3, padding=1)

        def forward(self, x: Any, state: Any) -> Any:
            h, c = state
            i, f, o, g = T.split(self.gates(T.cat([x, h], dim=1)), self.hidden, dim=1)
            c = T.sigmoid(f) * c + T.sigmoid(i) * T.tanh(g)
            return T.sigmoid(o) * T.tanh(c), c
    cells = lab.same(nn.ModuleList([Cell(1, 4), Cell(4, 4)]))
    head = lab.same(nn.Conv3d(4, 1, kernel_size=(1, 3, 3), padding=(0, 1, 1)))
    optimizer = lab.optim.Adamax([*cells.parameters(), *head.parameters()], lr=1e-2)
    line = T.exp(-(T.arange(5.0) - 2) ** 2 / 2)
    window = T.outer(line, line)[None, None] / line.sum() ** 2

    def blurred(x: Any) -> Any:
        return F.conv2d(x, window, padding=2)

    def similarity(a: Any, b: Any) -> Any:
        ma, mb = blurred(a), blurred(b)
        va, vb, vab = blurred(a * a) - ma.pow(2), blurred(b * b) - mb.pow(2), blurred(a * b) - ma * mb
        return (((2 * ma * mb + 1e-4) * (2 * vab + 9e-4)) / ((ma ** 2 + mb ** 2 + 1e-4) * (va + vb + 9e-4))).mean()

    @lab.step
    def step(video: Any) -> Any:
        x, (batch, times) = video[:, :-1], (video.size(0), video.size(1) - 1)
        for cell in cells:
            state, found = (T.zeros(batch, 4, 6, 6), T.zeros(batch, 4, 6, 6)), []
            for t in range(times):
                state = cell(x[:, t], state)
                found.append(state[0])
            x = T.stack(found, dim=1)
        guess = T.sigmoid(head(x.transpose(1, 2))).transpose(1, 2)
        like = similarity(guess.flatten(0, 1), video[:, 1:].reshape(-1, 1, 6, 6))
        loss = F.binary_cross_entropy(guess, video[:, 1:]) + 0.1 * (1 - like)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, like
    return [step(lab.uniform(2, 4, 1, 6, 6)) for _ in range(8)]


@program(chaotic=True)
def momentum_contrast(lab: Lab) -> Any:
    """A queue of keys, an encoder that follows, decorrelated features, steps scaled by a layer's norms."""
    T, nn, F = lab.T, lab.nn, lab.F

    class ScaledByNorms(lab.optim.Optimizer):
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr, "momentum": 0.9, "trust": 1e-2, "weight_decay": 1e-4})

        @T.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    d = p.grad
                    if p.ndim > 1:
                        d = d.add(p, alpha=group["weight_decay"])
                        size, length = T.norm(p), T.norm(d)
                        one = T.ones_like(size)
                        d = d.mul(T.where((size > 0) & (length > 0), group["trust"] * size / length, one))
                    state = self.state[p]
                    if "mean" not in state:
                        state["mean"] = T.zeros_like(p)
                    state["mean"].mul_(group["momentum"]).add_(d)
                    p.add_(state["mean"], alpha=-group["lr"])

    def encoder() -> Any:
        return nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU(True), nn.AdaptiveAvgPool2d((2, 2)),
                             nn.Flatten(), nn.Linear(16, 8))
    query, key, norm = lab.same(encoder()), encoder().requires_grad_(False), nn.BatchNorm1d(8, affine=False)
    key.load_state_dict(query.state_dict())
    queue, at = F.normalize(lab.normal(8, 12), dim=0), T.zeros(1, dtype=T.long)
    optimizer = ScaledByNorms(query.parameters(), lr=0.5)

    @lab.step
    def step(x: Any) -> Any:
        a, b = x.flip(-1), T.roll(x, shifts=(1, 2), dims=(2, 3))
        q, k = query(a), key(b)
        near = T.einsum("nc,nc->n", F.normalize(q, dim=1), F.normalize(k, dim=1)).unsqueeze(-1)
        far = T.einsum("nc,ck->nk", F.normalize(q, dim=1), queue.clone())
        loss = F.cross_entropy(T.cat([near, far], dim=1) / 0.2, T.zeros(len(x), dtype=T.long))
        c = (norm(q).T @ norm(query(b))) / len(x)
        off = c.flatten()[:-1].view(7, 9)[:, 1:].flatten().pow(2).sum()
        loss = loss + 0.1 * (T.diagonal(c).add(-1).pow(2).sum() + 0.005 * off)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with T.no_grad():
            for old, new in zip(key.parameters(), query.parameters(), strict=True):
                old.mul_(0.9).add_(new, alpha=0.1)
        return loss, F.normalize(k, dim=1)
    losses = []
    for _ in range(8):
        loss, keys = step(lab.normal(6, 3, 8, 8))
        begin = int(at)
        queue[:, begin:begin + 6] = keys.T
        at[0] = (begin + 6) % 12
        losses.append(loss.item())
    return losses, queue, key[4].weight


@program(chaotic=True)
def distributional_q(lab: Lab) -> Any:
    """A categorical return, noisy layers, projected targets added at places that are data, weighted samples."""
    T, nn, F = lab.T, lab.nn, lab.F
    atoms, actions, low, high = 7, 3, -2.0, 2.0
    width = (high - low) / (atoms - 1)

    class Noisy(nn.Module):
        def __init__(self, ins: int, outs: int) -> None:
            super().__init__()
            self.mean, self.spread = nn.Parameter(T.empty(outs, ins)), nn.Parameter(T.empty(outs, ins))
            self.register_buffer("noise", T.empty(outs, ins))

        def renew(self) -> None:
            a, b = (x.sign().mul_(x.abs().sqrt_()) for x in (lab.normal(n) for n in self.noise.shape))
            self.noise.copy_(T.outer(a, b))

        def forward(self, x: Any) -> Any:
            return F.linear(x, self.mean + 0.1 * self.spread * self.noise if self.training else self.mean)

    class Returns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features, self.value, self.gain = nn.Linear(4, 12), Noisy(12, atoms), Noisy(12, actions * atoms)
            self.register_buffer("support", T.linspace(low, high, atoms))

        def forward(self, x: Any) -> Any:
            h = F.relu(self.features(x))
            gain = self.gain(h).view(-1, actions, atoms)
            logits = self.value(h).view(-1, 1, atoms) + gain - gain.mean(dim=1, keepdim=True)
            return F.softmax(logits, dim=-1).clamp(min=1e-3)

        def renew(self) -> None:
            for module in self.modules():
                if isinstance(module, Noisy):
                    module.renew()
    online, target = lab.same(Returns()), Returns()
    online.renew()
    target.load_state_dict(online.state_dict())
    target.eval()
    optimizer = lab.optim.Adam(online.parameters(), lr=1e-2, eps=1.5e-4)

    def projected(reward: Any, over: Any, following: Any) -> Any:
        best = (online(following) * online.support).sum(2).argmax(1)
        chance = target(following)[range(len(best)), best]
        at = ((reward + (1 - over) * 0.9 * target.support).clamp(low, high) - low) / width
        below, above = at.floor().long(), at.ceil().long()
        below[(above > 0) * (below == above)] -= 1
        above[(below < (atoms - 1)) * (below == above)] += 1
        first = T.arange(0, len(best) * atoms, atoms).unsqueeze(1)
        found = T.zeros_like(chance)
        found.view(-1).index_add_(0, (below + first).view(-1), (chance * (above - at)).view(-1))
        found.view(-1).index_add_(0, (above + first).view(-1), (chance * (at - below)).view(-1))
        return found
    losses, priorities = [], T.ones(16)
    states, following = lab.normal(16, 4), lab.normal(16, 4)
    taken, reward, over = lab.ints(actions, 16), lab.normal(16, 1), (lab.uniform(16, 1) < 0.2).to(states.dtype)

    @lab.step
    def step(i: Any, weights: Any) -> Any:
        with T.no_grad():
            wanted = projected(reward[i], over[i], following[i])
        each = -(wanted * T.log(online(states[i])[range(len(i)), taken[i]])).sum(1)
        loss = (each * weights).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(online.parameters(), 10.0)
        optimizer.step()
        return loss, each.detach()
    for turn in range(8):
        i = (priorities * lab.uniform(16)).topk(6)[1]
        weights = (priorities[i] / priorities.sum() * 16) ** -0.4
        loss, each = step(i, weights / weights.max())
        priorities[i] = (each + 1e-6) ** 0.6
        online.renew()
        if turn % 3 == 2:
            target.load_state_dict(online.state_dict())
        losses.append(loss.item())
    return losses, priorities


@program(chaotic=True)
def state_space(lab: Lab) -> Any:
    """A Kalman filter's likelihood by Cholesky factors and L-BFGS, a controller through its own rollout, a plan by
    cross-entropy, tabular learning."""
    T, nn = lab.T, lab.nn
    transition, noise, error = (nn.Parameter(x) for x in (T.eye(2) * 0.9, T.zeros(2), T.zeros(1)))
    seen, shown = lab.normal(8, 1).cumsum(0), T.tensor([[1.0, 0.0]])

    def likelihood() -> Any:
        mean, spread, total = T.zeros(2), T.eye(2), T.zeros(())
        for y in seen:
            mean, spread = transition @ mean, transition @ spread @ transition.T + T.diag_embed(noise.exp())
            factor = T.linalg.cholesky(shown @ spread @ shown.T + error.exp()[:, None])
            gain, rest = T.cholesky_solve(shown @ spread, factor).T, y - shown @ mean
            mean, spread = mean + gain @ rest, (T.eye(2) - gain @ shown) @ spread
            whitened = T.linalg.solve_triangular(factor, rest[:, None], upper=False)
            total = total - 0.5 * whitened.square().sum() - factor.diagonal().log().sum()
        return total
    filtering = lab.optim.LBFGS([transition, noise, error], lr=0.1, max_iter=3, line_search_fn="strong_wolfe")

    def closure() -> Any:
        filtering.zero_grad()
        loss = -likelihood()
        loss.backward()
        return loss
    found: list[Any] = [filtering.step(closure).item() for _ in range(3)]
    policy = lab.same(nn.Sequential(nn.Linear(2, 8), nn.Softplus(), nn.Linear(8, 1), nn.Hardtanh()))
    optimizer = lab.optim.ASGD(policy.parameters(), lr=0.05)

    @lab.step
    def step(x: Any) -> Any:
        cost = 0.0
        for _ in range(6):
            u = policy(x)
            x = x + 0.1 * T.stack([x[:, 1], T.sin(x[:, 0]) + u[:, 0]], -1)
            cost = cost + (x ** 2).sum(-1).mean() + 0.01 * (u ** 2).mean()
        optimizer.zero_grad()
        cost.backward()
        optimizer.step()
        return cost
    found += [step(lab.normal(6, 2)).item() for _ in range(6)]
    middle, spread = T.zeros(4), T.ones(4)
    for _ in range(3):
        plans = middle + spread * lab.normal(16, 4)
        best = plans[(plans - T.arange(4.0)).square().sum(1).argsort()[:4]]
        middle, spread = best.mean(0), best.std(0) + 1e-3
    values = T.zeros(4, 2)
    for episode in range(4):
        s = T.tensor(episode)
        for _ in range(5):
            a = values[s].argmax()
            reward, after = 1.0 if int(s) == 3 else -0.1, (s + a * 2 - 1).clamp(0, 3)
            values[s, a] += 0.5 * (reward + 0.9 * values[after].max() - values[s, a])
            s = after
    return found, middle, values
