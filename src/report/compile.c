/* compile.c - one compile on the page: the user's code, every form the graph had, guards, symbols, numbers. */
#define _GNU_SOURCE
#include "report/model.h"
#include <stdio.h>

static const struct {
    const char *name, *title;
} artifact_titles[] = {
    { "fusion", "Fusion decisions: which operations share a kernel, and why not" },
    { "schedule", "Schedule: the order in which kernels run" },
    { "rewrites", "Rewrites, step by step" },
    { "memory", "Memory: what is alive at each step" },
    { "fx_graph_cache_hit", "Kernel cache: every kernel was there already" },
    { "fx_graph_cache_miss", "Kernel cache: kernels that had to be compiled" },
    { "fx_graph_runnable", "The graph as a program of its own" },
    { "before_joint_graph", "Graph before it is simplified" },
    { "after_joint_graph", "Graph after it was simplified" },
    { "before_post_grad_graph", "Graph that kernels are made of, before it is rewritten for them" },
    { "make_fx_fail_partial", "Graph as far as it came before the failure" },
    { "fx_interpreter_error", "A run of the graph failed" },
    { "dynamo_side_effects", "Side effects: what is done after the graph" },
    { "aot_forward_graph_fw_metadata", "What the forward graph writes and returns" },
    { "min_cut_information", "What forward keeps for backward" },
    { "inductor_provenance_tracking_kernel_stack_traces", "The lines each kernel comes from" },
    { "inductor_provenance_tracking_node_mappings", "Which kernel computes which value" },
};

const char *rp_title(const rp_rec *r)
{
    for (size_t i = 0; i < COUNT(artifact_titles); i++)
        if (!strcmp(artifact_titles[i].name, r->title))
            return artifact_titles[i].title;
    return r->title;
}

/* The text of a payload, as far as the page has room; false: only a note was written. */
static bool show(page *p, rp_text t, int64_t line)
{
    strbuf b = { 0 };
    size_t want = (size_t)MIN(t.n, (int64_t)RP_PAYLOAD);
    if (p->shown + want > RP_PAGE) {
        p->left_out++;
        strbuf_add(&p->o, "<p class=\"dim\">Left out to keep this page usable: ");
        page_bytes(p, (double)t.n);
        strbuf_add(&p->o, " in <span class=\"mono\">");
        esc(p, p->r->files.at[t.file].name);
        strbuf_addf(&p->o, ":%lld</span>.</p>\n", (long long)line);
        return false;
    }
    p->shown += want;
    rp_load(p->r, t, RP_PAYLOAD, &b);
    page_code(p, strbuf_str(&b), b.n);
    if (t.n > RP_PAYLOAD) {
        strbuf_add(&p->o, "<p class=\"dim\">Cut here: the whole text (");
        page_bytes(p, (double)t.n);
        strbuf_addf(&p->o, ") is in the trace file at line %lld.</p>\n", (long long)line);
    }
    strbuf_free(&b);
    return true;
}

/* fx_graph_cache_hit or _miss: which kernels had to be compiled. False: it is not the JSON we know. */
static bool kernel_cache(page *p, const rp_rec *r)
{
    strbuf b = { 0 }, *o = &p->o;
    arena tmp = { 0 };
    tp_err e = { 0 };
    if (strncmp(r->title, "fx_graph_cache_", 15) || r->text.n > RP_PAYLOAD || p->shown > RP_PAGE)
        return false;
    rp_load(p->r, r->text, RP_PAYLOAD, &b);
    const json_val *v = json_parse(&tmp, strbuf_str(&b), b.n, &e), *k = json_get(v, "kernels");
    bool ok = json_is(v, JSON_obj) && json_is(k, JSON_arr);
    if (ok) {
        strbuf_add(o, "<div class=\"scroll\"><table><tr><th>Kernel<th>Key<th>\n");
        for (size_t i = 0; i < k->n; i++) {
            const json_val *hit = json_get(&k->at[i], "hit");
            strbuf_add(o, "<tr><td class=\"mono\">");
            esc(p, json_cstr(json_get(&k->at[i], "name")));
            strbuf_add(o, "<td class=\"mono dim\">");
            esc(p, json_cstr(json_get(&k->at[i], "key")));
            strbuf_add(o, json_is(hit, JSON_bool) && hit->b ? "<td>\xe2\x9c\x93 there already\n"
                                                            : "<td>compiled\n");
        }
        strbuf_add(o, "</table></div>\n");
        p->shown += b.n;
    }
    strbuf_free(&b);
    arena_free(&tmp);
    return ok;
}

/* The order of the stages; records that another thread made come late in the trace. */
static int stage_of(const rp_rec *r)
{
    static const char *const order[] = { "dynamo_output_graph",
                                         "dynamo_side_effects",
                                         "fx_graph_runnable",
                                         "make_fx_fail_partial",
                                         "before_joint_graph",
                                         "rewrites",
                                         "graph_dump",
                                         "after_joint_graph",
                                         "aot_joint_graph",
                                         "aot_forward_graph_fw_metadata",
                                         "min_cut_information",
                                         "aot_forward_graph",
                                         "aot_inference_graph",
                                         "aot_backward_graph",
                                         "before_post_grad_graph",
                                         "inductor_post_grad_graph",
                                         "fusion",
                                         "schedule",
                                         "memory",
                                         "inductor_output_code",
                                         "fx_graph_cache_miss",
                                         "fx_graph_cache_hit" };
    for (size_t i = 0; i < COUNT(order); i++)
        if (!strcmp(order[i], strcmp(r->event, "artifact") ? r->event : r->title))
            return (int)i;
    return COUNT(order);
}

/* A graph also as a picture; kernels are known of the graph that they are made of, which is told before their list. */
static void picture_of(page *p, const rp_compile *c, const rp_rec *r)
{
    const rp_rec *fused = NULL;
    strbuf b = { 0 }, f = { 0 };
    if (!strstr(r->event, "graph") && !strstr(r->title, "joint_graph") &&
        !strstr(r->title, "post_grad_graph"))
        return;
    if (strcmp(r->event, "dynamo_output_graph") && strcmp(r->event, "aot_joint_graph"))
        for (size_t i = 0; i < c->recs.n; i++) {
            const rp_rec *x = c->recs.at[i];
            if (!strcmp(x->title, "fusion") && x->line > r->line && (!fused || x->line < fused->line))
                fused = x;
        }
    rp_load(p->r, r->text, RP_PAYLOAD, &b);
    if (fused)
        rp_load(p->r, fused->text, RP_PAYLOAD, &f);
    page_picture(p, strbuf_str(&b), b.n, fused ? strbuf_str(&f) : NULL, f.n);
    strbuf_free(&b);
    strbuf_free(&f);
}

static void record(page *p, const rp_compile *c, const rp_rec *r)
{
    strbuf *o = &p->o;
    strbuf_add(o, "<details><summary>");
    esc(p, rp_title(r));
    if (r->attempt > 0)
        strbuf_addf(o, " <span class=\"dim\">(attempt %lld)</span>", (long long)r->attempt);
    strbuf_addf(o, " <span class=\"dim\">trace line %lld</span></summary>\n", (long long)r->line);
    if (r->damaged)
        strbuf_add(
            o, "<p><b>Damaged:</b> the text does not match its checksum; it may be cut or changed.</p>\n");
    if (r->same) {
        strbuf_add(o, "<p class=\"dim\">The same text as <b>");
        esc(p, rp_title(r->same));
        strbuf_addf(o, "</b> (trace line %lld).</p>\n", (long long)r->same->line);
    } else if (!kernel_cache(p, r) && !page_memory(p, r) && !page_rewrites(p, r)) {
        picture_of(p, c, r);
        show(p, r->text, r->line);
    }
    strbuf_add(o, "</details>\n");
    page_flush(p, false);
}

/* The lines of the user's program that the captured graph came from: its "# File:" comments, each once. */
static void user_code(page *p, const rp_compile *c)
{
    const rp_rec *g = NULL;
    for (size_t i = 0; i < c->recs.n && !g; i++)
        if (!strcmp(c->recs.at[i]->event, "dynamo_output_graph"))
            g = c->recs.at[i]->same ? c->recs.at[i]->same : c->recs.at[i];
    if (!g || p->r->redact || p->shown > RP_PAGE)
        return;
    strbuf b = { 0 }, out = { 0 };
    map seen = { 0 };
    char file[256] = "";
    rp_load(p->r, g->text, RP_PAYLOAD, &b);
    for (const char *s = b.n ? strstr(b.s, "# File: ") : NULL; s; s = strstr(s, "# File: ")) {
        s += 8;
        size_t n = strcspn(s, "\n"), k = n;
        const char *code = memmem(s, n, ", code: ", 8), *in = memmem(s, n, " in ", 4);
        if (!code || !in || in > code || map_getn(&seen, s, n))
            continue;
        map_putn(&seen, s, n, (void *)1);
        const char *colon = in;
        while (colon > s && *colon != ':')
            colon--;
        if ((size_t)(colon - s) < sizeof file && (strncmp(file, s, (size_t)(colon - s)) || file[colon - s])) {
            snprintf(file, sizeof file, "%.*s", (int)(colon - s), s);
            strbuf_addf(&out, "# %s\n", file);
        }
        k = (size_t)(code - in - 4);
        strbuf_addf(&out, "%5lld  %-*.*s  # in %.*s\n", strtoll(colon + 1, NULL, 10), 60,
                    (int)(n - (size_t)(code + 8 - s)), code + 8, (int)k, in + 4);
    }
    if (out.n) {
        strbuf_add(&p->o, "<details open><summary>Your code: the lines that became this graph</summary>\n");
        page_code(p, out.s, out.n);
        strbuf_add(&p->o, "</details>\n");
        p->shown += out.n;
    }
    map_free(&seen);
    strbuf_free(&b);
    strbuf_free(&out);
}

/* ---- tables ---- */
static void symbols(page *p, const rp_compile *c)
{
    strbuf *o = &p->o;
    if (!c->symbols.n)
        return;
    strbuf_addf(o,
                "<details><summary>Symbols (%zu): sizes kept open, so one compile serves many</summary>"
                "<div class=\"scroll\"><table><tr><th>Symbol<th>Kind<th>Value seen<th>Range or "
                "reason<th>Comes from<th>Why it exists",
                c->symbols.n);
    for (size_t i = 0; i < c->symbols.n; i++) {
        const rp_symbol *s = &c->symbols.at[i];
        const char *cells[] = { s->symbol, s->what, s->val, s->range, s->source, s->why };
        strbuf_add(o, "\n<tr>");
        for (size_t k = 0; k < COUNT(cells); k++) {
            strbuf_add(o, k == 5 ? "<td>" : "<td class=\"mono\">");
            esc(p, cells[k]);
        }
    }
    strbuf_add(o, "</table></div></details>\n");
}

static void guard_row(page *p, const rp_compile *c, const char *code, size_t n, const char *type,
                      const char *why)
{
    strbuf *o = &p->o;
    strbuf_add(o, "<tr><td class=\"mono\">");
    escn(p, code, n);
    strbuf_add(o, "<td class=\"mono dim\">");
    esc(p, type);
    strbuf_add(o, "<td>");
    if (why) {
        strbuf_add(o, "<span class=\"tag error\">failed later</span> ");
        esc(p, why);
    }
    strbuf_addc(o, '\n');
}

/* Does this failure belong to that guard? It names the same source, or is the guard's own text. */
static bool is_of(const char *failure, const char *code, const char *type)
{
    if (!strncmp(failure, code, strlen(code)))
        return true;
    const char *a = strchr(failure, '\''), *b = a ? strstr(a, "' ") : NULL;
    if (!a || !b || !type || strcmp(type, "TENSOR_MATCH"))
        return false;
    const char *at = strstr(code, "check_tensor(");
    return at && !strncmp(at + 13, a + 1, (size_t)(b - a - 1)) && at[13 + (b - a - 1)] == ',';
}

static void guards(page *p, const rp_compile *c)
{
    strbuf *o = &p->o, b = { 0 };
    arena tmp = { 0 };
    tp_err e = { 0 };
    const json_val *v = NULL;
    enum { SHOWN = 2000 };
    if (c->guards.file < 0 && !c->exprs.n && !c->failed.n)
        return;
    if (c->guards.file >= 0 && c->guards.n < (8 << 20)) {
        rp_load(p->r, c->guards, 8 << 20, &b);
        v = json_parse(&tmp, strbuf_str(&b), b.n, &e);
    }
    size_t n = json_is(v, JSON_arr) ? v->n : 0;
    bool *used = mem_zalloc(c->failed.n + 1);
    strbuf_addf(o, "<details><summary>Guards (%zu): what must stay true for this code to be used again",
                n + c->exprs.n);
    if (c->failed.n)
        strbuf_addf(o, " <span class=\"tag error\">%zu failed later</span>", c->failed.n);
    strbuf_add(o, "</summary><div class=\"scroll\"><table><tr><th>Guard<th>Kind<th>\n");
    size_t i = 0;
    for (; i < n && i < SHOWN && p->shown < RP_PAGE; i++) {
        const json_val *code = json_get(&v->at[i], "code");
        strbuf t = { 0 };
        if (json_is(code, JSON_arr) && code->n && json_is(&code->at[0], JSON_str)) /* others write a list */
            code = &code->at[0];
        if (json_is(code, JSON_str))
            strbuf_addn(&t, code->s, code->n);
        else if (json_is(&v->at[i], JSON_str))
            strbuf_addn(&t, v->at[i].s, v->at[i].n);
        const char *type = json_cstr(json_get(&v->at[i], "type")), *why = NULL;
        for (size_t k = 0; k < c->failed.n && !why; k++)
            if (is_of(c->failed.at[k], strbuf_str(&t), type)) {
                why = c->failed.at[k];
                used[k] = true;
            }
        guard_row(p, c, strbuf_str(&t), t.n, type, why);
        p->shown += t.n;
        strbuf_free(&t);
        page_flush(p, false);
    }
    for (size_t q = 0; q < c->exprs.n; q++) {
        const char *why = NULL;
        for (size_t k = 0; k < c->failed.n && !why; k++)
            if (!used[k] && strstr(c->failed.at[k], c->exprs.at[q]))
                why = c->failed.at[k], used[k] = true;
        guard_row(p, c, c->exprs.at[q], strlen(c->exprs.at[q]), "SHAPE_ENV", why);
    }
    for (size_t k = 0; k < c->failed.n; k++)
        if (!used[k])
            guard_row(p, c, c->failed.at[k], strlen(c->failed.at[k]), "", "");
    strbuf_add(o, "</table></div>\n");
    if (i < n)
        strbuf_addf(o, "<p class=\"dim\">%zu more guard%s in the trace file.</p>\n", n - i,
                    n - i == 1 ? " is" : "s are");
    if (c->guards.file >= 0 && !json_is(v, JSON_arr))
        strbuf_add(o, "<p>The guards in the trace are not a JSON list, or too many to show.</p>\n");
    strbuf_add(o, "</details>\n");
    free(used);
    strbuf_free(&b);
    arena_free(&tmp);
}

enum { ENTRIES = 20 }; /* of a list in the metrics that are shown */

/* Numbers and texts as they are, short lists line by line. What a redacted list holds is counted: it may be the program's
 * own words. */
static void plain_value(page *p, const json_val *v, int depth)
{
    strbuf t = { 0 };
    json_w w = { &t };
    if (json_is(v, JSON_str))
        escn(p, v->s, MIN(v->n, (size_t)RP_TEXT));
    else if ((json_is(v, JSON_arr) || json_is(v, JSON_obj)) && !p->r->redact && !depth) {
        for (size_t i = 0; i < v->n && i < ENTRIES; i++) {
            strbuf_add(&p->o, i ? "<br>" : "");
            if (json_is(v, JSON_obj)) {
                escn(p, v->members[i].key, v->members[i].n_key);
                strbuf_add(&p->o, ": ");
            }
            plain_value(p, json_is(v, JSON_obj) ? &v->members[i].val : &v->at[i], depth + 1);
        }
        if (v->n > ENTRIES)
            strbuf_addf(&p->o, "<br>and %zu more", v->n - ENTRIES);
    } else {
        if (json_is(v, JSON_int))
            json_int(&w, v->i);
        else if (json_is(v, JSON_dbl))
            json_dbl(&w, v->d);
        else if (json_is(v, JSON_bool))
            json_bool(&w, v->b);
        else
            strbuf_addf(&t, "%zu %s", v->n, v->n == 1 ? "entry" : "entries");
        escn(p, strbuf_str(&t), t.n);
    }
    strbuf_free(&t);
}

static void metrics(page *p, const rp_compile *c)
{
    strbuf *o = &p->o;
    for (size_t i = 0; i < c->metrics.n; i++) {
        strbuf b = { 0 };
        arena tmp = { 0 };
        tp_err e = { 0 };
        rp_load(p->r, c->metrics.at[i], RP_PAYLOAD, &b);
        const json_val *env = json_parse(&tmp, strbuf_str(&b), b.n, &e), *m = NULL;
        bool backward = false;
        for (size_t k = 0; json_is(env, JSON_obj) && k < env->n && !m; k++)
            if (strstr(env->members[k].key, "compilation_metrics") &&
                json_is(&env->members[k].val, JSON_obj)) {
                m = &env->members[k].val;
                backward = strcmp(env->members[k].key, "compilation_metrics") != 0;
            }
        if (m) {
            strbuf_addf(o, "<details><summary>Metrics%s (%zu)</summary><div class=\"scroll\"><table>",
                        backward ? " of the backward graph" : "", m->n);
            for (size_t k = 0; k < m->n && k < 400; k++) {
                if (m->members[k].val.type == JSON_null ||
                    (json_is(&m->members[k].val, JSON_arr) && !m->members[k].val.n))
                    continue;
                strbuf_add(o, "<tr><td class=\"mono\">");
                escn(p, m->members[k].key, m->members[k].n_key);
                strbuf_add(o, "<td class=\"mono\">");
                plain_value(p, &m->members[k].val, 0);
                strbuf_addc(o, '\n');
            }
            strbuf_add(o, "</table></div></details>\n");
        }
        strbuf_free(&b);
        arena_free(&tmp);
    }
}

static void stack_list(page *p, const rp_compile *c)
{
    if (!c->nstack)
        return;
    strbuf_add(&p->o, "<details><summary>Call stack</summary><ol>");
    for (int i = 0; i < c->nstack; i++) {
        strbuf_add(&p->o, "<li>");
        page_place(p, c->stack[i].name, c->stack[i].file, c->stack[i].line);
        strbuf_addc(&p->o, '\n');
    }
    strbuf_add(&p->o, "</ol></details>\n");
}

static void in_words(page *p, const rp_compile *c)
{
    strbuf *o = &p->o;
    if (!c->has_metrics)
        return;
    strbuf_addf(o, "<p>%lld operator%s became %lld kernel%s and %lld library call%s; a run moves about ",
                (long long)c->ops, plural(c->ops), (long long)c->kernels, plural(c->kernels),
                (long long)c->calls, plural(c->calls));
    page_bytes(p, (double)c->moved);
    strbuf_addf(o, ". %lld guard%s checked before each use.", (long long)c->nguards,
                c->nguards == 1 ? " is" : "s are");
    if (c->ran) {
        strbuf_addf(o, " It ran %lld time%s", (long long)c->ran, plural(c->ran));
        if (c->warm_us >= 0) {
            strbuf_add(o, ", ");
            page_us(p, c->warm_us);
            strbuf_add(o, " each once warm");
        }
        strbuf_addc(o, '.');
    }
    strbuf_add(o, "</p>\n");
}

static void one(page *p, size_t i)
{
    const report *r = p->r;
    const rp_compile *c = r->compiles.at[i];
    strbuf *o = &p->o;
    bool none = !rp_is_compile(c);
    if (none && !c->recs.n)
        return;
    strbuf_addf(o, "<details class=\"item\" id=\"c%zu\"><summary>", i);
    if (none)
        strbuf_add(o, "Records outside any compile");
    else {
        page_tag(p, r, i, "c");
        strbuf_addc(o, ' ');
        page_place(p, c->func, c->where_file, c->where_line);
    }
    if (c->seconds >= 0) {
        strbuf_add(o, " <span class=\"dim\">");
        page_us(p, (c->seconds + MAX(c->bwd_seconds, 0.0)) * 1e6);
        strbuf_add(o, "</span>");
    }
    if (r->files.n > 1) {
        strbuf_add(o, " <span class=\"dim\">");
        if (r->files.at[c->file].rank >= 0)
            strbuf_addf(o, "rank %lld, ", (long long)r->files.at[c->file].rank);
        esc(p, r->files.at[c->file].name);
        strbuf_add(o, "</span>");
    }
    strbuf_add(o, "</summary>\n");
    in_words(p, c);
    if (c->attempts > 0)
        strbuf_addf(o, "<p class=\"dim\">The analysis started over %lld time%s.</p>\n",
                    (long long)c->attempts, plural(c->attempts));
    if (!c->has_metrics && !none)
        strbuf_add(o, "<p class=\"dim\">No metrics in the trace for this compile.</p>\n");
    user_code(p, c);
    if (c->hints.n) {
        strbuf_add(o, "<details open><summary>What keeps it from being faster</summary><ul>");
        for (size_t k = 0; k < c->hints.n; k++) {
            strbuf_add(o, "<li>");
            esc(p, c->hints.at[k]);
            strbuf_addc(o, '\n');
        }
        strbuf_add(o, "</ul></details>\n");
    }
    stack_list(p, c);
    for (int at = 0, next; at < 100; at = next) { /* each stage in turn */
        next = 100;
        for (size_t k = 0; k < c->recs.n; k++) {
            int stage = stage_of(c->recs.at[k]);
            if (stage == at)
                record(p, c, c->recs.at[k]);
            else if (stage > at)
                next = MIN(next, stage);
        }
    }
    guards(p, c);
    symbols(p, c);
    metrics(p, c);
    strbuf_add(o, "</details>\n");
    page_flush(p, false);
}

void page_compiles(page *p)
{
    strbuf_add(
        &p->o,
        "<section id=\"compiles\"><h2>Compiles</h2>\n<p class=\"help\">Unfold a compile to follow it from "
        "your code to what runs: the captured graph (your operations), the graphs after gradients are worked "
        "out "
        "(joint, forward, backward, or inference), fusion decisions, generated code with the line of yours "
        "beside "
        "it, and the guards that decide whether it can be used again.</p>\n");
    for (size_t i = 0; i < p->r->compiles.n; i++)
        one(p, i);
    if (p->left_out)
        strbuf_addf(
            &p->o,
            "<p class=\"dim\">%zu texts were left out; each place says where they are in the trace.</p>\n",
            p->left_out);
    strbuf_add(&p->o, p->r->compiles.n ? "</section>\n" : "<p>None.</p></section>\n");
}
