/* ptx.h - PTX text written from the vector IR, and how such a kernel is launched.
 * Knows vir and the PTX machine model. May not know the driver: texts are made and tested without a device.
 *
 *   ptx_unit u = { 0 };
 *   ptx_kernel p;
 *   if (!ptx_add(&u, k, "k0", &p, err)) ...
 *   ptx_text(&u, &text);                                   a module: several kernels share functions and tables
 *   int64_t blocks = ptx_blocks(&p, ints, lo, hi);         grid of a launch; blocks of p.threads
 *
 * Parameters of a kernel, in this order: a pointer for each buffer, int64 arguments, double arguments, lifted constants,
 * lo, hi.
 *
 * Which iterations run where:
 *   PTX_rows     a block takes one iteration of the parallel loop. Code outside of vector loops runs on all threads alike,
 *                thread 0 stores; a vector loop is shared out over the threads
 *   PTX_threads  a thread takes one iteration of the parallel loop: bodies without a vector loop that can be shared out
 *   PTX_flat     no parallel loop, one vector loop: shared out over the whole grid
 *   PTX_one      one block does it all
 *   PTX_tiles    PTX_rows of few elements: `tile` threads take an iteration of the parallel loop, a block takes several
 * Loops that add or store where an index points, in order, are scans (PTX_rows or PTX_one of one warp): lanes look at an
 * iteration each, and those that have something to do follow in order. What is another warp's costs a look.
 * The bits are those of vir_interp: reductions keep P partial results, a few a thread, joined in its order. */
#ifndef TAPER_TARGET_CUDA_PTX_H
#define TAPER_TARGET_CUDA_PTX_H
#include "base/map.h"
#include "vir/vir.h"

typedef enum { PTX_rows, PTX_threads, PTX_flat, PTX_one, PTX_tiles } ptx_grid;

typedef struct ptx_opts {
    int threads;  /* a block of a kernel without reductions over threads; 0: 256 */
    int sm;       /* 90 or 80; 0: 90                                             */
    bool atomics; /* float scatter-adds in any order                             */
    bool lift;    /* float constants are parameters: kernels that differ in them have one text */
} ptx_opts;

typedef struct ptx_unit {
    ptx_opts opts;
    /* private */
    strbuf head, kernels;
    map seen;
} ptx_unit;

/* How many iterations a loop has, as the host computes it: reverse Polish. */
typedef struct ptx_count {
    uint8_t n; /* 0: only the kernel knows */
    struct {
        uint8_t op; /* vir_op: const, iarg, or a binary one */
        int64_t imm;
    } at[15];
} ptx_count;

typedef struct ptx_kernel { /* plain data: it may be saved beside the code */
    ptx_grid grid;
    int threads;
    int per;         /* consecutive elements a thread takes at once */
    int tile;        /* PTX_tiles: threads of an iteration, a power of two */
    bool scan;       /* its vector loops are parts of scans over indices: a block is one warp */
    ptx_count count; /* PTX_flat: iterations of the loop            */
    int nbufs, nints, nflts;
    int nlifted; /* constants that became parameters */
    double lifted[16];
} ptx_kernel;

/* False: an operation has no PTX form (ERR_notimpl). `name` is an identifier that no other kernel of the unit has. */
bool ptx_add(ptx_unit *u, const vir *k, const char *name, ptx_kernel *out, tp_err *err);
/* A function that kernels call, "tp_pow_f64"; false: there is none. ptx_add adds what it needs. */
bool ptx_function(ptx_unit *u, const char *name);
void ptx_text(const ptx_unit *u, strbuf *out);
void ptx_free(ptx_unit *u);
static inline int ptx_nparams(const ptx_kernel *p) { return p->nbufs + p->nints + p->nflts + p->nlifted + 2; }
/* Their values, each of 8 bytes. */
void ptx_params(const ptx_kernel *p, void *const *bufs, const int64_t *ints, const double *flts, int64_t lo,
                int64_t hi, uint64_t *out);
/* Number of blocks; 0: nothing to launch. */
int64_t ptx_blocks(const ptx_kernel *p, const int64_t *ints, int64_t lo, int64_t hi);
#endif
