"""docs/performance.md and its plots, made of what benchmarks/results has.

    python benchmarks/performance.py           # write docs/performance.md and docs/plots/*.svg
    python benchmarks/performance.py --check   # say whether they are what the results say
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "benchmarks" / "results"
DOCS: Final = ROOT / "docs"

WIDTH, LABELS, BAR, GAP = 760, 300, 16, 6
"""Pixels: of a plot, of the labels at its left, the height of a bar, and between two."""

COLOURS: Final = ("#4269d0", "#9c9c9c", "#efb118", "#3ca951", "#ff725c")
"""Genesis, then its peers."""


@dataclass(frozen=True)
class Figure:
    """Bars in groups: for each label a number of each contestant, who may be missing.

    Attributes:
        unit: what a number is.
        better: "more" or "less".
    """

    name: str
    title: str
    unit: str
    better: str
    contestants: tuple[str, ...]
    groups: tuple[tuple[str, tuple[float | None, ...]], ...]
    origin: str


def figures(results: Path = RESULTS) -> list[Figure]:
    """Of every file that is there."""
    makers = {"gpt2_step": training, "model_steps": models, "matmul": products, "layers": layers,
              "attention": attention, "bars": memory_bound, "scans_and_sorts": memory_bound, "decode": decoding}
    found = []
    for name, maker in makers.items():
        path = results / f"{name}.json"
        if path.exists():
            found.append(maker(name, json.loads(path.read_text(encoding="utf-8"))))
    return [*found, *(sweep(path.stem, json.loads(path.read_text(encoding="utf-8")))
                      for path in sorted(results.glob("sweep_*.json")))]


def origin(data: dict[str, Any]) -> str:
    """Where the numbers come from."""
    return f"`{data['command']}`, {data['gpu'] or data['processor']}, torch {data['torch']}, {data['date']}"


def training(name: str, data: dict[str, Any]) -> Figure:
    """A step of GPT-2."""
    rows = data["results"]
    return Figure(name, "A training step of GPT-2 124M, 16 × 1024 tokens, bfloat16 autocast", "ms", "less",
                  tuple(rows), (("step", tuple(row["ms"] for row in rows.values())),), origin(data))


def models(name: str, data: dict[str, Any]) -> Figure:
    """Steps of whole models."""
    names = ("eager", "compile", "genesis")
    return Figure(name, "Training steps of whole models, bfloat16 autocast, clipping, AdamW", "ms", "less", names,
                  tuple((row, tuple(found["contestants"].get(x, {}).get("ms") for x in names))
                        for row, found in data["rows"].items()), origin(data))


def products(name: str, data: dict[str, Any]) -> Figure:
    """A linear layer's three products beside cuBLAS."""
    return Figure(name, "Products of bfloat16 (M × K × N): cuBLAS' time by ours", "times as fast", "more", ("genesis",),
                  tuple((f"{' × '.join(map(str, row['shape']))}, {row['kind']}", (max(row["of_cublas"].values()),))
                        for row in data["rows"]), origin(data))


def layers(name: str, data: dict[str, Any]) -> Figure:
    """Layers by name beside the fastest of torch's ways, and their bars."""
    return Figure(name, "Layers by name, against torch's fastest way or a copy",
                  "times as fast, or parts of the copy rate", "more", ("genesis", "bar"),
                  tuple((f"{row['text']}{', of a copy' if row['of_copy'] else ''}", (row["reached"], row["bar"]))
                        for row in data["rows"]), origin(data))


def attention(name: str, data: dict[str, Any]) -> Figure:
    """Causal attention, forward and both directions."""
    contestants = tuple(dict.fromkeys(c for row in data["results"].values() for c in row))
    groups = tuple((f"{shape}, {text}", tuple(row.get(c, {}).get(f"{direction}_tflops") for c in contestants))
                   for shape, row in data["results"].items()
                   for direction, text in (("forward", "forward"), ("both", "with backward")))
    return Figure(name, "Causal attention in bfloat16 (batch × heads × length × head size)", "TFLOP/s", "more",
                  contestants, groups, origin(data))


def memory_bound(name: str, data: dict[str, Any]) -> Figure:
    """Workloads as fractions of the copy rate."""
    contestants = tuple(dict.fromkeys(row["contestant"] for row in data["rows"]
                                      if row["contestant"] in ("genesis", "eager", "compile")))
    table: dict[str, dict[str, float]] = {}
    for row in data["rows"]:
        table.setdefault(f"{row['workload']}, {row['direction']}", {})[row["contestant"]] = row["fraction"]
    title = "Memory-bound workloads" if name == "bars" else "Scans, sorts, and rows of tables"
    title = f"{title}, against a copy of {data['copy_gb_per_s']:.0f} GB/s"
    return Figure(name, title, "parts of the copy rate", "more", contestants,
                  tuple((label, tuple(row.get(c) for c in contestants)) for label, row in table.items()),
                  origin(data))


def decoding(name: str, data: dict[str, Any]) -> Figure:
    """Tokens a second of a language model that writes."""
    rows = [row for row in data["rows"] if "tokens_per_second" in row]
    return Figure(name, "Language models that write (parameters @ context, × batch)", "tokens/s", "more", ("genesis",),
                  tuple((row["row"], (row["tokens_per_second"],)) for row in rows), origin(data))


def sweep(name: str, data: dict[str, Any]) -> Figure:
    """Geometric mean and worst of drawn cases against the faster of torch's two."""
    return Figure(name, f"Shapes that nobody chose, seed {data['seed']}, against the faster of eager and torch.compile",
                  "times as fast", "more", ("geometric mean", "worst"),
                  tuple((row["family"], (row["geometric_mean"], row["worst"])) for row in data["families"]),
                  origin(data))


# Drawing

def svg(figure: Figure) -> str:
    """The figure as a picture of horizontal bars."""
    largest = max((value for _, values in figure.groups for value in values if value is not None), default=1.0)
    y, body = 44, []
    for label, values in figure.groups:
        body.append(_text(LABELS - 8, y + (len(values) * BAR) / 2 + 4, label, "end"))
        for number, value in enumerate(values):
            if value is not None:
                width = max(1.0, value / largest * (WIDTH - LABELS - 70))
                body.append(f'<rect x="{LABELS}" y="{y}" width="{width:.1f}" height="{BAR - 2}" '
                            f'fill="{COLOURS[number % len(COLOURS)]}"/>')
                body.append(_text(LABELS + width + 5, y + BAR - 4, shown(value)))
            y += BAR
        y += GAP
    legend, x = [], LABELS
    for number, contestant in enumerate(figure.contestants):
        legend.append(f'<rect x="{x}" y="16" width="12" height="12" fill="{COLOURS[number % len(COLOURS)]}"/>')
        legend.append(_text(x + 16, 27, contestant))
        x += 30 + 7 * len(contestant)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 8}" font-family="sans-serif" '
            f'font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
            + "\n".join([_text(8, 27, f"{figure.unit}, {figure.better} is better"), *legend, *body]) + "\n</svg>\n")


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def shown(value: float) -> str:
    """A number with three digits or so."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def page(found: Iterable[Figure]) -> str:
    """The document."""
    lines = ["# Performance", "",
             "Made by `python benchmarks/performance.py` of the files in `benchmarks/results`; what they mean and how "
             "they were", "measured says [measured.md](measured.md). Every figure has the command that gives it.", ""]
    for figure in found:
        lines += [f"## {figure.title}", "", f"![{figure.title}](plots/{figure.name}.svg)", "",
                  f"In {figure.unit}; {figure.better} is better. {figure.origin}.", "",
                  "| | " + " | ".join(figure.contestants) + " |", "|---|" + "---|" * len(figure.contestants)]
        lines += [f"| {label} | " + " | ".join("" if v is None else shown(v) for v in values) + " |"
                  for label, values in figure.groups]
        lines.append("")
    return "\n".join(lines)


def files(results: Path = RESULTS) -> dict[Path, str]:
    """What is written, by its path."""
    found = figures(results)
    return {DOCS / "performance.md": page(found),
            **{DOCS / "plots" / f"{figure.name}.svg": svg(figure) for figure in found}}


def stale(results: Path = RESULTS) -> list[Path]:
    """The files that are not what the results say, and plots of results that are gone."""
    wanted = files(results)
    old = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    return [*old, *(path for path in sorted((DOCS / "plots").glob("*.svg")) if path not in wanted)]


def main() -> int:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if something is out of date")
    if parser.parse_args().check:
        for path in stale():
            print(f"{path.relative_to(ROOT)} is not what benchmarks/results says: run benchmarks/performance.py")
        return int(bool(stale()))
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
