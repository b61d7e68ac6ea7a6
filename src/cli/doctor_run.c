/* doctor_run.c - the program under examination, run in many ways. */
#include "cli/doctor.h"
#include "base/clock.h"
#include "debug/bisect.h"
#include "debug/prints.h"
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

void doc_note(doctor *d, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    strbuf_addv(&d->report, fmt, ap);
    va_end(ap);
    strbuf_addc(&d->report, '\n');
}

void doc_set(strbuf *b, const char *fmt, ...)
{
    va_list ap;
    strbuf_clear(b);
    va_start(ap, fmt);
    strbuf_addv(b, fmt, ap);
    va_end(ap);
}

/* ---- hangs ---- */
/* A run hangs when it takes ten times as long as one that ends well and what it is doing has not changed for a while. */
typedef struct watch {
    const doctor *d;
    int64_t begun, moved;
    crumb at;
    bool hangs;
} watch;

static bool stands_still(void *data)
{
    watch *w = data;
    crumb now = { 0 };
    int64_t t = clock_ns(), usual = w->d->passing_ns;
    bool any = crumb_read(w->d->crumbs, &now);
    if (any && now.n != w->at.n) {
        w->at = now;
        w->moved = t;
    }
    if (!usual) /* nobody knows how long it takes: an operator that takes so long does not end */
        w->hangs = any && now.eager[0] && t - w->moved > (w->d->stuck ? 5000000000 : 30000000000);
    else
        w->hangs = any && t - w->begun > MAX(3000000000, 10 * usual) &&
                   t - w->moved > MAX(3000000000, 5 * usual);
    return w->hangs;
}

enum { VARS = 16 };
typedef struct env_was { /* what the user had set */
    char *name[VARS], *value[VARS];
    int n;
} env_was;

static void env_put(const char *const *vars, env_was *was)
{
    was->n = 0;
    for (int i = 0; vars && vars[i] && i < VARS; i++) {
        char *name = mem_strndup(vars[i], strcspn(vars[i], "="));
        const char *now = getenv(name);
        was->name[was->n] = name;
        was->value[was->n++] = now ? mem_strdup(now) : NULL;
        setenv(name, vars[i] + strlen(name) + 1, 1);
    }
}

static void env_back(env_was *was)
{
    for (int i = was->n - 1; i >= 0; i--) {
        if (was->value[i])
            setenv(was->name[i], was->value[i], 1);
        else
            unsetenv(was->name[i]);
        free(was->name[i]);
        free(was->value[i]);
    }
}

bool doc_run(doctor *d, const char *what, const char *const *vars, proc_result *r, tp_err *err)
{
    const char **argv = mem_zalloc(sizeof *argv * (size_t)(d->argc + 2));
    watch w = { d, clock_ns(), clock_ns() };
    argv[0] = "python3";
    for (int i = 0; i < d->argc; i++)
        argv[i + 1] = d->argv[i];
    env_was was;
    env_put(vars, &was);
    setenv("TAPER_CRUMBS", d->crumbs, 1);
    setenv("PYTHONHASHSEED", "0", 0); /* sets are printed in one order, unless the user says otherwise */
    unlink(d->crumbs);
    fprintf(stderr, "taper doctor: %s ...\n", what);
    proc *p = proc_start(&(proc_spec){ .argv = argv,
                                       .input = d->input,
                                       .n_input = d->n_input,
                                       .timeout_ms = d->timeout,
                                       .interrupted = stands_still,
                                       .last_word = SIGABRT, /* Python's fault handler names the line */
                                       .data = &w },
                         err);
    memset(r, 0, sizeof *r);
    if (p) {
        proc_wait_any(&p, 1);
        proc_end(p, r);
        r->timed_out |= w.hangs;
        r->interrupted &= !w.hangs;
    }
    unsetenv("TAPER_CRUMBS");
    env_back(&was);
    free(argv);
    return p && (!r->interrupted || err_set(err, ERR_interrupt, "interrupted"));
}

/* ---- what came of it ---- */
bool doc_failed(const doctor *d, const proc_result *r)
{
    return r->status != d->plain.status || r->timed_out || cli_ended_early(r, &d->plain.out);
}

bool doc_wrong(const doctor *d, const proc_result *r)
{
    if (!d->oracle)
        return doc_failed(d, r) || prints_compare(&d->plain.out, &d->also.out, &r->out, NULL);
    proc_result says = { 0 };
    const char *argv[] = { "sh", "-c", d->oracle, NULL };
    bool ok = !r->timed_out && r->status == d->plain.status &&
              proc_run(&(proc_spec){ .argv = argv,
                                     .input = strbuf_str(&r->out),
                                     .n_input = r->out.n,
                                     .timeout_ms = d->timeout },
                       &says, NULL) &&
              !says.status;
    proc_result_free(&says);
    return !ok;
}

void doc_outcome(const doctor *d, const proc_result *r, strbuf *b)
{
    strbuf said = { 0 }, why = { 0 };
    if (!r->timed_out && cli_ended_early(r, &d->plain.out))
        strbuf_add(b, "ends early and without an error");
    else if (r->status || r->timed_out) {
        proc_describe(b, r);
        cli_error_line(&said, strbuf_str(&r->err));
        if (said.n)
            strbuf_addf(b, ": `%s`", strbuf_str(&said));
    } else if (d->plain.status)
        strbuf_add(b, "runs: no error, unlike without the compiler");
    else if (prints_compare(&d->plain.out, &d->also.out, &r->out, &why))
        strbuf_addf(b, "prints something else: %s", strbuf_str(&why));
    else
        strbuf_add(b, "runs");
    strbuf_free(&said);
    strbuf_free(&why);
}

void doc_record(doctor *d, const char *what, const char *outcome, const proc_result *r)
{
    double secs = (double)r->wall_ns / 1e9;
    strbuf_addf(&d->table, "| %s | %s | %.1f s |\n", what, outcome, secs);
    json_obj(&d->runs);
    json_key(&d->runs, "run");
    json_str(&d->runs, what);
    json_key(&d->runs, "outcome");
    json_str(&d->runs, outcome);
    json_key(&d->runs, "seconds");
    json_dbl(&d->runs, secs);
    json_end(&d->runs);
}

bool doc_step(doctor *d, const char *what, const char *const *vars, proc_result *r, tp_err *err)
{
    strbuf how = { 0 };
    if (!doc_run(d, what, vars, r, err))
        return false;
    doc_outcome(d, r, &how);
    doc_record(d, what, strbuf_str(&how), r);
    strbuf_free(&how);
    return true;
}

int doc_try(doctor *d, const char *what, const char *const *vars, tp_err *err)
{
    proc_result r = { 0 };
    int bad = doc_step(d, what, vars, &r, err) ? doc_wrong(d, &r) : -1;
    proc_result_free(&r);
    return bad;
}

int doc_tool(doctor *d, const char *command, const char *bundle, const char *var, strbuf *said)
{
    char limit[32];
    /* a trial does less than the program */
    snprintf(limit, sizeof limit, "%.1f", MAX(0.5, (double)d->passing_ns / 1e9));
    bool small = !strcmp(command, "minify"), ledger = !strcmp(command, "ledger");
    const char *argv[] = { d->self,
                           ledger ? "repro" : command,
                           bundle,
                           "--timeout",
                           d->died ? limit : "20",
                           small    ? "--most"
                           : ledger ? "--ledger"
                                    : NULL,
                           small ? "15" : NULL,
                           NULL },
               *vars[] = { var, NULL };
    proc_result r = { 0 };
    int rc = -1;
    const char *shown = ledger ? "repro --ledger" : command;
    fprintf(stderr, "taper doctor: %s%staper %s ...\n", var ? var : "", var ? " " : "", shown);
    env_was was;
    env_put(vars, &was);
    unlink(d->crumbs);
    setenv("TAPER_CRUMBS", d->crumbs, 1);
    if (proc_run(&(proc_spec){ .argv = argv, .cwd = d->out, .timeout_ms = small ? 60000 : 180000 }, &r,
                 NULL)) {
        rc = r.status;
        if (said)
            doc_note(d, "\n`taper %s %s`:\n\n```\n%s%s```", shown, bundle, strbuf_str(&r.out),
                     rc ? strbuf_str(&r.err) : "");
        if (said)
            strbuf_addn(said, strbuf_str(&r.out), r.out.n);
    }
    unsetenv("TAPER_CRUMBS");
    env_back(&was);
    proc_result_free(&r);
    return rc;
}

void doc_repros(doctor *d, const char *bundle, const char *const *vars, int n, int *rcs)
{
    enum { MOST = 16 };
    proc *live[MOST];
    int which[MOST], count = 0, next = 0, cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    const char *argv[] = { d->self, "repro", bundle, "--timeout", "20", NULL };
    for (int i = 0; i < n; i++)
        rcs[i] = -1;
    while (next < n || count) {
        if (next < n && count < MIN(MAX(cores, 1), MOST)) {
            env_was was;
            int i = next++;
            if (!vars[i])
                continue;
            fprintf(stderr, "taper doctor: %s taper repro ...\n", vars[i]);
            env_put((const char *[]){ vars[i], NULL }, &was);
            proc *p = proc_start(&(proc_spec){ .argv = argv, .cwd = d->out, .timeout_ms = 60000 }, NULL);
            env_back(&was);
            if (p)
                live[count] = p, which[count++] = i;
            continue;
        }
        if (!count)
            break;
        proc_result r = { 0 };
        int k = proc_wait_any(live, count);
        proc_end(live[k], &r);
        rcs[which[k]] = r.timed_out ? -1 : r.status;
        proc_result_free(&r);
        live[k] = live[--count];
        which[k] = which[count];
    }
}

/* ---- the ladder ---- */
/* Is the program wrong with backend i of the ladder? 1, 0, -1 with err. */
static int rung(doctor *d, int i, tp_err *err)
{
    char var[80], what[80];
    snprintf(var, sizeof var, "TAPER_COMPILE_BACKEND=%s", bisect_ladder[i]);
    snprintf(what, sizeof what, "backend `%s`", bisect_ladder[i]);
    return doc_try(d, what, (const char *[]){ var, NULL }, err);
}

int doc_climb(doctor *d, tp_err *err)
{
    int bad = rung(d, 1, err);
    if (bad == 1) {
        bad = rung(d, 0, err);
        return bad < 0 ? -2 : !bad;
    }
    for (int i = 2; !bad && bisect_ladder[i]; i++)
        if ((bad = rung(d, i, err)) == 1)
            return i;
    if (!bad) /* a program may ask for no more than the first, which runs graphs in its own way */
        bad = rung(d, 0, err);
    d->only_eager = bad == 1;
    return bad < 0 ? -2 : bad ? 0 : -1;
}
