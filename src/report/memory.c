/* memory.c - the record "memory" of a compiled graph as a plot: bytes alive at each step, the most of them, and who holds
 * them. What callers hold (inputs, constants) is said in words. */
#include "report/model.h"

enum { BANDS = 6, COLUMNS = 400, MOST = 4 << 20, WIDE = 1000, HIGH = 200 };

typedef struct value {
    const json_val *v;
    int64_t bytes, first, last;
    int band; /* BANDS: one of the others */
} value;

typedef struct plot {
    const json_val *steps;
    int64_t nstep, peak, most; /* peak: the step at which most bytes are alive */
    VEC(value) values;
    int64_t *alive, *band; /* by step; by step and band */
} plot;

static int larger_first(const void *a, const void *b)
{
    const value *const *x = a, *const *y = b;
    int64_t long_x = (*x)->last - (*x)->first, long_y = (*y)->last - (*y)->first; /* of equal ones */
    int c = ((*x)->bytes < (*y)->bytes) - ((*x)->bytes > (*y)->bytes);
    return c ? c : (long_x < long_y) - (long_x > long_y);
}

/* Values come and go: changes first, then their sums. Both arrays have one step more than the program. */
static void add_up(plot *t)
{
    for (size_t i = 0; i < t->values.n; i++) {
        t->alive[t->values.at[i].first] += t->values.at[i].bytes;
        t->alive[t->values.at[i].last + 1] -= t->values.at[i].bytes;
    }
    for (int64_t s = 0; s < t->nstep; s++) {
        t->alive[s] += s ? t->alive[s - 1] : 0;
        if (t->alive[s] > t->most)
            t->most = t->alive[s], t->peak = s;
    }
}

/* Those that hold most at the peak get a band each, largest first; returned: how many are alive there. */
static size_t at_peak(plot *t, value **list)
{
    size_t n = 0;
    for (size_t i = 0; i < t->values.n; i++)
        if (t->values.at[i].first <= t->peak && t->peak <= t->values.at[i].last && t->values.at[i].bytes)
            list[n++] = &t->values.at[i];
    qsort(list, n, sizeof *list, larger_first);
    for (size_t i = 0; i < n && i < BANDS; i++)
        list[i]->band = (int)i;
    for (size_t i = 0; i < t->values.n; i++) {
        const value *x = &t->values.at[i];
        t->band[x->first * (BANDS + 1) + x->band] += x->bytes;
        t->band[(x->last + 1) * (BANDS + 1) + x->band] -= x->bytes;
    }
    for (int64_t k = BANDS + 1; k < t->nstep * (BANDS + 1); k++)
        t->band[k] += t->band[k - BANDS - 1];
    return n;
}

static bool plot_read(plot *t, const json_val *v)
{
    const json_val *values = json_get(v, "values");
    t->steps = json_get(v, "steps");
    if (!json_is(t->steps, JSON_arr) || !t->steps->n || !json_is(values, JSON_arr))
        return false;
    t->nstep = (int64_t)t->steps->n;
    for (size_t i = 0; i < values->n; i++) {
        const json_val *x = &values->at[i];
        value a = { x, json_i64(json_get(x, "bytes"), -1), json_i64(json_get(x, "first"), -1),
                    json_i64(json_get(x, "last"), -1), BANDS };
        if (a.bytes < 0 || a.bytes > INT64_MAX / 1000000 || a.first < 0 || a.last < a.first ||
            a.last >= t->nstep)
            return false;
        vec_push(&t->values, a);
    }
    return true;
}

/* ---- drawing ---- */
/* The step that column c stands for: of several the one at which most is alive. */
static int64_t step_of(const plot *t, int64_t c, int64_t columns)
{
    int64_t from = c * t->nstep / columns, to = MAX((c + 1) * t->nstep / columns, from + 1), best = from;
    for (int64_t s = from; s < to; s++)
        if (t->alive[s] > t->alive[best])
            best = s;
    return best;
}

static void band_path(page *p, const plot *t, int64_t columns, int band)
{
    double x = (double)WIDE / (double)columns, y = (double)HIGH * .94 / (double)MAX(t->most, 1);
    strbuf_addf(&p->o, "<path class=\"k%d\" d=\"M0 %d", band, HIGH);
    for (int up = 1; up >= 0; up--) /* along the upper edge, and back along the lower one */
        for (int64_t q = 0; q < columns; q++) {
            int64_t c = up ? q : columns - 1 - q, s = step_of(t, c, columns), sum = 0;
            for (int b = 0; b < band + up; b++)
                sum += t->band[s * (BANDS + 1) + b];
            double h = HIGH - (double)sum * y, a = (double)c * x, z = (double)(c + 1) * x;
            strbuf_addf(&p->o, "L%.2f %.2fL%.2f %.2f", up ? a : z, h, up ? z : a, h);
        }
    strbuf_add(&p->o, "Z\"/>\n");
}

static void step_name(page *p, const plot *t, int64_t s)
{
    const char *name = json_cstr(&t->steps->at[s]);
    esc(p, name ? name : "?");
}

static void draw(page *p, const plot *t)
{
    strbuf *o = &p->o;
    int64_t columns = MIN(t->nstep, (int64_t)COLUMNS);
    double x = (double)WIDE / (double)columns;
    strbuf_addf(o,
                "<div class=\"mem\"><svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" role=\"img\" "
                "aria-label=\"bytes alive at each step\">\n",
                WIDE, HIGH);
    for (int b = 0; b <= BANDS; b++)
        band_path(p, t, columns, b);
    double at = ((double)t->peak + .5) * WIDE / (double)t->nstep;
    strbuf_addf(o, "<path class=\"peak\" d=\"M%.2f 0V%d\"/>\n", at, HIGH);
    for (int64_t c = 0; c < columns; c++) {
        int64_t s = step_of(t, c, columns);
        strbuf_addf(o,
                    "<rect class=\"hot\" x=\"%.2f\" y=\"0\" width=\"%.2f\" height=\"%d\"><title>step %lld, ",
                    (double)c * x, x, HIGH, (long long)s + 1);
        step_name(p, t, s);
        strbuf_add(o, ": ");
        page_bytes(p, (double)t->alive[s]);
        strbuf_add(o, "</title></rect>\n");
    }
    strbuf_add(o, "</svg><span class=\"memy\">");
    page_bytes(p, (double)t->most);
    strbuf_add(o, "</span>");
    strbuf_addf(o, "<div class=\"memx\"><span>step 1</span><span>step %lld</span></div></div>\n",
                (long long)t->nstep);
}

/* ---- who holds it ---- */
static void holder(page *p, const plot *t, const value *x)
{
    strbuf *o = &p->o;
    const json_val *back = json_get(x->v, "returned");
    const char *file = json_cstr(json_get(x->v, "file")), *name = json_cstr(json_get(x->v, "name"));
    strbuf_addf(o, "<tr><td><span class=\"key %s%d\"></span><span class=\"mono\">",
                x->band < BANDS ? "s" : "k", x->band);
    esc(p, name ? name : "?");
    strbuf_addf(o, "</span><td class=\"n\" data-v=\"%lld\">", (long long)x->bytes);
    page_bytes(p, (double)x->bytes);
    strbuf_addf(o, "<td class=\"n\">%.0f\xc2\xa0%%<td class=\"n\">%lld to %lld<td>%s<td class=\"mono\">",
                100.0 * (double)x->bytes / (double)MAX(t->most, 1), (long long)x->first + 1,
                (long long)x->last + 1, json_is(back, JSON_bool) && back->b ? "a result" : "");
    if (file && !p->r->redact) {
        const char *slash = strrchr(file, '/');
        esc(p, slash ? slash + 1 : file);
        strbuf_addf(o, ":%lld", (long long)json_i64(json_get(x->v, "line"), 0));
    }
    strbuf_addc(o, '\n');
}

static void in_words(page *p, const plot *t, const json_val *v, size_t n)
{
    strbuf *o = &p->o;
    const json_val *hint = json_get(v, "by_hint");
    int64_t inputs = json_i64(json_get(v, "inputs"), 0), constants = json_i64(json_get(v, "constants"), 0);
    const char *graph = json_cstr(json_get(v, "graph"));
    strbuf_add(o, "<p><span class=\"mono\">");
    esc(p, graph ? graph : "?");
    strbuf_add(o, "</span> has at most <b>");
    page_bytes(p, (double)t->most);
    strbuf_addf(o, "</b> alive, at step %lld of %lld (<span class=\"mono\">", (long long)t->peak + 1,
                (long long)t->nstep);
    step_name(p, t, t->peak);
    strbuf_addf(o, "</span>), in %zu value%s. Its inputs take ", n, plural((int64_t)n));
    page_bytes(p, (double)inputs);
    if (constants) {
        strbuf_add(o, ", constants ");
        page_bytes(p, (double)constants);
    }
    strbuf_add(o, "; they are the caller's, and not in the plot.");
    if (json_is(hint, JSON_bool) && hint->b)
        strbuf_add(o, " Some sizes are symbols: bytes are those of the sizes that were seen.");
    strbuf_add(o, "</p>\n");
}

bool page_memory(page *p, const rp_rec *r)
{
    enum { SHOWN = 12 };
    strbuf b = { 0 }, *o = &p->o;
    arena tmp = { 0 };
    tp_err e = { 0 };
    plot t = { 0 };
    if (strcmp(r->title, "memory") || strcmp(r->event, "artifact") || r->text.n > MOST || p->shown > RP_PAGE)
        return false;
    rp_load(p->r, r->text, MOST, &b);
    const json_val *v = json_parse(&tmp, strbuf_str(&b), b.n, &e);
    bool ok = plot_read(&t, v);
    if (ok) {
        t.alive = mem_zalloc(sizeof *t.alive * (size_t)(t.nstep + 1));
        t.band = mem_zalloc(sizeof *t.band * (size_t)(t.nstep + 1) * (BANDS + 1));
        value **list = mem_alloc(sizeof *list * MAX(t.values.n, (size_t)1));
        add_up(&t);
        size_t n = at_peak(&t, list), i = 0;
        in_words(p, &t, v, n);
        if (t.most) {
            draw(p, &t);
            strbuf_add(
                o, "<p class=\"dim\">The dashed line is the step with the most. What is alive there, largest "
                   "first:</p>\n<div class=\"scroll\"><table class=\"memt\"><tr><th>Value<th "
                   "class=\"n\">Bytes<th "
                   "class=\"n\">Share<th class=\"n\">Steps<th><th>Your line\n");
            for (; i < n && i < SHOWN; i++)
                holder(p, &t, list[i]);
            strbuf_add(o, "</table></div>\n");
            if (i < n)
                strbuf_addf(o, "<p class=\"dim\">and %zu more</p>\n", n - i);
        }
        p->shown += b.n;
        free(list);
    }
    free(t.alive);
    free(t.band);
    vec_free(&t.values);
    strbuf_free(&b);
    arena_free(&tmp);
    return ok;
}
