"""Words around a language model: tokens of a text and back, chats as a template writes them, text as it is made.

In come strings and a folder's `tokenizer.json`, out go token ids; and the other way round. Needs the extra `llm`.
"""

from genesis.models.text.byte_level import byte_tokenizer, write_byte_tokenizer
from genesis.models.text.streaming import Fragment, stream_generate
from genesis.models.text.tokenizer import Tokenizer

__all__ = ["Fragment", "Tokenizer", "byte_tokenizer", "stream_generate", "write_byte_tokenizer"]
