"""Networks on images: classifiers of the usual families, and what maps images to images."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import Any

from .lab import Lab, program


def train(lab: Lab, model: Any, x: Any, target: Any, optimizer: Any, loss_of: Any, steps: int = 10) -> list[Any]:
    """The losses of some steps, and what the model then makes of its input."""
    @lab.step
    def step(x: Any, target: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(model(x), target)
        loss.backward()
        optimizer.step()
        return loss
    losses = [step(x, target).item() for _ in range(steps)]
    model.eval()
    with lab.T.no_grad():
        return [losses, model(x)]


@program(quick=True)
def classifier(lab: Lab) -> Any:
    """A perceptron on digits, fed by a DataLoader, as the first tutorial has it."""
    T, nn = lab.T, lab.nn
    T.backends.cudnn.benchmark = True
    device = T.device("cuda" if T.cuda.is_available() else "cpu")
    data = T.utils.data.TensorDataset(lab.normal(80, 1, 6, 6), lab.ints(10, 80))
    loader = T.utils.data.DataLoader(data, batch_size=16, shuffle=False, pin_memory=False)
    model = lab.same(nn.Sequential(nn.Flatten(), nn.Linear(36, 32), nn.ReLU(), nn.Linear(32, 10))).to(device)
    criterion, optimizer = nn.CrossEntropyLoss(), lab.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @lab.step
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        output = model(x)
        loss = criterion(output, y)
        loss.backward()
        optimizer.step()
        return loss, (output.argmax(dim=1) == y).type(T.float).sum()
    losses, correct = [], 0
    for _ in range(2):
        for x, y in loader:
            loss, right = step(x.to(device), y.to(device))
            losses.append(loss.item())
            correct += right.item()
    return [losses, correct / (2 * len(loader.dataset))]


@program
def resnet(lab: Lab) -> Any:
    """Residual blocks with batch norm and a schedule."""
    nn, F = lab.nn, lab.F

    class Block(nn.Module):
        def __init__(self, ins: int, outs: int, stride: int = 1):
            super().__init__()
            self.conv1 = nn.Conv2d(ins, outs, 3, stride=stride, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(outs)
            self.conv2 = nn.Conv2d(outs, outs, 3, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(outs)
            self.shortcut = nn.Sequential()
            if stride != 1 or ins != outs:
                self.shortcut = nn.Sequential(nn.Conv2d(ins, outs, 1, stride=stride, bias=False), nn.BatchNorm2d(outs))

        def forward(self, x: Any) -> Any:
            out = F.relu(self.bn1(self.conv1(x)))
            out = self.bn2(self.conv2(out))
            out += self.shortcut(x)
            return F.relu(out)
    model = nn.Sequential(Block(3, 4), Block(4, 8, 2), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(8, 5))
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
    optimizer = lab.optim.SGD(lab.same(model).parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    return train(lab, model, lab.normal(8, 3, 8, 8), lab.ints(5, 8), optimizer, criterion)


@program
def mobilenet(lab: Lab) -> Any:
    """Depthwise convolutions in inverted residuals."""
    nn = lab.nn

    def block(ins: int, outs: int, stride: int) -> Any:
        wide = 3 * ins
        return nn.Sequential(nn.Conv2d(ins, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(inplace=True),
                             nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide),
                             nn.ReLU6(inplace=True), nn.Conv2d(wide, outs, 1, bias=False), nn.BatchNorm2d(outs))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.ModuleList([block(3, 6, 2), block(6, 6, 1)])
            self.head = nn.Linear(6, 4)

        def forward(self, x: Any) -> Any:
            x = self.features[0](x)
            x = x + self.features[1](x)
            return self.head(x.mean([2, 3]))
    model = lab.same(Net())
    return train(lab, model, lab.normal(6, 3, 8, 8), lab.ints(4, 6), lab.optim.RMSprop(model.parameters(), lr=1e-3,
                 alpha=0.9, momentum=0.9), lab.F.cross_entropy)


@program
def squeeze_and_excitation(lab: Lab) -> Any:
    """Channels weighted by what they hold on average."""
    nn = lab.nn

    class SELayer(nn.Module):
        def __init__(self, channel: int, reduction: int = 4):
            super().__init__()
            self.avg_pool = nn.AdaptiveAvgPool2d(1)
            self.fc = nn.Sequential(nn.Linear(channel, channel // reduction, bias=False), nn.ReLU(inplace=True),
                                    nn.Linear(channel // reduction, channel, bias=False), nn.Sigmoid())

        def forward(self, x: Any) -> Any:
            b, c, _, _ = x.size()
            y = self.fc(self.avg_pool(x).view(b, c)).view(b, c, 1, 1)
            return x * y.expand_as(x)
    model = lab.same(nn.Sequential(nn.Conv2d(3, 8, 3), SELayer(8), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 3)))
    return train(lab, model, lab.normal(4, 3, 8, 8), lab.ints(3, 4), lab.optim.Adam(model.parameters(), lr=0.01),
                 nn.CrossEntropyLoss())


@program
def inception(lab: Lab) -> Any:
    """Branches of several widths, joined over channels, with an auxiliary classifier."""
    nn, T = lab.nn, lab.T

    class Inception(nn.Module):
        def __init__(self, ins: int):
            super().__init__()
            self.b1 = nn.Conv2d(ins, 4, kernel_size=1)
            self.b2 = nn.Sequential(nn.Conv2d(ins, 3, kernel_size=1), nn.ReLU(True), nn.Conv2d(3, 4, 3, padding=1))
            self.b3 = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), nn.Conv2d(ins, 4, kernel_size=1))

        def forward(self, x: Any) -> Any:
            return T.cat([self.b1(x), self.b2(x), self.b3(x)], 1)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Inception(3), Inception(12)
            self.aux, self.head = nn.Linear(12, 3), nn.Linear(12, 3)

        def forward(self, x: Any) -> Any:
            x = T.relu(self.first(x))
            aux = self.aux(T.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1)) if self.training else None
            x = self.head(T.flatten(nn.functional.adaptive_avg_pool2d(self.second(x), 1), 1))
            return (x, aux) if self.training else x
    model = lab.same(Net())
    return train(lab, model, lab.normal(4, 3, 7, 7), lab.ints(3, 4), lab.optim.Adagrad(model.parameters(), lr=0.05),
                 lambda out, y: lab.F.cross_entropy(out[0], y) + 0.3 * lab.F.cross_entropy(out[1], y))


@program
def unet(lab: Lab) -> Any:
    """Segmentation with skips and a Dice loss."""
    nn, T = lab.nn, lab.T

    def double(ins: int, outs: int) -> Any:
        return nn.Sequential(nn.Conv2d(ins, outs, 3, padding=1), nn.GroupNorm(2, outs), nn.LeakyReLU(0.1))

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down1, self.down2, self.pool = double(1, 4), double(4, 8), nn.MaxPool2d(2)
            self.up, self.join, self.out = nn.ConvTranspose2d(8, 4, 2, stride=2), double(8, 4), nn.Conv2d(4, 1, 1)

        def forward(self, x: Any) -> Any:
            skip = self.down1(x)
            x = self.up(self.down2(self.pool(skip)))
            gap = skip.size()[2] - x.size()[2]
            x = nn.functional.pad(x, [gap // 2, gap - gap // 2, gap // 2, gap - gap // 2])
            return self.out(self.join(T.cat([skip, x], dim=1)))

    def dice(logits: Any, target: Any) -> Any:
        p = T.sigmoid(logits)
        overlap = (p * target).sum(dim=(1, 2, 3))
        whole = p.sum(dim=(1, 2, 3)) + target.sum(dim=(1, 2, 3))
        return (1 - (2 * overlap + 1) / (whole + 1)).mean() + lab.F.binary_cross_entropy_with_logits(logits, target)
    model = lab.same(UNet())
    return train(lab, model, lab.normal(2, 1, 9, 9), (lab.uniform(2, 1, 9, 9) > 0.5).float().to(lab.normal(1).dtype),
                 lab.optim.AdamW(model.parameters(), lr=0.01), dice)


@program
def vision_transformer(lab: Lab) -> Any:
    """Patches, a class token and torch's own encoder."""
    nn, T = lab.nn, lab.T

    class ViT(nn.Module):
        def __init__(self, width: int = 16):
            super().__init__()
            self.patch = nn.Conv2d(3, width, kernel_size=4, stride=4)
            self.cls_token = nn.Parameter(T.zeros(1, 1, width))
            self.pos_embed = nn.Parameter(T.zeros(1, 5, width))
            nn.init.trunc_normal_(self.pos_embed, std=0.02)
            layer = nn.TransformerEncoderLayer(d_model=width, nhead=4, dim_feedforward=32, dropout=0.0,
                                               activation="gelu", batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
            self.head = nn.Linear(width, 4)

        def forward(self, x: Any) -> Any:
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = T.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1) + self.pos_embed
            return self.head(self.encoder(x)[:, 0])
    model = lab.same(ViT())
    return train(lab, model, lab.normal(4, 3, 8, 8), lab.ints(4, 4), lab.optim.AdamW(model.parameters(), lr=1e-3),
                 nn.CrossEntropyLoss())


@program
def contrastive(lab: Lab) -> Any:
    """Two views of a batch, drawn together by a normalized temperature-scaled cross-entropy."""
    nn, T, F = lab.nn, lab.T, lab.F
    model = lab.same(nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 8)))

    def info_nce(z: Any, _: Any) -> Any:
        count = z.shape[0] // 2
        labels = T.cat([T.arange(count) for _ in range(2)], dim=0)
        labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).float()
        z = F.normalize(z, dim=1)
        similarity = T.matmul(z, z.T)
        mask = T.eye(labels.shape[0], dtype=T.bool)
        labels = labels[~mask].view(labels.shape[0], -1)
        similarity = similarity[~mask].view(similarity.shape[0], -1)
        positives = similarity[labels.bool()].view(labels.shape[0], -1)
        negatives = similarity[~labels.bool()].view(similarity.shape[0], -1)
        logits = T.cat([positives, negatives], dim=1) / 0.5
        return F.cross_entropy(logits, T.zeros(logits.shape[0], dtype=T.long))
    return train(lab, model, lab.normal(12, 10), None, lab.optim.Adam(model.parameters(), lr=3e-3), info_nce)


@program(chaotic=True)
def siamese(lab: Lab) -> Any:
    """One network for three inputs, a triplet loss and a contrastive one."""
    nn, F = lab.nn, lab.F
    model = lab.same(nn.Sequential(nn.Linear(8, 16), nn.PReLU(), nn.Linear(16, 4)))
    anchor, positive, negative, same = lab.normal(6, 8), lab.normal(6, 8), lab.normal(6, 8), lab.ints(2, 6)
    triplet = nn.TripletMarginLoss(margin=1.0, p=2)

    def loss_of(a: Any, _: Any) -> Any:
        p, n = model(positive), model(negative)
        distance = F.pairwise_distance(a, p, keepdim=True)
        pull = (1 - same).unsqueeze(1) * distance.pow(2) + same.unsqueeze(1) * (1.0 - distance).clamp(min=0.0).pow(2)
        return triplet(a, p, n) + pull.mean()
    return train(lab, model, anchor, None, lab.optim.NAdam(model.parameters(), lr=1e-3), loss_of)


@program(chaotic=True)
def style_transfer(lab: Lab) -> Any:
    """An image is optimized so that features and their Gram matrices match; LBFGS, as the paper's programs have it."""
    nn, F, T = lab.nn, lab.F, lab.T
    features = lab.same(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 6, 3, padding=1))).eval()
    for p in features.parameters():
        p.requires_grad_(False)

    def gram(x: Any) -> Any:
        a, b, c, d = x.size()
        rows = x.view(a * b, c * d)
        return T.mm(rows, rows.t()).div(a * b * c * d)
    content, style = features(lab.normal(1, 3, 6, 6)).detach(), gram(features(lab.normal(1, 3, 6, 6))).detach()
    image = lab.normal(1, 3, 6, 6).requires_grad_(True)
    optimizer = lab.optim.LBFGS([image], lr=0.5, max_iter=4, history_size=5)
    losses = []

    @lab.step
    def score() -> Any:
        found = features(image)
        return F.mse_loss(found, content) + 10 * F.mse_loss(gram(found), style)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = score()
        loss.backward()
        losses.append(loss.item())
        return loss
    for _ in range(4):
        optimizer.step(closure)
    return [losses, image]


@program
def super_resolution(lab: Lab) -> Any:
    """Sub-pixel convolution against a bicubic baseline, and its PSNR."""
    nn, F = lab.nn, lab.F
    model = lab.same(nn.Sequential(nn.Conv2d(1, 8, 5, padding=2), nn.Tanh(), nn.Conv2d(8, 4, 3, padding=1),
                                   nn.PixelShuffle(upscale_factor=2)))
    high = lab.uniform(2, 1, 8, 8)
    low = F.interpolate(high, scale_factor=0.5, mode="bicubic", align_corners=False)
    found = train(lab, model, low, high, lab.optim.Adam(model.parameters(), lr=1e-3), nn.MSELoss())
    return [found, (10 * lab.T.log10(1 / F.mse_loss(found[1], high))).item()]


@program
def lazy_network(lab: Lab) -> Any:
    """Sizes that the first batch gives, and norms of the weights kept apart from their direction."""
    nn = lab.nn
    model = nn.Sequential(nn.LazyConv2d(4, 3, bias=False), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(),
                          nn.LazyLinear(3))
    x = lab.normal(4, 2, 6, 6)
    model(x)
    model[1].reset_running_stats()
    model[0] = nn.utils.parametrizations.weight_norm(model[0])
    model = lab.same(model)
    return [train(lab, model, x, lab.ints(3, 4), lab.optim.SGD(model.parameters(), lr=0.01), nn.CrossEntropyLoss()),
            sorted(model.state_dict())]


@program(chaotic=True)
def where_a_class_is_seen(lab: Lab) -> Any:
    """Grad-CAM by hooks that are taken out again, guided backpropagation, integrated gradients, noise and occlusion."""
    T, nn, F = lab.T, lab.nn, lab.F
    model = lab.same(nn.Sequential(OrderedDict(
        first=nn.Conv2d(3, 6, 3, padding=1), norm=nn.BatchNorm2d(6), act=nn.ReLU(), pool=nn.AvgPool2d(2),
        second=nn.Conv2d(6, 8, 3, padding=1), last=nn.ReLU(), mean=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(),
        head=nn.Linear(8, 4)))).eval()

    class Map:
        def __init__(self, layer: str) -> None:
            self.seen: dict[str, Any] = {}
            target = dict(model.named_modules())[layer]
            self.handles = [
                target.register_forward_hook(lambda module, args, y: self.seen.update(value=y.detach())),
                target.register_full_backward_hook(lambda module, gx, gy: self.seen.update(slope=gy[0].detach())),
                target.register_forward_hook(lambda module, args, y: y * 1.5)]

        def __enter__(self) -> Map:
            return self

        def __exit__(self, *error: object) -> None:
            while self.handles:
                self.handles.pop().remove()

        def __call__(self, x: Any, wanted: int | None = None) -> tuple[Any, Any]:
            logits = model(x)
            score = logits[:, logits.max(1)[-1] if wanted is None else wanted].squeeze()
            model.zero_grad()
            score.backward(retain_graph=True)
            slope, value = self.seen["slope"], self.seen["value"]
            weights = slope.view(*slope.shape[:2], -1).mean(2).view(*slope.shape[:2], 1, 1)
            heat = F.interpolate(F.relu((weights * value).sum(1, keepdim=True)), size=x.shape[2:], mode="bilinear",
                                 align_corners=False)
            return (heat - heat.min()).div(heat.max() - heat.min() + 1e-12).data, logits
    x, found = lab.normal(1, 3, 8, 8), []
    with Map("second") as heat_of:
        found += [*heat_of(x), heat_of(x, 2)[0]]
    path = (T.linspace(0, 1, 8)[:, None, None, None] * x).requires_grad_()
    out = model(path)[:, 1]
    slopes, = T.autograd.grad(outputs=out, inputs=path, grad_outputs=T.ones_like(out))
    found.append(x * ((slopes[:-1] + slopes[1:]) / 2).mean(0, keepdim=True))
    guides = [m.register_full_backward_hook(lambda module, gx, gy: (F.relu(gx[0]),))
              for m in model.modules() if isinstance(m, nn.ReLU)]
    guided = x.clone().requires_grad_(True)
    model(guided)[0].max().backward()
    for handle in guides:
        handle.remove()
    noise = 0
    for _ in range(3):
        noisy = (x + 0.15 * (x.max() - x.min()) * lab.normal(*x.shape)).requires_grad_()
        model(noisy).amax().backward()
        noise = noise + noisy.grad.abs()
    heat = T.zeros(4, 4)
    for i, j in itertools.product(range(4), range(4)):
        hidden = x.clone()
        hidden[..., 2 * i:2 * i + 2, 2 * j:2 * j + 2] = x.mean()
        heat[i, j] = F.softmax(model(hidden), -1)[0, 1]
    slopes = T.autograd.functional.jacobian(lambda z: model(z).softmax(-1), x)
    left = [len(m._forward_hooks) + len(m._backward_hooks) for m in model.modules()]
    return [found, guided.grad, noise.amax(dim=1).div_(3), heat, slopes.abs().sum(dim=(2, 3, 4, 5)), left]
