"""Models as a user writes them, once for both libraries: each is a function of the library, torch or Genesis.

A model's forward takes a batch and returns the loss. `ROWS` has their sizes, those of the bars and tiny ones, and what
a batch is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

Sizes = dict[str, int]


@dataclass(frozen=True)
class Row:
    """A model that is trained.

    Attributes:
        make: (library, sizes) → the module.
        sizes: those of the bar.
        tiny: those that a CPU tries.
        batch: (generator, sizes) → the arrays of one batch.
        bar: what the step takes in the faster peer, over what it should take here at most; 0 without a bar.
    """

    make: Callable[[Any, Sizes], Any]
    sizes: Sizes
    tiny: Sizes
    batch: Callable[[np.random.Generator, Sizes], tuple[np.ndarray, ...]]
    bar: float


def tokens(rng: np.random.Generator, sizes: Sizes) -> tuple[np.ndarray, ...]:
    """Ids and what follows each: a third of the words are as frequent as all others together."""
    drawn = np.minimum(rng.integers(0, sizes["vocab"], (2, sizes["batch"], sizes["length"] + 1)).min(0),
                       rng.integers(0, sizes["vocab"], (sizes["batch"], sizes["length"] + 1)))
    return drawn[:, :-1].copy(), drawn[:, 1:].copy()


def images(rng: np.random.Generator, sizes: Sizes) -> tuple[np.ndarray, ...]:
    """Pictures and their classes."""
    side = sizes["side"]
    return (rng.standard_normal((sizes["batch"], 3, side, side)).astype(np.float32),
            rng.integers(0, sizes["classes"], sizes["batch"]))


def features(rng: np.random.Generator, sizes: Sizes) -> tuple[np.ndarray, ...]:
    """Vectors and their classes."""
    return (rng.standard_normal((sizes["batch"], sizes["inputs"])).astype(np.float32),
            rng.integers(0, sizes["classes"], sizes["batch"]))


def gpt2(torch: Any, sizes: Sizes) -> Any:
    """GPT-2: the library's own, or what `torch_gpt2` has for torch."""
    if torch.__name__ == "torch":
        from torch_gpt2 import TorchGPT
        net: Any = TorchGPT(sizes["vocab"], sizes["length"], sizes["layers"], sizes["heads"], sizes["dim"])
    else:
        from genesis.models import GPT, GPTConfig
        net = GPT(GPTConfig(sizes["vocab"], sizes["length"], sizes["layers"], sizes["heads"], sizes["dim"]))

    class Loss(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = net
            for matrix in (x for x in net.parameters() if x.ndim == 2):
                torch.nn.init.normal_(matrix, std=0.02)

        def forward(self, ids: Any, following: Any) -> Any:
            return self.net(ids, following)[1]

    return Loss()


def llama(torch: Any, sizes: Sizes) -> Any:
    """Llama: RMS norms, rotary positions, grouped queries, SwiGLU, a tied table."""
    nn, F = torch.nn, torch.nn.functional
    dim, heads, groups, inner = sizes["dim"], sizes["heads"], sizes["groups"], sizes["inner"]
    size = dim // heads

    def rotated(x: Any, cos: Any, sin: Any) -> Any:
        left, right = x.chunk(2, dim=-1)
        return (x * cos + torch.cat((-right, left), dim=-1) * sin).to(x.dtype)

    class Attention(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.q = nn.Linear(dim, heads * size, bias=False)
            self.k = nn.Linear(dim, groups * size, bias=False)
            self.v = nn.Linear(dim, groups * size, bias=False)
            self.o = nn.Linear(heads * size, dim, bias=False)

        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            b, t, _ = x.shape
            q = self.q(x).view(b, t, heads, size).transpose(1, 2)
            k = self.k(x).view(b, t, groups, size).transpose(1, 2)
            v = self.v(x).view(b, t, groups, size).transpose(1, 2)
            y = F.scaled_dot_product_attention(rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True,
                                               enable_gqa=True)
            return self.o(y.transpose(1, 2).reshape(b, t, heads * size))

    class FeedForward(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(dim, inner, bias=False)
            self.up = nn.Linear(dim, inner, bias=False)
            self.down = nn.Linear(inner, dim, bias=False)

        def forward(self, x: Any) -> Any:
            return self.down(F.silu(self.gate(x)) * self.up(x))

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.attention = nn.RMSNorm(dim, eps=1e-5), Attention()
            self.norm2, self.feed = nn.RMSNorm(dim, eps=1e-5), FeedForward()

        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            x = x + self.attention(self.norm1(x), cos, sin)
            return x + self.feed(self.norm2(x))

    class Llama(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(sizes["vocab"], dim)
            nn.init.normal_(self.table.weight, std=0.02)
            self.blocks = nn.ModuleList([Block() for _ in range(sizes["layers"])])
            self.norm = nn.RMSNorm(dim, eps=1e-5)
            self.head = nn.Linear(dim, sizes["vocab"], bias=False)
            self.head.weight = self.table.weight
            speeds = 500000.0 ** -(torch.arange(0, size, 2).float() / size)
            angles = torch.outer(torch.arange(sizes["length"]).float(), speeds)
            angles = torch.cat((angles, angles), dim=-1)
            self.register_buffer("cos", angles.cos())
            self.register_buffer("sin", angles.sin())

        def forward(self, ids: Any, following: Any) -> Any:
            x = self.table(ids)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            logits = self.head(self.norm(x))
            return F.cross_entropy(logits.view(-1, logits.shape[-1]), following.view(-1))

    return Llama()


def vit(torch: Any, sizes: Sizes) -> Any:
    """A vision transformer: patches by a convolution, a class token, layer norms before, gelu."""
    nn, F = torch.nn, torch.nn.functional
    dim, heads, patch = sizes["dim"], sizes["heads"], sizes["patch"]

    class Attention(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

        def forward(self, x: Any) -> Any:
            b, t, _ = x.shape
            q, k, v = self.qkv(x).reshape(b, t, 3, heads, dim // heads).permute(2, 0, 3, 1, 4).unbind(0)
            y = F.scaled_dot_product_attention(q, k, v)
            return self.out(y.transpose(1, 2).reshape(b, t, dim))

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.attention, self.norm2 = nn.LayerNorm(dim), Attention(), nn.LayerNorm(dim)
            self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    class ViT(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, dim, patch, patch)
            self.token = nn.Parameter(torch.zeros(1, 1, dim))
            self.position = nn.Parameter(torch.zeros(1, (sizes["side"] // patch) ** 2 + 1, dim))
            self.blocks = nn.Sequential(*[Block() for _ in range(sizes["layers"])])
            self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, sizes["classes"])

        def forward(self, pictures: Any, labels: Any) -> Any:
            x = self.patches(pictures).flatten(2).transpose(1, 2)
            x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1) + self.position
            return F.cross_entropy(self.head(self.norm(self.blocks(x))[:, 0]), labels)

    return ViT()


def moe(torch: Any, sizes: Sizes) -> Any:
    """A decoder whose feed-forward layers are experts: each token goes to two, rows are sorted by expert, and a
    grouped product multiplies the rows of each by its own weights."""
    nn, F = torch.nn, torch.nn.functional
    dim, heads, experts, inner, chosen = (sizes[x] for x in ("dim", "heads", "experts", "inner", "chosen"))

    class Attention(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)

        def forward(self, x: Any) -> Any:
            b, t, _ = x.shape
            q, k, v = (y.view(b, t, heads, dim // heads).transpose(1, 2) for y in self.qkv(x).chunk(3, dim=-1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).reshape(b, t, dim))

    class Experts(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.router = nn.Linear(dim, experts, bias=False)
            self.up = nn.Parameter(torch.empty(experts, dim, inner).normal_(0, 0.02))
            self.down = nn.Parameter(torch.empty(experts, inner, dim).normal_(0, 0.02))

        def forward(self, x: Any) -> Any:
            rows = x.reshape(-1, dim)
            weights, picked = self.router(rows).float().softmax(-1).topk(chosen, dim=-1)
            weights = (weights / weights.sum(-1, keepdim=True)).flatten()
            picked = picked.flatten()
            order = picked.argsort(stable=True)
            ends = (picked[:, None] == torch.arange(experts, device=x.device)).sum(0).cumsum(0).to(torch.int32)
            source = order // chosen
            taken = rows.index_select(0, source).to(torch.bfloat16)
            hidden = F.gelu(F.grouped_mm(taken, self.up.to(torch.bfloat16), offs=ends), approximate="tanh")
            made = F.grouped_mm(hidden, self.down.to(torch.bfloat16), offs=ends)
            made = made * weights.index_select(0, order)[:, None]
            return torch.zeros_like(rows).index_add(0, source, made.to(rows.dtype)).view(x.shape)

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.attention = nn.RMSNorm(dim, eps=1e-5), Attention()
            self.norm2, self.experts = nn.RMSNorm(dim, eps=1e-5), Experts()

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.norm1(x))
            return x + self.experts(self.norm2(x))

    class Decoder(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.table, self.position = nn.Embedding(sizes["vocab"], dim), nn.Embedding(sizes["length"], dim)
            nn.init.normal_(self.table.weight, std=0.02)
            self.blocks = nn.ModuleList([Block() for _ in range(sizes["layers"])])
            self.norm, self.head = nn.RMSNorm(dim, eps=1e-5), nn.Linear(dim, sizes["vocab"], bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids: Any, following: Any) -> Any:
            x = self.table(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.norm(x))
            return F.cross_entropy(logits.view(-1, logits.shape[-1]), following.view(-1))

    return Decoder()


def mlp(torch: Any, sizes: Sizes) -> Any:
    """Three layers on vectors."""
    nn, F = torch.nn, torch.nn.functional

    class Classifier(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(sizes["inputs"], sizes["dim"]), nn.ReLU(),
                                     nn.Linear(sizes["dim"], sizes["dim"]), nn.ReLU(),
                                     nn.Linear(sizes["dim"], sizes["classes"]))

        def forward(self, x: Any, labels: Any) -> Any:
            return F.cross_entropy(self.net(x), labels)

    return Classifier()


_GPT2: Final = {"vocab": 50304, "length": 1024, "layers": 12, "heads": 12, "dim": 768}
_TINY_GPT2: Final = {"vocab": 97, "length": 16, "layers": 2, "heads": 2, "dim": 32, "batch": 2}
ROWS: Final = {
    "llama-1b": Row(llama, {"vocab": 128256, "length": 2048, "layers": 16, "heads": 32, "groups": 8, "dim": 2048,
                            "inner": 8192, "batch": 4},
                    {"vocab": 97, "length": 16, "layers": 2, "heads": 4, "groups": 2, "dim": 32, "inner": 64,
                     "batch": 2}, tokens, 1.08),
    "vit-b": Row(vit, {"side": 224, "patch": 16, "layers": 12, "heads": 12, "dim": 768, "classes": 1000, "batch": 64},
                 {"side": 32, "patch": 8, "layers": 2, "heads": 2, "dim": 32, "classes": 10, "batch": 2}, images, 1.25),
    "moe": Row(moe, {"vocab": 50304, "length": 2048, "layers": 8, "heads": 16, "dim": 1024, "experts": 8, "inner": 4096,
                     "chosen": 2, "batch": 4},
               {"vocab": 97, "length": 16, "layers": 2, "heads": 2, "dim": 32, "experts": 8, "inner": 64, "chosen": 2,
                "batch": 2}, tokens, 1.1),
    "gpt2-b1": Row(gpt2, {**_GPT2, "batch": 1}, _TINY_GPT2, tokens, 4.0),
    "mlp": Row(mlp, {"inputs": 784, "dim": 1024, "classes": 10, "batch": 256},
               {"inputs": 12, "dim": 16, "classes": 10, "batch": 8}, features, 0),
    "gpt2-b16": Row(gpt2, {**_GPT2, "batch": 16}, _TINY_GPT2, tokens, 1.10)}
"""The models of the bars, those that say most first."""
