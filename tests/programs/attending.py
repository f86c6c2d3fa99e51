"""Attention of several kinds: shifted windows, distances in buckets, a judge of replaced words, where speech was."""

from __future__ import annotations

import functools
import math
from typing import Any

from .lab import Lab, program


@program
def shifted_windows(lab: Lab) -> Any:
    """A Swin transformer: images are rolled and cut into windows, a table of biases is read by distances, corners of
    what was rolled do not attend; four neighbours become one."""
    T, nn, F = lab.T, lab.nn, lab.F

    def cut(x: Any, size: int) -> Any:
        batch, height, width, channels = x.shape
        x = x.view(batch, height // size, size, width // size, size, channels)
        return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, size, size, channels)

    def joined(windows: Any, size: int, height: int, width: int) -> Any:
        batch = int(windows.shape[0] / (height * width / size / size))
        x = windows.view(batch, height // size, width // size, size, size, -1)
        return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(batch, height, width, -1)

    class Attention(nn.Module):
        def __init__(self, width: int, size: int, heads: int) -> None:
            super().__init__()
            self.heads, self.scale = heads, (width // heads) ** -0.5
            self.table = nn.Parameter(T.zeros((2 * size - 1) * (2 * size - 1), heads))
            at = T.flatten(T.stack(T.meshgrid([T.arange(size), T.arange(size)], indexing="ij")), 1)
            away = (at[:, :, None] - at[:, None, :]).permute(1, 2, 0).contiguous()
            away[:, :, 0] += size - 1
            away[:, :, 1] += size - 1
            away[:, :, 0] *= 2 * size - 1
            self.register_buffer("away", away.sum(-1))
            self.qkv, self.out = nn.Linear(width, width * 3), nn.Linear(width, width)
            nn.init.trunc_normal_(self.table, std=0.02)
            self.softmax = nn.Softmax(dim=-1)

        def forward(self, x: Any, mask: Any = None) -> Any:
            windows, count, width = x.shape
            qkv = self.qkv(x).reshape(windows, count, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
            q, k, v = qkv[0], qkv[1], qkv[2]
            weights = (q * self.scale) @ k.transpose(-2, -1)
            bias = self.table[self.away.view(-1)].view(count, count, -1).permute(2, 0, 1).contiguous()
            weights = weights + bias.unsqueeze(0)
            if mask is not None:
                weights = weights.view(-1, mask.shape[0], self.heads, count, count) + mask.unsqueeze(1).unsqueeze(0)
                weights = weights.view(-1, self.heads, count, count)
            return self.out((self.softmax(weights) @ v).transpose(1, 2).reshape(windows, count, width))

    class Block(nn.Module):
        def __init__(self, width: int, side: int, size: int, shift: int) -> None:
            super().__init__()
            self.side, self.size, self.shift, mask = side, size, shift, None
            self.attention = Attention(width, size, 4)
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            if shift > 0:
                regions, number = T.zeros((1, side, side, 1)), 0
                parts = slice(0, -size), slice(-size, -shift), slice(-shift, None)
                for rows in parts:
                    for columns in parts:
                        regions[:, rows, columns, :] = number
                        number += 1
                of = cut(regions, size).view(-1, size * size)
                mask = of.unsqueeze(1) - of.unsqueeze(2)
                mask = mask.masked_fill(mask != 0, (-100.0)).masked_fill(mask == 0, 0.0)
            self.register_buffer("mask", mask)

        def forward(self, x: Any) -> Any:
            batch, length, width = x.shape
            assert length == self.side * self.side, "the input has another size"
            y = self.first(x).view(batch, self.side, self.side, width)
            if self.shift > 0:
                y = T.roll(y, shifts=(-self.shift, -self.shift), dims=(1, 2))
            y = self.attention(cut(y, self.size).view(-1, self.size * self.size, width), mask=self.mask)
            y = joined(y.view(-1, self.size, self.size, width), self.size, self.side, self.side)
            if self.shift > 0:
                y = T.roll(y, shifts=(self.shift, self.shift), dims=(1, 2))
            x = x + y.view(batch, length, width)
            return x + self.mlp(self.second(x))

    class Merging(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm, self.fewer = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

        def forward(self, x: Any) -> Any:
            batch, length, width = x.shape
            x = x.view(batch, int(length ** 0.5), -1, width)
            x = T.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
            return self.fewer(self.norm(x.view(batch, -1, 4 * width)))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 8, 2, 2)
            self.blocks = nn.Sequential(Block(8, 8, 2, 0), Block(8, 8, 4, 2), Merging(8), Block(16, 4, 4, 0))
            self.norm, self.mean, self.head = nn.LayerNorm(16), nn.AdaptiveAvgPool1d(1), nn.Linear(16, 5)

        def forward(self, x: Any) -> Any:
            x = self.norm(self.blocks(self.patches(x).flatten(2).transpose(1, 2)))
            return self.head(T.flatten(self.mean(x.transpose(1, 2)), 1))

        @T.jit.ignore
        def without_decay(self) -> set[str]:
            return {"table"}
    net = lab.same(Net())
    decay, others = [], []
    for name, p in net.named_parameters():
        left_out = len(p.shape) == 1 or name.endswith(".bias") or any(key in name for key in net.without_decay())
        (others if left_out else decay).append(p)
    optimizer = lab.optim.AdamW([{"params": decay}, {"params": others, "weight_decay": 0.0}], lr=1e-3, eps=1e-8,
                                weight_decay=0.05)

    @lab.step
    def step(x: Any, wanted: Any) -> Any:
        loss = T.sum(-wanted * F.log_softmax(net(x), dim=-1), dim=-1).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimizer.step()
        return loss
    losses = [step(lab.normal(2, 3, 16, 16), F.one_hot(lab.ints(5, 2), 5).float() * 0.9 + 0.02) for _ in range(6)]
    return losses, str(sorted(key for key in net.state_dict() if "mask" in key))


@program(chaotic=True)
def distances_in_buckets(lab: Lab) -> Any:
    """T5: an encoder and a decoder without scaled weights, positions as biases by buckets of distances, shared by the
    layers; trained by Adafactor as its library has it, which looks at each parameter's size."""
    T, nn, F = lab.T, lab.nn, lab.F
    width, heads, buckets, kind = 16, 2, 8, T.get_default_dtype()

    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(T.ones(width))

        def forward(self, x: Any) -> Any:
            x = x * T.rsqrt(x.to(T.promote_types(x.dtype, T.float32)).pow(2).mean(-1, keepdim=True) + 1e-6)
            if self.weight.dtype in [T.float16, T.bfloat16]:
                x = x.to(self.weight.dtype)
            return self.weight * x

    class Attention(nn.Module):
        def __init__(self, decodes: bool, biased: bool) -> None:
            super().__init__()
            self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
            self.decodes, self.biased = decodes, biased
            if biased:
                self.bias = nn.Embedding(buckets, heads)

        def bucket(self, away: Any) -> Any:
            found, count = 0, buckets
            if self.decodes:
                away = -T.min(away, T.zeros_like(away))
            else:
                count //= 2
                found += (away > 0).to(T.long) * count
                away = T.abs(away)
            exact = count // 2
            far = exact + (T.log(away.float() / exact) / math.log(20 / exact) * (count - exact)).to(T.long)
            found += T.where(away < exact, away, T.min(far, T.full_like(far, count - 1)))
            return found

        def forward(self, x: Any, others: Any = None, mask: Any = None, bias: Any = None) -> tuple[Any, Any]:
            batch, length = x.shape[:2]
            others = x if others is None else others
            q, k, v = (f(y).view(batch, -1, heads, width // heads).transpose(1, 2)
                       for f, y in ((self.q, x), (self.k, others), (self.v, others)))
            weights = T.matmul(q, k.transpose(3, 2))
            if bias is None:
                if self.biased:
                    away = T.arange(k.shape[2])[None, :] - T.arange(length)[:, None]
                    bias = self.bias(self.bucket(away)).permute([2, 0, 1]).unsqueeze(0)
                else:
                    bias = T.zeros((1, heads, length, k.shape[2]), device=weights.device, dtype=weights.dtype)
                bias = bias if mask is None else bias + mask
            weights += bias
            x = T.matmul(F.softmax(weights, dim=-1, dtype=kind).type_as(weights), v)
            return self.out(x.transpose(1, 2).contiguous().view(batch, -1, width)), bias

    class Block(nn.Module):
        def __init__(self, decodes: bool, first: bool) -> None:
            super().__init__()
            self.attention, self.norms = Attention(decodes, first), nn.ModuleList(Norm() for _ in range(3))
            self.across = Attention(decodes, False) if decodes else None
            self.mlp = nn.ModuleDict({"gate": nn.Linear(width, 2 * width, bias=False),
                                      "up": nn.Linear(width, 2 * width, bias=False),
                                      "down": nn.Linear(2 * width, width, bias=False)})

        def forward(self, x: Any, mask: Any, biases: list[Any], seen: Any = None, seen_mask: Any = None) -> Any:
            y, biases[0] = self.attention(self.norms[0](x), mask=mask, bias=biases[0])
            x = x + y
            if self.across is not None:
                y, biases[1] = self.across(self.norms[1](x), seen, seen_mask, biases[1])
                x = x + y
            y = self.norms[2](x)
            return x + self.mlp["down"](F.gelu(self.mlp["gate"](y), approximate="tanh") * self.mlp["up"](y))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared = nn.Embedding(30, width)
            self.encoder, self.decoder = (nn.ModuleList(Block(decodes, at == 0) for at in range(2))
                                          for decodes in (False, True))
            self.ends = nn.ModuleList([Norm(), Norm()])

        def forward(self, words: Any, labels: Any) -> tuple[Any, Any]:
            low = T.finfo(kind).min
            mask = (1.0 - (words != 0)[:, None, None, :].to(kind)) * low
            x, biases = self.shared(words), [None]
            for block in self.encoder:
                x = block(x, mask, biases)
            seen = self.ends[0](x)
            given = labels.new_zeros(labels.shape)
            given[..., 1:] = labels[..., :-1].clone()
            given.masked_fill_(given == -100, 0)
            at = T.arange(given.shape[1])
            past = (1.0 - (at[None, None, :] <= at[None, :, None])[:, None].to(kind)) * low
            y, biases = self.shared(given), [None, None]
            for block in self.decoder:
                y = block(y, past, biases, seen, mask)
            logits = F.linear(self.ends[1](y) * width ** -0.5, self.shared.weight)
            return F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1), ignore_index=-100), logits

    class Adafactor(lab.optim.Optimizer):  # type: ignore[misc, name-defined]  # of either library
        def __init__(self, params: Any) -> None:
            super().__init__(params, {"least": (1e-30, 1e-3), "clip": 1.0, "decay": -0.8})

        @staticmethod
        def size(x: Any) -> Any:
            return x.norm(2) / x.numel() ** 0.5

        @T.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    grad, state, factored = p.grad, self.state[p], len(p.grad.shape) >= 2
                    if len(state) == 0:
                        state["step"] = 0
                        if factored:
                            state["rows"] = T.zeros(grad.shape[:-1]).to(grad)
                            state["columns"] = T.zeros(grad.shape[:-2] + grad.shape[-1:]).to(grad)
                        else:
                            state["squares"] = T.zeros_like(grad)
                    state["step"] += 1
                    state["size"] = self.size(p)
                    rate = min(1e-2, 1 / math.sqrt(state["step"])) * max(group["least"][1], state["size"])
                    keep = 1.0 - math.pow(state["step"], group["decay"])
                    update = grad ** 2 + group["least"][0]
                    if factored:
                        state["rows"].mul_(keep).add_(update.mean(dim=-1), alpha=1.0 - keep)
                        state["columns"].mul_(keep).add_(update.mean(dim=-2), alpha=1.0 - keep)
                        rows = (state["rows"] / state["rows"].mean(dim=-1, keepdim=True)).rsqrt_().unsqueeze(-1)
                        update = T.mul(rows, state["columns"].unsqueeze(-2).rsqrt()).mul_(grad)
                    else:
                        state["squares"].mul_(keep).add_(update, alpha=1.0 - keep)
                        update = state["squares"].rsqrt().mul_(grad)
                    update.div_((self.size(update) / group["clip"]).clamp_(min=1.0))
                    p.add_(-update.mul_(rate))
    model = lab.same(Model())
    optimizer = Adafactor(model.parameters())
    losses = []
    for _ in range(5):
        words, labels = lab.ints(29, 3, 9) + 1, lab.ints(30, 3, 7)
        words[0, 6:], labels[1, 5:] = 0, -100
        loss, _logits = model(words, labels)  # which outlive the step
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@program
def replaced_words(lab: Lab) -> Any:
    """ELECTRA: places are drawn by the largest of random scores, a small model fills them, a larger one tells which
    are new."""
    T, nn, F = lab.T, lab.nn, lab.F
    words, masked, least = 20, 2, 3

    def any_of(x: Any, tokens: range) -> Any:
        return functools.reduce(lambda found, token: found | (x == token), tokens,
                                T.full_like(x, False, dtype=T.bool))

    def chosen(free: Any, share: float) -> Any:
        batch, length = free.shape
        most, count = math.ceil(share * length), free.sum(dim=-1, keepdim=True)
        over = (free.cumsum(dim=-1) > (count * share).ceil())[:, :most]
        _, places = lab.uniform(batch, length).masked_fill(~free, -1e9).topk(most, dim=-1)
        places = (places + 1).masked_fill_(over, 0)
        return T.zeros((batch, length + 1)).scatter_(-1, places, 1)[:, 1:].bool()

    class Reader(nn.Module):
        def __init__(self, width: int, outputs: int) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, activation="gelu", batch_first=True,
                                               norm_first=True)
            self.embedding, self.out = nn.Embedding(words, width), nn.Linear(width, outputs)
            self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

        def forward(self, x: Any) -> Any:
            return self.out(self.encoder(self.embedding(x)))
    small, large = lab.same(Reader(8, words)), lab.same(Reader(16, 1))
    optimizer = lab.optim.Adam([{"params": small.parameters()}, {"params": large.parameters(), "lr": 2e-3}], lr=1e-3)
    found: list[Any] = []
    for _ in range(6):
        x = lab.ints(words, 4, 12)
        mask = chosen(~any_of(x, range(least)), 0.3)
        where = T.nonzero(mask, as_tuple=True)
        hidden = x.clone().detach().masked_fill(mask * (lab.uniform(*mask.shape) < 0.85), masked)
        labels = x.masked_fill(~mask, 0)
        logits = small(hidden)
        loss = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=0)
        guesses = logits[where]
        noise = -T.log(-T.log(lab.uniform(*guesses.shape) + 1e-9) + 1e-9)
        replaced = x.clone()
        replaced[where] = (guesses + noise).argmax(dim=-1).detach()
        new, there = (x != replaced).float().detach(), T.nonzero(x != 0, as_tuple=True)
        told = large(replaced).reshape_as(new)
        loss = loss + 5 * F.binary_cross_entropy_with_logits(told[there], new[there])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with T.no_grad():
            right = (labels[mask] == T.argmax(logits, dim=-1)[mask]).float().mean()
            known = (new == T.round((T.sign(told) + 1) * 0.5)).float().mean()
        found += [loss.item(), right.item(), known.item()]
    return found


@program
def where_speech_has_been(lab: Lab) -> Any:
    """Tacotron: letters through convolutions and packed layers of both directions, frames one by one by cells that look
    at where they looked before, scores masked behind autograd's back, a gate that ends."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Looking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.memory, self.place = (nn.Linear(n, 6, bias=False) for n in (12, 8, 4))
            self.score = nn.Linear(6, 1, bias=False)
            self.before = nn.Conv1d(2, 4, 5, padding=2, bias=False)

        def forward(self, state: Any, memory: Any, keys: Any, before: Any, absent: Any) -> tuple[Any, Any]:
            place = self.place(self.before(before).transpose(1, 2))
            scores = self.score(T.tanh(self.query(state.unsqueeze(1)) + place + keys)).squeeze(-1)
            scores.data.masked_fill_(absent, -float("inf"))
            weights = F.softmax(scores, dim=1)
            return T.bmm(weights.unsqueeze(1), memory).squeeze(1), weights

    def behind(lengths: Any) -> Any:
        most = T.max(lengths).item()
        return ~(T.arange(0, most, out=T.LongTensor(most).to(lab.device)) < lengths.unsqueeze(1)).bool()

    class Speaker(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.letters = nn.Embedding(20, 8)
            self.convolutions = nn.ModuleList([nn.Sequential(nn.Conv1d(8, 8, 3, padding=1), nn.BatchNorm1d(8))
                                               for _ in range(2)])
            self.read = nn.LSTM(8, 4, 1, batch_first=True, bidirectional=True)
            self.prepare = nn.ModuleList([nn.Linear(6, 8, bias=False), nn.Linear(8, 8, bias=False)])
            self.first, self.second, self.look = nn.LSTMCell(16, 12), nn.LSTMCell(20, 12, True), Looking()
            self.frame, self.gate = nn.Linear(20, 6), nn.Linear(20, 1)

        def forward(self, text: Any, lengths: Any, frames: Any) -> tuple[Any, Any, Any]:
            x = self.letters(text).transpose(1, 2)
            for convolution in self.convolutions:
                x = F.dropout(F.relu(convolution(x)), 0.5, False)
            packed = nn.utils.rnn.pack_padded_sequence(x.transpose(1, 2), lengths.cpu().numpy(), batch_first=True)
            self.read.flatten_parameters()
            memory, _ = nn.utils.rnn.pad_packed_sequence(self.read(packed)[0], batch_first=True)
            batch, length = memory.size(0), memory.size(1)
            h, c, g, d, weights, seen, context = (T.autograd.Variable(memory.data.new(batch, n).zero_())
                                                  for n in (12, 12, 12, 12, length, length, 8))
            keys, absent = self.look.memory(memory), behind(lengths)
            given = T.cat((frames.new_zeros(1, batch, 6), frames.permute(2, 0, 1)), dim=0)
            for layer in self.prepare:
                given = F.relu(layer(given))
            made, gates, looks = [], [], []
            while len(made) < given.size(0) - 1:
                h, c = self.first(T.cat((given[len(made)], context), -1), (h, c))
                before = T.cat((weights.unsqueeze(1), seen.unsqueeze(1)), dim=1)
                context, weights = self.look(h, memory, keys, before, absent)
                seen = seen + weights
                g, d = self.second(T.cat((h, context), -1), (g, d))
                both = T.cat((g, context), dim=1)
                made += [self.frame(both)]
                gates += [self.gate(both).squeeze(1)]
                looks += [weights]
            return T.stack(made).permute(1, 2, 0), T.stack(gates).transpose(0, 1).contiguous(), T.stack(looks)
    model = lab.same(Speaker())
    optimizer = lab.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-6)
    found: list[Any] = []
    for _ in range(4):
        lengths, _order = T.sort(lab.ints(5, 3) + 4, dim=0, descending=True)
        text, frames, ends = lab.ints(20, 3, int(lengths[0])), lab.normal(3, 6, 6), T.zeros(3, 6)
        ends[:, 4:] = 1
        made, gates, looks = model(text, lengths, frames)
        loss = nn.MSELoss()(made, frames) + nn.BCEWithLogitsLoss()(gates.view(-1, 1), ends.view(-1, 1))
        model.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found += [loss.item(), float(norm)]
    return found, looks.data.cpu().numpy().T
