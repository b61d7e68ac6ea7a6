/* doctor.h - what the parts of taper doctor share: runs of the program (doctor_run.c), the graph at fault (doctor_graph.c),
 * capture at fault (doctor_capture.c), the verdict (cmd_doctor.c). */
#ifndef TAPER_DOCTOR_H
#define TAPER_DOCTOR_H
#include "cli/cli.h"
#include "base/crumb.h"
#include "base/json.h"
#include "base/proc.h"

typedef enum { DOC_well, DOC_fault, DOC_undecided } doc_status; /* the exit code */

typedef struct doctor {
    char **argv; /* of python3: the script, or -m MODULE, and arguments */
    int argc;
    char *out;          /* the directory of findings */
    char self[4096];    /* this program */
    char *input;        /* what every run reads from stdin, or NULL */
    size_t n_input;     /* its size */
    int64_t timeout;    /* of one run, ms */
    int64_t passing_ns; /* how long a run takes that ends well */
    bool json;          /* nothing but one object on stdout */
    const char *
        oracle; /* command that reads what the program prints: 0 is right; NULL: runs without the compiler say */
    int ranks;               /* more than 0: the program is one of so many processes */
    bool quarantine;         /* a work-around is written where later runs obey it */
    proc_result plain, also; /* two runs without the compiler: what they agree on counts */
    strbuf table, report;    /* the runs; the rest of the evidence */
    json_w runs;             /* the runs as JSON */
    strbuf runs_text;
    char *crumbs, *regions, *audit; /* files that runs write */
    crumb last;                     /* what the run that failed was doing when it ended */
    bool died;                      /* it crashed or hung, and last says where */
    bool broken;                    /* a graph does not compile */
    bool stuck;                     /* it hangs without the compiler, in an operator */
    bool only_eager; /* it is wrong with backend `eager`, and with none that takes more stages */
    bool alone;      /* the graph that fails in the program passes in a process of its own */
    /* the verdict */
    doc_status status;
    strbuf wrong, prints, stage, operators, place, rewrites, around, condition, rank;
    strbuf takes;     /* beside the sizes, what the failure takes */
    strbuf elements;  /* which of a result are wrong */
    strbuf function;  /* the compiled function at work when it went wrong, NAME@FILE:LINE */
    strbuf unguarded; /* what the inputs of a graph are and it was not compiled for */
    int breaks;       /* of graphs, in the run that compares every result */
    bool inner;       /* of a forward or backward graph, which no guard looks at */
    char *bundle;
} doctor;

void doc_note(doctor *d, const char *fmt, ...) TP_PRINTF(2, 3);
void doc_set(strbuf *b, const char *fmt, ...) TP_PRINTF(2, 3);

/* ---- doctor_run.c ---- */
/* Runs python3 SCRIPT ARGS with these variables ("NAME=value" or NULL); they are unset again afterwards. */
bool doc_run(doctor *d, const char *what, const char *const *vars, proc_result *r, tp_err *err);
/* The same, with a row in the report. */
bool doc_step(doctor *d, const char *what, const char *const *vars, proc_result *r, tp_err *err);
bool doc_failed(const doctor *d, const proc_result *r); /* it ended otherwise than without the compiler */
bool doc_wrong(const doctor *d, const proc_result *r);  /* or printed something else */
void doc_outcome(const doctor *d, const proc_result *r, strbuf *b);
void doc_record(doctor *d, const char *what, const char *outcome, const proc_result *r);
/* Is the program wrong with these variables? 1, 0, or -1 with err. */
int doc_climb(
    doctor *d,
    tp_err *err); /* the first backend of the ladder with which it is wrong; -1: none, -2: with err */
int doc_try(doctor *d, const char *what, const char *const *vars, tp_err *err);
/* Another tool of ours on a saved failure, with one variable (may be NULL): its exit status, or -1. said may be NULL. */
int doc_tool(doctor *d, const char *command, const char *bundle, const char *var, strbuf *said);
/* taper repro on it with each variable (NULL: left out), as many at a time as there are cores: their exit statuses, or -1. */
void doc_repros(doctor *d, const char *bundle, const char *const *vars, int n, int *rcs);

/* ---- doctor_graph.c ---- */
char *doc_bundle_new(const char *out,
                     const char *before); /* the newest that is not `before`, owned, or NULL */
void doc_examine_bundle(doctor *d);
void doc_died_where(doctor *d); /* the stage, place and address that the last crumb tells */
bool doc_work_around(doctor *d, int stage, tp_err *err); /* tries what might help; d->around says what did */

/* ---- bisect_versions.c ---- */
/* list: builds, the oldest first, separated by commas, or commits GOOD..BAD; build (may be NULL): how a commit is built. */
int bisect_versions(const char *bundle, const char *list, const char *build, const char *timeout);

/* No result lies in memory of an earlier one. */
#define DOC_OWN_RESULTS "TAPER_COMPILE_OVERRIDE_INDUCTOR_CONFIGS=>-1:reuse_outputs=False"

/* No size and no number is a symbol. */
#define DOC_STATIC_SIZES "TAPER_STATIC_SIZES=1"

/* ---- doctor_capture.c ---- */
/* Which use of which region, and which instruction, makes the difference. backend: the first that shows it. */
bool doc_hunt(doctor *d, const char *backend, bool capture, tp_err *err);

/* FILE:LINE: the code that stands there, added to b. */
void doc_source_line(const char *file, int line, strbuf *b);

/* ---- doctor_ranks.c ---- */
/* Which rank and which of its collectives first differ when the program is compiled. argv starts the ranks. */
bool doc_ranks(doctor *d, tp_err *err);
#endif
