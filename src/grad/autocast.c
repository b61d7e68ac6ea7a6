/* autocast.c - calls whose arguments are converted by the row's flag: products in the lower type, losses and
 * decompositions in float32, concatenations in the widest type among them. */
#include "grad/tape.h"

/* Rows that a GPU runs in float32: others than those of the CPU, which has no types of its own to protect. */
enum { CAST_none, CAST_full };
static const uint8_t on_gpu[OP_COUNT] = {
#define CAST(id, what) [OP_##id] = CAST_##what,
#include "ops/ops.def"
};

void (*grad_cast_watch)(op_id op, dtype to, dtype narrow);

static bool convertible(const tp_tensor *t, dev_kind k)
{
    return t && dtype_is_float((dtype)t->dt) && t->dt != DT_f64 && (dev_kind)tensor_device(t).kind == k;
}

/* The kind of device whose autocast a call asks: that of its first float. DEV_COUNT: of none that is on. */
static dev_kind kind_of(const op_ctx *cx, const op_row *row, const tp_val *arg)
{
    for (int i = 0; i < row->schema.nparam; i++)
        for (int k = 0; k < (arg[i].kind == VAL_tensor    ? 1
                             : arg[i].kind == VAL_tensors ? arg[i].n
                                                          : 0);
             k++) {
            const tp_tensor *t = arg[i].kind == VAL_tensor ? arg[i].t : arg[i].ts[k];
            if (t && dtype_is_float((dtype)t->dt))
                return cx->autocast >> tensor_device(t).kind & 1 ? (dev_kind)tensor_device(t).kind
                                                                 : DEV_COUNT;
        }
    return DEV_COUNT;
}

/* A type that the caller names is the one that is meant. */
static bool names_type(const op_row *row, const tp_val *arg)
{
    for (int i = 0; i < row->schema.nparam; i++)
        if (row->schema.param[i].type == PT_dtype && arg[i].kind == VAL_dtype)
            return true;
    return false;
}

bool grad_casts(const op_ctx *cx, op_id op)
{
    uint32_t f = op_row_of(op)->flags;
    return f & (OPF_LOW | OPF_FULL | OPF_WIDEST) || (cx->autocast >> DEV_cuda & 1 && on_gpu[op]);
}

static void widen(dtype *to, const tp_tensor *t)
{
    if (t && dtype_is_float((dtype)t->dt) && (t->dt == DT_f64 || (t->dt == DT_f32 && *to != DT_f64)))
        *to = (dtype)t->dt;
}

static dtype target(const op_ctx *cx, const op_row *row, const tp_val *arg, dev_kind kind, bool full)
{
    dtype to = full ? DT_f32 : (dtype)cx->autocast_dtype[kind];
    for (int i = 0; (row->flags & OPF_WIDEST) && i < row->schema.nparam; i++)
        if (arg[i].kind == VAL_tensor)
            widen(&to, arg[i].t);
        else
            for (int k = 0; arg[i].kind == VAL_tensors && k < arg[i].n; k++)
                widen(&to, arg[i].ts[k]);
    return to;
}

/* The tensor itself, or a converted one that `made` owns. */
static bool convert(op_ctx *cx, tp_tensor **t, dtype to, dev_kind kind, bld *made)
{
    if (!convertible(*t, kind) || (dtype)(*t)->dt == to)
        return true;
    tp_val arg[7] = { vT(*t), vDT(to), vNone, vNone, vNone, vB(false), vNone }, out[1] = { vNone };
    if (!grad_call(cx, OP_to_dtype, OPV_fn, arg, out, made->err))
        return false;
    *t = bld_keep(made, out[0].t);
    return true;
}

bool grad_autocast(op_ctx *cx, op_id op, const tp_val *arg, tp_val *out, tp_err *err)
{
    const op_row *row = op_row_of(op);
    tp_val val[OP_MAX_PARAMS];
    dev_kind kind = kind_of(cx, row, arg);
    bool full = kind == DEV_cpu ? row->flags & OPF_FULL : on_gpu[op] && !names_type(row, arg);
    uint8_t on = cx->autocast;
    cx->autocast = 0; /* what the row itself calls gets what it was given */
    if (kind == DEV_COUNT || (!full && !(row->flags & (OPF_LOW | OPF_WIDEST)))) {
        bool ok = grad_call(cx, op, OPV_fn, arg, out, err);
        cx->autocast = on;
        return ok;
    }
    dtype to = target(cx, row, arg, kind, full);
    if (TP_UNLIKELY(grad_cast_watch != NULL) && kind == DEV_cpu && !(row->flags & OPF_WIDEST))
        grad_cast_watch(op, to, (dtype)cx->autocast_dtype[kind]);
    bld made;
    arena mem = { 0 };
    bool ok = true;
    bld_init(&made, cx, err);
    for (int i = 0; ok && i < row->schema.nparam; i++) {
        val[i] = arg[i];
        if (arg[i].kind == VAL_tensor)
            ok = convert(cx, &val[i].t, to, kind, &made);
        else if (arg[i].kind == VAL_tensors) {
            val[i].ts = arena_zalloc(&mem, sizeof *val[i].ts * (size_t)MAX(arg[i].n, 1));
            memcpy(val[i].ts, arg[i].ts, sizeof *val[i].ts * (size_t)arg[i].n);
            for (int k = 0; ok && k < arg[i].n; k++)
                ok = convert(cx, &val[i].ts[k], to, kind, &made);
        }
    }
    ok = ok && grad_call(cx, op, OPV_fn, val, out, err);
    cx->autocast = on;
    bld_end(&made);
    arena_free(&mem);
    return ok;
}
