/* kernel_cache.h - executable memory and the in-memory kernel cache.
 * A kernel is compiled once a process: equal kernels (vir_key) share their code. Memory is written, then made
 * executable and never writable again. Where the machine cannot run machine code of ours, kernels go as C through the
 * system's compiler (cbuild.c), or are interpreted.
 */
#ifndef TAPER_RUN_EXEC_H
#define TAPER_RUN_EXEC_H
#include "target/x64/x64.h"
#include "compile/options.h"

typedef struct run_kernel {
    vir_fn fn;         /* NULL: interpreted */
    uint8_t emitter;   /* EMITTER_x64, EMITTER_c or EMITTER_interpreter */
    const char *name;  /* of the first kernel with this structure */
    size_t ncode;      /* bytes of machine code */
    size_t nbytes;     /* the same with its constants */
    bool leaf;         /* as gen_code says */
    double compile_us; /* vector IR to callable */
    uint64_t hash;     /* of the key */
    const vir *k;      /* a private copy where it is interpreted */
    char why[120];     /* why it is interpreted, empty otherwise */
    bool cached;       /* read by the caller right after exec_kernel: it was there already (approximate) */
} run_kernel;

/* The kernel ready to run, borrowed from the cache; NULL with an error. Thread-safe. k may go away
 * afterwards. */
const run_kernel *exec_kernel(const vir *k, tp_err *err);
/* The same with the instruction set chosen by the caller; ISA_none interprets. NULL with an error, nothing cached. */
const run_kernel *exec_kernel_isa(const vir *k, gen_isa isa, tp_err *err);

/* The kernels of one graph ready to run, as the options say: k[i] gives out[i], borrowed from the cache. With the C
 * emitter all that do not exist yet are built in one process. Where that cannot be done they are interpreted, and one
 * line says why. */
bool exec_kernels(const vir *const *k, int n, const run_options *o, const run_kernel **out, tp_err *err);

/* Those that are not there yet as C, in one process; exec_kernels finds them then. False: why not. */
bool exec_build_c(const vir *const *k, int n, tp_err *why);

static inline void exec_run(const run_kernel *r, void *const *bufs, const int64_t *ints, const double *flts,
                            int64_t lo, int64_t hi)
{
    if (TP_LIKELY(r->fn != NULL))
        r->fn(bufs, ints, flts, lo, hi);
    else
        vir_interp(r->k, bufs, ints, flts, lo, hi, NULL);
}

/* Machine code that another process emitted. NULL with an error. */
const run_kernel *exec_adopt(const gen_code *c, const char *name, uint64_t hash, tp_err *err);

typedef struct exec_stats {
    int64_t kernels, hits, code_bytes;
    double compile_us;
} exec_stats;
exec_stats exec_get_stats(void);
#endif
