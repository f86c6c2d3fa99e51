"""Each function beside torch's on the CPU at a million elements, and what recording it costs.

    python benchmarks/ops.py                    everything; about ten minutes
    python benchmarks/ops.py --only softmax     names that contain this
    python benchmarks/ops.py --out              also writes benchmarks/results/ops_cpu.json (with --only: these rows)

`op_cases.py` holds the calls. Both frameworks run the same call. `ratio` is torch's time over Genesis's, which records,
looks its plan up, runs and allocates. Rounds of the two alternate, and the least of each is compared, in time of this
process on the CPU: others may share the machine. Genesis computes through torch's functions, so both have the same
number of threads, one. `record` is the time of a call on small tensors that computes nothing, freeing its result
included, the least of some rounds; every call makes a node that does not exist yet.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
from pathlib import Path
from time import process_time_ns

import record
import torch
from op_cases import Call, Inputs, cases, inputs

import genesis

ROUNDS, LEAST_NS = 6, 2_000_000  # a round runs a call for at least this long
WANTED_RATIO, LIMIT_NS = 0.9, 8000
RESULTS = Path(__file__).resolve().parent / "results"


def timed(call: Call, a: Inputs, count: int) -> int:
    """Nanoseconds for `count` calls, computed."""
    ours = a.t is genesis
    start = process_time_ns()
    for _ in range(count):
        result = call(a)
        if ours:
            if isinstance(result, tuple):
                genesis.eval(*result)
            elif not isinstance(result, bool):
                genesis.eval(result)
    return process_time_ns() - start


def ratio(call: Call, ours: Inputs, theirs: Inputs) -> dict[str, float]:
    """The least of both and torch's over ours; the first calls, which compile and warm up, do not count."""
    timed(call, ours, 2)
    once = max(min(timed(call, theirs, 1), timed(call, theirs, 1)), 1)
    count = max(LEAST_NS // once, 1)
    rounds = [(timed(call, ours, count), timed(call, theirs, count)) for _ in range(ROUNDS)]
    mine, torchs = (min(x) / count for x in zip(*rounds, strict=True))
    return {"genesis_us": round(mine / 1000, 2), "torch_us": round(torchs / 1000, 2), "ratio": round(torchs / mine, 3)}


def recording(call: Call, fresh: list[Inputs]) -> int:
    """Least nanoseconds of a call that only records: the node of one round is gone in the next."""
    found = []
    for _ in range(ROUNDS):
        gc.collect()
        gc.disable()
        start = process_time_ns()
        kept = [call(a) for a in fresh]
        del kept
        found.append((process_time_ns() - start) / len(fresh))
        gc.enable()
    return round(min(found))


BATCH = 100
READS = ("nonzero", "masked_select", "unique", "bincount", "unique_consecutive", "argwhere", "equal", "allclose",
         "repeat_interleave", "isin", "multinomial", "bernoulli", "normal", "kthvalue", "F.one_hot", "masked_scatter")
"""Calls that read values: their recording computes."""

COMPOSED = {why: names.split() for why, names in {
    "a formula of several ops": """
        corrcoef cov renorm mvlgamma dist addbmm baddbmm addmm addmv addr kron cdist cumulative_trapezoid trapezoid diff
        gradient logspace vander linalg.vecdot F.softsign F.tanhshrink F.cosine_similarity F.local_response_norm F.prelu
        F.lp_pool2d F.normalize F.glu F.gumbel_softmax F.dropout2d F.softmin""",
    "a loss: a formula, then a mean": """
        F.nll_loss F.cross_entropy F.triplet_margin_loss F.hinge_embedding_loss F.binary_cross_entropy F.kl_div
        F.binary_cross_entropy_with_logits F.poisson_nll_loss F.soft_margin_loss F.l1_loss F.huber_loss F.mse_loss
        F.smooth_l1_loss F.pairwise_distance""",
    "views, and what is made of them": """
        einsum tensordot inner outer bmm dot mv cartesian_prod meshgrid block_diag diag_embed diagonal diagonal_scatter
        slice_scatter select_scatter trace roll rot90 flipud fliplr repeat tile dstack movedim unbind chunk narrow ravel
        select unflatten unsqueeze broadcast_to x[1:-1] F.linear gather F.fold F.unfold F.pixel_shuffle F.conv1d
        F.channel_shuffle F.conv2d F.conv3d F.conv_transpose2d F.avg_pool2d F.max_pool2d""",
    "a sort or a comparison with all, then picks": """
        quantile nanquantile median nanmedian mode histc randperm tril_indices eye bucketize searchsorted""",
    "indices are made, then used": """
        index_reduce scatter_reduce index_put index_fill index_copy put take take_along_dim scatter scatter_add
        F.embedding_bag""",
    "two results: two nodes, two tensors": """
        max(-1) min(-1) aminmax std_mean var_mean sort topk cummax cummin msort argsort F.batch_norm
        F.adaptive_max_pool2d""",
    "a node for each number of the draw": "rand randn randint rand_like randn_like randint_like F.dropout",
    "the matrix is made in the call": """
        linalg.lu linalg.solve linalg.det linalg.svd linalg.eigh linalg.eigvalsh linalg.svdvals linalg.qr linalg.slogdet
        linalg.cholesky linalg.matrix_exp linalg.pinv linalg.inv cross""",
}.items()}
"""Why a call costs more than one op's limit to record: it is more than one op."""


def reason(name: str) -> str:
    """Why a call may cost more than one op's limit; '' where it should not.

    >>> reason("median")
    'sort or counts, then picks'
    """
    return next((why for why, names in COMPOSED.items() if name in names), "")


def measure(only: str = "") -> dict[str, dict[str, float]]:
    """All calls that both frameworks have."""
    ours, theirs = inputs(genesis, 1024, 1024), inputs(torch, 1024, 1024)
    fresh = [inputs(genesis, 8, 16, seed) for seed in range(BATCH)]
    table = {}
    for name, call in cases().items():
        if only not in name:
            continue
        try:
            call(ours)
        except (AttributeError, NotImplementedError) as error:
            print(f"{name:24} left out: {error}".split("\n")[0], flush=True)
            continue
        row = ratio(call, ours, theirs)
        if name not in READS:
            row["record_ns"] = recording(call, fresh)
        table[name] = row
        print(line(name, row), flush=True)
        genesis.eval([a.x for a in fresh])
    return table


def line(name: str, row: dict[str, float]) -> str:
    """A row of the printed table."""
    marks = ("  slow" if row["ratio"] < WANTED_RATIO else "") + (
        "  records slowly" if row.get("record_ns", 0) > LIMIT_NS else "")
    return (f"{name:24} {row['genesis_us']:10.1f} us {row['torch_us']:10.1f} us   ratio {row['ratio']:5.2f}   "
            f"record {row.get('record_ns', 0):6.0f} ns{marks}")


def main() -> None:
    """Measure, print, and with --out write the table as JSON."""
    parser = argparse.ArgumentParser(description="Each function beside torch's on the CPU.")
    parser.add_argument("--only", default="", help="names that contain this")
    record.add_out(parser)
    parser.add_argument("--threads", type=int, default=1, help="of torch, for both (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with torch.no_grad():
        table = measure(options.only)
    print(summary(table))
    if options.out:
        file = options.out / "ops_cpu.json"
        kept = json.loads(file.read_text(encoding="utf-8"))["ops"] if options.only and file.exists() else {}
        record.write(options.out, "ops_cpu", threads=torch.get_num_threads(), elements=1 << 20,
                     wanted_ratio=WANTED_RATIO, limit_ns=LIMIT_NS, ops={**kept, **table})


def summary(table: dict[str, dict[str, float]]) -> str:
    """Medians, the worst ratios, and what records slowly."""
    ratios = [row["ratio"] for row in table.values()]
    records = {name: row["record_ns"] for name, row in table.items() if "record_ns" in row}
    slow = {name: ns for name, ns in records.items() if ns > LIMIT_NS}
    worst = sorted(table, key=lambda name: table[name]["ratio"])[:15]
    slowest = sorted(slow, key=lambda name: -slow[name])
    return "\n".join([
        f"{len(table)} calls: median ratio {statistics.median(ratios):.2f}, "
        f"{sum(x < WANTED_RATIO for x in ratios)} below {WANTED_RATIO}; the worst:",
        *(line(name, table[name]) for name in worst),
        f"recording: median {statistics.median(records.values()):.0f} ns, {len(slow)} above {LIMIT_NS}:",
        *(f"{name:24} {slow[name]:6.0f} ns  {reason(name)}" for name in slowest)])


if __name__ == "__main__":
    main()
