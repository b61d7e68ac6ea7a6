/* backends.c - four backends that fail on purpose. They interpret the rest on the tape. */
#include "debug/backends.h"
#include "grad/grad.h"

typedef struct failure {                                                     /* what a backend does */
    bool (*compiles)(const ir_graph *g, const tp_val *example, tp_err *err); /* NULL: always */
    ir_hook hook;
} failure;

static run_program *compile(const backend *b, tp_comp *c, const ir_graph *g, const tp_val *example)
{
    const failure *f = b->data;
    if (f->compiles && !f->compiles(g, example, c->err))
        return NULL;
    return interpreter_new(ir_graph_copy(g), &f->hook);
}

static bool is_relu(const ir_node *n) /* the operator that their names are about */
{
    return n->kind == IR_call && !strcmp(op_row_of((op_id)n->op)->full, "relu");
}

static bool without_relu(const ir_graph *g, const tp_val *example, tp_err *err)
{
    IR_EACH (n, g)
        if (is_relu(n))
            return err_set(err, ERR_compiler, "ReluCompileError: the graph contains relu");
    return true;
}

static bool with_leaves(const ir_graph *g, const tp_val *example, tp_err *err)
{
    bool call = false, inner = false;
    IR_EACH (n, g)
        call |= n->kind == IR_call;
    for (size_t i = 0; example && i < g->inputs.n; i++)
        inner |= example[i].kind == VAL_tensor && grad_requires_grad(example[i].t) &&
                 !grad_is_leaf(example[i].t);
    return !call || !inner || err_set(err, ERR_compiler, "TestingOnlyCompileError: an input is no leaf");
}

static bool fails_at_relu(void *data, ir_node *n, tp_err *err)
{
    return !is_relu(n) || err_set(err, ERR_runtime, "ReluRuntimeError: relu was called");
}

static bool one_more(void *data, ir_node *n, tp_val *v, tp_err *err)
{
    if (!is_relu(n) || v->kind != VAL_tensor)
        return true;
    tp_val arg[3] = { *v, vI(1), vI(1) }, sum = vNone; /* relu(x) + 1: wrong wherever relu is */
    if (!grad_call(op_ctx_cur(), OP_add_Tensor, OPV_fn, arg, &sum, err))
        return false;
    val_clear(v);
    *v = sum;
    return true;
}

#define ON_TAPE .call = grad_call, .opaque = run_opaque, .link = grad_link
static const failure compile_error = { without_relu, { ON_TAPE } };
static const failure runtime_error = { NULL, { .before = fails_at_relu, ON_TAPE } };
static const failure accuracy_error = { NULL, { .after = one_more, ON_TAPE } };
static const failure non_leaf_error = { with_leaves, { ON_TAPE } };

static const backend rows[] = {
    { "relu_compile_error_TESTING_ONLY", "refuses graphs with relu", compile, &compile_error },
    { "relu_runtime_error_TESTING_ONLY", "fails where relu runs", compile, &runtime_error },
    { "relu_accuracy_error_TESTING_ONLY", "gives relu(x) + 1", compile, &accuracy_error },
    { "non_leaf_compile_error_TESTING_ONLY", "refuses inputs that are no leaves", compile, &non_leaf_error },
};

void debug_backends_register(void)
{
    static bool done;
    for (size_t i = 0; i < COUNT(rows) && !done; i++)
        backend_register(&rows[i]);
    done = true;
}
