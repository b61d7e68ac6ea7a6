/* comm.h - processes that work together: a job, groups of its ranks, collectives as works that are started and waited for.
 * Knows bytes of the host or of a device, dtypes and processes. May not know tensors' owners, graphs or Python.
 *
 * A job is one process's membership. Ranks of one host share a board (board.h): who is where, who has left, why the job was
 * aborted. A watchdog thread looks at it: a work that waits longer than the time-out, for a rank that is gone, or whose
 * partners do something else, aborts the job on every rank with one text that names the culprit. */
#ifndef TAPER_COMM_H
#define TAPER_COMM_H
#include "base/base.h"
#include "base/err.h"
#include "base/strbuf.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

enum { COMM_MAX_RANKS = 256, COMM_WHERE = 120, COMM_NCCL_ID = 128 };

typedef enum {
#define COMM(name, in, out, root, reduces) COMM_##name,
#include "comm/comm.def"
    COMM_KINDS
} comm_kind;
const char *comm_kind_name(comm_kind k);
bool comm_kind_reduces(comm_kind k);
bool comm_kind_has_root(comm_kind k);

/* avg divides the sum by the number of ranks once, at the end. Bits are for integers and bool. */
typedef enum {
    CRED_sum,
    CRED_avg,
    CRED_prod,
    CRED_min,
    CRED_max,
    CRED_band,
    CRED_bor,
    CRED_bxor,
    CRED_COUNT
} comm_red;
extern const char *const comm_red_names[CRED_COUNT];
/* acc[i] = acc[i] op x[i]. Narrow floats are combined in f32 by the back ends that can see all ranks at once. */
void comm_reduce(dtype dt, comm_red op, void *acc, const void *x, int64_t n);
/* out[i] = x[0][i] op x[1][i] op ... in this order, rounded once: the same bits on every rank. */
void comm_reduce_all(dtype dt, comm_red op, void *out, const void *const *x, int nx, int64_t n);
bool comm_red_fits(dtype dt, comm_red op, tp_err *err);
void comm_divide(dtype dt, void *p, int nx, int64_t n); /* the rest of avg after sum */

typedef struct comm_call {
    comm_kind kind;
    comm_red op;
    dtype dt;
    int root;     /* rank in the group: root, or the other side of send and recv; recv: -1 is any */
    int tag;      /* of send and recv */
    int64_t n;    /* elements, see comm.def */
    tp_device on; /* whose memory in and out are; not the host's: the group has been joined on that device */
    void *after;  /* private: where the caller's queue of the device was */
    const void *in; /* may be out itself (all_reduce, reduce, broadcast) */
    void *out;
    const int64_t *in_count, *out_count; /* all_to_all: elements to and from each rank; NULL: n each */
    char where[COMM_WHERE];              /* the user's line */
} comm_call;

typedef struct comm_job comm_job;
typedef struct comm_group comm_group;
typedef struct comm_work comm_work;

typedef struct comm_spec {
    const char *backend; /* "shm" or "mpi" */
    const char *key;     /* names the job on this host: equal on its ranks, unlike that of other jobs */
    const char *shim;    /* mpi: the library around the MPI found */
    int rank, size;      /* mpi: -1, the launcher says */
    int64_t timeout_ms;  /* of joining and of every work */
} comm_spec;

comm_job *comm_open(const comm_spec *s, tp_err *err); /* one a process; returns when every rank is there */
void comm_close(comm_job *j); /* leaves: waits for works in progress, gives up groups */
int comm_rank(const comm_job *j);
int comm_size(const comm_job *j);
int64_t comm_timeout_ms(const comm_job *j);

/* Called by the members alone, in the same order for equal lists of ranks. Ranks of the group are indices of the list.
 * Groups live as long as the job. */
comm_group *comm_group_new(comm_job *j, const int *ranks, int n, tp_err *err);
int comm_group_rank(const comm_group *g);
/* NCCL: looked for in `folder` (or NULL) where the loader does not find it. One rank makes an id (COMM_NCCL_ID bytes), all ranks of the group join by it. */
bool comm_nccl_version(const char *folder, int *version, tp_err *err);
bool comm_nccl_id(const char *folder, char *id, tp_err *err);
bool comm_group_on(comm_group *g, tp_device on, const char *id, tp_err *err);
tp_device comm_group_device(const comm_group *g); /* the one it was joined on, or the CPU */
/* While held, sends and receives are collected: then they start together. Counted. */
void comm_hold(comm_job *j, bool hold);
int comm_group_size(const comm_group *g);

/* The buffers belong to the caller and stay until the work is done. counts are copied. */
comm_work *comm_start(comm_group *g, const comm_call *c, bool background, tp_err *err);
/* At most ms milliseconds (-1: until it is done). False: failed or aborted; see comm_abort_text. */
bool comm_wait(comm_work *w, int64_t ms, bool *done, tp_err *err);
bool comm_test(comm_work *w, bool *done, tp_err *err);
int comm_work_source(const comm_work *w); /* recv: the rank it came from */
void comm_work_free(comm_work *w);        /* waits first when it still runs */

/* --- faults --------------------------------------------------------------------------------------------- */
/* Aborts the job with this text, on every rank of this host; the first text counts. */
void comm_abort(comm_job *j, const char *text);
/* The text of the abort, or NULL. Whoever shows it says comm_acknowledge, or the process is ended after a while. */
const char *comm_abort_text(comm_job *j);
void comm_acknowledge(comm_job *j);
/* The same, and waits until every rank has, three seconds at most: launchers end the others as soon as one ends. */
void comm_wait_acknowledged(comm_job *j);
void comm_note(comm_job *j, const char *text); /* why this rank is about to end: an exception, say */
/* Blocks until somebody wants this rank's stack (1: answer with comm_stack), the job is aborted and nobody here has
 * acknowledged that in time (2: end the process) or comm_close was called (0). */
int comm_listen(comm_job *j);
void comm_stack(comm_job *j, const char *text);
void comm_status(comm_job *j, strbuf *out); /* a line a rank: where it stands */
#endif
