"""Loaders: batches of a dataset, fetched here or by worker processes."""
import itertools
import math
import multiprocessing as _mp
from typing import Generic, TypeVar

import taper
from . import _utils
from ._utils.collate import default_collate, default_convert  # noqa: F401
from ._utils.worker import get_worker_info  # noqa: F401
from .dataset import Dataset, IterableDataset
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

__all__ = ["DataLoader", "get_worker_info", "default_collate", "default_convert"]

T_co = TypeVar("T_co", covariant=True)


class _DatasetKind:
    Map, Iterable = 0, 1

    @staticmethod
    def create_fetcher(kind, dataset, auto_collation, collate_fn, drop_last):
        cls = _utils.fetch._MapDatasetFetcher if kind == _DatasetKind.Map else _utils.fetch._IterableDatasetFetcher
        return cls(dataset, auto_collation, collate_fn, drop_last)


class _InfiniteConstantSampler(Sampler):
    def __iter__(self):
        while True:
            yield None


class DataLoader(Generic[T_co]):
    __initialized = False

    def __init__(self, dataset: Dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0, collate_fn=None, pin_memory=False,
                 drop_last=False, timeout=0, worker_init_fn=None, multiprocessing_context=None, generator=None, *, prefetch_factor=None,
                 persistent_workers=False, pin_memory_device="", in_order=True):
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError("prefetch_factor option could only be specified in multiprocessing. Let num_workers > 0 to enable multiprocessing, "
                             "otherwise set prefetch_factor to None.")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        self.dataset, self.num_workers, self.pin_memory, self.pin_memory_device = dataset, num_workers, pin_memory, pin_memory_device
        self.prefetch_factor = 2 if num_workers > 0 and prefetch_factor is None else prefetch_factor
        self.timeout, self.worker_init_fn, self.in_order = timeout, worker_init_fn, in_order
        self.multiprocessing_context = multiprocessing_context
        if isinstance(dataset, IterableDataset):
            self._dataset_kind = _DatasetKind.Iterable
            for what, value in (("shuffle", shuffle or None), ("sampler", sampler), ("batch_sampler", batch_sampler)):
                if value is not None:
                    raise ValueError(f"DataLoader with IterableDataset: expected unspecified {what} option, but got {what}={value}")
        else:
            self._dataset_kind = _DatasetKind.Map
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
            batch_size, drop_last = None, False
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            sampler = (_InfiniteConstantSampler() if self._dataset_kind == _DatasetKind.Iterable
                       else RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset))
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last, self.sampler, self.batch_sampler, self.generator = batch_size, drop_last, sampler, batch_sampler, generator
        self.collate_fn = collate_fn if collate_fn is not None else default_collate if self._auto_collation else default_convert
        self.persistent_workers, self._iterator, self._IterableDataset_len_called = persistent_workers, None, None
        self.__initialized = True

    def __setattr__(self, name, value):
        if self.__initialized and name in ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"):
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    @property
    def _auto_collation(self):
        return self.batch_sampler is not None

    @property
    def _index_sampler(self):
        return self.batch_sampler if self._auto_collation else self.sampler

    def _get_iterator(self):
        return _MultiProcessingDataLoaderIter(self) if self.num_workers else _SingleProcessDataLoaderIter(self)

    def __iter__(self):
        if self.persistent_workers and self.num_workers > 0:
            if self._iterator is None:
                self._iterator = self._get_iterator()
            else:
                self._iterator._reset(self)
            return self._iterator
        return self._get_iterator()

    def __len__(self):
        if self._dataset_kind == _DatasetKind.Iterable:
            n = self._IterableDataset_len_called = len(self.dataset)
            if self.batch_size is None:
                return n
            return n // self.batch_size if self.drop_last else math.ceil(n / self.batch_size)
        return len(self._index_sampler)

    def check_worker_number_rationality(self):
        """Any number may be right."""


def _pinned(data):
    """The same with its tensors in pinned memory."""
    if isinstance(data, taper.Tensor):
        return data.pin_memory()
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, dict):
        return type(data)((k, _pinned(v)) for k, v in data.items())
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(_pinned, data))
    return type(data)(map(_pinned, data)) if isinstance(data, (list, tuple)) else data


class _BaseDataLoaderIter:
    def __init__(self, loader):
        self._dataset, self._dataset_kind, self._auto_collation = loader.dataset, loader._dataset_kind, loader._auto_collation
        self._index_sampler, self._num_workers, self._collate_fn, self._drop_last = loader._index_sampler, loader.num_workers, loader.collate_fn, loader.drop_last
        self._timeout, self._pin_memory = loader.timeout, loader.pin_memory and taper.cuda.is_available()
        self._start(loader)

    def _start(self, loader):
        self._sampler_iter = iter(self._index_sampler)
        self._base_seed = taper.empty((), dtype=taper.int64).random_(generator=loader.generator).item()
        self._num_yielded = 0

    _reset = _start

    def __iter__(self):
        return self

    def _next_index(self):
        return next(self._sampler_iter)

    def __next__(self):
        data = self._next_data()
        self._num_yielded += 1
        return _pinned(data) if self._pin_memory else data

    def __len__(self):
        return len(self._index_sampler)


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    def _start(self, loader):
        super()._start(loader)
        self._dataset_fetcher = _DatasetKind.create_fetcher(self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn, self._drop_last)

    _reset = _start

    def _next_data(self):
        return self._dataset_fetcher.fetch(self._next_index())


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    def __init__(self, loader):
        self._procs = []
        super().__init__(loader)

    def _start(self, loader):
        super()._start(loader)
        self._stop()
        ctx = loader.multiprocessing_context or "fork"
        ctx = _mp.get_context(ctx) if isinstance(ctx, str) else ctx
        kind, auto, collate, drop = self._dataset_kind, self._auto_collation, self._collate_fn, self._drop_last
        self._results, self._tasks = ctx.Queue(), [ctx.Queue() for _ in range(self._num_workers)]
        for i, tasks in enumerate(self._tasks):
            p = ctx.Process(target=_utils.worker._worker_loop, daemon=True,
                            args=(_FetcherOf(kind, auto, collate, drop), self._dataset, tasks, self._results, self._base_seed,
                                  loader.worker_init_fn, i, self._num_workers))
            p.start()
            self._procs.append(p)
        self._sent = self._got = 0
        self._ready, self._alive, self._turn = {}, set(range(self._num_workers)), itertools.cycle(range(self._num_workers))
        for _ in range(loader.prefetch_factor * self._num_workers):
            self._send()

    _reset = _start

    def _send(self):
        try:
            idx = self._next_index()
        except StopIteration:
            return
        for _ in range(self._num_workers):
            w = next(self._turn)
            if w in self._alive:
                self._tasks[w].put((self._sent, idx))
                self._sent += 1
                return

    def _next_data(self):
        while self._got < self._sent:
            while self._got not in self._ready:
                try:
                    n, w, data, err = self._results.get(timeout=self._timeout or 5)
                except Exception:
                    dead = [p.pid for p in self._procs if not p.is_alive()]
                    if dead or self._timeout:
                        self._stop()
                        raise RuntimeError(f"DataLoader worker (pid(s) {', '.join(map(str, dead))}) exited unexpectedly" if dead
                                           else f"DataLoader timed out after {self._timeout} seconds") from None
                    continue
                self._ready[n] = (w, data, err)
            w, data, err = self._ready.pop(self._got)
            self._got += 1
            if err == "end":  # this worker's stream is over
                self._alive.discard(w)
                self._send()
                continue
            self._send()
            if err is not None:
                self._stop()
                cls, text = err
                try:
                    raise cls(text)
                except TypeError:
                    raise RuntimeError(text) from None
            return data
        self._stop()
        raise StopIteration

    def _stop(self):
        procs, self._procs = self._procs, []
        for p, tasks in zip(procs, getattr(self, "_tasks", [])):
            tasks.put(None)
        for p in procs:
            p.join(1)
            if p.is_alive():
                p.terminate()

    def __del__(self):
        self._stop()


class _FetcherOf:
    """Makes the fetcher in the worker, where the dataset's stream is begun."""

    def __init__(self, *how):
        self.kind, self.auto, self.collate, self.drop = how

    def __call__(self, dataset):
        return _DatasetKind.create_fetcher(self.kind, dataset, self.auto, self.collate, self.drop)
