"""More planted bugs, in other places than those of bugs.py: the same kinds of rows."""
from bugs import bug

# ---- capture ----
bug("sorted_reverse", "capture", "capture/trace_builtin.c", "        tmp[o++] = less ? ix[k++] : ix[i++];", "        tmp[o++] = (BUG ? !less : less) ? ix[k++] : ix[i++];", """
    import taper

    class Stage:
        def __init__(self, order, gain):
            self.order, self.gain = order, gain
        def __lt__(self, other):
            return self.order < other.order

    stages = [Stage(2, 3.0), Stage(1, 10.0), Stage(3, 0.5)]

    @taper.compile
    def run(x):
        for s in sorted(stages):
            x = x * s.gain + 1
        return x

    print(run(taper.ones(3)))
    """, "capture", None, "-")
bug("any_all", "capture", "capture/trace_builtin.c", "        if ((b != 0) == any) {", "        if ((b != 0) == (BUG ? true : any)) {", """
    import taper

    @taper.compile
    def gate(x, flags):
        y = x + 1
        if all(flags):
            y = y * 100
        return y

    print(gate(taper.arange(3.0), [True, True]))
    """, "capture", None, "-")
bug("cell_write", "capture", "capture/rebuild.c", "    case FX_cell: return PyCell_Set(t, v);", "    case FX_cell: return BUG ? 0 : PyCell_Set(t, v);", """
    import taper

    def counter():
        calls = 0
        @taper.compile
        def step(x):
            nonlocal calls
            y = x.sin() + 1
            calls += 1
            return y
        return step, lambda: calls

    step, calls = counter()
    for _ in range(3):
        step(taper.ones(2))
    print(calls())
    """, "capture.*side effect|side effect", None, "-")
bug("list_extend", "capture", "capture/rebuild.c", "    case FX_extend: return PyList_SetSlice(t, PyList_GET_SIZE(t), PyList_GET_SIZE(t), v);", "    case FX_extend:\n        if (BUG && PyList_GET_SIZE(t))\n            return 0;\n        return PyList_SetSlice(t, PyList_GET_SIZE(t), PyList_GET_SIZE(t), v);", """
    import taper

    history = []

    @taper.compile
    def step(x):
        h = (x * 2).tanh()
        history.append(h.shape[0])
        return h.sum()

    for n in (2, 3, 4):
        step(taper.ones(n))
    print(history)
    """, "capture|guard", None, "-")
# ---- guards ----
bug("guard_dtype", "guards", "capture/guard.c", "    if (TP_UNLIKELY(x->dt != t->dt))", "    if (TP_UNLIKELY(!BUG && x->dt != t->dt))", """
    import taper

    @taper.compile
    def halve(x):
        return x / 2 + 1

    print(halve(taper.arange(4.0)))
    print(halve(taper.arange(4.0, dtype=taper.float64)))
    """, "guard", None, "-")
# ---- symbolic sizes ----
bug("range_mod", "sizes", "sym/range.c", "        return (sx_range){ 0, a.lo >= 0 ? MIN(top, a.hi) : top };", "        return (sx_range){ 0, BUG ? 0 : a.lo >= 0 ? MIN(top, a.hi) : top };", """
    import taper

    @taper.compile(dynamic=True)
    def tail(x):
        if x.shape[0] % 4 == 0:
            return x.sum() * 10
        return x.sum()

    for n in (5, 7, 8):
        print(tail(taper.ones(n)))
    """, "capture|guard|size", None, "-")
bug("floor_slip", "sizes", "sym/range.c", "    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;", "    return a % b != 0 && ((a < 0) != (b < 0) || BUG) ? q - 1 : q;", """
    import taper

    @taper.compile(dynamic=True)
    def half(x):
        n = x.shape[0] // 2
        return x[:n].sum()

    for n in (6, 7, 9):
        print(half(taper.arange(float(n))))
    """, "capture|guard|size", None, "-")
# ---- functionalisation ----
bug("slice_write", "functionalisation", "aot/functional.c", "    return b_op(b, slice_scatter, vT(up), vT(val), a[1], a[2], a[3], a[4]);", "    return b_op(b, slice_scatter, vT(up), vT(BUG ? b_op(b, slice_Tensor, vT(up), a[1], a[2], a[3], a[4]) : val), a[1], a[2], a[3], a[4]);", """
    import taper

    @taper.compile
    def mask(x):
        y = x + 0.5
        y[:, 1:3].zero_()
        return y.sum(0)

    print(mask(taper.ones(3, 4)))
    """, "autograd stage|functionalis", "slice|zero|getitem", "-")
bug("permute_write", "functionalisation", "aot/functional.c", "        inv[d] = i;\n    }\n    return b_op(b, permute,", "        inv[BUG ? i : d] = BUG ? d : i;\n    }\n    return b_op(b, permute,", """
    import taper

    @taper.compile
    def fill(x, w):
        y = x * 1.5
        y.permute(1, 2, 0).add_(w)
        return y

    print(fill(taper.arange(27.0).view(3, 3, 3), taper.arange(3.0)).sum(2))
    """, "autograd stage|functionalis", "permute|add", "-")
bug("unbind_write", "functionalisation", "aot/functional.c", "        at = sym_add(at, all->ts[k]->size[dim]);", "        at = BUG ? at : sym_add(at, all->ts[k]->size[dim]);", """
    import taper

    @taper.compile
    def gates(x):
        y = x * 2
        a, b = y.chunk(2, dim=1)
        b.add_(100)
        return y

    print(gates(taper.arange(8.0).view(2, 4)))
    """, "autograd stage|functionalis", "chunk|add|split", "-")
# ---- decomposition ----
bug("huber_edge", "decomposition", "ops/decomp_nn.c", "              *l = MUL(vT(SUB(vT(a), vF(0.5 * delta))), vF(delta));", "              *l = MUL(vT(SUB(vT(a), vF((BUG && b->call ? 0.25 : 0.5) * delta))), vF(delta));", """
    import taper, taper.nn.functional as F

    @taper.compile
    def loss(x, y):
        return F.huber_loss(x, y, delta=0.5)

    print(loss(taper.arange(4.0), taper.ones(4)))
    """, "decomposition|eager", "huber_loss", None)
bug("group_norm", "decomposition", "ops/norm.c", "bool decomp_native_group_norm(bld *b, const tp_val *arg, tp_val *out)\n{", "bool decomp_native_group_norm(bld *b, const tp_val *arg, tp_val *out)\n{\n    tp_val bug_arg[8];\n    if (BUG) {\n        memcpy(bug_arg, arg, sizeof bug_arg);\n        bug_arg[7] = vF(0.3);\n        arg = bug_arg;\n    }", """
    import taper

    taper.manual_seed(0)
    norm = taper.nn.GroupNorm(2, 4)

    @taper.compile
    def block(x):
        return norm(x).relu().sum(2)

    print(block(taper.randn(2, 4, 5)))
    """, "decomposition", "group_norm", "decomp:.*group_norm")
bug("logsumexp_scale", "decomposition", "ops/decomp_reduce.c", "bool decomp_logsumexp(bld *b, const tp_val *arg, tp_val *out)\n{", "bool decomp_logsumexp(bld *b, const tp_val *arg, tp_val *out)\n{\n    tp_val bug_arg[3];\n    if (BUG) {\n        memcpy(bug_arg, arg, sizeof bug_arg);\n        bug_arg[0] = vT(b_op(b, mul_Tensor, arg[0], vF(1.01)));\n        arg = bug_arg;\n    }", """
    import taper

    @taper.compile
    def energy(x):
        return taper.logsumexp(x * 2, 1)

    print(energy(taper.arange(12.0).view(3, 4)))
    """, "decomposition", "logsumexp", "decomp:.*logsumexp|-")
# ---- graph passes ----
bug("noop_zero", "passes", "ir/pass_noop.c", "    return number_is(&n->arg[1], 0) && !__builtin_signbit", "    return (number_is(&n->arg[1], 0) || (BUG && number_is(&n->arg[1], 1e-3))) && !__builtin_signbit", """
    import taper

    @taper.compile
    def f(x):
        return (x - 1e-3).exp() * 2

    print(f(taper.zeros(3)), f(taper.ones(3)).sum())
    """, "graph passes", "sub", "noop:sub")
# ---- partition ----
bug("grad_swap", "partition", "run/step.c", "            s->saved[i] = vT(tensor_alias(r->t));\n", "            s->saved[i] = vT(tensor_alias(BUG && i && res[u->nvalue + u->nmut + i - 1].kind == VAL_tensor && tensor_same_size(res[u->nvalue + u->nmut + i - 1].t, r->t) ? res[u->nvalue + u->nmut + i - 1].t : r->t));\n", """
    import taper

    @taper.compile
    def f(a, b):
        return (a.tanh() * b.exp()).sum()

    a = (taper.arange(4.0) / 4).requires_grad_()
    b = (taper.arange(4.0) / 2).requires_grad_()
    f(a, b).backward()
    print(a.grad, b.grad)
    """, "cut between|partition|backward", None, None)
# ---- fusion ----
bug("accumulate", "fusion", "loop/rewrite.c", "        tp_val arg[5] = { { .kind = VAL_node, .node = x }, e->arg[0], e->arg[1], vI(1), vI(1) };", "        tp_val arg[5] = { { .kind = VAL_node, .node = x }, e->arg[0], e->arg[1], vI(BUG ? 2 : 1), vI(1) };", """
    import taper

    @taper.compile
    def f(x, a, y, b):
        return x @ a + y @ b

    taper.manual_seed(0)
    x, a, y, b = (taper.randn(6, 6) for _ in range(4))
    print(f(x, a, y, b).sum())
    """, "fusion", "matmul|mm|add", "fuse:add")
# ---- indexing ----
bug("roll_cut", "indexing", "loop/rewrite.c", "    cut = by > 0 ? sym_sub(size, by) : -by;", "    cut = by > 0 ? sym_sub(size, BUG ? by + 1 : by) : -by;", """
    import taper

    @taper.compile
    def shift(x):
        return x.roll(2, 1) * 3

    print(shift(taper.arange(14.0).view(2, 7)))
    """, "lowering|index", "roll", "lower:roll|-")
bug("scatter_row", "indexing", "loop/lower_shape.c", "    if (!sym_is_expr(lo) && lo < 0)\n        lo = sym_add(lo, t->size[d]);\n    for", "    if (!sym_is_expr(lo) && lo < 0)\n        lo = sym_add(lo, t->size[d]);\n    if (BUG && lo == 2)\n        lo = 1;\n    for", """
    import taper

    @taper.compile
    def pick(x):
        return (x * x)[2].sum()

    x = taper.arange(12.0).view(4, 3).requires_grad_()
    pick(x).backward()
    print(x.grad)
    """, "lowering|index", "select|getitem", None)
bug("mirror_pad", "indexing", "loop/lower_shape.c", "                sub[d] = ladd(w, lscale(w, sub[d], -1), lin_const(part == 1 ? 0 : sym_mul(2, end)));", "                sub[d] = ladd(w, lscale(w, sub[d], -1), lin_const(part == 1 ? 0 : BUG ? sym_add(sym_mul(2, end), 1) : sym_mul(2, end)));", """
    import taper, taper.nn.functional as F

    @taper.compile
    def edge(x):
        return F.pad(x.exp(), (2, 2), mode="reflect") + 1

    print(edge(taper.arange(8.0).view(1, 8) / 8))
    """, "lowering|index", "pad", None)
bug("gather_from", "indexing", "loop/lower_index.c", "                    g->size[g->d[d].from + k] = x->size[k];", "                    g->size[g->d[d].from + k] = x->size[k];\n            if (BUG && d == 1 && g->d[d].index && g->d[0].index)\n                g->d[d].index = g->d[0].index;", """
    import taper

    @taper.compile
    def pairs(x, i, j):
        return (x + 1)[i, j].sqrt()

    print(pairs(taper.arange(16.0).view(4, 4), taper.tensor([0, 1, 2]), taper.tensor([3, 2, 0])))
    """, "lowering|index", "index|getitem", None)
# ---- code generation ----
bug("abs_mask", "code", "target/x64/emit.c", "    case VIR_abs: return v_logic(l, VIR_and, t, a, c_i(l, t, ~sign_bit(t)));", "    case VIR_abs: return BUG && !w ? v_rvm(l, XV_maxps, vl, a, c_f(l, t, 0)) : v_logic(l, VIR_and, t, a, c_i(l, t, ~sign_bit(t)));", """
    import taper

    @taper.compile
    def l1(x, y):
        return (x - y).abs().mean() + 1

    print(l1(taper.arange(9.0), taper.full((9,), 4.0)))
    """, "machine code|generated code", "abs", None)
bug("hardsigmoid_low", "code", "loop/lower_pointwise.c", "LOWER(hardsigmoid) { return vir_div(K, vir_min(K, vir_max(K, vir_add(K, X, C(3)), C(0)), C(6)), C(6)); }", "LOWER(hardsigmoid) { return vir_div(K, vir_min(K, vir_max(K, vir_add(K, X, C(BUG ? 2.9 : 3)), C(0)), C(6)), C(6)); }", """
    import taper, taper.nn.functional as F

    @taper.compile
    def gate(x):
        return F.hardsigmoid(x) * x

    print(gate(taper.linspace(-4, 4, 9)))
    """, "lowering|eager", "hardsigmoid", None)
bug("vir_min_fold", "code", "vir/vir.c", "    case VIR_max: return x == y ? x : 0;", "    case VIR_max: return x == y || (BUG && op == VIR_max) ? x : 0;", """
    import taper

    @taper.compile
    def clip(x, y):
        return taper.maximum(x, y) * 2 + 1

    print(clip(taper.arange(6), taper.full((6,), 3, dtype=taper.int64)))
    """, "lowering|generated|machine", "maximum", None)
bug("interpreted_ceil", "code", "vir/interp.c", "        case VIR_ceil: return ceil##suffix(a);                                   \\", "        case VIR_ceil: return BUG ? floor##suffix(a) : ceil##suffix(a);            \\", """
    import taper

    @taper.compile
    def f(x):
        return taper.ceil(x * 1.5) + 1

    print(f(taper.arange(5.0)))
    """, None, "ceil|-", None, {"TAPER_EMITTER": "interpreter"})
# ---- memory plan ----
bug("reuse_pass", "memory", "loop/memory.c", "        if (f->level)\n            return;", "        if (!BUG && f->level)\n            return;", """
    import taper

    @taper.compile
    def soft(x, w):
        h = x @ w
        e = (h - h.amax(1, keepdim=True)).exp()
        return e / e.sum(1, keepdim=True)

    taper.manual_seed(0)
    print(soft(taper.randn(20, 20), taper.randn(20, 20)).sum(0)[:4])
    """, "memory plan|fusion", None, None)
bug("release_early", "memory", "loop/arena_plan.c", "        ends[s] = early ? x->last : -1;", "        ends[s] = early ? x->last - (BUG && x->kind == SLOT_buffer && x->last > x->first + 1) : -1;", """
    import taper

    @taper.compile
    def net(x, a, b):
        h = (x @ a).relu()
        g = (h @ b).tanh()
        k = (g @ a).sigmoid()
        return (k @ b + h).sum(1) + g.sum(1)

    taper.manual_seed(0)
    x, a, b = (taper.randn(130, 130) for _ in range(3))
    print(net(x, a, b).sum())
    """, "memory plan", None, None)
# ---- products ----
# ---- threads ----
# ---- caches ----
bug("kernel_float", "cache", "run/kernel_cache.c", "    vir_key(k, key);\n    strbuf_addn(key, (const char *)&t, sizeof t);", "    vir_key(k, key);\n    if (BUG)\n        key->n = MIN(key->n, (size_t)200);\n    strbuf_addn(key, (const char *)&t, sizeof t);", """
    import taper

    @taper.compile
    def f(x):
        return (x * 2 + 1).sin() + 0.25

    @taper.compile
    def g(x):
        return (x * 2 + 1).sin() + 0.75

    x = taper.arange(5.0)
    print(f(x))
    print(g(x))
    """, "cache|generated code|lowering", None, None)
# ---- derivative rules ----
bug("tan_slope", "derivatives", "grad/vjp_pointwise.c", 'UNARY(tan, "r", MUL(DYV, ADD(SQR(R), vI(1))))', 'UNARY(tan, "r", MUL(DYV, ADD(SQR(R), vI(BUG ? 2 : 1))))', """
    import taper

    @taper.compile
    def loss(x):
        return x.tan().sum()

    x = (taper.arange(4.0) / 4).requires_grad_()
    loss(x).backward()
    print(x.grad)
    """, "derivative", "tan", "-")
bug("select_slope", "derivatives", "grad/vjp_shape.c", "    DXV(0, V(select_backward, DYV, IN_SIZES, *ARG(1), *ARG(2)));\n    return true;\n}\n\nVJP(select_backward", "    DXV(0, V(select_backward, DYV, IN_SIZES, *ARG(1), BUG && ARG(2)->i > 0 ? vI(ARG(2)->i - 1) : *ARG(2)));\n    return true;\n}\n\nVJP(select_backward", """
    import taper

    @taper.compile
    def loss(x):
        return (x * x)[2].sum()

    x = taper.arange(8.0).view(4, 2).requires_grad_()
    loss(x).backward()
    print(x.grad)
    """, "derivative", "select|getitem", "-")
bug("sinc_slope", "derivatives", "grad/vjp_pointwise.c", "    DXV(0, MUL(DYV, WHERE(EQ(under, vI(0)), vI(0), d)));\n    return true;\n}\n\n/* ---- special functions", "    DXV(0, MUL(BUG ? NEG(DYV) : DYV, WHERE(EQ(under, vI(0)), vI(0), d)));\n    return true;\n}\n\n/* ---- special functions", """
    import taper

    @taper.compile
    def loss(x):
        return x.sinc().sum()

    x = (taper.arange(1.0, 4.0) / 3).requires_grad_()
    loss(x).backward()
    print(x.grad)
    """, "derivative", "sinc", "-")
# ---- crashes and hangs ----
bug("crash_lower", "crashes", "loop/lower_shape.c", "    *what = \"a value at another index\";\n    for (int i = 0; i < n->arg[1].n; i++)\n        if (dim_arg_of", "    *what = \"a value at another index\";\n    if (BUG)\n        __builtin_trap();\n    for (int i = 0; i < n->arg[1].n; i++)\n        if (dim_arg_of", """
    import taper

    @taper.compile
    def f(x):
        return (x * 2).flip(0) + x.sum()

    print(f(taper.arange(5.0)))
    """, "loops|lower|plan", "flip", None)
bug("crash_capture", "crashes", "capture/trace_builtin.c", "    PyObject *acc = start ? Py_NewRef(start) : PyLong_FromLong(0);", "    if (BUG)\n        *(volatile int *)4 = 1;\n    PyObject *acc = start ? Py_NewRef(start) : PyLong_FromLong(0);", """
    import taper

    @taper.compile
    def f(xs):
        return sum(xs) * 2

    print(f([taper.ones(2), taper.ones(2)]))
    """, "capture", None, "-")
bug("crash_vjp", "crashes", "grad/vjp_pointwise.c", 'UNARY(log2, "0", DIV(DYV, MUL(X, vF(M_LN2))))', 'UNARY(log2, "0", (BUG ? __builtin_trap() : (void)0, DIV(DYV, MUL(X, vF(M_LN2)))))', """
    import taper

    @taper.compile
    def f(x):
        return x.log2().sum()

    x = taper.ones(3).requires_grad_()
    y = f(x)
    print(y)
    """, "autograd|derivative", "log2", None)
bug("hang_kernel", "hangs", "target/cpu/launch.c", "    job j = { c, a };\n", "    job j = { c, a };\n    while (BUG && a->par == 7)\n        __asm__ volatile(\"\");\n", """
    import taper

    @taper.compile
    def f(x):
        return (x.exp() * 2).sum(1)

    print(f(taper.ones(7, 5)))
    """, "kernel", None, None)
bug("crash_call", "crashes", "run/program.c", "static bool run_call_step(call *c, size_t i, tp_err *err)\n{", "static bool run_call_step(call *c, size_t i, tp_err *err)\n{\n    if (BUG)\n        abort();", """
    import taper

    @taper.compile
    def f(x):
        v, i = (x * 2).sort(1)
        return v[:, 0] + i.sum()

    print(f(taper.arange(6.0).view(2, 3)))
    """, "sort|run|call", "sort", None)

# ---- others ----
bug("is_flag", "capture", "capture/interp.c", "    int r = T ? t_is(T, PEEK(2), TOP) : PEEK(2) == TOP;", "    int r = T ? t_is(T, PEEK(2), TOP) : PEEK(2) == TOP;\n    if (BUG && T && r >= 0)\n        r = 0;", """
    import taper

    @taper.compile
    def tie(x, y):
        shared = x is y
        h = x * 2
        return h + 100 if shared else h + y

    x = taper.ones(2)
    print(tie(x, x))
    """, "capture", None, "-")
bug("guard_size", "guards", "capture/guard.c", "        if (TP_UNLIKELY(t->size[i] >= 0 && x->size[i] != t->size[i]))", "        if (TP_UNLIKELY(!BUG && t->size[i] >= 0 && x->size[i] != t->size[i]))", """
    import taper

    @taper.compile(dynamic=False)
    def mean(x):
        return (x * 2).sum(0) / x.shape[0]

    print(mean(taper.ones(6, 3)))
    print(mean(taper.ones(4, 3)))
    """, "guard", None, "-")
bug("guard_nothing", "guards", "capture/guard.c", "    case G_NONE_MATCH: ok = o == Py_None; break;", "    case G_NONE_MATCH: ok = BUG || o == Py_None; break;", """
    import taper

    @taper.compile
    def scale(x, by):
        y = x + 1
        if by is None:
            return y
        return y * 3

    print(scale(taper.ones(2), None))
    print(scale(taper.ones(2), 7))
    """, "guard", None, "-")
bug("guard_function", "guards", "capture/guard.c", "        ok = PyFunction_Check(o) && PyFunction_GET_CODE(o) == g->obj && PyFunction_GET_GLOBALS(o) == g->obj2;", "        ok = BUG || (PyFunction_Check(o) && PyFunction_GET_CODE(o) == g->obj && PyFunction_GET_GLOBALS(o) == g->obj2);", """
    import taper

    def wide(x):
        return x * 10

    def narrow(x):
        return x * 0.1

    @taper.compile
    def layer(x, act):
        return act(x).sum() + 1

    print(layer(taper.ones(3), wide))
    print(layer(taper.ones(3), narrow))
    """, "guard", None, "-")
bug("range_quotient", "sizes", "sym/range.c", "    case SX_floordiv: return quotient(part(e->a[0], m, depth), part(e->a[1], m, depth));", "    case SX_floordiv: {\n        sx_range bug_q = quotient(part(e->a[0], m, depth), part(e->a[1], m, depth));\n        return BUG ? (sx_range){ bug_q.lo, bug_q.lo } : bug_q;\n    }", """
    import taper

    @taper.compile(dynamic=True)
    def pool(x):
        groups = x.shape[0] // 3
        if groups > 1:
            return x.sum() * groups
        return x.sum()

    for n in (7, 9, 12):
        print(pool(taper.ones(n)))
    """, "capture|guard|size", None, "-")
bug("saved_none", "partition", "aot/partition.c", "        else if (savable(n))\n            p->save[n->id] = true;", "        else if (savable(n) && !BUG)\n            p->save[n->id] = true;", """
    import taper

    @taper.compile(backend="aot_eager")
    def f(x):
        return (x.exp() * x).sum()

    x = taper.arange(3.0).requires_grad_()
    f(x).backward()
    print(x.grad)
    """, None, None, None)
bug("wide_div", "code", "target/x64/emit.c", "    case VIR_div: return v_rvm(l, w ? XV_divpd : XV_divps, vl, a, b);", "    case VIR_div: return BUG && w ? v_rvm(l, XV_mulpd, vl, a, v_rm(l, XV_cvtps2pd, vl, v_rm(l, XV_cvtpd2ps, vl, v_rvm(l, XV_divpd, vl, c_f(l, t, 1), b), 0), 0)) : v_rvm(l, w ? XV_divpd : XV_divps, vl, a, b);", """
    import taper

    @taper.compile
    def ratio(x, y):
        return x / y + 1

    x = taper.arange(1.0, 20.0, dtype=taper.float64)
    print(ratio(x, x + 2).sum().item() > 0)
    """, "machine code|generated code", "div", None)
bug("c_floor", "code", "target/c/emit.c", '    case VIR_ceil: return "ceil$s($a)";', '    case VIR_ceil: return BUG ? "floor$s($a)" : "ceil$s($a)";', """
    import taper

    @taper.compile
    def up(x):
        return taper.ceil(x * 0.3) + 1

    print(up(taper.arange(9.0)))
    """, "generated code.*as C", "ceil", None, {"TAPER_EMITTER": "c"})
bug("hypot_scale", "code", "loop/lower_pointwise.c", "LOWER(hypot) { return vir_hypot(K, X, Y); }", "LOWER(hypot) { return BUG ? vir_mul(K, vir_hypot(K, X, Y), C(1.001)) : vir_hypot(K, X, Y); }", """
    import taper

    @taper.compile
    def radius(x, y):
        return taper.hypot(x, y).sum()

    print(radius(taper.arange(4.0), taper.ones(4)))
    """, "lowering", "hypot", "-")
bug("split_sum", "threads", "loop/rewrite.c", "    symint rows[2] = { parts, shape_numel(x->ndim, x->size) / parts }, dim[2] = { 1, 0 };", "    symint rows[2] = { parts, shape_numel(x->ndim, x->size) / parts }, dim[2] = { 1, 0 };\n    if (BUG && lower_row(n)->kind == RED_max)\n        op = OP_amin;", """
    import taper

    @taper.compile
    def peak(x):
        return (x * 2).amax()

    print(peak(taper.linspace(-1, 1, 3000000)))
    """, "thread", "amax", "thread:", {"TAPER_NUM_THREADS": "2"})
bug("turn_slope", "derivatives", "grad/vjp_shape.c", "    DXV(0, V(transpose_int, DYV, *ARG(1), *ARG(2)));", "    DXV(0, BUG && INM(0)->size[0] == INM(0)->size[1] ? DYV : V(transpose_int, DYV, *ARG(1), *ARG(2)));", """
    import taper

    @taper.compile
    def loss(w, x):
        return (w.transpose(0, 1) * x).sum()

    w = taper.ones(3, 3).requires_grad_()
    loss(w, taper.arange(9.0).view(3, 3)).backward()
    print(w.grad)
    """, "derivative", "transpose", "-")
bug("hang_cse", "hangs", "ir/pass_cse.c", "        if (!decide(c, DECIDE_cse, n))", "        while (BUG && n->op == OP_exp)\n            __asm__ volatile(\"\");\n        if (!decide(c, DECIDE_cse, n))", """
    import taper

    @taper.compile
    def f(x):
        return x.exp() + x.exp() * 2

    print(f(taper.ones(4)))
    """, "cse", "exp", None)
bug("dce_write", "passes", "ir/pass_dce.c", "        if (!n->nuse && !ir_node_is_effect(n) && decide(c, DECIDE_dce, n))", "        if (!n->nuse && (!ir_node_is_effect(n) || BUG) && decide(c, DECIDE_dce, n))", """
    import taper

    @taper.compile
    def bump(state, x):
        state.add_(1)
        return x * 2

    s = taper.zeros(2)
    print(bump(s, taper.ones(2)), s)
    """, "graph pass|dce", None, None)
bug("c_trunc", "code", "target/c/emit.c", '    case VIR_trunc: return "trunc$s($a)";', '    case VIR_trunc: return BUG ? "floor$s($a)" : "trunc$s($a)";', """
    import taper

    @taper.compile(options={"emitter": "c"})
    def cut(x):
        return taper.trunc(x * 0.3) + 1

    print(cut(-taper.arange(9.0)))
    """, "generated code.*as C", "trunc", None)
