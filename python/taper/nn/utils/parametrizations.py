import taper
from ..modules.module import Module
from . import parametrize


class _WeightNorm(Module):
    def __init__(self, dim=0):
        super().__init__()
        self.dim = dim

    def _norm(self, v):
        if self.dim is None or self.dim == -1:
            return v.norm()
        dims = [d for d in range(v.dim()) if d != self.dim % v.dim()]
        return taper.linalg.vector_norm(v, 2, dims, keepdim=True)

    def forward(self, weight_g, weight_v):
        return weight_v * (weight_g / self._norm(weight_v))

    def right_inverse(self, weight):
        return self._norm(weight.detach()).clone(), weight.detach().clone()


def weight_norm(module, name="weight", dim=0):
    """w = g * v / |v|: the length and the direction of a weight are learnt apart."""
    return parametrize.register_parametrization(module, name, _WeightNorm(dim))


class _SpectralNorm(Module):
    def __init__(self, weight, n_power_iterations=1, dim=0, eps=1e-12):
        super().__init__()
        self.n, self.dim, self.eps = n_power_iterations, dim, eps
        w = self._matrix(weight.detach())
        u, v = taper.randn(w.size(0)), taper.randn(w.size(1))
        self.register_buffer("_u", u / u.norm().clamp_min(eps))
        self.register_buffer("_v", v / v.norm().clamp_min(eps))
        self._iterate(w, 15)

    def _matrix(self, w):
        if self.dim != 0:
            w = w.permute(self.dim, *(d for d in range(w.dim()) if d != self.dim))
        return w.flatten(1)

    @taper.no_grad()
    def _iterate(self, w, n):
        for _ in range(n):
            u = taper.mv(w, self._v)
            self._u.copy_(u / u.norm().clamp_min(self.eps))
            v = taper.mv(w.t(), self._u)
            self._v.copy_(v / v.norm().clamp_min(self.eps))

    def forward(self, weight):
        if weight.dim() == 1:
            return weight / weight.norm().clamp_min(self.eps)
        w = self._matrix(weight)
        if self.training:
            self._iterate(w.detach(), self.n)
        sigma = taper.dot(self._u.clone(), taper.mv(w, self._v.clone()))
        return weight / sigma

    def right_inverse(self, value):
        return value


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=0):
    """w / its largest singular value."""
    return parametrize.register_parametrization(module, name, _SpectralNorm(getattr(module, name), n_power_iterations, dim, eps))
