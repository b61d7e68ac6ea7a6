"""Optimisers, shaped like torch.optim."""
import math

import taper
from . import lr_scheduler  # noqa: F401
from .optimizer import Optimizer, _check, required  # noqa: F401


def _check_all(lr, eps=0.0, betas=(), **least_zero):
    """The arguments that optimisers share, each with the message PyTorch has for it."""
    _check("lr", lr, isinstance(lr, taper.Tensor) or 0.0 <= lr, "learning rate")
    _check("eps", eps, 0.0 <= eps, "epsilon value")
    for i, b in enumerate(betas):
        _check("beta", b, 0.0 <= b < 1.0, f"beta parameter at index {i}")
    for name, value in least_zero.items():
        _check(name, value, 0.0 <= value, f"{name} value")


def _step_of(state):
    """Steps are counted in a tensor, so that a compiled step does not depend on a changing Python number."""
    state["step"].add_(1)
    return state["step"]


def _number(x):
    """A 0-d tensor as a number; while tracing as a float64 value, which compiled code computes anew each time."""
    return x.double() if x._is_fake() else x.item()


def _count(state):
    """The step count after this step."""
    return _number(_step_of(state))


def _sqrt(x):
    return x.sqrt() if isinstance(x, taper.Tensor) else math.sqrt(x)


def _over(a, b):
    """a / b where a number over a tensor is one division, not a product with the reciprocal."""
    return (taper.full_like(b, a) if isinstance(b, taper.Tensor) and not isinstance(a, taper.Tensor) else a) / b


def _descend(p, a, b, size):
    """p -= size * a / b, rounded alike whether size is a number or a tensor."""
    if isinstance(size, taper.Tensor):
        p.sub_((a / b).mul_(size))
    else:
        p.addcdiv_(a, b, value=-size)


def _subtract(p, a, size):
    """p -= size * a"""
    if isinstance(size, taper.Tensor):
        p.add_(a * -size)
    else:
        p.add_(a, alpha=-size)


def _decay(p, g, lr, wd, decoupled):
    """The gradient with weight decay in it, or the parameter shrunk on its own."""
    if wd == 0:
        return g
    if decoupled:
        p.mul_(1 - lr * wd)
        return g
    return g.add(p, alpha=wd)


class SGD(Optimizer):
    """p -= lr * gradient, with momentum and weight decay where asked for.

    >>> p = nn.Parameter(taper.tensor([1.0]))
    >>> o = taper.optim.SGD([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> o.step()
    >>> p.data
    tensor([0.8000])
    """
    sparse = True

    def __init__(self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, *, maximize=False, foreach=None, differentiable=False, fused=None):
        _check_all(lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov, maximize=maximize, foreach=foreach, differentiable=differentiable, fused=fused))

    def _begin(self, group, p):
        return {}  # without momentum there is none

    def _move(self, group, p, g, state):
        momentum = group["momentum"]
        g = _decay(p, g, 0, group["weight_decay"], False)
        if momentum != 0:
            buf = state.get("momentum_buffer")
            if buf is None:
                buf = g.clone()
                self.state[p]["momentum_buffer"] = buf
            else:
                buf.mul_(momentum).add_(g, alpha=1 - group["dampening"])
            g = g.add(buf, alpha=momentum) if group["nesterov"] else buf
        _subtract(p, g, group["lr"])


class Adam(Optimizer):
    """Steps by running means of the gradient and of its square; weight_decay is added to the gradient.

    >>> p = nn.Parameter(taper.tensor([1.0]))
    >>> o = taper.optim.Adam([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> o.step()
    >>> p.data
    tensor([0.9000])
    """
    like = ("exp_avg", "exp_avg_sq")

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, *, foreach=None, maximize=False, capturable=False,
                 differentiable=False, fused=None, decoupled_weight_decay=False):
        _check_all(lr, eps, betas, weight_decay=weight_decay)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize, capturable=capturable,
                                      decoupled_weight_decay=decoupled_weight_decay, foreach=foreach,
                                      differentiable=differentiable, fused=fused))

    def _begin(self, group, p):
        state = super()._begin(group, p)
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = taper.zeros_like(p)
        return state

    def _move(self, group, p, g, state):
        b1, b2 = group["betas"]
        lr, m, v = group["lr"], state["exp_avg"], state["exp_avg_sq"]
        step = _count(state)
        g = _decay(p, g, lr, group["weight_decay"], group["decoupled_weight_decay"])
        m.lerp_(g, 1 - b1)
        v.mul_(b2).addcmul_(g, g, value=1 - b2)
        if group["amsgrad"]:
            v = state["max_exp_avg_sq"].copy_(taper.maximum(state["max_exp_avg_sq"], v))
        denom = (v.sqrt() / _sqrt(1 - b2 ** step)).add_(group["eps"])
        _descend(p, m, denom, _over(lr, 1 - b1 ** step))


class SparseAdam(Optimizer):
    """Adam for embeddings with sparse=True: only rows that were looked up move, and only their moments change.

    >>> taper.optim.SparseAdam([nn.Parameter(taper.ones(2))], lr=0.1).defaults["lr"]
    0.1
    """
    sparse = True

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, maximize=False):
        _check_all(lr, eps, betas)
        if not 0.0 < eps:
            raise ValueError(f"Invalid epsilon value: {eps}")
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, maximize=maximize))
        bad = [[i, k] for i, g in enumerate(self.param_groups) for k, p in enumerate(g["params"]) if p.is_sparse]
        if bad:
            raise ValueError(f"Sparse params at indices {bad}: SparseAdam requires dense parameter tensors")

    def _begin(self, group, p):
        return {"step": 0, "exp_avg": taper.zeros_like(p), "exp_avg_sq": taper.zeros_like(p)}

    def _move(self, group, p, g, state):
        if not g.is_sparse:
            raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
        state["step"] += 1
        g, (b1, b2), step = g.coalesce(), group["betas"], state["step"]
        at, values = g._indices(), g._values()
        if not values.numel():
            return
        new = []
        for name, of, b in (("exp_avg", values, b1), ("exp_avg_sq", values * values, b2)):
            old = state[name].sparse_mask(g)._values()
            change = of.sub(old).mul_(1 - b)
            state[name].add_(taper.sparse_coo_tensor(at, change, g.shape))
            new.append(change.add_(old))
        size = group["lr"] * math.sqrt(1 - b2 ** step) / (1 - b1 ** step)
        p.add_(taper.sparse_coo_tensor(at, new[0].div_(new[1].sqrt_().add_(group["eps"])).mul_(-size), g.shape))


class AdamW(Adam):
    """Adam with weight decay beside the gradient.

    >>> p = nn.Parameter(taper.tensor([1.0]))
    >>> o = taper.optim.AdamW([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> o.step()
    >>> p.data
    tensor([0.8990])
    """
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, *, maximize=False, foreach=None, capturable=False,
                 differentiable=False, fused=None):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, foreach=foreach, capturable=capturable,
                         differentiable=differentiable, fused=fused, decoupled_weight_decay=True)


class Adamax(Optimizer):
    """Adam with the largest gradient in place of the mean of squares.

    >>> p = nn.Parameter(taper.tensor([1.0]))
    >>> o = taper.optim.Adamax([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> o.step()
    >>> p.data
    tensor([0.9000])
    """
    like = ("exp_avg", "exp_inf")

    def __init__(self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, foreach=None, *, maximize=False, differentiable=False, capturable=False):
        _check_all(lr, eps, betas, weight_decay=weight_decay)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize, foreach=foreach,
                                      differentiable=differentiable, capturable=capturable))

    def _move(self, group, p, g, state):
        b1, b2 = group["betas"]
        m, u = state["exp_avg"], state["exp_inf"]
        step = _count(state)
        g = _decay(p, g, 0, group["weight_decay"], False)
        m.lerp_(g, 1 - b1)
        u.copy_(taper.maximum(u * b2, g.abs() + group["eps"]))
        _descend(p, m, u, _over(group["lr"], 1 - b1 ** step))


class NAdam(Optimizer):
    """Adam with Nesterov momentum.

    >>> p = nn.Parameter(taper.tensor([1.0]))
    >>> o = taper.optim.NAdam([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> o.step()
    >>> bool(p < 1)
    True
    """
    like = ("exp_avg", "exp_avg_sq")

    def __init__(self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, momentum_decay=4e-3, decoupled_weight_decay=False, *, foreach=None,
                 maximize=False, capturable=False, differentiable=False):
        _check_all(lr, eps, betas, weight_decay=weight_decay, momentum_decay=momentum_decay)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay,
                                      decoupled_weight_decay=decoupled_weight_decay, maximize=maximize, foreach=foreach, capturable=capturable,
                                      differentiable=differentiable))

    def _begin(self, group, p):
        state = super()._begin(group, p)
        state["mu_product"] = taper.ones((), dtype=taper.float32)
        return state

    def _move(self, group, p, g, state):
        b1, b2 = group["betas"]
        lr, decay, m, v = group["lr"], group["momentum_decay"], state["exp_avg"], state["exp_avg_sq"]
        step = _count(state)
        g = _decay(p, g, lr, group["weight_decay"], group["decoupled_weight_decay"])
        mu = b1 * (1.0 - 0.5 * 0.96 ** (step * decay))
        mu_next = b1 * (1.0 - 0.5 * 0.96 ** ((step + 1) * decay))
        state["mu_product"].mul_(mu.float() if isinstance(mu, taper.Tensor) else mu)
        prod = _number(state["mu_product"])
        m.lerp_(g, 1 - b1)
        v.mul_(b2).addcmul_(g, g, value=1 - b2)
        denom = (v / (1 - b2 ** step)).sqrt().add_(group["eps"])
        _descend(p, g, denom, lr * (1.0 - mu) / (1.0 - prod))
        _descend(p, m, denom, lr * mu_next / (1.0 - prod * mu_next))


class RAdam(Optimizer):
    """Adam whose first steps are rectified.

    >>> p = nn.Parameter(taper.tensor([1.0]))
    >>> o = taper.optim.RAdam([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> o.step()
    >>> bool(p < 1)
    True
    """
    like = ("exp_avg", "exp_avg_sq")

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, decoupled_weight_decay=False, *, foreach=None, maximize=False,
                 capturable=False, differentiable=False):
        _check_all(lr, eps, betas, weight_decay=weight_decay)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, decoupled_weight_decay=decoupled_weight_decay, maximize=maximize, foreach=foreach,
                                      capturable=capturable, differentiable=differentiable))

    def _move(self, group, p, g, state):
        b1, b2 = group["betas"]
        lr, m, v = group["lr"], state["exp_avg"], state["exp_avg_sq"]
        step = _count(state)
        g = _decay(p, g, lr, group["weight_decay"], group["decoupled_weight_decay"])
        m.lerp_(g, 1 - b1)
        v.mul_(b2).addcmul_(g, g, value=1 - b2)
        c1, c2 = 1 - b1 ** step, 1 - b2 ** step
        move = m / c1
        rho_inf = 2 / (1 - b2) - 1
        rho = rho_inf - 2 * step * (b2 ** step) / c2

        def rectified():
            rect = _sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho))
            return move * v.sqrt().add_(group["eps"]).reciprocal_().mul_(_sqrt(c2)) * rect

        if isinstance(rho, taper.Tensor):  # while tracing the count is not known: both ways, and one is taken
            move = taper.where(rho > 5.0, rectified(), move)
        elif rho > 5.0:
            move = rectified()
        _subtract(p, move, lr)


class RMSprop(Optimizer):
    """Steps divided by the root of the running mean of squared gradients.

    >>> p = nn.Parameter(taper.tensor([1.0]))
    >>> o = taper.optim.RMSprop([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> o.step()
    >>> bool(p < 1)
    True
    """
    like = ("square_avg",)

    def __init__(self, params, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False, capturable=False, foreach=None, maximize=False,
                 differentiable=False):
        _check_all(lr, eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        super().__init__(params, dict(lr=lr, momentum=momentum, alpha=alpha, eps=eps, centered=centered, weight_decay=weight_decay, maximize=maximize, foreach=foreach,
                                      capturable=capturable, differentiable=differentiable))

    def _begin(self, group, p):
        state = super()._begin(group, p)
        if group["momentum"] > 0:
            state["momentum_buffer"] = taper.zeros_like(p)
        if group["centered"]:
            state["grad_avg"] = taper.zeros_like(p)
        return state

    def _move(self, group, p, g, state):
        alpha, s = group["alpha"], state["square_avg"]
        _step_of(state)
        g = _decay(p, g, 0, group["weight_decay"], False)
        s.mul_(alpha).addcmul_(g, g, value=1 - alpha)
        if group["centered"]:
            ga = state["grad_avg"]
            ga.lerp_(g, 1 - alpha)
            avg = s.addcmul(ga, ga, value=-1).sqrt_()
        else:
            avg = s.sqrt()
        avg = avg.add_(group["eps"])
        if group["momentum"] > 0:
            buf = state["momentum_buffer"]
            buf.mul_(group["momentum"]).addcdiv_(g, avg)
            _subtract(p, buf, group["lr"])
        else:
            _descend(p, g, avg, group["lr"])


class Adagrad(Optimizer):
    """Steps divided by the root of the sum of all squared gradients.

    >>> p = nn.Parameter(taper.tensor([1.0]))
    >>> o = taper.optim.Adagrad([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> o.step()
    >>> p.data
    tensor([0.9000])
    """
    sparse = True

    def __init__(self, params, lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10, foreach=None, *, maximize=False,
                 differentiable=False, fused=None):
        _check_all(lr, eps, lr_decay=lr_decay, weight_decay=weight_decay, initial_accumulator_value=initial_accumulator_value)
        super().__init__(params, dict(lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay, initial_accumulator_value=initial_accumulator_value,
                                      maximize=maximize, foreach=foreach, differentiable=differentiable, fused=fused))
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p] = self._begin(group, p)

    def _begin(self, group, p):
        state = super()._begin(group, p)
        state["sum"] = taper.full_like(p, group["initial_accumulator_value"]).detach()
        return state

    def _move(self, group, p, g, state):
        step = _count(state)
        if g.is_sparse and group["weight_decay"] != 0:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        g = _decay(p, g, 0, group["weight_decay"], False)
        clr = _over(group["lr"], 1 + (step - 1) * group["lr_decay"])
        if g.is_sparse:
            g = g.coalesce()
            at, values = g._indices(), g._values()
            state["sum"].add_(taper.sparse_coo_tensor(at, values * values, g.shape))
            std = state["sum"].sparse_mask(g)._values().sqrt_().add_(group["eps"])
            p.add_(taper.sparse_coo_tensor(at, values / std, g.shape), alpha=-clr)
            return
        state["sum"].addcmul_(g, g, value=1)
        _descend(p, g, state["sum"].sqrt().add_(group["eps"]), clr)


class Adadelta(Optimizer):
    """Steps scaled by running means of squared gradients and of squared steps.

    >>> p = nn.Parameter(taper.tensor([1.0]))
    >>> o = taper.optim.Adadelta([p])
    >>> (p * p).sum().backward()
    >>> o.step()
    >>> bool(p < 1)
    True
    """
    like = ("square_avg", "acc_delta")

    def __init__(self, params, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0, foreach=None, *, capturable=False, maximize=False, differentiable=False):
        _check_all(lr)
        _check("rho", rho, 0.0 <= rho <= 1.0, "rho value")
        _check_all(0.0, eps, weight_decay=weight_decay)
        super().__init__(params, dict(lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize, foreach=foreach,
                                      capturable=capturable, differentiable=differentiable))

    def _move(self, group, p, g, state):
        rho, eps = group["rho"], group["eps"]
        _step_of(state)
        g = _decay(p, g, 0, group["weight_decay"], False)
        sq, acc = state["square_avg"], state["acc_delta"]
        sq.mul_(rho).addcmul_(g, g, value=1 - rho)
        delta = (acc + eps).sqrt_().div_((sq + eps).sqrt_()).mul_(g)
        acc.mul_(rho).addcmul_(delta, delta, value=1 - rho)
        _subtract(p, delta, group["lr"])


class Rprop(Optimizer):
    """Steps by the sign of the gradient, longer while it stays the same.

    >>> p = nn.Parameter(taper.tensor([1.0]))
    >>> o = taper.optim.Rprop([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> o.step()
    >>> p.data
    tensor([0.9000])
    """
    like = ("prev",)

    def __init__(self, params, lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50), *, capturable=False, foreach=None, maximize=False, differentiable=False):
        _check_all(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, dict(lr=lr, etas=etas, step_sizes=step_sizes, foreach=foreach, maximize=maximize, differentiable=differentiable, capturable=capturable))

    def _begin(self, group, p):
        state = super()._begin(group, p)
        state["step_size"] = taper.full_like(p, float(group["lr"]))
        return state

    def _move(self, group, p, g, state):
        down, up = group["etas"]
        least, most = group["step_sizes"]
        _step_of(state)
        same = g * state["prev"]
        factor = taper.where(same > 0, up, taper.where(same < 0, down, 1.0)).to(p.dtype)
        state["step_size"].mul_(factor).clamp_(least, most)
        g = taper.where(same < 0, taper.zeros_like(g), g)  # the sign has turned: no step this time
        p.addcmul_(g.sign(), state["step_size"], value=-1)
        state["prev"].copy_(g)


class ASGD(Optimizer):
    """Stochastic gradient descent that also averages the parameters.

    >>> p = nn.Parameter(taper.tensor([1.0]))
    >>> o = taper.optim.ASGD([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> o.step()
    >>> bool(p < 1)
    True
    """
    like = ("ax",)

    def __init__(self, params, lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0, foreach=None, maximize=False, differentiable=False, capturable=False):
        _check_all(lr, weight_decay=weight_decay)
        super().__init__(params, dict(lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
                                      differentiable=differentiable, capturable=capturable))

    def _begin(self, group, p):
        state = super()._begin(group, p)
        state["eta"] = taper.as_tensor(float(group["lr"]), dtype=taper.float32)
        state["mu"] = taper.ones((), dtype=taper.float32)
        return state

    def _move(self, group, p, g, state):
        step, eta, mu, ax = _count(state), _number(state["eta"]), _number(state["mu"]), state["ax"]
        g = _decay(p, g, 0, group["weight_decay"], False)
        p.mul_(1 - group["lambd"] * eta)
        _subtract(p, g, eta)
        ax.add_((p - ax) * mu)  # a mu of one replaces the average
        late = step - group["t0"]
        state["eta"].copy_(taper.as_tensor(group["lr"] / ((1 + group["lambd"] * group["lr"] * step) ** group["alpha"])))
        state["mu"].copy_(taper.as_tensor(1 / late.clamp(min=1) if isinstance(late, taper.Tensor) else 1 / max(1, late)))


class Adafactor(Optimizer):
    """Adam with the second moment of matrices kept as a row and a column.

    >>> p = nn.Parameter(taper.ones(2, 2))
    >>> o = taper.optim.Adafactor([p])
    >>> (p * p).sum().backward()
    >>> o.step()
    >>> bool((p < 1).all())
    True
    """
    def __init__(self, params, lr=1e-2, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0, *, foreach=None, maximize=False):
        bounds = [("Learning rate", lr, 0.0 <= lr, ">= 0"), ("beta2_decay", beta2_decay, 0.0 >= beta2_decay, "<= 0"),
                  ("epsilon1", eps[0], eps[0] is None or 0.0 <= eps[0], ">= 0"), ("epsilon2", eps[1], 0.0 <= eps[1], ">= 0"),
                  ("Clipping threshold d", d, 1.0 <= d, ">= 1"), ("weight_decay", weight_decay, 0.0 <= weight_decay, ">= 0")]
        for what, value, fits, bound in bounds:
            if not fits:
                raise ValueError(f"{what} should be {bound} but is: {value}")
        super().__init__(params, dict(lr=lr, beta2_decay=beta2_decay, eps=eps, d=d, weight_decay=weight_decay, foreach=foreach, maximize=maximize))

    def _begin(self, group, p):
        state = super()._begin(group, p)
        if p.dim() > 1:  # a matrix of squares is kept as its row and column means
            state["row_var"] = p.new_zeros(p.shape[:-1] + (1,))
            state["col_var"] = p.new_zeros(p.shape[:-2] + (1, p.shape[-1]))
        else:
            state["variance"] = taper.zeros_like(p)
        return state

    def _move(self, group, p, g, state):
        eps1, eps2 = group["eps"]
        if eps1 is None:
            eps1 = taper.finfo(p.dtype).eps
        step = _count(state)
        near = step ** group["beta2_decay"]  # 1 - beta2
        if isinstance(near, taper.Tensor):
            near = near.to(p.dtype)
        rho = min(group["lr"], 1 / step ** 0.5) if not isinstance(step, taper.Tensor) else (1 / step.sqrt()).clamp(max=group["lr"])
        rms = _number(p.norm(2)) / p.numel() ** 0.5
        alpha = (rms.clamp(min=eps2) if isinstance(rms, taper.Tensor) else max(eps2, rms)) * rho
        if group["weight_decay"] != 0:
            p.mul_(1 - group["lr"] * group["weight_decay"])
        if p.dim() > 1:
            row, col = state["row_var"], state["col_var"]
            row.copy_(row.lerp(g.norm(dim=-1, keepdim=True).square().div(g.size(-1)), near))
            col.copy_(col.lerp(g.norm(dim=-2, keepdim=True).square().div(g.size(-2)), near))
            var = (row @ col).div(row.mean(dim=-2, keepdim=True).clamp(min=eps1))
        else:
            var = state["variance"]
            var.copy_(var.lerp(g.square(), near))
        update = var.clamp(min=eps1 * eps1).rsqrt() * g
        size = _number(update.norm(2)) / (update.numel() ** 0.5 * group["d"])
        _subtract(p, update, alpha / (size.clamp(min=1) if isinstance(size, taper.Tensor) else max(1.0, size)))


class Muon(Optimizer):
    """Momentum whose matrix is made orthogonal (five steps of Newton and Schulz in bfloat16); for parameters that are matrices.

    >>> p = nn.Parameter(taper.eye(2))
    >>> o = taper.optim.Muon([p])
    >>> (p * p).sum().backward()
    >>> o.step()
    >>> bool(p[0, 0] < 1)
    True
    """
    def __init__(self, params, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True, ns_coefficients=(3.4445, -4.775, 2.0315), eps=1e-7, ns_steps=5,
                 adjust_lr_fn=None):
        for what, value in (("learning rate", lr), ("momentum", momentum), ("weight decay", weight_decay)):
            if not 0.0 <= value:
                raise ValueError(f"{what} should be >= 0 but is: {value}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported: 'original' or 'match_rms_adamw'")
        if ns_steps >= 100 or len(ns_coefficients) != 3:
            raise ValueError("ns_steps must be less than 100, and ns_coefficients three numbers")
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, ns_coefficients=ns_coefficients, eps=eps,
                                      ns_steps=ns_steps, adjust_lr_fn=adjust_lr_fn))
        for group in self.param_groups:
            for p in group["params"]:
                if p.dim() != 2:
                    raise ValueError(f"Muon only supports 2D parameters whereas we found a parameter with size: {p.size()}")

    def _begin(self, group, p):
        return {"momentum_buffer": taper.zeros_like(p)}

    def _move(self, group, p, g, state):
        kept, momentum, lr = state["momentum_buffer"], group["momentum"], group["lr"]
        kept.lerp_(g, 1 - momentum)
        update = _orthogonal(g.lerp(kept, momentum) if group["nesterov"] else kept, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rows, columns = p.shape
        scale = 0.2 * max(rows, columns) ** 0.5 if group["adjust_lr_fn"] == "match_rms_adamw" else max(1, rows / columns) ** 0.5
        p.mul_(1 - lr * group["weight_decay"])
        _subtract(p, update, lr * scale)


def _orthogonal(g, coefficients, steps, eps):
    a, b, c = coefficients
    x = g.bfloat16()
    if g.size(0) > g.size(1):
        x = x.T
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = taper.addmm(x, taper.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if g.size(0) > g.size(1) else x


class LBFGS(Optimizer):
    """Limited-memory BFGS with an optional strong-Wolfe line search; step() needs a closure.

    >>> p = nn.Parameter(taper.tensor([1.0]))
    >>> o = taper.optim.LBFGS([p])
    >>> def loss():
    ...     o.zero_grad()
    ...     value = (p * p).sum()
    ...     value.backward()
    ...     return value
    >>> before = o.step(loss)
    >>> bool(p.abs() < 0.1)
    True
    """

    def __init__(self, params, lr=1, max_iter=20, max_eval=None, tolerance_grad=1e-7, tolerance_change=1e-9, history_size=100, line_search_fn=None):
        _check_all(lr)
        if max_eval is None:
            max_eval = max_iter * 5 // 4
        super().__init__(params, dict(lr=lr, max_iter=max_iter, max_eval=max_eval, tolerance_grad=tolerance_grad, tolerance_change=tolerance_change,
                                      history_size=history_size, line_search_fn=line_search_fn))
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    def _flat_grad(self):
        return taper.cat([(p.grad if p.grad is not None else taper.zeros_like(p)).reshape(-1) for p in self._params])

    def _move(self, t, d):
        at = 0
        for p in self._params:
            n = p.numel()
            p.add_(d[at:at + n].view_as(p), alpha=t)
            at += n

    @taper._dynamo.disable(reason="LBFGS decides by numbers that it reads from tensors")
    def step(self, closure):
        with taper.no_grad():
            return self._step(closure)

    def _step(self, closure):
        def evaluate():
            with taper.enable_grad():
                return closure()

        g = self.param_groups[0]
        lr, st = g["lr"], self.state[self._params[0]]
        st.setdefault("func_evals", 0)
        st.setdefault("n_iter", 0)
        orig_loss = evaluate()
        loss = float(orig_loss)
        evals = 1
        st["func_evals"] += 1
        flat = self._flat_grad()
        if flat.abs().max().item() <= g["tolerance_grad"]:
            return orig_loss
        d, t = st.get("d"), st.get("t")
        old_d, old_s, ro = st.get("old_dirs", []), st.get("old_stps", []), st.get("ro", [])
        H, prev, prev_loss = st.get("H_diag"), st.get("prev_flat_grad"), st.get("prev_loss")
        n, al = 0, st.get("al", [])
        while n < g["max_iter"]:
            n += 1
            st["n_iter"] += 1
            if st["n_iter"] == 1:
                d = -flat
                old_d, old_s, ro, H = [], [], [], 1
            else:
                y = flat - prev
                s = d * t
                ys = float(y.dot(s))
                if ys > 1e-10:
                    if len(old_d) == g["history_size"]:
                        old_d.pop(0), old_s.pop(0), ro.pop(0)
                    old_d.append(y)
                    old_s.append(s)
                    ro.append(1.0 / ys)
                    H = ys / float(y.dot(y))
                al = [0.0] * len(old_d)
                q = -flat
                for i in range(len(old_d) - 1, -1, -1):
                    al[i] = float(old_s[i].dot(q)) * ro[i]
                    q = q.add(old_d[i], alpha=-al[i])
                d = q * H
                for i in range(len(old_d)):
                    be = float(old_d[i].dot(d)) * ro[i]
                    d = d.add(old_s[i], alpha=al[i] - be)
            prev, prev_loss = flat.clone(), loss
            t = min(1.0, 1.0 / float(flat.abs().sum())) * lr if st["n_iter"] == 1 else lr
            gtd = float(flat.dot(d))
            if gtd > -g["tolerance_change"]:
                break
            used = 0
            if g["line_search_fn"] is not None:
                if g["line_search_fn"] != "strong_wolfe":
                    raise RuntimeError("only 'strong_wolfe' is supported")
                x0 = [p.clone() for p in self._params]

                def at(step):
                    self._move(step, d)
                    f = float(evaluate())
                    fg = self._flat_grad()
                    for p, x in zip(self._params, x0):
                        p.copy_(x)
                    return f, fg

                loss, flat, t, used = _strong_wolfe(at, t, d, loss, flat, gtd)
                self._move(t, d)
                done = flat.abs().max().item() <= g["tolerance_grad"]
            else:
                self._move(t, d)
                done = False
                if n != g["max_iter"]:
                    loss = float(evaluate())
                    flat = self._flat_grad()
                    done = flat.abs().max().item() <= g["tolerance_grad"]
                    used = 1
            evals += used
            st["func_evals"] += used
            if n == g["max_iter"] or evals >= g["max_eval"] or done:
                break
            if (d * t).abs().max().item() <= g["tolerance_change"] or abs(loss - prev_loss) < g["tolerance_change"]:
                break
        st.update(al=al, d=d, t=t, old_dirs=old_d, old_stps=old_s, ro=ro, H_diag=H, prev_flat_grad=prev, prev_loss=prev_loss)
        return orig_loss


def _cubic(x1, f1, g1, x2, f2, g2, lo=None, hi=None):
    if lo is None:
        lo, hi = (x1, x2) if x1 <= x2 else (x2, x1)
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    sq = d1 * d1 - g1 * g2
    if sq < 0:
        return (lo + hi) / 2
    d2 = math.sqrt(sq)
    if x1 <= x2:
        m = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
    else:
        m = x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
    return min(max(m, lo), hi)


def _strong_wolfe(at, t, d, f, g, gtd, c1=1e-4, c2=0.9, tol=1e-9, max_ls=25):
    """Step length that meets the strong Wolfe conditions: bracket, then zoom by cubic interpolation."""
    dnorm = d.abs().max().item()
    fn, gn = at(t)
    evals, gtdn = 1, float(gn.dot(d))
    tp, fp, gp, gtdp = 0.0, f, g, gtd
    done, it = False, 0
    while it < max_ls:
        if fn > f + c1 * t * gtd or (it > 1 and fn >= fp):
            br, bf, bg, bgtd = [tp, t], [fp, fn], [gp, gn], [gtdp, gtdn]
            break
        if abs(gtdn) <= -c2 * gtd:
            br, bf, bg, bgtd = [t], [fn], [gn], [gtdn]
            done = True
            break
        if gtdn >= 0:
            br, bf, bg, bgtd = [tp, t], [fp, fn], [gp, gn], [gtdp, gtdn]
            break
        lo, hi, tmp = t + 0.01 * (t - tp), t * 10, t
        t = _cubic(tp, fp, gtdp, t, fn, gtdn, lo, hi)
        tp, fp, gp, gtdp = tmp, fn, gn, gtdn
        fn, gn = at(t)
        evals += 1
        gtdn = float(gn.dot(d))
        it += 1
    if it == max_ls:
        br, bf, bg, bgtd = [0.0, t], [f, fn], [g, gn], [gtd, gtdn]
    stalled = False
    lo, hi = (0, 1) if len(br) == 1 or bf[0] <= bf[-1] else (1, 0)
    while not done and it < max_ls:
        if abs(br[1] - br[0]) * dnorm < tol:
            break
        t = _cubic(br[0], bf[0], bgtd[0], br[1], bf[1], bgtd[1])
        eps = 0.1 * (max(br) - min(br))
        if min(max(br) - t, t - min(br)) < eps:
            if stalled or t >= max(br) or t <= min(br):
                t = max(br) - eps if abs(t - max(br)) < abs(t - min(br)) else min(br) + eps
                stalled = False
            else:
                stalled = True
        else:
            stalled = False
        fn, gn = at(t)
        evals += 1
        gtdn = float(gn.dot(d))
        it += 1
        if fn > f + c1 * t * gtd or fn >= bf[lo]:
            br[hi], bf[hi], bg[hi], bgtd[hi] = t, fn, gn, gtdn
            lo, hi = (0, 1) if bf[0] <= bf[1] else (1, 0)
        else:
            if abs(gtdn) <= -c2 * gtd:
                done = True
            elif gtdn * (br[hi] - br[lo]) >= 0:
                br[hi], bf[hi], bg[hi], bgtd[hi] = br[lo], bf[lo], bg[lo], bgtd[lo]
            br[lo], bf[lo], bg[lo], bgtd[lo] = t, fn, gn, gtdn
    if len(br) == 1:
        lo = 0
    return bf[lo], bg[lo], br[lo], evals


def __getattr__(name):
    """Submodules are loaded when they are asked for."""
    if name == "swa_utils":
        import importlib
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
