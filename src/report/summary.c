/* summary.c - counts and states, and the same as JSON. */
#include "report/model.h"

rp_status rp_status_of(const rp_compile *c)
{
    if (c->error)
        return RP_error;
    if (c->breaks.n)
        return RP_break;
    if (c->has_metrics)
        return c->no_ops && !c->has_graph ? RP_empty : RP_ok;
    return c->has_graph && c->has_guards ? RP_ok : RP_unfinished; /* guards are made last */
}

const char *rp_status_name(rp_status s)
{
    static const char *const names[] = { "ok", "graph break", "error", "empty", "unfinished" };
    return names[s];
}

static bool is_compile(const rp_compile *c) { return strcmp(c->id, "no id") != 0; }

rp_counts rp_count(const report *r)
{
    rp_counts n = { 0 };
    for (size_t i = 0; i < r->compiles.n; i++) {
        const rp_compile *c = r->compiles.at[i];
        if (!is_compile(c))
            continue;
        rp_status s = rp_status_of(c);
        n.compiles++;
        n.functions += c->compile <= 0;
        n.recompiles += c->compile > 0;
        n.breaks += c->breaks.n > 0;
        n.errors += s == RP_error;
        n.unfinished += s == RP_unfinished;
        n.restarts += c->attempts;
        n.seconds += MAX(c->seconds, 0.0);
        n.has_metrics |= c->has_metrics;
    }
    return n;
}

static void texts(json_w *w, const char *key, const char *const *at, size_t n)
{
    json_key(w, key);
    json_arr(w);
    for (size_t i = 0; i < n; i++)
        json_str(w, at[i]);
    json_end(w);
}

static void one(json_w *w, const report *r, const rp_compile *c)
{
    json_obj(w);
    json_key(w, "id");
    json_str(w, c->id);
    json_key(w, "file");
    json_str(w, r->files.at[c->file].name);
    json_key(w, "rank");
    if (r->files.at[c->file].rank >= 0)
        json_int(w, r->files.at[c->file].rank);
    else
        json_null(w);
    json_key(w, "status");
    json_str(w, rp_status_name(rp_status_of(c)));
    json_key(w, "function");
    json_str(w, c->func);
    json_key(w, "source");
    json_str(w, c->where_file);
    json_key(w, "line");
    json_int(w, c->where_line);
    json_key(w, "restarts");
    json_int(w, c->attempts);
    texts(w, "graph_breaks", c->breaks.at, c->breaks.n);
    texts(w, "recompile_reasons", c->recompiles.at, c->recompiles.n);
    json_key(w, "error");
    json_str(w, c->error);
    json_key(w, "seconds");
    if (c->seconds >= 0)
        json_dbl(w, c->seconds);
    else
        json_null(w);
    json_end(w);
}

static void number(json_w *w, const char *key, int64_t v)
{
    json_key(w, key);
    json_int(w, v);
}

void report_json(const report *r, strbuf *out)
{
    json_w w = { out };
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
    json_key(&w, "compile_ids");
    json_arr(&w);
    for (size_t i = 0; i < r->compiles.n; i++)
        if (is_compile(r->compiles.at[i]))
            one(&w, r, r->compiles.at[i]);
    json_end(&w);
    json_key(&w, "problem_lines");
    json_arr(&w);
    for (size_t i = 0; i < r->skips.n; i++) {
        json_obj(&w);
        json_key(&w, "file");
        json_str(&w, r->files.at[r->skips.at[i].file].name);
        number(&w, "line", r->skips.at[i].line);
        json_key(&w, "why");
        json_str(&w, r->skips.at[i].why);
        json_end(&w);
    }
    json_end(&w);
    json_end(&w);
    strbuf_addc(out, '\n');
}
