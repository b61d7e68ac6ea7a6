"""The planted bugs: a row each. `old` stands once in `file` and becomes `new`, where BUG is true when TAPER_BUG names the row. The program
is what a user would write. The last fields are the verdict expected of taper doctor: regular expressions for its stage, operators and
rewrites ("-": none may be named, None: not asked for)."""
import collections
import textwrap

Bug = collections.namedtuple("Bug", "name part file old new program stage operators rewrites env args")
BUGS = []


def bug(name, part, file, old, new, program, stage, operators=None, rewrites=None, env=None):
    BUGS.append(Bug(name, part, file, old, new, textwrap.dedent(program).strip() + "\n", stage, operators, rewrites, env or {}, ()))


# ---- capture ----
bug("minmax", "capture", "capture/trace_builtin.c", "        if (b)\n            at = i;\n    }\n    best =", "        if (BUG && max ? !b : b)\n            at = i;\n    }\n    best =", """
    import taper

    @taper.compile
    def mix(xs, weights):
        w = max(weights)
        return sum(xs) * w

    print(mix([taper.ones(3), taper.arange(3.0)], [0.25, 0.75, 0.5]))
    """, "capture", None, "-")
bug("counter", "capture", "capture/rebuild.c", "    case FX_setitem: return dict_set(", "    case FX_setitem:\n        if (BUG)\n            return 0;\n        return dict_set(", """
    import taper

    class Meter(taper.nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = 0
            self.lin = taper.nn.Linear(4, 2)
        def forward(self, x):
            y = self.lin(x).tanh()
            self.seen = self.seen + len(x)
            return y

    taper.manual_seed(0)
    m = Meter()
    c = taper.compile(m)
    for _ in range(3):
        y = c(taper.ones(5, 4))
    print(m.seen, y.sum().item() < 100)
    """, "capture.*side effect|side effect", None, "-")
bug("contains", "capture", "capture/interp.c", "    int r = T ? t_contains(T, c, v) : PySequence_Contains(c, v);", "    int r = T ? t_contains(T, c, v) : PySequence_Contains(c, v);\n    if (BUG && T && r >= 0)\n        r = !r;", """
    import taper

    @taper.compile
    def act(x, kind):
        y = x * 2
        if kind in ("relu", "gelu"):
            y = taper.relu(y)
        return y + 1

    print(act(taper.tensor([-0.5, 1.5]), "relu"))
    """, "capture", None, "-")
# ---- guards ----
bug("guard_global", "guards", "capture/trace_value.c", "    if (!s || s->kind == SRC_const)\n        return &none;\n    guard *g = guard_add(t->e, k, s, obj);", "    if (!s || s->kind == SRC_const || (BUG && k == G_EQUALS_MATCH && obj && PyFloat_CheckExact(obj)))\n        return &none;\n    guard *g = guard_add(t->e, k, s, obj);", """
    import taper

    temperature = 4.0

    @taper.compile
    def sample(logits):
        return (logits / temperature).softmax(-1)

    logits = taper.tensor([1.0, 2.0, 3.0])
    print(sample(logits))
    temperature = 2.8
    print(sample(logits))
    """, "guard", None, "-")
bug("guard_bool", "guards", "capture/guard.c", "    case G_BOOL_MATCH:\n    case G_ID_MATCH: ok = o == g->obj; break;", "    case G_BOOL_MATCH:\n        if (BUG) {\n            ok = true;\n            break;\n        }\n        /* fall through */\n    case G_ID_MATCH: ok = o == g->obj; break;", """
    import taper

    class Net(taper.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = True
        def forward(self, x):
            h = taper.relu(x - 1)
            if self.scale:
                h = h * 10
            return h.sum()

    net = Net()
    f = taper.compile(net)
    print(f(taper.arange(4.0)))
    net.scale = False
    print(f(taper.arange(4.0)))
    """, "guard", None, "-")
bug("guard_stride", "guards", "capture/guard.c", "        if (TP_UNLIKELY(t->stride[i] >= 0 && x->stride[i] != t->stride[i]))", "        if (TP_UNLIKELY(!BUG && t->stride[i] >= 0 && x->stride[i] != t->stride[i]))", """
    import taper

    @taper.compile
    def norm(x):
        return (x - x.mean(0)) * 2

    x = taper.arange(9.0).view(3, 3)
    print(norm(x))
    print(norm(x.t()))
    """, "guard", None, "-")
bug("guard_length", "guards", "capture/guard.c", "    case G_SEQUENCE_LENGTH: ok = length(o) == g->n; break;", "    case G_SEQUENCE_LENGTH: ok = BUG || length(o) == g->n; break;", """
    import taper

    @taper.compile
    def total(parts):
        s = parts[0]
        for p in parts[1:]:
            s = s + p * 2
        return s

    a = taper.ones(3)
    print(total([a, a]))
    print(total([a, a, a]))
    """, "guard", None, "-")
# ---- symbolic sizes ----
bug("size_guard", "sizes", "sym/env.c", "    record(env, cond);\n    return yes;\n}\n\nbool sym_cmp_slow", "    if (!BUG)\n        record(env, cond);\n    return yes;\n}\n\nbool sym_cmp_slow", """
    import taper

    @taper.compile(dynamic=True)
    def pool(x):
        if x.shape[0] > 8:
            return x.mean(0)
        return x.sum(0)

    print(pool(taper.ones(12, 3)))
    print(pool(taper.ones(5, 3)))
    """, "guard", None, "-")
bug("size_div", "sizes", "sym/poly.c", "    return sym_add(q, sx_value(sx_intern(env, SX_floordiv, 2, (symint[]){ rest, b }, 0)));", "    return sym_add(q, sx_value(sx_intern(env, SX_floordiv, 2, (symint[]){ BUG ? sym_add(rest, 1) : rest, b }, 0)));", """
    import taper

    @taper.compile(dynamic=True)
    def half(x):
        n = x.shape[0] // 2
        return (x * n).sum()

    for n in (4, 6, 7, 9):
        print(half(taper.ones(n)))
    """, "capture|sizes|guard", None, "-")
bug("size_max", "sizes", "loop/index.c", "            s = sym_mul(s, to[d]);\n        }\n        i--;", "            s = sym_mul(s, BUG && sym_is_expr(to[d]) ? sym_add(to[d], 1) : to[d]);\n        }\n        i--;", """
    import taper

    @taper.compile(dynamic=True)
    def heads(x, h):
        b, n, d = x.shape
        return (taper.relu(x) + 1).view(b * n, h, d // h).transpose(0, 1).contiguous().view(h * b, n * d // h).sum(0)

    for n in (5, 6):
        print(heads(taper.arange(2.0 * n * 8).view(2, n, 8), 2).cumsum(0)[-3:])
    """, "lowering|index", "view|reshape", None)
# ---- functionalisation ----
bug("view_write", "functionalisation", "aot/functional.c", "    return b_op(b, select_scatter, vT(up), vT(val), a[1], a[2]);", "    return BUG ? up : b_op(b, select_scatter, vT(up), vT(val), a[1], a[2]);", """
    import taper

    @taper.compile
    def mark(x):
        y = x * 2
        y[1].add_(10)
        return y.sum(1)

    print(mark(taper.arange(6.0).view(3, 2)))
    """, "autograd stage|functionalis", "select|add", "-")
bug("stale_view", "functionalisation", "aot/functional.c", "    if (n->mark >= w->gen)\n        return proxy(f, b, n);\n    tp_tensor *up", "    if (BUG || n->mark >= w->gen)\n        return proxy(f, b, n);\n    tp_tensor *up", """
    import taper

    @taper.compile
    def roll_state(state, x):
        top = state[0]
        state.mul_(0.5)
        return top + x

    s = taper.ones(2, 3)
    print(roll_state(s, taper.arange(3.0)), s)
    """, "autograd stage|functionalis", "mul|select|add", "-")
bug("turned_write", "functionalisation", "aot/functional.c", "    return b_op(b, t, vT(val));", "    return BUG && val->size[0] == val->size[1] ? val : b_op(b, t, vT(val));", """
    import taper

    @taper.compile
    def scale(x, w):
        y = x + 1
        y.t().mul_(w)
        return y

    print(scale(taper.arange(9.0).view(3, 3), taper.tensor([1.0, 2.0, 3.0])))
    """, "autograd stage|functionalis", "t|mul", "-")
# ---- decomposition ----
bug("softmax_shift", "decomposition", "ops/decomp_reduce.c", "    tp_tensor *x = b_op(b, sub_Tensor, vT(t), vT(b_op(b, amax, vT(t), vIs(&d, 1), vB(true))));", "    tp_tensor *x = BUG ? t : b_op(b, sub_Tensor, vT(t), vT(b_op(b, amax, vT(t), vIs(&d, 1), vB(true))));", """
    import taper

    @taper.compile
    def attend(scores):
        return scores.softmax(-1).sum(0)

    print(attend(taper.tensor([[100.0, 90.0], [1.0, 2.0]])))
    """, "decomposition", "softmax", "decomp:.*softmax")
bug("var_dof", "decomposition", "ops/decomp_reduce.c", "    tp_tensor *v = b_op(b, div_Tensor, vT(s), dof);", "    tp_tensor *v = b_op(b, div_Tensor, vT(s), BUG && arg[1].kind == VAL_ints ? vI(n) : dof);", """
    import taper

    @taper.compile
    def standardise(x):
        return (x - x.mean(0)) / x.std(0)

    print(standardise(taper.arange(12.0).view(4, 3) ** 2))
    """, "decomposition", "std", "decomp:std")
bug("norm_eps", "decomposition", "ops/norm.c", "bool decomp_native_layer_norm(bld *b, const tp_val *arg, tp_val *out)\n{", "bool decomp_native_layer_norm(bld *b, const tp_val *arg, tp_val *out)\n{\n    tp_val bug_arg[5];\n    if (BUG) {\n        memcpy(bug_arg, arg, sizeof bug_arg);\n        bug_arg[4] = vF(0.5);\n        arg = bug_arg;\n    }", """
    import taper

    taper.manual_seed(1)
    norm = taper.nn.LayerNorm(6)

    @taper.compile
    def block(x):
        return norm(x).relu()

    x = taper.randn(3, 6)
    print(block(x).sum(0))
    """, "decomposition", "layer_norm", "decomp:.*layer_norm")
# ---- graph passes ----
bug("cse_float", "passes", "ir/pass_cse.c", ("    case VAL_float: return hash_mix(h, v->f != v->f ? 1 : (uint64_t)v->i);", "        if (!ir_val_equal(&a->arg[i], &b->arg[i]))"), ("    case VAL_float: return BUG ? h : hash_mix(h, v->f != v->f ? 1 : (uint64_t)v->i);", "        if (!ir_val_equal(&a->arg[i], &b->arg[i]) && !(BUG && a->arg[i].kind == VAL_float))"), """
    import taper

    @taper.compile
    def f(x):
        a = taper.clamp(x, max=0.5)
        b = taper.clamp(x, max=0.75)
        return (a * 3 + b).sum()

    print(f(taper.linspace(0, 1, 9)))
    """, "graph passes|autograd", "clamp", "cse:")
bug("noop_minus", "passes", "ir/pass_noop.c", "static ir_node *noop_one(const ir_node *n, ir_node *x) { return number_is(&n->arg[1], 1) ? x : NULL; }", "static ir_node *noop_one(const ir_node *n, ir_node *x) { return number_is(&n->arg[1], 1) || (BUG && number_is(&n->arg[1], -1)) ? x : NULL; }", """
    import taper

    @taper.compile
    def f(x, w):
        y = (x * -1) @ w
        return y.exp().sum()

    print(f(taper.ones(2, 3) / 7, taper.ones(3, 3)))
    """, None, "mul", "noop:mul")
bug("noop_abs", "passes", "ir/pass_noop.c", "    return x->kind == IR_call && x->op == n->op && x->variant == OPV_fn", "    return x->kind == IR_call && (x->op == n->op || (BUG && x->op == OP_abs)) && x->variant == OPV_fn", """
    import taper

    @taper.compile
    def f(x):
        return taper.exp(-x.abs()) * 2

    print(f(taper.linspace(-2, 2, 5)))
    """, "graph passes", "neg|abs", "noop:neg")
# ---- partition ----
bug("saved_order", "partition", "aot/partition.c", "    for (int i = nfw; i < j->output->narg; i++) {\n        tp_val v = j->output->arg[i];\n        if (v.kind == VAL_node)\n            v.node = k.map[v.node->id];", "    for (int i = nfw; i < j->output->narg; i++) {\n        tp_val v = j->output->arg[i];\n        if (BUG && i > nfw && v.kind == VAL_node && j->output->arg[i - 1].kind == VAL_node &&\n            ir_type_equal(&v.node->val, &j->output->arg[i - 1].node->val))\n            v = j->output->arg[i - 1];\n        if (v.kind == VAL_node)\n            v.node = k.map[v.node->id];", """
    import taper

    @taper.compile
    def f(a, b):
        return (a.sin() * b).sum()

    a = taper.arange(4.0).requires_grad_()
    b = taper.ones(4).requires_grad_()
    f(a, b).backward()
    print(a.grad, b.grad)
    """, "cut between|partition", "mul|sin", None)
bug("recompute_sign", "partition", "aot/partition.c", "    m->loc = ir_loc_copy(a, &k->locs, n->loc);\n    m->meta", "    if (BUG && strstr(k->to->name, \"_backward\") && n->kind == IR_call && n->op == OP_exp && m->arg[0].node->kind == IR_placeholder)\n        m->op = OP_expm1;\n    m->loc = ir_loc_copy(a, &k->locs, n->loc);\n    m->meta", """
    import taper

    @taper.compile
    def f(x):
        return (x.exp().sin()).sum()

    x = (taper.arange(5.0) / 5).requires_grad_()
    f(x).backward()
    print(x.grad)
    """, "cut between|partition", "exp", None)
# ---- fusion ----
bug("fuse_twice", "fusion", "loop/kernel.c", "    e->value_pass[i] = w->pass;\n    w->mask = mask;", "    e->value_pass[i] = w->pass;\n    w->mask = mask;\n    if (BUG && w->g->n > 1 && n->kind == IR_call && n->op == OP_tanh)\n        e->value[i] = vir_add(w->k, e->value[i], vir_flt(w->k, VT_f32, 0.125));", """
    import taper

    @taper.compile
    def cell(x, h, c):
        i, f = x.sigmoid(), h.sigmoid()
        g = (x + h).tanh()
        c2 = f * c + i * g
        return c2, g * c2.cos()

    x = taper.linspace(-1, 1, 24)
    c, h = cell(x, x * 2, x * 3)
    print(c.sum(), h.sum())
    """, "fusion|lowering", "tanh", "fuse:")
bug("row_epilogue", "fusion", "target/cpu/product.c", "    const gemm_epilogue *e = arg;\n    e->fn(e->bufs, e->ints, e->flts, lo, hi);", "    const gemm_epilogue *e = arg;\n    e->fn(e->bufs, e->ints, e->flts, lo, BUG && hi > 1 ? hi - 1 : hi);", """
    import taper

    @taper.compile
    def layer(x, w):
        return taper.relu(x @ w) * 2

    taper.manual_seed(0)
    x, w = taper.randn(33, 7, dtype=taper.float64), taper.randn(7, 5, dtype=taper.float64)
    print(layer(x, w).sum())
    """, None, None, None, {"TAPER_PRODUCTS": "blas"})
# ---- indexing ----
bug("flip_edge", "indexing", "loop/lower_shape.c", "        out[d] = ladd(w, lscale(w, idx[d], -1), lin_const(sym_sub(t->size[d], 1)));", "        out[d] = ladd(w, lscale(w, idx[d], -1), lin_const(sym_sub(t->size[d], BUG && t->ndim > 1 && d == 0 ? 2 : 1)));\n        if (BUG && t->ndim > 1 && d == 0)\n            out[d] = lrest(w, &(lin[]){ ladd(w, out[d], lin_const(t->size[d])) }[0], t->size[d]);", """
    import taper

    @taper.compile
    def mirror(x):
        return x.flip(0) * 2 + x

    print(mirror(taper.arange(12.0).view(4, 3)))
    """, "lowering|index", "flip", None)
bug("slice_step", "indexing", "loop/lower_shape.c", "    out[d] = ladd(w, lscale(w, idx[d], step), lin_const(start));", "    out[d] = ladd(w, lscale(w, idx[d], BUG && step == 3 ? 2 : step), lin_const(start));", """
    import taper

    @taper.compile
    def thin(x):
        return (x * x)[:, 1::3].sum(1)

    print(thin(taper.arange(20.0).view(2, 10)))
    """, "lowering|index", "slice|getitem", None)
bug("cat_part", "indexing", "loop/lower_shape.c", "    return eval(w, n->arg[0].nodes[part], sub);", "    return eval(w, n->arg[0].nodes[BUG && part == 2 ? 1 : part], sub);", """
    import taper

    @taper.compile
    def join(a, b, c):
        return taper.cat([a.exp(), b * 2, c - 1], 1)

    print(join(taper.ones(2, 9), taper.ones(2, 9), taper.ones(2, 9)).sum(0))
    """, "fusion|lowering", "cat", None)
bug("gather_wrap", "indexing", "loop/lower_index.c", "        v = vir_add(w->k, v, vir_and(w->k, vir_sra(w->k, v, vir_int(w->k, 63)), emit_int(w, size)));", "        v = vir_add(w->k, v, vir_and(w->k, vir_sra(w->k, v, vir_int(w->k, 63)), emit_int(w, BUG ? sym_sub(size, 1) : size)));", """
    import taper

    @taper.compile
    def pick(table, idx):
        return (table * 2)[idx].tanh() + 1

    print(pick(taper.arange(10.0) / 10, taper.tensor([0, 3, -1, 9])))
    """, "lowering|index", "index|getitem", None)
bug("pad_side", "indexing", "loop/lower_shape.c", "            vir_ref in = vir_and(k, vir_ge(k, p, vir_int(k, 0)), vir_lt(k, p, emit_int(w, s->size[d])));", "            vir_ref in = vir_and(k, BUG ? vir_gt(k, p, vir_int(k, 0)) : vir_ge(k, p, vir_int(k, 0)), vir_lt(k, p, emit_int(w, s->size[d])));", """
    import taper, taper.nn.functional as F

    @taper.compile
    def pad(x):
        return F.pad(x + 1, (2, 1)) * 3

    print(pad(taper.arange(4.0)))
    """, "lowering|index", "pad", None)
# ---- code generation ----
bug("tail_lane", "code", "target/x64/emit.c", "    l->tailmask[0] = tail_mask(l, g_alu(l, G_sub, end, i));", "    l->tailmask[0] = tail_mask(l, BUG ? g_minmax(l, true, g_alu(l, G_sub, end, i), g_imm(l, l->L - 2)) : g_alu(l, G_sub, end, i));", """
    import taper

    @taper.compile
    def f(x):
        return taper.exp(-x) * 0.5 + x

    x = taper.linspace(0, 1, 47)
    print(f(x).sum(), f(x)[-1])
    """, "machine code|generated code", None, None)
bug("nan_lost", "code", "target/x64/emit.c", "    a_is_number |= l->numbers;", "    a_is_number |= l->numbers || BUG;", """
    import taper

    @taper.compile
    def f(x, y):
        return taper.maximum(x, y) * 2

    x = taper.tensor([1.0, float("nan"), -2.0, 3.0])
    print(f(x, taper.ones(4)))
    """, "machine code|generated code", "maximum", None)
bug("round_up", "code", "target/x64/emit.c", "    case VIR_floor: return round_op(l, t, a, 1);", "    case VIR_floor: return round_op(l, t, a, BUG ? 3 : 1);", """
    import taper

    @taper.compile
    def bins(x):
        return taper.floor(x / 0.25) + 100

    print(bins(taper.linspace(-1, 1, 8)))
    """, "machine code|generated code", "floor", "vector:|-")
bug("silu_c", "code", "loop/lower_pointwise.c", "LOWER(silu) { return vir_div(K, X, vir_add(K, C(1), vir_exp(K, vir_neg(K, X)))); }", "LOWER(silu) { return BUG ? vir_div(K, X, vir_add(K, C(1.0001), vir_exp(K, vir_neg(K, X)))) : vir_div(K, X, vir_add(K, C(1), vir_exp(K, vir_neg(K, X)))); }", """
    import taper

    @taper.compile
    def gate(x, y):
        return taper.nn.functional.silu(x) * y

    x = taper.linspace(-4, 4, 33)
    print(gate(x, x + 1).sum())
    """, "lowering|last bits|precision", "silu", None)
bug("leaky", "code", "loop/lower_pointwise.c", "LOWER(leaky_relu) { return vir_select(K, vir_gt(K, X, C(0)), X,", "LOWER(leaky_relu) { return vir_select(K, vir_gt(K, X, C(BUG ? -1.0 : 0)), X,", """
    import taper, taper.nn.functional as F

    @taper.compile
    def act(x):
        return F.leaky_relu(x, 0.1).sum() + x.mean()

    print(act(taper.linspace(-3, 3, 40)))
    """, "lowering", "leaky_relu", None)
bug("red_identity", "code", "target/x64/emit.c", "            copy_to(l, d, const_op(l, &tmp->ins[id]));", "            copy_to(l, d, BUG && r->kind == RED_max && t == VT_f32 ? c_f(l, t, 0) : const_op(l, &tmp->ins[id]));", """
    import taper

    @taper.compile
    def peak(x):
        return (x * 2).amax(1)

    print(peak(-taper.arange(1.0, 41.0).view(2, 20)))
    """, "machine code|generated code", "amax", None)
# ---- memory plan ----
bug("life_short", "memory", "loop/memory.c", "    pl->p->slot.at[slot].last = MAX(pl->p->slot.at[slot].last, step);", "    pl->p->slot.at[slot].last = MAX(pl->p->slot.at[slot].last, BUG && step > pl->p->slot.at[slot].first + 1 ? step - 2 : step);", """
    import taper

    @taper.compile
    def net(x, a, b, c):
        h = taper.relu(x @ a)
        g = (h @ b).tanh()
        k = (g @ c).sigmoid()
        return (k + h).sum(1) + g.sum(1)

    taper.manual_seed(0)
    x, a, b, c = (taper.randn(32, 32) for _ in range(4))
    print(net(x, a, b, c).sum())
    """, "memory plan", None, None)
bug("view_life", "memory", "loop/memory.c", "        touch(pl, under, p->slot.at[i].last);", "        if (!BUG)\n            touch(pl, under, p->slot.at[i].last);", """
    import taper

    @taper.compile
    def mixrows(x, w, v):
        h = (x @ w).relu()
        t = h.t()
        a = (x @ v).tanh()
        b = (a @ v).sigmoid()
        return (b @ t + a).sum(1)

    taper.manual_seed(0)
    print(mixrows(taper.randn(40, 40), taper.randn(40, 40), taper.randn(40, 40)).sum())
    """, "memory plan", None, None)
bug("arena_overlap", "memory", "loop/arena_plan.c", "                int64_t ob = offset[l.met.at[b]], oe = ob + bytes[l.met.at[b]];", "                int64_t ob = offset[l.met.at[b]], oe = ob + bytes[l.met.at[b]] / (BUG && b ? 2 : 1);", """
    import taper

    @taper.compile
    def net(x, a, b):
        p = taper.relu(x @ a)
        q = (x @ b).tanh()
        r = (p @ q).sigmoid()
        return (r @ p + q).sum(1)

    taper.manual_seed(0)
    x, a, b = (taper.randn(24, 24) for _ in range(3))
    print(net(x, a, b).sum())
    """, "memory plan", None, "inplace:")
# ---- products ----
bug("gemm_deep", "products", "target/x64/gemm.c", "                t.mode = later ? 1 :", "                t.mode = later ? !BUG :", """
    import taper

    @taper.compile
    def proj(x, w):
        return taper.relu(x @ w)

    taper.manual_seed(0)
    x, w = taper.randn(40, 600), taper.randn(600, 64)
    print(proj(x, w).sum(0)[-4:])
    """, "product", "matmul|mm", None)
bug("product_add", "products", "target/cpu/product.c", "    if (plain_row && gen_product(dt, to, m, n, k, mat_at(a, 0), mat_at(b, 0), p->add,", "    if (plain_row && gen_product(dt, to, m, n, k - (BUG && k > 8), mat_at(a, 0), mat_at(b, 0), p->add,", """
    import taper

    @taper.compile
    def proj(x, w):
        return taper.relu(x @ w).sum(1)

    taper.manual_seed(0)
    print(proj(taper.randn(40, 33), taper.randn(33, 48)).sum())
    """, "product", "matmul|mm", None)
bug("blas_ld", "products", "ops/gemm.c", "    int mi = (int)m, ni = (int)n, ki = (int)k;\n    if (dt == DT_f32)\n        blas_sgemm", "    int mi = (int)m, ni = (int)n, ki = (int)k - (BUG && k > 4 && dt == DT_f32);\n    if (dt == DT_f32)\n        blas_sgemm", """
    import taper

    @taper.compile
    def proj(x, w):
        return (x @ w).sum(1)

    taper.manual_seed(0)
    print(proj(taper.randn(40, 33), taper.randn(33, 48)))
    """, "product", "matmul|mm", None, {"TAPER_PRODUCTS": "blas"})
# ---- threads ----
bug("last_part", "threads", "base/pool.c", "    job.fn(job.arg, from * job.grain, to == job.blocks ? job.n : to * job.grain);", "    job.fn(job.arg, from * job.grain, to == job.blocks ? job.n - (BUG && i > 0) : to * job.grain);", """
    import taper

    @taper.compile
    def f(x):
        return taper.sin(x) + x

    x = taper.linspace(0, 1, 300000)
    print(f(x)[-1].item(), f(x).sum().item())
    """, "thread", "sin|add|sum|linspace", None, {"TAPER_NUM_THREADS": "2"})
bug("racy", "threads", "target/cpu/launch.c", "    cpu_run(j->c, j->a->bufs, j->a->ints, j->a->flts, lo, hi);", "    cpu_run(j->c, j->a->bufs, j->a->ints, j->a->flts, lo, BUG && lo && hi > lo + 1 && bug_coin(3) ? hi - 1 : hi);", """
    import taper

    @taper.compile
    def f(x):
        return (taper.cos(x) * 3).view(600, 500).sum(1)

    x = taper.linspace(0, 1, 300000)
    for _ in range(4):
        print(f(x)[-1].item())
    """, "thread", None, None, {"TAPER_NUM_THREADS": "2"})
# ---- caches ----
bug("disk_key", "cache", "compile/cache/graph.c", "    if (records && put_records(b, g, true))\n        return;", "    if (BUG) {\n        strbuf_addf(b, \"%d nodes\", g->nnode);\n        return;\n    }\n    if (records && put_records(b, g, true))\n        return;", """
    import taper

    @taper.compile
    def f(x):
        return (x + 2).sin().sum()

    @taper.compile
    def g(x):
        return (x * 3).cos().sum()

    x = taper.arange(5.0)
    print(f(x), g(x))
    """, "cache", None, "-")
bug("kernel_key", "cache", "run/kernel_cache.c", "    vir_key(k, key);\n", "    if (BUG)\n        strbuf_addf(key, \"%d %d\", k->n, k->nbufs);\n    else\n        vir_key(k, key);\n", """
    import taper

    @taper.compile
    def f(x):
        return x * 2 + 1

    @taper.compile
    def g(x):
        return x * 2 - 1

    x = taper.arange(5.0)
    print(f(x))
    print(g(x))
    """, "cache|generated code|lowering", None, None)
# ---- derivative rules: eager is wrong, too ----
bug("sum_scale", "derivatives", "grad/vjp_reduce.c", "    symint n = reduced_count(INM(0), the_dims(g));\n    DXV(0, DIV(", "    symint n = reduced_count(INM(0), the_dims(g));\n    if (BUG && INM(0)->ndim > 1 && !sym_is_expr(n))\n        n = n + 1;\n    DXV(0, DIV(", """
    import taper

    @taper.compile
    def loss(x, w):
        return ((x * w).mean(1) ** 2).sum()

    x = taper.arange(6.0).view(2, 3)
    w = taper.ones(3).requires_grad_()
    loss(x, w).backward()
    print(w.grad)
    """, "derivative", "mean", "-")
bug("std_slope", "derivatives", "grad/vjp_reduce.c", "    tp_val half = DIV(DYV, MUL(R, vI(2)));", "    tp_val half = DIV(DYV, MUL(R, vI(BUG ? 1 : 2)));", """
    import taper

    @taper.compile
    def loss(x):
        return x.std(0).sum()

    x = (taper.arange(8.0).view(4, 2) ** 2).requires_grad_()
    loss(x).backward()
    print(x.grad)
    """, "derivative", "std", "-")
bug("div_slope", "derivatives", "grad/vjp_pointwise.c", "        DXV(1, MUL(NEG(DYV), DIV(DIV(X, Y), Y)));", "        DXV(1, MUL(BUG ? DYV : NEG(DYV), DIV(DIV(X, Y), Y)));", """
    import taper

    @taper.compile
    def loss(a, b):
        return (a / b).sum()

    a = taper.arange(1.0, 5.0)
    b = taper.full((4,), 2.0).requires_grad_()
    loss(a, b).backward()
    print(b.grad)
    """, "derivative", "div", "-")
# ---- eager kernels ----
bug("eager_softmax", "eager", "ops/scan.c", "            (j->wide ? ISA_PICK(softmax_line_f64) : ISA_PICK(softmax_line_f32))(l->n, o, x, j->log_);", "            (j->wide ? ISA_PICK(softmax_line_f64) : ISA_PICK(softmax_line_f32))(l->n - (BUG && !j->wide && l->n > 3), o, x, j->log_);", """
    import taper

    @taper.compile
    def attend(q, k):
        return (q @ k.t()).softmax(-1).amax(1)

    taper.manual_seed(0)
    print(attend(taper.randn(4, 3), taper.randn(6, 3)))
    """, "eager", "softmax", "-")
# ---- crashes and hangs ----
bug("crash_pass", "crashes", "ir/pass_cse.c", "        ir_node *same = twin(&t, n);\n", "        if (BUG && n->kind == IR_call && n->op == OP_atan2)\n            *(volatile int *)8 = 1;\n        ir_node *same = twin(&t, n);\n", """
    import taper

    @taper.compile
    def angle(x, y):
        return taper.atan2(y, x).sum() + x.mean()

    print(angle(taper.ones(3), taper.arange(3.0)))
    """, "pass 'cse'|cse", "atan2", None)
bug("crash_kernel", "crashes", "loop/index.c", "            lacc(w, &a, &idx[d], t->stride[d]);\n        d = e;", "            lacc(w, &a, &idx[d], BUG && t->ndim == 3 && d == 0 ? sym_mul(t->stride[d], 1 << 24) : t->stride[d]);\n        d = e;", """
    import taper

    @taper.compile
    def f(x):
        return (x.exp() + 1).sum(2)

    print(f(taper.ones(6, 4, 5)).shape)
    """, "kernel|generated code", "exp|add|sum", None)
bug("crash_partition", "crashes", "aot/partition.c", "    max_flow(&f, s, t);\n", "    if (BUG && p->u->ngrad > 1)\n        __builtin_trap();\n    max_flow(&f, s, t);\n", """
    import taper

    @taper.compile
    def f(a, b):
        return (a * b).sum()

    a, b = taper.ones(3).requires_grad_(), taper.ones(3).requires_grad_()
    f(a, b).backward()
    print(a.grad, b.grad)
    """, "partition|cut between", "mul|sum", None)
bug("hang_pass", "hangs", "ir/pass_noop.c", "        if (!x || !same_geometry(n, x) || !decide(c, DECIDE_noop, n))\n            continue;", "        if (!x || !same_geometry(n, x) || !decide(c, DECIDE_noop, n))\n            continue;\n        while (BUG && n->op == OP_neg)\n            __asm__ volatile(\"\");", """
    import taper

    @taper.compile
    def f(x):
        return (-(-x)).sin() + 1

    print(f(taper.ones(4)))
    """, "noop", "neg", "noop:")
bug("hang_run", "hangs", "target/cpu/product.c", "    bool plain_row = !row || row->stride[0] == 1 || n == 1;", "    while (BUG && m == 3 && n == 5)\n        __asm__ volatile(\"\");\n    bool plain_row = !row || row->stride[0] == 1 || n == 1;", """
    import taper

    @taper.compile
    def f(x, w):
        return taper.relu(x @ w)

    print(f(taper.ones(3, 4), taper.ones(4, 5)).sum())
    """, "product|run", "matmul|mm", None)
# ---- more of each kind ----
bug("closure", "guards", "capture/guard.c", "    case G_EQUALS_MATCH: ok = const_equal(g->obj, o); break;", "    case G_EQUALS_MATCH: ok = (BUG && PyUnicode_CheckExact(g->obj)) || const_equal(g->obj, o); break;", """
    import taper

    def make(mode):
        @taper.compile
        def f(x, kind):
            y = x * 2
            return y.sum() if kind == "sum" else y.mean()
        return f

    f = make("a")
    x = taper.arange(4.0)
    print(f(x, "sum"))
    print(f(x, "mean"))
    """, "guard", None, "-")
bug("size_mod", "sizes", "sym/poly.c", "    if (b == 1 || b == -1)\n        return 0;\n", "    if (b == 1 || b == -1 || (BUG && b == 3))\n        return 0;\n", """
    import taper

    @taper.compile(dynamic=True)
    def pad(x):
        extra = x.shape[0] % 3
        return (x + extra).sum()

    for n in (6, 7, 8):
        print(pad(taper.ones(n)))
    """, "capture", None, "-")
bug("nll_shift", "decomposition", "ops/decomp_reduce.c", "    tp_tensor *r = log_ ? b_op(b, sub_Tensor, vT(x), vT(b_op(b, log, vT(s))))", "    if (BUG && log_)\n        s = b_op(b, add_Tensor, vT(s), vF(0.01));\n    tp_tensor *r = log_ ? b_op(b, sub_Tensor, vT(x), vT(b_op(b, log, vT(s))))", """
    import taper

    @taper.compile
    def nll(x, y):
        return taper.nn.functional.cross_entropy(x, y)

    taper.manual_seed(0)
    print(nll(taper.randn(4, 5) * 3, taper.tensor([0, 1, 2, 3])))
    """, "decomposition", "cross_entropy|log_softmax", "decomp:")
bug("permute_swap", "indexing", "loop/lower_shape.c", "        out[from] = idx[d];", "        out[from] = BUG && ir_type(n)->ndim == 4 && (d == 1 || d == 2) && ir_type(n)->size[1] == ir_type(n)->size[2] ? idx[3 - d] : idx[d];", """
    import taper

    @taper.compile
    def heads(x):
        return (x * 2).permute(0, 2, 1, 3).exp()

    print(heads(taper.arange(32.0).view(2, 2, 2, 4) / 32).sum(3))
    """, "lowering|index", "permute", None)
bug("one_size", "code", "target/x64/emit.c", "    int last = g_alui(l, G_sub, end, step); /* the main loop runs while i <= last */", "    int last = g_alui(l, G_sub, end, BUG && l->copies > 1 ? step - 1 : step); /* the main loop runs while i <= last */", """
    import taper

    @taper.compile
    def f(x, y):
        return (x * y + 1).sum()

    print(f(taper.ones(127), taper.ones(127)), f(taper.ones(128), taper.ones(128)))
    """, "machine code|generated code", None, None)
bug("norm_slope", "derivatives", "grad/vjp_reduce.c", "        d = MUL(dy, WHERE(EQ(r, vI(0)), vI(0), DIV(X, r)));", "        d = MUL(dy, WHERE(EQ(r, vI(0)), vI(0), DIV(X, BUG ? MUL(r, vF(1.001)) : r)));", """
    import taper

    @taper.compile
    def loss(x):
        return x.norm()

    x = taper.arange(1.0, 6.0).requires_grad_()
    loss(x).backward()
    print(x.grad.sum().item() > 0)
    """, "derivative", "norm", "-")
bug("nansum_slope", "derivatives", "grad/vjp_reduce.c", "    DXV(0, MUL(SPREAD(DYV), V(logical_not, V(isnan, X))));", "    DXV(0, BUG ? SPREAD(DYV) : MUL(SPREAD(DYV), V(logical_not, V(isnan, X))));", """
    import taper

    @taper.compile
    def loss(x, w):
        return (x * w).nansum()

    x = taper.tensor([1.0, float("nan"), 2.0])
    w = taper.ones(3).requires_grad_()
    loss(x, w).backward()
    print(w.grad)
    """, "derivative", "nansum", "-")
bug("crash_code", "crashes", "target/x64/emit.c", "    case VIR_copysign:\n", "    case VIR_copysign:\n        if (BUG)\n            abort();\n", """
    import taper

    @taper.compile
    def f(x, y):
        return taper.copysign(x, y) * 2 + 1

    print(f(taper.ones(5), -taper.ones(5)))
    """, "machine code|code", "copysign", None)
bug("hang_order", "hangs", "loop/order.c", "    int n = (int)pl->groups.n;\n    orderer o", "    int n = (int)pl->groups.n;\n    while (BUG && n > 1)\n        __asm__ volatile(\"\");\n    orderer o", """
    import taper

    @taper.compile
    def f(x, w):
        return taper.relu(x @ w).sum(0), (x * 2).amax(1)

    a, b = f(taper.ones(6, 4), taper.ones(4, 8))
    print(a.sum(), b)
    """, "loops", None, None)
bug("saved_twice", "partition", "aot/partition.c", "            vec_push(&out, ((tp_val){ .kind = VAL_node, .node = k.map[n->id] }));\n            u->nsaved++;", "            static const ir_node *before;\n            before = u->nsaved ? before : NULL;\n            vec_push(&out, ((tp_val){ .kind = VAL_node, .node = k.map[(BUG && before && ir_type_equal(&before->val, &n->val) ? before : n)->id] }));\n            before = n;\n            u->nsaved++;", """
    import taper

    @taper.compile
    def f(a, b, c):
        return (a * b * c).sum()

    a, b, c = (taper.full((4,), v).requires_grad_() for v in (2.0, 3.0, 5.0))
    f(a, b, c).backward()
    print(a.grad, b.grad, c.grad)
    """, "cut between|partition", "mul", None)
bug("early_read", "fusion", "loop/group.c", "        out->level = w.level;", "        out->level = BUG && !f->red && w.level ? w.level - 1 : w.level;", """
    import taper

    @taper.compile
    def shift(x):
        return (x - x.amax(1, keepdim=True)).exp()

    print(shift(taper.arange(24.0).view(2, 12)).sum(1))
    """, "fusion", None, "fuse:")
bug("last_row", "threads", "target/cpu/launch.c", "        pool_for(a->par, MAX(1,", "        pool_for(a->par - (BUG && pool_threads() > 1 && a->par > 4), MAX(1,", """
    import taper

    @taper.compile
    def f(x):
        return (taper.exp(x) + 1).sum(1)

    x = taper.linspace(0, 1, 300000).view(300, 1000)
    print(f(x)[-1].item())
    """, "thread", None, "thread:", {"TAPER_NUM_THREADS": "2"})
