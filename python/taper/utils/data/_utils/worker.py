"""Processes that fetch."""
import random
from dataclasses import dataclass
from typing import Any

import taper

_worker_info = None


@dataclass(frozen=True)
class WorkerInfo:
    id: int
    num_workers: int
    seed: int
    dataset: Any


def get_worker_info():
    """In a worker process: its number, how many there are, its seed and its copy of the dataset. Elsewhere None."""
    return _worker_info


def _seed(seed):
    random.seed(seed)
    taper.manual_seed(seed)
    import sys
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed & 0xffffffff)


def _worker_loop(fetcher_of, dataset, tasks, results, base_seed, init_fn, worker_id, num_workers):
    """Answers (number, indices) by (number, worker, batch, error); None ends it."""
    global _worker_info
    taper.set_num_threads(1)
    _seed(base_seed + worker_id)
    _worker_info = WorkerInfo(worker_id, num_workers, base_seed + worker_id, dataset)
    error = fetch = None
    try:
        if init_fn is not None:
            init_fn(worker_id)
        fetch = fetcher_of(dataset)
    except Exception as e:  # told with the first answer
        error = e
    while (job := tasks.get()) is not None:
        n, idx = job
        try:
            if error is not None:
                raise error
            results.put((n, worker_id, fetch.fetch(idx), None))
        except StopIteration:
            results.put((n, worker_id, None, "end"))
        except Exception as e:
            import traceback
            results.put((n, worker_id, None, (type(e), f"Caught {type(e).__name__} in DataLoader worker process {worker_id}.\n"
                                                       f"Original {traceback.format_exc()}")))
