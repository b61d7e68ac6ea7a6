"""A module on every rank, with the gradients of all: the mean over ranks replaces each rank's own.

Gradients are joined in buckets, in the order in which backward makes them (the last parameters first). When the gradients of a
bucket are there its all-reduce starts, while backward goes on with the next; at the end of backward the results are waited for.
Buckets start in the same order on every rank."""
import contextlib
import logging

import taper
from ... import _C
from ...distributed import distributed_c10d as dist
from ..modules.module import Module

logger = logging.getLogger(__name__)


class GradBucket:
    """What a communication hook sees: gradients of some parameters in one flat tensor."""

    def __init__(self, index, params, last):
        self._index, self._params, self._last = index, params, last
        self._flat = taper.zeros(sum(p.numel() for p in params), dtype=params[0].dtype, device=params[0].device)
        self._views, at = [], 0
        for p in params:
            self._views.append(self._flat[at:at + p.numel()].view(p.shape))
            at += p.numel()
        self.reset()

    def reset(self):
        self.waiting, self.work, self.future = len(self._params), None, None

    def index(self):
        return self._index

    def buffer(self):
        return self._flat

    def set_buffer(self, tensor):
        self._flat.copy_(tensor)

    def gradients(self):
        return list(self._views)

    def parameters(self):
        return list(self._params)

    def is_last(self):
        return self._last


class Reducer:
    """The gradients of one wrapped module on their way to the mean."""

    def __init__(self, params, names, group, bucket_bytes, first_bytes, find_unused, as_view):
        self.params, self.names, self.group, self.find_unused, self.as_view = params, names, group, find_unused, as_view
        self.buckets, self.where = [], {}
        self.hook = None
        self.sync = True
        self.failed = None
        for chunk in self._chunks(bucket_bytes, first_bytes):
            self.buckets.append(chunk)
        self.buckets = [GradBucket(i, c, i == len(self.buckets) - 1) for i, c in enumerate(self.buckets)]
        for b in self.buckets:
            for k, p in enumerate(b._params):
                self.where[id(p)] = b, k
        self.reset()
        for p in params:
            p.register_post_accumulate_grad_hook(self.ready)

    def _chunks(self, cap, first):
        """Parameters from the last to the first, joined by type up to so many bytes; the first bucket is small, to start early."""
        open_, out = {}, []
        for p in reversed(self.params):
            key = p.dtype, p.device
            chunk = open_.setdefault(key, [])
            chunk.append(p)
            limit = first if not out else cap
            if sum(x.numel() * x.element_size() for x in chunk) >= limit:
                out.append(open_.pop(key))
        return out + [c for c in open_.values() if c]

    def reset(self):
        self.seen, self.next, self.running, self.used = set(), 0, False, None
        for b in self.buckets:
            b.reset()

    # --- one backward
    def expect(self, outputs):
        """With find_unused_parameters: parameters that the outputs do not depend on are done from the start."""
        if not self.find_unused or not self.sync:
            return
        reached = _leaves(outputs)
        self.used = taper.zeros(len(self.params), dtype=taper.int32)
        for i, p in enumerate(self.params):
            if id(p) in reached:
                self.used[i] = 1
        self.unused = [p for p in self.params if id(p) not in reached]

    def _begin(self):
        self.running = True
        _C._queue_callback(self.finish)
        if self.used is not None:
            for p in self.unused:
                b, k = self.where[id(p)]
                b._views[k].zero_()
                self._count(p, b)

    def ready(self, p):
        """The gradient of p is there."""
        if not self.sync:
            return
        if not self.running:
            self._begin()
        b, k = self.where[id(p)]
        if id(p) in self.seen:
            raise RuntimeError(f"the gradient of parameter {self._name(p)} was made twice in one backward: a parameter was used outside of the wrapped "
                               "module's forward, or backward runs in pieces. Expected to mark a variable ready only once.")
        view = b._views[k]
        if p.grad.data_ptr() != view.data_ptr():
            with taper.no_grad():
                view.copy_(p.grad)
        self._count(p, b)

    def _name(self, p):
        return next((n for n, q in zip(self.names, self.params) if q is p), "?")

    def _count(self, p, b):
        self.seen.add(id(p))
        b.waiting -= 1
        while self.next < len(self.buckets) and not self.buckets[self.next].waiting:
            self._start(self.buckets[self.next])
            self.next += 1

    def _start(self, b):
        if self.hook is not None:
            state, fn = self.hook
            b.future = fn(state, b)
        else:
            b.work = dist.all_reduce(b._flat, dist.ReduceOp.AVG, self.group, async_op=True)

    def finish(self):
        """The end of backward: every bucket has come, or the next forward says which parameters have not."""
        if self.next < len(self.buckets):
            missing = [self._name(p) for p in self.params if id(p) not in self.seen]
            self.failed = missing
            for b in self.buckets[:self.next]:
                if b.work is not None:
                    b.work.wait()
            self.running = False
            return
        everywhere = None
        if self.used is not None:
            everywhere = self.used
            dist.all_reduce(everywhere, dist.ReduceOp.MAX, self.group)
            everywhere = everywhere.tolist()
        with taper.no_grad():
            for b in self.buckets:
                if b.work is not None:
                    b.work.wait()
                else:
                    got = b.future.wait()
                    got = got[0] if isinstance(got, (list, tuple)) else got
                    if got.data_ptr() != b._flat.data_ptr():
                        b._flat.copy_(got)
                for p, view in zip(b._params, b._views):
                    if everywhere is not None and not everywhere[self.index_of(p)]:
                        continue  # no rank used it: its gradient stays as it is
                    if self.as_view:
                        if p.grad is None or p.grad.data_ptr() != view.data_ptr():
                            p.grad = view
                    elif p.grad is None:
                        p.grad = view.clone()
                    else:
                        p.grad.copy_(view)
        self.reset()

    def index_of(self, p):
        if not hasattr(self, "_index"):
            self._index = {id(q): i for i, q in enumerate(self.params)}
        return self._index[id(p)]

    def complain(self):
        missing, self.failed = self.failed, None
        self.reset()
        raise RuntimeError(
            "Expected to have finished reduction in the prior iteration before starting a new one. Parameters that got no gradient on rank "
            f"{dist.get_rank()}: {', '.join(missing[:20])}{' ...' if len(missing) > 20 else ''}. Pass find_unused_parameters=True where outputs do not "
            "depend on every parameter.")


def _leaves(outputs):
    """ids of the leaf tensors that some output depends on."""
    from ...utils._pytree import tree_leaves
    seen, stack, found = set(), [t.grad_fn for t in tree_leaves(outputs) if isinstance(t, taper.Tensor) and t.grad_fn is not None], set()
    for t in tree_leaves(outputs):
        if isinstance(t, taper.Tensor) and t.grad_fn is None and t.requires_grad:
            found.add(id(t))
    while stack:
        n = stack.pop()
        if n is None or n in seen:
            continue
        seen.add(n)
        v = getattr(n, "variable", None)
        if v is not None:
            found.add(id(v))
        stack.extend(x[0] for x in n.next_functions)
    return found


def _broadcast_all(tensors, group, src=0):
    """Everybody's tensors become those of rank src of the group, a type at a time in one call."""
    by_type = {}
    for t in tensors:
        by_type.setdefault((t.dtype, t.device), []).append(t.detach())
    with taper.no_grad():
        for ts in by_type.values():
            flat = taper.cat([dist._raw(group, t)[0].reshape(-1) for t in ts])
            dist.broadcast(flat, group=group, group_src=src)
            at = 0
            for t in ts:
                t.copy_(flat[at:at + t.numel()].view(t.shape))
                at += t.numel()


def _verify(module, group):
    """All ranks have the same parameters, by name, shape and type."""
    mine = [(n, tuple(p.shape), str(p.dtype), p.requires_grad) for n, p in module.named_parameters()]
    everything = [None] * group.size()
    dist.all_gather_object(everything, mine, group)
    for r, other in enumerate(everything):
        if other != everything[0]:
            differ = next(((a, b) for a, b in zip(everything[0], other) if a != b), (f"{len(everything[0])} parameters", f"{len(other)} parameters"))
            raise RuntimeError(f"DDP expects same model across all ranks, but rank {group._ranks[r]} has {differ[1]} where rank {group._ranks[0]} has {differ[0]}")


class DistributedDataParallel(Module):
    """See the top of this file. taper.compile() may go around the module inside or around the wrapper."""

    def __init__(self, module, device_ids=None, output_device=None, dim=0, broadcast_buffers=True, init_sync=True, process_group=None, bucket_cap_mb=None,
                 find_unused_parameters=False, check_reduction=False, gradient_as_bucket_view=False, static_graph=False, delay_all_reduce_named_params=None,
                 param_to_hook_all_reduce=None, mixed_precision=None, device_mesh=None, skip_all_reduce_unused_params=False):
        super().__init__()
        self.process_group = device_mesh.get_group() if device_mesh is not None else process_group or dist._get_default_group()
        names, params = [], []
        for n, p in module.named_parameters():
            if p.requires_grad:
                names.append(n)
                params.append(p)
        if not params:
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.")
        if mixed_precision is not None:
            raise NotImplementedError("DistributedDataParallel(mixed_precision=): use autocast")
        self.module = module
        self.dim, self.device_ids, self.output_device = dim, None, None
        self.broadcast_buffers, self.find_unused_parameters = broadcast_buffers, find_unused_parameters or static_graph
        self.gradient_as_bucket_view, self.static_graph = gradient_as_bucket_view, static_graph
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        if init_sync:
            _verify(module, self.process_group)
            _broadcast_all(list(module.parameters()) + list(module.buffers()), self.process_group)
        cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * 1024 * 1024)
        reducer = Reducer(params, names, self.process_group, max(1, cap), min(max(1, cap), 1 << 20), self.find_unused_parameters, gradient_as_bucket_view)
        self.__dict__["reducer"] = reducer
        self.__dict__["_has_buffers"] = broadcast_buffers and any(True for _ in module.buffers())

    @contextlib.contextmanager
    def no_sync(self):
        """Gradients stay this rank's own; the next backward outside joins what was added up."""
        was, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        self.reducer.sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = self.reducer.sync = was

    def register_comm_hook(self, state, hook):
        """hook(state, bucket) -> Future of the bucket's values, instead of the mean by all-reduce."""
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self.reducer.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self.reducer.hook = (state, hook)

    def _sync_buffers(self):
        _broadcast_all(list(self.module.buffers()), self.process_group)

    def forward(self, *inputs, **kwargs):
        if self.reducer.failed is not None:
            self.reducer.complain()
        if self._has_buffers and self.require_forward_param_sync and self.require_backward_grad_sync:
            self._sync_buffers()
        out = self.module(*inputs, **kwargs)
        if self.find_unused_parameters and self.require_backward_grad_sync and taper.is_grad_enabled():
            self.reducer.expect(out)
        return out

    def _get_ddp_logging_data(self):
        return {"world_size": self.process_group.size(), "rank": self.process_group.rank(), "backend_name": self.process_group.name(),
                "bucket_sizes": ", ".join(str(b._flat.numel() * b._flat.element_size()) for b in self.reducer.buckets)}
