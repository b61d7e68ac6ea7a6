/* interpreter.c - programs that run a graph one operator at a time, and the backends that are nothing else. */
#include "compile/backend.h"
#include "grad/grad.h"

typedef struct interpreter {
    run_program base;
    ir_graph *g; /* owned */
    ir_prog *prog;
    ir_hook hook;
} interpreter;

static bool interpreter_call(run_program *p, op_ctx *cx, const tp_val *in, int nin, tp_val *out, int nout,
                             tp_err *err)
{
    const interpreter *x = (interpreter *)p;
    return ir_prog_run(x->prog, cx, in, nin, out, nout, &x->hook, err);
}

static void interpreter_free(run_program *p)
{
    interpreter *x = (interpreter *)p;
    ir_prog_free(x->prog);
    ir_graph_free(x->g);
    free(x);
}

run_program *interpreter_new(ir_graph *g, const ir_hook *hook)
{
    interpreter *x = mem_zalloc(sizeof *x);
    x->base = (run_program){ interpreter_call, interpreter_free, .stepwise = true };
    x->g = g;
    x->prog = ir_prog_new(g);
    x->hook = *hook;
    return &x->base;
}

/* data: the hook. */
static run_program *interpret(const backend *b, tp_comp *c, const ir_graph *g, const tp_val *example)
{
    return interpreter_new(ir_graph_copy(g), b->data);
}

/* ---- eager: on the tape ---- */
static bool mark_silent(void *data, ir_node *n, tp_val *value, tp_err *err)
{
    if (TP_UNLIKELY(n->silent) && value->kind == VAL_tensor)
        value->t->spare |= AGF_data;
    return true;
}
static const ir_hook on_tape = {
    .after = mark_silent, .call = grad_call, .opaque = run_opaque, .link = grad_link
};
const backend backend_eager = { "eager", "runs the graph one operator at a time", interpret, &on_tape };

/* ---- after the autograd stage: gradients are graphs of their own ---- */
static const ir_hook plain = { .opaque = run_opaque };
static const backend inner_eager = { "aot_eager", "", interpret, &plain };
const backend backend_aot_eager = { "aot_eager",
                                    "functional forward and backward graphs, one operator at a time",
                                    aot_compile, NULL, .inner = &inner_eager };
static const backend inner_decomp = { "aot_eager_decomp_partition", "", interpret, &plain };
const backend backend_aot_eager_decomp_partition = {
    "aot_eager_decomp_partition",
    "the same after decompositions and the min-cut partition",
    aot_compile,
    NULL,
    .inner = &inner_decomp,
    .aot = AOT_decompose | AOT_min_cut
};

/* ---- crossref: every operator's shape rule is held against what its kernel returns ---- */
static bool crossref_call(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err)
{
    const op_row *row = op_row_of(op);
    tp_val want[OP_MAX_RETURNS] = { 0 };
    uint32_t ver = arg[0].kind == VAL_tensor ? arg[0].t->storage->version : 0;
    bool fake = !(row->flags & OPF_DYN) && ops_fake(cx, op, v, arg, want, err);
    if (!fake && !(row->flags & OPF_DYN))
        return false;
    if (arg[0].kind == VAL_tensor)
        arg[0].t->storage->version = ver;
    bool ok = ops_call(cx, op, v, arg, out, err);
    for (int i = 0; ok && fake && i < row->schema.nret; i++) {
        if (want[i].kind != VAL_tensor || out[i].kind != VAL_tensor)
            continue;
        const tp_tensor *a = want[i].t, *b = out[i].t;
        if (a->dt != b->dt || !tensor_same_size(a, b) ||
            memcmp(a->stride, b->stride, sizeof(symint) * a->ndim)) {
            strbuf s = { 0 };
            ir_type_print(&s, &want[i]);
            strbuf_add(&s, " but the kernel returned ");
            ir_type_print(&s, &out[i]);
            ok = err_set(err, ERR_assertion, "'%s': the shape rule says %s", row->full, strbuf_str(&s));
            strbuf_free(&s);
        }
    }
    for (int i = 0; fake && i < row->schema.nret; i++)
        val_clear(&want[i]);
    return ok;
}

static const ir_hook checked = { .call = crossref_call, .opaque = run_opaque };
static const backend inner_crossref = { "aot_eager_decomp_partition_crossref", "", interpret, &checked };
const backend backend_aot_eager_decomp_partition_crossref = {
    "aot_eager_decomp_partition_crossref",
    "the same with every shape rule checked against the kernel's result",
    aot_compile,
    NULL,
    .inner = &inner_crossref,
    .aot = AOT_decompose | AOT_min_cut
};
