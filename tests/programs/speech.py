"""Speech: letters from a spectrogram without an alignment, and voices told apart."""

from __future__ import annotations

from typing import Any

from .lab import Lab, program


@program
def letters_of_speech(lab: Lab) -> Any:
    """Convolutions, a recurrent layer of both directions and connectionist temporal classification, read greedily."""
    T, nn, F = lab.T, lab.nn, lab.F
    letters, blank = 5, 5

    class OverBands(nn.Module):
        """Layer norm over the bands of a spectrogram, which come before its frames."""

        def __init__(self, bands: int) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(bands)

        def forward(self, x: Any) -> Any:
            return self.norm(x.transpose(2, 3).contiguous()).transpose(2, 3).contiguous()

    class Residual(nn.Module):
        def __init__(self, channels: int, bands: int) -> None:
            super().__init__()
            self.norms = nn.ModuleList([OverBands(bands), OverBands(bands)])
            self.layers = nn.ModuleList([nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2)])

        def forward(self, x: Any) -> Any:
            before = x
            for norm, layer in zip(self.norms, self.layers, strict=True):
                x = layer(F.gelu(norm(x)))
            x += before
            return x

    class Listener(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(1, 4, 3, stride=2, padding=1)
            self.blocks = nn.Sequential(Residual(4, 4), Residual(4, 4))
            self.narrow = nn.Linear(16, 12)
            self.recurrent = nn.GRU(12, 10, num_layers=2, batch_first=True, bidirectional=True)
            self.head = nn.Sequential(nn.Linear(20, 12), nn.GELU(), nn.Linear(12, letters + 1))

        def forward(self, x: Any) -> Any:
            x = self.blocks(self.first(x))
            count, channels, bands, frames = x.size()
            x = self.narrow(x.view(count, channels * bands, frames).transpose(1, 2))
            return self.head(self.recurrent(x)[0])

    model = lab.same(Listener())
    criterion = nn.CTCLoss(blank=blank, zero_infinity=True)
    optimizer = lab.optim.AdamW(model.parameters(), 5e-3)
    schedule = lab.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, steps_per_epoch=3, epochs=2,
                                                 anneal_strategy="linear")

    @lab.step
    def step(heard: Any, said: Any, frames: list[int], lengths: list[int]) -> tuple[Any, Any]:
        optimizer.zero_grad()
        found = F.log_softmax(model(heard), dim=2)
        loss = criterion(found.transpose(0, 1), said, frames, lengths)
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss, found

    def read_greedily(found: Any) -> list[list[int]]:
        """The likeliest letter of each frame, without blanks and repeats."""
        texts = []
        for frames in T.argmax(found, dim=2):
            text = []
            for at, letter in enumerate(frames):
                if letter != blank and (at == 0 or letter != frames[at - 1]):
                    text.append(letter.item())
            texts.append(text)
        return texts

    losses, found = [], None
    for _ in range(6):
        texts = [lab.ints(letters, n) for n in (4, 2, 3)]
        said = nn.utils.rnn.pad_sequence(texts, batch_first=True)
        loss, found = step(lab.normal(3, 1, 8, 20), said, [10, 10, 8], [len(text) for text in texts])
        losses.append(loss.item())
    read = read_greedily(found.detach())  # type: ignore[union-attr]
    return losses, [len(text) for text in read], [letter for text in read for letter in text], schedule.get_last_lr()


@program
def voices(lab: Lab) -> Any:
    """Utterances near the centroid of their speaker's others, and apart from those of other speakers."""
    T, nn, F = lab.T, lab.nn, lab.F
    speakers, utterances = 3, 4

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.recurrent = nn.LSTM(6, 12, num_layers=2, batch_first=True)
            for name, weight in self.recurrent.named_parameters():
                if "bias" in name:
                    nn.init.constant_(weight, 0.0)
                else:
                    nn.init.xavier_normal_(weight)
            self.head = nn.Linear(12, 8)

        def forward(self, x: Any) -> Any:
            x = self.head(self.recurrent(x)[0][:, x.size(1) - 1])
            return x / T.norm(x, dim=1).unsqueeze(1)

    class Likeness(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.shift = nn.Parameter(T.tensor(10.0)), nn.Parameter(T.tensor(-5.0))

        def forward(self, found: Any) -> tuple[Any, Any]:
            centroids = found.mean(dim=1)
            others = (found.sum(dim=1, keepdim=True) - found) / (utterances - 1)
            alike = F.cosine_similarity(found.unsqueeze(2), centroids[None, None], dim=-1)
            own = T.arange(speakers)
            alike[own, :, own] = F.cosine_similarity(found, others, dim=2)
            alike = self.scale * alike + self.shift
            loss = (T.exp(alike).sum(dim=2) + 1e-6).log_() - alike[own, :, own]
            return loss.sum(), alike

    encoder, likeness = lab.same(Encoder()), Likeness()
    triplets = nn.TripletMarginLoss(margin=0.4, swap=True)
    optimizer = lab.optim.SGD([{"params": encoder.parameters()}, {"params": likeness.parameters(), "lr": 0.1}], lr=0.05,
                              momentum=0.9, nesterov=True)

    @lab.step
    def step(x: Any) -> tuple[Any, Any]:
        optimizer.zero_grad()
        found = encoder(x.reshape(speakers * utterances, *x.shape[2:]))
        loss, alike = likeness(found.view(speakers, utterances, -1))
        loss = loss + triplets(found[0:4], found[4:8], found[8:12])
        loss.backward()
        nn.utils.clip_grad_norm_(encoder.parameters(), 3.0)
        nn.utils.clip_grad_norm_(likeness.parameters(), 1.0)
        optimizer.step()
        return loss, alike.detach()

    turns = [step(lab.normal(speakers, utterances, 9, 6)) for _ in range(6)]
    alike = turns[-1][1].reshape(-1, speakers)
    return turns, [(alike > bound).to(alike.dtype).mean(0).tolist() for bound in (0.1, 0.5)]
