/* checked.c - see checked.h. */
#include "run/checked.h"
#include "aot/aot.h"
#include "ir/text.h"
#include "sym/env.h"

typedef struct checked {
    run_program base;
    run_program *p;
    ir_graph *sig; /* placeholders and the environment of their symbols */
    symint *guard; /* what was assumed of the symbols */
    int nguard;
    int nsym;      /* symbols that inputs may tell, at most */
    bool *written; /* by input; NULL: none is */
} checked;

typedef struct bindings {
    sym_bind *at;
    int n;
} bindings;

static void bind_one(void *b_of, symint symbol, int64_t value)
{
    bindings *b = b_of;
    b->n = ir_bind_add(b->at, b->n, symbol, value);
}

static void values_print(strbuf *out, const bindings *b)
{
    for (int i = 0; i < b->n; i++) {
        strbuf_add(out, i ? ", " : " where ");
        sym_print(out, sym_of_expr(b->at[i].symbol));
        strbuf_addf(out, " = %lld", (long long)b->at[i].value);
    }
}

static bool refuse(const ir_node *n, const tp_val *v, const bindings *b, tp_err *err)
{
    strbuf want = { 0 }, got = { 0 }, where = { 0 };
    ir_type_print(&want, &n->val);
    ir_type_print(&got, v);
    values_print(&where, b);
    err_set(err, ERR_type, "input '%s': expected %s%s, but got %s", n->name, strbuf_str(&want),
            strbuf_str(&where), strbuf_str(&got));
    strbuf_free(&want);
    strbuf_free(&got);
    strbuf_free(&where);
    return false;
}

static bool is_value(symint want, int64_t got, const bindings *b)
{
    int64_t v = want;
    return !sym_is_expr(want) ? want == got : !sym_eval(want, b->at, b->n, &v) || v == got;
}

/* Sizes and strides; those of dimensions that are never stepped along mean nothing. */
static bool fits(const tp_val *type, const tp_val *v, const bindings *b)
{
    if (type->kind == VAL_int)
        return is_value(type->i, v->kind == VAL_bool ? v->b : v->i, b);
    if (type->kind != VAL_tensor)
        return true;
    const tp_tensor *t = type->t, *x = v->t;
    bool ok = tensor_device(t).kind == tensor_device(x).kind;
    for (int d = 0; ok && d < t->ndim; d++)
        ok = is_value(t->size[d], x->size[d], b) &&
             (x->size[d] == 1 || !x->numel || is_value(t->stride[d], x->stride[d], b));
    return ok;
}

/* What was declared of symbols and assumed while compiling. */
static bool symbols_hold(const checked *c, const bindings *b, tp_err *err)
{
    strbuf what = { 0 };
    bool ok = true;
    for (int i = 0; ok && i < b->n; i++) {
        int64_t lo, hi;
        symint s = sym_of_expr(b->at[i].symbol);
        sym_declared(s, &lo, &hi);
        ok = b->at[i].value >= lo && b->at[i].value <= hi;
        if (!ok) {
            sym_print(&what, s);
            strbuf_add(&what, " in ");
            sym_range_print(&what, lo, hi);
        }
    }
    for (int i = 0; ok && i < c->nguard; i++) {
        int64_t v;
        ok = !sym_eval(c->guard[i], b->at, b->n, &v) || v;
        if (!ok)
            sym_print(&what, c->guard[i]);
    }
    if (!ok) {
        strbuf where = { 0 };
        values_print(&where, b);
        err_set(err, ERR_type, "the graph was compiled for sizes with %s, which does not hold%s",
                strbuf_str(&what), strbuf_str(&where));
        strbuf_free(&where);
    }
    strbuf_free(&what);
    return ok;
}

/* From the first byte to behind the last one. */
static bool extent(const tp_tensor *t, uintptr_t *lo, uintptr_t *hi)
{
    int64_t last = 0;
    if (!t->numel || tensor_is_fake(t))
        return false;
    for (int d = 0; d < t->ndim; d++)
        last += (t->size[d] - 1) * t->stride[d];
    *lo = (uintptr_t)tensor_data(t);
    *hi = *lo + (uintptr_t)((last + 1) * (int64_t)dtype_size((dtype)t->dt));
    return true;
}

/* Memory that two inputs share shows a write to one in the other, so the graph must know of it, and where. */
static bool sharing_fits(const checked *c, const tp_val *in, int i, int k, tp_err *err)
{
    const ir_node *a = c->sig->inputs.at[i], *b = c->sig->inputs.at[k];
    if (in[i].kind != VAL_tensor || in[k].kind != VAL_tensor || (!c->written[i] && !c->written[k]))
        return true;
    const tp_tensor *ta = ir_type(a), *tb = ir_type(b), *xa = in[i].t, *xb = in[k].t;
    uintptr_t alo, ahi, blo, bhi;
    bool share = extent(xa, &alo, &ahi) && extent(xb, &blo, &bhi) && alo < bhi && blo < ahi;
    if (ta->storage != tb->storage)
        return !share ||
               err_set(err, ERR_type,
                       "inputs '%s' and '%s' share memory, which the graph writes and takes for two", a->name,
                       b->name);
    if (sym_is_expr(ta->offset) || sym_is_expr(tb->offset) || !xa->numel || !xb->numel)
        return true;
    intptr_t want = (intptr_t)(tb->offset * (int64_t)dtype_size((dtype)tb->dt) -
                               ta->offset * (int64_t)dtype_size((dtype)ta->dt));
    return (intptr_t)tensor_data(xb) - (intptr_t)tensor_data(xa) == want ||
           err_set(err, ERR_type,
                   "input '%s' must lie %lld bytes after input '%s', with which it shares memory", b->name,
                   (long long)want, a->name);
}

static bool inputs_fit(const checked *c, const tp_val *in, int nin, tp_err *err)
{
    sym_bind small[16];
    bindings b = { c->nsym <= (int)COUNT(small) ? small : mem_alloc(sizeof *b.at * (size_t)c->nsym), 0 };
    bool ok = ir_check_inputs(c->sig, in, nin, err);
    for (int pass = 0; ok && c->nsym && pass < IR_BIND_PASSES; pass++)
        for (int i = 0; i < nin; i++)
            ir_bind(&c->sig->inputs.at[i]->val, &in[i], pass, bind_one, &b);
    for (int i = 0; ok && i < nin; i++)
        ok = fits(&c->sig->inputs.at[i]->val, &in[i], &b) || refuse(c->sig->inputs.at[i], &in[i], &b, err);
    ok = ok && symbols_hold(c, &b, err);
    for (int i = 0; ok && c->written && i < nin; i++)
        for (int k = i + 1; ok && k < nin; k++)
            ok = sharing_fits(c, in, i, k, err);
    if (b.at != small)
        free(b.at);
    return ok;
}

static bool checked_call(run_program *p, op_ctx *cx, const tp_val *in, int nin, tp_val *out, int nout,
                         tp_err *err)
{
    const checked *c = (checked *)p;
    return inputs_fit(c, in, nin, err) && run_program_call(c->p, cx, in, nin, out, nout, err);
}

static void checked_free(run_program *p)
{
    checked *c = (checked *)p;
    run_program_free(c->p);
    ir_graph_free(c->sig);
    free(c->guard);
    free(c->written);
    free(c);
}

const ir_graph *checked_inputs(const run_program *p) { return ((const checked *)p)->sig; }

run_program *checked_new(run_program *p, const ir_graph *g)
{
    checked *c = mem_zalloc(sizeof *c);
    int n = (int)g->inputs.n;
    c->base = (run_program){ checked_call, checked_free };
    c->p = p;
    c->sig = ir_graph_new("signature");
    ir_share_env(c->sig, g);
    for (int i = 0; i < n; i++) {
        tp_val v = g->inputs.at[i]->val;
        if (v.kind == VAL_tensor)
            tensor_ref(v.t);
        ir_add_placeholder_val(c->sig, g->inputs.at[i]->name, g->inputs.at[i]->target, v);
        c->nsym += v.kind == VAL_tensor ? 2 * v.t->ndim + 1 : 1;
    }
    if (!g->env || !sym_env_n_symbols(g->env))
        c->nsym = 0;
    const sym_assumed *a = g->env ? sym_env_guards(g->env, &c->nguard) : NULL;
    c->guard = mem_zalloc(sizeof *c->guard * (size_t)(c->nguard + 1));
    for (int i = 0; i < c->nguard; i++)
        c->guard[i] = a[i].cond;
    c->written = aot_written_inputs(g);
    return &c->base;
}
