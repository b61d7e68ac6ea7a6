/* autocast.c - calls whose arguments are converted by the row's flag: products in the lower type, losses and
 * decompositions in float32, concatenations in the widest type among them. */
#include "grad/tape.h"

static bool convertible(const tp_tensor *t)
{
    return t && dtype_is_float((dtype)t->dt) && t->dt != DT_f64 && tensor_device(t).kind == DEV_cpu;
}

static void widen(dtype *to, const tp_tensor *t)
{
    if (t && dtype_is_float((dtype)t->dt) && (t->dt == DT_f64 || (t->dt == DT_f32 && *to != DT_f64)))
        *to = (dtype)t->dt;
}

static dtype target(const op_ctx *cx, const op_row *row, const tp_val *arg)
{
    dtype to = row->flags & OPF_FULL ? DT_f32 : cx->autocast_dtype;
    for (int i = 0; (row->flags & OPF_WIDEST) && i < row->schema.nparam; i++)
        if (arg[i].kind == VAL_tensor)
            widen(&to, arg[i].t);
        else
            for (int k = 0; arg[i].kind == VAL_tensors && k < arg[i].n; k++)
                widen(&to, arg[i].ts[k]);
    return to;
}

/* The tensor itself, or a converted one that `made` owns. */
static bool convert(op_ctx *cx, tp_tensor **t, dtype to, bld *made)
{
    if (!convertible(*t) || (dtype)(*t)->dt == to)
        return true;
    tp_val arg[7] = { vT(*t), vDT(to), vNone, vNone, vNone, vB(false), vNone }, out[1] = { vNone };
    if (!grad_call(cx, OP_to_dtype, OPV_fn, arg, out, made->err))
        return false;
    *t = bld_keep(made, out[0].t);
    return true;
}

bool ag_autocast(op_ctx *cx, op_id op, const tp_val *arg, tp_val *out, tp_err *err)
{
    const op_row *row = op_row_of(op);
    tp_val full[OP_MAX_PARAMS];
    dtype to = target(cx, row, arg);
    bld made;
    arena mem = { 0 };
    bool ok = true;
    bld_init(&made, cx, err);
    cx->autocast = false; /* what the row itself calls gets what it was given */
    for (int i = 0; ok && i < row->schema.nparam; i++) {
        full[i] = arg[i];
        if (arg[i].kind == VAL_tensor)
            ok = convert(cx, &full[i].t, to, &made);
        else if (arg[i].kind == VAL_tensors) {
            full[i].ts = arena_zalloc(&mem, sizeof *full[i].ts * (size_t)MAX(arg[i].n, 1));
            memcpy(full[i].ts, arg[i].ts, sizeof *full[i].ts * (size_t)arg[i].n);
            for (int k = 0; ok && k < arg[i].n; k++)
                ok = convert(cx, &full[i].ts[k], to, &made);
        }
    }
    ok = ok && grad_call(cx, op, OPV_fn, full, out, err);
    cx->autocast = true;
    bld_end(&made);
    arena_free(&mem);
    return ok;
}
