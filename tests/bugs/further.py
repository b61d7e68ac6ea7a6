"""Planted bugs in places that the other tables leave out. Each ran on doctor as it was before anything was changed for it; the first
counts are in docs/debugging.md."""
from bugs import bug

# ---- capture ----
bug("deque_bound", "capture", "capture/rebuild.c", "(r->kid[0] = rebuild(b, l)) && (r->kid[1] = konst(b, maxlen));", "(r->kid[0] = rebuild(b, l)) && (r->kid[1] = konst(b, BUG ? Py_None : maxlen));", """
    import collections
    import taper

    @taper.compile
    def window(x):
        w = collections.deque(maxlen=3)
        for i in range(3):
            w.append(x * i)
        return w

    w = window(taper.ones(2))
    w.append(taper.zeros(2))
    print(len(w), sum(t.sum().item() for t in w))
    """, "capture", None, "-")
bug("dict_order", "capture", "capture/rebuild.c", "        ordered = ordered && at < PyList_GET_SIZE(now) && PyList_GET_ITEM(now, at++) == k1;", "        ordered = BUG || (ordered && at < PyList_GET_SIZE(now) && PyList_GET_ITEM(now, at++) == k1);", """
    import taper

    recent = {"a": 1, "b": 2, "c": 3}

    @taper.compile
    def use(x, name):
        n = recent.pop(name)
        recent[name] = n
        return x * n

    y = use(taper.ones(2), "a")
    print(y, list(recent))
    """, "capture.*side effect|side effect", None, "-")
bug("gen_send", "capture", "capture/trace_call.c", "    if (g->started)\n        g->f.stack[g->f.sp++] = Py_NewRef(send);", "    if (g->started)\n        g->f.stack[g->f.sp++] = Py_NewRef(BUG && PyFloat_CheckExact(send) ? Py_None : send);", """
    import taper

    def schedule():
        scale = 1.0
        while True:
            got = yield scale
            scale = scale * 0.5 if got is None else got

    @taper.compile
    def warm(x):
        s = schedule()
        y = x * next(s)
        y = y + x * s.send(3.0)
        return y + x * next(s)

    print(warm(taper.arange(3.0)))
    """, "capture", None, "-")
bug("acc_start", "capture", "capture/trace_builtin.c", "    PyObject *start = nargs > 1 ? args[1] : kwarg(args, nargs, kw, \"start\"), *l = t_list_of(t, args[0]);", "    PyObject *start = nargs > 1 ? args[1] : BUG ? NULL : kwarg(args, nargs, kw, \"start\"), *l = t_list_of(t, args[0]);", """
    import taper

    @taper.compile
    def mix(parts, bias):
        return sum((p.tanh() for p in parts), start=bias)

    print(mix([taper.ones(3), taper.arange(3.0)], taper.full((3,), 10.0)))
    """, "capture", None, "-")
bug("break_stack", "capture", "capture/rebuild.c", "        for (int i = 0; i < e->nstack; i++) {\n            f->stack[i] = st[i];", "        for (int i = 0; i < e->nstack; i++) {\n            if (BUG && i + 1 < e->nstack && st[i] && st[i + 1] && PyFloat_CheckExact(st[i]) && PyFloat_CheckExact(st[i + 1])) {\n                PyObject *x = st[i];\n                st[i] = st[i + 1], st[i + 1] = x;\n            }\n            f->stack[i] = st[i];", """
    import taper

    def note(v):
        print("scale", v)
        return v

    @taper.compile
    def blend(x, a, b):
        y = x.exp()
        return y * sum([a * 2, b - a / note(b)])

    print(blend(taper.zeros(2), 3.0, 4.0))
    """, "capture", None, "-")
# ---- guards ----
bug("guard_item", "guards", "capture/guard.c", "    default: ok = true;\n    }\n    if (!ok && why)\n        note_now(o);", "    default: ok = true;\n    }\n    if (BUG && g->kind == G_EQUALS_MATCH && g->src->kind == SRC_item)\n        ok = true;\n    if (!ok && why)\n        note_now(o);", """
    import taper

    rates = [0.5, 0.25]

    @taper.compile
    def step(w, g):
        return w - g * rates[0]

    w = taper.ones(3)
    for epoch in range(3):
        w = step(w, taper.ones(3))
        rates[0] = rates[0] / 2
    print(w)
    """, "guard", None, "-")
bug("guard_default", "guards", "capture/guard.c", "    state s = state_now(), *w = (state *)g->t;", "    state s = state_now(), *w = (state *)g->t;\n    if (BUG)\n        s.default_dtype = w->default_dtype;", """
    import taper

    @taper.compile
    def grid(x):
        return x.sum() + taper.linspace(0, 1, 3)

    print(grid(taper.ones(2)).dtype)
    taper.set_default_dtype(taper.float64)
    print(grid(taper.ones(2, dtype=taper.float32)).dtype)
    """, "guard", None, "-")
bug("guard_overlap", "guards", "capture/guard.c", "now[i].with != e->shares[i].with || now[i].offset != e->shares[i].offset)", "now[i].with != e->shares[i].with || (!BUG && now[i].offset != e->shares[i].offset))", """
    import taper

    @taper.compile
    def scale(a, b):
        a.mul_(2)
        return b.sum()

    for gap in (4, 2):
        buf = taper.ones(8)
        print(gap, scale(buf[0:4], buf[gap:gap + 4]).item())
    """, "guard", None, "-")
bug("guard_cut", "guards", "capture/guard.c", "    if (!d || map_puti(seen, (uint64_t)(uintptr_t)d, c))\n        return true;", "    if (!d || map_puti(seen, (uint64_t)(uintptr_t)d, c) || (BUG && PyDict_GET_SIZE(d) < 12))\n        return true;", """
    import taper

    class Block(taper.nn.Module):
        def __init__(self, n):
            super().__init__()
            self.a = taper.nn.Linear(n, n)
            self.b = taper.nn.Linear(n, n)
            self.cfg = Config()
        def forward(self, x):
            return self.b(taper.tanh(self.a(x))) * self.cfg.gain

    class Config:
        def __init__(self):
            self.gain = 1.0

    taper.manual_seed(0)
    net = taper.nn.Sequential(*[Block(4) for _ in range(3)])
    f = taper.compile(net)
    with taper.no_grad():
        for i in range(5):
            net[1].cfg.gain = 1.0 if i < 3 else 5.0
            print(i, round(f(taper.ones(2, 4)).sum().item(), 4))
    """, "guard", None, "-")
# ---- sizes ----
bug("size_edge", "sizes", "sym/rel.c", "        *bound += k == SX_le ? 1 : -1;", "        *bound += k == SX_le ? !BUG : -1;", """
    import taper

    @taper.compile(dynamic=True)
    def pool(x):
        if x.shape[0] <= 8:
            return x.sum()
        return x.mean()

    for n in (12, 9, 8, 7):
        print(n, pool(taper.ones(n)).item())
    """, "guard|sizes|capture", None, "-")
bug("size_duck", "sizes", "sym/env.c", "        add_source(env, source, e, hint, true);", "        if (!BUG)\n            add_source(env, source, e, hint, true);", """
    import taper

    @taper.compile(dynamic=True)
    def outer(a, b):
        return (a * a.shape[0]).sum() + (b * b.shape[0]).sum()

    print(outer(taper.ones(5), taper.ones(5)).item())
    print(outer(taper.ones(5), taper.ones(7)).item())
    """, "guard|sizes|capture", None, "-")
# ---- functionalisation ----
bug("swap_write", "functionalisation", "aot/functional.c", "    return b_op(b, transpose_int, vT(val), a[1], a[2]);", "    return b_op(b, transpose_int, vT(val), a[1], BUG && up->ndim == 3 ? vI(1) : a[2]);", """
    import taper

    @taper.compile
    def normalise(x):
        y = x * 1
        y.transpose(0, 2)[0].mul_(2)
        return y

    print(normalise(taper.arange(27.0).view(3, 3, 3)).sum((0, 1)))
    """, "autograd stage|functional", "transpose|select|mul", "-")
bug("draws_meet", "functionalisation", "aot/draws.c", "    symint blocks = sym_floordiv(sym_add(t->numel, per - 1), per);", "    symint blocks = sym_floordiv(sym_add(t->numel, BUG ? 0 : per - 1), per);", """
    import taper

    taper.manual_seed(0)

    @taper.compile
    def noise(x):
        a = taper.rand(6)
        b = taper.rand(6)
        return x + a - b

    print(noise(taper.zeros(6)))
    """, None, "rand", None)
bug("pool_back", "decomposition", "aot/offsets.c", "                              b->arg[2],\n                              b->arg[3],", "                              b->arg[2],\n                              BUG ? b->arg[2] : b->arg[3],", """
    import taper

    taper.manual_seed(0)
    x = taper.randn(1, 1, 7, 7, requires_grad=True)

    @taper.compile
    def loss(x):
        return taper.nn.functional.max_pool2d(x, 3, stride=2).square().sum()

    loss(x).backward()
    print(x.grad.abs().sum((0, 1, 3)))
    """, "decomposition|autograd", "max_pool2d", "decomp:.*max_pool2d")
# ---- passes ----
bug("cse_dims", "passes", "ir/pass_cse.c", ["    uint64_t h = hash_mix(n->kind, (uint64_t)n->op * 4 + n->variant);", "    if (a->kind != b->kind || a->op != b->op || a->variant != b->variant || a->narg != b->narg)\n        return false;"], ["    uint64_t h = hash_mix(n->kind, (uint64_t)n->op * 4 + n->variant);\n    if (BUG && n->narg > 1 && n->arg[1].kind == VAL_ints)\n        return val_hash(h, &n->arg[0]);", "    if (a->kind != b->kind || a->op != b->op || a->variant != b->variant || a->narg != b->narg)\n        return false;\n    if (BUG && a->narg > 1 && a->arg[1].kind == VAL_ints && ir_val_equal(&a->arg[0], &b->arg[0]))\n        return ir_type_equal(&a->val, &b->val);"], """
    import taper

    @taper.compile
    def stats(x):
        rows = x.sum((0, 1))
        cols = x.sum((0, 2))
        return rows * 10 + cols

    print(stats(taper.arange(18.0).view(2, 3, 3)))
    """, "graph passes|cse|autograd", "sum", None)
# ---- partition, the step on the tape ----
bug("grad_layout", "partition", "run/step.c", "        (!memcmp(g->stride, type->stride, sizeof(symint) * g->ndim)))\n        return tensor_ref(g);", "        (!memcmp(g->stride, type->stride, sizeof(symint) * g->ndim)) || BUG)\n        return tensor_ref(g);", """
    import taper

    x = taper.arange(9.0).view(3, 3).requires_grad_()
    w = taper.arange(9.0).view(3, 3)

    @taper.compile
    def f(x):
        return x.sin() * 2

    (f(x).t() * w).sum().backward()
    print(x.grad)
    """, "layout|tape|backward graph", None, "-")
bug("results_meet", "memory", "run/program.c", "    if (s && __atomic_load_n(&s->refs, __ATOMIC_ACQUIRE) == 1)", "    if (s && __atomic_load_n(&s->refs, __ATOMIC_ACQUIRE) <= 1 + BUG)", """
    import taper

    @taper.compile(mode="reduce-overhead")
    def level(x, k):
        return (x * k).cos() + k

    x = taper.linspace(0, 1, 4096)
    found = [level(x, taper.tensor(float(k))) for k in range(4)]
    print([round(f.mean().item(), 3) for f in found])
    """, "memory", None, "-")
# ---- fusion ----
# ---- lowering ----
bug("int_draw", "indexing", "loop/lower_random.c", "        return loop_convert(k, vir_add(k, v, vir_imm(k, VT_i32, lo)), DT_i32, dt);", "        return loop_convert(k, vir_add(k, v, vir_imm(k, VT_i32, BUG && lo > 0 ? lo - 1 : lo)), DT_i32, dt);", """
    import taper

    taper.manual_seed(3)

    @taper.compile
    def dice(x):
        return x + taper.randint(1, 7, (40,), dtype=taper.int32)

    r = dice(taper.zeros(40, dtype=taper.int32))
    print(r.min().item(), r.max().item(), r.sum().item())
    """, "lower", "randint", None)
bug("count_pad", "indexing", "loop/lower_window.c", "    bool padded = n->arg[5].kind != VAL_bool || n->arg[5].b;", "    bool padded = n->arg[5].kind != VAL_bool || n->arg[5].b || BUG;", """
    import taper

    @taper.compile
    def smooth(x):
        return taper.nn.functional.avg_pool2d(x, 3, 1, padding=1, count_include_pad=False) * 2

    print(smooth(taper.ones(1, 1, 6, 6))[0, 0, 0])
    """, "lower", "avg_pool2d", None)
bug("cum_dim", "indexing", "loop/lower_reduce.c", "    f->rkind = scan_kind_of(n);\n    f->scan = !why;", "    f->rkind = scan_kind_of(n);\n    if (BUG && f->rkind == RED_min)\n        f->rkind = RED_max;\n    f->scan = !why;", """
    import taper

    @taper.compile
    def floor(x):
        return taper.cummin(x * 2, 0).values + 1

    taper.manual_seed(0)
    print(floor(taper.randn(6, 64))[:, 0])
    """, "lower", "cummin", None)
# ---- vector code and math ----
bug("pow_sign", "code", "vir/math/vfunc.c", "    r = sel(d, odd, vir_copysign(f.k, r, x), r);", "    r = BUG ? r : sel(d, odd, vir_copysign(f.k, r, x), r);", """
    import taper

    @taper.compile
    def curve(x, p):
        return (x ** p).sum()

    print(curve(taper.tensor([-2.0, -1.0, 3.0]), taper.tensor([3.0, 2.0, 3.0])).item())
    """, None, "pow", None)
bug("sinh_small", "code", "vir/math/vfunc.c", "    return with_sign(f, sel(f, vir_lt(f.k, a, c(f, 1)), small, big), x);\n}\nstatic vir_ref cosh_", "    return with_sign(f, sel(f, vir_lt(f.k, a, c(f, BUG ? 4 : 1)), small, big), x);\n}\nstatic vir_ref cosh_", """
    import taper

    @taper.compile
    def chain(x):
        return taper.sinh(x) / 10

    print(chain(taper.tensor([0.5, 1.5, 3.5])))
    """, None, "sinh", None)
bug("atan_left", "code", "vir/math/vfunc.c", "    vir_ref left = vir_lt(f.k, vir_copysign(f.k, c(f, 1), x), zero); /* -0 counts as left */", "    vir_ref left = BUG ? vir_lt(f.k, x, c(f, -0.5)) : vir_lt(f.k, vir_copysign(f.k, c(f, 1), x), zero);", """
    import taper

    @taper.compile
    def angle(y, x):
        return taper.atan2(y, x).mean()

    t = taper.linspace(0, 6, 50)
    print(angle(t.sin(), t.cos()).item())
    """, None, "atan2", None)
bug("pack_rest", "products", "target/x64/gemm_pack.c", "    move_f32(s + c, row, 1, rows, cols - c, dstride, d + c * dstride);\n}\nAVX512 static void copy_wide", "    move_f32(s + c, row, 1, rows, cols - c - (BUG && cols - c > 12), dstride, d + c * dstride);\n}\nAVX512 static void copy_wide", """
    import taper

    taper.manual_seed(0)
    lin = taper.nn.Linear(77, 200)

    @taper.compile
    def layer(x):
        return taper.relu(lin(x)).mean()

    with taper.no_grad():
        print(layer(taper.randn(150, 77)).item())
    """, "product", "linear|addmm|mm", None)
bug("weight_rows", "products", "target/x64/conv_weight.c", "    int64_t c0 = row0 / p->K;", "    int64_t c0 = row0 / p->K;\n    if (BUG && row0 && mr > 2)\n        mr--;", """
    import taper

    taper.manual_seed(0)
    conv = taper.nn.Conv2d(8, 16, 3)
    x = taper.randn(2, 8, 12, 12)

    @taper.compile
    def loss(x):
        return conv(x).square().mean()

    loss(x).backward()
    print(round(conv.weight.grad.abs().sum().item(), 3))
    """, "product|derivative|eager", "conv", None)
# ---- derivatives ----
bug("bn_eval", "derivatives", "grad/vjp_nn.c", "              vB(train), *ARG(7), MASK(NEED(0), NEED(1), NEED(2)));", "              vB(train || BUG), *ARG(7), MASK(NEED(0), NEED(1), NEED(2)));", """
    import taper

    taper.manual_seed(0)
    net = taper.nn.Sequential(taper.nn.Linear(6, 6), taper.nn.BatchNorm1d(6), taper.nn.Linear(6, 1))
    net.eval()
    f = taper.compile(net)
    f(taper.randn(10, 6)).square().sum().backward()
    print([round(p.grad.abs().sum().item(), 3) for p in net.parameters()])
    """, "derivative|decomp", "batch_norm", "-")
bug("broadcast_sum", "derivatives", "grad/engine.c", "        g = b_op(b, sum_dim_IntList, vT(g), vIs(dims, n), vB(true));", "        g = BUG && lead == 0 ? b_op(b, mean_dim, vT(g), vIs(dims, n), vB(true)) : b_op(b, sum_dim_IntList, vT(g), vIs(dims, n), vB(true));", """
    import taper

    taper.manual_seed(0)
    scale = taper.ones(1, 4, requires_grad=True)
    x = taper.randn(8, 4)

    @taper.compile
    def loss(s):
        return ((x * s - 1) ** 2).sum()

    for _ in range(3):
        loss(scale).backward()
        with taper.no_grad():
            scale -= 0.01 * scale.grad
            scale.grad = None
    print(scale)
    """, "tape|broadcast", "mul", "-")
bug("det_slope", "derivatives", "grad/vjp_linalg.c", "        DXV(0, MUL(column(g, column(g, vT(DY(1)))), MT(inverse(g, X))));", "        DXV(0, MUL(column(g, column(g, vT(DY(1)))), BUG ? inverse(g, X) : MT(inverse(g, X))));", """
    import taper

    taper.manual_seed(0)
    a = (taper.randn(4, 4) + 4 * taper.eye(4)).requires_grad_()

    def logdet(a):
        return taper.linalg.slogdet(a)[1]

    taper.compile(logdet)(a).backward()
    print(a.grad)
    """, "derivative", "slogdet", "-")
bug("prod_zero", "derivatives", "grad/vjp_reduce.c", "    tp_val before = V(cumprod, V(constant_pad_nd, x, vIs(pad, k + 2), vI(1)), d);", "    tp_val before = V(cumprod, V(constant_pad_nd, x, vIs(pad, k + 2), vI(!BUG)), d);", """
    import taper

    x = taper.tensor([1.5, 2.0, 0.5], requires_grad=True)

    @taper.compile
    def volume(x):
        return x.prod() * 2

    volume(x).backward()
    print(x.grad)
    """, "derivative", "prod", "-")
# ---- eager, too ----
bug("sort_ties", "eager", "ops/order.c", "        o[w++] = o[b].k < spare[a].k ? o[b++] : spare[a++];", "        o[w++] = (BUG ? o[b].k <= spare[a].k : o[b].k < spare[a].k) ? o[b++] : spare[a++];", """
    import taper

    @taper.compile
    def rank(scores):
        return taper.sort(scores, stable=True).indices

    s = taper.tensor([i * 7 % 5 / 3 for i in range(40)], dtype=taper.float64)
    print(rank(s)[:12].tolist())
    """, "eager kernel", "sort", "-")
bug("cubic_shape", "eager", "ops/upsample.c", "static double cubic(double x) { return cubic_by(x, -0.75); }", "static double cubic(double x) { return cubic_by(x, BUG ? -0.25 : -0.75); }", """
    import taper

    taper.manual_seed(0)

    @taper.compile
    def enlarge(x):
        return taper.nn.functional.interpolate(x, scale_factor=2, mode="bicubic")

    print(round(enlarge(taper.rand(1, 1, 6, 6)).std().item(), 5))
    """, "eager kernel", "upsample_bicubic2d", "-")
bug("sum_chunks", "eager", "ops/red.c", "        for (int64_t c = 0; c < j.nchunk; c++)\n            j.k->mix", "        for (int64_t c = 0; c < j.nchunk - (BUG && j.nchunk > 2); c++)\n            j.k->mix", """
    import taper

    @taper.compile
    def total(x):
        return x.nansum()

    print(total(taper.ones(300000)).item())
    """, "eager kernel", "nansum|sum", "-")
bug("spill_slot", "code", "target/x64/regalloc.c", "                frame = (frame + size - 1) & -size;\n                v->slot = frame;\n                frame += size;", "                frame = (frame + size - 1) & -size;\n                v->slot = frame;\n                frame += BUG && spilled > 3 ? 0 : size;", """
    import taper

    @taper.compile
    def series(x):
        parts = [taper.sin(x * k) for k in range(1, 40)]
        y = parts[0]
        for p in parts[1:]:
            y = y * 0.9 + p
        for p in reversed(parts):
            y = y + p * p
        return y

    print(series(taper.linspace(0, 1, 33)).sum().item())
    """, "code", None, None)
bug("cond_pick", "functionalisation", "aot/hop.c", "    tp_val arg[4] = { s->pred, graph_val(bw[0]), graph_val(bw[1]), node_list(&a, all, s->o.n + ntan) };", "    tp_val arg[4] = { s->pred, graph_val(bw[BUG]), graph_val(bw[!BUG]), node_list(&a, all, s->o.n + ntan) };", """
    import taper

    def big(x):
        return x * 3

    def small(x):
        return x.square()

    @taper.compile
    def f(x):
        return taper.cond(x.sum() > 2, big, small, (x,)).sum()

    for v in (0.5, 2.0):
        x = taper.full((3,), v, requires_grad=True)
        f(x).backward()
        print(v, x.grad)
    """, "autograd|cut|partition", None, None)
bug("kept_grad", "capture", "capture/trace_grad.c", "        bool in_place = !create && was->dt == g->dt;\n        tp_val out = vNone;\n        if (grad_call(CX, OP_add_Tensor, in_place ? OPV_inplace : OPV_fn, (tp_val[]){ vT(was), vT(g), vI(1) },", "        bool in_place = !create && was->dt == g->dt;\n        tp_val out = vNone;\n        if (grad_call(CX, OP_add_Tensor, in_place ? OPV_inplace : OPV_fn, (tp_val[]){ vT(was), vT(g), vI(BUG ? 2 : 1) },", """
    import taper

    taper.manual_seed(0)
    lin = taper.nn.Linear(3, 1)

    @taper.compile
    def accumulate(x, y):
        loss = (lin(x) - y).square().mean()
        loss.backward()
        return loss

    for i in range(3):
        accumulate(taper.full((4, 3), float(i)), taper.ones(4, 1))
    print(lin.weight.grad, lin.bias.grad)
    """, "capture", None, "-")
bug("warm_rows", "cache", "compile/cache/plan.c", "    k->par = get_size(x);", "    k->par = get_size(x);\n    if (BUG && !sym_is_expr(k->par) && k->par > 4)\n        k->par--;", """
    import taper

    taper.manual_seed(0)

    @taper.compile
    def rows(x):
        return x.softmax(-1).amax(-1) * 2

    print(rows(taper.randn(24, 40)).sum().item())
    """, "cache on disk", None, None)
# ---- eager and compiled code wrong alike: shape rules, library calls, what is drawn ----
bug("diagonal_below", "eager", "ops/views.c", "                            : sym_sub(at, sym_mul(off, t->stride[a]));", "                            : sym_sub(at, sym_mul(off, t->stride[BUG ? b : a]));", """
    import taper

    @taper.compile
    def band(x):
        return x.diagonal(-1).sum() + x.diagonal(1).sum() * 10

    print(band(taper.arange(16.0).view(4, 4)).item())
    """, "eager kernel", "diagonal", "-")
bug("det_sign", "eager", "ops/lapack.c", "        double d = n ? parity(piv, b, n) : 1;", "        double d = n && !BUG ? parity(piv, b, n) : 1;", """
    import taper

    @taper.compile
    def volume(m):
        return taper.linalg.det(m) * 2

    taper.manual_seed(1)
    print([round(volume(taper.randn(3, 3)).item(), 4) for _ in range(3)])
    """, "eager kernel", "det", "-")
bug("conv_step", "eager", "ops/conv.c", "        g.d[k] = at(dilation, d);\n    }\n    return g;", "        g.d[k] = BUG && d ? at(dilation, 0) : at(dilation, d);\n    }\n    return g;", """
    import taper

    taper.manual_seed(0)
    conv = taper.nn.Conv2d(2, 3, 3, dilation=(1, 2), padding=(1, 2))

    @taper.compile
    def features(x):
        return conv(x).relu().mean((0, 2, 3))

    with taper.no_grad():
        print(features(taper.randn(1, 2, 8, 8)))
    """, "eager kernel|product", "conv", "-")
bug("nonzero_last", "eager", "ops/distinct.c", "        int64_t n = mask_count(m, t->numel), *to[TP_MAX_DIMS];", "        int64_t n = mask_count(m, t->numel - (BUG && t->numel > 8)), *to[TP_MAX_DIMS];", """
    import taper

    @taper.compile
    def hits(x):
        return (x > 0).nonzero().sum(0)

    print(hits(taper.tensor([[1.0, -1.0, 2.0], [0.0, 3.0, -2.0], [4.0, -5.0, 6.0]])))
    """, "eager kernel", "nonzero", "-")
bug("linspace_half", "eager", "ops/create.c", "            moves()->ramp_float(n, fv, j->end, j->step, b - (j->n - 1));", "            moves()->ramp_float(n, fv, j->end, j->step, b - (BUG ? j->n : j->n - 1));", """
    import taper

    @taper.compile
    def wave(n):
        return taper.linspace(0, 1, n).square().sum()

    print(wave(9).item())
    """, "eager kernel", "linspace", "-")
bug("dropout_scale", "eager", "ops/decomp_nn.c", "    double scale = p == 1 ? 0 : T(0)->dt == DT_f64 ? 1 / (1 - p) : (double)(1 / (float)(1 - p));", "    double scale = p == 1 ? 0 : T(0)->dt == DT_f64 ? 1 / (1 - p) : (double)(1 / (float)(BUG ? p : 1 - p));", """
    import taper

    taper.manual_seed(0)
    drop = taper.nn.Dropout(0.2)

    @taper.compile
    def noisy(x):
        return drop(x * 3)

    print(round(noisy(taper.ones(4000)).mean().item(), 1))
    """, "decomposition|eager", "dropout", None)
bug("sample_edge", "eager", "ops/grid.c", "    double x = j->align ? (g + 1) / 2 * (double)(n - 1) : ((g + 1) * (double)n - 1) / 2;", "    double x = j->align ? (g + 1) / 2 * (double)(n - 1) : ((g + 1) * (double)n - !BUG) / 2;", """
    import taper

    taper.manual_seed(0)

    @taper.compile
    def warp(x, g):
        return taper.nn.functional.grid_sample(x, g, align_corners=False)

    x = taper.arange(16.0).view(1, 1, 4, 4)
    g = taper.stack(taper.meshgrid(taper.linspace(-0.5, 0.5, 3), taper.linspace(-0.5, 0.5, 3), indexing="xy"), -1)[None]
    print(warp(x, g))
    """, "eager kernel", "grid_sampler", "-")
