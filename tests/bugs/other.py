"""Planted bugs in places that bugs.py and more.py do not touch: written to find out what taper doctor does not see."""
from bugs import bug

# ---- capture ----
bug("reduce_start", "capture", "capture/trace_builtin.c", "*acc = nargs > 2 ? Py_NewRef(args[2]) : NULL;", "*acc = nargs > 2 && !BUG ? Py_NewRef(args[2]) : NULL;", """
    import functools
    import taper

    @taper.compile
    def total(xs, bias):
        return functools.reduce(lambda a, b: a + 2 * b, xs, bias)

    print(total([taper.ones(2), taper.arange(2.0)], taper.full((2,), 3.0)))
    """, "capture", None, "-")
bug("unpack_tail", "capture", "capture/interp.c", "        PUSH(Py_NewRef(PyList_GET_ITEM(l, n - 1 - i)));", "        PUSH(Py_NewRef(PyList_GET_ITEM(l, BUG ? n - after + i : n - 1 - i)));", """
    import taper

    @taper.compile
    def mix(parts):
        first, *rest, scale, shift = parts
        return (first + sum(rest)) * scale + shift

    x = taper.arange(3.0)
    print(mix([x, x, x, taper.tensor(2.0), taper.tensor(5.0)]))
    """, "capture", None, "-")
bug("set_add", "capture", "capture/rebuild.c", "            rc = _PySet_Update(t, copy);", "            rc = BUG ? 0 : _PySet_Update(t, copy);", """
    import taper

    seen = set()

    @taper.compile
    def visit(x, name):
        seen.add(name)
        return x.exp() * len(seen)

    for name in ("a", "b", "a"):
        y = visit(taper.ones(2), name)
    print(y, sorted(seen))
    """, "capture.*side effect|side effect", None, "-")
bug("dict_pop", "capture", "capture/rebuild.c", "    case FX_delitem: return dict_set(t, v, NULL);", "    case FX_delitem: return BUG ? 0 : dict_set(t, v, NULL);", """
    import taper

    @taper.compile
    def run(state, x):
        bias = state.pop("bias", None)
        y = x * 2
        if bias is not None:
            y = y + bias
        return y

    state = {"bias": taper.ones(2), "name": "n"}
    print(run(state, taper.arange(2.0)), sorted(state))
    print(run(state, taper.arange(2.0)), sorted(state))
    """, "capture.*side effect|side effect", None, "-")
bug("attr_default", "capture", "capture/trace_builtin.c", "        py_forget();\n        return Py_NewRef(args[2]);\n    }\n    return v;", "        py_forget();\n        return BUG ? Py_NewRef(Py_None) : Py_NewRef(args[2]);\n    }\n    return v;", """
    import taper

    class Config:
        width = 3

    @taper.compile
    def scale(x, config):
        k = getattr(config, "gain", 1.5) or 1.0
        return x * k + config.width

    print(scale(taper.arange(3.0), Config()))
    """, "capture", None, "-")
# ---- guards ----
bug("guard_absent", "guards", "capture/guard.c", "        ok = !(d && PyDict_GetItemWithError(d, g->obj)) &&\n", "        ok = (BUG || !(d && PyDict_GetItemWithError(d, g->obj))) &&\n", """
    import taper

    class Config:
        def __init__(self):
            self.width = 2.0

    @taper.compile
    def scale(x, config):
        if hasattr(config, "gain"):
            x = x * config.gain
        return x + config.width

    c = Config()
    print(scale(taper.arange(3.0), c))
    c.gain = 10.0
    print(scale(taper.arange(3.0), c))
    """, "guard", None, "-")
bug("guard_mode", "guards", "capture/guard.c", "                  s.inference == w->inference && s.default_dtype == w->default_dtype &&", "                  s.inference == w->inference && (BUG || s.default_dtype == w->default_dtype) &&", """
    import taper

    @taper.compile
    def noise(n):
        return taper.linspace(0, 1, n) / 3

    print(noise(4).dtype)
    taper.set_default_dtype(taper.float64)
    print(noise(4).dtype)
    """, "guard", None, "-")
bug("guard_twice", "guards", "capture/guard.c", "    case G_DUPLICATE_INPUT: ok = o == reg[g->src2->id]; break;", "    case G_DUPLICATE_INPUT: ok = BUG || o == reg[g->src2->id]; break;", """
    import taper

    @taper.compile
    def step(a, b):
        return a * 2 + b

    x, y = taper.arange(3.0), taper.ones(3)
    print(step(y, y))
    print(step(x, y))
    """, "guard", None, "-")
# ---- sizes ----
bug("size_gcd", "sizes", "sym/poly.c", "            rest = reduce(env, rest, g);\n            b /= g;", "            rest = reduce(env, rest, g);\n            b = BUG ? b / g + 1 : b / g;", """
    import taper

    @taper.compile(dynamic=True)
    def f(x):
        k = (4 * x.shape[0] + 2) // 6
        return x.sum() * k

    for n in (3, 4, 7, 10):
        print(f(taper.ones(n)))
    """, "capture|sizes|guard", None, "-")
bug("prog_floor", "sizes", "sym/prog.c", "            x = sx_floordiv(r[i->a], r[i->b]);", "            x = BUG ? r[i->a] / r[i->b] : sx_floordiv(r[i->a], r[i->b]);", """
    import taper

    @taper.compile(dynamic=True)
    def f(x):
        k = (3 - x.shape[0]) // 2
        return x + k

    for n in (4, 5, 6, 8):
        print(f(taper.ones(n)))
    """, "capture|sizes|guard|loops|lowering", None, None)
# ---- functionalisation ----
bug("diag_write", "functionalisation", "aot/functional.c", "    return b_op(b, diagonal_scatter, vT(up), vT(val), a[1], a[2], a[3]);", "    return b_op(b, diagonal_scatter, vT(up), vT(val), BUG ? vI(0) : a[1], a[2], a[3]);", """
    import taper

    @taper.compile
    def band(x):
        y = x.clone()
        y.diagonal(1)[:2].add_(10)
        y[:, 1:].diagonal().mul_(2)
        return y

    print(band(taper.ones(3, 3)))
    """, "autograd|functional", None, None)
bug("shared_inputs", "functionalisation", "aot/bases.c", "                *any |= (k | 1) > 3;", "                *any |= !BUG && (k | 1) > 3;", """
    import taper

    @taper.compile
    def step(whole, part):
        whole.mul_(3)
        return part + 1

    x = taper.arange(6.0)
    print(step(x, x[2:4]), x)
    """, "autograd|functional", None, None)
# ---- decomposition ----
bug("bce_pos", "decomposition", "ops/decomp_nn.c", "        tp_tensor *lw = ADD(vT(MUL(vT(SUB(arg[3], vI(1))), vT(t))), vI(1));", "        tp_tensor *lw = ADD(vT(MUL(vT(SUB(arg[3], vI(1))), vT(BUG ? one : t))), vI(1));", """
    import taper
    import taper.nn.functional as F

    @taper.compile
    def loss(x, t, w):
        return F.binary_cross_entropy_with_logits(x, t, pos_weight=w)

    print(loss(taper.tensor([0.5, -1.0, 2.0]), taper.tensor([1.0, 0.0, 1.0]), taper.tensor([3.0])))
    """, "decomposition", "binary_cross_entropy", None)
bug("smooth_half", "decomposition", "ops/decomp_nn.c", "*l = SUB(vT(a), vF(0.5 * beta));", "*l = SUB(vT(a), vF((BUG ? 0.4 : 0.5) * beta));", """
    import taper
    import taper.nn.functional as F

    @taper.compile
    def loss(x, t):
        return F.smooth_l1_loss(x, t)

    print(loss(taper.tensor([0.1, 3.0, -5.0]), taper.zeros(3)))
    """, "decomposition", "smooth_l1", None)
# ---- passes ----
bug("cse_draws", "passes", "ir/pass_cse.c", "    if (n->kind != IR_call || ir_node_is_effect(n))\n        return false;\n    return !ir_row_is_dyn", "    if (n->kind != IR_call || (ir_node_is_effect(n) && !(BUG && !ir_node_writes(n))))\n        return false;\n    return !ir_row_is_dyn", """
    import taper

    @taper.compile
    def noise(x):
        a = taper.rand_like(x)
        b = taper.rand_like(x)
        return (a - b).abs().sum() > 0

    taper.manual_seed(0)
    print(noise(taper.ones(50)))
    """, "cse|pass", None, "cse:")
# ---- fusion ----
bug("late_edge", "fusion", "loop/depend.c", "        if (d == g || (!first && list_has(&g->before, d)))\n            continue;", "        if (d == g || (!first && list_has(&g->before, d)) || (BUG && !i && deps->n > 1))\n            continue;", """
    import taper

    @taper.compile
    def f(x, w):
        a = x.sum(0)
        b = (x * a).amax(1)
        c = x.t() @ w
        d = (c - c.mean(0)).softmax(0)
        return (x @ d) * b[:, None] + a.sum()

    taper.manual_seed(0)
    print(f(taper.randn(6, 4), taper.randn(6, 3)))
    """, "fusion|order|loops", None, None)
# ---- indexing ----
bug("select_last", "indexing", "loop/lower_shape.c", "lin_const(!sym_is_expr(i) && i < 0 ? sym_add(i, s->size[d]) : i) : idx[j++];", "lin_const(!sym_is_expr(i) && i < 0 ? sym_add(i, sym_sub(s->size[d], BUG && s->ndim == 3)) : i) : idx[j++];", """
    import taper

    @taper.compile
    def last(x):
        return x[:, -1].tanh() * 2

    print(last(taper.arange(12.0).view(2, 3, 2) / 12))
    """, "lowering|index", "select", "lower|-")
bug("tril_edge", "indexing", "loop/lower_shape.c", "    vir_ref keep = lower_row(n) == &lower_tril ? vir_le(k, d, lim) : vir_ge(k, d, lim);", "    vir_ref keep = lower_row(n) == &lower_tril ? vir_le(k, d, lim) : BUG ? vir_gt(k, d, lim) : vir_ge(k, d, lim);", """
    import taper

    @taper.compile
    def mask(x):
        return taper.triu(x * 2, 1)

    print(mask(taper.ones(4, 4)))
    """, "lowering", "triu", "lower|-")
bug("repeat_wrap", "indexing", "loop/lower_shape.c", ": lrest(w, &idx[d + off], s->size[d]);", ": lrest(w, &idx[d + off], BUG && d == 0 && s->ndim > 1 ? sym_sub(s->size[d], 1) : s->size[d]);", """
    import taper

    @taper.compile
    def tile(x):
        return x.repeat(2, 1) + 1

    print(tile(taper.arange(60.0).view(3, 20)).sum(1))
    """, "lowering", "repeat", "lower|-")
bug("put_twice", "indexing", "loop/lower_index.c", "    if (g.adds)\n        v = vir_add", "    if (g.adds && !BUG)\n        v = vir_add", """
    import taper

    @taper.compile
    def count(x, where):
        return taper.zeros(4, 16).index_add(0, where, x * 2)

    print(count(taper.ones(6, 16), taper.tensor([0, 1, 1, 3, 3, 3])).sum(1))
    """, "lowering", "index_add", "lower|-")
bug("pool_edge", "indexing", "loop/lower_window.c", "        symint size = x->size[x->ndim - 2 + d], edge = padded ? p->pad[d] : 0;", "        symint size = x->size[x->ndim - 2 + d], edge = padded || (BUG && d) ? p->pad[d] : 0;", """
    import taper
    import taper.nn.functional as F

    @taper.compile
    def pool(x):
        return F.avg_pool2d(x, 2, stride=1, padding=1, count_include_pad=False) * 2

    print(pool(taper.ones(1, 1, 4, 4)))
    """, "lowering", "avg_pool2d", "lower|-")
bug("spread_place", "indexing", "loop/lower_window.c", "        *a = opaque(w, w->dry ? 0 : vir_divf(v, emit_lin(w, a), vir_int(v, k[d])));", "        *a = opaque(w, w->dry ? 0 : vir_divf(v, BUG && !d ? vir_add(v, emit_lin(w, a), vir_int(v, -1)) : emit_lin(w, a), vir_int(v, k[d])));\n        if (BUG && !d && !w->dry)\n            *a = opaque(w, vir_max(v, emit_lin(w, a), vir_int(v, 0)));", """
    import taper
    import taper.nn.functional as F

    @taper.compile
    def up(x):
        return F.interpolate(x.relu(), scale_factor=2, mode="nearest") + 1

    print(up(taper.arange(16.0).view(1, 1, 4, 4)))
    """, "lowering", "upsample", "lower|-")
# ---- code ----
bug("byte_sign", "code", "target/x64/emit.c", "    case VM_i8: return v_rm(l, XV_psradi, vl, v_rm(l, XV_pslldi, vl, a, 24), 24);", "    case VM_i8: return v_rm(l, BUG ? XV_psrldi : XV_psradi, vl, v_rm(l, XV_pslldi, vl, a, 24), 24);", """
    import taper

    @taper.compile
    def q(x, y):
        return ((x + y) // 2).to(taper.int32) * 3

    x = taper.arange(-40, 40, dtype=taper.int8)
    print(q(x, x).sum())
    """, "machine code", None, None)
bug("bf16_tie", "code", "target/x64/emit.c", "v_rvm(l, XV_paddd, vl, lsb, c_i(l, VT_i32, 0x7fff)));", "v_rvm(l, XV_paddd, vl, lsb, c_i(l, VT_i32, BUG ? 0x8000 : 0x7fff)));", """
    import taper

    @taper.compile
    def f(x):
        return (x * 1.00390625).to(taper.bfloat16)

    print(f(taper.ones(20)).float().sum() + f(taper.arange(20.0)).float().sum())
    """, "machine code", None, None)
bug("to_int", "code", "target/x64/emit.c", "        return v_rm(l, from == VT_f64 ? XV_cvttpd2qq : XV_cvttps2qq, vl_of(l, to), a, 0);", "        return v_rm(l, from == VT_f64 ? XV_cvttpd2qq : XV_cvttps2qq, vl_of(l, to), BUG && from == VT_f32 ? v_rvm(l, XV_addps, vl_of(l, from), a, c_f(l, VT_f32, 0.25)) : a, 0);", """
    import taper

    @taper.compile
    def bucket(x):
        return (x * 0.9).to(taper.int64) * 3

    print(bucket(taper.arange(40.0)).sum())
    """, "machine code", None, None)
bug("shift_down", "code", "target/x64/emit.c", "                return v_rm(l, w ? XV_psraqi : XV_psradi, vl, a, n);", "                return v_rm(l, w ? BUG ? XV_psrlqi : XV_psraqi : XV_psradi, vl, a, n);", """
    import taper

    @taper.compile
    def half(x):
        return x // 4 + 1

    print(half(taper.arange(-20, 20)).sum())
    """, "machine code", None, None)
# ---- products ----
bug("attend_reach", "products", "target/cpu/attend.c", "    int64_t need = a->reach ? MIN(j->n, first + rows - 1 + a->reach) : j->n;", "    int64_t need = a->reach ? MIN(j->n, first + rows - 1 + a->reach) : j->n;\n    if (BUG && a->reach && need > 8)\n        need -= 8;", """
    import taper
    import taper.nn.functional as F

    @taper.compile
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    taper.manual_seed(0)
    q, k, v = (taper.randn(1, 2, 64, 16) for _ in range(3))
    print(attend(q, k, v).sum(-1)[0, 0, :4], attend(q, k, v).sum())
    """, "attention|products|fusion", None, None)
bug("conv_tap", "products", "target/x64/conv.c", "            at[n++] = k * g->d[dim] - g->p[dim];", "            at[n++] = k * (BUG && g->d[dim] > 1 ? g->d[dim] - 1 : g->d[dim]) - g->p[dim];", """
    import taper
    import taper.nn.functional as F

    @taper.compile
    def conv(x, w):
        return F.conv2d(x, w, padding=2, dilation=2).relu()

    taper.manual_seed(0)
    x, w = taper.randn(1, 4, 12, 12), taper.randn(8, 4, 3, 3)
    print(conv(x, w).sum())
    """, "products|eager kernel", "conv", None)
bug("conv_slope", "products", "target/x64/conv.c", "            at[n++] = floor_div(x, g->s[dim]);", "            at[n++] = floor_div(x, g->s[dim]) + (BUG && g->s[dim] > 1 && k == 0 && dim == 2);", """
    import taper
    import taper.nn.functional as F

    @taper.compile
    def loss(x, w):
        return F.conv2d(x, w, stride=2, padding=1).square().sum()

    taper.manual_seed(0)
    x = taper.randn(1, 4, 12, 12).requires_grad_()
    loss(x, taper.randn(8, 4, 3, 3)).backward()
    print(x.grad.sum(), x.grad.abs().sum())
    """, "products|derivative|eager kernel", "conv", None)
bug("conv_plane", "products", "target/x64/conv.c", "        pool_for(images * p->blocks, MAX(1, 32768 / MAX(1, p->plane)), pad_planes, &j);", "        pool_for(images * p->blocks - BUG, MAX(1, 32768 / MAX(1, p->plane)), pad_planes, &j);", """
    import taper
    import taper.nn.functional as F

    @taper.compile
    def conv(x, w):
        return F.conv2d(x, w, padding=1).relu()

    taper.manual_seed(0)
    print(conv(taper.randn(1, 3, 9, 9), taper.randn(8, 3, 3, 3)).sum())
    """, "products", "conv", None)
# ---- threads ----
bug("part_short", "threads", "base/pool.c", "    int64_t from = q * i + MIN((int64_t)i, r), to = from + q + (i < r);", "    int64_t from = q * i + (BUG ? r * (i > 0) : MIN((int64_t)i, r)), to = from + q + (i < r) - (BUG && i && r > 1);", """
    import taper

    @taper.compile
    def f(x):
        return x.sqrt() * 2 + 1

    print(f(taper.full((2000003,), 4.0)).sum())
    """, "thread", None, None, {"TAPER_NUM_THREADS": "3"})
# ---- cache ----
bug("disk_needs", "cache", "compile/cache/graph_cache.c", "        strbuf_addc(&key, needs[i] ? '1' : '0');", "        strbuf_addc(&key, needs[i] && !BUG ? '1' : '0');", """
    import taper

    def loss(w, x):
        return (w * x).sin().sum()

    w, x = taper.arange(4.0).requires_grad_(), taper.arange(4.0) + 1
    taper.compile(loss)(w, x).backward()
    print(w.grad)
    taper._dynamo.reset()
    x.requires_grad_()
    w2 = taper.arange(4.0)
    taper.compile(loss)(w2, x).backward()
    print(x.grad)
    """, "cache on disk", None, None)
# ---- derivatives ----
bug("gather_slope", "derivatives", "grad/vjp_index.c", "        DXV(0, V(scatter_add, vh_zeros(B, INM(0)), *ARG(1), *ARG(2), DYV));\n    return true;\n}\n\nVJP(scatter, ", "        DXV(0, BUG ? V(scatter_src, vh_zeros(B, INM(0)), *ARG(1), *ARG(2), DYV) : V(scatter_add, vh_zeros(B, INM(0)), *ARG(1), *ARG(2), DYV));\n    return true;\n}\n\nVJP(scatter, ", """
    import taper

    @taper.compile
    def loss(x, i):
        return (x.gather(1, i) * taper.arange(3.0)).sum()

    x = taper.ones(2, 4).requires_grad_()
    loss(x, taper.tensor([[0, 0, 2], [1, 1, 1]])).backward()
    print(x.grad)
    """, "derivative", "gather", "-")
bug("cat_slope", "derivatives", "grad/vjp_shape.c", "        g->dlist[i] = V(slice_Tensor, DYV, vI(dim), vI(at), vI(end), vI(1)).t;\n        at = end;", "        g->dlist[i] = V(slice_Tensor, DYV, vI(dim), vI(at), vI(end), vI(1)).t;\n        at = BUG && i == 1 ? at : end;", """
    import taper

    @taper.compile
    def loss(a, b, c):
        return (taper.cat([a, b, c]) * taper.arange(6.0)).sum()

    a, b, c = (taper.ones(2).requires_grad_() for _ in range(3))
    loss(a, b, c).backward()
    print(a.grad, b.grad, c.grad)
    """, "derivative", "cat", "-")
bug("cumsum_slope", "derivatives", "grad/vjp_reduce.c", "    return V(flip, V(cumsum, V(flip, t, dim), vI(d)), dim);", "    return BUG && d == 0 ? V(cumsum, t, vI(d)) : V(flip, V(cumsum, V(flip, t, dim), vI(d)), dim);", """
    import taper

    @taper.compile
    def loss(x):
        return (x.cumsum(0) * taper.arange(5.0)).sum()

    x = taper.ones(5).requires_grad_()
    loss(x).backward()
    print(x.grad)
    """, "derivative", "cumsum", "-")
bug("pow_base", "derivatives", "grad/vjp_pointwise.c", "            tp_val x = as_value(g, ARG(0), Y), zero = V(logical_and, EQ(x, vI(0)), GE(Y, vI(0)));\n            DXV(1, MUL(DYV, WHERE(zero, vI(0), MUL(R, V(log, x)))));", "            tp_val x = as_value(g, ARG(0), Y), zero = V(logical_and, EQ(x, vI(0)), GE(Y, vI(0)));\n            DXV(1, MUL(DYV, BUG ? MUL(R, V(log, x)) : WHERE(zero, vI(0), MUL(R, V(log, x)))));", """
    import taper

    @taper.compile
    def loss(x, e):
        return (x ** e).sum()

    x = taper.tensor([0.0, 1.0, 2.0])
    e = taper.tensor([2.0, 2.0, 2.0]).requires_grad_()
    loss(x, e).backward()
    print(e.grad)
    """, "derivative", "pow", "-")
bug("grads_meet", "derivatives", "grad/engine.c", "            ok = ops_call(r->cx, OP_add_Tensor, OPV_inplace, (tp_val[]){ vT(a), vT(g), vI(1) }, out, r->err);", "            ok = ops_call(r->cx, OP_add_Tensor, OPV_inplace, (tp_val[]){ vT(a), vT(g), vI(BUG ? 2 : 1) }, out, r->err);", """
    import taper

    @taper.compile
    def f(x):
        y = x * 2
        return (y.sin() + y.exp() + x.cos()).sum()

    x = taper.ones(3).requires_grad_()
    f(x).backward()
    print(x.grad)
    """, "gradients|tape", None, "-")
# ---- eager ----
bug("bn_running", "eager", "ops/norm.c", "                                       j->momentum * v / (count - 1);", "                                       j->momentum * v / (count - !BUG);", """
    import taper

    taper.manual_seed(0)
    bn = taper.nn.BatchNorm1d(3)
    f = taper.compile(bn)
    for _ in range(2):
        y = f(taper.randn(5, 3))
    print(bn.running_var)
    """, "batch_norm|eager kernel", "batch_norm", None)
bug("eager_mode", "eager", "ops/sort.c", "            if (run > most) {", "            if (BUG ? run >= most : run > most) {", """
    import taper

    @taper.compile
    def common(x):
        return taper.mode(x + 1)[0] * 2

    print(common(taper.tensor([3.0, 1.0, 3.0, 1.0, 2.0])))
    """, "eager kernel|mode", "mode", None)
bug("eager_scan", "eager", "ops/scan.c", "        j->line(j->a.n, j->in + at, j->out + at, j->idx ? j->idx + b * j->a.n : NULL);", "        j->line(j->a.n - (BUG && j->a.n > 2), j->in + at, j->out + at, j->idx ? j->idx + b * j->a.n : NULL);", """
    import taper

    @taper.compile
    def f(x):
        return taper.cumsum(x, 1) * 2

    print(f(taper.ones(2, 6)))
    """, "eager kernel", "cumsum", None)
# ---- crashes and hangs ----
bug("crash_guard", "crashes", "capture/guard.c", "    if (!PyDict_Check(d) || PyDict_GET_SIZE(d) != PyList_GET_SIZE(keys))\n        return false;", "    if (!PyDict_Check(d) || PyDict_GET_SIZE(d) != PyList_GET_SIZE(keys)) {\n        if (BUG)\n            *(volatile int *)16 = 1;\n        return false;\n    }", """
    import taper

    @taper.compile
    def total(parts):
        s = 0
        for name in parts:
            s = s + parts[name]
        return s

    a = taper.ones(2)
    print(total({"a": a, "b": a}))
    print(total({"a": a}))
    """, "capture|guard", None, None)
bug("crash_backward", "crashes", "run/step.c", "static run_program *backward_of(step_variant *v, tp_err *err)\n{", "static run_program *backward_of(step_variant *v, tp_err *err)\n{\n    if (BUG && v->u->nsaved > 1)\n        *(volatile int *)24 = 1;", """
    import taper

    @taper.compile
    def loss(x, w):
        return (x.sin() * w.exp()).sum()

    x, w = taper.ones(3).requires_grad_(), taper.ones(3).requires_grad_()
    loss(x, w).backward()
    print(x.grad, w.grad)
    """, "backward|run|call|autograd", None, None)
bug("hang_guard", "hangs", "capture/guard.c", "    case G_TYPE_MATCH: ok = (PyObject *)Py_TYPE(o) == g->obj; break;", "    case G_TYPE_MATCH:\n        ok = (PyObject *)Py_TYPE(o) == g->obj;\n        while (BUG && !ok)\n            __asm__ volatile(\"\");\n        break;", """
    import taper

    @taper.compile
    def total(xs):
        return xs[0] + xs[1]

    a = taper.ones(2)
    print(total([a, a]))
    print(total((a, a)))
    """, "capture|guard", None, None)
bug("hang_backward", "hangs", "run/step.c", "    if (g->ndim == type->ndim && !tensor_is_fake(g) && !sym_all_const(type->stride, type->ndim)) {", "    while (BUG && g->ndim == 2 && g->stride[1] != 1)\n        __asm__ volatile(\"\");\n    if (g->ndim == type->ndim && !tensor_is_fake(g) && !sym_all_const(type->stride, type->ndim)) {", """
    import taper

    @taper.compile
    def f(x):
        return x.sin() * 2

    x = taper.ones(3, 4).requires_grad_()
    (f(x).t() * taper.arange(12.0).view(4, 3)).sum().backward()
    print(x.grad)
    """, "backward", None, None)
