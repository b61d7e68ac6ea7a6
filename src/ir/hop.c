/* hop.c - what the calls with nested graphs do; how the nested graphs run is not known here. */
#include "ir/hop.h"

static const struct {
    hop_kind kind;
    const char *target;
    int narg, nsub, sub[2], nlist, list[3];
} forms[] = {
    { HOP_cond, "ops.higher_order.cond", 4, 2, { 1, 2 }, 1, { 3 } },
    { HOP_while, "ops.higher_order.while_loop", 4, 2, { 0, 1 }, 2, { 2, 3 } },
    { HOP_while, "ops.higher_order.while_loop", 3, 2, { 0, 1 }, 1, { 2 } },
    { HOP_scan, "ops.higher_order.scan", 4, 1, { 0 }, 3, { 1, 2, 3 } },
    { HOP_map, "ops.higher_order.map", 3, 1, { 0 }, 2, { 1, 2 } },
    { HOP_function, "ops.higher_order.autograd_function", 4, 1, { 0 }, 3, { 1, 2, 3 } },
};

static int form_of(const ir_node *n)
{
    if (n->kind != IR_opaque || !n->target || strncmp(n->target, "ops.higher_order.", 17))
        return -1;
    for (int i = 0; i < (int)COUNT(forms); i++) {
        bool fits = n->narg == forms[i].narg && !strcmp(n->target, forms[i].target);
        for (int k = 0; fits && k < forms[i].nsub; k++)
            fits = n->arg[forms[i].sub[k]].kind == VAL_graph;
        for (int k = 0; fits && k < forms[i].nlist; k++) {
            const tp_val *v = &n->arg[forms[i].list[k]];
            fits = v->kind == VAL_nodes || ((v->kind == VAL_ints || v->kind == VAL_tensors) && !v->n);
        }
        if (fits)
            return i;
    }
    return -1;
}

hop_kind ir_hop(const ir_node *n)
{
    int f = form_of(n);
    return f < 0 ? HOP_none : forms[f].kind;
}

int ir_hop_subs(const ir_node *n, int arg[2])
{
    int f = form_of(n);
    for (int k = 0; f >= 0 && k < forms[f].nsub; k++)
        arg[k] = forms[f].sub[k];
    return f < 0 ? 0 : forms[f].nsub;
}

const char *ir_hop_target(hop_kind k)
{
    for (size_t i = 0; i < COUNT(forms); i++)
        if (forms[i].kind == k)
            return forms[i].target;
    return "";
}

/* ---- running ---- */
typedef struct list { /* borrowed tensors */
    tp_tensor **t;
    int n;
} list;

static list list_of(const tp_val *v)
{
    return v->kind == VAL_tensors ? (list){ v->ts, v->n } : (list){ NULL, 0 };
}

static bool truth(const tp_val *v, bool *yes, tp_err *err)
{
    if (val_is_number(v)) {
        *yes = val_as_f(v) != 0;
        return true;
    }
    if (v->kind != VAL_tensor || v->t->numel != 1 || tensor_is_fake(v->t))
        return err_set(err, ERR_runtime, "a condition is one real truth value");
    *yes = elem_get_f((dtype)v->t->dt, tensor_host(v->t)) != 0;
    return true;
}

static int returns(const ir_node *n, int which)
{
    int at[2];
    ir_hop_subs(n, at);
    const ir_graph *g = n->arg[at[which]].graph;
    return g->output ? g->output->narg : 0;
}

static tp_val pack(tp_val *out, int n) /* takes them over */
{
    tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)MAX(n, 1));
    for (int i = 0; i < n; i++) {
        if (out[i].kind == VAL_tensor)
            ts[i] = out[i].t;
        else
            val_clear(&out[i]);
    }
    return vTs(ts, n);
}

static void clear(tp_val *v, int n)
{
    for (int i = 0; i < n; i++)
        val_clear(&v[i]);
}

static tp_val *vals(int n) { return mem_zalloc(sizeof(tp_val) * (size_t)MAX(n, 1)); }

static bool run_cond(hop_host *h, const ir_node *n, const tp_val *arg, tp_val *result, tp_err *err)
{
    bool yes;
    if (!truth(&arg[0], &yes, err))
        return false;
    int which = yes ? 0 : 1, nout = returns(n, which);
    list x = list_of(&arg[3]);
    tp_val *in = vals(x.n), *out = vals(nout);
    for (int i = 0; i < x.n; i++)
        in[i] = vT(x.t[i]);
    bool ok = h->sub(h, which, in, x.n, out, nout, err);
    if (ok)
        *result = pack(out, nout);
    free(in);
    free(out);
    return ok;
}

/* The i-th slice along the first dimension. Counted, or NULL. */
static tp_tensor *slice(hop_host *h, tp_tensor *t, int64_t i, tp_err *err)
{
    tp_val a[3] = { vT(t), vI(0), vI(i) }, out = vNone;
    return h->op(h->cx, OP_select_int, OPV_fn, a, &out, err) ? out.t : NULL;
}

static tp_tensor *stack(hop_host *h, tp_tensor **ts, int64_t n, tp_err *err)
{
    tp_val a[2] = { vTs(ts, (int)n), vI(0) }, out = vNone;
    return h->op(h->cx, OP_stack, OPV_fn, a, &out, err) ? out.t : NULL;
}

/* No step was taken: the stacked results are empty, of the type the node says. */
static tp_tensor *empty_like_type(const ir_node *n, int i, tp_err *err)
{
    const tp_tensor *t = n->val.kind == VAL_tensors && i < n->val.n ? n->val.ts[i] : NULL;
    if (!t || t->ndim < 1) {
        err_set(err, ERR_runtime, "a loop over nothing has results of unknown type");
        return NULL;
    }
    symint size[TP_MAX_DIMS];
    for (int d = 0; d < t->ndim; d++) {
        bool ok = true;
        size[d] = d ? sym_hint(t->size[d], &ok) : 0;
    }
    return tensor_new((dtype)t->dt, t->ndim, size, err);
}

static tp_tensor *none_like(const tp_tensor *t, tp_err *err) /* nothing, stacked */
{
    symint size[TP_MAX_DIMS] = { 0 };
    memcpy(size + 1, t->size, sizeof *size * (size_t)MIN(t->ndim, TP_MAX_DIMS - 1));
    return tensor_new((dtype)t->dt, t->ndim + 1, size, err);
}

/* Every ny-th of them from the i-th on, stacked; NULL without an error when there are none. */
static tp_tensor *stack_every(hop_host *h, tp_tensor **ts, int64_t n, int i, int ny, tp_err *err)
{
    tp_tensor **mine = mem_zalloc(sizeof *mine * (size_t)MAX(n / ny, 1)), *r;
    for (int64_t k = 0; k < n / ny; k++)
        mine[k] = ts[k * ny + i];
    r = n ? stack(h, mine, n / ny, err) : NULL;
    free(mine);
    return r;
}

static bool run_while(hop_host *h, const ir_node *n, const tp_val *arg, tp_val *result, tp_err *err)
{
    list carry = list_of(&arg[2]), rest = n->narg > 3 ? list_of(&arg[3]) : (list){ NULL, 0 };
    int nc = carry.n, nin = nc + rest.n, nout = returns(n, 1), ny = nout - nc;
    if (returns(n, 0) != 1 || ny < 0)
        return err_set(err, ERR_runtime, "a loop's body returns what it carries, its condition one value");
    tp_val *in = vals(nin), *out = vals(nout), *res = vals(nout);
    VEC(tp_tensor *) ys = { 0 }; /* what else each step returned */
    bool ok = false;
    for (int i = 0; i < nin; i++) {
        tp_tensor *t = i < nc ? carry.t[i] : rest.t[i - nc];
        in[i] = t && i < nc ? vT(tensor_ref(t)) : vT(t);
    }
    for (;;) {
        tp_val t = vNone;
        bool again = false;
        ok = h->sub(h, 0, in, nin, &t, 1, err) && truth(&t, &again, err);
        val_clear(&t);
        if (!ok || !again || !(ok = h->sub(h, 1, in, nin, out, nout, err)))
            break;
        clear(in, nc);
        memcpy(in, out, sizeof *in * (size_t)nc);
        for (int i = nc; i < nout; i++)
            vec_push(&ys, out[i].t);
        memset(out, 0, sizeof *out * (size_t)MAX(nout, 1));
    }
    memcpy(res, in, sizeof *res * (size_t)nc);
    for (int i = 0; ok && i < ny; i++) {
        tp_tensor *t = stack_every(h, ys.at, (int64_t)ys.n, i, ny, err);
        if (!t && !ys.n)
            t = i < nc && carry.t[i] ? none_like(carry.t[i], err) : empty_like_type(n, nc + i, err);
        res[nc + i] = vT(t);
        ok = t != NULL;
    }
    if (ok)
        *result = pack(res, nout);
    else
        clear(res, nout);
    for (size_t i = 0; i < ys.n; i++)
        tensor_unref(ys.at[i]);
    vec_free(&ys);
    free(res);
    free(in);
    free(out);
    return ok;
}

static bool run_scan(hop_host *h, const ir_node *n, const tp_val *arg, tp_val *result, bool map, tp_err *err)
{
    list init = map ? (list){ NULL, 0 } : list_of(&arg[1]), xs = list_of(&arg[map ? 1 : 2]),
         rest = list_of(&arg[map ? 2 : 3]);
    int nc = init.n, nin = nc + xs.n + rest.n, nout = returns(n, 0), ny = nout - nc, made = 0;
    if (ny < 0 || !xs.n || !xs.t[0] || xs.t[0]->ndim < 1)
        return err_set(err, ERR_runtime,
                       "a scan walks along the first dimension of at least one tensor, and "
                       "returns what it carries first");
    int64_t steps = xs.t[0]->size[0];
    for (int i = 1; i < xs.n; i++)
        if (!xs.t[i] || xs.t[i]->ndim < 1 || xs.t[i]->size[0] != steps)
            return err_set(err, ERR_runtime, "all tensors that are walked along have the same first size");
    tp_val *in = vals(nin), *out = vals(nout), *res = vals(nout);
    tp_tensor **ys = mem_zalloc(sizeof *ys * (size_t)MAX(ny * steps, 1)); /* ny rows of steps */
    bool ok = true;
    for (int i = 0; i < nc; i++)
        in[i] = init.t[i] ? vT(tensor_ref(init.t[i])) : vNone;
    for (int i = 0; i < rest.n; i++)
        in[nc + xs.n + i] = vT(rest.t[i]);
    for (int64_t s = 0; ok && s < steps; s++) {
        for (int i = 0; ok && i < xs.n; i++) {
            tp_tensor *x = slice(h, xs.t[i], s, err);
            in[nc + i] = vT(x);
            ok = x != NULL;
        }
        ok = ok && h->sub(h, 0, in, nin, out, nout, err);
        clear(in + nc, xs.n);
        memset(in + nc, 0, sizeof *in * (size_t)xs.n);
        if (!ok)
            break;
        clear(in, nc);
        if (nc)
            memcpy(in, out, sizeof *in * (size_t)nc);
        for (int i = 0; i < ny; i++)
            if (out[nc + i].kind == VAL_tensor)
                ys[(int64_t)i * steps + s] = out[nc + i].t;
        memset(out, 0, sizeof *out * (size_t)MAX(nout, 1));
    }
    for (; ok && made < nout; made++) {
        tp_tensor *t = made < nc ? in[made].kind == VAL_tensor ? tensor_ref(in[made].t) : NULL
                       : steps   ? stack(h, ys + (int64_t)(made - nc) * steps, steps, err)
                                 : empty_like_type(n, made, err);
        res[made] = vT(t);
        ok = t != NULL;
    }
    if (ok)
        *result = pack(res, nout);
    else
        clear(res, nout);
    for (int64_t i = 0; i < ny * steps; i++)
        tensor_unref(ys[i]);
    clear(in, nc);
    free(ys);
    free(in);
    free(out);
    free(res);
    return ok;
}

static bool any_fake(const tp_val *v)
{
    if (v->kind == VAL_tensor)
        return tensor_is_fake(v->t);
    for (int i = 0; v->kind == VAL_tensors && i < v->n; i++)
        if (v->ts[i] && tensor_is_fake(v->ts[i]))
            return true;
    return false;
}

bool ir_hop_function_fits(const ir_node *n, const tp_val *arg, tp_err *err)
{
    const ir_graph *g = n->arg[0].graph;
    list x[3] = { list_of(&arg[1]), list_of(&arg[2]), list_of(&arg[3]) };
    bool ok = g->output && g->output->narg == x[0].n && (int)g->inputs.n == x[1].n + x[2].n &&
              n->val.kind == VAL_tensors && n->val.n == x[1].n;
    for (int k = 0; k < 3; k++)
        for (int i = 0; ok && i < x[k].n; i++)
            ok = x[k].t[i] != NULL;
    for (int i = 0; ok && i < x[0].n; i++)
        ok = g->output->arg[i].kind == VAL_node && ir_type(g->output->arg[i].node);
    return ok || err_set(err, ERR_runtime, "'%s' does not fit its graph '%s'", n->name, g->name);
}

/* Without a tape it is its outputs. */
static bool run_function(const ir_node *n, const tp_val *arg, tp_val *result, tp_err *err)
{
    list x = list_of(&arg[2]);
    if (!ir_hop_function_fits(n, arg, err))
        return false;
    tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)MAX(x.n, 1));
    for (int i = 0; i < x.n; i++)
        ts[i] = tensor_ref(x.t[i]);
    *result = vTs(ts, x.n);
    return true;
}

bool ir_hop_run(hop_host *h, const ir_node *n, const tp_val *arg, tp_val *result, tp_err *err)
{
    bool fake = false;
    if (ir_hop(n) == HOP_function)
        return run_function(n, arg, result, err);
    for (int i = 0; i < n->narg; i++)
        fake |= any_fake(&arg[i]);
    if (fake && n->val.kind == VAL_tensors) { /* nothing to decide by: the types are known */
        tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)MAX(n->val.n, 1));
        for (int i = 0; i < n->val.n; i++)
            ts[i] = n->val.ts[i] ? tensor_fake_of(n->val.ts[i]) : NULL;
        *result = vTs(ts, n->val.n);
        return true;
    }
    switch (ir_hop(n)) {
    case HOP_cond: return run_cond(h, n, arg, result, err);
    case HOP_while: return run_while(h, n, arg, result, err);
    case HOP_scan: return run_scan(h, n, arg, result, false, err);
    case HOP_map: return run_scan(h, n, arg, result, true, err);
    default: return err_set(err, ERR_runtime, "'%s' is not well formed", n->target);
    }
}
