/* bisect.c - the ladder of backends, then delta debugging over the answers of decide(): which rewrites must be allowed
 * for the failure to show. Every set found is refused, and the search goes on until nothing fails any more. */
#include "debug/bisect.h"
#include "base/clock.h"
#include "base/proc.h"
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

const char *const bisect_ladder[] = { "eager", "aot_eager", "aot_eager_decomp_partition", "inductor", NULL };

const char *bisect_stage(int i)
{
    static const char *const what[] = { "capture (the graph itself), or the eager kernels",
                                        "the autograd stage: functionalisation, derivatives",
                                        "decompositions or the cut between forward and backward",
                                        "lowering, fusion, memory plan or generated code" };
    return what[i];
}

typedef struct hunt {
    const repro *r;
    const signature *want;
    const trial_limits *l;
    bisect_result *out;
    tp_err *err;
    VEC(bisect_site) all;
    bool *gone;    /* refused for good: in a set that was found */
    int repeats;   /* so often a set is tried again that passes: the failure comes and goes */
    int64_t until; /* then the set is not made smaller one by one any more */
} hunt;

enum { PATIENCE_S = 8 };

/* ---- in the child: who may rewrite ---- */
typedef struct answers {
    map allowed; /* by hash */
    bool all, none, list;
} answers;

static bool answer(void *data, decide_kind k, const char *site, uint64_t hash)
{
    answers *a = data;
    if (a->list) { /* at once: the child may die in the middle of the rewrite */
        strbuf b = { 0 };
        strbuf_addf(&b, "\x03%016llx %s\n", (unsigned long long)hash, site);
        for (size_t at = 0; at < b.n;) {
            ssize_t n = write(STDOUT_FILENO, b.s + at, b.n - at);
            if (n <= 0 && errno != EINTR)
                break;
            at += (size_t)MAX(n, 0);
        }
        strbuf_free(&b);
    }
    return a->all || (!a->none && map_geti(&a->allowed, hash));
}

typedef struct job {
    const repro *r;
    answers *a;
} job;

static int run_child(void *arg)
{
    job *j = arg;
    signature s;
    trial_decided(j->r, (decider){ answer, j->a }, &s);
    trial_print(&s);
    return 0;
}

static bool outcome(hunt *h, answers *a, strbuf *sites, signature *s)
{
    job j = { h->r, a };
    proc_result res = { 0 };
    fflush(NULL);
    if (!proc_run(&(proc_spec){ .fn = run_child,
                                .arg = &j,
                                .timeout_ms = h->l->timeout_ms ? h->l->timeout_ms : 20000,
                                .interrupted = h->l->interrupted,
                                .data = h->l->data },
                  &res, h->err))
        return false;
    trial_read(&res, s);
    h->out->trials++;
    if (sites)
        strbuf_addn(sites, strbuf_str(&res.out), res.out.n);
    proc_result_free(&res);
    return true;
}

static bool fails(hunt *h, answers *a, strbuf *sites, bool *yes)
{
    signature s;
    bool ok = outcome(h, a, sites, &s);
    *yes = ok && sig_equal(&s, h->want);
    return ok;
}

/* Does it fail when exactly these are allowed? */
static bool fails_with(hunt *h, const int *pick, int n, bool *yes)
{
    answers a = { .none = n == 0 };
    for (int i = 0; i < n; i++)
        map_puti(&a.allowed, h->all.at[pick[i]].hash, h);
    bool ok = fails(h, &a, NULL, yes);
    for (int k = 0; k < h->repeats && ok && !*yes; k++)
        ok = fails(h, &a, NULL, yes);
    map_free(&a.allowed);
    return ok;
}

/* ---- in the parent ---- */
static void collect(hunt *h, const char *text)
{
    map seen = { 0 };
    for (const char *s = strchr(text, 3); s; s = strchr(s + 1, 3)) {
        uint64_t hash = strtoull(s + 1, NULL, 16);
        if (strlen(s) < 18)
            break;
        const char *name = s + 18;
        if (map_puti(&seen, hash, h))
            continue;
        bisect_site x = { hash, mem_strndup(name, strcspn(name, "\n")) };
        vec_push(&h->all, x);
    }
    map_free(&seen);
}

/* The first of pick[0..n) that cannot go: with it and those before it fails, without it passes; it alone is left where everything
 * else may stay. Returns how many are left, or -1 with err. */
static int the_one(hunt *h, int *pick, int n)
{
    int lo = 0, hi = n, m = 0, *rest = mem_alloc(sizeof *rest * h->all.n);
    bool yes = false, ok = true;
    while (ok && lo + 1 < hi) {
        int mid = lo + (hi - lo) / 2;
        ok = fails_with(h, pick, mid, &yes);
        *(yes ? &hi : &lo) = mid;
    }
    for (int i = 0; i < (int)h->all.n; i++)
        if (i != pick[hi - 1])
            rest[m++] = i;
    ok = ok && fails_with(h, rest, m, &yes);
    free(rest);
    if (ok && !yes) {
        pick[0] = pick[hi - 1];
        n = 1;
    }
    return ok ? n : -1;
}

/* The smallest part of pick[0..n) with which it fails, by delta debugging; returns how many are left. */
static int reduce(hunt *h, int *pick, int n)
{
    int parts = 2, *rest = mem_alloc(sizeof *rest * (size_t)MAX(n, 1));
    while (n > 1) {
        if (clock_ns() > h->until) {
            n = the_one(h, pick, n);
            break;
        }
        bool won = false, yes;
        for (int k = 0; k < parts && !won; k++)
            for (int complement = 0; complement < 2 && !won && clock_ns() < h->until; complement++) {
                int lo = n * k / parts, hi = n * (k + 1) / parts, m = 0;
                for (int i = 0; i < n; i++)
                    if ((i >= lo && i < hi) != (bool)complement)
                        rest[m++] = pick[i];
                if (m == 0 || m == n)
                    continue;
                if (!fails_with(h, rest, m, &yes)) {
                    free(rest);
                    return -1;
                }
                if (yes) {
                    memcpy(pick, rest, sizeof *pick * (size_t)m);
                    n = m;
                    parts = complement ? MAX(parts - 1, 2) : 2;
                    won = true;
                }
            }
        if (won || (clock_ns() > h->until && n > 1))
            continue;
        if (parts >= n)
            break;
        parts = MIN(parts * 2, n);
    }
    free(rest);
    return n;
}

static bool find_sets(hunt *h, void (*line)(void *, const char *), void *data)
{
    int n = (int)h->all.n;
    int *pick = mem_alloc(sizeof *pick * (size_t)MAX(n, 1));
    bool ok = true, yes;
    h->until = clock_ns() + PATIENCE_S * INT64_C(1000000000);
    for (int round = 0; round < 8 && ok && (!round || clock_ns() < h->until); round++) {
        int m = 0;
        for (int i = 0; i < n; i++)
            if (!h->gone[i])
                pick[m++] = i;
        ok = fails_with(h, pick, m, &yes);
        if (!ok || !yes)
            break;
        m = reduce(h, pick, m);
        ok = m >= 0;
        for (int i = 0; i < m; i++) {
            bisect_site x = { h->all.at[pick[i]].hash, mem_strdup(h->all.at[pick[i]].site) };
            vec_push(&h->out->found, x);
            h->gone[pick[i]] = true;
            if (line)
                line(data, x.site);
        }
        if (m > 0)
            vec_push(&h->out->set, m);
    }
    free(pick);
    return ok;
}

bool bisect(const repro *r, const signature *want, const trial_limits *l,
            void (*line)(void *data, const char *text), void *data, bisect_result *out, tp_err *err)
{
    hunt h = { .want = want, .l = l, .out = out, .err = err };
    repro *x = repro_copy(r);
    bool ok = true, yes = false;
    strbuf sites = { 0 };
    memset(out, 0, sizeof *out);
    out->stage = -1;
    x->accuracy |= want->kind == SIG_accuracy;
    h.r = x;
    for (int i = x->inner ? 3 : 0; bisect_ladder[i] && ok && out->stage < 0; i++) {
        answers all = { .all = true };
        strbuf b = { 0 };
        free(x->backend);
        x->backend = mem_strdup(bisect_ladder[i]);
        x->forward_only = r->forward_only || !i; /* the interpreter alone keeps no tape */
        all.list = true;
        strbuf_clear(&sites);
        ok = fails(&h, &all, &sites, &yes);
        strbuf_addf(&b, "%-28s %s", bisect_ladder[i], !ok ? "?" : yes ? "fails" : "passes");
        if (line)
            line(data, strbuf_str(&b));
        strbuf_free(&b);
        if (ok && yes) {
            out->stage = i;
            out->cut = (i == 1 || i == 2) && want->kind == SIG_accuracy && trial_joint(x);
        }
    }
    if (ok && out->stage >= 0) {
        collect(&h, strbuf_str(&sites));
        out->nsite = (int)h.all.n;
        h.gone = mem_zalloc(MAX(h.all.n, (size_t)1));
        answers all = { .all = true };
        for (int k = 0; k < 2 && ok && want->kind == SIG_accuracy && !h.repeats; k++) {
            ok = fails(&h, &all, NULL, &yes);
            h.repeats = ok && !yes ? 8 : 0;
        }
        ok = fails_with(&h, NULL, 0, &out->without);
        if (ok && !out->without && h.all.n)
            ok = find_sets(&h, NULL, NULL);
    }
    for (size_t i = 0; i < h.all.n; i++)
        free(h.all.at[i].site);
    vec_free(&h.all);
    free(h.gone);
    strbuf_free(&sites);
    repro_free(x);
    return ok;
}

void bisect_free(bisect_result *b)
{
    for (size_t i = 0; i < b->found.n; i++)
        free(b->found.at[i].site);
    vec_free(&b->found);
    vec_free(&b->set);
}

/* ---- one rewrite after the other ---- */
/* What comes of it when the first n sites are allowed. */
static bool first_few(hunt *h, int n, signature *s)
{
    answers a = { .none = n == 0 };
    for (int i = 0; i < n; i++)
        map_puti(&a.allowed, h->all.at[i].hash, h);
    bool ok = outcome(h, &a, NULL, s);
    map_free(&a.allowed);
    return ok;
}

static bool is_wrong(const signature *s) { return s->kind != SIG_passes && s->kind != SIG_cannot_run; }

bool bisect_validate(const repro *r, const trial_limits *l, bisect_step *out, tp_err *err)
{
    enum { ONE_BY_ONE = 48 };
    bisect_result count = { 0 };
    repro *x = repro_copy(r);
    hunt h = { .r = x, .l = l, .out = &count, .err = err };
    answers all = { .all = true, .list = true };
    strbuf sites = { 0 };
    signature s;
    memset(out, 0, sizeof *out);
    x->accuracy = true;
    bool ok = outcome(&h, &all, &sites, &out->after);
    if (ok && is_wrong(&out->after)) {
        collect(&h, strbuf_str(&sites));
        int lo = 0, hi = (int)h.all.n;
        ok = first_few(&h, 0, &out->before);
        if (ok && is_wrong(&out->before)) { /* without any of them, too */
            out->after = out->before;
            out->site = mem_strdup("");
        }
        while (ok && !out->site && lo + 1 < hi) { /* with lo it is right, with hi wrong */
            int at = hi - lo > ONE_BY_ONE ? lo + (hi - lo) / 2 : lo + 1;
            ok = first_few(&h, at, &s);
            if (ok && is_wrong(&s)) {
                hi = at;
                out->after = s;
            } else {
                lo = at;
                out->before = s;
            }
        }
        if (ok && !out->site)
            out->site = mem_strdup(hi > 0 && (size_t)hi <= h.all.n ? h.all.at[hi - 1].site : "");
    }
    out->nsite = (int)h.all.n;
    out->trials = count.trials;
    for (size_t i = 0; i < h.all.n; i++)
        free(h.all.at[i].site);
    vec_free(&h.all);
    strbuf_free(&sites);
    repro_free(x);
    return ok;
}
