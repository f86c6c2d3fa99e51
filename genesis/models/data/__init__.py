"""What language models are trained on: tokens on the disk, documents in rows, chats with their answers marked.

    texts ─ tokenizer ─▶ shards.py: files of tokens and where documents end ─▶ windows.py: rows of tokens
    jsonl ─ tokenizer ─▶ examples.py: tokens, and which are learnt ─▶ packing.py: rows of whole examples

Out go samples of numpy arrays, which `utils.data.DataLoader` makes batches of: `input_ids`, `targets` (the token that
follows each; -100 where none counts) and, where documents are kept apart, `documents` and `position_ids`.
"""

from genesis.models.data.examples import Example, read_examples
from genesis.models.data.packing import PackedExamples
from genesis.models.data.shards import TokenFolder, copy_tokenizer, write_tokens
from genesis.models.data.texts import read_texts
from genesis.models.data.windows import TokenWindows

__all__ = ["Example", "PackedExamples", "TokenFolder", "TokenWindows", "copy_tokenizer", "read_examples",
           "read_texts", "write_tokens"]
