/* api_custom.c - custom operators of include/taper.h on the list of ops/custom.h. */
#include "api/api_custom.h"
#include "ops/custom.h"
#include "sym/env.h"
#include "taper.h"

struct tp_call {
    const tp_val *arg;
    int narg, nres;
    tp_tensor *res[CUSTOM_MAX_ARGS];
    bool fake;
};

static const tp_val *arg_at(const tp_call *c, int i)
{
    static const tp_val none;
    return c && i >= 0 && i < c->narg ? &c->arg[i] : &none;
}

int tp_call_n_args(const tp_call *c) { return c ? c->narg : 0; }
tp_tensor *tp_call_tensor(const tp_call *c, int i)
{
    const tp_val *v = arg_at(c, i);
    return v->kind == VAL_tensor ? v->t : NULL;
}
int64_t tp_call_int(const tp_call *c, int i)
{
    const tp_val *v = arg_at(c, i);
    return val_is_number(v) ? val_as_i(v) : 0;
}
double tp_call_float(const tp_call *c, int i)
{
    const tp_val *v = arg_at(c, i);
    return val_is_number(v) ? val_as_f(v) : 0;
}
bool tp_call_bool(const tp_call *c, int i) { return tp_call_float(c, i) != 0; }
const char *tp_call_str(const tp_call *c, int i)
{
    const tp_val *v = arg_at(c, i);
    return v->kind == VAL_str ? v->s : NULL;
}

void tp_call_return(tp_call *c, int i, tp_tensor *t)
{
    if (!c || i < 0 || i >= (int)COUNT(c->res)) {
        tensor_unref(t);
        return;
    }
    tensor_unref(c->res[i]);
    c->res[i] = t;
    c->nres = MAX(c->nres, i + 1);
}

bool tp_call_return_type(tp_call *c, int i, tp_dtype dt, int ndim, const int64_t *size, const int64_t *stride,
                         tp_err *err)
{
    if ((unsigned)dt >= DT_COUNT || ndim < 0 || ndim > TP_MAX_DIMS || (ndim && !size))
        return err_set(err, ERR_value, "result %d: that is no type of a tensor", i);
    tp_call_return(c, i, tensor_new_fake((dtype)dt, ndim, size, stride, DEVICE_CPU));
    return true;
}

bool tp_err_set(tp_err *err, const char *message)
{
    return err_set(err, ERR_runtime, "%s", message ? message : "an error without a message");
}

/* ---- from the list to the user's functions ---- */
static bool run(tp_call_fn *f, const op_custom *o, const tp_val *arg, int narg, int want, tp_val *out,
                tp_err *err)
{
    tp_call c = { .arg = arg, .narg = narg };
    const tp_custom_op *u = o->data;
    bool ok = f(u->data, &c, err);
    if (!ok && !err_is_set(err))
        err_set(err, ERR_runtime, "'%s' failed without saying why", o->name);
    for (int i = 0; ok && want >= 0 && i < want; i++)
        if (!c.res[i])
            ok = err_set(err, ERR_runtime, "'%s' set no result %d", o->name, i);
    if (!ok) {
        for (int i = 0; i < c.nres; i++)
            tensor_unref(c.res[i]);
        return false;
    }
    if (want == 1 && !o->ret_list) {
        *out = vT(c.res[0]);
        for (int i = 1; i < c.nres; i++)
            tensor_unref(c.res[i]);
        return true;
    }
    int n = want >= 0 ? want : o->narg;
    tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)MAX(n, 1));
    for (int i = 0; i < MAX(n, c.nres); i++) {
        if (i < n)
            ts[i] = c.res[i];
        else
            tensor_unref(c.res[i]);
    }
    *out = n ? vTs(ts, n) : vNone;
    if (!n)
        free(ts);
    return true;
}

static bool kernel(const op_custom *o, const tp_val *arg, int narg, tp_val *out, tp_err *err)
{
    return run(((const tp_custom_op *)o->data)->kernel, o, arg, narg, o->nret, out, err);
}

int64_t tp_size_add(int64_t a, int64_t b) { return sym_add(a, b); }
int64_t tp_size_sub(int64_t a, int64_t b) { return sym_sub(a, b); }
int64_t tp_size_mul(int64_t a, int64_t b) { return sym_mul(a, b); }
int64_t tp_size_div(int64_t a, int64_t b)
{
    return b == 0 ? 0 : b == -1 ? sym_sub(0, a) : sym_floordiv(a, b);
}
int64_t tp_size_mod(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : sym_mod(a, b); }
int64_t tp_size_min(int64_t a, int64_t b) { return sym_min(a, b); }
int64_t tp_size_max(int64_t a, int64_t b) { return sym_max(a, b); }
bool tp_size_equal(int64_t a, int64_t b) { return sym_eq(a, b); }
bool tp_size_less(int64_t a, int64_t b) { return sym_lt(a, b); }

/* What the arithmetic of a shape function ran into: an overflow, a question that cannot be answered. */
static bool sound(const tp_val *arg, int narg, tp_val *out, bool ok, tp_err *err)
{
    for (int i = 0; i < narg; i++) {
        const tp_tensor *t = arg[i].kind == VAL_tensor ? arg[i].t : NULL;
        for (int d = 0; t && d < t->ndim; d++) {
            sym_env *env = sym_env_of(t->size[d]);
            if (!env || sym_env_err(env)->kind == ERR_none)
                continue;
            if (ok) {
                *err = *sym_env_err(env);
                val_clear(out);
            }
            err_clear(sym_env_err(env));
            ok = false;
        }
    }
    return ok;
}

/* Other C shape functions know numbers only: a symbolic size is fixed to its value, with a guard. */
static void fix_sizes(tp_tensor *t)
{
    for (int d = 0; d < t->ndim; d++) {
        sym_specialize(t->size[d]);
        sym_specialize(t->stride[d]);
    }
}

static tp_tensor *plain(const tp_tensor *t)
{
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    for (int d = 0; d < t->ndim; d++) {
        size[d] = sym_specialize(t->size[d]);
        stride[d] = sym_specialize(t->stride[d]);
    }
    return tensor_new_fake((dtype)t->dt, t->ndim, size, stride, tensor_device(t));
}

static bool fake(const op_custom *o, const tp_val *arg, int narg, tp_val *out, tp_err *err)
{
    const tp_custom_op *u = o->data;
    tp_val a[CUSTOM_MAX_ARGS] = { { 0 } };
    bool ok;
    if (u->shape && u->symbolic)
        return sound(arg, narg, out, run(u->shape, o, arg, narg, o->nret, out, err), err);
    for (int i = 0; i < narg && i < CUSTOM_MAX_ARGS; i++) {
        a[i] = arg[i];
        if (arg[i].kind == VAL_tensor && !u->shape) /* like argument 0, whatever that is */
            a[i] = vT(tensor_ref(arg[i].t));
        else if (arg[i].kind == VAL_tensor) {
            fix_sizes(arg[i].t);
            a[i] = vT(plain(arg[i].t));
        }
    }
    if (u->shape)
        ok = run(u->shape, o, a, narg, o->nret, out, err);
    else if (o->nret == 1 && narg && a[0].kind == VAL_tensor) {
        *out = vT(
            tensor_new_fake((dtype)a[0].t->dt, a[0].t->ndim, a[0].t->size, NULL, tensor_device(a[0].t)));
        ok = true;
    } else if (!o->nret)
        ok = true;
    else
        ok = err_set(err, ERR_notimpl, "'%s' has no shape function", o->name);
    for (int i = 0; i < narg && i < CUSTOM_MAX_ARGS; i++)
        if (a[i].kind == VAL_tensor)
            tensor_unref(a[i].t);
    return ok;
}

static bool backward(const op_custom *o, const tp_val *arg, int narg, tp_val *out, tp_err *err)
{
    return run(((const tp_custom_op *)o->data)->backward, o, arg, narg, -1, out, err);
}

bool tp_register_op(const tp_custom_op *op, tp_err *err)
{
    if (!op || !op->schema || !op->kernel)
        return err_set(err, ERR_value, "a custom operator has a schema and a kernel");
    tp_custom_op *keep = mem_zalloc(sizeof *keep); /* as long as the process: programs may hold it */
    *keep = *op;
    op_custom row = { .schema = op->schema,
                      .needs = op->needs,
                      .kernel = kernel,
                      .fake = fake,
                      .backward = op->backward ? backward : NULL,
                      .data = keep };
    if (custom_register(&row, err))
        return true;
    free(keep);
    return false;
}

ir_node *custom_build(ir_graph *g, const op_custom *o, const tp_val *arg, int n, tp_err *err)
{
    tp_val types[CUSTOM_MAX_ARGS] = { { 0 } }, out = vNone;
    if (n != o->narg) {
        err_set(err, ERR_type, "'%s' takes %d arguments but %d were given", o->name, o->narg, n);
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        types[i] = arg[i];
        if (arg[i].kind == VAL_node)
            types[i] = arg[i].node->val;
        if (((o->tensors >> i & 1) != 0) != (types[i].kind == VAL_tensor || types[i].kind == VAL_tensors) &&
            types[i].kind != VAL_none) {
            err_set(err, ERR_type, "'%s': argument '%s' %s a tensor", o->name, o->names[i],
                    o->tensors >> i & 1 ? "must be" : "must not be");
            return NULL;
        }
    }
    if (!o->fake || !o->fake(o, types, n, &out, err)) {
        if (!o->fake)
            err_set(err, ERR_notimpl, "'%s' has no shape function", o->name);
        return NULL;
    }
    const char *colon = strstr(o->name, "::");
    strbuf target = { 0 };
    strbuf_addf(&target, "ops.%.*s.%s", (int)(colon - o->name), o->name, colon + 2);
    ir_node *m = ir_add_opaque(g, strbuf_str(&target), NULL, arg, n, out);
    strbuf_free(&target);
    if (o->needs) {
        strbuf b = { 0 };
        json_w w = { &b };
        json_obj(&w);
        json_key(&w, "requires");
        json_str(&w, o->needs);
        json_end(&w);
        m->meta = arena_strdup(&g->mem, strbuf_str(&b));
        strbuf_free(&b);
    }
    return m;
}
