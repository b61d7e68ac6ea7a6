/* walk.c - the record "rewrites" as steps to walk through: each rewrite of a graph with the lines before and after it. The
 * record holds the graph once, and of each rewrite the lines that came in place of others. */
#include "report/model.h"
#include <stdio.h>

typedef struct text_line {
    const char *s;
    size_t n;
} text_line;
typedef VEC(text_line) text;

static const char *next_line(const char **at, const char *end, size_t *n)
{
    const char *s = *at, *nl = s < end ? memchr(s, '\n', (size_t)(end - s)) : NULL;
    if (s >= end)
        return NULL;
    *n = (size_t)((nl ? nl : end) - s);
    *at = nl ? nl + 1 : end;
    return s;
}

static bool starts(const char *s, size_t n, const char *with)
{
    return n >= strlen(with) && !memcmp(s, with, strlen(with));
}

static void join(strbuf *b, const text *t)
{
    strbuf_clear(b);
    for (size_t i = 0; i < t->n; i++) {
        strbuf_addn(b, t->at[i].s, t->at[i].n);
        strbuf_addc(b, '\n');
    }
}

/* "@ LINE GONE CAME" and the lines that came. False: they do not fit. */
static bool apply(text *t, const char **at, const char *end)
{
    size_t n, line, gone, came;
    char head[80];
    text now = { 0 };
    const char *s = next_line(at, end, &n);
    snprintf(head, sizeof head, "%.*s", s ? (int)MIN(n, (size_t)79) : 0, s ? s : "");
    if (sscanf(head, "@ %zu %zu %zu", &line, &gone, &came) != 3 || line > t->n || gone > t->n - line)
        return false;
    for (size_t i = 0; i < line; i++)
        vec_push(&now, t->at[i]);
    for (size_t i = 0; i < came; i++) {
        if (!(s = next_line(at, end, &n))) {
            vec_free(&now);
            return false;
        }
        vec_push(&now, ((text_line){ s, n }));
    }
    for (size_t i = line + gone; i < t->n; i++)
        vec_push(&now, t->at[i]);
    vec_free(t);
    *t = now;
    return true;
}

/* "cse:sin_1@layer.py:5 | use one node for two equal ones" */
static void step_head(page *p, size_t number, const char *s, size_t n)
{
    const char *bar = memchr(s, '|', n);
    size_t site = bar ? (size_t)(bar - s) : n;
    strbuf_addf(&p->o, "<summary><span class=\"chip\">%zu</span> ", number);
    if (bar)
        escn(p, bar + 2, n - site - MIN(n - site, (size_t)2));
    strbuf_add(&p->o, ": <span class=\"mono dim\">");
    escn(p, s, site);
    strbuf_add(&p->o, "</span></summary>\n");
}

bool page_rewrites(page *p, const rp_rec *r)
{
    strbuf b = { 0 }, before = { 0 }, after = { 0 }, *o = &p->o;
    text t = { 0 };
    size_t n, steps = 0;
    if (strcmp(r->title, "rewrites") || strcmp(r->event, "artifact") || r->text.n > 2 * RP_PAYLOAD ||
        p->shown > RP_PAGE)
        return false;
    rp_load(p->r, r->text, 2 * RP_PAYLOAD, &b);
    const char *at = strbuf_str(&b), *end = at + b.n, *s = next_line(&at, end, &n);
    bool ok = s && starts(s, n, "graph ");
    if (ok) {
        strbuf_add(o, "<p class=\"dim\">How <span class=\"mono\">");
        escn(p, s + 6, n - 6);
        strbuf_add(o, "</span> was simplified: unfold a step to see the lines before and after it.</p>\n"
                      "<div class=\"walk\">\n");
    }
    while (ok && (s = next_line(&at, end, &n))) {
        if (starts(s, n, "more ")) {
            strbuf_add(o, "<p class=\"dim\">and ");
            escn(p, s + 5, n - 5);
            strbuf_add(o, " more, which the trace does not hold.</p>\n");
        } else if (!starts(s, n, "rewrite ")) {
            if (steps) /* nothing else may follow */
                break;
            vec_push(&t, ((text_line){ s, n }));
        } else {
            join(&before, &t);
            if (!apply(&t, &at, end) || p->shown > RP_PAGE)
                break;
            join(&after, &t);
            strbuf_add(o, "<details class=\"step\">");
            step_head(p, ++steps, s + 8, n - 8);
            page_side(p, &before, &after);
            strbuf_add(o, "</details>\n");
            page_flush(p, false);
        }
    }
    if (ok)
        strbuf_add(o, "</div>\n");
    vec_free(&t);
    strbuf_free(&b);
    strbuf_free(&before);
    strbuf_free(&after);
    return ok;
}
