#include "debug/trial.h"
#include "grad/tape.h"
#include "base/proc.h"
#include "base/pool.h"
#include <ctype.h>
#include <stdio.h>
#include <unistd.h>

static const char *const names[] = { "passes", "cannot run", "compile error", "exception", "accuracy",
                                     "signal", "time-out",   "out of memory", "flaky" };
const char *sig_name(sig_kind k) { return names[k]; }

bool sig_equal(const signature *a, const signature *b)
{
    if (a->kind != b->kind || a->number != b->number)
        return false;
    return (a->kind != SIG_compile_error && a->kind != SIG_exception) || !strcmp(a->text, b->text);
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
        } else
            out[n++] = *s;
    }
    out[n] = 0;
}

static void set(signature *s, sig_kind k, const char *msg)
{
    memset(s, 0, sizeof *s);
    s->kind = k;
    snprintf(s->full, sizeof s->full, "%s", msg);
    normalise(msg, s->text, sizeof s->text);
}

/* ---- repro ---- */
static tp_val own_input(const tp_val *v, tp_err *err)
{
    tp_val r = *v;
    if (v->kind == VAL_tensor) { /* same strides, bytes of its own */
        tp_tensor *t = v->t,
                  *c = tensor_new_strided((dtype)t->dt, t->ndim, t->size, t->stride, DEVICE_CPU, err);
        if (c && !tensor_overlaps_itself(t))
            tensor_copy(c, t, err);
        else if (c) { /* expanded inputs keep their strides: copy through the storage extent */
            tensor_unref(c);
            c = tensor_ref(t);
        }
        r = vT(c);
    }
    return r;
}

repro *repro_new(const ir_graph *g, const tp_val *in, int nin, const char *backend)
{
    repro *r = mem_zalloc(sizeof *r);
    r->g = ir_graph_copy(g);
    r->nin = nin;
    r->in = mem_zalloc(sizeof *r->in * (size_t)MAX(nin, 1));
    r->needs_grad = mem_zalloc((size_t)MAX(nin, 1));
    r->backend = mem_strdup(backend);
    r->acc = (acc_opts){ .tol = 1e-3, .equal_nan = true };
    for (int i = 0; i < nin; i++) {
        r->in[i] = own_input(&in[i], NULL);
        r->needs_grad[i] = in[i].kind == VAL_tensor && ag_requires_grad(in[i].t);
    }
    return r;
}

repro *repro_copy(const repro *r)
{
    repro *c = repro_new(r->g, r->in, r->nin, r->backend);
    memcpy(c->needs_grad, r->needs_grad, sizeof(bool) * (size_t)r->nin);
    c->accuracy = r->accuracy;
    c->acc = r->acc;
    return c;
}

void repro_free(repro *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->nin; i++)
        if (r->in[i].kind == VAL_tensor)
            tensor_unref(r->in[i].t);
    free(r->in);
    free(r->needs_grad);
    free(r->backend);
    ir_graph_free(r->g);
    free(r);
}

/* ---- one run ---- */
typedef struct result {
    tp_val *out;
    int nout;
    tp_tensor **in; /* inputs as they are afterwards, with gradients */
    int nin;
} result;

static void result_free(result *x)
{
    for (int i = 0; i < x->nout; i++)
        val_clear(&x->out[i]);
    for (int i = 0; i < x->nin; i++)
        tensor_unref(x->in[i]);
    free(x->out);
    free(x->in);
    memset(x, 0, sizeof *x);
}

/* p NULL: the interpreter under the tape. dt: floats are converted to it (DT_none: left alone). */
static bool run_once(const repro *r, run_program *p, ir_graph *g, dtype dt, result *x, tp_err *err)
{
    op_ctx cx = *op_ctx_cur();
    bool grads = false, ok = false;
    tp_val *in = mem_zalloc(sizeof *in * (size_t)MAX(r->nin, 1));
    cx.rec = NULL;
    x->nin = r->nin;
    x->nout = g->output->narg;
    x->in = mem_zalloc(sizeof *x->in * (size_t)MAX(x->nin, 1));
    x->out = mem_zalloc(sizeof *x->out * (size_t)MAX(x->nout, 1));
    for (int i = 0; i < r->nin; i++) {
        in[i] = r->in[i];
        if (r->in[i].kind != VAL_tensor)
            continue;
        tp_val v = own_input(&r->in[i], err);
        if (v.t && dt != DT_none && dtype_is_float((dtype)v.t->dt)) {
            tp_tensor *w = tensor_cast(v.t, dt, err);
            tensor_unref(v.t);
            v.t = w;
        }
        if (!v.t)
            goto done;
        x->in[i] = v.t;
        in[i] = vT(v.t);
        if (r->needs_grad[i] && dtype_is_float((dtype)v.t->dt)) {
            grads = true;
            if (!ag_set_requires_grad(&cx, v.t, true, err))
                goto done;
        }
    }
    cx.grad_mode = grads;
    ir_hook h = { .call = grad_call, .opaque = run_opaque };
    ok = p ? run_program_call(p, &cx, in, r->nin, x->out, x->nout, err)
           : ir_run(&cx, g, in, r->nin, x->out, x->nout, &h, err);
    if (!ok)
        x->nout = 0;
    if (ok && grads) {
        tp_tensor **root = mem_zalloc(sizeof *root * (size_t)MAX(x->nout, 1)),
                  **dy = mem_zalloc(sizeof *dy * (size_t)MAX(x->nout, 1));
        int n = 0;
        for (int i = 0; i < x->nout; i++)
            if (x->out[i].kind == VAL_tensor && ag_requires_grad(x->out[i].t)) {
                root[n] = x->out[i].t;
                tp_tensor *one = tensor_scalar((dtype)root[n]->dt, 1, 1, NULL);
                dy[n] = tensor_new((dtype)root[n]->dt, root[n]->ndim, root[n]->size, err);
                if (dy[n] && one)
                    tensor_copy(dy[n], one, err);
                tensor_unref(one);
                n++;
            }
        ag_options o = { 0 };
        if (n)
            ok = ag_backward(&cx, root, n, dy, &o, err);
        for (int i = 0; i < n; i++)
            tensor_unref(dy[i]);
        free(root);
        free(dy);
    }
done:
    free(in);
    return ok;
}

/* The graph computing in float64: dtype arguments that name a float become float64. */
static ir_graph *wider(const ir_graph *g)
{
    ir_graph *w = ir_graph_copy(g);
    IR_EACH(n, w)
    for (int i = 0; i < n->narg; i++)
        if (n->arg[i].kind == VAL_dtype && dtype_is_float((dtype)n->arg[i].i))
            n->arg[i].i = DT_f64;
    return w;
}

static bool compare(const repro *r, const result *eager, const result *got, const result *fp64, strbuf *why)
{
    for (int i = 0; i < eager->nout; i++) {
        if (eager->out[i].kind != VAL_tensor || got->out[i].kind != VAL_tensor)
            continue;
        const tp_tensor *f = fp64 && fp64->out[i].kind == VAL_tensor ? fp64->out[i].t : NULL;
        strbuf_clear(why);
        strbuf_addf(why, "result %d: ", i);
        if (!acc_same(eager->out[i].t, got->out[i].t, f, &r->acc, why))
            return false;
    }
    for (int i = 0; i < eager->nin; i++) {
        if (!eager->in[i])
            continue;
        strbuf_clear(why);
        strbuf_addf(why, "input %d after the call: ", i);
        if (!acc_same(eager->in[i], got->in[i], fp64 ? fp64->in[i] : NULL, &r->acc, why))
            return false;
        tp_tensor *a = ag_grad(eager->in[i]), *b = ag_grad(got->in[i]),
                  *c = fp64 ? ag_grad(fp64->in[i]) : NULL;
        strbuf_clear(why);
        strbuf_addf(why, "gradient of input %d: ", i);
        if ((a != NULL) != (b != NULL)) {
            strbuf_add(why, "only one of the two has it");
            return false;
        }
        if (a && !acc_same(a, b, c, &r->acc, why))
            return false;
    }
    return true;
}

static sig_kind kind_of(const tp_err *e)
{
    return e->kind == ERR_memory || e->kind == ERR_oom ? SIG_oom : SIG_exception;
}

void trial_here(const repro *r, signature *out)
{
    tp_err err = { 0 };
    result eager = { 0 }, got = { 0 }, fp64 = { 0 };
    run_program *p = NULL;
    strbuf why = { 0 };
    ir_graph *w = NULL;
    tp_comp c = { .err = &err };

    set(out, SIG_passes, "");
    if (!run_once(r, NULL, r->g, DT_none, &eager, &err)) {
        set(out, SIG_cannot_run, err.msg);
        goto done;
    }
    for (int i = 0; i < r->nin; i++) /* what needs a gradient is part of a graph's type */
        if (r->needs_grad[i] && ir_type(r->g->inputs.at[i]))
            ag_set_requires_grad(op_ctx_cur(), ir_type(r->g->inputs.at[i]), true, NULL);
    p = backend_compile(&c, r->backend, r->g);
    if (!p) {
        set(out, SIG_compile_error, err.msg);
        goto done;
    }
    if (!run_once(r, p, r->g, DT_none, &got, &err)) {
        set(out, kind_of(&err), err.msg);
        goto done;
    }
    if (!r->accuracy)
        goto done;
    w = wider(r->g);
    bool have64 = run_once(r, NULL, w, DT_f64, &fp64, NULL);
    if (!compare(r, &eager, &got, have64 ? &fp64 : NULL, &why))
        set(out, SIG_accuracy, strbuf_str(&why));
done:
    run_program_free(p);
    result_free(&eager);
    result_free(&got);
    result_free(&fp64);
    ir_graph_free(w);
    strbuf_free(&why);
}

/* ---- in children ---- */
static int child(void *arg)
{
    signature s;
    trial_here(arg, &s);
    printf("\x02%d\n%s\n%s\n", (int)s.kind, s.text, s.full);
    fflush(stdout);
    return 0;
}

static void read_back(const proc_result *r, signature *out)
{
    const char *s = strbuf_str(&r->out), *mark = strrchr(s, 2);
    if (r->timed_out) {
        set(out, SIG_timeout, "no answer in time");
        return;
    }
    if (r->status < 0) {
        char msg[64];
        snprintf(msg, sizeof msg, "killed by signal %d", -r->status);
        set(out, SIG_signal, msg);
        out->number = -r->status;
        return;
    }
    if (!mark || r->status) {
        set(out, SIG_signal, "the process ended early");
        out->number = r->status;
        return;
    }
    memset(out, 0, sizeof *out);
    out->kind = (sig_kind)atoi(mark + 1);
    const char *text = strchr(mark, '\n'), *full = text ? strchr(text + 1, '\n') : NULL;
    if (text && full)
        snprintf(out->text, sizeof out->text, "%.*s", (int)(full - text - 1), text + 1);
    if (full)
        snprintf(out->full, sizeof out->full, "%.*s", (int)strcspn(full + 1, "\n"), full + 1);
}

bool trial_run(const repro *const *r, int n, const trial_limits *l, signature *out, tp_err *err)
{
    enum { MOST = 16 };
    int width = MIN(MAX(pool_threads(), 1), MOST), next = 0, live = 0, which[MOST];
    proc *p[MOST];
    bool ok = true;
    fflush(NULL);
    while (ok && (next < n || live)) {
        while (ok && live < width && next < n) {
            proc_spec s = { .fn = child,
                            .arg = (void *)r[next],
                            .timeout_ms = l->timeout_ms ? l->timeout_ms : 20000,
                            .memory_limit = l->memory,
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
        read_back(&res, &out[which[i]]);
        proc_result_free(&res);
        live--;
        p[i] = p[live];
        which[i] = which[live];
    }
    while (live)
        proc_end(p[--live], NULL);
    return ok;
}
