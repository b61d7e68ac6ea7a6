"""Collectives as values: each takes a tensor and gives a new one. In graphs they are nodes of the names that PyTorch has,
`_c10d_functional.all_reduce` and so on, which start the work, and `wait_tensor`, which ends it. Such nodes have effects: their
order is that of the program on every rank, and none is dropped, joined with another or computed again in backward."""
import taper

from ..library import CustomOpDef
from . import distributed_c10d as c10d

_pending = {}  # address of a result that is being made -> its work


def _op(schema, fake, gradient=None, save=None):
    def define(fn):
        name = schema.split("(")[0]
        op = CustomOpDef("_c10d_functional::" + name, "_c10d_functional::" + schema, fn, effects=True, late=name == "wait_tensor")
        op.register_fake(fake)
        if gradient is not None:
            op.register_autograd(gradient, setup_context=save)
        return op
    return define


def _group(name):
    return c10d._resolve_process_group(name)


_BY_NAME = {"sum": c10d.ReduceOp.SUM, "avg": c10d.ReduceOp.AVG, "product": c10d.ReduceOp.PRODUCT, "prod": c10d.ReduceOp.PRODUCT, "min": c10d.ReduceOp.MIN,
            "max": c10d.ReduceOp.MAX, "band": c10d.ReduceOp.BAND, "bor": c10d.ReduceOp.BOR, "bxor": c10d.ReduceOp.BXOR}


def _keep(out, work):
    if work is not None and out.numel():
        _pending[out.data_ptr()] = out, work
    elif work is not None:
        work.wait()
    return out


def _save(ctx, inputs, output):
    ctx.args = inputs[1:]


def _only_sums(op, name):
    if op not in ("sum", "avg"):
        raise RuntimeError(f"{name} with {op!r} has no derivative here")


def _d_all_reduce(ctx, grad):
    op, group = ctx.args
    _only_sums(op, "all_reduce")
    return wait_tensor(_all_reduce(grad.contiguous(), op, group)), None, None


@_op("all_reduce(Tensor input, str reduce_op, str group_name) -> Tensor", lambda x, op, group: taper.empty(x.shape, dtype=x.dtype, device=x.device),
     _d_all_reduce, _save)
def _all_reduce(input, reduce_op, group_name):
    out = input.clone(memory_format=taper.contiguous_format)
    return _keep(out, c10d.all_reduce(out, _BY_NAME[reduce_op], _group(group_name), async_op=True))


@_op("broadcast(Tensor input, int src, str group_name) -> Tensor", lambda x, src, group: taper.empty(x.shape, dtype=x.dtype, device=x.device))
def _broadcast(input, src, group_name):
    out = input.clone(memory_format=taper.contiguous_format)
    return _keep(out, c10d.broadcast(out, group_src=src, group=_group(group_name), async_op=True))


def _d_all_gather(ctx, grad):
    size, group = ctx.args
    return wait_tensor(_reduce_scatter(grad.contiguous(), "sum", size, group)), None, None


@_op("all_gather_into_tensor(Tensor input, int group_size, str group_name) -> Tensor",
     lambda x, size, group: taper.empty((x.shape[0] * size, *x.shape[1:]), dtype=x.dtype, device=x.device), _d_all_gather, _save)
def _all_gather(input, group_size, group_name):
    out = taper.empty((input.shape[0] * group_size, *input.shape[1:]), dtype=input.dtype, device=input.device)
    return _keep(out, c10d.all_gather_into_tensor(out, input.contiguous(), _group(group_name), async_op=True))


def _d_reduce_scatter(ctx, grad):
    op, size, group = ctx.args
    _only_sums(op, "reduce_scatter_tensor")
    g = wait_tensor(_all_gather(grad.contiguous(), size, group))
    return g / size if op == "avg" else g, None, None, None


@_op("reduce_scatter_tensor(Tensor input, str reduce_op, int group_size, str group_name) -> Tensor",
     lambda x, op, size, group: taper.empty((x.shape[0] // size, *x.shape[1:]), dtype=x.dtype, device=x.device), _d_reduce_scatter, _save)
def _reduce_scatter(input, reduce_op, group_size, group_name):
    out = taper.empty((input.shape[0] // group_size, *input.shape[1:]), dtype=input.dtype, device=input.device)
    return _keep(out, c10d.reduce_scatter_tensor(out, input.contiguous(), _BY_NAME[reduce_op], _group(group_name), async_op=True))


def _d_all_to_all(ctx, grad):
    out, inp, group = ctx.args
    return wait_tensor(_all_to_all(grad.contiguous(), inp, out, group)), None, None, None


@_op("all_to_all_single(Tensor input, SymInt[] output_split_sizes, SymInt[] input_split_sizes, str group_name) -> Tensor",
     lambda x, o, i, group: taper.empty((sum(o), *x.shape[1:]), dtype=x.dtype, device=x.device), _d_all_to_all, _save)
def _all_to_all(input, output_split_sizes, input_split_sizes, group_name):
    out = taper.empty((sum(output_split_sizes), *input.shape[1:]), dtype=input.dtype, device=input.device)
    return _keep(out, c10d.all_to_all_single(out, input.contiguous(), list(output_split_sizes), list(input_split_sizes), _group(group_name), async_op=True))


def _d_wait(ctx, grad):
    return grad.clone()


@_op("wait_tensor(Tensor tensor) -> Tensor", lambda x: taper.empty(x.shape, dtype=x.dtype, device=x.device), _d_wait)
def wait_tensor(tensor):
    """The values of a collective that was started."""
    out, work = _pending.pop(tensor.data_ptr(), (None, None))
    if work is not None:
        work.wait()
    return tensor.clone()


def _named(group):
    """(the group's name, its size) of a group, a mesh of one dimension, or (mesh, dimension)."""
    if isinstance(group, tuple):
        group = group[0].get_group(group[1])
    elif hasattr(group, "get_group"):
        group = group.get_group()
    elif isinstance(group, str):
        group = _group(group)
    elif isinstance(group, list):
        group = c10d._find_pg_by_ranks_and_tag("", group)
    group = c10d._check(group)
    return group.group_name, group.size()


def all_reduce(self, reduceOp="sum", group=None, tag=""):
    name, _ = _named(group)
    return wait_tensor(_all_reduce(self, reduceOp.lower(), name))


def broadcast(self, src, group=None, tag=""):
    name, _ = _named(group)
    return wait_tensor(_broadcast(self, src, name))


def all_gather_tensor(self, gather_dim=0, group=None, tag=""):
    name, size = _named(group)
    out = wait_tensor(_all_gather(self, size, name))
    return out if gather_dim == 0 else taper.cat(taper.chunk(out, size, dim=0), dim=gather_dim)


all_gather_tensor_autograd = all_gather_tensor


def reduce_scatter_tensor(self, reduceOp="sum", scatter_dim=0, group=None, tag=""):
    name, size = _named(group)
    if self.shape[scatter_dim] % size:
        raise AssertionError(f"input dimension {scatter_dim} ({self.shape[scatter_dim]}) must be a multiple of group_size {size}")
    x = self if scatter_dim == 0 else taper.cat(taper.chunk(self, size, dim=scatter_dim))
    return wait_tensor(_reduce_scatter(x, reduceOp.lower(), size, name))


reduce_scatter_tensor_autograd = reduce_scatter_tensor


def all_to_all_single(self, output_split_sizes=None, input_split_sizes=None, group=None, tag=""):
    name, size = _named(group)
    even = [self.shape[0] // size] * size
    return wait_tensor(_all_to_all(self, output_split_sizes or even, input_split_sizes or even, name))


all_to_all_single_autograd = all_to_all_single


def permute_tensor(self, src_dst, group=None, tag=""):
    """The tensor of rank s for each s with src_dst[s] == this rank."""
    name, size = _named(group)
    if len(src_dst) != size or sorted(src_dst) != list(range(size)):
        raise ValueError(f"src_dst is a list of the {size} ranks of the group in some order, not {src_dst}")
    me, rows = _group(name).rank(), self.numel()
    flat = self.contiguous().view(-1)
    got = _all_to_all(flat, [rows if to == me else 0 for to in src_dst], [rows if r == src_dst[me] else 0 for r in range(size)], name)
    return wait_tensor(got).view(self.shape)


class AsyncCollectiveTensor(taper.Tensor):
    """Results here are plain tensors that were waited for; no object is of this class."""
