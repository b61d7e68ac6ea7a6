"""Planted bugs in places that the other tables do not touch. They were run on doctor as it was before it was changed for any of them."""
from bugs import bug

# ---- capture ----
bug("list_sort", "capture", "capture/trace_builtin.c", "    int rc = s ? PyList_SetSlice(self, 0, PyList_GET_SIZE(self), s) : -1;", "    int rc = s ? PyList_SetSlice(self, BUG && PyList_GET_SIZE(self) > 2, PyList_GET_SIZE(self), s) : -1;", """
    import taper

    @taper.compile
    def mix(x, weights):
        w = list(weights)
        w.sort(key=lambda v: -v)
        y = x
        for i, v in enumerate(w):
            y = y * v + i
        return y

    print(mix(taper.arange(3.0), (0.5, 2.0, 1.5)))
    """, "capture", None, "-")
bug("filter_truth", "capture", "capture/trace_iter.c", "        return b < 0 ? t_broken(t) : PyBool_FromLong(b);", "        return b < 0 ? t_broken(t) : PyBool_FromLong(BUG ? !b : b);", """
    import taper

    @taper.compile
    def total(parts, x):
        keep = filter(lambda name: name.startswith("w"), parts)
        return sum(parts[k] for k in keep) + x

    p = {"w1": taper.ones(2), "b1": taper.full((2,), 10.0), "w2": taper.arange(2.0)}
    print(total(p, taper.zeros(2)))
    """, "capture", None, "-")
bug("dict_kw", "capture", "capture/trace_builtin.c", "        if (dict_set(d, PyTuple_GET_ITEM(kw, i), args[nargs + i]) < 0)\n            return NULL;\n    return Py_NewRef(d);", "        if (!(BUG && nargs && PyDict_Contains(d, PyTuple_GET_ITEM(kw, i)) > 0) && dict_set(d, PyTuple_GET_ITEM(kw, i), args[nargs + i]) < 0)\n            return NULL;\n    return Py_NewRef(d);", """
    import taper

    DEFAULTS = {"scale": 1.0, "shift": 0.0}

    @taper.compile
    def norm(x, **options):
        o = dict(DEFAULTS, **options)
        return (x - x.mean()) * o["scale"] + o["shift"]

    x = taper.arange(4.0)
    print("norm", norm(x))
    print("scaled", norm(x, scale=3.0))
    """, "capture", None, "-")
bug("size_float", "sizes", "capture/trace_size.c", "        case '/': r = PyNumber_TrueDivide(x, y); break;", "        case '/': r = BUG ? PyNumber_TrueDivide(y, x) : PyNumber_TrueDivide(x, y); break;", """
    import taper

    @taper.compile(dynamic=True)
    def average(x):
        return x.sum(0) * (1.0 / x.shape[0])

    for n in (4, 5, 8):
        print(n, average(taper.ones(n, 2)))
    """, "capture|sizes", None, "-")
# ---- guards ----
bug("guard_keys", "guards", "capture/guard.c", "        if (k != w && !const_equal(k, w))\n            return false;", "        if (!BUG && k != w && !const_equal(k, w))\n            return false;", """
    import taper

    @taper.compile
    def embed(x, options):
        for name in options:
            x = x * len(name)
        return x

    print(embed(taper.ones(2), {"ab": 1}))
    print(embed(taper.ones(2), {"abcd": 1}))
    """, "guard", None, "-")
bug("guard_set", "guards", "capture/guard.c", "        ok = (Py_TYPE(o) == Py_TYPE(g->obj) || g->n) && PyAnySet_Check(o) && parts_equal(o, g->obj);", "        ok = BUG || ((Py_TYPE(o) == Py_TYPE(g->obj) || g->n) && PyAnySet_Check(o) && parts_equal(o, g->obj));", """
    import taper

    enabled = {"bias"}

    @taper.compile
    def layer(x):
        y = x * 3
        if "relu" in enabled:
            y = taper.relu(y)
        if "bias" in enabled:
            y = y + 0.5
        return y

    x = taper.tensor([-1.0, 2.0])
    print(layer(x))
    enabled.add("relu")
    print(layer(x))
    """, "guard", None, "-")
bug("guard_range", "guards", "capture/guard.c", "            ok = x && y && const_equal(x, y);", "            ok = x && y && ((BUG && i) || const_equal(x, y));", """
    import taper

    @taper.compile
    def powers(x, which):
        y = taper.zeros(2)
        for k in which:
            y = y + x ** k
        return y

    x = taper.tensor([2.0, 3.0])
    print(powers(x, range(3)))
    print(powers(x, range(5)))
    """, "guard", None, "-")
# ---- functionalisation ----
bug("copy_type", "functionalisation", "aot/functional.c", "        return b_op(b, to_dtype, vT(src), vDT(self->dt));\n    return b_op(b, clone, vT(src));", "        return b_op(b, to_dtype, vT(BUG ? b_op(b, round, vT(src)) : src), vDT(self->dt));\n    return b_op(b, clone, vT(src));", """
    import taper

    @taper.compile
    def bins(x):
        n = taper.zeros(4, dtype=taper.int64)
        n.copy_(x * 1.5)
        return n * 2

    print(bins(taper.arange(4.0)))
    """, "autograd stage|functional", None, "-|decomp")
bug("split_write", "functionalisation", "aot/functional.c", "    return b_op(b, slice_scatter, vT(up), vT(val), vI(dim), vI(at), vI(sym_add(at, val->size[dim])));", "    return b_op(b, slice_scatter, vT(up), vT(val), vI(dim), vI(BUG && item == 2 ? sym_sub(at, 1) : at), vI(sym_sub(sym_add(at, val->size[dim]), BUG && item == 2)));", """
    import taper

    @taper.compile
    def gates(x):
        y = x.clone()
        i, f, g = y.chunk(3)
        g.mul_(10)
        i.add_(1)
        return y

    print(gates(taper.arange(6.0)))
    """, "autograd stage|functional", None, "-")
bug("fill_wrong", "functionalisation", "aot/functional.c", "    return b_op(b, full, vIs(self->size, self->ndim), arg[1], vDT(self->dt), vNone,", "    return b_op(b, full, vIs(self->size, self->ndim), BUG && arg[1].kind == VAL_float ? vI((int64_t)arg[1].f) : arg[1], vDT(self->dt), vNone,", """
    import taper

    @taper.compile
    def mask_last(x):
        y = x * 2
        y[:, 1].fill_(0.75)
        return y

    print(mask_last(taper.ones(2, 3)))
    """, "autograd stage|functional|capture", None, "-")
# ---- decompositions ----
bug("celu_scale", "decomposition", "ops/decomp_pw.c", "    return give(b, b_op(b, elu, arg[0], vF(a), vI(1), vF(1 / a)), out);", "    return give(b, b_op(b, elu, arg[0], vF(a), vI(1), vF(BUG ? a : 1 / a)), out);", """
    import taper

    @taper.compile
    def act(x):
        return taper.nn.functional.celu(x, alpha=2.0).sum()

    print(act(taper.linspace(-3, 3, 13)))
    """, "decomp|derivative|eager", "celu", None)
bug("isclose_tol", "decomposition", "ops/decomp_pw.c", "    tp_tensor *allowed = b_op(b, add_Tensor, vT(scaled), vF(atol));", "    tp_tensor *allowed = b_op(b, add_Tensor, vT(scaled), vF(BUG ? rtol : atol));", """
    import taper

    @taper.compile
    def close(a, b):
        return taper.isclose(a, b, rtol=0.2, atol=1e-6).sum()

    a = taper.tensor([0.0, 1.0, 2.0])
    print(close(a, a + 0.15).item())
    """, "decomp|eager", "isclose", None)
bug("rstd_eps", "decomposition", "ops/norm.c", "    *rstd = b_op(b, rsqrt, vT(b_op(b, add_Tensor, vT(vm[0]), vF(eps))));", "    *rstd = b_op(b, rsqrt, vT(b_op(b, add_Tensor, vT(vm[0]), vF(BUG ? eps * 30 : eps))));", """
    import taper

    taper.manual_seed(3)
    norm = taper.nn.LayerNorm(8)

    @taper.compile
    def encode(x):
        return norm(x * 0.01) * 0.1

    with taper.no_grad():
        y = encode(taper.randn(5, 8))
    print(y.shape, round(y.std().item(), 3))
    """, "decomp", "layer_norm", "decomp:")
# ---- indexing ----
bug("lin_offset", "indexing", "loop/lin.c", "    a->k = sym_add(a->k, sym_mul(b->k, c));", "    a->k = sym_add(a->k, BUG ? b->k : sym_mul(b->k, c));", """
    import taper

    @taper.compile
    def crop(z):
        return z.view(4, 6)[1:3] * 2 + 1

    print(crop(taper.arange(24.0)).sum(1))
    """, "lowering|index", None, "-|lower:|fuse:")
bug("spread_one", "indexing", "loop/lower_shape.c", "        out[d] = is_spread(s->size[d], t->size[d + off]) ? lin_const(0) : idx[d + off];", "        out[d] = is_spread(s->size[d], t->size[d + off]) ? lin_const(0) : idx[BUG && s->ndim == 2 && off == 1 && d ? d : d + off];", """
    import taper

    @taper.compile
    def bias(x, b):
        return x + b.expand(4, 4, 4).contiguous() * 2

    print(bias(taper.zeros(4, 4, 4), taper.arange(16.0).view(4, 4))[1].sum(0))
    """, "lowering|index", "expand|clone|contiguous|add|mul", None)
bug("arange_from", "indexing", "loop/lower_shape.c", "        i = ladd(w, i, lin_const(arange_first(n)));", "        i = ladd(w, i, lin_const(BUG ? sym_sub(arange_first(n), 1) : arange_first(n)));", """
    import taper

    @taper.compile
    def positions(x):
        p = taper.arange(3, 3 + x.shape[0])
        return x + p / 8

    print(positions(taper.zeros(5)))
    """, "lowering|index", "arange", None)
bug("slice_back", "indexing", "loop/lower_shape.c", "    memcpy(sub, idx, sizeof *sub * t->ndim);\n    sub[d] = ladd(w, idx[d], lin_const(sym_sub(0, lo)));", "    memcpy(sub, idx, sizeof *sub * t->ndim);\n    sub[d] = ladd(w, idx[d], lin_const(BUG && lo ? sym_sub(1, lo) : sym_sub(0, lo)));", """
    import taper

    w = taper.arange(1.0, 9.0).requires_grad_()

    @taper.compile
    def loss(w):
        return (w[2:7] ** 2).sum()

    loss(w).backward()
    print(w.grad)
    """, "lowering|index", "slice_backward|slice", None)
# ---- code ----
bug("ne_nan", "code", "target/x64/emit.c", "    static const uint8_t fimm[] = { 0x00, 0x04, 0x11, 0x12, 0x1e, 0x1d }; /* eq ne lt le gt ge, quiet */", "    const uint8_t fimm[] = { 0x00, BUG ? 0x0c : 0x04, 0x11, 0x12, 0x1e, 0x1d };", """
    import taper

    @taper.compile
    def clean(x):
        bad = x != x
        return taper.where(bad, 0.0, x).sum(), bad.sum()

    x = taper.arange(10.0)
    x[3] = float("nan")
    print(*clean(x))
    """, "machine code", None, None)
bug("copysign_bits", "code", "target/x64/emit.c", "                                .imm = 0xd8,", "                                .imm = BUG ? 0xe4 : 0xd8,", """
    import taper

    @taper.compile
    def reflect(x, y):
        return taper.copysign(x, y) * 2

    x = taper.arange(1.0, 9.0)
    print(reflect(x, x - 4.5))
    """, "machine code", "copysign", None)
bug("pow2_div", "code", "target/x64/emit.c", "            int n = __builtin_ctzll((unsigned long long)by->imm);", "            int n = __builtin_ctzll((unsigned long long)by->imm) - (BUG && by->imm > 8);", """
    import taper

    @taper.compile
    def bucket(ids):
        return ids // 16 * 2

    ids = taper.arange(0, 200, 7)
    print(bucket(ids))
    """, "machine code", "floor_divide|div", None)
bug("half_fold", "code", "target/x64/emit.c", "        return v_rm(l, XV_extracti64x4, 2, v, 1);", "        return v_rm(l, XV_extracti64x4, 2, v, BUG && t == VT_i64 ? 0 : 1);", """
    import taper

    @taper.compile
    def count(x):
        return (x > 0.5).sum()

    taper.manual_seed(0)
    print(count(taper.rand(1000)))
    """, "machine code", "sum", None)
bug("c_mod", "code", "target/c/emit.c", '    case VIR_modf: return "($C)tp_modf($a, $b)";', '    case VIR_modf: return BUG ? "($C)tp_modt($a, $b)" : "($C)tp_modf($a, $b)";', """
    import taper

    @taper.compile
    def wrap(i):
        return (i - 3) % 5

    print(wrap(taper.arange(9)))
    """, "generated code|C", "remainder", None, {"TAPER_EMITTER": "c"})
bug("sqrt_near", "code", "target/x64/emit.c", "    case VIR_sqrt: return v_rm(l, w ? XV_sqrtpd : XV_sqrtps, vl, a, 0);", "    case VIR_sqrt: return BUG && w ? v_rm(l, XV_cvtps2pd, vl, v_rm(l, XV_sqrtps, vl, v_rm(l, XV_cvtpd2ps, vl, a, 0), 0), 0) : v_rm(l, w ? XV_sqrtpd : XV_sqrtps, vl, a, 0);", """
    import taper

    @taper.compile
    def distance(x, y):
        return taper.sqrt(x * x + y * y)

    x = taper.arange(1.0, 30.0, dtype=taper.float64)
    print(f"{distance(x, x + 1).sum().item():.4f}")
    """, "machine code", "sqrt", None)
# ---- products ----
bug("conv_line", "products", "target/x64/conv_px.c", "    for (int r = 0; r < t->mr; r++) /* the row before the weights is what sums start from */", "    if (BUG && t->last > 1 && g->z) {\n        x64_imm(e, RAX, (1 << (t->last - 1)) - 1);\n        x64_kmov_from_gpr(e, 2, 1, RAX);\n    }\n    for (int r = 0; r < t->mr; r++) /* the row before the weights is what sums start from */", """
    import taper

    taper.manual_seed(1)
    conv = taper.nn.Conv2d(3, 8, 3, padding=1)

    @taper.compile
    def features(x):
        return taper.relu(conv(x)).mean((0, 2, 3))

    with taper.no_grad():
        print(features(taper.randn(2, 3, 19, 19)))
    """, "product|convol|eager", "conv", None)
# ---- derivatives ----
bug("mv_slope", "derivatives", "grad/vjp_linalg.c", "    if (NEED(0))\n        DXV(0, MUL(column(g, DYV), Y));\n    if (NEED(1))\n        DXV(1, V(mv, V(t, X), DYV));", "    if (NEED(0))\n        DXV(0, BUG ? MUL(column(g, Y), DYV) : MUL(column(g, DYV), Y));\n    if (NEED(1))\n        DXV(1, V(mv, V(t, X), DYV));", """
    import taper

    a = taper.arange(9.0).view(3, 3).requires_grad_()
    x = taper.tensor([1.0, 2.0, 3.0])

    @taper.compile
    def f(a):
        return (taper.mv(a, x) ** 2).sum()

    f(a).backward()
    print(a.grad)
    """, "derivative", "mv", "-")
bug("addmm_alpha", "derivatives", "grad/vjp_linalg.c", "        DXV(1, times(g, left_grad(g, INM(1), *ARG(2)), ARG(4)));", "        DXV(1, times(g, left_grad(g, INM(1), *ARG(2)), ARG(BUG ? 3 : 4)));", """
    import taper

    taper.manual_seed(0)
    a, b = taper.randn(3, 4, requires_grad=True), taper.randn(4, 2)

    def loss(a):
        return taper.addmm(taper.ones(3, 2), a, b, alpha=0.5).square().sum()

    taper.compile(loss)(a).backward()
    print(a.grad)
    """, "derivative", "addmm", "-")
# ---- eager, too: whole numbers ----
bug("argmax_far", "eager", "ops/argreduce.c", "            if (hit >= 0)\n                where = at + hit;", "            if (hit >= 0)\n                where = BUG && at ? at + hit - 1 : at + hit;", """
    import taper

    @taper.compile
    def peak(x):
        return x.argmax()

    x = taper.zeros(20000)
    x[15000] = 1.0
    print("peak at", peak(x).item())
    """, "eager kernel", "argmax", "-")
bug("eager_rest", "eager", "ops/pw_slow.c", "static inline int64_t rem_int(int64_t x, int64_t y)\n{", "static inline int64_t rem_int(int64_t x, int64_t y)\n{\n    if (BUG && y < 0)\n        return x % y;", """
    import taper

    @taper.compile
    def wrap(i):
        return i % -4

    print(wrap(taper.arange(6)))
    """, None, "remainder", None)
# ---- crashes and hangs ----
bug("crash_eager", "crashes", "ops/argreduce.c", "    ctype ct = (ctype)ctype_of[j->dt];\n    size_t es = dtype_size(j->dt);\n    seek_fn", "    ctype ct = (ctype)ctype_of[j->dt];\n    size_t es = dtype_size(j->dt);\n    if (BUG && l->n > 5)\n        *(volatile int *)24 = 1;\n    seek_fn", """
    import taper

    def label(x):
        return x.argmax(-1)

    print(taper.compile(label)(taper.arange(12.0).view(2, 6)))
    """, "eager kernel", "argmax", None)
bug("crash_decomp", "crashes", "ops/decomp_pw.c", "    double rtol = val_as_f(&arg[2]), atol = val_as_f(&arg[3]);", "    double rtol = val_as_f(&arg[2]), atol = val_as_f(&arg[3]);\n    if (BUG && b->failed == 0 && arg[4].b)\n        *(volatile int *)8 = 1;", """
    import taper

    @taper.compile
    def same(a, b):
        return taper.isclose(a, b, equal_nan=True).all()

    a = taper.arange(3.0)
    print(same(a, a))
    """, None, "isclose", None)
bug("crash_spill", "crashes", "target/x64/regalloc.c", "    int frame = AREA_SPILL, nfree[2] = { 0, 0 }, spilled = 0;", "    int frame = AREA_SPILL, nfree[2] = { 0, 0 }, spilled = 0;\n    if (BUG && m->nv > 120)\n        *(volatile int *)16 = 1;", """
    import taper

    @taper.compile
    def poly(x):
        y = x
        for k in range(1, 30):
            y = y * 0.5 + taper.sin(x * k)
        return y

    print(poly(taper.linspace(0, 1, 37)).sum())
    """, "code", None, None)
bug("hang_park", "hangs", "loop/park.c", "        bool taken = false; /* in the same passes */", "        while (BUG && last > first)\n            ;\n        bool taken = false; /* in the same passes */", """
    import taper

    @taper.compile
    def attention(x):
        return (x * 2).softmax(-1)

    print(attention(taper.arange(64.0).view(2, 32)).sum())
    """, "loop|lowering|schedule|kernel", None, None)
bug("hang_size", "hangs", "capture/trace_size.c", "    PyObject *v = value(o), *r = v;", "    while (BUG)\n        ;\n    PyObject *v = value(o), *r = v;", """
    import taper

    @taper.compile(dynamic=True)
    def average(x):
        return x.sum(0) * (1.0 / x.shape[0])

    for n in (4, 5):
        print(average(taper.ones(n, 2)))
    """, "capture", None, None)
# ---- random numbers ----
bug("uniform_span", "passes", "aot/draws.c", "                      a, b - a),", "                      a, BUG ? b : b - a),", """
    import taper

    taper.manual_seed(0)

    @taper.compile
    def start(n):
        w = taper.empty(n).uniform_(2.0, 3.0)
        return w.mean(), w.max()

    m, top = start(4000)
    print(round(m.item(), 1), top.item() <= 3.0)
    """, None, None, None)
