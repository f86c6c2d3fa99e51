"""Trains a small Llama on the bytes of this project's documentation, and lets it write. A minute on a CPU.

    pip install tokenizers
    python examples/llm/train_tiny.py            # writes runs/tiny, a folder as those of large models

`genesis train` does the same from a configuration, with checkpoints, evaluation and a log.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import genesis
import genesis.nn.functional as F
from genesis import optim
from genesis.models import LlamaConfig, LlamaForCausalLM
from genesis.models.data import TokenWindows, read_texts, write_tokens
from genesis.models.text import Tokenizer, byte_tokenizer, stream_generate, write_byte_tokenizer
from genesis.utils.data import DataLoader

DOCS = Path(__file__).parents[2] / "docs"


def train(steps: int, context: int = 64, batch: int = 16, dim: int = 128, layers: int = 4,
          texts: Path = DOCS) -> LlamaForCausalLM:
    """A model that has seen so many batches of a folder's texts."""
    genesis.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=257, hidden_size=dim, intermediate_size=3 * dim, num_hidden_layers=layers, num_attention_heads=4,
        max_position_embeddings=4 * context, tie_word_embeddings=True, bos_token_id=None, eos_token_id=256))
    optimizer = optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=steps + 1)
    with tempfile.TemporaryDirectory() as folder:
        write_tokens(read_texts([texts]), byte_tokenizer(), folder)
        loader, step = DataLoader(TokenWindows(folder, context), batch, shuffle=True, drop_last=True), 0
        while step < steps:
            for rows in loader:
                logits = model(rows["input_ids"]).logits
                loss = F.cross_entropy(logits.flatten(0, 1), rows["targets"].flatten())
                optimizer.zero_grad()
                loss.backward()
                genesis.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                step += 1
                if step % 20 == 0 or step == steps:
                    print(f"step {step}  loss {loss.item():.4f} nats a byte")
                if step == steps:
                    break
    return model


def main() -> None:
    """Train, save, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", default="runs/tiny")
    options = parser.parse_args()
    train(options.steps).save_pretrained(options.out)
    write_byte_tokenizer(options.out)
    model, tokenizer = LlamaForCausalLM.from_pretrained(options.out), Tokenizer.from_pretrained(options.out)
    for part in stream_generate(model, tokenizer, "The compiler ", 100, temperature=0.7, seed=0):
        print(part.text, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
