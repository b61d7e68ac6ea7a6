/* doctor_capture.c - when every graph is right and the program is not: which use of a compiled region makes the difference, whether
 * it ran code that was captured for other values (a guard is missing), and else which instruction is captured wrong. */
#include "cli/doctor.h"
#include "base/file.h"
#include <stdio.h>
#include <unistd.h>

typedef struct use {
    long number;
    bool hit;
    char func[120], file[400], op[40];
    int line, steps, effects;
    char differs[400];  /* "old -> new", or empty */
    char function[160]; /* NAME@FILE:LINE */
} use;

/* The last line of the log. */
static bool last_use(const doctor *d, use *u)
{
    size_t n;
    char *text = file_read(d->regions, 64 << 20, &n, NULL), how[8] = "";
    if (!text || !n) {
        free(text);
        return false;
    }
    text[n - 1] = 0;
    const char *s = strrchr(text, '\n');
    s = s ? s + 1 : text;
    memset(u, 0, sizeof *u);
    const char *bar = strstr(s, " | "), *rest = strstr(s, " steps ");
    bool ok = rest && sscanf(s, "%ld %7s %119s %399[^\n]", &u->number, how, u->func, u->file) == 4 &&
              sscanf(rest, " steps %d at %39s effects %d", &u->steps, u->op, &u->effects) == 3;
    if (ok) {
        char *end = strstr(u->file, " steps ");
        if (end)
            *end = 0;
        end = strrchr(u->file, ':');
        u->line = end ? atoi(end + 1) : 0;
        if (end)
            *end = 0;
    }
    u->hit = !strcmp(how, "hit");
    const char *key = rest ? strstr(rest, " function ") : NULL;
    if (key)
        snprintf(u->function, sizeof u->function, "%.*s", (int)strcspn(key + 10, " \n"), key + 10);
    if (bar)
        snprintf(u->differs, sizeof u->differs, "%.*s", (int)strcspn(bar + 3, "\n"), bar + 3);
    free(text);
    return ok;
}

/* Is the program wrong when only so much is compiled? u gets the last use. */
static int limited(doctor *d, const char *backend, const char *spec, use *u, tp_err *err)
{
    strbuf r = { 0 }, l = { 0 }, b = { 0 }, what = { 0 };
    strbuf_addf(&r, "TAPER_REGIONS=%s", spec);
    strbuf_addf(&l, "TAPER_REGIONS_LOG=%s", d->regions);
    strbuf_addf(&b, "TAPER_COMPILE_BACKEND=%s", backend);
    strbuf_addf(&what, "compiled regions: %s", spec);
    unlink(d->regions);
    int bad = doc_try(d, strbuf_str(&what),
                      (const char *[]){ strbuf_str(&r), strbuf_str(&l), strbuf_str(&b), NULL }, err);
    memset(u, 0, sizeof *u);
    last_use(d, u);
    strbuf_free(&r);
    strbuf_free(&l);
    strbuf_free(&b);
    strbuf_free(&what);
    return bad;
}

/* The smallest n in (lo, hi] for which the program is `bad`, given that hi is. use 0: so many uses are compiled; else so many
 * instructions of that use run as written. -1 with err. */
static long first(doctor *d, const char *backend, long use_, bool bad, long lo, long hi, tp_err *err)
{
    while (lo + 1 < hi) {
        long mid = lo + (hi - lo) / 2;
        char spec[64];
        use u;
        if (use_)
            snprintf(spec, sizeof spec, "%ld+%ld", use_, mid);
        else
            snprintf(spec, sizeof spec, "%ld", mid);
        int got = limited(d, backend, spec, &u, err);
        if (got < 0)
            return -1;
        if (got == (int)bad)
            hi = mid;
        else
            lo = mid;
    }
    return hi;
}

void doc_source_line(const char *file, int line, strbuf *b)
{
    size_t n;
    char *text = file_read(file, 16 << 20, &n, NULL), *s = text;
    for (int i = 1; s && i < line; i++)
        s = (s = strchr(s, '\n')) ? s + 1 : NULL;
    strbuf_addf(b, "%s:%d", file, line);
    if (s && line > 0) {
        s += strspn(s, " \t");
        strbuf_addf(b, ": %.*s", (int)MIN(strcspn(s, "\n"), (size_t)160), s);
    }
    free(text);
}

/* What the first call that differs leaves behind, beside the same call as it is written: into the verdict and the report. */
static bool ask_shadow(doctor *d, const char *backend, tp_err *err)
{
    static const char mark[] = "TAPER_SHADOW: ";
    proc_result r = { 0 };
    strbuf b = { 0 };
    strbuf_addf(&b, "TAPER_COMPILE_BACKEND=%s", backend);
    bool ok = doc_run(d, "beside the functions as they are written",
                      (const char *[]){ "TAPER_SHADOW=1", strbuf_str(&b), NULL }, &r, err);
    const char *s = ok ? strstr(strbuf_str(&r.err), mark) : NULL, *call = s ? strstr(s, ", call ") : NULL,
               *said = call ? strstr(call, ": ") : NULL;
    if (said && strcspn(s, "\n") > (size_t)(said - s)) {
        doc_note(d, "\nBeside the functions as they are written (`TAPER_SHADOW=1`):\n\n```");
        for (const char *t = s; t; t = strstr(t + 1, mark))
            doc_note(d, "%.*s", (int)strcspn(t, "\n"), t);
        doc_note(d, "```");
        static const char plain[] = "capture: an instruction of ", effect[] = "capture: a side effect of ";
        if (strncmp(said + 2, "the result", 10) && !strncmp(strbuf_str(&d->stage), plain, strlen(plain))) {
            char *rest = mem_strdup(d->stage.s + strlen(plain));
            doc_set(&d->stage, "%s%s", effect, rest);
            free(rest);
        }
        strbuf_addf(&d->stage, "; %.*s", (int)MIN(strcspn(said + 2, "\n"), (size_t)240), said + 2);
    }
    strbuf_free(&b);
    proc_result_free(&r);
    return ok;
}

/* Is it right when no result lies in the memory of an earlier one? The other option of that mode stays. 1, 0, -1 with err. */
static int results_meet(doctor *d, tp_err *err)
{
    int bad = doc_try(d, "results in memory of their own",
                      (const char *[]){ DOC_OWN_RESULTS ",trust_guards=True", NULL }, err);
    if (!bad)
        doc_set(&d->stage,
                "the memory of results: a result lies in that of an earlier one which is still in use");
    return bad < 0 ? -1 : !bad;
}

static bool hunt(doctor *d, const char *backend, bool capture, tp_err *err)
{
    use u = { 0 }, other = { 0 };
    char spec[64];
    int bad = limited(d, backend, "1000000000", &u, err);
    if (bad <= 0 || !u.number)
        return bad >= 0; /* it does not show this way */
    long at = first(d, backend, 0, true, 0, u.number, err);
    if (at < 0)
        return false;
    snprintf(spec, sizeof spec, "%ld", at);
    if ((bad = limited(d, backend, spec, &u, err)) < 0)
        return false;
    doc_note(
        d,
        "\nUse %ld of a compiled region is the first that changes what the program does: `%s` (%s:%d), %s.",
        at, u.func, u.file, u.line,
        u.hit ? "code that was captured in an earlier call" : "captured in this call");
    doc_set(&d->place, "%s", "");
    doc_source_line(u.file, u.line, &d->place);
    doc_set(&d->function, "%s", u.function);
    if (u.hit) {
        snprintf(spec, sizeof spec, "%ld!", at);
        bad = limited(d, backend, spec, &other, err);
        if (bad < 0)
            return false;
        if (!bad && !other.differs[0] &&
            (bad = results_meet(d, err))) /* the same graph: no guard is missing */
            return bad > 0;
        if (!bad) {
            doc_set(&d->stage, "guards: code captured for other values was used again in `%s`%s%s%s", u.func,
                    other.differs[0] ? " (captured -> now: " : "", other.differs,
                    other.differs[0] ? ")" : "");
            doc_note(d,
                     "Captured anew in that call, the program is right: a guard is missing, or does not "
                     "notice the change%s%s.",
                     other.differs[0] ? ". The graph changes: " : "", other.differs);
            return true;
        }
    }
    if (!capture)
        return true;
    /* as written, the instruction at fault is right: the first so many that make the program right end with it */
    long step = first(d, backend, at, false, 0, u.steps + 1, err);
    if (step < 0)
        return false;
    snprintf(spec, sizeof spec, "%ld+%ld", at, step - 1);
    other = u;
    if (step > 1 && limited(d, backend, spec, &other, err) < 0)
        return false;
    if (step > u.steps || !other.op[0]) {
        doc_set(&d->stage, "capture: what `%s` returns%s", u.func, u.effects ? " or its side effects" : "");
        return true;
    }
    doc_set(&d->place, "%s", "");
    doc_source_line(other.file, other.line, &d->place);
    bool writes = !strncmp(other.op, "STORE_", 6) || !strncmp(other.op, "DELETE_", 7);
    doc_set(&d->stage, "capture: %s of `%s` (%s)",
            writes      ? "a side effect"
            : u.effects ? "an instruction or a side effect"
                        : "an instruction",
            u.func, other.op);
    doc_note(d,
             "It is right when the first %ld instructions of that region run as written, and wrong when one "
             "fewer does: %s at line %d.",
             step, other.op, other.line);
    return true;
}

/* Captured wrong: is it right when no size is a symbol? */
static bool ask_sizes(doctor *d, tp_err *err)
{
    if (!strncmp(strbuf_str(&d->stage), "capture", 7)) {
        int bad = doc_try(d, "sizes as numbers", (const char *[]){ DOC_STATIC_SIZES, NULL }, err);
        if (bad < 0)
            return false;
        if (!bad) {
            char *rest = mem_strdup(d->stage.s);
            doc_set(&d->stage, "symbolic sizes: with sizes as numbers the program is right; %s", rest);
            free(rest);
        }
    }
    return true;
}

bool doc_hunt(doctor *d, const char *backend, bool capture, tp_err *err)
{
    return hunt(d, backend, capture, err) &&
           (!capture || !d->stage.n || (ask_shadow(d, backend, err) && ask_sizes(d, err)));
}
