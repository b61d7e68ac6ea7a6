/* diff.c - two traces side by side: which compiles differ, in what numbers, and in which lines of their graphs. */
#define _GNU_SOURCE
#include "report/model.h"
#include <stdio.h>

/* ---- lines ---- */
typedef struct line {
    const char *s;
    size_t n;
    uint64_t hash;
} line;
typedef VEC(line) lines;

/* Without "x = y = None" behind a node, which says what is not used any more: that follows from the other lines. */
static size_t without_releases(const char *s, size_t n)
{
    const char *at = memmem(s, n, ";  ", 3);
    if (!at || n < 7 || memcmp(s + n - 7, " = None", 7))
        return n;
    for (const char *c = at + 3; c < s + n; c++)
        if (!strchr("=_ ", *c) && !(*c >= 'a' && *c <= 'z') && !(*c >= 'A' && *c <= 'Z') &&
            !(*c >= '0' && *c <= '9'))
            return n;
    return (size_t)(at - s);
}

static void split(lines *l, const strbuf *b)
{
    const char *s = strbuf_str(b), *end = s + b->n;
    while (s < end) {
        const char *nl = memchr(s, '\n', (size_t)(end - s));
        size_t n = without_releases(s, (size_t)((nl ? nl : end) - s));
        vec_push(l, ((line){ s, n, hash_bytes(s, n, 0) }));
        s = nl ? nl + 1 : end;
    }
}

static const char *base_name(const rp_compile *c)
{
    const char *slash = c->where_file ? strrchr(c->where_file, '/') : NULL;
    return slash ? slash + 1 : c->where_file ? c->where_file : "";
}

/* Directories are no difference: "/tmp/a/model.py" reads "model.py". Nor is the name of a copy of the program. */
static void load(report *r, rp_text t, strbuf *out)
{
    size_t n_called = r->called ? strlen(r->called) : 0;
    strbuf b = { 0 };
    rp_load(r, t, RP_PAYLOAD, &b);
    for (size_t i = 0; i < b.n;) {
        size_t k = i, after = i;
        if (b.s[i] == '/' && (!i || strchr(" \"'\t\n", b.s[i - 1])) && i + 1 < b.n &&
            !strchr(" */\n", b.s[i + 1]))
            for (; k < b.n && !strchr(" \"'\t\n:", b.s[k]); k++)
                if (b.s[k] == '/')
                    after = k + 1;
        i = after;
        if (n_called && b.n - i > n_called && b.s[i + n_called] == ':' &&
            !memcmp(b.s + i, r->called, n_called) && (!i || strchr(" /\"", b.s[i - 1]))) {
            strbuf_add(out, r->call_it);
            i += n_called;
        } else if (i < b.n)
            strbuf_addc(out, b.s[i++]);
    }
    strbuf_free(&b);
}

static bool same_text(report *a, rp_text ta, report *b, rp_text tb)
{
    strbuf x = { 0 }, y = { 0 };
    load(a, ta, &x);
    load(b, tb, &y);
    bool same = x.n == y.n && !memcmp(strbuf_str(&x), strbuf_str(&y), x.n);
    strbuf_free(&x);
    strbuf_free(&y);
    return same;
}

static bool equal(const line *a, const line *b)
{
    return a->hash == b->hash && a->n == b->n && !memcmp(a->s, b->s, a->n);
}

enum { CONTEXT = 3 };

static void cell(page *p, const char *cls, const line *l)
{
    strbuf_addf(&p->o, "<div class=\"%s\">", cls);
    if (l)
        escn(p, l->s, MIN(l->n, (size_t)2000));
    strbuf_add(&p->o, "</div>");
}

static void row(page *p, const line *a, const line *b, bool same)
{
    cell(p, same ? "u" : a ? "d" : "e", a);
    cell(p, same ? "u r" : b ? "a" : "e", b);
    strbuf_addc(&p->o, '\n');
    page_flush(p, false);
}

/* What is equal is shown around what is not, three lines each way. */
static void rows(page *p, const lines *a, const lines *b, const uint8_t *keep_a, const uint8_t *keep_b)
{
    size_t i = 0, k = 0, n = a->n, m = b->n;
    while (i < n || k < m) {
        size_t run = 0;
        while (i + run < n && k + run < m && keep_a[i + run] && keep_b[k + run])
            run++;
        bool first = i == 0 && k == 0, last = i + run == n && k + run == m;
        for (size_t q = 0; q < run; q++) {
            if ((q >= CONTEXT || first) && (run - q > CONTEXT || last) && run > 2 * CONTEXT + 1) {
                size_t hidden = run - q - (last ? 0 : CONTEXT);
                strbuf_addf(&p->o, "<div class=\"g\">\xe2\x80\xa6 %zu equal line%s</div>\n", hidden,
                            hidden == 1 ? "" : "s");
                q += hidden - 1;
                continue;
            }
            row(p, &a->at[i + q], &b->at[k + q], true);
        }
        i += run;
        k += run;
        while ((i < n && !keep_a[i]) || (k < m && !keep_b[k])) {
            const line *x = i < n && !keep_a[i] ? &a->at[i++] : NULL,
                       *y = k < m && !keep_b[k] ? &b->at[k++] : NULL;
            row(p, x, y, false);
        }
        if (!run && (i >= n || keep_a[i]) && (k >= m || keep_b[k]) && !(i < n && k < m))
            break;
    }
}

typedef struct part { /* lines from..to of both; ka, kb: those that are equal */
    const lines *a, *b;
    uint8_t *ka, *kb;
    size_t i, n, k, m;
} part;

/* The longest common subsequence. */
static void table_compare(const part *x)
{
    const line *a = x->a->at + x->i, *b = x->b->at + x->k;
    size_t w = x->m - x->k + 1, h = x->n - x->i + 1;
    uint16_t *t = mem_zalloc(sizeof *t * w * h);
    for (size_t i = h - 1; i-- > 0;)
        for (size_t k = w - 1; k-- > 0;)
            t[i * w + k] = equal(&a[i], &b[k]) ? (uint16_t)(t[(i + 1) * w + k + 1] + 1)
                                               : MAX(t[(i + 1) * w + k], t[i * w + k + 1]);
    for (size_t i = 0, k = 0; i < h - 1 && k < w - 1;)
        if (equal(&a[i], &b[k]))
            x->ka[x->i + i++] = x->kb[x->k + k++] = 1;
        else if (t[(i + 1) * w + k] >= t[i * w + k + 1])
            i++;
        else
            k++;
    free(t);
}

typedef struct anchor { /* a line that each side holds once */
    size_t i, k;
    int na, nb;
    size_t before; /* in the longest run of anchors that are in order in both: the one before, + 1 */
} anchor;

static void compare(const part *x, int depth);

/* Parts too long for a table are cut at lines that stand once in each, as many of them as are in order in both. */
static void cut_compare(const part *x, int depth)
{
    VEC(anchor) all = { 0 };
    VEC(size_t) best = { 0 }; /* best.at[l]: the anchor with the smallest k that ends a run of l + 1 */
    map known = { 0 };        /* hash -> index + 1 */
    for (size_t i = x->i; i < x->n; i++) {
        size_t at = (size_t)(uintptr_t)map_geti(&known, x->a->at[i].hash);
        if (at)
            all.at[at - 1].na++;
        else {
            vec_push(&all, ((anchor){ .i = i, .na = 1 }));
            map_puti(&known, x->a->at[i].hash, (void *)(uintptr_t)all.n);
        }
    }
    for (size_t k = x->k; k < x->m; k++) {
        size_t at = (size_t)(uintptr_t)map_geti(&known, x->b->at[k].hash);
        if (at && equal(&x->a->at[all.at[at - 1].i], &x->b->at[k])) {
            all.at[at - 1].k = k;
            all.at[at - 1].nb++;
        }
    }
    for (size_t q = 0; q < all.n; q++) { /* in order of the first side */
        if (all.at[q].na != 1 || all.at[q].nb != 1)
            continue;
        size_t lo = 0, hi = best.n;
        while (lo < hi) {
            size_t mid = (lo + hi) / 2;
            if (all.at[best.at[mid]].k < all.at[q].k)
                lo = mid + 1;
            else
                hi = mid;
        }
        all.at[q].before = lo ? best.at[lo - 1] + 1 : 0;
        if (lo == best.n)
            vec_push(&best, q);
        else
            best.at[lo] = q;
    }
    size_t n = x->n, m = x->m; /* from the end to the beginning */
    for (size_t q = best.n ? best.at[best.n - 1] + 1 : 0; q; q = all.at[q - 1].before) {
        const anchor *c = &all.at[q - 1];
        x->ka[c->i] = x->kb[c->k] = 1;
        compare(&(part){ x->a, x->b, x->ka, x->kb, c->i + 1, n, c->k + 1, m }, depth + 1);
        n = c->i;
        m = c->k;
    }
    if (best.n)
        compare(&(part){ x->a, x->b, x->ka, x->kb, x->i, n, x->k, m }, depth + 1);
    map_free(&known);
    vec_free(&all);
    vec_free(&best);
}

/* Marks what is equal. A long part without anything to cut it at counts as changed throughout. */
static void compare(const part *whole, int depth)
{
    part x = *whole;
    while (x.i < x.n && x.k < x.m && equal(&x.a->at[x.i], &x.b->at[x.k]))
        x.ka[x.i++] = x.kb[x.k++] = 1;
    while (x.n > x.i && x.m > x.k && equal(&x.a->at[x.n - 1], &x.b->at[x.m - 1]))
        x.ka[--x.n] = x.kb[--x.m] = 1;
    if (x.i == x.n || x.k == x.m)
        return;
    if ((x.n - x.i) * (x.m - x.k) <= 1000000)
        table_compare(&x);
    else if (depth < 20)
        cut_compare(&x, depth);
}

void page_side(page *p, const strbuf *a, const strbuf *b)
{
    lines la = { 0 }, lb = { 0 };
    split(&la, a);
    split(&lb, b);
    uint8_t *ka = mem_zalloc(la.n + 1), *kb = mem_zalloc(lb.n + 1);
    compare(&(part){ &la, &lb, ka, kb, 0, la.n, 0, lb.n }, 0);
    strbuf_add(&p->o, "<div class=\"side\">\n");
    rows(p, &la, &lb, ka, kb);
    strbuf_add(&p->o, "</div>\n");
    free(ka);
    free(kb);
    vec_free(&la);
    vec_free(&lb);
}

static void side_by_side(page *p, report *rb, rp_text ta, rp_text tb)
{
    strbuf a = { 0 }, b = { 0 };
    if (p->shown > RP_PAGE) {
        strbuf_add(&p->o, "<p class=\"dim\">Left out to keep this page usable.</p>\n");
        return;
    }
    load(p->r, ta, &a);
    load(rb, tb, &b);
    p->shown += a.n + b.n;
    page_side(p, &a, &b);
    strbuf_free(&a);
    strbuf_free(&b);
}

/* ---- which compile of one trace is which of the other ---- */
typedef struct pair {
    size_t a, b; /* index + 1, or 0: not there */
} pair;

static void key_of(strbuf *k, const rp_compile *c, bool file, map *count)
{
    strbuf_clear(k);
    strbuf_addf(k, "%s\n%s\n%lld\n", c->func ? c->func : "", file ? base_name(c) : "", (long long)c->compile);
    size_t n = (size_t)(uintptr_t)map_getn(count, k->s, k->n); /* functions of the same name, in order */
    map_putn(count, k->s, k->n, (void *)(n + 1));
    strbuf_addf(k, "%zu", n);
}

/* Pairs up what still stands alone: by function, number of the compile and, with file, name of the file. */
static void pair_up(const report *a, const report *b, pair *x, size_t n, bool file)
{
    map ca = { 0 }, cb = { 0 }, known = { 0 };
    strbuf k = { 0 };
    for (size_t i = 0; i < n; i++)
        if (!x[i].b) {
            key_of(&k, a->compiles.at[x[i].a - 1], file, &ca);
            map_putn(&known, k.s, k.n, &x[i]);
        }
    for (size_t i = 0; i < n; i++)
        if (!x[i].a) {
            key_of(&k, b->compiles.at[x[i].b - 1], file, &cb);
            pair *other = map_getn(&known, k.s, k.n);
            if (other) {
                other->b = x[i].b;
                x[i].b = 0;
            }
        }
    map_free(&ca);
    map_free(&cb);
    map_free(&known);
    strbuf_free(&k);
}

static size_t without_gaps(pair *x, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        if (x[i].a || x[i].b)
            x[k++] = x[i];
    return k;
}

static pair *align(const report *a, const report *b, size_t *n)
{
    pair *out = mem_zalloc(sizeof *out * (a->compiles.n + b->compiles.n + 1));
    *n = 0;
    for (size_t i = 0; i < a->compiles.n; i++)
        if (rp_is_compile(a->compiles.at[i]))
            out[(*n)++] = (pair){ i + 1, 0 };
    for (size_t i = 0; i < b->compiles.n; i++)
        if (rp_is_compile(b->compiles.at[i]))
            out[(*n)++] = (pair){ 0, i + 1 };
    pair_up(a, b, out, *n, true);
    *n = without_gaps(out, *n);
    pair_up(a, b, out, *n, false); /* the second may be a copy of the program under another name */
    *n = without_gaps(out, *n);
    return out;
}

/* The record of b that stands where r stands in a: the same event, the same number of it. */
static const rp_rec *partner(const rp_compile *a, const rp_rec *r, const rp_compile *b)
{
    int want = 0;
    for (size_t i = 0; i < a->recs.n && a->recs.at[i] != r; i++)
        want += !strcmp(a->recs.at[i]->event, r->event) &&
                (strcmp(r->event, "artifact") || !strcmp(a->recs.at[i]->title, r->title));
    for (size_t i = 0; i < b->recs.n; i++)
        if (!strcmp(b->recs.at[i]->event, r->event) &&
            (strcmp(r->event, "artifact") || !strcmp(b->recs.at[i]->title, r->title)) && !want--)
            return b->recs.at[i];
    return NULL;
}

static bool interesting(const rp_rec *r)
{
    return strstr(r->event, "graph") || !strcmp(r->event, "inductor_output_code") ||
           !strcmp(r->title, "fusion") || !strcmp(r->title, "schedule");
}

typedef struct fact {
    const char *name;
    double a, b;
    char how; /* n: number, u: microseconds, B: bytes */
} fact;

static int facts(fact *f, const rp_compile *a, const rp_compile *b)
{
    const fact all[] = { { "operators", (double)a->ops, (double)b->ops, 'n' },
                         { "kernels", (double)a->kernels, (double)b->kernels, 'n' },
                         { "library calls", (double)a->calls, (double)b->calls, 'n' },
                         { "guards", (double)a->nguards, (double)b->nguards, 'n' },
                         { "graph breaks", (double)a->breaks.n, (double)b->breaks.n, 'n' },
                         { "restarts", (double)a->attempts, (double)b->attempts, 'n' },
                         { "bytes moved", (double)a->moved, (double)b->moved, 'B' } };
    int n = 0;
    for (size_t i = 0; i < COUNT(all); i++)
        if (all[i].a != all[i].b)
            f[n++] = all[i];
    return n;
}

static bool differ(report *ra, report *rb, const rp_compile *a, const rp_compile *b)
{
    fact f[16];
    if (rp_status_of(a) != rp_status_of(b) || facts(f, a, b) || a->recompiles.n != b->recompiles.n)
        return true;
    for (size_t i = 0; i < a->recs.n; i++) {
        const rp_rec *r = a->recs.at[i], *o = interesting(r) ? partner(a, r, b) : NULL;
        if (interesting(r) && (!o || (strcmp(o->md5, r->md5) && !same_text(ra, r->text, rb, o->text))))
            return true;
    }
    return false;
}

static void value(page *p, double v, char how)
{
    if (how == 'u')
        page_us(p, v);
    else if (how == 'B')
        page_bytes(p, v);
    else
        strbuf_addf(&p->o, "%.0f", v);
}

static void table_row(page *p, const char *name, double a, double b, char how)
{
    strbuf_addf(&p->o, "<tr><td>%s<td class=\"n\">", name);
    value(p, a, how);
    strbuf_add(&p->o, "<td class=\"n\">");
    value(p, b, how);
    strbuf_add(&p->o, "<td class=\"n\">");
    if (a > 0 && b >= 0 && a != b)
        strbuf_addf(&p->o, "%+.0f\xc2\xa0%%", 100 * (b / a - 1));
    strbuf_addc(&p->o, '\n');
}

static void tags(page *p, report *b, const pair *x)
{
    if (x->a)
        page_tag(p, p->r, x->a - 1, "a");
    strbuf_add(&p->o, x->a && x->b ? " \xe2\x86\x92 " : "");
    if (x->b)
        page_tag(p, b, x->b - 1, "b");
    const rp_compile *c = x->a ? p->r->compiles.at[x->a - 1] : b->compiles.at[x->b - 1];
    strbuf_addc(&p->o, ' ');
    page_place(p, c->func, c->where_file, c->where_line);
}

static void change(page *p, report *rb, const pair *x)
{
    strbuf *o = &p->o;
    fact f[16];
    if (x->a)
        strbuf_addf(o, "<a id=\"a%zu\"></a>", x->a - 1);
    if (x->b)
        strbuf_addf(o, "<a id=\"b%zu\"></a>", x->b - 1);
    strbuf_add(o, "<details class=\"item\" open><summary>");
    tags(p, rb, x);
    strbuf_add(o, "</summary>\n");
    if (!x->a || !x->b) {
        strbuf_addf(o, "<p>Only in the %s trace.</p></details>\n", x->a ? "first" : "second");
        return;
    }
    const rp_compile *a = p->r->compiles.at[x->a - 1], *b = rb->compiles.at[x->b - 1];
    int n = facts(f, a, b);
    if (n) {
        strbuf_add(o, "<div class=\"scroll\"><table><tr><th><th class=\"n\">first<th class=\"n\">second<th "
                      "class=\"n\">change\n");
        for (int i = 0; i < n; i++)
            table_row(p, f[i].name, f[i].a, f[i].b, f[i].how);
        strbuf_add(o, "</table></div>\n");
    }
    for (int k = 0; k < 2; k++) {
        const rp_compile *c = k ? b : a;
        if (c->error) {
            strbuf_addf(o, "<p>Error in the %s trace:</p>", k ? "second" : "first");
            page_text(p, c->error);
        }
    }
    for (size_t i = 0; i < a->recs.n; i++) {
        const rp_rec *r = a->recs.at[i], *q = interesting(r) ? partner(a, r, b) : NULL;
        if (!interesting(r) || (q && (!strcmp(q->md5, r->md5) || same_text(p->r, r->text, rb, q->text))))
            continue;
        strbuf_addf(o, "<details%s><summary>", !strcmp(r->event, "dynamo_output_graph") ? " open" : "");
        esc(p, rp_title(r));
        strbuf_add(o, q ? "</summary>\n" : " <span class=\"dim\">only in the first trace</span></summary>\n");
        if (q)
            side_by_side(p, rb, r->text, q->text);
        strbuf_add(o, "</details>\n");
    }
    for (size_t i = 0; i < b->recs.n; i++)
        if (interesting(b->recs.at[i]) && !partner(b, b->recs.at[i], a)) {
            strbuf_add(o, "<details><summary>");
            esc(p, rp_title(b->recs.at[i]));
            strbuf_add(o, " <span class=\"dim\">only in the second trace</span></summary></details>\n");
        }
    strbuf_add(o, "</details>\n");
    page_flush(p, false);
}

static void overview(page *p, report *rb, size_t changed, size_t same)
{
    rp_counts a = rp_count(p->r), b = rp_count(rb);
    strbuf_addf(&p->o,
                "<section id=\"overview\"><h2>Overview</h2>\n<p class=\"lead\">%zu compile%s differ%s "
                "between the two traces, "
                "%zu %s the same. Compiles are matched by function, file name and count, or without the file "
                "name where that finds nothing; the same line of "
                "text in both is "
                "shown once.</p>\n<div class=\"scroll\"><table><tr><th><th class=\"n\">first<th "
                "class=\"n\">second<th class=\"n\">change\n",
                changed, changed == 1 ? "" : "s", changed == 1 ? "s" : "", same, same == 1 ? "is" : "are");
    table_row(p, "compiles", (double)a.compiles, (double)b.compiles, 'n');
    table_row(p, "recompiles", (double)a.recompiles, (double)b.recompiles, 'n');
    table_row(p, "graph breaks", (double)a.breaks, (double)b.breaks, 'n');
    table_row(p, "errors", (double)a.errors, (double)b.errors, 'n');
    table_row(p, "kernels", (double)a.kernels, (double)b.kernels, 'n');
    table_row(p, "library calls", (double)a.calls, (double)b.calls, 'n');
    table_row(p, "bytes moved", (double)a.moved, (double)b.moved, 'B');
    table_row(p, "compile time", a.seconds * 1e6, b.seconds * 1e6, 'u');
    strbuf_add(&p->o, "</table></div></section>\n");
}

/* The files of the two compiles may have other names: the second's reads like the first's. */
static void meet(const report *a, report *b, const pair *x)
{
    const char *is = x->a && x->b ? base_name(a->compiles.at[x->a - 1]) : "",
               *was = x->a && x->b ? base_name(b->compiles.at[x->b - 1]) : "";
    bool other = *is && *was && strcmp(is, was);
    b->called = other ? was : NULL;
    b->call_it = other ? is : NULL;
}

void page_diff(page *p, report *b)
{
    size_t n, changed = 0;
    pair *x = align(p->r, b, &n);
    bool *is = mem_zalloc(n + 1);
    for (size_t i = 0; i < n; i++) {
        meet(p->r, b, &x[i]);
        is[i] = !x[i].a || !x[i].b ||
                differ(p->r, b, p->r->compiles.at[x[i].a - 1], b->compiles.at[x[i].b - 1]);
        changed += is[i];
    }
    overview(p, b, changed, n - changed);
    strbuf_add(&p->o, "<section id=\"changes\"><h2>Compiles that differ</h2>\n<p class=\"help\">Left is the "
                      "first trace, right "
                      "the second. Lines that are only in one of them are marked - and +.</p>\n");
    for (size_t i = 0; i < n; i++)
        if (is[i]) {
            meet(p->r, b, &x[i]);
            change(p, b, &x[i]);
        }
    strbuf_add(&p->o,
               changed ? "</section>\n"
                       : "<p>None: both traces compiled the same things to the same code.</p></section>\n");
    strbuf_add(&p->o, "<section id=\"same\"><h2>The same in both</h2>\n");
    for (size_t i = 0; i < n; i++)
        if (!is[i]) {
            strbuf_addf(&p->o, "<div class=\"item\"><a id=\"a%zu\"></a><a id=\"b%zu\"></a>", x[i].a - 1,
                        x[i].b - 1);
            tags(p, b, &x[i]);
            strbuf_add(&p->o, "</div>\n");
        }
    strbuf_add(&p->o, n > changed ? "</section>\n" : "<p>None.</p></section>\n");
    free(is);
    free(x);
}
