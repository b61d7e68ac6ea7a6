"""Datasets and loaders."""
import bisect
import itertools
import math
import sys
import time

import taper


class Dataset:
    """Something with __getitem__ (and usually __len__)."""

    def __getitem__(self, index):
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other):
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """Something with __iter__."""


class TensorDataset(Dataset):
    def __init__(self, *tensors):
        if any(t.size(0) != tensors[0].size(0) for t in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple(t[index] for t in self.tensors)

    def __len__(self):
        return self.tensors[0].size(0)


class ConcatDataset(Dataset):
    def __init__(self, datasets):
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        self.cumulative_sizes = list(itertools.accumulate(len(d) for d in self.datasets))

    def __len__(self):
        return self.cumulative_sizes[-1]

    def __getitem__(self, i):
        if i < 0:
            if -i > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            i += len(self)
        d = bisect.bisect_right(self.cumulative_sizes, i)
        return self.datasets[d][i - (self.cumulative_sizes[d - 1] if d else 0)]


class Subset(Dataset):
    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, i):
        return self.dataset[self.indices[i]]

    def __len__(self):
        return len(self.indices)


def random_split(dataset, lengths, generator=None):
    n = len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        sizes = [int(math.floor(n * f)) for f in lengths]
        for i in range(n - sum(sizes)):
            sizes[i % len(sizes)] += 1
        lengths = sizes
    if sum(lengths) != n:
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    perm = taper.randperm(n, generator=generator).tolist()
    ends = list(itertools.accumulate(lengths))
    return [Subset(dataset, perm[e - k:e]) for e, k in zip(ends, lengths)]


class Sampler:
    def __init__(self, data_source=None):
        pass

    def __iter__(self):
        raise NotImplementedError


class SequentialSampler(Sampler):
    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


class RandomSampler(Sampler):
    def __init__(self, data_source, replacement=False, num_samples=None, generator=None):
        self.data_source, self.replacement, self._n, self.generator = data_source, replacement, num_samples, generator

    @property
    def num_samples(self):
        return len(self.data_source) if self._n is None else self._n

    def __iter__(self):
        n = len(self.data_source)
        if self.replacement:
            yield from taper.randint(0, n, (self.num_samples,), generator=self.generator).tolist()
            return
        left = self.num_samples
        while left > 0:
            yield from taper.randperm(n, generator=self.generator).tolist()[:left]
            left -= n

    def __len__(self):
        return self.num_samples


class SubsetRandomSampler(Sampler):
    def __init__(self, indices, generator=None):
        self.indices, self.generator = indices, generator

    def __iter__(self):
        for i in taper.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self):
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    def __init__(self, weights, num_samples, replacement=True, generator=None):
        self.weights = taper.as_tensor(weights, dtype=taper.float64)
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self):
        return iter(taper.multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator).tolist())

    def __len__(self):
        return self.num_samples


class BatchSampler(Sampler):
    def __init__(self, sampler, batch_size, drop_last):
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self):
        it = iter(self.sampler)
        while batch := list(itertools.islice(it, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self):
        n = len(self.sampler)
        return n // self.batch_size if self.drop_last else (n + self.batch_size - 1) // self.batch_size


def default_collate(batch):
    """A list of samples becomes one batch: tensors are stacked, numbers become tensors, containers are kept."""
    first = batch[0]
    if isinstance(first, taper.Tensor):
        return taper.stack(batch)
    if hasattr(first, "__array_interface__") and getattr(first, "shape", None) is not None:
        return taper.stack([taper.as_tensor(b) for b in batch])
    if isinstance(first, float):
        return taper.tensor(batch, dtype=taper.float64)
    if isinstance(first, (bool, int)):
        return taper.tensor(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, dict):
        return type(first)({k: default_collate([b[k] for b in batch]) for k in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(list(s)) for s in zip(*batch)))
    if isinstance(first, (tuple, list)):
        if any(len(b) != len(first) for b in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        return [default_collate(list(s)) for s in zip(*batch)]
    raise TypeError(f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {type(first)}")


def _worker(dataset, collate, tasks, results):
    while (job := tasks.get()) is not None:
        i, idx = job
        try:
            results.put((i, collate([dataset[k] for k in idx]), None))
        except Exception as e:  # handed to the loader, which raises it
            results.put((i, None, f"{type(e).__name__}: {e}"))


class DataLoader:
    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0, collate_fn=None, pin_memory=False,
                 drop_last=False, timeout=0, worker_init_fn=None, multiprocessing_context=None, generator=None, *, prefetch_factor=None,
                 persistent_workers=False, pin_memory_device="", in_order=True):
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
        self.dataset, self.num_workers, self.collate_fn, self.generator = dataset, num_workers, collate_fn, generator
        self.batch_size, self.drop_last, self.iterable = batch_size, drop_last, isinstance(dataset, IterableDataset)
        if self.iterable:
            if shuffle or sampler is not None or batch_sampler is not None:
                raise ValueError(f"DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle={shuffle}")
            self.sampler = self.batch_sampler = None
        else:
            self.sampler = sampler if sampler is not None else RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
            self.batch_sampler = batch_sampler
            if batch_sampler is None and batch_size is not None:
                self.batch_sampler = BatchSampler(self.sampler, batch_size, drop_last)
        self._collate = collate_fn if collate_fn is not None else default_collate if batch_size is not None else lambda b: b

    def __len__(self):
        if self.iterable:
            n = len(self.dataset)
            return n if self.batch_size is None else n // self.batch_size if self.drop_last else math.ceil(n / self.batch_size)
        return len(self.batch_sampler) if self.batch_sampler is not None else len(self.sampler)

    def __iter__(self):
        if self.iterable:
            return self._iterate_stream()
        if self.batch_sampler is None:
            return (self._collate(self.dataset[i]) for i in self.sampler)
        if self.num_workers:
            return self._iterate_workers()
        return (self._collate([self.dataset[i] for i in idx]) for idx in self.batch_sampler)

    def _iterate_stream(self):
        if self.batch_size is None:
            yield from (self._collate(x) for x in self.dataset)
            return
        it = iter(self.dataset)
        while batch := list(itertools.islice(it, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self._collate(batch)

    def _iterate_workers(self):
        import multiprocessing as mp
        ctx = mp.get_context("fork")
        tasks, results = ctx.Queue(), ctx.Queue()
        procs = [ctx.Process(target=_worker, args=(self.dataset, self._collate, tasks, results), daemon=True) for _ in range(self.num_workers)]
        for p in procs:
            p.start()
        try:
            sent, got, ready, it = 0, 0, {}, iter(self.batch_sampler)
            for idx in itertools.islice(it, 2 * self.num_workers):
                tasks.put((sent, idx))
                sent += 1
            while got < sent:
                while got not in ready:
                    i, batch, err = results.get()
                    if err:
                        raise RuntimeError(f"Caught an exception in a DataLoader worker process: {err}")
                    ready[i] = batch
                yield ready.pop(got)
                got += 1
                idx = next(it, None)
                if idx is not None:
                    tasks.put((sent, idx))
                    sent += 1
        finally:
            for p in procs:
                tasks.put(None)
            for p in procs:
                p.join(1)
                if p.is_alive():
                    p.terminate()


class progress:
    """for batch in progress(loader, 'epoch 1'): ...  A bar on a terminal, a plain line now and then elsewhere."""

    def __init__(self, iterable, desc="", file=None, every=5.0):
        self.it, self.desc, self.file, self.every = iterable, desc, file or sys.stderr, every
        self.note = ""

    def set_postfix(self, **kw):
        self.note = " ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in kw.items())

    def __iter__(self):
        try:
            total = len(self.it)
        except TypeError:
            total = None
        tty = getattr(self.file, "isatty", lambda: False)()
        start = last = time.monotonic()
        n = 0
        for n, x in enumerate(self.it, 1):
            yield x
            now = time.monotonic()
            if now - last >= (0.1 if tty else self.every):
                last = now
                self._show(n, total, now - start, tty, "\r" if tty else "", "" if tty else "\n")
        self._show(n, total, time.monotonic() - start, tty, "\r" if tty else "", "\n")

    def _show(self, n, total, dt, tty, head, tail):
        rate = n / dt if dt else 0
        if tty and total:
            k = 24 * n // total
            text = f"{self.desc} [{'#' * k}{'.' * (24 - k)}] {n}/{total} {rate:.1f}/s {self.note}"
        else:
            text = f"{self.desc} {n}{'/' + str(total) if total else ''} {rate:.1f}/s {self.note}"
        self.file.write(head + text.strip() + ("  " if tty else "") + tail)
        self.file.flush()
