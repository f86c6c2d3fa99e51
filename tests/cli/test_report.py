"""The report and the metrics file, from made-up runs."""

from __future__ import annotations

import json
import math
from html.parser import HTMLParser
from pathlib import Path

from genesis.cli.chart import Level, Line, line_chart, smoothed
from genesis.cli.inspect import KernelRow, StepBox
from genesis.cli.kernel_diagram import draw_step
from genesis.cli.record import Bars, MetricsFile, Outcome, Settings, TrainingStep
from genesis.cli.report import render

VOID = {"meta", "br"}


class Checker(HTMLParser):
    """Balances tags and collects what a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def outcome(losses: list[float], validation: float = 2.0) -> Outcome:
    steps = tuple(TrainingStep(i + 1, loss, 1e-3, 1000.0, 0.1 * i) for i, loss in enumerate(losses))
    return Outcome(Settings(steps=len(losses)), 1234, (("from", "/lib/<python>"),), steps,
                   ((1, 3.0), (len(losses), validation)), Bars(2.4, 2.5), "def <f>(", "x & y)", (("total", 1.5),))


KERNELS = [KernelRow("softmax_rows", "loop", 4, ("max", "exp", "sum", "div"), ("model.py:7 <lambda>",),
                     "one row < a block")]
BOXES = [StepBox("forward", "model.py:7", ("softmax",), ("alone",), ()),
         StepBox("forward", "model.py:9", ("log", "log"), ("alone",), (0,)),
         StepBox("backward", "model.py:7", ("mul",), ("alone",), (0, 1)),
         StepBox("update", "train.py:3 <step>", ("adamw",), ("all at once",), (2,))]


def check(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    return checker


def test_page_is_whole_and_fetches_nothing() -> None:
    page = render(outcome([4.0, 3.0, 2.5]), KERNELS, BOXES)
    checker = check(page)
    assert checker.fetched == []
    assert "script" not in checker.seen
    assert "url(" not in page and "@import" not in page and "http" not in page
    assert "prefers-color-scheme: dark" in page


def test_text_of_the_run_is_escaped() -> None:
    page = render(outcome([4.0, 3.0]), KERNELS, BOXES)
    for raw in ("def <f>(", "x & y)", "/lib/<python>", "<lambda>", "one row < a block", "<step>"):
        assert raw not in page


def test_page_says_what_happened() -> None:
    page = render(outcome([4.0, 3.0], validation=2.0), KERNELS, BOXES)
    assert "passed" in page and "2.000" in page and "2.400" in page
    assert "4 kernels" in page
    assert "failed" in render(outcome([4.0, 3.0], validation=2.4), KERNELS, BOXES)


def test_beside_calls_stand_the_kernels_of_cuda() -> None:
    import genesis
    from genesis.cli.beside import beside
    from genesis.cli.inspect import last_step
    x = genesis.ones(4, 8)
    (x.softmax(-1) * 2).sum().item()
    page = render(outcome([4.0, 3.0]), KERNELS, BOXES, beside(last_step()))
    check(page)
    assert "The same step on a GPU" in page and "NVIDIA H200" in page and "Memory: arena" in page
    assert "reductions and" in page and "@triton.jit" in page and "def softmax" in page
    assert "The same step on a GPU" not in render(outcome([4.0, 3.0]), KERNELS, BOXES)


def test_a_loss_that_is_no_number_fails_and_still_draws() -> None:
    lost = outcome([4.0, math.nan, math.inf], validation=math.nan)
    assert not lost.passed
    page = render(lost, KERNELS, BOXES)
    check(page)
    assert "points=" in page and "nan," not in page and ",nan" not in page


def test_one_step_run_draws() -> None:
    check(render(outcome([4.0]), [], []))


def test_chart_puts_larger_values_higher() -> None:
    svg = line_chart([Line("loss", [(0, 1.0), (10, 3.0)], "train")], [Level("bar", 2.0, "bar")], "step", "loss")
    points = svg.split('points="')[1].split('"')[0].split()
    (x0, y0), (x1, y1) = (map(float, point.split(",")) for point in points)
    assert x0 < x1 and y0 > y1


def test_smoothing_starts_at_the_data_and_skips_gaps() -> None:
    assert smoothed([(0, 4.0), (1, math.nan), (2, 4.0)], keep=0.5) == [(0, 4.0), (2, 4.0)]


def test_drawing_has_every_box_and_arrow() -> None:
    svg = draw_step(BOXES)
    check(svg)
    assert svg.count("<rect") == len(BOXES)
    assert svg.count("<path") == sum(len(box.sources) for box in BOXES)
    assert "log×2" in svg


def test_metrics_are_on_disk_at_once_and_always_json(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    with MetricsFile(path) as metrics:
        metrics.write(TrainingStep(1, 5.5, 1e-3, 1000.0, 0.1))
        assert json.loads(path.read_text()) == {"step": 1, "loss": 5.5, "lr": 1e-3, "tokens_per_s": 1000.0,
                                                "elapsed": 0.1}
        metrics.write(TrainingStep(2, math.nan, 1e-3, 1000.0, 0.2))
    assert [json.loads(line)["loss"] for line in path.read_text().splitlines()] == [5.5, None]
