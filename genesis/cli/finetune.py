"""Fine-tunes the language model of a folder on the examples of a .jsonl file.

    genesis finetune Qwen/Qwen3-0.6B chats.jsonl -o runs/mine            # all weights
    genesis finetune Qwen/Qwen3-0.6B chats.jsonl -o runs/mine --lora 8   # low-rank layers, merged at the end

A line holds {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}, of which what the
assistant says is learnt; {"prompt": "…", "completion": "…"}, of which the completion is; or {"text": "…"}. Several
examples share a row and do not see each other. runs/mine/model is a folder as FOLDER is. Ctrl-C and SIGTERM save at the
end of the step; the same command goes on.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from genesis.cli import language, train
from genesis.cli.run_config import (
    CheckpointsConfig,
    EvaluationConfig,
    LogConfig,
    OptimizerConfig,
    RunConfig,
    ScheduleConfig,
)

HELP = "fine-tune a language model on texts and chats"

FULL_RATE, LOW_RANK_RATE = 1e-5, 2e-4
"""Learning rates by default: of all weights, and of low-rank layers, which begin at 0."""

ALPHA = 16.0
"""Low-rank layers are scaled by this over their rank by default."""

EVALUATE_EVERY = 100
"""Steps between two evaluations by default."""

BATCH = 4
"""Rows of a batch by default, where the examples fill so many."""


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(RunConfig):
    """A fine-tuning run.

    Attributes:
        folder: of the model.
        examples, validation: .jsonl files; the second may be None.
        context: tokens of a row.
        rank, alpha, dropout: of the low-rank layers; rank 0 learns all weights.
        answers_only: prompts and questions are not learnt.
    """

    folder: str
    examples: str
    validation: str | None
    context: int
    rank: int
    alpha: float
    dropout: float
    answers_only: bool

    def inputs(self) -> Mapping[str, str]:
        """The model's folder, and the files of examples."""
        named = {"folder": self.folder, "examples": self.examples, "validation": self.validation}
        return {field: path for field, path in named.items() if path is not None}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("folder", help="of the model, or its name in Hugging Face's cache")
    parser.add_argument("examples", help="a .jsonl file")
    parser.add_argument("--output", "-o", required=True, help="the run's folder")
    parser.add_argument("--lora", type=int, default=0, metavar="RANK",
                        help="learn low-rank layers; 0 for all weights (0)")
    parser.add_argument("--alpha", type=float, help=f"low-rank layers are scaled by alpha / rank ({ALPHA:g})")
    parser.add_argument("--dropout", type=float, help="of what goes into low-rank layers (0)")
    parser.add_argument("--epochs", type=float, default=1.0, help="passes through the examples (1)")
    parser.add_argument("--steps", type=int, help="instead of --epochs")
    parser.add_argument("--batch", type=int,
                        help=f"rows that go through the model at once ({BATCH}, or as many as the examples fill)")
    parser.add_argument("--accumulate", type=int, default=1, help="batches of a step (1)")
    parser.add_argument("--context", type=int, default=1024, help="tokens of a row, at most the model's (1024)")
    parser.add_argument("--lr", type=float, help=f"learning rate ({FULL_RATE}, with --lora {LOW_RANK_RATE})")
    parser.add_argument("--warmup", type=int, default=10, help="steps (10)")
    parser.add_argument("--weight-decay", type=float, default=0.0, help="of matrices (0)")
    parser.add_argument("--learn-all", action="store_true", help="learn prompts and questions too")
    parser.add_argument("--validation", help="a .jsonl file whose loss is told")
    parser.add_argument("--evaluate-every", type=int, help=f"steps between two evaluations ({EVALUATE_EVERY})")
    parser.add_argument("--save-every", type=int, default=500, help="steps (500)")
    parser.add_argument("--log-every", type=int, default=10, help="steps (10)")
    parser.add_argument("--device", help="cpu or cuda; a GPU if there is one")
    parser.add_argument("--precision", choices=("float32", "bfloat16", "float16"),
                        help="of products; bfloat16 on a GPU, float32 on the CPU")
    parser.add_argument("--seed", type=int, default=0, help="(0)")


def run(arguments: argparse.Namespace) -> int:
    """Fine-tune, or go on with it; statuses as of `genesis train`."""
    return language.refused(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    rate = LOW_RANK_RATE if arguments.lora else FULL_RATE
    if not 0 < arguments.epochs < math.inf:
        raise ValueError(f"--epochs {arguments.epochs} is no number of passes: it is more than 0")
    if not arguments.lora and (arguments.alpha is not None or arguments.dropout is not None):
        raise ValueError("--alpha and --dropout are of low-rank layers: give --lora RANK, too")
    evaluate_every = arguments.evaluate_every
    if evaluate_every and arguments.validation is None:
        raise ValueError(f"--evaluate-every {evaluate_every} needs --validation: what it evaluates on")
    config = FinetuneConfig(
        out=arguments.output, steps=1 if arguments.steps is None else arguments.steps, seed=arguments.seed,
        device=arguments.device, precision=arguments.precision, accumulate=arguments.accumulate,
        batch=BATCH if arguments.batch is None else arguments.batch,
        optimizer=OptimizerConfig(lr=rate if arguments.lr is None else arguments.lr,
                                  betas=(0.9, 0.999), weight_decay=arguments.weight_decay),
        schedule=ScheduleConfig(warmup=arguments.warmup),
        evaluation=EvaluationConfig(EVALUATE_EVERY if evaluate_every is None else evaluate_every, 0),
        checkpoints=CheckpointsConfig(arguments.save_every), log=LogConfig(arguments.log_every),
        folder=arguments.folder, examples=arguments.examples, validation=arguments.validation,
        context=arguments.context, rank=arguments.lora, alpha=ALPHA if arguments.alpha is None else arguments.alpha,
        dropout=arguments.dropout or 0.0,
        answers_only=not arguments.learn_all)
    ending = train.fit(prepared(config, arguments.epochs if arguments.steps is None else None, arguments.batch is None))
    print(ending.text, flush=True)
    return ending.status


def prepared(config: FinetuneConfig, epochs: float | None = None, fewer: bool = False) -> train.Run:
    """The run: a folder's model, and rows of examples.

    Args:
        config: what is wanted; its steps are those of `epochs`, if these are given.
        epochs: passes through the examples.
        fewer: the batch is made smaller where the examples do not fill it.

    Raises:
        FileNotFoundError: a folder or a file is missing.
        ValueError: examples are malformed, or there are fewer than a step takes.
    """
    import genesis
    from genesis.models import AutoModelForCausalLM, LoRA
    from genesis.models.data import PackedExamples, read_examples
    from genesis.models.folder import find_folder
    from genesis.models.text import Tokenizer
    from genesis.utils.data import DataLoader
    config = train.resolved(config)
    genesis.manual_seed(config.seed)
    tokenizer = Tokenizer.from_pretrained(config.folder)
    model = AutoModelForCausalLM.from_pretrained(config.folder, device=config.device).train()
    stored = next(model.parameters()).dtype
    config = replace(config, context=min(config.context, model.spec.context))
    lora = LoRA(model, config.rank, config.alpha, config.dropout) if config.rank else None
    if lora is None or config.precision == "float32":
        model.to(genesis.float32)

    def rows_of(path: str) -> PackedExamples:
        found = PackedExamples(read_examples(path, tokenizer, config.answers_only), config.context)
        print(f"{path}: {len(found.examples)} examples in {len(found)} rows of {config.context} tokens"
              + (f"; {found.cut} were longer and are cut" if found.cut else ""), flush=True)
        return found
    rows = rows_of(config.examples)
    if fewer and (full := max(1, len(rows) // config.accumulate)) < config.batch:
        print(f"a batch has {full} rows, as many as there are; --batch says another number", flush=True)
        config = replace(config, batch=full)
    validation: DataLoader | None = None
    if config.validation is not None:
        validation = DataLoader(rows_of(config.validation), config.batch, generator=genesis.Generator())
    batches = train.loader(rows, config)
    if epochs is not None:
        config = replace(config, steps=max(1, round(epochs * len(batches))))

    def save() -> Path:
        if lora is not None:
            lora.merge()
        return train.save_folder(model.to(stored), Path(config.out) / "model", find_folder(config.folder))
    return train.Run(config, model, model if lora is None else lora, batches, validation, tokenizer, save)
