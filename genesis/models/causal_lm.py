"""A transformer with a head that predicts the next token."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import genesis
import genesis.nn.functional as F
from genesis import Tensor, nn
from genesis.models.architecture import Architecture
from genesis.models.config import ModelConfig
from genesis.models.conversion import with_prefix
from genesis.models.pretrained import PreTrainedModel
from genesis.models.transformer import Cache, Transformer, draw_weights

if TYPE_CHECKING:
    import numpy as np

    from genesis.distributed import DeviceMesh
    from genesis.models.generation.caches import KVCache
    from genesis.models.generation.decoding import Streamer
    from genesis.nn.parallel.tensor import ParallelStyle


class CausalLMOutput(NamedTuple):
    """Attributes:
        logits: (B, T, vocabulary), or of the last tokens only.
        loss: mean cross-entropy in nats, if labels were given.
    """

    logits: Tensor
    loss: Tensor | None = None


class CausalLM(PreTrainedModel):
    """What the families' `…ForCausalLM` are.

    Attributes:
        prefix: what names of tensors begin with in a folder, but the head's.
        split_over: the processes that the head's vocabulary is shared out over, where logits are not gathered.
    """

    prefix: ClassVar[str] = "model."
    split_over: DeviceMesh | None = None

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.model = Transformer(self.spec)
        self.lm_head = nn.Linear(self.spec.dim, self.spec.vocab_size, bias=False)
        draw_weights(self, self.spec.initial_deviation)
        if self.spec.tied:
            self.lm_head.weight = self.model.embed_tokens.weight

    def stored_here(self, stored: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """A folder of the model without a head has names without the prefix."""
        return with_prefix(stored, self.prefix, "lm_head.")

    def settle_ties(self, sources: Mapping[str, Callable[[], np.ndarray]], path: str) -> None:
        """A folder may hold a head beside the table that `config.json` ties it to, and is right, as in transformers:
        where they differ the head has a table of its own."""
        both = [sources.get(name) for name in ("lm_head.weight", "model.embed_tokens.weight")]
        if not self.spec.tied or None in both or _same_bytes(*[read() for read in both if read is not None]):
            return
        warnings.warn(f"{path}: config.json ties the head to the embedding's table, but the files hold two tables that "
                      "differ: they are not tied", stacklevel=2)
        self.config = self.config.replace(tie_word_embeddings=False)
        self.spec = self.model.spec = replace(self.spec, tied=False)
        self.lm_head.weight = nn.Parameter(genesis.empty_like(self.lm_head.weight))

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None,
                cache: Cache | None = None, labels: Tensor | None = None, logits_to_keep: int = 0,
                documents: Tensor | None = None) -> CausalLMOutput:
        """Predict each next token.

        Args:
            input_ids, attention_mask, position_ids, cache, documents: see `Transformer.forward`.
            labels: (B, T) tokens, the input's own: token t predicts label t + 1. -100 where none counts.
            logits_to_keep: how many of the last tokens predict; 0 for all.
        """
        x = self.model(input_ids, attention_mask, position_ids, cache, documents=documents)
        if logits_to_keep:
            x = x[:, -logits_to_keep:]
        logits = self.lm_head(x)
        if labels is None:
            return CausalLMOutput(logits)
        if logits_to_keep:
            raise ValueError("labels need the logits of all tokens: leave logits_to_keep out")
        predicting, following = logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten()
        return CausalLMOutput(logits, self._loss(predicting, following))

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        mesh = self.split_over
        if mesh is None:
            return F.cross_entropy(logits, labels)
        from genesis.nn.parallel.tensor import split_cross_entropy
        assert self.lm_head.weight.sharding is not None
        return split_cross_entropy(logits, labels, mesh, self.lm_head.weight.sharding.region()[0][0])

    def following(self, input_ids: Tensor, length: int | None, cache: Cache, last: Tensor | None = None) -> Tensor:
        """What follows one of the tokens: (B, T) → (B, vocabulary) logits. `model.reserve` made room and gave the
        length. The same program for every token, so that it can be compiled.

        Args:
            last: (1,) int64, which of the T tokens, behind which none counts; the last by default.
        """
        x = self.model.computed(input_ids, length, cache=cache, count=None if last is None else last + 1)
        logits = self.lm_head(x[:, -1] if last is None else x.index_select(1, last).squeeze(1))
        mesh = self.split_over
        if mesh is None:
            return logits
        from genesis.distributed.tensor import Replicate, Shard
        from genesis.distributed.tensor.redistribute import redistribute
        return redistribute(logits, mesh.get_group(), (Shard(-1), Replicate()), size=self.spec.vocab_size)

    def generate(self, input_ids: Tensor | Sequence[Sequence[int]], max_new_tokens: int = 128, temperature: float = 1.0,
                 top_k: int | None = None, top_p: float = 1.0, min_p: float = 0.0, repetition_penalty: float = 1.0,
                 stop: Sequence[int] | int | None = None, seed: int | None = None,
                 attention_mask: Tensor | Sequence[Sequence[int]] | None = None, cache: KVCache | None = None,
                 streamer: Callable[[Tensor], Any] | Streamer | None = None, pad_token_id: int | None = None) -> Tensor:
        """Continue texts: `genesis.models.generation.generate` of this model, which says what the options are.

        Args:
            input_ids: (B, T) tokens, int64, or lists of tokens of unequal lengths.

        Returns:
            (B, T + new tokens): the prompts, left-padded, and what follows.

        >>> from genesis.models import LlamaConfig, LlamaForCausalLM
        >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=50, hidden_size=16, intermediate_size=32,
        ...                                      num_hidden_layers=1, num_attention_heads=2))
        >>> model.generate([[1, 2, 3], [4]], max_new_tokens=5, temperature=0).shape
        genesis.Size([2, 8])
        """
        from genesis.models.generation.decoding import generate
        return generate(self, input_ids, max_new_tokens, temperature, top_k, top_p, min_p, repetition_penalty, stop,
                        seed, attention_mask, cache, streamer, pad_token_id)

    def tp_plan(self, ranks: int, sequence_parallel: bool = False,
                loss_parallel: bool = False) -> dict[str, ParallelStyle]:
        """How `parallelize_module` shares the model out over so many processes (`models/tensor_parallel.py`).

        Args:
            sequence_parallel: tokens are shared out between attention and feed-forward parts.
            loss_parallel: logits are not gathered: `forward` gives those of this process' part of the vocabulary, and
                the loss of all.

        Raises:
            ValueError: its heads cannot be shared out evenly.
        """
        from genesis.distributed.tensor import Replicate
        from genesis.models.tensor_parallel import transformer_plan
        from genesis.nn.parallel.tensor import ColwiseParallel, VocabularyParallel
        return {**transformer_plan(self.spec, ranks, "model.", sequence_parallel),
                "lm_head": VocabularyParallel(self) if loss_parallel else ColwiseParallel(output_layouts=Replicate())}

    @property
    def tp_mesh(self) -> DeviceMesh | None:
        """The processes that share the model's weights; None: each has all of them."""
        return self.model.layers[0].self_attn.mesh

    @property
    def cached(self) -> Architecture:
        """The architecture with the heads of keys that this process has: what its caches are made for."""
        return replace(self.spec, kv_heads=self.model.layers[0].self_attn.kv_heads)

    def parameter_count(self) -> int:
        """Number of parameters, a shared table once."""
        return sum(parameter.numel() for parameter in self.parameters())


def _same_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    import numpy as np
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool(np.array_equal(np.ascontiguousarray(a).view(np.uint8), np.ascontiguousarray(b).view(np.uint8)))
