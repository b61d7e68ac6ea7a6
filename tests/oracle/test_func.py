"""taper.func, the rarer optimisers, names in special and in-place twins against PyTorch."""
import torch
import torch.func
import taper
import taper.func

X = [[0.3, -1.2, 0.8], [1.1, 0.4, -0.6]]


def both(f):
    return f(taper).tolist(), f(torch).tolist()


def close(a, b, tol=1e-5):
    a, b = torch.tensor(a), torch.tensor(b)
    assert a.shape == b.shape and torch.allclose(a, b, rtol=tol, atol=tol), (a, b)


def test_func():
    def fn(T):
        return lambda x: (x.sin() * x).sum(-1) if x.dim() > 1 else (x.sin() * x).sum()
    close(*both(lambda T: T.func.jacrev(fn(T))(T.tensor(X))))
    close(*both(lambda T: T.func.jacfwd(fn(T))(T.tensor(X))))
    close(*both(lambda T: T.func.hessian(fn(T))(T.tensor(X[0]))))
    close(*both(lambda T: T.func.vmap(T.func.grad(fn(T)))(T.tensor(X))))
    close(*both(lambda T: T.func.vmap(T.func.hessian(fn(T)))(T.tensor(X))))
    close(*both(lambda T: T.func.jvp(fn(T), (T.tensor(X),), (T.ones(2, 3),))[1]))
    close(*both(lambda T: T.func.vjp(fn(T), T.tensor(X))[1](T.ones(2))[0]))
    close(*both(lambda T: T.vmap(T.mm, in_dims=(2, None), out_dims=1)(T.arange(24.0).reshape(2, 3, 4), T.ones(3, 2))))


def trained(T, make, steps):
    T.manual_seed(0)
    w = T.tensor([[0.5, -0.3, 0.9], [1.2, 0.1, -0.7]], requires_grad=True)
    b = T.tensor([0.2, -0.4], requires_grad=True)
    opt = make(T.optim, [w, b])
    x = T.arange(12.0).reshape(4, 3).sin()
    for _ in range(steps):
        opt.zero_grad()
        ((x @ w.t() + b).tanh() - x[:, :2]).square().sum().backward()
        opt.step()
    return T.cat([w.detach().reshape(-1), b.detach()])


def test_optimisers():
    # by signs of gradients: steps before tanh is 1 to the last bit and the sign is that of a rounding error
    close(*both(lambda T: trained(T, lambda o, p: o.Rprop(p, lr=0.1, etas=(0.4, 1.3), step_sizes=(1e-4, 0.3), maximize=True), 12)))
    for make in (lambda o, p: o.Rprop(p),
                 lambda o, p: o.ASGD(p), lambda o, p: o.ASGD(p, lr=0.05, lambd=0.01, t0=3, weight_decay=0.1),
                 lambda o, p: o.Adafactor(p), lambda o, p: o.Adafactor(p, lr=0.1, weight_decay=0.01, d=1.5)):
        close(*both(lambda T: trained(T, make, 25)))
    for bad in (lambda o, p: o.Rprop(p, etas=(1.5, 2)), lambda o, p: o.ASGD(p, lr=-1), lambda o, p: o.Adafactor(p, d=0.5)):
        said = []
        for T in (taper, torch):
            try:
                bad(T.optim, [T.zeros(1, requires_grad=True)])
            except ValueError as e:
                said.append(str(e))
        assert len(said) == 2 and said[0] == said[1], said


def test_state_of_optimisers():
    for name in ("Rprop", "ASGD", "Adafactor"):
        keys = []
        for T in (taper, torch):
            p = T.ones(2, 3, requires_grad=True)
            o = getattr(T.optim, name)([p])
            p.sum().backward()
            o.step()
            s = o.state_dict()
            keys.append((sorted(s["state"][0]), sorted(s["param_groups"][0])))
        assert keys[0] == keys[1], keys


def test_special_names_and_twins():
    for name in ("expit", "gammaln", "psi", "round"):
        close(*both(lambda T: getattr(T.special, name)(T.tensor(X).abs() + 0.5)))
    close(*both(lambda T: T.special.multigammaln(T.tensor(X).abs() + 2, 2)))
    close(*both(lambda T: (T.tensor(X).abs() + 2).mvlgamma_(2)))
    close(*both(lambda T: T.mvlgamma(T.tensor(X).abs() + 2, 2, out=T.empty(0))))
    close(*both(lambda T: T.tensor(X).renorm_(2, 0, 1.0)))
    close(*both(lambda T: T.renorm(T.tensor(X), 1, 1, 0.5, out=T.empty(2, 3))))
    close(*both(lambda T: T.tensor(X).addr_(T.ones(2), T.arange(3.0), beta=0.5, alpha=2)))
    close(*both(lambda T: T.ones(2, 2).addbmm_(T.ones(3, 2, 2), T.tensor(X)[:, :2].expand(3, 2, 2))))
    for bad in (lambda T: T.tensor([3, 4]).mvlgamma_(2), lambda T: T.mvlgamma(T.tensor([3.0]), 1, out=T.empty(1, dtype=T.int64))):
        kinds = []
        for T in (taper, torch):
            try:
                bad(T)
            except Exception as e:
                kinds.append(type(e))
        assert kinds == [RuntimeError, RuntimeError], kinds
