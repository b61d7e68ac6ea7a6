/* mpi_shim.c - MPI behind shim.h. Built once for each MPI that is found: their handles differ in type and size.
 * All collectives are the non-blocking ones: the caller tests them, so that it can notice that the job was aborted. */
#include "shim.h"
#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>

enum {
    K_barrier,
    K_all_reduce,
    K_reduce,
    K_broadcast,
    K_all_gather,
    K_gather,
    K_scatter,
    K_reduce_scatter,
    K_all_to_all,
    K_send,
    K_recv
};
enum { D_bool, D_u8, D_i8, D_i16, D_i32, D_i64, D_f16, D_bf16, D_f32, D_f64, D_COUNT };
enum { R_sum, R_avg, R_prod, R_min, R_max, R_band, R_bor, R_bxor, R_COUNT };

typedef struct group {
    MPI_Comm comm;
    int n, my;
} group;
typedef struct req {
    MPI_Request r;
    int *counts; /* of all_to_all: kept until it is done */
} req;

static MPI_Datatype type_f16, type_bf16;
static MPI_Op narrow_op[2][4]; /* f16, bf16; sum, prod, min, max */
static int ours;               /* we called MPI_Init_thread */
static char library[MPI_MAX_LIBRARY_VERSION_STRING];

static int failed(int rc, char *why)
{
    int n = 0;
    char text[MPI_MAX_ERROR_STRING] = "";
    if (rc == MPI_SUCCESS)
        return 0;
    MPI_Error_string(rc, text, &n);
    snprintf(why, SHIM_WHY, "%.500s", text);
    return 1;
}

/* --- sums of 16-bit floats, which MPI does not know ------------------------------------------------------ */
static float from_bf16(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static uint16_t to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return 0x7fc0;
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}
static float from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = (h >> 10) & 31, m = h & 1023, u;
    float f;
    if (e == 31)
        u = sign | 0x7f800000u | m << 13;
    else if (e)
        u = sign | (e + 112) << 23 | m << 13;
    else {
        f = (float)m * 0x1p-24f;
        memcpy(&u, &f, 4);
        u |= sign;
    }
    memcpy(&f, &u, 4);
    return f;
}
static uint16_t to_f16(float f)
{
    uint32_t u, a;
    memcpy(&u, &f, 4);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return sign | 0x7e00;
    if (a >= 0x477ff000u) /* rounds to infinity */
        return sign | 0x7c00;
    if (a < 0x38800000u) { /* subnormal: adding 0.5 puts the bits where they belong, rounded */
        float g;
        uint32_t v;
        memcpy(&g, &a, 4);
        g += 0.5f;
        memcpy(&v, &g, 4);
        return sign | (uint16_t)(v - 0x3f000000u);
    }
    return sign | (uint16_t)((a - 0x38000000u + 0xfff + (a >> 13 & 1)) >> 13);
}
#define NARROW(T, name, e)                                                      \
    static void T##_##name(void *in, void *inout, int *n, MPI_Datatype *unused) \
    {                                                                           \
        const uint16_t *p = in;                                                 \
        uint16_t *q = inout;                                                    \
        (void)unused;                                                           \
        for (int i = 0; i < *n; i++) {                                          \
            float a = from_##T(p[i]), b = from_##T(q[i]);                       \
            q[i] = to_##T(e);                                                   \
        }                                                                       \
    }
#define NARROW_ALL(T)                       \
    NARROW(T, sum, a + b)                   \
    NARROW(T, prod, a *b)                   \
    NARROW(T, min, a < b || a != a ? a : b) \
    NARROW(T, max, a > b || a != a ? a : b)
NARROW_ALL(f16)
NARROW_ALL(bf16)

static void make_narrow(void)
{
    MPI_User_function *const f[2][4] = { { f16_sum, f16_prod, f16_min, f16_max },
                                         { bf16_sum, bf16_prod, bf16_min, bf16_max } };
    MPI_Type_contiguous(2, MPI_BYTE, &type_f16);
    MPI_Type_commit(&type_f16);
    MPI_Type_contiguous(2, MPI_BYTE, &type_bf16);
    MPI_Type_commit(&type_bf16);
    for (int t = 0; t < 2; t++)
        for (int o = 0; o < 4; o++)
            MPI_Op_create(f[t][o], 1, &narrow_op[t][o]);
}

static MPI_Datatype type_of(int dt)
{
    switch (dt) {
    case D_bool:
    case D_u8: return MPI_UINT8_T;
    case D_i8: return MPI_INT8_T;
    case D_i16: return MPI_INT16_T;
    case D_i32: return MPI_INT32_T;
    case D_i64: return MPI_INT64_T;
    case D_f16: return type_f16;
    case D_bf16: return type_bf16;
    case D_f32: return MPI_FLOAT;
    default: return MPI_DOUBLE;
    }
}
static MPI_Op op_of(int dt, int op)
{
    static const int narrow[R_COUNT] = { 0, 0, 1, 2, 3 };
    if (dt == D_f16 || dt == D_bf16)
        return narrow_op[dt == D_bf16][narrow[op]];
    if (dt == D_bool) /* logic: a sum or a maximum is "some", a product or a minimum "all" */
        return op == R_sum || op == R_avg || op == R_max || op == R_bor ? MPI_BOR
               : op == R_bxor                                           ? MPI_BXOR
                                                                        : MPI_BAND;
    switch (op) {
    case R_sum:
    case R_avg: return MPI_SUM;
    case R_prod: return MPI_PROD;
    case R_min: return MPI_MIN;
    case R_max: return MPI_MAX;
    case R_band: return MPI_BAND;
    case R_bor: return MPI_BOR;
    default: return MPI_BXOR;
    }
}

/* --- the job and groups ---------------------------------------------------------------------------------- */
static int shim_open(int *rank, int *size, int *local_rank, int *local_size, char *why)
{
    int there = 0, level = 0, n = 0;
    MPI_Comm local;
    MPI_Initialized(&there);
    if (!there) {
        if (failed(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level), why))
            return 0;
        ours = 1;
        if (level < MPI_THREAD_SERIALIZED) {
            snprintf(why, SHIM_WHY, "this MPI was built without threads");
            return 0;
        }
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    if (failed(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local), why))
        return 0;
    MPI_Comm_rank(local, local_rank);
    MPI_Comm_size(local, local_size);
    MPI_Comm_free(&local);
    MPI_Get_library_version(library, &n);
    make_narrow();
    return 1;
}
static int shim_broadcast(void *p, int nbytes, char *why)
{
    return !failed(MPI_Bcast(p, nbytes, MPI_BYTE, 0, MPI_COMM_WORLD), why);
}
static void shim_close(void)
{
    int gone = 0;
    MPI_Finalized(&gone);
    if (!ours || gone)
        return;
    for (int t = 0; t < 2; t++)
        for (int o = 0; o < 4; o++)
            MPI_Op_free(&narrow_op[t][o]);
    MPI_Type_free(&type_f16);
    MPI_Type_free(&type_bf16);
    MPI_Finalize();
}
static void *shim_group(const int *ranks, int n, int tag, char *why)
{
    MPI_Group world, some;
    group *g = calloc(1, sizeof *g);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, n, ranks, &some);
    int bad = failed(MPI_Comm_create_group(MPI_COMM_WORLD, some, tag, &g->comm), why);
    MPI_Group_free(&some);
    MPI_Group_free(&world);
    if (bad) {
        free(g);
        return NULL;
    }
    MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(g->comm, &g->my);
    g->n = n;
    return g;
}
static void shim_group_free(void *group_)
{
    group *g = group_;
    MPI_Comm_free(&g->comm);
    free(g);
}

/* --- calls ----------------------------------------------------------------------------------------------- */
static int all_to_all(group *g, const shim_call *c, req *r)
{
    int *v = r->counts = malloc(4 * (size_t)g->n * sizeof(int));
    int in = 0, out = 0;
    for (int i = 0; i < g->n; i++) {
        v[i] = (int)(c->in_count ? c->in_count[i] : c->n);
        v[g->n + i] = in;
        v[2 * g->n + i] = (int)(c->out_count ? c->out_count[i] : c->n);
        v[3 * g->n + i] = out;
        in += v[i];
        out += v[2 * g->n + i];
    }
    MPI_Datatype t = type_of(c->dt);
    return MPI_Ialltoallv(c->in, v, v + g->n, t, c->out, v + 2 * g->n, v + 3 * g->n, t, g->comm, &r->r);
}
static int begin(group *g, const shim_call *c, req *r)
{
    MPI_Datatype t = type_of(c->dt);
    int n = (int)c->n;
    const void *in = c->inplace ? MPI_IN_PLACE : c->in;
    switch (c->kind) {
    case K_barrier: return MPI_Ibarrier(g->comm, &r->r);
    case K_all_reduce: return MPI_Iallreduce(in, c->out, n, t, op_of(c->dt, c->op), g->comm, &r->r);
    case K_reduce:
        if (g->my != c->root)
            return MPI_Ireduce(c->in, NULL, n, t, op_of(c->dt, c->op), c->root, g->comm, &r->r);
        return MPI_Ireduce(in, c->out, n, t, op_of(c->dt, c->op), c->root, g->comm, &r->r);
    case K_broadcast:
        return MPI_Ibcast(g->my == c->root ? (void *)c->in : c->out, n, t, c->root, g->comm, &r->r);
    case K_all_gather: return MPI_Iallgather(c->in, n, t, c->out, n, t, g->comm, &r->r);
    case K_gather: return MPI_Igather(c->in, n, t, c->out, n, t, c->root, g->comm, &r->r);
    case K_scatter: return MPI_Iscatter(c->in, n, t, c->out, n, t, c->root, g->comm, &r->r);
    case K_reduce_scatter:
        return MPI_Ireduce_scatter_block(c->in, c->out, n, t, op_of(c->dt, c->op), g->comm, &r->r);
    case K_all_to_all: return all_to_all(g, c, r);
    case K_send: return MPI_Isend(c->in, n, t, c->root, c->tag, g->comm, &r->r);
    default: return MPI_Irecv(c->out, n, t, c->root < 0 ? MPI_ANY_SOURCE : c->root, c->tag, g->comm, &r->r);
    }
}
static void *shim_start(void *group_, const shim_call *c, char *why)
{
    group *g = group_;
    if (c->n > INT_MAX / (g->n > 0 ? g->n : 1)) {
        snprintf(why, SHIM_WHY, "%lld elements: MPI counts in int; split the tensor", (long long)c->n);
        return NULL;
    }
    req *r = calloc(1, sizeof *r);
    if (!failed(begin(g, c, r), why))
        return r;
    free(r->counts);
    free(r);
    return NULL;
}
static int shim_test(void *req_, int *source, char *why)
{
    req *r = req_;
    MPI_Status s;
    int done = 0;
    if (failed(MPI_Test(&r->r, &done, &s), why))
        return -1;
    if (done)
        *source = s.MPI_SOURCE;
    return done;
}
static void shim_drop(void *req_)
{
    free(((req *)req_)->counts);
    free(req_);
}

static const shim_api api = { SHIM_VERSION, library,         shim_open,  shim_broadcast, shim_close,
                              shim_group,   shim_group_free, shim_start, shim_test,      shim_drop };
const shim_api *taper_mpi_shim(void) { return &api; }
