/* graph_cache.c - compiled graphs to disk and back. */
#define _GNU_SOURCE
#include "compile/cache/graph_cache.h"
#include "compile/code_log.h"
#include "compile/inductor.h"
#include "base/clock.h"
#include "base/envvars.h"
#include "base/fault.h"
#include "base/json.h"
#include "base/pool.h"
#include "events/events.h"
#include "events/metrics.h"
#include "compile/cache/plan.h"
#include "ops/provider.h"
#include "sym/env.h"
#include <stdio.h>

/* Leaves, flags and bases are not stored: such graphs do not go to disk. */
_Static_assert(sizeof(aot_unit) == 152, "say here how the disk cache stores the new field");
_Static_assert(sizeof(aot_out) == 24 + sizeof(tp_val), "say here how the disk cache stores the new field");

enum { MAX_ITEMS = 1 << 20 };

/* --- events
 * ------------------------------------------------------------------------------------------------------------------ */
static void tell(const char *what, const gcache *x, const char *part, const char *why, size_t bytes,
                 double ms)
{
    if (ev_log_on(EVC_cache, EV_INFO)) {
        if (!strcmp(what, "hit"))
            ev_log(EVC_cache, EV_INFO, NULL, "disk cache hit: %s of %s (id %.16s, %zu bytes, %.2f ms)", part,
                   x->what, x->id, bytes, ms);
        else
            ev_log(EVC_cache, EV_INFO, NULL, "disk cache %s: %s of %s (id %.16s): %s", what, part,
                   x->what ? x->what : "a graph", x->id ? x->id : "-", why);
    }
    if (!ev_trace_on(EV_artifact))
        return;
    strbuf b = { 0 };
    char name[40];
    json_w w = { &b };
    json_obj(&w);
    json_key(&w, "key");
    json_str(&w, x->id ? x->id : "");
    json_key(&w, "graph");
    json_str(&w, x->what ? x->what : "");
    json_key(&w, "part");
    json_str(&w, part);
    json_key(&w, "reason");
    json_str(&w, why);
    json_key(&w, "bytes");
    json_int(&w, (int64_t)bytes);
    json_end(&w);
    snprintf(name, sizeof name, "aotautograd_cache_%s", what);
    ev_artifact(name, "json", NULL, strbuf_str(&b));
    strbuf_free(&b);
}

/* --- may it?
 * ------------------------------------------------------------------------------------------------------------------ */
static bool somebody_watches(void)
{
    static const int texts[] = { EV_aot_graphs,     EV_aot_joint_graph, EV_post_grad_graphs, EV_ir_pre_fusion,
                                 EV_ir_post_fusion, EV_output_code,     EV_kernel_code,      EV_schedule,
                                 EV_fusion,         EV_perf_hints,      EV_autotuning };
    for (size_t i = 0; i < COUNT(texts); i++)
        if (ev_text_on(texts[i]))
            return true;
    return ev_trace_on(EV_artifact) || ev_log_on(EVC_inductor, EV_INFO) || ev_log_on(EVC_aot, EV_INFO);
}

static const char *not_for(const tp_comp *c, const ir_graph *g)
{
    const char *forced = env_get(ENV_cache);
    if (c->decider.fn)
        return "rewrites are decided one by one";
    if (fault_state > 0)
        return "faults are planted";
    if (c->watch || env_on(ENV_debug))
        return "the debugger looks at what the stages make";
    if (!(forced && env_on(ENV_cache)) && somebody_watches())
        return "logs or a trace show what the stages do (TAPER_CACHE=1 uses the cache all the same)";
    IR_EACH (n, g) {
        if (n->kind == IR_opaque)
            return "it calls something outside the graph";
    }
    if (aot_writes_shared(g))
        return "it writes memory that several of its inputs share";
    return NULL;
}

static char *place_of(const ir_graph *g) /* "f at model.py:12"; owned */
{
    const ir_loc *loc = NULL;
    strbuf b = { 0 };
    IR_EACH (n, g) {
        if (n->loc && !loc)
            loc = n->loc;
    }
    loc = ir_loc_root(loc);
    if (loc)
        strbuf_addf(&b, "%s at %s:%d", loc->func ? loc->func : "?", loc->file ? loc->file : "?", loc->line);
    else
        strbuf_add(&b, g->name);
    return strbuf_take(&b);
}

void gcache_open(gcache *x, tp_comp *c, const ir_graph *g, const bool *needs, bool grad, uint32_t flags)
{
    char why[DISK_WHY] = "", hex[33];
    const char *no = not_for(c, g);
    run_options opt = options_of(c->opt);
    if (!no && opt.v[OPT_disk_cache] == 0)
        no = "the options turn it off";
    if (!no && !env_on(ENV_check_cache) && !disk_on(why))
        no = why;
    ev_metrics_feature("fx_cache", !no);
    if (no) {
        tell("bypass", x, "forward", no, 0, 0);
        return;
    }
    strbuf key = { 0 };
    io_put_key(&key, g);
    strbuf_addf(&key, "\nstyle=%d grad=%d flags=%u needs=", g->style, grad, flags);
    for (size_t i = 0; i < g->inputs.n; i++) {
        const tp_tensor *t = ir_type(g->inputs.at[i]);
        strbuf_addc(&key, needs[i] ? '1' : '0');
        if (t && t->offset) {
            strbuf_addc(&key, '@');
            sym_print(&key, t->offset);
        }
    }
    uint64_t h0 = hash_bytes(key.s, key.n, 1), h1 = hash_bytes(key.s, key.n, 2);
    snprintf(hex, sizeof hex, "%016llx%016llx", (unsigned long long)h0, (unsigned long long)h1);
    strbuf_clear(&key);
    op_ctx *cx = c->cx ? c->cx : op_ctx_cur();
    const char *products = env_get(ENV_products);
    disk_config(&key);
    const target *t = options_target(&opt, (dev_kind)ir_graph_device(g).kind, NULL);
    if (t)
        target_key(t, &key);
    strbuf_add(&key, "options=");
    options_print(&key, &opt);
    if (opt.v[OPT_max_autotune]) /* what is fastest depends on them */
        strbuf_addf(&key, "\nthreads=%d", pool_threads());
    strbuf_addf(&key, "\nsettings=products:%.20s,bf16:%d,deterministic:%d,dtype:%d\n",
                products ? products : "emitted", ops_provided_bf16(), cx->deterministic, cx->default_dtype);
    x->on = true;
    x->id = mem_strdup(hex);
    x->config = strbuf_take(&key);
    x->what = place_of(g);
}

void gcache_free(gcache *x)
{
    free(x->id);
    free(x->config);
    free(x->what);
    free(x->bw);
    *x = (gcache){ 0 };
}

/* --- the unit
 * ----------------------------------------------------------------------------------------------------------------- */
static void put_ints(strbuf *b, const int *v, int n)
{
    io_put(b, n);
    for (int i = 0; i < n; i++)
        io_put(b, v[i]);
}

static int *get_ints(io_in *r, int *n, int64_t below)
{
    *n = (int)io_get_in(r, 0, MAX_ITEMS);
    int *v = mem_zalloc(sizeof *v * (size_t)MAX(*n, 1));
    for (int i = 0; i < *n && !r->bad; i++)
        v[i] = (int)io_get_in(r, 0, below);
    return v;
}

static const tp_tensor *base_type(const aot_out *o, const ir_graph *g, const ir_graph *fw)
{
    if (o->kind == AOT_view)
        return o->index < (int)g->inputs.n ? ir_type(g->inputs.at[o->index]) : NULL;
    if (o->index >= fw->output->narg || fw->output->arg[o->index].kind != VAL_node)
        return NULL;
    return ir_type(fw->output->arg[o->index].node);
}

static bool put_out(strbuf *b, const aot_out *o, const ir_graph *g, const ir_graph *fw, tp_err *err)
{
    io_put(b, o->kind);
    io_put(b, o->requires_grad);
    io_put(b, o->no_grad);
    io_put(b, o->detached);
    io_put(b, o->index);
    io_put(b, o->of);
    if (o->kind == AOT_view || o->kind == AOT_result_view) {
        const tp_tensor *t = o->type, *as = base_type(o, g, fw);
        if (!t || !as)
            return err_set(err, ERR_notimpl, "a result looks at something without a type");
        io_put(b, t->dt);
        io_put(b, t->ndim);
        for (int d = 0; d < t->ndim; d++) {
            io_put_sym(b, t->size[d]);
            io_put_sym(b, t->stride[d]);
        }
        io_put_sym(b, sym_sub(t->offset, as->offset)); /* where the base begins is not part of the key */
    }
    if (o->kind != AOT_number)
        return true;
    io_put(b, o->num.kind);
    switch (o->num.kind) {
    case VAL_none: return true;
    case VAL_bool: io_put(b, o->num.b); return true;
    case VAL_int:
        io_put(b, o->num.i);
        return !sym_is_expr(o->num.i) || err_set(err, ERR_notimpl, "it returns a symbolic number");
    case VAL_float: io_put_bytes(b, &o->num.f, sizeof o->num.f); return true;
    default: return err_set(err, ERR_notimpl, "it returns something that cannot be stored");
    }
}

static void get_out(io_in *r, aot_out *o, const ir_graph *g, const ir_graph *fw)
{
    o->kind = (uint8_t)io_get_in(r, 0, AOT_number + 1);
    o->requires_grad = io_get_in(r, 0, 2);
    o->no_grad = io_get_in(r, 0, 2);
    o->detached = io_get_in(r, 0, 2);
    o->index = (int)io_get_in(r, -1, MAX_ITEMS);
    o->of = (int)io_get_in(r, -1, MAX_ITEMS);
    bool in = o->kind == AOT_input || o->kind == AOT_view;
    if ((o->kind != AOT_number && o->index < 0) || (in && o->index >= (int)g->inputs.n) ||
        (!in && o->kind != AOT_number && o->index >= fw->output->narg))
        r->bad = true;
    if (!r->bad && (o->kind == AOT_view || o->kind == AOT_result_view)) {
        const tp_tensor *as = base_type(o, g, fw);
        dtype dt = (dtype)io_get_in(r, 0, DT_COUNT);
        int ndim = (int)io_get_in(r, 0, TP_MAX_DIMS + 1);
        symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
        for (int d = 0; d < ndim; d++) {
            size[d] = io_get_sym(r, g->env);
            stride[d] = io_get_sym(r, g->env);
        }
        symint ahead = io_get_sym(r, g->env);
        if (!as || (o->kind == AOT_result_view && sym_is_expr(as->offset)))
            r->bad = true;
        if (r->bad)
            return;
        o->type = tensor_new_fake(dt, ndim, size, stride, DEVICE_CPU);
        o->type->offset = sym_add(ahead, as->offset);
    }
    if (o->kind != AOT_number || r->bad)
        return;
    switch (io_get(r)) {
    case VAL_none: o->num = vNone; break;
    case VAL_bool: o->num = vB(io_get_in(r, 0, 2)); break;
    case VAL_int:
        o->num = vI(io_get(r));
        r->bad |= sym_is_expr(o->num.i);
        break;
    case VAL_float: {
        size_t n;
        const char *p = io_get_bytes(r, &n);
        double v = 0;
        if (n == sizeof v)
            memcpy(&v, p, n);
        else
            r->bad = true;
        o->num = vF(v);
        break;
    }
    default: r->bad = true;
    }
}

static bool put_unit(strbuf *b, const ir_graph *g, const aot_unit *u, tp_err *err)
{
    const char *suffix = u->fw->name;
    if (!strncmp(suffix, g->name, strlen(g->name)))
        suffix += strlen(g->name);
    io_put_bytes(b, suffix, strlen(suffix));
    io_put(b, u->nin);
    io_put(b, u->nvalue);
    io_put(b, u->nsaved);
    put_ints(b, u->mut, u->nmut);
    put_ints(b, u->tangent, u->ntangent);
    put_ints(b, u->grad, u->ngrad);
    io_put(b, u->saved_bytes);
    io_put(b, u->all_bytes);
    io_put(b, u->nout);
    for (int i = 0; i < u->nout; i++)
        if (!put_out(b, &u->out[i], g, u->fw, err))
            return false;
    io_put(b, u->nplace);
    for (int i = 0; i < u->nplace; i++) {
        io_put(b, u->place[i].value);
        if (u->place[i].at.kind == AOT_value)
            return err_set(err, ERR_notimpl, "a result has gaps");
        if (!put_out(b, &u->place[i].at, g, u->fw, err))
            return false;
    }
    strbuf bw = { 0 };
    bool ok = !u->bw || io_put_graph(&bw, u->bw, g, err);
    io_put(b, u->bw != NULL);
    io_put_bytes(b, strbuf_str(&bw), bw.n);
    strbuf_free(&bw);
    return ok;
}

static aot_unit *get_unit(io_in *r, gcache *x, const ir_graph *g, const ir_graph *fw)
{
    aot_unit *u = mem_zalloc(sizeof *u);
    int nres = fw->output->narg;
    u->nin = (int)io_get_in(r, (int64_t)g->inputs.n, (int64_t)g->inputs.n + 1);
    u->nvalue = (int)io_get_in(r, 0, nres + 1);
    u->nsaved = (int)io_get_in(r, 0, nres + 1);
    u->mut = get_ints(r, &u->nmut, u->nin);
    u->tangent = get_ints(r, &u->ntangent, nres);
    u->grad = get_ints(r, &u->ngrad, u->nin);
    u->saved_bytes = io_get(r);
    u->all_bytes = io_get(r);
    r->bad |= u->nvalue + u->nmut + u->nsaved != nres || (int)fw->inputs.n != u->nin;
    for (int i = 0; i < u->ntangent && !r->bad; i++)
        r->bad |= u->tangent[i] >= u->nvalue + u->nmut;
    u->nout = (int)io_get_in(r, 0, MAX_ITEMS);
    u->out = mem_zalloc(sizeof *u->out * (size_t)MAX(u->nout, 1));
    for (int i = 0; i < u->nout && !r->bad; i++) {
        get_out(r, &u->out[i], g, fw);
        r->bad |= u->out[i].of >= u->nout || (u->out[i].of >= 0 && u->out[i].kind != AOT_value);
    }
    u->nplace = (int)io_get_in(r, 0, MAX_ITEMS);
    u->place = mem_zalloc(sizeof *u->place * (size_t)MAX(u->nplace, 1));
    for (int i = 0; i < u->nplace && !r->bad; i++) {
        u->place[i].value = (int)io_get_in(r, 0, MAX(u->nvalue, 1));
        get_out(r, &u->place[i].at, g, fw);
        r->bad |= (u->place[i].at.kind != AOT_view && u->place[i].at.kind != AOT_result_view) ||
                  u->place[i].at.of >= 0;
    }
    x->has_bw = io_get_in(r, 0, 2);
    size_t n;
    const char *p = io_get_bytes(r, &n);
    if (r->bad) {
        aot_unit_free(u);
        return NULL;
    }
    free(x->bw);
    x->bw = mem_alloc(n + 1);
    memcpy(x->bw, p, n);
    x->nbw = n;
    return u;
}

/* --- forward
 * ------------------------------------------------------------------------------------------------------------------ */
static char *named(const ir_graph *g, const char *suffix, size_t n)
{
    strbuf b = { 0 };
    strbuf_addf(&b, "%s%.*s", g->name, (int)MIN(n, (size_t)40), suffix);
    return strbuf_take(&b);
}

void gcache_off(gcache *x, const char *why)
{
    if (x->on)
        tell("bypass", x, "forward", why, 0, 0);
    x->on = false;
}

static bool write_forward(strbuf *b, const ir_graph *g, const aot_unit *u, const run_program *fw, tp_err *err)
{
    strbuf unit = { 0 };
    bool ok = put_unit(&unit, g, u, err);
    io_put_bytes(b, strbuf_str(&unit), unit.n);
    strbuf_free(&unit);
    return ok && planio_write(b, fw, g, err);
}

static bool read_forward(gcache *x, const char *p, size_t n, tp_comp *c, const ir_graph *g, aot_unit **u,
                         run_program **fw, tp_err *err)
{
    io_in r = { p, p + n, false }, ur = { 0 };
    size_t k, nsuffix;
    const target_code **made = NULL;
    ur.p = io_get_bytes(&r, &k);
    ur.e = ur.p + k;
    const char *suffix = io_get_bytes(&ur, &nsuffix);
    char *name = named(g, suffix, nsuffix);
    loop_plan *plan = r.bad || ur.bad ? NULL : planio_read(&r, name, g, &made, err);
    free(name);
    *u = plan ? get_unit(&ur, x, g, plan->g) : NULL;
    if (!*u) {
        loop_plan_free(plan);
        free(made);
        return err_is_set(err) ? false : err_set(err, ERR_value, "it does not read back");
    }
    for (int i = 0; i < (*u)->nout; i++)
        if ((*u)->out[i].kind == AOT_result_view && !(*u)->fw)
            (*u)->fw = ir_graph_copy(plan->g);
    for (int i = 0; i < (*u)->nplace; i++)
        if ((*u)->place[i].at.kind == AOT_result_view && !(*u)->fw)
            (*u)->fw = ir_graph_copy(plan->g);
    tp_comp mine = *c;
    mine.err = err;
    code_log_program(plan);
    *fw = inductor_program(&mine, plan, made);
    free(made);
    if (*fw)
        return true;
    aot_unit_free(*u);
    *u = NULL;
    return false;
}

static disk_item item_of(const gcache *x, const char *kind)
{
    return (disk_item){ kind, x->id, x->config, x->what };
}

bool gcache_forward(gcache *x, tp_comp *c, const ir_graph *g, aot_unit **u, run_program **fw)
{
    char why[DISK_WHY] = "";
    strbuf b = { 0 };
    tp_err err = { 0 };
    if (!x->on || env_on(ENV_check_cache))
        return false;
    int64_t t0 = clock_ns();
    disk_item it = item_of(x, "graph");
    bool ok = disk_get(&it, &b, why);
    if (ok && !read_forward(x, b.s, b.n, c, g, u, fw, &err)) {
        ok = false;
        snprintf(why, sizeof why, "refused: %.*s", (int)sizeof why - 12, err.msg);
        disk_refuse(&it, why);
    }
    if (ok)
        tell("hit", x, "forward", "", b.n, (double)(clock_ns() - t0) * 1e-6);
    else
        tell("miss", x, "forward", why, 0, 0);
    ev_add(ok ? EVN_graph_hits : EVN_graph_misses, 1);
    strbuf_free(&b);
    return ok;
}

bool gcache_keep_forward(gcache *x, tp_comp *c, const ir_graph *g, aot_unit **u, run_program **fw)
{
    strbuf b = { 0 };
    tp_err err = { 0 };
    bool ok = true;
    x->has_bw = (*u)->bw != NULL;
    if (!x->on)
        return true;
    if (!write_forward(&b, g, *u, *fw, &err)) {
        tell("bypass", x, "forward", err.msg, 0, 0);
        x->on = false;
    } else if (env_on(ENV_check_cache)) { /* what would come from disk runs instead */
        aot_unit *u2 = NULL;
        run_program *fw2 = NULL;
        ok = read_forward(x, b.s, b.n, c, g, &u2, &fw2, c->err);
        if (ok) {
            aot_unit_free(*u);
            run_program_free(*fw);
            *u = u2;
            *fw = fw2;
        } else
            err_note(c->err, "reading back what the disk cache would hold");
    } else {
        disk_item it = item_of(x, "graph");
        disk_put_later(&it, &b);
    }
    strbuf_free(&b);
    return ok;
}

/* --- backward
 * ------------------------------------------------------------------------------------------------------------------ */
static bool need_graph(gcache *x, const ir_graph *g, aot_unit *u, tp_err *err)
{
    if (u->bw || !x->has_bw)
        return true;
    io_in r = { x->bw, x->bw + x->nbw, false };
    char *name = named(g, "_backward", 9);
    u->bw = io_get_graph(&r, name, g, err);
    free(name);
    return u->bw != NULL;
}

static run_program *read_backward(const char *p, size_t n, tp_comp *c, const ir_graph *g, aot_unit *u,
                                  tp_err *err)
{
    io_in r = { p, p + n, false };
    const target_code **made = NULL;
    run_program *bw = NULL;
    char *name = named(g, "_backward", 9);
    loop_plan *plan = planio_read(&r, name, g, &made, err);
    free(name);
    if (plan && ((int)plan->g->inputs.n != u->nsaved + u->ntangent || plan->nout != u->ngrad)) {
        err_set(err, ERR_value, "it takes and gives something else");
        loop_plan_free(plan);
    } else if (plan) {
        ir_graph *copy = u->bw ? NULL : ir_graph_copy(plan->g);
        tp_comp mine = *c;
        mine.err = err;
        code_log_program(plan);
        bw = inductor_program(&mine, plan, made);
        if (bw && copy)
            u->bw = copy; /* types of the tangents */
        else
            ir_graph_free(copy);
    }
    free(made);
    return bw;
}

run_program *gcache_backward(gcache *x, tp_comp *c, const ir_graph *g, aot_unit *u)
{
    char why[DISK_WHY] = "";
    strbuf b = { 0 };
    tp_err err = { 0 };
    run_program *p = NULL;
    if (x->on && !env_on(ENV_check_cache)) {
        int64_t t0 = clock_ns();
        disk_item it = item_of(x, "backward");
        if (disk_get(&it, &b, why) && !(p = read_backward(b.s, b.n, c, g, u, &err))) {
            snprintf(why, sizeof why, "refused: %.*s", (int)sizeof why - 12, err.msg);
            disk_refuse(&it, why);
        }
        if (p)
            tell("hit", x, "backward", "", b.n, (double)(clock_ns() - t0) * 1e-6);
        else
            tell("miss", x, "backward", why, 0, 0);
        ev_add(p ? EVN_graph_hits : EVN_graph_misses, 1);
        strbuf_free(&b);
    }
    if (!p)
        need_graph(x, g, u, c->err);
    return p;
}

bool gcache_keep_backward(gcache *x, tp_comp *c, const ir_graph *g, aot_unit *u, run_program **bw)
{
    strbuf b = { 0 };
    tp_err err = { 0 };
    bool ok = true;
    if (!x->on)
        return true;
    if (!planio_write(&b, *bw, g, &err))
        tell("bypass", x, "backward", err.msg, 0, 0);
    else if (env_on(ENV_check_cache)) {
        run_program *again = read_backward(b.s, b.n, c, g, u, c->err);
        ok = again || err_note(c->err, "reading back what the disk cache would hold");
        if (ok) {
            run_program_free(*bw);
            *bw = again;
        }
    } else {
        disk_item it = item_of(x, "backward");
        disk_put_later(&it, &b);
    }
    strbuf_free(&b);
    return ok;
}
