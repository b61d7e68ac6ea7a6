/* minify.c - delta debugging over graphs. A candidate is the current graph after one cut; only the same failure
 * signature is progress. Cuts, cheapest first: no gradients, numbers for symbols, fewer results, an earlier end, values in
 * place of computed nodes, an operand in place of a result; then smaller sizes, plainer element types, arguments and
 * inputs. Large steps first, then halves of them, down to single nodes; after a success the search goes on where it stands,
 * and it ends when a whole round finds nothing: the answer is minimal with respect to every single cut. */
#include "debug/minify.h"
#include "ir/hop.h"
#include "ir/pass.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/pool.h"
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 16 }; /* candidates at once */

typedef struct search {
    repro *now;
    signature want;
    const minify_opts *o;
    minify_stats *st;
    map memo;       /* graph hash and inputs -> verdict: 2 fails alike, 1 does not */
    uint64_t start; /* key of the repro the search began with */
    int width;
    bool stopped;
    tp_err *err;
    tp_val *val; /* what the nodes of `now` give, by node id; owned */
    int nval;
} search;

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
static void unmap(void *ctx, void *data) { munmap(data, (size_t)ctx); }

/* The same tensor with its bytes in a file, mapped: the system may take the memory whenever it wants. Where that is not
 * possible, t itself. */
static tp_tensor *offloaded(const minify_opts *o, const char *name, tp_tensor *t)
{
    size_t n = (size_t)t->storage->nbytes;
    char *path = path_join(o->offload, name);
    struct stat st;
    void *at = MAP_FAILED;
    tp_tensor *m = NULL;
    bool there = o->reuse_offloaded && !stat(path, &st) && (size_t)st.st_size == n;
    if (n && t->storage->data && (there || file_write(path, t->storage->data, n, NULL))) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        at = fd >= 0 ? mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) : MAP_FAILED;
        if (fd >= 0)
            close(fd);
    }
    if (at != MAP_FAILED) {
        tp_storage *s = storage_wrap(at, (int64_t)n, unmap, (void *)n);
        m = tensor_on(s, (dtype)t->dt, t->ndim, t->size, t->stride, t->offset);
        storage_unref(s);
        tensor_unref(t);
    }
    free(path);
    return m ? m : t;
}

static bool keep(void *data, ir_node *n, tp_val *v, tp_err *err)
{
    search *s = data;
    if (n->id < s->nval && v->kind == VAL_tensor) {
        tp_tensor *t = v->t,
                  *c = tensor_new_strided((dtype)t->dt, t->ndim, t->size,
                                          tensor_overlaps_itself(t) ? NULL : t->stride, DEVICE_CPU, err);
        if (!c || !tensor_copy(c, t, err)) {
            tensor_unref(c);
            return false;
        }
        s->val[n->id] = vT(s->o->offload ? offloaded(s->o, n->name, c) : c);
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
    repro *r = s->now;
    forget(s);
    ir_renumber(r->g);
    s->nval = r->g->next_id;
    s->val = mem_zalloc(sizeof *s->val * (size_t)MAX(s->nval, 1));
    tp_val *out = mem_zalloc(sizeof *out * (size_t)MAX(r->g->output->narg, 1));
    tp_val *in = inputs_copy(r->in, r->nin, DT_none, NULL); /* writes must not reach the recorded inputs */
    op_ctx cx = *op_ctx_cur();
    tp_err err = { 0 };
    cx.rec = NULL;
    cx.grad_mode = false;
    ir_hook h = { .after = keep, .data = s, .opaque = run_opaque };
    bool ok = in && ir_run(&cx, r->g, in, r->nin, out, r->g->output->narg, &h, &err);
    for (int i = 0; ok && i < r->g->output->narg; i++)
        val_clear(&out[i]);
    inputs_free(in, r->nin);
    free(out);
    return ok;
}

/* ---- candidates ---- */
static void drop_input(repro *r, int i)
{
    ir_erase(r->g->inputs.at[i]);
    if (r->in[i].kind == VAL_tensor)
        tensor_unref(r->in[i].t);
    memmove(&r->in[i], &r->in[i + 1], sizeof *r->in * (size_t)(r->nin - i - 1));
    memmove(&r->needs_grad[i], &r->needs_grad[i + 1], (size_t)(r->nin - i - 1));
    r->nin--;
}

/* Is there no other input that tells this symbolic size? */
static bool tells_alone(const repro *r, int i, symint v)
{
    for (int k = 0; k < r->nin; k++) {
        const tp_tensor *t = k != i ? ir_type(r->g->inputs.at[k]) : NULL;
        for (int d = 0; t && d < t->ndim; d++)
            if (t->size[d] == v)
                return false;
    }
    return true;
}

static bool binds_alone(const repro *r, int i)
{
    const ir_node *p = r->g->inputs.at[i];
    const tp_tensor *t = ir_type(p);
    bool alone = !t && (p->val.kind != VAL_int || !sym_is_expr(p->val.i) || tells_alone(r, i, p->val.i));
    for (int d = 0; t && d < t->ndim; d++)
        alone |= sym_is_expr(t->size[d]) && tells_alone(r, i, t->size[d]);
    return alone;
}

/* Drop what nobody needs: nodes, then inputs. Not by the compiler's pass, which may be what is at fault. */
static bool tidy(repro *r)
{
    tp_err err = { 0 };
    for (ir_node *n = r->g->last, *prev; n; n = prev) {
        prev = n->prev;
        if (n->kind != IR_output && !n->nuse && !ir_node_is_effect(n))
            ir_erase(n);
    }
    for (int i = r->nin - 1; i >= 0; i--) {
        ir_node *p = r->g->inputs.at[i];
        if (!p->nuse && !binds_alone(r, i))
            drop_input(r, i);
    }
    return ir_verify(r->g, &err);
}

typedef struct cand { /* a copy of the current repro with its nodes by number */
    repro *r;
    ir_node **node;
    int n;
} cand;

static cand cand_new(search *s)
{
    cand c = { .r = repro_copy(s->now) };
    ir_renumber(c.r->g);
    c.n = c.r->g->next_id;
    c.node = mem_zalloc(sizeof *c.node * (size_t)MAX(c.n, 1));
    IR_EACH (n, c.r->g)
        if (n->id < c.n)
            c.node[n->id] = n;
    return c;
}

static repro *cand_done(search *s, cand *c, bool ok, bool smaller) /* NULL when it is no candidate */
{
    free(c->node);
    if (ok && tidy(c->r) && (!smaller || repro_ops(c->r) < repro_ops(s->now)))
        return c->r;
    repro_free(c->r);
    return NULL;
}

/* A computed node becomes an input that holds its recorded value. */
static bool cut_node(search *s, cand *c, int id)
{
    ir_node *n = id < c->n ? c->node[id] : NULL;
    repro *r = c->r;
    if (!n || (n->kind != IR_call && n->kind != IR_getitem && n->kind != IR_opaque) || id >= s->nval ||
        s->val[id].kind != VAL_tensor || n->val.kind != VAL_tensor || !n->nuse)
        return false;
    bool sized = sym_all_const(ir_type(n)->size, ir_type(n)->ndim); /* else it stays symbolic */
    tp_tensor *v = s->val[id].t, *type = tensor_fake_of(sized ? v : ir_type(n));
    ir_node *p = ir_add_placeholder(r->g, n->name, n->name, type);
    tensor_unref(type);
    ir_replace_uses(n, p);
    r->in = mem_realloc(r->in, sizeof *r->in * (size_t)(r->nin + 1));
    r->needs_grad = mem_realloc(r->needs_grad, (size_t)(r->nin + 1));
    tp_tensor *t = tensor_new_strided((dtype)v->dt, v->ndim, v->size, v->stride, DEVICE_CPU, NULL);
    if (!t)
        return false;
    tensor_copy(t, v, NULL);
    bool any = false;
    for (int i = 0; i < r->nin; i++)
        any |= r->needs_grad[i];
    r->in[r->nin] = vT(t);
    r->needs_grad[r->nin++] = any && dtype_has_grad((dtype)v->dt);
    return true;
}

static bool only_here(const ir_node *n)
{
    return n->kind == IR_opaque && !ir_hop(n) && !ir_switches_grad(n) &&
           (n->opaque || (n->meta && strstr(n->meta, "Python module")));
}

repro *repro_freed(const repro *r)
{
    bool any = false;
    IR_EACH (n, r->g)
        any |= only_here(n);
    if (!any)
        return NULL;
    minify_opts o = { 0 };
    search s = { .now = repro_copy(r), .o = &o };
    repro *out = NULL;
    if (record_values(&s)) {
        cand c = cand_new(&s);
        bool all = true;
        for (int id = 0; id < c.n; id++) {
            const ir_node *n = c.node[id];
            if (n && n->nuse && (n->val.kind == VAL_tensor ? only_here(n) : false))
                all &= cut_node(&s, &c, id);
            else if (n && n->nuse && n->kind == IR_getitem && only_here(n->arg[0].node))
                all &= cut_node(&s, &c, id);
        }
        free(c.node);
        IR_EACH_SAFE (n, c.r->g)
            if (!n->nuse && n->kind == IR_getitem && only_here(n->arg[0].node))
                ir_erase(n);
        IR_EACH_SAFE (n, c.r->g)
            if (!n->nuse && only_here(n))
                ir_erase(n);
        IR_EACH (n, c.r->g)
            all &= !only_here(n);
        if (all && tidy(c.r))
            out = c.r;
        else
            repro_free(c.r);
    }
    forget(&s);
    repro_free(s.now);
    return out;
}

/* ---- judging ---- */
static uint64_t key_of(const repro *r)
{
    uint64_t h = ir_hash(r->g);
    for (int i = 0; i < r->nin; i++) {
        h = hash_mix(h, r->needs_grad[i]);
        if (r->in[i].kind == VAL_tensor && r->in[i].t->numel && tensor_is_contiguous(r->in[i].t))
            h = hash_bytes(tensor_host(r->in[i].t),
                           MIN((size_t)r->in[i].t->numel * dtype_size((dtype)r->in[i].t->dt), (size_t)4096),
                           h);
    }
    return hash_mix(h, (uint64_t)r->accuracy + 2 * r->forward_only);
}

static bool failing(const signature *g) { return g->kind != SIG_passes && g->kind != SIG_cannot_run; }

static bool alike(search *s, const signature *sig)
{
    if (!failing(sig))
        return false;
    if (s->want.kind == SIG_passes) /* nobody has looked yet (skip_sanity) */
        s->want = *sig;
    return sig_equal(sig, &s->want) &&
           (!s->o->check_str || strstr(sig->full, s->o->check_str) || strstr(sig->type, s->o->check_str));
}

static bool try_them(search *s, const repro *const *r, int n, signature *sig)
{
    s->st->trials += n;
    if (!s->o->fails && !s->o->here)
        return trial_run(r, n, &s->o->limits, sig, s->err);
    for (int i = 0; i < n; i++) {
        memset(&sig[i], 0, sizeof sig[i]);
        if (!s->o->fails)
            trial_here(r[i], &sig[i]);
        else if (!s->o->fails(s->o->data, r[i], &sig[i]))
            sig[i].kind = SIG_passes;
        if (s->o->limits.interrupted && s->o->limits.interrupted(s->o->limits.data))
            return err_set(s->err, ERR_interrupt, "interrupted");
    }
    return true;
}

static bool ask(search *s, repro **c, int n, int *hit) /* index of the first that fails alike */
{
    signature sig[MOST];
    const repro *run[MOST];
    uint64_t key[MOST];
    int which[MOST], nrun = 0;
    *hit = -1;
    for (int i = 0; i < n; i++) {
        key[i] = key_of(c[i]);
        uintptr_t known = (uintptr_t)map_geti(&s->memo, key[i]);
        if (known) {
            s->st->hits++;
            if (known == 2 && *hit < 0)
                *hit = i;
            continue;
        }
        which[nrun] = i;
        run[nrun++] = c[i];
    }
    if (*hit >= 0 || !nrun)
        return true;
    for (int round = 0; round < s->st->repeats && nrun && *hit < 0; round++) {
        if (!try_them(s, run, nrun, sig)) {
            s->stopped = true;
            return false;
        }
        for (int i = nrun - 1; i >= 0; i--) {
            bool same = alike(s, &sig[i]);
            map_puti(&s->memo, key[which[i]], (void *)(uintptr_t)(same ? 2 : 1));
            if (same)
                *hit = which[i];
        }
    }
    return true;
}

static void memo_save(search *s)
{
    strbuf b = { 0 };
    if (!s->o->memo_file)
        return;
    strbuf_addf(&b, "taper minify %016llx\n", (unsigned long long)s->start);
    for (size_t i = 0; i < s->memo.cap; i++)
        if (map_slot_live(&s->memo.slots[i])) {
            uint64_t k;
            memcpy(&k, map_slot_key(&s->memo.slots[i]), sizeof k);
            strbuf_addf(&b, "%016llx %d\n", (unsigned long long)k, (int)(uintptr_t)s->memo.slots[i].val);
        }
    file_write(s->o->memo_file, b.s, b.n, NULL);
    strbuf_free(&b);
}

static void memo_load(search *s)
{
    size_t n = 0;
    unsigned long long k = 0;
    int v = 0, used = 0;
    char *text = s->o->memo_file && file_exists(s->o->memo_file)
                     ? file_read(s->o->memo_file, 1 << 26, &n, NULL)
                     : NULL;
    if (text && sscanf(text, "taper minify %16llx", &k) == 1 && k == s->start) {
        for (const char *p = strchr(text, '\n'); p && sscanf(p, "\n%16llx %d", &k, &v) == 2;
             p = strchr(p + 1, '\n'), used++)
            map_puti(&s->memo, k, (void *)(uintptr_t)(v == 2 ? 2 : 1));
        say(s, "Going on where an earlier search stopped: %d answers are known", used);
    }
    free(text);
}

static void accept(search *s, repro *r)
{
    repro_free(s->now);
    s->now = r;
    int ops = repro_ops(r), nout = r->g->output->narg, trials = s->st->trials;
    say(s, "%d operator%s, %d input%s, %d result%s left after %d trial%s", ops, plural(ops), r->nin,
        plural(r->nin), nout, plural(nout), trials, plural(trials));
    memo_save(s);
    if (s->o->best)
        s->o->best(s->o->data, r, repro_ops(r));
}

/* The first that fails alike becomes the current one; frees the others. */
static bool contest(search *s, repro **c, int n)
{
    int hit = -1;
    bool ok = n && ask(s, c, n, &hit);
    for (int i = 0; i < n; i++)
        if (!ok || i != hit)
            repro_free(c[i]);
    if (!ok || hit < 0)
        return false;
    accept(s, c[hit]);
    return true;
}

static bool contest_one(search *s, repro *r) { return r && !s->stopped && contest(s, &r, 1); }

/* ---- moves on the graph ---- */
static bool no_gradients(search *s)
{
    bool any = false, won = false;
    for (int i = 0; i < s->now->nin; i++)
        any |= s->now->needs_grad[i];
    if (!any || s->now->inner)
        return false;
    repro *r = repro_copy(s->now);
    memset(r->needs_grad, 0, (size_t)r->nin);
    if (contest_one(s, r))
        return true;
    for (int i = 0; i < s->now->nin && !s->stopped; i++)
        if (s->now->needs_grad[i]) {
            r = repro_copy(s->now);
            r->needs_grad[i] = false;
            won |= contest_one(s, r);
        }
    return won;
}

static repro *retyped(const repro *r, tp_tensor **data, retype_fn change,
                      void *arg) /* data: new inputs, taken over */
{
    tp_tensor **type = mem_zalloc(sizeof *type * (size_t)MAX(r->nin, 1));
    for (int i = 0; i < r->nin; i++)
        type[i] = data[i] ? tensor_fake_of(data[i]) : NULL;
    ir_graph *g = repro_retype(r->g, type, change, arg, &(tp_err){ 0 });
    repro *c = NULL;
    if (g) {
        c = repro_copy(r);
        ir_graph_free(c->g);
        c->g = g;
        for (int i = 0; i < r->nin; i++)
            if (data[i]) {
                tensor_unref(c->in[i].t);
                c->in[i] = vT(tensor_ref(data[i]));
            }
    }
    for (int i = 0; i < r->nin; i++) {
        tensor_unref(type[i]);
        tensor_unref(data[i]);
    }
    free(type);
    free(data);
    return c;
}

static tp_tensor **own_data(const repro *r)
{
    tp_tensor **d = mem_zalloc(sizeof *d * (size_t)MAX(r->nin, 1));
    for (int i = 0; i < r->nin; i++)
        d[i] = r->in[i].kind == VAL_tensor ? tensor_ref(r->in[i].t) : NULL;
    return d;
}

static bool is_symbolic(const repro *r)
{
    for (int i = 0; i < r->nin; i++) {
        const tp_tensor *t = ir_type(r->g->inputs.at[i]);
        if (!t || !sym_all_const(t->size, t->ndim) || !sym_all_const(t->stride, t->ndim))
            return true;
    }
    return false;
}

static bool number_arg(void *data, const ir_node *n,
                       tp_val *arg) /* symbolic arguments get the value they had */
{
    for (int i = 0; i < n->narg; i++) {
        bool ok = true;
        if (arg[i].kind == VAL_int && sym_is_expr(arg[i].i))
            arg[i].i = sym_hint(arg[i].i, &ok);
        if (arg[i].kind == VAL_ints && !sym_all_const(arg[i].ints, arg[i].n)) {
            symint *v = mem_alloc(sizeof *v * (size_t)arg[i].n);
            for (int k = 0; k < arg[i].n && ok; k++)
                v[k] = sym_is_expr(arg[i].ints[k]) ? sym_hint(arg[i].ints[k], &ok) : arg[i].ints[k];
            arg[i].ints = arena_dup(data, v, sizeof *v * (size_t)arg[i].n);
            free(v);
        }
        if (!ok)
            return false;
    }
    return true;
}

static bool numbers_for_symbols(search *s)
{
    arena a = { 0 };
    if (!is_symbolic(s->now))
        return false;
    repro *r = retyped(s->now, own_data(s->now), number_arg, &a);
    if (r && !tidy(r)) {
        repro_free(r);
        r = NULL;
    }
    for (int i = r ? r->nin - 1 : -1; i >= 0; i--) /* numbers nobody reads any more */
        if (!r->g->inputs.at[i]->nuse)
            drop_input(r, i);
    bool won = contest_one(s, r);
    arena_free(&a);
    return won;
}

static repro *with_outputs(search *s, int from, int count, bool complement)
{
    cand c = cand_new(s);
    const ir_node *o = c.r->g->output;
    VEC(tp_val) out = { 0 };
    for (int i = 0; i < o->narg; i++)
        if ((i >= from && i < from + count) != complement)
            vec_push(&out, o->arg[i]);
    bool ok = out.n > 0;
    if (ok)
        ir_set_output(c.r->g, out.at, (int)out.n);
    vec_free(&out);
    return cand_done(s, &c, ok, false);
}

static bool fewer_results(search *s)
{
    bool any = false;
    for (int size = s->now->g->output->narg / 2; size >= 1 && !s->stopped; size /= 2)
        for (int at = 0; at < s->now->g->output->narg && s->now->g->output->narg > size && !s->stopped;) {
            repro *c[2];
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
    cand c = cand_new(s);
    ir_node *n = id < c.n ? c.node[id] : NULL;
    bool ok = n && (n->kind == IR_call || n->kind == IR_getitem || n->kind == IR_opaque) &&
              n->val.kind == VAL_tensor;
    if (ok) {
        tp_val v = { .kind = VAL_node, .node = n };
        ir_set_output(c.r->g, &v, 1);
    }
    return cand_done(s, &c, ok, true);
}

static bool earlier_end(search *s, int step)
{
    bool any = false;
    for (int at = step; at < s->now->g->nnode && !s->stopped;) {
        repro *c[MOST];
        int n = 0;
        for (; n < s->width && at < s->now->g->nnode; at += step) {
            repro *r = ending_at(s, at);
            if (r)
                c[n++] = r;
        }
        if (contest(s, c, n)) {
            any = true;
            at = step;
        }
    }
    return any;
}

static repro *with_values(search *s, int from, int count)
{
    cand c = cand_new(s);
    bool any = false;
    for (int id = from; id < from + count && id < c.n; id++)
        any |= cut_node(s, &c, id);
    return cand_done(s, &c, any, true);
}

static bool values_for_nodes(search *s, int size)
{
    bool any = false;
    if (!record_values(s))
        return false;
    for (int at = 0; at < s->nval && !s->stopped;) {
        repro *c[MOST];
        int n = 0;
        for (; n < s->width && at < s->nval; at += size) {
            repro *r = with_values(s, at, size);
            if (r)
                c[n++] = r;
        }
        if (contest(s, c, n)) {
            any = true;
            at = 0;
            if (!record_values(s)) /* node numbers changed */
                return any;
        }
    }
    return any;
}

/* Writes to inputs (running statistics, counters) and random draws stay although nobody uses them: try without. */
static repro *without_effects(search *s, int from, int count)
{
    cand c = cand_new(s);
    bool any = false;
    for (int id = MIN(from + count, c.n) - 1; id >= from; id--) {
        ir_node *n = c.node[id];
        if (n && !n->nuse && (n->kind == IR_call || n->kind == IR_opaque) && ir_node_is_effect(n)) {
            ir_erase(n);
            any = true;
        }
    }
    return cand_done(s, &c, any, true);
}

static bool fewer_effects(search *s, int size)
{
    bool any = false;
    for (int at = 0; at < s->now->g->nnode && !s->stopped;) {
        repro *c[MOST];
        int n = 0;
        for (; n < s->width && at < s->now->g->nnode; at += size) {
            repro *r = without_effects(s, at, size);
            if (r)
                c[n++] = r;
        }
        if (contest(s, c, n)) {
            any = true;
            at = 0;
        }
    }
    return any;
}

/* A result is replaced by one of its operands of the same type. */
static repro *with_operand(search *s, int id, int which)
{
    cand c = cand_new(s);
    ir_node *n = id < c.n ? c.node[id] : NULL, *by = NULL;
    const tp_tensor *t = n ? ir_type(n) : NULL;
    if (n && n->kind == IR_call && t)
        for (int i = 0, k = 0; i < n->narg && !by; i++)
            if (n->arg[i].kind == VAL_node && ir_type(n->arg[i].node) &&
                ir_type(n->arg[i].node)->dt == t->dt && tensor_same_size(ir_type(n->arg[i].node), t) &&
                k++ == which)
                by = n->arg[i].node;
    if (by)
        ir_replace_uses(n, by);
    return cand_done(s, &c, by != NULL, true);
}

static bool operands_for_results(search *s)
{
    bool any = false;
    for (int id = 0; id < s->now->g->nnode && !s->stopped;) {
        repro *c[MOST];
        int n = 0;
        for (; n + 2 <= MAX(s->width, 2) && id < s->now->g->nnode; id++)
            for (int k = 0; k < 2; k++) {
                repro *r = with_operand(s, id, k);
                if (r)
                    c[n++] = r;
            }
        if (contest(s, c, n)) {
            any = true;
            id = 0;
        }
    }
    return any;
}

static bool smaller_graph(search *s)
{
    bool any = no_gradients(s);
    any |= numbers_for_symbols(s);
    any |= fewer_results(s);
    if (!s->o->max_granularity)
        any |= fewer_effects(s, s->now->g->nnode);
    int g = 1;
    while (g * 2 <= s->now->g->nnode && (!s->o->max_granularity || g * 2 <= s->o->max_granularity))
        g *= 2;
    for (; g >= 1 && !s->stopped; g /= 2) {
        any |= earlier_end(s, g);
        any |= values_for_nodes(s, g);
        any |= fewer_effects(s, g);
        while (g > s->now->g->nnode && g > 1)
            g /= 2;
    }
    any |= operands_for_results(s);
    return any;
}

/* ---- moves on the data ---- */
/* The leading part of t with these sizes, its axes in the same order in memory. */
static tp_tensor *leading(tp_tensor *t, const symint *size)
{
    symint stride[TP_MAX_DIMS];
    int order[TP_MAX_DIMS];
    for (int d = 0; d < t->ndim; d++)
        order[d] = d;
    for (int a = 1; a < t->ndim; a++) /* the widest stride first; equal ones stay in order */
        for (int b = a; b > 0 && t->stride[order[b - 1]] < t->stride[order[b]]; b--) {
            int x = order[b];
            order[b] = order[b - 1];
            order[b - 1] = x;
        }
    symint next = 1;
    for (int a = t->ndim - 1; a >= 0; a--) {
        stride[order[a]] = t->stride[order[a]] == 0 ? 0 : next;
        if (t->stride[order[a]])
            next *= MAX(size[order[a]], 1);
    }
    tp_tensor *part = tensor_on(t->storage, (dtype)t->dt, t->ndim, size, t->stride, t->offset),
              *c = tensor_new_strided((dtype)t->dt, t->ndim, size, stride, DEVICE_CPU, NULL);
    if (c && tensor_overlaps_itself(c)) { /* expanded: its storage is what repeats */
        tensor_unref(c);
        c = tensor_new((dtype)t->dt, t->ndim, size, NULL);
    }
    if (c)
        tensor_copy(c, part, NULL);
    tensor_unref(part);
    return c;
}

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
                if (v[k] == z->from)
                    v[k] = z->to;
            arg[i].ints = v;
        }
    return true;
}

static repro *with_size(search *s, symint from, symint to)
{
    resize z = { .from = from, .to = to };
    tp_tensor **d = mem_zalloc(sizeof *d * (size_t)MAX(s->now->nin, 1));
    for (int i = 0; i < s->now->nin; i++) {
        tp_tensor *t = s->now->in[i].kind == VAL_tensor ? s->now->in[i].t : NULL;
        if (!t)
            continue;
        symint size[TP_MAX_DIMS];
        for (int k = 0; k < t->ndim; k++)
            size[k] = t->size[k] == from ? to : t->size[k];
        d[i] = leading(t, size);
    }
    repro *r = retyped(s->now, d, resize_args, &z);
    arena_free(&z.a);
    return r;
}

static symint next_size(const repro *r, symint below) /* the largest input size under `below`, or 1 */
{
    symint v = 1;
    for (int i = 0; i < r->nin; i++)
        for (int d = 0; r->in[i].kind == VAL_tensor && d < r->in[i].t->ndim; d++)
            if (r->in[i].t->size[d] < below && r->in[i].t->size[d] > v)
                v = r->in[i].t->size[d];
    return v;
}

static bool smaller_sizes(search *s)
{
    bool any = false;
    if (is_symbolic(s->now))
        return false;
    for (symint v = next_size(s->now, INT64_MAX); v > 1 && !s->stopped; v = next_size(s->now, v)) {
        symint tries[4] = { 1, 2, v / 4, v / 2 };
        repro *c[4];
        int n = 0;
        for (int k = 0; k < 4; k++)
            if (tries[k] >= 1 && tries[k] < v && (k < 2 || tries[k] > 2)) {
                repro *r = with_size(s, v, tries[k]);
                if (r)
                    c[n++] = r;
            }
        any |= contest(s, c, n);
    }
    return any;
}

static bool widen_args(void *data, const ir_node *n, tp_val *arg) /* dtype arguments: one for another */
{
    const dtype *d = data;
    for (int i = 0; i < n->narg; i++)
        if (arg[i].kind == VAL_dtype && (dtype)arg[i].i == d[0])
            arg[i].i = d[1];
    return true;
}

static bool plainer_types(search *s)
{
    static const dtype pair[][2] = { { DT_f64, DT_f32 }, { DT_bf16, DT_f32 }, { DT_f16, DT_f32 } };
    bool any = false;
    for (size_t p = 0; p < COUNT(pair) && !s->stopped && !is_symbolic(s->now); p++) {
        tp_tensor **d = own_data(s->now);
        bool has = false;
        for (int i = 0; i < s->now->nin; i++)
            if (d[i] && (dtype)d[i]->dt == pair[p][0]) {
                tp_tensor *t = tensor_new_strided(pair[p][1], d[i]->ndim, d[i]->size,
                                                  tensor_overlaps_itself(d[i]) ? NULL : d[i]->stride,
                                                  DEVICE_CPU, NULL);
                has = true;
                if (t)
                    tensor_copy(t, d[i], NULL);
                tensor_unref(d[i]);
                d[i] = t;
            }
        if (!has) {
            for (int i = 0; i < s->now->nin; i++)
                tensor_unref(d[i]);
            free(d);
            continue;
        }
        any |= contest_one(s, retyped(s->now, d, widen_args, (void *)pair[p]));
    }
    return any;
}

typedef struct plain_arg {
    const char *node;
    int arg;
} plain_arg;

static bool plain_args(void *data, const ir_node *n, tp_val *arg)
{
    const plain_arg *a = data;
    if (!strcmp(n->name, a->node)) {
        const op_param *p = &op_row_of((op_id)n->op)->schema.param[a->arg];
        if (p->has_default)
            arg[a->arg] = p->def;
        else if (arg[a->arg].kind == VAL_float)
            arg[a->arg].f = 1;
        else if (arg[a->arg].kind == VAL_int)
            arg[a->arg].i = 1;
    }
    return true;
}

static bool is_plain(const ir_node *n, int i)
{
    const op_param *p = &op_row_of((op_id)n->op)->schema.param[i];
    const tp_val *v = &n->arg[i];
    if (v->kind == VAL_node || v->kind == VAL_nodes || v->kind == VAL_none || v->kind == VAL_graph)
        return true;
    if (p->has_default)
        return ir_val_equal(v, &p->def);
    return v->kind == VAL_float ? v->f == 1 : v->kind != VAL_int || v->i == 1 || p->type != PT_tensor;
}

static bool plainer_arguments(search *s)
{
    bool any = false;
    if (is_symbolic(s->now))
        return false;
    for (bool again = true; again && !s->stopped;) {
        again = false;
        IR_EACH (n, s->now->g) {
            for (int i = 0; n->kind == IR_call && i < n->narg && !again; i++)
                if (!is_plain(n, i)) {
                    plain_arg a = { n->name, i };
                    repro *r = retyped(s->now, own_data(s->now), plain_args, &a);
                    if (r && ir_hash(r->g) != ir_hash(s->now->g))
                        again = contest_one(s, r);
                    else
                        repro_free(r);
                }
            if (again || s->stopped)
                break; /* the nodes are others now */
        }
        any |= again;
    }
    return any;
}

static bool all_equal(const tp_tensor *t, double v)
{
    for (int64_t k = 0; k < t->numel; k++)
        if (elem_get_f((dtype)t->dt, tensor_elem(t, k)) != v)
            return false;
    return true;
}

/* Inputs of all ones, or zeros, say more than random numbers. */
static bool simpler_inputs(search *s)
{
    bool any = false;
    for (int i = 0; i < s->now->nin && !s->stopped; i++) {
        tp_tensor *t = s->now->in[i].kind == VAL_tensor ? s->now->in[i].t : NULL;
        if (!t || !t->numel || all_equal(t, 1) || all_equal(t, 0))
            continue;
        repro *c[2];
        int n = 0;
        for (int k = 1; k >= 0; k--) {
            repro *r = repro_copy(s->now);
            tp_tensor *one = tensor_scalar((dtype)t->dt, k, k, NULL);
            if (tensor_overlaps_itself(t) || !tensor_copy(r->in[i].t, one, NULL)) {
                repro_free(r);
                r = NULL;
            }
            tensor_unref(one);
            if (r)
                c[n++] = r;
        }
        any |= contest(s, c, n);
    }
    return any;
}

static bool simpler_data(search *s)
{
    bool any = smaller_sizes(s);
    any |= plainer_types(s);
    any |= plainer_arguments(s);
    any |= simpler_inputs(s);
    return any;
}

/* ---- the whole ---- */
enum { MOST_REPEATS = 40 }; /* runs of one trial, for a failure that comes and goes */

/* It must fail. When it does not fail alike each time, every trial gets enough runs not to miss it. */
static bool first_look(search *s)
{
    enum { LOOKS = 10, PATIENCE = 40 }; /* a failure that nobody has seen yet may be rare */
    const repro *one = s->now;
    signature sig;
    int bad = 0, looks = 0;
    for (int most = 2; looks < most; looks++) {
        if (!try_them(s, &one, 1, &sig))
            return false;
        if (sig.kind == SIG_cannot_run)
            return err_set(s->err, ERR_runtime, "Input graph cannot run at all: %s", sig.full);
        if (failing(&sig) && !bad)
            s->want = sig;
        bad += failing(&sig) && sig_equal(&sig, &s->want);
        if (looks && bad <= looks)
            most = bad ? MAX(LOOKS, looks + 1) : PATIENCE;
    }
    if (!bad)
        return err_set(s->err, ERR_runtime, "Input graph did not fail the tester");
    if (!alike(s, &s->want))
        return err_set(s->err, ERR_runtime, "Input graph fails, but not with '%s': %s", s->o->check_str,
                       s->want.full);
    if (bad < looks) {
        double p = MIN((double)bad / looks, 0.5); /* ten looks say little: do not rely on a high rate */
        s->st->repeats = MIN((int)ceil(log(0.001) / log(1 - p)), MOST_REPEATS);
        say(s, "The failure comes and goes (%d of %d runs): every trial is run up to %d times", bad, looks,
            s->st->repeats);
    }
    return true;
}

static bool holds(search *s) /* once more, as often as a trial takes */
{
    for (int i = 0; i < s->st->repeats; i++) {
        const repro *one = s->now;
        signature sig;
        if (!try_them(s, &one, 1, &sig))
            return false;
        if (alike(s, &sig)) {
            s->st->sig = sig;
            return true;
        }
    }
    return false;
}

repro *minify(const repro *r, const minify_opts *o, minify_stats *st, tp_err *err)
{
    tp_err own = { 0 };
    search s = { .now = repro_copy(r), .o = o, .st = st, .err = err ? err : &own };
    int64_t t0 = clock_ns();
    memset(st, 0, sizeof *st);
    st->before = repro_ops(r);
    st->repeats = 1;
    s.width = MIN(MAX(o->limits.width ? o->limits.width : pool_threads(), 2), MOST);
    s.start = key_of(r);
    if (!o->skip_sanity && !first_look(&s))
        goto fail;
    st->sig = s.want;
    if (o->skip_sanity)
        say(&s, "Started off with %d operator%s", st->before, plural(st->before));
    else
        say(&s, "Started off with %d operator%s; the failure is %s: %s", st->before, plural(st->before),
            sig_name(s.want.kind), s.want.full);
    memo_load(&s);
    repro *tidied = repro_copy(s.now);
    if (tidy(tidied))
        contest(&s, &tidied, 1);
    else
        repro_free(tidied);
again:
    for (bool more = true; more && !s.stopped;) {
        while (!s.stopped && smaller_graph(&s))
            ;
        more = !s.stopped && simpler_data(&s);
    }
    /* The answer must hold by itself; a few times more where that is cheap, since a failure that comes and goes may hold
     * three times by luck. */
    int sure = s.want.kind == SIG_timeout || st->repeats > 1 ? 3 : 8;
    st->verified = 0;
    for (int i = 0; i < sure && !s.stopped; i++) {
        if (holds(&s) || s.stopped) {
            st->verified = MIN(st->verified + 1, 3);
            continue;
        }
        if (s.want.kind == SIG_passes) {
            err_set(s.err, ERR_runtime, "Input graph did not fail the tester");
            goto fail;
        }
        if (st->repeats >= MOST_REPEATS) {
            err_set(s.err, ERR_runtime, "the minimal graph does not fail every time");
            goto fail;
        }
        /* Every step was seen to fail, but some that passed may only have been lucky. */
        st->repeats = MIN(MAX(st->repeats * 2, 10), MOST_REPEATS);
        say(&s, "The failure comes and goes: the search goes on with up to %d runs a trial", st->repeats);
        map_free(&s.memo);
        goto again;
    }
    forget(&s);
    st->stopped = s.stopped;
    if (s.stopped)
        memo_save(&s);
    else if (o->memo_file)
        remove(o->memo_file);
    map_free(&s.memo);
    st->after = repro_ops(s.now);
    st->seconds = (double)(clock_ns() - t0) / 1e9;
    err_clear(s.err);
    say(&s, "Went from %d to %d operator%s in %d trial%s (%d answered from memory), %.1f s%s", st->before,
        st->after, plural(st->after), st->trials, plural(st->trials), st->hits, st->seconds,
        s.stopped ? "; interrupted, this is the best so far" : "");
    return s.now;
fail:
    map_free(&s.memo);
    forget(&s);
    repro_free(s.now);
    return NULL;
}
