"""What people write out to see how it works: layers without modules, a language model in chapters, codes that are
moving averages, states in chunks, and all alignments of a transducer."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .lab import Lab, program


@program(chaotic=True)
def two_levels_of_codes(lab: Lab) -> Any:
    """VQ-VAE-2: codes that are averages of what chose them, written by `.data`; then a PixelCNN over the codes."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Codes(nn.Module):
        def __init__(self, width: int, count: int) -> None:
            super().__init__()
            self.register_buffer("codes", lab.normal(width, count))
            self.register_buffer("counts", T.zeros(count))
            self.register_buffer("sums", self.codes.clone())

        def forward(self, x: Any) -> Any:
            x = x.permute(0, 2, 3, 1)
            flat = x.reshape(-1, self.codes.shape[0])
            far = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.codes + self.codes.pow(2).sum(0, keepdim=True)
            _, chosen = (-far).max(1)
            one_hot = F.one_hot(chosen, self.counts.numel()).type(flat.dtype)
            chosen = chosen.view(*x.shape[:-1])
            found = F.embedding(chosen, self.codes.transpose(0, 1))
            if self.training:
                self.counts.data.mul_(0.9).add_(one_hot.sum(0), alpha=0.1)
                self.sums.data.mul_(0.9).add_(flat.transpose(0, 1) @ one_hot, alpha=0.1)
                total = self.counts.sum()
                counts = (self.counts + 1e-5) / (total + self.counts.numel() * 1e-5) * total
                self.codes.data.copy_(self.sums / counts.unsqueeze(0))
            near = (found.detach() - x).pow(2).mean()
            return (x + (found - x).detach()).permute(0, 3, 1, 2), near, chosen

    class Autoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fine = nn.Sequential(nn.Conv2d(1, 4, 4, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3, padding=1))
            self.coarse = nn.Sequential(nn.Conv2d(4, 4, 4, 2, 1), nn.ReLU(), nn.Conv2d(4, 3, 1))
            self.up, self.mixed = nn.ConvTranspose2d(3, 3, 4, 2, 1), nn.Conv2d(7, 3, 1)
            self.codes = nn.ModuleList([Codes(3, 6), Codes(3, 6)])
            self.out_of = nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(6, 1, 4, 2, 1))

        def forward(self, x: Any) -> Any:
            fine = self.fine(x)
            above, near, _ = self.codes[0](self.coarse(fine))
            above = self.up(above)
            below, more, chosen = self.codes[1](self.mixed(T.cat([above, fine], 1)))
            return self.out_of(T.cat([above, below], 1)), near + more, chosen

    class Masked(nn.Conv2d):
        """A convolution that sees what comes before, and with `own` the pixel itself."""

        def __init__(self, own: bool, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.register_buffer("mask", self.weight.data.clone())
            self.mask.fill_(1)
            self.mask[:, :, 1, 1 + own:] = 0
            self.mask[:, :, 2:] = 0

        def forward(self, x: Any) -> Any:
            self.weight.data *= self.mask
            return super().forward(x)
    model = lab.same(Autoencoder())
    optimizer = lab.optim.Adam(model.parameters(), lr=1e-2)
    prior = lab.same(nn.Sequential(Masked(False, 6, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
                                   Masked(True, 8, 8, 3, 1, 1), nn.ReLU(True), nn.Conv2d(8, 6, 1)))
    over_codes = lab.optim.RMSprop(prior.parameters(), lr=1e-2)

    @lab.step
    def step(image: Any) -> Any:
        model.zero_grad()
        drawn, near, _ = model(image)
        far = F.mse_loss(drawn, image)
        (far + 0.25 * near).backward()
        optimizer.step()
        return far, near

    @lab.step
    def step_over_codes(codes: Any) -> Any:
        loss = F.cross_entropy(prior(F.one_hot(codes, 6).permute(0, 3, 1, 2).to(T.get_default_dtype())), codes)
        over_codes.zero_grad()
        loss.backward()
        over_codes.step()
        return loss
    images, found, seen = lab.normal(10, 1, 8, 8), [], 0.0
    for _ in range(3):
        for image in T.split(images, 4):
            far, near = step(image)
            seen += far.item() * image.shape[0]
            found += [far, near.item(), seen]
    model.eval()
    with T.no_grad():
        codes = model(images)[2]
    found += [step_over_codes(part).item() for part in [*codes.split(4)] * 2]
    prior.eval()
    drawn = T.zeros(2, 4, 4, dtype=T.long)
    for i in range(4):
        for j in range(4):
            with T.no_grad():
                logits = prior(F.one_hot(drawn, 6).permute(0, 3, 1, 2).to(T.get_default_dtype()))
            drawn[:, i, j] = F.softmax(logits[:, :, i, j], dim=1).data.argmax(1)
    return found, codes, drawn, model.state_dict(), prior[0].weight


@program(chaotic=True)
def layers_by_hand(lab: Lab) -> Any:
    """makemore: layers that are plain objects and keep what they gave, steps by `p.data`, a gradient written out."""
    T, F = lab.T, lab.F
    words = ["emma", "olivia", "ava", "isabella", "sophia", "mia"]
    letters = {letter: i for i, letter in enumerate(sorted({*"".join(words)} | {"."}))}
    xs, ys = [], []
    for word in words:
        context = [0] * 4
        for letter in word + ".":
            xs.append(context)
            ys.append(letters[letter])
            context = [*context[1:], letters[letter]]
    x, y = T.tensor(xs), T.tensor(ys)

    class Linear:
        def __init__(self, into: int, out_of: int) -> None:
            self.parameters = [lab.normal(into, out_of) / into ** 0.5]

        def __call__(self, x: Any) -> Any:
            self.out = x @ self.parameters[0]
            return self.out

    class BatchNorm:
        def __init__(self, width: int) -> None:
            self.parameters, self.training = [T.ones(width), T.zeros(width)], True
            self.mean, self.var = T.zeros(width), T.ones(width)

        def __call__(self, x: Any) -> Any:
            axes = 0 if x.ndim == 2 else (0, 1)
            mean, var = (x.mean(axes, keepdim=True), x.var(axes, keepdim=True)) if self.training else (
                self.mean, self.var)
            gain, bias = self.parameters
            self.out = gain * (x - mean) / T.sqrt(var + 1e-5) + bias
            if self.training:
                with T.no_grad():
                    self.mean = 0.9 * self.mean + 0.1 * mean
                    self.var = 0.9 * self.var + 0.1 * var
            return self.out

    class Applied:
        parameters: tuple[Any, ...] = ()

        def __init__(self, function: Callable[[Any], Any]) -> None:
            self.function = function

        def __call__(self, x: Any) -> Any:
            self.out = self.function(x)
            return self.out

    def pairs(x: Any) -> Any:
        return x.view(x.shape[0], x.shape[1] // 2, -1).squeeze(1)
    table = lab.normal(len(letters), 3)
    layers = [Applied(lambda ix: table[ix]), Applied(pairs), Linear(6, 8), BatchNorm(8), Applied(T.tanh),
              Applied(pairs), Linear(16, 8), BatchNorm(8), Applied(T.tanh), Linear(8, len(letters))]
    with T.no_grad():
        layers[-1].parameters[0] *= 0.1
    parameters = [table, *(p for layer in layers for p in layer.parameters)]
    for p in parameters:
        p.requires_grad = True

    @lab.step
    def step(x: Any, y: Any, rate: float) -> Any:
        for layer in layers:
            x = layer(x)
        loss = F.cross_entropy(x, y)
        for p in parameters:
            p.grad = None
        loss.backward()
        for p in parameters:
            p.data += -rate * p.grad
        return loss
    losses, moved = [], []
    for turn in range(10):
        chosen = lab.ints(len(xs), 9 if turn == 9 else 16)
        losses.append(step(x[chosen], y[chosen], 0.1 if turn < 6 else 0.01).log10().item())
        with T.no_grad():
            moved.append([((0.1 * p.grad).std() / p.data.std()).log10().item() for p in parameters if p.ndim == 2])
    rows, wide = 8, lab.normal(8, 5).requires_grad_()
    middle = wide - 1 / rows * wide.sum(0, keepdim=True)
    inverse = (1 / (rows - 1) * (middle ** 2).sum(0, keepdim=True) + 1e-5) ** -0.5
    raw = middle * inverse
    chances = (raw - raw.max(1, keepdim=True).values).exp()
    logs = (chances * chances.sum(1, keepdims=True) ** -1).log()
    which = lab.ints(5, rows)
    for made in (logs, raw):
        made.retain_grad()
    (-logs[range(rows), which].mean()).backward()
    by_hand = F.softmax(raw, 1).detach()
    by_hand[range(rows), which] -= 1
    by_hand /= rows
    through = inverse / rows * (rows * by_hand - by_hand.sum(0) - rows / (rows - 1) * raw * (by_hand * raw).sum(0))
    for layer in layers:
        layer.training = False
    word, context = "", [0] * 4
    while len(word) < 6:
        found = T.tensor([context])
        for layer in layers:
            found = layer(found)
        context = [*context[1:], int(F.softmax(found, dim=1).argmax(1).item())]
        word += [*letters][context[-1]]
    return (losses, moved, word, logs.grad, T.allclose(raw.grad, by_hand), T.allclose(wide.grad, through), wide.grad,
            [layer.mean for layer in layers if isinstance(layer, BatchNorm)])


@program(chaotic=True)
def chapters_of_a_language_model(lab: Lab) -> Any:
    """A book's GPT: a tokenizer by a regular expression, GELU written out, then a classifier, then instructions."""
    T, nn, F = lab.T, lab.nn, lab.F
    text = ("I had always thought the painter rather a cheap genius -- though a good fellow enough, so it was no great "
            "surprise to me to hear that, in the height of his glory, he had dropped his painting!")
    split = re.compile(r'([,.:;?_!"()\']|--|\s)')
    parts = [part.strip() for part in split.split(text) if part.strip()]
    numbers = {part: i for i, part in enumerate([*sorted({*parts}), "<|endoftext|>", "<|unk|>"])}
    names = [*numbers]

    def encode(text: str) -> list[int]:
        return [numbers.get(part.strip(), numbers["<|unk|>"]) for part in split.split(text) if part.strip()]

    class Windows(T.utils.data.Dataset):
        def __init__(self, length: int, stride: int) -> None:
            ids = encode(text)
            self.pairs = [(T.tensor(ids[i:i + length]), T.tensor(ids[i + 1:i + length + 1]))
                          for i in range(0, len(ids) - length, stride)]

        def __len__(self) -> int:
            return len(self.pairs)

        def __getitem__(self, index: int) -> Any:
            return self.pairs[index]

    class LayerNorm(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.scale, self.shift = nn.Parameter(T.ones(width)), nn.Parameter(T.zeros(width))

        def forward(self, x: Any) -> Any:
            mean, var = x.mean(dim=-1, keepdim=True), x.var(dim=-1, keepdim=True, unbiased=False)
            return self.scale * ((x - mean) / T.sqrt(var + 1e-5)) + self.shift

    class GELU(nn.Module):
        def forward(self, x: Any) -> Any:
            return 0.5 * x * (1 + T.tanh(T.sqrt(T.tensor(2.0 / T.pi)) * (x + 0.044715 * T.pow(x, 3))))

    class Block(nn.Module):
        def __init__(self, width: int, length: int) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
            self.out, self.first, self.second = nn.Linear(width, width), LayerNorm(width), LayerNorm(width)
            self.forward_layers = nn.Sequential(nn.Linear(width, 4 * width), GELU(), nn.Linear(4 * width, width))
            self.register_buffer("mask", T.triu(T.ones(length, length), diagonal=1), persistent=False)

        def forward(self, x: Any) -> Any:
            shortcut, normed, (rows, length, _) = x, self.first(x), x.shape
            q, k, v = (layer(normed).view(rows, length, 2, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
            scores = q @ k.transpose(2, 3)
            scores.masked_fill_(self.mask.bool()[:length, :length], -T.inf)
            found = T.softmax(scores / k.shape[-1] ** 0.5, dim=-1) @ v
            x = self.out(found.transpose(1, 2).contiguous().view(rows, length, -1)) + shortcut
            return self.forward_layers(self.second(x)) + x

    class Model(nn.Module):
        def __init__(self, width: int, length: int) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(len(names), width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(*[Block(width, length) for _ in range(2)])
            self.norm, self.head = LayerNorm(width), nn.Linear(width, len(names), bias=False)

        def forward(self, ids: Any) -> Any:
            x = self.tokens(ids) + self.places(T.arange(ids.shape[1], device=ids.device))
            return self.head(self.norm(self.blocks(x)))
    model = lab.same(Model(8, 6)).to(lab.device)
    optimizer = lab.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.1)
    loader = T.utils.data.DataLoader(Windows(6, 3), batch_size=4, drop_last=False)

    @lab.step
    def step(ids: Any, targets: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        return loss

    def write(start: str, count: int, temperature: float = 0.0, most: int | None = None) -> str:
        ids = T.tensor(encode(start)).unsqueeze(0).to(lab.device)
        for _ in range(count):
            with T.no_grad():
                logits = model(ids[:, -6:])[:, -1, :]
            if most is not None:
                least = T.topk(logits, most)[0][:, -1]
                logits = T.where(logits < least, T.tensor(float("-inf")).to(logits.device), logits)
            if temperature:
                logits = T.softmax(logits / temperature - logits.max(dim=-1, keepdim=True).values, dim=-1)
            following = T.argmax(logits, dim=-1, keepdim=True)
            if following == numbers["!"]:
                break
            ids = T.cat((ids, following), dim=1)
        return re.sub(r"\s+([,.?!])", r"\1", " ".join(names[i] for i in ids.squeeze(0).tolist()))
    found: list[Any] = []
    for _ in range(3):
        model.train()
        found += [step(ids.to(lab.device), targets.to(lab.device)).item() for ids, targets in loader]
        model.eval()
        found.append(write("I had always", 5))
    found.append(write("the cheap genius", 6, 1.4, 5))
    for p in model.parameters():
        p.requires_grad = False
    model.head = lab.same(nn.Linear(8, 2))
    for part in (model.blocks[-1], model.norm):
        for p in part.parameters():
            p.requires_grad = True
    optimizer = lab.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.1)
    for turn in range(4):
        ids, labels = lab.ints(len(names), 3 if turn == 3 else 5, 6), lab.ints(2, 3 if turn == 3 else 5)
        optimizer.zero_grad()
        logits = model(ids)[:, -1, :]
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        found += [loss.item(), (T.argmax(logits, dim=-1) == labels).sum().item()]

    def side_by_side(batch: list[list[int]], padding: int, longest: int) -> Any:
        length, rows = max(len(item) + 1 for item in batch), []
        for item in batch:
            padded = T.tensor([*item, padding] + [padding] * (length - len(item)))
            given, wanted = padded[:-1], padded[1:].clone()
            hidden = T.nonzero(wanted == padding).squeeze()
            if hidden.numel() > 1:
                wanted[hidden[1:]] = -100
            rows.append((given[:longest], wanted[:longest]))
        return tuple(T.stack(part) for part in zip(*rows, strict=True))
    instructions = T.utils.data.DataLoader([[5, 1, 2], [3, 4], [7, 8, 9, 9, 9, 8], [2]], batch_size=3,
                                           collate_fn=partial(side_by_side, padding=0, longest=6))
    return found, [*instructions], model.state_dict()


@program(chaotic=True)
def chunks_of_states(lab: Lab) -> Any:
    """Mamba-2's states: decays summed over segments, within chunks at once and between them by a small product."""
    T, nn, F = lab.T, lab.nn, lab.F

    def segments(x: Any) -> Any:
        length = x.size(-1)
        x = x[..., None].expand(*x.shape, length)
        x = x.masked_fill(~T.tril(T.ones(length, length, device=x.device, dtype=T.bool), diagonal=-1), 0)
        seen = T.tril(T.ones(length, length, device=x.device, dtype=T.bool), diagonal=0)
        return T.cumsum(x, dim=-2).masked_fill(~seen, -T.inf)

    def by_chunks(x: Any, a: Any, b: Any, c: Any, size: int) -> Any:
        x, a, b, c = (part.unflatten(1, (part.shape[1] // size, size)) for part in (x, a, b, c))
        a = a.permute(0, 3, 1, 2)
        sums = T.cumsum(a, dim=-1)
        within = T.einsum("bclhn,bcshn,bhcls,bcshp->bclhp", c, b, T.exp(segments(a)), x)
        states = T.einsum("bclhn,bhcl,bclhp->bchpn", b, T.exp(sums[:, :, :, -1:] - sums), x)
        states = T.cat([T.zeros_like(states[:, :1]), states], dim=1)
        decays = T.exp(segments(F.pad(sums[:, :, :, -1], (1, 0))))
        states = T.einsum("bhzc,bchpn->bzhpn", decays, states)
        before, last = states[:, :-1], states[:, -1]
        return (within + T.einsum("bclhn,bchpn,bhcl->bclhp", c, before, T.exp(sums))).flatten(1, 2), last

    def by_steps(x: Any, a: Any, b: Any, c: Any) -> Any:
        state, found = T.zeros(len(x), *x.shape[2:], b.shape[-1]), []
        for t in range(x.shape[1]):
            state = state * T.exp(a[:, t])[..., None, None] + x[:, t, :, :, None] * b[:, t, :, None, :]
            found.append((state * c[:, t, :, None, :]).sum(-1))
        return T.stack(found, 1), state

    class Block(nn.Module):
        def __init__(self, width: int = 6, heads: int = 2, inner: int = 3, states: int = 3) -> None:
            super().__init__()
            self.sizes = [heads * inner, heads * inner, states, states, heads]
            self.into = nn.Linear(width, sum(self.sizes), bias=False)
            channels = heads * inner + 2 * states
            self.conv = nn.Conv1d(channels, channels, 4, groups=channels, padding=3)
            self.rate_bias, self.decay, self.skip = (nn.Parameter(T.empty(heads)) for _ in range(3))
            self.decay._no_weight_decay = True
            self.norm, self.out_of = nn.RMSNorm(heads * inner), nn.Linear(heads * inner, width, bias=False)

        def forward(self, given: Any) -> Any:
            gate, x, b, c, rate = T.split(self.into(given), self.sizes, dim=-1)
            rate = F.softplus(rate + self.rate_bias)
            mixed = self.conv(T.cat([x, b, c], -1).transpose(1, 2))[..., :given.shape[1]]
            x, b, c = T.split(F.silu(mixed).transpose(1, 2), self.sizes[1:4], dim=-1)
            heads = len(self.decay)
            x = x.unflatten(-1, (heads, -1))
            b, c = (part.unsqueeze(2).expand(-1, -1, heads, -1) for part in (b, c))
            found, state = by_chunks(x * rate.unsqueeze(-1), -T.exp(self.decay) * rate, b, c, 4)
            found = (found + x * self.skip.unsqueeze(-1)).flatten(2)
            return self.out_of(self.norm(found * F.silu(gate))), state

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.head = nn.Embedding(7, 6), nn.Linear(6, 7)
            self.blocks = nn.ModuleList([Block(), Block()])
            self.norms = nn.ModuleList([nn.RMSNorm(6), nn.RMSNorm(6, eps=1e-6)])

        def forward(self, ids: Any) -> Any:
            x, states = self.tokens(ids), []
            for norm, block in zip(self.norms, self.blocks, strict=True):
                more, state = block(norm(x))
                x = x + more
                states.append(state)
            return self.head(x), states
    model = lab.same(Model())
    groups: dict[bool, list[Any]] = {True: [], False: []}
    for p in model.parameters():
        groups[p.ndim > 1 and not getattr(p, "_no_weight_decay", False)].append(p)
    optimizer = lab.optim.AdamW([{"params": groups[True], "weight_decay": 0.1},
                                 {"params": groups[False], "weight_decay": 0.0}], lr=1e-2, betas=(0.9, 0.95))
    schedule = lab.optim.lr_scheduler.SequentialLR(optimizer, [
        lab.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2),
        lab.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)], milestones=[2])

    @lab.step
    def step(ids: Any) -> Any:
        logits, states = model(ids[:, :-1])
        loss = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss, [state.detach() for state in states]
    found = []
    for turn in range(8):
        found.append(step(lab.ints(7, 1 if turn == 7 else 3, 9 if turn % 2 else 13)))
        schedule.step()
        found.append(schedule.get_last_lr())
    given = lab.normal(2, 8, 2, 3), -lab.uniform(2, 8, 2), lab.normal(2, 8, 2, 4), lab.normal(2, 8, 2, 4)
    alike = [T.allclose(a, b) for a, b in zip(by_chunks(*given, 4), by_steps(*given), strict=True)]
    return found, alike, model.state_dict()


@program(chaotic=True)
def all_alignments(lab: Lab) -> Any:
    """RNN-T: the sum over alignments cell by cell, by rows, and by what an encoder attends to where it listens."""
    T, nn, F = lab.T, lab.nn, lab.F

    def by_cells(logs: Any, labels: Any, frames: list[int], lengths: list[int]) -> Any:
        losses = []
        for at, (end, count) in enumerate(zip(frames, lengths, strict=True)):
            alpha: dict[tuple[int, int], Any] = {(0, 0): logs.new_zeros(())}
            for t, u in np.ndindex(end, count + 1):
                terms = []
                if t > 0:
                    terms.append(alpha[t - 1, u] + logs[at, t - 1, u, 0])
                if u > 0:
                    terms.append(alpha[t, u - 1] + logs[at, t, u - 1, labels[at, u - 1]])
                if terms:
                    alpha[t, u] = terms[0] if len(terms) == 1 else T.logaddexp(*terms)
            losses.append(-(alpha[end - 1, count] + logs[at, end - 1, count, 0]))
        return T.stack(losses).mean()

    def by_rows(logs: Any, labels: Any) -> Any:
        rows, frames, places, _ = logs.shape
        silent = logs[..., 0]
        spoken = logs[:, :, :-1].gather(3, labels[:, None, :, None].expand(rows, frames, places - 1, 1)).squeeze(3)
        summed = T.cat([spoken.new_zeros(rows, frames, 1), spoken.cumsum(-1)], -1)
        alpha = summed[:, 0]
        for t in range(1, frames):
            alpha = T.logcumsumexp(alpha + silent[:, t - 1] - summed[:, t], dim=-1) + summed[:, t]
        return -(alpha[:, -1] + silent[:, -1, -1]).mean()

    class Transducer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heard, self.told = nn.GRU(3, 4, batch_first=True), nn.LSTM(4, 4, batch_first=True)
            self.letters, self.out = nn.Embedding(5, 4, padding_idx=0), nn.Linear(4, 5)

        def forward(self, x: Any, y: Any) -> Any:
            heard, told = self.heard(x)[0], self.told(self.letters(F.pad(y, (1, 0))))[0]
            return self.out(T.tanh(heard[:, :, None] + told[:, None])).log_softmax(-1)
    model = lab.same(Transducer())
    optimizer = lab.optim.Adam(model.parameters(), lr=0.02)

    @lab.step
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        logs = model(x, y)
        loss = by_rows(logs, y)
        frames = T.arange(x.shape[1])
        if (frames > 2).any().item():  # late letters cost
            late = logs.exp()[..., 1:].sum((2, 3)).mean(0)
            loss = loss + 0.01 * sum(late[i] * frames[i].item() for i in range(len(frames)))
        loss.backward()
        optimizer.step()
        return loss, logs
    found: list[Any] = []
    for turn in range(6):
        rows = 2 if turn == 5 else 3
        x, y = lab.normal(rows, 5, 3), 1 + lab.ints(4, rows, 2)
        loss, logs = step(x, y)
        found += [loss, by_cells(logs, y, [5] * rows, [2] * rows), by_rows(logs, y)]
    for _ in range(2):
        optimizer.zero_grad()
        y = 1 + lab.ints(4, 3, 2)
        loss = by_cells(model(lab.normal(3, 4, 3), y), y, [4, 3, 2], [2, 2, 1])
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found, model.state_dict()
