"""Text from a language model, a token at a time.

    prompt ─ prefill in chunks ─▶ cache (caches.py) ─▶ logits ─ sampling.py ─▶ token ─▶ the model again (decoding.py)

In come a model and token ids, out go token ids, or text where there is a tokenizer (streaming.py).
"""

from genesis.models.generation.caches import GrowingCache, KVCache, SlidingWindowCache, StaticCache, cache_for
from genesis.models.generation.decoding import generate
from genesis.models.generation.sampling import Sampling

__all__ = ["GrowingCache", "KVCache", "Sampling", "SlidingWindowCache", "StaticCache", "cache_for", "generate"]
