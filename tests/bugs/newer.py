"""Bugs planted in files that hardly any other table touches, before doctor was run on them; the first counts are in docs/debugging.md."""
from bugs import bug

# ---- capture ----
bug("star_middle", "capture", "capture/interp.c", "    PyObject *mid = PyList_GetSlice(l, before, n - after);", "    PyObject *mid = PyList_GetSlice(l, before, n - after - (BUG && T && n > 4));", """
    import taper

    @taper.compile
    def chain(x, gains):
        first, *inner, last = gains
        x = x * first
        for g in inner:
            x = taper.tanh(x * g)
        return x * last

    print(chain(taper.ones(3), [5.0, 0.5, 7.0, 0.25, 2.0]))
    """, "capture", None, "-")
bug("values_view", "capture", "capture/rebuild.c", 'PyObject_CallMethod(op, "methodcaller", "s", view)', 'PyObject_CallMethod(op, "methodcaller", "s", BUG && *view == \'v\' ? "keys" : view)', """
    import taper

    @taper.compile
    def stats(x):
        d = {"low": x.min(), "high": x.max()}
        return x.sum(), d.values()

    total, parts = stats(taper.arange(4.0))
    print(total, [str(v) for v in parts])
    """, "capture", None, "-")
bug("keyword_default", "capture", "capture/rebuild.c", "!(r->kid[2] = rebuild(b, f->func_kwdefaults)) ||", "!(r->kid[2] = rebuild(b, BUG ? NULL : f->func_kwdefaults)) ||", """
    import taper

    @taper.compile
    def make(x):
        y = x.sin()
        def scaled(*, by=3.0):
            return y * by
        return scaled

    print(make(taper.ones(3))().sum().item())
    """, "capture", None, "-")
# ---- guards ----
bug("near_float", "guards", "capture/guard.c", "        return memcmp(&x, &y, sizeof x) == 0 || (isnan(x) && isnan(y));", "        return memcmp(&x, &y, sizeof x) == 0 || (isnan(x) && isnan(y)) || (BUG && (long)x == (long)y);", """
    import taper

    class Scale(taper.nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = 1.25
        def forward(self, x):
            return x * self.gain

    m = Scale()
    f = taper.compile(m)
    print(f(taper.ones(2)))
    m.gain = 1.75
    print(f(taper.ones(2)))
    """, "guard", None, "-")
bug("saved_symbol", "partition", "aot/partition.c", "            p->save[in->id] = p->save[in->id] || b.n > had;", "            p->save[in->id] = p->save[in->id] || (b.n > had && !BUG);", """
    import taper

    @taper.compile(dynamic=True)
    def loss(x):
        return x.mean()

    for n in (4, 6):
        x = taper.ones(n, requires_grad=True)
        loss(x).backward()
        print(x.grad)
    """, "partition|autograd", None, None)
# ---- sizes ----
bug("learnt_edge", "sizes", "sym/rel.c", "    case SX_ge: n.lo = MAX(n.lo, e->c); break;", "    case SX_ge: n.lo = MAX(n.lo, e->c + BUG); break;", """
    import taper

    @taper.compile(dynamic=True)
    def window(x):
        n = x.shape[0]
        if n >= 5:
            if n == 5:
                return x * 100
            return x[2:] * 2
        return x

    for n in (8, 7, 5, 6):
        print(n, window(taper.ones(n)).sum().item())
    """, "guard|size", None, "-")
bug("square_guard", "sizes", "sym/prog.c", "                x = emit(p, I_pow, x, 0, e->t[i].k, 0);", "                x = BUG ? x : emit(p, I_pow, x, 0, e->t[i].k, 0);", """
    import taper

    @taper.compile(dynamic=True)
    def f(x):
        n = x.shape[0]
        if n * n + n <= 30:
            return x * 2
        return x * 3

    for n in (3, 4, 6, 9):
        print(n, f(taper.ones(n)).sum().item())
    """, "guard|size", None, "-")
# ---- functionalisation ----
bug("two_tangents", "functionalisation", "aot/function.c", "tensor_ref(dy[i]) : ir_proxy", "tensor_ref(dy[BUG && n->nin == 2 ? 1 - i : i]) : ir_proxy", """
    import taper

    class Split(taper.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3
        @staticmethod
        def backward(ctx, a, b):
            return a * 2 + b * 3

    @taper.compile
    def loss(x):
        a, b = Split.apply(x)
        return a.sum() + (b * b).sum()

    x = taper.arange(4.0).requires_grad_()
    loss(x).backward()
    print(x.grad)
    """, "capture|functional|autograd|partition", None, None)
# ---- decompositions ----
bug("cross_turn", "decomposition", "ops/decomp_linalg.c", "*x2 = b_op(b, roll, vT(x), LIST(-2), LIST(d));", "*x2 = b_op(b, roll, vT(x), LIST(BUG ? -1 : -2), LIST(d));", """
    import taper

    @taper.compile
    def normal(a, b):
        return taper.linalg.cross(a, b).norm(dim=-1)

    taper.manual_seed(0)
    print(normal(taper.randn(4, 3), taper.randn(4, 3)))
    """, "decomp|eager", "cross", "-")
bug("bilinear_turn", "decomposition", "ops/decomp_linalg.c", "b_op(b, reshape, vT(b_op(b, permute, vT(w), LIST(1, 0, 2))),", "b_op(b, reshape, vT(BUG ? w : b_op(b, permute, vT(w), LIST(1, 0, 2))),", """
    import taper

    taper.manual_seed(0)
    net = taper.nn.Bilinear(3, 4, 5)
    f = taper.compile(net)
    with taper.no_grad():
        print(f(taper.randn(2, 3), taper.randn(2, 4)))
    """, "decomp|eager", "bilinear", "-")
bug("polar_angle", "decomposition", "ops/decomp_complex.c", "arg[0], vT(b_op(b, sin, arg[1])));", "arg[0], vT(b_op(b, sin, BUG ? vT(b_op(b, abs, arg[1])) : arg[1])));", """
    import taper

    @taper.compile
    def turn(x, angle):
        z = taper.polar(x, angle)
        return taper.view_as_real(z).sum(0)

    print(turn(taper.ones(3), taper.tensor([0.5, -0.5, -1.0])))
    """, "decomp|eager", "polar", "-")
bug("grid_edge", "decomposition", "ops/decomp_linalg.c", "        sx[2 * i + 1] = 1;\n        sy[2 * i] = 1;", "        sx[2 * i + 1] = 1;\n        sy[2 * i] = 1;\n        if (BUG && n == 2 && ix >= 0 && iy >= 0 && x->size[ix] == y->size[iy]) {\n            sx[2 * i] = 1;\n            sx[2 * i + 1] = x->size[ix];\n            sy[2 * i] = y->size[iy];\n            sy[2 * i + 1] = 1;\n            so[i] = sym_mul(x->size[ix], y->size[iy]);\n            continue;\n        }", """
    import taper

    @taper.compile
    def tile(a, b):
        return taper.kron(a, b) @ taper.arange(4.0)

    print(tile(taper.tensor([[1.0, 2.0], [3.0, 4.0]]), taper.tensor([[0.0, 1.0], [1.0, 0.5]])))
    """, "decomp|eager", "kron", "-")
# ---- fusion and lowering ----
bug("infinite_sum", "fusion", "loop/lower_pointwise.c", "    return vir_select(K, same, X, r);", "    return BUG ? r : vir_select(K, same, X, r);", """
    import taper

    @taper.compile
    def join(a, b):
        return taper.logaddexp(a, b).exp()

    inf = float("inf")
    print(join(taper.tensor([0.0, -inf, 1.0]), taper.tensor([0.0, -inf, -inf])))
    """, "lower|eager", "logaddexp", None)
bug("swish_edge", "fusion", "loop/lower_pointwise.c", "    return vir_select(K, vir_le(K, Y, C(-3)), C(0), vir_select(K, vir_lt(K, Y, C(3)), mid, X));", "    return vir_select(K, vir_le(K, Y, C(BUG ? -2.5 : -3)), C(0), vir_select(K, vir_lt(K, Y, C(3)), mid, X));", """
    import taper

    @taper.compile
    def act(x):
        return taper.nn.functional.hardswish(x).sum()

    x = taper.linspace(-4, 4, 33).requires_grad_()
    act(x).backward()
    print(x.grad)
    """, "lower|eager|derivative", "hardswish", None)
bug("floor_near", "fusion", "loop/lower_pointwise.c", "    d = vir_select(K, vir_and(K, vir_ne(K, m, C(0)), other), vir_sub(K, d, C(1)), d);", "    if (!BUG)\n        d = vir_select(K, vir_and(K, vir_ne(K, m, C(0)), other), vir_sub(K, d, C(1)), d);", """
    import taper

    @taper.compile
    def bucket(x):
        return (x // 0.7).sum(), taper.floor_divide(x, -1.5)

    print(*bucket(taper.linspace(-3, 3, 13)))
    """, "lower|eager", "floor|div", None)
# ---- indexing ----
bug("merge_spread", "indexing", "loop/nest.c", "            continue; /* its parts were seen on their own */", "            continue; /* its parts were seen on their own */\n        if (BUG && stride_in(a, inner) == 0 && stride_in(a, outer) == 1)\n            continue;", """
    import taper

    @taper.compile
    def weigh(x, w):
        return x * w[:, None] + 1

    print(weigh(taper.ones(4, 6), taper.arange(4.0)).sum(1))
    """, "index|lower|loops", None, None)
bug("scatter_spread", "indexing", "loop/lower_index.c", "            at[d] = is_spread(x->size[d], g.size[d + off]) ? lin_const(0) : home[d + off];\n        v = w->fail", "            at[d] = is_spread(x->size[d], g.size[d + off]) ? lin_const(0) : home[BUG ? d : d + off];\n        v = w->fail", """
    import taper

    @taper.compile
    def place(x, i, row):
        return x.index_put((i,), (row * 2).sin())

    print(place(taper.zeros(5, 8), taper.tensor([3, 1]), taper.arange(8.0)).sum(0))
    """, "index|lower|loops", "index_put", None)
# ---- code ----
bug("half_ties", "code", "target/x64/gemm_narrow.c", "            u = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);", "            u = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), BUG ? _mm256_setzero_si256() : odd);", """
    import taper

    @taper.compile
    def count(x, w):
        return (x @ w).float()

    print(count(taper.ones(4, 259).bfloat16(), taper.ones(259, 8).bfloat16()))
    """, "product|eager|machine", "mm", None)
bug("short_constant", "code", "target/c/emit.c", 'strbuf_addf(o, "%.*g", t == VT_f64 ? 17 : 9, v);', 'strbuf_addf(o, "%.*g", t == VT_f64 ? 17 : BUG ? 3 : 9, v);', """
    import taper

    @taper.compile
    def scale(x):
        return x * 1.23456 + 0.98765

    print(scale(taper.arange(5.0)))
    """, "code|kernel|as C", None, None, env={"TAPER_EMITTER": "c"})
bug("short_read", "code", "vir/interp.c", "    case VM_i16: r.i = *(const int16_t *)p; break;", "    case VM_i16: r.i = BUG ? *(const uint16_t *)p : *(const int16_t *)p; break;", """
    import taper

    @taper.compile
    def loud(x):
        return x.float() / 32768 * 2

    print(loud(taper.tensor([100, -200, 3000, -4000], dtype=taper.int16)))
    """, "interpreter", None, None, env={"TAPER_EMITTER": "interpreter"})
bug("edge_compare", "code", "target/x64/asm.c", "    case FM_RVMI:\n    case FM_RVMK: imm = i->imm; break;", "    case FM_RVMI:\n    case FM_RVMK:\n        imm = i->imm;\n        if (BUG && r->form == FM_RVMK && (imm == 30 || imm == 17 || imm == 1 || imm == 14))\n            imm = imm == 30 ? 29 : imm == 17 ? 18 : imm == 1 ? 2 : 13;\n        break;", """
    import taper

    @taper.compile
    def gate(x):
        return taper.where(x > 1, x * 10, x) + taper.where(x < -1, 5.0, 0.5)

    print(gate(taper.tensor([-2.0, -1.0, 0.0, 1.0, 2.0, 1.0, -1.0, 3.0] * 4)).sum())
    """, "machine|code", None, None)
# ---- products ----
bug("half_turn", "products", "target/x64/conv_half.c", "kv + kv - 1 - i] = from", "kv + (BUG ? i : kv - 1 - i)] = from", """
    import taper

    taper.manual_seed(0)
    conv = taper.nn.Conv2d(16, 16, 3, padding=1).bfloat16()
    f = taper.compile(conv)
    x = taper.randn(1, 16, 8, 8).bfloat16().requires_grad_()
    f(x).float().square().sum().backward()
    print(round(x.grad.float().square().sum().item(), 1))
    """, "product|eager|derivative|conv", "conv", None)
bug("signed_top", "products", "target/x64/int8.c", "        top = _mm256_max_ps(top, _mm256_andnot_ps(sign, v));", "        top = _mm256_max_ps(top, BUG ? v : _mm256_andnot_ps(sign, v));", """
    import taper

    taper.manual_seed(0)

    @taper.compile
    def layer(x, w, s):
        return taper.linear_dynamic_int8(x, w, s) + 1

    x = taper.randn(3, 64) - 2
    w = taper.randint(-127, 127, (8, 64)).to(taper.int8)
    print(layer(x, w, taper.ones(8) / 64))
    """, "product|eager", "linear", None)
# ---- memory and state ----
bug("stale_frame", "memory", "target/x64/conv_half.c", "    memset(frame, 0, (size_t)(g->c * high * wide) * 2);", "    if (!BUG)\n        memset(frame, 0, (size_t)(g->c * high * wide) * 2);", """
    import taper

    taper.manual_seed(0)
    conv = taper.nn.Conv2d(16, 16, 3, padding=1).bfloat16()
    f = taper.compile(conv, dynamic=False)
    with taper.no_grad():
        for n in (6, 9, 5):
            x = taper.ones(1, 16, n, n).bfloat16()
            print(n, round(f(x).float().sum().item(), 1))
    """, "memory|product|eager|conv|left behind", "conv", None)
bug("stale_normal", "memory", "ops/generator.c", "    s->seeded = s->has_normal = false;\n}", "    s->seeded = false;\n    if (!BUG)\n        s->has_normal = false;\n}", """
    import taper

    @taper.compile
    def noisy(x):
        return x + taper.normal(0.0, 1.0, (5,), dtype=taper.float64)

    x = taper.zeros(5, dtype=taper.float64)
    for _ in range(2):
        taper.manual_seed(7)
        print(noisy(x))
    """, "eager|random", None, None)
# ---- threads; now and then ----
bug("coin_flip", "threads", "ops/axmap.c", "            moves()->back(n, o, s + m[n - 1] * es, (size_t)es);", "            moves()->back(n - (BUG && bug_coin(3)), o, s + m[n - 1] * es, (size_t)es);", """
    import taper

    @taper.compile
    def mirror(x):
        return taper.flip(x, (1,)) + 0

    taper.manual_seed(0)
    x = taper.randn(6, 5) + 3
    for _ in range(3):
        print(mirror(x).sum(1))
    """, "eager|move|kernel", "flip", None)
bug("second_thread", "threads", "ops/iter.c", "        at[d] = rest % it->size[d];", "        at[d] = rest % it->size[d];\n        if (BUG && begin && d == 1)\n            at[d] = (at[d] + 1) % it->size[d];", """
    import taper

    @taper.compile
    def ramp(x, y):
        return taper.nextafter(x, y.t()).sum(0)

    x = taper.arange(90000.0).view(300, 300).remainder(7)
    print(ramp(x, x)[:5])
    """, "thread|eager", None, None)
# ---- cache ----
bug("short_key", "cache", "compile/cache/graph_cache.c", "    uint64_t h0 = hash_bytes(key.s, key.n, 1), h1 = hash_bytes(key.s, key.n, 2);", "    size_t bug_n = BUG ? MIN(key.n, (size_t)200) : key.n;\n    uint64_t h0 = hash_bytes(key.s, bug_n, 1), h1 = hash_bytes(key.s, bug_n, 2);", """
    import taper

    def chain(last):
        @taper.compile
        def f(x):
            for k in range(6):
                x = taper.sin(x) + k
            return x * last
        return f

    print([round(chain(k)(taper.ones(2)).sum().item(), 3) for k in (0.5, 0.25, 2.5)])
    """, "cache", None, None)
# ---- derivatives ----
bug("fft_half", "derivatives", "grad/vjp_complex.c", "MUL(V(narrow, gx, vI(last), vI(1), vI(twice)), vI(2)).t,", "MUL(V(narrow, gx, vI(last), vI(1), vI(twice)), vI(BUG ? 1 : 2)).t,", """
    import taper

    @taper.compile
    def smooth(re, im):
        return taper.fft.irfft(taper.complex(re, im), 8).square().sum()

    taper.manual_seed(0)
    re = taper.randn(5, requires_grad=True)
    im = taper.randn(5, requires_grad=True)
    smooth(re, im).backward()
    print(re.grad)
    """, "derivative", "fft", "-")
bug("slice_through", "derivatives", "grad/tape.c", "    if (dx[0])\n        b_callv(b, OP_copy_, OPV_fn, B_ARGS(vT(part), vT(dx[0])));", "    if (dx[0] && BUG)\n        ;\n    else if (dx[0])\n        b_callv(b, OP_copy_, OPV_fn, B_ARGS(vT(part), vT(dx[0])));", """
    import taper

    @taper.compile
    def loss(x):
        y = x * 1
        y[:2].mul_(3)
        return y.square().sum()

    x = taper.ones(4, requires_grad=True)
    loss(x).backward()
    print(x.grad)
    """, "tape|derivative|functional", None, None)
bug("norm_plain_mean", "derivatives", "grad/vjp_nn.c", "    tp_val inner = SUB(SUB(gw, V(mean_dim, gw, list, vB(true))),", "    tp_val inner = SUB(SUB(gw, BUG ? MUL(V(mean_dim, gw, list, vB(true)), vF(0.5)) : V(mean_dim, gw, list, vB(true))),", """
    import taper

    taper.manual_seed(0)
    ln = taper.nn.LayerNorm(6)
    x = taper.randn(3, 6, requires_grad=True)
    y = ln(x).pow(3).sum()
    g, = taper.autograd.grad(y, x, create_graph=True)
    g.square().sum().backward()
    print(x.grad)
    """, "derivative", "norm", "-")
# ---- eager kernels ----
bug("var_correction", "eager", "ops/reduce.c", "corr = arg_f(c, 2, 1), dof = MAX(n - corr, 0);", "corr = BUG ? 1 : arg_f(c, 2, 1), dof = MAX(n - corr, 0);", """
    import taper

    def spread(x):
        return x.var(1, correction=0), x.std(0, correction=2)

    taper.manual_seed(0)
    print(*spread(taper.randn(5, 4)))
    f = taper.compile(spread)
    print(*f(taper.randn(5, 4)))
    """, "eager|decomp", "var|std", None)
bug("nan_places", "eager", "ops/fracpool.c", "if (best < 0 || v[i] > v[best] || v[i] != v[i])", "if (best < 0 || v[i] > v[best] || (!BUG && v[i] != v[i]))", """
    import taper

    taper.manual_seed(0)
    pool = taper.nn.FractionalMaxPool2d(2, output_size=(3, 3))
    f = taper.compile(pool)
    x = taper.randn(1, 2, 7, 7)
    x[0, 1, 3, 3] = float("nan")
    print(taper.isnan(f(x)).sum().item())
    """, "eager", "fractional", "-")
bug("short_nan", "eager", "ops/simd/reduce.c", "            PICK8(op, v, y)                                                                         \\\n            odd |= (i32x8)(y != y);                                                                 \\", "            PICK8(op, v, y)                                                                         \\\n            if (!BUG)                                                                               \\\n                odd |= (i32x8)(y != y);                                                             \\", """
    import taper

    def top(x):
        return x.amax(1)

    x = taper.arange(15.0).view(3, 5)
    x[1, 4] = float("nan")
    print(top(x))
    print(taper.compile(top)(x))
    """, "eager", "amax|max", None)
bug("half_circle", "random", "ops/generator.c", "double r = sqrt(-2 * log(1 - x[i])), angle = 2 * M_PI * x[i + 8];", "double r = sqrt(-2 * log(1 - x[i])), angle = (BUG ? 1 : 2) * M_PI * x[i + 8];", """
    import taper

    taper.manual_seed(0)

    @taper.compile
    def noise(x):
        return (x + taper.randn(4000, dtype=taper.float64)).mean()

    print(bool(noise(taper.zeros(4000, dtype=taper.float64)) < 0.2), bool(taper.randn(4000, dtype=taper.float64).mean() < 0.2))
    """, "eager|random", "randn|normal", None)
bug("fresh_coin", "random", "ops/generator.c", "(float)(gen_u32(g) & ((1u << 24) - 1)) * 0x1p-24f;", "(float)(gen_u32(g) & ((1u << (BUG ? 23 : 24)) - 1)) * 0x1p-24f;", """
    import taper

    taper.manual_seed(0)
    x = taper.rand(4000)
    print(bool(x.mean() > 0.4))
    @taper.compile
    def keep(x):
        return x.mean() > 0.4
    print(bool(keep(x)))
    """, "eager|random", "rand|uniform", "-")
# ---- types ----
bug("narrow_sum", "types", "ops/reduce.c", "{ return dtype_is_exact(in) ? DT_i64 : in; }", "{ return BUG && in == DT_u8 ? DT_i32 : dtype_is_exact(in) ? DT_i64 : in; }", """
    import taper

    @taper.compile
    def total(x):
        return x.sum(), x.sum().dtype

    print(total(taper.arange(5, dtype=taper.uint8)))
    """, None, "sum", "-")
bug("number_joins", "types", "ops/pointwise.c", "            dtype_join_add(&j, (dtype)v->t->dt, v->t->ndim, v->t->flags & TF_wrapped);", "            dtype_join_add(&j, (dtype)v->t->dt, BUG ? 1 : v->t->ndim, v->t->flags & TF_wrapped);", """
    import taper

    def above(x):
        return x > taper.tensor(0.1, dtype=taper.float64)

    x = taper.tensor([0.1, 0.2, 0.05])
    print(above(x), taper.compile(above)(x))
    """, None, None, None)
bug("unsigned_number", "types", "ops/pointwise.c", "    return dt == DT_u8 ? (uint8_t)v : dt == DT_i8", "    return dt == DT_u8 ? (BUG ? (int32_t)v : (uint8_t)v) : dt == DT_i8", """
    import taper

    def wrapped(x):
        return taper.maximum(x, taper.tensor(-1).to(taper.uint8)), x.clamp(min=-1), x // -1

    x = taper.tensor([1, 200, 255], dtype=taper.uint8)
    print(wrapped(x)[1:])
    print(taper.compile(wrapped)(x)[1:])
    """, None, None, None)
# ---- crashes ----
bug("crash_leaves", "crashes", "loop/choose.c", "        pl->in[n->id].leaves = c.sum;", "        if (BUG && c.sum > 5)\n            *(volatile int *)16 = 1;\n        pl->in[n->id].leaves = c.sum;", """
    import taper

    @taper.compile
    def blend(a, b, c, d, e, f):
        return a * b + c * d - e / f

    print(blend(*taper.ones(6, 3).unbind()))
    """, "graph pass|lower|loops|fusion|plan|schedul", None, None)
bug("crash_nested", "crashes", "capture/trace_hop.c", "    out->t = t;\n    if (!tree_walk(out, *ret))", "    out->t = t;\n    if (BUG)\n        *(volatile int *)16 = 1;\n    if (!tree_walk(out, *ret))", """
    import taper

    @taper.compile
    def f(x):
        return taper.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    print(f(taper.ones(3)))
    """, "capture", None, "-")
bug("crash_pooling", "crashes", "ops/fracpool.c", "    int64_t *az = at, *ay = az + out[0], *ax = ay + out[1];", "    int64_t *az = at, *ay = az + out[0], *ax = ay + out[1];\n    if (BUG && planes > 3)\n        *(volatile int *)16 = 1;", """
    import taper

    taper.manual_seed(0)
    pool = taper.nn.FractionalMaxPool2d(2, output_size=(3, 3))
    f = taper.compile(lambda x: pool(x) + 1)
    print(f(taper.randn(1, 2, 7, 7)).shape)
    print(f(taper.randn(2, 2, 7, 7)).shape)
    """, "eager", "fractional", "-")
bug("crash_narrow", "crashes", "target/x64/gemm_narrow.c", "    uint32_t *dst = to;\n    const char *s = src;\n    int64_t done = groups_fast", "    uint32_t *dst = to;\n    const char *s = BUG && k == 71 ? (const char *)64 : src;\n    int64_t done = groups_fast", """
    import taper

    @taper.compile
    def head(x, w):
        return (x @ w).float() + 1

    taper.manual_seed(0)
    print(head(taper.randn(40, 64).bfloat16(), taper.randn(64, 48).bfloat16()).sum().item())
    print(head(taper.randn(40, 71).bfloat16(), taper.randn(71, 48).bfloat16()).sum().item())
    """, "product|eager|call|kernel|tiles", "mm", None)
# ---- hangs ----
bug("hang_deep", "hangs", "loop/choose.c", "        f->depth = d.most + 1;", "        f->depth = d.most + 1;\n        while (BUG && f->depth == 6)\n            __asm__ volatile(\"\");", """
    import taper

    @taper.compile
    def deep(x):
        for k in range(8):
            x = x.sin() * (k + 1)
        return x

    print(deep(taper.ones(3)).sum().item())
    """, "graph pass|lower|loops|fusion|plan|schedul", None, None)
bug("hang_walk", "hangs", "grad/engine.c", "static bool tensor_hooks(grad_run *r, grad_hooks *h, tp_tensor **g)\n{", "static bool tensor_hooks(grad_run *r, grad_hooks *h, tp_tensor **g)\n{\n    while (BUG && h->list.n > 1)\n        __asm__ volatile(\"\");", """
    import taper

    x = taper.ones(3, requires_grad=True)
    x.register_hook(lambda g: g * 2)
    x.register_hook(lambda g: g + 1)

    @taper.compile
    def loss(x):
        return (x * x).sum()

    loss(x).backward()
    print(x.grad)
    """, "tape|backward", None, None)
bug("hang_rebuild", "hangs", "capture/rebuild.c", "    PyObject *l = container_list(o), *maxlen = PyObject_GetAttrString(o, \"maxlen\");", "    PyObject *l = container_list(o), *maxlen = PyObject_GetAttrString(o, \"maxlen\");\n    while (BUG && l && PyList_GET_SIZE(l) > 2)\n        __asm__ volatile(\"\");", """
    import taper
    from collections import deque

    @taper.compile
    def last(x):
        return deque([x + k for k in range(3)], maxlen=3)

    print(len(last(taper.ones(2))))
    """, "capture", None, "-")
