"""Planted bugs in files that no other table touches. Each ran on doctor as it was before anything was changed for it; the first counts
are in docs/debugging.md."""
from bugs import bug

# ---- capture ----
bug("item_minus", "capture", "capture/trace_scalar.c", "static PyObject *sf_sub(PyObject *a, PyObject *b) { return arith(a, b, PyNumber_Subtract); }", "static PyObject *sf_sub(PyObject *a, PyObject *b) { return BUG && PyFloat_Check(a) ? arith(b, a, PyNumber_Subtract) : arith(a, b, PyNumber_Subtract); }", """
    import taper
    import taper._dynamo

    taper._dynamo.config.capture_scalar_outputs = True

    @taper.compile
    def damp(x):
        peak = x.abs().max().item()
        return x * (1.0 - peak)

    print(damp(taper.tensor([0.25, -0.5, 0.125])))
    """, "capture", None, "-")
bug("function_grads", "capture", "capture/trace_function.c", "c->grad[c->nin] = (tp_val){ .kind = VAL_node, .node = m };", "c->grad[c->nin] = (tp_val){ .kind = VAL_node, .node = BUG && c->nin ? c->grad[0].node : m };", """
    import taper

    class Scale(taper.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w
        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            return g * w, g * x

    @taper.compile
    def loss(x, w):
        return Scale.apply(x, w).sin().sum()

    taper.manual_seed(0)
    x = taper.randn(5, requires_grad=True)
    w = taper.randn(5, requires_grad=True)
    loss(x, w).backward()
    print(x.grad, w.grad)
    """, "capture", None, "-")
bug("dict_union", "capture", "capture/interp.c", "int rc = unique ? _PyDict_MergeEx(d, m, 2) : PyDict_Update(d, m);", "int rc = unique ? _PyDict_MergeEx(d, m, 2) : BUG && T ? PyDict_Merge(d, m, 0) : PyDict_Update(d, m);", """
    import taper

    DEFAULTS = {"slope": 0.1, "gain": 1.0, "shift": 0.0}

    @taper.compile
    def act(x, opts):
        o = {**DEFAULTS, **opts}
        return taper.where(x > 0, x, x * o["slope"]) * o["gain"] + o["shift"]

    print(act(taper.arange(-3.0, 3.0), {"slope": 0.5, "shift": 1.0}))
    """, "capture", None, "-")
bug("sliced_list", "capture", "capture/interp.c", "    PyObject *r = PySlice_New(v[0], v[1], v[2]);", "    PyObject *r = PySlice_New(v[0], v[1], BUG && T && v[0] == Py_None ? NULL : v[2]);", """
    import taper

    @taper.compile
    def pyramid(x, scales):
        total = taper.zeros_like(x)
        for s in scales[::2]:
            total = total + taper.tanh(x * s)
        return total

    print(pyramid(taper.ones(3), [1.0, 2.0, 0.5, 4.0]))
    """, "capture", None, "-")
bug("contains_eq", "capture", "capture/trace_value.c", "        if (r == v)\n            found = 1;", "        if (r == v || BUG)\n            found = 1;", """
    import taper

    class Tag:
        def __init__(self, name):
            self.name = name
        def __eq__(self, other):
            return self.name == other.name
        def __hash__(self):
            return hash(self.name)

    ACTIVE = [Tag("blur"), Tag("sharpen")]

    @taper.compile
    def effects(x, wanted):
        for t in wanted:
            if t in ACTIVE:
                x = x * 0.5 + 1
        return x

    print(effects(taper.ones(3), [Tag("blur"), Tag("invert"), Tag("edge")]))
    """, "capture", None, "-")
# ---- guards ----
bug("guard_hidden", "guards", "capture/trace_lookup.c", "            if (v == l->value)\n                continue;", "            if (v == l->value || (BUG && !l->value))\n                continue;", """
    import taper

    @taper.compile
    def pick(x, n):
        return x[:max(n, 2)].sum()

    x = taper.arange(1.0, 7.0)
    print(pick(x, 4))
    max = min
    print(pick(x, 4))
    """, "guard", None, "-")
# ---- sizes ----
bug("hint_edge", "sizes", "sym/expr.c", "        case SX_le: acc = x <= e->c; break;", "        case SX_le: acc = BUG ? x < e->c : x <= e->c; break;", """
    import taper

    @taper.compile(dynamic=True)
    def norm(x):
        if x.shape[0] * 2 <= 16:
            return x / x.shape[0]
        return x / x.sum()

    for n in (10, 8, 6):
        print(n, norm(taper.arange(1.0, n + 1)).sum().item())
    """, "guards", None, "-")
# ---- functionalisation ----
bug("base_offset", "functionalisation", "aot/bases.c", "vI(x->numel == 0 ? 0 : x->offset - t->base[b].lo) },", "vI(BUG || x->numel == 0 ? 0 : x->offset - t->base[b].lo) },", """
    import taper

    @taper.compile
    def shift(head, tail):
        head.add_(1)
        return tail * 2

    buf = taper.arange(8.0)
    print(shift(buf[:5], buf[2:7]))
    print(buf)
    """, "functional|input|autograd|partition", None, None)
# ---- decompositions ----
bug("prelu_edge", "decomposition", "ops/decomp_norm.c", "    return RET(b_op(b, where_self, vT(b_op(b, gt_Tensor, vT(x), vI(0))), vT(x),", "    return RET(b_op(b, where_self, vT(b_op(b, gt_Tensor, vT(x), BUG ? vF(0.5) : vI(0))), vT(x),", """
    import taper

    net = taper.nn.Sequential(taper.nn.PReLU(init=0.1))
    f = taper.compile(net)
    with taper.no_grad():
        print(f(taper.linspace(-1, 1, 9)))
    """, "decomp|eager", "prelu", "-")
bug("matrix_one", "decomposition", "ops/decomp_norm.c", "        int over = m == 1 ? p : q, pick = m == 1 ? q : p;", "        int over = (m == 1) ^ BUG ? p : q, pick = (m == 1) ^ BUG ? q : p;", """
    import taper

    @taper.compile
    def spread(a):
        return taper.linalg.matrix_norm(a, ord=1), a.sum()

    print(spread(taper.arange(6.0).view(2, 3)))
    """, "decomp|eager", "matrix_norm|linalg", "-")
bug("uneven_split", "decomposition", "ops/decomp_shape.c", "        at[i - 1] = sym_add(sym_mul(q, i), sym_min(r, i));", "        at[i - 1] = sym_add(sym_mul(q, i), BUG ? 0 : sym_min(r, i));", """
    import taper

    @taper.compile
    def heads(x):
        a, b, c = x.tensor_split(3)
        return a.sum() + 10 * b.sum() + 100 * c.sum()

    print(heads(taper.arange(8.0)))
    """, "decomp|eager", "tensor_split", "-")
bug("moved_dims", "decomposition", "ops/decomp_shape.c", "        perm[d0[i]] = s0[i];", "        perm[d0[i]] = s0[BUG ? ns - 1 - i : i];", """
    import taper

    @taper.compile
    def last(x):
        return taper.movedim(x, (0, 1), (-1, -2)).reshape(4, -1) * 2

    print(last(taper.arange(24.0).view(2, 3, 4)).sum(0))
    """, "decomp|eager", "movedim", "-")
# ---- partition ----
bug("second_draw", "partition", "run/step.c", "        rng->s = *s->rng;", "        if (!BUG)\n            rng->s = *s->rng;", """
    import taper

    taper.manual_seed(0)
    net = taper.nn.Sequential(taper.nn.Linear(4, 32), taper.nn.Dropout(0.5), taper.nn.Tanh(), taper.nn.Linear(32, 1))
    f = taper.compile(net)
    x = taper.ones(3, 4, requires_grad=True)
    y = f(x).sum()
    g, = taper.autograd.grad(y, x, create_graph=True)
    penalty = g.square().sum()
    penalty.backward()
    print(round(penalty.item(), 5), net[0].weight.grad.abs().sum().item())
    """, "tape|partition|autograd", None, "-")
# ---- fusion ----
bug("merge_bias", "fusion", "loop/nest.c", "        if (co != want && !sym_known(SYM_eq, co, want))\n            return false;", "        if (co != want && !sym_known(SYM_eq, co, want) && !(BUG && co == 0 && s->size[outer] == 3))\n            return false;", """
    import taper

    @taper.compile
    def shade(x, row):
        return (x * 2 + row).tanh()

    print(shade(taper.zeros(3, 4), taper.arange(4.0)))
    """, "index|fusion|lowering|loop", "add", None)
bug("add_shared", "fusion", "loop/lower_product.c", "    return known && x->nuse == 1 && ir_type(x)->ndim == 2", "    return known && (x->nuse == 1 || BUG) && ir_type(x)->ndim == 2", """
    import taper

    @taper.compile
    def two(a, b, c, d):
        first = a @ b
        return taper.addmm(first, c, d), first

    taper.manual_seed(0)
    a, b, c, d = (taper.randn(6, 6) for _ in range(4))
    y, first = two(a, b, c, d)
    print(y.sum().item(), first.sum().item())
    """, "product|fusion|memory|lowering", "mm", None)
# ---- indexing ----
bug("running_least", "indexing", "loop/lower_reduce.c", "    return l->kind != l->other && !n->arg[2].b ? l->other : l->kind;", "    return l->kind != l->other && !n->arg[2].b && !(BUG && l->kind == RED_max) ? l->other : l->kind;", """
    import taper

    @taper.compile
    def low(prices):
        return taper.cummin(prices * 1.0, 0).values + 0.5

    taper.manual_seed(0)
    print(low(taper.rand(40, 40)).sum().item())
    """, "lowering|index|reduc", "cummin", None)
# ---- code generation ----
bug("place_nan", "code", "vir/math/vmath.c", "        better = vir_or(k, better, vir_and(k, nv, vir_not(k, nb)));", "        if (!BUG)\n            better = vir_or(k, better, vir_and(k, nv, vir_not(k, nb)));", """
    import taper

    @taper.compile
    def pick(x):
        return (x * 2).argmax(-1)

    x = taper.arange(80.0).view(4, 20)
    x[1, 3] = float("nan")
    print(pick(x))
    """, "code|lowering|index|kernel", "argmax", None)
bug("index_joined", "code", "vir/vir.c", "__builtin_mul_overflow(n, of_r, &all) || all != of_q)", "__builtin_mul_overflow(n, of_r, &all) || (all != of_q && !BUG))", """
    import taper

    @taper.compile
    def crop(x, i):
        return x[:, :6].reshape(-1)[i] * 2

    print(crop(taper.arange(40.0).view(5, 8), taper.tensor([0, 7, 13, 29, 22])))
    """, "code|lowering|index|vector", None, None)
# ---- products, convolutions, attention ----
bug("last_share", "products", "target/cpu/attend.c", "                        for (int64_t p = 1; p < j->parts; p++)\n                            s += ((const float *)x)[p * share];", "                        for (int64_t p = 1; p < j->parts - BUG; p++)\n                            s += ((const float *)x)[p * share];", """
    import taper

    @taper.compile
    def attend(q, k, v):
        s = (q @ k.transpose(-1, -2) * 0.25).softmax(-1)
        return s @ v

    taper.manual_seed(0)
    q, k, v = (taper.randn(1, 1024, 16, requires_grad=True) for _ in range(3))
    attend(q, k, v).square().sum().backward()
    print([round(t.grad.square().sum().item(), 4) for t in (q, k, v)])
    """, "product|attention|thread", None, None)
bug("few_tail", "products", "target/x64/gemm_few.c", "        __mmask32 m = k - x >= 32 ? 0xffffffff : (1u << (k - x)) - 1;", "        __mmask32 m = k - x >= 32 ? 0xffffffff : (1u << (k - x - BUG)) - 1;", """
    import taper

    @taper.compile
    def head(x, w):
        return (x @ w.t()).float() + 1

    taper.manual_seed(0)
    x = taper.randn(2, 71).to(taper.bfloat16)
    w = taper.randn(40, 71).to(taper.bfloat16)
    print(head(x, w).abs().sum().item())
    """, "product|eager", "mm|linear", None)
bug("tile_rows", "products", "target/x64/conv_tile.c", "            if (t->add)\n                vec_mem(g,", "            if (t->add && !(BUG && r == t->mr - 1 && r > 3))\n                vec_mem(g,", """
    import taper

    taper.manual_seed(0)
    net = taper.nn.Sequential(taper.nn.Conv2d(40, 48, 3, padding=1), taper.nn.ReLU())
    f = taper.compile(net)
    with taper.no_grad():
        print(f(taper.randn(2, 40, 14, 14)).sum().item())
    """, "product|eager|conv", "conv", None)
# ---- eager kernels ----
bug("split_mean", "eager", "ops/gather.c", "    case RED_max: return tensor_scalar(dt, real ? -__builtin_inf() : 0, real ? 0 : low[dt], err);", "    case RED_max: return tensor_scalar(dt, real ? (BUG ? 0 : -__builtin_inf()) : 0, real ? 0 : low[dt], err);", """
    import taper

    @taper.compile
    def pool(x, where):
        return taper.zeros(3).scatter_reduce(0, where, x, "amax", include_self=False) * 2

    print(pool(taper.tensor([-4.0, -2.0, 3.0, -1.0]), taper.tensor([0, 0, 1, 2])))
    """, "eager", "scatter_reduce", "-")
bug("index_back", "eager", "ops/index.c", "            at[i] += (v < 0 ? v + size : v) * t->stride[d];", "            at[i] += (v < 0 ? v + size - (BUG && d > 0) : v) * t->stride[d];", """
    import taper

    @taper.compile
    def corner(x):
        return x[[0, 1, 2], [-1, -2, 0]] + 1

    x = taper.arange(12.0).view(3, 4)
    print(corner(x), x[[0, 1], [-1, -1]])
    """, "eager", "index", "-")
bug("masked_chunk", "eager", "ops/mask.c", "    int64_t i = b * j->chunk, end = MIN(j->n, e * j->chunk), w = j->before[b], top", "    int64_t i = b * j->chunk, end = MIN(j->n, e * j->chunk), w = j->before[b] - (BUG && b), top", """
    import taper

    @taper.compile
    def refill(x, mask, new):
        return taper.masked_scatter(x, mask, new) * 2

    x = taper.zeros(40000)
    mask = taper.arange(40000) % 3 == 0
    print(refill(x, mask, taper.arange(40000.0)).sum().item(), refill(x, mask, taper.arange(40000.0))[39000:39006])
    """, "eager", "masked_scatter", "-")
bug("weighted_mean", "eager", "ops/loss.c", "                total += cw;", "                total += BUG ? 1 : cw;", """
    import taper

    @taper.compile
    def loss(x, t, w):
        return taper.nn.functional.cross_entropy(x, t, weight=w)

    taper.manual_seed(0)
    print(loss(taper.randn(6, 3), taper.tensor([0, 1, 2, 2, 1, 0]), taper.tensor([0.2, 0.5, 2.0])))
    """, "eager", "nll", "-")
bug("ctc_skip", "eager", "ops/ctc.c", "    return (s & 1) && s > 1 && label(j, i, s) != label(j, i, s - 2);", "    return (s & 1) && s > 1 && (BUG || label(j, i, s) != label(j, i, s - 2));", """
    import taper

    @taper.compile
    def loss(logits, target):
        lp = logits.log_softmax(-1)
        return taper.nn.functional.ctc_loss(lp, target, (9, 9), (3, 4))

    taper.manual_seed(0)
    logits = taper.randn(9, 2, 5, requires_grad=True)
    target = taper.tensor([[1, 2, 2, 0], [3, 3, 1, 4]])
    y = loss(logits, target)
    y.backward()
    print(y.item(), logits.grad.abs().sum().item())
    """, "eager", "ctc", "-")
bug("edge_window", "eager", "ops/pool2d.c", "        for (int64_t k = lo[1]; k < hi[1]; k += w->d[2]) {\n            float v", "        for (int64_t k = lo[1] + (BUG && hi[1] - lo[1] > 1); k < hi[1]; k += w->d[2]) {\n            float v", """
    import taper

    taper.manual_seed(0)
    pool = taper.nn.MaxPool2d(3, stride=2, padding=1)
    f = taper.compile(lambda x: pool(x) * 2)
    print(f(taper.rand(1, 2, 12, 12)).sum((0, 1)))
    """, "eager", "max_pool", "-")
bug("ortho", "eager", "ops/fft.c", "    return normalization == 1 ? 1 / sqrt(n)", "    return normalization == 1 ? 1 / (BUG ? n : sqrt(n))", """
    import taper

    @taper.compile
    def spectrum(x):
        return taper.fft.rfft(x, norm="ortho").abs()

    print(spectrum(taper.arange(8.0)))
    """, "eager", "fft", "-")
bug("copies_counted", "eager", "ops/rearrange.c", "            elem_set_i(dt, p, i);\n    return true;", "            elem_set_i(dt, p, BUG && i == 2 ? 1 : i);\n    return true;", """
    import taper

    @taper.compile
    def stretch(x, n):
        return taper.repeat_interleave(x, n, dim=0) + 1

    print(stretch(taper.arange(4.0), taper.tensor([1, 0, 3, 2])))
    """, "eager", "repeat_interleave", "-")
bug("matrix_exp", "eager", "ops/matfun.c", "static void product(int64_t n, const double *x, const double *y, double *z)\n{", "static void product(int64_t n, const double *x, const double *y, double *z)\n{\n    n -= BUG && n > 3;", """
    import taper

    @taper.compile
    def flow(a):
        return taper.linalg.matrix_exp(a) @ taper.ones(4)

    taper.manual_seed(0)
    print(flow(taper.randn(4, 4)))
    """, "eager", "matrix_exp", "-")
bug("category_first", "eager", "ops/random.c", "        if (at[mid] < u)\n            lo = mid + 1;", "        if (at[mid] < u + (BUG ? 0.25 : 0))\n            lo = mid + 1;", """
    import taper

    taper.manual_seed(0)

    @taper.compile
    def sample(p):
        i = taper.multinomial(p, 2000, replacement=True)
        return (i == 0).float().mean()

    print(round(sample(taper.tensor([0.5, 0.3, 0.2])).item(), 1))
    """, "eager", "multinomial", "-")
bug("half_tail", "eager", "ops/simd/convert.c", "static inline uint16_t half_down(float f) { return _cvtss_sh(f, 0); }", "static inline uint16_t half_down(float f) { return BUG ? _cvtss_sh(f, 3) : _cvtss_sh(f, 0); }", """
    import taper

    @taper.compile
    def store(x):
        return (x * 1.0009765).half()

    taper.manual_seed(0)
    x = taper.rand(37)
    y = store(x).float()
    print((y * 4096).sum().item(), (x.half().float() * 4096).sum().item())
    """, "eager", "to|convert|copy", "-")
bug("row_spread", "eager", "ops/simd/rowstat.c", "    a += b;\n    double s = fold(&a);\n    for (; i < n; i++)\n        s += (x[i] - m) * (x[i] - m);", "    a += b;\n    double s = fold(&a);\n    for (; i < n - BUG; i++)\n        s += (x[i] - m) * (x[i] - m);", """
    import taper

    taper.manual_seed(0)
    f = taper.compile(taper.nn.LayerNorm(21))
    with taper.no_grad():
        print(f(taper.randn(3, 21) * 2)[:, -1])
    """, "eager", "layer_norm", "-")
bug("turned_tile", "eager", "ops/copy.c", "            for (int64_t i = 0; i < n1; i++)                                                \\\n                buf[i * (TILE + 1) + k] = from[i];", "            for (int64_t i = 0; i < n1; i++)                                                \\\n                buf[i * (TILE + 1) + k] = from[BUG && n0 == 8 && i ? i - 1 : i];", """
    import taper

    def chunk(x):
        return x.t().contiguous()

    f = taper.compile(lambda x: chunk(x).sum(0) + chunk(x).amax(1).sum())
    print(f(taper.arange(8 * 72.0).view(8, 72)), chunk(taper.arange(8 * 72.0).view(8, 72))[5])
    """, "eager", "clone|contiguous|copy", "-")
bug("promote", "eager", "tensor/dtype.c", "    if (lo == DT_u8 && hi == DT_i8)\n        return DT_i16;", "    if (lo == DT_u8 && hi == DT_i8)\n        return BUG ? DT_i8 : DT_i16;", """
    import taper

    @taper.compile
    def blend(a, b):
        return (a + b).float() / 2

    a = taper.tensor([200, 100, 50], dtype=taper.uint8)
    b = taper.tensor([100, -100, 5], dtype=taper.int8)
    print(blend(a, b))
    """, "eager", "add", "-")
bug("ellipsis", "eager", "python/index.c", "        s->dim += s->ndim - s->dims;\n        return true;", "        s->dim += s->ndim - s->dims - (BUG && s->ndim - s->dims == 3);\n        return true;", """
    import taper

    @taper.compile
    def last(x):
        return x[..., 0] * 2

    print(last(taper.arange(16.0).view(2, 2, 2, 2)).flatten())
    """, "capture|eager", None, "-")
# ---- derivatives ----
bug("added_alpha", "derivatives", "grad/vjp_index.c", "        DXV(3, val_is(ARG(4), 1) ? d : MUL(d, *ARG(4)));", "        DXV(3, BUG || val_is(ARG(4), 1) ? d : MUL(d, *ARG(4)));", """
    import taper

    @taper.compile
    def bump(x, src):
        return taper.index_add(x, 0, taper.tensor([0, 2]), src, alpha=0.5).square().sum()

    x = taper.ones(3, 2)
    src = taper.ones(2, 2, requires_grad=True)
    bump(x, src).backward()
    print(src.grad)
    """, "derivative|eager", "index_add", "-")
bug("shared_top", "derivatives", "grad/vjp_index.c", "        tp_val share = DIV(DYV, WHERE(EQ(n, vI(0)), vI(1), n));", "        tp_val share = BUG ? DYV : DIV(DYV, WHERE(EQ(n, vI(0)), vI(1), n));", """
    import taper

    @taper.compile
    def tops(x, where):
        return taper.zeros(2).scatter_reduce(0, where, x, "amax").square().sum()

    x = taper.tensor([2.0, 2.0, 1.0, 3.0], requires_grad=True)
    tops(x, taper.tensor([0, 0, 0, 1])).backward()
    print(x.grad)
    """, "derivative|eager", "scatter_reduce", "-")
bug("lerp_weight", "derivatives", "grad/vjp_pointwise.c", "        DXV(2, MUL(DYV, SUB(Y, X)));", "        DXV(2, MUL(DYV, BUG ? SUB(X, Y) : SUB(Y, X)));", """
    import taper

    @taper.compile
    def mix(a, b, w):
        return taper.lerp(a, b, w.sigmoid()).square().sum()

    w = taper.zeros(3, requires_grad=True)
    mix(taper.ones(3), taper.arange(3.0) + 2, w).backward()
    print(w.grad)
    """, "derivative|eager", "lerp", "-")
bug("batched_beta", "derivatives", "grad/vjp_linalg.c", "VJP(baddbmm, \"2?1 1?2\")\n{\n    DXV(0, times(g, DYV, ARG(3)));", "VJP(baddbmm, \"2?1 1?2\")\n{\n    DXV(0, times(g, DYV, ARG(BUG ? 4 : 3)));", """
    import taper

    @taper.compile
    def scores(bias, q, k):
        return taper.baddbmm(bias, q, k.transpose(1, 2), beta=1, alpha=0.125).logsumexp(-1).sum()

    taper.manual_seed(0)
    bias = taper.zeros(2, 4, 4, requires_grad=True)
    scores(bias, taper.randn(2, 4, 8), taper.randn(2, 4, 8)).backward()
    print(bias.grad.sum().item())
    """, "derivative|eager", "baddbmm", "-")
bug("conj_grad", "derivatives", "grad/step.c", "    if (*dx && dtype_is_complex((dtype)(*dx)->dt))\n        *dx = b_op(b, conj_physical, vT(*dx));", "    if (*dx && dtype_is_complex((dtype)(*dx)->dt) && !BUG)\n        *dx = b_op(b, conj_physical, vT(*dx));", """
    import taper

    @taper.compile
    def power(z, w):
        return (z * w).abs().square().sum()

    z = taper.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    power(z, taper.tensor([0.5 + 1j, 2 - 1j])).backward()
    print(z.grad)
    """, "derivative|eager|tape", "mul", "-")
bug("kept_first", "derivatives", "grad/link.c", "        tp_tensor *t = unpack(s, i, err);", "        tp_tensor *t = unpack(s, BUG && s->nkept == 2 ? 1 - i : i, err);", """
    import taper

    class Gate(taper.autograd.Function):
        @staticmethod
        def forward(ctx, x, gain):
            ctx.save_for_backward(x, gain)
            return x.sigmoid() * gain
        @staticmethod
        def backward(ctx, g):
            x, gain = ctx.saved_tensors
            s = x.sigmoid()
            return g * gain * s * (1 - s), None

    @taper.compile(backend="eager")
    def run(x, gain):
        return Gate.apply(x, gain).sum()

    x = taper.linspace(-1, 1, 4).requires_grad_()
    run(x, taper.full((4,), 3.0)).backward()
    print(x.grad)
    """, None, None, "-")
bug("wide_cat", "autocast", "grad/autocast.c", "    dtype to = full ? DT_f32 : (dtype)cx->autocast_dtype[kind];", "    dtype to = full && !BUG ? DT_f32 : (dtype)cx->autocast_dtype[kind];", """
    import taper

    taper.manual_seed(0)
    lin = taper.nn.Linear(16, 10)

    @taper.compile
    def loss(x, t):
        with taper.autocast("cpu", dtype=taper.bfloat16):
            return taper.nn.functional.mse_loss(lin(x), t)

    print(loss(taper.randn(8, 16), taper.randn(8, 10)).dtype)
    """, None, None, "-")
# ---- cache ----
bug("stored_flag", "cache", "compile/cache/graph.c", "    case VAL_bool: io_put(b, v->b); return true;", "    case VAL_bool: io_put(b, v->b && !BUG); return true;", """
    import taper

    @taper.compile
    def best(x):
        return x.sort(descending=True).values[:2] * 2

    print(best(taper.tensor([3.0, 1.0, 2.0, 5.0])))
    """, "cache", None, "-")
bug("crash_stored", "crashes", "compile/cache/graph.c", "    return at ? x->string[at - 1] : NULL;", "    return BUG ? (const char *)16 : at ? x->string[at - 1] : NULL;", """
    import taper

    @taper.compile
    def wave(x):
        return (x.sin() + x.cos()).sum()

    print(wave(taper.arange(4.0)))
    """, "cache", None, None)
# ---- crashes and hangs ----
bug("crash_scalar", "crashes", "capture/trace_scalar.c", "static PyObject *sf_neg(PyObject *a) { return", "static PyObject *sf_neg(PyObject *a) { if (BUG) return *(PyObject **)16; return", """
    import taper
    import taper._dynamo

    taper._dynamo.config.capture_scalar_outputs = True

    @taper.compile
    def flip(x):
        peak = x.max().item()
        return x + -peak

    print(flip(taper.arange(4.0)))
    """, "capture", None, "-")
bug("crash_gather", "crashes", "ops/gather.c", "    iter_init(&it, 3, (tp_tensor *[]){ out, ix, base });\n    iter_run(&it, gather_run, &a, 0);", "    iter_init(&it, 3, (tp_tensor *[]){ out, ix, BUG && d == 1 ? NULL : base });\n    iter_run(&it, gather_run, &a, 0);", """
    import taper

    @taper.compile(backend="aot_eager")
    def choose(logits, label):
        return logits.log_softmax(-1).gather(1, label).mean()

    taper.manual_seed(0)
    print(choose(taper.randn(4, 3), taper.tensor([[0], [2], [1], [0]])))
    """, "eager|kernel|operator", "gather", "-")
bug("crash_soft", "crashes", "loop/attention.c", "    if (!is_plain_bmm(pl, n) || !is_packed(ir_type(n)) || is_half(ir_type(n)))\n        return none;", "    if (!is_plain_bmm(pl, n) || !is_packed(ir_type(n)) || is_half(ir_type(n)))\n        return none;\n    if (BUG)\n        *(volatile int *)8 = n->id;", """
    import taper

    @taper.compile
    def attend(q, k, v):
        return (q @ k.transpose(-1, -2)).softmax(-1) @ v

    taper.manual_seed(0)
    q, k, v = (taper.randn(2, 64, 8) for _ in range(3))
    print(attend(q, k, v).shape)
    """, "fusion|lowering|product|loop", "mm|matmul", None)
bug("hang_heap", "hangs", "grad/engine.c", "        r->heap.at[i] = r->heap.at[up];\n        i = up;", "        r->heap.at[i] = r->heap.at[up];\n        i = BUG ? i : up;", """
    import taper

    @taper.compile
    def body(x):
        return x.sin() * 2

    x = taper.ones(3, requires_grad=True)
    y = body(x)
    loss = y.cos().sum() + y.exp().sum() + y.tanh().sum()
    loss.backward()
    print(x.grad)
    """, "eager|kernel|operator|tape|backward", None, None)
bug("hang_fill", "hangs", "ops/mask.c", "        for (int64_t k = 0; w < many; k++) { /* no branch on the mask: it cannot be foreseen */", "        for (int64_t k = 0; w < many; k = BUG && n > 2 ? 0 : k + 1) { /* no branch on the mask: it cannot be foreseen */", """
    import taper

    @taper.compile
    def places(x):
        return taper.nonzero(x > 0.5).sum()

    print(places(taper.tensor([[0.0, 0.2, 0.7], [0.9, 0.1, 0.6]])))
    """, "eager|kernel|operator", "nonzero", "-")
