/* backends.c - four backends that fail on purpose. They interpret what they do not spoil. */
#include "debug/backends.h"
#include "grad/grad.h"

__thread const uint8_t *debug_needs_grad;

static ir_node *find_relu(const ir_graph *g)
{
    IR_EACH (n, g)
        if (n->kind == IR_call && n->op == OP_relu)
            return n;
    return NULL;
}

static run_program *interpret(const backend *b, tp_comp *c, const ir_graph *g);

static run_program *relu_compile_error(const backend *b, tp_comp *c, const ir_graph *g)
{
    if (find_relu(g)) {
        err_set(c->err, ERR_compiler, "ReluCompileError: the graph contains relu");
        return NULL;
    }
    return interpret(b, c, g);
}

/* The interpreter on the tape, with relu spoilt where the backend's name says so. */
typedef struct spoilt {
    run_program base;
    ir_graph *g;
    ir_prog *prog;
} spoilt;

static bool fails_at_relu(void *data, ir_node *n, tp_err *err)
{
    return n->kind != IR_call || n->op != OP_relu ||
           err_set(err, ERR_runtime, "ReluRuntimeError: relu was called");
}

static bool one_more(void *data, ir_node *n, tp_val *v, tp_err *err)
{
    if (n->kind != IR_call || n->op != OP_relu || v->kind != VAL_tensor)
        return true;
    tp_val arg[3] = { n->arg[0], vI(1), vI(1) }, sum = vNone;
    arg[0] = *v; /* relu(x) + 1: wrong wherever relu is */
    if (!grad_call(op_ctx_cur(), OP_add_Tensor, OPV_fn, arg, &sum, err))
        return false;
    val_clear(v);
    *v = sum;
    return true;
}

static bool spoilt_call(run_program *p, op_ctx *cx, const tp_val *in, int nin, tp_val *out, int nout,
                        tp_err *err)
{
    spoilt *s = (spoilt *)p;
    ir_hook h = { .opaque = run_opaque, .call = grad_call };
    if (!strncmp(p->backend->name, "relu_runtime", 12))
        h.before = fails_at_relu;
    else if (!strncmp(p->backend->name, "relu_accuracy", 13))
        h.after = one_more;
    return ir_prog_run(s->prog, cx, in, nin, out, nout, &h, err);
}

static void spoilt_free(run_program *p)
{
    spoilt *s = (spoilt *)p;
    ir_prog_free(s->prog);
    ir_graph_free(s->g);
    free(s);
}

static run_program *interpret(const backend *b, tp_comp *c, const ir_graph *g)
{
    spoilt *s = mem_zalloc(sizeof *s);
    s->base = (run_program){ b, spoilt_call, spoilt_free };
    s->g = ir_graph_copy(g);
    s->prog = ir_prog_new(s->g);
    return &s->base;
}

static run_program *non_leaf(const backend *b, tp_comp *c, const ir_graph *g)
{
    bool call = false, inner = false;
    IR_EACH (n, g)
        call |= n->kind == IR_call;
    for (size_t i = 0; debug_needs_grad && i < g->inputs.n; i++)
        inner |= debug_needs_grad[i] == 2;
    if (call && inner) {
        err_set(c->err, ERR_compiler, "TestingOnlyCompileError: an input is no leaf");
        return NULL;
    }
    return interpret(b, c, g);
}

static const backend compile_error = { "relu_compile_error_TESTING_ONLY", "refuses graphs with relu",
                                       relu_compile_error, NULL, NULL };
static const backend runtime_error = { "relu_runtime_error_TESTING_ONLY", "fails where relu runs", interpret,
                                       NULL, NULL };
static const backend accuracy_error = { "relu_accuracy_error_TESTING_ONLY", "gives relu(x) + 1", interpret,
                                        NULL, NULL };
static const backend non_leaf_error = { "non_leaf_compile_error_TESTING_ONLY",
                                        "refuses inputs that are no leaves", non_leaf, NULL, NULL };
const backend *const debug_backends[4] = { &compile_error, &runtime_error, &accuracy_error, &non_leaf_error };

void debug_backends_register(void)
{
    static bool done;
    for (int i = 0; i < 4 && !done; i++)
        backend_register(debug_backends[i]);
    done = true;
}
