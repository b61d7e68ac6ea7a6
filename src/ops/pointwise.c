/* pointwise.c - shape rules and eager kernels of pointwise operators. */
#include "ops/pw.h"
#include "ops/iter.h"
#include <stdlib.h>

const pw_table *pw_loops(void)
{
    static const pw_table *chosen;
    if (TP_LIKELY(chosen != NULL))
        return chosen;
    const pw_table *t = &pw_loops_base;
#if defined(__x86_64__)
    const char *want = getenv("TAPER_ISA");
    int limit = !want ? 2 : !strcmp(want, "base") ? 0 : !strcmp(want, "avx2") ? 1 : 2;
    if (limit >= 1 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        t = &pw_loops_avx2;
    if (limit >= 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        t = &pw_loops_avx512;
#endif
    return chosen = t;
}

/* ---- shape rules ---- */
typedef enum { RES_promote, RES_float, RES_bool } res_rule;

/* Broadcast and promote all tensor and number arguments in Tensor positions. */
static bool pointwise(op_call *c, res_rule rule)
{
    const op_schema *s = &c->row->schema;
    dtype_join j = DTYPE_JOIN_INIT;
    tp_tensor *in[OP_MAX_PARAMS];
    symint size[TP_MAX_DIMS];
    int nin = 0, ndim = 0;

    for (int i = 0; i < s->nparam; i++) {
        const tp_val *v = &c->arg[i];
        if (s->param[i].type != PT_tensor || v->kind == VAL_none)
            continue;
        if (v->kind == VAL_tensor) {
            tp_tensor *t = v->t;
            dtype_join_add(&j, (dtype)t->dt, t->ndim, t->flags & TF_wrapped);
            if (!nin) {
                ndim = t->ndim;
                memcpy(size, t->size, sizeof(symint) * (size_t)ndim);
            } else if (!shape_broadcast(&ndim, size, t->ndim, t->size, c->err))
                return false;
            in[nin++] = t;
        } else
            dtype_join_add(&j, val_number_dtype(v, c->cx->default_dtype), 0, true);
    }
    dtype dt = dtype_join_result(&j);
    if (rule == RES_float && !dtype_is_float(dt))
        dt = c->cx->default_dtype;
    op_out *o = out_new(c, rule == RES_bool ? DT_bool : dt, ndim, size);
    shape_pointwise_strides(ndim, size, nin, in, o->stride);
    return true;
}

bool shape_pw(op_call *c) { return pointwise(c, RES_promote); }
bool shape_pw_float(op_call *c) { return pointwise(c, RES_float); }
bool shape_pw_bool(op_call *c) { return pointwise(c, RES_bool); }

bool shape_pw_sub(op_call *c)
{
    if (!pointwise(c, RES_promote))
        return false;
    if (c->out[0].dt == DT_bool)
        return err_set(
            c->err, ERR_runtime,
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
            "`logical_xor()` operator instead.");
    return true;
}

bool shape_pw_neg(op_call *c)
{
    if (arg_t(c, 0)->dt == DT_bool)
        return err_set(
            c->err, ERR_runtime,
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a "
            "mask, use the `~` or `logical_not()` operator instead.");
    return pointwise(c, RES_promote);
}

/* ---- running a loop ---- */
typedef struct run_arg {
    pw_loop *loop;
    const pw_par *par;
} run_arg;
static void run_span(void *arg, int64_t n, char *const *p, const int64_t *st)
{
    const run_arg *r = arg;
    r->loop(n, p, st, r->par);
}

/* The type the loop computes in: the promoted type of the inputs (for bool results the output does not tell).
 */
static dtype compute_type(const op_call *c)
{
    const op_schema *s = &c->row->schema;
    if (c->out[0].dt != DT_bool)
        return (dtype)c->out[0].dt;
    dtype_join j = DTYPE_JOIN_INIT;
    for (int i = 0; i < s->nparam; i++) {
        const tp_val *v = &c->arg[i];
        if (s->param[i].type != PT_tensor || v->kind == VAL_none)
            continue;
        if (v->kind == VAL_tensor)
            dtype_join_add(&j, (dtype)v->t->dt, v->t->ndim, v->t->flags & TF_wrapped);
        else
            dtype_join_add(&j, val_number_dtype(v, c->cx->default_dtype), 0, true);
    }
    return dtype_join_result(&j);
}

bool pw_run(op_call *c, pw_id id, const pw_par *par)
{
    static const pw_par zero;
    const op_schema *s = &c->row->schema;
    tp_tensor *op[ITER_MAX] = { c->res[0] }, *owned[ITER_MAX];
    int nop = 1, nowned = 0;
    bool ok = false;
    dtype dt = compute_type(c);
    iter it;

    for (int i = 0; i < s->nparam; i++) {
        const tp_val *v = &c->arg[i];
        if (s->param[i].type != PT_tensor || v->kind == VAL_none)
            continue;
        tp_tensor *t;
        if (v->kind == VAL_tensor) {
            t = v->t;
            if (t->dt != dt) {
                t = owned[nowned++] = tensor_cast(t, dt, c->err);
                if (!t) {
                    nowned--;
                    goto done;
                }
            }
        } else {
            t = owned[nowned++] = tensor_scalar(dt, val_as_f(v), val_as_i(v));
        }
        op[nop++] = t;
    }
    iter_init(&it, nop, op);
    run_arg r = { (*pw_loops())[id][dt], par ? par : &zero };
    iter_run(&it, run_span, &r, 0);
    ok = true;
done:
    for (int i = 0; i < nowned; i++)
        tensor_unref(owned[i]);
    return ok;
}

/* ---- kernels ---- */
static pw_par number_par(const tp_val *v)
{
    pw_par p = { { val_as_f(v) }, { val_as_i(v) } };
    return p;
}

static bool alpha_ok(const op_call *c)
{
    dtype dt = (dtype)c->out[0].dt;
    if (dt == DT_bool && c->arg[2].kind != VAL_bool && val_as_f(&c->arg[2]) != 1)
        return err_set(c->err, ERR_runtime, "Boolean alpha only supported for Boolean results.");
    if (!dtype_is_float(dt) && c->arg[2].kind == VAL_float)
        return err_set(c->err, ERR_runtime,
                       "For integral input tensors, argument alpha must not be a floating point number.");
    return true;
}

bool eager_add(op_call *c)
{
    pw_par p = number_par(&c->arg[2]);
    return alpha_ok(c) && pw_run(c, PW_add, &p);
}
bool eager_sub(op_call *c)
{
    pw_par p = number_par(&c->arg[2]);
    return alpha_ok(c) && pw_run(c, PW_sub, &p);
}
#define SIMPLE(name) \
    bool eager_##name(op_call *c) { return pw_run(c, PW_##name, NULL); }
SIMPLE(mul)
SIMPLE(div)
SIMPLE(neg)
SIMPLE(exp)
SIMPLE(sin)
SIMPLE(cos)
SIMPLE(relu)
SIMPLE(gt)
