"""The part of a dataset that one process of several takes."""
import math

import taper
from .sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """Every num_replicas-th index from rank on, of an order that all processes draw from the same seed."""

    def __init__(self, dataset, num_replicas=None, rank=None, shuffle=True, seed=0, drop_last=False):
        if num_replicas is None or rank is None:
            from taper import distributed as dist
            if not dist.is_available():
                raise RuntimeError("Requires distributed package to be available")
            num_replicas = dist.get_world_size() if num_replicas is None else num_replicas
            rank = dist.get_rank() if rank is None else rank
        if rank >= num_replicas or rank < 0:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank, self.shuffle, self.seed, self.drop_last = dataset, num_replicas, rank, shuffle, seed, drop_last
        self.epoch = 0
        n = len(dataset)
        self.num_samples = math.ceil((n - num_replicas) / num_replicas) if drop_last and n % num_replicas else math.ceil(n / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self):
        n = len(self.dataset)
        if self.shuffle:
            g = taper.Generator()
            g.manual_seed(self.seed + self.epoch)
            indices = taper.randperm(n, generator=g).tolist()
        else:
            indices = list(range(n))
        if not self.drop_last and indices:
            while len(indices) < self.total_size:  # from the start again, so that all have as many
                indices += indices[:self.total_size - len(indices)]
        return iter(indices[self.rank:self.total_size:self.num_replicas])

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        """Another order from the next iteration on."""
        self.epoch = epoch
