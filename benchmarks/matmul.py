"""Products beside cuBLAS, of bf16 or float32: a linear layer's forward and both gradients, over shapes (M, K, N).

Both libraries run in one process, torch before and after Genesis; times are device times, launches back to back between
two events. Results are compared with float32 products before anything is timed.

    python benchmarks/matmul.py --out                        # the kernels that Genesis chooses
    python benchmarks/matmul.py --float32 tf32 --shapes 4096x4096x4096,8192x8192x8192
    python benchmarks/matmul.py --tiles "one,128,256,64,8,4;turns,128,128,64,4,5;none"    # some beside each other
    python benchmarks/matmul.py --float32 ieee --tiles "none;one,128,256,16,8,8;shared,128,256,16,8,8;split,5"
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import median
from typing import Any

import record
from in_turn import wait_for_turn

SHAPES = ("2048x2048x2048,4096x4096x4096,8192x8192x8192,16384x768x3072,16384x3072x768,8192x4096x14336,16384x768x50304,"
          "8191x4096x4000,1024x1024x1024")
KINDS = ("forward", "input's gradient", "weight's gradient")
REPEATS, ROUNDS = 20, 5
TOLERANCE = 1e-2
"""Relative to the norm: bf16 results of float32 sums are within 2⁻⁹ each."""

FORMS = ("FORMS", "TF32_FORMS", "FMA_FORMS")
OWN: dict[str, Any] = {}
"""What decides about forms and splits where `--tiles` does not."""


def operands(kind: str, m: int, k: int, n: int) -> tuple[tuple[tuple[int, int], bool], tuple[tuple[int, int], bool]]:
    """Shape in memory, and whether it is read transposed, of each operand of a product of a linear layer."""
    if kind == "forward":
        return ((m, k), False), ((n, k), True)
    return (((m, n), False), ((n, k), False)) if kind == "input's gradient" else (((m, n), True), ((m, k), False))


def timed(run: Any, event: Any, repeats: int) -> float:
    """The median over rounds of the mean device time of a call, in milliseconds."""
    found = []
    for count in (3, *[repeats] * ROUNDS):
        begin, end = event(enable_timing=True), event(enable_timing=True)
        begin.record()
        for _ in range(count):
            run()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / count)
    return median(found[1:])


def use_tile(text: str) -> None:
    """Let all products have one form, "which,i,j,k,warps,stages", or "none": blocks are not streamed.

    `which` is "one" group, two in "turns", or "shared": one whose programs share tiles.

    "plain,i,j,k,warps,stages" is a tile of those, of float32 operands that are rounded; "tile,…" one of float32
    operands whose bits all count. "split,n" lets each sum be computed in n parts, which a second kernel adds up.
    "default" is what Genesis chooses; "as it lies" the same without copies of operands.
    """
    from genesis import engine
    from genesis.codegen.cuda import choices
    from genesis.codegen.cuda.choice_table import Key, Row, Rows
    from genesis.codegen.cuda.templates import product_choice, streamed_matmul
    from genesis.codegen.cuda.templates.tile import Tile
    from genesis.ir.types import float32
    from genesis.passes import structural_memo
    from genesis.passes.graph import align_operands, split_k
    os.environ["GENESIS_PLAN_CACHE"] = "0"
    if not OWN:
        OWN.update({x: getattr(streamed_matmul, x) for x in FORMS})
        OWN.update(splits=split_k._split_count, copied=align_operands._in_vectors)
    split_k._split_count = OWN["splits"]  # type: ignore[assignment]
    align_operands._in_vectors = (lambda x: x) if text == "as it lies" else OWN["copied"]  # type: ignore[assignment]
    for name in FORMS:
        setattr(streamed_matmul, name, OWN[name] if text in ("default", "as it lies") else ())
    choices._deciding.clear()
    if text.startswith("plain"):
        product_choice.ROUNDED_TILES = ((float32,), 0, Tile(*map(int, text.split(",")[1:]))),
    elif text.startswith("split"):
        split_k._split_count = lambda node, gpu: int(text.split(",")[1])  # type: ignore[assignment]
    elif text.startswith("tile"):
        tile = Tile(*map(int, text.split(",")[1:]))
        product_choice.MORE_TILES = {**product_choice.MORE_TILES, "ieee": (tile,)}  # type: ignore[misc]
        choices._deciding.append(choices._Deciding(Rows([Row(Key("product", ""), tile.name)])))
        split_k._split_count = lambda node, gpu: 1  # type: ignore[assignment]
    elif text not in ("none", "default", "as it lies"):
        split_k._split_count = lambda node, gpu: 1  # type: ignore[assignment]
        which, *numbers = text.split(",")
        form = streamed_matmul.Form(Tile(*map(int, numbers)), 2 if which == "turns" else 1, which == "shared",
                                    1.0, 0, 0)
        streamed_matmul.FORMS = streamed_matmul.TF32_FORMS = (form,)  # type: ignore[misc]
        streamed_matmul.FMA_FORMS = (replace(form, fma=True),)  # type: ignore[misc]
        choices._deciding.append(choices._Deciding(Rows([Row(Key("product", ""), form.name)])))  # before any tile
    structural_memo._closed.clear()
    engine.reset()


class Product:
    """One product, with both libraries' operands over the same memory."""

    def __init__(self, kind: str, shape: tuple[int, int, int], dtype: str = "bfloat16"):
        import torch

        import genesis
        self.flops = 2 * math.prod(shape)
        generator = torch.Generator("cuda").manual_seed(0)
        kept, self.torch, self.genesis = [], [], []
        for size, turned in operands(kind, *shape):
            x = torch.randn(size, generator=generator, device="cuda", dtype=getattr(torch, dtype))
            y = genesis.from_dlpack(x)
            kept.append(x)
            self.torch.append(x.T if turned else x)
            self.genesis.append(y.T if turned else y)
        self.kept = kept
        rows = min(512, self.torch[0].shape[0])
        self.expected = self.torch[0][-rows:].double() @ self.torch[1].double()

    def torch_ms(self, repeats: int) -> float:
        """Milliseconds of torch's product."""
        import torch
        out = torch.empty(self.torch[0].shape[0], self.torch[1].shape[1], device="cuda", dtype=self.torch[0].dtype)
        return timed(lambda: torch.mm(*self.torch, out=out), torch.cuda.Event, repeats)

    def genesis_ms(self, repeats: int) -> tuple[float, float, str]:
        """Milliseconds of Genesis's product, its relative error, and the kernel's name."""
        import torch

        import genesis
        from genesis.engine import last_plan
        from genesis.runtime.cuda.stream import current_stream
        y = self.genesis[0] @ self.genesis[1]
        genesis.eval(y)
        plan = last_plan()
        assert plan is not None
        launches = plan.executor.launches()  # of a product alone, or of copies of its operands, too
        got = torch.from_dlpack(y.detach())[-self.expected.shape[0]:].double()
        error = float((got - self.expected).norm() / self.expected.norm())
        stream = current_stream(0).handle
        return (timed(lambda: [start(stream) for _, start in launches], genesis.cuda.Event, repeats), error,
                " ".join(label for label, _ in launches))


def compiled_ahead(tiles: list[str], shapes: list[tuple[int, int, int]], dtype: str) -> None:
    """Compile what will run, in parallel: each tile's kernel in each order of the operands."""
    from genesis.codegen.cuda.compile import compile_sources
    from genesis.codegen.cuda.emit import emit
    from genesis.engine.backends import gpu_at_hand
    from genesis.ir import Device, Graph, tensor_type
    from genesis.ir.ops import leaves
    from genesis.ir.ops.contraction import matmul, swap_last
    from genesis.ir.types import bfloat16, float32
    from genesis.passes.fusion.fuse import fuse
    from genesis.runtime.cuda.kernel_cache import KernelCache
    gpu, sources = gpu_at_hand(0), {}
    for tile in tiles:
        use_tile(tile)
        for shape in shapes:
            for kind in KINDS:
                of = float32 if dtype == "float32" else bfloat16
                nodes = [leaves.input(index=i, type=tensor_type(size, of, Device("cuda", 0)))
                         for i, (size, _) in enumerate(operands(kind, *shape))]
                turned = [swap_last(x) if turn else x
                          for x, (_, turn) in zip(nodes, operands(kind, *shape), strict=True)]
                source = emit(fuse(Graph(tuple(nodes), (matmul(*turned),))).groups[0], gpu)
                sources[repr(source.key_parts())] = source

    def compiles(source: Any) -> None:
        try:
            compile_sources([source], KernelCache(), gpu)
        except RuntimeError as error:
            print(f"{source.name} {source.constexprs}: {str(error).splitlines()[-1][:200]}", file=sys.stderr)

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(compiles, sources.values()))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--tiles", default="", help="see above; the default is what Genesis chooses")
    parser.add_argument("--float32", choices=["ieee", "tf32", "bf16x3"], help="products of float32, rounded like this")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="launches between two events")
    parser.add_argument("--in-turn", action="store_true", help="compile, then wait for a line of stdin")
    record.add_out(parser)
    args = parser.parse_args()
    if args.float32:
        import torch

        import genesis
        genesis.config.float32_products = args.float32
        torch.backends.cuda.matmul.allow_tf32 = args.float32 == "tf32"
    shapes = [tuple(map(int, text.split("x"))) for text in args.shapes.split(",")]
    tiles = args.tiles.split(";") if args.tiles else [""]
    if args.tiles:
        compiled_ahead(tiles, shapes, "float32" if args.float32 else "bfloat16")
    if args.in_turn and not wait_for_turn():
        return
    rows = []
    for shape in shapes:
        for kind in KINDS:
            product = Product(kind, shape, "float32" if args.float32 else "bfloat16")
            before, found = product.torch_ms(args.repeats), {}
            for tile in tiles:
                if tile:
                    use_tile(tile)
                try:
                    ms, error, label = product.genesis_ms(args.repeats)
                except Exception as problem:  # a tile that does not fit
                    print(f"{shape} {kind} {tile}: {type(problem).__name__} {str(problem)[:150]}", file=sys.stderr)
                    continue
                if not error < TOLERANCE:
                    print(f"{shape} {kind} {tile or label}: WRONG by {error:.1e}", flush=True)
                    continue
                found[tile or label] = ms
            torch_ms = min(before, product.torch_ms(args.repeats))
            ratios = {name: torch_ms / ms for name, ms in found.items()}
            rows.append({"shape": shape, "kind": kind, "torch_tflops": product.flops / torch_ms / 1e9,
                         "of_cublas": ratios})
            shown = "  ".join(f"{name} {ratio:.3f}" for name, ratio in sorted(ratios.items(), key=lambda x: -x[1]))
            name = "x".join(map(str, shape))
            print(f"{name:20} {kind:18} {rows[-1]['torch_tflops']:5.0f} TFLOP/s  {shown}", flush=True)
            del product
    for name in dict.fromkeys(name for row in rows for name in row["of_cublas"]):
        found = [row["of_cublas"][name] for row in rows if name in row["of_cublas"]]
        print(f"{name or 'chosen'}: geometric mean {math.exp(sum(map(math.log, found)) / len(found)):.3f}, "
              f"worst {min(found):.3f}")
    if args.out:
        record.write(args.out, f"matmul_{args.float32}" if args.float32 else "matmul", rows=rows)


if __name__ == "__main__":
    main()
