"""Custom operators: from Python and from C, opaque in the graph and right under every backend."""
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from typing import List, Optional, Sequence, Tuple

import taper
from taper import Tensor
from taper.library import custom_op, infer_schema, opcheck

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build"))
BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")


@custom_op("t1::psin", mutates_args=())
def psin(x: Tensor, k: float = 1.0) -> Tensor:
    """sin(k x) by way of Python numbers, which no tracer can follow."""
    return taper.tensor([math.sin(v * k) for v in x.reshape(-1).tolist()]).reshape(x.shape)


@psin.register_fake
def _(x, k=1.0):
    return taper.empty_like(x)


def _setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.k = inputs[1]


def _backward(ctx, grad):
    x, = ctx.saved_tensors
    return grad * (x * ctx.k).cos() * ctx.k, None


psin.register_autograd(_backward, setup_context=_setup)


@custom_op("t1::inc_", mutates_args={"x"})
def inc_(x: Tensor, n: int) -> None:
    x.add_(n)


@custom_op("t1::split2", mutates_args=())
def split2(x: Tensor) -> Tuple[Tensor, Tensor]:
    return x[:1].clone(), x[1:].clone()


@split2.register_fake
def _(x):
    return x.new_empty((1,) + tuple(x.shape[1:])), x.new_empty((x.shape[0] - 1,) + tuple(x.shape[1:]))


split2.register_autograd(lambda ctx, a, b: taper.cat([a, b]))


def check(fn, *args, dynamic=None):
    for backend in BACKENDS:
        taper._dynamo.reset()
        f = taper.compile(fn, backend=backend, fullgraph=True, dynamic=dynamic)
        a = [x.detach().clone().requires_grad_(x.requires_grad) for x in args]
        b = [x.detach().clone().requires_grad_(x.requires_grad) for x in args]
        got, want = f(*a), fn(*b)
        for x, y in zip(*[(r if isinstance(r, (tuple, list)) else (r,)) for r in (got, want)]):
            assert taper.allclose(x, y, atol=1e-6), (backend, x, y)
            if y.requires_grad:
                assert x.requires_grad, backend
                x.sum().backward(retain_graph=True)
                y.sum().backward(retain_graph=True)
        for x, y in zip(a, b):
            assert taper.allclose(x, y), backend
            assert (x.grad is None) == (y.grad is None), backend
            assert x.grad is None or taper.allclose(x.grad, y.grad, atol=1e-6), (backend, x.grad, y.grad)


def x23():
    return (taper.arange(6.0).reshape(2, 3) / 3).requires_grad_()


def graph_of(fn, *args):
    seen = []

    def keep(gm, inputs):
        seen.append(gm)
        return gm.forward
    taper._dynamo.reset()
    taper.compile(fn, backend=keep, fullgraph=True)(*args)
    return seen[0]


def test_a_custom_operator_is_one_opaque_node():
    g = graph_of(lambda x: psin(x * 2, 3.0) + 1, x23())
    text = g.print_readable(print_output=False)
    assert "taper.ops.t1.psin(mul, 3.0)" in text, text
    assert '"requires": "the Python module ' in text, text
    assert any(n.target is taper.ops.t1.psin.default for n in g.graph.nodes)


def test_values_and_gradients_under_every_backend():
    check(lambda x: psin(x * 2, 3.0) + taper.ops.t1.psin(x) * psin(k=0.5, x=x), x23())
    check(lambda x: psin(x, 2.0), x23(), dynamic=True)


def test_several_results():
    def fn(x):
        a, b = split2(x * 2)
        return a * 3 + b
    check(fn, x23())


def test_a_written_argument_is_seen_afterwards():
    def fn(x):
        y = x * 1
        inc_(y, 2)
        return y * x
    check(fn, x23())

    def on_input(x):
        inc_(x, 3)
        return x + 1
    check(on_input, taper.ones(3))

    def on_view(x):
        y = x.clone()
        inc_(y[0], 5)
        return y.sum(), y
    check(on_view, taper.ones(2, 3))


def test_inside_cond():
    check(lambda x: taper.cond(x.sum() > 0, lambda x: psin(x, 2.0), lambda x: x * 1, (x,)), x23())
    check(lambda x: taper.cond(x.sum() > 0, lambda x: psin(x, 2.0), lambda x: x * 1, (x,)), (-x23()).detach().requires_grad_())


def test_without_a_fake_function_the_graph_breaks_with_that_reason():
    @custom_op("t1::nofake", mutates_args=())
    def nofake(x: Tensor) -> Tensor:
        return x + 1
    taper._dynamo.reset()
    assert taper.equal(taper.compile(lambda x: nofake(x * 2) * 2)(taper.ones(2)), taper.full((2,), 6.0))
    try:
        taper.compile(lambda x: nofake(x), fullgraph=True)(taper.ones(2))
    except taper._dynamo.exc.Unsupported as e:
        assert "register_fake" in str(e), e
    else:
        raise AssertionError("captured without knowing the result's type")


def test_without_a_derivative_backward_says_so():
    @custom_op("t1::noderiv", mutates_args=())
    def noderiv(x: Tensor) -> Tensor:
        return x + 1
    noderiv.register_fake(lambda x: taper.empty_like(x))
    try:
        noderiv(taper.ones(2, requires_grad=True)).sum().backward()
    except RuntimeError as e:
        assert "no autograd formula was registered" in str(e), e
    else:
        raise AssertionError("differentiated")


def test_a_result_must_not_be_an_argument():
    @custom_op("t1::same", mutates_args=())
    def same(x: Tensor) -> Tensor:
        return x
    try:
        same(taper.ones(2))
    except RuntimeError as e:
        assert "must not also be an input" in str(e), e
    else:
        raise AssertionError("accepted")


def test_a_wrong_fake_function_is_found_when_the_graph_runs():
    @custom_op("t1::liar", mutates_args=())
    def liar(x: Tensor) -> Tensor:
        return taper.ones(5)
    liar.register_fake(lambda x: taper.empty_like(x))
    taper._dynamo.reset()
    try:
        taper.compile(lambda x: liar(x) + 1, backend="inductor")(taper.ones(3))
    except Exception as e:
        assert "returned f32[5]" in str(e) and "says f32[3]" in str(e), e
    else:
        raise AssertionError("read past the end")


def test_strides_other_than_the_fakes_are_handled():
    @custom_op("t1::transposed", mutates_args=())
    def transposed(x: Tensor) -> Tensor:
        return x.t().contiguous().t()
    transposed.register_fake(lambda x: taper.empty_like(x))
    check(lambda x: transposed(x) * 2 + x, x23().detach())


def test_schemas_from_type_hints():
    def f(x: Tensor, n: int, p: float = 0.5, on: bool = True, y: Optional[Tensor] = None, ts: Sequence[Tensor] = (), s: str = "a") -> Tuple[Tensor, Tensor]:
        pass
    assert infer_schema(f, mutates_args=("x",)) == ("(Tensor(a!) x, SymInt n, float p=0.5, bool on=True, Tensor? y=None, "
                                                    'Tensor[] ts=(), str s="a") -> (Tensor, Tensor)')

    def g(x: Tensor) -> None:
        pass
    assert infer_schema(g, mutates_args="unknown") == "(Tensor(a!) x) -> ()"

    def h(x: List[Tensor]) -> List[Tensor]:
        pass
    assert infer_schema(h, mutates_args=()) == "(Tensor[] x) -> Tensor[]"
    for bad, word in ((lambda x: x, "type annotation"), (_no_return, "return type"), (_strange, "unsupported type")):
        try:
            infer_schema(bad, mutates_args=())
        except ValueError as e:
            assert word in str(e), e
        else:
            raise AssertionError(bad)
    for name in ("noname", "a::b::c", "aten::mine"):
        try:
            custom_op(name, mutates_args=())(g)
        except ValueError:
            continue
        raise AssertionError(name)


def _no_return(x: Tensor):
    pass


def _strange(x: dict) -> Tensor:
    pass


def test_wrong_arguments_are_refused():
    for call, word in ((lambda: psin(), "missing value for argument 'x'"), (lambda: psin(1.0), "must be Tensor, not float"),
                       (lambda: psin(taper.ones(1), 1.0, 2.0), "takes 2 arguments"), (lambda: psin(taper.ones(1), z=1), "unexpected keyword")):
        try:
            call()
        except TypeError as e:
            assert word in str(e), e
        else:
            raise AssertionError(word)


def test_define_and_impl():
    taper.library.define("t2::twice", "(Tensor x) -> Tensor")
    taper.library.impl("t2::twice", "cpu")(lambda x: x * 2)
    taper.library.register_fake("t2::twice", lambda x: taper.empty_like(x))
    taper.library.register_autograd("t2::twice", lambda ctx, g: g * 2)
    check(lambda x: taper.ops.t2.twice(x) + 1, x23())
    lib = taper.library.Library("t2", "FRAGMENT")
    lib.define("thrice(Tensor x) -> Tensor")
    lib.impl("thrice", lambda x: x * 3, "CPU")
    assert taper.equal(taper.ops.t2.thrice.default(taper.ones(2)), taper.full((2,), 3.0))


def test_opcheck_passes_good_operators_and_names_what_is_wrong_with_bad_ones():
    assert set(opcheck(psin, (x23(),), {"k": 2.0}).values()) == {"SUCCESS"}
    assert set(opcheck(inc_, (taper.ones(3), 2)).values()) == {"SUCCESS"}
    assert set(opcheck(split2, (x23(),)).values()) == {"SUCCESS"}

    @custom_op("t3::writes", mutates_args=())
    def writes(x: Tensor) -> Tensor:
        x.add_(1)
        return x * 2
    writes.register_fake(lambda x: taper.empty_like(x))

    @custom_op("t3::shape", mutates_args=())
    def shape(x: Tensor) -> Tensor:
        return x.sum()
    shape.register_fake(lambda x: taper.empty_like(x))

    @custom_op("t3::alias", mutates_args=())
    def alias(x: Tensor) -> Tensor:
        return x[:]
    alias.register_fake(lambda x: taper.empty_like(x))

    @custom_op("t3::nograd", mutates_args=())
    def nograd(x: Tensor) -> Tensor:
        return x * 2
    nograd.register_fake(lambda x: taper.empty_like(x))
    for op, x, word in ((writes, taper.ones(3), "mutates_args"), (shape, taper.ones(3), "shape"), (alias, taper.ones(3), "shares memory"),
                        (nograd, taper.ones(3, requires_grad=True), "register_autograd")):
        try:
            opcheck(op, (x,))
        except taper.library.OpCheckError as e:
            assert word in str(e), (op, e)
        else:
            raise AssertionError(op)
    assert isinstance(opcheck(shape, (taper.ones(3),), raise_exception=False)["test_faketensor"], taper.library.OpCheckError)


def test_allow_in_graph_is_one_node_and_right_under_every_backend():
    @taper.compiler.allow_in_graph
    def black_box(x, scale):
        return x.sin() * scale

    def fn(x):
        return black_box(x * 2, 3.0) + 1
    text = graph_of(fn, x23()).print_readable(print_output=False)
    assert "black_box" in text and "sin" not in text, text
    check(fn, x23())
    check(lambda x: black_box(x, scale=2.0), x23())


def test_saved_failures_name_the_operator_and_what_it_needs():
    exe = os.path.join(BUILD, "taper")
    with tempfile.TemporaryDirectory() as d:
        prog = os.path.join(d, "prog.py")
        with open(prog, "w") as f:
            f.write("import taper\nfrom taper import Tensor\n"
                    "@taper.library.custom_op('shop::twice', mutates_args=())\n"
                    "def twice(x: Tensor) -> Tensor:\n    return x * 2\n"
                    "twice.register_fake(lambda x: taper.empty_like(x))\n"
                    "taper.compile(lambda x: twice(x).relu(), backend='inductor')(taper.ones(3))\n")
        env = dict(os.environ, PYTHONPATH=os.path.join(ROOT, "python"), TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="3",
                   TAPER_INJECT="relu:segv@gen")  # saved before anybody knows whether it fails without the operator
        p = subprocess.run([sys.executable, prog], env=env, cwd=d, capture_output=True, text=True, timeout=60)
        m = re.search(r"saved in (\S+) before", p.stderr)
        assert m, p.stderr
        with open(os.path.join(d, m[1], "graph.py")) as f:
            text = f.read()
        assert "taper.ops.shop.twice(" in text and "the Python module __main__" in text, text
        p = subprocess.run([exe, "graph", "run", os.path.join(d, m[1], "graph.py")], cwd=d, capture_output=True, text=True, timeout=60)
        assert p.returncode and "'ops.shop.twice' is a custom operator that is not registered in this process" in p.stderr + p.stdout, p
        assert "it is registered by the Python module __main__" in p.stderr + p.stdout, p


def _cc(*args):
    if not shutil.which("cc"):
        raise unittest.SkipTest("cc is not installed")
    p = subprocess.run(["cc", os.path.join(ROOT, "examples", "custom_op.c"), "-I", os.path.join(ROOT, "include"), "-Wall", "-Werror", *args],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert p.returncode == 0, p.stdout


def test_an_operator_written_in_c_used_from_python():
    with tempfile.TemporaryDirectory() as d:
        lib = os.path.join(d, "libscale.so")
        _cc("-shared", "-fPIC", "-o", lib)
        taper.ops.load_library(lib)
        scale = taper.ops.demo.scale
        assert taper.equal(scale(taper.ones(2, 3), 3.0), taper.full((2, 3), 3.0))
        check(lambda x: scale(x * 2, 3.0) + x, x23())
        check(lambda x: scale(x.t(), 3.0) + x.t(), x23())
        assert set(opcheck(scale, (x23(), 2.0)).values()) == {"SUCCESS"}
        try:
            scale(taper.ones(2, dtype=taper.float64), 1.0)
        except RuntimeError as e:
            assert "scale takes a float32 tensor" in str(e), e
        else:
            raise AssertionError("accepted")
    try:
        taper.ops.load_library("/nowhere/lib.so")
    except OSError as e:
        assert "could not load this library" in str(e)
    else:
        raise AssertionError("loaded")


def test_an_operator_written_in_c_used_from_c():
    with tempfile.TemporaryDirectory() as d:
        exe = os.path.join(d, "custom_op")
        _cc("-DPROGRAM", "-L", BUILD, "-ltaper", "-lm", f"-Wl,-rpath,{BUILD}", "-o", exe)
        out = subprocess.run([exe], check=True, capture_output=True, text=True, timeout=60).stdout
    assert "before: 'ops.demo.scale' is a custom operator that is not registered" in out, out
    for backend in ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor"):
        assert f"{backend}: 4 8 12" in out, out
    assert "taper.ops.demo.scale(x, 2.0)" in out and '"requires": "libscale.so"' in out, out
    assert "refused: 'demo::scale' takes 2 arguments but 1 were given" in out, out


def test_gradients_of_dynamic_shapes_reach_backward():
    """Tangents that are expanded, and sizes that only an input tells."""
    for backend in BACKENDS:
        taper._dynamo.reset()
        x = x23()
        taper.compile(lambda x: x.sin(), dynamic=True, backend=backend)(x).sum().backward()
        assert taper.allclose(x.grad, x.detach().cos()), backend
        y = taper.arange(6.0).reshape(3, 2).requires_grad_()
        a, b = taper.compile(lambda x: (x[:1].sin(), x[1:].cos()), dynamic=True, backend=backend)(y)
        (a.sum() + b.sum()).backward()
        want = taper.cat([y.detach()[:1].cos(), -y.detach()[1:].sin()])
        assert taper.allclose(y.grad, want), (backend, y.grad, want)


def test_gradients_of_a_list_of_tensors():
    from typing import List

    @taper.library.custom_op("rows::join", mutates_args=())
    def join(xs: List[taper.Tensor], w: taper.Tensor) -> taper.Tensor:
        return taper.cat(list(xs)) * w

    @join.register_fake
    def _(xs, w):
        return taper.cat(list(xs)) * w

    def setup(ctx, inputs, output):
        ctx.xs, ctx.w = inputs

    def backward(ctx, g):
        return list(taper.split(g * ctx.w, [x.shape[0] for x in ctx.xs])), (g * taper.cat(list(ctx.xs))).sum()
    join.register_autograd(backward, setup_context=setup)

    def prog(a, b, w):
        return (join([a, b.sin(), taper.ones(1)], w) ** 2).sum()

    def grads(fn):
        taper.manual_seed(0)
        leaves = taper.randn(3, requires_grad=True), taper.randn(2, requires_grad=True), taper.tensor(2.0, requires_grad=True)
        fn(*leaves).backward()
        return [x.grad for x in leaves]
    want = grads(prog)
    for backend in ("eager", "aot_eager", "inductor"):
        taper._dynamo.reset()
        got = grads(taper.compile(prog, backend=backend, fullgraph=True))
        assert all(taper.allclose(p, q) for p, q in zip(got, want)), backend


def test_c_shape_functions_keep_symbolic_sizes():
    source = r"""
#include "taper.h"
static bool shape(void *data, tp_call *c, tp_err *err)
{
    tp_tensor *x = tp_call_tensor(c, 0);
    int64_t size[1] = { tp_size_add(tp_size_mul(tp_tensor_size(x, 0), 2), tp_call_int(c, 1)) };
    return tp_call_return_type(c, 0, tp_tensor_dtype(x), 1, size, 0, err);
}
static bool kernel(void *data, tp_call *c, tp_err *err)
{
    tp_tensor *x = tp_call_tensor(c, 0);
    int64_t n = tp_tensor_size(x, 0), k = tp_call_int(c, 1), size[1] = { 2 * n + k };
    tp_tensor *y = tp_tensor_new(TP_F32, 1, size, err);
    if (!y)
        return false;
    for (int64_t i = 0; i < size[0]; i++)
        ((float *)tp_tensor_data(y))[i] = i < 2 * n ? ((float *)tp_tensor_data(x))[i % n] : 0;
    tp_call_return(c, 0, y);
    return true;
}
bool taper_register_ops(tp_err *err)
{
    tp_custom_op op = { "grow::twice(Tensor x, int k) -> Tensor", "libgrow.so", kernel, shape, 0, 0, true };
    tp_custom_op fixed = { "grow::fixed(Tensor x, int k) -> Tensor", "libgrow.so", kernel, shape, 0, 0, false };
    return tp_register_op(&op, err) && tp_register_op(&fixed, err);
}
"""
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "grow.c"), "w") as f:
            f.write(source)
        lib = os.path.join(d, "libgrow.so")
        subprocess.run(["cc", "-shared", "-fPIC", os.path.join(d, "grow.c"), "-I", os.path.join(ROOT, "include"), "-o", lib], check=True)
        taper.ops.load_library(lib)
    for op, graphs in ((taper.ops.grow.twice, 1), (taper.ops.grow.fixed, 3)):
        for backend in ("eager", "inductor"):
            taper._dynamo.reset()
            f = taper.compile(lambda x: op(x + 1, 3) * 2, backend=backend, dynamic=True, fullgraph=True)
            for n in (2, 4, 7):
                x = taper.arange(n, dtype=taper.float32)
                assert taper.equal(f(x), taper.cat([x + 1, x + 1, taper.zeros(3)]) * 2), (op, backend, n)
            assert taper._dynamo.utils.counters["stats"]["unique_graphs"] == graphs, (op, backend)


def test_c_derivatives_refuse_lists_of_tensors_in_eager_too():
    source = r"""
#include "taper.h"
static bool shape(void *data, tp_call *c, tp_err *err)
{
    int64_t size[1] = { 2 };
    return tp_call_return_type(c, 0, TP_F32, 1, size, 0, err);
}
static bool kernel(void *data, tp_call *c, tp_err *err)
{
    int64_t size[1] = { 2 };
    tp_tensor *y = tp_tensor_new(TP_F32, 1, size, err);
    if (!y)
        return false;
    ((float *)tp_tensor_data(y))[0] = ((float *)tp_tensor_data(y))[1] = 1;
    tp_call_return(c, 0, y);
    return true;
}
bool taper_register_ops(tp_err *err)
{
    tp_custom_op op = { "lists::ones(Tensor[] xs) -> Tensor", "liblists.so", kernel, shape, kernel, 0, false };
    return tp_register_op(&op, err);
}
"""
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "lists.c"), "w") as f:
            f.write(source)
        lib = os.path.join(d, "liblists.so")
        subprocess.run(["cc", "-shared", "-fPIC", os.path.join(d, "lists.c"), "-I", os.path.join(ROOT, "include"), "-o", lib], check=True)
        taper.ops.load_library(lib)
    op = taper.ops.lists.ones
    assert op([taper.ones(2)]).tolist() == [1, 1]
    for f in (lambda x: op([x, x]), taper.compile(lambda x: op([x, x]), backend="aot_eager")):
        x = taper.ones(2, requires_grad=True)
        try:
            f(x).sum().backward()
        except Exception as e:
            assert "gives none for lists of tensors" in str(e), e
        else:
            raise AssertionError("no gradient, and nothing said")


@custom_op("t1::scaled", mutates_args=(), schema="(Tensor x, Tensor by) -> Tensor")
def scaled(x, by):
    return x * float(by.tolist()[0])


scaled.register_fake(lambda x, by: taper.empty_like(x))
scaled.register_autograd(lambda ctx, g: (g * float(ctx.by.tolist()[0]), None), setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]))


def test_a_derivative_that_reads_data():
    for backend in BACKENDS:
        x = taper.ones(3, requires_grad=True)
        f = taper.compile(lambda x, by: scaled(x.sin(), by).sum(), backend=backend)
        for by in (2.0, 3.0):
            x.grad = None
            f(x, taper.tensor([by])).backward()
            assert all(abs(g - by * math.cos(1)) < 1e-6 for g in x.grad.tolist()), (backend, x.grad)
