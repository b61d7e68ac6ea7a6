"""How a dimension of a device mesh holds a tensor: plain descriptions, which compare by value. What would spread a tensor by
them (distribute_tensor, DTensor) says that it is not supported."""


class Placement:
    def is_shard(self, dim=None):
        return isinstance(self, Shard) and (dim is None or self.dim == dim)

    def is_replicate(self):
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op=None):
        return isinstance(self, Partial) and (reduce_op is None or self.reduce_op == reduce_op)

    def _parts(self):
        return ()

    def __eq__(self, other):
        return type(self) is type(other) and self._parts() == other._parts()

    def __hash__(self):
        return hash((type(self).__name__, self._parts()))

    def __repr__(self):
        names = self._parts_names
        return f"{type(self).__name__}({', '.join(f'{n}={v}' for n, v in zip(names, self._parts()))})"

    _parts_names = ()


class Replicate(Placement):
    def __str__(self):
        return "R"


class Shard(Placement):
    _parts_names = ("dim",)

    def __init__(self, dim):
        self.dim = dim

    def _parts(self):
        return (self.dim,)

    @staticmethod
    def local_shard_size_and_offset(curr_local_size, num_chunks, rank):
        """(size, offset) of a rank's part: parts of equal size, the last ones smaller or empty."""
        full = -(-curr_local_size // num_chunks)
        start = min(full * rank, curr_local_size)
        return min(full, curr_local_size - start), start

    def __str__(self):
        return f"S({self.dim})"


class _StridedShard(Shard):
    _parts_names = ("dim", "sf")

    def __init__(self, dim, *, split_factor):
        super().__init__(dim)
        self.split_factor = split_factor

    def _parts(self):
        return (self.dim, self.split_factor)


class Partial(Placement):
    _parts_names = ("reduce_op",)

    def __init__(self, reduce_op="sum"):
        self.reduce_op = reduce_op

    def _parts(self):
        return (self.reduce_op,)

    def __str__(self):
        return f"P({self.reduce_op})"
