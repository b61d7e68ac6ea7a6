"""Hooks for DistributedDataParallel.register_comm_hook: the mean by all-reduce, in a smaller type."""
import taper

from ... import distributed_c10d as _dist


def _mean(group, tensor, finish=None):
    """Future of the mean of the ranks' tensors."""
    g = _dist._check(group)
    tensor.div_(g.size())
    future = _dist.all_reduce(tensor, group=g, async_op=True).get_future()
    return future.then(lambda f: finish(f.value()[0]) if finish else f.value()[0])


def allreduce_hook(process_group, bucket):
    """The mean, as without a hook."""
    return _mean(process_group, bucket.buffer())


def _compressed(group, bucket, dtype):
    return _mean(group, bucket.buffer().to(dtype), lambda t: bucket.buffer().copy_(t))


def fp16_compress_hook(process_group, bucket):
    """Gradients travel as float16."""
    return _compressed(process_group, bucket, taper.float16)


def bf16_compress_hook(process_group, bucket):
    """Gradients travel as bfloat16."""
    return _compressed(process_group, bucket, taper.bfloat16)


def _wrapper(hook, dtype):
    def wrapped(state, bucket):
        whole = bucket.buffer()
        bucket._flat = whole.to(dtype)
        try:
            future = hook(state, bucket)
        finally:
            bucket._flat = whole
        return future.then(lambda f: whole.copy_(f.value()))
    return wrapped


def fp16_compress_wrapper(hook):
    """hook, on gradients as float16."""
    return _wrapper(hook, taper.float16)


def bf16_compress_wrapper(hook):
    """hook, on gradients as bfloat16."""
    return _wrapper(hook, taper.bfloat16)
