"""Networks that are trained before their task: images beside texts, sound that is masked, inputs of any kind."""

from __future__ import annotations

import math
from collections import OrderedDict
from functools import partial
from typing import Any

from .lab import Lab, program


@program(chaotic=True)
def images_beside_texts(lab: Lab) -> Any:
    """CLIP: a pooled image and the end of a text have the same direction; a temperature that is learnt and bounded."""
    T, nn, F = lab.T, lab.nn, lab.F
    width, length = 12, 6

    class WideNorm(nn.LayerNorm):
        def forward(self, x: Any) -> Any:
            return super().forward(x.type(T.float64)).type(x.dtype)

    class QuickGELU(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * T.sigmoid(1.702 * x)

    class Block(nn.Module):
        def __init__(self, mask: Any = None) -> None:
            super().__init__()
            self.attention, self.mask = nn.MultiheadAttention(width, 2), mask
            self.norms = nn.ModuleList([WideNorm(width), WideNorm(width)])
            self.mlp = nn.Sequential(OrderedDict(c_fc=nn.Linear(width, 4 * width), gelu=QuickGELU(),
                                                 c_proj=nn.Linear(4 * width, width)))

        def forward(self, x: Any) -> Any:
            mask = self.mask.to(dtype=x.dtype, device=x.device)
            y = self.norms[0](x)
            x = x + self.attention(y, y, y, need_weights=False, attn_mask=mask)[0]
            return x + self.mlp(self.norms[1](x))

    class Pool(nn.Module):
        def __init__(self, places: int) -> None:
            super().__init__()
            self.where = nn.Parameter(T.randn(places + 1, width) / width**0.5)
            self.k_proj, self.q_proj, self.v_proj, self.c_proj = (nn.Linear(width, width) for _ in range(4))

        def forward(self, x: Any) -> Any:
            x = x.flatten(start_dim=2).permute(2, 0, 1)
            x = T.cat([x.mean(dim=0, keepdim=True), x], dim=0) + self.where[:, None, :]
            found, _ = F.multi_head_attention_forward(
                query=x[:1], key=x, value=x, embed_dim_to_check=width, num_heads=2, q_proj_weight=self.q_proj.weight,
                k_proj_weight=self.k_proj.weight, v_proj_weight=self.v_proj.weight, in_proj_weight=None,
                in_proj_bias=T.cat([self.q_proj.bias, self.k_proj.bias, self.v_proj.bias]), bias_k=None, bias_v=None,
                add_zero_attn=False, dropout_p=0.0, out_proj_weight=self.c_proj.weight,
                out_proj_bias=self.c_proj.bias, use_separate_proj_weight=True, training=self.training,
                need_weights=False)
            return found.squeeze(0)

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.visual = nn.Sequential(nn.Conv2d(3, width, 4, 4, bias=False), Pool(4))
            self.tokens, self.where = nn.Embedding(20, width), nn.Parameter(T.empty(length, width))
            self.text = nn.Sequential(*(Block(T.full((length, length), float("-inf")).triu_(1)) for _ in range(2)))
            self.last, self.projection = WideNorm(width), nn.Parameter(T.empty(width, width))
            self.scale = nn.Parameter(T.ones([]) * math.log(1 / 0.07))

        def forward(self, images: Any, texts: Any) -> Any:
            x = self.last(self.text((self.tokens(texts) + self.where).permute(1, 0, 2)).permute(1, 0, 2))
            text = x[T.arange(x.shape[0]), texts.argmax(dim=-1)] @ self.projection
            image = self.visual(images)
            image, text = image / image.norm(dim=1, keepdim=True), text / text.norm(dim=1, keepdim=True)
            scores = self.scale.exp() * image @ text.t()
            return scores, scores.t()
    model = lab.same(Pair())
    nn.init.constant_(model.scale, 4.0)
    optimizer = lab.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.98), eps=1e-6)
    found: list[Any] = []
    for _ in range(6):
        by_image, by_text = model(lab.normal(4, 3, 8, 8), lab.ints(20, 4, length))
        truth = T.arange(4, device=by_image.device)
        loss = (F.cross_entropy(by_image, truth) + F.cross_entropy(by_text, truth)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.scale.data = T.clamp(model.scale.data, 0, 4.02)
        found += [loss.item(), by_image.softmax(dim=-1).diagonal(), model.scale.item()]

    def halve(layer: Any) -> None:
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            layer.weight.data = layer.weight.data.half()
        for name in ("projection", "in_proj_weight"):
            if getattr(layer, name, None) is not None:
                getattr(layer, name).data = getattr(layer, name).data.half()
    model.apply(halve)
    return [found, [p.dtype == T.float16 for p in model.parameters()]]


@program(chaotic=True)
def masked_sound(lab: Lab) -> Any:
    """wav2vec: a wave's frames, some of them masked, are told from others by what quantizing made of them."""
    T, nn, F = lab.T, lab.nn, lab.F
    width, words, groups = 8, 5, 2

    class Frames(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(
                nn.Sequential(nn.Conv1d(ins, width, wide, stride=stride, bias=False),
                              nn.GroupNorm(width, width) if ins == 1 else nn.Identity(), nn.GELU())
                for ins, wide, stride in ((1, 5, 3), (width, 3, 2), (width, 3, 2)))

        def forward(self, x: Any) -> Any:
            x = x.unsqueeze(1)
            for layer in self.layers:
                x = layer(x)
            return x.transpose(1, 2)

    class Quantizer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.book = nn.Parameter(T.empty(1, groups * words, width // groups))
            self.scores = nn.Linear(width, groups * words)

        def forward(self, x: Any, temperature: float) -> Any:
            scores = self.scores(x.reshape(-1, width)).view(-1, words)
            hard = scores.new_zeros(*scores.shape).scatter_(-1, scores.max(-1)[1].view(-1, 1), 1.0)
            used = scores.view(-1, groups, words).softmax(dim=-1).mean(dim=0)
            perplexity = T.exp(-T.sum(used * T.log(used + 1e-7), dim=-1)).sum()
            noise = -T.log(-T.log(lab.uniform(*scores.shape) + 1e-10) + 1e-10)
            soft = ((scores + noise) / temperature).softmax(-1)
            chosen = (hard - soft.detach() + soft).view(-1, groups * words).unsqueeze(-1) * self.book
            return chosen.view(-1, groups, words, width // groups).sum(-2).view(*x.shape), perplexity
    frames, quantizer = lab.same(Frames()), lab.same(Quantizer())
    encoder = lab.same(nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 2, 16, dropout=0.0, batch_first=True),
                                             1, enable_nested_tensor=False))
    around = lab.same(nn.utils.parametrizations.weight_norm(
        nn.Conv1d(width, width, 4, padding=2, groups=2), name="weight", dim=2))
    hidden = nn.Parameter(lab.uniform(width))
    parameters = [p for m in (frames, quantizer, encoder, around) for p in m.parameters()] + [hidden]
    optimizer = lab.optim.Adam(parameters, lr=1e-3)
    found: list[Any] = []
    for turn in range(5):
        x = frames(lab.normal(2, 80))
        penalty = x.pow(2).mean()
        seen, steps = x.clone(), x.shape[1]
        mask = lab.uniform(2, steps) < 0.6
        mask[:, 0] = True
        count = int(mask.sum(1).min())
        for row in range(2):
            at = mask[row].nonzero().squeeze(-1)
            mask[row, at[count:]] = False
        x = x.clone()
        x[mask] = hidden
        wanted, perplexity = quantizer(seen[mask].view(2, -1, width), 2.0 * 0.9**turn)
        x = encoder(x + F.gelu(around(x.transpose(1, 2))[:, :, :-1]).transpose(1, 2))[mask].view(2, -1, width)
        others = lab.ints(max(1, count - 1), 2, 3 * count)
        own = T.arange(count).unsqueeze(-1).expand(-1, 3).flatten()
        others = T.where(others >= own, others + 1, others).clamp(max=count - 1) + T.arange(2).unsqueeze(1) * count
        wrong = wanted.reshape(-1, width)[others.view(-1)].view(2, count, 3, width).permute(2, 0, 1, 3)
        same = (wanted == wrong).all(-1)
        logits = T.cosine_similarity(x, T.cat([wanted.unsqueeze(0), wrong], dim=0), dim=-1) / 0.1
        if same.any():
            logits[1:][same] = float("-inf")
        truth = T.zeros(2 * count, dtype=T.long)
        loss = F.cross_entropy(logits.transpose(0, 2).reshape(-1, 4), truth, reduction="sum")
        loss = loss + 0.1 * (groups * words - perplexity) / (groups * words) + 10 * penalty
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        found += [loss.item(), perplexity.item(), norm, count]
    return found


@program
def latent_array(lab: Lab) -> Any:
    """A Perceiver: a few latent rows read an image of any size, with layers that are made once and tied."""
    T, nn, F = lab.T, lab.nn, lab.F
    width = 12

    def made_once(make: Any) -> Any:
        kept: dict[Any, Any] = {}

        def made(key: Any = None, tied: bool = True) -> Any:
            return kept.setdefault(key, make()) if tied else make()
        return made

    class Normed(nn.Module):
        def __init__(self, inner: Any, context: int | None = None) -> None:
            super().__init__()
            self.inner, self.norm = inner, nn.LayerNorm(width)
            self.context_norm = nn.LayerNorm(context) if context is not None else None

        def forward(self, x: Any, **options: Any) -> Any:
            if self.context_norm is not None:
                options.update(context=self.context_norm(options["context"]))
            return self.inner(self.norm(x), **options) + x

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)

        def forward(self, x: Any) -> Any:
            value, gate = self.up(x).chunk(2, dim=-1)
            return self.down(value * F.gelu(gate))

    class Attention(nn.Module):
        def __init__(self, ins: int = width, heads: int = 2, each: int = 6) -> None:
            super().__init__()
            self.heads, self.scale = heads, each**-0.5
            self.to_q, self.to_kv = nn.Linear(width, heads * each, bias=False), nn.Linear(ins, 2 * heads * each)
            self.to_out = nn.Linear(heads * each, width)

        def forward(self, x: Any, context: Any = None, mask: Any = None) -> Any:
            q, (k, v) = self.to_q(x), self.to_kv(x if context is None else context).chunk(2, dim=-1)
            q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2).flatten(0, 1) for t in (q, k, v))
            scores = T.einsum("b i d, b j d -> b i j", q, k) * self.scale
            if mask is not None:
                shown = mask.flatten(1).repeat_interleave(self.heads, dim=0).unsqueeze(1)
                scores.masked_fill_(~shown, -T.finfo(scores.dtype).max)
            found = T.einsum("b i j, b j d -> b i d", scores.softmax(dim=-1), v)
            return self.to_out(found.unflatten(0, (-1, self.heads)).transpose(1, 2).flatten(2))

    class Perceiver(nn.Module):
        def __init__(self, bands: int = 2, latents: int = 5, depth: int = 3, classes: int = 4) -> None:
            super().__init__()
            self.bands = bands
            ins = 3 + 2 * (2 * bands + 1)
            reads = made_once(lambda: Normed(Attention(ins, heads=1, each=width), context=ins))
            mixes, thinks = made_once(lambda: Normed(Gated())), made_once(lambda: Normed(Attention()))
            self.latents, self.layers = nn.Parameter(T.randn(latents, width)), nn.ModuleList([])
            for at in range(depth):
                self.layers.append(nn.ModuleList([reads(tied=at > 0), mixes(tied=at > 0), thinks("self", tied=at > 0)]))
            self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))

        def forward(self, image: Any, mask: Any = None) -> Any:
            b, *axes, _ = image.shape
            lines = [T.linspace(-1.0, 1.0, steps=size, device=image.device, dtype=image.dtype) for size in axes]
            place = T.stack(T.meshgrid(*lines, indexing="ij"), dim=-1).unsqueeze(-1)
            waves = place * T.linspace(1.0, 2.0, self.bands, device=image.device)[(*((None,) * (place.ndim - 1)), ...)]
            waves = T.cat([(waves * math.pi).sin(), (waves * math.pi).cos(), place], dim=-1).flatten(-2)
            context = T.cat([image, waves.expand(b, *waves.shape)], dim=-1).flatten(1, -2)
            x = self.latents.expand(b, -1, -1)
            for read, mix, think in self.layers:
                x = think(mix(read(x, context=context, mask=mask)))
            return self.out(x.mean(dim=1))
    model = lab.same(Perceiver())
    optimizer = lab.optim.AdamW(model.parameters(), lr=3e-3)

    @lab.step
    def step(image: Any, mask: Any, target: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(image, mask=mask), target)
        loss.backward()
        optimizer.step()
        return loss
    sizes = [(5, 6), (5, 6), (4, 3), (4, 3), (5, 6), (7, 2), (4, 3)]
    found = [step(lab.normal(3, *s, 3), lab.uniform(3, *s) > 0.2, lab.ints(4, 3)).item() for s in sizes]
    return [found, len(list(model.parameters())), len(model.state_dict())]


@program(chaotic=True)
def random_features(lab: Lab) -> Any:
    """A Performer: softmax by orthogonal random features that are drawn anew, and causal sums of outer products."""
    T, nn = lab.T, lab.nn
    heads, each, features = 2, 6, 10

    def orthogonal(rows: int, columns: int) -> Any:
        blocks = []
        for first in range(0, rows, columns):
            q, r = T.linalg.qr(lab.normal(columns, columns), mode="reduced")
            blocks.append((q * T.diagonal(r).sign()).t()[:min(columns, rows - first)])
        return T.diag(lab.normal(rows, columns).norm(dim=1)) @ T.cat(blocks)

    def kernel(x: Any, *, projection: Any, query: bool) -> Any:
        near = T.einsum("...id,jd->...ij", x * each**-0.25, projection.type_as(x))
        square = (x**2).sum(dim=-1, keepdim=True) / 2 * each**-0.5
        most = near.amax(dim=-1 if query else (-1, -2), keepdim=True).detach()
        return features**-0.5 * (T.exp(near - square - most) + 1e-4)

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.draw = partial(orthogonal, rows=features, columns=each)
            self.register_buffer("projection", self.draw())
            self.qkv, self.out = nn.Linear(heads * each, 3 * heads * each), nn.Linear(heads * each, heads * each)

        @T.no_grad()
        def redraw(self) -> None:
            self.projection.copy_(self.draw())

        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(x).unflatten(-1, (3, heads, each)).permute(2, 0, 3, 1, 4).unbind(0)
            made = partial(kernel, projection=self.projection)
            q, k = made(q, query=True), made(k, query=False)
            scale = 1.0 / T.einsum("...nd,...nd->...n", q, k.cumsum(dim=-2) + 1e-6)
            context = T.einsum("...nd,...ne->...nde", k, v).cumsum(dim=-3)
            y = T.einsum("...nde,...nd,...n->...ne", context, q, scale)
            return self.out(y.transpose(1, 2).flatten(2))
    model = lab.same(nn.Sequential(Attention(), nn.LayerNorm(heads * each)))
    optimizer = lab.optim.Adam(model.parameters(), lr=1e-2)
    found: list[Any] = []
    for turn in range(6):
        x = lab.normal(2, 7, heads * each)
        loss = (model(x) - x.roll(1, dims=1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
        if turn % 2:
            model[0].redraw()
    return [found, model[0].projection]
