"""Low-rank layers beside frozen ones (LoRA; Hu et al. 2022): what is learnt of a large model is small.

    y = W x + (alpha / rank) · B A x        W: (out, in), frozen; A: (rank, in); B: (out, rank), 0 at first
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import genesis
import genesis.nn.functional as F
from genesis import Tensor, nn

TARGETS: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The linear layers of a block."""


class LoRALinear(nn.Module):
    """A frozen linear layer with a low-rank one beside it.

    Args:
        base: the layer; its parameters are frozen.
        rank: of the product.
        alpha: the product is scaled by alpha / rank.
        dropout: probability, of what goes into the low-rank layer.
    """

    def __init__(self, base: nn.Linear, rank: int, alpha: float, dropout: float = 0.0):
        super().__init__()
        self.base, self.scale = base.requires_grad_(False), alpha / rank
        device = base.weight.device
        self.lora_A = nn.Parameter(genesis.empty(rank, base.in_features, device=device))
        self.lora_B = nn.Parameter(genesis.zeros(base.out_features, rank, device=device))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) → (…, out)."""
        y = self.base(x)
        low = F.linear(F.linear(self.dropout(x).to(self.lora_A.dtype), self.lora_A), self.lora_B)
        return y + (low * self.scale).to(y.dtype)

    @genesis.no_grad()
    def merged(self) -> nn.Linear:
        """The layer with the product added to its weight, in the weight's dtype."""
        weight = self.base.weight
        weight.copy_((weight.float() + self.scale * (self.lora_B.float() @ self.lora_A.float())).to(weight.dtype))
        return self.base.requires_grad_(True)


class LoRA:
    """The low-rank layers of a model, which is frozen but for them.

    Args:
        model: whose linear layers get one beside them, in place.
        rank, alpha, dropout: see `LoRALinear`.
        targets: the names of the layers, as they end; or one name.

    `state_dict()` has what is learnt, `merge()` makes the model one without such layers again.

    Raises:
        ValueError: a rank below 1, or no layer has such a name.

    >>> from genesis.models import LlamaConfig, LlamaForCausalLM
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
    ...                                      num_attention_heads=2))
    >>> lora = LoRA(model, rank=2, targets=("q_proj", "v_proj"))
    >>> sum(p.numel() for p in model.parameters() if p.requires_grad)
    128
    >>> sorted(lora.state_dict())
    ['model.layers.0.self_attn.q_proj.lora_A', 'model.layers.0.self_attn.q_proj.lora_B', \
'model.layers.0.self_attn.v_proj.lora_A', 'model.layers.0.self_attn.v_proj.lora_B']
    """

    def __init__(self, model: nn.Module, rank: int = 8, alpha: float = 16.0, dropout: float = 0.0,
                 targets: Sequence[str] | str = TARGETS):
        if rank < 1:
            raise ValueError(f"LoRA: rank={rank} is no rank; it is at least 1")
        targets = (targets,) if isinstance(targets, str) else targets
        found = [(name, module) for name, module in model.named_modules()
                 if isinstance(module, nn.Linear) and name.rpartition(".")[2] in targets]
        if not found:
            raise ValueError(f"LoRA: the model has no linear layer named {', '.join(targets)}")
        self.model = model
        self._needed = {name for name, p in model.named_parameters() if p.requires_grad}
        model.requires_grad_(False)
        self.layers = {name: LoRALinear(module, rank, alpha, dropout) for name, module in found}
        for name, layer in self.layers.items():
            _set(model, name, layer)

    def parameters(self) -> Iterator[nn.Parameter]:
        """What is learnt."""
        for layer in self.layers.values():
            yield layer.lora_A
            yield layer.lora_B

    def state_dict(self) -> dict[str, Tensor]:
        """The low-rank matrices by name."""
        return {f"{name}.{part}": getattr(layer, part).detach() for name, layer in self.layers.items()
                for part in ("lora_A", "lora_B")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave, all of it or nothing.

        Raises:
            ValueError: other names or shapes than this one's.
        """
        own = self.state_dict()
        different = sorted(set(own) ^ set(state)) or [n for n in own if tuple(own[n].shape) != tuple(state[n].shape)]
        if different:
            raise ValueError(f"LoRA.load_state_dict: {different[0]} is not as in this model: other layers or another "
                             "rank")
        with genesis.no_grad():
            for name, tensor in own.items():
                tensor.copy_(state[name])

    def merge(self) -> nn.Module:
        """Add the products to the weights and take the low-rank layers away; returns the model."""
        for name, layer in self.layers.items():
            _set(self.model, name, layer.merged())
        self.layers = {}
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in self._needed)
        return self.model


def _set(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module)
