/* build.c - appending calls with their types inferred: arguments checked, defaults filled in, shape rule run.
 */
#include "ir/graph.h"
#include "sym/env.h"

/* ---- values ---- */
static bool same_bits(const double *a, const double *b, int n)
{
    for (int i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) && !(a[i] != a[i] && b[i] != b[i]))
            return false;
    return true;
}

/* A symbol may have become a number since it was written down. */
static bool equal_now(symint a, symint b)
{
    return a == b || (SYM_EITHER(a, b) && sym_simplify(a) == sym_simplify(b));
}

bool ir_val_equal(const tp_val *a, const tp_val *b)
{
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case VAL_none: return true;
    case VAL_float: return same_bits(&a->f, &b->f, 1);
    case VAL_bool: return a->b == b->b;
    case VAL_str: return !strcmp(a->s, b->s);
    case VAL_device: return device_eq(a->dev, b->dev);
    case VAL_ints:
        for (int i = 0; a->n == b->n && i < a->n; i++)
            if (!equal_now(a->ints[i], b->ints[i]))
                return false;
        return a->n == b->n;
    case VAL_int: return equal_now(a->i, b->i);
    case VAL_complex:
    case VAL_floats: return a->n == b->n && same_bits(a->floats, b->floats, a->n);
    case VAL_bools: return a->n == b->n && (!a->n || !memcmp(a->bools, b->bools, (size_t)a->n));
    case VAL_nodes:
    case VAL_tensors:
        return a->n == b->n && (!a->n || !memcmp(a->nodes, b->nodes, sizeof(void *) * (size_t)a->n));
    default: return a->i == b->i;
    }
}

/* Known to be equal, without asking for a guard. */
static bool same_int(symint a, symint b) { return a == b || (SYM_EITHER(a, b) && sym_known(SYM_eq, a, b)); }

static bool tensor_type_equal(const tp_tensor *a, const tp_tensor *b)
{
    if (!a || !b)
        return a == b;
    if (a->dt != b->dt || a->ndim != b->ndim || !device_eq(tensor_device(a), tensor_device(b)))
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (!same_int(a->size[i], b->size[i]) || !same_int(a->stride[i], b->stride[i]))
            return false;
    return true;
}

bool ir_type_equal(const tp_val *a, const tp_val *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == VAL_tensor)
        return tensor_type_equal(a->t, b->t);
    if (a->kind == VAL_tensors) {
        for (int i = 0; i < a->n && i < b->n; i++)
            if (!tensor_type_equal(a->ts[i], b->ts[i]))
                return false;
        return a->n == b->n;
    }
    return a->kind == VAL_int ? same_int(a->i, b->i) : true; /* of other numbers only the kind is a type */
}

bool ir_row_is_dyn(const op_row *row) { return (row->flags & (OPF_DYN | OPF_SYNC)) != 0; }

/* ---- arguments ---- */
static const char *const param_names[PT_COUNT] = {
    [PT_tensor] = "Tensor",         [PT_tensors] = "list of Tensors",
    [PT_scalar] = "Number",         [PT_int] = "int",
    [PT_ints] = "list of ints",     [PT_float] = "float",
    [PT_floats] = "list of floats", [PT_bool] = "bool",
    [PT_bools] = "list of bools",   [PT_str] = "str",
    [PT_dtype] = "dtype",           [PT_device] = "device",
    [PT_layout] = "layout",         [PT_memfmt] = "memory_format",
    [PT_gen] = "Generator",
};
static const char *const val_names[] = {
    [VAL_none] = "NoneType",
    [VAL_tensor] = "Tensor",
    [VAL_int] = "int",
    [VAL_float] = "float",
    [VAL_bool] = "bool",
    [VAL_str] = "str",
    [VAL_dtype] = "dtype",
    [VAL_device] = "device",
    [VAL_layout] = "layout",
    [VAL_memfmt] = "memory_format",
    [VAL_gen] = "Generator",
    [VAL_ints] = "list of ints",
    [VAL_floats] = "list of floats",
    [VAL_complex] = "complex",
    [VAL_bools] = "list of bools",
    [VAL_tensors] = "list of Tensors",
    [VAL_node] = "Tensor",
    [VAL_nodes] = "list of Tensors",
    [VAL_graph] = "graph",
};

/* The kind a node operand has at run time; several results are no operand at all. */
static val_kind kind_of(const tp_val *v)
{
    return (val_kind)(v->kind == VAL_node ? v->node->val.kind : v->kind);
}

static bool list_ok(const op_param *p, const tp_val *v)
{
    for (int i = 0; i < v->n; i++) {
        if (v->kind == VAL_tensors ? !v->ts[i] : !v->nodes[i]) {
            if (!p->elem_opt)
                return false;
        } else if (v->kind == VAL_nodes && v->nodes[i]->val.kind != VAL_tensor)
            return false;
    }
    return true;
}

static bool arg_ok(const op_row *row, const op_param *p, const tp_val *v)
{
    val_kind k = kind_of(v);
    bool num = k == VAL_int || k == VAL_float || k == VAL_bool || k == VAL_complex;
    if (k == VAL_none)
        return p->optional || (p->has_default && p->def.kind == VAL_none) || p->type == PT_gen;
    switch (p->type) {
    case PT_tensor: return k == VAL_tensor || (num && (row->flags & OPF_NUM) && !p->mutated);
    case PT_tensors: return (v->kind == VAL_tensors || v->kind == VAL_nodes) && list_ok(p, v);
    case PT_scalar: return num;
    case PT_int: return k == VAL_int;
    case PT_float: return k == VAL_float || k == VAL_int;
    case PT_bool: return k == VAL_bool;
    case PT_ints: return k == VAL_ints;
    case PT_floats: return k == VAL_floats;
    case PT_bools: return k == VAL_bools;
    case PT_str: return k == VAL_str;
    case PT_dtype: return k == VAL_dtype && v->i >= 0 && v->i < DT_COUNT;
    case PT_device: return k == VAL_device;
    case PT_layout: return k == VAL_layout;
    case PT_memfmt: return k == VAL_memfmt;
    case PT_gen: return k == VAL_gen;
    default: return false;
    }
}

/* Shape rules compute with sizes and the like, and rely on sums that do not overflow. Elements and the bounds of
 * random integers may be any. */
static bool int_fits(const op_row *row, const op_param *p, const tp_val *v)
{
    bool list = v->kind == VAL_ints;
    if ((p->type != PT_int && !list) || (!list && (v->kind != VAL_int || (row->flags & OPF_RAND))))
        return true;
    const symint *x = list ? v->ints : &v->i;
    for (int i = 0; i < (list ? v->n : 1); i++)
        if (!sym_is_expr(x[i]) && (x[i] >= SYM_LIMIT || x[i] < -SYM_LIMIT))
            return false;
    return true;
}

bool ir_check_arg(const op_row *row, int i, const tp_val *v, tp_err *err)
{
    const op_param *p = &row->schema.param[i];
    if (!arg_ok(row, p, v))
        return err_set(err, ERR_type, "%s(): argument '%s' (position %d) must be %s, not %s", row->full,
                       p->name, i + 1, param_names[p->type], val_names[kind_of(v)]);
    return int_fits(row, p, v) ||
           err_set(err, ERR_value, "%s(): argument '%s' (position %d) is not below 2**62", row->full, p->name,
                   i + 1);
}

/* With numbers allowed for tensors, one tensor must still be there. */
static bool some_tensor(const op_row *row, const tp_val *arg, tp_err *err)
{
    bool wants = false;
    for (int i = 0; i < row->schema.nparam; i++) {
        const op_param *p = &row->schema.param[i];
        if (p->type != PT_tensor || p->optional)
            continue;
        if (kind_of(&arg[i]) == VAL_tensor)
            return true;
        wants = true;
    }
    return !wants || err_set(err, ERR_type, "%s(): argument '%s' (position 1) must be Tensor, not %s",
                             row->full, row->schema.param[0].name, val_names[kind_of(&arg[0])]);
}

/* ---- inference ---- */
static tp_val to_value(arena *a, const tp_val *v)
{
    if (v->kind == VAL_node)
        return v->node->val;
    if (v->kind != VAL_nodes)
        return *v;
    tp_tensor **ts = ARENA_ARR(a, tp_tensor *, MAX(v->n, 1));
    for (int i = 0; i < v->n; i++)
        ts[i] = v->nodes[i] ? v->nodes[i]->val.t : NULL;
    return vTs(ts, v->n);
}

/* A type is fake, and its header is the node's own: an in-place result must not be its argument's header. */
static tp_tensor *as_type(tp_tensor *t)
{
    if (!t)
        return NULL;
    tp_tensor *r = tensor_is_fake(t)
                       ? tensor_on(t->storage, (dtype)t->dt, t->ndim, t->size, t->stride, t->offset)
                       : tensor_fake_of(t);
    tensor_unref(t);
    return r;
}

bool ir_infer(ir_graph *g, op_id op, op_variant v, const tp_val *arg, tp_val *val, tp_err *err)
{
    const op_row *row = op_row_of(op);
    const op_schema *s = &row->schema;
    tp_val in[OP_MAX_PARAMS], out[OP_MAX_RETURNS] = { 0 };
    arena tmp = { 0 };
    op_ctx cx = *op_ctx_cur();
    tp_tensor *self =
        NULL; /* a header of its own: unsqueeze_ and the like change it, not the operand's type */
    bool ok = false;

    cx.rec = NULL;
    cx.env = g->env;
    for (int i = 0; i < s->nparam; i++) {
        if (!ir_check_arg(row, i, &arg[i], err))
            goto done;
        in[i] = to_value(&tmp, &arg[i]);
    }
    if ((row->flags & OPF_MUT) && s->nparam && in[0].kind == VAL_tensor) {
        const tp_tensor *t = in[0].t;
        self = tensor_on(t->storage, (dtype)t->dt, t->ndim, t->size, t->stride, t->offset);
        in[0] = vT(self);
    }
    if (!some_tensor(row, arg, err) || !ops_fake(&cx, op, v, in, out, err))
        goto done;
    if (s->ret_list) {
        for (int i = 0; i < out[0].n; i++)
            out[0].ts[i] = as_type(out[0].ts[i]);
        *val = out[0];
    } else if (s->nret > 1) {
        tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)s->nret);
        for (int i = 0; i < s->nret; i++)
            ts[i] = out[i].kind == VAL_tensor ? as_type(out[i].t) : NULL;
        *val = vTs(ts, s->nret);
    } else if (out[0].kind == VAL_tensor)
        *val = vT(as_type(out[0].t));
    else
        *val = out[0];
    ok = true;
done:
    tensor_unref(self);
    arena_free(&tmp);
    return ok;
}

ir_node *ir_build(ir_graph *g, op_id op, op_variant v, const tp_val *arg, int narg, tp_err *err)
{
    const op_row *row = op_row_of(op);
    tp_val full[OP_MAX_PARAMS], val;

    if (narg > row->schema.nparam) {
        err_set(err, ERR_type, "%s() takes %d arguments but %d were given", row->full, row->schema.nparam,
                narg);
        return NULL;
    }
    if (v == OPV_inplace && !(row->flags & (OPF_INP | OPF_INPONLY))) {
        err_set(err, ERR_type, "%s has no in-place form", row->full);
        return NULL;
    }
    if (!op_fill_defaults(row, arg, narg, full, err) || !ir_infer(g, op, v, full, &val, err))
        return NULL;
    return ir_add_call(g, op, v, full, row->schema.nparam, val);
}

ir_node *ir_build_item(ir_graph *g, ir_node *of, int index, tp_err *err)
{
    if (of->val.kind != VAL_tensors || index < 0 || index >= of->val.n || !of->val.ts[index]) {
        err_set(err, ERR_index, "'%s' has no result %d", of->name, index);
        return NULL;
    }
    return ir_add_getitem(g, of, index, vT(tensor_ref(of->val.ts[index])));
}
