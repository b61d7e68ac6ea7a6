#include "debug/condition.h"
#include <math.h>

/* ---- the rule ---- */
typedef enum {
    RULE_at_least,
    RULE_at_most,
    RULE_is,
    RULE_rest_is,
    RULE_rest_not,
    RULE_rest_from,
    RULE_COUNT
} rule_kind;

static bool holds(rule_kind k, int64_t m, int64_t c, int64_t n)
{
    switch (k) {
    case RULE_at_least: return n >= c;
    case RULE_at_most: return n <= c;
    case RULE_is: return n == c;
    case RULE_rest_is: return n % m == c;
    case RULE_rest_not: return n % m != c;
    default: return n % m >= c;
    }
}

static bool fits(rule_kind k, int64_t m, int64_t c, int64_t least, const int64_t *n, const bool *fails,
                 int count)
{
    for (int i = 0; i < count; i++)
        if ((n[i] >= least && holds(k, m, c, n[i])) != fails[i])
            return false;
    return true;
}

static void rule_print(strbuf *b, rule_kind k, int64_t m, int64_t c, int64_t least)
{
    static const char *const text[] = { "n >= %lld", "n <= %lld", "n == %lld" }, *const rest[] = {
        "n %% %lld == %lld", "n %% %lld != %lld", "n %% %lld >= %lld"
    };
    if (k < RULE_rest_is)
        strbuf_addf(b, text[k], (long long)c);
    else
        strbuf_addf(b, rest[k - RULE_rest_is], (long long)m, (long long)c);
    if (least > 1)
        strbuf_addf(b, " and n >= %lld", (long long)least);
}

bool condition_rule(const int64_t *n, const bool *fails, int count, strbuf *out)
{
    int bad = 0;
    for (int i = 0; i < count; i++)
        bad += fails[i];
    if (!bad || bad == count)
        return false;
    for (int i = 0; i < count; i++)
        for (rule_kind k = RULE_at_least; k <= RULE_is; k++)
            if (fits(k, 1, n[i], 0, n, fails, count))
                return rule_print(out, k, 1, n[i], 0), true;
    for (int j = -1; j < count; j++) /* alone, then from some size on */
        for (int64_t m = 2; m <= 64; m *= 2)
            for (rule_kind k = RULE_rest_is; k < RULE_COUNT; k++)
                for (int64_t c = k == RULE_rest_from; c < m; c++)
                    if (fits(k, m, c, j < 0 ? 0 : n[j], n, fails, count))
                        return rule_print(out, k, m, c, j < 0 ? 0 : n[j]), true;
    return false;
}

/* ---- other sizes ---- */
enum { MOST_ELEMENTS = 1 << 18 };
typedef struct resize {
    symint from, to;
    arena a;
} resize;

static bool resize_args(void *data, const ir_node *n, tp_val *arg)
{
    resize *z = data;
    for (int i = 0; i < n->narg; i++)
        if (arg[i].kind == VAL_ints) {
            symint *v = arena_dup(&z->a, arg[i].ints, sizeof *v * (size_t)arg[i].n);
            for (int k = 0; k < arg[i].n; k++)
                v[k] = v[k] == z->from ? z->to : v[k];
            arg[i].ints = v;
        }
    return true;
}

/* t with its dimensions of size `from` as long as `to`: its elements again and again. */
static tp_tensor *stretched(const tp_tensor *t, symint from, symint to)
{
    symint size[TP_MAX_DIMS];
    for (int d = 0; d < t->ndim; d++)
        size[d] = t->size[d] == from ? to : t->size[d];
    if (shape_numel(t->ndim, size) > MOST_ELEMENTS) /* the same size in many dimensions */
        return NULL;
    tp_tensor *c = tensor_new((dtype)t->dt, t->ndim, size, NULL);
    size_t es = dtype_size((dtype)t->dt);
    for (int64_t k = 0; c && k < c->numel; k++) {
        int64_t rest = k, old = 0, step = 1;
        for (int d = t->ndim - 1; d >= 0; d--) {
            int64_t at = rest % size[d];
            rest /= size[d];
            old += at % t->size[d] * step;
            step *= t->size[d];
        }
        memcpy(tensor_elem(c, k), tensor_elem(t, old), es);
    }
    return c;
}

static repro *with_size(const repro *r, symint from, symint to)
{
    resize z = { .from = from, .to = to };
    tp_tensor **type = mem_zalloc(sizeof *type * (size_t)MAX(r->nin, 1));
    tp_val *in = mem_zalloc(sizeof *in * (size_t)MAX(r->nin, 1));
    bool ok = true;
    for (int i = 0; i < r->nin; i++) {
        in[i] = r->in[i];
        if (in[i].kind != VAL_tensor)
            continue;
        ok = ok && !tensor_is_fake(in[i].t) && in[i].t->numel && (type[i] = stretched(in[i].t, from, to));
        in[i] = vT(type[i]);
    }
    ir_graph *g = ok ? repro_retype(r->g, type, resize_args, &z, &(tp_err){ 0 }) : NULL;
    repro *c = NULL;
    if (g) {
        c = repro_new(g, in, r->nin, r->backend);
        memcpy(c->needs_grad, r->needs_grad, (size_t)r->nin);
        c->inner = r->inner;
        c->accuracy = r->accuracy;
        c->forward_only = r->forward_only;
        c->no_fp64 = r->no_fp64;
        c->seed = r->seed;
        c->offset = r->offset;
        c->acc = r->acc;
        c->options = r->options ? mem_strdup(r->options) : NULL;
    }
    ir_graph_free(g);
    for (int i = 0; i < r->nin; i++)
        tensor_unref(type[i]);
    free(type);
    free(in);
    arena_free(&z.a);
    return c;
}

/* ---- the search ---- */
static bool is_symbolic(const repro *r)
{
    for (size_t i = 0; i < r->g->inputs.n; i++) {
        const tp_tensor *t = ir_type(r->g->inputs.at[i]);
        for (int d = 0; t && d < t->ndim; d++)
            if (sym_is_expr(t->size[d]))
                return true;
    }
    return false;
}

static const int64_t tried[] = { 1,  2,  3,  4,  5,  6,  7,  8,  9,  12, 14, 15, 16, 17,  18,  19,  23,
                                 24, 25, 30, 31, 32, 33, 47, 48, 49, 63, 64, 65, 95, 100, 127, 128, 129 };

static bool rule_for(const repro *r, symint size, const signature *want, const trial_limits *l, strbuf *out,
                     tp_err *err)
{
    repro *c[COUNT(tried)];
    signature got[COUNT(tried)];
    int64_t n[COUNT(tried)];
    bool fails[COUNT(tried)];
    int count = 0;
    for (size_t i = 0; i < COUNT(tried) && !(l->interrupted && l->interrupted(l->data)); i++) {
        c[count] = with_size(r, size, tried[i]);
        n[count] = tried[i];
        count += c[count] != NULL;
    }
    bool ok = count > 8 && trial_run((const repro *const *)c, count, l, got, err);
    int m = 0;
    for (int i = 0; i < count; i++) {
        if (ok && got[i].kind != SIG_cannot_run) {
            n[m] = n[i];
            fails[m++] = sig_equal(&got[i], want);
        }
        repro_free(c[i]);
    }
    if (!ok || !condition_rule(n, fails, m, out))
        return false;
    strbuf_addf(out, ", where n is the size %lld of the inputs", (long long)size);
    return true;
}

bool condition_find(const repro *r, const signature *want, const trial_limits *l, strbuf *out, tp_err *err)
{
    symint seen[8];
    int k = 0;
    if (want->kind == SIG_timeout || is_symbolic(r))
        return false;
    for (int i = 0; i < r->nin; i++)
        for (int d = 0; r->in[i].kind == VAL_tensor && d < r->in[i].t->ndim; d++) {
            symint v = r->in[i].t->size[d];
            bool known = false;
            for (int q = 0; q < k; q++)
                known |= seen[q] == v;
            if (known || k == (int)COUNT(seen))
                continue;
            seen[k++] = v;
            if (rule_for(r, v, want, l, out, err))
                return true;
            if (err_is_set(err))
                return false;
        }
    return false;
}

/* ---- other values, types and layouts ---- */
typedef double value_fn(double v);
static double not_below(double v) { return fabs(v); }
static double not_above(double v) { return -fabs(v); }
static double tamed(double v) { return isfinite(v) ? v : 1; }
static double not_zero(double v) { return v == 0 ? 1 : v; }
static double moderate(double v) { return fabs(v) > 8 ? copysign(8, v) : v; }
static const struct {
    value_fn *fn;
    const char *without; /* what the inputs do not have any more */
} ways[] = { { not_below, "an element below 0" },  { not_above, "an element above 0" },
             { tamed, "an infinity or a NaN" },    { rint, "a fraction" },
             { not_zero, "an element that is 0" }, { moderate, "an element beyond 8" } };
enum { WAY_packed = COUNT(ways), WAY_f64, WAY_f32, WAY_COUNT };
static const char *const needs[] = { [WAY_packed] = "an input that is not contiguous",
                                     [WAY_f64] = "another type than float64",
                                     [WAY_f32] = "another type than float32" };

static bool other_type(void *data, const ir_node *n, tp_val *arg) /* dtype arguments follow */
{
    for (int i = 0; i < n->narg; i++)
        if (arg[i].kind == VAL_dtype && dtype_is_float((dtype)arg[i].i))
            arg[i].i = *(const dtype *)data;
    return true;
}

/* r with other values, or with its inputs one element behind the other; NULL where that changes nothing. */
static repro *with_way(const repro *r, size_t way)
{
    repro *c = repro_copy(r);
    bool changed = false;
    for (int i = 0; i < c->nin; i++) {
        tp_tensor *t = c->in[i].kind == VAL_tensor ? c->in[i].t : NULL;
        if (!t || tensor_is_fake(t) || (way < WAY_packed && !dtype_is_float((dtype)t->dt)))
            continue;
        for (int64_t k = 0; way < WAY_packed && k < t->numel; k++) {
            double v = elem_get_f((dtype)t->dt, tensor_elem(t, k)), to = ways[way].fn(v);
            changed |= memcmp(&v, &to, sizeof v) && !(v == 0 && to == 0);
            elem_set_f((dtype)t->dt, tensor_elem(t, k), to);
        }
    }
    if (way >= WAY_packed) {
        dtype to = way == WAY_f64 ? DT_f64 : DT_f32;
        tp_tensor **type = mem_zalloc(sizeof *type * (size_t)MAX(r->nin, 1));
        for (int i = 0; i < c->nin; i++) {
            tp_tensor *t = c->in[i].kind == VAL_tensor ? c->in[i].t : NULL;
            if (!t)
                continue;
            bool flt = way != WAY_packed && dtype_is_float((dtype)t->dt);
            type[i] = flt ? tensor_new_strided(to, t->ndim, t->size,
                                               tensor_overlaps_itself(t) ? NULL : t->stride, DEVICE_CPU, NULL)
                          : tensor_new((dtype)t->dt, t->ndim, t->size, NULL);
            changed |= way == WAY_packed ? !tensor_is_contiguous(t) : flt && t->dt != to;
            if (!type[i] || tensor_is_fake(t) || !tensor_copy(type[i], t, NULL)) {
                changed = false;
                break;
            }
        }
        ir_graph *g = changed ? repro_retype(r->g, type, way == WAY_packed ? NULL : other_type, &to,
                                             &(tp_err){ 0 })
                              : NULL;
        changed = g != NULL;
        for (int i = 0; i < c->nin; i++) {
            if (changed && type[i]) {
                tensor_unref(c->in[i].t);
                c->in[i].t = tensor_ref(type[i]);
            }
            tensor_unref(type[i]);
        }
        if (g) {
            ir_graph_free(c->g);
            c->g = g;
        }
        free(type);
    }
    if (changed)
        return c;
    repro_free(c);
    return NULL;
}

bool condition_needs(const repro *r, const signature *want, const trial_limits *l, strbuf *out, tp_err *err)
{
    repro *c[WAY_COUNT];
    size_t which[WAY_COUNT];
    signature got[WAY_COUNT];
    int n = 0;
    if (want->kind == SIG_timeout || is_symbolic(r))
        return false;
    for (size_t i = 0; i < WAY_COUNT; i++) {
        c[n] = with_way(r, i);
        which[n] = i;
        n += c[n] != NULL;
    }
    bool ok = n && trial_run((const repro *const *)c, n, l, got, err);
    for (int i = 0; i < n; i++) {
        if (ok && got[i].kind == SIG_passes)
            strbuf_adds(out, out->n ? ", " : "",
                        which[i] >= WAY_packed ? needs[which[i]] : ways[which[i]].without, NULL);
        repro_free(c[i]);
    }
    return ok && out->n;
}
