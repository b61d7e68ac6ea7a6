/* shim.h - between Taper and the library built around an MPI. Plain C: the shim is compiled on the user's machine by mpicc,
 * with nothing of Taper but this file. Numbers of kinds, operations and types are those of comm.def, comm.h and dtype.def. */
#ifndef TAPER_COMM_SHIM_H
#define TAPER_COMM_SHIM_H
#include <stddef.h>
#include <stdint.h>

enum { SHIM_VERSION = 1, SHIM_WHY = 512 };

typedef struct shim_call {
    int kind, op, dt, size; /* size: bytes of an element */
    int root, tag, inplace;
    int64_t n;
    const void *in;
    void *out;
    const int64_t *in_count, *out_count;
} shim_call;

typedef struct shim_api {
    int version;
    const char *library; /* "Open MPI ...", "MPICH Version ..." */
    int (*open)(int *rank, int *size, int *local_rank, int *local_size, char *why);
    int (*broadcast)(void *p, int nbytes, char *why); /* from rank 0 to all, blocking: for joining */
    void (*close)(void);
    void *(*group)(const int *ranks, int n, int tag, char *why);
    void (*group_free)(void *group);
    void *(*start)(void *group, const shim_call *c, char *why); /* NULL: failed */
    int (*test)(void *req, int *source, char *why);             /* 1 done, 0 not yet, -1 failed */
    void (*drop)(void *req);
} shim_api;
/* The one function that the library exports. */
#define SHIM_ENTRY "taper_mpi_shim"
const shim_api *taper_mpi_shim(void);
#endif
