"""Recurrent networks, and what else reads step after step."""

from __future__ import annotations

from typing import Any

from .lab import Lab, program


@program(quick=True)
def char_rnn(lab: Lab) -> Any:
    """A character model whose state is carried from piece to piece, then samples greedily."""
    T, nn = lab.T, lab.nn
    text = "the quick brown fox jumps over the lazy dog and runs away from it again "
    letters = sorted(set(text))
    codes = T.LongTensor([letters.index(c) for c in text]).to(lab.device)

    class CharRNN(nn.Module):
        def __init__(self, size: int):
            super().__init__()
            self.encoder, self.rnn = nn.Embedding(size, 8), nn.GRU(8, 16, 1)
            self.decoder = nn.Linear(16, size)

        def forward(self, x: Any, hidden: Any) -> Any:
            out, hidden = self.rnn(self.encoder(x).view(len(x), 1, -1), hidden)
            return self.decoder(out.view(len(x), -1)), hidden

        def init_hidden(self) -> Any:
            return T.zeros(1, 1, 16)
    model = lab.same(CharRNN(len(letters)))
    optimizer, criterion = lab.optim.Adam(model.parameters(), lr=0.01), nn.CrossEntropyLoss()

    @lab.step
    def step(x: Any, y: Any, hidden: Any) -> Any:
        output, hidden = model(x, hidden)
        loss = criterion(output, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, hidden
    hidden, losses = model.init_hidden(), []
    for i in range(10):
        loss, hidden = step(codes[i * 6:i * 6 + 6], codes[i * 6 + 1:i * 6 + 7], hidden.detach())
        losses.append(loss.item())
    said, letter, hidden = [], codes[:1], model.init_hidden()
    with T.no_grad():
        for _ in range(8):
            output, hidden = model(letter, hidden)
            letter = output.data.view(-1).topk(1)[1]
            said.append(letter.item())
    return [losses, said]


@program
def word_language_model(lab: Lab) -> Any:
    """Two LSTM layers with tied weights; truncated backpropagation, clipping, steps by hand."""
    T, nn = lab.T, lab.nn

    class RNNModel(nn.Module):
        def __init__(self, words: int, width: int):
            super().__init__()
            self.encoder, self.rnn = nn.Embedding(words, width), nn.LSTM(width, width, 2, dropout=0.0)
            self.decoder = nn.Linear(width, words)
            self.decoder.weight = self.encoder.weight
            self.init_weights()

        def init_weights(self) -> None:
            nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
            nn.init.zeros_(self.decoder.bias)

        def forward(self, input: Any, hidden: Any) -> Any:
            output, hidden = self.rnn(self.encoder(input), hidden)
            decoded = self.decoder(output).view(-1, 20)
            return nn.functional.log_softmax(decoded, dim=1), hidden

        def init_hidden(self, size: int) -> Any:
            weight = next(self.parameters())
            return weight.new_zeros(2, size, 8), weight.new_zeros(2, size, 8)
    model, criterion = lab.same(RNNModel(20, 8)), nn.NLLLoss()
    text = lab.ints(20, 51, 3)

    def repackage(h: Any) -> Any:
        return h.detach() if isinstance(h, T.Tensor) else tuple(repackage(v) for v in h)

    @lab.step
    def step(data: Any, targets: Any, hidden: Any) -> Any:
        model.zero_grad()
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        T.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-2.0)
        return loss, hidden
    hidden, losses = model.init_hidden(3), []
    for i in range(0, 50, 5):
        loss, hidden = step(text[i:i + 5], text[i + 1:i + 6].reshape(-1), repackage(hidden))
        losses.append(loss.item())
    return [losses, hidden]


@program
def image_rows(lab: Lab) -> Any:
    """An image read row by row by two LSTM layers, both directions; only the last step is used."""
    T, nn = lab.T, lab.nn

    class BiRNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(7, 6, 2, batch_first=True, bidirectional=True)
            self.fc = nn.Linear(12, 4)

        def forward(self, x: Any) -> Any:
            h0, c0 = T.zeros(4, x.size(0), 6).to(x.device), T.zeros(4, x.size(0), 6).to(x.device)
            out, _ = self.lstm(x, (h0, c0))
            return self.fc(out[:, -1, :])
    model = lab.same(BiRNN())
    optimizer = lab.optim.Adam(model.parameters(), lr=0.003)

    @lab.step
    def step(images: Any, labels: Any) -> Any:
        loss = lab.F.cross_entropy(model(images.reshape(-1, 7, 7)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return [step(lab.normal(5, 1, 7, 7), lab.ints(4, 5)).item() for _ in range(10)]


@program
def bilstm_tagger(lab: Lab) -> Any:
    """Sentences of several lengths, padded and packed; padding is left out of the loss."""
    T, nn = lab.T, lab.nn
    pack, pad = nn.utils.rnn.pack_padded_sequence, nn.utils.rnn.pad_packed_sequence
    model = lab.same(nn.ModuleDict({"words": nn.Embedding(30, 8, padding_idx=0),
                                    "lstm": nn.LSTM(8, 6, batch_first=True, bidirectional=True),
                                    "tags": nn.Linear(12, 5)}))
    sentences = [lab.ints(29, n) + 1 for n in (4, 7, 2)]
    tags = [lab.ints(5, n) for n in (4, 7, 2)]
    x = nn.utils.rnn.pad_sequence(sentences, batch_first=True)
    y = nn.utils.rnn.pad_sequence(tags, batch_first=True, padding_value=-1)
    lengths = T.tensor([len(s) for s in sentences])
    optimizer = lab.optim.SGD(model.parameters(), lr=0.5)

    @lab.step
    def step(x: Any, y: Any) -> Any:
        packed = pack(model["words"](x), lengths.cpu(), batch_first=True, enforce_sorted=False)
        out, (h, _) = model["lstm"](packed)
        out, sizes = pad(out, batch_first=True)
        scores = model["tags"](out)
        loss = lab.F.cross_entropy(scores.view(-1, 5), y.view(-1), ignore_index=-1) + h.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, sizes
    return [step(x, y) for _ in range(10)]


@program
def seq2seq_with_attention(lab: Lab) -> Any:
    """An encoder and a decoder that looks back, one token at a time, teacher forcing half of the time."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Decoder(nn.Module):
        def __init__(self, width: int, words: int):
            super().__init__()
            self.embedding, self.gru = nn.Embedding(words, width), nn.GRU(2 * width, width, batch_first=True)
            self.Wa, self.Ua, self.Va = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)
            self.out = nn.Linear(width, words)

        def forward(self, token: Any, hidden: Any, keys: Any) -> Any:
            query = hidden.permute(1, 0, 2)
            scores = self.Va(T.tanh(self.Wa(query) + self.Ua(keys))).squeeze(2).unsqueeze(1)
            context = T.bmm(F.softmax(scores, dim=-1), keys)
            output, hidden = self.gru(T.cat((self.embedding(token), context), dim=2), hidden)
            return self.out(output), hidden
    embedding, encoder = lab.same(nn.Embedding(12, 6)), lab.same(nn.GRU(6, 6, batch_first=True))
    decoder = lab.same(Decoder(6, 12))
    optimizer = lab.optim.Adam([*embedding.parameters(), *encoder.parameters(), *decoder.parameters()], lr=0.01)
    source, target = lab.ints(12, 3, 5), lab.ints(12, 3, 4)

    @lab.step
    def step(source: Any, target: Any, forced: bool) -> Any:
        keys, hidden = encoder(embedding(source))
        token, outputs = T.empty(3, 1, dtype=T.long).fill_(0), []
        for i in range(4):
            output, hidden = decoder(token, hidden, keys)
            outputs.append(output)
            token = target[:, i].unsqueeze(1) if forced else output.topk(1)[1].squeeze(-1).detach()
        logits = F.log_softmax(T.cat(outputs, dim=1), dim=-1)
        loss = nn.NLLLoss()(logits.view(-1, logits.size(-1)), target.view(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return [step(source, target, i % 2 == 0).item() for i in range(10)]


@program
def lstm_cells(lab: Lab) -> Any:
    """Sines predicted by cells in a Python loop, optimized with LBFGS and a closure."""
    T, nn = lab.T, lab.nn
    one, two, linear = lab.same(nn.LSTMCell(1, 6)), lab.same(nn.LSTMCell(6, 6)), lab.same(nn.Linear(6, 1))
    x = T.sin(T.arange(12.0)[None, :] / 2 + T.arange(3.0)[:, None])
    optimizer = lab.optim.LBFGS([p for m in (one, two, linear) for p in m.parameters()], lr=0.4, max_iter=3)
    losses = []

    @lab.step
    def loss_of(x: Any) -> Any:
        h1, c1, h2, c2 = (T.zeros(x.size(0), 6) for _ in range(4))
        outputs = []
        for piece in x[:, :-1].split(1, dim=1):
            h1, c1 = one(piece, (h1, c1))
            h2, c2 = two(h1, (h2, c2))
            outputs += [linear(h2)]
        return nn.MSELoss()(T.cat(outputs, dim=1), x[:, 1:])

    def closure() -> Any:
        optimizer.zero_grad()
        loss = loss_of(x)
        loss.backward()
        losses.append(loss.item())
        return loss
    for _ in range(4):
        optimizer.step(closure)
    return losses


@program
def recurrent_memory(lab: Lab) -> Any:
    """Segments read by a transformer with memory tokens that go from one to the next."""
    T, nn = lab.T, lab.nn
    layer = lab.same(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True))
    head, memory = lab.same(nn.Linear(8, 3)), nn.Parameter(lab.normal(2, 8))
    optimizer = lab.optim.Adam([*layer.parameters(), *head.parameters(), memory], lr=0.003)

    @lab.step
    def step(x: Any, y: Any) -> Any:
        carried = memory.repeat(x.size(0), 1, 1)
        for segment in x.chunk(3, dim=1):
            both = layer(T.cat([carried, segment], dim=1))
            carried = both[:, :2]
        loss = lab.F.cross_entropy(head(carried.mean(dim=1)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return [step(lab.normal(3, 9, 8), lab.ints(3, 3)).item() for _ in range(10)]


@program
def selective_scan(lab: Lab) -> Any:
    """A state-space model with input-dependent steps: a causal depthwise convolution and a scan."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Mamba(nn.Module):
        def __init__(self, width: int = 6, states: int = 3):
            super().__init__()
            self.into, self.conv = nn.Linear(width, 2 * width), nn.Conv1d(width, width, 4, padding=3, groups=width)
            self.x_proj, self.dt_proj = nn.Linear(width, 1 + 2 * states, bias=False), nn.Linear(1, width)
            A = T.arange(1, states + 1, dtype=T.float32).repeat(width, 1)
            self.A_log, self.D = nn.Parameter(T.log(A)), nn.Parameter(T.ones(width))
            self.out, self.states = nn.Linear(width, width), states

        def forward(self, x: Any) -> Any:
            b, length, width = x.shape
            x, gate = self.into(x).split(split_size=[width, width], dim=-1)
            x = F.silu(self.conv(x.transpose(1, 2))[:, :, :length].transpose(1, 2))
            delta, B, C = self.x_proj(x).split([1, self.states, self.states], dim=-1)
            delta = F.softplus(self.dt_proj(delta))
            decay = T.exp(T.einsum("bld,dn->bldn", delta, -T.exp(self.A_log.float())))
            driven = T.einsum("bld,bln,bld->bldn", delta, B, x)
            state, ys = T.zeros(b, width, self.states), []
            for i in range(length):
                state = decay[:, i] * state + driven[:, i]
                ys.append(T.einsum("bdn,bn->bd", state, C[:, i]))
            y = T.stack(ys, dim=1) + x * self.D
            return self.out(y * F.silu(gate))
    model = lab.same(Mamba())
    optimizer = lab.optim.AdamW(model.parameters(), lr=0.003)

    @lab.step
    def step(x: Any) -> Any:
        loss = F.mse_loss(model(x)[:, :-1], x[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return [step(lab.normal(2, 6, 6)).item() for _ in range(10)]


@program
def words_with_averages(lab: Lab) -> Any:
    """A word model of tied weights over stretches of other lengths, whose learning rate follows the length; averaged
    descent takes over at the end, and is evaluated with its averages."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = nn.Embedding(15, 8), nn.Linear(8, 15)
            self.layers = nn.ModuleList([nn.LSTM(8, 10), nn.LSTM(10, 8)])
            self.decoder.weight = self.encoder.weight

        def forward(self, x: Any, hidden: Any, kept: Any) -> Any:
            h, after = self.encoder(x), []
            if kept is not None:
                h = T.autograd.Variable(kept.data.new(1, *kept.shape).copy_(kept), requires_grad=False).expand_as(h) * h
            for layer, state in zip(self.layers, hidden, strict=True):
                h, state = layer(h, state)
                after.append(state)
            return self.decoder(h.view(-1, h.size(2))), after, h

        def begin(self, rows: int) -> list[Any]:
            weight = next(self.parameters()).data
            return [tuple(weight.new(1, rows, width).zero_() for _ in range(2)) for width in (10, 8)]

    def cut_off(state: Any) -> Any:
        return state.detach() if isinstance(state, T.Tensor) else tuple(map(cut_off, state))
    model = lab.same(Model())
    words = lab.ints(15, 203)
    words = words.narrow(0, 0, 200).view(4, -1).t().contiguous()
    optimizer, at, losses = lab.optim.SGD(model.parameters(), lr=1.0, weight_decay=1e-6), 0, []
    hidden = model.begin(4)
    for turn in range(9):
        length, rate = (5, 4, 6)[turn % 3], optimizer.param_groups[0]["lr"]
        optimizer.param_groups[0]["lr"] = rate * length / 5
        x, y = words[at:at + length], words[at + 1:at + 1 + length].view(-1)
        hidden = [cut_off(state) for state in hidden]
        optimizer.zero_grad()
        logits, hidden, h = model(x, hidden, (lab.uniform(4, 8) > 0.3).to(T.get_default_dtype()) / 0.7)
        loss = F.cross_entropy(logits, y)
        (loss + 2 * h.pow(2).mean() + (h[1:] - h[:-1]).pow(2).mean()).backward()
        nn.utils.clip_grad_norm_(list(model.parameters()), 0.25)
        optimizer.step()
        losses.append(loss.data)
        optimizer.param_groups[0]["lr"] = rate
        at += length
        if turn == 4:
            optimizer = lab.optim.ASGD(model.parameters(), lr=0.5, t0=0, lambd=0.0, weight_decay=1e-6)
    own = {}
    for p in model.parameters():
        own[p] = p.data.clone()
        p.data = optimizer.state[p]["ax"].clone()
    with T.no_grad():
        evaluated = F.cross_entropy(model(words[:6], model.begin(4), None)[0], words[1:7].reshape(-1))
    for p in model.parameters():
        p.data = own[p].clone()
    return losses, evaluated, model.encoder.weight, model.encoder.weight is model.decoder.weight
