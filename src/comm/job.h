/* job.h - the structs behind comm.h. Private to comm/. */
#ifndef TAPER_COMM_JOB_H
#define TAPER_COMM_JOB_H
#include "comm/backend.h"
#include "comm/link.h"
#include "base/vec.h"
#include <pthread.h>

typedef VEC(comm_work *) work_list;
struct comm_job {
    const comm_backend *be;
    comm_place at;
    int64_t timeout_ms;
    board *b;
    size_t board_bytes;
    pthread_mutex_t queue; /* guards incoming and the numbers of calls */
    work_list incoming;
    pthread_mutex_t lock; /* guards works and every call of the back end */
    work_list works;      /* in the order they were started */
    VEC(comm_group *) groups;
    _Atomic int npending, listeners;
    _Atomic uint32_t finished;   /* counts works that ended: waiters sleep on it */
    _Atomic uint32_t background; /* counts works that nobody waits for yet: the worker sleeps on it */
    _Atomic bool closing, acknowledged;
    _Atomic int holding; /* works stay in incoming */
    int64_t aborted_ns;  /* when the watchdog first saw the abort */
    pthread_t worker, watchdog;
    bool has_worker, has_watchdog;
    comm_link *link; /* to the boards of other hosts; NULL: one host, or not the first rank of this one */
    VEC(char *) group_names; /* how often a group of these ranks was made */
};

struct comm_group {
    comm_job *j;
    int n, my;
    int *ranks;    /* of the job */
    uint32_t name; /* short name, equal on its ranks */
    ledger *led;
    size_t led_bytes;
    uint64_t seq;
    void *impl;
    void *on_device; /* of NCCL, or NULL */
};

struct comm_work {
    comm_group *g;
    comm_call c;
    uint64_t seq; /* 0: point to point */
    int64_t since_ns, aborted_ns;
    void *req;
    bool refused; /* by the device's back end, when it was started */
    int64_t *counts;
    _Atomic int state; /* 0 runs, 1 done, -1 failed */
    int source, suspected;
    tp_err err;
};

bool comm_is_p2p(comm_kind k);
void comm_record(const comm_work *w); /* record.c: appends to the file of TAPER_COMM_RECORD, if it is set */
bool comm_progress(comm_job *j);      /* one pass, under lock; true: something ended */
/* watch.c */
bool watch_start(comm_job *j, tp_err *err);
void watch_stop(comm_job *j);
void watch_compare(comm_group *g, uint64_t seq); /* aborts the job when ranks disagree */
void watch_failed(comm_work *w); /* the back end refused it: says which, or who did something else */
bool watch_claim(comm_job *j);   /* the right to say why the job is aborted; publish follows */
void watch_publish(comm_job *j, const char *text);
/* Rank 0: what rank r of another host called, against what the others called under that number. */
bool watch_compare_hosts(comm_job *j, int r,
                         const board_call *c); /* true: claimed, watch_say_hosts follows */
void watch_say_hosts(comm_job *j);
void call_text(strbuf *b, const board_call *c, const comm_job *j);
#endif
