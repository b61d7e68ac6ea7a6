"""What all distributions share."""
import taper


def broadcast(*values):
    """Numbers and tensors as tensors of one shape."""
    if not all(isinstance(v, (taper.Tensor, int, float)) for v in values):
        raise ValueError("Input arguments must all be instances of Number or torch.Tensor.")
    like = next((v for v in values if isinstance(v, taper.Tensor) and v.is_floating_point()), None)
    dtype = like.dtype if like is not None else taper.get_default_dtype()
    return taper.broadcast_tensors(*[v if isinstance(v, taper.Tensor) else taper.tensor(v, dtype=dtype) for v in values])


class Distribution:
    """batch_shape: independent distributions beside each other; event_shape: the shape of one draw of each."""
    has_rsample = False
    _validate_args = True
    arg_constraints = {}

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if cls.__doc__ is None:  # libraries print it
            cls.__doc__ = f"The distribution {cls.__name__}."

    def __init__(self, batch_shape=(), event_shape=(), validate_args=None):
        self._batch_shape, self._event_shape = taper.Size(batch_shape), taper.Size(event_shape)
        if validate_args is not None:
            self._validate_args = bool(validate_args)

    @staticmethod
    def set_default_validate_args(value):
        Distribution._validate_args = bool(value)

    @property
    def batch_shape(self):
        return self._batch_shape

    @property
    def event_shape(self):
        return self._event_shape

    @property
    def stddev(self):
        return self.variance.sqrt()

    def _check(self, name, value, ok, what):
        if self._validate_args and not taper.compiler.is_compiling() and not bool(ok.all()):
            raise ValueError(f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution {self!r} to satisfy the "
                             f"constraint {what}, but found invalid values:\n{value}")

    def _check_sample(self, value, ok=None, what=None):
        if not isinstance(value, taper.Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        if ok is not None and self._validate_args and not taper.compiler.is_compiling() and not bool(ok.all()):
            raise ValueError(f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the support ({what}) of the "
                             f"distribution {self!r}, but found invalid values:\n{value}")

    def _extended_shape(self, sample_shape=()):
        return taper.Size(tuple(sample_shape) + tuple(self._batch_shape) + tuple(self._event_shape))

    def sample(self, sample_shape=()):
        """A draw, without a gradient."""
        with taper.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=()):
        """A draw through which gradients reach the parameters."""
        raise NotImplementedError(f"{type(self).__name__} has no rsample: its draws are no smooth function of its parameters")

    def sample_n(self, n):
        return self.sample((n,))

    def log_prob(self, value):
        raise NotImplementedError

    def cdf(self, value):
        raise NotImplementedError(f"{type(self).__name__} has no cdf")

    def icdf(self, value):
        raise NotImplementedError(f"{type(self).__name__} has no icdf")

    def entropy(self):
        raise NotImplementedError(f"{type(self).__name__} has no entropy")

    def perplexity(self):
        return self.entropy().exp()

    def enumerate_support(self, expand=True):
        raise NotImplementedError(f"{type(self).__name__} has no finite support")

    def expand(self, batch_shape):
        new = type(self).__new__(type(self))
        new.__dict__.update(self.__dict__)
        for name in self._parameters():
            v = self.__dict__[name]
            extra = v.shape[len(self._batch_shape):]
            new.__dict__[name] = v.expand(tuple(batch_shape) + tuple(extra))
        new._batch_shape = taper.Size(batch_shape)
        return new

    def _parameters(self):
        """Tensors that hold the parameters, each with the batch shape in front."""
        return [k for k, v in self.__dict__.items() if isinstance(v, taper.Tensor)]

    def __repr__(self):
        shown = ", ".join(f"{k}: {v if v.numel() == 1 else tuple(v.shape)}" for k, v in self.__dict__.items() if isinstance(v, taper.Tensor) and k[0] != "_")
        return f"{type(self).__name__}({shown})"


class Independent(Distribution):
    """The last dimensions of a batch as one event: log_prob sums over them."""

    def __init__(self, base_distribution, reinterpreted_batch_ndims, validate_args=None):
        n = reinterpreted_batch_ndims
        if n > len(base_distribution.batch_shape):
            raise ValueError(f"Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual {n} vs {len(base_distribution.batch_shape)}")
        shape = tuple(base_distribution.batch_shape) + tuple(base_distribution.event_shape)
        event = n + len(base_distribution.event_shape)
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, n
        super().__init__(shape[:len(shape) - event], shape[len(shape) - event:], validate_args)

    has_rsample = property(lambda self: self.base_dist.has_rsample)
    mean = property(lambda self: self.base_dist.mean)
    mode = property(lambda self: self.base_dist.mode)
    variance = property(lambda self: self.base_dist.variance)

    def _sum(self, x):
        return x.sum(tuple(range(-self.reinterpreted_batch_ndims, 0))) if self.reinterpreted_batch_ndims else x

    def sample(self, sample_shape=()):
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape=()):
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value):
        return self._sum(self.base_dist.log_prob(value))

    def entropy(self):
        return self._sum(self.base_dist.entropy())

    def __repr__(self):
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"
