/* doctor_ranks.c - taper doctor --ranks N: which rank and which collective first differ when the program is compiled. */
#include "cli/doctor.h"
#include "base/file.h"
#include "base/json.h"
#include "base/vec.h"
#include "debug/prints.h"
#include <math.h>
#include <stdio.h>
#include <unistd.h>

typedef VEC(const json_val *) calls;

/* The collectives of one rank in the order in which it called them, out of DIR/rankN.jsonl. */
static void read_calls(const char *dir, int rank, arena *mem, calls *out)
{
    char name[40];
    snprintf(name, sizeof name, "rank%d.jsonl", rank);
    char *path = path_join(dir, name);
    size_t n = 0;
    tp_err err = { 0 };
    char *text = file_read(path, (size_t)1 << 30, &n, &err);
    for (char *line = text, *end; line && line < text + n; line = end + 1) {
        end = memchr(line, '\n', (size_t)(text + n - line));
        if (!end) /* the rank died while it wrote */
            break;
        const json_val *v = json_parse(mem, line, (size_t)(end - line), &err);
        if (v)
            vec_push(out, v);
    }
    free(text);
    unlink(path);
    free(path);
}

static double value(const json_val *v)
{
    const char *s = json_cstr(v);
    return !s                  ? json_f64(v, 0)
           : !strcmp(s, "nan") ? (double)NAN
           : s[0] == '-'       ? -(double)INFINITY
                               : (double)INFINITY;
}

/* Index of the first element of the samples that differs by more than rounding of long sums makes it, or -1. */
static int differs(const json_val *a, const json_val *b)
{
    const json_val *x = json_get(a, "sample"), *y = json_get(b, "sample");
    const char *type = json_cstr(json_get(a, "dtype"));
    bool narrow = type && strstr(type, "float16"); /* bfloat16 too */
    double most = fmax(value(json_get(a, "largest")), value(json_get(b, "largest")));
    double tol = (narrow ? 3e-2 : 1e-3) * (isfinite(most) ? most : 1);
    size_t n = x && y ? MIN(x->n, y->n) : 0;
    for (size_t i = 0; i < n; i++) {
        double u = value(&x->at[i]), v = value(&y->at[i]);
        if (isnan(u) != isnan(v) || (!isnan(u) && u != v && !(fabs(u - v) <= tol)))
            return (int)i;
    }
    double u = value(json_get(a, "sum")), v = value(json_get(b, "sum"));
    double all = tol * (double)MAX(1, json_i64(json_get(a, "elements"), 1));
    return isnan(u) != isnan(v) || (!isnan(u) && u != v && !(fabs(u - v) <= all)) ? 0 : -1;
}

static void call_name(strbuf *b, const json_val *c)
{
    const char *kind = json_cstr(json_get(c, "kind")), *type = json_cstr(json_get(c, "dtype")),
               *where = json_cstr(json_get(c, "where"));
    strbuf_addf(b, "%s number %lld of %lld %s%s%s", kind ? kind : "a message",
                (long long)json_i64(json_get(c, "number"), 0),
                (long long)json_i64(json_get(c, "elements"), 0), type ? type : "values",
                where && *where ? " at " : "", where ? where : "");
}

/* Compares one rank's calls of two runs. Returns how many agree; why gets what differs, if anything does. */
static size_t compare(const calls *plain, const calls *with, strbuf *why)
{
    size_t i = 0;
    for (; i < plain->n && i < with->n; i++) {
        const json_val *a = plain->at[i], *b = with->at[i];
        const char *ka = json_cstr(json_get(a, "kind")), *kb = json_cstr(json_get(b, "kind"));
        if (!ka || !kb || strcmp(ka, kb) ||
            json_i64(json_get(a, "elements"), 0) != json_i64(json_get(b, "elements"), 0)) {
            strbuf_add(why, "it calls ");
            call_name(why, b);
            strbuf_add(why, ", without the compiler ");
            call_name(why, a);
            return i;
        }
        int at = differs(a, b);
        if (at >= 0) {
            call_name(why, b);
            strbuf_addf(why, " gets %.9g, without the compiler %.9g", value(&json_get(b, "sample")->at[at]),
                        value(&json_get(a, "sample")->at[at]));
            return i;
        }
    }
    if (plain->n != with->n)
        strbuf_addf(why, "it makes %zu collective calls, without the compiler %zu", with->n, plain->n);
    return i;
}

static bool recorded(doctor *d, const char *what, const char *dir, bool off, proc_result *r, tp_err *err)
{
    strbuf var = { 0 };
    strbuf_addf(&var, "TAPER_COMM_RECORD=%s", dir);
    const char *vars[] = { strbuf_str(&var), off ? "TAPER_COMPILE_DISABLE=1" : NULL, NULL };
    bool ok = file_mkdirs(dir, err) && doc_step(d, what, vars, r, err);
    strbuf_free(&var);
    return ok;
}

/* The same program as one process: its numbers are those of the whole batch, if the program divides it by ranks. */
static bool alone(doctor *d, tp_err *err)
{
    proc_result r = { 0 };
    strbuf why = { 0 };
    static const char *const off[] = { "TAPER_COMPILE_DISABLE=1", NULL };
    char *n = d->argv[5];
    d->argv[5] = "1";
    bool ok = doc_step(d, "one process, without the compiler", off, &r, err);
    d->argv[5] = n;
    if (ok && !r.status && prints_compare(&d->plain.out, &d->also.out, &r.out, &why)) {
        strbuf text = { 0 };
        for (const char *p = strbuf_str(&why); *p;) { /* which runs these are */
            bool one = !strncmp(p, "(compiled)", 10), many = !strncmp(p, "(eager)", 7);
            if (one || many)
                strbuf_addf(&text, one ? "(one process)" : "(%d ranks)", d->ranks);
            else
                strbuf_addc(&text, *p);
            p += one ? 10 : many ? 7 : 1;
        }
        doc_note(d,
                 "\nWithout the compiler one process prints something else than %d ranks: %s. Ranks that "
                 "together do the "
                 "work of one process print the same.",
                 d->ranks, strbuf_str(&text));
        strbuf_free(&text);
    } else if (ok && !r.status)
        doc_note(d, "\nOne process prints the same as %d ranks.", d->ranks);
    proc_result_free(&r);
    strbuf_free(&why);
    return ok;
}

bool doc_ranks(doctor *d, tp_err *err)
{
    char *plain = path_join(d->out, "ranks_plain"), *with = path_join(d->out, "ranks_compiled");
    proc_result a = { 0 }, b = { 0 };
    arena mem = { 0 };
    size_t first = SIZE_MAX;
    strbuf who = { 0 };
    bool ok = recorded(d, "collectives without the compiler", plain, true, &a, err) &&
              recorded(d, "collectives as it is", with, false, &b, err) && alone(d, err);
    for (int rank = 0; ok && rank < d->ranks; rank++) {
        calls x = { 0 }, y = { 0 };
        strbuf why = { 0 };
        read_calls(plain, rank, &mem, &x);
        read_calls(with, rank, &mem, &y);
        size_t n = compare(&x, &y, &why);
        if (why.n) {
            doc_note(d, "\nRank %d: the first %zu collective%s agree%s, then %s.", rank, n, n == 1 ? "" : "s",
                     n == 1 ? "s" : "", why.s);
            if (n < first) {
                first = n;
                doc_set(&who, "rank %d: %s", rank, why.s);
            }
        } else
            doc_note(d, "\nRank %d: all %zu collectives get the same values compiled.", rank, n);
        strbuf_free(&why);
        vec_free(&x);
        vec_free(&y);
    }
    if (who.n && d->status == DOC_well) { /* nothing else noticed it */
        d->status = DOC_fault;
        doc_set(&d->wrong, "ranks give collectives other values when they are compiled");
    }
    if (who.n)
        doc_set(&d->rank, "%s", who.s);
    rmdir(plain);
    rmdir(with);
    proc_result_free(&a);
    proc_result_free(&b);
    arena_free(&mem);
    strbuf_free(&who);
    free(plain);
    free(with);
    return ok;
}
