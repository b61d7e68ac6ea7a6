/* summary.c - states, counts and conclusions; and all of it as JSON. */
#define _GNU_SOURCE
#include "report/model.h"
#include <ctype.h>
#include <stdio.h>

rp_status rp_status_of(const rp_compile *c)
{
    if (c->error)
        return RP_error;
    if (c->breaks.n || c->restart)
        return RP_break;
    if (c->has_metrics)
        return c->no_ops && !c->has_graph ? RP_empty : RP_ok;
    return c->has_graph && c->has_guards && !c->nstack ? RP_ok
                                                       : RP_unfinished; /* a trace that never has metrics */
}

const char *rp_status_name(rp_status s)
{
    static const char *const names[] = { "ok", "graph break", "error", "empty", "unfinished" };
    return names[s];
}

const char *rp_css(rp_status s)
{
    static const char *const names[] = { "ok", "break", "error", "empty", "unfinished" };
    return names[s];
}

bool rp_is_compile(const rp_compile *c) { return strcmp(c->id, "no id") != 0 && !c->refused; }
bool rp_is_again(const rp_compile *c)
{
    return rp_is_compile(c) && (c->recompiles.n || (c->compile > 0 && !c->has_metrics));
}

bool rp_break_parts(const char *msg, const char **at, size_t *nat, const char **why, size_t *nwhy)
{
    *at = rp_line_of(msg, "Graph break in user code at ", nat);
    *why = rp_line_of(msg, "Reason: ", nwhy);
    if (!*why)
        *why = rp_line_of(msg, "Graph Break Reason: ", nwhy); /* PyTorch's word for it */
    return *at && *why;
}

/* Breaks with the same place and reason are one, also where a function had nothing to compile up to a break in what it
 * calls: what it calls is captured next, by itself, and breaks there. */
static void find_places(report *r)
{
    map known = { 0 }; /* place and reason -> number from 1 */
    for (size_t i = 0; i < r->compiles.n; i++) {
        const rp_compile *c = r->compiles.at[i];
        for (size_t k = 0; k < c->breaks.n; k++) {
            const char *msg = c->breaks.at[k], *at, *why;
            size_t n, m;
            strbuf key = { 0 };
            if (rp_break_parts(msg, &at, &n, &why, &m))
                strbuf_addf(&key, "%.*s\n%.*s", (int)MIN(n, (size_t)4096), at, (int)MIN(m, (size_t)4096),
                            why);
            else
                strbuf_add(&key, msg);
            size_t number = (size_t)(uintptr_t)map_getn(&known, key.s, key.n);
            if (!number) {
                vec_push(&r->places, ((rp_place){ .msg = msg }));
                number = r->places.n;
                map_putn(&known, key.s, key.n, (void *)(uintptr_t)number);
            }
            rp_place *p = &r->places.at[number - 1];
            if (strlen(msg) > strlen(p->msg))
                p->msg = msg;
            if (rp_is_compile(c)) {
                const rp_compile *first = p->at.n ? r->compiles.at[p->at.at[0]] : c;
                p->loop |= first->file == c->file && first->frame != c->frame &&
                           first->where_line == c->where_line && first->where_file && c->where_file &&
                           !strcmp(first->where_file, c->where_file); /* parts of the same function */
                if (!p->at.n || p->at.at[p->at.n - 1] != i)
                    vec_push(&p->at, i);
            }
            strbuf_free(&key);
        }
    }
    map_free(&known);
}

rp_counts rp_count(const report *r)
{
    rp_counts n = { .breaks = (int64_t)r->places.n };
    for (size_t i = 0; i < r->compiles.n; i++) {
        const rp_compile *c = r->compiles.at[i];
        if (!rp_is_compile(c))
            continue;
        rp_status s = rp_status_of(c);
        n.compiles++;
        n.functions += c->compile <= 0;
        n.recompiles += rp_is_again(c);
        n.breaks += !c->breaks.n && c->restart;
        n.errors += s == RP_error;
        n.unfinished += s == RP_unfinished;
        n.restarts += c->attempts;
        n.seconds += MAX(c->seconds, 0.0) + MAX(c->bwd_seconds, 0.0);
        n.has_metrics |= c->has_metrics;
        n.kernels += c->kernels;
        n.calls += c->calls;
        n.moved += c->moved;
        n.hits += c->hits;
        n.misses += c->misses;
        n.runs += c->ran;
        for (size_t k = 0; k < c->cache.n; k++) {
            n.disk_hits += !strcmp(c->cache.at[k].what, "hit");
            n.disk_misses += !strcmp(c->cache.at[k].what, "miss");
            n.disk_unused += !strcmp(c->cache.at[k].what, "bypass");
        }
        double rest = (MAX(c->seconds, 0.0) + MAX(c->bwd_seconds, 0.0)) * 1e6;
        for (int k = 0; k < RP_STAGES; k++) {
            n.stage[k] += c->stage[k];
            rest -= c->stage[k];
        }
        n.failed += s == RP_error ? MAX(rest, 0.0) : 0;
    }
    for (size_t i = 0; i < r->ledger.n; i++)
        n.eager_runs += r->ledger.at[i].eager;
    return n;
}

const char *rp_line_of(const char *msg, const char *key, size_t *n)
{
    for (const char *s = msg; s && *s; s = strchr(s, '\n'), s = s ? s + 1 : NULL) {
        while (*s == ' ')
            s++;
        if (strncmp(s, key, strlen(key)))
            continue;
        s += strlen(key);
        *n = strcspn(s, "\n");
        return s;
    }
    return NULL;
}

/* ---- conclusions ---- */
const char *rp_next_reason(const char **at, size_t *n)
{
    for (const char *s = *at; s && *s; s = strchr(s, '\n'), s = s ? s + 1 : NULL) {
        while (*s == ' ' || *s == '-')
            s++;
        size_t k = strspn(s, "0123456789/_");
        if (!k || s[k] != ':' || !memchr(s, '/', k))
            continue;
        *n = strcspn(s, "\n");
        *at = s + *n + (s[*n] == '\n');
        const char *comment = memmem(s, *n, "  #", 3); /* PyTorch adds the line of the program */
        if (comment)
            *n = (size_t)(comment - s);
        while (*n && s[*n - 1] == ' ')
            --*n;
        return s;
    }
    return NULL;
}

/* The guard of compile 0/1 that failed, for each "0/1: tensor ..." of a recompile message. */
static void note_failures(report *r, const rp_compile *c, const char *msg)
{
    size_t end;
    for (const char *at = msg, *s; (s = rp_next_reason(&at, &end));) {
        size_t n = strcspn(s, ":"), from = n + 1 + (s[n + 1] == ' ');
        char key[80];
        snprintf(key, sizeof key, "%d %.*s", c->file, (int)MIN(n, 47), s);
        rp_compile *old = map_get(&r->by_id, key);
        if (!old || old->dropped || old->failed.n >= 32)
            continue;
        const char *text = arena_strndup(&r->mem, s + MIN(from, end), end - MIN(end, from));
        bool seen = false;
        for (size_t i = 0; i < old->failed.n; i++)
            seen |= !strcmp(old->failed.at[i], text);
        if (!seen)
            vec_push(&old->failed, text);
    }
}

static void explain_symbols(report *r, rp_compile *c)
{
    for (size_t i = 0; i < c->symbols.n; i++) {
        rp_symbol *s = &c->symbols.at[i];
        size_t n = strlen(s->source);
        for (size_t k = 0; n && k < c->dynamic.n && !s->why; k++)
            if (!strncmp(c->dynamic.at[k], s->source, n) && c->dynamic.at[k][n] == ' ')
                s->why = arena_printf(&r->mem, "it changed between calls: it%s", c->dynamic.at[k] + n);
        if (!s->why)
            s->why = s->what[0] == 'f'   ? "the program needs this one value"
                     : s->what[0] == 'd' ? "only running the program tells it"
                     : c->compile > 0    ? "it changed before, or was marked dynamic"
                                         : "dynamic=True, or it was marked dynamic";
    }
}

static bool reached_limit(const report *r, int file)
{
    for (size_t i = 0; i < r->ledger.n; i++)
        if (r->ledger.at[i].file == file && r->ledger.at[i].reason && strstr(r->ledger.at[i].reason, "limit"))
            return true;
    return false;
}

void rp_finish(report *r)
{
    for (size_t i = 0; i < r->compiles.n; i++) {
        rp_compile *c = r->compiles.at[i];
        c->refused = c->recompiles.n && !c->has_metrics && !c->has_graph && !c->nstack && !c->error &&
                     !c->breaks.n && reached_limit(r, c->file);
        for (size_t k = 0; k < c->recompiles.n; k++)
            note_failures(r, c, c->recompiles.at[k]);
        explain_symbols(r, c);
    }
    if (!r->places.n)
        find_places(r);
}

/* "L['k'] == 2.0 (now 3.0)" */
static bool constant_values(const char *reason, char *was, char *now, size_t n)
{
    size_t end = strcspn(reason, "\n");
    const char *eq = memmem(reason, end, " == ", 4), *at = NULL;
    for (const char *s = reason; (s = memmem(s, end - (size_t)(s - reason), " (now ", 6)); s++)
        at = s;
    if (!eq || !at || at < eq || reason[end - 1] != ')')
        return false;
    snprintf(was, n, "%.*s", (int)(at - eq - 4), eq + 4);
    snprintf(now, n, "%.*s", (int)(reason + end - 1 - (at + 6)), at + 6);
    return true;
}

bool rp_values(const char *reason, char *was, char *now, size_t n)
{
    static const struct {
        const char *a, *b;
    } forms[] = { { "expected ", ", actual " }, { "Expected device index to be ", ", actual " } };
    for (size_t i = 0; i < COUNT(forms); i++) {
        const char *a = strstr(reason, forms[i].a), *b = a ? strstr(a, forms[i].b) : NULL;
        if (!b || memchr(a, '\n', (size_t)(b - a)))
            continue;
        a += strlen(forms[i].a);
        snprintf(was, n, "%.*s", (int)(b - a), a);
        b += strlen(forms[i].b);
        snprintf(now, n, "%.*s", (int)strcspn(b, "\n"), b);
        return true;
    }
    return constant_values(reason, was, now, n);
}

const char *rp_advice(const char *s)
{
    static const struct {
        const char *has, *say;
    } rows[] = {
        { ".grad is None",
          "There are no gradients yet in the first step of training, so it is compiled once more when there "
          "are: that is to be expected. If it goes on, empty the gradients at the same place of every "
          "step." },
        { "___stack",
          "A value that was at hand when the graph broke, often the counter of a loop, is another one now. "
          "Mend the graph break before it; then this version is not needed." },
        { "rank mismatch",
          "The number of dimensions changed. Each rank is compiled on its own; give the input one rank, "
          "for example with unsqueeze, or accept one compile per rank." },
        { "size mismatch", "A size changed. If it keeps changing, compile with dynamic=True or call "
                           "mark_dynamic(tensor, dim); "
                           "if there are only a few sizes, pad the input to them." },
        { "stride mismatch",
          "The memory layout changed. Pass a contiguous tensor (x.contiguous()), or always the same view." },
        { "dtype mismatch",
          "The element type changed. Convert the input before the call, so that it is always the same." },
        { "requires_grad mismatch",
          "An input needed a gradient in one call and not in another. Keep the two uses in separate "
          "compiled functions, or detach the input." },
        { "dispatch key set mismatch",
          "The same code ran in another mode (inference mode, autocast, gradients). Call it in "
          "one mode." },
        { "device index mismatch", "The input was on another device." },
        { "GLOBAL_STATE", "A global setting changed (gradients on or off, autocast, default dtype). Change "
                          "it outside the loop "
                          "that calls the function." },
        { "Duplicate tensors",
          "The same tensor was passed twice, or no longer was. Pass a clone if they are meant to differ." },
        { "len(", "A container had another length. Pass a tensor instead of a list that grows." },
        { "___check_obj_id",
          "Another object was used in the same place (a new function, module or class each call). Create it "
          "once, outside the call." },
        { "___check_type_id", "An argument had another type. Pass one type." },
        { " == '", "A string changed, and what depends on it is part of the compiled code: each one has a "
                   "version of its own. That is well where they are few; otherwise choose outside the "
                   "compiled function." },
        { " == True",
          "A flag changed, and each value has a version of its own. There are two, which is well." },
        { " == False",
          "A flag changed, and each value has a version of its own. There are two, which is well." },
        { " == ", "A plain Python number changed, and its value is part of the compiled code. If "
                  "it changes often, "
                  "pass it as a tensor: taper.tensor(value)." },
        { "dict.keys", "A dictionary had other keys. Use the same keys in every call." },
        { "hasattr", "An attribute appeared or went away between calls." },
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        if (strstr(s, rows[i].has))
            return rows[i].say;
    return "Keep what the guard names the same in every call, or move it out of the compiled function.";
}

/* ---- JSON ---- */
static void text(report *r, json_w *w, const char *key, const char *s)
{
    json_key(w, key);
    json_str(w, rp_hidden(r, s));
}
static void texts(report *r, json_w *w, const char *key, const char *const *at, size_t n)
{
    json_key(w, key);
    json_arr(w);
    for (size_t i = 0; i < n; i++)
        json_str(w, rp_hidden(r, at[i]));
    json_end(w);
}
static void number(json_w *w, const char *key, int64_t v)
{
    json_key(w, key);
    json_int(w, v);
}
static void real(json_w *w, const char *key, double v)
{
    json_key(w, key);
    if (v >= 0)
        json_dbl(w, v);
    else
        json_null(w);
}

static void one(json_w *w, report *r, const rp_compile *c)
{
    json_obj(w);
    json_key(w, "id");
    json_str(w, c->id);
    text(r, w, "file", r->files.at[c->file].name);
    json_key(w, "rank");
    if (r->files.at[c->file].rank >= 0)
        json_int(w, r->files.at[c->file].rank);
    else
        json_null(w);
    json_key(w, "status");
    json_str(w, rp_status_name(rp_status_of(c)));
    text(r, w, "function", c->func);
    text(r, w, "source", c->where_file);
    number(w, "line", c->where_line);
    number(w, "restarts", c->attempts);
    texts(r, w, "graph_breaks", c->breaks.at, c->breaks.n);
    texts(r, w, "recompile_reasons", c->recompiles.at, c->recompiles.n);
    texts(r, w, "guards_failed_later", c->failed.at, c->failed.n);
    text(r, w, "error", c->error);
    real(w, "seconds", c->seconds);
    real(w, "backward_seconds", c->bwd_seconds);
    json_key(w, "stages_us");
    json_obj(w);
    for (int i = 0; i < RP_STAGES; i++)
        number(w, rp_stages[i].key, (int64_t)c->stage[i]);
    json_end(w);
    json_key(w, "disk_cache");
    json_arr(w);
    for (size_t i = 0; i < c->cache.n; i++) {
        json_obj(w);
        text(r, w, "part", c->cache.at[i].part);
        text(r, w, "result", c->cache.at[i].what);
        text(r, w, "reason", c->cache.at[i].reason);
        json_end(w);
    }
    json_end(w);
    texts(r, w, "hints", c->hints.at, c->hints.n);
    texts(r, w, "saved", c->saved.at, c->saved.n);
    number(w, "ops", c->ops);
    number(w, "kernels", c->kernels);
    number(w, "library_calls", c->calls);
    number(w, "bytes_moved", c->moved);
    number(w, "calls", c->ran);
    real(w, "first_call_us", c->first_us);
    real(w, "warm_call_us", c->warm_us);
    real(w, "warm_best_us", c->best_us);
    real(w, "eager_call_us", c->eager_us);
    json_end(w);
}

static void ledger_json(json_w *w, report *r)
{
    json_key(w, "ledger");
    json_arr(w);
    for (size_t i = 0; i < r->ledger.n; i++) {
        const rp_ledger *l = &r->ledger.at[i];
        json_obj(w);
        text(r, w, "function", l->func);
        text(r, w, "source", l->src);
        number(w, "line", l->line);
        json_key(w, "id");
        if (l->frame >= 0 && l->version >= 0)
            json_strf(w, "%lld/%lld", (long long)l->frame, (long long)l->version);
        else
            json_null(w);
        number(w, "ops", l->ops);
        number(w, "compiled_runs", l->compiled);
        number(w, "eager_runs", l->eager);
        text(r, w, "reason", l->reason);
        json_end(w);
    }
    json_end(w);
}

void report_json(report *r, strbuf *out)
{
    json_w w = { out };
    rp_finish(r);
    rp_counts n = rp_count(r);
    json_obj(&w);
    number(&w, "files", (int64_t)r->files.n);
    number(&w, "records", r->nrecord);
    number(&w, "problems", r->nskip);
    number(&w, "bad_checksums", r->nmd5);
    number(&w, "compiles", n.compiles);
    number(&w, "functions", n.functions);
    number(&w, "recompiles", n.recompiles);
    number(&w, "graph_breaks", n.breaks);
    number(&w, "errors", n.errors);
    number(&w, "unfinished", n.unfinished);
    number(&w, "compiles_left_out", r->ndropped);
    real(&w, "seconds", n.seconds);
    json_key(&w, "stages_us");
    json_obj(&w);
    for (int i = 0; i < RP_STAGES; i++)
        number(&w, rp_stages[i].key, (int64_t)n.stage[i]);
    json_end(&w);
    number(&w, "kernels", n.kernels);
    number(&w, "library_calls", n.calls);
    number(&w, "bytes_moved", n.moved);
    number(&w, "kernel_cache_hits", n.hits);
    number(&w, "kernel_cache_misses", n.misses);
    number(&w, "disk_cache_hits", n.disk_hits);
    number(&w, "disk_cache_misses", n.disk_misses);
    number(&w, "disk_cache_not_used", n.disk_unused);
    json_key(&w, "compile_ids");
    json_arr(&w);
    for (size_t i = 0; i < r->compiles.n; i++)
        if (rp_is_compile(r->compiles.at[i]))
            one(&w, r, r->compiles.at[i]);
    json_end(&w);
    ledger_json(&w, r);
    json_key(&w, "problem_lines");
    json_arr(&w);
    for (size_t i = 0; i < r->skips.n; i++) {
        json_obj(&w);
        text(r, &w, "file", r->files.at[r->skips.at[i].file].name);
        number(&w, "line", r->skips.at[i].line);
        json_key(&w, "why");
        json_str(&w, r->skips.at[i].why);
        json_end(&w);
    }
    json_end(&w);
    json_end(&w);
    strbuf_addc(out, '\n');
}
