"""A recurrent network learns to spell numbers, letter by letter, and then writes some.

The text is made here. Hidden states go from one piece of text to the next, cut off from its gradients by `detach`.
"""

import genesis
from genesis import Tensor, nn

ONES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
        "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
LETTERS = " abcdefghijklmnopqrstuvwxyz."
State = tuple[Tensor, Tensor]


def spelled(number: int) -> str:
    """A number below 100 in English."""
    if number < 20:
        return ONES[number]
    tens, ones = divmod(number, 10)
    return TENS[tens - 2] + (f" {ONES[ones]}" if ones else "")


def text(length: int) -> Tensor:
    """Letters' numbers [length]: sentences that count on from a random number."""
    written = ""
    while len(written) < length:
        first = int(genesis.randint(0, 96, ()).item())
        written += " ".join(spelled(first + i) for i in range(4)) + ". "
    return genesis.tensor([LETTERS.index(letter) for letter in written[:length]])


class CharRNN(nn.Module):
    """Letters [batch, time] and a state → logits of the letters after them, and a state."""

    def __init__(self, width: int = 128):
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), width)
        self.rnn = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, len(LETTERS))

    def forward(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        hidden, state = self.rnn(self.letters(x), state)
        return self.head(hidden), state


def train(steps: int = 400, batch: int = 16, time: int = 32) -> CharRNN:
    """Read `batch` texts side by side, `time` letters a step."""
    genesis.manual_seed(0)
    model = CharRNN()
    optimizer = genesis.optim.Adam(model.parameters(), lr=5e-3)
    texts = text(batch * (time * 100 + 1)).view(batch, -1)
    state: State | None = None
    for step in range(steps):
        start = step % 100 * time
        if start == 0:
            state = None
        x, y = texts[:, start:start + time], texts[:, start + 1:start + time + 1]
        logits, state = model(x, state)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        state = (state[0].detach(), state[1].detach())
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step:3d}  loss {loss.item():.3f}")
    return model


@genesis.no_grad()
def write(model: CharRNN, start: str, length: int = 60) -> str:
    """The likeliest letters after a beginning."""
    letter, state, written = genesis.tensor([[LETTERS.index(c) for c in start]]), None, start
    for _ in range(length):
        logits, state = model(letter, state)
        letter = logits[:, -1:].argmax(-1)
        written += LETTERS[int(letter.item())]
    return written


if __name__ == "__main__":
    model = train()
    for start in ("twelve ", "forty one forty two "):
        print(write(model, start))
