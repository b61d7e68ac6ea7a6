/* advice.c - what to do next: the few things that matter most in this trace, each with its place and what helps. */
#define _GNU_SOURCE
#include "report/model.h"
#include <ctype.h>
#include <stdio.h>

enum { SHOWN = 3 }; /* of each kind */

/* ---- things that happened more than once ---- */
typedef struct group {
    const char *key;
    size_t first, n; /* index of the first compile; how many */
    const char *msg; /* of the first */
} group;
typedef VEC(group) groups;

static void group_add(report *r, groups *g, const char *key, size_t i, const char *msg)
{
    for (size_t k = 0; k < g->n && k < 500; k++)
        if (!strcmp(g->at[k].key, key)) {
            g->at[k].n++;
            return;
        }
    if (g->n < 500)
        vec_push(g, ((group){ arena_strdup(&r->mem, key), i, 1, msg }));
}

static int by_count(const void *a, const void *b)
{
    const group *x = a, *y = b;
    return x->n != y->n ? (x->n < y->n ? 1 : -1) : x->first < y->first ? -1 : x->first > y->first;
}

static void line_esc(page *p, const char *s, size_t n) { escn(p, s, MIN(n, (size_t)300)); }

/* ---- errors ---- */
static void error_advice(page *p, const rp_compile *c)
{
    const char *m = c->error;
    size_t n;
    const char *hint = rp_line_of(m, "Hint: ", &n);
    strbuf *o = &p->o;
    if (!strncmp(m, "Unsupported", 11)) {
        strbuf_add(o, "<code>fullgraph=True</code> allows no graph break, and this is one. ");
        if (hint)
            line_esc(p, hint, n);
        else
            strbuf_add(o, "Take it out of the function, or leave out <code>fullgraph=True</code>.");
    } else if (strstr(m, "BackendCompilerFailed") || strstr(m, "InternalTorchDynamoError") ||
               strstr(m, "CompilerError"))
        strbuf_add(o,
                   c->saved.n
                       ? "The backend could not compile this graph; it was saved, see below. "
                       : "The backend could not compile this graph. Run the program once more with "
                         "<code>TAPER_REPRO_AFTER=dynamo</code>: the graph is saved, and <code>taper minify "
                         "DIR</code> cuts it down to the operator at fault. "),
            strbuf_add(o,
                       "Until then <code>taper._dynamo.config.suppress_errors = True</code> runs such code "
                       "uncompiled.");
    else if (strstr(m, "RecompileLimit") || strstr(m, "FailOnRecompile"))
        strbuf_add(o, "Too many versions of one function: see the recompiles.");
    else if (strstr(m, "AccuracyError"))
        strbuf_add(o, "Compiled and plain results differ. <code>taper minify DIR</code> finds the operator; "
                      "<code>taper "
                      "bisect</code> finds the rewrite.");
    else
        strbuf_add(o, "It was raised while your function was being compiled. If it is also raised without "
                      "<code>compile</code>, it is an error of the program; otherwise "
                      "<code>TAPER_REPRO_AFTER=dynamo</code> saves what is needed to look into it.");
}

static void errors(page *p, const rp_counts *n)
{
    report *r = p->r;
    groups g = { 0 };
    strbuf *o = &p->o;
    if (!n->errors)
        return;
    for (size_t i = 0; i < r->compiles.n; i++)
        if (rp_is_compile(r->compiles.at[i]) && r->compiles.at[i]->error) {
            char key[200];
            snprintf(key, sizeof key, "%.*s", (int)MIN(strcspn(r->compiles.at[i]->error, "\n"), (size_t)190),
                     r->compiles.at[i]->error);
            group_add(r, &g, key, i, NULL);
        }
    if (g.n)
        qsort(g.at, g.n, sizeof *g.at, by_count);
    for (size_t k = 0; k < g.n && k < SHOWN; k++) {
        const rp_compile *c = r->compiles.at[g.at[k].first];
        strbuf_add(o, "<li><b>Error</b> ");
        page_tag(p, r, g.at[k].first, "c");
        strbuf_addc(o, ' ');
        page_place(p, c->func, c->where_file, c->where_line);
        if (g.at[k].n > 1)
            strbuf_addf(o, " and %zu more", g.at[k].n - 1);
        strbuf_add(o, ": <span class=\"mono\">");
        size_t end = strcspn(c->error, "\n");
        if (end && c->error[end - 1] == ':' && c->error[end]) /* "backend='mine' raised:" goes on below */
            end += 1 + strcspn(c->error + end + 1, "\n");
        line_esc(p, c->error, end);
        strbuf_add(o, "</span><br>");
        error_advice(p, c);
        strbuf_add(o, "</li>\n");
    }
    if (g.n > SHOWN)
        strbuf_addf(o, "<li>%zu more kinds of error are <a href=\"#breaks\">listed below</a>.</li>\n",
                    g.n - SHOWN);
    vec_free(&g);
}

/* ---- graph breaks ---- */
static int by_compiles(const void *a, const void *b)
{
    const rp_place *x = *(rp_place *const *)a, *y = *(rp_place *const *)b;
    return x->at.n != y->at.n ? (x->at.n < y->at.n ? 1 : -1) : x < y ? -1 : x > y;
}

static void breaks(page *p, const rp_counts *n)
{
    report *r = p->r;
    strbuf *o = &p->o;
    size_t shown = 0;
    if (!n->breaks)
        return;
    const rp_place **sorted = mem_zalloc(sizeof *sorted * (r->places.n + 1));
    for (size_t i = 0; i < r->places.n; i++)
        sorted[i] = &r->places.at[i];
    if (r->places.n)
        qsort(sorted, r->places.n, sizeof *sorted, by_compiles);
    for (size_t k = 0; k < r->places.n && shown < SHOWN; k++) {
        const char *msg = sorted[k]->msg, *at, *why;
        size_t a, b, h = 0;
        const char *hint = rp_line_of(msg, "Hint: ", &h);
        if (!rp_break_parts(msg, &at, &a, &why, &b))
            continue;
        shown++;
        /* TB0012: the program raises an exception, compiled or not */
        strbuf_add(o, strstr(msg, "[TB0012]") ? "<li><b>The program raises</b> at <span class=\"mono\">"
                                              : "<li><b>Graph break</b> at <span class=\"mono\">");
        line_esc(p, at, a);
        strbuf_add(o, "</span>: <b>");
        line_esc(p, why, b);
        strbuf_add(o, "</b>");
        if (sorted[k]->at.n > 1)
            strbuf_addf(o, ", which ended %zu compiles", sorted[k]->at.n);
        strbuf_add(o, ".<br>");
        if (hint)
            line_esc(p, hint, h);
        else
            strbuf_add(o, "Move it out of the compiled function.");
        if (sorted[k]->loop)
            strbuf_add(
                o,
                " It is reached again after the break, so it stands in a loop: move it out of the loop, or "
                "compile the body of the loop instead of the whole function.");
        strbuf_add(o, "</li>\n");
    }
    size_t more = r->places.n - shown;
    if (shown && more)
        strbuf_addf(o,
                    "<li>%zu more place%s where graphs break %s <a href=\"#breaks\">listed below</a>.</li>\n",
                    more, plural((int64_t)more), more == 1 ? "is" : "are");
    if (!shown)
        strbuf_add(
            o,
            "<li>Look at the <a href=\"#breaks\">graph breaks</a>: each one splits a function into smaller "
            "graphs that cannot be optimised together.</li>\n");
    free(sorted);
}

/* ---- recompiles ---- */
/* "0/1: reason" of a message, without the id, or the first line of it. */
static const char *first_reason(const char *msg, size_t *n)
{
    const char *at = msg, *s = rp_next_reason(&at, n);
    if (!s) {
        *n = strcspn(msg, "\n");
        return msg;
    }
    size_t id = strcspn(s, ":") + 1;
    while (s[id] == ' ')
        id++;
    *n -= MIN(*n, id);
    return s + id;
}

static bool gave_up(const report *r, const rp_compile *c)
{
    for (size_t i = 0; i < r->compiles.n; i++)
        if (r->compiles.at[i]->refused && r->compiles.at[i]->file == c->file &&
            r->compiles.at[i]->frame == c->frame)
            return true;
    return false;
}

/* The guards that failed for one function, the most frequent first, and what helps against that one. A guard on a value
 * is the same whatever the value was. */
static void why_again(page *p, const rp_compile *of)
{
    report *r = p->r;
    groups g = { 0 };
    strbuf *o = &p->o;
    for (size_t i = of->index; i < r->compiles.n; i++) {
        const rp_compile *c = r->compiles.at[i];
        if (c->file != of->file || c->frame != of->frame || !rp_is_again(c) || !c->recompiles.n)
            continue;
        size_t n, k = 0;
        const char *why = first_reason(c->recompiles.at[0], &n);
        char key[200];
        while (k < MIN(n, sizeof key - 1) && strncmp(why + k, " == ", 4) && strncmp(why + k, " (now ", 6) &&
               strncmp(why + k, " expected ", 10))
            k++;
        snprintf(key, sizeof key, "%.*s", (int)k, why);
        group_add(r, &g, key, i, c->recompiles.at[0]);
    }
    if (!g.n) {
        strbuf_add(o, ". <code>TAPER_LOGS=recompiles</code> prints why.");
        return;
    }
    qsort(g.at, g.n, sizeof *g.at, by_count);
    for (size_t k = 0; k < g.n && k < SHOWN; k++) {
        size_t n;
        const char *why = first_reason(g.at[k].msg, &n);
        strbuf_add(o, k ? ", <span class=\"mono\">" : ": <span class=\"mono\">");
        line_esc(p, why, n);
        strbuf_add(o, "</span>");
        if (g.n > 1)
            strbuf_addf(o, " (%zu\xc3\x97)", g.at[k].n);
    }
    size_t n;
    const char *why = first_reason(g.at[0].msg, &n);
    char *line = mem_strndup(why, n);
    strbuf_addf(o, ".<br>%s", rp_advice(line));
    free(line);
    vec_free(&g);
}

static void recompiles(page *p, const rp_counts *n)
{
    report *r = p->r;
    groups g = { 0 };
    strbuf *o = &p->o;
    if (!n->recompiles)
        return;
    for (size_t i = 0; i < r->compiles.n; i++) {
        const rp_compile *c = r->compiles.at[i];
        char key[48];
        if (!rp_is_again(c))
            continue;
        snprintf(key, sizeof key, "%d %lld", c->file, (long long)c->frame);
        group_add(r, &g, key, i, NULL);
    }
    if (g.n)
        qsort(g.at, g.n, sizeof *g.at, by_count);
    for (size_t k = 0; k < g.n && k < SHOWN; k++) {
        const rp_compile *c = r->compiles.at[g.at[k].first];
        strbuf_add(o, "<li>");
        page_place(p, c->func, c->where_file, c->where_line);
        strbuf_addf(o, " was <b>compiled %zu time%s more</b>", g.at[k].n, plural((int64_t)g.at[k].n));
        if (gave_up(r, c))
            strbuf_add(
                o, ", then the limit was reached (<code>config.recompile_limit</code>) and calls with other "
                   "arguments ran uncompiled");
        why_again(p, c);
        strbuf_add(o, "</li>\n");
    }
    if (g.n > SHOWN)
        strbuf_addf(o,
                    "<li>%zu more functions were compiled again: see the <a "
                    "href=\"#recompiles\">recompiles</a>.</li>\n",
                    g.n - SHOWN);
    vec_free(&g);
}

/* ---- time ---- */
static const char *stage_advice(int stage)
{
    static const char *const say[RP_STAGES] = {
        "The Python code is long: loops are unrolled while they are read. Compile the body of a loop instead "
        "of the loop.",
        "The guards of many objects take long. Pass tensors rather than large structures.",
        "The graph is large. Compile parts of the model one by one, or layers that repeat as one function.",
        "The graph is large. Compile parts of the model one by one, or layers that repeat as one function.",
        "Machine code takes most. In later processes the disk cache saves it; kernels that are equal are "
        "written once.",
        "Without a trace it would be shorter by that.",
    };
    return say[stage];
}

static void slow(page *p)
{
    report *r = p->r;
    const rp_compile *c = NULL;
    size_t at = 0;
    for (size_t i = 0; i < r->compiles.n; i++) {
        double s = MAX(r->compiles.at[i]->seconds, 0.0) + MAX(r->compiles.at[i]->bwd_seconds, 0.0);
        if (s > 0.5 && (!c || s > MAX(c->seconds, 0.0) + MAX(c->bwd_seconds, 0.0)))
            c = r->compiles.at[i], at = i;
    }
    if (!c)
        return;
    int most = 0;
    for (int k = 1; k < RP_STAGES; k++)
        most = c->stage[k] > c->stage[most] ? k : most;
    double total = (MAX(c->seconds, 0.0) + MAX(c->bwd_seconds, 0.0)) * 1e6;
    strbuf_add(&p->o, "<li><b>The longest compile</b> is ");
    page_tag(p, r, at, "c");
    strbuf_addc(&p->o, ' ');
    page_place(p, c->func, c->where_file, c->where_line);
    strbuf_addf(&p->o, " with %.2f s", total / 1e6);
    if (c->stage[most] * 4 > total)
        strbuf_addf(&p->o, ", %s most (%.0f\xc2\xa0%%: %s).<br>%s", rp_stages[most].name,
                    100 * c->stage[most] / total, rp_stages[most].help, stage_advice(most));
    else
        strbuf_add(&p->o, ". Its stages are below.");
    strbuf_add(&p->o, "</li>\n");
}

/* A region where compiling does not pay. */
static void lazy(page *p)
{
    report *r = p->r;
    const rp_compile *w = NULL;
    size_t at = 0;
    for (size_t i = 0; i < r->compiles.n; i++) {
        const rp_compile *c = r->compiles.at[i];
        if (c->eager_us > 0 && c->best_us > 1.1 * c->eager_us &&
            (!w || c->best_us / c->eager_us > w->best_us / w->eager_us))
            w = c, at = i;
    }
    if (!w)
        return;
    strbuf_add(&p->o, "<li>");
    page_tag(p, r, at, "c");
    strbuf_addc(&p->o, ' ');
    page_place(p, w->func, w->where_file, w->where_line);
    strbuf_addf(
        &p->o,
        " runs <b>slower compiled than not</b> (%.1f times; best of its calls against the graph alone, "
        "uncompiled). ",
        w->best_us / w->eager_us);
    strbuf_add(
        &p->o,
        w->breaks.n || w->restart
            ? "It is only a piece between graph breaks: mend those first.</li>\n"
            : "Its tensors may be too small to gain: leave it uncompiled with <code>disable</code>, or "
              "compile a larger function around it.</li>\n");
}

/* ---- ranks ---- */
/* Numbers the ranks from 1 in the order of the files; 0: not a rank. Returns how many there are. */
static size_t number_ranks(const report *r, size_t *of)
{
    map known = { 0 };
    size_t n = 0;
    for (size_t i = 0; i < r->files.n; i++) {
        if (r->files.at[i].rank < 0)
            continue;
        of[i] = (size_t)(uintptr_t)map_geti(&known, (uint64_t)r->files.at[i].rank);
        if (!of[i]) {
            of[i] = ++n;
            map_puti(&known, (uint64_t)r->files.at[i].rank, (void *)(uintptr_t)n);
        }
    }
    map_free(&known);
    return n;
}

typedef struct shared {        /* a compile by id and function */
    size_t first, ranks, last; /* compile; how many ranks have it; the newest of them */
} shared;

/* All ranks run the same program: what only some of them compiled is where they part ways. */
static void ranks(page *p)
{
    report *r = p->r;
    size_t *of = mem_zalloc(sizeof *of * (r->files.n + 1)), n = number_ranks(r, of), differ = 0;
    VEC(shared) all = { 0 };
    map known = { 0 };
    const shared *x = NULL;
    strbuf *o = &p->o, key = { 0 };
    for (size_t i = 0; n > 1 && i < r->compiles.n; i++) {
        const rp_compile *c = r->compiles.at[i];
        if (!rp_is_compile(c) || !of[c->file])
            continue;
        strbuf_clear(&key);
        strbuf_addf(&key, "%s %s", c->id, c->func ? c->func : "");
        size_t at = (size_t)(uintptr_t)map_getn(&known, key.s, key.n);
        if (!at) {
            vec_push(&all, ((shared){ i, 0, 0 }));
            at = all.n;
            map_putn(&known, key.s, key.n, (void *)(uintptr_t)at);
        }
        if (all.at[at - 1].last != of[c->file]) { /* files are read rank by rank */
            all.at[at - 1].last = of[c->file];
            all.at[at - 1].ranks++;
        }
    }
    for (size_t i = 0; i < all.n; i++)
        if (all.at[i].ranks < n) {
            differ++;
            x = x ? x : &all.at[i];
        }
    if (x) {
        const rp_compile *c = r->compiles.at[x->first];
        strbuf_addf(o, "<li><b>Ranks differ</b>: %zu of %zu compiles %s not in all %zu ranks, first ", differ,
                    all.n, differ == 1 ? "is" : "are", n);
        page_tag(p, r, x->first, "c");
        strbuf_addc(o, ' ');
        page_place(p, c->func, c->where_file, c->where_line);
        strbuf_add(o, ".<br>Ranks that go different ways wait for one another. Look at what makes them do so "
                      "there: other sizes, other arguments, a branch on the rank.</li>\n");
    }
    strbuf_free(&key);
    map_free(&known);
    vec_free(&all);
    free(of);
}

/* ---- caches, hints, saved failures ---- */
static void caches(page *p, const rp_counts *n)
{
    report *r = p->r;
    groups g = { 0 };
    strbuf *o = &p->o;
    for (size_t i = 0; i < r->compiles.n; i++)
        for (size_t k = 0; k < r->compiles.at[i]->cache.n; k++) {
            const rp_cache *x = &r->compiles.at[i]->cache.at[k];
            if (!strcmp(x->what, "miss"))
                group_add(r, &g, x->reason, i, x->reason);
        }
    if (g.n)
        qsort(g.at, g.n, sizeof *g.at, by_count);
    if (g.n && n->disk_hits + n->disk_misses > 0) {
        strbuf_addf(o,
                    "<li><b>%lld of %lld graph%s %s not in the disk cache</b>: ", (long long)n->disk_misses,
                    (long long)(n->disk_hits + n->disk_misses), plural(n->disk_hits + n->disk_misses),
                    n->disk_misses == 1 ? "was" : "were");
        line_esc(p, g.at[0].msg, strcspn(g.at[0].msg, "\n"));
        strbuf_add(
            o,
            ". The <a href=\"#cache\">list</a> names the reason of each. The first process that compiles a "
            "program always misses; if later ones do, too, look at what differs.</li>\n");
    }
    vec_free(&g);
}

/* A hint without the name of the node: the same call at the same line is told of once. */
static const char *hint_body(const char *h)
{
    const char *s = strstr(h, " runs as ");
    return s ? s : h;
}

static void hints(page *p)
{
    report *r = p->r;
    size_t shown = 0, all = 0, tiny = 0;
    const char *told[SHOWN];
    strbuf *o = &p->o;
    for (size_t i = 0; i < r->compiles.n; i++)
        for (size_t k = 0; k < r->compiles.at[i]->hints.n; k++) {
            const char *h = r->compiles.at[i]->hints.at[k];
            bool small = strstr(h, " costs more than ") != NULL; /* most programs have many of these */
            bool again = false;
            for (size_t q = 0; q < shown; q++)
                again |= !strcmp(told[q], hint_body(h));
            all++;
            if (again || shown >= SHOWN || (small && tiny++))
                continue;
            told[shown++] = hint_body(h);
            strbuf_add(o, "<li>Speed: ");
            page_tag(p, r, i, "c");
            strbuf_addc(o, ' ');
            line_esc(p, h, strlen(h));
            strbuf_add(o, "</li>\n");
        }
    if (all > shown)
        strbuf_addf(o, "<li class=\"dim\">%zu more hint%s at the compile%s.</li>\n", all - shown,
                    all - shown == 1 ? " stands" : "s stand",
                    all - shown == 1 ? " it belongs to" : "s they belong to");
}

static void saved(page *p)
{
    report *r = p->r;
    size_t shown = 0;
    for (size_t i = 0; i < r->compiles.n; i++)
        for (size_t k = 0; k < r->compiles.at[i]->saved.n && shown < SHOWN; k++, shown++) {
            const char *s = r->compiles.at[i]->saved.at[k];
            strbuf_add(&p->o, "<li><b>A failing graph was saved</b> in <span class=\"mono\">");
            line_esc(p, s, strcspn(s, "\n"));
            strbuf_add(&p->o,
                       "</span>: run that file to see the failure alone, or <code>taper minify</code> on its "
                       "folder for the smallest graph that still shows it.</li>\n");
        }
}

/* The last compile of a file that has no end, and the phase it was in. */
static void unfinished(page *p)
{
    report *r = p->r;
    size_t shown = 0;
    for (size_t f = 0; f < r->files.n; f++) {
        size_t last = r->compiles.n;
        for (size_t i = 0; i < r->compiles.n; i++)
            if (r->compiles.at[i]->file == (int)f && rp_is_compile(r->compiles.at[i]) &&
                rp_status_of(r->compiles.at[i]) == RP_unfinished)
                last = i;
        if (last == r->compiles.n || shown++ >= SHOWN)
            continue;
        const rp_compile *c = r->compiles.at[last];
        strbuf_add(&p->o, "<li><b>The process ended in the middle of a compile</b>: ");
        page_tag(p, r, last, "c");
        strbuf_addc(&p->o, ' ');
        page_place(p, c->func, c->where_file, c->where_line);
        if (r->files.at[f].open.n) {
            strbuf_add(&p->o, " while in <span class=\"mono\">");
            esc(p, r->files.at[f].open.at[r->files.at[f].open.n - 1]);
            strbuf_add(&p->o, "</span>");
        }
        strbuf_add(
            &p->o,
            ". If it was killed for memory or time, compile a smaller part; if it crashed, run it again with "
            "<code>TAPER_REPRO_LEVEL=3</code> and <code>TAPER_REPRO_AFTER=dynamo</code>, which saves "
            "each graph before it is compiled.</li>\n");
    }
}

void page_next(page *p, const rp_counts *n)
{
    strbuf *o = &p->o;
    strbuf_add(o, "<h3>What to do next</h3><ol class=\"next\">\n");
    if (n->compiles && !n->errors && !n->breaks && !n->recompiles && !n->unfinished)
        strbuf_add(o, "<li>Nothing is broken: every function was compiled once, whole.</li>\n");
    errors(p, n);
    saved(p);
    breaks(p, n);
    recompiles(p, n);
    ranks(p);
    slow(p);
    lazy(p);
    unfinished(p);
    if (n->runs && n->eager_runs > n->runs)
        strbuf_add(
            o,
            "<li>More calls ran uncompiled than compiled; the <a href=\"#ledger\">ledger</a> says which and "
            "why.</li>\n");
    caches(p, n);
    hints(p);
    if (!n->compiles && !n->breaks)
        strbuf_add(
            o,
            "<li>The trace holds no compile. Was the compiled function called while <code>TAPER_TRACE</code> "
            "was set?</li>\n");
    strbuf_add(o, "</ol>\n");
}
