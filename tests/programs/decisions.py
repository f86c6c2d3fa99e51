"""Programs that decide in Python by what they read: searches, buckets, fixed points, queues, forecasts."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np

from .lab import Lab, program


@program
def beam_search(lab: Lab) -> Any:
    """Sequences that are kept by scores; ended ones go into lists of Python, states follow their beams."""
    T, nn, F = lab.T, lab.nn, lab.F
    batch, beams, words, end, longest = 2, 3, 12, 1, 7
    embedding, cell, head = (lab.same(m) for m in (nn.Embedding(words, 8), nn.GRUCell(8, 8), nn.Linear(8, words)))
    done: list[list[tuple[float, list[int]]]] = [[] for _ in range(batch)]
    with T.no_grad():
        hidden = lab.normal(batch, 8).repeat_interleave(beams, dim=0)
        said = T.full((batch * beams, 1), 0, dtype=T.long)
        totals = T.zeros((batch, beams))
        totals[:, 1:] = -1e9
        totals = totals.view(-1)
        while said.size(1) < longest:
            hidden = cell(embedding(said[:, -1]), hidden)
            logp = F.log_softmax(head(hidden), -1)
            if said.size(1) < 3:
                logp[:, end] = -float("inf")
            scores = (logp + totals[:, None].expand_as(logp)).view(batch, beams * words)
            best, places = T.topk(scores, 2 * beams, dim=1, largest=True, sorted=True)
            kept: list[Any] = []
            for b in range(batch):
                own: list[Any] = []
                for place, score in zip(places[b], best[b], strict=True):
                    at = b * beams + T.div(place, words, rounding_mode="floor")
                    if (place % words).item() == end:
                        done[b].append((score.item() / said.size(1) ** 0.7, said[at].clone().tolist()))
                    elif len(own) < beams:
                        own.append((score, place % words, at))
                kept.extend(own)
            totals = totals.new([score for score, _, _ in kept])
            rows = said.new([at for _, _, at in kept])
            said = T.cat([said[rows, :], said.new([word for _, word, _ in kept]).unsqueeze(1)], dim=-1)
            hidden = hidden.index_select(0, rows)
        for number, (words_said, total) in enumerate(zip(said, totals, strict=True)):
            done[number // beams].append((total.item() / said.size(1) ** 0.7, words_said.tolist()))
    best_ones = [sorted(ended, reverse=True)[:beams] for ended in done]
    return [[(round(score, 4), found) for score, found in ended] for ended in best_ones], hidden


LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


def winner(board: np.ndarray) -> int | None:
    """1 or -1 where a line is full, 0 for a draw, None while the game goes on."""
    flat = board.reshape(-1)
    for line in LINES:
        if abs(total := int(flat[list(line)].sum())) == 3:
            return total // 3
    return None if (flat == 0).any() else 0


@program(chaotic=True)
def self_play(lab: Lab) -> Any:
    """Tree search with a network's priors, which is asked a board at a time; it learns from the visits."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6)
            self.policy, self.value = nn.Linear(54, 9), nn.Linear(54, 1)

        def forward(self, boards: Any) -> Any:
            h = F.relu(self.norm(self.conv(boards))).flatten(1)
            return F.log_softmax(self.policy(h), dim=1), T.tanh(self.value(h))

        @T.no_grad()
        def predict(self, board: np.ndarray) -> Any:
            self.eval()
            policy, value = self(T.from_numpy(planes(board)[None]).to(lab.device))
            return T.exp(policy).data.cpu().numpy()[0], value.data.cpu().numpy()[0][0]

    def planes(board: np.ndarray) -> np.ndarray:
        return np.stack([board == 1, board == -1]).astype(lab.dtype)
    net = lab.same(Net())
    quality: Any = defaultdict(float)
    visits: Any = defaultdict(int)
    priors: dict[bytes, np.ndarray] = {}

    def search(board: np.ndarray) -> float:
        """The value for who has moved last, of a board as its next player sees it."""
        if (won := winner(board)) is not None:
            return -won
        key = board.tobytes()
        if key not in priors:
            policy, value = net.predict(board)
            policy = policy * (board.reshape(-1) == 0)
            priors[key] = policy / policy.sum()
            return -value
        root = math.sqrt(sum(visits[key, a] for a in range(9)) + 1e-8)
        free = [a for a in range(9) if board.reshape(-1)[a] == 0]
        move = max(free, key=lambda a: quality[key, a] + priors[key][a] * root / (1 + visits[key, a]))
        after = board.copy()
        after.reshape(-1)[move] = 1
        value = search(-after)
        quality[key, move] = (visits[key, move] * quality[key, move] + value) / (visits[key, move] + 1)
        visits[key, move] += 1
        return -value
    optimizer, found = lab.optim.Adam(net.parameters(), lr=1e-2, weight_decay=1e-4), []
    for _ in range(2):
        for table in (quality, visits, priors):
            table.clear()
        board, seen = np.zeros((3, 3), np.int64), []
        while (won := winner(board)) is None:
            for _ in range(8):
                search(board)
            counts = np.array([visits[board.tobytes(), a] for a in range(9)], np.float64)
            seen.append((planes(board), counts / counts.sum()))
            board = board.copy()
            board.reshape(-1)[int(counts.argmax())] = 1
            board = -board
        net.train()
        for _ in range(2):
            boards, policies = zip(*[seen[i] for i in lab.draws.integers(len(seen), size=4)], strict=True)
            told = T.as_tensor(np.array(policies)).to(lab.device, T.get_default_dtype())
            log_policy, value = net(T.tensor(np.array(boards)))
            loss = -T.sum(told * log_policy) / told.size()[0] + T.sum((won - value.view(-1)) ** 2) / told.size()[0]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        found.append(won)
    return found


@program(chaotic=True)
def hashed_attention(lab: Lab) -> Any:
    """Attention within chunks of sorted hashes and the chunk before, put back by the inverse permutation."""
    T, nn, F = lab.T, lab.nn, lab.F
    rounds, chunks, length, width = 2, 4, 8, 8

    def rows(values: Any, index: Any) -> Any:
        return values.gather(1, index[:, :, None].expand(-1, -1, values.shape[-1]))

    def with_the_one_before(x: Any) -> Any:
        return T.cat([x, T.cat([x[:, -1:, ...], x[:, :-1, ...]], dim=1)], dim=2)

    class Hashed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(3))

        def forward(self, x: Any, rotations: Any) -> Any:
            key, value = self.key(x), self.value(x)
            batch = len(key)
            turned = T.einsum("btf,fhi->bhti", key, rotations)
            buckets = T.argmax(T.cat([turned, -turned], dim=-1), dim=-1) + T.arange(rounds).reshape(1, -1, 1) * 4
            places = T.arange(rounds * length).unsqueeze(0).expand(batch, -1)
            order = (length * buckets.reshape(batch, -1) + places % length).detach().sort(dim=-1)[1]
            back, at = order.sort(dim=-1)[1], order % length
            k, v = (T.reshape(rows(y, at), (batch, chunks, -1, width)) for y in (key, value))
            at = T.reshape(at, (batch, chunks, -1))
            seen, seen_at = with_the_one_before(F.normalize(k, p=2, dim=-1).type_as(k)), with_the_one_before(at)
            dots = T.einsum("bhie,bhje->bhij", k, seen) * width ** -0.5
            dots.masked_fill_(at[:, :, :, None] == seen_at[:, :, None, :], -5e4)
            dots.masked_fill_(at[:, :, :, None] < seen_at[:, :, None, :], -1e9)
            total = T.logsumexp(dots, dim=-1, keepdim=True)
            mixed = T.einsum("buij,buje->buie", T.exp(dots - total), with_the_one_before(v))
            mixed = rows(T.reshape(mixed, (batch, -1, width)), back).reshape(batch, rounds, length, width)
            total = T.reshape(total, (batch, -1)).gather(1, back).reshape(batch, rounds, length, 1)
            return self.out(T.sum(mixed * T.exp(total - T.logsumexp(total, dim=1, keepdim=True)), dim=1))
    net = lab.same(Hashed())
    optimizer = lab.optim.Adam(net.parameters(), lr=1e-2)

    @lab.step
    def step(x: Any, rotations: Any) -> Any:
        loss = (net(x, rotations) - x.cumsum(1).tanh()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return [step(lab.normal(2, length, width), lab.normal(width, rounds, 2)) for _ in range(8)]


@program(chaotic=True)
def implicit_layer(lab: Lab) -> Any:
    """A fixed point by Anderson's acceleration without gradients; a hook solves for the gradient, too."""
    T, nn = lab.T, lab.nn

    def solved(f: Any, x: Any, kept: int = 3, most: int = 12) -> tuple[Any, int]:
        """Where f(z) = z from x on, and how many turns that took."""
        batch, size = x.shape
        z, y = x.new_zeros(batch, kept, size), x.new_zeros(batch, kept, size)  # torch's hooks know no default
        z[:, 0], y[:, 0] = x, f(x)
        z[:, 1], y[:, 1] = y[:, 0], f(y[:, 0])
        system, right = x.new_zeros(batch, kept + 1, kept + 1), x.new_zeros(batch, kept + 1, 1)
        system[:, 0, 1:] = system[:, 1:, 0] = right[:, 0] = 1
        for turn in range(2, most):
            n, at = min(turn, kept), turn % kept
            g = y[:, :n] - z[:, :n]
            system[:, 1:n + 1, 1:n + 1] = T.bmm(g, g.transpose(1, 2)) + 1e-6 * T.eye(n, device=x.device)[None]
            share = T.linalg.solve(system[:, :n + 1, :n + 1], right[:, :n + 1])[:, 1:, 0]
            z[:, at] = (share[:, None] @ y[:, :n])[:, 0]
            y[:, at] = f(z[:, at])
            if (y[:, at] - z[:, at]).norm().item() < 1e-4 * (1e-5 + y[:, at].norm().item()):
                break
        return z[:, at], turn

    class Equilibrium(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.u, self.turns = nn.Linear(6, 6), nn.Linear(4, 6), [0, 0]

        def cell(self, z: Any, x: Any) -> Any:
            return T.tanh(0.3 * self.w(z) + self.u(x))

        def forward(self, x: Any) -> Any:
            with T.no_grad():
                z, self.turns[0] = solved(lambda z: self.cell(z, x), T.zeros(x.shape[0], 6))
            z = self.cell(z, x)
            start = z.clone().detach().requires_grad_()
            again = self.cell(start, x)

            def hook(grad: Any) -> Any:
                found, self.turns[1] = solved(
                    lambda y: T.autograd.grad(again, start, y, retain_graph=True)[0] + grad, grad)
                return found
            z.register_hook(hook)
            return z
    model = lab.same(nn.Sequential(Equilibrium(), nn.Linear(6, 3)))
    optimizer, found = lab.optim.Adam(model.parameters(), lr=1e-2), []
    for _ in range(6):
        loss = nn.CrossEntropyLoss()(model(lab.normal(5, 4)), lab.ints(3, 5))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append((loss.item(), *model[0].turns))
    return found


@program(chaotic=True)
def causal_convolutions(lab: Lab) -> Any:
    """Dilated convolutions over one-hot samples; generation keeps a ring of states for each layer."""
    T, nn, F = lab.T, lab.nn, lab.F
    levels, width = 16, 8

    class Ring:
        """The last states of a layer."""

        def __init__(self, size: int):
            self.states, self.at = T.zeros(width, size), 0

        def pair(self, state: Any) -> Any:
            """The state `size - 1` samples ago beside this one."""
            self.states[:, self.at] = state
            self.at = (self.at + 1) % self.states.size(1)
            return T.stack([self.states[:, self.at], state], dim=1)

    class Layer(nn.Module):
        def __init__(self, dilation: int):
            super().__init__()
            self.dilation = dilation
            self.filter, self.gate = (nn.Conv1d(width, width, 2, dilation=dilation) for _ in range(2))
            self.residual, self.skip = nn.Conv1d(width, width, 1), nn.Conv1d(width, width, 1)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.start, self.layers = nn.Conv1d(levels, width, 1), nn.ModuleList(Layer(d) for d in (1, 2, 4, 1, 2))
            self.end = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, levels, 1))

        def forward(self, x: Any) -> Any:
            x, skipped = self.start(x), 0
            for layer in self.layers:
                h = T.tanh(layer.filter(x)) * T.sigmoid(layer.gate(x))
                skip = layer.skip(h)
                if not isinstance(skipped, int):
                    skipped = skipped[:, :, -skip.size(2):]
                skipped, x = skip + skipped, layer.residual(h) + x[:, :, layer.dilation:]
            return self.end(skipped)

        @T.no_grad()
        def generate(self, count: int) -> list[int]:
            rings, said, given = [Ring(layer.dilation + 1) for layer in self.layers], [], T.zeros(1, levels, 1)
            given[0, levels // 2, 0] = 1
            for _ in range(count):
                x, skipped = self.start(given), 0
                for ring, layer in zip(rings, self.layers, strict=True):
                    pair = ring.pair(x[0, :, 0])[None]
                    h = T.tanh(F.conv1d(pair, layer.filter.weight, layer.filter.bias)) * T.sigmoid(
                        F.conv1d(pair, layer.gate.weight, layer.gate.bias))
                    skipped, x = skipped + layer.skip(h), layer.residual(h) + x
                said.append(int(T.max(self.end(skipped).squeeze(), 0)[1].cpu().numpy()))
                given.zero_().scatter_(1, T.tensor([[[said[-1]]]]), 1.0)
            return said
    net = lab.same(Net())
    optimizer, losses = lab.optim.Adam(net.parameters(), lr=3e-3, weight_decay=0.01), []
    for _ in range(6):
        samples = lab.ints(levels, 2, 24)
        one_hot = T.zeros(2, levels, 24).scatter_(1, samples.unsqueeze(1), 1.0)
        logits = net(one_hot[:, :, :-1])[:, :, -8:].transpose(1, 2).contiguous().view(-1, levels)
        loss = F.cross_entropy(logits, samples[:, -8:].contiguous().view(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.data.item())
    return losses, net.generate(12)


@program(chaotic=True)
def probabilistic_forecast(lab: Lab) -> Any:
    """An LSTM step by step with Gaussian losses of what was observed; gates' biases set in the layer; sampled paths."""
    T, nn = lab.T, lab.nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.series, self.lstm = nn.Embedding(5, 3), nn.LSTM(5, 8, num_layers=2)
            for names in self.lstm._all_weights:
                for name in filter(lambda n: "bias" in n, names):
                    bias = getattr(self.lstm, name)
                    bias.data[bias.size(0) // 4:bias.size(0) // 2].fill_(1.0)
            self.mean, self.deviation = nn.Linear(16, 1), nn.Sequential(nn.Linear(16, 1), nn.Softplus())

        def forward(self, x: Any, index: Any, state: Any) -> Any:
            _, (hidden, cell) = self.lstm(T.cat((x, self.series(index)), dim=2), state)
            both = hidden.permute(1, 2, 0).contiguous().view(hidden.shape[1], -1)
            return T.squeeze(self.mean(both)), T.squeeze(self.deviation(both)), (hidden, cell)
    model = Net()
    forget = model.lstm.bias_ih_l0.data[8:16].clone()
    lab.same(model)
    optimizer, losses, steps = lab.optim.Adam(model.parameters(), lr=1e-2), [], 7

    def start() -> tuple[Any, Any]:
        return T.zeros(2, 4, 8), T.zeros(2, 4, 8)
    for _ in range(6):
        optimizer.zero_grad()
        data, index, labels = lab.normal(steps, 4, 2), lab.ints(5, 1, 4), lab.normal(steps, 4)
        labels[labels.abs() < 0.2] = 0
        loss, state = T.zeros(1), start()
        for t in range(steps):
            missing = labels[t] == 0
            if t > 0 and T.sum(missing) > 0:
                data[t, missing, 0] = mean[missing].detach()  # noqa: F821  # of the step before
            mean, deviation, state = model(data[t].unsqueeze_(0).clone(), index, state)
            seen = T.distributions.normal.Normal(mean[~missing], deviation[~missing])
            loss += -T.mean(seen.log_prob(labels[t][~missing]))
        loss.backward()
        optimizer.step()
        losses.append(loss.item() / steps)
    model.eval()
    with T.no_grad():
        samples, x = T.zeros(3, 4, 5), lab.normal(1, 4, 2)
        for path in range(3):
            noise, state = lab.normal(5, 4), start()
            for t in range(5):
                mean, deviation, state = model(x, index, state)
                x[0, :, 0] = samples[path, :, t] = mean + deviation * noise[t]
        return losses, forget, samples.median(dim=0)[0], samples.std(dim=0), T.quantile(samples, 0.9, dim=0)


@program(chaotic=True)
def recommendations(lab: Lab) -> Any:
    """A sparse matrix of users and items spreads embeddings; pairs are ranked against drawn ones; the best are told."""
    T, nn, F = lab.T, lab.nn, lab.F
    users, items = 6, 8
    pairs = np.unique(lab.draws.integers(0, [users, items], (20, 2)), axis=0)
    ends = np.concatenate([pairs, pairs[:, ::-1]]) + np.repeat([[0, users], [users, 0]], len(pairs), axis=0)
    shares = 1 / np.sqrt(np.maximum(np.bincount(ends[:, 0], minlength=users + items), 1))
    graph = T.sparse_coo_tensor(T.LongTensor(ends.T.copy()).to(lab.device),
                                T.tensor((shares[ends[:, 0]] * shares[ends[:, 1]]).astype(lab.dtype)),
                                T.Size([users + items, users + items])).coalesce()
    user, item = (lab.same(nn.Embedding(num_embeddings=n, embedding_dim=4)) for n in (users, items))

    def spread() -> Any:
        layers = [T.cat([user.weight, item.weight])]
        for _ in range(3):
            layers.append(T.sparse.mm(graph, layers[-1]))
        return T.split(T.mean(T.stack(layers, dim=1), dim=1), [users, items])
    optimizer, losses = lab.optim.Adam([*user.parameters(), *item.parameters()], lr=0.01), []
    for _ in range(8):
        chosen = lab.draws.integers(len(pairs), size=5)
        u, liked, other = (T.tensor(x) for x in (pairs[chosen, 0], pairs[chosen, 1], lab.draws.integers(items, size=5)))
        of_users, of_items = spread()
        gap = (of_users[u.long()] * (of_items[other] - of_items[liked])).sum(1)
        norms = [e.norm(2).pow(2) for e in (user(u), item(liked), item(other))]
        loss = T.mean(F.softplus(gap)) + 1e-2 * (1 / 2) * sum(norms) / float(len(u))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.cpu().item())
    rating = T.sigmoid(T.matmul(spread()[0], spread()[1].t()))
    rating[pairs[:, 0], pairs[:, 1]] = -(1 << 10)
    return losses, T.topk(rating, k=3)[1], graph.to_dense().sum()
