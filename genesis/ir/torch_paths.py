"""torch's modules whose names are in a module of another name here: `genesis.optim.adamw` has what `genesis.optim` has.

Programs import by such paths (`from torch.nn.modules.batchnorm import _BatchNorm`). A row says where the names are; the
module is made when it is first asked for. Modules of libraries and devices that are never there say so by
`is_available()`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple


class Path(NamedTuple):
    """Modules of torch's, and where their names are.

    Attributes:
        package: the module under `genesis` that they are in; "" for the top.
        names: a regular expression for their whole names.
        homes: the modules under `genesis` that have their names, blank-separated, first come first; "." for the top.
    """

    package: str
    names: str
    homes: str


PATHS = (
    Path("", r"functional", ". nn.functional"),
    Path("", r"serialization", "utils.serialization utils"),
    Path("", r"types", "utils.annotations ."),
    Path("", r"_utils", "utils.flat_tensors"),
    Path("", r"_tensor", "."),
    Path("accelerator", r"memory", "cuda"),
    Path("amp", r"autocast_mode", "amp"),
    Path("autograd", r"variable|grad_mode|gradcheck|anomaly_mode", "autograd ."),
    Path("autograd", r"profiler|profiler_legacy|profiler_util", "profiler autograd"),
    Path("cuda", r"graphs|profiler", "cuda"),
    Path("cuda", r"nvtx", "profiler.nvtx"),
    Path("distributed", r"distributed_c10d|rendezvous", "distributed"),
    Path("distributed", r"device_mesh", "distributed.mesh distributed"),
    Path("distributed.optim", r"zero_redundancy_optimizer", "distributed.optim"),
    Path("distributions", r"bernoulli|beta|binomial|categorical|cauchy|chi2|continuous_bernoulli|dirichlet|exponential|"
         r"fishersnedecor|gamma|generalized_pareto|geometric|gumbel|half_cauchy|half_normal|independent|inverse_gamma|"
         r"kumaraswamy|laplace|lkj_cholesky|log_normal|logistic_normal|lowrank_multivariate_normal|mixture_same_family|"
         r"multinomial|multivariate_normal|negative_binomial|normal|one_hot_categorical|pareto|poisson|"
         r"relaxed_bernoulli|relaxed_categorical|studentT|transformed_distribution|uniform|von_mises|weibull|wishart",
         "distributions distributions.transforms"),
    Path("multiprocessing", r"spawn|pool|queue", "multiprocessing"),
    Path("nn", r"common_types", "utils.annotations nn"),
    Path("nn.modules", r"batchnorm|instancenorm", "nn.modules.channel_norm nn"),
    Path("nn.modules", r"adaptive|channelshuffle|flatten|fold|pixelshuffle|upsampling|linear_cross_entropy(_options)?",
         "nn"),
    Path("nn.parallel", r"data_parallel|parallel_apply|replicate|scatter_gather|comm", "nn.parallel nn"),
    Path("cuda.amp", r"autocast_mode|grad_scaler|common", "cuda.amp amp"),
    Path("cpu.amp", r"autocast_mode|grad_scaler", "cpu.amp amp"),
    Path("nn.utils", r"convert_parameters|init|memory_format", "nn.utils"),
    Path("optim", r"adadelta|adagrad|adamax|adamw|asgd|nadam|radam|rmsprop|rprop", "optim"),
    Path("profiler", r"profiler", "profiler"),
    Path("utils.data", r"dataloader|distributed|_utils", "utils.data"),
    Path("utils.data._utils", r"collate|fetch|pin_memory|worker", "utils.data"),
    Path("utils", r"dlpack", "."),
    Path("utils", r"_pytree", "func.pytree"),
    Path("utils", r"hooks", "nn.modules.hooks"),
)
"""The first row that matches counts; `torch_modules` makes the modules."""

NEVER = (
    Path("", r"mtia|hpu|npu", "there is no such device here: a GPU is genesis.cuda, the processor genesis.cpu"),
    Path("backends", r"cusparselt|kleidiai|miopen|nnpack|opt_einsum|xeon|xnnpack|mha|python_native|quantized|cuda_blas",
         "it belongs to torch's libraries; nothing here asks for it"),
    Path("distributed", r"rpc",
         "processes speak through collectives: genesis.distributed has all_reduce, send and recv"),
    Path("profiler", r"itt", "genesis.profiler measures by itself"),
)
"""What is never there; `homes` is the sentence for whoever wants more than `is_available()`."""


@cache
def row_of(fullname: str, table: Sequence[Path]) -> Path | None:
    """The row for a module, by its full name under Genesis."""
    package, _, name = fullname.partition(".")[2].rpartition(".")
    return next((row for row in table if row.package == package and re.fullmatch(row.names, name)), None)


def is_path(fullname: str) -> bool:
    """True for a module that is made here.

    >>> is_path("genesis.optim.adamw"), is_path("genesis.optim.adamv")
    (True, False)
    """
    return fullname.startswith("genesis.") and (row_of(fullname, PATHS) or row_of(fullname, NEVER)) is not None
