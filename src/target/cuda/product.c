/* product.c - see product.h. cuBLASLt counts columns first: its product is that of the transposed matrices, in the other order. */
#define _GNU_SOURCE
#include "target/cuda/product.h"
#include "base/map.h"
#include "events/events.h"
#include "target/cuda/driver.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

/* --- a kernel of one element a thread ------------------------------------------------------------------------------ */
enum { THREADS = 256, NPARAMS = 20 };
/* T: of the memory, F: of the sum, L and S: how an element is read and written. */
static const char head[] = ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry product(\n";
static const char *const params[NPARAMS] = { "o",     "a",       "b",       "row",     "total",
                                             "m",     "n",       "k",       "a_batch", "a_row",
                                             "a_k",   "b_batch", "b_k",     "b_col",   "o_batch",
                                             "o_row", "o_col",   "row_col", "add",     "has_row" };

static void write_kernel(strbuf *b, dtype dt, dtype to) /* of the factors, of the result */
{
    bool wide = dt == DT_f64, half = dt == DT_f16 || dt == DT_bf16;
    const char *f = wide ? "f64" : "f32", *h = dt == DT_f16 ? "f16" : "bf16",
               *zero = wide ? "0d0000000000000000" : "0f00000000";
    int es = wide ? 8 : half ? 2 : 4, os = (int)dtype_size(to);
    strbuf_add(b, head);
    for (int i = 0; i < NPARAMS; i++)
        strbuf_addf(b, "\t.param .u64 p_%s%s\n", params[i], i + 1 < NPARAMS ? "," : ")");
    strbuf_addf(b,
                ".reqntid %d, 1, 1\n{\n\t.reg .%s %%f<4>;\n\t.reg .b16 %%h<2>;\n\t.reg .b32 %%r<4>;\n\t.reg "
                ".b64 %%q<40>;\n\t.reg .pred %%p<4>;\n",
                THREADS, f);
    for (int i = 0; i < NPARAMS; i++)
        strbuf_addf(b, "\tld.param.u64 %%q%d, [p_%s];\n", i, params[i]);
    strbuf_addf(
        b,
        "\tmov.u32 %%r0, %%tid.x;\n\tmov.u32 %%r1, %%ctaid.x;\n\tmul.wide.u32 %%q20, %%r1, "
        "%d;\n\tcvt.u64.u32 %%q21, %%r0;\n"
        "\tadd.s64 %%q20, %%q20, %%q21;\n\tsetp.ge.s64 %%p0, %%q20, %%q4;\n\t@%%p0 bra DONE;\n"
        /* q22 column, q23 row, q24 matrix */
        "\tdiv.s64 %%q25, %%q20, %%q6;\n\tmul.lo.s64 %%q26, %%q25, %%q6;\n\tsub.s64 %%q22, %%q20, %%q26;\n"
        "\tdiv.s64 %%q24, %%q25, %%q5;\n\tmul.lo.s64 %%q26, %%q24, %%q5;\n\tsub.s64 %%q23, %%q25, %%q26;\n"
        /* addresses of a's row, b's column and the result */
        "\tmul.lo.s64 %%q27, %%q24, %%q8;\n\tmad.lo.s64 %%q27, %%q23, %%q9, %%q27;\n\tmad.lo.s64 %%q27, "
        "%%q27, %d, %%q1;\n"
        "\tmul.lo.s64 %%q28, %%q24, %%q11;\n\tmad.lo.s64 %%q28, %%q22, %%q13, %%q28;\n\tmad.lo.s64 %%q28, "
        "%%q28, %d, %%q2;\n"
        "\tmul.lo.s64 %%q29, %%q24, %%q14;\n\tmad.lo.s64 %%q29, %%q23, %%q15, %%q29;\n\tmad.lo.s64 %%q29, "
        "%%q22, %%q16, %%q29;\n"
        "\tmad.lo.s64 %%q29, %%q29, %d, %%q0;\n\tmul.lo.s64 %%q30, %%q10, %d;\n\tmul.lo.s64 %%q31, %%q12, "
        "%d;\n"
        "\tmov.%s %%f0, %s;\n\tmov.b64 %%q32, 0;\n",
        THREADS, es, es, os, es, es, f, zero);
    /* bf16 is the upper half of f32; to convert it is an instruction of sm_90 alone */
#define LOAD(dt, reg, at)                                                                            \
    (dt == DT_bf16                                                                                   \
         ? strbuf_addf(b,                                                                            \
                       "\tld.global.b16 %%h0, [%%q%d];\n\tcvt.u32.u16 %%r2, %%h0;\n\tshl.b32 %%r2, " \
                       "%%r2, 16;\n\tmov.b32 %%f%d, %%r2;\n",                                        \
                       at, reg)                                                                      \
     : dt == DT_f16                                                                                  \
         ? strbuf_addf(b, "\tld.global.b16 %%h0, [%%q%d];\n\tcvt.f32.f16 %%f%d, %%h0;\n", at, reg)   \
         : strbuf_addf(b, "\tld.global.%s %%f%d, [%%q%d];\n", f, reg, at))
    strbuf_add(b, "LOOP:\n\tsetp.ge.s64 %p1, %q32, %q7;\n\t@%p1 bra SUM;\n");
    LOAD(dt, 1, 27);
    LOAD(dt, 2, 28);
    strbuf_addf(b,
                "\tfma.rn.%s %%f0, %%f1, %%f2, %%f0;\n\tadd.s64 %%q27, %%q27, %%q30;\n\tadd.s64 %%q28, "
                "%%q28, %%q31;\n"
                "\tadd.s64 %%q32, %%q32, 1;\n\tbra LOOP;\nSUM:\n"
                "\tsetp.eq.s64 %%p2, %%q19, 0;\n\t@%%p2 bra ROW;\n\tmul.lo.s64 %%q33, %%q22, "
                "%%q17;\n\tmad.lo.s64 %%q33, %%q33, %d, %%q3;\n",
                f, es);
    LOAD(dt, 1, 33);
    strbuf_addf(b, "\tadd.rn.%s %%f0, %%f0, %%f1;\nROW:\n\tsetp.eq.s64 %%p3, %%q18, 0;\n\t@%%p3 bra STORE;\n",
                f);
    LOAD(to, 1, 29);
    strbuf_addf(b, "\tadd.rn.%s %%f0, %%f0, %%f1;\nSTORE:\n", f);
    if (os == 2)
        strbuf_addf(b, "\tcvt.rn.%s.f32 %%h0, %%f0;\n\tst.global.b16 [%%q29], %%h0;\n", h);
    else
        strbuf_addf(b, "\tst.global.%s [%%q29], %%f0;\n", f);
    strbuf_add(b, "DONE:\n\tret;\n}\n");
#undef LOAD
}

typedef struct made_kernel { /* a text of ours, assembled at its first launch on a device */
    cuda_function on[CUDA_MAX_DEVICES];
} made_kernel;
static cuda_function made_from(made_kernel *k, int device, const strbuf *text, const char *name, tp_err *err)
{
    cuda_cubin bin;
    cuda_module m;
    cuda_function f = NULL;
    const char *s = strbuf_str(text);
    if (cuda_assemble(device, &s, 1, &bin, err) && cuda_load(device, bin.p, &m, err) &&
        cuda_find(device, m, name, &f, err))
        k->on[device] = f;
    return f;
}
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

static cuda_function own_kernel(int device, dtype dt, dtype to, tp_err *err)
{
    static made_kernel made[2][DT_COUNT];
    made_kernel *k = &made[dt != to][dt];
    pthread_mutex_lock(&making);
    cuda_function f = k->on[device];
    if (!f) {
        strbuf b = { 0 };
        write_kernel(&b, dt, to);
        f = made_from(k, device, &b, "product", err);
        strbuf_free(&b);
    }
    pthread_mutex_unlock(&making);
    return f;
}

static bool own_product(const target_product *p, int device, tp_err *err)
{
    const tp_tensor *o = p->o, *a = p->a, *b = p->b;
    int d = o->ndim - 2;
    cuda_function f = own_kernel(device, (dtype)a->dt, (dtype)o->dt, err);
    if (!f)
        return false;
    uint64_t v[NPARAMS] = { (uint64_t)(uintptr_t)tensor_data(o),
                            (uint64_t)(uintptr_t)tensor_data(a),
                            (uint64_t)(uintptr_t)tensor_data(b),
                            p->row ? (uint64_t)(uintptr_t)tensor_data(p->row) : 0,
                            (uint64_t)o->numel,
                            (uint64_t)o->size[d],
                            (uint64_t)o->size[d + 1],
                            (uint64_t)a->size[d + 1],
                            d ? (uint64_t)a->stride[0] : 0,
                            (uint64_t)a->stride[d],
                            (uint64_t)a->stride[d + 1],
                            d ? (uint64_t)b->stride[0] : 0,
                            (uint64_t)b->stride[d],
                            (uint64_t)b->stride[d + 1],
                            d ? (uint64_t)o->stride[0] : 0,
                            (uint64_t)o->stride[d],
                            (uint64_t)o->stride[d + 1],
                            p->row ? (uint64_t)p->row->stride[0] : 0,
                            p->add,
                            p->row != NULL };
    return cuda_launch(device, f, (o->numel + THREADS - 1) / THREADS, THREADS, v, NPARAMS,
                       cuda_current_queue(device), err);
}

/* --- cuBLASLt ----------------------------------------------------------------------------------------------------- */
enum { R_32F = 0, R_64F = 1, R_16F = 2, R_16BF = 14, COMPUTE_32F = 68, COMPUTE_64F = 70 };
enum {
    DESC_transa = 3,
    DESC_transb = 4,
    DESC_epilogue = 7,
    DESC_bias = 8,
    LAYOUT_batch = 5,
    LAYOUT_stride = 6,
    PREF_workspace = 1
};
enum { WORKSPACE = 32 << 20, MOST_ALGOS = 8, ROUNDS = 5 };
/* Without and with a row that is added first. Its gelu is the one by tanh. */
static const int epilogues[ACT_COUNT][2] = {
    [ACT_none] = { 1, 4 }, [ACT_relu] = { 2, 6 }, [ACT_gelu_tanh] = { 32, 36 }
};
typedef struct algo {
    uint64_t data[8];
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
} algo;
#define LT(X)                                                                                                \
    X(create, cublasLtCreate, (void **))                                                                     \
    X(desc_new, cublasLtMatmulDescCreate, (void **, int, int))                                               \
    X(desc_set, cublasLtMatmulDescSetAttribute, (void *, int, const void *, size_t))                         \
    X(desc_free, cublasLtMatmulDescDestroy, (void *))                                                        \
    X(layout_new, cublasLtMatrixLayoutCreate, (void **, int, uint64_t, uint64_t, int64_t))                   \
    X(layout_set, cublasLtMatrixLayoutSetAttribute, (void *, int, const void *, size_t))                     \
    X(layout_free, cublasLtMatrixLayoutDestroy, (void *))                                                    \
    X(pref_new, cublasLtMatmulPreferenceCreate, (void **))                                                   \
    X(pref_set, cublasLtMatmulPreferenceSetAttribute, (void *, int, const void *, size_t))                   \
    X(pref_free, cublasLtMatmulPreferenceDestroy, (void *))                                                  \
    X(heuristic, cublasLtMatmulAlgoGetHeuristic,                                                             \
      (void *, void *, void *, void *, void *, void *, void *, int, algo *, int *))                          \
    X(matmul, cublasLtMatmul,                                                                                \
      (void *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *, \
       void *, void *, void *, const algo *, void *, size_t, cuda_queue))
static struct {
#define X(name, sym, args) int(*name) args;
    LT(X)
#undef X
    bool tried, found;
    pthread_mutex_t lock;
    void *handle[CUDA_MAX_DEVICES], *workspace[CUDA_MAX_DEVICES];
    map known; /* shape -> plan */
} lt = { .lock = PTHREAD_MUTEX_INITIALIZER };

typedef struct lt_plan { /* of one shape; never freed */
    void *desc, *a, *b, *o;
    algo how[MOST_ALGOS]; /* those that cuBLASLt expects to be fast, the fastest first */
    int n, at;            /* how many; the one in use */
    bool measured;
} lt_plan;

static bool lt_load(void)
{
    static const char *const names[] = { "libcublasLt.so.13", "libcublasLt.so.12",
                                         "/usr/local/cuda/lib64/libcublasLt.so" };
    const char *env = getenv("TAPER_CUDA_PRODUCTS"), *own = getenv("TAPER_CUBLASLT_LIBRARY");
    bool named = own && *own;
    if (lt.tried)
        return lt.found;
    lt.tried = true;
    /* another driver's memory is not the library's */
    if ((env && !strcmp(env, "own")) ||
        (!named && getenv("TAPER_CUDA_LIBRARY") && *getenv("TAPER_CUDA_LIBRARY")))
        return false;
    void *h = named ? dlopen(own, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (size_t i = 0; i < COUNT(names) && !h && !named; i++)
        h = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    lt.found = h != NULL;
#define X(name, sym, args)                          \
    *(void **)&lt.name = h ? dlsym(h, #sym) : NULL; \
    lt.found &= lt.name != NULL;
    LT(X)
#undef X
    return lt.found;
}

/* A matrix as cuBLASLt sees its memory: rows of ours are its columns. False: neither dimension is packed. */
static bool lt_matrix(const tp_tensor *t, int d, int *turned, int64_t *ld)
{
    int64_t r = t->stride[d], c = t->stride[d + 1], rows = t->size[d], cols = t->size[d + 1];
    if ((c == 1 || cols == 1) && (r >= cols || rows == 1)) {
        *turned = 0;
        *ld = rows == 1 ? MAX(cols, 1) : r;
        return true;
    }
    if ((r == 1 || rows == 1) && (c >= rows || cols == 1)) {
        *turned = 1;
        *ld = cols == 1 ? MAX(rows, 1) : c;
        return true;
    }
    return false;
}

static void *lt_layout(int type, const tp_tensor *t, int d, int turned, int64_t ld)
{
    void *l = NULL;
    uint64_t rows = (uint64_t)t->size[d + !turned], cols = (uint64_t)t->size[d + turned];
    if (lt.layout_new(&l, type, rows, cols, ld))
        return NULL;
    if (d) {
        int n = (int)t->size[0];
        int64_t step = t->stride[0];
        lt.layout_set(l, LAYOUT_batch, &n, sizeof n);
        lt.layout_set(l, LAYOUT_stride, &step, sizeof step);
    }
    return l;
}

static int lt_type(dtype dt)
{
    return dt == DT_f64 ? R_64F : dt == DT_f16 ? R_16F : dt == DT_bf16 ? R_16BF : R_32F;
}

static lt_plan *lt_plan_new(const target_product *p, int device, const int *turned, const int64_t *ld)
{
    lt_plan *x = mem_zalloc(sizeof *x);
    dtype dt = (dtype)p->o->dt;
    int d = p->o->ndim - 2, type = lt_type((dtype)p->a->dt), out = lt_type(dt),
        scale = dt == DT_f64 ? R_64F : R_32F, found = 0, epilogue = epilogues[p->act][p->row != NULL];
    void *pref = NULL;
    size_t room = WORKSPACE;
    if (lt.desc_new(&x->desc, dt == DT_f64 ? COMPUTE_64F : COMPUTE_32F, scale))
        return x;
    lt.desc_set(x->desc, DESC_transa, &turned[1], sizeof *turned); /* its first factor is our second */
    lt.desc_set(x->desc, DESC_transb, &turned[0], sizeof *turned);
    lt.desc_set(x->desc, DESC_epilogue, &epilogue, sizeof epilogue);
    x->a = lt_layout(type, p->b, d, turned[1], ld[1]);
    x->b = lt_layout(type, p->a, d, turned[0], ld[0]);
    x->o = lt_layout(out, p->o, d, 0, ld[2]);
    if (x->a && x->b && x->o && !lt.pref_new(&pref)) {
        lt.pref_set(pref, PREF_workspace, &room, sizeof room);
        if (!lt.heuristic(lt.handle[device], x->desc, x->a, x->b, x->o, x->o, pref, MOST_ALGOS, x->how,
                          &found))
            x->n = found;
        lt.pref_free(pref);
    }
    return x;
}

static int lt_run(const target_product *p, const lt_plan *x, int how, int device)
{
    double wide[2] = { 1, p->add };
    float one[2] = { 1, p->add };
    bool f64 = p->o->dt == DT_f64;
    const void *row = p->row ? tensor_data(p->row) : NULL, *by = f64 ? (void *)wide : (void *)one;
    const void *also = f64 ? (void *)&wide[1] : (void *)&one[1];
    void *to = p->act ? p->acted : tensor_data(p->o);
    if (row)
        lt.desc_set(x->desc, DESC_bias, &row, sizeof row);
    return lt.matmul(lt.handle[device], x->desc, by, tensor_data(p->b), x->a, tensor_data(p->a), x->b, also,
                     p->add ? tensor_data(p->o) : to, x->o, to, x->o, &x->how[how], lt.workspace[device],
                     WORKSPACE, cuda_current_queue(device));
}

/* Each algorithm writes the result a few times; the fastest one is kept for this shape. */
static void lt_measure(const target_product *p, lt_plan *x, int device)
{
    float least = 0, ms = 0;
    tp_err none = { 0 };
    cuda_event e[2] = { NULL };
    cuda_queue q = cuda_current_queue(device);
    bool ok = cuda_event_new(device, true, &e[0], &none) && cuda_event_new(device, true, &e[1], &none);
    for (int i = 0; i < x->n && ok; i++) {
        bool runs = !lt_run(p, x, i, device); /* the first time loads it */
        ok = cuda_event_record(device, e[0], q, &none);
        for (int k = 0; k < ROUNDS && runs; k++)
            runs = !lt_run(p, x, i, device);
        ok = ok && cuda_event_record(device, e[1], q, &none) && cuda_event_wait(device, e[1], &none) &&
             cuda_event_ms(device, e[0], e[1], &ms, &none);
        if (ok && runs && (least == 0 || ms < least))
            x->at = i, least = ms;
    }
    for (int i = 0; i < 2; i++)
        if (e[i])
            cuda_event_free(device, e[i]);
    x->measured = true;
    if (ev_log_on(EVC_inductor, EV_INFO))
        ev_log(EVC_inductor, EV_INFO, NULL,
               "product of %lld x %lld x %lld: algorithm %d of %d of cuBLASLt is the fastest (%.1f us)",
               (long long)p->o->size[p->o->ndim - 2], (long long)p->a->size[p->a->ndim - 1],
               (long long)p->o->size[p->o->ndim - 1], x->at + 1, x->n, (double)least * 1e3 / ROUNDS);
}

/* False: not for cuBLASLt. */
static bool lt_product(const target_product *p, int device, bool *ok, tp_err *err)
{
    const tp_tensor *t[3] = { p->a, p->b, p->o };
    int d = p->o->ndim - 2, turned[3];
    int64_t ld[3], key[24] = { device, p->o->dt * DT_COUNT + p->a->dt, d, (p->row != NULL) + 2 * p->act };
    if (p->row && p->row->stride[0] != 1 && p->row->size[0] > 1)
        return false;
    for (int i = 0; i < 3; i++) {
        if (!lt_matrix(t[i], d, &turned[i], &ld[i]) || (i == 2 && turned[i]))
            return false;
        int64_t *k = key + 4 + 6 * i;
        k[0] = turned[i], k[1] = ld[i], k[2] = t[i]->size[d], k[3] = t[i]->size[d + 1];
        k[4] = d ? t[i]->size[0] : 1, k[5] = d ? t[i]->stride[0] : 0;
    }
    bool done = false;
    pthread_mutex_lock(&lt.lock);
    if (lt_load() && cuda_use(device, NULL)) {
        if (!lt.handle[device] && !lt.create(&lt.handle[device]))
            lt.workspace[device] = cuda_alloc(device, WORKSPACE, NULL);
        lt_plan *x = map_getn(&lt.known, key, sizeof key);
        if (!x && lt.workspace[device])
            map_putn(&lt.known, key, sizeof key, x = lt_plan_new(p, device, turned, ld));
        if (x && x->n) {
            if (p->form && !x->measured && !p->add && !cuda_recording())
                lt_measure(p, x, device);
            int r = lt_run(p, x, x->at, device);
            done = true;
            *ok = r == 0 || err_set(err, ERR_runtime, "cuBLASLt failed with status %d", r);
        }
    }
    pthread_mutex_unlock(&lt.lock);
    return done;
}

/* --- sizes and rows that are no multiples of 16 bytes -----------------------------------------------------------------
 * cuBLASLt then reads two bytes at a time, which takes several times as long as to copy matrices to where they are. */
enum { COPY_THREADS = 256, COPY_EACH = 8, COPY_LINE = COPY_THREADS * COPY_EACH, WORTH_COPYING = 1 << 28 };
typedef struct lines { /* a matrix of 16-bit elements in memory */
    int64_t count, length, apart;
} lines;

static void write_copy(strbuf *b)
{
    static const char *const names[] = { "to",     "from",     "length",     "count",
                                         "filled", "to_apart", "from_apart", "pieces" };
    strbuf_add(b, ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry straighten(\n");
    for (size_t i = 0; i < COUNT(names); i++)
        strbuf_addf(b, "\t.param .u64 p_%s%s\n", names[i], i + 1 < COUNT(names) ? "," : ")");
    strbuf_addf(b,
                ".reqntid %d, 1, 1\n{\n\t.reg .b16 %%h<%d>;\n\t.reg .b32 %%r<4>;\n\t.reg .b64 %%q<20>;\n"
                "\t.reg .pred %%p<%d>;\n",
                COPY_THREADS, COPY_EACH, COPY_EACH + 2);
    for (size_t i = 0; i < COUNT(names); i++)
        strbuf_addf(b, "\tld.param.u64 %%q%zu, [p_%s];\n", i, names[i]);
    /* q9 line, q10 piece of it, q12 element; beyond what there is to read come zeros */
    strbuf_addf(
        b,
        "\tmov.u32 %%r0, %%tid.x;\n\tmov.u32 %%r1, %%ctaid.x;\n\tcvt.u64.u32 %%q8, %%r1;\n"
        "\tdiv.u64 %%q9, %%q8, %%q7;\n\tmul.lo.s64 %%q10, %%q9, %%q7;\n\tsub.s64 %%q10, %%q8, %%q10;\n"
        "\tcvt.u64.u32 %%q11, %%r0;\n\tmad.lo.s64 %%q12, %%q10, %d, %%q11;\n"
        "\tmad.lo.s64 %%q13, %%q9, %%q5, %%q12;\n\tmad.lo.s64 %%q14, %%q9, %%q6, %%q12;\n"
        "\tmad.lo.s64 %%q13, %%q13, 2, %%q0;\n\tmad.lo.s64 %%q14, %%q14, 2, %%q1;\n"
        "\tsetp.lt.s64 %%p%d, %%q9, %%q3;\n",
        COPY_LINE, COPY_EACH);
    for (int i = 0; i < COPY_EACH; i++)
        strbuf_addf(b,
                    "\tadd.s64 %%q15, %%q12, %d;\n\tsetp.lt.s64 %%p%d, %%q15, %%q2;\n"
                    "\tand.pred %%p%d, %%p%d, %%p%d;\n"
                    "\tsetp.lt.s64 %%p%d, %%q15, %%q4;\n\tmov.b16 %%h%d, 0;\n"
                    "\t@%%p%d ld.global.b16 %%h%d, [%%q14+%d];\n",
                    i * COPY_THREADS, COPY_EACH + 1, COPY_EACH + 1, COPY_EACH + 1, COPY_EACH, i, i,
                    COPY_EACH + 1, i, 2 * i * COPY_THREADS);
    for (int i = 0; i < COPY_EACH; i++)
        strbuf_addf(b, "\t@%%p%d st.global.b16 [%%q13+%d], %%h%d;\n", i, 2 * i * COPY_THREADS, i);
    strbuf_add(b, "\tret;\n}\n");
}

/* What both have of `from`; the rest of `to` becomes zeros. */
static bool copy_lines(int device, void *to, const lines *t, const void *from, const lines *f, tp_err *err)
{
    static made_kernel made;
    pthread_mutex_lock(&making);
    cuda_function fn = made.on[device];
    if (!fn) {
        strbuf b = { 0 };
        write_copy(&b);
        fn = made_from(&made, device, &b, "straighten", err);
        strbuf_free(&b);
    }
    pthread_mutex_unlock(&making);
    int64_t pieces = (t->length + COPY_LINE - 1) / COPY_LINE;
    uint64_t v[] = { (uint64_t)(uintptr_t)to, (uint64_t)(uintptr_t)from, (uint64_t)f->length,
                     (uint64_t)f->count,      (uint64_t)t->length,       (uint64_t)t->apart,
                     (uint64_t)f->apart,      (uint64_t)pieces };
    return fn && cuda_launch(device, fn, t->count * pieces, COPY_THREADS, v, COUNT(v),
                             cuda_current_queue(device), err);
}

static void give_back(void *ctx, void *p) { cuda_free((int)(intptr_t)ctx, p); }
static int64_t up8(int64_t n) { return (n + 7) & ~(int64_t)7; }

typedef struct straight { /* a matrix beside its copy; the copy is NULL where the matrix will do */
    tp_tensor *copy;
    lines of, is; /* of the copy, as it is */
    int turned;
} straight;

/* t with both sizes rounded up to multiples of 8. False: it cannot be. */
static bool straight_make(straight *x, const tp_tensor *t, int device)
{
    tp_err none = { 0 }; /* no memory: the slow way needs none */
    if (!lt_matrix(t, 0, &x->turned, &x->is.apart))
        return false;
    symint size[2] = { up8(t->size[0]), up8(t->size[1]) };
    x->is.count = t->size[x->turned], x->is.length = t->size[!x->turned];
    if (size[0] == t->size[0] && size[1] == t->size[1] && x->is.apart % 8 == 0 &&
        (uintptr_t)tensor_data(t) % 16 == 0)
        return true;
    x->of = (lines){ size[x->turned], size[!x->turned], size[!x->turned] };
    symint stride[2] = { x->turned ? 1 : x->of.apart, x->turned ? x->of.apart : 1 };
    size_t n = (size_t)(x->of.apart * x->of.count) * 2;
    void *mem = cuda_alloc(device, n, &none);
    if (!mem)
        return false;
    tp_storage *s = storage_wrap_on(tensor_device(t), mem, (int64_t)n, give_back, (void *)(intptr_t)device);
    x->copy = tensor_on(s, (dtype)t->dt, 2, size, stride, 0);
    storage_unref(s);
    return true;
}

/* TAPER_CUDA_PRODUCTS=straight: whatever the size, and also without cuBLASLt. */
static bool always_straight(void)
{
    const char *env = getenv("TAPER_CUDA_PRODUCTS");
    return env && !strcmp(env, "straight");
}

/* Large products of 16-bit matrices: copies with rows of whole accesses cost less than they save. */
static bool worth_copying(const tp_tensor *o, const tp_tensor *a)
{
    return o->ndim == 2 && dtype_size((dtype)a->dt) == 2 && dtype_size((dtype)o->dt) == 2 &&
           (always_straight() || o->size[0] * o->size[1] >= WORTH_COPYING / MAX(a->size[1], 1));
}

static bool aligned8(const tp_tensor *t)
{
    return (t->stride[1] == 1 && t->stride[0] % 8 == 0) || (t->stride[0] == 1 && t->stride[1] % 8 == 0);
}

/* Is only the number of columns odd, with rows that lie a multiple of 16 bytes apart? */
static bool is_cut(const tp_tensor *o, const tp_tensor *a, const tp_tensor *b)
{
    return o->ndim == 2 && dtype_size((dtype)o->dt) == 2 && dtype_size((dtype)a->dt) == 2 &&
           sym_all_const(o->size, 2) && sym_all_const(o->stride, 2) && sym_all_const(a->stride, 2) &&
           sym_all_const(b->stride, 2) && o->size[1] > 8 && o->size[1] % 8 && o->stride[1] == 1 &&
           o->stride[0] % 8 == 0 && a->size[1] % 8 == 0 && aligned8(a) && aligned8(b);
}

/* The columns that fill whole accesses, then the few that are left. False: not for this, or nothing was done. */
static bool cut(const target_product *p, int device, bool *ok, tp_err *err)
{
    bool done = false;
    if (!is_cut(p->o, p->a, p->b))
        return false;
    int64_t n = p->o->size[1], at[3] = { 0, n / 8 * 8, n };
    for (int i = 0; i < 2 && *ok; i++) {
        const tp_tensor *o = p->o, *b = p->b, *row = p->row;
        symint size[2][2] = { { o->size[0], at[i + 1] - at[i] }, { b->size[0], at[i + 1] - at[i] } };
        target_product q = *p;
        tp_tensor *bi = tensor_on(b->storage, (dtype)b->dt, 2, size[1], b->stride,
                                  b->offset + at[i] * b->stride[1]);
        tp_tensor *ri = row ? tensor_on(row->storage, (dtype)row->dt, 1, &size[0][1], row->stride,
                                        row->offset + at[i] * row->stride[0])
                            : NULL;
        q.o = tensor_on(o->storage, (dtype)o->dt, 2, size[0], o->stride, o->offset + at[i]);
        q.b = bi, q.row = ri;
        if (lt_product(&q, device, ok, err))
            done = true;
        else if (done || always_straight())
            done = true, *ok = own_product(&q, device, err);
        tensor_unref(q.o);
        tensor_unref(bi);
        tensor_unref(ri);
        if (!done)
            break;
    }
    return done;
}

bool cuda_product_allocates(const tp_tensor *o, const tp_tensor *a, const tp_tensor *b)
{
    if (is_cut(o, a, b))
        return false;
    const tp_tensor *all[3] = { o, a, b };
    bool odd = false;
    for (int i = 0; i < 3; i++)
        for (int d = 0; d < all[i]->ndim; d++) {
            if (sym_is_expr(all[i]->size[d]))
                return false;
            odd |= all[i]->size[d] % 8 != 0;
        }
    return odd && worth_copying(o, a);
}

/* p by way of copies. False: not for this, or nothing was done. */
static bool straightened(const target_product *p, int device, bool *ok, tp_err *err)
{
    const tp_tensor *t[3] = { p->a, p->b, p->o };
    straight x[3] = { 0 };
    bool always = always_straight(), fine = true, done = false;
    if (cuda_recording() || p->add || (p->row && p->o->size[1] % 8) || !worth_copying(p->o, p->a))
        return false;
    for (int i = 0; i < 3 && fine; i++)
        fine = straight_make(&x[i], t[i], device) && (i < 2 || !x[i].turned);
    fine = fine && (x[0].copy || x[1].copy || x[2].copy);
    for (int i = 0; i < 2 && fine; i++)
        if (x[i].copy)
            fine = copy_lines(device, tensor_data(x[i].copy), &x[i].of, tensor_data(t[i]), &x[i].is, err);
    if (fine) {
        target_product q = *p;
        q.a = x[0].copy ? x[0].copy : p->a, q.b = x[1].copy ? x[1].copy : p->b;
        q.o = x[2].copy ? x[2].copy : p->o;
        done = lt_product(&q, device, ok, err);
        if (!done && always)
            done = true, *ok = own_product(&q, device, err);
        if (done && *ok && x[2].copy)
            *ok = copy_lines(device, tensor_data(p->o), &x[2].is, tensor_data(x[2].copy), &x[2].of, err);
    }
    for (int i = 0; i < 3; i++)
        tensor_unref(x[i].copy);
    return done;
}

bool cuda_product(const target_product *p, tp_err *err)
{
    const tp_tensor *o = p->o, *a = p->a, *b = p->b;
    int d = o->ndim - 2, device = tensor_device(o).index;
    bool ok = true, acted = false;
    target_product q = *p;
    if (a->ndim != o->ndim || b->ndim != o->ndim || b->size[d] != a->size[d + 1] ||
        a->size[d] != o->size[d] || b->size[d + 1] != o->size[d + 1])
        return err_set(err, ERR_internal, "the operands of a product changed their sizes");
    if (a->dt != b->dt || (a->dt != o->dt && (o->dt != DT_f32 || p->row || dtype_size((dtype)a->dt) != 2)))
        return err_set(err, ERR_internal, "the operands of a product are of types that do not fit");
    if (p->act && o->numel && a->size[d + 1] && !cuda_product_allocates(o, a, b) && !is_cut(o, a, b))
        acted = lt_product(p, device, &ok, err);
    q.act = ACT_none;
    if (!acted && o->numel &&
        (!a->size[d + 1] || (!cut(&q, device, &ok, err) && !straightened(&q, device, &ok, err) &&
                             !lt_product(&q, device, &ok, err))))
        ok = own_product(&q, device, err);
    return ok && (acted || !p->then.code || p->then.code->on->launch(p->then.code, &p->then.args, err));
}
