/* op.h - what an operator is: its row, its parsed schema, one call of it.
 * The table is ops.def; each stage pastes its own prefix onto the column it owns. */
#ifndef TAPER_OP_H
#define TAPER_OP_H
#include "ops/val.h"
#include "base/vec.h"

typedef enum {
#define OP(id, schema, shape, eager, vjp, decomp, lower, flags, py) OP_##id,
#include "ops/ops.def"
    OP_COUNT
} op_id;

/* Facts about a row. */
enum {
    OPF_INP = 1 << 0,     /* has an in-place twin: name_ writes the result into the first argument */
    OPF_OUT = 1 << 1,     /* takes out= from Python */
    OPF_PW = 1 << 2,      /* pointwise: element i of the result depends on element i of the inputs only */
    OPF_VIEW = 1 << 3,    /* the result shares the first argument's storage */
    OPF_RAND = 1 << 4,    /* draws random numbers */
    OPF_COMM = 1 << 5,    /* commutative in its first two arguments */
    OPF_NUM = 1 << 6,     /* Tensor parameters accept Python numbers */
    OPF_COMP = 1 << 7,    /* composite: defined by its decomposition alone; autograd sees through it */
    OPF_DYN = 1 << 8,     /* output sizes depend on data: the eager kernel allocates */
    OPF_MUT = 1 << 9,     /* always writes its first argument (copy_, fill_, normal_): the name ends in _ */
    OPF_NODIFF = 1 << 10, /* never differentiable (comparisons, integer results) */
    OPF_SYNC = 1 << 11,   /* reads data back to the host (item) */
    OPF_HIDE = 1 << 12,   /* no Python name: backward forms and internals */
    OPF_CHECK = 1 << 14,  /* returns nothing: it is there for the error it may raise */
    OPF_NUMT = 1 << 15,   /* of OPF_NUM rows: one argument at least must be a tensor */
    OPF_NUM2 = 1 << 16,   /* of OPF_NUM rows: the first argument must be a tensor */
    OPF_HEAD = 1 << 17, /* of OPF_MUT rows: changes sizes and strides of its first argument, not its values */
    OPF_NODIMS = 1 << 18,  /* an empty list of dimensions names none; with other reductions it names all */
    OPF_LOW = 1 << 19,     /* autocast runs it in the lower type, */
    OPF_FULL = 1 << 20,    /* in float32, */
    OPF_WIDEST = 1 << 21,  /* or in the widest type among its arguments */
    OPF_EXACT = 1 << 22,   /* out= must have the type of the result, */
    OPF_OWN = 1 << 23,     /* and may share no memory with the arguments */
    OPF_CHEAP = 1 << 24,   /* only moves or fills memory: backward computes it again rather than keeping it */
    OPF_DEAR = 1 << 25,    /* of OPF_PW rows: a function of its own rather than an instruction or two */
    OPF_WIDENUM = 1 << 26, /* numbers keep their precision beside float16 and bfloat16 */
    OPF_FITS = 1 << 27,    /* its numbers go into the result: they must fit the result's type */
    OPF_FAILS =
        1 << 28, /* refuses some data (of OPF_PW rows: integers); a call is kept for the error it may raise */
    OPF_DEVICE = 1 << 29,  /* its decomposition is for devices: the CPU has a kernel for the whole */
    OPF_STORAGE = 1 << 30, /* its fourth argument counts from the start of the storage, not of the tensor */
    OPF_LIKE = -2147483647 -
               1,          /* bit 31: looks at size and type of its first argument, never at its values */
    OPF_INPONLY = 1 << 13, /* as OPF_INP but from Python only as name_ (no functional spelling) */
};

typedef enum { OPV_fn = 0, OPV_inplace = 1, OPV_out = 2 } op_variant;

/* --- schema ------------------------------------------------------------------------------------------ */
typedef enum {
    PT_tensor,
    PT_tensors,
    PT_scalar,
    PT_int,
    PT_ints,
    PT_float,
    PT_floats,
    PT_bool,
    PT_bools,
    PT_str,
    PT_dtype,
    PT_device,
    PT_layout,
    PT_memfmt,
    PT_gen,
    PT_COUNT
} param_type;

typedef struct op_param {
    const char *name;
    uint8_t type;  /* param_type */
    bool optional; /* the ? mark: None is allowed */
    bool elem_opt; /* Tensor?[] */
    bool kwonly;
    bool has_default;
    bool mutated;   /* Tensor(a!) */
    bool fixed;     /* a mode, a power: a symbolic number is fixed to its value by a guard */
    int16_t list_n; /* int[2]: a single int stands for this many; 0 otherwise */
    tp_val def;
} op_param;

bool op_is_default(const tp_val *a, const op_param *p); /* would the row fill this in itself? */

enum { OP_MAX_PARAMS = 24, OP_MAX_RETURNS = 8 };
typedef struct op_schema {
    int nparam, nret;
    bool ret_list;                        /* returns Tensor[] */
    uint8_t ret_type[OP_MAX_RETURNS];     /* param_type */
    const char *ret_name[OP_MAX_RETURNS]; /* "values", "indices" for named tuples, or NULL */
    op_param *param;
} op_schema;

/* --- one call ------------------------------------------------------------------------------------------ */
typedef struct op_ctx op_ctx;
typedef struct op_call op_call;
typedef struct bld bld;

typedef enum {
    OUT_new,  /* fresh memory with this geometry */
    OUT_view, /* a view of argument `alias` with this geometry and offset */
    OUT_self, /* argument `alias` itself, unchanged */
    OUT_none, /* no value (optional result) */
    OUT_num,  /* a number: `num` */
} out_kind;

typedef struct op_out {
    uint8_t kind;
    uint8_t dt;
    uint8_t ndim;
    int16_t alias; /* argument index */
    tp_device dev;
    symint offset;
    tp_val num;
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
} op_out;

typedef bool op_shape_fn(op_call *c);
typedef bool op_eager_fn(op_call *c);
typedef bool op_decomp_fn(bld *b, const tp_val *arg, tp_val *out);

typedef struct op_row {
    const char *name;     /* "add" */
    const char *overload; /* "Tensor", or "" for the default one */
    const char *full;     /* "add.Tensor" or "relu" */
    const char *schema_text;
    const char *py;
    uint32_t flags;
    op_shape_fn *shape;
    op_eager_fn *eager;
    op_decomp_fn *decomp;
    const char *eager_name, *vjp_name, *decomp_name, *lower_name; /* the tokens, "none" for holes */
    op_schema schema;
} op_row;

extern const op_row *op_rows; /* private: NULL until schemas are parsed */
const op_row *op_row_first(op_id op);
static inline const op_row *op_row_of(op_id op) /* schema parsed */
{
    const op_row *r = __atomic_load_n(&op_rows, __ATOMIC_ACQUIRE);
    return TP_LIKELY(r != NULL) ? &r[op] : op_row_first(op);
}
static inline op_id op_of(const op_row *row) { return (op_id)(row - op_row_of((op_id)0)); }
bool op_find(const char *full, size_t n, op_id *op, op_variant *v); /* "add.Tensor", "add_.Tensor", "relu" */
void op_full_name(strbuf *b, op_id op, op_variant v);               /* add_.Tensor */

/* What a call needs to know of its surroundings. One per thread that calls. */
typedef bool op_dispatch_fn(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err);
struct op_ctx {
    bool grad_mode; /* record on the tape */
    bool inference_mode;
    bool deterministic;
    bool anomaly;
    dtype default_dtype;
    tp_device default_device; /* of results of calls without a tensor argument */
    void *rec;                /* ir_rec: where calls on fake tensors with nodes are recorded; NULL: nowhere */
    sym_env *env;             /* for data-dependent sizes of fake results; NULL outside tracing */
    uint8_t autocast; /* by kind of device, a bit each: calls convert their arguments as the row says */
    uint8_t autocast_dtype[DEV_COUNT]; /* the lower types */
    void *hooks;                       /* reserved for saved-tensor hooks */
    struct batch_level *batch;         /* the innermost vmap that is running (grad/batch.h), or NULL */
    op_dispatch_fn *dispatch;          /* takes the place of every row's kernel; NULL: nobody does */
    bool (*look)(
        op_call *
            c); /* is shown calls on fakes when their shapes are known; false stops them. NULL: nobody looks */
    tp_tensor
        *into; /* borrowed: the next call may write its result there instead of making a tensor (out=) */
};
op_ctx *op_ctx_cur(void); /* this thread's */

enum { OP_INLINE_OUTS = 3 };
enum {
    SHARE_SELF = 1,  /* elements of the first argument may be one: they are written in order */
    SHARE_VALUE = 2, /* a 0-dim argument may lie in it: it is the value of every element that is written */
    SHARE_NONE = 4,  /* no other argument may lie in it, not even as the same tensor */
};
struct op_call {
    op_id op;
    op_variant variant;
    const op_row *row;
    const tp_val *arg; /* row->schema.nparam of them, defaults filled in */
    op_ctx *cx;
    tp_err *err;
    int nout;        /* outputs described so far */
    op_out *out;     /* nout of them; shape rules fill, via the functions below */
    tp_tensor **res; /* eager kernels: one per output, allocated from `out` */
    const struct special_row
        *special;    /* of types without loops of their own: ops/complex.h; NULL otherwise */
    bool on_device;  /* an argument or a result is not on the host */
    uint8_t sharing; /* what memory an in-place call may share: shape rules set it */
    tp_tensor *into; /* the context's, or NULL */
    op_out inl[OP_INLINE_OUTS];
};

/* arguments */
static inline tp_tensor *arg_t(const op_call *c, int i)
{
    return c->arg[i].kind == VAL_tensor ? c->arg[i].t : NULL;
}
static inline int64_t arg_i(const op_call *c, int i, int64_t none)
{
    return c->arg[i].kind == VAL_none ? none : c->arg[i].i;
}
static inline bool arg_b(const op_call *c, int i, bool none)
{
    return c->arg[i].kind == VAL_none ? none : c->arg[i].b;
}
static inline double arg_f(const op_call *c, int i, double none)
{
    return c->arg[i].kind == VAL_none ? none : val_as_f(&c->arg[i]);
}
static inline dtype arg_dt(const op_call *c, int i, dtype none)
{
    return c->arg[i].kind == VAL_none ? none : (dtype)c->arg[i].i;
}
bool arg_dim(op_call *c, int i, int ndim, int *dim);        /* wraps a negative dim; IndexError otherwise */
bool tensor_shares(const tp_tensor *a, const tp_tensor *b); /* two dense tensors with bytes in common */
bool ops_overlap_err(bool itself, tp_err *err);             /* "unsupported operation: ..." */
bool pieces_fit(int64_t n, tp_err *err); /* a tensor is not split into more than memory can describe */
bool dim_wrap(int64_t d, int ndim, int *dim, tp_err *err);
/* Dimension list -> mask and count; an empty or absent list means all when `empty_all`. */
bool arg_dims(op_call *c, int i, int ndim, bool empty_all, uint32_t *mask);

/* describing outputs */
op_out *out_add(op_call *c);                                         /* next output, kind OUT_new, cpu */
bool fill_value_ok(dtype dt, const tp_val *v, tp_err *err);          /* does the number fit the type? */
op_out *out_new(op_call *c, dtype dt, int ndim, const symint *size); /* contiguous */
op_out *out_like(op_call *c, const tp_tensor *t, dtype dt); /* t's geometry (dense strides preserved) */
/* As empty_like: exactly t's strides when it is dense, even where sizes of 1 make them arbitrary. */
op_out *out_dense(op_call *c, const tp_tensor *t, dtype dt);
op_out *out_view(op_call *c, int arg, int ndim, const symint *size, const symint *stride, symint offset);
op_out *out_self(op_call *c, int arg);

/* broadcasting */
bool shape_broadcast(int *ndim, symint *size, int nd2, const symint *size2, tp_err *err); /* folds size2 in */
/* Strides of a pointwise result: follows the inputs' common permutation, contiguous otherwise. NULL among them: a number. */
void shape_pointwise_strides(int ndim, const symint *size, int nin, tp_tensor *const *in, symint *stride);

/* --- calling -------------------------------------------------------------------------------------------- */
/* Runs the shape rule, allocates, runs the kernel; on fake inputs only the shape rule. Knows nothing of tapes
 * and graphs: callers go through grad_call (or a builder). out: nret values (one VAL_tensors for list
 * results); owned by the caller. For in-place variants the result is the first argument, with one more count.
 */
bool ops_call(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err);
/* Is shown every call before it runs, once profile_watch() was called. */
extern void (*ops_watch)(op_ctx *cx, op_id op, op_variant v, const tp_val *arg);
/* Eager kernels of a device whose bytes are not on the host: one function for every row, under the contract of the eager column
 * (and copies to and from the host). Without one, such calls are refused. Set once, by the target. */
void ops_on_device(dev_kind k, op_eager_fn *fn);
/* Calls with a batched argument, and those that draw inside vmap. Set once, by grad. */
void ops_on_batch(op_dispatch_fn *fn);
bool ops_is_batched(const op_ctx *cx, const op_row *row, const tp_val *arg);
op_eager_fn eager_view;                      /* of views: nothing to compute */
op_eager_fn *op_kernel_of(const op_call *c); /* the CPU's, for the types of the call */
op_eager_fn eager_empty, eager_clone, eager_zero_,
    eager_copy; /* of new memory, of copies: copy_ writes its first argument */
/* The same without running a kernel: outputs are fake whatever the inputs are. */
bool ops_fake(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err);
/* Copy with conversion and broadcasting; the workhorse of copy_, to, contiguous. */
bool tensor_copy(tp_tensor *dst, const tp_tensor *src, tp_err *err);
bool storage_zero(tp_tensor *t);                                          /* all of its storage; true */
bool shape_fits(const tp_tensor *to, const tp_tensor *from, tp_err *err); /* can from be broadcast to to? */
tp_tensor *tensor_cast(tp_tensor *t, dtype dt, tp_err *err); /* new count of t itself when nothing changes */
tp_tensor *tensor_contiguous(tp_tensor *t, tp_err *err);     /* likewise */

/* --- builders: how derivative rules and decompositions make operator calls --------------------------- */
/* The same formula runs at once (eager tape) or appends nodes (joint graph): only `call` differs. Results are
 * kept in a pool that bld_end releases; a failed call sets b->err and yields NULL, and a call with a NULL
 * required tensor does nothing, so formulas need no checks. */
struct bld {
    bool (*call)(bld *b, op_id op, op_variant v, const tp_val *arg, tp_val *out);
    op_ctx *cx;
    tp_err *err;
    bool failed;
    VEC(tp_tensor *) pool;
};
void bld_init(bld *b, op_ctx *cx, tp_err *err); /* calls ops_call: executes at once, no tape */
void bld_end(bld *b);
/* The row's decomposition. What it makes of nothing (zeros, full) is on the device of its tensors. */
bool op_decompose(const op_row *row, bld *b, const tp_val *arg, tp_val *out);
tp_tensor *bld_host(bld *b, tp_tensor *t); /* its values where the host reads them; NULL with b->err */
tp_tensor *bld_keep(bld *b, tp_tensor *t); /* takes t's count into the pool; returns t */
tp_tensor *b_callv(bld *b, op_id op, op_variant v, const tp_val *arg, int narg); /* first result */
bool b_callvn(bld *b, op_id op, op_variant v, const tp_val *arg, int narg, tp_tensor **res, int nres);
#define B_ARGS(...) \
    (const tp_val[]){ __VA_ARGS__ }, (int)(sizeof((const tp_val[]){ __VA_ARGS__ }) / sizeof(tp_val))
#define b_op(b, id, ...)             b_callv((b), OP_##id, OPV_fn, B_ARGS(__VA_ARGS__))
#define b_opn(b, id, res, nres, ...) b_callvn((b), OP_##id, OPV_fn, B_ARGS(__VA_ARGS__), (res), (nres))
bool op_fill_defaults(const op_row *row, const tp_val *arg, int narg, tp_val *full, tp_err *err);
#endif
