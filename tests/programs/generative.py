"""Models that generate: autoencoders, adversaries, diffusion, flows."""

from __future__ import annotations

import copy
import functools
import math
from typing import Any

from .lab import Lab, program


@program(quick=True)
def variational_autoencoder(lab: Lab) -> Any:
    """Reparametrized samples, a Bernoulli likelihood and the divergence by its formula."""
    T, nn, F = lab.T, lab.nn, lab.F

    class VAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc21, self.fc22 = nn.Linear(20, 16), nn.Linear(16, 3), nn.Linear(16, 3)
            self.fc3, self.fc4 = nn.Linear(3, 16), nn.Linear(16, 20)

        def forward(self, x: Any, noise: Any) -> Any:
            hidden = F.relu(self.fc1(x.view(-1, 20)))
            mu, logvar = self.fc21(hidden), self.fc22(hidden)
            z = mu + noise * T.exp(0.5 * logvar)
            return T.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar
    model = lab.same(VAE())
    optimizer = lab.optim.Adam(model.parameters(), lr=1e-3)

    @lab.step
    def step(x: Any, noise: Any) -> Any:
        optimizer.zero_grad()
        recon, mu, logvar = model(x, noise)
        loss = F.binary_cross_entropy(recon, x, reduction="sum")
        loss = loss - 0.5 * T.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss.backward()
        optimizer.step()
        return loss
    return [step(lab.uniform(8, 20), lab.normal(8, 3)).item() for _ in range(10)]


@program
def vae_of_distributions(lab: Lab) -> Any:
    """The same with `distributions`: an Independent Normal, its divergence, a Bernoulli of logits."""
    T, nn = lab.T, lab.nn
    D = T.distributions
    encoder, decoder = lab.same(nn.Linear(12, 6)), lab.same(nn.Linear(3, 12))
    optimizer = lab.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.01)

    @lab.step
    def step(x: Any, noise: Any) -> Any:
        mean, raw = encoder(x).chunk(2, dim=-1)
        q = D.Independent(D.Normal(mean, nn.functional.softplus(raw)), 1)
        z = q.base_dist.loc + q.base_dist.scale * noise
        prior = D.Independent(D.Normal(T.zeros(3), T.ones(3)).expand([z.shape[0], 3]), 1)
        likelihood = D.Independent(D.Bernoulli(logits=decoder(z)), 1)
        loss = (D.kl_divergence(q, prior) - likelihood.log_prob((x > 0.5).to(x.dtype))).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, q.entropy().mean()
    return [step(lab.uniform(8, 12), lab.normal(8, 3)) for _ in range(10)]


@program(chaotic=True)
def dcgan(lab: Lab) -> Any:
    """Generator against discriminator, with weights set by `apply`, and spectral norm."""
    nn, T = lab.nn, lab.T
    generator = nn.Sequential(nn.ConvTranspose2d(5, 8, 2, 1, 0, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
                              nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False), nn.Tanh())
    discriminator = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8),
                                  nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(8, 1, 2), nn.Flatten(0))

    def weights_init(m: Any) -> None:
        classname = m.__class__.__name__
        if classname.find("Conv") != -1:
            nn.init.normal_(m.weight.data, 0.0, 0.02)
        elif classname.find("BatchNorm") != -1:
            nn.init.normal_(m.weight.data, 1.0, 0.02)
            nn.init.constant_(m.bias.data, 0)
    generator.apply(weights_init)
    discriminator.apply(weights_init)
    lab.same(generator), lab.same(discriminator)
    for_d = lab.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    for_g = lab.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()

    @lab.step
    def step(real: Any, noise: Any) -> Any:
        label = T.full((real.size(0),), 1.0)
        discriminator.zero_grad()
        output = discriminator(real).view(-1)
        err_real = criterion(output, label)
        err_real.backward()
        fake = generator(noise)
        label.fill_(0.0)
        err_fake = criterion(discriminator(fake.detach()).view(-1), label)
        err_fake.backward()
        for_d.step()
        generator.zero_grad()
        label.fill_(1.0)
        err_g = criterion(discriminator(fake).view(-1), label)
        err_g.backward()
        for_g.step()
        return err_real + err_fake, err_g
    return [step(lab.normal(4, 1, 4, 4), lab.normal(4, 5, 1, 1)) for _ in range(10)]


@program(chaotic=True)
def wgan_gp(lab: Lab) -> Any:
    """The penalty on the critic's gradient: a second derivative; the critic is spectrally normalized."""
    nn, T = lab.nn, lab.T
    critic = nn.Sequential(nn.Linear(4, 16), nn.Softplus(), nn.Linear(16, 1))
    critic = lab.same(critic)
    generator = lab.same(nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 4)))
    for_c = lab.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
    for_g = lab.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9))

    @lab.step
    def step(real: Any, z: Any, mix: Any) -> Any:
        fake = generator(z).detach()
        between = (mix * real + (1 - mix) * fake).requires_grad_(True)
        score = critic(between)
        grad = T.autograd.grad(outputs=score, inputs=between, grad_outputs=T.ones_like(score), create_graph=True,
                               retain_graph=True, only_inputs=True)[0]
        penalty = ((grad.norm(2, dim=1) - 1) ** 2).mean()
        loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
        for_c.zero_grad()
        loss.backward()
        for_c.step()
        for_g.zero_grad()
        towards = -critic(generator(z)).mean()
        towards.backward()
        for_g.step()
        return loss, penalty, towards
    return [step(lab.normal(6, 4), lab.normal(6, 2), lab.uniform(6, 1)) for _ in range(10)]


@program
def diffusion(lab: Lab) -> Any:
    """Denoising with a cosine schedule, sinusoidal times, a moving average of the weights, and ancestral steps."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Denoiser(nn.Module):
        def __init__(self, width: int = 16):
            super().__init__()
            self.time = nn.Sequential(nn.Linear(8, width), nn.SiLU(), nn.Linear(width, width))
            self.into, self.out, self.norm = nn.Linear(4, width), nn.Linear(width, 4), nn.LayerNorm(width)
            self.register_buffer("rates", T.exp(T.arange(4) * -(math.log(10000) / 3)), persistent=False)

        def forward(self, x: Any, t: Any) -> Any:
            angles = t[:, None].float() * self.rates[None, :]
            emb = T.cat((angles.sin(), angles.cos()), dim=-1).to(x.dtype)
            return self.out(F.silu(self.norm(self.into(x) + self.time(emb))))
    model = lab.same(Denoiser())
    ema = copy.deepcopy(model).eval().requires_grad_(False)
    steps = 20
    u = T.linspace(0, steps, steps + 1, dtype=T.float64) / steps
    bars = T.cos((u + 0.008) / 1.008 * math.pi * 0.5) ** 2
    betas = T.clip(1 - bars[1:] / bars[:-1], 0, 0.999).to(lab.normal(1).dtype)
    alphas = 1.0 - betas
    cumulative = T.cumprod(alphas, dim=0)
    optimizer = lab.optim.AdamW(model.parameters(), lr=1e-3)

    @lab.step
    def step(x: Any, t: Any, noise: Any) -> Any:
        a = cumulative.gather(-1, t).reshape(-1, 1)
        noisy = a.sqrt() * x + (1 - a).sqrt() * noise
        loss = F.smooth_l1_loss(model(noisy, t), noise)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with T.no_grad():
            for slow, fast in zip(ema.parameters(), model.parameters(), strict=True):
                slow.mul_(0.95).add_(fast.data, alpha=0.05)
        return loss
    losses = [step(lab.normal(8, 4), lab.ints(steps, 8), lab.normal(8, 4)).item() for _ in range(10)]
    x = lab.normal(3, 4)
    with T.inference_mode():
        for i in reversed(range(0, steps, 5)):
            t = T.full((3,), i, dtype=T.long)
            x = (x - betas[i] / (1 - cumulative[i]).sqrt() * ema(x, t)) / alphas[i].sqrt()
            if i > 0:
                x = x + betas[i].sqrt() * lab.normal(3, 4)
    return [losses, x.clone()]


@program
def diffusion_transformer(lab: Lab) -> Any:
    """Blocks whose norms are shifted and scaled by the condition, zero at first."""
    _T, nn, F = lab.T, lab.nn, lab.F

    def modulate(x: Any, shift: Any, scale: Any) -> Any:
        return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)

    class Block(nn.Module):
        def __init__(self, width: int):
            super().__init__()
            self.norm1 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
            self.attn = nn.MultiheadAttention(width, 2, batch_first=True)
            self.norm2 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"),
                                     nn.Linear(4 * width, width))
            self.ada = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width, bias=True))

        def forward(self, x: Any, c: Any) -> Any:
            shift1, scale1, gate1, shift2, scale2, gate2 = self.ada(c).chunk(6, dim=1)
            h = modulate(self.norm1(x), shift1, scale1)
            x = x + gate1.unsqueeze(1) * self.attn(h, h, h, need_weights=False)[0]
            return x + gate2.unsqueeze(1) * self.mlp(modulate(self.norm2(x), shift2, scale2))
    blocks = lab.same(nn.ModuleList([Block(8) for _ in range(2)]))
    labels = lab.same(nn.Embedding(5, 8))
    optimizer = lab.optim.AdamW([{"params": blocks.parameters(), "weight_decay": 0.1},
                                 {"params": labels.parameters(), "lr": 1e-2}], lr=1e-3)

    @lab.step
    def step(x: Any, y: Any, noise: Any, t: Any) -> Any:
        h = (1 - t) * x + t * noise
        for block in blocks:
            h = block(h, labels(y))
        loss = F.mse_loss(h, noise - x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    return [step(lab.normal(4, 6, 8), lab.ints(5, 4), lab.normal(4, 6, 8), lab.uniform(4, 1, 1)).item()
            for _ in range(10)]


@program
def realnvp(lab: Lab) -> Any:
    """A flow of coupling layers, its density by a MultivariateNormal."""
    T, nn = lab.T, lab.nn
    prior = T.distributions.MultivariateNormal(T.zeros(4), T.eye(4))

    class Coupling(nn.Module):
        def __init__(self, mask: Any):
            super().__init__()
            self.register_buffer("mask", mask)
            self.s = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(), nn.Linear(8, 4), nn.Tanh())
            self.t = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(), nn.Linear(8, 4))

        def forward(self, x: Any) -> Any:
            kept = x * self.mask
            s, t = self.s(kept) * (1 - self.mask), self.t(kept) * (1 - self.mask)
            return kept + (1 - self.mask) * (x * s.exp() + t), s.sum(-1)
    mask = T.tensor([1.0, 0.0, 1.0, 0.0])
    flows = lab.same(nn.ModuleList([Coupling(mask), Coupling(1 - mask)]))
    optimizer = lab.optim.Adam(flows.parameters(), lr=1e-3)

    @lab.step
    def step(x: Any) -> Any:
        total: Any = 0
        for flow in flows:
            x, log_det = flow(x)
            total = total + log_det
        loss = -(prior.log_prob(x) + total).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return [step(lab.normal(16, 4)).item() for _ in range(10)]


@program
def vector_quantized(lab: Lab) -> Any:
    """A codebook with a straight-through estimator and moving averages."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Quantizer(nn.Module):
        def __init__(self, codes: int = 6, width: int = 4):
            super().__init__()
            self.embedding = nn.Embedding(codes, width)
            self.register_buffer("counts", T.zeros(codes))

        def forward(self, z: Any) -> Any:
            distances = (T.sum(z**2, dim=1, keepdim=True) + T.sum(self.embedding.weight**2, dim=1)
                         - 2 * T.matmul(z, self.embedding.weight.t()))
            indices = T.argmin(distances, dim=1).unsqueeze(1)
            one_hot = T.zeros(indices.shape[0], 6, device=z.device)
            one_hot.scatter_(1, indices, 1)
            q = T.matmul(one_hot, self.embedding.weight)
            self.counts = self.counts * 0.9 + one_hot.sum(0) * 0.1
            loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(q.detach(), z)
            usage = T.mean(one_hot, dim=0)
            return loss, z + (q - z).detach(), T.exp(-T.sum(usage * T.log(usage + 1e-10)))
    encoder, decoder, quantizer = (lab.same(m) for m in (nn.Linear(7, 4), nn.Linear(4, 7), Quantizer()))
    optimizer = lab.optim.Adam([p for m in (encoder, decoder, quantizer) for p in m.parameters()], lr=1e-2,
                               amsgrad=True)

    @lab.step
    def step(x: Any) -> Any:
        loss, q, perplexity = quantizer(encoder(x))
        loss = loss + F.mse_loss(decoder(q), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, perplexity
    return [[step(lab.normal(10, 7)) for _ in range(10)], quantizer.counts]


@program(chaotic=True)
def adversary_of_classes(lab: Lab) -> Any:
    """Parts of BigGAN: statistics scaled by a class, `spectral_norm` of before, hinges, penalties added to gradients;
    each side's parameters want gradients in its own half of a step, beside a moving average of the state."""
    T, nn, F = lab.T, lab.nn, lab.F
    normed, classes = nn.utils.spectral_norm, 3

    class ByClass(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(channels, affine=False)
            self.embed = nn.Embedding(classes, channels * 2)
            self.embed.weight.data[:, :channels].normal_(1, 0.02)
            self.embed.weight.data[:, channels:].zero_()

        def forward(self, x: Any, y: Any) -> Any:
            gain, shift = self.embed(y).chunk(2, 1)
            return gain.view(-1, x.size(1), 1, 1) * self.norm(x) + shift.view(-1, x.size(1), 1, 1)

    class Attention(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.q, self.k, self.v = (normed(nn.Conv2d(channels, 2, 1, bias=False)) for _ in range(3))
            self.out, self.gain = normed(nn.Conv2d(2, channels, 1, bias=False)), nn.Parameter(T.tensor(0.0))

        def forward(self, x: Any) -> Any:
            places = x.shape[2] * x.shape[3]
            q = self.q(x).view(-1, 2, places)
            k, v = (F.max_pool2d(part(x), [2, 2]).view(-1, 2, places // 4) for part in (self.k, self.v))
            weights = F.softmax(T.bmm(q.transpose(1, 2), k), -1)
            return self.gain * self.out(T.bmm(v, weights.transpose(1, 2)).view(-1, 2, *x.shape[2:])) + x

    class Maker(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = normed(nn.Linear(5, 4 * 4 * 4)), ByClass(4)
            self.conv, self.attention = normed(nn.Conv2d(4, 4, 3, padding=1)), Attention(4)
            self.last = normed(nn.Conv2d(4, 1, 3, padding=1))
            self.larger = functools.partial(F.interpolate, scale_factor=2)

        def forward(self, z: Any, y: Any) -> Any:
            h = F.relu(self.norm(self.first(z).view(-1, 4, 4, 4), y))
            return T.tanh(self.last(self.attention(self.conv(self.larger(h)))))

    class Judge(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = normed(nn.Conv2d(1, 4, 3, padding=1)), normed(nn.Conv2d(4, 6, 4, 2, 1))
            self.score, self.embed = normed(nn.Linear(6, 1)), normed(nn.Embedding(classes, 6))

        def forward(self, x: Any, y: Any) -> Any:
            h = T.sum(F.relu(self.second(F.relu(self.first(x)))), [2, 3])
            return self.score(h) + T.sum(self.embed(y) * h, 1, keepdim=True)
    maker, judge = lab.same(Maker()), lab.same(Judge())
    for module in (*maker.modules(), *judge.modules()):
        if hasattr(module, "weight_u"):
            with T.no_grad():
                for vector in (module.weight_u, module.weight_v):
                    vector.copy_(F.normalize(lab.normal(*vector.shape), dim=0))
    first, second = (lab.optim.Adam(m.parameters(), lr=1e-3, betas=(0.0, 0.999)) for m in (maker, judge))
    average = copy.deepcopy(maker)

    def wants_gradients(model: Any, on: bool) -> None:
        for p in model.parameters():
            p.requires_grad = on
    found: list[Any] = []
    for _ in range(4):
        wants_gradients(judge, True)
        wants_gradients(maker, False)
        x, y = lab.uniform(3, 1, 8, 8) * 2 - 1, lab.ints(classes, 3)
        with T.set_grad_enabled(False):
            made = maker(lab.normal(3, 5), y)
        low, high = T.split(judge(T.cat([made, x], 0), T.cat([y, y], 0)), [3, 3])
        of_judge = T.mean(F.relu(1.0 - high)) + T.mean(F.relu(1.0 + low))
        second.zero_grad()
        of_judge.backward()
        with T.no_grad():
            for p in judge.parameters():
                if len(p.shape) >= 2 and p.grad is not None:
                    rows = p.view(p.shape[0], -1)
                    turned = 2 * T.mm(T.mm(rows, rows.t()) * (1.0 - T.eye(rows.shape[0])), rows)
                    p.grad.data += 1e-2 * turned.view(p.shape)
        second.step()
        wants_gradients(judge, False)
        wants_gradients(maker, True)
        of_maker = -T.mean(judge(maker(lab.normal(3, 5), y), y))
        first.zero_grad()
        of_maker.backward()
        first.step()
        with T.no_grad():
            new, kept = maker.state_dict(), average.state_dict()
            for key in new:
                kept[key].data.copy_(kept[key].data * 0.9 + new[key].data * 0.1)
        found += [of_judge.item(), of_maker.item()]
    return [found, average.eval()(lab.normal(3, 5), y), sorted(maker.state_dict())[:4]]
