"""Numbers that are fitted and looked at: trends, neighbours in the plane, transport, influences, graphs, regions."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

import numpy as np

from .lab import Lab, program


@program(chaotic=True)
def trends(lab: Lab) -> Any:
    """Prophet: slopes that change at knots under a Laplace prior, seasons as sines, fitted by LBFGS with a line search
    whose closure keeps what it found."""
    T = lab.T
    distributions, count = T.distributions, 60
    time = T.linspace(0, 1, count)
    y = 0.5 * time + 0.3 * T.sin(2 * np.pi * time * 4) + 0.05 * lab.normal(count)
    knots = T.linspace(0, 0.8, 7)[1:]
    behind = (time[:, None] > knots[None, :]).to(time.dtype)
    waves = T.cat([T.stack([T.sin(8 * math.pi * (i + 1) * time), T.cos(8 * math.pi * (i + 1) * time)], 1)
                   for i in range(2)], 1)
    slope, level, changes, seasons, spread = (T.zeros(shape, requires_grad=True) for shape in ((), (), (6,), (4,), ()))
    parameters = [slope, level, changes, seasons, spread]
    optimizer = lab.optim.LBFGS(parameters, lr=0.8, max_iter=5, history_size=5, line_search_fn="strong_wolfe",
                                tolerance_grad=1e-9)
    seen: list[float] = []

    def closure() -> Any:
        optimizer.zero_grad()
        trend = (slope + behind @ changes) * time + (level + behind @ (-knots * changes))
        fits = distributions.Normal(trend + waves @ seasons, spread.exp()).log_prob(y).sum()
        prior = distributions.Laplace(0.0, 0.05).log_prob(changes).sum()
        prior = prior + distributions.Normal(0, 10).log_prob(seasons).sum()
        loss = -fits - prior
        loss.backward()
        seen.append(float(loss))
        return loss
    for _ in range(3):
        optimizer.step(closure)
    return seen, [p.detach() for p in parameters], optimizer.state[optimizer._params[0]]["n_iter"]


@program(chaotic=True)
def neighbours_in_the_plane(lab: Lab) -> Any:
    """t-SNE as in van der Maaten's file: widths by bisection for each row, which ask tensors for truth, then a descent
    with gains that are written to where they are small."""
    T = lab.T
    count = 12
    x = T.cat([lab.normal(6, 6) + 3, lab.normal(6, 6) - 3])
    x = x - T.mean(x, 0)
    _, axes = T.linalg.eigh(T.mm(x.t(), x))
    x = T.mm(x, axes.abs()[:, :4])
    squares = T.sum(x * x, 1)
    far = T.add(T.add(-2 * T.mm(x, x.t()), squares).t(), squares)
    wanted, sharp, target = T.zeros(count, count), T.ones(count, 1), T.log(T.tensor([4.0]))

    def entropy(far: Any, sharp: Any) -> tuple[Any, Any]:
        weights = T.exp(-far.clone() * sharp)
        total = T.sum(weights)
        return T.log(total) + sharp * T.sum(far * weights) / total, weights / total
    everyone = list(range(count))
    for i in everyone:
        least, most = None, None
        others = everyone[:i] + everyone[i + 1:]
        found, weights = entropy(far[i, others], sharp[i])
        wrong, tries = found - target, 0
        while T.abs(wrong) > 1e-3 and tries < 8:
            if wrong > 0:
                least = sharp[i].clone()
                sharp[i] = sharp[i] * 2.0 if most is None else (sharp[i] + most) / 2.0
            else:
                most = sharp[i].clone()
                sharp[i] = sharp[i] / 2.0 if least is None else (sharp[i] + least) / 2.0
            found, weights = entropy(far[i, others], sharp[i])
            wrong, tries = found - target, tries + 1
        wanted[i, others] = weights
    wanted = wanted + wanted.t()
    wanted = T.max(wanted / T.sum(wanted) * 4.0, T.tensor([1e-21]))
    y, gradient, moved, gains = lab.normal(count, 2), *(f(count, 2) for f in (T.zeros, T.zeros, T.ones))
    costs = []
    for _ in range(8):
        squares = T.sum(y * y, 1)
        near = -2.0 * T.mm(y, y.t())
        near = 1.0 / (1.0 + T.add(T.add(near, squares).t(), squares))
        near[range(count), range(count)] = 0.0
        had = T.max(near / T.sum(near), T.tensor([1e-12]))
        for i in everyone:
            pull = ((wanted - had)[:, i] * near[:, i]).repeat(2, 1).t()
            gradient[i, :] = T.sum(pull * (y[i, :] - y), 0)
        turned, same = ((gradient > 0) != (moved > 0)).double(), ((gradient > 0) == (moved > 0)).double()
        gains = (gains + 0.2) * turned + gains * 0.8 * same
        gains[gains < 0.01] = 0.01
        moved = 0.5 * moved - 5 * (gains * gradient)
        y = y + moved
        y = y - T.mean(y, 0)
        costs.append(T.sum(wanted * T.log(wanted / had)).item())
    return sharp, costs, y


@program(chaotic=True)
def transport(lab: Lab) -> Any:
    """Sinkhorn's distance in logarithms between two clouds, iterated until it rests; one cloud is moved by it."""
    T, nn = lab.T, lab.nn

    class Sinkhorn(nn.Module):
        def __init__(self, blur: float, most: int) -> None:
            super().__init__()
            self.blur, self.most = blur, most

        def plan(self, costs: Any, u: Any, v: Any) -> Any:
            return (-costs + u.unsqueeze(-1) + v.unsqueeze(-2)) / self.blur

        def forward(self, x: Any, y: Any) -> tuple[Any, Any, int]:
            costs = T.sum(T.abs(x.unsqueeze(-2) - y.unsqueeze(-3)) ** 2, -1)
            mu, nu = (T.empty(1, len(z), requires_grad=False).fill_(1.0 / len(z)).squeeze() for z in (x, y))
            u, v, turns = T.zeros_like(mu), T.zeros_like(nu), 0
            for _ in range(self.most):
                before, turns = u, turns + 1
                u = self.blur * (T.log(mu + 1e-8) - T.logsumexp(self.plan(costs, u, v), dim=-1)) + u
                v = self.blur * (T.log(nu + 1e-8) - T.logsumexp(self.plan(costs, u, v).transpose(-2, -1), dim=-1)) + v
                if (u - before).abs().sum(-1).mean().item() < 1e-2:
                    break
            plan = T.exp(self.plan(costs, u, v))
            return T.sum(plan * costs, dim=(-2, -1)).mean(), plan, turns
    x, y = nn.Parameter(lab.normal(8, 2)), lab.normal(9, 2) + 1
    optimizer, distance = lab.optim.Adam([x], 0.05), Sinkhorn(1.0, 12)
    found: list[Any] = []
    for _ in range(4):
        loss, plan, turns = distance(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found += [loss.item(), turns]
    return found, plan, x


@program(chaotic=True)
def influences(lab: Lab) -> Any:
    """What an example does to the loss of another one: products with a Hessian that is never made, summed up; then the
    Hessian itself, of parameters as one vector."""
    T, nn, F = lab.T, lab.nn, lab.F
    net = lab.same(nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)))
    x, labels = lab.normal(16, 5), lab.ints(3, 16)
    names, parameters = zip(*net.named_parameters(), strict=True)

    def gradient(at: slice) -> list[Any]:
        net.eval()
        return list(T.autograd.grad(F.cross_entropy(net(x[at]), labels[at]), parameters, create_graph=True))

    def times_hessian(loss: Any, vectors: list[Any]) -> Any:
        gradients = T.autograd.grad(loss, parameters, retain_graph=True, create_graph=True)
        along = 0
        for g, v in zip(gradients, vectors, strict=True):
            along += T.sum(g * v)
        return T.autograd.grad(along, parameters)
    vectors = gradient(slice(0, 1))
    solved = vectors.copy()
    for i in range(6):
        part = slice(2 * i, 2 * i + 2)
        products = times_hessian(F.cross_entropy(net(x[part]), labels[part]), solved)
        with T.no_grad():
            solved = [v + 0.99 * s - p / 25 for v, s, p in zip(vectors, solved, products, strict=True)]
    found = []
    for i in range(5):
        each = gradient(slice(i, i + 1))
        with T.no_grad():
            found.append(-sum([T.sum(g * s).data for g, s in zip(each, solved, strict=True)]) / 16)
    worst = np.argsort([float(each) for each in found])
    flat = nn.utils.parameters_to_vector(parameters)
    sizes = [p.numel() for p in parameters]

    def loss(vector: Any) -> Any:
        given = {name: part.view_as(p)
                 for name, part, p in zip(names, vector.split(sizes), parameters, strict=True)}
        return F.cross_entropy(T.func.functional_call(net, given, (x,)), labels)
    hessian = T.autograd.functional.hessian(loss, flat.detach())
    curves = T.linalg.eigvalsh(0.5 * (hessian + hessian.T))
    nn.utils.vector_to_parameters(flat.detach() * 0.5, parameters)
    return found, worst, curves, loss(flat.detach()), F.cross_entropy(net(x), labels)


@program
def sums_of_neighbours(lab: Lab) -> Any:
    """GIN: graphs of a batch side by side in one sparse matrix, another one pools them; what a node itself weighs is
    learnt, and scores are summed over layers."""
    T, nn, F = lab.T, lab.nn, lab.F
    layers = 2

    def perceptron(inputs: int) -> Any:
        return nn.Sequential(nn.Linear(inputs, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8))

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.itself = nn.Parameter(T.zeros(layers))
            self.mixed = T.nn.ModuleList()
            self.norms, self.told = T.nn.ModuleList(), T.nn.ModuleList([nn.Linear(4, 3)])
            for layer in range(layers):
                self.mixed.append(perceptron(4 if layer == 0 else 8))
                self.norms.append(nn.BatchNorm1d(8))
                self.told.append(nn.Linear(8, 3))

        def forward(self, graphs: list[tuple[Any, Any]]) -> Any:
            begins, edges, places = [0], [], []
            for i, (pairs, nodes) in enumerate(graphs):
                begins.append(begins[i] + len(nodes))
                edges.append(pairs + begins[i])
                places.extend([[i, j] for j in range(begins[i], begins[i + 1], 1)])
            pairs, count = T.cat(edges, 1), begins[-1]
            beside = T.sparse_coo_tensor(pairs, T.ones(pairs.shape[1]), T.Size([count, count]))
            pool = T.sparse_coo_tensor(T.tensor(places).transpose(0, 1), T.ones(count), (len(graphs), count))
            h = T.cat([nodes for _, nodes in graphs], 0)
            states = [h]
            for layer in range(layers):
                h = T.spmm(beside, h) + (1 + self.itself[layer]) * h
                h = F.relu(self.norms[layer](self.mixed[layer](h)))
                states.append(h)
            scores = 0
            for told, h in zip(self.told, states, strict=True):
                scores += F.dropout(told(T.sparse.mm(pool, h)), 0.5, training=False)
            return scores

    def graph() -> tuple[Any, Any]:
        count = int(lab.draws.integers(4, 9))
        pairs = np.unique(lab.draws.integers(0, count, (2, 2 * count)), axis=1)
        return T.tensor(np.concatenate([pairs, pairs[::-1]], 1)), F.one_hot(lab.ints(4, count), 4).float()
    net = lab.same(Network())
    optimizer = lab.optim.Adam(net.parameters(), lr=0.01)
    losses = []
    for _ in range(8):
        graphs = [graph() for _ in range(5)]
        loss = nn.CrossEntropyLoss()(net(graphs), lab.ints(3, 5))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().cpu().numpy())
    return losses, net.itself


@program(chaotic=True, quick=True)
def regions(lab: Lab) -> Any:
    """Mask R-CNN's second stage: proposals are matched to boxes and sampled, features are read under each by a grid,
    boxes are coded, masks are for the class that is there, and kept boxes do not overlap."""
    T, nn, F = lab.T, lab.nn, lab.F
    kind = T.get_default_dtype()

    def read(x: Any, boxes: Any, of: Any, size: int, scale: float) -> Any:
        left, top, right, bottom = (boxes * scale).unbind(1)
        wide, high = (right - left).clamp(min=1), (bottom - top).clamp(min=1)
        at = ((T.arange(size) + 0.5) / size)[None]
        columns, rows = left[:, None] + at * wide[:, None], top[:, None] + at * high[:, None]
        height, width = x.shape[-2:]
        columns, rows = (columns + 0.5) / width * 2 - 1, (rows + 0.5) / height * 2 - 1
        grid = T.broadcast_tensors(columns[:, None, :], rows[:, :, None])
        return F.grid_sample(x[of], T.stack(grid, dim=-1), align_corners=False, padding_mode="border")

    def overlaps(a: Any, b: Any) -> Any:
        def area(boxes: Any) -> Any:
            return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        both = (T.min(a[:, None, 2:], b[:, 2:]) - T.max(a[:, None, :2], b[:, :2])).clamp(min=0)
        shared = both[:, :, 0] * both[:, :, 1]
        return shared / (area(a)[:, None] + area(b) - shared)

    def coded(boxes: Any, near: Any) -> Any:
        (w, h), (wide, high) = ((x[:, 2:] - x[:, :2]).unbind(1) for x in (near, boxes))
        away = boxes[:, :2] + 0.5 * T.stack([wide, high], 1) - near[:, :2] - 0.5 * T.stack([w, h], 1)
        return T.stack([10 * away[:, 0] / w, 10 * away[:, 1] / h, 5 * T.log(wide / w), 5 * T.log(high / h)], dim=1)

    def boxes(count: int) -> Any:
        at = lab.uniform(count, 2) * 20
        return T.cat([at, at + 4 + lab.uniform(count, 2) * 8], 1)

    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1))
            self.hidden, self.kinds, self.boxes = nn.Linear(72, 16), nn.Linear(16, 3), nn.Linear(16, 12)
            self.masks = nn.Sequential(OrderedDict([
                ("first", nn.Conv2d(8, 8, 3, padding=1)), ("relu", nn.ReLU()),
                ("larger", nn.ConvTranspose2d(8, 8, 2, 2)), ("logits", nn.Conv2d(8, 3, 1))]))
    net = lab.same(Heads())
    optimizer = lab.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.01, momentum=0.9,
                              weight_decay=5e-4)
    found: list[Any] = []
    for _ in range(5):
        features = net.body(lab.normal(2, 3, 32, 32))
        chosen, of, labels, targets, masks = [], [], [], [], []
        for i in range(2):
            there, kinds, shapes = boxes(3), lab.ints(2, 3) + 1, lab.ints(2, 3, 32, 32).to(kind)
            proposed = T.cat([boxes(10), there], 0)
            most, which = overlaps(there, proposed).max(dim=0)
            which[most < 0.3] = -1
            which[(most >= 0.3) & (most < 0.4)] = -2
            nearest = which.clamp(min=0)
            label = kinds[nearest].to(dtype=T.int64)
            label[which == -1] = 0
            label[which == -2] = -1
            objects, empty = T.where(label >= 1)[0], T.where(label == 0)[0]
            keep = T.cat([objects[:4], empty[:8 - min(len(objects), 4)]])
            chosen.append(proposed[keep])
            of.append(T.full((len(keep),), i))
            labels.append(label[keep])
            targets.append(coded(there[nearest[keep]], proposed[keep]))
            masks.append(read(shapes[:, None], proposed[keep], nearest[keep], 6, 1.0)[:, 0])
        near, of, label, target, shape = (T.cat(x, 0) for x in (chosen, of, labels, targets, masks))
        pooled = read(features, near, of, 3, 0.25)
        hidden = F.relu(net.hidden(pooled.flatten(start_dim=1)))
        told, moved = net.kinds(hidden), net.boxes(hidden).reshape(len(label), -1, 4)
        objects = T.where(label > 0)[0]
        losses = {"kinds": F.cross_entropy(told, label)}
        losses["boxes"] = F.smooth_l1_loss(moved[objects, label[objects]], target[objects], beta=1 / 9,
                                           reduction="sum") / label.numel()
        made = net.masks(pooled)[T.arange(label.shape[0]), label][objects]
        losses["masks"] = F.binary_cross_entropy_with_logits(made, shape[objects])
        loss = sum(each for each in losses.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found += [float(each) for each in losses.values()] + [len(objects)]
    with T.no_grad():
        all_boxes, kept = boxes(10), []
        order = lab.uniform(10).argsort(descending=True)
        while order.numel() > 0:
            first = order[0]
            kept.append(first.item())
            if order.numel() == 1:
                break
            order = order[1:][overlaps(all_boxes[first][None], all_boxes[order[1:]])[0] <= 0.3]
    return found, kept, told.softmax(-1)
