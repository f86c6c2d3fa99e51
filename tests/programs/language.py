"""Language models and word vectors."""

from __future__ import annotations

import math
from typing import Any

from .lab import Lab, program


@program(quick=True)
def small_gpt(lab: Lab) -> Any:
    """Attention written out, a mask in a buffer, weight decay for matrices only, cosine rate by hand."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Attention(nn.Module):
        def __init__(self, width: int, heads: int, block: int):
            super().__init__()
            self.c_attn, self.c_proj, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads
            self.register_buffer("bias", T.tril(T.ones(block, block)).view(1, 1, block, block))

        def forward(self, x: Any) -> Any:
            B, L, C = x.size()
            q, k, v = self.c_attn(x).split(C, dim=2)
            q, k, v = (t.view(B, L, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = F.softmax(att.masked_fill(self.bias[:, :, :L, :L] == 0, float("-inf")), dim=-1)
            return self.c_proj((att @ v).transpose(1, 2).contiguous().view(B, L, C))

    class Block(nn.Module):
        def __init__(self, width: int):
            super().__init__()
            self.ln_1, self.ln_2, self.attn = nn.LayerNorm(width), nn.LayerNorm(width), Attention(width, 2, 8)
            self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})

        def forward(self, x: Any) -> Any:
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x))))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.transformer = nn.ModuleDict({"wte": nn.Embedding(16, 12), "wpe": nn.Embedding(8, 12),
                                                  "h": nn.ModuleList([Block(12) for _ in range(2)]),
                                                  "ln_f": nn.LayerNorm(12)})
            self.lm_head = nn.Linear(12, 16, bias=False)
            self.transformer.wte.weight = self.lm_head.weight
            self.apply(self._init_weights)

        def _init_weights(self, module: Any) -> None:
            if isinstance(module, (nn.Linear, nn.Embedding)):
                T.nn.init.normal_(module.weight, mean=0.0, std=0.02)

        def forward(self, idx: Any, targets: Any = None) -> Any:
            pos = T.arange(0, idx.size(1), dtype=T.long, device=idx.device)
            x = self.transformer.wte(idx) + self.transformer.wpe(pos)
            for block in self.transformer.h:
                x = block(x)
            x = self.transformer.ln_f(x)
            if targets is None:
                return self.lm_head(x[:, [-1], :]), None
            logits = self.lm_head(x)
            return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
    model = lab.same(GPT())
    named = dict(model.named_parameters())
    groups = [{"params": [p for p in named.values() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in named.values() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = lab.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), fused=False)

    @lab.step
    def step(x: Any, y: Any) -> Any:
        _, loss = model(x, y)
        loss.backward()
        T.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss
    losses = []
    for i in range(10):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 + 0.5 * (1.0 + math.cos(math.pi * i / 10)) * 9e-3
        losses.append(step(lab.ints(16, 3, 8), lab.ints(16, 3, 8)).item())
    idx = T.zeros((1, 1), dtype=T.long)
    for _ in range(6):
        with T.no_grad():
            logits, _ = model(idx[:, -8:])
        logits = logits[:, -1, :] / 0.8
        v, _ = T.topk(logits, min(5, logits.size(-1)))
        logits[logits < v[:, [-1]]] = -float("Inf")
        idx = T.cat((idx, F.softmax(logits, dim=-1).argmax(-1, keepdim=True)), dim=1)
    return [losses, idx]


@program
def llama_with_cache(lab: Lab) -> Any:
    """Rotary embeddings, grouped queries, SwiGLU, RMS norms; generation through a cache equals the whole pass."""
    T, nn, F = lab.T, lab.nn, lab.F
    width, heads, groups, size = 12, 4, 2, 3

    class RMSNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(T.ones(width))

        def forward(self, x: Any) -> Any:
            return self.weight * (x.float() * T.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x)

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wq, self.wo = nn.Linear(width, heads * 4, bias=False), nn.Linear(heads * 4, width, bias=False)
            self.wk, self.wv = nn.Linear(width, groups * 4, bias=False), nn.Linear(width, groups * 4, bias=False)
            self.register_buffer("cache_k", T.zeros(1, 16, groups, 4), persistent=False)
            self.register_buffer("cache_v", T.zeros(1, 16, groups, 4), persistent=False)

        def forward(self, x: Any, start: int, cos: Any, sin: Any, cached: bool) -> Any:
            b, n, _ = x.shape
            q, k, v = (w(x).view(b, n, -1, 4) for w in (self.wq, self.wk, self.wv))

            def turn(t: Any) -> Any:
                left, right = t.chunk(2, dim=-1)
                return t * cos[:, None] + T.cat((-right, left), dim=-1) * sin[:, None]
            q, k = turn(q), turn(k)
            if cached:
                self.cache_k[:b, start:start + n] = k
                self.cache_v[:b, start:start + n] = v
                k, v = self.cache_k[:b, :start + n], self.cache_v[:b, :start + n]
            k, v = (t.repeat_interleave(repeats=heads // groups, dim=2).transpose(1, 2) for t in (k, v))
            y = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, is_causal=n > 1)
            return self.wo(y.transpose(1, 2).reshape(b, n, -1))

    class Llama(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tok, self.attn, self.n1, self.n2 = nn.Embedding(20, width), Attention(), RMSNorm(), RMSNorm()
            self.w1, self.w3 = nn.Linear(width, 16, bias=False), nn.Linear(width, 16, bias=False)
            self.w2, self.out = nn.Linear(16, width, bias=False), nn.Linear(width, 20, bias=False)
            freqs = 1.0 / (10000 ** (T.arange(0, 4, 2)[: 4 // 2].float() / 4))
            angles = T.outer(T.arange(16), freqs).float().repeat(1, 2)
            self.register_buffer("cos", angles.cos())
            self.register_buffer("sin", angles.sin())

        def forward(self, tokens: Any, start: int = 0, cached: bool = False) -> Any:
            n, x = tokens.shape[1], self.tok(tokens)
            x = x + self.attn(self.n1(x), start, self.cos[start:start + n], self.sin[start:start + n], cached)
            h = self.n2(x)
            return self.out(x + self.w2(F.silu(self.w1(h)) * self.w3(h)))
    model = lab.same(Llama())
    optimizer = lab.optim.AdamW(model.parameters(), lr=3e-3)

    @lab.step
    def step(tokens: Any) -> Any:
        loss = F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    losses = [step(lab.ints(20, 2, size * 3)).item() for _ in range(10)]
    tokens, start = lab.ints(20, 1, 4), 0
    with T.inference_mode():
        for _ in range(6):
            logits = model(tokens[:, start:], start, cached=True)
            start = tokens.shape[1]
            tokens = T.cat([tokens, logits[:, -1].argmax(-1, keepdim=True)], dim=-1)
    return [losses, tokens]


@program
def mixture_of_experts(lab: Lab) -> Any:
    """Top-two routing with index_add and a balancing loss."""
    T, nn, F = lab.T, lab.nn, lab.F

    class MoE(nn.Module):
        def __init__(self, width: int = 8, experts: int = 4):
            super().__init__()
            self.gate = nn.Linear(width, experts, bias=False)
            self.experts = nn.ModuleList([nn.Sequential(nn.Linear(width, 12), nn.GELU(), nn.Linear(12, width))
                                          for _ in range(experts)])

        def forward(self, x: Any) -> Any:
            flat = x.view(-1, x.shape[-1])
            logits = self.gate(flat)
            weights, chosen = T.topk(F.softmax(logits, dim=1), 2, dim=-1)
            weights = weights / weights.sum(dim=-1, keepdim=True)
            out = T.zeros_like(flat)
            mask = F.one_hot(chosen, num_classes=len(self.experts)).permute(2, 1, 0)
            for i, expert in enumerate(self.experts):
                idx, top = T.where(mask[i])
                if top.numel() == 0:
                    continue
                out.index_add_(0, top, expert(flat[top]) * weights[top, idx, None])
            share = F.one_hot(chosen, 4).to(flat.dtype).mean(dim=(0, 1))
            return out.view_as(x), 4 * (share * F.softmax(logits, dim=1).mean(0)).sum()
    model = lab.same(MoE())
    optimizer = lab.optim.Adam(model.parameters(), lr=0.01)

    @lab.step
    def step(x: Any, y: Any) -> Any:
        out, balance = model(x)
        loss = F.mse_loss(out, y) + 0.01 * balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, balance
    return [step(lab.normal(2, 5, 8), lab.normal(2, 5, 8)) for _ in range(10)]


@program
def lora(lab: Lab) -> Any:
    """Low-rank updates of frozen layers, put in by replacing children and merged afterwards."""
    nn, T = lab.nn, lab.T

    class LoRALinear(nn.Module):
        def __init__(self, linear: Any, rank: int, alpha: float):
            super().__init__()
            self.linear, self.scale = linear, alpha / rank
            self.A = nn.Parameter(T.empty(rank, linear.in_features))
            self.B = nn.Parameter(T.zeros(linear.out_features, rank))
            nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))

        def forward(self, x: Any) -> Any:
            return self.linear(x) + (x @ self.A.T @ self.B.T) * self.scale
    base = lab.same(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
    base.requires_grad_(False)
    for name, child in list(base.named_children()):
        if isinstance(child, nn.Linear):
            setattr(base, name, LoRALinear(child, rank=2, alpha=4))
    lab.same(base)
    trained = [p for p in base.parameters() if p.requires_grad]
    optimizer = lab.optim.AdamW(trained, lr=0.01)

    @lab.step
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = lab.F.cross_entropy(base(x), y)
        loss.backward()
        optimizer.step()
        return loss
    losses = [step(lab.normal(5, 6), lab.ints(3, 5)).item() for _ in range(10)]
    x = lab.normal(4, 6)
    before = base(x)
    for name, child in list(base.named_children()):
        if isinstance(child, LoRALinear):
            child.linear.weight.data += child.scale * child.B.data @ child.A.data
            setattr(base, name, child.linear)
    return [losses, before, base(x), sum(p.numel() for p in trained)]


@program
def word2vec(lab: Lab) -> Any:
    """Skip-grams with negative samples, and the nearest words."""
    T, nn, F = lab.T, lab.nn, lab.F

    class SkipGram(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.u_embeddings, self.v_embeddings = nn.Embedding(25, 6, sparse=False), nn.Embedding(25, 6)
            self.u_embeddings.weight.data.uniform_(-0.1, 0.1)

        def forward(self, u: Any, v: Any, negative: Any) -> Any:
            emb_u, emb_v, emb_n = self.u_embeddings(u), self.v_embeddings(v), self.v_embeddings(negative)
            score = -F.logsigmoid(T.clamp(T.sum(T.mul(emb_u, emb_v), dim=1), max=10, min=-10))
            against = T.clamp(T.bmm(emb_n, emb_u.unsqueeze(2)).squeeze(), max=10, min=-10)
            return T.mean(score + -T.sum(F.logsigmoid(-against), dim=1))
    model = lab.same(SkipGram())
    optimizer = lab.optim.SGD(model.parameters(), lr=1.0)
    scheduler = lab.optim.lr_scheduler.LambdaLR(optimizer, lambda i: 1 - i / 20)

    @lab.step
    def step(u: Any, v: Any, n: Any) -> Any:
        optimizer.zero_grad()
        loss = model(u, v, n)
        loss.backward()
        optimizer.step()
        return loss
    losses = []
    for _ in range(10):
        losses.append(step(lab.ints(25, 8), lab.ints(25, 8), lab.ints(25, 8, 3)).item())
        scheduler.step()
    table = model.u_embeddings.weight.data
    near = F.cosine_similarity(table[3].unsqueeze(0), table).topk(4)
    return [losses, near.values, near.indices, scheduler.get_last_lr()]


@program
def bag_of_words(lab: Lab) -> Any:
    """Text classification with bags and offsets, gathered by a collate function."""
    T, nn = lab.T, lab.nn
    texts = [(lab.ints(30, n), n % 3) for n in (3, 5, 2, 6, 4, 3, 7, 2)]

    def collate(batch: Any) -> Any:
        labels = T.tensor([label for _, label in batch], dtype=T.int64)
        offsets = T.tensor([0] + [text.size(0) for text, _ in batch][:-1]).cumsum(dim=0)
        return labels, T.cat([text for text, _ in batch]), offsets
    loader = T.utils.data.DataLoader(texts, batch_size=4, shuffle=False, collate_fn=collate)
    bag, fc = lab.same(nn.EmbeddingBag(30, 6, sparse=False)), lab.same(nn.Linear(6, 3))
    optimizer = lab.optim.SGD([*bag.parameters(), *fc.parameters()], lr=1.0)
    scheduler = lab.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    @lab.step
    def step(label: Any, text: Any, offsets: Any) -> Any:
        optimizer.zero_grad()
        loss = lab.F.cross_entropy(fc(bag(text, offsets)), label)
        loss.backward()
        T.nn.utils.clip_grad_norm_(bag.parameters(), 0.1)
        optimizer.step()
        return loss
    losses = []
    for _ in range(5):
        losses += [step(*batch).item() for batch in loader]
        scheduler.step()
    return losses


@program
def translation_transformer(lab: Lab) -> Any:
    """nn.Transformer with padding masks and sinusoids, a Noam schedule, and greedy decoding."""
    T, nn = lab.T, lab.nn
    width = 8
    position = T.arange(0, 12, dtype=T.float).unsqueeze(1)
    div = T.exp(T.arange(0, width, 2).float() * (-math.log(10000.0) / width))
    table = T.zeros(12, width)
    table[:, 0::2] = T.sin(position * div)
    table[:, 1::2] = T.cos(position * div)
    model = lab.same(nn.Transformer(width, 2, 1, 1, 16, dropout=0.0, batch_first=True))
    src_emb, tgt_emb, out = (lab.same(m) for m in (nn.Embedding(14, width), nn.Embedding(14, width), nn.Linear(width,
                                                                                                               14)))
    params = [p for m in (model, src_emb, tgt_emb, out) for p in m.parameters()]
    optimizer = lab.optim.Adam(params, lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    scheduler = lab.optim.lr_scheduler.LambdaLR(
        optimizer, lr_lambda=lambda step: 0.1 * min(max(step, 1) ** -0.5, max(step, 1) * 10 ** -1.5))

    def decode(src: Any, tgt: Any) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.size(1))
        x = src_emb(src) * math.sqrt(width) + table[:src.size(1)]
        y = tgt_emb(tgt) * math.sqrt(width) + table[:tgt.size(1)]
        pad = T.zeros(src.shape, dtype=y.dtype).masked_fill(src == 0, float("-inf"))
        return out(model(x, y, tgt_mask=mask, src_key_padding_mask=pad, memory_key_padding_mask=pad))

    @lab.step
    def step(src: Any, tgt: Any) -> Any:
        logits = decode(src, tgt[:, :-1])
        loss = nn.CrossEntropyLoss(ignore_index=0)(logits.reshape(-1, 14), tgt[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    src, tgt, losses = lab.ints(13, 3, 6) + 1, lab.ints(13, 3, 5) + 1, []
    src[0, 4:] = 0
    for _ in range(10):
        losses.append(step(src, tgt).item())
        scheduler.step()
    ys = T.ones(1, 1).fill_(1).type(T.long)
    with T.no_grad():
        for _ in range(4):
            word = decode(src[:1], ys)[:, -1].max(dim=1)[1].item()
            ys = T.cat([ys, T.ones(1, 1).type_as(ys.data).fill_(word)], dim=1)
    return [losses, ys]
