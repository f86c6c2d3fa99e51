"""Qwen3, dense and with experts (Yang et al. 2025): queries and keys have a norm of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from genesis import Tensor
from genesis.models.architecture import Architecture, Experts
from genesis.models.balance import balance_loss, routers_heard
from genesis.models.causal_lm import CausalLM, CausalLMOutput
from genesis.models.config import ROTARY_FIELDS, ModelConfig, windows_of
from genesis.models.conversion import Conversion, stacked
from genesis.models.llama import parts_of

if TYPE_CHECKING:
    from genesis.models.transformer import Cache


class Qwen3Config(ModelConfig):
    """The fields of a Qwen3's `config.json`."""

    model_type = "qwen3"
    fields = {
        "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128, "hidden_act": "silu",
        "max_position_embeddings": 32768, "initializer_range": 0.02, "rms_norm_eps": 1e-6, "attention_bias": False,
        "attention_dropout": 0.0, "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28,
        "layer_types": None, "tie_word_embeddings": False, **ROTARY_FIELDS,
    }

    def architecture(self) -> Architecture:
        """Llama's, with a norm of each head's queries and keys."""
        return replace(parts_of(self), qkv_bias=self.attention_bias, out_bias=self.attention_bias, qk_norm=True,
                       windows=self.windows(), experts=self.experts())

    def windows(self) -> tuple[int | None, ...]:
        """How many tokens each layer looks back; None for all."""
        return windows_of(self, self.num_hidden_layers)

    def experts(self) -> tuple[Experts | None, ...]:
        """No layer has any."""
        return ()


class Qwen3ForCausalLM(CausalLM):
    """A dense Qwen3."""

    config_class = Qwen3Config


class Qwen3MoeConfig(Qwen3Config):
    """The fields of the `config.json` of a Qwen3 with experts."""

    model_type = "qwen3_moe"
    fields = {
        **Qwen3Config.fields, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 24,
        "num_key_value_heads": 4, "head_dim": None, "decoder_sparse_step": 1, "moe_intermediate_size": 768,
        "num_experts_per_tok": 8, "num_experts": 128, "norm_topk_prob": False,
        "router_aux_loss_coef": 0.001, "output_router_logits": False, "mlp_only_layers": None,
    }
    other_names = {"num_local_experts": "num_experts"}  # transformers 5 writes the first, and reads either
    fixed = {"use_qk_norm": True, "shared_expert_intermediate_size": 0, "qkv_bias": False}  # Qwen3-Coder's has them

    @classmethod
    def by_own_names(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The fields, none by another family's name. Of two counts of experts `num_local_experts`
        is the one, as in transformers."""
        local = given.get("num_local_experts")
        found = {name: value for name, value in given.items() if name != "num_local_experts"}
        return super().by_own_names(found if local is None else {**found, "num_experts": local})

    def windows(self) -> tuple[int | None, ...]:
        """All layers have the window: transformers does not read `max_window_layers` of this family."""
        if self.layer_types is not None:
            return super().windows()
        return (self.sliding_window if self.use_sliding_window else None,) * self.num_hidden_layers

    def experts(self) -> tuple[Experts | None, ...]:
        """Every `decoder_sparse_step`-th layer has experts, but those that `mlp_only_layers` names.

        Raises:
            ValueError: a token goes through more experts than there are.
        """
        plain, count = set(self.mlp_only_layers or ()), self.num_experts
        part = Experts(count, self.num_experts_per_tok, self.moe_intermediate_size, self.norm_topk_prob)
        found = tuple(part if i not in plain and count and (i + 1) % self.decoder_sparse_step == 0 else None
                      for i in range(self.num_hidden_layers))
        if any(found) and self.num_experts_per_tok > count:
            raise ValueError(f"Qwen3MoeConfig: num_experts_per_tok={self.num_experts_per_tok} is out of range: there "
                             f"are {count} experts")
        return found


class Qwen3MoeForCausalLM(CausalLM):
    """A Qwen3 with experts. A folder has three matrices for each expert; the model keeps one tensor of each kind."""

    config_class = Qwen3MoeConfig

    def conversions(self) -> Sequence[Conversion]:
        """Each layer's experts, stacked."""
        return [stacked([f"model.layers.{layer}.mlp.experts.{i}.{part}.weight" for i in range(experts.count)],
                        f"model.layers.{layer}.mlp.experts.{part}")
                for layer, experts in enumerate(self.spec.experts) if experts is not None
                for part in ("gate_proj", "up_proj", "down_proj")]

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None,
                cache: Cache | None = None, labels: Tensor | None = None, logits_to_keep: int = 0,
                documents: Tensor | None = None) -> CausalLMOutput:
        """`CausalLM.forward`. Where the configuration has `output_router_logits`, the loss has `router_aux_loss_coef`
        times `balance_loss` in it, as in transformers."""
        given = input_ids, attention_mask, position_ids, cache, labels, logits_to_keep, documents
        if labels is None or not self.config.output_router_logits or not any(self.spec.experts):
            return super().forward(*given)
        with routers_heard(self.model) as logits:
            found = super().forward(*given)
        assert found.loss is not None
        balance = balance_loss(logits, self.config.num_experts_per_tok, attention_mask)
        return found._replace(loss=found.loss + self.config.router_aux_loss_coef * balance)
