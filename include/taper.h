/* taper.h - the C interface of Taper, a tensor compiler you can debug.
 *
 *   tp_err *err = tp_err_new();
 *   tp_graph *g = tp_graph_load("model.graph", err);
 *   tp_program *p = g ? tp_compile(g, "eager", err) : NULL;
 *   tp_tensor *in[1] = { x }, *out[1];
 *   if (!p || !tp_program_run(p, in, 1, out, 1, err))
 *       fprintf(stderr, "%s\n", tp_err_message(err));
 *
 * Rules. Types are opaque. What a *_new, _from, _load, _parse, _compile function returns is the caller's,
 * ended by the matching _free or _unref; nodes belong to their graph. Functions that can fail take `err` last
 * (NULL is allowed) and return NULL or false; an error object keeps the first failure until tp_err_clear. No
 * function aborts on wrong input. Distinct objects may be used by distinct threads; a tp_program may be run
 * by several threads at once. The interface is versioned: a program built for version TP_ABI_VERSION checks
 * tp_abi_version() at start. */
#ifndef TAPER_H
#define TAPER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TP_VERSION     "0.1.0"
#define TP_ABI_VERSION 1
#ifndef TP_API
#define TP_API __attribute__((visibility("default")))
#endif

TP_API const char *tp_version(void); /* of the library: "0.1.0" */
TP_API int tp_abi_version(void);

/* --- errors
 * --------------------------------------------------------------------------------------------------- */
typedef struct tp_err tp_err;
TP_API tp_err *tp_err_new(void);
TP_API void tp_err_free(tp_err *err);                 /* NULL is allowed */
TP_API void tp_err_clear(tp_err *err);                /* as new */
TP_API bool tp_err_is_set(const tp_err *err);         /* has something failed? */
TP_API const char *tp_err_message(const tp_err *err); /* "" when nothing failed */
TP_API const char *tp_err_class(const tp_err *err);   /* the Python class it would be: "RuntimeError" */
TP_API const char *tp_err_notes(const tp_err *err);   /* where it happened, a line each, innermost first */

/* --- tensors
 * -------------------------------------------------------------------------------------------------- */
typedef struct tp_tensor tp_tensor;
typedef enum tp_dtype {
    TP_BOOL = 0, /* one byte, 0 or 1 */
    TP_U8 = 1,
    TP_I8 = 2,
    TP_I16 = 3,
    TP_I32 = 4,
    TP_I64 = 5,
    TP_F16 = 6,
    TP_BF16 = 7,
    TP_F32 = 8,
    TP_F64 = 9
} tp_dtype;
TP_API const char *tp_dtype_name(tp_dtype dt); /* "float32"; NULL for no dtype */
TP_API size_t tp_dtype_size(tp_dtype dt);      /* bytes of one element; 0 for no dtype */

/* Contiguous and uninitialised. */
TP_API tp_tensor *tp_tensor_new(tp_dtype dt, int ndim, const int64_t *size, tp_err *err);
/* Contiguous, with a copy of data. */
TP_API tp_tensor *tp_tensor_from_data(tp_dtype dt, int ndim, const int64_t *size, const void *data,
                                      tp_err *err);
/* Looks at the caller's memory; stride in elements, NULL for contiguous. `release` (may be NULL) is called
 * with ctx and data when the last reference ends. */
TP_API tp_tensor *tp_tensor_wrap(tp_dtype dt, int ndim, const int64_t *size, const int64_t *stride,
                                 void *data, void (*release)(void *ctx, void *data), void *ctx, tp_err *err);
TP_API tp_tensor *tp_tensor_ref(tp_tensor *t);
TP_API void tp_tensor_unref(tp_tensor *t); /* NULL is allowed */
TP_API tp_dtype tp_tensor_dtype(const tp_tensor *t);
TP_API int tp_tensor_ndim(const tp_tensor *t);
TP_API int64_t tp_tensor_size(const tp_tensor *t,
                              int dim); /* negative dims count from the end; 0 when out of range */
TP_API int64_t tp_tensor_stride(const tp_tensor *t, int dim); /* in elements */
TP_API int64_t tp_tensor_numel(const tp_tensor *t);
TP_API void *tp_tensor_data(const tp_tensor *t); /* of its first element */
TP_API bool tp_tensor_is_contiguous(const tp_tensor *t);
TP_API tp_tensor *tp_tensor_contiguous(tp_tensor *t,
                                       tp_err *err); /* t itself with one more count where it is */

/* --- graphs
 * --------------------------------------------------------------------------------------------------- */
typedef struct tp_graph tp_graph;
typedef struct tp_node tp_node;

TP_API tp_graph *tp_graph_new(const char *name);
TP_API void tp_graph_free(tp_graph *g); /* NULL is allowed */
/* Text as docs/graph.md describes it. `name` is what messages call it. */
TP_API tp_graph *tp_graph_parse(const char *text, size_t n, const char *name, tp_err *err);
TP_API tp_graph *tp_graph_load(const char *path, tp_err *err); /* and PATH.safetensors for big constants */
TP_API bool tp_graph_save(const tp_graph *g, const char *path, tp_err *err);
TP_API char *tp_graph_print(const tp_graph *g); /* ended by tp_free */
TP_API bool tp_graph_verify(const tp_graph *g, tp_err *err);
TP_API uint64_t tp_graph_hash(const tp_graph *g); /* structure and types, not names */
TP_API bool tp_graph_simplify(tp_graph *g, const char *passes,
                              tp_err *err); /* "noop,fold,cse,dce"; NULL: all */
TP_API int tp_graph_n_nodes(const tp_graph *g);
TP_API int tp_graph_n_inputs(const tp_graph *g);
TP_API int tp_graph_n_outputs(const tp_graph *g);
TP_API void tp_free(void *p); /* memory that this interface handed out */

/* An argument of a call. Make them with the functions below; lists are copied by tp_graph_call. */
typedef struct tp_arg {
    int kind;            /* private */
    int n;               /* private */
    const char *keyword; /* NULL: by position */
    union {
        int64_t i;
        double f;
        const char *s;
        const void *p;
        tp_node *node;
    } u; /* private */
} tp_arg;
enum {
    TP_ARG_NONE,
    TP_ARG_NODE,
    TP_ARG_INT,
    TP_ARG_FLOAT,
    TP_ARG_BOOL,
    TP_ARG_STR,
    TP_ARG_DTYPE,
    TP_ARG_INTS,
    TP_ARG_FLOATS,
    TP_ARG_NODES
};
static inline tp_arg tp_arg_of(int kind, int n)
{
    tp_arg a;
    a.kind = kind;
    a.n = n;
    a.keyword = NULL;
    a.u.i = 0;
    return a;
}
static inline tp_arg tp_none(void) { return tp_arg_of(TP_ARG_NONE, 0); }
static inline tp_arg tp_int(int64_t v)
{
    tp_arg a = tp_arg_of(TP_ARG_INT, 0);
    a.u.i = v;
    return a;
}
static inline tp_arg tp_bool(bool v)
{
    tp_arg a = tp_arg_of(TP_ARG_BOOL, 0);
    a.u.i = v;
    return a;
}
static inline tp_arg tp_float(double v)
{
    tp_arg a = tp_arg_of(TP_ARG_FLOAT, 0);
    a.u.f = v;
    return a;
}
static inline tp_arg tp_str(const char *v)
{
    tp_arg a = tp_arg_of(TP_ARG_STR, 0);
    a.u.s = v;
    return a;
}
static inline tp_arg tp_type(tp_dtype v)
{
    tp_arg a = tp_arg_of(TP_ARG_DTYPE, 0);
    a.u.i = (int64_t)v;
    return a;
}
static inline tp_arg tp_value(tp_node *v) /* NULL: None */
{
    tp_arg a = tp_arg_of(v ? TP_ARG_NODE : TP_ARG_NONE, 0);
    a.u.node = v;
    return a;
}
static inline tp_arg tp_ints(const int64_t *v, int n)
{
    tp_arg a = tp_arg_of(TP_ARG_INTS, n);
    a.u.p = v;
    return a;
}
static inline tp_arg tp_floats(const double *v, int n)
{
    tp_arg a = tp_arg_of(TP_ARG_FLOATS, n);
    a.u.p = v;
    return a;
}
static inline tp_arg tp_values(tp_node *const *v, int n)
{
    tp_arg a = tp_arg_of(TP_ARG_NODES, n);
    a.u.p = v;
    return a;
}
static inline tp_arg tp_named(const char *keyword, tp_arg a)
{
    a.keyword = keyword;
    return a;
}

/* Building node by node. Types are inferred and arguments checked at each step. */
TP_API tp_node *tp_graph_input(tp_graph *g, const char *name, tp_dtype dt, int ndim, const int64_t *size,
                               const int64_t *stride, tp_err *err); /* stride NULL: contiguous */
TP_API tp_node *tp_graph_constant(tp_graph *g, const char *name, tp_tensor *t, tp_err *err); /* refs t */
/* op: "add.Tensor", "relu", "add_.Tensor" (in place); "aten." before it is allowed; "mylib::scale", a custom one, with
 * all its arguments by position. Arguments left out take
 * their defaults. */
TP_API tp_node *tp_graph_call(tp_graph *g, const char *op, const tp_arg *args, int n, tp_err *err);
TP_API tp_node *tp_graph_item(tp_graph *g, tp_node *of, int index, tp_err *err); /* one result of several */
TP_API bool tp_graph_output(tp_graph *g, tp_node *const *values, int n, tp_err *err); /* again: replaces it */
TP_API const char *tp_node_name(const tp_node *n);
TP_API char *tp_node_type(const tp_node *n); /* "f32[3, 3][3, 1]cpu"; ended by tp_free */

/* --- custom operators
 * ------------------------------------------------------------------------------------------- */
/* One call of a custom operator, as its functions see it. */
typedef struct tp_call tp_call;
TP_API int tp_call_n_args(const tp_call *c);
TP_API tp_tensor *tp_call_tensor(const tp_call *c, int i); /* borrowed; NULL: None, or no tensor */
TP_API int64_t tp_call_int(const tp_call *c, int i);       /* 0 where argument i is no number */
TP_API double tp_call_float(const tp_call *c, int i);
TP_API bool tp_call_bool(const tp_call *c, int i);
TP_API const char *tp_call_str(const tp_call *c, int i);     /* NULL: no string */
TP_API void tp_call_return(tp_call *c, int i, tp_tensor *t); /* result i; takes the count */
/* Shape functions: the type of result i. stride NULL: contiguous. */
TP_API bool tp_call_return_type(tp_call *c, int i, tp_dtype dt, int ndim, const int64_t *size,
                                const int64_t *stride, tp_err *err);

/* Functions return false after setting an error with tp_err_set. */
typedef bool tp_call_fn(void *data, tp_call *c, tp_err *err);
typedef struct tp_custom_op {
    const char
        *schema; /* "mylib::scale(Tensor x, float by) -> Tensor"; what is written is marked Tensor(a!) */
    const char *needs;  /* what registers it, for messages: "libmylib.so"; may be NULL */
    tp_call_fn *kernel; /* computes the results, which must not share memory with arguments */
    tp_call_fn
        *shape; /* sets the results' types; the tensors it sees have no data. May be NULL: like argument 0 */
    /* Arguments of the call, then its results, then the gradients of the results (NULL: zero). Returns the gradient of
     * argument i as result i. May be NULL: the operator has no derivative. */
    tp_call_fn *backward;
    void *data;
    /* The shape function treats sizes and numbers as handles, see tp_size_add: sizes that are symbolic while tracing stay so.
     * Otherwise they are fixed to the numbers they have then, and other sizes are compiled for anew. */
    bool symbolic;
} tp_custom_op;
/* Sizes (and integer arguments) in a shape function of a `symbolic` operator. They may be passed on as they are; other sizes
 * are made of them by these functions alone. A comparison is answered for the sizes at hand and becomes a condition
 * under which the compiled code is used. Plain numbers may stand beside them. */
TP_API int64_t tp_size_add(int64_t a, int64_t b);
TP_API int64_t tp_size_sub(int64_t a, int64_t b);
TP_API int64_t tp_size_mul(int64_t a, int64_t b);
TP_API int64_t tp_size_div(int64_t a, int64_t b); /* rounded down; 0 where b is 0 */
TP_API int64_t tp_size_mod(int64_t a, int64_t b); /* with the sign of b; 0 where b is 0 */
TP_API int64_t tp_size_min(int64_t a, int64_t b);
TP_API int64_t tp_size_max(int64_t a, int64_t b);
TP_API bool tp_size_equal(int64_t a, int64_t b);
TP_API bool tp_size_less(int64_t a, int64_t b);
/* Copies *op; an operator of the same name is replaced. It is then known to every graph of the process: in text as
 * taper.ops.mylib.scale(x, 2.0), from Python as taper.ops.mylib.scale. */
TP_API bool tp_register_op(const tp_custom_op *op, tp_err *err);
TP_API bool tp_err_set(tp_err *err, const char *message); /* returns false */

/* --- programs
 * -------------------------------------------------------------------------------------------------- */
typedef struct tp_program tp_program;
TP_API const char *tp_backend_name(int i); /* NULL after the last */
TP_API const char *tp_backend_about(int i);
/* The graph stays the caller's and may be freed at once. */
TP_API tp_program *tp_compile(const tp_graph *g, const char *backend, tp_err *err);
/* Inputs are borrowed and checked against the graph's: element types, sizes and what the graph says of symbolic ones,
 * strides (but of dimensions of size 1 and of tensors without elements), and which of them share memory where the graph
 * writes them. tp_tensor_contiguous makes the strides that a graph without strides wants. Outputs belong to the caller
 * (NULL for a returned None). Numbers (a symbolic size, a float) go in and come out as tensors of one element. */
TP_API bool tp_program_run(tp_program *p, tp_tensor *const *in, int n_in, tp_tensor **out, int n_out,
                           tp_err *err);
TP_API void tp_program_free(tp_program *p); /* NULL is allowed */

#ifdef __cplusplus
}
#endif
#endif
