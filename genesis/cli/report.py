"""report.html: a run on one page, in one file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from genesis.cli.beside import Beside
from genesis.cli.chart import Level, Line, line_chart, smoothed
from genesis.cli.inspect import KernelRow, StepBox, counted, kernel_rows
from genesis.cli.kernel_diagram import draw_step
from genesis.cli.record import Outcome
from genesis.cli.stages import memory_line, plan_data

_STYLE = """
:root { color-scheme: light dark;
  --page: #fcfcfb; --ink: #1d1f22; --soft: #666b73; --rule: #e3e4e6; --panel: #ffffff;
  --train: #2f6fdb; --valid: #c2571a; --bar: #7a4fb5; --good: #1a7f4b; --bad: #c0322b;
  --forward: #e3edfc; --backward: #fdebdd; --update: #e2f3e8; }
@media (prefers-color-scheme: dark) { :root {
  --page: #16181b; --ink: #e4e6e9; --soft: #9aa1ab; --rule: #31353b; --panel: #1d2024;
  --train: #6ea3ff; --valid: #f19a5f; --bar: #bb97f0; --good: #5cc98f; --bad: #ff7b72;
  --forward: #203251; --backward: #4a2f1c; --update: #1d3d2b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 1120px; background: var(--page); color: var(--ink);
  font: 15px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2.4rem 0 .6rem; }
p { max-width: 46rem; } .soft { color: var(--soft); }
.figures { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.25rem 0; }
.figure { background: var(--panel); border: 1px solid var(--rule); border-radius: 8px; padding: .6rem .9rem; }
.figure b { display: block; font-size: 1.3rem; font-variant-numeric: tabular-nums; }
.good { color: var(--good); } .bad { color: var(--bad); }
.panel { background: var(--panel); border: 1px solid var(--rule); border-radius: 8px; padding: .75rem; overflow: auto; }
.tall { max-height: 75vh; }
table { border-collapse: collapse; width: 100%; font-size: .86rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--rule); }
th { color: var(--soft); font-weight: 600; } td.number, th.number { text-align: right;
  font-variant-numeric: tabular-nums; }
code, pre, td.code { font-family: ui-monospace, monospace; font-size: .82rem; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; } pre .soft { color: var(--soft); }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(290px, 1fr)); gap: 0 2rem; }
.chart { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
svg .rule { stroke: var(--rule); } svg text.tick, svg text.column { fill: var(--soft); }
polyline { fill: none; stroke-width: 2; stroke-linejoin: round; }
polyline.raw { stroke: var(--train); stroke-width: 1; opacity: .4; } polyline.train { stroke: var(--train); }
polyline.valid { stroke: var(--valid); } circle.valid { fill: var(--valid); }
line.bar { stroke: var(--bar); stroke-width: 1.5; stroke-dasharray: 6 4; } svg text.bar { fill: var(--bar); }
.key span { margin-right: 1.2rem; } .key span::before { content: ""; display: inline-block; width: 1.4em; height: 3px;
  margin-right: .4em; vertical-align: middle; background: currentColor; }
.step rect { stroke: var(--rule); } .step .forward rect { fill: var(--forward); }
.step .backward rect { fill: var(--backward); } .step .update rect { fill: var(--update); }
.step g text { font: 11px ui-monospace, monospace; } .step g text.line { font-size: 9.5px; fill: var(--soft); }
.step g:hover rect { stroke: var(--ink); }
.step path { fill: none; stroke: var(--soft); } .step .flow { opacity: .7; } .step .kept { opacity: .22; }
"""


def render(outcome: Outcome, kernels: Sequence[KernelRow], boxes: Sequence[StepBox],
           also: Beside | None = None) -> str:
    """The page's HTML. `also`: the plan that CUDA would get, where the step ran op by op."""
    settings = outcome.settings
    body = [
        "<h1>Genesis demo</h1>",
        f'<p class="soft">A byte-level GPT, trained on {escape(settings.device)} for {len(outcome.steps)} steps.</p>',
        _figures(outcome),
        "<h2>Loss</h2>", _loss_chart(outcome),
        "<h2>What it writes</h2>",
        f'<div class="panel"><pre><span class="soft">{escape(outcome.prompt)}</span>'
        f"{escape(outcome.sample)}</pre></div>",
        '<p class="soft">The grey beginning was given (from the validation text), the rest is the model\'s, '
        "at temperature 0.8.</p>",
        "<h2>The step's kernels</h2>",
        f"<p>{sum(row.count for row in kernels)} kernels run forward, backward and update. "
        "Equal ones share a row.</p>",
        _kernel_table(kernels),
        *_on_a_gpu(also),
        "<h2>The step as a graph</h2>",
        "<p>A box holds the kernels that run one after the other for one line of the program; rest the pointer on it "
        "for why they are kernels. Lines across are values that backward keeps of forward, and gradients on their way "
        "to the update.</p>",
        f'<div class="panel tall">{draw_step(boxes)}</div>',
        '<div class="pair"><div><h2>Settings</h2>',
        _pairs((name, str(getattr(settings, name))) for name in settings.__dataclass_fields__),
        "</div><div><h2>Text</h2>", _pairs(outcome.corpus),
        "</div><div><h2>Seconds</h2>", _pairs((what, f"{seconds:.2f}") for what, seconds in outcome.timings),
        "</div></div>",
    ]
    return "\n".join(['<!doctype html>', '<html lang="en">', '<head><meta charset="utf-8">',
                      '<meta name="viewport" content="width=device-width, initial-scale=1">',
                      "<title>Genesis demo</title>", f"<style>{_STYLE}</style></head>", "<body>", *body,
                      "</body></html>", ""])


def _figures(outcome: Outcome) -> str:
    verdict = ('<b class="good">passed</b> below the bar' if outcome.passed
               else '<b class="bad">failed</b> not below the bar')
    speeds = sorted(step.tokens_per_s for step in outcome.steps)
    figures = [
        verdict,
        f"<b>{outcome.validation_loss:.3f}</b> validation loss, nats per byte",
        f"<b>{outcome.bars.entropy:.3f}</b> the bar: entropy of the validation text's bigrams",
        f"<b>{outcome.bars.fitted:.3f}</b> loss of a bigram model of the training text",
        f"<b>{speeds[len(speeds) // 2]:,.0f}</b> tokens per second, median step",
        f"<b>{outcome.parameters:,}</b> parameters",
    ]
    return f'<div class="figures">{"".join(f"<div class=figure>{figure}</div>" for figure in figures)}</div>'


def _loss_chart(outcome: Outcome) -> str:
    raw = [(step.step, step.loss) for step in outcome.steps]
    chart = line_chart(
        [Line("training loss of each step", raw, "raw"), Line("training loss, averaged", smoothed(raw), "train"),
         Line("validation loss", outcome.validations, "valid", dots=True)],
        [Level("bigram entropy of the validation text", outcome.bars.entropy, "bar")], "step", "loss, nats per byte")
    key = ('<p class="key soft"><span style="color:var(--train)">training, averaged over some 20 steps</span>'
           '<span style="color:var(--valid)">validation</span></p>')
    return f'<div class="panel">{chart}{key}</div>'


def _kernel_table(kernels: Sequence[KernelRow]) -> str:
    rows = "".join(
        f'<tr><td class="number">{row.count}</td><td>{escape(row.kind)}</td>'
        f'<td class="code">{escape(counted(row.ops))}</td><td class="code">{"<br>".join(map(escape, row.lines))}</td>'
        f"<td>{escape(row.reason)}</td></tr>"
        for row in kernels)
    return ('<div class="panel tall"><table><thead><tr><th class="number">count</th><th>kind</th>'
            f"<th>what was fused</th><th>from</th><th>why</th></tr></thead><tbody>{rows}</tbody></table></div>")


def _on_a_gpu(also: Beside | None) -> list[str]:
    """The CUDA plan of the same step: kernels with reasons, memory, one of them as text."""
    if also is None:
        return []
    if also.program is None:
        return [f'<p class="soft">CUDA has no plan for this step: {escape(also.refused)}</p>']
    kernels = kernel_rows(also.program.schedule.groups)
    parts = ["<h2>The same step on a GPU</h2>",
             f"<p>Above every op is a call of its own. Compiled for CUDA ({escape(also.gpu)}), which takes no GPU, "
             f"the step is {sum(row.count for row in kernels)} kernels:</p>", _kernel_table(kernels),
             f"<p>Memory: {escape(memory_line(plan_data(also.program)))}.</p>"]
    if also.kernel is not None:
        parts += [f"<p>The kernel that computes the most, <code>{escape(also.kernel.name)}</code>:</p>",
                  f'<div class="panel tall"><pre>{escape(also.kernel.source)}</pre></div>']
    return parts


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in pairs)
    return f"<table>{rows}</table>"
