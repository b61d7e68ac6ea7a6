/* picture.c - a graph as a picture: values as boxes in rows by what they need, coloured by the kernel that computes them.
 * Reads the text of a graph, which comes from a trace: what it does not understand it leaves out, and text goes through
 * esc(). Zooming, dragging and choosing a box is done by the page's script. */
#define _GNU_SOURCE
#include "report/model.h"
#include <ctype.h>

enum { MOST = 400, PAGE_MOST = 6000, NARROW = 90, HIGH = 40, GAP = 14, ROW = 78 };

typedef struct pic_node {
    const char *name, *op, *type, *place; /* pieces of the text; op, type and place may be empty */
    int nname, nop, ntype, nplace;
    VEC(int) from;
    int row, group; /* group: the kernel, -1 not known */
    double x, wide, want;
    bool input, output, used;
} pic_node;

typedef struct picture {
    VEC(pic_node) nodes;
    map names; /* name -> number from 1 */
    int rows, left_out;
    double wide;
} picture;

static bool letter(char c) { return isalnum((unsigned char)c) || c == '_'; }

static int find(const picture *g, const char *s, int n)
{
    return (int)(uintptr_t)map_getn(&g->names, s, (size_t)n) - 1;
}

static int add(picture *g, const char *name, int n)
{
    if (g->nodes.n >= MOST) {
        g->left_out++;
        return -1;
    }
    vec_push(&g->nodes, ((pic_node){ .name = name, .nname = n, .group = -1 }));
    map_putn(&g->names, name, (size_t)n, (void *)(uintptr_t)g->nodes.n);
    return (int)g->nodes.n - 1;
}

/* Values that the expression s names become sources of node k (or only count as used, k < 0: results). */
static void uses(picture *g, const char *s, const char *end, int k)
{
    while (s < end) {
        if (*s == '\'' || *s == '"') { /* text */
            const char *close = memchr(s + 1, *s, (size_t)(end - s - 1));
            s = close ? close + 1 : end;
            continue;
        }
        if (!letter(*s)) {
            s++;
            continue;
        }
        const char *from = s;
        while (s < end && letter(*s))
            s++;
        int at = (from[-1] == '.' || isdigit((unsigned char)*from)) ? -1 : find(g, from, (int)(s - from));
        if (at < 0 || at == k)
            continue;
        g->nodes.at[at].used = true;
        if (k < 0)
            g->nodes.at[at].output = true;
        else {
            bool known = false;
            for (size_t i = 0; i < g->nodes.at[k].from.n; i++)
                known |= g->nodes.at[k].from.at[i] == at;
            if (!known)
                vec_push(&g->nodes.at[k].from, at);
        }
    }
}

/* What computes it: the name in front of the first bracket, or the sign between two values. */
static void op_of(pic_node *v, const char *s, const char *end)
{
    const char *e = s;
    while (e < end && (letter(*e) || *e == '.'))
        e++;
    if (e < end && *e == '(' && e > s) {
        const char *dot = memrchr(s, '.', (size_t)(e - s));
        v->op = dot ? dot + 1 : s;
        v->nop = (int)(e - v->op);
    } else if (e < end && *e == '[')
        v->op = "[ ]", v->nop = 3;
    else {
        while (e < end && *e == ' ')
            e++;
        v->op = e;
        while (e < end && *e != ' ')
            e++;
        v->nop = (int)(e - v->op);
    }
}

/* def forward(self, a: "f32[3]", b: "..."): */
static void inputs(picture *g, const char *s, const char *end)
{
    while (s < end && (s = memchr(s, ' ', (size_t)(end - s)))) {
        const char *name = ++s, *colon = name;
        while (colon < end && letter(*colon))
            colon++;
        if (colon == name || colon + 2 >= end || colon[0] != ':' || colon[2] != '"')
            continue;
        const char *type = colon + 3, *close = memchr(type, '"', (size_t)(end - type));
        int k = close ? add(g, name, (int)(colon - name)) : -1;
        if (k < 0)
            break;
        g->nodes.at[k].input = true;
        g->nodes.at[k].type = type;
        g->nodes.at[k].ntype = (int)(close - type);
        s = close;
    }
}

static void statement(picture *g, const char *s, const char *end, const char *place, int nplace)
{
    const char *name = s;
    while (s < end && letter(*s))
        s++;
    int n = (int)(s - name);
    const char *type = NULL, *close = NULL, *cut = memmem(s, (size_t)(end - s), ";  ", 3);
    end = cut ? cut : end;
    if (s + 3 < end && s[0] == ':' && s[1] == ' ' && s[2] == '"') {
        type = s + 3;
        close = memchr(type, '"', (size_t)(end - type));
        s = close ? close + 1 : end;
    }
    if (!n || end - s < 3 || strncmp(s, " = ", 3))
        return;
    s += 3;
    const char *e = s;
    while (e < end && letter(*e))
        e++;
    int other = e == end ? find(g, s, (int)(e - s)) : -1;
    if (other >= 0) { /* another name for the same */
        map_putn(&g->names, name, (size_t)n, (void *)(uintptr_t)(other + 1));
        return;
    }
    int k = add(g, name, n);
    if (k < 0)
        return;
    pic_node *v = &g->nodes.at[k];
    v->type = type;
    v->ntype = close ? (int)(close - type) : 0;
    v->place = place;
    v->nplace = nplace;
    op_of(v, s, end);
    uses(g, s, end, k);
}

static void read_graph(picture *g, const char *s, size_t n)
{
    const char *end = s + n, *place = NULL;
    int nplace = 0;
    for (const char *line = s, *next; line < end; line = next) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop ? stop : end;
        next = stop + 1;
        while (line < stop && *line == ' ')
            line++;
        size_t k = (size_t)(stop - line);
        if (k > 8 && !strncmp(line, "# File: ", 8))
            place = line + 8, nplace = (int)k - 8;
        else if (k > 4 && !strncmp(line, "def ", 4))
            inputs(g, line, stop);
        else if (k > 7 && !strncmp(line, "return ", 7))
            uses(g, line + 7, stop, -1);
        else if (k && letter(*line))
            statement(g, line, stop, place, nplace);
    }
}

/* Which kernel computes what, from the list of fusion decisions: values that were fused belong together. */
static void groups(picture *g, const char *s, size_t n)
{
    int parent[MOST], number = 0, named[MOST];
    for (int i = 0; i < MOST; i++)
        parent[i] = i, named[i] = -1;
    const char *end = s + n;
    for (const char *line = s, *next; line < end; line = next) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop ? stop : end;
        next = stop + 1;
        if (stop - line < 20 || strncmp(line, "fused ", 6))
            continue;
        const char *a = line + 6, *ae = a, *b = memchr(line, '(', (size_t)(stop - line)), *be;
        while (ae < stop && letter(*ae))
            ae++;
        be = b ? ++b : NULL;
        while (be && be < stop && letter(*be))
            be++;
        int x = find(g, a, (int)(ae - a)), y = b ? find(g, b, (int)(be - b)) : -1;
        if (x < 0 || y < 0)
            continue;
        while (parent[x] != x)
            x = parent[x];
        while (parent[y] != y)
            y = parent[y];
        parent[MAX(x, y)] = MIN(x, y);
    }
    int members[MOST] = { 0 };
    for (int i = 0; i < (int)g->nodes.n; i++) {
        int k = i;
        while (parent[k] != k)
            k = parent[k];
        parent[i] = k;
        members[k]++;
    }
    for (int i = 0; i < (int)g->nodes.n; i++) {
        int k = parent[i];
        if (members[k] < 2)
            continue;
        if (named[k] < 0)
            named[k] = number++;
        g->nodes.at[i].group = named[k];
    }
}

/* ---- where the boxes stand ---- */
static int by_want(const void *a, const void *b, void *nodes)
{
    const pic_node *v = nodes;
    double d = v[*(const int *)a].want - v[*(const int *)b].want;
    return d < 0 ? -1 : d > 0 ? 1 : *(const int *)a - *(const int *)b;
}

static void arrange(picture *g)
{
    for (size_t i = 0; i < g->nodes.n; i++) {
        pic_node *v = &g->nodes.at[i];
        for (size_t k = 0; k < v->from.n; k++)
            v->row = MAX(v->row, g->nodes.at[v->from.at[k]].row + 1);
        v->wide = MAX(NARROW, 8.0 * MIN(MAX(v->nname, v->nop), 22) + 18);
        g->rows = MAX(g->rows, v->row + 1);
    }
    for (size_t i = g->nodes.n; i-- > 0;) { /* inputs stand above what uses them first */
        const pic_node *v = &g->nodes.at[i];
        for (size_t k = 0; k < v->from.n; k++) {
            pic_node *f = &g->nodes.at[v->from.at[k]];
            if (f->input)
                f->row = f->want > 0 ? MIN(f->row, v->row - 1) : v->row - 1, f->want = 1;
        }
    }
    int order[MOST];
    for (int row = 0; row < g->rows; row++) {
        int n = 0;
        double at = 0;
        for (size_t i = 0; i < g->nodes.n; i++)
            if (g->nodes.at[i].row == row &&
                (g->nodes.at[i].used || g->nodes.at[i].output || !g->nodes.at[i].input))
                order[n++] = (int)i;
        for (int i = 0; i < n; i++) {
            pic_node *v = &g->nodes.at[order[i]];
            v->want = v->from.n ? 0 : 1e6;
            for (size_t k = 0; k < v->from.n; k++)
                v->want += (g->nodes.at[v->from.at[k]].x + g->nodes.at[v->from.at[k]].wide / 2) /
                           (double)v->from.n;
        }
        qsort_r(order, (size_t)n, sizeof *order, by_want, g->nodes.at);
        for (int i = 0; i < n; i++) {
            pic_node *v = &g->nodes.at[order[i]];
            v->x = v->want < 1e6 ? MAX(at, v->want - v->wide / 2) : at;
            at = v->x + v->wide + GAP;
        }
        g->wide = MAX(g->wide, at);
    }
}

/* ---- the drawing ---- */
static void short_text(page *p, const char *s, int n)
{
    if (n > 22) /* names of weights differ in their ends */
        strbuf_add(&p->o, "\xe2\x80\xa6");
    escn(p, n > 22 ? s + n - 21 : s, (size_t)MIN(n, n > 22 ? 21 : 22));
}

static void draw(page *p, const picture *g)
{
    strbuf *o = &p->o;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const pic_node *v = &g->nodes.at[i];
        for (size_t k = 0; k < v->from.n; k++) {
            const pic_node *f = &g->nodes.at[v->from.at[k]];
            double x0 = f->x + f->wide / 2, y0 = f->row * ROW + HIGH + 4, x1 = v->x + v->wide / 2,
                   y1 = v->row * ROW + 4;
            strbuf_addf(o,
                        "<path data-a=\"%d\" data-b=\"%zu\" d=\"M%.0f %.0fC%.0f %.0f %.0f %.0f %.0f %.0f\"/>",
                        v->from.at[k], i, x0, y0, x0, y0 + 26, x1, y1 - 26, x1, y1);
        }
    }
    for (size_t i = 0; i < g->nodes.n; i++) {
        const pic_node *v = &g->nodes.at[i];
        if (v->input && !v->used && !v->output)
            continue;
        strbuf_addf(o, "\n<g tabindex=\"0\" data-n=\"%zu\" class=\"%s%s", i, v->input ? "in" : "op",
                    v->output ? " out" : "");
        if (v->group >= 0)
            strbuf_addf(o, " k%d", v->group % 6);
        strbuf_add(o, "\"><title>");
        escn(p, v->name, (size_t)v->nname);
        if (v->ntype) {
            strbuf_add(o, ": ");
            escn(p, v->type, (size_t)v->ntype);
        }
        if (v->group >= 0)
            strbuf_addf(o, "\nkernel %d of this graph", v->group + 1);
        if (v->nplace) {
            strbuf_addc(o, '\n');
            escn(p, v->place, (size_t)v->nplace);
        }
        strbuf_addf(o,
                    "</title><rect x=\"%.0f\" y=\"%d\" width=\"%.0f\" height=\"%d\" rx=\"6\"/><text "
                    "x=\"%.0f\" y=\"%d\">",
                    v->x, v->row * ROW + 4, v->wide, HIGH, v->x + v->wide / 2, v->row * ROW + 20);
        if (v->input)
            strbuf_add(o, "input");
        else
            short_text(p, v->op, v->nop);
        strbuf_addf(o, "</text><text class=\"b\" x=\"%.0f\" y=\"%d\">", v->x + v->wide / 2,
                    v->row * ROW + 36);
        short_text(p, v->name, v->nname);
        strbuf_add(o, "</text></g>");
        page_flush(p, false);
    }
}

void page_picture(page *p, const char *text, size_t n, const char *fused, size_t nfused)
{
    picture g = { 0 };
    strbuf *o = &p->o;
    if (p->pictured > PAGE_MOST)
        return;
    read_graph(&g, text, n);
    size_t ops = 0;
    for (size_t i = 0; i < g.nodes.n; i++)
        ops += !g.nodes.at[i].input;
    if (ops > 1) {
        groups(&g, fused ? fused : "", nfused);
        arrange(&g);
        p->pictured += g.nodes.n;
        double high = g.rows * (double)ROW, wide = MAX(g.wide, 200);
        strbuf_addf(o,
                    "<div class=\"pic\"><p class=\"dim\">%zu operations%s. Boxes of one colour are computed "
                    "by one kernel, plain ones where they "
                    "are used or by a call; a click on a "
                    "box says which line it comes from.</p><div class=\"box\"><svg role=\"img\" "
                    "aria-label=\"The graph as a "
                    "picture\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\">",
                    ops, g.left_out ? ", the first of the graph" : "", wide, high, wide, high);
        draw(p, &g);
        strbuf_add(o, "</svg></div><p class=\"mono pick\" hidden></p></div>\n");
    }
    for (size_t i = 0; i < g.nodes.n; i++)
        vec_free(&g.nodes.at[i].from);
    vec_free(&g.nodes);
    map_free(&g.names);
}
