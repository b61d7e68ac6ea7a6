/* read.c - trace lines to the model. A record is a prefix line with a JSON envelope and the tab-prefixed
 * lines after it; what does not fit is skipped with its line number, and reading goes on. */
#include "report/model.h"
#include "base/digest.h"
#include "base/file.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>

typedef struct reader {
    report *r;
    int file;
    int64_t line;
    arena tmp;           /* the envelope at hand */
    const json_val *env; /* NULL: no record is open */
    double time;
    int64_t at; /* line of the envelope */
    strbuf payload;
    bool any_payload, damaged;
    char md5[DIGEST_HEX]; /* of the payload */
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
    *time = atoi(t) * 3600.0 + atoi(t + 3) * 60.0 + atoi(t + 6) + atoi(t + 9) * 1e-6;
    if (!digits(&p, end, 0) || !lit(&p, end, ' '))
        return NULL;
    for (; p + 3 < end; p++) {
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
static void text_of(strbuf *b, const json_val *v, int depth)
{
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
        for (size_t i = 0; i < v->n; i++) {
            strbuf_add(b, i ? ", " : "");
            text_of(b, &v->at[i], depth + 1);
        }
    else
        for (size_t i = 0; i < v->n; i++) {
            strbuf_add(b, i ? ", " : "");
            strbuf_addn(b, v->members[i].key, v->members[i].n_key);
            strbuf_add(b, ": ");
            text_of(b, &v->members[i].val, depth + 1);
        }
}

static const char *keep_text(report *r, const json_val *v)
{
    strbuf b = { 0 };
    text_of(&b, v, 0);
    const char *s = arena_strndup(&r->mem, strbuf_str(&b), MIN(b.n, (size_t)RP_PAYLOAD));
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
    }
    return f;
}

/* ---- which compile ---- */
static rp_compile *compile_of(reader *rd)
{
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
    if (!c) {
        c = ARENA_NEW(&r->mem, rp_compile);
        *c = (rp_compile){ .file = rd->file,
                           .frame = frame,
                           .compile = comp,
                           .seconds = -1,
                           .t0 = rd->time,
                           .id = arena_strdup(&r->mem, id) };
        map_put(&r->by_id, key, c);
        vec_push(&r->compiles, c);
    }
    c->attempts = MAX(c->attempts, attempt);
    c->t1 = rd->time;
    return c;
}

/* ---- events ---- */
static void add_payload(reader *rd, rp_compile *c, const char *event, const char *title)
{
    rp_rec *p = ARENA_NEW(&rd->r->mem, rp_rec);
    memcpy(p->md5, rd->md5, 33);
    p->event = arena_strdup(&rd->r->mem, event);
    p->title = arena_strdup(&rd->r->mem, title);
    p->attempt = json_i64(json_get(rd->env, "attempt"), 0);
    p->line = rd->at;
    p->damaged = rd->damaged;
    for (size_t i = c->recs.n; i > 0 && c->recs.n - i < 64 && !p->same; i--)
        if (!strcmp(c->recs.at[i - 1]->md5, p->md5))
            p->same = c->recs.at[i - 1]->same ? c->recs.at[i - 1]->same : c->recs.at[i - 1];
    p->n = MIN(rd->payload.n, (size_t)RP_PAYLOAD);
    p->cut = rd->payload.n - p->n;
    if (!p->same)
        p->text = arena_strndup(&rd->r->mem, strbuf_str(&rd->payload), p->n);
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
    c->func = arena_strndup(&rd->r->mem, in + 4, (size_t)(stop - in - 4));
    c->where_file = arena_strndup(&rd->r->mem, s, (size_t)(colon - s));
    c->where_line = strtoll(colon + 1, NULL, 10);
}

static void on_metrics(reader *rd, rp_compile *c, const json_val *m, bool forward)
{
    if (!json_is(m, JSON_obj))
        return;
    for (size_t i = 0; i < m->n; i++)
        if (m->members[i].val.type != JSON_null)
            vec_push(&c->metrics,
                     ((rp_pair){ arena_strndup(&rd->r->mem, m->members[i].key, m->members[i].n_key),
                                 keep_text(rd->r, &m->members[i].val) }));
    if (!forward)
        return;
    c->has_metrics = true;
    const json_val *fail = json_get(m, "fail_type"), *restart = json_get(m, "restart_reasons");
    if (fail && fail->type != JSON_null)
        c->error = arena_printf(&rd->r->mem, "%s: %s", keep_text(rd->r, fail),
                                keep_or(rd->r, json_get(m, "fail_reason"), "(no reason recorded)"));
    for (size_t i = 0; json_is(restart, JSON_arr) && i < restart->n; i++)
        vec_push(&c->breaks, keep_text(rd->r, &restart->at[i]));
    c->no_ops = json_i64(json_get(m, "graph_op_count"), 0) == 0;
    const json_val *why = json_get(m, "recompile_reason");
    if (why && why->type != JSON_null && !c->recompiles.n)
        vec_push(&c->recompiles, keep_text(rd->r, why));
    double us = json_f64(json_get(m, "duration_us"), -1);
    c->seconds = us >= 0 ? us * 1e-6 : json_f64(json_get(m, "entire_frame_compile_time_s"), -1);
    if (json_cstr(json_get(m, "co_name"))) {
        c->func = keep_text(rd->r, json_get(m, "co_name"));
        c->where_file = keep_or(rd->r, json_get(m, "co_filename"), "(unknown)");
        c->where_line = json_i64(json_get(m, "co_firstlineno"), 0);
    }
}

static void on_artifact(reader *rd, rp_compile *c, const json_val *m)
{
    const char *name = json_cstr(json_get(m, "name"));
    report *r = rd->r;
    name = name ? name : "artifact";
    char *text = arena_strndup(&r->mem, strbuf_str(&rd->payload), MIN(rd->payload.n, (size_t)RP_PAYLOAD));
    if (!strcmp(name, "dynamo_graph_break_reason"))
        vec_push(&c->breaks, text);
    else if (!strcmp(name, "dynamo_error") && !c->error)
        c->error = text;
    else if (!strcmp(name, "recompile_reasons")) {
        tp_err e = { 0 };
        const json_val *v = json_parse(&rd->tmp, strbuf_str(&rd->payload), rd->payload.n, &e);
        if (json_is(v, JSON_arr))
            for (size_t i = 0; i < v->n; i++)
                vec_push(&c->recompiles, keep_text(r, &v->at[i]));
        else
            vec_push(&c->recompiles, v ? keep_text(r, v) : text);
    }
    add_payload(rd, c, "artifact", name);
}

static void on_guards(reader *rd, rp_compile *c)
{
    tp_err e = { 0 };
    const json_val *v = json_parse(&rd->tmp, strbuf_str(&rd->payload), rd->payload.n, &e);
    c->has_guards = true;
    if (!json_is(v, JSON_arr)) {
        skip(rd, rd->at, "the guards are not a JSON list; shown as they are");
        add_payload(rd, c, "dynamo_guards", "Guards");
        return;
    }
    for (size_t i = 0; i < v->n; i++) {
        const json_val *code = json_get(&v->at[i], "code");
        vec_push(&c->guards, keep_text(rd->r, code ? code : &v->at[i]));
    }
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
                    keep_or(r, json_get(m, spec ? "sources" : "source"), "") };
    for (size_t i = c->symbols.n > 64 ? c->symbols.n - 64 : 0; i < c->symbols.n; i++)
        if (!strcmp(c->symbols.at[i].symbol, s.symbol) && !strcmp(c->symbols.at[i].source, s.source) &&
            !strcmp(c->symbols.at[i].val, s.val) && c->symbols.at[i].what == s.what)
            return; /* a restart made it again */
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

static const char *const quiet[] = { "describe_storage",      "describe_tensor", "describe_source",
                                     "chromium_event",        "guard_added",     "expression_created",
                                     "propagate_real_tensors" };

static const char *event_of(const json_val *env, const json_val **meta)
{
    static const char *const reserved[] = {
        "rank",  "compiled_autograd_id", "frame_id", "frame_compile_id", "attempt",
        "stack", "has_payload",          "severity", "timestamp",        "pathname",
        "thread"
    };
    for (size_t i = 0; i < env->n; i++) {
        bool is = true;
        for (size_t k = 0; k < sizeof reserved / sizeof *reserved; k++)
            is = is && strcmp(env->members[i].key, reserved[k]);
        if (is)
            return *meta = &env->members[i].val, env->members[i].key;
    }
    return NULL;
}

static void on_str(reader *rd, const json_val *m)
{
    if (!json_is(m, JSON_arr) || m->n != 2 || !json_is(&m->at[0], JSON_str) || !json_is(&m->at[1], JSON_int))
        skip(rd, rd->at, "a string entry is not [text, number]");
    else
        map_puti(&rd->r->files.at[rd->file].strs, (uint64_t)m->at[1].i, (void *)keep_text(rd->r, &m->at[0]));
}

static void count_unknown(report *r, const char *event)
{
    intptr_t n = (intptr_t)map_get(&r->unknown, event);
    if (n || r->unknown.n < 256)
        map_put(&r->unknown, event, (void *)(n + 1));
}

static void on_start(reader *rd, rp_compile *c, const json_val *m)
{
    int n;
    rp_frame *f = stack_of(rd, json_get(m, "stack"), &n);
    if (!n || c->nstack)
        return;
    c->stack = f;
    c->nstack = n;
    c->func = f[n - 1].name;
    c->where_file = f[n - 1].file;
    c->where_line = f[n - 1].line;
}

static void on_event(reader *rd, const char *event, const json_val *m)
{
    if (!strcmp(event, "str")) {
        on_str(rd, m);
        return;
    }
    for (size_t i = 0; i < sizeof quiet / sizeof *quiet; i++)
        if (!strcmp(event, quiet[i]))
            return;
    rp_compile *c = compile_of(rd);
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++)
        if (!strcmp(event, graphs[i].event)) {
            if (!i) {
                c->has_graph = true;
                place_from_graph(rd, c);
            }
            c->has_guards |= !strcmp(event, "dynamo_cpp_guards_str");
            add_payload(rd, c, event, graphs[i].title);
            return;
        }
    if (!strcmp(event, "dynamo_start"))
        on_start(rd, c, m);
    else if (!strcmp(event, "dynamo_guards"))
        on_guards(rd, c);
    else if (!strcmp(event, "artifact"))
        on_artifact(rd, c, m);
    else if (!strcmp(event, "compilation_metrics"))
        on_metrics(rd, c, m, true);
    else if (strstr(event, "compilation_metrics"))
        on_metrics(rd, c, m, false);
    else if (!strcmp(event, "create_symbol") || !strcmp(event, "create_unbacked_symbol") ||
             !strcmp(event, "symbolic_shape_specialization"))
        on_symbol(rd, c, event, m);
    else if (!strcmp(event, "guard_added_fast"))
        vec_push(&c->guards, keep_or(rd->r, json_get(m, "expr"), "?"));
    else {
        const char *name = json_cstr(json_get(m, "name"));
        bool known = !strcmp(event, "graph_dump") || !strcmp(event, "dump_file") || !strcmp(event, "link") ||
                     !strcmp(event, "optimize_ddp_split_child");
        if (!known)
            count_unknown(rd->r, event);
        if (rd->any_payload)
            add_payload(rd, c, event, name ? name : event);
    }
}

/* ---- lines to records ---- */
static void close_record(reader *rd)
{
    if (!rd->env)
        return;
    report *r = rd->r;
    rp_file *f = &r->files.at[rd->file];
    const json_val *meta = NULL, *said = json_get(rd->env, "has_payload");
    const char *event = event_of(rd->env, &meta);
    int64_t rank = json_i64(json_get(rd->env, "rank"), -1);
    if (f->rank < 0)
        f->rank = rank;
    if (!event)
        skip(rd, rd->at, "the record names no event");
    else {
        digest_of(DIGEST_md5, strbuf_str(&rd->payload), rd->payload.n, rd->md5);
        rd->damaged = json_is(said, JSON_str) && strcmp(said->s, rd->md5);
        if (rd->damaged) {
            r->nmd5++;
            skip(rd, rd->at, "the payload does not match its checksum (cut or changed); shown all the same");
        }
        f->records++;
        r->nrecord++;
        on_event(rd, event, meta);
    }
    rd->env = NULL;
    rd->any_payload = false;
    strbuf_clear(&rd->payload);
    arena_free(&rd->tmp);
}

static void on_line(reader *rd, const char *s, size_t n)
{
    rd->line++;
    rd->r->files.at[rd->file].lines++;
    if (n && s[n - 1] == '\n')
        n--;
    if (n && s[0] == '\t') {
        if (!rd->env || !json_get(rd->env, "has_payload")) {
            skip(rd, rd->line, "a payload line without its record");
            return;
        }
        if (rd->any_payload)
            strbuf_addc(&rd->payload, '\n');
        strbuf_addn(&rd->payload, s + 1, n - 1);
        rd->any_payload = true;
        return;
    }
    close_record(rd);
    if (!n)
        return;
    double time = 0;
    const char *json = find_prefix(s, s + n, &time);
    if (!json) {
        skip(rd, rd->line, "not a trace line");
        return;
    }
    tp_err e = { 0 };
    const json_val *v = json_parse(&rd->tmp, json, (size_t)(s + n - json), &e);
    if (!json_is(v, JSON_obj)) {
        strbuf why = { 0 };
        strbuf_addf(&why, "the envelope is not a JSON object%s%s", v ? "" : ": ", v ? "" : e.msg);
        skip(rd, rd->line, strbuf_str(&why));
        strbuf_free(&why);
        arena_free(&rd->tmp);
        return;
    }
    rd->env = v;
    rd->time = time;
    rd->at = rd->line;
}

static reader begin(report *r, const char *name)
{
    vec_push(&r->files, ((rp_file){ .name = arena_strdup(&r->mem, name), .rank = -1 }));
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
    reader rd = begin(r, name);
    for (size_t at = 0; at < n;) {
        const char *nl = memchr(text + at, '\n', n - at);
        size_t len = nl ? (size_t)(nl - text) - at + 1 : n - at;
        on_line(&rd, text + at, len);
        at += len;
    }
    end(&rd);
}

static bool add_file(report *r, const char *path, tp_err *err)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return err_set(err, ERR_os, "cannot open '%s': %s", path, strerror(errno));
    const char *base = strrchr(path, '/');
    reader rd = begin(r, base ? base + 1 : path);
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    errno = 0;
    while ((n = getline(&line, &cap, f)) > 0)
        on_line(&rd, line, (size_t)n);
    bool ok = !ferror(f) || err_set(err, ERR_os, "cannot read '%s': %s", path, strerror(errno));
    free(line);
    fclose(f);
    end(&rd);
    return ok;
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

report *report_new(void) { return mem_zalloc(sizeof(report)); }

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
        vec_free(&c->guards);
    }
    for (size_t i = 0; i < r->files.n; i++)
        map_free(&r->files.at[i].strs);
    vec_free(&r->files);
    vec_free(&r->compiles);
    vec_free(&r->skips);
    map_free(&r->by_id);
    map_free(&r->unknown);
    arena_free(&r->mem);
    free(r);
}
