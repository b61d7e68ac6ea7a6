/* mpi.c - the back end over MPI, by a library that was built for the one found (shim/). */
#include "comm/backend.h"
#include "comm/link.h"
#include "comm/shim/shim.h"
#include "base/envvars.h"
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static const shim_api *api; /* once a process: MPI can be opened once */
static bool crowded;

typedef struct mpi_req {
    void *req;
    comm_call c;
    int n;
} mpi_req;
typedef struct mpi_group {
    void *impl;
    void *near; /* of comm_shm: all ranks are on this host, and impl stays unused */
    int n, my;
} mpi_group;

static bool load(const char *path, tp_err *err)
{
    const shim_api *(*entry)(void);
    if (api)
        return true;
    /* Open MPI's plug-ins look for its symbols among the global ones. */
    void *dl = path ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
    if (!dl)
        return err_set(err, ERR_runtime, "cannot load the library around MPI: %s",
                       path ? dlerror() : "none was built");
    *(void **)&entry = dlsym(dl, SHIM_ENTRY);
    if (!entry || entry()->version != SHIM_VERSION)
        return err_set(err, ERR_runtime, "'%s' is not of this version of Taper", path);
    api = entry();
    return true;
}

static bool mpi_open(const comm_spec *s, comm_place *p, tp_err *err)
{
    char why[SHIM_WHY] = "";
    int rank, size;
    if (!load(s->shim, err))
        return false;
    if (!api->open(&rank, &size, &p->local_rank, &p->local_size, why))
        return err_set(err, ERR_runtime, "MPI does not start: %s", why);
    if ((p->size >= 0 && p->size != size) || (p->rank >= 0 && p->rank != rank))
        return err_set(
            err, ERR_value,
            "rank %d of %d was asked for, and MPI says rank %d of %d: start the program with mpirun -n %d",
            p->rank, p->size, rank, size, p->size);
    p->rank = rank;
    p->size = size;
    crowded = p->local_size > (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (rank == 0)
        snprintf(p->key, sizeof p->key, "mpi-%d-%llx", (int)getpid(),
                 (unsigned long long)process_born(getpid()));
    if (!api->broadcast(p->key, sizeof p->key, why))
        return err_set(err, ERR_runtime, "MPI does not start: %s", why);
    if (p->local_size == size)
        return true;
    if (rank == 0)
        p->listener = link_listen(p->link, sizeof p->link);
    if (!api->broadcast(p->link, sizeof p->link, why))
        return err_set(err, ERR_runtime, "MPI does not start: %s", why);
    return true;
}
static void mpi_close(bool aborted)
{
    if (!aborted)
        api->close();
}

/* Ranks of one host need no MPI to move bytes. Its collectives that do not block, which are the ones that can be given up when a
 * rank dies, take up to eight times as long as memory that all see (docs/distributed.md). */
static void *mpi_group_new(const char *id, const int *ranks, int n, int my, bool near, int64_t deadline,
                           tp_err *err)
{
    char why[SHIM_WHY] = "";
    const char *told = env_get(ENV_comm_local);
    unsigned tag = 5381;
    for (const char *p = id; *p; p++)
        tag = tag * 33 + (unsigned char)*p;
    mpi_group *g = mem_zalloc(sizeof *g);
    g->n = n;
    g->my = my;
    if (told && *told && strcmp(told, "mpi") && strcmp(told, "shm")) {
        err_set(err, ERR_runtime, "TAPER_COMM_LOCAL=%s: mpi or shm", told);
        free(g);
        return NULL;
    }
    if (near && !(told && strcmp(told, "mpi") == 0)) {
        if ((g->near = comm_shm.group(id, ranks, n, my, near, deadline, err)))
            return g;
        free(g);
        return NULL;
    }
    g->impl = api->group(ranks, n, (int)(tag % 32000), why);
    if (g->impl)
        return g;
    err_set(err, ERR_runtime, "MPI cannot make the group: %s", why);
    free(g);
    return NULL;
}
static void mpi_group_free(void *group)
{
    mpi_group *g = group;
    if (g->near)
        comm_shm.group_free(g->near);
    else
        api->group_free(g->impl);
    free(g);
}

static void *mpi_start(void *group, const comm_call *c, tp_err *err)
{
    mpi_group *g = group;
    char why[SHIM_WHY] = "";
    if (g->near)
        return comm_shm.start(g->near, c, err);
    shim_call s = { c->kind, c->op,  c->dt,           (int)dtype_size(c->dt),
                    c->root, c->tag, c->in == c->out, c->n,
                    c->in,   c->out, c->in_count,     c->out_count };
    mpi_req *r = mem_zalloc(sizeof *r);
    r->c = *c;
    r->n = g->n;
    r->req = api->start(g->impl, &s, why);
    if (r->req)
        return r;
    err_set(err, ERR_runtime, "MPI: %s", why);
    free(r);
    return NULL;
}
static int mpi_test(void *group, void *req, int *source, tp_err *err)
{
    mpi_group *g = group;
    mpi_req *r = req;
    char why[SHIM_WHY] = "";
    if (g->near)
        return comm_shm.test(g->near, req, source, err);
    int state = api->test(r->req, source, why);
    if (state < 0)
        err_set(err, ERR_runtime, "MPI: %s", why);
    if (state > 0 && comm_kind_reduces(r->c.kind) && r->c.op == CRED_avg &&
        (r->c.kind != COMM_reduce || g->my == r->c.root))
        comm_divide(r->c.dt, r->c.out, r->n, r->c.n);
    return state;
}
static void mpi_drop(void *group, void *req)
{
    mpi_group *g = group;
    if (g->near) {
        comm_shm.drop(g->near, req);
        return;
    }
    api->drop(((mpi_req *)req)->req);
    free(req);
}
static uint32_t mpi_mark(void *group)
{
    mpi_group *g = group;
    return g->near ? comm_shm.mark(g->near) : 0;
}
static void mpi_idle(void *group, uint32_t seen, int64_t waited_ns)
{
    mpi_group *g = group;
    if (g->near)
        comm_shm.idle(g->near, seen, waited_ns);
    else if (waited_ns > 2000000)
        nanosleep(&(struct timespec){ 0, waited_ns > 100000000 ? 500000 : 50000 }, NULL);
    else if (crowded || waited_ns > 200000)
        sched_yield();
}

const comm_backend comm_mpi = { "mpi",     mpi_open, mpi_close, mpi_group_new, mpi_group_free,
                                mpi_start, mpi_test, mpi_drop,  mpi_mark,      mpi_idle };
