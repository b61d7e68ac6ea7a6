/* prints.c - two outputs of one program, word by word. A third, of the same run again, says which words mean nothing. */
#define _GNU_SOURCE /* memrchr */
#include "debug/prints.h"
#include "base/vec.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* Printed numbers have few digits, and a training loop amplifies the last bits of each step. */
#define REL 1e-3
#define ABS 1e-5

typedef struct token {
    const char *s;
    int n;
    bool number, whole, idle; /* idle: a clock, an address: never compared */
    double v, unit;           /* unit: what the last printed digit is worth */
} token;
typedef VEC(token) tokens;
typedef struct line {
    const char *s;
    int n;
} line;
typedef VEC(line) lines;

static bool one_of(const char *list, const char *s, int n) /* list: " a b c " */
{
    for (const char *p = list; *p; p += strcspn(p, " ")) {
        p += strspn(p, " ");
        if (n > 0 && (int)strcspn(p, " ") == n && !strncasecmp(p, s, (size_t)n))
            return true;
    }
    return false;
}

/* Which of several threads or processes came first is chance. */
static bool names_worker(const char *s, int n)
{
    static const char *const names[] = { "ThreadPoolExecutor-", "Thread-", "ForkPoolWorker-",
                                         "SpawnProcess-" };
    for (size_t i = 0; i < COUNT(names); i++)
        if (memmem(s, (size_t)n, names[i], strlen(names[i])))
            return true;
    return false;
}

static bool in_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* The length of the number at s, or 0. before: the character in front of it. */
static int number_at(const char *s, const char *end, char before)
{
    const char *p = s;
    if (in_word(before) || before == '.')
        return 0;
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    for (int i = 0; i < 2; i++) {
        const char *w = i ? "inf" : "nan";
        if (end - p >= 3 && !strncasecmp(p, w, 3) && (end - p == 3 || !in_word(p[3])))
            return (int)(p + 3 - s);
    }
    const char *digits = p;
    while (p < end && isdigit((unsigned char)*p))
        p++;
    int have = (int)(p - digits);
    if (p < end && *p == '.') {
        const char *q = p + 1;
        while (q < end && isdigit((unsigned char)*q))
            q++;
        have += (int)(q - p - 1);
        if (have)
            p = q;
    }
    if (!have)
        return 0;
    if (p < end && (*p == 'e' || *p == 'E')) {
        const char *q = p + 1;
        q += q < end && (*q == '-' || *q == '+');
        if (q < end && isdigit((unsigned char)*q)) {
            while (q < end && isdigit((unsigned char)*q))
                q++;
            p = q;
        }
    }
    return (int)(p - s);
}

static void number_read(token *t)
{
    char buf[64];
    snprintf(buf, sizeof buf, "%.*s", t->n, t->s);
    t->number = true;
    t->v = strtod(buf, NULL);
    t->whole = isfinite(t->v) && !strpbrk(buf, ".eE");
    const char *dot = strchr(buf, '.'), *e = strpbrk(buf, "eE");
    int places = dot ? (int)((e ? e : buf + strlen(buf)) - dot - 1) : 0;
    t->unit = isfinite(t->v) ? pow(10, (e ? atoi(e + 1) : 0) - places) : 0;
}

/* 17:35, 17:35:02, 2026-11-16, 0x7f12ab90: digits of a clock, a calendar or the memory. */
static bool idle_word(const char *s, int n)
{
    static const char history[] =
        "grad_fn=<"; /* the name of the last step: compiled ones are called otherwise */
    int digits = 0, colons = 0, dashes = 0;
    if (n > (int)strlen(history) && !strncmp(s, history, strlen(history)))
        return true;
    if (n > 6 && s[0] == '0' && s[1] == 'x') {
        for (int i = 2; i < n; i++)
            if (!isxdigit((unsigned char)s[i]))
                return i > 6;
        return true;
    }
    for (int i = 0; i < n; i++) {
        digits += isdigit((unsigned char)s[i]) != 0;
        colons += s[i] == ':' && i > 0 && i + 1 < n;
        dashes += s[i] == '-' && i > 0;
        if (!isdigit((unsigned char)s[i]) && !strchr(":-.,T[]", s[i]))
            return false;
    }
    return (digits >= 4 || (digits == 3 && colons)) && (colons || dashes == 2) && dashes != 1;
}

/* A progress bar: times stand in the same brackets as a rate, [00:12<00:03, 4.2it/s]. */
static void idle_brackets(tokens *out)
{
    size_t open = out->n;
    for (size_t i = 0; i < out->n; i++) {
        const token *t = &out->at[i];
        if (t->number)
            continue;
        if (open < out->n && t->n > 3 && (!memcmp(t->s, "it/s", 4) || !memcmp(t->s, "s/it", 4)))
            for (size_t k = open; k < i; k++)
                out->at[k].idle |= out->at[k].number;
        const char *close = memchr(t->s, ']', (size_t)t->n), *from = memrchr(t->s, '[', (size_t)t->n);
        if (close)
            open = out->n;
        if (from && (!close || from > close))
            open = i;
    }
}

static void split(tokens *out, const char *s, const char *end)
{
    static const char units[] =
        " s sec secs second seconds ms msec us usec ns min mins minutes hours it/s s/it fps kb mb gb mib gib "
        "kib gflops tflops x ";
    static const char labels[] =
        " time times elapsed took took: duration speedup latency throughput seconds ms pid runtime ";
    while (s < end) {
        while (s < end && isspace((unsigned char)*s))
            s++;
        const char *e = s;
        while (e < end && !isspace((unsigned char)*e))
            e++;
        if (e == s)
            break;
        if (idle_word(s, (int)(e - s))) {
            vec_push(out, ((token){ .s = s, .n = (int)(e - s), .idle = true }));
            s = e;
            continue;
        }
        bool worker = names_worker(s, (int)(e - s));
        for (const char *p = s; p < e;) { /* numbers and what is between them */
            token t = { .s = p, .n = number_at(p, e, p > s ? p[-1] : ' ') };
            if (t.n)
                number_read(&t);
            else if (e - p > 6 && p[0] == '0' && p[1] == 'x') {
                for (t.n = 2; t.n < e - p && isxdigit((unsigned char)p[t.n]);)
                    t.n++;
                t.idle = t.n > 6;
            } else {
                do
                    t.n++;
                while (p + t.n < e && !number_at(p + t.n, e, p[t.n - 1]) &&
                       !(p[t.n] == '0' && e - p - t.n > 6 && p[t.n + 1] == 'x'));
            }
            t.idle |= worker;
            vec_push(out, t);
            p += t.n;
        }
        s = e;
    }
    for (size_t i = 0; i < out->n; i++) { /* what was measured: 0.2 s, elapsed=0.2 */
        token *t = &out->at[i], *next = i + 1 < out->n ? t + 1 : NULL, *last = i ? t - 1 : NULL;
        if (!t->number)
            continue;
        if (next && !next->number) {
            int n = next->n;
            while (n && strchr(".,;:)]|", next->s[n - 1]))
                n--;
            t->idle |= one_of(units, next->s, n);
        }
        while (last && !last->number && !in_word(last->s[last->n - 1]) && last->n == 1 && last > out->at)
            last--; /* time : 3 */
        if (last && !last->number) {
            int n = last->n, from;
            while (n && !isalpha((unsigned char)last->s[n - 1]))
                n--;
            for (from = n; from && isalpha((unsigned char)last->s[from - 1]);)
                from--;
            t->idle |= one_of(labels, last->s + from, n - from);
        }
    }
    idle_brackets(out);
}

static bool agree(const token *a, const token *b)
{
    if (a->number != b->number)
        return false;
    if (!a->number)
        return a->n == b->n && !memcmp(a->s, b->s, (size_t)a->n);
    if (a->v == b->v || (isnan(a->v) && isnan(b->v)))
        return true;
    if (a->whole && b->whole)
        return false;
    double d = fabs(a->v - b->v), unit = fmax(a->unit, b->unit);
    unit = unit <= 1e-3 ? unit
                        : 0; /* few digits rarely sit where the last bits decide how they are rounded */
    return isfinite(d) && d <= ABS + REL * fmax(fabs(a->v), fabs(b->v)) + 1.01 * unit;
}

static bool equal(const token *a, const token *b)
{
    return a->n == b->n && !memcmp(a->s, b->s, (size_t)a->n);
}

static void lines_of(lines *out, const strbuf *b)
{
    const char *s = strbuf_str(b), *end = s + b->n;
    while (s < end) {
        const char *e = memchr(s, '\n', (size_t)(end - s));
        e = e ? e : end;
        const char *last = e;
        while (last > s && last[-1] == '\r')
            last--;
        const char *over = memrchr(s, '\r', (size_t)(last - s)); /* what stood before it is written over */
        s = over ? over + 1 : s;
        vec_push(out, ((line){ s, (int)(last - s) }));
        s = e + (e < end);
    }
}

static void say(strbuf *why, size_t nr, const char *a, int na, const char *b, int nb)
{
    if (why)
        strbuf_addf(why, "line %zu: %.*s (compiled), %.*s (eager)", nr + 1, MIN(na, 120), a, MIN(nb, 120), b);
}

static prints_kind line_compare(size_t nr, const line *x, const line *y, const line *z, strbuf *why)
{
    tokens a = { 0 }, b = { 0 }, c = { 0 };
    prints_kind k = PRINTS_same;
    split(&a, x->s, x->s + x->n);
    split(&b, y->s, y->s + y->n);
    split(&c, z->s, z->s + z->n);
    if (a.n != b.n) /* the line itself is another one each time */
        goto done;
    if (a.n != c.n) {
        for (size_t i = 0; i < a.n; i++)
            if (!a.at[i].number && !a.at[i].idle && !equal(&a.at[i], &b.at[i]))
                goto done; /* words that come and go may split otherwise, too */
        say(why, nr, z->s, z->n, x->s, x->n);
        k = PRINTS_text;
        goto done;
    }
    for (size_t i = 0; i < a.n && !k; i++) {
        const token *e = &a.at[i], *g = &c.at[i];
        if (e->idle || g->idle || !equal(e, &b.at[i]) || agree(e, g))
            continue;
        k = e->number && g->number ? PRINTS_numbers : PRINTS_text;
        if (k == PRINTS_numbers)
            say(why, nr, g->s, g->n, e->s, e->n);
        else
            say(why, nr, z->s, z->n, x->s, x->n);
    }
done:
    vec_free(&a);
    vec_free(&b);
    vec_free(&c);
    return k;
}

static double apart(double x, double y) /* of the larger of them */
{
    return x == y ? 0 : fabs(x - y) / fmax(fabs(x), fabs(y));
}

/* How many times farther than near the numbers of got are from eager, at most, beside the other numbers of the line; INFINITY: more than
 * numbers differ. */
static double line_rounded(const line *x, const line *y, const line *near, const line *z)
{
    tokens t[4] = { 0 };
    const line *const of[] = { x, y, near, z };
    double moves = 0, off = 0;
    for (int i = 0; i < 4; i++)
        split(&t[i], of[i]->s, of[i]->s + of[i]->n);
    if (t[0].n != t[1].n || t[0].n != t[2].n || t[0].n != t[3].n)
        off = INFINITY;
    for (size_t i = 0; off < INFINITY && i < t[0].n; i++) {
        const token *e = &t[0].at[i], *n = &t[2].at[i], *g = &t[3].at[i];
        if (e->idle || g->idle || !equal(e, &t[1].at[i]))
            continue;
        bool numbers = e->number && g->number && n->number && isfinite(e->v) && isfinite(g->v);
        if (numbers)
            moves = fmax(moves, apart(n->v, e->v));
        if (!agree(e, g))
            off = numbers ? fmax(off, apart(g->v, e->v)) : INFINITY;
    }
    for (int i = 0; i < 4; i++)
        vec_free(&t[i]);
    return off == 0 ? 0 : moves == 0 ? INFINITY : off / moves;
}

double prints_rounded(const strbuf *eager, const strbuf *again, const strbuf *near, const strbuf *got)
{
    lines a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };
    lines_of(&a, eager);
    lines_of(&b, again);
    lines_of(&c, near);
    lines_of(&d, got);
    double most = a.n == b.n && a.n == c.n && a.n == d.n ? 0 : INFINITY;
    for (size_t i = 0; most < INFINITY && i < a.n; i++)
        most = fmax(most, line_rounded(&a.at[i], &b.at[i], &c.at[i], &d.at[i]));
    vec_free(&a);
    vec_free(&b);
    vec_free(&c);
    vec_free(&d);
    return most;
}

static int by_text(const void *p, const void *q) { return strcmp(*(char *const *)p, *(char *const *)q); }
/* Its lines without what is never compared, in the order of their text. Owned, like each of them. */
static char **sorted(const strbuf *b, size_t *n)
{
    lines l = { 0 };
    lines_of(&l, b);
    char **out = mem_alloc(sizeof *out * (l.n + 1));
    for (size_t i = 0; i < l.n; i++) {
        strbuf s = { 0 };
        tokens t = { 0 };
        split(&t, l.at[i].s, l.at[i].s + l.at[i].n);
        for (size_t k = 0; k < t.n; k++)
            if (!t.at[k].idle)
                strbuf_addn(&s, t.at[k].s, (size_t)t.at[k].n);
        strbuf_addc(&s, 0);
        out[i] = strbuf_take(&s);
        vec_free(&t);
    }
    qsort(out, l.n, sizeof *out, by_text);
    *n = l.n;
    vec_free(&l);
    return out;
}

bool prints_reordered(const strbuf *a, const strbuf *b)
{
    size_t n, m;
    char **x = sorted(a, &n), **y = sorted(b, &m);
    bool same = n == m;
    for (size_t i = 0; i < n && same; i++)
        same = !strcmp(x[i], y[i]);
    for (size_t i = 0; i < n; i++)
        free(x[i]);
    for (size_t i = 0; i < m; i++)
        free(y[i]);
    free(x);
    free(y);
    return same;
}

prints_kind prints_compare(const strbuf *eager, const strbuf *again, const strbuf *got, strbuf *why)
{
    lines a = { 0 }, b = { 0 }, c = { 0 };
    prints_kind k = PRINTS_same;
    lines_of(&a, eager);
    lines_of(&b, again);
    lines_of(&c, got);
    bool steady = a.n == b.n; /* else lines come and go by themselves: those that line up are compared */
    size_t n = MIN(MIN(a.n, b.n), c.n);
    for (size_t i = 0; i < n && !k; i++) {
        if (!steady && (a.at[i].n != b.at[i].n || memcmp(a.at[i].s, b.at[i].s, (size_t)a.at[i].n)))
            break;
        k = line_compare(i, &a.at[i], &b.at[i], &c.at[i], why);
    }
    if (!k && steady && a.n != c.n) {
        k = PRINTS_lines;
        if (why)
            strbuf_addf(why, "it prints %zu line%s compiled, %zu without the compiler", c.n,
                        plural((int64_t)c.n), a.n);
    }
    vec_free(&a);
    vec_free(&b);
    vec_free(&c);
    return k;
}
