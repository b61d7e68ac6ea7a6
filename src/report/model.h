/* model.h - what the report knows after reading: files, compiles and their records. Private to report. */
#ifndef TAPER_REPORT_MODEL_H
#define TAPER_REPORT_MODEL_H
#include "base/arena.h"
#include "base/json.h"
#include "base/map.h"
#include "base/vec.h"
#include "report/report.h"

enum {
    RP_PAYLOAD = 256 << 10, /* bytes of one payload that are kept */
    RP_FRAMES = 128,        /* frames of one stack that are kept */
    RP_SKIPS = 100,         /* skipped lines that are named one by one */
};

typedef struct rp_frame {
    const char *file, *name, *loc; /* loc may be NULL */
    int64_t line;
} rp_frame;

typedef struct rp_pair {
    const char *key, *val;
} rp_pair;

typedef struct rp_rec { /* a payload to show */
    const char *event, *title, *text;
    size_t n, cut; /* cut: bytes left out */
    int64_t attempt, line;
    bool damaged;              /* the MD5 does not fit */
    const struct rp_rec *same; /* an earlier record of this compile with the same text */
    char md5[33];
} rp_rec;

typedef struct rp_symbol {
    const char *what, *symbol, *val, *range, *source;
} rp_symbol;

typedef enum { RP_ok, RP_break, RP_error, RP_empty, RP_unfinished } rp_status;

typedef struct rp_compile {
    int file; /* index into report.files */
    const char *id;
    int64_t frame, compile, attempts; /* -1: not known; attempts: restarts seen */
    const char *func, *where_file;    /* NULL when nothing told */
    int64_t where_line;
    rp_frame *stack;
    int nstack;
    VEC(rp_rec *) recs;
    VEC(rp_symbol) symbols;
    VEC(rp_pair) metrics;
    VEC(const char *) breaks, recompiles, guards;
    const char *error;
    bool has_metrics, has_graph, has_guards, no_ops;
    double seconds; /* whole compile, < 0 when not recorded */
    double t0, t1;  /* first and last record, seconds of the day */
} rp_compile;

typedef struct rp_file {
    const char *name;
    int64_t rank; /* -1: none */
    int64_t lines, records;
    map strs; /* index -> interned string */
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
    map by_id; /* "file/id" -> rp_compile */
    VEC(rp_skip) skips;
    int64_t nskip, nmd5, nrecord;
    map unknown; /* event name -> count */
};

rp_status rp_status_of(const rp_compile *c);
const char *rp_status_name(rp_status s);
typedef struct rp_counts {
    int64_t compiles, functions, recompiles, breaks, errors, unfinished, restarts;
    double seconds;
    bool has_metrics;
} rp_counts;
rp_counts rp_count(const report *r);
#endif
