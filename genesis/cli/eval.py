"""How well the language model of a folder predicts a text.

    genesis eval Qwen/Qwen3-0.6B book.txt
"""

from __future__ import annotations

import argparse
from pathlib import Path

from genesis.cli import language

HELP = "perplexity of a text under a language model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    language.add_model(parser)
    parser.add_argument("text", type=Path, help="a file of UTF-8 text")
    parser.add_argument("--window", type=int, default=1024,
                        help="tokens that are read at once, at most as many as the model has positions for (1024)")


def run(arguments: argparse.Namespace) -> int:
    """Print the loss and the perplexity."""
    return language.refused(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    from genesis.models.data.texts import read_text
    model, tokenizer = language.opened(arguments)
    ids = tokenizer.encode(read_text(arguments.text))
    window = min(arguments.window, model.spec.position_table or arguments.window)
    loss, count = mean_loss(model, ids, window)
    print(f"{count} tokens: loss {loss:.4f} nats a token, perplexity {language.perplexity(loss)}")
    return 0


def mean_loss(model: object, ids: list[int], window: int) -> tuple[float, int]:
    """The mean cross-entropy in nats of each token given those before it in its window, and how many were predicted.

    Windows share one token: the last of one is the first of the next, so that each but the first is predicted once.

    Raises:
        ValueError: fewer than two tokens, or a window of fewer.
    """
    import genesis
    if len(ids) < 2 or window < 2:
        raise ValueError(f"a text of {len(ids)} tokens in windows of {window}: two are needed to predict one")
    device = next(model.parameters()).device  # type: ignore[attr-defined]
    total, count = 0.0, 0
    with genesis.no_grad():
        for start in range(0, len(ids) - 1, window - 1):
            part = genesis.tensor([ids[start:start + window]], device=device)
            predicted = part.shape[1] - 1
            total += model(part, labels=part).loss.item() * predicted  # type: ignore[operator]
            count += predicted
    return total / count, count
