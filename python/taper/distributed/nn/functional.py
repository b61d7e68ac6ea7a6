"""Collectives that gradients pass through: the gradient of each is the collective that goes the other way."""
import taper

from .. import distributed_c10d as c10d
from ..distributed_c10d import ReduceOp


def _scaled(group):
    return c10d.get_world_size(group)


class _AllReduce(taper.autograd.Function):
    @staticmethod
    def forward(ctx, op, group, tensor):
        ctx.op, ctx.group = op, group
        out = tensor.detach().clone(memory_format=taper.contiguous_format)
        c10d.all_reduce(out, op, group)
        return out

    @staticmethod
    def backward(ctx, grad):
        if ctx.op not in (ReduceOp.SUM, ReduceOp.AVG):
            raise RuntimeError(f"all_reduce with {ctx.op} has no derivative here")
        return None, None, _AllReduce.apply(ctx.op, ctx.group, grad)


class _Broadcast(taper.autograd.Function):
    @staticmethod
    def forward(ctx, src, group, tensor):
        ctx.src, ctx.group = src, group
        out = tensor.detach().clone()
        c10d.broadcast(out, src, group)
        return out

    @staticmethod
    def backward(ctx, grad):
        g = _Reduce.apply(ctx.src, ReduceOp.SUM, ctx.group, grad)
        return None, None, g if c10d.get_rank() == ctx.src else taper.zeros_like(g)


class _Reduce(taper.autograd.Function):
    @staticmethod
    def forward(ctx, dst, op, group, tensor):
        ctx.dst, ctx.group = dst, group
        out = tensor.detach().clone()
        c10d.reduce(out, dst, op, group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return None, None, None, _Broadcast.apply(ctx.dst, ctx.group, grad.contiguous())


class _AllGather(taper.autograd.Function):
    @staticmethod
    def forward(ctx, group, tensor):
        ctx.group = group
        out = [taper.empty_like(tensor) for _ in range(c10d.get_world_size(group))]
        c10d.all_gather(out, tensor.detach().contiguous(), group)
        return tuple(out)

    @staticmethod
    def backward(ctx, *grads):
        out = taper.empty_like(grads[0])
        c10d.reduce_scatter(out, [g.contiguous() for g in grads], group=ctx.group)
        return None, out


class _AllToAll(taper.autograd.Function):
    @staticmethod
    def forward(ctx, group, sizes, *tensors):
        ctx.group, ctx.sizes = group, [t.shape for t in tensors]
        out = tuple(taper.empty(s, dtype=tensors[0].dtype) for s in sizes)
        c10d.all_to_all(list(out), [t.detach().contiguous() for t in tensors], group)
        return out

    @staticmethod
    def backward(ctx, *grads):
        return (None, None) + tuple(_AllToAll.apply(ctx.group, ctx.sizes, *grads))


def all_gather(tensor, group=None):
    return _AllGather.apply(group, tensor)


def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    return _AllReduce.apply(op, group, tensor)


def broadcast(tensor, src, group=None):
    return _Broadcast.apply(src, group, tensor)


def reduce(tensor, dst, op=ReduceOp.SUM, group=None):
    return _Reduce.apply(dst, op, group, tensor)


def all_to_all(output_tensor_list, input_tensor_list, group=None):
    return _AllToAll.apply(group, [t.shape for t in output_tensor_list], *input_tensor_list)


def gather(tensor, dst=0, group=None):
    """All ranks take part; the tensors at dst, zeros elsewhere."""
    got = all_gather(tensor, group)
    return list(got) if c10d.get_rank() == dst else [taper.zeros_like(t) for t in got]


def scatter(tensors, src=0, group=None):
    both = _Broadcast.apply(src, group, taper.stack(list(tensors)))
    return both[c10d.get_rank(group)]


class _ReduceScatter(taper.autograd.Function):
    @staticmethod
    def forward(ctx, op, group, like, *tensors):
        ctx.op, ctx.group = op, group
        out = taper.empty_like(like)
        c10d.reduce_scatter(out, [t.detach().contiguous() for t in tensors], op, group)
        return out

    @staticmethod
    def backward(ctx, grad):
        if ctx.op is not ReduceOp.SUM:
            raise RuntimeError(f"reduce_scatter with {ctx.op} has no derivative here")
        return (None, None, None) + _AllGather.apply(ctx.group, grad.contiguous())


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None):
    """This rank's part of the sum, of the shape of output."""
    return _ReduceScatter.apply(op, group, output.detach(), *input_list)


class _AllToAllSingle(taper.autograd.Function):
    @staticmethod
    def forward(ctx, group, shape, out_sizes, in_sizes, tensor):
        ctx.group, ctx.shape, ctx.out_sizes, ctx.in_sizes = group, tensor.shape, out_sizes, in_sizes
        out = taper.empty(shape, dtype=tensor.dtype, device=tensor.device)
        c10d.all_to_all_single(out, tensor.detach().contiguous(), out_sizes, in_sizes, group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return None, None, None, None, _AllToAllSingle.apply(ctx.group, ctx.shape, ctx.in_sizes, ctx.out_sizes, grad.contiguous())


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None):
    """Parts of the input go to the ranks, parts of theirs come back, in the shape of output."""
    return _AllToAllSingle.apply(group, output.shape, output_split_sizes, input_split_sizes, input)
