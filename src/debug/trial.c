/* trial.c - one run of a repro, here or in a forked child, and the signature of what came of it. */
#include "events/events.h"
#include "debug/condition.h"
#include "debug/backends.h"
#include "aot/aot.h"
#include "base/pool.h"
#include "base/proc.h"
#include "grad/tape.h"
#include "ops/jiggle.h"
#include "ops/random.h"
#include "compile/backend.h"
#include "compile/options.h"
#include <ctype.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

/* ---- signatures ---- */
static const char *const names[] = { "passes", "cannot run", "compile error", "exception", "accuracy",
                                     "signal", "time-out",   "out of memory", "flaky" };
const char *sig_name(sig_kind k) { return names[k]; }
sig_kind sig_by_name(const char *name)
{
    for (size_t i = 0; name && i < COUNT(names); i++)
        if (!strcmp(names[i], name))
            return (sig_kind)i;
    return SIG_passes;
}

bool sig_equal(const signature *a, const signature *b)
{
    if (a->kind != b->kind || a->number != b->number)
        return false;
    return (a->kind != SIG_compile_error && a->kind != SIG_exception) || !strcmp(a->text, b->text);
}

void sig_plain(strbuf *b, const signature *s)
{
    static const char *const measures[] = { "Found nan in reference", "RMSE (res-fp64)",
                                            "Accuracy failed: allclose", "it is " };
    const char *last = strstr(s->full, "largest deviation: "), *cut = NULL;
    for (size_t i = 0; last && i < COUNT(measures) && !cut; i++)
        cut = strstr(s->full, measures[i]);
    strbuf_addf(b, "%s: ", s->kind == SIG_accuracy ? "wrong result" : sig_name(s->kind));
    if (cut && cut < last) /* how far off it is on the whole says less than one element */
        strbuf_addf(b, "%.*s%s", (int)(cut - s->full), s->full, last + strlen("largest deviation: "));
    else
        strbuf_add(b, s->full);
}

/* Numbers, quoted names and paths differ from graph to graph: they do not count. */
static void normalise(const char *msg, char *out, size_t cap)
{
    size_t n = 0;
    for (const char *s = msg; *s && n + 2 < cap && *s != '\n'; s++) {
        if (isdigit((unsigned char)*s)) {
            while (isdigit((unsigned char)s[1]) || s[1] == '.')
                s++;
            out[n++] = '#';
        } else if (*s == '\'') {
            const char *e = strchr(s + 1, '\'');
            out[n++] = '\'';
            if (e && e - s < 80)
                s = e;
        } else if (*s == '/' && (s == msg || isspace((unsigned char)s[-1]))) { /* a path */
            while (s[1] && !isspace((unsigned char)s[1]) && s[1] != ':')
                s++;
            out[n++] = '/';
        } else
            out[n++] = *s;
    }
    out[n] = 0;
}

void sig_set(signature *s, sig_kind k, const char *stage, const char *msg)
{
    memset(s, 0, sizeof *s);
    s->kind = k;
    snprintf(s->full, sizeof s->full, "%s", msg);
    snprintf(s->stage, sizeof s->stage, "%s", stage);
    normalise(msg, s->text, sizeof s->text);
}

static void sig_err(signature *s, sig_kind k, const char *stage, const tp_err *e)
{
    if (e->kind == ERR_memory || e->kind == ERR_oom)
        k = SIG_oom;
    sig_set(s, k, stage, e->msg);
    snprintf(s->type, sizeof s->type, "%s", err_class(e->kind));
}

/* ---- one run ---- */
typedef struct result {
    tp_val *out;
    int nout;
    tp_val *in; /* inputs as they are afterwards, with gradients */
    int nin;
} result;

static void result_free(result *x)
{
    for (int i = 0; i < x->nout; i++)
        val_clear(&x->out[i]);
    inputs_free(x->in, x->nin);
    free(x->out);
    memset(x, 0, sizeof *x);
}

static bool run_backward(op_ctx *cx, result *x, tp_err *err) /* from ones */
{
    tp_tensor **root = mem_zalloc(sizeof *root * (size_t)MAX(x->nout, 1)),
              **dy = mem_zalloc(sizeof *dy * (size_t)MAX(x->nout, 1));
    int n = 0;
    for (int i = 0; i < x->nout; i++)
        if (x->out[i].kind == VAL_tensor && grad_requires_grad(x->out[i].t)) {
            root[n] = x->out[i].t;
            tp_tensor *one = tensor_scalar((dtype)root[n]->dt, 1, 1, NULL);
            dy[n] = tensor_new((dtype)root[n]->dt, root[n]->ndim, root[n]->size, err);
            if (dy[n] && one)
                tensor_copy(dy[n], one, err);
            tensor_unref(one);
            n++;
        }
    grad_options o = { 0 };
    bool ok = !n || grad_backward(cx, root, n, dy, &o, err);
    for (int i = 0; i < n; i++)
        tensor_unref(dy[i]);
    free(root);
    free(dy);
    return ok;
}

/* Are the first random numbers of the graph float64 by themselves? */
static bool draws_wide(const ir_graph *g)
{
    IR_EACH (n, g)
        if (n->kind == IR_call && op_row_of((op_id)n->op)->flags & OPF_RAND && ir_type(n) &&
            dtype_is_float((dtype)ir_type(n)->dt))
            return ir_type(n)->dt == DT_f64;
    return true;
}

/* p NULL: the interpreter under the tape. dt: floats are converted to it (DT_none: left alone). Every run draws
 * the same random numbers. */
static bool run_once(const repro *r, run_program *p, ir_graph *g, dtype dt, result *x, tp_err *err)
{
    op_ctx cx = *op_ctx_cur();
    bool grads = false, ok = false;
    tp_gen *gen = gen_default();
    gen_state was = gen->s;
    cx.rec = NULL;
    x->nin = r->nin;
    x->nout = g->output->narg;
    x->out = mem_zalloc(sizeof *x->out * (size_t)MAX(x->nout, 1));
    x->in = inputs_copy(r->in, r->nin, dt, err);
    gen_seed(gen, r->seed);
    gen->s.offset = r->offset;
    gen->s.counted = true;
    gen->s.narrow = dt == DT_f64 && !draws_wide(r->g);
    if (!x->in)
        goto done;
    for (int i = 0; i < r->nin && !r->forward_only && !r->inner; i++)
        if (x->in[i].kind == VAL_tensor && r->needs_grad[i] && dtype_is_float((dtype)x->in[i].t->dt)) {
            grads = r->g->grad_mode; /* under no_grad the program runs another graph: that one is checked */
            if (!grad_set_requires_grad(&cx, x->in[i].t, true, err))
                goto done;
        }
    cx.grad_mode = grads || (r->g->grad_mode && !r->inner && aot_makes_leaves(r->g));
    ir_hook h = { .call = grad_call, .opaque = run_opaque, .link = grad_link };
    ok = p ? run_program_call(p, &cx, x->in, r->nin, x->out, x->nout, err) &&
                 device_sync(ir_graph_device(g), err)
           : ir_run(&cx, g, x->in, r->nin, x->out, x->nout, &h, err);
    if (!ok)
        x->nout = 0;
    if (ok && grads)
        ok = run_backward(&cx, x, err);
done:
    if (!x->in)
        x->nin = 0;
    gen->s = was;
    return ok;
}

/* The graph computing in float64: dtype arguments that name a float become float64, and so do constants. */
static ir_graph *wider(const ir_graph *g)
{
    ir_graph *w = ir_graph_copy(g);
    IR_EACH (n, w) {
        for (int i = 0; i < n->narg; i++)
            if (n->arg[i].kind == VAL_dtype && dtype_is_float((dtype)n->arg[i].i))
                n->arg[i].i = DT_f64;
        if (n->kind == IR_const && n->konst && !tensor_is_fake(n->konst) &&
            dtype_is_float((dtype)n->konst->dt)) {
            tp_tensor *k = tensor_cast(n->konst, DT_f64, NULL);
            if (k) {
                vec_push(&w->keep, k);
                n->konst = k; /* the old one stays in the list of what the graph releases */
            }
        }
    }
    return w;
}

static bool nan_inside(const tp_tensor *t)
{
    for (int64_t k = 0; k < t->numel; k++)
        if (isnan(elem_get_f((dtype)t->dt, tensor_elem(t, k))))
            return true;
    return false;
}

#define NAN_IN_EAGER "NaN in the eager result" /* another failure than one with a sound reference */

/* near: a with every operator's result moved by one rounding. Is b no farther from a than roundings bring it? Of narrow types they
 * bring it too far to say. */
static bool rounds_so(const tp_tensor *a, const tp_tensor *b, const tp_tensor *near)
{
    double off = 0, shift = 0;
    if (a->dt != DT_f32 || b->dt != DT_f32 || !near || near->dt != DT_f32 || !tensor_same_size(a, b) ||
        !tensor_same_size(a, near))
        return false;
    for (int64_t k = 0; k < a->numel; k++) {
        double p = elem_get_f(DT_f32, tensor_elem(a, k)), q = elem_get_f(DT_f32, tensor_elem(b, k)),
               s = elem_get_f(DT_f32, tensor_elem(near, k));
        if (p == q || (isnan(p) && isnan(q)))
            continue;
        if (!isfinite(p) || !isfinite(q) || !isfinite(s))
            return false;
        off = fmax(off, fabs(p - q));
        shift = fmax(shift, fabs(p - s));
    }
    return off <= 16 * shift;
}

static bool differ(const repro *r, const char *what, int i, const tp_tensor *a, const tp_tensor *b,
                   const tp_tensor *c, const tp_tensor *near, strbuf *why)
{
    strbuf_clear(why);
    strbuf_addf(why, what, i);
    size_t at = why->n;
    if (acc_same(a, b, c, &r->acc, why) || rounds_so(a, b, near))
        return false;
    bool flt = dtype_is_float((dtype)a->dt) && dtype_is_float((dtype)b->dt), left = flt && nan_inside(a),
         right = flt && nan_inside(b);
    if (left != right || left) {
        strbuf rest = { 0 };
        strbuf_add(&rest, why->s + at);
        why->n = at;
        strbuf_addf(why, "%s: %s", left ? NAN_IN_EAGER : "NaN only in the compiled one", strbuf_str(&rest));
        strbuf_free(&rest);
    }
    return true;
}

/* Tensor k of a run: its inputs, then its results; NULL for numbers. */
static tp_tensor *tensor_at(const result *x, int k)
{
    const tp_val *v = k < x->nin ? &x->in[k] : &x->out[k - x->nin];
    return v->kind == VAL_tensor ? v->t : NULL;
}

static bool tensor_differs(const result *eager, const result *got, int k, strbuf *why)
{
    tp_tensor *a = tensor_at(eager, k), *b = tensor_at(got, k);
    if (grad_requires_grad(a) != grad_requires_grad(b)) {
        strbuf_addf(why, "it requires %s gradient, in eager mode %s", grad_requires_grad(b) ? "a" : "no",
                    grad_requires_grad(a) ? "one" : "none");
        return true;
    }
    if (grad_is_leaf(a) != grad_is_leaf(b)) {
        strbuf_addf(why, "it is %s leaf, in eager mode %s", grad_is_leaf(b) ? "a" : "no",
                    grad_is_leaf(a) ? "one" : "none");
        return true;
    }
    if (k >= eager->nin && !acc_form(a, b, why))
        return true;
    for (int i = 0; i < k && k >= eager->nin; i++) {
        tp_tensor *x = tensor_at(eager, i), *y = tensor_at(got, i);
        const char *kind = i < eager->nin ? "input" : "result";
        int nr = i < eager->nin ? i : i - eager->nin;
        if (!x || !y)
            continue;
        if ((x == a) != (y == b)) {
            strbuf_addf(why, "it is %s %s %d itself, in eager mode %s", y == b ? "the" : "not the", kind, nr,
                        x == a ? "it is" : "it is not");
            return true;
        }
        if (x->numel && a->numel && (x->storage == a->storage) != (y->storage == b->storage)) {
            strbuf_addf(why, "it %s memory with %s %d, in eager mode it does%s",
                        y->storage == b->storage ? "shares" : "shares no", kind, nr,
                        x->storage == a->storage ? "" : " not");
            return true;
        }
    }
    return false;
}

#define OTHER_FORM "the values agree, but " /* another failure than wrong values */

/* What is the same in value may be another kind of tensor: on other memory, with another history. */
static bool forms_differ(const result *eager, const result *got, strbuf *why)
{
    for (int k = 0; k < eager->nin + eager->nout; k++) {
        if (!tensor_at(eager, k) || !tensor_at(got, k))
            continue;
        bool in = k < eager->nin;
        strbuf_clear(why);
        strbuf_addf(why, "%s %d: " OTHER_FORM, in ? "input" : "result", in ? k : k - eager->nin);
        if (tensor_differs(eager, got, k, why))
            return true;
    }
    return false;
}

static const tp_tensor *tensor_of(const tp_val *v) { return v->kind == VAL_tensor ? v->t : NULL; }

static bool compare_results(const repro *r, const result *eager, const result *got, const result *fp64,
                            const result *near, strbuf *why)
{
    for (int i = 0; i < eager->nout; i++) {
        if (eager->out[i].kind != VAL_tensor || got->out[i].kind != VAL_tensor) {
            if (eager->out[i].kind == got->out[i].kind || r->acc.ignore_non_fp ||
                (eager->out[i].kind != VAL_tensor && got->out[i].kind != VAL_tensor))
                continue;
            strbuf_clear(why);
            strbuf_addf(why, "result %d: one is a tensor, the other is not", i);
            return false;
        }
        const tp_tensor *f = fp64 && fp64->out[i].kind == VAL_tensor ? fp64->out[i].t : NULL;
        if (differ(r, "result %d: ", i, eager->out[i].t, got->out[i].t, f,
                   near ? tensor_of(&near->out[i]) : NULL, why))
            return false;
    }
    return true;
}

static bool compare(const repro *r, const result *eager, const result *got, const result *fp64,
                    const result *near, strbuf *why)
{
    if (!compare_results(r, eager, got, fp64, near, why))
        return false;
    for (int i = 0; i < eager->nin; i++) {
        if (eager->in[i].kind != VAL_tensor)
            continue;
        tp_tensor *a = eager->in[i].t, *b = got->in[i].t, *c = fp64 ? fp64->in[i].t : NULL;
        tp_tensor *d = near && near->in[i].kind == VAL_tensor ? near->in[i].t : NULL;
        if (differ(r, "input %d after the call: ", i, a, b, c, d, why))
            return false;
        tp_tensor *ga = grad_grad(a), *gb = grad_grad(b), *gc = c ? grad_grad(c) : NULL;
        if ((ga != NULL) != (gb != NULL)) {
            strbuf_clear(why);
            strbuf_addf(why, "gradient of input %d: only one of the two has it", i);
            return false;
        }
        if (ga && differ(r, "gradient of input %d: ", i, ga, gb, gc, d ? grad_grad(d) : NULL, why))
            return false;
    }
    return r->inner || !forms_differ(eager, got, why);
}

/* The results when every input moves by one rounding. */
static bool moved_results(const repro *r, result *x)
{
    repro *m = repro_copy(r);
    uint64_t rng = 88172645463325252ull;
    for (int i = 0; i < m->nin; i++) {
        tp_tensor *t = m->in[i].kind == VAL_tensor ? m->in[i].t : NULL;
        if (!t || tensor_is_fake(t) || (t->dt != DT_f64 && t->dt != DT_f32))
            continue;
        for (int64_t k = 0; k < t->numel; k++) {
            rng = rng * 6364136223846793005ull + 1442695040888963407ull;
            double by = (double)(int64_t)(rng >> 11) / 0x1p52 - 1, eps = t->dt == DT_f64 ? 0x1p-52 : 0x1p-23;
            void *at = tensor_elem(t, k);
            elem_set_f((dtype)t->dt, at, elem_get_f((dtype)t->dt, at) * (1 + eps * by));
        }
    }
    bool ok = run_once(m, NULL, m->g, DT_none, x, NULL);
    repro_free(m);
    return ok;
}

/* near gets the elements of the results of more that are farther from eager. */
static void farther(result *near, const result *eager, const result *more)
{
    for (int i = 0; i < near->nout; i++) {
        tp_tensor *x = near->out[i].kind == VAL_tensor ? near->out[i].t : NULL;
        const tp_tensor *a = tensor_of(&eager->out[i]), *y = tensor_of(&more->out[i]);
        if (!x || !a || !y || x->dt != DT_f32 || a->dt != DT_f32 || y->dt != DT_f32 ||
            !tensor_same_size(x, a) || !tensor_same_size(x, y))
            continue;
        for (int64_t k = 0; k < x->numel; k++) {
            float p = *(float *)tensor_elem(a, k), s = *(float *)tensor_elem(y, k),
                  *to = (float *)tensor_elem(x, k);
            if (fabsf(s - p) > fabsf(*to - p))
                *to = s;
        }
    }
}

/* Is a result farther from eager than many times what other roundings make of it? No further seed explains that; where none moves it,
 * the next may. */
static bool beyond_rounding(const result *eager, const result *got, const result *near)
{
    enum { FAR = 4096 };
    for (int i = 0; i < eager->nin + eager->nout; i++) {
        const tp_tensor *a = tensor_at(eager, i), *b = tensor_at(got, i), *c = tensor_at(near, i);
        for (int grad = 0; grad < 2 && a && b && c; grad++) { /* the value, then its gradient */
            double off = 0, shift = 0;
            if (grad)
                a = grad_grad(a), b = grad_grad(b), c = grad_grad(c);
            if (!a || !b || !c || a->dt != DT_f32 || b->dt != DT_f32 || c->dt != DT_f32 ||
                !tensor_same_size(a, b) || !tensor_same_size(a, c))
                continue;
            for (int64_t k = 0; k < a->numel; k++) {
                double p = *(float *)tensor_elem(a, k);
                off = fmax(off, fabs(p - *(float *)tensor_elem(b, k)));
                shift = fmax(shift, fabs(p - *(float *)tensor_elem(c, k)));
            }
            if (shift > 0 && off > FAR * shift)
                return true;
        }
    }
    return false;
}

/* The same; what seems to differ is held against eager with other roundings. */
static bool agrees(const repro *r, const result *eager, const result *got, const result *fp64, strbuf *why)
{
    enum { SEEDS = 8, ENOUGH = 3 };
    result near = { 0 }, more = { 0 };
    bool ran = true;
    if (compare(r, eager, got, fp64, NULL, why))
        return true;
    for (int seed = 1; seed <= SEEDS && ran; seed++) {
        result *x = seed == 1 ? &near : &more;
        int was = jiggle_begin(seed);
        ran = moved_results(r, x);
        jiggle_begin(was);
        if (seed > 1 && ran)
            farther(&near, eager, &more);
        result_free(&more);
        if (seed == ENOUGH && ran && beyond_rounding(eager, got, &near))
            break;
    }
    bool ok = ran && compare(r, eager, got, fp64, &near, why);
    result_free(&near);
    return ok;
}

/* ---- float64 itself: nothing is wider, results are held against how far they move with the inputs ---- */
static bool wide_agrees(const tp_tensor *eager, const tp_tensor *got, const tp_tensor *moved)
{
    double scale = 0, off = 0, shift = 0;
    if (eager->dt != DT_f64 || got->dt != DT_f64 || moved->dt != DT_f64 || !tensor_same_size(eager, moved))
        return true;
    for (int64_t k = 0; k < eager->numel; k++) {
        double p = *(const double *)tensor_elem(eager, k), q = *(const double *)tensor_elem(got, k),
               s = *(const double *)tensor_elem(moved, k);
        if (!isfinite(p) || !isfinite(q) || !isfinite(s))
            continue;
        scale = fmax(scale, fabs(p));
        off = fmax(off, fabs(p - q));
        shift = fmax(shift, fabs(p - s));
    }
    return off <= 1e5 * shift + 4096 * 0x1p-52 * scale;
}

static bool wide_compare(const repro *r, const result *eager, const result *got, strbuf *why)
{
    result moved = { 0 };
    bool any = false, ok = true;
    for (int i = 0; i < eager->nout; i++)
        any |= eager->out[i].kind == VAL_tensor && eager->out[i].t->dt == DT_f64;
    if (!any || !moved_results(r, &moved)) {
        result_free(&moved);
        return true;
    }
    for (int i = 0; ok && i < eager->nout; i++) {
        if (eager->out[i].kind != VAL_tensor || got->out[i].kind != VAL_tensor ||
            moved.out[i].kind != VAL_tensor || wide_agrees(eager->out[i].t, got->out[i].t, moved.out[i].t))
            continue;
        acc_worst w = acc_largest(eager->out[i].t, got->out[i].t, NULL);
        ok = false;
        strbuf_clear(why);
        strbuf_addf(why, "result %d: farther from eager than roundings of float64 explain: ", i);
        acc_worst_print(why, eager->out[i].t, &w);
    }
    result_free(&moved);
    return ok;
}

/* The inputs as the program had them: some need gradients, some of those are results of others. */
static tp_val *examples_of(const repro *r)
{
    tp_val *v = mem_zalloc(sizeof *v * (size_t)(r->nin + 1));
    for (int i = 0; i < r->nin; i++) {
        v[i] = r->in[i];
        if (v[i].kind != VAL_tensor)
            continue;
        tp_tensor *t = tensor_alias(v[i].t);
        v[i] = vT(t);
        if (r->inner || !r->needs_grad[i] || !dtype_is_float((dtype)t->dt))
            continue;
        if (r->needs_grad[i] == 2)
            grad_set_spent(t, "AliasBackward0", NULL);
        else
            grad_set_requires_grad(op_ctx_cur(), t, true, NULL);
    }
    return v;
}

static run_program *compile_with(tp_comp *c, const repro *r, const backend *b)
{
    if (r->inner && b->inner)
        return b->inner->compile(b->inner, c, r->g, NULL);
    tp_val *example = examples_of(r);
    run_program *p = backend_compile(b, c, r->g, example);
    for (int i = 0; i < r->nin; i++)
        val_clear(&example[i]);
    free(example);
    return p;
}

run_program *repro_compile(tp_comp *c, const repro *r)
{
    for (int i = 0; i < r->nin; i++) { /* what needs a gradient is part of a graph's type */
        tp_tensor *t = ir_type(r->g->inputs.at[i]);
        if (t && dtype_is_float((dtype)t->dt) && grad_requires_grad(t) != (r->needs_grad[i] && !r->inner))
            grad_set_requires_grad(op_ctx_cur(), t, r->needs_grad[i] && !r->inner, NULL);
    }
    const backend *b = backend_find(r->backend, c->err);
    if (!b)
        return NULL;
    run_options own = options_default();
    options_parse(&own, r->options);
    const run_options *was = c->opt;
    if (r->options)
        c->opt = &own;
    run_program *p = compile_with(c, r, b);
    c->opt = was;
    return p;
}

static void trial_full(const repro *r, run_program *p, decider d, signature *out, tp_err *keep)
{
    tp_err err = { 0 };
    result eager = { 0 }, got = { 0 }, fp64 = { 0 };
    run_program *own = NULL;
    strbuf why = { 0 };
    ir_graph *w = NULL;
    tp_comp c = { .err = &err, .decider = d };

    sig_set(out, SIG_passes, "", "");
    if (!p &&
        !backend_find(r->backend, NULL)) { /* one of the program's own: no failure of it can be seen here */
        err_set(&err, ERR_value,
                "backend '%.60s' is a Python function of the program and is not known to this process",
                r->backend);
        sig_err(out, SIG_cannot_run, "compile", &err);
        goto done;
    }
    repro forward = *r;                                                  /* borrows everything */
    if (!run_once(r, NULL, r->g, DT_none, &eager, &err) && eager.nout) { /* only backward cannot run */
        result_free(&eager);
        err_clear(&err);
        forward.forward_only = true;
        r = &forward;
        run_once(r, NULL, r->g, DT_none, &eager, &err);
    }
    if (err_is_set(&err)) {
        sig_err(out, SIG_cannot_run, "eager", &err);
        out->kind = SIG_cannot_run;
        goto done;
    }
    if (!p && !(p = own = repro_compile(&c, r))) {
        sig_err(out, SIG_compile_error, "compile", &err);
        goto done;
    }
    bool ran = run_once(r, p, r->g, DT_none, &got, &err);
    if (!ran)
        sig_err(out, SIG_exception, "run", &err);
    if (!r->accuracy || (!ran && !got.nout))
        goto done;
    w = wider(r->g);
    bool have64 = !r->no_fp64 && run_once(r, NULL, w, DT_f64, &fp64, NULL);
    if (!ran) { /* backward fails; results that are wrong before that tell more */
        if (compare_results(r, &eager, &got, have64 ? &fp64 : NULL, NULL, &why))
            goto done;
        sig_set(out, SIG_accuracy, "compare", strbuf_str(&why));
    } else if (!agrees(r, &eager, &got, have64 ? &fp64 : NULL, &why) ||
               (r->acc.ledger && !wide_compare(r, &eager, &got, &why))) {
        sig_set(out, SIG_accuracy, "compare", strbuf_str(&why));
        out->number = strstr(strbuf_str(&why), NAN_IN_EAGER) ? 1
                      : strstr(strbuf_str(&why), OTHER_FORM) ? 2
                                                             : 0;
    }
done:
    if (keep)
        *keep = err;
    run_program_free(own);
    result_free(&eager);
    result_free(&got);
    result_free(&fp64);
    ir_graph_free(w);
    strbuf_free(&why);
}

void trial_with(const repro *r, run_program *p, signature *out, tp_err *keep)
{
    trial_full(r, p, (decider){ 0 }, out, keep);
}
void trial_decided(const repro *r, decider d, signature *out) { trial_full(r, NULL, d, out, NULL); }
void trial_here(const repro *r, signature *out) { trial_with(r, NULL, out, NULL); }

/* ---- the graphs behind the autograd stage ---- */
static repro *repro_unit(const repro *r, bool backward, tp_err *err)
{
    const backend *b = backend_find(r->backend, err);
    tp_comp c = { .err = err };
    result x = { 0 };
    aot_unit *u = NULL;
    repro *out = NULL;
    bool grad = false;
    if (r->inner) {
        if (backward)
            err_set(err, ERR_value, "the graph is behind the autograd stage already");
        return backward ? NULL : repro_copy(r);
    }
    for (int i = 0; i < r->nin; i++)
        grad |= repro_has_gradients(r) && r->needs_grad[i];
    bool *needs = mem_zalloc((size_t)MAX(r->nin, 1));
    for (int i = 0; i < r->nin; i++)
        needs[i] = grad && r->needs_grad[i];
    u = b ? aot_trace(&c, r->g, needs, grad, b->aot, NULL) : NULL;
    free(needs);
    if (!u)
        return NULL;
    if (!backward) {
        out = repro_new(u->fw, r->in, r->nin, r->backend);
    } else if (!u->bw) {
        err_set(err, ERR_value, "no input needs a gradient");
    } else {
        repro *fw = repro_new(u->fw, r->in, r->nin, r->backend);
        fw->inner = true;
        fw->seed = r->seed, fw->offset = r->offset;
        if (run_once(fw, NULL, fw->g, DT_none, &x, err)) {
            int n = (int)u->bw->inputs.n;
            tp_val *in = mem_zalloc(sizeof *in * (size_t)MAX(n, 1));
            for (int i = 0; i < u->nsaved; i++)
                in[i] = x.out[u->nvalue + u->nmut + i];
            bool ok = true;
            for (int i = 0; i < u->ntangent; i++) {
                const tp_tensor *y = ir_type(u->bw->inputs.at[u->nsaved + i]);
                tp_tensor *one = tensor_scalar((dtype)y->dt, 1, 1, NULL),
                          *t = tensor_new_strided((dtype)y->dt, y->ndim, y->size,
                                                  ir_type(u->bw->inputs.at[u->nsaved + i])->stride,
                                                  DEVICE_CPU, err);
                ok = ok && t && tensor_copy(t, one, err);
                tensor_unref(one);
                in[u->nsaved + i] = vT(t);
            }
            if (ok)
                out = repro_new(u->bw, in, n, r->backend);
            for (int i = 0; i < u->ntangent; i++)
                tensor_unref(in[u->nsaved + i].t);
            free(in);
        }
        result_free(&x);
        repro_free(fw);
    }
    if (out) {
        memset(out->needs_grad, 0, (size_t)out->nin);
        out->inner = true;
        out->accuracy = r->accuracy;
        out->no_fp64 = r->no_fp64;
        out->acc = r->acc;
        out->seed = r->seed;
        out->offset = r->offset;
        out->state = r->state ? mem_strdup(r->state) : NULL;
    }
    aot_unit_free(u);
    return out;
}
repro *repro_forward(const repro *r, tp_err *err) { return repro_unit(r, false, err); }
repro *repro_backward(const repro *r, tp_err *err) { return repro_unit(r, true, err); }

/* ---- before the cut ---- */
/* The joint graph, interpreted: values of its forward half, then gradients from ones. */
static bool joint_right(const repro *r)
{
    tp_err err = { 0 };
    const backend *b = backend_find(r->backend, &err);
    tp_comp c = { .err = &err };
    result eager = { 0 };
    strbuf why = { 0 };
    bool right = false, *needs = mem_zalloc((size_t)MAX(r->nin, 1));
    for (int i = 0; i < r->nin; i++)
        needs[i] = r->needs_grad[i] != 0;
    aot_unit *u = b ? aot_trace(&c, r->g, needs, true, b->aot, NULL) : NULL;
    int n = u && u->joint ? (int)u->joint->inputs.n : 0, nout = n ? u->joint->output->narg : 0;
    tp_val *in = mem_zalloc(sizeof *in * (size_t)MAX(n, 1)),
           *out = mem_zalloc(sizeof *out * (size_t)MAX(nout, 1));
    tp_val *own = inputs_copy(r->in, r->nin, DT_none, &err);
    if (!n || u->nbase || u->nin != r->nin || n != r->nin + u->ntangent ||
        nout != u->nvalue + u->nmut + u->ngrad || !own || !run_once(r, NULL, r->g, DT_none, &eager, &err))
        goto done;
    for (int i = 0; i < n; i++) {
        const tp_tensor *t = ir_type(u->joint->inputs.at[i]);
        in[i] = i < r->nin ? own[i] : vNone;
        if (i < r->nin)
            continue;
        tp_tensor *one = tensor_scalar((dtype)t->dt, 1, 1, NULL),
                  *x = tensor_new((dtype)t->dt, t->ndim, t->size, &err);
        if (one && x)
            tensor_copy(x, one, &err);
        tensor_unref(one);
        in[i] = vT(x);
    }
    op_ctx cx = *op_ctx_cur();
    cx.rec = NULL;
    cx.grad_mode = false;
    ir_hook h = { .opaque = run_opaque };
    right = ir_run(&cx, u->joint, in, n, out, nout, &h, &err);
    for (int i = 0; right && i < u->ngrad; i++) {
        int of = u->grad[i];
        const tp_val *g = &out[u->nvalue + u->nmut + i];
        tp_tensor *want = of >= 0 && of < r->nin && eager.in[of].kind == VAL_tensor
                              ? grad_grad(eager.in[of].t)
                              : NULL;
        if (want && g->kind == VAL_tensor)
            right = !differ(r, "gradient of input %d: ", of, want, g->t, NULL, NULL, &why);
    }
    for (int i = 0; right && i < u->nout && i < eager.nout; i++)
        if (u->out[i].kind == AOT_value && out[u->out[i].index].kind == VAL_tensor &&
            eager.out[i].kind == VAL_tensor)
            right = !differ(r, "result %d: ", i, eager.out[i].t, out[u->out[i].index].t, NULL, NULL, &why);
done:
    for (int i = 0; i < nout; i++)
        val_clear(&out[i]);
    for (int i = r->nin; i < n; i++)
        val_clear(&in[i]);
    inputs_free(own, own ? r->nin : 0);
    free(in);
    free(out);
    free(needs);
    result_free(&eager);
    strbuf_free(&why);
    aot_unit_free(u);
    return right;
}

static int joint_child(void *arg) { return joint_right(arg) ? 0 : 1; }

bool trial_joint(const repro *r)
{
    proc_result res = { 0 };
    fflush(NULL);
    bool ok = repro_has_gradients(r) &&
              proc_run(&(proc_spec){ .fn = joint_child, .arg = (void *)r, .timeout_ms = 10000 }, &res,
                       NULL) &&
              !res.status && !res.timed_out;
    proc_result_free(&res);
    return ok;
}

/* ---- what the stages made of it ---- */
static int stages_child(void *arg)
{
    const repro *r = arg;
    ev_trace_stop(); /* what a trial does is none of the program's compiles */
    repro *f = repro_forward(r, &(tp_err){ 0 }), *b = r->inner ? NULL : repro_backward(r, &(tp_err){ 0 });
    if (f && !r->inner)
        printf(" forward:%016llx", (unsigned long long)ir_hash(f->g));
    if (b)
        printf(" backward:%016llx", (unsigned long long)ir_hash(b->g));
    fflush(stdout);
    repro_free(f);
    repro_free(b);
    return 0;
}

void trial_stages(const repro *r, signature *s)
{
    proc_result res = { 0 };
    fflush(NULL);
    bool ok = proc_run(&(proc_spec){ .fn = stages_child, .arg = (void *)r, .timeout_ms = 10000 }, &res, NULL);
    snprintf(s->stages, sizeof s->stages, "captured:%016llx%.70s", (unsigned long long)ir_hash(r->g),
             ok && !res.status ? strbuf_str(&res.out) : "");
    proc_result_free(&res);
}

const char *stages_differ(const signature *a, const signature *b)
{
    static const char *const names[] = { "captured", "forward", "backward" };
    for (size_t i = 0; i < COUNT(names); i++) {
        const char *x = strstr(a->stages, names[i]), *y = strstr(b->stages, names[i]);
        size_t n = strlen(names[i]) + 17;
        if (x && y && strncmp(x, y, n))
            return names[i];
    }
    return NULL;
}

/* ---- where they part ---- */
static bool comparable(const ir_node *n)
{
    return (n->kind == IR_call || n->kind == IR_getitem) && n->val.kind == VAL_tensor;
}

static void place_print(strbuf *b, const ir_node *n)
{
    strbuf_addf(b, "'%s'", n->name);
    const ir_loc *l = ir_place(n);
    const char *code = l ? ir_loc_code(l) : NULL;
    bool has = code && *code;
    if (l)
        strbuf_addf(b, " (%s:%d%s%s)", l->file ? l->file : "?", l->line, has ? ": " : "", has ? code : "");
}

/* All values of a graph returned at once: one compile shows where the first one goes wrong. */
typedef struct values {
    repro *r;
    result eager, got, fp64;
    VEC(const ir_node *) node;
    run_program *p;
    bool ok, have64;
} values;

/* every: of all nodes, else the results alone */
static values values_of(const repro *r, bool every)
{
    values v = { .r = repro_copy(r) };
    VEC(tp_val) vals = { 0 };
    tp_err err = { 0 };
    tp_comp c = { .err = &err };
    repro *x = v.r;
    IR_EACH (n, x->g)
        if (every && comparable(n)) {
            vec_push(&vals, ((tp_val){ .kind = VAL_node, .node = n }));
            vec_push(&v.node, n);
        }
    if (every)
        ir_set_output(x->g, vals.at, (int)vals.n);
    vec_free(&vals);
    memset(x->needs_grad, 0, (size_t)x->nin);
    v.p = repro_compile(&c, x);
    v.ok = v.p && run_once(x, NULL, x->g, DT_none, &v.eager, NULL) &&
           run_once(x, v.p, x->g, DT_none, &v.got, NULL);
    ir_graph *w = wider(x->g);
    v.have64 = v.ok && !x->no_fp64 && run_once(x, NULL, w, DT_f64, &v.fp64, NULL);
    ir_graph_free(w);
    return v;
}

static void values_free(values *v)
{
    run_program_free(v->p);
    result_free(&v->eager);
    result_free(&v->got);
    result_free(&v->fp64);
    vec_free(&v->node);
    repro_free(v->r);
}

static bool value_differs(const values *v, int i, acc_worst *worst, strbuf *why)
{
    const tp_val *a = &v->eager.out[i], *b = &v->got.out[i];
    const tp_tensor *f = v->have64 && v->fp64.out[i].kind == VAL_tensor ? v->fp64.out[i].t : NULL;
    if (a->kind != VAL_tensor || b->kind != VAL_tensor || acc_same(a->t, b->t, f, &v->r->acc, why))
        return false;
    *worst = acc_largest(a->t, b->t, f);
    return true;
}

static bool diverge_in(const repro *r, const char *which, strbuf *out, char **node)
{
    values v = values_of(r, true);
    bool found = false;
    for (int i = 0; v.ok && i < v.eager.nout && !found; i++) {
        strbuf why = { 0 };
        acc_worst m;
        if (value_differs(&v, i, &m, &why)) {
            found = true;
            strbuf_addf(out, "first diverging node%s: ", which);
            place_print(out, v.node.at[i]);
            if (m.at >= 0) {
                strbuf_add(out, "; largest deviation: ");
                acc_worst_print(out, v.eager.out[i].t, &m);
            } else
                strbuf_addf(out, "; %s", strbuf_str(&why));
            if (node)
                *node = mem_strdup(v.node.at[i]->name);
        }
        strbuf_free(&why);
    }
    values_free(&v);
    return found;
}

/* Returned at once, values may come out right although a graph that returns less goes wrong (fusion is another): then
 * the graph is ended earlier and earlier. */
static bool ends_wrong(const repro *r, int upto)
{
    repro *x = repro_copy(r);
    signature s;
    int k = 0;
    ir_node *last = NULL;
    IR_EACH (n, x->g)
        if (comparable(n) && k++ == upto)
            last = n;
    tp_val v = { .kind = VAL_node, .node = last };
    if (last)
        ir_set_output(x->g, &v, 1);
    memset(x->needs_grad, 0, (size_t)x->nin);
    x->accuracy = true;
    trial_here(x, &s);
    repro_free(x);
    return last && s.kind == SIG_accuracy;
}

static bool diverge_by_end(const repro *r, strbuf *out, char **node)
{
    int n = 0;
    IR_EACH (x, r->g)
        n += comparable(x);
    int lo = 0, hi = n - 1;
    if (n < 1 || !ends_wrong(r, hi))
        return false;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (ends_wrong(r, mid))
            hi = mid;
        else
            lo = mid + 1;
    }
    IR_EACH (x, r->g)
        if (comparable(x) && lo-- == 0) {
            strbuf_add(out, "first diverging node: ");
            place_print(out, x);
            strbuf_add(out, "; it is right as long as it is returned together with what it is made of");
            if (node)
                *node = mem_strdup(x->name);
            break;
        }
    return true;
}

bool trial_diverge(const repro *r, strbuf *out, char **node)
{
    if (diverge_in(r, "", out, node))
        return true;
    repro *b = repro_backward(r, &(tp_err){ 0 });
    bool found = b && diverge_in(b, " of the backward graph", out, node);
    repro_free(b);
    return found || diverge_by_end(r, out, node);
}

int trial_analyze(const repro *r, bool once, strbuf *out)
{
    values v = values_of(r, true), again = { 0 };
    int lines = 0;
    if (!once)
        again = values_of(r, true);
    for (int i = 0; v.ok && i < v.eager.nout; i++) {
        strbuf why = { 0 };
        acc_worst m;
        const char *name = v.node.at[i]->name;
        if (!once && again.ok && again.got.out[i].kind == VAL_tensor && v.got.out[i].kind == VAL_tensor &&
            !acc_same(v.got.out[i].t, again.got.out[i].t, NULL, &(acc_opts){ .equal_nan = true }, NULL)) {
            strbuf_addf(out, "NONDETERMINISTIC INDUCTOR at %s\n", name);
            lines++;
        }
        if (value_differs(&v, i, &m, &why)) {
            strbuf_addf(out, "DIVERGED at %s: %s\n", name, strbuf_str(&why));
            lines++;
        }
        strbuf_free(&why);
    }
    values_free(&v);
    if (!once)
        values_free(&again);
    return lines;
}

/* The largest error of t against float64, over the largest element. NaN where one of them alone is no number. */
static double error_of(const tp_tensor *t, const tp_tensor *f)
{
    double off = 0, scale = 0;
    for (int64_t k = 0; k < t->numel; k++) {
        double x = elem_get_f((dtype)t->dt, tensor_elem(t, k)),
               y = elem_get_f((dtype)f->dt, tensor_elem(f, k));
        if (isnan(x) != isnan(y))
            return NAN;
        if (!isfinite(x) || !isfinite(y))
            continue;
        off = fmax(off, fabs(x - y));
        scale = fmax(scale, fabs(y));
    }
    return scale > 0 ? off / scale : off;
}

typedef struct largest {
    const double *error; /* by node */
    double of;
} largest;
static void operand_error(void *data, ir_node *n)
{
    largest *l = data;
    l->of = fmax(l->of, l->error[n->id]);
}

enum { LEDGER_ROWS = 60 };
bool trial_ledger(const repro *r, strbuf *out)
{
    values v = values_of(r, true);
    int rows = 0;
    ir_renumber(v.r->g);
    double *error = mem_zalloc(sizeof *error * (size_t)MAX(v.r->g->next_id, 1));
    for (int i = 0; v.ok && v.have64 && i < v.eager.nout && rows < LEDGER_ROWS; i++) {
        const tp_val *a = &v.eager.out[i], *b = &v.got.out[i], *f = &v.fp64.out[i];
        const ir_node *n = v.node.at[i];
        if (a->kind != VAL_tensor || b->kind != VAL_tensor || f->kind != VAL_tensor ||
            !dtype_is_float((dtype)a->t->dt) || !tensor_same_size(a->t, b->t) ||
            !tensor_same_size(a->t, f->t))
            continue;
        double eager = error_of(a->t, f->t), got = error_of(b->t, f->t);
        largest l = { error, 0x1p-24 };
        ir_each_operand((ir_node *)n, operand_error, &l);
        error[n->id] = isnan(got) ? INFINITY : got;
        const ir_loc *at = ir_place(n);
        if (!rows++)
            strbuf_add(out,
                       "| value | line | eager | compiled | amplified |\n| --- | --- | --- | --- | --- |\n");
        strbuf_addf(out, "| %s%s | %s:%d | %.2g | %.2g | %.1f |\n", n->name,
                    got > 8 * eager + 0x1p-20 || isnan(got) != isnan(eager) ? " **(worse)**" : "",
                    at && at->file ? at->file : "", at ? at->line : 0, eager, got, got / l.of);
    }
    free(error);
    values_free(&v);
    return rows > 0;
}

/* By place along dimension d: is an element there wrong? */
static void wrong_places(const tp_tensor *a, const tp_tensor *b, int d, double tol, bool *wrong,
                         int64_t *count)
{
    int64_t inner = 1, n = a->size[d];
    for (int k = d + 1; k < a->ndim; k++)
        inner *= a->size[k];
    memset(wrong, 0, (size_t)n);
    *count = 0;
    for (int64_t k = 0; k < a->numel; k++) {
        double x = elem_get_f((dtype)a->dt, tensor_elem(a, k)),
               y = elem_get_f((dtype)b->dt, tensor_elem(b, k));
        bool differs = isnan(x) != isnan(y) || fabs(x - y) > tol * (1 + fabs(x)) ||
                       (isinf(x) != isinf(y) && !isnan(x));
        wrong[k / inner % n] |= differs;
        *count += differs;
    }
}

bool trial_elements(const repro *r, strbuf *out)
{
    enum { MOST = 4096 };
    values v = values_of(r, false);
    bool *wrong = mem_alloc(sizeof *wrong * MOST), said = false;
    int64_t *place = mem_alloc(sizeof *place * MOST), count;
    for (int k = 0; k < MOST; k++)
        place[k] = k;
    for (int i = 0; v.ok && i < v.eager.nout && !said; i++) {
        const tp_val *a = &v.eager.out[i], *b = &v.got.out[i];
        if (a->kind != VAL_tensor || b->kind != VAL_tensor || !tensor_same_size(a->t, b->t) ||
            dtype_is_complex((dtype)a->t->dt))
            continue;
        for (int d = a->t->ndim - 1; d >= 0 && !said; d--) {
            strbuf rule = { 0 };
            if (a->t->size[d] < 4 || a->t->size[d] > MOST)
                continue;
            wrong_places(a->t, b->t, d, r->acc.tol, wrong, &count);
            if (count && condition_rule(place, wrong, (int)a->t->size[d], &rule)) {
                said = true;
                strbuf_addf(out, "%lld of %lld elements, with %s, where n is the place along dimension %d",
                            (long long)count, (long long)a->t->numel, strbuf_str(&rule), d);
            }
            strbuf_free(&rule);
        }
    }
    free(wrong);
    free(place);
    values_free(&v);
    return said;
}

/* ---- in children ---- */
void trial_print(const signature *s)
{
    printf("\x02%d %d\n%s\n%s\n%s\n", (int)s->kind, s->number, s->stage, s->type, s->text);
    for (const char *c = s->full; *c; c++)
        putchar(*c == '\n' ? ' ' : *c);
    putchar('\n');
    fflush(stdout);
}

static int child(void *arg)
{
    signature s;
    ev_trace_stop();
    trial_here(arg, &s);
    trial_print(&s);
    return 0;
}

static const char *take_line(const char *s, char *to, size_t cap)
{
    size_t n = strcspn(s, "\n");
    snprintf(to, cap, "%.*s", (int)n, s);
    return s + n + (s[n] == '\n');
}

void trial_read(const proc_result *r, signature *out)
{
    const char *s = strbuf_str(&r->out), *mark = strrchr(s, 2);
    if (r->timed_out) {
        sig_set(out, SIG_timeout, "run", "no answer in time");
        return;
    }
    if (r->status < 0) {
        char msg[64];
        bool killed = r->status == -SIGKILL; /* nobody but the kernel's memory killer does that here */
        snprintf(msg, sizeof msg, killed ? "killed for its memory" : "killed by signal %d", -r->status);
        sig_set(out, killed ? SIG_oom : SIG_signal, "run", msg);
        out->number = killed ? 0 : -r->status;
        return;
    }
    if (!mark || r->status) {
        sig_set(out, SIG_signal, "run", "the process ended early");
        out->number = r->status;
        return;
    }
    memset(out, 0, sizeof *out);
    int k = atoi(mark + 1);
    const char *num = mark + 1 + strcspn(mark + 1, " \n");
    out->number = *num == ' ' ? atoi(num) : 0;
    out->kind = k >= 0 && k <= SIG_flaky ? (sig_kind)k : SIG_cannot_run;
    const char *at = mark + 1 + strcspn(mark + 1, "\n");
    at += *at == '\n';
    at = take_line(at, out->stage, sizeof out->stage);
    at = take_line(at, out->type, sizeof out->type);
    at = take_line(at, out->text, sizeof out->text);
    take_line(at, out->full, sizeof out->full);
}

static size_t memory_default(void)
{
#if defined __SANITIZE_ADDRESS__ /* reserves more address space than any machine has */
    return 0;
#else
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (size_t)pages / 4 * 3 * (size_t)size : 0;
#endif
}

bool trial_run(const repro *const *r, int n, const trial_limits *l, signature *out, tp_err *err)
{
    enum { MOST = 16 };
    int width = MIN(MAX(l->width ? l->width : pool_threads(), 1), MOST), next = 0, live = 0, which[MOST];
    proc *p[MOST];
    bool ok = true;
    fflush(NULL);
    while (ok && (next < n || live)) {
        while (ok && live < width && next < n) {
            proc_spec s = { .fn = child,
                            .arg = (void *)r[next],
                            .timeout_ms = l->timeout_ms ? l->timeout_ms : 20000,
                            .memory_limit = l->memory ? l->memory : memory_default(),
                            .interrupted = l->interrupted,
                            .data = l->data };
            p[live] = proc_start(&s, err);
            if (!p[live]) {
                ok = false;
                break;
            }
            which[live++] = next++;
        }
        if (!live)
            break;
        int i = proc_wait_any(p, live);
        proc_result res = { 0 };
        proc_end(p[i], &res);
        if (res.interrupted)
            ok = err_set(err, ERR_interrupt, "interrupted");
        trial_read(&res, &out[which[i]]);
        proc_result_free(&res);
        live--;
        p[i] = p[live];
        which[i] = which[live];
    }
    while (live)
        proc_end(p[--live], NULL);
    return ok;
}

/* ---- gradients of a whole graph ---- */
enum { SLOPE_ELEMENTS = 1 << 14, SLOPE_NODES = 300, SLOPE_DIRECTIONS = 3 };

/* Does it write what the caller holds? A run more would begin with other values. */
static bool writes_outside(const ir_node *n)
{
    const ir_node *to = ir_node_writes(n) && n->narg && n->arg[0].kind == VAL_node ? n->arg[0].node : NULL;
    while (to && to->kind == IR_call && to->narg && to->arg[0].kind == VAL_node &&
           (ir_node_writes(to) || op_row_of((op_id)to->op)->flags & OPF_VIEW))
        to = to->arg[0].node;
    return ir_node_writes(n) && (!to || to->kind != IR_call);
}

static bool has_slope(const repro *r)
{
    int64_t n = 0;
    int nodes = 0;
    IR_EACH (x, r->g) {
        const op_row *row = x->kind == IR_call ? op_row_of((op_id)x->op) : NULL;
        if (x->kind == IR_opaque || ++nodes > SLOPE_NODES || (row && writes_outside(x)) ||
            (row && (row->flags & (OPF_RAND | OPF_NODIFF | OPF_DYN) || !strcmp(row->name, "detach"))))
            return false;
        for (int i = 0; row && i < row->schema.nparam; i++)
            if (!strcmp(row->schema.param[i].name, "padding_idx"))
                return false;
    }
    for (int i = 0; i < r->nin; i++)
        n += r->in[i].kind == VAL_tensor ? r->in[i].t->numel : 0;
    return n <= SLOPE_ELEMENTS && repro_has_gradients(r) && !r->inner;
}

/* The sum of the results that gradients were taken of, with the inputs moved by h along dir. */
static bool sum_along(const repro *r, ir_graph *w, tp_tensor *const *base, const double *dir, double h,
                      const bool *counts, double *sum)
{
    result x = { 0 };
    int64_t at = 0;
    for (int i = 0; i < r->nin; i++)
        for (int64_t k = 0; base[i] && k < base[i]->numel; k++)
            *(double *)tensor_elem(r->in[i].t, k) = *(double *)tensor_elem(base[i], k) + h * dir[at++];
    bool ok = run_once(r, NULL, w, DT_none, &x, NULL);
    *sum = 0;
    for (int i = 0; ok && i < x.nout; i++)
        for (int64_t k = 0; counts[i] && x.out[i].kind == VAL_tensor && k < x.out[i].t->numel; k++)
            *sum += elem_get_f((dtype)x.out[i].t->dt, tensor_elem(x.out[i].t, k));
    result_free(&x);
    return ok && isfinite(*sum);
}

/* As of the derivative of one operator (audit.c). */
static int slope_along(const repro *r, ir_graph *w, tp_tensor *const *base, tp_tensor *const *grad,
                       const double *dir, const bool *counts, double top, double *rule, double *diff)
{
    double h = 1e-5 * fmax(top, 1e-3), f0, fp, fm, fp2, fm2, all = 0;
    int64_t at = 0;
    if (!sum_along(r, w, base, dir, 0, counts, &f0) || !sum_along(r, w, base, dir, h, counts, &fp) ||
        !sum_along(r, w, base, dir, -h, counts, &fm) || !sum_along(r, w, base, dir, h / 2, counts, &fp2) ||
        !sum_along(r, w, base, dir, -h / 2, counts, &fm2))
        return -1;
    double far = (fp - fm) / (2 * h), near = (fp2 - fm2) / h, right = (fp - f0) / h, left = (f0 - fm) / h,
           size = fabs(right) + fabs(left) + fabs(f0) * 1e-9 / h;
    if (fabs(far - near) > 1e-4 * size + 1e-10 || fabs(right - left) > 1e-3 * size + 1e-10)
        return -1;
    *rule = 0;
    *diff = near;
    for (int i = 0; i < r->nin; i++)
        for (int64_t k = 0; base[i] && k < base[i]->numel; k++, at++) {
            double g = grad[i] ? elem_get_f((dtype)grad[i]->dt, tensor_elem(grad[i], k)) : 0;
            *rule += g * dir[at];
            all += fabs(g * dir[at]);
        }
    return isfinite(*rule) &&
           fabs(*rule - near) > 1e-3 * (fabs(near) + 1e-2 * all) + 4 * fabs(far - near) + 1e-6 * size + 1e-9;
}

int trial_gradient(const repro *r, double *rule, double *diff)
{
    if (!has_slope(r))
        return -1;
    repro *c = repro_copy(r);
    inputs_free(c->in, c->nin);
    c->in = inputs_copy(r->in, r->nin, DT_f64, NULL);
    result x = { 0 };
    ir_graph *w = wider(c->g);
    int wrong = 0, right = 0, answer = -1;
    if (c->in && run_once(c, NULL, w, DT_none, &x, NULL)) {
        int64_t n = 0;
        double top = 0;
        tp_tensor **base = mem_zalloc(sizeof *base * (size_t)MAX(c->nin, 1)),
                  **grad = mem_zalloc(sizeof *grad * (size_t)MAX(c->nin, 1));
        bool *counts = mem_zalloc((size_t)MAX(x.nout, 1));
        for (int i = 0; i < c->nin; i++) {
            tp_tensor *t = c->in[i].kind == VAL_tensor && c->needs_grad[i] && c->in[i].t->dt == DT_f64
                               ? c->in[i].t
                               : NULL;
            base[i] = t ? tensor_cast(t, DT_f64, NULL) : NULL;
            if (base[i] && base[i]->storage == t->storage) { /* of its own */
                tensor_unref(base[i]);
                base[i] = tensor_new(DT_f64, t->ndim, t->size, NULL);
                tensor_copy(base[i], t, NULL);
            }
            grad[i] = t ? grad_grad(x.in[i].t) : NULL;
            for (int64_t k = 0; base[i] && k < base[i]->numel; k++, n++)
                top = fmax(top, fabs(*(double *)tensor_elem(base[i], k)));
        }
        for (int i = 0; i < x.nout; i++)
            counts[i] = x.out[i].kind == VAL_tensor && grad_requires_grad(x.out[i].t);
        c->forward_only = true;
        double *dir = mem_alloc(sizeof *dir * (size_t)MAX(n, 1));
        uint64_t rng = 20240229;
        for (int d = 0; n && d < SLOPE_DIRECTIONS; d++) {
            for (int64_t k = 0; k < n; k++) {
                rng = rng * 6364136223846793005ull + 1442695040888963407ull;
                dir[k] = (double)(int64_t)(rng >> 11) / 0x1p52 - 1;
            }
            int got = slope_along(c, w, base, grad, dir, counts, top, rule, diff);
            wrong += got == 1;
            right += got == 0;
        }
        answer = wrong >= 2 && !right ? 1 : right ? 0 : -1;
        for (int i = 0; i < c->nin; i++)
            tensor_unref(base[i]);
        free(base);
        free(grad);
        free(counts);
        free(dir);
    }
    result_free(&x);
    ir_graph_free(w);
    repro_free(c);
    return answer;
}
