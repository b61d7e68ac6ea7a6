/* check.c - see check.h. A kernel writes the first index that is outside to a word of the host's memory that the device can
 * reach. Kernels behind it stay inside whatever the index says, so that nothing is harmed until somebody reads the word. */
#include "target/cuda/check.h"
#include "base/vec.h"
#include "target/cpu/cpu.h"
#include "target/cuda/driver.h"
#include <pthread.h>
#include <stdlib.h>

typedef struct word { /* all of it in order: the number of the check last */
    uint64_t id;
    int64_t bad, size;
} word;
static struct {
    pthread_mutex_t lock;
    volatile word *word;
    VEC(target_late *) who; /* by id - 1; NULL: it ended */
    tp_err left;            /* what was found for one that ended since */
    bool has_left;
    cuda_function fn[2][CUDA_MAX_DEVICES]; /* of i64, i32 */
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };

enum { THREADS = 256, MOST_BLOCKS = 528, NPARAMS = 6 };
static const char text[] =
    ".version 7.8\n.target sm_80\n.address_size 64\n"
    ".visible .entry inside(\n\t.param .u64 p_at,\n\t.param .u64 p_n,\n\t.param .u64 p_lo,\n"
    "\t.param .u64 p_hi,\n\t.param .u64 p_word,\n\t.param .u64 p_id)\n"
    ".reqntid 256, 1, 1\n{\n"
    "\t.reg .b32 %%r<4>;\n\t.reg .b64 %%q<16>;\n\t.reg .pred %%p<6>;\n"
    "\tld.param.u64 %%q0, [p_at];\n\tld.param.u64 %%q1, [p_n];\n\tld.param.u64 %%q2, [p_lo];\n"
    "\tld.param.u64 %%q3, [p_hi];\n\tld.param.u64 %%q4, [p_word];\n\tld.param.u64 %%q5, [p_id];\n"
    "\tmov.u32 %%r0, %%tid.x;\n\tmov.u32 %%r1, %%ctaid.x;\n\tmov.u32 %%r2, %%nctaid.x;\n"
    "\tcvt.u64.u32 %%q6, %%r0;\n\tmul.wide.u32 %%q7, %%r1, 256;\n\tadd.s64 %%q6, %%q6, %%q7;\n"
    "\tmul.wide.u32 %%q7, %%r2, 256;\n"
    "LOOP:\n\tsetp.ge.s64 %%p0, %%q6, %%q1;\n\t@%%p0 bra DONE;\n"
    "\tmul.lo.s64 %%q8, %%q6, %d;\n\tadd.s64 %%q8, %%q0, %%q8;\n"
    "%s"
    "\tsetp.lt.s64 %%p1, %%q9, %%q2;\n\t@%%p1 bra BAD;\n"
    "\tsetp.lt.s64 %%p2, %%q9, %%q3;\n\t@%%p2 bra NEXT;\n"
    "BAD:\n\tld.volatile.global.u64 %%q10, [%%q4];\n\tsetp.ne.u64 %%p3, %%q10, 0;\n\t@%%p3 bra DONE;\n"
    "\tst.volatile.global.u64 [%%q4+8], %%q9;\n\tst.volatile.global.u64 [%%q4+16], %%q3;\n"
    "\tmembar.sys;\n\tst.volatile.global.u64 [%%q4], %%q5;\n\tbra DONE;\n"
    "NEXT:\n\tadd.s64 %%q6, %%q6, %%q7;\n\tbra LOOP;\n"
    "DONE:\n\tret;\n}\n";

static cuda_function kernel(int device, bool narrow, tp_err *err) /* with the lock */
{
    cuda_function *f = &all.fn[narrow][device];
    if (!*f) {
        strbuf b = { 0 };
        cuda_cubin bin = { 0 };
        cuda_module m;
        strbuf_addf(&b, text, narrow ? 4 : 8,
                    narrow ? "\tld.global.b32 %r3, [%q8];\n\tcvt.s64.s32 %q9, %r3;\n"
                           : "\tld.global.b64 %q9, [%q8];\n");
        const char *s = strbuf_str(&b);
        if (!cuda_assemble(device, &s, 1, &bin, err) || !cuda_load(device, bin.p, &m, err) ||
            !cuda_find(device, m, "inside", f, err))
            *f = NULL;
        strbuf_free(&b);
    }
    return *f;
}

bool cuda_late(tp_err *err)
{
    volatile word *w = __atomic_load_n(&all.word, __ATOMIC_ACQUIRE);
    if (!w || (!w->id && !__atomic_load_n(&all.has_left, __ATOMIC_ACQUIRE)))
        return true;
    bool ok = true;
    pthread_mutex_lock(&all.lock);
    if (all.has_left) {
        all.has_left = false;
        if (err && !err_is_set(err))
            *err = all.left;
        pthread_mutex_unlock(&all.lock);
        return false;
    }
    uint64_t id = w->id;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    target_late *l = id && id <= all.who.n ? all.who.at[id - 1] : NULL;
    if (l)
        ok = l->fail(l->data, w->bad, w->size, err);
    w->id = 0;
    pthread_mutex_unlock(&all.lock);
    return ok;
}

void cuda_forget(target_late *late)
{
    tp_err err = { 0 };
    if (!late->id)
        return;
    bool found = !cuda_recording() && !cuda_sync(-1, &err); /* its checks may still be under way */
    pthread_mutex_lock(&all.lock);
    if (found && !all.has_left) {
        all.left = err;
        __atomic_store_n(&all.has_left, true, __ATOMIC_RELEASE);
    }
    all.who.at[late->id - 1] = NULL;
    pthread_mutex_unlock(&all.lock);
}

/* The memory of x in one piece, each element at least once; 0 elements: it is not. */
static int64_t in_one_piece(const tp_tensor *x)
{
    symint size[TP_MAX_DIMS];
    int64_t n = 1, run = 1;
    for (int d = 0; d < x->ndim; d++) {
        size[d] = x->stride[d] == 0 && x->size[d] ? 1 : x->size[d];
        n *= size[d];
    }
    for (int d = x->ndim - 1; d >= 0; d--) {
        if (size[d] != 1 && x->stride[d] != run)
            return 0;
        run *= size[d];
    }
    return n;
}

static bool now(const tp_tensor *index, int64_t lo, int64_t hi, bool *yes, int64_t *bad, tp_err *err)
{
    if (cuda_recording())
        return err_set(err, ERR_runtime, "an index cannot be read while launches are recorded");
    tp_tensor *here = tensor_to((tp_tensor *)index, DEVICE_CPU, err);
    bool ok = here && cpu_inside(here, lo, hi, NULL, yes, bad, err);
    tensor_unref(here);
    return ok;
}

static bool blocking(void)
{
    const char *s = getenv("CUDA_LAUNCH_BLOCKING");
    return s && *s && strcmp(s, "0") != 0;
}

bool cuda_inside(const tp_tensor *index, int64_t lo, int64_t hi, target_late *late, bool *yes, int64_t *bad,
                 tp_err *err)
{
    int64_t n = in_one_piece(index);
    tp_device dev = tensor_device(index);
    int device = dev.index < 0 ? cuda_current_device() : dev.index;
    *yes = true;
    if (!index->numel)
        return true;
    if (!late || !n || hi <= lo || dev.kind != DEV_cuda || blocking())
        return now(index, lo, hi, yes, bad, err);
    if (!cuda_late(err)) /* of an earlier call */
        return false;
    pthread_mutex_lock(&all.lock);
    if (!all.word)
        __atomic_store_n(&all.word, cuda_mapped(sizeof *all.word, err), __ATOMIC_RELEASE);
    if (all.word && !late->id) {
        vec_push(&all.who, late);
        late->id = (uint32_t)all.who.n;
    }
    cuda_function f = all.word ? kernel(device, index->dt == DT_i32, err) : NULL;
    pthread_mutex_unlock(&all.lock);
    uint64_t v[NPARAMS] = { (uint64_t)(uintptr_t)tensor_data(index), (uint64_t)n, (uint64_t)lo, (uint64_t)hi,
                            (uint64_t)(uintptr_t)all.word,           late->id };
    return f && cuda_launch(device, f, MIN((n + THREADS - 1) / THREADS, (int64_t)MOST_BLOCKS), THREADS, v,
                            NPARAMS, cuda_current_queue(device), err);
}
