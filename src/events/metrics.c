/* metrics.c - records of compiles; a stack of open ones per thread, a ring of finished ones per process. */
#define _GNU_SOURCE
#include "base/envvars.h"
#include "events/metrics.h"
#include "events/internal.h"
#include "base/clock.h"
#include "base/vec.h"
#include <stdio.h>

static const struct {
    const char *phase, *field;
} stages[EVS_COUNT] = {
#define STAGE(id, name, field) { name, field },
#include "events/metrics.def"
};
static const char *const parts[EVP_COUNT] = {
#define PART(id, field) field,
#include "events/metrics.def"
};
static const char *const fields[EVN_COUNT] = {
#define COUNT_OF(id, field) field,
#include "events/metrics.def"
};
static const char *const text_fields[EVT_COUNT] = {
#define TEXT_OF(id, field) field,
#include "events/metrics.def"
};

typedef VEC(char *) texts;
typedef struct feature {
    const char *name;
    bool used;
} feature;
typedef struct record {
    struct record *outer;
    ev_cid cid;
    bool backward;
    char *name, *file;
    int line;
    int64_t start_us, t0;
    int64_t ns[EVS_COUNT], part[EVP_COUNT], n[EVN_COUNT];
    int64_t before_restart, logging; /* logging: what the trace had cost this thread when it began */
    bool had[EVN_COUNT];
    double latency;
    char *fail_type, *fail_reason, *fail_file, *text[EVT_COUNT], *contexts;
    int fail_line;
    texts restarts, traceback, compliant, strange, stack, places;
    VEC(feature) features;
} record;

static _Thread_local record *open_now;
static _Thread_local char *next_reason, *next_contexts;
static char *environment; /* under the lock below */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *kept[EV_METRICS_KEPT];
static size_t nkept; /* ever */

void ev_metrics_begin(const ev_cid *cid, bool backward, const char *name, const char *file, int line)
{
    record *r = mem_zalloc(sizeof *r);
    r->outer = open_now;
    r->cid = *cid;
    r->backward = backward;
    r->name = mem_strdup(name ? name : "");
    r->file = mem_strdup(file ? file : "");
    r->line = line;
    r->start_us = clock_wall_ns() / 1000;
    r->t0 = clock_ns();
    r->latency = -1;
    r->logging = ev_trace_spent();
    if (!backward) {
        r->text[EVT_recompile] = next_reason;
        r->contexts = next_contexts;
        next_reason = next_contexts = NULL;
    }
    open_now = r;
    ev_later_compiling(1);
    if (ev_trace_on(EV_compilation_metrics))
        ev_later_soon();
}

static void texts_free(texts *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->at[i]);
    vec_free(t);
}
static void texts_add_once(texts *t, const char *s)
{
    for (size_t i = 0; i < t->n; i++)
        if (!strcmp(t->at[i], s))
            return;
    vec_push(t, mem_strdup(s));
}

static void record_free(record *r)
{
    texts_free(&r->restarts);
    texts_free(&r->traceback);
    texts_free(&r->compliant);
    texts_free(&r->strange);
    texts_free(&r->stack);
    texts_free(&r->places);
    vec_free(&r->features);
    free(r->contexts);
    free(r->name);
    free(r->file);
    free(r->fail_type);
    free(r->fail_reason);
    free(r->fail_file);
    for (int i = 0; i < EVT_COUNT; i++)
        free(r->text[i]);
    free(r);
}

static void text(json_w *w, const char *key, const char *s)
{
    json_key(w, key);
    json_str(w, s);
}
static void number(json_w *w, const char *key, int64_t v)
{
    json_key(w, key);
    json_int(w, v);
}

static void seconds(json_w *w, const char *key, int64_t ns)
{
    strbuf t = { 0 }; /* fixed point: the shortest digits of a double take long to find */
    strbuf_addf(&t, "%lld.%09d", (long long)(ns / 1000000000), (int)(ns % 1000000000));
    json_key(w, key);
    json_raw(w, t.s);
    strbuf_free(&t);
}

static void list(json_w *w, const char *key, const texts *t)
{
    json_key(w, key);
    json_arr(w);
    for (size_t i = 0; i < t->n; i++)
        json_str(w, t->at[i]);
    json_end(w);
}

/* What this compile used of the compiler; null where nothing asked. */
static void features(json_w *w, const record *r)
{
    json_key(w, "feature_usage");
    if (!r->features.n) {
        json_null(w);
        return;
    }
    json_obj(w);
    for (size_t i = 0; i < r->features.n; i++) {
        json_key(w, r->features.at[i].name);
        json_bool(w, r->features.at[i].used);
    }
    json_end(w);
}

/* Where a compile failed, the counts of its graph are unknown and all its time went "before the restart". */
static void print_record(strbuf *b, const record *r, int64_t ns)
{
    json_w w = { b };
    bool failed = r->fail_type != NULL;
    json_obj(&w);
    json_key(&w, "compile_id");
    const char *prefix = env_get(ENV_compile_id_prefix); /* tells the programs of one collection apart */
    json_strf(&w, "%s%d/%d", prefix ? prefix : "", r->cid.frame, r->cid.compile);
    json_key(&w, "frame_key");
    json_strf(&w, "%d", r->cid.frame + 1);
    text(&w, "co_name", r->name);
    text(&w, "co_filename", r->file);
    number(&w, "co_firstlineno", r->line);
    json_key(&w, "is_forward");
    json_bool(&w, !r->backward);
    json_key(&w, "is_runtime");
    json_bool(&w, false);
    number(&w, "log_format_version", 3);
    seconds(&w, "start_time", r->start_us * 1000);
    number(&w, "start_time_us", r->start_us);
    number(&w, "end_time_us", r->start_us + ns / 1000);
    number(&w, "duration_us", ns / 1000);
    seconds(&w, "entire_frame_compile_time_s", ns);
    seconds(&w, "backend_compile_time_s", r->ns[EVS_backend]);
    seconds(&w, "inductor_compile_time_s", r->ns[EVS_loops]);
    seconds(&w, "code_gen_time_s", r->ns[EVS_code]);
    int64_t before = failed ? ns : r->before_restart, logging = ev_trace_spent() - r->logging;
    seconds(&w, "dynamo_time_before_restart_s", before);
    number(&w, "dynamo_compile_time_before_restart_us", before / 1000);
    seconds(&w, "structured_logging_overhead_s", logging);
    number(&w, "structured_logging_overhead_us", logging / 1000);
    for (int i = 0; i < EVS_COUNT; i++)
        number(&w, stages[i].field, (i == EVS_frame ? ns : r->ns[i]) / 1000);
    number(&w, "pre_grad_pass_time_us", 0); /* there are none */
    for (int i = 0; i < EVP_COUNT; i++)
        number(&w, parts[i], r->part[i] / 1000);
    if (r->backward)
        number(&w, "backward_cumulative_compile_time_us", ns / 1000);
    for (int i = 0; i < EVN_COUNT; i++) {
        json_key(&w, fields[i]);
        if (failed || (r->backward && !r->had[i]))
            json_null(&w);
        else
            json_int(&w, r->n[i]);
    }
    json_key(&w, "guard_latency_us");
    if (r->latency >= 0)
        json_dbl(&w, r->latency);
    else
        json_null(&w);
    json_key(&w, "has_guarded_code");
    json_bool(&w, !failed);
    for (int i = 0; i < EVT_COUNT; i++)
        text(&w, text_fields[i], r->text[i]);
    list(&w, "stack_trace", &r->stack);
    text(&w, "fail_type", r->fail_type);
    text(&w, "fail_reason", r->fail_reason);
    text(&w, "fail_user_frame_filename", r->fail_file);
    json_key(&w, "fail_user_frame_lineno");
    if (r->fail_file)
        json_int(&w, r->fail_line);
    else
        json_null(&w);
    if (failed)
        list(&w, "exception_stack_trace", &r->traceback);
    else
        text(&w, "exception_stack_trace", NULL);
    /* an empty list, not nothing: readers take nothing for "restarted" */
    list(&w, "restart_reasons", failed ? &(texts){ 0 } : &r->restarts);
    list(&w, "non_compliant_ops", &r->strange);
    list(&w, "compliant_custom_ops", &r->compliant);
    json_key(&w, "recompile_user_contexts");
    json_raw(&w, r->contexts ? r->contexts : "null");
    features(&w, r);
    if (r->places.n)
        list(&w, "inductor_provenance", &r->places);
    else
        text(&w, "inductor_provenance", NULL);
    pthread_mutex_lock(&lock);
    if (environment) {
        strbuf_add(b, ", ");
        strbuf_add(b, environment);
    }
    pthread_mutex_unlock(&lock);
    json_end(&w);
}

static void keep(const char *s)
{
    pthread_mutex_lock(&lock);
    char **slot = &kept[nkept++ % EV_METRICS_KEPT];
    free(*slot);
    *slot = mem_strdup(s);
    pthread_mutex_unlock(&lock);
}

void ev_metrics_end(bool drop)
{
    record *r = open_now;
    if (!r)
        return;
    ev_later_compiling(-1);
    open_now = r->outer;
    if (!drop) {
        strbuf b = { 0 };
        ev_kind k = r->backward ? EV_bwd_compilation_metrics : EV_compilation_metrics;
        ev_cid id = r->cid;
        id.attempt = 0;
        print_record(&b, r, clock_ns() - r->t0);
        keep(strbuf_str(&b));
        if (ev_trace_on(k))
            ev_json(k, &id, strbuf_str(&b), NULL);
        strbuf_free(&b);
    } else if (r->text[EVT_recompile] && !next_reason) { /* the next try is for the same reason */
        next_reason = r->text[EVT_recompile];
        next_contexts = r->contexts;
        r->text[EVT_recompile] = r->contexts = NULL;
    }
    record_free(r);
}

void ev_add(ev_number n, int64_t more)
{
    if (open_now) {
        open_now->n[n] += more;
        open_now->had[n] = true;
    }
}
void ev_metrics_part(ev_part p, int64_t ns)
{
    if (open_now)
        open_now->part[p] += ns;
}
void ev_metrics_again(void)
{
    if (open_now)
        open_now->before_restart = clock_ns() - open_now->t0;
}
void ev_metrics_custom(const char *op, bool compliant)
{
    if (open_now)
        texts_add_once(compliant ? &open_now->compliant : &open_now->strange, op);
}
void ev_metrics_environment(const char *members)
{
    pthread_mutex_lock(&lock);
    free(environment);
    environment = members && *members ? mem_strdup(members) : NULL;
    pthread_mutex_unlock(&lock);
}
void ev_metrics_text(ev_text_field f, const char *s)
{
    if (!open_now)
        return;
    free(open_now->text[f]);
    open_now->text[f] = mem_strdup(s);
}
void ev_metrics_stack(const ev_frame *f, int n)
{
    for (int i = 0; open_now && !open_now->backward && i < n; i++) { /* as Python prints it */
        strbuf b = { 0 };
        strbuf_addf(&b, "  File \"%s\", line %d, in %s\n", f[i].file, f[i].line, f[i].name);
        if (f[i].loc)
            strbuf_addf(&b, "    %s\n", f[i].loc);
        vec_push(&open_now->stack, strbuf_take(&b));
    }
}
void ev_metrics_latency(double us)
{
    if (open_now)
        open_now->latency = us;
}
void ev_metrics_restart(const char *reason)
{
    if (open_now)
        vec_push(&open_now->restarts, mem_strdup(reason));
}
void ev_metrics_recompile(const char *reason, const char *contexts)
{
    free(next_reason);
    free(next_contexts);
    next_reason = mem_strdup(reason);
    next_contexts = contexts ? mem_strdup(contexts) : NULL;
}
/* Used once is used: later attempts and other inputs do not take it back. */
void ev_metrics_feature(const char *name, bool used)
{
    record *r = open_now;
    for (size_t i = 0; r && i < r->features.n; i++)
        if (!strcmp(r->features.at[i].name, name)) {
            r->features.at[i].used |= used;
            return;
        }
    if (r)
        vec_push(&r->features, ((feature){ name, used }));
}
void ev_metrics_provenance(const char *json)
{
    if (open_now)
        texts_add_once(&open_now->places, json);
}
void ev_metrics_fail(const char *type, const char *reason, const char *file, int line)
{
    record *r = open_now;
    if (!r || r->fail_type)
        return;
    r->fail_type = mem_strdup(type && *type ? type : "error");
    r->fail_reason = mem_strdup(reason ? reason : "");
    r->fail_file = file && *file ? mem_strdup(file) : NULL;
    r->fail_line = line;
}

void ev_metrics_fail_line(const char *text)
{
    if (open_now)
        vec_push(&open_now->traceback, mem_strdup(text));
}

ev_span ev_span_begin(ev_stage s)
{
    if (ev_trace_on(EV_chromium_event))
        ev_phase(stages[s].phase, 'B', NULL, NULL);
    return (ev_span){ s, clock_ns(), ev_trace_spent() };
}
void ev_span_end(ev_span *s)
{
    if (open_now)
        open_now->ns[s->stage] += clock_ns() - s->t0 - (ev_trace_spent() - s->logging);
    if (ev_trace_on(EV_chromium_event))
        ev_phase(stages[s->stage].phase, 'E', NULL, NULL);
}

const char *ev_metrics_at(int i)
{
    pthread_mutex_lock(&lock);
    size_t first = nkept > EV_METRICS_KEPT ? nkept - EV_METRICS_KEPT : 0, at = first + (size_t)i;
    const char *s = i >= 0 && at < nkept ? kept[at % EV_METRICS_KEPT] : NULL;
    pthread_mutex_unlock(&lock);
    return s;
}

void ev_metrics_clear(void)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < EV_METRICS_KEPT; i++) {
        free(kept[i]);
        kept[i] = NULL;
    }
    nkept = 0;
    pthread_mutex_unlock(&lock);
}
