"""Where a signature is not torch's, and why: one table for keywords, for places and for defaults.

`tests/test_keywords.py` asks which keywords are taken, `tests/test_signatures.py` where arguments stand and what they
are by default.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

Kind = Literal["keyword", "place", "default"]
"""What differs: a keyword that is not taken, an argument that stands elsewhere, another default."""


class Difference(NamedTuple):
    """A row of the table.

    Attributes:
        kinds: what differs.
        names: a pattern of `space.name`.
        parameters: a pattern.
        why: one line.
    """

    kinds: tuple[Kind, ...]
    names: str
    parameters: str
    why: str


_BOTH: Final[tuple[Kind, ...]] = ("keyword", "place")
_ALL: Final[tuple[Kind, ...]] = ("keyword", "place", "default")
_KEYWORD: Final[tuple[Kind, ...]] = ("keyword",)
_PLACE: Final[tuple[Kind, ...]] = ("place",)
_DEFAULT: Final[tuple[Kind, ...]] = ("default",)

DIFFERENCES: Final[tuple[Difference, ...]] = (
    Difference(_BOTH, "mm|bmm|addmm|baddbmm", "out_dtype",
               "products in another dtype than the operands' are not there"),
    Difference(_ALL, "embedding_bag", ".*",
               "torch.embedding_bag gives four tensors; nn.functional.embedding_bag is here"),
    Difference(_BOTH, "load|save", "pickle_.*", "no pickle is written, and none is executed"),
    Difference(_BOTH, r"Tensor\.requires_grad_", "mode", "torch's stub says so, and torch takes requires_grad"),
    Difference(_ALL, r"nn\.RNNCellBase", ".*", "a base class, of other arguments"),
    Difference(_BOTH, r"autograd\.backward", "grad_variables|inputs",
               "grad_variables is gone; inputs is given by name"),
    Difference(_BOTH, r"autograd\.graph\.RemovableHandle", ".*",
               "handles are made by the functions that register hooks"),
    Difference(_BOTH, r"cuda\.(Event|memory_snapshot)", ".*",
               "of Genesis' own streams, which are polled, and allocator"),
    Difference(_BOTH, r"(autograd\.)?enable_grad|cuda\.device_of|jit\.interface", "orig_func|obj",
               "another word at the same place, which Python gives by position"),

    Difference(_KEYWORD, r"Tensor\.(copy_|to)", "other|x2",
               "torch's own stub says so; torch refuses it or names it otherwise"),
    Difference(_KEYWORD, r"nn\.Sequential", "arg", "a dictionary, which torch's stub gives by position"),
    Difference(_KEYWORD, "result_type", ".*", "takes tensors and numbers by position, as many as one likes"),
    Difference(_KEYWORD, r"linalg\.(eigh|svd|cholesky_ex|inv_ex)", "eigvals|eigvecs|U|S|Vh|L|inverse|info",
               "places for results: `out` has them"),
    Difference(_KEYWORD, "histogram|triangular_solve|lu", "out", "several results, with no place of their own"),
    Difference(_KEYWORD, "compile", "name|recompile_limit|isolate_recompiles|shapes_spec",
               "says how torch's compiler caches"),
    Difference(_KEYWORD, r"Tensor\.to_sparse", "layout|blocksize|dense_dim",
               "matrices by places and values are the one layout"),
    Difference(_KEYWORD, r"autograd\.gradcheck", "check_.*|masked",
               "forward mode, batched gradients and layouts are not checked"),
    Difference(_KEYWORD, r"distributed\..*", ".*", "of backends, stores and start-up that are torch's own"),
    Difference(_KEYWORD, r"testing\.make_tensor", "memory_format", "tensors are made in row-major order"),
    Difference(_KEYWORD, r"Tensor\.resize_|(Tensor\.)?resize_as_", "memory_format",
               "what is resized is in row-major order"),
    Difference(_KEYWORD, r"Tensor\.new", ".*",
               "torch's stub is of the class; the constructor of old takes all by position"),
    Difference(_KEYWORD, r"Tensor\.dim_order", "ambiguity_check", "strides here order the dimensions in one way"),

    Difference(("place", "default"), r"(Tensor\.)?(std|var)(_mean)?", "unbiased",
               "None is the correction's default, which is 1; a truth value at the place of dim is taken for it"),
    Difference(_PLACE, "lu|norm|tensordot", "out|dtype", "`out` is given by name"),
    Difference(_PLACE, r"(nn\.functional\.)?rrelu_?", "generator", "genesis.rrelu is nn.functional's, without one"),
    Difference(_PLACE, r"tensor|Tensor\.new_tensor", "dtype", "torch's stub says so, and torch takes it by name alone"),
    Difference(_PLACE, r"Tensor\.(is_)?contiguous", "memory_format",
               "torch's stub says so, and torch takes it by name alone"),
    Difference(_PLACE, r"(Tensor\.)?scatter_?", "value", "a number at the place of src is the value"),
    Difference(_PLACE, r"randint(_like)?|repeat_interleave|arange", "high|size|repeats|end",
               "fewer arguments are counted"),
    Difference(_PLACE, r"Tensor\.(random_|uniform_)", "from_|to",
               "torch's stub says from_ for from; limits have their places"),
    Difference(_PLACE, r"distributed\.(barrier|new_group)", "timeout|sort_ranks", "of backends that are torch's own"),

    Difference(_DEFAULT, r"(Tensor\.)?(amax|amin|roll)", "dims?", "None is no dimension, as () is in torch"),
    Difference(_DEFAULT, r"(nn\.functional\.)?(avg|max)_pool[123]d(_with_indices)?", "stride",
               "None is the size of the window"),
    Difference(_DEFAULT, r"(nn\.functional\.)?conv[123]d", "padding", "0 is what 'valid' says"),
    Difference(_DEFAULT, r"nn\.functional\.\w+_with_indices", "return_indices", "what torch's function does, too"),
    Difference(_DEFAULT, r"asarray|gradient|meshgrid|tri[lu]_indices|utils\.data\.random_split",
               "requires_grad|spacing|indexing|dtype|generator", "torch's None stands for this"),
    Difference(_DEFAULT, "linspace|logspace", "steps", "torch's stub says so, and torch wants it"),
    Difference(_DEFAULT, r"Tensor\.\w+", "memory_format", "None is the same order"),
    Difference(_DEFAULT, r"nn\.Transformer.*", "activation", "relu, each library's own"),
    Difference(_DEFAULT, r"nn\.utils\.rnn\.PackedSequence|distributed\.DeviceMesh", "batch_sizes|mesh",
               "torch wants it, in the end"),
    Difference(_DEFAULT, "binary_cross_entropy_with_logits|ctc_loss|kl_div|(cosine|hinge)_embedding_loss|"
               "(margin_ranking|triplet_margin)_loss", "reduction",
               "torch's schema says the mean, and its function gives none"),
    Difference(_DEFAULT, r"distributed.*", "op", "the sum, by its name"),
)


def row(kind: Kind, name: str, parameter: str) -> Difference | None:
    """The first row that explains a difference of this kind."""
    return next((x for x in DIFFERENCES if kind in x.kinds and re.fullmatch(x.names, name)
                 and re.fullmatch(x.parameters, parameter)), None)


def rows(*kinds: Kind) -> list[tuple[Kind, Difference]]:
    """Each row of these kinds, once for each: a test that it is needed is parametrized by them."""
    return [(kind, x) for kind in kinds for x in DIFFERENCES if kind in x.kinds]
