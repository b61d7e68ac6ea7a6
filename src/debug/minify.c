/* minify.c - delta debugging over graphs. A candidate is the current graph after one kind of cut; only the same
 * failure signature is progress. Cuts, cheapest first: fewer results, an earlier end, values in place of computed
 * nodes, an operand in place of a result. Halves first, then quarters, down to single nodes; after a success the
 * search goes on where it stands. */
#include "debug/minify.h"
#include "ir/pass.h"
#include "base/clock.h"
#include <stdio.h>

typedef struct search {
    repro *now;
    signature want;
    const minify_opts *o;
    minify_stats *st;
    map memo; /* graph hash and inputs -> verdict + 1 */
    bool stopped;
    tp_err *err;
    /* values of every node of `now`, by node id; owned */
    tp_val *val;
    int nval;
} search;

int repro_ops(const repro *r)
{
    int n = 0;
    IR_EACH(x, r->g)
    n += x->kind == IR_call || x->kind == IR_opaque;
    return n;
}

static void say(search *s, const char *fmt, ...) TP_PRINTF(2, 3);
static void say(search *s, const char *fmt, ...)
{
    if (!s->o->progress)
        return;
    strbuf b = { 0 };
    va_list ap;
    va_start(ap, fmt);
    strbuf_addv(&b, fmt, ap);
    va_end(ap);
    s->o->progress(s->o->data, strbuf_str(&b));
    strbuf_free(&b);
}

/* ---- recorded values ---- */
static bool keep(void *data, ir_node *n, tp_val *v, tp_err *err)
{
    search *s = data;
    if (n->id < s->nval && v->kind == VAL_tensor) {
        tp_tensor *t = v->t,
                  *c = tensor_new_strided((dtype)t->dt, t->ndim, t->size,
                                          tensor_overlaps_itself(t) ? NULL : t->stride, DEVICE_CPU, err);
        if (!c || !tensor_copy(c, t, err))
            return false;
        s->val[n->id] = vT(c);
    }
    return true;
}

static void forget(search *s)
{
    for (int i = 0; i < s->nval; i++)
        val_clear(&s->val[i]);
    free(s->val);
    s->val = NULL;
    s->nval = 0;
}

/* Run the current graph once and keep what every node gives: a value may stand in for its node. */
static bool record_values(search *s)
{
    forget(s);
    repro *r = s->now;
    ir_renumber(r->g);
    s->nval = r->g->next_id;
    s->val = mem_zalloc(sizeof *s->val * (size_t)MAX(s->nval, 1));
    tp_val *out = mem_zalloc(sizeof *out * (size_t)MAX(r->g->output->narg, 1));
    tp_val *in = mem_zalloc(sizeof *in * (size_t)MAX(r->nin, 1));
    op_ctx cx = *op_ctx_cur();
    tp_err err = { 0 };
    cx.rec = NULL;
    cx.grad_mode = false;
    for (int i = 0; i < r->nin; i++) { /* writes must not reach the recorded inputs */
        in[i] = r->in[i];
        if (in[i].kind == VAL_tensor) {
            tp_tensor *c = tensor_new_strided((dtype)in[i].t->dt, in[i].t->ndim, in[i].t->size,
                                              tensor_overlaps_itself(in[i].t) ? NULL : in[i].t->stride,
                                              DEVICE_CPU, &err);
            if (c)
                tensor_copy(c, in[i].t, &err);
            in[i] = vT(c);
        }
    }
    ir_hook h = { .after = keep, .data = s, .opaque = run_opaque };
    h.data = s;
    bool ok = ir_run(&cx, r->g, in, r->nin, out, r->g->output->narg, &h, &err);
    for (int i = 0; ok && i < r->g->output->narg; i++)
        val_clear(&out[i]);
    for (int i = 0; i < r->nin; i++)
        if (in[i].kind == VAL_tensor)
            tensor_unref(in[i].t);
    free(in);
    free(out);
    return ok;
}

/* ---- candidates ---- */
/* Drop what nobody needs: nodes, then inputs. */
static bool tidy(repro *r)
{
    tp_err err = { 0 };
    tp_comp c = { .err = &err };
    if (!pass_dce(&c, r->g))
        return false;
    for (int i = r->nin - 1; i >= 0; i--) {
        ir_node *p = r->g->inputs.at[i];
        bool symbols = p->val.kind == VAL_int;
        const tp_tensor *t = ir_type(p);
        for (int d = 0; t && d < t->ndim; d++)
            symbols |= sym_is_expr(t->size[d]);
        if (p->nuse || symbols)
            continue;
        ir_erase(p);
        if (r->in[i].kind == VAL_tensor)
            tensor_unref(r->in[i].t);
        memmove(&r->in[i], &r->in[i + 1], sizeof *r->in * (size_t)(r->nin - i - 1));
        memmove(&r->needs_grad[i], &r->needs_grad[i + 1], sizeof(bool) * (size_t)(r->nin - i - 1));
        r->nin--;
    }
    return ir_verify(r->g, &err);
}

static ir_node *nth(ir_graph *g, int id)
{
    IR_EACH(n, g)
    if (n->id == id)
        return n;
    return NULL;
}

/* A computed node becomes an input that holds its recorded value. */
static bool cut_node(search *s, repro *r, int id)
{
    ir_node *n = nth(r->g, id);
    if (!n || n->kind != IR_call || s->val[id].kind != VAL_tensor || n->val.kind != VAL_tensor || !n->nuse)
        return false;
    for (int d = 0; d < ir_type(n)->ndim; d++)
        if (sym_is_expr(ir_type(n)->size[d]))
            return false;
    tp_tensor *v = s->val[id].t;
    ir_node *p = ir_add_placeholder(r->g, n->name, n->name, ir_type(n));
    ir_replace_uses(n, p);
    r->in = mem_realloc(r->in, sizeof *r->in * (size_t)(r->nin + 1));
    r->needs_grad = mem_realloc(r->needs_grad, sizeof(bool) * (size_t)(r->nin + 1));
    tp_tensor *c = tensor_new_strided((dtype)v->dt, v->ndim, v->size, v->stride, DEVICE_CPU, NULL);
    if (!c)
        return false;
    tensor_copy(c, v, NULL);
    r->in[r->nin] = vT(c);
    bool any = false;
    for (int i = 0; i < r->nin; i++)
        any |= r->needs_grad[i];
    r->needs_grad[r->nin++] = any && dtype_is_float((dtype)v->dt);
    return true;
}

/* ---- judging ---- */
static uint64_t key_of(const repro *r)
{
    uint64_t h = ir_hash(r->g);
    for (int i = 0; i < r->nin; i++) {
        h = hash_mix(h, r->needs_grad[i]);
        if (r->in[i].kind == VAL_tensor && r->in[i].t->numel && tensor_is_contiguous(r->in[i].t))
            h = hash_bytes(tensor_data(r->in[i].t),
                           MIN((size_t)r->in[i].t->numel * dtype_size((dtype)r->in[i].t->dt), (size_t)4096),
                           h);
    }
    return h;
}

static bool ask(search *s, repro **cand, int n, int *hit) /* index of the first that fails alike */
{
    signature sig[16];
    const repro *run[16];
    int which[16], nrun = 0;
    *hit = -1;
    for (int i = 0; i < n; i++) {
        uintptr_t known = (uintptr_t)map_geti(&s->memo, key_of(cand[i]));
        if (known) {
            s->st->hits++;
            if (known == 2 && *hit < 0)
                *hit = i;
            continue;
        }
        which[nrun] = i;
        run[nrun++] = cand[i];
    }
    if (*hit >= 0 || !nrun)
        return true;
    if (s->o->fails)
        for (int i = 0; i < nrun; i++) {
            memset(&sig[i], 0, sizeof sig[i]);
            if (!s->o->fails(s->o->data, run[i], &sig[i]))
                sig[i].kind = SIG_passes;
        }
    else if (!trial_run(run, nrun, &s->o->limits, sig, s->err)) {
        s->stopped = true;
        return false;
    }
    s->st->trials += nrun;
    for (int i = nrun - 1; i >= 0; i--) {
        bool same = sig_equal(&sig[i], &s->want);
        map_puti(&s->memo, key_of(run[i]), (void *)(uintptr_t)(same ? 2 : 1));
        if (same)
            *hit = which[i];
    }
    return true;
}

static void accept(search *s, repro *r)
{
    repro_free(s->now);
    s->now = r;
    say(s, "%d operators, %d inputs, %d results left after %d trials", repro_ops(r), r->nin,
        r->g->output->narg, s->st->trials);
    if (s->o->best)
        s->o->best(s->o->data, r, repro_ops(r));
}

/* Two candidates at a time: one per core. Frees the ones that lose; true when one won. */
static bool contest(search *s, repro **cand, int n)
{
    int hit;
    bool ok = n && ask(s, cand, n, &hit);
    for (int i = 0; i < n; i++)
        if (!ok || i != hit)
            repro_free(cand[i]);
    if (!ok || hit < 0)
        return false;
    accept(s, cand[hit]);
    return true;
}

enum { WIDTH = 2 };

/* ---- moves ---- */
static repro *with_outputs(search *s, int from, int count, bool complement)
{
    const ir_node *o = s->now->g->output;
    repro *r = repro_copy(s->now);
    VEC(tp_val) out = { 0 };
    for (int i = 0; i < o->narg; i++)
        if ((i >= from && i < from + count) != complement)
            vec_push(&out, r->g->output->arg[i]);
    bool ok = out.n > 0;
    if (ok)
        ir_set_output(r->g, out.at, (int)out.n);
    vec_free(&out);
    if (!ok || !tidy(r)) {
        repro_free(r);
        return NULL;
    }
    return r;
}

static bool fewer_results(search *s)
{
    bool any = false;
    for (int size = s->now->g->output->narg / 2; size >= 1 && !s->stopped; size /= 2)
        for (int at = 0; at < s->now->g->output->narg && s->now->g->output->narg > size && !s->stopped;) {
            repro *c[WIDTH];
            int n = 0;
            for (int k = 0; k < 2; k++) {
                repro *r = with_outputs(s, at, size, k);
                if (r)
                    c[n++] = r;
            }
            if (contest(s, c, n))
                any = true;
            else
                at += size;
        }
    return any;
}

/* The graph ends at an earlier node. */
static repro *ending_at(search *s, int id)
{
    repro *r = repro_copy(s->now);
    ir_renumber(r->g);
    ir_node *n = nth(r->g, id);
    if (!n || (n->kind != IR_call && n->kind != IR_getitem && n->kind != IR_opaque) ||
        n->val.kind != VAL_tensor) {
        repro_free(r);
        return NULL;
    }
    tp_val v = { .kind = VAL_node, .node = n };
    ir_set_output(r->g, &v, 1);
    if (!tidy(r) || repro_ops(r) >= repro_ops(s->now)) {
        repro_free(r);
        return NULL;
    }
    return r;
}

static bool earlier_end(search *s)
{
    bool any = false;
    for (int step = s->now->g->nnode / 2; step >= 1 && !s->stopped; step /= 2) {
        ir_renumber(s->now->g);
        for (int at = step; at < s->now->g->nnode && !s->stopped; at += step * WIDTH) {
            repro *c[WIDTH];
            int n = 0;
            for (int k = 0; k < WIDTH; k++) {
                repro *r = ending_at(s, at + k * step);
                if (r)
                    c[n++] = r;
            }
            if (contest(s, c, n)) {
                any = true;
                ir_renumber(s->now->g);
                at = 0;
                step = MIN(step, MAX(s->now->g->nnode / 2, 1));
            }
        }
    }
    return any;
}

static repro *with_values(search *s, int from, int count)
{
    repro *r = repro_copy(s->now);
    ir_renumber(r->g);
    bool any = false;
    for (int id = from; id < from + count; id++)
        any |= cut_node(s, r, id);
    if (!any || !tidy(r) || repro_ops(r) >= repro_ops(s->now)) {
        repro_free(r);
        return NULL;
    }
    return r;
}

static bool values_for_nodes(search *s)
{
    bool any = false;
    if (!record_values(s))
        return false;
    for (int size = MAX(s->now->g->nnode / 2, 1); size >= 1 && !s->stopped; size /= 2)
        for (int at = 0; at < s->nval && !s->stopped;) {
            repro *c[WIDTH];
            int n = 0, step = 0;
            for (int k = 0; k < WIDTH; k++, step += size) {
                repro *r = with_values(s, at + step, size);
                if (r)
                    c[n++] = r;
            }
            if (contest(s, c, n)) {
                any = true;
                if (!record_values(s)) /* node numbers changed */
                    return any;
                size = MIN(size, MAX(s->now->g->nnode, 1));
                at = 0;
            } else
                at += step;
        }
    return any;
}

/* A result is replaced by one of its operands of the same type. */
static repro *with_operand(search *s, int id, int which)
{
    repro *r = repro_copy(s->now);
    ir_renumber(r->g);
    ir_node *n = nth(r->g, id), *by = NULL;
    const tp_tensor *t = n ? ir_type(n) : NULL;
    if (n && n->kind == IR_call && t)
        for (int i = 0, k = 0; i < n->narg && !by; i++)
            if (n->arg[i].kind == VAL_node && ir_type(n->arg[i].node) &&
                ir_type(n->arg[i].node)->dt == t->dt && tensor_same_size(ir_type(n->arg[i].node), t) &&
                k++ == which)
                by = n->arg[i].node;
    if (!by) {
        repro_free(r);
        return NULL;
    }
    ir_replace_uses(n, by);
    if (!tidy(r) || repro_ops(r) >= repro_ops(s->now)) {
        repro_free(r);
        return NULL;
    }
    return r;
}

static bool operands_for_results(search *s)
{
    bool any = false;
    ir_renumber(s->now->g);
    for (int id = 0; id < s->now->g->nnode && !s->stopped; id++) {
        repro *c[WIDTH];
        int n = 0;
        for (int k = 0; k < WIDTH; k++) {
            repro *r = with_operand(s, id, k);
            if (r)
                c[n++] = r;
        }
        if (contest(s, c, n)) {
            any = true;
            ir_renumber(s->now->g);
            id = -1;
        }
    }
    return any;
}

/* Inputs of all ones (or zeros) say more than random numbers. */
static bool simpler_inputs(search *s)
{
    bool any = false;
    for (int i = 0; i < s->now->nin && !s->stopped; i++) {
        tp_tensor *t = s->now->in[i].kind == VAL_tensor ? s->now->in[i].t : NULL;
        if (!t || !t->numel || !dtype_is_float((dtype)t->dt))
            continue;
        bool plain = true;
        for (int64_t k = 0; k < t->numel && plain; k++)
            plain = elem_get_f((dtype)t->dt, tensor_elem(t, k)) == 1;
        if (plain)
            continue;
        repro *r = repro_copy(s->now);
        tp_tensor *one = tensor_scalar((dtype)t->dt, 1, 1, NULL);
        tensor_copy(r->in[i].t, one, NULL);
        tensor_unref(one);
        any |= contest(s, &r, 1);
    }
    return any;
}

repro *minify(const repro *r, const minify_opts *o, minify_stats *st, tp_err *err)
{
    search s = { .now = repro_copy(r), .o = o, .st = st, .err = err };
    int64_t t0 = clock_ns();
    memset(st, 0, sizeof *st);
    st->before = repro_ops(r);
    /* it must fail, and fail alike each time */
    for (int i = 0; i < 2; i++) {
        const repro *one = s.now;
        signature sig;
        memset(&sig, 0, sizeof sig);
        if (o->fails) {
            if (!o->fails(o->data, one, &sig))
                sig.kind = SIG_passes;
        } else if (!trial_run(&one, 1, &o->limits, &sig, err))
            goto fail;
        st->trials++;
        if (sig.kind == SIG_passes || sig.kind == SIG_cannot_run) {
            err_set(err, ERR_runtime,
                    i                        ? "Input graph failed once and then passed: the failure is flaky"
                    : sig.kind == SIG_passes ? "Input graph did not fail the tester"
                                             : "Input graph cannot run at all: %s",
                    sig.full);
            goto fail;
        }
        if (i && !sig_equal(&sig, &s.want)) {
            err_set(err, ERR_runtime, "Input graph fails in different ways from run to run: %s, then %s",
                    sig_name(s.want.kind), sig_name(sig.kind));
            goto fail;
        }
        s.want = sig;
    }
    st->sig = s.want;
    say(&s, "Started off with %d operators; the failure is %s: %s", st->before, sig_name(s.want.kind),
        s.want.full);
    repro *tidied = repro_copy(s.now);
    if (tidy(tidied))
        contest(&s, &tidied, 1);
    else
        repro_free(tidied);
    for (bool more = true; more && !s.stopped;) {
        more = fewer_results(&s);
        more |= earlier_end(&s);
        more |= values_for_nodes(&s);
        more |= operands_for_results(&s);
    }
    simpler_inputs(&s);
    forget(&s);
    for (int i = 0; i < 3 && !s.stopped; i++) { /* the answer must hold by itself */
        const repro *one = s.now;
        signature sig;
        memset(&sig, 0, sizeof sig);
        if (o->fails ? !o->fails(o->data, one, &sig)
                     : !trial_run(&one, 1, &o->limits, &sig, err) || !sig_equal(&sig, &s.want)) {
            err_set(err, ERR_runtime, "the minimal graph does not fail every time");
            goto fail;
        }
    }
    map_free(&s.memo);
    st->after = repro_ops(s.now);
    st->seconds = (double)(clock_ns() - t0) / 1e9;
    if (s.stopped)
        err_clear(err);
    say(&s, "Went from %d to %d operators in %d trials (%d answered from memory), %.1f s", st->before,
        st->after, st->trials, st->hits, st->seconds);
    return s.now;
fail:
    map_free(&s.memo);
    forget(&s);
    repro_free(s.now);
    return NULL;
}
