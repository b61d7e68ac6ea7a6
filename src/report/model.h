/* model.h - what the report knows after reading: files, compiles and where their records lie. Private to report.
 * Payloads stay in the files: a record holds an offset, and what the page shows is read again when it is written. So
 * memory grows with the number of compiles, not with the size of the trace. */
#ifndef TAPER_REPORT_MODEL_H
#define TAPER_REPORT_MODEL_H
#include "base/arena.h"
#include "base/json.h"
#include "base/map.h"
#include "base/vec.h"
#include "report/report.h"

enum {
    RP_HEAD = 64 << 10,     /* bytes of a payload that are looked at while reading */
    RP_PAYLOAD = 256 << 10, /* bytes of one payload that are shown */
    RP_PAGE = 24 << 20,     /* bytes of payloads that one page shows */
    RP_LINE = 16 << 20,     /* longest envelope line */
    RP_TEXT = 16 << 10,     /* longest message that is kept */
    RP_FRAMES = 128,        /* frames of one stack */
    RP_SKIPS = 1000,        /* skipped lines that are named one by one */
    RP_COMPILES = 20000,    /* compiles that are shown */
    RP_RECS = 256,          /* records of one compile */
    RP_SYMBOLS = 256,       /* symbols of one compile */
    RP_SOURCES = 20000,     /* functions whose source is shown */
    RP_LINES = 500000,      /* lines of the program that are known to be in graphs */
};

typedef struct rp_text { /* a piece of a trace file */
    int file;
    int64_t off, n;
} rp_text;

typedef struct rp_frame {
    const char *file, *name, *loc; /* loc may be NULL */
    int64_t line;
} rp_frame;

typedef struct rp_rec { /* a payload to show */
    const char *event, *title;
    rp_text text; /* with the tabs */
    int64_t attempt, line;
    bool damaged;              /* the MD5 does not fit */
    const struct rp_rec *same; /* an earlier record of this compile with the same text */
    char md5[33];
} rp_rec;

typedef struct rp_symbol {
    const char *what, *symbol, *val, *range, *source, *why;
} rp_symbol;

typedef struct rp_cache { /* what the disk cache had of a graph */
    const char *what;     /* hit, miss, bypass */
    const char *part, *reason;
    int64_t bytes;
} rp_cache;

typedef enum { RP_ok, RP_break, RP_error, RP_empty, RP_unfinished } rp_status;

/* The stages a compile spends its time in, and the field of compilation_metrics that tells. */
enum { RP_STAGES = 6 };
extern const struct rp_stage {
    const char *key, *name, *field, *help;
} rp_stages[RP_STAGES];

typedef struct rp_compile {
    int file;     /* index into report.files */
    size_t index; /* in report.compiles */
    const char *id;
    int64_t frame, compile, attempts; /* -1: not known; attempts: restarts seen */
    const char *func, *where_file;    /* NULL when nothing told */
    int64_t where_line;
    rp_frame *stack;
    int nstack;
    VEC(rp_rec *) recs;
    VEC(rp_symbol) symbols;
    VEC(rp_text) metrics;                 /* the metadata, to be read again */
    VEC(const char *) breaks, recompiles; /* messages */
    VEC(const char *) failed;             /* guards of this compile that a later call did not pass */
    VEC(rp_cache) cache;
    VEC(const char *) hints, saved;   /* what keeps it from being faster; where a failing graph lies */
    VEC(const char *) dynamic, exprs; /* why sizes were made symbolic; guards on symbols */
    rp_text guards;                   /* dynamo_guards; file -1: none */
    const char *error, *restart;      /* restart: the reason metrics gave */
    bool has_metrics, has_graph, has_guards, no_ops, dropped;
    bool refused;                /* not compiled at all: too many versions, only the reason is told */
    double seconds, bwd_seconds; /* < 0 when not recorded */
    double start;                /* of the compile, seconds since 1970; 0: not recorded */
    double stage[RP_STAGES];     /* microseconds, forward and backward */
    int64_t nguards, ops, kernels, calls, moved, hits, misses;
    /* calls of the compiled region */
    int64_t ran;
    double first_us, warm_us, best_us, eager_us; /* < 0: not recorded */
} rp_compile;

typedef struct rp_ledger {
    int file;
    const char *func, *src, *reason; /* reason may be NULL */
    int64_t line, frame, version, ops, compiled, eager;
} rp_ledger;

typedef struct rp_place { /* a graph break, however many compiles ended at it */
    const char *msg;      /* the message that tells most of the way to it */
    VEC(size_t) at;       /* those compiles; a function that had nothing to compile before it is none */
    bool loop;            /* reached again by what runs behind it */
} rp_place;

typedef struct rp_source { /* a traced function */
    const char *file, *name;
    int64_t line;
    rp_text text; /* JSON with its lines */
} rp_source;

typedef struct rp_file {
    const char *name, *path; /* path NULL: text is in memory */
    const char *text;
    int64_t rank; /* -1: none */
    int64_t lines, records, bytes;
    map strs;               /* index -> interned string */
    VEC(const char *) open; /* phases that began and did not end */
} rp_file;

typedef struct rp_skip {
    int file;
    int64_t line;
    const char *why;
} rp_skip;

struct report {
    arena mem;
    VEC(rp_file) files;
    VEC(rp_compile *) compiles;
    VEC(rp_ledger) ledger;
    VEC(rp_place) places; /* in the order in which they were met */
    VEC(rp_source) sources;
    map source_known; /* "file:line" and digest of those */
    map in_graph;     /* "file:line" of lines that became part of a graph */
    map by_id;        /* "file/id" -> rp_compile */
    VEC(rp_skip) skips;
    int64_t nskip, nmd5, nrecord, ndropped; /* ndropped: compiles beyond RP_COMPILES */
    map unknown;                            /* event name -> count */
    map secret;                             /* words found where the program's own names stand */
    map hidden;                             /* identifiers that redaction replaces -> number */
    struct report *with; /* the other side of a comparison: its words have the same numbers */
    bool redact;
    const char *called,
        *call_it; /* of a comparison: the file of the compile at hand, and how the other trace calls it */
    int open_file, fd; /* the file that payloads are read from now; -1: none */
};

const char *rp_title(const rp_rec *r);
rp_status rp_status_of(const rp_compile *c);
const char *rp_status_name(rp_status s);
bool rp_is_compile(const rp_compile *c); /* not the records outside any */
/* No version fitted. A function is compiled again also when compile() is called for it once more, say with another
 * backend; then the metrics hold no reason. */
bool rp_is_again(const rp_compile *c);
/* Place and reason of a graph break's message. False: it has another form. */
bool rp_break_parts(const char *msg, const char **at, size_t *nat, const char **why, size_t *nwhy);
typedef struct rp_counts {
    int64_t compiles, functions, recompiles, breaks, errors, unfinished, restarts; /* breaks: places */
    int64_t kernels, calls, moved, hits, misses, runs, eager_runs;
    int64_t disk_hits, disk_misses, disk_unused;
    double seconds, stage[RP_STAGES],
        failed; /* failed: microseconds of compiles that ended in an error, beside stages */
    bool has_metrics;
} rp_counts;
rp_counts rp_count(const report *r);
void rp_finish(report *r); /* after reading: what needs all compiles */

/* At most limit bytes of a payload, without the tabs. The length is in out->n. */
void rp_load(report *r, rp_text t, size_t limit, strbuf *out);
/* How a recompile can be avoided, in words. */
const char *rp_advice(const char *reason);
/* The rest of the line that starts with key (after spaces), in a message; NULL when there is none. */
const char *rp_line_of(const char *msg, const char *key, size_t *n);
/* The next line "0/1: reason" of a recompile message, a dash before it or not; *at moves behind it. NULL: no more. */
const char *rp_next_reason(const char **at, size_t *n);
/* "expected 3, actual 5" of a reason. False: it tells no values. */
bool rp_values(const char *reason, char *was, char *now, size_t n);
/* Redaction, while reading: every word of s is the program's; what stands at the places of names in this line is. */
void rp_private(report *r, const char *s, size_t n);
void rp_private_line(report *r, const char *s, size_t n);
/* s with every name, path and source line replaced when the report is redacted; as it is otherwise. */
void rp_hide(report *r, strbuf *out, const char *s, size_t n);
const char *rp_hidden(report *r, const char *s); /* the same, kept; NULL stays NULL */

/* ---- writing pages ---- */
typedef struct page {
    report *r;
    strbuf o; /* not written yet */
    int fd;   /* -1: everything stays in o */
    bool bad; /* a write failed; errno is in err */
    int err;
    size_t shown;    /* bytes of payloads so far */
    size_t left_out; /* payloads that were too many */
    size_t pictured; /* boxes in pictures so far */
} page;
void page_flush(page *p, bool all);
void esc(page *p, const char *s); /* user text, escaped and redacted */
void escn(page *p, const char *s, size_t n);
void page_code(page *p, const char *s, size_t n); /* <pre> with highlighting */
void page_text(page *p, const char *s);           /* <pre> of a message, its lines wrapped */
void page_head(page *p, const char *title);
void page_foot(page *p);
void page_tag(page *p, const report *r, size_t i, const char *anchor);
void page_function(page *p, const char *func); /* its name; what runs after a break by its line */
void page_place(page *p, const char *func, const char *file, int64_t line);
/* The picture of a graph; fused: the fusion decisions made about it, or NULL. */
void page_picture(page *p, const char *text, size_t n, const char *fused, size_t nfused);
void page_line(page *p, const char *s, size_t n); /* one line of code, highlighted */
void page_source(page *p);                        /* the section of the program's functions */
bool page_memory(page *p,
                 const rp_rec *r); /* the record "memory" as a plot; false: it is not the JSON we know */
bool page_rewrites(page *p, const rp_rec *r); /* the record "rewrites", step by step; false as above */
void page_side(page *p, const strbuf *a, const strbuf *b); /* two texts side by side, what differs marked */
void page_compiles(page *p);
void page_next(page *p, const rp_counts *n); /* what to do next */
void page_diff(page *p, report *b);          /* p->r is the first trace, b the second */
const char *rp_css(rp_status s);
void page_us(page *p, double us); /* a time with its unit */
void page_bytes(page *p, double n);
#endif
