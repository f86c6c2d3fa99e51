"""What the commands for language models share: their options, and the model of a folder."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from genesis.models.text import Fragment, Tokenizer

T = TypeVar("T")


def add_model(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """The folder, which may have a default, the device and the dtype."""
    folder = parser.add_mutually_exclusive_group(required=default is None)
    folder.add_argument("folder", nargs="?", default=argparse.SUPPRESS,
                        help="of config.json and safetensors files, or a name in Hugging Face's cache"
                             + (f" ({default})" if default else ""))
    folder.add_argument("--model", dest="folder", metavar="FOLDER", default=default, help="the same")
    parser.add_argument("--device", help="cpu or cuda; a GPU if there is one")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help="of the weights; as stored")


def longest(model: Any, slots: int | None) -> int | None:
    """The most tokens of a text, the answer included: those that a model has a table of positions for, or fewer slots
    of a cache; None for any number."""
    return min((most for most in (model.spec.position_table, slots) if most), default=None)


def room(model: Any, ids: Sequence[int], wanted: int, before: int = 0, slots: int | None = None) -> int:
    """How many of the wanted tokens fit behind a prompt, and what a cache holds before it.

    Raises:
        ValueError: none do.
    """
    most, there = longest(model, slots), before + len(ids)
    if most and there >= most:
        raise ValueError(f"the prompt has {there} tokens, which leaves no room for an answer: " + (
            f"the model's table of positions has {most}" if most == model.spec.position_table else
            f"--max-kv-size is {most}"))
    return min(wanted, most - there) if most else wanted


TOLD = ("messages", "add_generation_prompt", "continue_final_message")
"""What a chat template is told by the command itself."""

PLACE = "<query>"
"""Stands for the prompt where a chat is asked for what its template writes around it."""


def add_prompt(parser: argparse.ArgumentParser) -> None:
    """The prompt, and how it is put to the model."""
    parser.add_argument("--prompt", "-p", required=True, help="the text; - for standard input")
    parser.add_argument("--system-prompt", help="what the model is told first, through its chat template")
    parser.add_argument("--ignore-chat-template", action="store_true", help="continue the text as it is")
    add_template_values(parser)


def add_template_values(parser: argparse.ArgumentParser) -> None:
    """What else a chat template is told."""
    parser.add_argument("--chat-template-config", type=template_values, default={}, metavar="JSON",
                        help="what else the template asks for, such as '{\"enable_thinking\": false}'")


def template_values(text: str) -> dict[str, Any]:
    """The value of --chat-template-config."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"this is no JSON ({error})") from None
    if not isinstance(found, dict) or found.keys() & TOLD:
        raise argparse.ArgumentTypeError(f"{text} is no JSON object of names other than {', '.join(TOLD)}")
    return found


def prompt_of(arguments: argparse.Namespace) -> str:
    """The prompt's text.

    Raises:
        ValueError: it is no UTF-8.
    """
    return utf8(sys.stdin.read() if arguments.prompt == "-" else str(arguments.prompt))


def utf8(text: str) -> str:
    """A text of the terminal or of the command line, where bytes that are no UTF-8 have become lone surrogates.

    Raises:
        ValueError: it has some.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the prompt is no UTF-8 text ({error})") from None
    return text


def chat_of(arguments: argparse.Namespace, tokenizer: Tokenizer, prompt: str) -> list[dict[str, Any]]:
    """The prompt as a chat; empty where there is no template for one, or it is not wanted."""
    if tokenizer.chat_template is None or arguments.ignore_chat_template:
        return []
    system = [{"role": "system", "content": arguments.system_prompt}] if arguments.system_prompt else []
    return [*system, {"role": "user", "content": prompt}]


def recent(model: Any, ids: Sequence[int], slots: int | None = None) -> list[int]:
    """A conversation's last tokens: half of what a text may have, so that there is room to answer."""
    most = longest(model, slots)
    return list(ids)[-max(1, most // 2):] if most else list(ids)


def slots(text: str) -> int:
    """The value of --max-kv-size."""
    if (number := int(text)) < 2:
        raise argparse.ArgumentTypeError(f"{number} slots have no room for a prompt and an answer")
    return number


def add_slots(parser: argparse.ArgumentParser) -> None:
    """How long a text may become."""
    parser.add_argument("--max-kv-size", type=slots, metavar="SLOTS",
                        help="of the cache of keys and values: the most tokens of prompt and answer together")


def add_sampling(parser: argparse.ArgumentParser, temperature: float) -> None:
    """How tokens are chosen."""
    parser.add_argument("--max-tokens", "-m", type=int, default=256, help="the longest answer (256)")
    parser.add_argument("--temp", type=float, default=temperature, help=f"0 takes the likeliest ({temperature})")
    parser.add_argument("--top-p", type=float, default=1.0, help="probability of the tokens that remain (1)")
    parser.add_argument("--top-k", type=int, default=0, help="how many tokens remain, 0 for all (0)")
    parser.add_argument("--min-p", type=float, default=0.0, help="least fraction of the likeliest's probability (0)")
    parser.add_argument("--min-tokens-to-keep", type=int, default=1, help="likeliest tokens that --min-p leaves (1)")
    parser.add_argument("--repetition-penalty", type=float, default=1.0, help="for tokens that occurred (1)")
    parser.add_argument("--seed", type=int, help="of the draws")
    parser.add_argument("--extra-eos-token", action=EndingStrings, nargs="+", default=[], metavar="TEXT",
                        help="strings that end it; the folder comes before them, or behind --model")
    add_slots(parser)


class EndingStrings(argparse.Action):
    """Strings behind one option, which may be given again: the later ones are added."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> None:
        """Take the next ones; an error where the last of them is a model's folder, whose place is before."""
        *others, last = values
        if others and os.path.isfile(os.path.join(last, "config.json")):
            parser.error(f"{last} would be a string that ends the answer: a folder comes before {option_string}, or "
                         "behind --model")
        setattr(namespace, self.dest, [*getattr(namespace, self.dest), *values])


def truth(text: str) -> bool:
    """The value of --verbose, as mlx-lm's is written.

    >>> truth("T"), truth("false")
    (True, False)
    """
    if text.lower() not in ("t", "true", "f", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is none of T, True, F and False (a folder comes before options)")
    return text.lower() in ("t", "true")


def opened(arguments: argparse.Namespace) -> tuple[Any, Tokenizer]:
    """The model and the tokenizer of a folder."""
    model, tokenizer, _ = opened_while(arguments, lambda tokenizer: None)
    return model, tokenizer


def opened_while(arguments: argparse.Namespace, prepare: Callable[[Tokenizer], T]) -> tuple[Any, Tokenizer, T]:
    """The model and the tokenizer of a folder, and what is made with the tokenizer meanwhile.

    A thread reads the tokenizer, and starts the process that writes a chat: each takes as long as the driver takes to
    begin, and as the weights take to the GPU.
    """
    import genesis
    from genesis.models import AutoModelForCausalLM
    from genesis.models.text import Tokenizer

    def read() -> tuple[Tokenizer, T]:
        tokenizer = Tokenizer.from_pretrained(arguments.folder)
        return tokenizer, prepare(tokenizer)
    with ThreadPoolExecutor(1, "genesis-tokenizer") as pool:
        reading = pool.submit(read)
        device = device_of(arguments.device)
        dtype = getattr(genesis, arguments.dtype) if arguments.dtype else None
        if reading.done():
            reading.result()  # a tokenizer that is not there is told before the weights are read
        model = AutoModelForCausalLM.from_pretrained(arguments.folder, dtype=dtype, device=device)
        return model, *reading.result()


def device_of(name: str | None) -> str:
    """The device of that name; by default a GPU if there is one.

    Raises:
        ValueError: it cannot be used here.
    """
    import genesis
    if name is None:
        return "cuda" if genesis.cuda.is_available() else "cpu"
    try:
        genesis.empty(0, device=name)
    except RuntimeError as error:
        raise ValueError(str(error)) from None
    return name


def options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of `stream_generate`."""
    return {"max_new_tokens": arguments.max_tokens, "temperature": arguments.temp, "top_p": arguments.top_p,
            "top_k": arguments.top_k or None, "min_p": arguments.min_p, "seed": arguments.seed,
            "min_tokens_to_keep": arguments.min_tokens_to_keep,
            "repetition_penalty": arguments.repetition_penalty, "stop": arguments.extra_eos_token}


def show(fragments: Iterator[Fragment]) -> tuple[str, Fragment | None]:
    """Print an answer as it is made; returns it and its last fragment."""
    text, last = "", None
    for last in fragments:
        text += last.text
        print(last.text, end="", flush=True)
    print()
    return text, last


def speeds(last: Fragment) -> str:
    """One line of figures."""
    memory = f", {last.peak_memory / 1e9:.2f} GB at most" if last.peak_memory else ""
    return (f"prompt {last.prompt_tokens} tokens, {last.prompt_speed:,.1f} tokens/s; answer {last.generated_tokens} "
            f"tokens, {last.generation_speed:,.1f} tokens/s{memory}")


def perplexity(loss: float) -> str:
    """The exponential of a loss in nats, for people.

    >>> perplexity(1.0), perplexity(20.0), perplexity(1e4), perplexity(float("nan"))
    ('2.718', '4.852e+08', 'inf', 'nan')
    """
    try:
        found = math.exp(loss)
    except OverflowError:
        found = math.inf
    return f"{found:.3f}" if not found >= 1e6 else f"{found:.3e}"


def refused(work: Callable[[], int]) -> int:
    """Run a command; what the user can mend is one line on standard error."""
    try:
        return work()
    except BrokenPipeError:  # the reader of our output went away: main's to handle
        raise
    except (OSError, ImportError, MemoryError, ValueError) as error:
        print(f"genesis: {error}", file=sys.stderr)
        return 2
