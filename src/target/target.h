/* target.h - a machine that kernels run on, as data.
 * Knows the vector IR, tensors and the memory they are in. May not know graphs, plans or programs.
 *
 * A target is one value of `struct target`: facts about the machine (caps), which the stages above read instead of asking
 * which machine it is, and functions that compile and run. x64, C and the interpreter run on the CPU and share its launch,
 * products and attention (target/cpu/); a device brings its own, with memory behind tensor/device.h.
 *
 *   compile   kernels -> code. All kernels of a graph come in one call, so that a target may use one compiler process or
 *             many threads. Of begin, code may be finished later (ready); until then whoever wants to go on runs other code.
 *   launch    code + arguments -> work on the device's current queue (as its copies and fills), or done at once on the CPU.
 *             Buffers are addresses in the target's memory.
 *   product, convolve, attend   library kernels of the machine into planned memory, with a kernel of ours on their rows.
 *   save, load, key   code as bytes, and what those bytes depend on: the disk cache knows no more. */
#ifndef TAPER_TARGET_H
#define TAPER_TARGET_H
#include "ops/conv.h"
#include "ops/val.h"
#include "tensor/device.h"
#include "vir/vir.h"

typedef struct target target;

/* What the stages above may know of a machine. Everything that is a number or a yes of the machine is a field here; who
 * measures variants changes a copy of them (tp_comp.caps). */
typedef struct target_caps {
    /* --- how loops are written */
    int ways;           /* vectors in flight in a vector loop: 1, 2, 4; 0: as each kernel likes */
    bool last_operand;  /* loops in the order that the last operand likes, not the first */
    int strip;          /* elements of a strip of a transposed operand; 0: the next two; -1: never */
    int strip_far;      /* where few of its lines stay in cache, a large power of two apart */
    int strip_near;     /* elsewhere */
    int64_t strip_fits; /* elements that stay in the first cache: no strips below */
    /* --- how work is cut into parallel iterations */
    int chunk;         /* elements of a long vector loop that one of them takes */
    int column_chunk;  /* the same in sums of columns; 0: as chunk */
    int scatter_chunk; /* the same where elements are written where an index points */
    int scatter_ranges; /* into how many shares of the places such work is cut, each looking at all indices; 0: none */
    int scatter_row;      /* elements of a row that a share takes */
    int64_t park_bytes;   /* of a row that a later pass reads: beyond, it is computed again */
    int64_t share_worth;  /* elements from which on work is worth sharing */
    int share_rows;       /* rows that must be left then to fuse a reduction of them */
    int share_rows_after; /* the same of what follows a reduction */
    int64_t parts_worth;  /* elements from which on one result is made of parts; 0: never */
    int parts_most, parts_least;
    int column_parts; /* sums of columns are made of at most so many groups of rows, which are then summed; 0: never */
    int column_threads; /* of which each has a column of a group of rows: so many run at once; 0: nobody counts */
    int column_enough; /* chunks of columns that need no groups of rows; 0: they always help */
    int few_results; /* of a sum over a batch: below, it is made of parts too (where column_parts says so) */
    /* --- what is possible, or better not done */
    int lanes;          /* elements of four bytes in a vector */
    int gather_bytes;   /* the smallest element that one instruction gathers */
    int reverse_bytes;  /* the size of elements that one instruction reverses; 0: any */
    int64_t page_bytes; /* elements a multiple of it apart share a set of the cache; 0: no matter */
    bool slow_steps;    /* steps along lanes are slow: costly work is kept out of their kernels */
    bool library;       /* eager kernels can be called, where they are faster than loops */
    bool epilogues;     /* a kernel runs on the rows of a product as they are finished */
    bool attends;       /* there is attend */
    bool
        repeats; /* a value of few operations is computed again where that reads no more than the value itself */
    bool images_last; /* convolutions of f16 and bf16 are faster with channels side by side */
    bool softens;     /* attend looks at attend_soft */
    bool activates;   /* product looks at act */
    int row_align; /* of large products of narrow floats: elements that their rows should be a multiple of; 0: any */
    bool
        asynchronous; /* launches return before the work is done: errors show at a sync, and kernels keep inside of what
                           an index may reach, as its check may be late */
    bool quick;        /* compiling costs microseconds: forms of a kernel may be measured */
    int product_forms; /* target_product.form may be 1 up to this */
} target_caps;

/* A compiled kernel. Made by compile or load, never freed: equal kernels share it for the life of the process. A target
 * that needs more puts this first in a struct of its own. */
typedef struct target_code {
    vir_fn fn; /* callable by this process; NULL: interpreted, or on a device */
    const target *on;
    const char *name;  /* of the first kernel with this structure; owned */
    size_t ncode;      /* bytes of code */
    size_t nbytes;     /* the same with its constants */
    double compile_us; /* vector IR to callable */
    uint64_t hash;     /* of the key */
    const vir *k;      /* a private copy where the target keeps one; else NULL */
    char why[120]; /* why it is this code and not that of the target that was asked for; empty otherwise */
    bool cached;   /* it was there already when somebody asked (approximate) */
} target_code;

typedef enum { SHARE_usual, SHARE_finer, SHARE_coarser, SHARE_alone, SHARE_COUNT } target_share;

/* The arguments of one launch. */
typedef struct target_args {
    void *const *bufs; /* addresses in the target's memory */
    const int64_t *ints;
    const double *flts;
    int64_t par;   /* iterations of the parallel loop; 1 where there is none */
    int64_t work;  /* elements touched by each, for how many of them a thread or a block takes */
    uint8_t share; /* target_share */
    int8_t index;  /* of the device that the buffers are on; -1: the current one */
    void *queue;   /* of the device: a stream; NULL: the current one */
} target_args;

/* A kernel on the rows of a product (counted through the batch) or on the planes of a convolution: step i of its parallel
 * loop needs row i and nothing later. It runs on rows as they are finished, or behind the product. */
typedef struct target_follow {
    const target_code *code; /* NULL: nothing follows */
    target_args args;
} target_follow;

/* What the kernel behind a product computes, where it is nothing else. */
typedef enum { ACT_none, ACT_relu, ACT_gelu_tanh, ACT_COUNT } product_act;

typedef struct
    target_product { /* o = a b, two or three dimensions, all of one type; or o of f32 and narrow factors */
    tp_tensor *o;
    const tp_tensor *row; /* NULL, or one element per column that is added to all rows */
    const tp_tensor *a, *b;
    bool add; /* to what o holds */
    int form; /* how, as tuning says: 0: as the shape suggests */
    target_follow then;
    /* Not ACT_none: `then` only computes this of all elements and writes it to `acted`, in o's type and layout. Who does so in
     * the product need not run `then`, nor write o. */
    uint8_t act;
    void *acted;
} target_product;

typedef struct
    target_convolution { /* y = x correlated with w, or the gradient of x or w; of one type and layout */
    uint8_t kind;        /* conv_kind: which of the three is written */
    tp_tensor *x, *w, *y;
    const tp_tensor *bias; /* of CONV_forward, or NULL */
    conv_geom g;
    int form;
    void *scratch; /* convolve_bytes of the target's memory; NULL where it wants none */
    target_follow then;
} target_convolution;

/* Products, a kernel on their rows, and products of what the kernel wrote: attention and its gradient, block of rows by
 * block of rows. What is between the products never exists as a whole. */
enum { ATTEND_OF = 2, ATTEND_TO = 4, ATTEND_BETWEEN = 2 };
typedef struct attend_of { /* a product whose rows the kernel reads: batch x m x d, batch x d x n */
    const tp_tensor *a, *b;
    int buf;  /* of the kernel */
    dtype dt; /* of the result */
} attend_of;
typedef struct attend_to { /* a product of a matrix of m x n that the kernel writes, and x */
    const tp_tensor *x;
    tp_tensor *o;
    int buf;
    bool
        adds; /* a sum over the m rows, to which every block adds; else each block makes rows of the result */
    bool second; /* the matrix is the second factor: all is transposed */
} attend_to;
/* What the kernel of attention computes, where it is nothing else: a target may do so in its own way. p = softmax of scale times the
 * scores, which are -inf beyond the reach; of the gradient, p and then scale * p * (dp - the row's sum of p dp), where dp is the other
 * product. What a last product reads is rounded to its type. */
typedef enum { ATTEND_any, ATTEND_softmax, ATTEND_gradient, ATTEND_KINDS } attend_kind;
typedef struct attend_soft {
    attend_kind kind;
    double scale; /* positive */
    bool second;  /* gradient: the second product gives the scores */
    int probs;    /* the buffer of the kernel that p is written to */
    /* f32, one a row: the maximum of its scores, scaled, and 1 / sum of exp(score - maximum). The softmax writes those that are not
     * NULL, the gradient reads both. */
    void *top, *part;
} attend_soft;
typedef struct target_attend {
    attend_of of[ATTEND_OF];
    attend_to to[ATTEND_TO];
    int nof, nto;
    target_follow kernel; /* on rows of n elements, counted through the batch */
    void *scratch;        /* attend_bytes of the target's memory; NULL where it wants none */
    int nbuf; /* of the kernel; those that products make or read are set by the target, at most ATTEND_BETWEEN of the latter */
    int64_t
        reach; /* row r of a matrix needs its first r + reach columns alone, what is beyond them is 0; 0: all of them */
    attend_soft soft;
} target_attend;
/* Who is told of an index that a device found outside after the call that used it. */
typedef struct target_late {
    bool (*fail)(const void *data, int64_t bad, int64_t size, tp_err *err); /* false, with the error */
    const void *data;
    uint32_t id; /* the target's; 0: not known to it yet */
} target_late;
typedef enum {
    TARGET_done,
    TARGET_declined,
    TARGET_failed
} target_result; /* declined: nothing was written */

struct target {
    const char *name; /* "x64", "c", "interpreter", "cuda": what options say */
    const char
        *level; /* "avx512", "sm_90": of several targets of one name the best comes first; "": there is one */
    uint8_t device; /* dev_kind of the memory that its code runs on */
    target_caps caps;
    const target *fallback; /* runs what this one cannot compile; NULL: that is an error */

    /* Can this machine run it? False with the reason, a text that stays. */
    bool (*available)(const target *t, const char **why);
    /* out[i]: new code of k[i], or NULL where it cannot be; false with the first reason where one is NULL. Kernels are finished,
     * and no two of them are equal. Fills on, name, the sizes and, where each is made by itself, compile_us. Thread-safe. */
    bool (*compile)(const target *t, const vir *const *k, int n, target_code **out, tp_err *err);
    /* The same, but code may be finished after it returned, on threads of the target's own (ready). NULL: compiling is quick. */
    bool (*begin)(const target *t, const vir *const *k, int n, target_code **out, tp_err *err);
    /* NULL: code is always ready. Else whether it can be launched; wait: first waits until it can. False with an error where it
     * never will. Launching and saving wait. */
    bool (*ready)(const target_code *c, bool wait, tp_err *err);
    bool (*launch)(const target_code *c, const target_args *a, tp_err *err);

    /* NULL where caps say that there is none. */
    bool (*product)(const target_product *p, tp_err *err);
    /* Does it allocate for matrices of these types? It is not recorded then. NULL: never. */
    bool (*product_allocates)(const tp_tensor *o, const tp_tensor *a, const tp_tensor *b);
    target_result (*convolve)(const target_convolution *p, tp_err *err);
    /* Memory that convolve needs while it runs, -1: it will decline; NULL: it has its own. */
    int64_t (*convolve_bytes)(const target_convolution *p);
    target_result (*attend)(const target_attend *p, tp_err *err);
    /* Memory that attend needs while it runs, 0: it will decline; NULL: it has its own. */
    int64_t (*attend_bytes)(const target_attend *p);
    /* Kernels read where an index points without looking: are all elements of it in [lo, hi)? *bad: the first that is not.
     * Where late is not NULL, a device may say yes now and report by it at a later check or sync. */
    bool (*inside)(const tp_tensor *index, int64_t lo, int64_t hi, target_late *late, bool *yes, int64_t *bad,
                   tp_err *err);
    /* A target_late ends; NULL: nothing is late. */
    void (*forget)(target_late *late);

    /* What this thread launches between record and recorded is remembered instead of run; replay runs it as one, with the
     * addresses of then. Nothing in between may wait, allocate or free. NULL: there is no such thing. */
    bool (*record)(int index, tp_err *err); /* of the device; -1: the current one */
    bool (*records)(
        void); /* is this thread between the two, or does somebody else record what it launches? */
    void *(*recorded)(tp_err *err); /* NULL: it failed, and nothing is recorded any more */
    bool (*replay)(void *recording, tp_err *err);
    void (*drop)(void *recording);

    /* Code as bytes that another process of the same build and key loads; NULL: it stays in this process. */
    bool (*save)(const target_code *c, strbuf *out, tp_err *err);
    target_code *(*load)(const target *t, const char *name, const void *p, size_t n, tp_err *err);
    /* What bytes and measurements depend on beside the kernel: lines "name=value", without the target's own name. */
    void (*key)(const target *t, strbuf *out);
    /* What code_log shows of a kernel beside its vector IR: assembly, PTX, C; NULL: nothing. */
    bool (*list)(const target *t, const vir *k, strbuf *out, tp_err *err);
};

/* --- the table (target.c) ------------------------------------------------------------------------------------------ */
extern const target target_avx512, target_avx2, target_c, target_interp;
extern const target
    target_export; /* C that runs without Taper: nothing is compiled here, and there is no library */

/* The best that this machine can run, of the memory of that device. */
const target *target_of(dev_kind k);
static inline const target *target_host(void) { return target_of(DEV_cpu); }
/* name: "auto" or that of a target; level: "auto" or the highest one wanted ("base": none). Where there is no
 * such target on this machine, the interpreter on the CPU and NULL on devices, with the reason in *why. */
const target *target_named(dev_kind k, const char *name, const char *level, const char **why);
/* The next of the same name that is less demanding and that this machine can run, down to `level`; NULL: there is none. */
const target *target_below(const target *t, const char *level);
/* What names it in files: "x64-avx512", "c"; and back, NULL: not in this build. */
void target_id(const target *t, strbuf *out);
const target *target_by_id(const char *id, size_t n);
/* By a word of people: its level or name ("avx2", "c"), or what names it in files; whether this machine can run it or not.
 * NULL: there is none. */
const target *target_by_word(const char *word);
const char *const *target_words(void); /* ending in NULL */
void target_key(const target *t,
                strbuf *out); /* its line and those of its key, for configurations of the disk cache */
/* The head of new code: zeros behind it up to `size`, with what every target fills in. */
void *target_code_new(const target *t, const char *name, size_t size);
#endif
