#include "debug/audit.h"
#include "base/clock.h"
#include "base/envvars.h"
#include "base/map.h"
#include "base/profile.h"
#include "compile/backend.h"
#include "debug/chance.h"
#include "debug/trial.h"
#include "debug/truth.h"
#include "grad/tape.h"
#include "ops/host.h"
#include "ops/jiggle.h"
#include "ops/provider.h"
#include <math.h>
#include <stdio.h>

enum { MOST_ELEMENTS = 1 << 20, DIRECTIONS = 3 };

/* One rounding of numbers of a type, relative to them. */
static double rounding(dtype dt)
{
    return dt == DT_f64 || dt == DT_c128 ? 0x1p-52
           : dt == DT_f16                ? 0x1p-11
           : dt == DT_bf16               ? 0x1p-8
                                         : 0x1p-23;
}
/* How many of them a result may be off: sums of wide types are taken in another order. A kernel rounds to a narrow type once, at its
 * end; what consists of several does it on the way. */
static double allowance(dtype dt, bool composite)
{
    bool narrow = dt == DT_f16 || dt == DT_bf16;
    return dt == DT_f64 || dt == DT_c128 ? 0x1p16 : !narrow ? 256 : composite ? 32 : 3;
}
/* Numbers with a rounding: floats, and complex ones as two. */
static bool is_measured(const tp_tensor *t)
{
    return dtype_is_float((dtype)t->dt) || t->dt == DT_c64 || t->dt == DT_c128;
}
static int parts_of(const tp_tensor *t) { return dtype_is_complex((dtype)t->dt) ? 2 : 1; }
static int64_t count_of(const tp_tensor *t) { return t->numel * parts_of(t); }
static bool is_widest(const tp_tensor *t) { return t->dt == DT_f64 || t->dt == DT_c128; }

typedef struct auditor {
    const repro *r;
    const ir_node *now;
    const ir_loc *line; /* of a call that is in no graph */
    strbuf *out;
    map seen; /* operator and line */
    int found;
    bool knew; /* the last operator's values were held against a formula */
    int round; /* how often the graph was audited before: then values alone, on other inputs */
    bool sure; /* nothing but formulas is asked: parts may have several right answers (singular vectors) */
    uint64_t rng;
} auditor;
static _Thread_local auditor *me; /* calls get no data pointer */

static double draw(auditor *a) /* from -1 to 1 */
{
    a->rng = a->rng * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(int64_t)(a->rng >> 11) / 0x1p52 - 1;
}

/* ---- arguments, copied in float64 or as they are ---- */
typedef struct wide {
    tp_val arg[OP_MAX_PARAMS];
    VEC(tp_tensor *) t; /* the floats among them, owned */
    int n;
} wide;

static tp_tensor *widened(wide *w, tp_tensor *t, bool wider)
{
    if (!t || !is_measured(t) || (!wider && !tensor_is_dense(t)))
        return t;
    tp_tensor *c = wider ? tensor_new(parts_of(t) == 2 ? DT_c128 : DT_f64, t->ndim, t->size, NULL)
                         : tensor_new_strided((dtype)t->dt, t->ndim, t->size, t->stride, tensor_device(t),
                                              NULL);
    if (c && tensor_copy(c, t, NULL))
        vec_push(&w->t, c);
    return c;
}

static void wide_free(wide *w)
{
    for (int i = 0; i < w->n; i++)
        if (w->arg[i].kind == VAL_tensors)
            free(w->arg[i].ts);
    for (size_t i = 0; i < w->t.n; i++)
        tensor_unref(w->t.at[i]);
    vec_free(&w->t);
}

static bool copy_of(wide *w, const op_row *row, const tp_val *arg, bool wider)
{
    bool ok = true;
    *w = (wide){ .n = row->schema.nparam };
    for (int i = 0; i < w->n; i++) {
        w->arg[i] = arg[i];
        if (arg[i].kind == VAL_tensor && arg[i].t)
            ok &= (w->arg[i].t = widened(w, arg[i].t, wider)) != NULL;
        else if (wider && arg[i].kind == VAL_dtype && dtype_is_float((dtype)arg[i].i))
            w->arg[i].i = DT_f64;
        else if (wider && arg[i].kind == VAL_dtype && arg[i].i == DT_c64)
            w->arg[i].i = DT_c128;
        else if (arg[i].kind == VAL_tensors) {
            w->arg[i].ts = mem_zalloc(sizeof *w->arg[i].ts * (size_t)MAX(arg[i].n, 1));
            for (int k = 0; k < arg[i].n; k++)
                ok &= !arg[i].ts[k] || (w->arg[i].ts[k] = widened(w, arg[i].ts[k], wider));
        }
    }
    return ok;
}
static bool wide_of(wide *w, const op_row *row, const tp_val *arg)
{
    return copy_of(w, row, arg, true) && w->t.n;
}

/* ---- results, and what was written to arguments ---- */
enum { WRITTEN = 4 };
typedef struct outs {
    tp_val v[OP_MAX_RETURNS];
    tp_tensor *written[WRITTEN]; /* owned */
    int nwritten;
} outs;
static void outs_free(outs *o)
{
    for (int i = 0; i < OP_MAX_RETURNS; i++)
        val_clear(&o->v[i]);
    for (int i = 0; i < o->nwritten; i++)
        tensor_unref(o->written[i]);
}
static tp_tensor *outs_at(const outs *o, int i) /* the i-th result that is measured, or NULL */
{
    for (int k = 0; k < OP_MAX_RETURNS; k++) {
        const tp_val *v = &o->v[k];
        int n = v->kind == VAL_tensors ? v->n : v->kind == VAL_tensor;
        for (int q = 0; q < n; q++) {
            tp_tensor *t = v->kind == VAL_tensors ? v->ts[q] : v->t;
            if (t && is_measured(t) && i-- == 0)
                return t;
        }
    }
    return i < o->nwritten ? o->written[i] : NULL;
}
static bool is_float_tensor(const tp_val *v) { return v->kind == VAL_tensor && v->t && is_measured(v->t); }
/* Number k of count_of(t) */
static double at(const tp_tensor *t, int64_t k)
{
    double v[2];
    if (parts_of(t) == 1)
        return elem_get_f((dtype)t->dt, tensor_elem(t, k));
    elem_get_c((dtype)t->dt, tensor_elem(t, k / 2), v);
    return v[k % 2];
}
static double *slot(tp_tensor *t, int64_t k) /* of the widest */
{
    return (double *)tensor_elem(t, k / parts_of(t)) + k % parts_of(t);
}
static bool any_complex(const op_row *row, const tp_val *arg)
{
    for (int i = 0; i < row->schema.nparam; i++)
        for (int k = 0; k < (arg[i].kind == VAL_tensors ? arg[i].n : arg[i].kind == VAL_tensor); k++) {
            const tp_tensor *t = arg[i].kind == VAL_tensors ? arg[i].ts[k] : arg[i].t;
            if (t && dtype_is_complex((dtype)t->dt))
                return true;
        }
    return false;
}

/* It takes a while, and is no hang. */
static void goes_on(op_id op)
{
    if (me)
        crumb_drop("audit", op_row_of(op)->name);
}

/* apart: products go another way than those of the program, which may be what is wrong. */
static bool plain_call(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, bool apart, outs *o)
{
    op_ctx c = *cx;
    *o = (outs){ 0 };
    c.rec = NULL;
    c.grad_mode = false;
    goes_on(op);
    uint32_t version[OP_MAX_PARAMS] = { 0 };
    int n = op_row_of(op)->schema.nparam;
    for (int i = 0; i < n; i++)
        if (is_float_tensor(&arg[i]))
            version[i] = tensor_version(arg[i].t);
    bool was = ops_provider_skip(apart), ok = ops_call(&c, op, v, arg, o->v, NULL);
    ops_provider_skip(was);
    for (int i = 0; ok && i < n && o->nwritten < WRITTEN; i++)
        if (is_float_tensor(&arg[i]) && tensor_version(arg[i].t) != version[i])
            o->written[o->nwritten++] = tensor_ref(arg[i].t);
    return ok;
}

static void say(auditor *a, const char *what, const char *op)
{
    const ir_loc *l = a->now ? ir_place(a->now) : a->line;
    const char *code = l ? ir_loc_code(l) : NULL;
    strbuf_addf(a->out, "%s|%s|%s:%d%s%s|", what, op, l && l->file ? l->file : "?", l ? l->line : 0,
                code ? ": " : "", code ? code : "");
    a->found++;
}

/* ---- values ---- */
/* What the call means: by the C library where that is known of a result (bits of *truth), else by its own kernel in float64. */
static bool in_float64(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, outs *o, uint32_t *truth)
{
    const op_row *row = op_row_of(op);
    wide before = { 0 };
    *truth = 0;
    bool ok = copy_of(&before, row, arg, true) && plain_call(cx, op, v, arg, true, o);
    for (int i = 0; ok && outs_at(o, i) && i < 8; i++) {
        tp_tensor *was = outs_at(o, i);
        bool real = was->dt == DT_f64 && !any_complex(row, before.arg); /* formulas of real numbers */
        tp_tensor *t = real ? truth_of(op, before.arg, i, was) : truth_complex(op, before.arg, i, was);
        if (!t)
            continue;
        *truth |= 1u << i;
        for (int64_t k = 0; k < count_of(t); k++)
            *slot(was, k) = at(t, k);
        tensor_unref(t);
    }
    wide_free(&before);
    return ok;
}

static bool audit_value(auditor *a, op_ctx *cx, op_id op, op_variant v, const tp_val *arg, const wide *w);
static bool fits(const op_row *row, op_variant v, const tp_val *arg);
static bool audit_whole(auditor *a, op_ctx *cx, op_id op, const tp_val *arg);

static bool is_composite(const op_row *row) { return !strcmp(row->eager_name, "none"); }
static bool parts_wrong(auditor *a, op_ctx *cx, const op_row *row, const tp_val *arg);
static bool parts_wrong_surely(auditor *a, op_ctx *cx, const op_row *row, const tp_val *arg)
{
    bool was = a->sure;
    a->sure = true;
    bool wrong = parts_wrong(a, cx, row, arg);
    a->sure = was;
    return wrong;
}

static bool part_call(bld *b, op_id op, op_variant v, const tp_val *arg, tp_val *out)
{
    wide w = { 0 };
    const op_row *row = op_row_of(op);
    if (fits(row, v, arg) && !(row->flags & OPF_VIEW) && audit_whole(me, b->cx, op, arg) &&
        wide_of(&w, row, arg))
        audit_value(me, b->cx, op, v, arg, &w);
    if (w.n && is_composite(row) && !me->knew)
        parts_wrong_surely(me, b->cx, row, arg);
    wide_free(&w);
    return ops_call(b->cx, op, v, arg, out, b->err);
}

/* What a composite is made of: is a part of it wrong already? */
static bool parts_wrong(auditor *a, op_ctx *cx, const op_row *row, const tp_val *arg)
{
    wide own = { 0 };
    tp_val got[OP_MAX_RETURNS] = { 0 };
    op_ctx c = *cx;
    tp_err err = { 0 };
    bld b;
    int before = a->found;
    c.rec = NULL;
    c.grad_mode = false;
    bld_init(&b, &c, &err);
    b.call = part_call;
    bool ok = copy_of(&own, row, arg, false) && op_decompose(row, &b, own.arg, got);
    bld_end(&b);
    for (int i = 0; ok && i < row->schema.nret; i++)
        val_clear(&got[i]);
    wide_free(&own);
    err_clear(&err);
    return a->found != before;
}

/* The finest rounding among the operands; kernels compute in float32 at least. */
static double rounding_of(const op_row *row, const tp_val *arg)
{
    double least = is_composite(row) ? 1 : rounding(DT_f32);
    for (int i = 0; i < row->schema.nparam; i++)
        for (int k = 0; k < (arg[i].kind == VAL_tensors ? arg[i].n : arg[i].kind == VAL_tensor); k++) {
            const tp_tensor *t = arg[i].kind == VAL_tensors ? arg[i].ts[k] : arg[i].t;
            if (t && is_measured(t))
                least = fmin(least, rounding((dtype)t->dt));
        }
    return least < 1 ? least : rounding(DT_f32);
}

/* Half the distance between numbers of a type at v: farther off, what is only converted is not rounded to the nearest. */
static double half_step(dtype dt, double v)
{
    static const struct {
        int digits, least;
    } of[DT_COUNT] = { [DT_f16] = { 11, -13 }, [DT_bf16] = { 8, -125 }, [DT_f32] = { 24, -125 } };
    int e;
    frexp(v, &e);
    return of[dt].digits ? ldexp(0.5000001, MAX(e, of[dt].least) - of[dt].digits) : 0;
}

/* A product of whole numbers so small that no sum of them is rounded: what it gives is the number nearest to the truth, of two as near
 * the even one. */
static bool is_exact(const wide *w)
{
    for (size_t i = 0; i < w->t.n; i++)
        for (int64_t k = 0; k < count_of(w->t.at[i]); k++) {
            double v = at(w->t.at[i], k);
            if (v != rint(v) || fabs(v) > 64)
                return false;
        }
    return true;
}
static bool is_nearest(dtype dt, double have, double truth)
{
    uint64_t room = 0;
    elem_set_f(dt, &room, truth);
    return fabs(truth) >= 0x1p24 || have == elem_get_f(dt, &room);
}

/* How far results move when every input moves by one rounding: an error of that kind is no fault. */
static bool audit_value(auditor *a, op_ctx *cx, op_id op, op_variant v, const tp_val *arg, const wide *w)
{
    outs low = { 0 }, high = { 0 }, moved = { 0 };
    wide near = { 0 }, own = { 0 };
    const op_row *row = op_row_of(op);
    uint32_t known = 0;
    unsigned asked = ops_provider_asked();
    double eps = rounding_of(row, arg);
    bool ok = true, made = copy_of(&own, row, arg, false) && plain_call(cx, op, v, own.arg, false, &low);
    bool product = ops_provider_asked() != asked;
    made = made && wide_of(&near, row, arg) && in_float64(cx, op, v, w->arg, &high, &known);
    for (size_t i = 0; made && i < near.t.n; i++)
        for (int64_t k = 0; k < count_of(near.t.at[i]); k++)
            *slot(near.t.at[i], k) *= 1 + eps * draw(a);
    made = made && in_float64(cx, op, v, near.arg, &moved, &known);
    goes_on(op);
    a->knew = known != 0;
    bool whole = made && product && !is_composite(row) && is_exact(w);
    for (int i = 0; made && ok; i++) {
        bool truth = i < 8 && (known >> i & 1);
        goes_on(op);
        const tp_tensor *x = outs_at(&low, i), *y = outs_at(&high, i), *z = outs_at(&moved, i);
        if (!x || !y || !z)
            break;
        if (((is_widest(x) || a->sure || truth_is_free(op, i)) && !truth) || !tensor_same_size(x, y) ||
            !tensor_same_size(x, z) || parts_of(x) != parts_of(y))
            continue;
        double scale = 0, off = 0, shift = 0, worst[2] = { 0 }, most = x->dt == DT_f16 ? 6e4 : 1e37;
        bool moves = truth && truth_moves(op), exact = whole && dtype_size((dtype)x->dt) == 2;
        for (int64_t k = 0; k < count_of(x); k++) {
            double p = at(x, k), q = at(y, k), s = at(z, k);
            if (truth && isnan(p) != isnan(q) && isnan(s) == isnan(q)) {
                off = INFINITY, worst[0] = p, worst[1] = q;
                break;
            }
            /* a function of single elements may have no value beside this one: a power of a negative number */
            bool edge = truth && (row->flags & OPF_PW) && !isfinite(s);
            if (!isfinite(p) || !isfinite(q) || (!isfinite(s) && !edge) || fabs(q) > most)
                continue;
            scale = fmax(scale, fabs(q));
            shift = edge ? shift : fmax(shift, fabs(s - q));
            if (fabs(p - q) > off)
                off = fabs(p - q), worst[0] = p, worst[1] = q;
            if ((moves && fabs(p - q) > half_step((dtype)x->dt, q)) ||
                (exact && q == rint(q) && !is_nearest((dtype)x->dt, p, q))) {
                off = INFINITY, worst[0] = p, worst[1] = q;
                break;
            }
        }
        bool composite = is_composite(row);
        double one = rounding((dtype)x->dt) * scale;
        /* more than one rounding of a narrow type: it may be made on the way, or a part is wrong */
        if (composite && off > allowance((dtype)x->dt, false) * one + 1e-37 && parts_wrong(a, cx, row, arg)) {
            ok = false;
            break;
        }
        if (off > 64 * shift + allowance((dtype)x->dt, composite) * one + 1e-37) {
            ok = false;
            say(a,
                !strcmp(row->eager_name, "lowered") ? "lowered"
                : truth && composite                ? "decomposed"
                : product                           ? "product"
                                                    : "value",
                row->name);
            strbuf_addf(a->out, "eager gives %.9g where %s gives %.9g\n", worst[0],
                        truth ? "the C library" : "float64", worst[1]);
        }
    }
    wide_free(&near);
    wide_free(&own);
    outs_free(&low);
    outs_free(&high);
    outs_free(&moved);
    return ok;
}

/* Where the fault of a row lies whose values are known to be wrong. */
static const char *kind_of(const op_row *row)
{
    return !strcmp(row->eager_name, "lowered") ? "lowered"
           : !strcmp(row->eager_name, "none")  ? "decomposed"
                                               : "value";
}

/* Results that are integers or bools, exactly. Beyond what float64 and 32 bits hold nothing is said. */
static bool audit_whole(auditor *a, op_ctx *cx, op_id op, const tp_val *arg)
{
    const op_row *row = op_row_of(op);
    wide own = { 0 };
    outs o = { 0 };
    bool ok = true, made = copy_of(&own, row, arg, false) && plain_call(cx, op, OPV_fn, own.arg, false, &o);
    dtype want = made && o.v[0].kind == VAL_tensor && o.v[0].t ? truth_dtype(op, own.arg) : DT_none;
    if (want != DT_none && (dtype)o.v[0].t->dt != want) {
        ok = false;
        say(a, kind_of(row), row->name);
        strbuf_addf(a->out, "the result is %s, where operands of these types give %s\n",
                    dtype_rows[o.v[0].t->dt].pname, dtype_rows[want].pname);
    }
    for (int i = 0; made && ok && i < OP_MAX_RETURNS; i++) {
        const tp_tensor *x = o.v[i].kind == VAL_tensor ? o.v[i].t : NULL;
        bool whole = x && (x->dt == DT_bool || dtype_is_int((dtype)x->dt));
        tp_tensor *t = whole ? truth_whole(op, arg, i, x) : NULL;
        for (int64_t k = 0; t && k < x->numel && ok; k++) {
            double p = at(x, k), q = at(t, k);
            if (!isfinite(q) || fabs(q) > (dtype_size((dtype)x->dt) >= 4 ? 0x1p31 - 1 : 127) || p == q)
                continue;
            ok = false;
            if (is_composite(row) && parts_wrong(a, cx, row, arg))
                break;
            say(a, kind_of(row), row->name);
            strbuf_addf(a->out, "eager gives %.0f where the C library gives %.0f\n", p, q);
        }
        tensor_unref(t);
    }
    wide_free(&own);
    outs_free(&o);
    return ok;
}

/* Rows that make floats of numbers alone. */
static bool audit_made(auditor *a, op_ctx *cx, op_id op, const tp_val *arg)
{
    const op_row *row = op_row_of(op);
    outs o = { 0 };
    bool ok = true, made = plain_call(cx, op, OPV_fn, arg, false, &o);
    const tp_tensor *x = made ? outs_at(&o, 0) : NULL;
    tp_tensor *t = x && parts_of(x) == 1 ? truth_of(op, arg, 0, x) : NULL;
    double scale = 0, off = 0, worst[2] = { 0 };
    for (int64_t k = 0; t && k < t->numel; k++) {
        double p = at(x, k), q = at(t, k);
        if (isnan(q) || fabs(q) > (x->dt == DT_f16 ? 6e4 : 1e37))
            continue;
        scale = fmax(scale, fabs(q));
        if (!(fabs(p - q) <= off))
            off = isnan(p) ? INFINITY : fabs(p - q), worst[0] = p, worst[1] = q;
    }
    dtype dt = t ? (dtype)x->dt : DT_f32;
    if (off > allowance(dt, true) * rounding(dt) * scale + 1e-37) {
        ok = false;
        if (!is_composite(row) || !parts_wrong(a, cx, row, arg)) {
            say(a, kind_of(row), row->name);
            strbuf_addf(a->out, "eager gives %.9g where the C library gives %.9g\n", worst[0], worst[1]);
        }
    }
    tensor_unref(t);
    outs_free(&o);
    return ok;
}

/* ---- derivatives ---- */
typedef struct slope {
    auditor *a;
    op_ctx *cx;
    op_id op;
    op_variant v;
    wide *w;
    tp_tensor *x; /* the argument that moves */
    double *dir;  /* where to */
    double *base; /* from where */
    const double *weight;
    tp_err err; /* why the rule gave nothing */
    bool first; /* of the results: the others are statistics, which have no derivative */
} slope;

/* The weighted sum of all results, at base + h dir. */
static bool sum_at(slope *s, double h, double *out)
{
    outs o = { 0 };
    goes_on(s->op);
    for (int64_t k = 0; k < count_of(s->x); k++)
        *slot(s->x, k) = s->base[k] + h * s->dir[k];
    bool ok = plain_call(s->cx, s->op, s->v, s->w->arg, true, &o);
    double sum = 0;
    int64_t n = 0;
    goes_on(s->op);
    for (int i = 0; ok && outs_at(&o, i) && !(i && s->first); i++)
        for (const tp_tensor *t = outs_at(&o, i); t; t = NULL)
            for (int64_t k = 0; k < count_of(t); k++)
                sum += at(t, k) * s->weight[n++ & 1023];
    outs_free(&o);
    *out = sum;
    return ok && isfinite(sum);
}

/* The rule's gradient of that sum, by element of x, written so that it has a derivative itself (again) or not. NULL: it has none. */
static tp_tensor *by_rule(slope *s, bool again)
{
    op_ctx c = *s->cx;
    outs o = { 0 };
    tp_tensor *root[16], *dy[16], *g = NULL;
    int n = 0;
    int64_t at_weight = 0;
    c.rec = NULL;
    c.grad_mode = true;
    for (int64_t k = 0; k < count_of(s->x); k++)
        *slot(s->x, k) = s->base[k];
    bool ok = grad_set_requires_grad(&c, s->x, true, NULL) &&
              grad_call(&c, s->op, s->v, s->w->arg, o.v, NULL);
    for (int i = 0; ok && outs_at(&o, i) && n < (int)COUNT(root) && !(i && s->first); i++) {
        tp_tensor *t = outs_at(&o, i),
                  *d = tensor_new(parts_of(t) == 2 ? DT_c128 : DT_f64, t->ndim, t->size, NULL);
        for (int64_t k = 0; d && k < count_of(t); k++)
            *slot(d, k) = s->weight[at_weight++ & 1023];
        if (d && grad_requires_grad(t) && is_widest(t))
            root[n] = t, dy[n++] = d;
        else
            tensor_unref(d);
    }
    err_clear(&s->err);
    if (ok && n &&
        grad_backward(
            &c, root, n, dy,
            &(grad_options){
                .inputs = &s->x, .ninput = 1, .result = &g, .allow_unused = true, .create_graph = again },
            &s->err) &&
        g && (g->dt != s->x->dt || !tensor_same_size(g, s->x))) {
        tensor_unref(g);
        g = NULL;
    }
    for (int i = 0; i < n; i++)
        tensor_unref(dy[i]);
    outs_free(&o);
    grad_set_requires_grad(&c, s->x, false, NULL);
    return g;
}

/* 1: rule and differences disagree, 2: the rule gives no number, 0: they agree, -1: this point says nothing (a kink, an infinity). */
static int one_direction(slope *s, double *rule, double *diff)
{
    double top = 0, f0, fp, fm, fp2, fm2, all = 0;
    for (int64_t k = 0; k < count_of(s->x); k++)
        top = fmax(top, fabs(s->base[k]));
    double h = 1e-5 * fmax(top, 1e-3);
    if (!sum_at(s, 0, &f0) || !sum_at(s, h, &fp) || !sum_at(s, -h, &fm) || !sum_at(s, h / 2, &fp2) ||
        !sum_at(s, -h / 2, &fm2))
        return -1;
    double wide_ = (fp - fm) / (2 * h), close = (fp2 - fm2) / h, right = (fp - f0) / h, left = (f0 - fm) / h,
           size = fabs(right) + fabs(left) + fabs(f0) * 1e-9 / h;
    if (fabs(wide_ - close) > 1e-4 * size + 1e-10 || fabs(right - left) > 1e-3 * size + 1e-10)
        return -1;
    goes_on(s->op);
    tp_tensor *g = by_rule(s, false);
    goes_on(s->op);
    if (!g)
        return -1;
    *rule = 0;
    for (int64_t k = 0; k < count_of(g); k++) {
        *rule += at(g, k) * s->dir[k];
        all += fabs(at(g, k) * s->dir[k]);
    }
    tensor_unref(g);
    *diff = close;
    if (isnan(*rule))
        return 2;
    return isfinite(*rule) && fabs(*rule - close) > 1e-4 * (fabs(close) + 1e-3 * all) +
                                                        4 * fabs(wide_ - close) + 1e-7 * size + 1e-10;
}

/* Is the gradient another one when it is made so that it has a derivative itself? */
static bool forms_differ(slope *s, double *again, double *plain)
{
    tp_tensor *g = by_rule(s, false), *h = by_rule(s, true);
    double all = 0, off = 0;
    goes_on(s->op);
    *plain = *again = 0;
    for (int64_t k = 0; g && h && k < count_of(g); k++) {
        double x = at(g, k), y = at(h, k);
        *plain += x * s->dir[k];
        *again += y * s->dir[k];
        all = fmax(all, fabs(x));
        off = isnan(x) == isnan(y) ? fmax(off, fabs(x - y)) : INFINITY;
    }
    tensor_unref(g);
    tensor_unref(h);
    err_clear(&s->err);
    return off > 1e-5 * all + 1e-10;
}

/* Is the rule right once the operand is as large as the result? Then the tape is at fault, which sums what broadcasting added. */
static bool right_when_spread(const slope *of)
{
    slope s = *of;
    outs o = { 0 };
    wide w = *of->w;
    int n = 0, right = 0;
    bool ok = op_row_of(s.op)->flags & OPF_PW && plain_call(s.cx, s.op, s.v, s.w->arg, true, &o);
    const tp_tensor *y = ok ? outs_at(&o, 0) : NULL;
    if (!y || parts_of(y) + parts_of(s.x) != 2 || y->numel == s.x->numel || !truth_spreads(s.x, y)) {
        outs_free(&o);
        return false;
    }
    tp_tensor *big = tensor_new(DT_f64, y->ndim, y->size, NULL);
    for (int i = 0; i < w.n; i++)
        if (w.arg[i].kind == VAL_tensor && w.arg[i].t == s.x)
            w.arg[i].t = big;
    s.w = &w;
    s.x = big;
    s.dir = mem_alloc(sizeof *s.dir * (size_t)MAX(y->numel, 1));
    s.base = mem_alloc(sizeof *s.base * (size_t)MAX(y->numel, 1));
    for (int d = 0; d < DIRECTIONS && big; d++) {
        double rule, diff;
        for (int64_t k = 0; k < big->numel; k++) {
            s.base[k] = of->base[truth_spread(of->x, big, k)];
            s.dir[k] = draw(s.a);
        }
        int r = one_direction(&s, &rule, &diff);
        n += r >= 0;
        right += r == 0;
    }
    free(s.dir);
    free(s.base);
    tensor_unref(big);
    outs_free(&o);
    err_clear(&s.err);
    return n && right == n;
}

/* A direction in which elements of the same value move alike: ties stay, and what takes the largest is smooth. */
static double by_value(double v)
{
    uint64_t h;
    v += 0; /* -0 is 0 */
    memcpy(&h, &v, sizeof h);
    h = hash_mix(h, 20240229);
    return (double)(int64_t)(h >> 11) / 0x1p52 - 1;
}

static void audit_slope(auditor *a, op_ctx *cx, op_id op, op_variant v, wide *w, bool first)
{
    const op_row *row = op_row_of(op);
    double *weight = mem_alloc(sizeof *weight * 1024);
    for (int i = 0; i < 1024; i++)
        weight[i] = 0.5 + 0.5 * fabs(draw(a));
    for (size_t i = 0; i < w->t.n; i++) {
        tp_tensor *x = w->t.at[i];
        int64_t n = MAX(count_of(x), 1);
        double *dir = mem_alloc(sizeof *dir * (size_t)n), *base = mem_alloc(sizeof *base * (size_t)n),
               *was = mem_alloc(sizeof *was * (size_t)n), rule = 0, diff = 0, top = 0, with_ties[2] = { 0 };
        int wrong = 0, right = 0, raised = 0, nans = 0, ties = 0;
        unsigned asked = ops_provider_asked();
        for (int64_t k = 0; k < count_of(x); k++) {
            was[k] = *slot(x, k);
            top = fmax(top, fabs(was[k]));
        }
        slope s = { .a = a,
                    .cx = cx,
                    .op = op,
                    .v = v,
                    .w = w,
                    .x = x,
                    .dir = dir,
                    .base = base,
                    .weight = weight,
                    .first = first };
        /* The program's own values first. Beside them where a kink is too near, and to make sure: ties are apart there. */
        for (int d = 0, sure = 0; d < 5 * DIRECTIONS && wrong + right < DIRECTIONS; d++) {
            goes_on(op);
            bool beside = d >= 2 * DIRECTIONS || sure, tied = d >= DIRECTIONS && !beside;
            for (int64_t k = 0; k < count_of(x); k++) {
                double any = draw(a);
                dir[k] = tied ? by_value(was[k]) * (1 + d) + (d & 1) : any;
                base[k] = beside ? was[k] * (1 - 2e-3) + 1e-3 * (top + 1e-3) * draw(a) : was[k];
            }
            int r = x->numel ? one_direction(&s, &rule, &diff) : -1;
            if (tied) { /* beside these values there are no ties */
                if (r == 1)
                    with_ties[0] = rule, with_ties[1] = diff, ties++;
                continue;
            }
            wrong += r == 1;
            right += r == 0;
            nans += r == 2 && !beside;
            raised += r < 0 && err_is_set(&s.err) && s.err.kind != ERR_notimpl;
            if (wrong >= 2 && !sure) {
                sure = 1;
                wrong = right = 0;
            }
        }
        for (int64_t k = 0; k < count_of(x); k++)
            *slot(x, k) = was[k];
        if (ties >= 2) {
            nans = ties;
            rule = with_ties[0], diff = with_ties[1];
        }
        if (nans >= 2) /* the values themselves say it: beside them the rule may be right */
            wrong = nans;
        if (wrong >= 2 && (nans >= 2 || wrong > right)) {
            bool sums = nans < 2 && right_when_spread(&s);
            say(a,
                sums                            ? "tape"
                : ops_provider_asked() != asked ? "product derivative"
                                                : "derivative",
                row->name);
            if (sums)
                strbuf_add(a->out, "gradients of an operand that is spread are not summed: ");
            strbuf_addf(a->out, "by the rule of operand %d: %.6g, by finite differences in float64: %.6g\n",
                        (int)i, rule, diff);
        }
        if (right >= 2 && wrong < 2) { /* beside the values, where no ties are */
            for (int64_t k = 0; k < count_of(x); k++)
                base[k] = was[k] * (1 - 2e-3) + 1e-3 * (top + 1e-3) * draw(a);
            if (forms_differ(&s, &rule, &diff)) {
                say(a, "derivative", row->name);
                strbuf_addf(a->out,
                            "of operand %d, with create_graph: %.6g along a line, without it (as finite "
                            "differences) %.6g\n",
                            (int)i, rule, diff);
                wrong = 2;
            }
            for (int64_t k = 0; k < count_of(x); k++)
                *slot(x, k) = was[k];
        }
        if (raised >= 2 && !right) {
            say(a, "derivative", row->name);
            strbuf_addf(a->out, "the rule fails: %.*s\n", (int)strcspn(s.err.msg, "\n"), s.err.msg);
            wrong = raised;
        }
        err_clear(&s.err);
        free(dir);
        free(base);
        free(was);
        if (wrong >= 2)
            break;
    }
    free(weight);
}

/* ---- the walk ---- */
static bool fits_but(const op_row *row, op_variant v, const tp_val *arg, uint32_t no, bool written)
{
    int64_t n = 0;
    if (v == OPV_out || row->flags & no)
        return false;
    for (int i = 0; i < row->schema.nparam; i++) {
        const tp_val *x = &arg[i];
        if (row->schema.param[i].mutated && x->kind == VAL_tensor && !written)
            return false;
        for (int k = 0; k < (x->kind == VAL_tensors ? x->n : x->kind == VAL_tensor); k++) {
            const tp_tensor *t = x->kind == VAL_tensors ? x->ts[k] : x->t;
            if (t && (tensor_is_fake(t) || tensor_device(t).kind != DEV_cpu))
                return false;
            n += t ? t->numel : 0;
        }
    }
    return n <= MOST_ELEMENTS;
}

static bool has_tensors(const op_row *row, const tp_val *arg)
{
    for (int i = 0; i < row->schema.nparam; i++)
        if (arg[i].kind == VAL_tensor || arg[i].kind == VAL_tensors)
            return true;
    return false;
}

static bool fits(const op_row *row, op_variant v, const tp_val *arg)
{
    return fits_but(row, v, arg, OPF_RAND | OPF_MUT | OPF_DYN | OPF_SYNC | OPF_CHECK, false);
}
static bool fits_dyn(const op_row *row, op_variant v, const tp_val *arg)
{
    return fits_but(row, v, arg, OPF_RAND | OPF_MUT | OPF_SYNC | OPF_CHECK, false);
}

/* Some gradients are 0 by agreement: those of rows that stand for padding. */
static bool slope_agreed(op_id op, const op_row *row, const tp_val *arg)
{
    for (int i = 0; i < 3 && any_complex(row, arg); i++) /* whose phase is free */
        if (truth_is_free(op, i))
            return true;
    for (int i = 0; i < row->schema.nparam; i++)
        if (!strcmp(row->schema.param[i].name, "padding_idx") && arg[i].kind == VAL_int && arg[i].i >= 0)
            return true;
    return (row->flags & OPF_NODIFF) != 0 || truth_slope_agreed(op);
}

/* Random numbers: are they of the distribution that the call names? */
static void audit_draws(auditor *a, op_ctx *cx, op_id op, const tp_val *arg)
{
    const op_row *row = op_row_of(op);
    op_ctx c = *cx;
    strbuf why = { 0 };
    c.rec = NULL;
    c.grad_mode = false;
    if (chance_wrong(&c, op, arg, &why)) {
        say(a, kind_of(row), row->name);
        strbuf_addf(a->out, "%s\n", strbuf_str(&why));
    }
    strbuf_free(&why);
}

static bool audited(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err)
{
    auditor *a = me;
    const op_row *row = op_row_of(op);
    const ir_loc *l = a->now ? ir_place(a->now) : NULL;
    strbuf key = { 0 };
    strbuf_addf(&key, "%d %d %s:%d", a->round, (int)op, l && l->file ? l->file : "", l ? l->line : 0);
    wide w = { 0 };
    /* one that writes its operand computes what its twin does that writes nothing */
    if (row->flags & OPF_RAND && fits_but(row, v, arg, 0, true) && !map_put(&a->seen, strbuf_str(&key), a))
        audit_draws(a, cx, op, arg);
    bool looked = fits(row, v, arg) && !map_put(&a->seen, strbuf_str(&key), a);
    /* sizes that depend on the data: nothing but whole numbers can be said */
    if ((looked || (row->flags & OPF_DYN && fits_dyn(row, v, arg))) && !(row->flags & OPF_VIEW) &&
        !audit_whole(a, cx, op, arg))
        looked = false;
    if (looked && !has_tensors(row, arg) && !audit_made(a, cx, op, arg))
        looked = false;
    looked = looked && wide_of(&w, row, arg);
    a->knew = false;
    if (looked && !(row->flags & OPF_VIEW && !truth_of_view(op)))
        looked = audit_value(a, cx, op, OPV_fn, arg, &w);
    if (looked && is_composite(row) && !a->knew) /* nobody knows it as a whole */
        looked = !parts_wrong_surely(a, cx, row, arg);
    if (looked && !a->round && repro_has_gradients(a->r) && !slope_agreed(op, row, arg))
        audit_slope(a, cx, op, OPV_fn, &w, false);
    wide_free(&w);
    strbuf_free(&key);
    op_ctx c = *cx;
    c.grad_mode = false;
    return ops_call(&c, op, v, arg, out, err);
}

static bool note_node(void *data, ir_node *n, tp_err *err)
{
    ((auditor *)data)->now = n;
    return true;
}

static map seen_before;

int audit(const repro *r, int round, strbuf *out)
{
    auditor a = { .r = r, .out = out, .rng = 20240229, .seen = seen_before, .round = round };
    op_ctx cx = *op_ctx_cur();
    int n = r->g->output ? r->g->output->narg : 0;
    tp_val *got = mem_zalloc(sizeof *got * (size_t)MAX(n, 1)),
           *in = inputs_copy(r->in, r->nin, DT_none, NULL);
    cx.rec = NULL;
    cx.grad_mode = false;
    ir_hook h = { .before = note_node, .call = audited, .data = &a, .opaque = run_opaque };
    auditor *outer = me;
    me = &a;
    if (in && ir_run(&cx, r->g, in, r->nin, got, n, &h, NULL))
        for (int i = 0; i < n; i++)
            val_clear(&got[i]);
    double rule, diff;
    a.now = NULL;
    IR_EACH (x, r->g)
        a.now = x->kind == IR_call ? x : a.now;
    if (!a.found && !round && a.now && trial_gradient(r, &rule, &diff) == 1) {
        say(&a, "tape", op_row_of((op_id)a.now->op)->name);
        strbuf_addf(
            out,
            "the gradient of the whole graph is %.6g along a line, by finite differences in float64 %.6g\n",
            rule, diff);
    }
    me = outer;
    seen_before = a.seen;
    free(got);
    inputs_free(in, r->nin);
    return a.found;
}

bool audit_wanted(void)
{
    const char *s = env_get(ENV_audit);
    return s && *s;
}

static void note_down(const strbuf *b)
{
    FILE *f = b->n ? fopen(env_get(ENV_audit), "a") : NULL;
    if (f) {
        fwrite(b->s, 1, b->n, f);
        fclose(f);
    }
}

void audit_report(const repro *r, int round)
{
    strbuf b = { 0 };
    audit(r, round, &b);
    note_down(&b);
    strbuf_free(&b);
}

/* ---- calls outside of graphs ---- */
enum { CALLS_OF_A_LINE = 2 };
static const int64_t CALLS_NS = 3000000000; /* all of them together */
static int64_t calls_ns;

static bool wants_gradient(const op_row *row, const tp_val *arg)
{
    for (int i = 0; i < row->schema.nparam; i++)
        if (arg[i].kind == VAL_tensor && arg[i].t && grad_requires_grad(arg[i].t))
            return true;
    return false;
}

/* Large operands take long; graphs have their own audit. */
static bool is_quick(const op_row *row, const tp_val *arg)
{
    enum { MOST = 1 << 16 };
    int64_t n = 0;
    for (int i = 0; i < row->schema.nparam; i++)
        for (int k = 0; k < (arg[i].kind == VAL_tensors ? arg[i].n : arg[i].kind == VAL_tensor); k++) {
            const tp_tensor *t = arg[i].kind == VAL_tensors ? arg[i].ts[k] : arg[i].t;
            n += t ? t->numel : 0;
        }
    return n <= MOST;
}

/* Has this line called it often enough? Calls without one, as in backward, count by types. */
static bool seen_enough(const op_row *row, const tp_val *arg, const ir_loc *l)
{
    static map seen;
    strbuf key = { 0 };
    strbuf_addf(&key, "%s %s:%d", row->full, l && l->file ? l->file : "", l ? l->line : 0);
    for (int i = 0; i < row->schema.nparam; i++)
        if (arg[i].kind == VAL_tensor && arg[i].t)
            strbuf_addf(&key, " %d", arg[i].t->dt);
    uintptr_t n = (uintptr_t)map_get(&seen, strbuf_str(&key));
    if (n < CALLS_OF_A_LINE)
        map_put(&seen, strbuf_str(&key), (void *)(n + 1));
    strbuf_free(&key);
    return n >= CALLS_OF_A_LINE;
}

static void audit_call(auditor *a, op_ctx *cx, op_id op, const tp_val *arg)
{
    const op_row *row = op_row_of(op);
    wide w = { 0 };
    if (row->flags & OPF_RAND) {
        audit_draws(a, cx, op, arg);
        return;
    }
    if (!audit_whole(a, cx, op, arg) || row->flags & OPF_DYN)
        return;
    bool sound = has_tensors(row, arg) || audit_made(a, cx, op, arg);
    if (!sound || !wide_of(&w, row, arg)) {
        wide_free(&w);
        return;
    }
    sound = (row->flags & OPF_VIEW && !truth_of_view(op)) || audit_value(a, cx, op, OPV_fn, arg, &w);
    /* what a derivative consists of needs none itself */
    if (sound && grad_step_running == UINT64_MAX && wants_gradient(row, arg) && !slope_agreed(op, row, arg))
        audit_slope(a, cx, op, OPV_fn, &w, row->schema.nret > 1);
    wide_free(&w);
}

static void show_call(op_ctx *cx, op_id op, op_variant v, const tp_val *arg)
{
    static bool at_it; /* the lock of the interpreter is held */
    const op_row *row = op_row_of(op);
    bool draws = row->flags & OPF_RAND;
    if (me || at_it || cx->rec || calls_ns > CALLS_NS || (row->flags & OPF_VIEW && !truth_of_view(op)) ||
        !(draws ? fits_but(row, v, arg, 0, true) : fits_dyn(row, v, arg)) || !is_quick(row, arg))
        return;
    int seed = jiggle_begin(0); /* with roundings of somebody's choice nothing is exact */
    arena mem = { 0 };
    const ir_loc *l = seed || !host.where ? NULL : host.where(&mem);
    if (!seed && (l || grad_step_running != UINT64_MAX) && !seen_enough(row, arg, l)) {
        int64_t begun = clock_ns();
        strbuf b = { 0 };
        auditor a = { .line = l, .out = &b, .rng = 20240229 };
        at_it = true;
        me = &a;
        audit_call(&a, cx, op, arg);
        me = NULL;
        at_it = false;
        note_down(&b);
        strbuf_free(&b);
        map_free(&a.seen);
        calls_ns += clock_ns() - begun;
    }
    jiggle_begin(seed);
    arena_free(&mem);
}

void audit_note(const char *what, const char *op, const char *fmt, ...)
{
    arena mem = { 0 };
    strbuf b = { 0 };
    va_list ap;
    auditor a = { .line = host.where ? host.where(&mem) : NULL, .out = &b };
    say(&a, what, op);
    va_start(ap, fmt);
    strbuf_addv(&b, fmt, ap);
    va_end(ap);
    strbuf_addc(&b, '\n');
    note_down(&b);
    strbuf_free(&b);
    arena_free(&mem);
}

void audit_calls(void)
{
    if (!audit_wanted())
        return;
    grad_cast_watch = audit_cast;
    ops_watch = show_call;
    profile_watch();
}
