"""Models on several GPUs: data-parallel GPT-2 with buckets and thread blocks varied, a language model whose parts
write together, and one whose parameters are sharded; torch beside.

Parts, each in processes of their own, one a GPU:
  variants   ms a step of GPT-2 124M, 16 × 1024 a GPU, bf16, under DistributedDataParallel: bucket sizes, what NCCL may
             take of a GPU, without any reduction, which is what the rest of the step costs, and with ZeRO 1;
  plans      the same with and without what a bucket needs made first (`reduce_early`);
  timeline   when the kernels of rank 0's step run, and its reductions, as torch's profiler sees them;
  decode     tokens a second of the 8B shape, batch 1: on one GPU, and as parts on all (`parallelize_module`);
  llama      ms a step and peak memory of the Llama-3.2-1B shape under fully_shard, bf16;
  torch_llama  the same shape, torch.compile a block, FSDP2 (transformers has the model);
  eight      the same of the Llama-3.1-8B shape, each layer's activations recomputed in backward;
  torch_eight  torch's, with its checkpoint wrapper around each block.

    python benchmarks/distributed_models.py --gpus 2 --parts variants,decode --out
    python benchmarks/distributed_models.py --gpus 2 --parts plans,timeline --limit 300
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import kernel_times
import record
from decode import SHAPES, measured, model_of
from distributed import BETAS, CONTEXT, DECAY, DIM, HEADS, LAYERS, LR, VOCAB, _join, _join_torch, batches, run
from gpu_rounds import gpu_rounds, step_of

VARIANTS: Final[tuple[tuple[str, dict[str, Any], float], ...]] = (
    ("defaults", {}, None), ("no reduction", {}, 0), ("buckets of 25 MiB", {}, 25), ("buckets of 50 MiB", {}, 50),
    ("buckets of 200 MiB", {}, 200), ("defaults again", {}, None), ("16 blocks", {"max_ctas": 16}, None),
    ("8 blocks", {"max_ctas": 8}, None), ("first", {"high": True}, None),
    ("first and 16 blocks", {"high": True, "max_ctas": 16}, None), ("4 blocks", {"max_ctas": 4}, None),
    ("buckets of 10 MiB", {}, 10), ("32 blocks", {"min_ctas": 32, "max_ctas": 32}, None), ("ZeRO 1", {}, None))
"""(name, what NCCL may take, MiB of a bucket; None: as many as cost least, 0: gradients are not reduced). The ranks of
ZeRO 1 share out what the optimizer keeps."""

PLANS: Final = ("defaults", "in the order of results", "defaults again")
"""Variants of a plan (`_planned`): the second is made without the pass `reduce_early`."""

LLAMA: Final[dict[str, Any]] = {
    "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "tie_word_embeddings": True,
    "max_position_embeddings": 4096, "rope_theta": 500000.0}
"""Fields of Llama-3.2-1B's config."""

EIGHT: Final[dict[str, Any]] = {
    **LLAMA, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "head_dim": 128,
    "tie_word_embeddings": False}
"""Fields of Llama-3.1-8B's config."""

ROWS, LENGTH = 4, 2048
"""Samples a GPU of the Llamas, and their tokens."""

TRACED: Final = 5
"""Steps that the part timeline looks at."""


def main() -> None:
    """Run the parts, print what they found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--parts", default="variants,decode,llama,torch_llama,eight,torch_eight")
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True, help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--limit", type=float, default=120, help="seconds a part may take")
    parser.add_argument("--layers", type=int, default=0, help="of the 8B shape and the Llama: a few fill caches")
    parser.add_argument("--variants", default=",".join(name for name, _, _ in VARIANTS), help="comma-separated")
    parser.add_argument("--multiprocessors", type=int, help="that kernels are made for: the others are left to NCCL")
    parser.add_argument("--trace", help="where the part timeline leaves the first rank's trace")
    record.add_out(parser)
    args = parser.parse_args()
    if args.layers:
        for shape in (LLAMA, EIGHT, SHAPES["8B"]):
            shape["num_hidden_layers"] = args.layers
    if args.multiprocessors:
        _leave_to_nccl(args.multiprocessors)
    if args.rank_of:
        found = PARTS[args.rank_of](args)
        if int(os.environ["RANK"]) == 0:
            print("RESULT " + json.dumps(found), flush=True)
        return
    results: dict[str, Any] = {}
    for name in args.parts.split(","):
        begun = time.monotonic()
        if name == "plans":  # plans of the disk are those of the settings, which these variants are none of
            os.environ["GENESIS_PLAN_CACHE"] = "0"
        more = ["--limit", str(args.limit), "--layers", str(args.layers), "--variants", args.variants]
        more += ["--multiprocessors", str(args.multiprocessors)] if args.multiprocessors else []
        more += ["--trace", args.trace] if args.trace else []
        found = results[name] = run(name, args.gpus, args, __file__, args.limit, more)
        if name == "plans":
            del os.environ["GENESIS_PLAN_CACHE"]
        print(f"{name} ({time.monotonic() - begun:.0f} s)")
        for key, value in (found or {}).items():
            print(f"  {key:24} {value}", flush=True)
    if args.out:
        record.write(args.out, f"distributed_models_{args.gpus}", results=results)


def _leave_to_nccl(multiprocessors: int) -> None:
    """Make kernels as if the GPU had so many."""
    from genesis.codegen.cuda import gpu_model
    whole = gpu_model.model_of
    gpu_model.model_of = lambda properties: replace(whole(properties), multiprocessors=multiprocessors)


def variants(args: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of a step for each variant, least and median of six rounds; stops in time to report."""
    return _varied(args, [row for row in VARIANTS if row[0] in args.variants.split(",")])


def plans(args: argparse.Namespace) -> dict[str, Any]:
    """The same for variants of the plan. Run without plans on the disk (`GENESIS_PLAN_CACHE=0`, which `main` sets)."""
    return _varied(args, [(name, {}, None) for name in PLANS])


def _varied(args: argparse.Namespace, chosen: Sequence[tuple[str, dict[str, Any], float | None]]) -> dict[str, Any]:
    import genesis
    from genesis import cuda, nn
    from genesis import distributed as dist
    rank, size = _join()
    begun, found = time.monotonic(), dict[str, Any]()
    data = _data(args, rank)
    for name, nccl, cap in chosen:
        late = genesis.tensor([time.monotonic() - begun > 0.75 * args.limit], device="cuda").to(genesis.int32)
        dist.all_reduce(late, dist.ReduceOp.MAX)
        if late.item():
            break
        options = dist.ProcessGroupNCCL.Options(nccl.get("high", False))
        options.config.min_ctas, options.config.max_ctas = nccl.get("min_ctas"), nccl.get("max_ctas")
        group = dist.new_group(pg_options=options)  # of its own, so that no plan of another variant is found
        wrapped = partial(nn.parallel.DistributedDataParallel, process_group=group, bucket_cap_mb=cap)
        step = _compiled_step(wrapped if cap != 0 else lambda model: model, group if name == "ZeRO 1" else None)
        cuda.reset_peak_memory_stats()
        with _planned(name):
            losses = [step(*data[i % len(data)]).item() for i in range(6)]
            times = gpu_rounds(cuda, 6, args.steps // 2, lambda i, step=step: step(*data[i % len(data)]))
        ranks: list[Any] = [None] * size
        dist.all_gather_object(ranks, median(times))
        found[name] = {"ms": round(median(times), 3), "least": round(min(times), 3), "loss": losses[-1],
                       "ranks": [round(ms, 2) for ms in ranks],
                       "peak_gib": round(cuda.max_memory_allocated() / 2**30, 2)}
        del step
    dist.destroy_process_group()
    return found


def _data(args: argparse.Namespace, rank: int) -> list[tuple[Any, Any]]:
    import genesis
    return [(genesis.tensor(x, device="cuda"), genesis.tensor(y, device="cuda"))
            for x, y in batches(4, args.batch, CONTEXT, VOCAB, seed=rank)]


def _compiled_step(wrapped: Callable[[Any], Any], sharing: Any = None) -> Callable[..., Any]:
    """A training step of GPT-2 124M, its model wrapped in something; a group may share out what the optimizer keeps."""
    import genesis
    from genesis.distributed.optim import ZeroRedundancyOptimizer
    from genesis.models import GPT, GPTConfig
    genesis.manual_seed(0)
    model = wrapped(GPT(GPTConfig(VOCAB, CONTEXT, LAYERS, HEADS, DIM)).to("cuda"))
    made = genesis.optim.AdamW if sharing is None else partial(
        ZeroRedundancyOptimizer, optimizer_class=genesis.optim.AdamW, process_group=sharing)
    optimizer = made(model.parameters(), lr=LR, betas=BETAS, weight_decay=DECAY)
    return genesis.compile(step_of(genesis, model, optimizer))


@contextmanager
def _planned(name: str) -> Iterator[None]:
    """Inside, plans are made without one thing (`PLANS`)."""
    from genesis.engine.backends import CUDABackend
    before = CUDABackend.passes
    if name == "in the order of results":
        CUDABackend.passes -= {"reduce_early"}
    try:
        yield
    finally:
        CUDABackend.passes = before


def timeline(args: argparse.Namespace) -> dict[str, Any]:
    """What rank 0's GPU does in a step (`kernel_times.told`): torch's profiler sees all kernels of its process."""
    os.environ.update(TEARDOWN_CUPTI="0", DISABLE_CUPTI_LAZY_REINIT="1")  # as torch does where it uses CUDA graphs
    from torch.profiler import ProfilerActivity, profile

    from genesis import cuda, nn
    from genesis import distributed as dist
    rank, size = _join()
    seen: Any = [profile(activities=[ProfilerActivity.CUDA]) if rank == 0 else nullcontext() for _ in range(2)]
    with seen[0]:  # before there are graphs, so that CUPTI sees their kernels
        pass
    data, step = _data(args, rank), _compiled_step(nn.parallel.DistributedDataParallel if size > 1 else lambda x: x)
    for i in range(10):
        step(*data[i % len(data)]).item()
    with seen[1]:
        gpu_rounds(cuda, 1, TRACED, lambda i: step(*data[i % len(data)]))
    dist.destroy_process_group()
    if rank:
        return {}
    with TemporaryDirectory() as folder:
        path = Path(args.trace or Path(folder) / "trace.json")
        seen[1].export_chrome_trace(str(path))
        return kernel_times.told(kernel_times.kernels_of(json.loads(path.read_text())), TRACED)


def decode(args: argparse.Namespace) -> dict[str, Any]:
    """Tokens a second of the 8B shape: whole on each GPU, then as parts."""
    import genesis
    from genesis import distributed as dist
    from genesis.distributed.tensor.parallel import parallelize_module
    _, size = _join()
    model: Any = model_of("8B")
    found = {"one": measured(model, "8B@128", 64, 3)["tokens_per_second"]}
    parallelize_module(model, dist.init_device_mesh("cuda", (size,)), model.tp_plan(size))
    genesis.eval(*model.parameters())
    row = measured(model, "8B@128", 64, 3)
    found.update(parts=row["tokens_per_second"], host_ms=row["host_ms"], captures=row["captures"])
    found["ratio"] = found["parts"] / found["one"]
    dist.destroy_process_group()
    return found


def llama(args: argparse.Namespace) -> dict[str, Any]:
    """The step of a sharded Llama: ms, and the most memory that was held."""
    return _sharded(LLAMA, recompute=False)


def eight(args: argparse.Namespace) -> dict[str, Any]:
    """The same of the 8B shape, each layer's activations recomputed."""
    return _sharded(EIGHT, recompute=True)


def _sharded(fields: dict[str, Any], recompute: bool) -> dict[str, Any]:
    import genesis
    from genesis import cuda
    from genesis import distributed as dist
    from genesis.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from genesis.models import AutoModelForCausalLM, config_for
    rank, size = _join()
    genesis.set_default_device("cuda")
    genesis.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(config_for("llama", **fields))
    policy = MixedPrecisionPolicy(param_dtype=genesis.bfloat16, reduce_dtype=genesis.float32)
    for layer in model.model.layers:
        if recompute:
            layer.forward = partial(genesis.checkpoint, layer.forward, use_reentrant=False)
        if size > 1:
            fully_shard(layer, mp_policy=policy)
    if size > 1:
        fully_shard(model, mp_policy=policy)
    optimizer = genesis.optim.AdamW(model.parameters(), lr=LR, betas=BETAS, weight_decay=DECAY)

    @genesis.compile
    def step(ids: Any) -> Any:
        optimizer.zero_grad()
        loss = model(ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        return loss

    data = [genesis.randint(0, 1000, (ROWS, LENGTH), generator=genesis.Generator("cuda").manual_seed(7 * rank + i))
            for i in range(4)]
    found = _timed(step, data, cuda, dist, lambda x: x.item())
    return {**found, "told": str(genesis.explain(step))}


def _timed(step: Callable[..., Any], data: list[Any], cuda: Any, dist: Any, read: Callable[[Any], float]) -> dict[
        str, Any]:
    """Median of four rounds of five steps."""
    losses = [read(step(x)) for x in (*data, *data)]
    cuda.reset_peak_memory_stats()
    times = gpu_rounds(cuda, 4, 5, lambda i: step(data[i % len(data)]))
    found = {"ms": median(times), "peak_gib": cuda.max_memory_allocated() / 2**30, "losses": losses}
    dist.destroy_process_group()
    return found


def torch_llama(args: argparse.Namespace) -> dict[str, Any]:
    """The same of torch's: transformers' model, FSDP2, blocks under torch.compile."""
    return _torch_sharded(LLAMA, recompute=False)


def torch_eight(args: argparse.Namespace) -> dict[str, Any]:
    """The same of the 8B shape, blocks within torch's checkpoint wrapper."""
    return _torch_sharded(EIGHT, recompute=True)


def _torch_sharded(fields: dict[str, Any], recompute: bool) -> dict[str, Any]:
    import torch
    from torch import distributed as dist
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from transformers import LlamaConfig, LlamaForCausalLM
    rank, _ = _join_torch()
    torch.manual_seed(0)
    rest = dict(fields)
    rope = {"rope_type": "default", "rope_theta": rest.pop("rope_theta")}
    with torch.device("cuda"):
        model: Any = LlamaForCausalLM(LlamaConfig(**rest, rope_parameters=rope, attn_implementation="sdpa"))
    model.train()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    layers = model.model.layers
    for i, layer in enumerate(layers):
        if recompute:
            layers[i] = layer = checkpoint_wrapper(layer, preserve_rng_state=False)
        layer.compile()
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=BETAS, weight_decay=DECAY, fused=True)

    def step(ids: Any) -> Any:
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    data = [torch.randint(0, 1000, (ROWS, LENGTH), generator=torch.Generator("cuda").manual_seed(7 * rank + i),
                          device="cuda") for i in range(4)]
    return _timed(step, data, torch.cuda, dist, lambda x: float(x.item()))


PARTS: Final[dict[str, Callable[[argparse.Namespace], dict[str, Any]]]] = {
    "variants": variants, "plans": plans, "timeline": timeline, "decode": decode, "llama": llama,
    "torch_llama": torch_llama, "eight": eight, "torch_eight": torch_eight}

if __name__ == "__main__":
    main()
