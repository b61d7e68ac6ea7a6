/* backend.h - what moves the bytes. Private to comm/. All functions are called under the job's lock. */
#ifndef TAPER_COMM_BACKEND_H
#define TAPER_COMM_BACKEND_H
#include "comm/board.h"

typedef struct comm_place { /* of this process in the job */
    int rank, size, local_rank, local_size;
    char key[160];
    char link[512]; /* several hosts: where rank 0 is reached (link.h) */
    int listener;   /* its socket on rank 0, or -1 */
} comm_place;

typedef struct comm_backend {
    const char *name;
    /* p comes with what the caller said; where that is -1 or empty the launcher is asked. */
    bool (*open)(const comm_spec *s, comm_place *p, tp_err *err);
    void (*close)(bool aborted);
    /* Among the members of a group; my: this process's index in ranks. id: equal on all of them, and unique on the host.
     * near: all of them are on this host. */
    void *(*group)(const char *id, const int *ranks, int n, int my, bool near, int64_t deadline, tp_err *err);
    void (*group_free)(void *group);
    /* Collectives of a group are started one at a time, in order; point to point whenever they come. */
    void *(*start)(void *group, const comm_call *c, tp_err *err);
    /* 1 done, 0 not yet, -1 failed. */
    int (*test)(void *group, void *req, int *source, tp_err *err);
    void (*drop)(void *group, void *req);
    /* Waits a little while nothing moves (a millisecond, longer where something wakes it). seen: from mark. */
    uint32_t (*mark)(void *group);
    void (*idle)(void *group, uint32_t seen, int64_t waited_ns);
} comm_backend;
extern const comm_backend comm_shm, comm_mpi;
#endif
