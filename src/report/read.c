/* read.c - trace lines to the model, in one pass over each file with a buffer of fixed size. A record is a prefix line
 * with a JSON envelope and the tab-prefixed lines after it; what does not fit is skipped with its line number, and
 * reading goes on. */
#define _GNU_SOURCE
#include "report/model.h"
#include "base/digest.h"
#include "base/file.h"
#include "events/events.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

const struct rp_stage rp_stages[RP_STAGES] = {
    { "capture", "capture", "bytecode_tracing_time_us", "reading your Python bytecode into a graph" },
    { "guards", "guards", "guard_build_time_us", "deciding what must stay true" },
    { "autograd", "autograd", "aot_autograd_cumulative_compile_time_us",
      "working out gradients, simplifying" },
    { "fusion", "fusion", "inductor_schedule_time_us", "choosing which operations share a kernel" },
    { "code", "code", "inductor_code_gen_cumulative_compile_time_us", "writing machine code" },
    { "trace", "this trace", "structured_logging_overhead_us",
      "writing this trace; without TAPER_TRACE it does not take place" },
};

typedef struct reader {
    report *r;
    int file;
    int64_t line, off;    /* of the line at hand */
    arena tmp;            /* the envelope at hand */
    const json_val *env;  /* NULL: no record is open */
    const json_val *said; /* has_payload of it */
    bool captured;        /* its payload is a captured graph */
    double time;
    int64_t at;              /* line of the envelope */
    rp_text envelope, lines; /* where the JSON and the payload lie */
    digest sum;
    strbuf payload; /* its beginning */
    int64_t npayload;
    bool any_payload, damaged, crlf; /* crlf: the envelope ended in \r\n */
    char md5[DIGEST_HEX];            /* of the payload */
} reader;

static void skip(reader *rd, int64_t line, const char *why)
{
    report *r = rd->r;
    r->nskip++;
    if (r->skips.n < RP_SKIPS)
        vec_push(&r->skips, ((rp_skip){ rd->file, line, arena_strdup(&r->mem, why) }));
}

/* ---- the prefix: V0131 23:59:59.123456 4711 file.c:12] ---- */
static bool digits(const char **p, const char *end, int want)
{
    int n = 0;
    while (*p < end && isdigit((unsigned char)**p) && (!want || n < want))
        (*p)++, n++;
    return want ? n == want : n > 0;
}

static bool lit(const char **p, const char *end, char c)
{
    if (*p < end && **p == c)
        return (*p)++, true;
    return false;
}

static const char *prefix(const char *p, const char *end, double *time)
{
    if (p >= end || !strchr("VIWEC", *p++) || !digits(&p, end, 4) || !lit(&p, end, ' '))
        return NULL;
    const char *t = p;
    if (!digits(&p, end, 2) || !lit(&p, end, ':') || !digits(&p, end, 2) || !lit(&p, end, ':') ||
        !digits(&p, end, 2) || p++ >= end || !digits(&p, end, 6) || !lit(&p, end, ' '))
        return NULL;
#define TWO(k) ((t[k] - '0') * 10 + t[(k) + 1] - '0')
    *time = TWO(0) * 3600.0 + TWO(3) * 60.0 + TWO(6);
#undef TWO
    if (!digits(&p, end, 0) || !lit(&p, end, ' '))
        return NULL;
    const char *stop = end - p > 4096 ? p + 4096 : end;
    for (; p + 3 < stop; p++) {
        const char *q = p + 1;
        if (*p == ':' && digits(&q, end, 0) && lit(&q, end, ']') && lit(&q, end, ' '))
            return q;
    }
    return NULL;
}

static const char *find_prefix(const char *p, const char *end, double *time)
{
    const char *stop = end - p > 64 ? p + 64 : end; /* another logger may have put something before */
    for (; p < stop; p++) {
        const char *q = *p && strchr("VIWEC", *p) ? prefix(p, end, time) : NULL;
        if (q)
            return q;
    }
    return NULL;
}

/* ---- JSON to text ---- */
static void text_of(strbuf *b, const json_val *v)
{
    if (b->n > RP_TEXT)
        return;
    if (!v || v->type == JSON_null)
        strbuf_add(b, "none");
    else if (v->type == JSON_bool)
        strbuf_add(b, v->b ? "yes" : "no");
    else if (v->type == JSON_int)
        strbuf_addf(b, "%lld", (long long)v->i);
    else if (v->type == JSON_dbl)
        strbuf_double(b, v->d);
    else if (v->type == JSON_str)
        strbuf_addn(b, v->s, v->n);
    else if (v->type == JSON_arr)
        for (size_t i = 0; i < v->n && b->n < RP_TEXT; i++) {
            strbuf_add(b, i ? ", " : "");
            text_of(b, &v->at[i]);
        }
    else
        for (size_t i = 0; i < v->n && b->n < RP_TEXT; i++) {
            strbuf_add(b, i ? ", " : "");
            strbuf_addn(b, v->members[i].key, v->members[i].n_key);
            strbuf_add(b, ": ");
            text_of(b, &v->members[i].val);
        }
}

/* A field that holds a name of the program. */
static void private_text(reader *rd, const json_val *v)
{
    if (rd->r->redact && json_is(v, JSON_str))
        rp_private(rd->r, v->s, v->n);
}

static const char *keep_n(report *r, const char *s, size_t n)
{
    return arena_strndup(&r->mem, s, MIN(n, (size_t)RP_TEXT));
}

static const char *keep_text(report *r, const json_val *v)
{
    strbuf b = { 0 };
    text_of(&b, v);
    const char *s = keep_n(r, strbuf_str(&b), b.n);
    strbuf_free(&b);
    return s;
}

static const char *keep_or(report *r, const json_val *v, const char *def)
{
    return v && v->type != JSON_null ? keep_text(r, v) : def;
}

/* ---- stacks ---- */
static rp_frame *stack_of(reader *rd, const json_val *v, int *n)
{
    *n = 0;
    if (!json_is(v, JSON_arr) || !v->n)
        return NULL;
    size_t first = v->n > RP_FRAMES ? v->n - RP_FRAMES : 0;
    rp_frame *f = ARENA_ARR(&rd->r->mem, rp_frame, v->n - first);
    for (size_t i = first; i < v->n; i++) {
        const json_val *file = json_get(&v->at[i], "filename");
        rp_frame *o = &f[(*n)++];
        const char *s = NULL;
        if (json_is(file, JSON_int))
            s = map_geti(&rd->r->files.at[rd->file].strs, (uint64_t)file->i);
        else if (json_is(file, JSON_str))
            s = keep_text(rd->r, file);
        o->file = s ? s : "(unknown)";
        o->name = keep_or(rd->r, json_get(&v->at[i], "name"), "(unknown)");
        o->loc = keep_or(rd->r, json_get(&v->at[i], "loc"), NULL);
        o->line = json_i64(json_get(&v->at[i], "line"), 0);
        private_text(rd, json_get(&v->at[i], "name"));
    }
    return f;
}

/* ---- which compile ---- */
static rp_compile *compile_of(reader *rd)
{
    static rp_compile none; /* where the records of compiles beyond the limit go */
    report *r = rd->r;
    int64_t frame = json_i64(json_get(rd->env, "frame_id"), -1);
    int64_t comp = json_i64(json_get(rd->env, "frame_compile_id"), -1);
    const json_val *ca = json_get(rd->env, "compiled_autograd_id");
    int64_t attempt = json_i64(json_get(rd->env, "attempt"), 0);
    char id[96], key[128];
    int n = 0;
    if (json_is(ca, JSON_int))
        n = snprintf(id, sizeof id, "!%lld%s", (long long)ca->i, frame >= 0 ? "/" : "");
    if (frame >= 0 && comp >= 0)
        snprintf(id + n, sizeof id - (size_t)n, "%lld/%lld", (long long)frame, (long long)comp);
    else if (!n)
        snprintf(id, sizeof id, "no id");
    snprintf(key, sizeof key, "%d %s", rd->file, id);
    rp_compile *c = map_get(&r->by_id, key);
    if (!c && r->compiles.n >= RP_COMPILES) {
        if (r->by_id.n < 4 * RP_COMPILES) /* counted once each, as far as that is affordable */
            map_put(&r->by_id, key, &none);
        r->ndropped++;
        none.dropped = true;
        return &none;
    }
    if (!c) {
        c = ARENA_NEW(&r->mem, rp_compile);
        *c = (rp_compile){ .file = rd->file,
                           .index = r->compiles.n,
                           .frame = frame,
                           .compile = comp,
                           .seconds = -1,
                           .bwd_seconds = -1,
                           .first_us = -1,
                           .warm_us = -1,
                           .best_us = -1,
                           .eager_us = -1,
                           .guards = { -1, 0, 0 },
                           .id = arena_strdup(&r->mem, id) };
        map_put(&r->by_id, key, c);
        vec_push(&r->compiles, c);
    }
    if (!c->dropped)
        c->attempts = MAX(c->attempts, attempt);
    return c;
}

/* ---- events ---- */
static void add_payload(reader *rd, rp_compile *c, const char *event, const char *title)
{
    if (c->recs.n >= RP_RECS)
        return;
    rp_rec *p = ARENA_NEW(&rd->r->mem, rp_rec);
    memcpy(p->md5, rd->md5, 33);
    p->event = event;
    p->title = keep_n(rd->r, title, strlen(title));
    p->attempt = json_i64(json_get(rd->env, "attempt"), 0);
    p->line = rd->at;
    p->damaged = rd->damaged;
    p->text = rd->lines;
    for (size_t i = c->recs.n; i > 0 && c->recs.n - i < 64 && !p->same; i--)
        if (!strcmp(c->recs.at[i - 1]->md5, p->md5))
            p->same = c->recs.at[i - 1]->same ? c->recs.at[i - 1]->same : c->recs.at[i - 1];
    if (p->same && !strcmp(p->same->title, p->title))
        return; /* the very same once more */
    vec_push(&c->recs, p);
}

/* "# File: model.py:12 in forward, code: ..." tells the function when no dynamo_start did. */
static void place_from_graph(reader *rd, rp_compile *c)
{
    const char *s = rd->payload.n ? strstr(rd->payload.s, "# File: ") : NULL;
    if (!s || c->func)
        return;
    s += 8;
    const char *end = s + strcspn(s, "\n"), *in = s;
    while (in < end && strncmp(in, " in ", 4))
        in++;
    const char *colon = in;
    while (colon > s && *colon != ':')
        colon--;
    if (in == end || colon == s)
        return;
    const char *stop = in + 4;
    while (stop < end && strncmp(stop, ", code", 6))
        stop++;
    c->func = keep_n(rd->r, in + 4, (size_t)(stop - in - 4));
    c->where_file = keep_n(rd->r, s, (size_t)(colon - s));
    c->where_line = strtoll(colon + 1, NULL, 10);
}

/* What PyTorch measures contains what is inside of it: capture the autograd stage, that Inductor, that its code. */
static void add_stages(rp_compile *c, const json_val *m)
{
    static const char *const nested[] = { "dynamo_cumulative_compile_time_us",
                                          "aot_autograd_cumulative_compile_time_us",
                                          "inductor_cumulative_compile_time_us",
                                          "inductor_code_gen_cumulative_compile_time_us" };
    static const int stage[] = { 0, 2, 3, 4 };
    bool taper = json_get(m, rp_stages[0].field) != NULL;
    for (int i = 0; i < RP_STAGES; i++)
        if (taper || i == 1 || i == RP_STAGES - 1)
            c->stage[i] += MAX(json_f64(json_get(m, rp_stages[i].field), 0), 0.0);
    double inside = 0;
    for (int i = (int)COUNT(nested) - 1; !taper && i >= 0; i--) {
        double all = json_f64(json_get(m, nested[i]), 0);
        c->stage[stage[i]] += MAX(all - inside, 0.0);
        inside = MAX(all, inside);
    }
}

static void on_metrics(reader *rd, rp_compile *c, const json_val *m, bool forward)
{
    if (!json_is(m, JSON_obj))
        return;
    if (c->metrics.n < 8)
        vec_push(&c->metrics, rd->envelope);
    add_stages(c, m);
    c->kernels += json_i64(json_get(m, "kernel_count"), 0);
    c->calls += json_i64(json_get(m, "library_call_count"), 0);
    c->moved += json_i64(json_get(m, "bytes_moved"), 0);
    c->hits += json_i64(json_get(m, "inductor_fx_local_cache_hit_count"), 0);
    c->misses += json_i64(json_get(m, "inductor_fx_local_cache_miss_count"), 0);
    double us = json_f64(json_get(m, "duration_us"), -1);
    double s = us >= 0 ? us * 1e-6 : json_f64(json_get(m, "entire_frame_compile_time_s"), -1);
    if (!forward) {
        c->bwd_seconds = s;
        return;
    }
    c->has_metrics = true;
    c->seconds = s;
    c->start = json_f64(json_get(m, "start_time"), 0);
    c->ops = json_i64(json_get(m, "graph_op_count"), 0);
    c->nguards = json_i64(json_get(m, "guard_count"), 0);
    const json_val *fail = json_get(m, "fail_type"), *restart = json_get(m, "restart_reasons");
    if (fail && fail->type != JSON_null && !c->error)
        c->error = arena_printf(&rd->r->mem, "%s: %s", keep_text(rd->r, fail),
                                keep_or(rd->r, json_get(m, "fail_reason"), "(no reason recorded)"));
    if (json_is(restart, JSON_arr) && restart->n)
        c->restart = keep_text(rd->r, &restart->at[0]);
    c->no_ops = c->ops == 0;
    const json_val *why = json_get(m, "recompile_reason");
    if (why && why->type != JSON_null && !c->recompiles.n)
        vec_push(&c->recompiles, keep_text(rd->r, why));
    private_text(rd, json_get(m, "co_name"));
    private_text(rd, json_get(m, "co_filename"));
    if (json_cstr(json_get(m, "co_name"))) {
        c->func = keep_text(rd->r, json_get(m, "co_name"));
        c->where_file = keep_or(rd->r, json_get(m, "co_filename"), "(unknown)");
        c->where_line = json_i64(json_get(m, "co_firstlineno"), 0);
    }
}

static void on_runtime(rp_compile *c, const json_val *m)
{
    c->ran = json_i64(json_get(m, "calls"), c->ran);
    c->first_us = json_f64(json_get(m, "first_call_us"), -1);
    c->warm_us = json_f64(json_get(m, "warm_call_us"), -1);
    c->best_us = json_f64(json_get(m, "warm_best_us"), -1);
    c->eager_us = json_f64(json_get(m, "eager_call_us"), -1);
}

static void on_ledger(reader *rd)
{
    report *r = rd->r;
    tp_err e = { 0 };
    const json_val *v = json_parse(&rd->tmp, strbuf_str(&rd->payload), rd->payload.n, &e);
    for (size_t i = 0; i < r->ledger.n; i++) /* a later one tells more */
        if (r->ledger.at[i].file == rd->file)
            r->ledger.at[i--] = r->ledger.at[--r->ledger.n];
    for (size_t i = 0; json_is(v, JSON_arr) && i < v->n && r->ledger.n < RP_COMPILES; i++) {
        const json_val *x = &v->at[i];
        private_text(rd, json_get(x, "function"));
        private_text(rd, json_get(x, "file"));
        vec_push(&r->ledger,
                 ((rp_ledger){ rd->file, keep_or(r, json_get(x, "function"), "?"),
                               keep_or(r, json_get(x, "file"), "?"), keep_or(r, json_get(x, "reason"), NULL),
                               json_i64(json_get(x, "line"), 0), json_i64(json_get(x, "frame_id"), -1),
                               json_i64(json_get(x, "frame_compile_id"), -1), json_i64(json_get(x, "ops"), 0),
                               json_i64(json_get(x, "compiled_runs"), 0),
                               json_i64(json_get(x, "eager_runs"), 0) }));
    }
}

/* aotautograd_cache_hit, _miss, _bypass: the disk cache was asked for a whole graph. */
static void on_cache(reader *rd, rp_compile *c, const char *what)
{
    report *r = rd->r;
    tp_err e = { 0 };
    const json_val *v = json_parse(&rd->tmp, strbuf_str(&rd->payload), rd->payload.n, &e);
    if (c->cache.n >= RP_SYMBOLS)
        return;
    vec_push(&c->cache,
             ((rp_cache){ !strcmp(what, "hit")    ? "hit"
                          : !strcmp(what, "miss") ? "miss"
                                                  : "bypass",
                          keep_or(r, json_get(v, "part"), ""), keep_or(r, json_get(v, "reason"), ""),
                          json_i64(json_get(v, "bytes"), 0) }));
}

static void on_artifact(reader *rd, rp_compile *c, const json_val *m)
{
    const char *name = json_cstr(json_get(m, "name"));
    report *r = rd->r;
    name = name ? name : "artifact";
    const char *text = strbuf_str(&rd->payload);
    size_t n = rd->payload.n;
    if (!strcmp(name, "dynamo_graph_break_reason"))
        vec_push(&c->breaks, keep_n(r, text, n));
    else if (!strcmp(name, "dynamo_error")) {
        if (!c->error)
            c->error = keep_n(r, text, n);
    } else if (!strncmp(name, "aotautograd_cache_", 18) && n)
        on_cache(rd, c, name + 18);
    else if (!strcmp(name, "perf_hints")) {
        for (const char *s = text, *end; s < text + n; s = end + 1) { /* a line each */
            end = s + strcspn(s, "\n");
            if (end > s && c->hints.n < RP_SYMBOLS)
                vec_push(&c->hints, keep_n(r, s, (size_t)(end - s)));
        }
    } else if (!strcmp(name, "repro"))
        vec_push(&c->saved, keep_n(r, text, n));
    else if (!strcmp(name, "automatic_dynamic"))
        vec_push(&c->dynamic, keep_n(r, text, n));
    else if (!strcmp(name, "ledger"))
        on_ledger(rd);
    else if (!strcmp(name, "graph_execution"))
        return; /* for readers that compare ranks */
    else if (!strcmp(name, "recompile_reasons")) {
        tp_err e = { 0 };
        const json_val *v = json_parse(&rd->tmp, text, n, &e);
        if (json_is(v, JSON_arr))
            for (size_t i = 0; i < v->n && c->recompiles.n < 64; i++)
                vec_push(&c->recompiles, keep_text(r, &v->at[i]));
        else
            vec_push(&c->recompiles, v ? keep_text(r, v) : keep_n(r, text, n));
    } else
        add_payload(rd, c, "artifact", name);
}

static void on_symbol(reader *rd, rp_compile *c, const char *event, const json_val *m)
{
    report *r = rd->r;
    bool spec = !strcmp(event, "symbolic_shape_specialization");
    rp_symbol s = { spec                        ? "fixed to one value"
                    : strstr(event, "unbacked") ? "depends on data"
                                                : "size",
                    keep_or(r, json_get(m, "symbol"), "?"),
                    keep_or(r, json_get(m, spec ? "value" : "val"), ""),
                    keep_or(r, json_get(m, spec ? "reason" : "vr"), ""),
                    keep_or(r, json_get(m, spec ? "sources" : "source"), ""),
                    NULL };
    for (size_t i = c->symbols.n > 64 ? c->symbols.n - 64 : 0; i < c->symbols.n; i++)
        if (!strcmp(c->symbols.at[i].symbol, s.symbol) && !strcmp(c->symbols.at[i].source, s.source) &&
            !strcmp(c->symbols.at[i].val, s.val) && c->symbols.at[i].what == s.what)
            return; /* a restart made it again */
    if (c->symbols.n < RP_SYMBOLS)
        vec_push(&c->symbols, s);
}

static const struct {
    const char *event, *title;
} graphs[] = {
    { "dynamo_output_graph", "Captured graph" },
    { "aot_joint_graph", "Joint graph (forward and backward)" },
    { "aot_forward_graph", "Forward graph" },
    { "aot_backward_graph", "Backward graph" },
    { "aot_inference_graph", "Inference graph" },
    { "inductor_pre_grad_graph", "Graph before gradients" },
    { "inductor_post_grad_graph", "Graph handed to code generation" },
    { "inductor_output_code", "Generated code" },
    { "dynamo_cpp_guards_str", "Guard tree" },
    { "compiled_autograd_graph", "Backward-engine graph" },
    { "optimize_ddp_split_graph", "Split graph" },
};

static const char *const quiet[] = { "describe_storage",
                                     "describe_tensor",
                                     "describe_source",
                                     "chromium_event",
                                     "guard_added",
                                     "expression_created",
                                     "propagate_real_tensors",
                                     "missing_fake_kernel",
                                     "mismatched_fake_kernel",
                                     "guard_on_data_dependent_error" };

static const char *event_of(const json_val *env, const json_val **meta)
{
    static const char *const reserved[] = {
        "rank",  "compiled_autograd_id", "frame_id", "frame_compile_id", "attempt",
        "stack", "has_payload",          "severity", "timestamp",        "pathname",
        "thread"
    };
    for (size_t i = 0; i < env->n; i++) {
        bool is = true;
        for (size_t k = 0; k < COUNT(reserved); k++)
            is = is && strcmp(env->members[i].key, reserved[k]);
        if (is)
            return *meta = &env->members[i].val, env->members[i].key;
    }
    return NULL;
}

static void on_str(reader *rd, const json_val *m)
{
    map *strs = &rd->r->files.at[rd->file].strs;
    if (!json_is(m, JSON_arr) || m->n != 2 || !json_is(&m->at[0], JSON_str) || !json_is(&m->at[1], JSON_int))
        skip(rd, rd->at, "a string entry is not [text, number]");
    else if (private_text(rd, &m->at[0]), strs->n < 100000)
        map_puti(strs, (uint64_t)m->at[1].i, (void *)keep_text(rd->r, &m->at[0]));
}

static void count_unknown(report *r, const char *event)
{
    intptr_t n = (intptr_t)map_get(&r->unknown, event);
    if (n || (r->unknown.n < 256 && strlen(event) < 256))
        map_put(&r->unknown, event, (void *)(n + 1));
}

static void on_start(reader *rd, rp_compile *c, const json_val *m)
{
    int n;
    if (c->nstack)
        return;
    rp_frame *f = stack_of(rd, json_get(m, "stack"), &n);
    if (!n)
        return;
    c->stack = f;
    c->nstack = n;
    c->func = f[n - 1].name;
    c->where_file = f[n - 1].file;
    c->where_line = f[n - 1].line;
}

/* {"name": "backend_compile", ..., "ph": "B", ...}: what is going on, for traces that end in the middle. */
static void on_phase(reader *rd)
{
    rp_file *f = &rd->r->files.at[rd->file];
    const char *s = strbuf_str(&rd->payload), *name = strstr(s, "\"name\": \""),
               *ph = strstr(s, "\"ph\": \"");
    if (!name || !ph)
        return;
    if (ph[7] == 'B' && f->open.n < 64)
        vec_push(&f->open, keep_n(rd->r, name + 9, strcspn(name + 9, "\"")));
    else if (ph[7] == 'E' && f->open.n)
        f->open.n--;
}

/* {"file": ..., "name": ..., "line": 18, "lines": [...]}: a function of the program, as it was traced. */
static void on_source(reader *rd)
{
    report *r = rd->r;
    tp_err e = { 0 };
    const json_val *v = json_parse(&rd->tmp, strbuf_str(&rd->payload), rd->payload.n, &e);
    const char *file = json_cstr(json_get(v, "file"));
    if (!file || !json_is(json_get(v, "lines"), JSON_arr)) {
        skip(rd, rd->at, "a source record that is not the JSON it should be");
        return;
    }
    int64_t line = json_i64(json_get(v, "line"), 0);
    const char *key = arena_printf(&rd->tmp, "%s:%lld %s", file, (long long)line, rd->md5);
    private_text(rd, json_get(v, "file"));
    private_text(rd, json_get(v, "name"));
    if (r->sources.n >= RP_SOURCES || map_get(&r->source_known, key)) /* other ranks have the same */
        return;
    map_put(&r->source_known, key, (void *)1);
    vec_push(&r->sources, ((rp_source){ keep_n(r, file, strlen(file)), keep_or(r, json_get(v, "name"), "?"),
                                        line, rd->lines }));
}

static void line_in_graph(report *r, const char *at, size_t n)
{
    if (r->in_graph.n < RP_LINES)
        map_putn(&r->in_graph, at, n, (void *)1);
}

/* "calls" of a captured graph: {"file": [lines]}, those that called what became part of it. */
static void on_calls(reader *rd, const json_val *m)
{
    for (size_t i = 0; json_is(m, JSON_obj) && i < m->n; i++)
        for (size_t k = 0; json_is(&m->members[i].val, JSON_arr) && k < m->members[i].val.n; k++) {
            const char *at = arena_printf(&rd->tmp, "%s:%lld", m->members[i].key,
                                          (long long)json_i64(&m->members[i].val.at[k], 0));
            line_in_graph(rd->r, at, strlen(at));
        }
}

static void on_event(reader *rd, const char *event, const json_val *m)
{
    if (!strcmp(event, "str")) {
        on_str(rd, m);
        return;
    }
    if (!strcmp(event, "chromium_event")) {
        on_phase(rd);
        return;
    }
    for (size_t i = 0; i < COUNT(quiet); i++)
        if (!strcmp(event, quiet[i]))
            return;
    const char *artifact = strcmp(event, "artifact") ? NULL : json_cstr(json_get(m, "name"));
    if (artifact && !strcmp(artifact, "source")) { /* of no compile */
        on_source(rd);
        return;
    }
    rp_compile *c = compile_of(rd);
    if (c->dropped)
        return;
    for (size_t i = 0; i < COUNT(graphs); i++)
        if (!strcmp(event, graphs[i].event)) {
            if (!i) {
                c->has_graph = true;
                place_from_graph(rd, c);
                on_calls(rd, json_get(m, "calls"));
            }
            c->has_guards |= !strcmp(event, "dynamo_cpp_guards_str");
            const char *file = json_cstr(json_get(m, "filename"));
            add_payload(rd, c, graphs[i].event,
                        file ? arena_printf(&rd->tmp, "%s: %.200s", graphs[i].title, file) : graphs[i].title);
            return;
        }
    if (!strcmp(event, "dynamo_start"))
        on_start(rd, c, m);
    else if (!strcmp(event, "dynamo_guards")) {
        c->has_guards = true;
        c->guards = rd->lines;
    } else if (!strcmp(event, "artifact"))
        on_artifact(rd, c, m);
    else if (!strcmp(event, "compilation_metrics"))
        on_metrics(rd, c, m, true);
    else if (!strcmp(event, "compilation_metrics_runtime"))
        on_runtime(c, m);
    else if (strstr(event, "compilation_metrics"))
        on_metrics(rd, c, m, false);
    else if (!strcmp(event, "create_symbol") || !strcmp(event, "create_unbacked_symbol") ||
             !strcmp(event, "symbolic_shape_specialization"))
        on_symbol(rd, c, event, m);
    else if (!strcmp(event, "guard_added_fast")) {
        if (c->exprs.n < RP_SYMBOLS)
            vec_push(&c->exprs, keep_or(rd->r, json_get(m, "expr"), "?"));
    } else {
        const char *name = json_cstr(json_get(m, "name"));
        bool known = !strcmp(event, "graph_dump") || !strcmp(event, "dump_file") || !strcmp(event, "link") ||
                     !strcmp(event, "optimize_ddp_split_child");
        if (!known)
            count_unknown(rd->r, event);
        if (rd->any_payload)
            add_payload(rd, c, strcmp(event, "graph_dump") ? "other" : "graph_dump", name ? name : event);
    }
}

/* ---- lines to records ---- */
static void close_record(reader *rd)
{
    if (!rd->env)
        return;
    report *r = rd->r;
    rp_file *f = &r->files.at[rd->file];
    const json_val *meta = NULL;
    const char *event = event_of(rd->env, &meta);
    int64_t rank = json_i64(json_get(rd->env, "rank"), -1);
    if (f->rank < 0)
        f->rank = rank;
    if (!event)
        skip(rd, rd->at, "the record names no event");
    else {
        rd->md5[0] = 0;
        if (rd->said)
            digest_hex(&rd->sum, rd->md5);
        rd->damaged = json_is(rd->said, JSON_str) && strcmp(rd->said->s, rd->md5) &&
                      strcmp(rd->said->s, EV_NO_DIGEST);
        if (rd->damaged) {
            r->nmd5++;
            skip(rd, rd->at, "the payload does not match its checksum (cut or changed); shown all the same");
        }
        f->records++;
        r->nrecord++;
        if (r->redact && !strcmp(event, "describe_source"))
            private_text(rd, json_get(meta, "source"));
        on_event(rd, event, meta);
    }
    rd->env = rd->said = NULL;
    rd->any_payload = false;
    strbuf_clear(&rd->payload);
    arena_free(&rd->tmp);
}

/* "        # File: model.py:12 in forward, code: ...": that line is part of the graph. */
static void graph_line(reader *rd, const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && s[i] == ' ')
        i++;
    if (n - i < 8 || memcmp(s + i, "# File: ", 8))
        return;
    s += i + 8;
    n -= i + 8;
    const char *in = memmem(s, n, " in ", 4), *code = memmem(s, n, ", code: ", 8);
    for (const char *next = in;
         next && (!code || next < code); /* the last one before the code: paths hold spaces, too */
         next = memmem(next + 4, n - (size_t)(next + 4 - s), " in ", 4))
        in = next;
    if (in)
        line_in_graph(rd->r, s, (size_t)(in - s));
}

static void on_payload(reader *rd, const char *s, size_t n, int64_t next)
{
    if (!rd->said) {
        skip(rd, rd->line, "a payload line without its record");
        return;
    }
    if (rd->any_payload) {
        digest_add(&rd->sum, "\n", 1);
        if (rd->payload.n < RP_HEAD)
            strbuf_addc(&rd->payload, '\n');
    } else
        rd->lines = (rp_text){ rd->file, rd->off, 0 };
    digest_add(&rd->sum, s + 1, n - 1);
    rp_private_line(rd->r, s + 1, n - 1);
    if (rd->captured)
        graph_line(rd, s + 1, n - 1);
    if (rd->payload.n < RP_HEAD)
        strbuf_addn(&rd->payload, s + 1, MIN(n - 1, RP_HEAD - rd->payload.n));
    rd->lines.n = next - rd->lines.off;
    rd->any_payload = true;
}

static bool is_blank(const char *s, size_t n)
{
    while (n && (s[n - 1] == ' ' || s[n - 1] == '\r'))
        n--;
    return !n;
}

/* Empty lines: where a process was killed, many of them may be left behind the last record. They count as nothing. */
static void on_blank(reader *rd, size_t lines)
{
    rd->line += (int64_t)lines;
    close_record(rd);
}

/* One line without its end; next: where the following one starts. */
static void on_line(reader *rd, const char *s, size_t n, int64_t next)
{
    if (is_blank(s, n)) {
        on_blank(rd, 1);
        return;
    }
    rd->r->files.at[rd->file].lines = ++rd->line;
    bool cr = s[n - 1] == '\r'; /* the file went through a program that ends lines in this way */
    if (s[0] == '\t') {
        on_payload(rd, s, n - (cr && rd->crlf), next);
        return;
    }
    close_record(rd);
    rd->crlf = cr;
    n -= cr;
    const char *json = find_prefix(s, s + n, &rd->time);
    if (!json) {
        skip(rd, rd->line, "not a trace line");
        return;
    }
    tp_err e = { 0 };
    const json_val *env = json_parse(&rd->tmp, json, (size_t)(s + n - json), &e);
    if (!json_is(env, JSON_obj)) {
        skip(rd, rd->line, "the envelope is not a JSON object (cut or mixed with another line)");
        arena_free(&rd->tmp);
        return;
    }
    rd->env = env;
    rp_private_line(rd->r, json, (size_t)(s + n - json));
    rd->said = json_get(env, "has_payload");
    rd->captured = rd->said && json_get(env, "dynamo_output_graph");
    rd->at = rd->line;
    rd->envelope = (rp_text){ rd->file, rd->off + (json - s), (int64_t)(s + n - json) };
    rd->lines = (rp_text){ rd->file, next, 0 };
    if (rd->said)
        digest_init(&rd->sum, DIGEST_md5);
}

/* A payload line may be of any length: it is taken piece by piece. An envelope must fit the buffer. */
typedef struct feed {
    char *buf;
    size_t cap, n; /* n: bytes that no line was made of yet */
    int64_t off;   /* of buf[0] in the file */
    bool skipping; /* inside a line that is too long */
} feed;

static void feed_lines(reader *rd, feed *f, bool last)
{
    size_t at = 0;
    for (;;) {
        size_t blank = at;
        while (blank < f->n && f->buf[blank] == '\n' && !f->skipping)
            blank++;
        if (blank > at)
            on_blank(rd, blank - at);
        at = blank;
        char *nl = memchr(f->buf + at, '\n', f->n - at);
        if (!nl && !(last && at < f->n))
            break;
        size_t end = nl ? (size_t)(nl - f->buf) : f->n;
        rd->off = f->off + (int64_t)at;
        if (f->skipping)
            f->skipping = false;
        else
            on_line(rd, f->buf + at, end - at, f->off + (int64_t)end + 1);
        at = end + 1;
        if (!nl)
            break;
    }
    at = MIN(at, f->n);
    memmove(f->buf, f->buf + at, f->n - at);
    f->n -= at;
    f->off += (int64_t)at;
    if (f->n < f->cap || last)
        return;
    if (f->cap < RP_LINE) {
        f->cap *= 2;
        f->buf = mem_realloc(f->buf, f->cap);
        return;
    }
    if (!f->skipping) {
        rd->r->files.at[rd->file].lines = ++rd->line;
        close_record(rd);
        skip(rd, rd->line, "a line of more than 16 MiB");
    }
    f->skipping = true;
    f->off += (int64_t)f->n;
    f->n = 0;
}

static reader begin(report *r, const char *name, const char *path, const char *text)
{
    vec_push(&r->files, ((rp_file){ .name = arena_strdup(&r->mem, name),
                                    .path = path ? arena_strdup(&r->mem, path) : NULL,
                                    .text = text,
                                    .rank = -1 }));
    return (reader){ .r = r, .file = (int)r->files.n - 1 };
}

static void end(reader *rd)
{
    close_record(rd);
    strbuf_free(&rd->payload);
    arena_free(&rd->tmp);
}

void report_add_text(report *r, const char *name, const char *text, size_t n)
{
    reader rd = begin(r, name, NULL, text);
    r->files.at[rd.file].bytes = (int64_t)n;
    for (size_t at = 0; at < n;) {
        const char *nl = memchr(text + at, '\n', n - at);
        size_t stop = nl ? (size_t)(nl - text) : n;
        rd.off = (int64_t)at;
        on_line(&rd, text + at, stop - at, (int64_t)MIN(stop + 1, n));
        at = stop + 1;
    }
    end(&rd);
}

static bool add_file(report *r, const char *path, tp_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(err, ERR_os, "cannot open '%s': %s", path, strerror(errno));
    const char *slash = strrchr(path, '/');
    reader rd = begin(r, slash ? slash + 1 : path, path, NULL);
    feed f = { mem_alloc(1 << 20), 1 << 20, 0, 0, false };
    ssize_t got;
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    while ((got = read(fd, f.buf + f.n, f.cap - f.n)) > 0 || (got < 0 && errno == EINTR)) {
        if (got < 0)
            continue;
        f.n += (size_t)got;
        r->files.at[rd.file].bytes += got;
        feed_lines(&rd, &f, false);
    }
    int why = errno;
    feed_lines(&rd, &f, true);
    end(&rd);
    free(f.buf);
    close(fd);
    return got == 0 || err_set(err, ERR_os, "cannot read '%s': %s", path, strerror(why));
}

static int is_log(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    return n > 4 && !strcmp(d->d_name + n - 4, ".log");
}

bool report_add(report *r, const char *path, tp_err *err)
{
    if (!file_is_dir(path))
        return add_file(r, path, err);
    struct dirent **names = NULL;
    int n = scandir(path, &names, is_log, alphasort);
    bool ok = n >= 0 || err_set(err, ERR_os, "cannot list '%s': %s", path, strerror(errno));
    if (!n)
        ok = err_set(err, ERR_os,
                     "no trace files (*.log) in '%s'; make some with TAPER_TRACE=%s python prog.py", path,
                     path);
    for (int i = 0; i < n; i++) {
        char *full = path_join(path, names[i]->d_name);
        ok = ok && (file_is_dir(full) || add_file(r, full, err));
        free(full);
        free(names[i]);
    }
    free(names);
    return ok;
}

/* ---- reading again ---- */
static ssize_t read_at(report *r, rp_text t, char *buf, size_t n, int64_t at)
{
    const rp_file *f = &r->files.at[t.file];
    if (!f->path) {
        size_t have = (size_t)MAX(MIN(t.n, f->bytes - t.off) - at, 0);
        n = MIN(n, have);
        memcpy(buf, f->text + t.off + at, n);
        return (ssize_t)n;
    }
    if (r->open_file != t.file + 1) {
        if (r->open_file)
            close(r->fd);
        r->fd = open(f->path, O_RDONLY | O_CLOEXEC);
        r->open_file = r->fd < 0 ? 0 : t.file + 1;
    }
    return r->open_file ? pread(r->fd, buf, n, t.off + at) : -1;
}

void rp_load(report *r, rp_text t, size_t limit, strbuf *out)
{
    size_t want = MIN((size_t)MAX(t.n, 0), limit + limit / 8 + 16), got = 0;
    char *raw = mem_alloc(want + 1);
    while (got < want) {
        ssize_t k = read_at(r, t, raw + got, want - got, (int64_t)got);
        if (k <= 0)
            break;
        got += (size_t)k;
    }
    for (size_t at = 0; at < got && out->n < limit;) {
        char *nl = memchr(raw + at, '\n', got - at);
        size_t stop = nl ? (size_t)(nl - raw) : got, from = at + (raw[at] == '\t');
        size_t to = stop - (stop > from && raw[stop - 1] == '\r');
        strbuf_addn(out, raw + from, MIN(to > from ? to - from : 0, limit - out->n));
        if (nl && stop + 1 < got && out->n < limit)
            strbuf_addc(out, '\n');
        at = stop + 1;
    }
    free(raw);
}

report *report_new(void) { return mem_zalloc(sizeof(report)); }

void report_redact(report *r) { r->redact = true; }

void report_free(report *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->compiles.n; i++) {
        rp_compile *c = r->compiles.at[i];
        vec_free(&c->recs);
        vec_free(&c->symbols);
        vec_free(&c->metrics);
        vec_free(&c->breaks);
        vec_free(&c->recompiles);
        vec_free(&c->failed);
        vec_free(&c->dynamic);
        vec_free(&c->cache);
        vec_free(&c->hints);
        vec_free(&c->saved);
        vec_free(&c->exprs);
    }
    for (size_t i = 0; i < r->files.n; i++) {
        map_free(&r->files.at[i].strs);
        vec_free(&r->files.at[i].open);
    }
    if (r->open_file)
        close(r->fd);
    vec_free(&r->files);
    vec_free(&r->compiles);
    vec_free(&r->ledger);
    for (size_t i = 0; i < r->places.n; i++)
        vec_free(&r->places.at[i].at);
    vec_free(&r->places);
    vec_free(&r->sources);
    map_free(&r->source_known);
    map_free(&r->in_graph);
    vec_free(&r->skips);
    map_free(&r->by_id);
    map_free(&r->unknown);
    map_free(&r->secret);
    map_free(&r->hidden);
    arena_free(&r->mem);
    free(r);
}
