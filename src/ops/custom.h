/* custom.h - operators that users register, from C (include/taper.h) or from Python (taper.library). In a graph
 * such a call is an opaque node, ops.<namespace>.<name>; beside it stand two derived forms:
 *   ops.<namespace>.<name>.functional  works on copies of what it writes and returns them after the results;
 *   ops.<namespace>.<name>.backward    the derivative: takes arguments, results and gradients of the results,
 *                                      and returns a gradient for each float tensor among the arguments. */
#ifndef TAPER_CUSTOM_H
#define TAPER_CUSTOM_H
#include "ops/op.h"

typedef struct op_custom op_custom;
/* arg: in schema order. out: VAL_tensor, VAL_tensors or none, owned. */
typedef bool custom_fn(const op_custom *op, const tp_val *arg, int narg, tp_val *out, tp_err *err);
/* dy: one per result, NULL for zero. dx: one per argument, and for a list one per element; starts as NULL; owned counts. */
typedef bool custom_vjp_fn(const op_custom *op, op_ctx *cx, const tp_val *arg, int narg, const tp_val *res,
                           tp_tensor *const *dy, int ndy, tp_tensor **dx, tp_err *err);

enum { CUSTOM_MAX_ARGS = 32 };
struct op_custom {
    const char *name;   /* "mylib::foo" */
    const char *schema; /* "mylib::foo(Tensor x, Tensor(a!) y, int n) -> Tensor" */
    const char *needs;  /* what registers it: "the Python module mylib.ops"; may be NULL */
    custom_fn *kernel;
    custom_fn *fake; /* types of the results from the types of the arguments */
    custom_fn
        *backward; /* as the form .backward says, but one result per argument, NULL where there is none */
    custom_vjp_fn *vjp; /* the same as calls of operators, which are recorded; goes before backward */
    void *data;
    bool effects; /* called for what it does: never dropped, even where nobody uses its results */
    bool late;    /* waits for something: compiled code calls it where its result is first used */
    /* filled in from the schema */
    int narg, nret;
    bool ret_list;      /* returns Tensor[] */
    uint32_t mutated;   /* bit i: argument i is written */
    uint32_t tensors;   /* bit i: argument i is a tensor */
    const char **names; /* of the arguments */
};

typedef enum { CUSTOM_call, CUSTOM_functional, CUSTOM_backward } custom_form;

/* Copies the row; one of the same name is replaced. False with err: the schema cannot be read. */
bool custom_register(const op_custom *row, tp_err *err);
const op_custom *custom_find(const char *target,
                             custom_form *form); /* "ops.mylib.foo", "mylib::foo"; NULL: none */
const op_custom *custom_at(int i);               /* NULL after the last */
/* Runs the call that an opaque node's target names. Results never share memory with arguments. */
bool custom_run(const char *target, const char *needs, const tp_val *arg, int narg, tp_val *out, tp_err *err);
bool custom_is_late(const char *target);
bool custom_is_pure(const char *target); /* a registered operator that writes nothing and returns something */
#endif
