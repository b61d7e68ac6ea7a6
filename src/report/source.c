/* source.c - the program's functions as they were traced, with marks in the margin: which lines are part of a graph, where
 * graphs break and why, what was compiled again and because of what. */
#define _GNU_SOURCE
#include "report/model.h"
#include <stdio.h>

typedef enum { NOTE_error, NOTE_break, NOTE_again, NOTE_COUNT } note_kind;
static const struct {
    const char *css, *sign, *one;
} note_rows[NOTE_COUNT] = {
    { "er", "\xe2\x9c\x95", "error" },
    { "br", "\xe2\x97\x90", "graph break" },
    { "re", "\xe2\x86\xbb", "recompile" },
};

typedef struct note {
    note_kind kind;
    size_t index; /* of the place or the compile */
    size_t next;  /* of the same line, + 1 */
} note;

typedef struct view {
    page *p;
    VEC(note) notes;
    map at; /* "file:line" -> note + 1 */
} view;

static void note_add(view *v, const char *at, size_t n, note_kind kind, size_t index)
{
    size_t first = (size_t)(uintptr_t)map_getn(&v->at, at, n), last = first;
    vec_push(&v->notes, ((note){ kind, index, 0 }));
    if (!first) {
        map_putn(&v->at, at, n, (void *)(uintptr_t)v->notes.n);
        return;
    }
    while (v->notes.at[last - 1].next)
        last = v->notes.at[last - 1].next;
    v->notes.at[last - 1].next = v->notes.n;
}

/* A compile belongs to the first line of its function, one behind a break to the line of the break. */
static void note_compile(view *v, const rp_compile *c, note_kind kind)
{
    char at[4200];
    int64_t line = c->where_line;
    const char *in = c->func ? strstr(c->func, "_resume_in_") : NULL, *behind = NULL;
    for (const char *s = in; s && (s = strstr(s, "_at_")); s++)
        behind = s + 4;
    if (behind && *behind >= '0' && *behind <= '9')
        line = strtoll(behind, NULL, 10);
    if (!c->where_file)
        return;
    int n = snprintf(at, sizeof at, "%.4000s:%lld", c->where_file, (long long)line);
    note_add(v, at, (size_t)n, kind, c->index);
}

static void collect(view *v)
{
    const report *r = v->p->r;
    const char *at, *why;
    size_t n, m;
    for (size_t i = 0; i < r->places.n; i++)
        if (rp_break_parts(r->places.at[i].msg, &at, &n, &why, &m))
            note_add(v, at, n, NOTE_break, i);
    for (size_t i = 0; i < r->compiles.n; i++) {
        const rp_compile *c = r->compiles.at[i];
        if (c->error)
            note_compile(v, c, NOTE_error);
        if (rp_is_again(c))
            note_compile(v, c, NOTE_again);
    }
}

/* ---- one function ---- */
static size_t line_key(char *key, size_t n, const rp_source *s, int64_t line)
{
    return (size_t)MIN(snprintf(key, n, "%.4000s:%lld", s->file, (long long)line), (int)n - 1);
}

static void say_break(page *p, const rp_place *x)
{
    const char *at, *why, *hint;
    size_t n, m, k;
    rp_break_parts(x->msg, &at, &n, &why, &m);
    strbuf_add(&p->o, "<b>Graph break:</b> ");
    escn(p, why, m);
    hint = rp_line_of(x->msg, "Hint: ", &k);
    if (hint) {
        strbuf_add(&p->o, ". <span class=\"dim\">");
        escn(p, hint, k);
        strbuf_add(&p->o, "</span>");
    }
}

/* What changed, by the newest version that did not fit. */
static void say_again(page *p, const rp_compile *c)
{
    char was[80], now[80];
    size_t n = 0;
    const char *at = c->recompiles.n ? c->recompiles.at[0] : "", *s = rp_next_reason(&at, &n);
    char *line = mem_strndup(s ? s : "", s ? n : 0), *guard = strstr(line, ": ");
    strbuf_add(&p->o, "<b>Compiled again</b> ");
    page_tag(p, p->r, c->index, "c");
    strbuf_add(&p->o, " ");
    if (!s)
        strbuf_add(&p->o, "The trace does not say which guard failed.");
    bool known = s && rp_values(line, was, now, sizeof was);
    const char *end = known ? strstr(line, " (now ") : NULL;
    if (known && !end)
        end = strstr(line, ". expected ");
    guard = guard ? guard + 2 : line;
    if (s)
        escn(p, guard, end && end > guard ? (size_t)(end - guard) : strlen(guard));
    if (known) {
        strbuf_add(&p->o, ": was <b class=\"mono\">");
        esc(p, was);
        strbuf_add(&p->o, "</b>, now <b class=\"mono\">");
        esc(p, now);
        strbuf_add(&p->o, "</b>");
    }
    if (s && !known)
        strbuf_add(&p->o, " <span class=\"dim\">does not hold any more</span>");
    free(line);
}

static void say(page *p, const note *x)
{
    enum { SHORT = 300 };
    strbuf_addf(&p->o, "<li class=\"note %s\">", note_rows[x->kind].css);
    if (x->kind == NOTE_break)
        say_break(p, &p->r->places.at[x->index]);
    else if (x->kind == NOTE_again)
        say_again(p, p->r->compiles.at[x->index]);
    else {
        const char *msg = p->r->compiles.at[x->index]->error;
        strbuf_add(&p->o, "<b>Not compiled</b> ");
        page_tag(p, p->r, x->index, "c");
        strbuf_add(&p->o, " ");
        escn(p, msg, MIN(strcspn(msg, "\n"), (size_t)SHORT));
    }
    strbuf_add(&p->o, "</li>\n");
}

/* The line that notes of the whole function stand below: that of "def", behind decorators. */
static size_t def_line(const json_val *lines)
{
    for (size_t i = 0; i < lines->n; i++) {
        const char *s = json_cstr(&lines->at[i]);
        s = s ? s + strspn(s, " \t") : "";
        if (!strncmp(s, "def ", 4) || !strncmp(s, "async def ", 10) || strstr(s, "lambda"))
            return i;
    }
    return 0;
}

enum { NOTES = 8 }; /* below one line */
/* of: the lines whose notes stand here, -1: none. What is said of a first line that is not "def" stands below that. */
static void one_line(view *v, const rp_source *s, const json_val *text, int64_t line, const int64_t of[2])
{
    page *p = v->p;
    char key[4200];
    note_kind worst = NOTE_COUNT;
    size_t all = 0, n = line_key(key, sizeof key, s, line);
    bool in = map_getn(&p->r->in_graph, key, n) != NULL;
    for (int i = 0; i < 2; i++) {
        n = of[i] >= 0 ? line_key(key, sizeof key, s, of[i]) : 0;
        for (size_t k = n ? (size_t)(uintptr_t)map_getn(&v->at, key, n) : 0; k; k = v->notes.at[k - 1].next)
            worst = MIN(worst, v->notes.at[k - 1].kind);
    }
    strbuf_addf(&p->o, "<li%s%s%s><span class=\"m\">%s</span><span class=\"no\">%lld</span><span>",
                worst < NOTE_COUNT || in ? " class=\"" : "",
                worst < NOTE_COUNT ? note_rows[worst].css
                : in               ? "in"
                                   : "",
                worst < NOTE_COUNT || in ? "\"" : "",
                worst < NOTE_COUNT ? note_rows[worst].sign
                : in               ? "\xe2\x9c\x93"
                                   : "",
                (long long)line);
    page_line(p, text->s, MIN(text->n, (size_t)2000));
    strbuf_add(&p->o, "</span></li>\n");
    for (int i = 0; i < 2; i++) {
        n = of[i] >= 0 ? line_key(key, sizeof key, s, of[i]) : 0;
        for (size_t k = n ? (size_t)(uintptr_t)map_getn(&v->at, key, n) : 0; k; k = v->notes.at[k - 1].next)
            if (all++ < NOTES)
                say(p, &v->notes.at[k - 1]);
    }
    if (all > NOTES)
        strbuf_addf(&p->o, "<li class=\"note %s\">and %zu more</li>\n", note_rows[worst].css, all - NOTES);
}

static void count_notes(view *v, const rp_source *s, size_t lines, size_t *count, size_t *in)
{
    char key[4200];
    for (size_t i = 0; i < lines; i++) {
        size_t n = line_key(key, sizeof key, s, s->line + (int64_t)i);
        *in += map_getn(&v->p->r->in_graph, key, n) != NULL;
        for (size_t k = (size_t)(uintptr_t)map_getn(&v->at, key, n); k; k = v->notes.at[k - 1].next)
            count[v->notes.at[k - 1].kind]++;
    }
}

/* Is a line of it in a graph, or is there something to say of one? */
static bool has_marks(view *v, const rp_source *s)
{
    strbuf b = { 0 };
    arena tmp = { 0 };
    tp_err e = { 0 };
    rp_load(v->p->r, s->text, RP_PAYLOAD, &b);
    const json_val *text = json_parse(&tmp, strbuf_str(&b), b.n, &e), *lines = json_get(text, "lines");
    size_t count[NOTE_COUNT] = { 0 }, in = 0;
    if (json_is(lines, JSON_arr))
        count_notes(v, s, lines->n, count, &in);
    for (int i = 0; i < NOTE_COUNT; i++)
        in += count[i];
    strbuf_free(&b);
    arena_free(&tmp);
    return in > 0;
}

static void one_function(view *v, const rp_source *s)
{
    static const char *const css[NOTE_COUNT] = { "error", "break", "unfinished" };
    page *p = v->p;
    strbuf *o = &p->o, b = { 0 };
    arena tmp = { 0 };
    tp_err e = { 0 };
    rp_load(p->r, s->text, RP_PAYLOAD, &b);
    const json_val *text = json_parse(&tmp, strbuf_str(&b), b.n, &e), *lines = json_get(text, "lines");
    size_t count[NOTE_COUNT] = { 0 }, in = 0, wrong = 0; /* of each kind; lines in graphs */
    if (json_is(lines, JSON_arr) && lines->n) {
        count_notes(v, s, lines->n, count, &in);
        for (int i = 0; i < NOTE_COUNT; i++)
            wrong += count[i];
        strbuf_addf(o, "<details class=\"item\"%s><summary><b class=\"mono\">", wrong ? " open" : "");
        esc(p, s->name);
        strbuf_addf(o, "</b> <span class=\"dim\">line %lld</span>", (long long)s->line);
        for (int i = 0; i < NOTE_COUNT; i++)
            if (count[i])
                strbuf_addf(o, " <span class=\"tag %s\">%s %zu %s%s</span>", css[i], note_rows[i].sign,
                            count[i], note_rows[i].one, plural((int64_t)count[i]));
        if (!wrong)
            strbuf_add(o, " <span class=\"dim\">\xe2\x9c\x93 nothing wrong</span>");
        strbuf_add(o, "</summary>\n<div class=\"src\"><ol>\n");
        size_t def = def_line(lines);
        for (size_t i = 0; i < lines->n; i++)
            if (json_is(&lines->at[i], JSON_str)) {
                int64_t line = s->line + (int64_t)i,
                        of[2] = { i || !def ? line : -1, i == def && def ? s->line : -1 };
                one_line(v, s, &lines->at[i], line, of);
            }
        strbuf_add(o, "</ol></div></details>\n");
        p->shown += b.n;
    }
    strbuf_free(&b);
    arena_free(&tmp);
    page_flush(p, false);
}

static int by_place(const void *a, const void *b)
{
    const rp_source *x = *(const rp_source *const *)a, *y = *(const rp_source *const *)b;
    int c = strcmp(x->file, y->file);
    return c ? c : (x->line > y->line) - (x->line < y->line);
}

void page_source(page *p)
{
    report *r = p->r;
    view v = { .p = p };
    strbuf_add(
        &p->o,
        "<section id=\"source\"><h2>Your code</h2>\n<p class=\"help\">The functions that were traced, as "
        "they "
        "were then. In the margin: \xe2\x9c\x93 the line, or what it calls, is part of a graph; \xe2\x97\x90 "
        "the graph breaks there; \xe2\x86\xbb compiled again; \xe2\x9c\x95 not compiled. Functions with "
        "nothing of the last three are folded.</p>\n");
    if (r->redact || !r->sources.n) {
        strbuf_add(&p->o, r->redact ? "<p>Left out: it is the source of the traced program.</p></section>\n"
                                    : "<p>The trace holds none.</p></section>\n");
        return;
    }
    collect(&v);
    const rp_source **all = mem_alloc(sizeof *all * r->sources.n);
    for (size_t i = 0; i < r->sources.n; i++)
        all[i] = &r->sources.at[i];
    qsort(all, r->sources.n, sizeof *all, by_place);
    size_t nnone = 0;
    const char *file = NULL;
    for (size_t i = 0; i < r->sources.n && p->shown < RP_PAGE; i++) {
        if (!has_marks(&v, all[i])) {
            all[nnone++] = all[i];
            continue;
        }
        if (!file || strcmp(all[i]->file, file)) {
            file = all[i]->file;
            strbuf_add(&p->o, "<h3 class=\"file mono\">");
            esc(p, file);
            strbuf_add(&p->o, "</h3>\n");
        }
        one_function(&v, all[i]);
    }
    if (nnone)
        strbuf_addf(
            &p->o,
            "<details><summary class=\"dim\">%zu more function%s with no line in a graph</summary>\n<ul>\n",
            nnone, plural((int64_t)nnone));
    for (size_t i = 0; i < nnone; i++) {
        strbuf_add(&p->o, "<li>");
        page_place(p, all[i]->name, all[i]->file, all[i]->line);
        strbuf_add(&p->o, "</li>\n");
    }
    if (nnone)
        strbuf_add(&p->o, "</ul></details>\n");
    strbuf_add(&p->o, "</section>\n");
    free(all);
    vec_free(&v.notes);
    map_free(&v.at);
}
