/* html.c - the page: overview, time, stacks, breaks, recompiles, regions, timeline, ledger, files. */
#define _GNU_SOURCE
#include "report/model.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* ---- overview ---- */
/* what: "call", and what follows the number's plural: " of compiled code" */
static void tile(page *p, int64_t n, const char *what, const char *more, bool bad)
{
    strbuf_addf(&p->o, "<div class=\"tile%s\"><b>%lld</b>%s%s%s</div>\n",
                !n    ? " none"
                : bad ? " bad"
                      : "",
                (long long)n, what, plural(n), more);
}

static void where_time_went(page *p, const rp_counts *n)
{
    strbuf *o = &p->o;
    double sum = 0, total = n->seconds * 1e6;
    for (int i = 0; i < RP_STAGES; i++)
        sum += n->stage[i];
    double rest = MAX(total - sum - n->failed, 0), all = MAX(sum + n->failed + rest, 1e-9);
    if (total <= 0)
        return;
    const struct {
        const char *name, *help;
        double us;
    } more[] = {
        { "errors", "working out what failed and saying so, with the traceback", n->failed },
        { "between the stages",
          "starting and ending compiles, looking into caches, loading Python modules that were needed "
          "for the first time",
          rest }
    };
    strbuf_add(o, "<h3>Where compile time went</h3>\n<div class=\"bar\" aria-hidden=\"true\">");
    for (int i = 0; i < RP_STAGES; i++)
        strbuf_addf(o, "<span class=\"s%d\" style=\"width:%.2f%%\"></span>", i, 100 * n->stage[i] / all);
    for (int i = 0; i < (int)COUNT(more); i++)
        if (more[i].us > 0)
            strbuf_addf(o, "<span class=\"s%d\" style=\"width:%.2f%%\"></span>", RP_STAGES + i,
                        100 * more[i].us / all);
    strbuf_add(o, "</div>\n<div class=\"legend\">");
    for (int i = 0; i < RP_STAGES; i++) {
        strbuf_addf(o, "<span title=\"%s\"><span class=\"key s%d\"></span>%s ", rp_stages[i].help, i,
                    rp_stages[i].name);
        page_us(p, n->stage[i]);
        strbuf_addf(o, " (%.0f\xc2\xa0%%)</span>\n", 100 * n->stage[i] / all);
    }
    for (int i = 0; i < (int)COUNT(more); i++)
        if (more[i].us > 0) {
            strbuf_addf(o, "<span title=\"%s\"><span class=\"key s%d\"></span>%s ", more[i].help,
                        RP_STAGES + i, more[i].name);
            page_us(p, more[i].us);
            strbuf_addf(o, " (%.0f\xc2\xa0%%)</span>\n", 100 * more[i].us / all);
        }
    strbuf_add(o, "</div>\n");
}

/* What happened, in a sentence or two. */
static void verdict(strbuf *o, const rp_counts *n)
{
    bool all = true;
    if (!n->compiles && !n->breaks) {
        strbuf_add(o, "Nothing was compiled.");
        return;
    }
    if (n->errors)
        strbuf_addf(o, "%lld compile%s failed. ", (long long)n->errors, plural(n->errors)), all = false;
    if (n->unfinished)
        strbuf_addf(o, "%lld compile%s did not end. ", (long long)n->unfinished, plural(n->unfinished)),
            all = false;
    if (n->breaks)
        strbuf_addf(o, "Graphs break at %lld place%s, so the program runs in pieces. ", (long long)n->breaks,
                    plural(n->breaks)),
            all = false;
    if (all)
        strbuf_add(o, "Everything was compiled whole. ");
    if (n->recompiles)
        strbuf_addf(o, "%lld of %lld compiles %s needed because a guard failed. ", (long long)n->recompiles,
                    (long long)n->compiles, n->recompiles == 1 ? "was" : "were");
}

static void overview(page *p, const rp_counts *n)
{
    const report *r = p->r;
    strbuf *o = &p->o;
    strbuf_add(o, "<section id=\"overview\"><h2>Overview</h2>\n<p class=\"lead\"><b>");
    verdict(o, n);
    strbuf_add(o, "</b>");
    if (n->compiles) {
        strbuf_addf(o, " %lld function%s or part%s of one %s compiled", (long long)n->functions,
                    plural(n->functions), plural(n->functions), n->functions == 1 ? "was" : "were");
        if (n->compiles > n->functions)
            strbuf_addf(o, ", %lld times in all", (long long)n->compiles);
        if (n->seconds > 0)
            strbuf_add(o, ", which took "), page_us(p, n->seconds * 1e6);
        strbuf_add(o, ".");
    }
    if (n->kernels) {
        strbuf_addf(o, " They run as %lld kernel%s and %lld library call%s, which move about ",
                    (long long)n->kernels, plural(n->kernels), (long long)n->calls, plural(n->calls));
        page_bytes(p, (double)n->moved);
        strbuf_add(o, ".");
        if (n->hits)
            strbuf_addf(o, " %lld of %lld kernel%s %s there already, in this process or on disk.",
                        (long long)n->hits, (long long)(n->hits + n->misses), plural(n->hits + n->misses),
                        n->hits == 1 ? "was" : "were");
    }
    if (n->disk_hits + n->disk_misses)
        strbuf_addf(o, " %lld of %lld graph%s came from the <a href=\"#cache\">disk cache</a>.",
                    (long long)n->disk_hits, (long long)(n->disk_hits + n->disk_misses),
                    plural(n->disk_hits + n->disk_misses));
    if (!n->has_metrics && n->compiles)
        strbuf_add(o, " This trace holds no metrics, so times are not known.");
    strbuf_addf(o, " <span class=\"dim\">Read from %lld trace file%s with %lld record%s.</span></p>\n",
                (long long)r->files.n, plural((int64_t)r->files.n), (long long)r->nrecord,
                plural(r->nrecord));
    strbuf_add(o, "<div class=\"tiles\">\n");
    tile(p, n->compiles, "compile", "", false);
    tile(p, n->breaks, "graph break", "", false);
    tile(p, n->recompiles, "recompile", "", false);
    tile(p, n->errors, "error", "", true);
    tile(p, n->restarts, "restart", " of the analysis", false);
    tile(p, n->runs, "call", " of compiled code", false);
    tile(p, r->nskip, "problem", " in the trace", true);
    strbuf_add(o, "</div>\n");
    page_next(p, n);
    where_time_went(p, n);
    strbuf_add(o, "</section>\n");
}

/* ---- stack trie ---- */
typedef struct trie {
    rp_frame f;
    struct trie *kids, *last, *next;
    VEC(size_t) ids;
} trie;

static trie *trie_kid(arena *a, map *known, trie *t, const rp_frame *f)
{
    strbuf key = { 0 };
    strbuf_addn(&key, (const char *)&t, sizeof t);
    strbuf_addn(&key, (const char *)&f->line, sizeof f->line);
    strbuf_addf(&key, "%s\n%s", f->name, f->file);
    trie *k = map_getn(known, key.s, key.n);
    if (!k) {
        k = ARENA_NEW(a, trie);
        k->f = *f;
        if (t->last)
            t->last->next = k;
        else
            t->kids = k;
        t->last = k;
        map_putn(known, key.s, key.n, k);
    }
    strbuf_free(&key);
    return k;
}

static void trie_print(page *p, trie *t)
{
    strbuf *o = &p->o;
    for (trie *k = t->kids; k; k = k->next) {
        strbuf_add(o, k->kids ? "<li><details open><summary>" : "<li>");
        page_place(p, k->f.name, k->f.file, k->f.line);
        for (size_t i = 0; i < k->ids.n; i++) {
            strbuf_addc(o, ' ');
            page_tag(p, p->r, k->ids.at[i], "c");
        }
        if (k->f.loc && *k->f.loc && !p->r->redact) {
            strbuf_add(o, "<br><code class=\"dim\">");
            esc(p, k->f.loc);
            strbuf_add(o, "</code>");
        }
        if (k->kids) {
            strbuf_add(o, "</summary><ul>\n");
            trie_print(p, k);
            strbuf_add(o, "</ul></details>");
        }
        strbuf_add(o, "</li>\n");
        vec_free(&k->ids);
        page_flush(p, false);
    }
}

static void stacks(page *p)
{
    const report *r = p->r;
    arena mem = { 0 };
    trie root = { 0 };
    map known = { 0 };
    for (size_t i = 0; i < r->compiles.n; i++) {
        const rp_compile *c = r->compiles.at[i];
        rp_frame alone = { c->where_file ? c->where_file : "", c->func ? c->func : "(function not recorded)",
                           NULL, c->where_line };
        trie *t = &root;
        if (!rp_is_compile(c))
            continue;
        for (int k = 0; k < c->nstack; k++)
            t = trie_kid(&mem, &known, t, &c->stack[k]);
        if (!c->nstack)
            t = trie_kid(&mem, &known, t, &alone);
        vec_push(&t->ids, i);
    }
    strbuf_add(
        &p->o,
        "<section id=\"stacks\"><h2>Where compiles came from</h2>\n<p class=\"help\">Each line is a call "
        "in your program, callers above callees. A tag such as [0/1] is a compile: function number 0, "
        "compiled for the second time. Follow it to see what was compiled.</p>\n<p class=\"legend\">"
        "<span><span class=\"tag ok\">\xe2\x9c\x93 ok</span> compiled whole</span> "
        "<span><span class=\"tag break\">\xe2\x97\x90 graph break</span> compiled in pieces</span> "
        "<span><span class=\"tag error\">\xe2\x9c\x95 error</span> failed</span> "
        "<span><span class=\"tag empty\">\xe2\x97\x8b empty</span> nothing to compile</span> "
        "<span><span class=\"tag unfinished\">\xe2\x80\xa6 unfinished</span> no result in the "
        "trace</span></p>\n"
        "<div class=\"scroll\"><ul class=\"trie\">\n");
    trie_print(p, &root);
    strbuf_add(&p->o, "</ul></div></section>\n");
    map_free(&known);
    arena_free(&mem);
}

/* ---- breaks and errors ---- */
/* "[TB0005] Output must appear ..." */
static const char *break_code(const char *msg, size_t *n)
{
    const char *s = strstr(msg, "[TB");
    size_t k = 3;
    while (s && isalnum((unsigned char)s[k]))
        k++;
    if (!s || s[k] != ']')
        return NULL;
    *n = k - 1;
    return s + 1;
}

static void ended(page *p, const rp_place *x)
{
    strbuf *o = &p->o;
    if (!x->at.n) {
        strbuf_add(o, " <span class=\"dim\">before there was anything to compile</span>");
        return;
    }
    strbuf_add(o, " <span class=\"dim\">ended</span>");
    for (size_t k = 0; k < x->at.n && k < 12; k++) {
        strbuf_addc(o, ' ');
        page_tag(p, p->r, x->at.at[k], "c");
    }
    if (x->at.n > 12)
        strbuf_addf(o, " <span class=\"dim\">and %zu more</span>", x->at.n - 12);
}

static void one_break(page *p, const rp_place *x)
{
    size_t n, m, cn, hn;
    strbuf *o = &p->o;
    const char *at, *why, *code = break_code(x->msg, &cn), *hint = rp_line_of(x->msg, "Hint: ", &hn);
    strbuf_add(o, "<div class=\"item\"><p>");
    if (!rp_break_parts(x->msg, &at, &n, &why, &m)) {
        ended(p, x);
        strbuf_add(o, "</p>\n");
        page_code(p, x->msg, strlen(x->msg));
        strbuf_add(o, "</div>\n");
        return;
    }
    if (code) {
        strbuf_add(o, "<span class=\"chip\">");
        escn(p, code, cn);
        strbuf_add(o, "</span> ");
    }
    strbuf_add(o, "<b>");
    escn(p, why, m);
    strbuf_add(o, "</b> <span class=\"mono dim\">");
    escn(p, at, n);
    strbuf_add(o, "</span>");
    ended(p, x);
    strbuf_add(o, "</p>\n");
    const char *trace = strstr(x->msg, "User code traceback:\n"), *end = code ? code - 1 : NULL;
    if (trace && end && end > trace && !p->r->redact) {
        trace += strlen("User code traceback:\n");
        while (end > trace && (end[-1] == ' ' || end[-1] == '\n'))
            end--;
        page_code(p, trace, (size_t)(end - trace));
    }
    if (code) {
        const char *text = code + cn + 1;
        strbuf_add(o, "<p>");
        escn(p, text, strcspn(text, "\n"));
        strbuf_add(o, "</p>\n");
    }
    if (hint) {
        strbuf_add(o, "<p class=\"fix\"><b>What helps:</b> ");
        escn(p, hint, hn);
        strbuf_add(o, "</p>\n");
    }
    strbuf_add(o, "</div>\n");
}

/* What a compile failed with, or why its analysis began again where no break tells it. */
static void failure(page *p, size_t i, const char *msg)
{
    const rp_compile *c = p->r->compiles.at[i];
    strbuf_add(&p->o, "<div class=\"item\">");
    if (rp_is_compile(c)) {
        page_tag(p, p->r, i, "c");
        strbuf_addc(&p->o, ' ');
        page_place(p, c->func, c->where_file, c->where_line);
    }
    page_text(p, msg);
    strbuf_add(&p->o, "</div>\n");
    page_flush(p, false);
}

static void breaks(page *p)
{
    const report *r = p->r;
    size_t shown = r->places.n;
    strbuf_add(
        &p->o,
        "<section id=\"breaks\"><h2>Graph breaks and errors</h2>\n<p class=\"help\">A graph break is a place "
        "where the compiler had to stop, let Python run, and start again. The result is right, but slower "
        "than one graph. The code in the box is explained in docs/graph-breaks.md.</p>\n");
    for (size_t i = 0; i < r->compiles.n; i++) {
        const rp_compile *c = r->compiles.at[i];
        const char *msg = c->error ? c->error : c->breaks.n ? NULL : c->restart;
        if (msg) {
            shown++;
            failure(p, i, msg);
        }
    }
    for (size_t i = 0; i < r->places.n; i++) {
        one_break(p, &r->places.at[i]);
        page_flush(p, false);
    }
    strbuf_add(&p->o, shown ? "</section>\n" : "<p>None recorded.</p></section>\n");
}

/* ---- recompiles ---- */
static void what_helps(page *p, const char *advice)
{
    strbuf_addf(&p->o, "<p class=\"fix\"><b>What helps:</b> %s</p>\n", advice);
}

/* "0/1: guard", and the two values where it tells them. */
static void one_reason(page *p, const char *s, size_t n)
{
    char was[80], now[80];
    char *line = mem_strndup(s, n);
    strbuf *o = &p->o;
    bool known = rp_values(line, was, now, sizeof was);
    const char *end = known ? strstr(line, " (now ") : NULL;
    if (known && !end)
        end = strstr(line, ". expected ");
    strbuf_add(o, "<li><span class=\"mono\">");
    escn(p, s, end ? (size_t)(end - line) : n);
    strbuf_add(o, "</span>");
    if (known) {
        strbuf_add(o, " <span class=\"dim\">was</span> <b class=\"mono\">");
        esc(p, was);
        strbuf_add(o, "</b><span class=\"dim\">, now</span> <b class=\"mono\">");
        esc(p, now);
        strbuf_add(o, "</b>");
    }
    strbuf_add(o, "</li>\n");
    free(line);
}

enum { ADVICES = 8 };
static void add_once(const char **list, const char *advice)
{
    int k = 0;
    while (k < ADVICES && list[k] && strcmp(list[k], advice))
        k++;
    if (k < ADVICES)
        list[k] = advice;
}

/* Why one compile was needed: for each older version, newest first, the guard that did not hold. */
static void reasons(page *p, const rp_compile *c, const char **helps)
{
    size_t found = 0, n;
    strbuf_add(&p->o, "<p>");
    page_tag(p, p->r, c->index, "c");
    strbuf_add(&p->o, "</p><ul class=\"why\">\n");
    for (size_t k = 0; k < c->recompiles.n; k++)
        for (const char *at = c->recompiles.at[k], *s; (s = rp_next_reason(&at, &n));) {
            char *line = mem_strndup(s, n);
            if (++found <= 4) /* the newest versions tell enough */
                one_reason(p, s, n);
            add_once(helps, rp_advice(line));
            free(line);
        }
    if (found > 4)
        strbuf_addf(&p->o, "<li class=\"dim\">and %zu older version%s that did not fit either</li>\n",
                    found - 4, plural((int64_t)found - 4));
    if (!c->recompiles.n)
        strbuf_add(&p->o, "<li class=\"dim\">The trace does not say which guard failed; "
                          "<code>TAPER_LOGS=recompiles</code> prints it.</li>");
    strbuf_add(&p->o, "</ul>\n");
    if (c->recompiles.n && !found) {
        page_code(p, c->recompiles.at[0], strlen(c->recompiles.at[0]));
        add_once(helps, rp_advice(c->recompiles.at[0]));
    }
}

/* Those of one function together, and what helps below them. */
static void recompiles(page *p)
{
    const report *r = p->r;
    size_t n = r->compiles.n, *next = mem_zalloc(sizeof *next * (n + 1)); /* of the same function; 0: none */
    bool *first = mem_zalloc(n + 1), any = false;
    map last = { 0 }; /* function -> its newest recompile, from 1 */
    strbuf_add(
        &p->o,
        "<section id=\"recompiles\"><h2>Recompiles</h2>\n<p class=\"help\">A compiled function is guarded by "
        "what was true when it was compiled. When no version fits a call, the function is compiled again; "
        "for "
        "each version the guard that did not hold is named.</p>\n");
    for (size_t i = 0; i < n; i++) {
        const rp_compile *c = r->compiles.at[i];
        char key[300]; /* modules of several classes are one function to capture */
        if (!rp_is_again(c))
            continue;
        snprintf(key, sizeof key, "%d %lld %.200s", c->file, (long long)c->frame, c->func ? c->func : "");
        size_t before = (size_t)(uintptr_t)map_get(&last, key);
        if (before)
            next[before - 1] = i;
        else
            first[i] = any = true;
        map_put(&last, key, (void *)(uintptr_t)(i + 1));
    }
    for (size_t i = 0; i < n; i++) {
        const char *helps[ADVICES] = { NULL };
        size_t times = 0;
        if (!first[i])
            continue;
        for (size_t k = i; k || !times; k = next[k])
            times++;
        strbuf_add(&p->o, "<div class=\"item\"><p>");
        page_place(p, r->compiles.at[i]->func, r->compiles.at[i]->where_file, r->compiles.at[i]->where_line);
        strbuf_addf(&p->o, " was compiled %zu time%s more.</p>\n", times, plural((int64_t)times));
        for (size_t k = i; times; k = next[k], times--) {
            reasons(p, r->compiles.at[k], helps);
            page_flush(p, false);
        }
        for (int k = 0; k < ADVICES && helps[k]; k++)
            what_helps(p, helps[k]);
        strbuf_add(&p->o, "</div>\n");
    }
    strbuf_add(&p->o, any ? "</section>\n" : "<p>None.</p></section>\n");
    map_free(&last);
    free(first);
    free(next);
}

/* ---- regions: what calls cost ---- */
static void time_cell(page *p, double us)
{
    strbuf_addf(&p->o, "<td class=\"n\" data-v=\"%.3f\">", us);
    page_us(p, us);
}

/* ---- tables that can be sorted ---- */
/* names: of the columns, "a|b|#c"; # stands before numbers */
static void table_head(page *p, const char *names)
{
    strbuf_add(&p->o, "<div class=\"scroll\"><table class=\"sort\"><thead><tr>");
    for (const char *s = names; *s; s += strcspn(s, "|"), s += *s == '|') {
        bool number = *s == '#';
        strbuf_add(&p->o, number ? "<th class=\"n\">" : "<th>");
        strbuf_addn(&p->o, s + number, strcspn(s, "|") - number);
    }
    strbuf_add(&p->o, "</thead><tbody>\n");
}
static void table_end(page *p, size_t rows, const char *none)
{
    if (rows)
        strbuf_add(&p->o, "</tbody></table></div></section>\n");
    else
        strbuf_addf(&p->o, "<p>%s</p></section>\n", none);
}
static void compile_cells(page *p, size_t i)
{
    const rp_compile *c = p->r->compiles.at[i];
    strbuf_add(&p->o, "<tr><td>");
    page_tag(p, p->r, i, "c");
    strbuf_add(&p->o, "<td>");
    page_place(p, c->func, c->where_file, c->where_line);
}
static void number_cell(page *p, int64_t v)
{
    strbuf_addf(&p->o, "<td class=\"n\" data-v=\"%lld\">%lld", (long long)v, (long long)v);
}

static void regions(page *p)
{
    const report *r = p->r;
    size_t rows = 0;
    strbuf *o = &p->o;
    strbuf_add(
        o,
        "<section id=\"regions\"><h2>What calls cost</h2>\n<p class=\"help\">One row for each compiled "
        "region. The "
        "first call includes capturing and compiling; warm is the mean of the sampled later calls. Eager is "
        "the "
        "same graph uncompiled, measured once when the program ran with <code>TAPER_PROFILE=1</code>. "
        "Compile "
        "time counts that of backward, too, which is compiled when a gradient is first asked for. A dash: "
        "not "
        "measured.</p>\n");
    for (size_t i = 0; i < r->compiles.n; i++) {
        const rp_compile *c = r->compiles.at[i];
        if (!rp_is_compile(c) || (!c->ran && c->seconds < 0))
            continue;
        if (!rows++)
            table_head(p, "Compile|Function|#Calls|#First call|#Warm|#Best|#Eager|#Faster by|#Compile time|"
                          "#Operators|#Kernels|#Library calls|#Bytes moved");
        compile_cells(p, i);
        number_cell(p, c->ran);
        time_cell(p, c->first_us);
        time_cell(p, c->warm_us);
        time_cell(p, c->best_us);
        time_cell(p, c->eager_us);
        double gain = c->best_us > 0 && c->eager_us > 0 ? c->eager_us / c->best_us : -1;
        strbuf_addf(o, "<td class=\"n\" data-v=\"%.3f\">", gain);
        if (gain > 0)
            strbuf_addf(o, "%.2f\xc3\x97", gain);
        time_cell(p, c->seconds >= 0 ? (c->seconds + MAX(c->bwd_seconds, 0.0)) * 1e6 : -1);
        number_cell(p, c->ops);
        number_cell(p, c->kernels);
        number_cell(p, c->calls);
        strbuf_addf(o, "<td class=\"n\" data-v=\"%lld\">", (long long)c->moved);
        page_bytes(p, (double)c->moved);
        strbuf_addc(o, '\n');
        page_flush(p, false);
    }
    table_end(p, rows, "The trace does not tell.");
}

/* ---- the disk cache ---- */
/* The one reason for which it was asked for no graph at all; NULL: there are several, or it was asked. */
static const char *never_asked(const report *r)
{
    const char *why = NULL;
    for (size_t i = 0; i < r->compiles.n; i++)
        for (size_t k = 0; k < r->compiles.at[i]->cache.n; k++) {
            const rp_cache *x = &r->compiles.at[i]->cache.at[k];
            if (strcmp(x->what, "bypass") || !x->reason || (why && strcmp(why, x->reason)))
                return NULL;
            why = x->reason;
        }
    return why;
}

static void cache(page *p)
{
    const report *r = p->r;
    size_t rows = 0;
    strbuf *o = &p->o;
    strbuf_add(
        o,
        "<section id=\"cache\"><h2>Disk cache</h2>\n<p class=\"help\">Compiled graphs are kept on disk, so "
        "that "
        "another process need not compile them again. A miss names what differs from what is there. While a "
        "trace is written the cache is left alone, because a graph from the cache shows none of its stages; "
        "<code>TAPER_CACHE=1</code> uses it all the same.</p>\n");
    const char *why = never_asked(r);
    if (why) {
        strbuf_add(o, "<p>It was asked for none of the graphs: ");
        esc(p, why);
        strbuf_add(o, ".</p></section>\n");
        return;
    }
    for (size_t i = 0; i < r->compiles.n; i++) {
        const rp_compile *c = r->compiles.at[i];
        for (size_t k = 0; k < c->cache.n; k++) {
            const rp_cache *x = &c->cache.at[k];
            bool hit = !strcmp(x->what, "hit"), miss = !strcmp(x->what, "miss");
            if (!rows++)
                table_head(p, "Compile|Function|Part|Result|Why|#Size");
            compile_cells(p, i);
            strbuf_add(o, "<td>");
            esc(p, x->part);
            strbuf_addf(o, "<td><span class=\"tag %s\">%s</span><td>",
                        hit    ? "ok"
                        : miss ? "break"
                               : "empty",
                        hit    ? "\xe2\x9c\x93 hit"
                        : miss ? "\xe2\x9c\x95 miss"
                               : "\xe2\x97\x8b not asked");
            esc(p, x->reason);
            strbuf_addf(o, "<td class=\"n\" data-v=\"%lld\">", (long long)x->bytes);
            if (x->bytes > 0)
                page_bytes(p, (double)x->bytes);
            strbuf_addc(o, '\n');
            page_flush(p, false);
        }
    }
    table_end(p, rows, "It was not asked.");
}

/* ---- timeline ---- */
enum { LINES = 300 };
/* Round numbers of seconds above the rows. */
static void axis(page *p, double seconds)
{
    double step = 1e-6;
    while (seconds / step > 8)
        step *= seconds / step > 40 ? 10 : seconds / step > 16 ? 5 : 2;
    strbuf_add(&p->o, "<div class=\"w\"></div><div class=\"t axis\" aria-hidden=\"true\"><div class=\"z\">");
    for (double t = 0; t < seconds; t += step) {
        strbuf_addf(&p->o, "<i style=\"left:%.3f%%\">", 100 * t / seconds);
        if (t > 0)
            page_us(p, t * 1e6);
        else
            strbuf_addc(&p->o, '0');
        strbuf_add(&p->o, "</i>");
    }
    strbuf_add(&p->o, "</div></div>\n");
}
static void timeline(page *p)
{
    const report *r = p->r;
    double first = 0, last = 0;
    size_t rows = 0;
    strbuf *o = &p->o;
    for (size_t i = 0; i < r->compiles.n; i++) {
        const rp_compile *c = r->compiles.at[i];
        if (c->start <= 0 || c->seconds < 0)
            continue;
        first = !first || c->start < first ? c->start : first;
        last = MAX(last, c->start + c->seconds);
    }
    if (last <= first)
        return;
    strbuf_addf(o,
                "<section id=\"timeline\"><h2>Timeline</h2>\n<p class=\"help\">When each compile ran, over "
                "%.3f s from the "
                "first to the last; colours are the stages of the overview.</p>\n<div class=\"tl\">\n",
                last - first);
    axis(p, last - first);
    for (size_t i = 0; i < r->compiles.n && rows < LINES; i++) {
        const rp_compile *c = r->compiles.at[i];
        if (c->start <= 0 || c->seconds < 0)
            continue;
        rows++;
        double left = (c->start - first) / (last - first) * 100, wide = c->seconds / (last - first) * 100,
               at = left, sum = 0;
        strbuf_add(o, "<div class=\"w\">");
        page_tag(p, r, i, "c");
        strbuf_add(o, " <span class=\"mono\">");
        page_function(p, c->func);
        strbuf_add(o, "</span></div><div class=\"t\"><div class=\"z\">");
        strbuf_addf(o,
                    "<span class=\"s7\" style=\"left:%.3f%%;width:%.3f%%\" title=\"from %.3f s on, %.1f ms "
                    "in all\"></span>",
                    left, wide, c->start - first, c->seconds * 1e3);
        for (int k = 0; k < RP_STAGES; k++)
            sum += c->stage[k];
        for (int k = 0; k < RP_STAGES && sum > 0; k++) {
            double w = MIN(c->stage[k] / MAX(sum, (c->seconds + MAX(c->bwd_seconds, 0.0)) * 1e6), 1.0) * wide;
            if (w > 0)
                strbuf_addf(o,
                            "<span class=\"s%d\" style=\"left:%.3f%%;width:%.3f%%\" title=\"%s: %.2f ms of "
                            "%.1f ms\"></span>",
                            k, at, w, rp_stages[k].name, c->stage[k] / 1e3, c->seconds * 1e3);
            at += w;
        }
        strbuf_add(o, "</div></div>\n");
        page_flush(p, false);
    }
    strbuf_add(o, "</div>\n");
    if (rows == LINES)
        strbuf_addf(o, "<p class=\"dim\">The first %d are shown.</p>\n", LINES);
    strbuf_add(o, "</section>\n");
}

/* ---- ledger ---- */
/* The compile that a row is about, where the trace tells; rows of what was not compiled have none. */
static void ledger_tag(page *p, const rp_ledger *l)
{
    char key[80];
    snprintf(key, sizeof key, "%d %lld/%lld", l->file, (long long)l->frame, (long long)l->version);
    const rp_compile *c = l->frame >= 0 ? map_get(&p->r->by_id, key) : NULL;
    if (c && !c->dropped && rp_is_compile(c))
        page_tag(p, p->r, c->index, "c");
}

static void ledger(page *p)
{
    const report *r = p->r;
    strbuf *o = &p->o;
    strbuf_add(o, "<section id=\"ledger\"><h2>Ledger</h2>\n<p class=\"help\">What ran compiled and what did "
                  "not, how often "
                  "and why. Nothing falls back silently: whatever is not compiled stands here.</p>\n");
    if (!r->ledger.n) {
        strbuf_add(o, "<p>The trace holds none: the process did not end in an ordinary way.</p></section>\n");
        return;
    }
    table_head(p, "Compile|Function|#Ran compiled|#Ran eager|#Operators|Why it ended, or was not compiled");
    for (size_t i = 0; i < r->ledger.n; i++) {
        const rp_ledger *l = &r->ledger.at[i];
        strbuf_add(o, "<tr><td>");
        ledger_tag(p, l);
        strbuf_add(o, "<td>");
        page_place(p, l->func, l->src, l->line);
        number_cell(p, l->compiled);
        number_cell(p, l->eager);
        number_cell(p, l->ops);
        strbuf_add(o, "<td>");
        esc(p, l->reason);
        strbuf_addc(o, '\n');
        page_flush(p, false);
    }
    table_end(p, r->ledger.n, "");
}

/* ---- the trace itself ---- */
static void problems(page *p)
{
    const report *r = p->r;
    strbuf *o = &p->o;
    strbuf_add(
        o,
        "<section id=\"trace\"><h2>Trace files</h2>\n<div class=\"scroll\"><table><tr><th>File<th>Called here"
        "<th class=\"n\">Lines<th class=\"n\">Records<th class=\"n\">Size\n");
    for (size_t i = 0; i < r->files.n; i++) {
        const rp_file *f = &r->files.at[i];
        strbuf_add(o, "<tr><td class=\"mono\">");
        esc(p, f->name);
        if (f->rank >= 0)
            strbuf_addf(o, "<td>rank %lld", (long long)f->rank);
        else
            strbuf_addf(o, "<td>file %zu", i + 1);
        strbuf_addf(o, "<td class=\"n\">%lld<td class=\"n\">%lld<td class=\"n\">", (long long)f->lines,
                    (long long)f->records);
        page_bytes(p, (double)f->bytes);
        strbuf_addc(o, '\n');
    }
    strbuf_add(o, "</table></div>\n");
    if (r->ndropped)
        strbuf_addf(o, "<p>Only the first %d compiles are shown; the trace holds more.</p>\n", RP_COMPILES);
    if (!r->nskip)
        strbuf_add(o, "<p>Every line was understood.</p>\n");
    else {
        strbuf_addf(o, "<p>%lld problem%s, skipped or shown with a mark:</p><ul>\n", (long long)r->nskip,
                    plural(r->nskip));
        for (size_t i = 0; i < r->skips.n; i++) {
            strbuf_add(o, "<li><span class=\"mono\">");
            esc(p, r->files.at[r->skips.at[i].file].name);
            strbuf_addf(o, ":%lld</span> %s\n", (long long)r->skips.at[i].line, r->skips.at[i].why);
        }
        if ((int64_t)r->skips.n < r->nskip)
            strbuf_addf(o, "<li>and %lld more\n", (long long)(r->nskip - (int64_t)r->skips.n));
        strbuf_add(o, "</ul>\n");
    }
    if (r->unknown.n) {
        strbuf_add(o, "<p class=\"dim\">Records of kinds this report does not know: ");
        const char *sep = "";
        for (size_t i = 0; i < r->unknown.cap; i++)
            if (map_slot_live(&r->unknown.slots[i])) {
                strbuf_add(o, sep);
                escn(p, map_slot_key(&r->unknown.slots[i]), map_slot_len(&r->unknown.slots[i]));
                strbuf_addf(o, " (%zu)", (size_t)(uintptr_t)r->unknown.slots[i].val);
                sep = ", ";
            }
        strbuf_add(o, "</p>\n");
    }
    strbuf_add(o, "</section>\n");
}

static void search_bar(page *p)
{
    strbuf_add(
        &p->o,
        "<div id=\"s\" hidden><input id=\"q\" type=\"search\" aria-label=\"Search\" placeholder=\"Search: / "
        "starts, Enter finds\"> <span id=\"n\" class=\"dim\" role=\"status\"></span> <button id=\"o\" "
        "type=\"button\">Unfold all</button> <button id=\"f\" type=\"button\">Fold "
        "all</button></div></header>\n<main>\n");
}

static void whole(page *p)
{
    rp_finish(p->r);
    rp_counts n = rp_count(p->r);
    page_head(p, "Taper compile report");
    strbuf_add(&p->o,
               "<nav><a href=\"#overview\">Overview</a><a href=\"#stacks\">Where compiles came from</a>"
               "<a href=\"#breaks\">Graph breaks and errors</a><a href=\"#recompiles\">Recompiles</a>"
               "<a href=\"#source\">Your code</a>"
               "<a href=\"#regions\">What calls cost</a><a href=\"#cache\">Disk cache</a><a "
               "href=\"#timeline\">Timeline</a><a "
               "href=\"#ledger\">Ledger</a>"
               "<a href=\"#compiles\">Compiles</a><a href=\"#trace\">Trace files</a></nav>\n");
    search_bar(p);
    overview(p, &n);
    stacks(p);
    breaks(p);
    recompiles(p);
    page_source(p);
    regions(p);
    cache(p);
    timeline(p);
    ledger(p);
    page_compiles(p);
    problems(p);
    page_foot(p);
}

static void difference(page *p, report *b)
{
    b->redact = p->r->redact;
    b->with = p->r; /* the same word has the same number on both sides */
    p->r->with = b;
    rp_finish(p->r);
    rp_finish(b);
    page_head(p, "Two compile traces side by side");
    strbuf_add(&p->o, "<nav><a href=\"#overview\">Overview</a><a href=\"#changes\">Compiles that differ</a>"
                      "<a href=\"#same\">The same in both</a></nav>\n");
    search_bar(p);
    page_diff(p, b);
    page_foot(p);
}

void report_html(report *r, strbuf *out)
{
    page p = { .r = r, .fd = -1 };
    whole(&p);
    strbuf_addn(out, strbuf_str(&p.o), p.o.n);
    strbuf_free(&p.o);
}

void report_diff_html(report *a, report *b, strbuf *out)
{
    page p = { .r = a, .fd = -1 };
    difference(&p, b);
    strbuf_addn(out, strbuf_str(&p.o), p.o.n);
    strbuf_free(&p.o);
}

bool report_html_file(report *r, report *diff, const char *path, tp_err *err)
{
    strbuf tmp = { 0 };
    strbuf_addf(&tmp, "%s.%d.tmp", path, (int)getpid());
    page p = { .r = r, .fd = open(tmp.s, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) };
    bool ok = p.fd >= 0;
    if (ok) {
        if (diff)
            difference(&p, diff);
        else
            whole(&p);
        ok = !p.bad && close(p.fd) == 0 && rename(tmp.s, path) == 0;
        if (p.bad)
            close(p.fd), errno = p.err;
    }
    if (!ok) {
        err_set(err, ERR_os, "cannot write '%s': %s", path, strerror(errno));
        unlink(tmp.s);
    }
    strbuf_free(&p.o);
    strbuf_free(&tmp);
    return ok;
}
