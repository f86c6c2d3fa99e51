"""Tensor parallelism: modules whose weights are shared out over the processes of a mesh, by a plan.

In: a module, a mesh, and a plan of styles by submodule. Out: the same module, whose parameters are parts.

Names are those of torch.distributed.tensor.parallel. A style says how a module's weights lie, and how what goes in and
comes out does; where a layout changes, `redistribute` is recorded, and gradients change it back. Tensors between
modules are plain: what a process holds of them.
"""

from genesis.nn.parallel.tensor.losses import VocabularyParallel as VocabularyParallel
from genesis.nn.parallel.tensor.losses import split_cross_entropy as split_cross_entropy
from genesis.nn.parallel.tensor.plan import parallelize_module as parallelize_module
from genesis.nn.parallel.tensor.prepare import PrepareModuleInput as PrepareModuleInput
from genesis.nn.parallel.tensor.prepare import PrepareModuleInputOutput as PrepareModuleInputOutput
from genesis.nn.parallel.tensor.prepare import PrepareModuleOutput as PrepareModuleOutput
from genesis.nn.parallel.tensor.style import ParallelStyle as ParallelStyle
from genesis.nn.parallel.tensor.weights import ColwiseParallel as ColwiseParallel
from genesis.nn.parallel.tensor.weights import ReplicateParallel as ReplicateParallel
from genesis.nn.parallel.tensor.weights import RowwiseParallel as RowwiseParallel
from genesis.nn.parallel.tensor.weights import SequenceParallel as SequenceParallel
from genesis.nn.parallel.tensor.weights import ShardedWeights as ShardedWeights
