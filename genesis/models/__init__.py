"""Models built from `genesis.nn`.

    config.json ─ family (qwen3.py, llama.py, …) ─▶ Architecture ─▶ Transformer of parts (parts.py)
    safetensors ─ folder.py ─ conversion.py ─▶ parameters

`GPT` is a model of its own, a short file to read and to train.
"""

from genesis.ir.suggest import suggesting
from genesis.models.architecture import Architecture
from genesis.models.auto import AutoModel, AutoModelForCausalLM, config_for, config_of
from genesis.models.bert import BertConfig, BertModel
from genesis.models.causal_lm import CausalLM, CausalLMOutput
from genesis.models.config import ModelConfig
from genesis.models.gpt import GPT, GPTConfig
from genesis.models.gpt2 import GPT2Config, GPT2LMHeadModel
from genesis.models.llama import LlamaConfig, LlamaForCausalLM
from genesis.models.lora import LoRA
from genesis.models.mistral import MistralConfig, MistralForCausalLM
from genesis.models.pretrained import PreTrainedModel
from genesis.models.qwen2 import Qwen2Config, Qwen2ForCausalLM
from genesis.models.qwen3 import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
from genesis.models.transformer import Transformer

__all__ = ["GPT", "Architecture", "AutoModel", "AutoModelForCausalLM", "BertConfig", "BertModel", "CausalLM",
           "CausalLMOutput", "GPT2Config", "GPT2LMHeadModel", "GPTConfig", "LlamaConfig", "LlamaForCausalLM",
           "LoRA", "MistralConfig", "MistralForCausalLM", "ModelConfig", "PreTrainedModel", "Qwen2Config",
           "Qwen2ForCausalLM", "Qwen3Config", "Qwen3ForCausalLM", "Qwen3MoeConfig", "Qwen3MoeForCausalLM",
           "Transformer", "config_for", "config_of"]

__getattr__ = suggesting(__name__)
