"""Data for training, with torch's names: datasets, samplers, and a loader with worker processes.

In come a dataset (an index → a sample, or an iterable of samples) and how to sample it; out go batches of tensors.

    sampler ─ indices ─▶ workers: dataset[i], collate ─ arrays in shared memory ─▶ loader: tensors
"""

from genesis.ir.suggest import suggesting
from genesis.utils.data.collate import default_collate, default_convert
from genesis.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from genesis.utils.data.loader import DataLoader
from genesis.utils.data.sampler import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from genesis.utils.data.workers import WorkerInfo, get_worker_info

__all__ = ["BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler",
           "IterableDataset", "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset",
           "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "WorkerInfo", "default_collate",
           "default_convert", "get_worker_info", "random_split"]

__getattr__ = suggesting(__name__)
