/* export.c - what other programs read of a trace: Chrome's trace events (Perfetto, chrome://tracing), SARIF (editors). */
#define _GNU_SOURCE
#include "report/model.h"

static void text(json_w *w, const char *key, const char *s)
{
    json_key(w, key);
    json_str(w, s);
}
static void whole(json_w *w, const char *key, int64_t v)
{
    json_key(w, key);
    json_int(w, v);
}
static void real(json_w *w, const char *key, double v)
{
    json_key(w, key);
    json_dbl(w, v);
}

/* ---- Chrome's trace events ---- */
/* One bar: microseconds from the beginning of the trace. Ends inside its arguments: the caller writes them and closes twice. */
static void bar(json_w *w, const char *name, const char *kind, int file, double from, double us)
{
    json_obj(w);
    text(w, "name", name);
    text(w, "cat", kind);
    text(w, "ph", "X");
    whole(w, "pid", file + 1);
    whole(w, "tid", 1);
    real(w, "ts", from);
    real(w, "dur", us);
    json_key(w, "args");
    json_obj(w);
}

static void chrome_compile(json_w *w, report *r, const rp_compile *c, double first)
{
    double from = (c->start - first) * 1e6, at = from, us = MAX(c->seconds, 0) * 1e6, sum = 0;
    strbuf name = { 0 };
    strbuf_addf(&name, "compile %s", rp_hidden(r, c->func ? c->func : c->id));
    bar(w, name.s, "compile", c->file, from, us);
    text(w, "compile", c->id);
    text(w, "status", rp_status_name(rp_status_of(c)));
    if (c->where_file) {
        text(w, "file", rp_hidden(r, c->where_file));
        whole(w, "line", c->where_line);
    }
    whole(w, "operations", c->ops);
    whole(w, "kernels", c->kernels);
    json_end(w);
    json_end(w);
    strbuf_free(&name);
    for (int k = 0; k < RP_STAGES; k++)
        sum += c->stage[k];
    for (int k = 0; k < RP_STAGES && sum > 0;
         k++) { /* one behind the other; what is longer than the compile ran later */
        double part = c->stage[k] * MIN(1.0, us / sum);
        if (part > 0) {
            bar(w, rp_stages[k].name, "stage", c->file, at, part);
            json_end(w);
            json_end(w);
        }
        at += part;
    }
}

void report_chrome(report *r, strbuf *out)
{
    json_w w = { out };
    double first = 0;
    rp_finish(r);
    for (size_t i = 0; i < r->compiles.n; i++)
        if (r->compiles.at[i]->start > 0 && (!first || r->compiles.at[i]->start < first))
            first = r->compiles.at[i]->start;
    json_obj(&w);
    text(&w, "displayTimeUnit", "ms");
    json_key(&w, "traceEvents");
    json_arr(&w);
    for (size_t i = 0; i < r->files.n; i++) {
        json_obj(&w);
        text(&w, "name", "process_name");
        text(&w, "ph", "M");
        whole(&w, "pid", (int64_t)i + 1);
        json_key(&w, "args");
        json_obj(&w);
        text(&w, "name", rp_hidden(r, r->files.at[i].name));
        json_end(&w);
        json_end(&w);
    }
    for (size_t i = 0; i < r->compiles.n; i++) {
        const rp_compile *c = r->compiles.at[i];
        if (rp_is_compile(c) && c->start > 0 && c->seconds >= 0)
            chrome_compile(&w, r, c, first);
    }
    json_end(&w);
    json_end(&w);
}

/* ---- SARIF ---- */
static const struct {
    const char *id, *what;
} rules[] = {
    { "graph-break", "The graph ends here: the instruction runs uncompiled" },
    { "recompile", "A guard failed and the function was compiled again" },
    { "compile-error", "A compile failed" },
    { "slow", "Something keeps the compiled code from being faster" },
};
enum { RULE_break, RULE_again, RULE_error, RULE_slow };

static void finding(json_w *w, report *r, int rule, const char *level, const char *msg, size_t n,
                    const char *file, size_t nfile, int64_t line)
{
    strbuf m = { 0 }, f = { 0 };
    rp_hide(r, &m, msg, n);
    if (file)
        rp_hide(r, &f, file, nfile);
    json_obj(w);
    text(w, "ruleId", rules[rule].id);
    whole(w, "ruleIndex", rule);
    text(w, "level", level);
    json_key(w, "message");
    json_obj(w);
    text(w, "text", strbuf_str(&m));
    json_end(w);
    if (file) {
        json_key(w, "locations");
        json_arr(w);
        json_obj(w);
        json_key(w, "physicalLocation");
        json_obj(w);
        json_key(w, "artifactLocation");
        json_obj(w);
        text(w, "uri", strbuf_str(&f));
        json_end(w);
        json_key(w, "region");
        json_obj(w);
        whole(w, "startLine", MAX(line, 1));
        json_end(w);
        json_end(w);
        json_end(w);
        json_end(w);
    }
    json_end(w);
    strbuf_free(&m);
    strbuf_free(&f);
}

/* "FILE:LINE" */
static void place_finding(json_w *w, report *r, int rule, const char *level, const char *msg, size_t n,
                          const char *at, size_t nat)
{
    const char *colon = at ? memrchr(at, ':', nat) : NULL;
    finding(w, r, rule, level, msg, n, colon ? at : NULL, colon ? (size_t)(colon - at) : 0,
            colon ? strtoll(colon + 1, NULL, 10) : 0);
}

static void findings(json_w *w, report *r)
{
    for (size_t i = 0; i < r->places.n; i++) {
        const char *msg = r->places.at[i].msg, *at = NULL, *why = msg;
        size_t nat = 0, nwhy = strcspn(msg, "\n");
        rp_break_parts(msg, &at, &nat, &why, &nwhy);
        place_finding(w, r, RULE_break, "warning", why ? why : msg, why ? nwhy : strcspn(msg, "\n"), at, nat);
    }
    for (size_t i = 0; i < r->compiles.n; i++) {
        const rp_compile *c = r->compiles.at[i];
        size_t nf = c->where_file ? strlen(c->where_file) : 0;
        if (!rp_is_compile(c))
            continue;
        if (c->error)
            finding(w, r, RULE_error, "error", c->error, strcspn(c->error, "\n"), c->where_file, nf,
                    c->where_line);
        for (size_t k = 0; k < c->recompiles.n; k++) {
            const char *at = c->recompiles.at[k];
            size_t n = 0;
            const char *s = rp_next_reason(&at, &n);
            if (s)
                finding(w, r, RULE_again, "note", s, n, c->where_file, nf, c->where_line);
        }
        for (size_t k = 0; k < c->hints.n; k++)
            finding(w, r, RULE_slow, "note", c->hints.at[k], strlen(c->hints.at[k]), c->where_file, nf,
                    c->where_line);
    }
}

void report_sarif(report *r, strbuf *out)
{
    json_w w = { out };
    rp_finish(r);
    json_obj(&w);
    text(&w, "$schema", "https://json.schemastore.org/sarif-2.1.0.json");
    text(&w, "version", "2.1.0");
    json_key(&w, "runs");
    json_arr(&w);
    json_obj(&w);
    json_key(&w, "tool");
    json_obj(&w);
    json_key(&w, "driver");
    json_obj(&w);
    text(&w, "name", "taper");
    json_key(&w, "rules");
    json_arr(&w);
    for (size_t i = 0; i < COUNT(rules); i++) {
        json_obj(&w);
        text(&w, "id", rules[i].id);
        json_key(&w, "shortDescription");
        json_obj(&w);
        text(&w, "text", rules[i].what);
        json_end(&w);
        json_end(&w);
    }
    json_end(&w);
    json_end(&w);
    json_end(&w);
    json_key(&w, "results");
    json_arr(&w);
    findings(&w, r);
    json_end(&w);
    json_end(&w);
    json_end(&w);
    json_end(&w);
}
