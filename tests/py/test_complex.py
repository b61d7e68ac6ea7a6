"""Complex tensors: values by Python's complex numbers, gradients by finite differences, compiled programs by eager ones."""
import cmath
import io
import os
import tempfile

import taper
from same_results import check

V = [1 + 2j, -0.5 + 0.25j, 3 - 4j, -1 - 1j, 0.125 - 2j, 2 + 0j]


def raises(kind, f, words):
    try:
        f()
    except kind as e:
        assert words in str(e), e
    else:
        raise AssertionError("no error")


def near(t, want, tol=1e-6):
    got = t.tolist()
    got, want = (got, want) if isinstance(got, list) else ([got], [want])
    return len(got) == len(want) and all(abs(a - b) <= tol * (1 + abs(b)) for a, b in zip(got, want))


def test_values_are_those_of_python():
    for dt, tol in ((taper.complex64, 2e-6), (taper.complex128, 1e-13)):
        z = taper.tensor(V, dtype=dt)
        assert z.dtype is dt and z.is_complex() and taper.is_complex(z) and not z.is_floating_point()
        for name in "exp sqrt sin cos tan sinh cosh tanh asinh acosh atanh asin acos atan log log10".split():
            assert near(getattr(taper, name)(z), [getattr(cmath, name)(v) for v in V], tol), name
        w = z.flip(0)
        for f in (lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / b, lambda a, b: a**b, lambda a, b: a * 2j + 1,
                  lambda a, b: (1 - 3j) / a, lambda a, b: a**2, lambda a, b: a**-1, lambda a, b: 2**a, lambda a, b: -a):
            assert near(f(z, w), [f(x, y) for x, y in zip(V, reversed(V))], tol)
        assert near(z.abs(), [abs(v) for v in V], tol) and near(z.angle(), [cmath.phase(v) for v in V], tol)
        assert near(z.conj(), [v.conjugate() for v in V]) and near(z.sgn(), [v / abs(v) for v in V], tol)
        assert near(z.sum(), sum(V), tol) and near(z.mean(), sum(V) / 6, tol) and near(z.reciprocal(), [1 / v for v in V], tol)
        p = 1
        for v in V:
            p *= v
        assert near(z.prod(), p, tol) and near(z.cumprod(0)[-1], p, tol) and near(z.cumsum(0)[-1], sum(V), tol)
        assert near(z.expm1(), [cmath.exp(v) - 1 for v in V], tol) and near(z.log1p(), [cmath.log(1 + v) for v in V], tol)
        m = z.reshape(2, 3)
        assert near((m @ m.mH).reshape(-1), [sum(V[3 * i + k] * V[3 * j + k].conjugate() for k in range(3)) for i in range(2) for j in range(2)], tol)
        assert near(taper.vdot(z, w), sum(a.conjugate() * b for a, b in zip(V, reversed(V))), tol)
        assert near(z.var(), (sum(abs(v) ** 2 for v in V) - abs(sum(V)) ** 2 / 6) / 5, tol)


def test_types():
    r, z = taper.tensor([1., 2.]), taper.tensor([1 + 2j, 3 - 1j])
    assert (r + 1j).dtype is taper.complex64 and (r.double() * 1j).dtype is taper.complex128 and (taper.arange(2) + 1j).dtype is taper.complex64
    assert (z + r.double()).dtype is taper.complex128 and (z.abs() + z.angle()).dtype is taper.float32
    assert taper.promote_types(taper.complex64, taper.float64) is taper.complex128 and taper.can_cast(taper.float64, taper.complex64)
    assert not taper.can_cast(taper.complex64, taper.float32) and taper.complex64.to_real() is taper.float32
    assert taper.float64.to_complex() is taper.complex128 and taper.complex128.itemsize == 16 and taper.finfo(taper.complex64).bits == 32
    assert taper.zeros(2, dtype=complex).dtype is taper.complex128 and taper.full((2,), 1j).dtype is taper.complex64
    assert z.type() == "taper.ComplexFloatTensor" and z.cdouble().dtype is taper.complex128 and z.item if True else None
    assert z[0].item() == 1 + 2j and complex(z[1]) == 3 - 1j and bool(z[0]) and z.tolist() == [1 + 2j, 3 - 1j]
    assert float(taper.tensor(2 + 0j)) == 2.0
    raises(RuntimeError, lambda: float(z[0]), "value cannot be converted to type double without overflow")
    raises(RuntimeError, lambda: r.add_(1j), "result type ComplexFloat can't be cast to the desired output type Float")
    raises(RuntimeError, lambda: r.fill_(1j), "value cannot be converted to type float without overflow")
    raises(NotImplementedError, lambda: z < z, "\"lt_cpu\" not implemented for 'ComplexFloat'")
    raises(RuntimeError, lambda: taper.maximum(z, z), "maximum not implemented for complex tensors.")
    raises(NotImplementedError, lambda: z.clamp(0), "clamp is not supported for complex types")
    raises(RuntimeError, lambda: z.sort(), "Sort does not support complex dtypes")
    raises(NotImplementedError, lambda: taper.nn.functional.softmax(z, 0), "not implemented for 'ComplexFloat'")
    raises(RuntimeError, lambda: r.imag, "imag is not implemented for tensors with non-complex dtypes.")


def test_views_share_memory():
    z = taper.tensor([[1 + 2j, 3 - 1j], [0j, 5j]])
    z.real[0] = 7
    z.imag.mul_(2)
    taper.view_as_real(z)[1, 0, 0] = -1
    assert z.tolist() == [[7 + 4j, 7 - 2j], [-1 + 0j, 10j]]
    r = taper.arange(8.).reshape(2, 2, 2)
    taper.view_as_complex(r)[0, 1] = 9 - 9j
    assert r[0, 1].tolist() == [9, -9] and z.T.real.stride() == (2, 4) and taper.view_as_real(z.T).shape == (2, 2, 2)
    raises(RuntimeError, lambda: taper.view_as_complex(taper.ones(3)), "Tensor must have a last dimension of size 2")
    raises(RuntimeError, lambda: taper.view_as_real(r), "only supported for complex tensors")
    raises(RuntimeError, lambda: taper.complex(r, r.double()), "Expected object of scalar type Float but got scalar type Double")
    assert taper.complex(taper.tensor(1.), taper.tensor(2.)).item() == 1 + 2j


def test_moving_elements():
    for dt in (taper.complex64, taper.complex128):
        z = taper.arange(24.).to(dt).mul(1 + 0.5j).reshape(2, 3, 4)
        v = z.tolist()
        assert z.transpose(0, 2).contiguous().tolist() == [[[v[i][j][k] for i in range(2)] for j in range(3)] for k in range(4)]
        assert z[1, :, ::2].tolist() == [r[::2] for r in v[1]] and z[:, taper.tensor([2, 0])].tolist() == [[p[2], p[0]] for p in v]
        assert z[z.real > 20].tolist() == [x for p in v for r in p for x in r if x.real > 20]
        assert taper.cat([z, z], 1)[1, 4].tolist() == v[1][1] and taper.stack([z, z], -1)[0, 0, 1].tolist() == [v[0][0][1]] * 2
        assert z.flip(2)[0, 0].tolist() == v[0][0][::-1] and z.roll(1, 0)[0].tolist() == v[1] and z.repeat(1, 2, 1)[0, 3].tolist() == v[0][0]
        assert taper.where(z.real > 3, z, 1j)[0, 0].tolist() == [1j] * 4 and z.expand(2, 2, 3, 4).clone()[1].tolist() == v
        assert z.gather(2, taper.zeros(2, 3, 1, dtype=taper.int64)).reshape(-1).tolist() == [r[0] for p in v for r in p]
        y = z.clone()
        y[0, 0] = 2j
        y[1, :, 0] = taper.ones(3)
        y.index_add_(2, taper.tensor([3]), taper.full((2, 3, 1), 1j, dtype=dt))
        y[taper.tensor([0]), taper.tensor([1])] = 5
        assert y[0, 0].tolist() == [2j, 2j, 2j, 3j] and y[1, 0, 0].item() == 1 and y[0, 1].tolist() == [5] * 4
        assert taper.nn.functional.pad(z, (1, 0), value=3)[0, 0].tolist() == [3, *v[0][0]] and z.tril().sum().real.item() < z.sum().real.item()
        assert y.masked_fill(y.imag > 2, 0).count_nonzero().item() < 24 and taper.eye(2, dtype=dt).tolist() == [[1, 0], [0, 1]]


def test_printing():
    assert repr(taper.tensor([1 + 2j, -3 - 1j, 100.25 + 0j])) == "tensor([  1.0000+2.j,  -3.0000-1.j, 100.2500+0.j])"
    assert repr(taper.tensor([1e-5 + 1e5j])) == "tensor([1.0000e-05+100000.j])" and repr(taper.tensor(1j)) == "tensor(0.+1.j)"
    assert repr(taper.tensor([1.5, 2j], dtype=taper.complex128)) == "tensor([1.5000+0.j, 0.0000+2.j], dtype=taper.complex128)"
    assert repr(taper.zeros(0, dtype=taper.complex64)) == "tensor([], dtype=taper.complex64)"


def test_random_numbers():
    taper.manual_seed(0)
    z = taper.randn(20000, dtype=taper.complex64)
    assert abs(z.mean().item()) < 0.05 and abs(z.abs().square().mean().item() - 1) < 0.05 and abs(z.real.var().item() - 0.5) < 0.05
    u = taper.rand(1000, dtype=taper.complex128)
    assert 0 <= u.real.min().item() and u.imag.max().item() < 1 and taper.randn_like(z).dtype is taper.complex64


def test_files_and_memory():
    z = taper.tensor([[1 + 2j, 3j], [4, -5]])
    m = memoryview(z)
    assert m.itemsize == 8 and m.shape == (2, 2)
    assert taper.equal(taper.from_dlpack(z), z) and taper.from_dlpack(z).data_ptr() == z.data_ptr()
    f = io.BytesIO()
    taper.save({"z": z, "w": z.cdouble().T}, f)
    f.seek(0)
    d = taper.load(f)
    assert taper.equal(d["z"], z) and taper.equal(d["w"], z.cdouble().T)
    with tempfile.TemporaryDirectory() as t:
        taper.safetensors.save_file({"z": z}, os.path.join(t, "a.safetensors"))
        assert taper.equal(taper.safetensors.load_file(os.path.join(t, "a.safetensors"))["z"], z)


def of_real(t):
    return taper.view_as_complex(t.reshape(2, 3, 2))


def test_gradcheck_sees_both_parts():
    taper.manual_seed(2)
    gradcheck, gradgradcheck = taper.autograd.gradcheck, taper.autograd.gradgradcheck
    z = taper.randn(2, 3, dtype=taper.complex128, requires_grad=True)
    x = taper.randn(3, dtype=taper.float64, requires_grad=True)

    class Square(taper.autograd.Function):
        @staticmethod
        def forward(ctx, z, wrong):
            ctx.save_for_backward(z)
            ctx.wrong = wrong
            return z * z

        @staticmethod
        def backward(ctx, g):
            z, = ctx.saved_tensors
            return g * 2 * (z if ctx.wrong else z.conj()), None
    assert gradcheck(lambda z: Square.apply(z, False), (z,)) and gradgradcheck(lambda z: Square.apply(z, False), (z,))
    assert not gradcheck(lambda z: Square.apply(z, True), (z,), raise_exception=False)
    assert gradcheck(lambda z, x: z.exp() * x, (z, x)) and gradgradcheck(lambda z, x: (z * z.conj()) * x, (z, x))
    assert gradcheck(lambda x: taper.polar(x, x), (x,)) and gradcheck(lambda z: z.abs(), (z,))


def test_gradients_are_those_of_finite_differences():
    taper.manual_seed(1)
    r = taper.randn(12, dtype=taper.float64).add(0.1).requires_grad_()
    other = taper.randn(2, 3, dtype=taper.complex128)

    def real(v):
        return taper.view_as_real(v) if v.is_complex() else v

    functions = [lambda z: z * other, lambda z: other / z, lambda z: z / other, lambda z: z.abs(), lambda z: z.angle(), lambda z: z.sgn(), lambda z: z.conj(),
                 lambda z: z**3, lambda z: z**(1 + 2j), lambda z: other**z, lambda z: z**other, lambda z: 2**z, lambda z: z @ other.T, lambda z: (z.mH @ other),
                 lambda z: z.real * z.imag, lambda z: taper.linalg.vector_norm(z, dim=1), lambda z: z.var(0), lambda z: z.prod(1), lambda z: z.cumprod(1),
                 lambda z: taper.polar(z.abs(), z.angle()), lambda z: taper.where(z.real > 0, z, other), lambda z: z.sum(0) * 2j, lambda z: z.mean(),
                 lambda z: taper.addmm(other[:, :2].clone(), z, other.T[:, :2].clone(), beta=1j, alpha=2 - 1j), lambda z: z.exp() * z.log() + z.sqrt().sin() / z.tanh(),
                 lambda z: taper.cat([z, z.conj()])[1:, ::2], lambda z: z.atan() + z.asinh() - z.sigmoid(), lambda z: taper.lerp(z, other, 0.25),
                 lambda z: taper.linalg.inv(z[:, :2]), lambda z: z.reciprocal().square().cosh(), lambda z: z.index_select(1, taper.tensor([2, 0, 2]))]
    for i, f in enumerate(functions):
        assert taper.autograd.gradcheck(lambda t: real(f(of_real(t))), [r], atol=1e-4), i
    z = taper.randn(3, dtype=taper.complex128, requires_grad=True)
    (z * z.conj()).real.sum().backward()
    assert taper.allclose(z.grad, 2 * z.detach())
    x = taper.randn(3, requires_grad=True)
    (x * 1j).imag.sum().backward()
    assert x.grad.dtype is taper.float32 and x.grad.tolist() == [1, 1, 1]
    raises(RuntimeError, lambda: z.sum().backward(), "grad can be implicitly created only for real scalar outputs")


def both(f, *args):
    """Results and gradients of a function and of it compiled as one graph."""
    out = []
    for g in (f, taper.compile(f, fullgraph=True)):
        ins = [a.clone().requires_grad_() for a in args]
        ys = g(*ins)
        ys = ys if isinstance(ys, tuple) else (ys,)
        sum(y.abs().square().sum() for y in ys if y.requires_grad).backward()
        out.append([*ys, *[a.grad for a in ins if a.grad is not None]])
    return out


def test_compiled_programs_equal_eager_ones():
    taper.manual_seed(2)
    z, w, r = taper.randn(4, 6, dtype=taper.complex64), taper.randn(6, 4, dtype=taper.complex64), taper.randn(4, 6)

    def rotary(x, angles):
        f = taper.polar(taper.ones_like(angles), angles)
        return taper.view_as_real(taper.view_as_complex(x.reshape(4, 3, 2)) * f).flatten(1).relu()

    def writes(z):
        y = z * 2
        y.mul_(1j)
        y[0] = 1j
        return y

    programs = [(lambda z, w: (z @ w).abs().sin().sum(0), z, w), (lambda z, r: (z * r + 1j, (z * (1 + 2j)).real, z.imag * 2), z, r),
                (lambda z: taper.view_as_real(z.exp()).mul(2).sum(-1), z), (lambda z: (taper.cat([z, z.conj()], 1).sum(1), z.mean(0), z[1:, ::2], z.T.reshape(-1)), z),
                (lambda z: (taper.linalg.vector_norm(z, dim=1), z.var(), z.std()), z), (lambda r: taper.polar(r.abs(), r), r), (writes, z),
                (lambda z: (taper.where(z.real > 0, z, 0), z / (z + 2), z**2, z.angle()), z), (rotary, r, taper.randn(4, 3)),
                (lambda z: (z * 1, z - 0, z * (1 + 1j), -(-z), z.masked_fill(z.real > 0, 2j).cumsum(0).prod(1)), z)]
    for i, (f, *args) in enumerate(programs):
        a, b = both(f, *args)
        assert len(a) == len(b)
        for p, q in zip(a, b):
            assert p.dtype is q.dtype and p.shape == q.shape and taper.allclose(p, q, rtol=1e-4, atol=1e-5), i


def test_types_that_are_only_stored():
    for name, most in (("uint16", 2**16 - 1), ("uint32", 2**32 - 1), ("uint64", 2**64 - 1)):
        dt = getattr(taper, name)
        x = taper.tensor([1, 2, most], dtype=dt)
        assert x.tolist() == [1, 2, most] and taper.iinfo(dt).max == most and repr(x).endswith(f"dtype=taper.{name})") and not dt.is_signed
        assert x[1:].clone().tolist() == [2, most] and taper.cat([x, x]).tolist() == [1, 2, most] * 2 and taper.equal(x, x.clone())
        assert (x == 2).tolist() == [False, True, False] and x[taper.tensor([2, 0])].tolist() == [most, 1]
        assert x[:2].float().tolist() == [1, 2] and taper.tensor([3.]).to(dt).tolist() == [3]
        raises(NotImplementedError, lambda: x + x, "not implemented for '" + {"uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64"}[name])
    for name, values in (("float8_e4m3fn", [0.0, 1.5, -448.0, 0.001953125, 0.40625]), ("float8_e5m2", [0.0, 1.5, -57344.0, 2.0**-16, 0.4375])):
        dt = getattr(taper, name)
        x = taper.tensor(values).to(dt)
        assert x.float().tolist() == values and x.element_size() == 1 and dt.is_floating_point and x.tolist() == values
        assert taper.equal(x, taper.tensor(values, dtype=dt)) and x.view(taper.uint8).view(dt).float().tolist() == values
    assert taper.tensor([1e6, -500.]).to(taper.float8_e4m3fn).tolist() == [448, -448] and taper.tensor([float("nan")]).to(taper.float8_e4m3fn).float().isnan().all()
    assert taper.tensor([1e6]).to(taper.float8_e5m2).float().isinf().all()
    assert taper.tensor([1.0625, 1.1875, 17.]).to(taper.float8_e4m3fn).float().tolist() == [1.0, 1.25, 16.0]  # ties go to even
    f = io.BytesIO()
    taper.save(taper.tensor([1.5, 2]).to(taper.float8_e4m3fn), f)
    f.seek(0)
    assert taper.load(f).float().tolist() == [1.5, 2]


def test_writes_to_the_parts_of_what_was_put_together():
    def whole(a, b): z = taper.complex(a, b); taper.view_as_real(z).mul_(0.5); return z, z.real + 1
    def part(a, b): z = taper.complex(a, b); v = taper.view_as_real(z); v[..., 1].sub_(1); return v, z * 2
    def polar(a, b): v = taper.view_as_real(taper.polar(a, b)); v.add_(1); return v
    for f in (whole, part, polar):
        for size in ((), (1,), (2, 3)):
            check(f, lambda: [taper.full(size, 0.5), taper.full(size, 2.0)], grads=False, what=f.__name__)
    def real(a): v = taper.view_as_real(taper.complex(a, a * 2)); v.mul_(0.5); return v.sum()
    check(real, lambda: [taper.ones(3, requires_grad=True)])


def parts_written(a):
    c = taper.complex(a, a * 2) * (1 + 2j)
    v = taper.view_as_real(c)
    v[..., 1:].mul_(0.5)
    v.select(-1, 0)[1:].add_(a[1:])
    return v


def pairs_written(a):
    z = (a * 2).view(-1, 2)
    c = taper.view_as_complex(z)
    c[1:] *= 1j
    return z


def both_written(a):
    z = (a * 2).view(-1, 2).clone()
    c = taper.view_as_complex(z)
    c.mul_(taper.tensor(1j))
    taper.view_as_real(c)[..., 0].exp_()
    return c.abs()


def test_writes_through_views_of_the_other_kind_have_gradients():
    for f in (parts_written, pairs_written, both_written):
        for n in (4, 6):  # the second time sizes are symbols
            want = None
            for backend in (None, "eager", "aot_eager", "inductor"):
                if n == 4:
                    taper._dynamo.reset()
                a = taper.arange(float(n)).requires_grad_()
                y = (taper.compile(f, backend=backend, fullgraph=True) if backend else f)(a)
                got = y.detach(), taper.autograd.grad(y.abs().square().sum(), a)[0]
                want = want or got
                assert all(taper.allclose(x, t) for x, t in zip(got, want)), (f.__name__, backend, n)
