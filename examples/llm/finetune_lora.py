"""Teaches a model to count, with low-rank layers beside its frozen weights, and merges them.

    python examples/llm/train_tiny.py
    python examples/llm/finetune_lora.py runs/tiny runs/counts

`genesis finetune FOLDER data.jsonl --lora 8` does the same for files of chats, prompts or texts.
"""

from __future__ import annotations

import argparse
from itertools import pairwise

import genesis
import genesis.nn.functional as F
from genesis import optim
from genesis.models import AutoModelForCausalLM, CausalLM, LoRA
from genesis.models.data import Example, PackedExamples, copy_tokenizer
from genesis.models.text import Tokenizer, stream_generate
from genesis.utils.data import DataLoader

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def examples(tokenizer: Tokenizer) -> list[Example]:
    """"three → four", of which the answer and its end are learnt."""
    found = []
    for word, following in pairwise(WORDS):
        question, answer = tokenizer.encode(f"{word} → "), tokenizer.encode(following)
        answer += [] if tokenizer.end_id is None else [tokenizer.end_id]
        found.append(Example((*question, *answer), (False,) * len(question) + (True,) * len(answer)))
    return found


def finetune(model: CausalLM, tokenizer: Tokenizer, steps: int, rank: int = 16) -> None:
    """Learn the examples; the model is as it was, with other weights."""
    genesis.manual_seed(0)
    lora = LoRA(model.train(), rank=rank)
    optimizer = optim.AdamW(lora.parameters(), lr=5e-3)
    context = min(128, model.spec.context)  # tokens of a row, in which several examples lie
    rows = DataLoader(PackedExamples(examples(tokenizer) * 4, context), batch_size=4, shuffle=True)
    step = 0
    while step < steps:
        for batch in rows:
            targets = batch.pop("targets")  # what is left are the model's arguments: documents do not see each other
            loss = F.cross_entropy(model(**batch).logits.flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 20 == 0:
                print(f"step {step}  loss {loss.item():.4f}")
            if step == steps:
                break
    lora.merge()


def main() -> None:
    """Read a folder, teach, write a folder, ask."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=120)
    options = parser.parse_args()
    model, tokenizer = AutoModelForCausalLM.from_pretrained(options.folder), Tokenizer.from_pretrained(options.folder)
    finetune(model, tokenizer, options.steps)
    model.save_pretrained(options.out)
    copy_tokenizer(options.folder, options.out)
    for word in WORDS[:-1]:
        answer = "".join(part.text for part in stream_generate(model, tokenizer, f"{word} → ", 12))
        print(f"{word} → {answer}")


if __name__ == "__main__":
    main()
