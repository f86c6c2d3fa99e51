"""Networks on graphs."""

from __future__ import annotations

from typing import Any

from .lab import Lab, program


@program
def graph_convolution(lab: Lab) -> Any:
    """A normalized adjacency matrix times features, two layers, a mask of labelled nodes."""
    T, nn, F = lab.T, lab.nn, lab.F

    class GraphConvolution(nn.Module):
        def __init__(self, ins: int, outs: int):
            super().__init__()
            self.weight = nn.Parameter(T.FloatTensor(ins, outs).to(lab.device, T.get_default_dtype()))
            self.bias = nn.Parameter(T.zeros(outs))
            self.reset_parameters()

        def reset_parameters(self) -> None:
            stdv = 1.0 / self.weight.size(1) ** 0.5
            self.weight.data.uniform_(-stdv, stdv)

        def forward(self, x: Any, adj: Any) -> Any:
            return T.mm(adj, T.mm(x, self.weight)) + self.bias
    edges = lab.ints(12, 2, 30)
    adj = T.zeros(12, 12)
    adj[edges[0], edges[1]] = 1
    adj = adj + adj.T.multiply(adj < adj.T) + T.eye(12)
    adj = adj / adj.sum(1, keepdim=True)
    one, two = lab.same(GraphConvolution(5, 8)), lab.same(GraphConvolution(8, 3))
    x, labels, known = lab.normal(12, 5), lab.ints(3, 12), T.LongTensor(range(6)).to(lab.device)
    optimizer = lab.optim.Adam([*one.parameters(), *two.parameters()], lr=0.01, weight_decay=5e-4)

    @lab.step
    def step(x: Any, adj: Any) -> Any:
        output = F.log_softmax(two(F.relu(one(x, adj)), adj), dim=1)
        loss = F.nll_loss(output[known], labels[known])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, output.max(1)[1].type_as(labels).eq(labels).double().sum()
    return [step(x, adj) for _ in range(10)]


@program(quick=True)
def graph_attention(lab: Lab) -> Any:
    """Attention over edges: a softmax by segments, made of scatter_reduce and index_add."""
    T, nn, F = lab.T, lab.nn, lab.F
    W, a = lab.same(nn.Linear(5, 8, bias=False)), nn.Parameter(lab.normal(16))
    head = lab.same(nn.Linear(8, 3))
    edges = T.cat([lab.ints(10, 2, 30), T.arange(10).repeat(2, 1)], dim=1)
    src, dst = edges
    x, labels = lab.normal(10, 5), lab.ints(3, 10)
    optimizer = lab.optim.Adam([*W.parameters(), a, *head.parameters()], lr=0.01)

    @lab.step
    def step(x: Any) -> Any:
        h = W(x)
        e = F.leaky_relu((T.cat([h[src], h[dst]], dim=1) * a).sum(-1), negative_slope=0.2)
        top = T.full((10,), -1e9).scatter_reduce(0, dst, e, reduce="amax")
        weight = T.exp(e - top.detach()[dst])
        total = T.zeros(10).scatter_add_(0, dst, weight)
        alpha = weight / total[dst]
        out = T.zeros(10, 8).index_add(0, dst, h[src] * alpha.unsqueeze(1))
        loss = F.cross_entropy(head(F.elu(out)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return [step(x).item() for _ in range(10)]


@program
def graph_sage(lab: Lab) -> Any:
    """Means over sampled neighbours, and a loss that tells edges from pairs."""
    T, nn, F = lab.T, lab.nn, lab.F
    own, others = lab.same(nn.Linear(4, 6)), lab.same(nn.Linear(4, 6))
    x, neighbours = lab.normal(15, 4), lab.ints(15, 15, 3)
    optimizer = lab.optim.Adam([*own.parameters(), *others.parameters()], lr=0.01)

    @lab.step
    def step(left: Any, right: Any, wrong: Any) -> Any:
        z = F.normalize(T.relu(own(x) + others(x[neighbours].mean(dim=1))), p=2, dim=-1)
        good = (z[left] * z[right]).sum(-1)
        bad = T.einsum("bd,bkd->bk", z[left], z[wrong])
        loss = -F.logsigmoid(good).mean() - F.logsigmoid(-bad).mean(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return [step(lab.ints(15, 6), lab.ints(15, 6), lab.ints(15, 6, 4)).item() for _ in range(10)]


@program
def message_passing(lab: Lab) -> Any:
    """Gated updates of node states by messages along edges, then a readout by graph."""
    T, nn, F = lab.T, lab.nn, lab.F
    message, update, readout = (lab.same(m) for m in (nn.Linear(7, 6), nn.GRUCell(6, 6), nn.Linear(6, 1)))
    src, dst, batch = lab.ints(12, 20), lab.ints(12, 20), T.arange(12).div(4, rounding_mode="floor")
    x, kind, y = lab.normal(12, 6), lab.normal(20, 1), lab.normal(3)
    params = [p for m in (message, update, readout) for p in m.parameters()]
    optimizer = lab.optim.RAdam(params, lr=0.01)

    @lab.step
    def step(x: Any) -> Any:
        h = x
        for _ in range(3):
            m = F.relu(message(T.cat([h.index_select(0, src), kind], dim=-1)))
            h = update(T.zeros_like(h).index_add_(0, dst, m), h)
        pooled = T.zeros(3, 6).scatter_add_(0, batch[:, None].expand(-1, 6), h)
        loss = F.l1_loss(readout(pooled / T.bincount(batch)[:, None]).squeeze(-1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return [step(x).item() for _ in range(10)]
