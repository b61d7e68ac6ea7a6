#include "debug/guarded.h"
#include "sym/env.h"

typedef VEC(sym_bind) binds;

static bool bound(const binds *b, symint symbol, int64_t *v) { return sym_eval(symbol, b->at, (int)b->n, v); }

/* A size or stride as compiled beside the one that is there: symbols are bound by the first that shows them. */
static bool fits(binds *b, symint want, int64_t got)
{
    int64_t v;
    if (!sym_is_expr(want))
        return want == got;
    if (bound(b, want, &v))
        return v == got;
    if (sym_is_symbol(want))
        vec_push(b, ((sym_bind){ sym_expr_of(want), got }));
    return true;
}

static bool miss(strbuf *why, const ir_node *p, const char *fmt, ...) TP_PRINTF(3, 4);
static bool miss(strbuf *why, const ir_node *p, const char *fmt, ...)
{
    va_list ap;
    strbuf_addf(why, GUARDED_TEXT ": %s ", p->target ? p->target : p->name);
    va_start(ap, fmt);
    strbuf_addv(why, fmt, ap);
    va_end(ap);
    for (const ir_use *u = p->uses; u; u = u->next) { /* where it is read */
        const ir_loc *l = ir_place(u->user);
        const char *code = l ? ir_loc_code(l) : NULL;
        if (!l || !l->file)
            continue;
        strbuf_addf(why, " (read at %s:%d%s%s)", l->file, l->line, code ? ": " : "", code ? code : "");
        break;
    }
    return false;
}

static bool tensor_fits(binds *b, const ir_node *p, const tp_tensor *want, const tp_tensor *got, strbuf *why)
{
    if (want->dt != got->dt)
        return miss(why, p, "is %s, the graph was compiled for %s", dtype_name((dtype)got->dt),
                    dtype_name((dtype)want->dt));
    if (want->ndim != got->ndim)
        return miss(why, p, "has %d dimensions, the graph was compiled for %d", got->ndim, want->ndim);
    for (int d = 0; d < want->ndim; d++)
        if (!fits(b, want->size[d], got->size[d])) {
            strbuf s = { 0 };
            sym_print(&s, want->size[d]);
            miss(why, p, "has size %lld in dimension %d, the graph was compiled for %s",
                 (long long)got->size[d], d, strbuf_str(&s));
            strbuf_free(&s);
            return false;
        }
    for (int d = 0; d < want->ndim; d++)
        if (got->size[d] > 1 && got->numel && !fits(b, want->stride[d], got->stride[d])) {
            strbuf s = { 0 };
            sym_print(&s, want->stride[d]);
            miss(why, p, "has strides %lld in dimension %d, the graph was compiled for %s",
                 (long long)got->stride[d], d, strbuf_str(&s));
            strbuf_free(&s);
            return false;
        }
    return true;
}

bool guarded(const ir_graph *g, const tp_val *in, int nin, strbuf *why)
{
    binds b = { 0 };
    bool ok = (int)g->inputs.n == nin;
    for (int i = 0; ok && i < nin; i++) {
        const ir_node *p = g->inputs.at[i];
        const tp_tensor *want = ir_type(p);
        if (want && in[i].kind == VAL_tensor && in[i].t)
            ok = tensor_fits(&b, p, want, in[i].t, why);
        else if (p->val.kind == VAL_int && in[i].kind == VAL_int && !fits(&b, p->val.i, in[i].i))
            ok = miss(why, p, "is %lld, and sizes say something else", (long long)in[i].i);
    }
    int n = 0;
    const sym_assumed *a = ok && g->env ? sym_env_guards(g->env, &n) : NULL;
    for (int i = 0; ok && i < n; i++) {
        int64_t v;
        if (!bound(&b, a[i].cond, &v) || v)
            continue;
        ok = false;
        strbuf_add(why, GUARDED_TEXT ": ");
        sym_print(why, a[i].cond);
        strbuf_add(why, " was assumed and does not hold for these sizes");
    }
    vec_free(&b);
    return ok;
}
