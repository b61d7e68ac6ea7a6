/* tape.h - the eager tape: which step made a tensor, and how gradients walk back along the steps.
 * A tensor's autograd record hangs off tensor->ag. Steps are counted: a tensor holds its step, a step holds
 * the steps that made its inputs. One thread at a time may work on a tape (Python: the one with the GIL). */
#ifndef TAPER_TAPE_H
#define TAPER_TAPE_H
#include "grad/grad.h"

/* Are steps recorded? enable_grad() inside inference mode changes nothing. */
static inline bool grad_records(const op_ctx *cx) { return cx->grad_mode && !cx->inference_mode; }

typedef struct grad_node grad_node;
typedef struct grad_edge {
    grad_node *node; /* one count, or NULL: the gradient is not wanted */
    int nr;          /* which result of that step */
} grad_edge;

/* Type of a gradient: that of the result it belongs to. */
typedef struct grad_shape {
    symint *dims;  /* sizes then strides; belongs to the node */
    symint offset; /* of arguments: where in its storage it begins */
    uint8_t dt, ndim;
    tp_device dev;
} grad_shape;

/* --- hooks: {fn, data} pairs kept in counted lists --------------------------------------------------- */
/* Tensor hooks: in[0] is the gradient; a hook may put another tensor there (it drops the old count).
 * Post-accumulate hooks: in[0] is the leaf. Node hooks before: in are the gradients of the results.
 * Node hooks after: in are the gradients of the inputs, out those of the results. */
typedef bool grad_hook_fn(void *data, tp_tensor **in, int nin, tp_tensor **out, int nout, tp_err *err);
typedef struct grad_hook {
    int64_t id;
    grad_hook_fn *fn;
    void *data;
    void (*free)(void *data);
} grad_hook;
typedef struct grad_hooks {
    int refs;
    bool retain;      /* retain_grad: store the gradient in owner */
    tp_tensor *owner; /* not counted; cleared when the tensor goes */
    VEC(grad_hook) list;
} grad_hooks;
grad_hooks *grad_hooks_ref(grad_hooks *h);
void grad_hooks_unref(grad_hooks *h);
int64_t grad_hooks_add(grad_hooks *h, grad_hook_fn *fn, void *data,
                       void (*free_)(void *)); /* returns the id */
void grad_hooks_remove(grad_hooks *h, int64_t id);

/* --- steps ------------------------------------------------------------------------------------------- */
typedef struct grad_vt {
    const char *(*name)(const grad_node *n); /* MulBackward0 */
    /* dy: one per result, borrowed, NULL for zero. need: one per edge. dx: one per edge, starts as NULL;
     * set to owned counts. Operator calls go through b. */
    bool (*apply)(grad_node *n, bld *b, tp_tensor *const *dy, const bool *need, tp_tensor **dx, tp_err *err);
    void (*release)(grad_node *n); /* drop what was saved; may be NULL */
    void (*free)(grad_node *n);    /* drop the rest, not n itself; may be NULL */
    /* A step that stands for many, some results of which are made of others; may be NULL. opens: is some result that
     * is watched (by hooks, or as an input of backward) one that others with a gradient are made of? Then open does what
     * apply does with the parts one by one: the hooks of the results run on the way, and seen gets the watched results'
     * gradients, owned. */
    bool (*opens)(const grad_node *n, tp_tensor *const *dy, const bool *watched);
    bool (*open)(grad_node *n, bld *b, tp_tensor *const *dy, const bool *need, const bool *watched,
                 tp_tensor **dx, tp_tensor **seen, tp_err *err);
    /* The same kind of step, before missing gradients become zeros: clears need of the edges that no gradient in dy can
     * reach, so that nothing arrives there. May be NULL. */
    void (*narrow)(grad_node *n, tp_tensor *const *dy, bool *need);
    /* The steps of views of its inputs (0, 1, ...; NULL after the last) that were handed out with results made of them, some
     * of which have a gradient in dy. It bypasses the views' own histories. May be NULL. */
    grad_node *(*bypassed)(grad_node *n, tp_tensor *const *dy, int i);
} grad_vt;

struct grad_node {
    int refs;
    bool released; /* saved tensors are gone */
    bool last;     /* apply: nobody will ask again, saved tensors may go as they are read */
    bool saves;    /* some tensor was saved: a second backward needs it */
    bool zeros;    /* apply wants zeros instead of NULL gradients */
    bool leaf;     /* accumulates into a tensor */
    bool own_dims; /* private: in[].dims were allocated one by one */
    uint16_t nin;  /* results of the step: gradients that come in */
    uint16_t nedge;
    const grad_vt *vt;
    uint64_t seq; /* creation order; leaves come last */
    grad_edge *edge;
    grad_shape *in; /* nin of them; dt 255 where unknown */
    struct grad_slot *slot;
    struct grad_pre *pre;       /* tensor hooks of the results */
    grad_hooks *before, *after; /* node hooks, or NULL */
    void *py;                   /* front: the Python object, borrowed */
    char *where;                /* anomaly mode: where the forward call was made */
    grad_node *dead;            /* private: list of nodes to free */
};

/* A step of the caller's own kind: `size` bytes starting with an grad_node, zeroed. Count 1. */
grad_node *grad_node_new(const grad_vt *vt, size_t size, int nin, int nedge);
grad_node *grad_node_ref(grad_node *n);
void grad_node_unref(grad_node *n);                         /* NULL allowed; never recurses */
void grad_node_set_edge(grad_node *n, int i, tp_tensor *t); /* t may be NULL or not require a gradient */
void grad_node_set_shape(grad_node *n, int nr, const tp_tensor *t); /* type of result nr, once */
/* t is result nr of n from now on. False with err when t is a leaf that requires a gradient. */
bool grad_set_history(tp_tensor *t, grad_node *n, int nr, tp_err *err);
/* t, computed without a tape, as result nr of a function with a derivative of its own: t itself, or another tensor on its
 * memory where t has a history. Counted. */
tp_tensor *grad_function_result(grad_node *n, int nr, tp_tensor *t, tp_err *err);
/* The same for a tensor that n wrote in place: views rebase the history of their base. */
bool grad_rebase_history(tp_tensor *t, grad_node *n, int nr, tp_err *err);
bool grad_check_inplace(op_ctx *cx, tp_tensor *t, bool needs_grad, tp_err *err);
/* Would grad_check_inplace let a write with a gradient pass, because t is computed? */
bool grad_is_writable(const tp_tensor *t);
/* A leaf with AGF_computed that was written on the tape: the leaf at which gradients of what it held before end. */
tp_tensor *grad_before_write(const tp_tensor *t); /* borrowed or NULL */
const char *grad_node_name(const grad_node *n);
int grad_node_next(const grad_node *n, grad_edge *out, int cap); /* the edges users see; returns how many */

/* --- questions and settings of a tensor
 * --------------------------------------------------------------------- */
bool grad_requires_grad_slow(const tp_tensor *t);
static inline bool grad_requires_grad(const tp_tensor *t)
{
    return TP_UNLIKELY(t->ag || (t->base && t->base->ag)) && grad_requires_grad_slow(t);
}
bool grad_set_requires_grad(op_ctx *cx, tp_tensor *t, bool on, tp_err *err);
bool grad_is_leaf(tp_tensor *t);
/* It requires a gradient only because its base does: a view taken under no_grad. No gradient arrives at it. */
bool grad_is_nograd_view(const tp_tensor *t);
/* The step that made t, borrowed; NULL for leaves. *nr may be NULL. False in *ok when a view cannot tell. */
grad_node *grad_grad_fn(tp_tensor *t, int *nr, tp_err *err);
grad_edge grad_edge_of(tp_tensor *t, tp_err *err);           /* counted; the accumulating step for leaves */
tp_tensor *grad_grad(const tp_tensor *t);                    /* borrowed or NULL */
bool grad_set_grad(tp_tensor *t, tp_tensor *g, tp_err *err); /* g may be NULL; refs g */
bool grad_retain_grad(tp_tensor *t, tp_err *err);
bool grad_retains_grad(const tp_tensor *t);
grad_hooks *grad_tensor_hooks(tp_tensor *t, tp_err *err); /* borrowed; made when missing */
grad_hooks *grad_post_hooks(tp_tensor *t, tp_err *err);   /* post-accumulate, leaves only */
bool grad_share_hooks(const grad_node *from, int nr, tp_tensor *to,
                      tp_err *err); /* those of result nr, for t's step, too */
bool grad_detach_(tp_tensor *t, tp_err *err);
/* An alias outside the tape whose in-place writes are not counted as versions: Tensor.data. */
tp_tensor *grad_data(tp_tensor *t);
bool grad_set_data(tp_tensor *t, tp_tensor *from, tp_err *err);        /* t takes from's memory and type */
bool grad_may_save(const op_ctx *cx, const tp_tensor *t, tp_err *err); /* not an inference tensor */
/* The error for a saved tensor that was written since; from: what made it, if that is known. Always false. */
bool grad_changed(const tp_tensor *t, uint32_t want, grad_edge from, tp_err *err);

/* --- backward
 * ------------------------------------------------------------------------------------------------- */
typedef struct grad_options {
    bool retain_graph, create_graph, allow_unused;
    tp_tensor *const *inputs; /* only these get gradients; NULL: all leaves */
    int ninput;
    tp_tensor **result; /* one per input: owned gradients or NULL (taper.autograd.grad); NULL: accumulate */
} grad_options;
/* grad: one per root, NULL entries for scalars mean ones. */
/* Steps are numbered as this thread makes them: how many so far; and the one whose gradient is being computed, or
 * UINT64_MAX. Together they say which operator a gradient belongs to. */
uint64_t grad_steps_made(void);
extern _Thread_local uint64_t grad_step_running;
/* During a backward: fn runs when the outermost one of this thread has succeeded, and is dropped when it fails. False: none runs.
 * data is given to drop at the end. */
bool grad_queue_callback(bool (*fn)(void *data, tp_err *err), void (*drop)(void *data), void *data);
bool grad_backward(op_ctx *cx, tp_tensor *const *root, int nroot, tp_tensor *const *grad,
                   const grad_options *o, tp_err *err);

/* --- questions about a tape without running it (walk.c) ---------------------------------------------------- */
/* The leaves that a backward from these roots would reach, each once; borrowed, in an array that is freed by
 * the caller. */
tp_tensor **grad_leaves(tp_tensor *const *root, int nroot, int *n);
/* Has a backward freed what another one from t would need? */
bool grad_is_spent(tp_tensor *t);
/* A leaf whose gradient nobody watches: no hooks, not made by a step. */
bool grad_is_bare_leaf(const tp_tensor *t);
bool grad_is_unwatched(const tp_tensor *t); /* it, or the step that made it, has no hooks */
/* t gets a step of this name whose saved tensors are gone: what a tensor is after its backward has run. */
bool grad_set_spent(tp_tensor *t, const char *name, tp_err *err);
bool grad_set_refusal(tp_tensor *t, const char *name,
                      tp_err *err); /* t was written in a way that has no derivative */
extern const char grad_again[];     /* "Trying to backward through the graph a second time ..." */

/* --- anomaly mode and saved-tensor hooks: what the front end plugs in
 * -------------------------------------------- */
typedef struct grad_anomaly {
    char *(*where)(void *data);                                    /* malloced text or NULL */
    void (*report)(void *data, const char *fn, const char *where); /* a step failed or made NaN */
    void *data;
    bool check_nan;
} grad_anomaly;
extern grad_anomaly grad_anomaly_hooks;
/* The sum of two gradients of which one is sparse, counted, or NULL with err. Set by the front end, which has sparse tensors. */
extern tp_tensor *(*grad_add_sparse)(tp_tensor *a, tp_tensor *b, tp_err *err);
/* cx->hooks points at one of these while saved tensors are to be packed. */
typedef struct grad_pack {
    int refs;
    void *(*pack)(void *data, tp_tensor *t, tp_err *err);        /* owned handle or NULL with err */
    tp_tensor *(*unpack)(void *data, void *handle, tp_err *err); /* counted */
    void (*drop)(void *data, void *handle);
    void (*free)(void *data);
    void *data;
} grad_pack;
grad_pack *grad_pack_ref(grad_pack *p);
void grad_pack_unref(grad_pack *p);

/* --- private to grad
 * ------------------------------------------------------------------------------------------------- */
typedef struct grad_meta {
    grad_node *fn; /* one count */
    int nr;
    bool requires_grad; /* leaves */
    uint32_t ver;       /* views: version of the storage that fn belongs to */
    tp_tensor *grad;
    tp_tensor *before; /* grad_before_write; one count */
    grad_node *acc;    /* not counted: the accumulating step clears it when it goes */
    grad_hooks *hooks, *post;
} grad_meta;
typedef struct grad_pre {
    int nr;
    grad_hooks *hooks; /* one count */
    struct grad_pre *next;
} grad_pre;
/* tensor->spare */
enum {
    AGF_nograd_view = 1, /* a view made in no_grad mode */
    AGF_multi_view = 2,  /* one of several views made at once */
    AGF_data = 4,        /* Tensor.data: in-place writes do not count */
    AGF_custom_view = 8, /* a view made by a custom function */
    AGF_computed =
        16, /* a trace: stands for a computed tensor, so that it may be written though it is a leaf here */
    AGF_made_leaf = 32, /* a trace: requires_grad_() made it a leaf */
};
static inline grad_meta *grad_meta_of(const tp_tensor *t) { return t->ag; }
grad_meta *grad_meta_make(tp_tensor *t);
bool grad_bld_call(bld *b, op_id op, op_variant v, const tp_val *arg, tp_val *out);
/* Make g fit the gradient type s: sums broadcast dimensions, converts the dtype. Counted result. */
tp_tensor *grad_fit(bld *b, tp_tensor *g, const grad_shape *s, const char *fn, int index, tp_err *err);
bool grad_accumulate_into(bld *b, tp_tensor *leaf, tp_tensor *g, bool create_graph,
                          tp_err *err); /* takes g */
grad_node *grad_acc_of(tp_tensor *t);
tp_tensor *grad_acc_tensor(const grad_node *n);

/* The call with its arguments converted as autocast wants. */
bool grad_casts(const op_ctx *cx, op_id op); /* may autocast want that of this row? */
bool grad_autocast(op_ctx *cx, op_id op, const tp_val *arg, tp_val *out, tp_err *err);
#endif
