/* pass_walk.c - the rewrites of passes one by one, as a record of the detailed trace: whatever asks decide() is about to
 * change the graph, so its text then is that after the rewrite before.
 *
 *   graph NAME                     then its lines
 *   rewrite KIND:SITE | WHAT       then "@ LINE GONE CAME" and the lines that came, in place of those that went
 *   more N                         rewrites that are not written down */
#include "ir/pass.h"
#include "events/events.h"

enum { WALK_STEPS = 200, WALK_NODES = 3000, WALK_BYTES = 200 << 10 };

struct pass_walk {
    const ir_graph *g;
    decider asked; /* who answers */
    strbuf out, before, now;
    char *pending; /* the rewrite that is being made; NULL: none */
    int steps, more;
};

static size_t line_count(const char *s, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        k += s[i] == '\n';
    return k;
}

/* The lines that differ: what both begin with and end with is left out. */
static void add_change(pass_walk *w)
{
    const char *a = strbuf_str(&w->before), *b = strbuf_str(&w->now);
    size_t na = w->before.n, nb = w->now.n, from = 0;
    for (size_t i = 0; i < na && i < nb && a[i] == b[i]; i++)
        if (a[i] == '\n')
            from = i + 1;
    size_t ea = na, eb = nb, ta = na, tb = nb; /* ends of what differs, at ends of lines */
    while (ea > from && eb > from && a[ea - 1] == b[eb - 1]) {
        ea--, eb--;
        if ((ea == from || a[ea - 1] == '\n') && (eb == from || b[eb - 1] == '\n'))
            ta = ea, tb = eb;
    }
    strbuf_addf(&w->out, "rewrite %s\n@ %zu %zu %zu\n", w->pending, line_count(a, from),
                line_count(a + from, ta - from), line_count(b + from, tb - from));
    strbuf_addn(&w->out, b + from, tb - from);
}

/* What became of the rewrite that was asked for last. */
static void finish(pass_walk *w)
{
    if (!w->pending)
        return;
    strbuf_clear(&w->now);
    ir_print(&w->now, w->g, IR_PRINT_log | IR_PRINT_brand);
    if (w->now.n && w->now.s[w->now.n - 1] != '\n')
        strbuf_addc(&w->now, '\n');
    add_change(w);
    strbuf t = w->before;
    w->before = w->now;
    w->now = t;
    free(w->pending);
    w->pending = NULL;
    w->steps++;
}

static bool answer(void *data, decide_kind k, const char *site, uint64_t hash)
{
    pass_walk *w = data;
    if (w->asked.fn && !w->asked.fn(w->asked.data, k, site, hash))
        return false;
    finish(w);
    if (w->steps >= WALK_STEPS || w->out.n > WALK_BYTES)
        w->more++;
    else {
        strbuf b = { 0 };
        strbuf_addf(&b, "%s | %s", site, decide_what(k));
        w->pending = mem_strndup(strbuf_str(&b), strcspn(strbuf_str(&b), "\n"));
        strbuf_free(&b);
    }
    return true;
}

pass_walk *pass_walk_begin(tp_comp *mine, const ir_graph *g)
{
    int n = 0;
    if (!ev_trace_on(EV_graph_dump))
        return NULL;
    IR_EACH (x, g)
        n++;
    if (n > WALK_NODES)
        return NULL;
    pass_walk *w = mem_zalloc(sizeof *w);
    w->g = g;
    w->asked = mine->decider;
    mine->decider = (decider){ answer, w };
    ir_print(&w->before, g, IR_PRINT_log | IR_PRINT_brand);
    if (w->before.n && w->before.s[w->before.n - 1] != '\n')
        strbuf_addc(&w->before, '\n');
    strbuf_addf(&w->out, "graph %s\n%s", g->name, strbuf_str(&w->before));
    return w;
}

void pass_walk_end(pass_walk *w)
{
    if (!w)
        return;
    finish(w);
    if (w->more)
        strbuf_addf(&w->out, "more %d\n", w->more);
    if (w->steps)
        ev_artifact("rewrites", "string", NULL, strbuf_str(&w->out));
    strbuf_free(&w->out);
    strbuf_free(&w->before);
    strbuf_free(&w->now);
    free(w->pending);
    free(w);
}
