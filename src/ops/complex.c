/* complex.c - calls on complex numbers and on types that are only stored: which rows take them, and those that are not
 * pointwise. Linear rows run on the real and on the imaginary parts, as real tensors over the same memory; products are
 * made of real ones. May not know gradients. */
#include "ops/complex.h"
#include "ops/decomp.h"
#include <math.h>

/* ---- between types ---- */
#define PAIRS(D, S, EXPR)                                 \
    for (int64_t i = 0; i < n; i++, d += dst, s += sst) { \
        D *o = (D *)d;                                    \
        const S *a = (const S *)s;                        \
        EXPR;                                             \
    }
void special_convert(int64_t n, char *d, dtype ddt, int64_t dst, const char *s, dtype sdt, int64_t sst)
{
    if (ddt == sdt) {
        size_t es = dtype_size(ddt);
        for (int64_t i = 0; i < n; i++)
            memcpy(d + i * dst, s + i * sst, es);
    } else if (ddt == DT_c64 && sdt == DT_f32) {
        PAIRS(float, float, (o[0] = a[0], o[1] = 0))
    } else if (ddt == DT_c128 && sdt == DT_f64) {
        PAIRS(double, double, (o[0] = a[0], o[1] = 0))
    } else if (ddt == DT_f32 && sdt == DT_c64) {
        PAIRS(float, float, o[0] = a[0])
    } else if (ddt == DT_f64 && sdt == DT_c128) {
        PAIRS(double, double, o[0] = a[0])
    } else if (ddt == DT_c64 && sdt == DT_c128) {
        PAIRS(float, double, (o[0] = (float)a[0], o[1] = (float)a[1]))
    } else if (ddt == DT_c128 && sdt == DT_c64) {
        PAIRS(double, float, (o[0] = (double)a[0], o[1] = (double)a[1]))
    } else if (ddt == DT_bool && dtype_is_complex(sdt)) {
        for (int64_t i = 0; i < n; i++) {
            double v[2];
            elem_get_c(sdt, s + i * sst, v);
            *(uint8_t *)(d + i * dst) = v[0] != 0 || v[1] != 0;
        }
    } else if (dtype_is_exact(sdt) && dtype_is_exact(ddt)) {
        for (int64_t i = 0; i < n; i++)
            elem_set_i(ddt, d + i * dst, elem_get_i(sdt, s + i * sst));
    } else
        for (int64_t i = 0; i < n; i++) {
            double v[2];
            elem_get_c(sdt, s + i * sst, v);
            elem_set_c(ddt, d + i * dst, v);
        }
}

tp_tensor *complex_part(tp_tensor *t, int which)
{
    symint st[TP_MAX_DIMS];
    for (int d = 0; d < t->ndim; d++)
        st[d] = sym_mul(t->stride[d], 2);
    return tensor_on(t->storage, dtype_real_of((dtype)t->dt), t->ndim, t->size, st,
                     sym_add(sym_mul(t->offset, 2), which));
}

/* ---- the table ---- */
enum { MAX_OUT = 4 };
op_eager_fn special_add, special_sub, special_rsub, special_mul, special_div, special_pow, special_sgn,
    special_neg, special_square, special_conj, special_nan_to_num, special_where, special_masked_fill,
    special_lerp_s, special_lerp, special_addcmul, special_addcdiv, special_tanh_b, special_sigmoid_b,
    special_isnan, special_isinf, special_isfinite, special_eq, special_ne, special_not, special_and,
    special_or, special_xor, special_exp, special_exp2, special_expm1, special_log, special_log2,
    special_log10, special_log1p, special_sqrt, special_rsqrt, special_reciprocal, special_sin, special_cos,
    special_tan, special_asin, special_acos, special_atan, special_sinh, special_cosh, special_tanh,
    special_asinh, special_acosh, special_atanh, special_sinc, special_sigmoid, special_abs;
op_shape_fn special_abs_shape;

static op_eager_fn kernel_product, kernel_add_product, kernel_prod, kernel_cumprod, kernel_div_mode;
static special_call call_moves, call_parts, call_magnitude, call_var, call_std, call_truth, call_equal,
    call_allclose, call_item, call_creates, call_draw, call_draw_like, call_normal, call_inverse, call_solve,
    call_compare;

#define HOW_own                      \
    {                                \
        true, true, NULL, NULL, NULL \
    }
#define HOW_comp                     \
    {                                \
        true, true, NULL, NULL, NULL \
    }
#define HOW_moves                          \
    {                                      \
        true, true, NULL, NULL, call_moves \
    }
#define HOW_ccomp                     \
    {                                 \
        true, false, NULL, NULL, NULL \
    }
#define HOW_abs                                           \
    {                                                     \
        true, false, special_abs, special_abs_shape, NULL \
    }
#define HOW_eq                                     \
    {                                              \
        true, true, special_eq, NULL, call_compare \
    }
#define HOW_ne                                     \
    {                                              \
        true, true, special_ne, NULL, call_compare \
    }
#define HOW_equal                          \
    {                                      \
        true, true, NULL, NULL, call_equal \
    }
#define HOW_item                          \
    {                                     \
        true, true, NULL, NULL, call_item \
    }
#define HOW_product                             \
    {                                           \
        true, false, kernel_product, NULL, NULL \
    }
#define HOW_add_product                             \
    {                                               \
        true, false, kernel_add_product, NULL, NULL \
    }
#define HOW_prod                             \
    {                                        \
        true, false, kernel_prod, NULL, NULL \
    }
#define HOW_cumprod                             \
    {                                           \
        true, false, kernel_cumprod, NULL, NULL \
    }
#define HOW_div_mode                             \
    {                                            \
        true, false, kernel_div_mode, NULL, NULL \
    }
#define KERNEL(name)                            \
    {                                           \
        true, false, special_##name, NULL, NULL \
    }
#define CALL(name)                           \
    {                                        \
        true, false, NULL, NULL, call_##name \
    }
#define HOW_parts       CALL(parts)
#define HOW_magnitude   CALL(magnitude)
#define HOW_var         CALL(var)
#define HOW_std         CALL(std)
#define HOW_truth       CALL(truth)
#define HOW_allclose    CALL(allclose)
#define HOW_creates     CALL(creates)
#define HOW_draw        CALL(draw)
#define HOW_draw_like   CALL(draw_like)
#define HOW_normal      CALL(normal)
#define HOW_inverse     CALL(inverse)
#define HOW_solve       CALL(solve)
#define HOW_add         KERNEL(add)
#define HOW_sub         KERNEL(sub)
#define HOW_rsub        KERNEL(rsub)
#define HOW_mul         KERNEL(mul)
#define HOW_div         KERNEL(div)
#define HOW_pow         KERNEL(pow)
#define HOW_sgn         KERNEL(sgn)
#define HOW_neg         KERNEL(neg)
#define HOW_square      KERNEL(square)
#define HOW_conj        KERNEL(conj)
#define HOW_nan_to_num  KERNEL(nan_to_num)
#define HOW_where       KERNEL(where)
#define HOW_masked_fill KERNEL(masked_fill)
#define HOW_lerp_s      KERNEL(lerp_s)
#define HOW_lerp        KERNEL(lerp)
#define HOW_addcmul     KERNEL(addcmul)
#define HOW_addcdiv     KERNEL(addcdiv)
#define HOW_tanh_b      KERNEL(tanh_b)
#define HOW_sigmoid_b   KERNEL(sigmoid_b)
#define HOW_isnan       KERNEL(isnan)
#define HOW_isinf       KERNEL(isinf)
#define HOW_isfinite    KERNEL(isfinite)
#define HOW_not         KERNEL(not )
#define HOW_and         KERNEL(and)
#define HOW_or          KERNEL(or)
#define HOW_xor         KERNEL(xor)
#define HOW_exp         KERNEL(exp)
#define HOW_exp2        KERNEL(exp2)
#define HOW_expm1       KERNEL(expm1)
#define HOW_log         KERNEL(log)
#define HOW_log2        KERNEL(log2)
#define HOW_log10       KERNEL(log10)
#define HOW_log1p       KERNEL(log1p)
#define HOW_sqrt        KERNEL(sqrt)
#define HOW_rsqrt       KERNEL(rsqrt)
#define HOW_reciprocal  KERNEL(reciprocal)
#define HOW_sin         KERNEL(sin)
#define HOW_cos         KERNEL(cos)
#define HOW_tan         KERNEL(tan)
#define HOW_asin        KERNEL(asin)
#define HOW_acos        KERNEL(acos)
#define HOW_atan        KERNEL(atan)
#define HOW_sinh        KERNEL(sinh)
#define HOW_cosh        KERNEL(cosh)
#define HOW_tanh        KERNEL(tanh)
#define HOW_asinh       KERNEL(asinh)
#define HOW_acosh       KERNEL(acosh)
#define HOW_atanh       KERNEL(atanh)
#define HOW_sinc        KERNEL(sinc)
#define HOW_sigmoid     KERNEL(sigmoid)
static const special_row rows[OP_COUNT] = {
#define SPECIAL(id, how) [OP_##id] = HOW_##how,
#include "ops/complex.def"
};
const special_row *special_of(op_id op) { return &rows[op]; }

/* The type among these that is not plain, or DT_none; a complex one first. */
static int special_type(const op_row *row, const tp_val *arg)
{
    int found = DT_none;
    for (int i = 0; i < row->schema.nparam; i++) {
        const tp_val *v = &arg[i];
        int d = DT_none;
        if (v->kind == VAL_tensor)
            d = v->t->dt;
        else if (v->kind == VAL_complex)
            d = DT_c64;
        else if (v->kind == VAL_dtype)
            d = (int)v->i;
        for (int k = 0; v->kind == VAL_tensors && k < v->n; k++)
            if (v->ts[k] && !dtype_is_plain((dtype)v->ts[k]->dt))
                d = v->ts[k]->dt;
        if (d > DT_f64 && (found == DT_none || dtype_is_complex((dtype)d)))
            found = d;
    }
    return found;
}
bool special_complex(const op_row *row, const tp_val *arg)
{
    int dt = special_type(row, arg);
    return dt != DT_none && dtype_is_complex((dtype)dt);
}
bool special_args(const op_row *row, const tp_val *arg) { return special_type(row, arg) != DT_none; }

/* What PyTorch says where its wording is not the usual one. */
static const char *refusal(const op_row *row)
{
    static const struct {
        const char *name, *text;
    } said[] = {
        { "maximum", "maximum not implemented for complex tensors." },
        { "minimum", "minimum not implemented for complex tensors." },
        { "clamp", "clamp is not supported for complex types" },
        { "relu", "clamp is not supported for complex types" },
        { "floor", "floor is not supported for complex inputs" },
        { "ceil", "ceil is not supported for complex inputs" },
        { "trunc", "trunc is not supported for complex inputs" },
        { "sign", "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use torch.sgn "
                  "instead." },
        { "sort", "Sort does not support complex dtypes on CPU" },
        { "argsort", "Sort does not support complex dtypes on CPU" },
        { "argmax", "argmax(): does not support complex input" },
        { "argmin", "argmin(): does not support complex input" },
    };
    for (size_t i = 0; i < COUNT(said); i++)
        if (!strcmp(row->name, said[i].name))
            return said[i].text;
    return NULL;
}

const special_row *special_find(op_id op, const tp_val *arg, tp_err *err)
{
    const op_row *row = op_row_of(op);
    int dt = special_type(row, arg);
    const special_row *r = &rows[op];
    if (r->taken && (r->stored || dtype_is_complex((dtype)dt)))
        return r;
    const char *text = dtype_is_complex((dtype)dt) ? refusal(row) : NULL;
    if (text)
        err_set(err, *text == 'S' || *text == 'm' || *text == 'a' ? ERR_runtime : ERR_notimpl, "%s", text);
    else
        err_set(err, ERR_notimpl, "\"%s_cpu\" not implemented for '%s'", row->name, dtype_rows[dt].gname);
    return NULL;
}

/* ---- real and imaginary parts apart ---- */
static bool is_value(const op_param *p) /* not a mask, not places */
{
    return strncmp(p->name, "ind", 3) && strcmp(p->name, "mask") && strcmp(p->name, "repeats") &&
           strcmp(p->name, "condition");
}

/* The part in memory of its own with the strides of t: for rows that count in storage. */
static tp_tensor *laid_out(tp_tensor *t, int which, tp_err *err)
{
    if (t->offset) {
        err_set(err, ERR_notimpl, "as_strided_scatter(): of a complex tensor that starts inside its storage");
        return NULL;
    }
    tp_tensor *p = complex_part(t, which);
    tp_tensor *r = tensor_new_strided((dtype)p->dt, t->ndim, t->size, t->stride, tensor_device(t), err);
    if (r && !tensor_copy(r, p, err)) {
        tensor_unref(r);
        r = NULL;
    }
    tensor_unref(p);
    return r;
}

/* t as part `which` of a complex operand; with `plan`, without bytes. Owned. */
static tp_tensor *value_part(op_ctx *cx, tp_tensor *t, int which, bool plan, tp_err *err)
{
    tp_val z[1];
    if (dtype_is_complex((dtype)t->dt))
        return plan ? tensor_new_fake(dtype_real_of((dtype)t->dt), t->ndim, t->size, t->stride,
                                      tensor_device(t))
                    : complex_part(t, which);
    if (!which || plan)
        return tensor_ref(t);
    tp_val a[6] = { vT(t), vNone, vNone, vNone, vNone, vNone };
    return ops_call(cx, OP_zeros_like, OPV_fn, a, z, err) ? z[0].t : NULL;
}

typedef struct part_args {
    tp_val val[OP_MAX_PARAMS];
    tp_tensor *own[OP_MAX_PARAMS]; /* what val holds a count of */
    tp_tensor **list;
    int nlist;
} part_args;

static bool part_begin(part_args *p, op_ctx *cx, const op_row *row, const tp_val *arg, int which, bool plan,
                       tp_err *err)
{
    memset(p, 0, sizeof *p);
    for (int i = 0; i < row->schema.nparam; i++) {
        const op_param *q = &row->schema.param[i];
        tp_val *v = &p->val[i];
        *v = arg[i];
        if (v->kind == VAL_tensor && is_value(q)) {
            bool lay = !plan && dtype_is_complex((dtype)v->t->dt) && !strncmp(row->name, "as_strided", 10);
            p->own[i] = lay ? laid_out(v->t, which, err) : value_part(cx, v->t, which, plan, err);
            if (!p->own[i])
                return false;
            *v = vT(p->own[i]);
        } else if (v->kind == VAL_tensors && is_value(q)) {
            p->list = mem_zalloc(sizeof *p->list * (size_t)MAX(v->n, 1));
            for (p->nlist = 0; p->nlist < v->n; p->nlist++) {
                tp_tensor *t = arg[i].ts[p->nlist];
                if (t && !(p->list[p->nlist] = value_part(cx, t, which, plan, err)))
                    return false;
            }
            *v = vTs(p->list, arg[i].n);
        } else if (v->kind == VAL_dtype)
            v->i = dtype_real_of((dtype)v->i);
        else if (q->type == PT_scalar && val_is_number(v) && strcmp(q->name, "alpha")) {
            if (which)
                *v = v->kind == VAL_complex ? vF(v->floats[1]) : vI(0);
            else if (v->kind == VAL_complex)
                *v = vF(v->floats[0]);
        }
    }
    return true;
}
static void part_end(part_args *p)
{
    for (size_t i = 0; i < COUNT(p->own); i++)
        tensor_unref(p->own[i]);
    for (int i = 0; i < p->nlist; i++)
        tensor_unref(p->list[i]);
    free(p->list);
}

/* What the row makes of real operands of these sizes, as complex tensors. */
static int plan_results(op_ctx *cx, op_id op, const tp_val *arg, tp_tensor **res, bool fake, tp_err *err)
{
    const op_row *row = op_row_of(op);
    part_args p;
    tp_val out[OP_MAX_RETURNS] = { 0 };
    int n = -1;
    if (part_begin(&p, cx, row, arg, 0, true, err) && ops_fake(cx, op, OPV_fn, p.val, out, err)) {
        for (n = 0; n < row->schema.nret && n < MAX_OUT && out[n].kind == VAL_tensor; n++) {
            tp_tensor *t = out[n].t;
            dtype dt = dtype_complex_of((dtype)t->dt);
            res[n] = fake ? tensor_new_fake(dt, t->ndim, t->size, t->stride, tensor_device(t))
                          : tensor_new_strided(dt, t->ndim, t->size, t->stride, tensor_device(t), err);
            if (!res[n])
                break;
        }
        for (int i = 0; i < row->schema.nret; i++)
            val_clear(&out[i]);
    }
    part_end(&p);
    return n;
}

/* Into arg[0], whose type must take the result. Takes r. */
static bool write_self(const tp_val *arg, tp_tensor *r, tp_val *out, bool fake, tp_err *err)
{
    tp_tensor *self = arg[0].t;
    bool ok = true;
    if (!dtype_can_cast((dtype)r->dt, (dtype)self->dt))
        ok = err_set(err, ERR_runtime, "result type %s can't be cast to the desired output type %s",
                     dtype_rows[r->dt].gname, dtype_rows[self->dt].gname);
    ok = ok && (fake || tensor_copy(self, r, err));
    tensor_unref(r);
    if (ok) {
        tensor_bump(self);
        out[0] = vT(tensor_ref(self));
    }
    return ok;
}

static bool call_parts(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err,
                       bool fake)
{
    const op_row *row = op_row_of(op);
    bool mut = row->flags & OPF_MUT, ok = true;
    tp_tensor *res[MAX_OUT] = { 0 }, *first = arg[0].kind == VAL_tensor ? arg[0].t : NULL;
    if (first && !dtype_is_complex((dtype)first->dt))
        for (int i = 1; i < row->schema.nparam; i++)
            if (arg[i].kind == VAL_tensor && dtype_is_complex((dtype)arg[i].t->dt))
                return err_set(err, ERR_runtime, "%s(): Expected self.dtype to be equal to src.dtype",
                               row->name);
    if (mut && fake) {
        out[0] = vT(tensor_ref(first));
        tensor_bump(first);
        return true;
    }
    int n = mut ? 0 : plan_results(cx, op, arg, res, fake, err);
    if (n < (mut ? 0 : row->schema.nret))
        ok = false;
    for (int which = 0; ok && !fake && which < 2; which++) {
        part_args p;
        tp_val got[OP_MAX_RETURNS] = { 0 };
        ok = part_begin(&p, cx, row, arg, which, false, err) && ops_call(cx, op, OPV_fn, p.val, got, err);
        for (int i = 0; ok && i < n; i++) {
            tp_tensor *to = complex_part(res[i], which);
            ok = tensor_copy(to, got[i].t, err);
            tensor_unref(to);
        }
        for (int i = 0; i < row->schema.nret; i++)
            val_clear(&got[i]);
        part_end(&p);
    }
    if (ok && v == OPV_inplace)
        return write_self(arg, res[0], out, fake, err);
    for (int i = 0; i < n; i++)
        if (ok)
            out[i] = vT(res[i]);
        else
            tensor_unref(res[i]);
    if (ok && mut)
        out[0] = vT(tensor_ref(first));
    return ok;
}

/* Types that are only stored move as integers of their size. */
static dtype bits_of(dtype d)
{
    return d == DT_u16                    ? DT_i16
           : d == DT_u32                  ? DT_i32
           : d == DT_u64                  ? DT_i64
           : d == DT_f8e4 || d == DT_f8e5 ? DT_u8
                                          : d;
}
static bool call_moves(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err,
                       bool fake)
{
    const op_row *row = op_row_of(op);
    int dt = special_type(row, arg), nlist = 0;
    if (dtype_is_complex((dtype)dt))
        return call_parts(cx, op, v, arg, out, err, fake);
    tp_val a[OP_MAX_PARAMS];
    tp_tensor *own[OP_MAX_PARAMS] = { 0 }, **list = NULL;
    bool ok = true;
    for (int i = 0; i < row->schema.nparam; i++) {
        bool value = is_value(&row->schema.param[i]);
        a[i] = arg[i];
        if (arg[i].kind == VAL_tensor && value) {
            tp_tensor *t = arg[i].t;
            ok = ok && t->dt == dt;
            own[i] = tensor_on(t->storage, bits_of((dtype)t->dt), t->ndim, t->size, t->stride, t->offset);
            a[i] = vT(own[i]);
        } else if (arg[i].kind == VAL_tensors && value) {
            list = mem_zalloc(sizeof *list * (size_t)MAX(arg[i].n, 1));
            for (; nlist < arg[i].n; nlist++) {
                tp_tensor *t = arg[i].ts[nlist];
                ok = ok && t->dt == dt;
                list[nlist] = tensor_on(t->storage, bits_of((dtype)t->dt), t->ndim, t->size, t->stride,
                                        t->offset);
            }
            a[i] = vTs(list, nlist);
        }
    }
    if (!ok)
        err_set(err, ERR_notimpl, "Promotion for %s is not supported", dtype_name((dtype)dt));
    ok = ok && (fake ? ops_fake(cx, op, v, a, out, err) : ops_call(cx, op, v, a, out, err));
    if (ok && v == OPV_inplace) {
        val_clear(&out[0]);
        out[0] = vT(tensor_ref(arg[0].t));
    } else
        for (int i = 0; ok && i < row->schema.nret; i++)
            if (out[i].kind == VAL_tensor)
                out[i].t->dt = (uint8_t)dt;
    for (int i = 0; i < row->schema.nparam; i++)
        tensor_unref(own[i]);
    for (int i = 0; i < nlist; i++)
        tensor_unref(list[i]);
    free(list);
    return ok;
}

/* ---- one operand becomes another, then the row ---- */
static bool one(op_ctx *cx, op_id op, const tp_val *arg, int narg, tp_tensor **r, bool fake, tp_err *err)
{
    tp_val full[OP_MAX_PARAMS], out[OP_MAX_RETURNS] = { 0 };
    if (!op_fill_defaults(op_row_of(op), arg, narg, full, err) ||
        !(fake ? ops_fake(cx, op, OPV_fn, full, out, err) : ops_call(cx, op, OPV_fn, full, out, err)))
        return false;
    *r = out[0].t;
    return true;
}
#define ONE(op, r, ...) one(cx, OP_##op, B_ARGS(__VA_ARGS__), r, fake, err)

static bool with_first(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_tensor *x, tp_val *out,
                       tp_err *err, bool fake)
{
    tp_val a[OP_MAX_PARAMS];
    int n = op_row_of(op)->schema.nparam;
    memcpy(a, arg, sizeof *a * (size_t)n);
    a[0] = vT(x);
    for (int i = 0; i < n; i++)
        if (a[i].kind == VAL_dtype)
            a[i].i = dtype_real_of((dtype)a[i].i);
    bool ok = fake ? ops_fake(cx, op, OPV_fn, a, out, err) : ops_call(cx, op, OPV_fn, a, out, err);
    tensor_unref(x);
    if (ok && v == OPV_inplace)
        return write_self(arg, out[0].t, out, fake, err);
    return ok;
}

static bool call_magnitude(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err,
                           bool fake)
{
    tp_tensor *x = NULL;
    return ONE(abs, &x, arg[0]) && with_first(cx, op, v, arg, x, out, err, fake);
}

static bool call_truth(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err,
                       bool fake)
{
    tp_tensor *x = NULL;
    return ONE(ne_Tensor, &x, arg[0], vI(0)) && with_first(cx, op, v, arg, x, out, err, fake);
}

/* The variance is that of the real plus that of the imaginary parts. */
static bool spread_of(op_ctx *cx, op_id op, const tp_val *arg, tp_tensor **r, tp_err *err, bool fake)
{
    tp_tensor *part[2] = { 0 };
    bool ok = true;
    for (int i = 0; ok && i < 2; i++) {
        tp_val a[OP_MAX_PARAMS];
        memcpy(a, arg, sizeof *a * (size_t)op_row_of(op)->schema.nparam);
        tp_tensor *x = value_part(cx, arg[0].t, i, fake, err);
        a[0] = vT(x);
        ok = x && one(cx, OP_var_correction, a, op_row_of(op)->schema.nparam, &part[i], fake, err);
        tensor_unref(x);
    }
    ok = ok && ONE(add_Tensor, r, vT(part[0]), vT(part[1]));
    tensor_unref(part[0]);
    tensor_unref(part[1]);
    return ok;
}
static bool call_var(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err,
                     bool fake)
{
    tp_tensor *r = NULL;
    if (!spread_of(cx, op, arg, &r, err, fake))
        return false;
    out[0] = vT(r);
    return true;
}
static bool call_std(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err,
                     bool fake)
{
    tp_tensor *r = NULL, *s = NULL;
    bool ok = spread_of(cx, op, arg, &r, err, fake) && ONE(sqrt, &s, vT(r));
    tensor_unref(r);
    if (ok)
        out[0] = vT(s);
    return ok;
}

/* ---- comparisons ---- */
static dtype wide_of(dtype d) { return d == DT_f8e4 || d == DT_f8e5 ? DT_f32 : DT_i64; }
/* Complex numbers have loops; what is only stored is compared in a type that holds it. */
static bool call_compare(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err,
                         bool fake)
{
    tp_val a[2] = { arg[0], arg[1] };
    tp_tensor *own[2] = { 0 }, *r = NULL;
    bool ok = true;
    for (int i = 0; ok && i < 2; i++)
        if (arg[i].kind == VAL_tensor && !dtype_is_plain((dtype)arg[i].t->dt)) {
            ok = ONE(to_dtype, &own[i], arg[i], vDT(wide_of((dtype)arg[i].t->dt)));
            a[i] = vT(own[i]);
        }
    ok = ok && one(cx, op, a, 2, &r, fake, err);
    tensor_unref(own[0]);
    tensor_unref(own[1]);
    if (!ok)
        return false;
    if (v == OPV_inplace)
        return write_self(arg, r, out, fake, err);
    out[0] = vT(r);
    return true;
}

static bool answer(op_ctx *cx, tp_tensor *mask, tp_val *out, tp_err *err) /* all of it; takes mask */
{
    bool fake = false;
    tp_tensor *r = NULL;
    bool ok = ONE(all, &r, vT(mask));
    if (ok)
        out[0] = vB(*(const uint8_t *)tensor_host(r) != 0);
    tensor_unref(mask);
    tensor_unref(r);
    return ok;
}
static bool call_equal(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err,
                       bool fake)
{
    tp_tensor *a = arg[0].t, *b = arg[1].t, *m = NULL;
    if (fake)
        return err_set(err, ERR_runtime, "%s(): the values of fake tensors are not known",
                       op_row_of(op)->name);
    if (a->dt != b->dt)
        return err_set(err, ERR_runtime,
                       "Expected object of data type %s but got data type %s for argument 'other'",
                       dtype_name((dtype)a->dt), dtype_name((dtype)b->dt));
    out[0] = vB(false);
    return !tensor_same_size(a, b) || (ONE(eq_Tensor, &m, arg[0], arg[1]) && answer(cx, m, out, err));
}
static bool call_allclose(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err,
                          bool fake)
{
    tp_tensor *m = NULL;
    if (fake)
        return err_set(err, ERR_runtime, "%s(): the values of fake tensors are not known",
                       op_row_of(op)->name);
    return ONE(isclose, &m, arg[0], arg[1], arg[2], arg[3], arg[4]) && answer(cx, m, out, err);
}

static bool call_item(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err,
                      bool fake)
{
    tp_tensor *t = arg[0].t;
    uint64_t room;
    if (fake)
        return err_set(err, ERR_runtime, "item(): the value of a fake tensor is not known");
    if (t->numel != 1)
        return err_set(err, ERR_runtime, "a Tensor with %lld elements cannot be converted to Scalar",
                       (long long)t->numel);
    const void *p = tensor_peek(t, &room, err);
    if (!p)
        return false;
    if (dtype_is_complex((dtype)t->dt)) {
        double *c = mem_alloc(2 * sizeof *c);
        elem_get_c((dtype)t->dt, p, c);
        out[0] = vC(c);
    } else
        out[0] = dtype_is_exact((dtype)t->dt) ? vI(elem_get_i((dtype)t->dt, p))
                                              : vF(elem_get_f((dtype)t->dt, p));
    return true;
}

/* ---- made of nothing ---- */
static int dtype_at(const op_row *row, const tp_val *arg)
{
    for (int i = 0; i < row->schema.nparam; i++)
        if (arg[i].kind == VAL_dtype)
            return i;
    return -1;
}
static bool call_creates(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err,
                         bool fake)
{
    const op_row *row = op_row_of(op);
    tp_val a[OP_MAX_PARAMS], got[OP_MAX_RETURNS] = { 0 };
    int at = dtype_at(row, arg);
    if (at < 0)
        return err_set(err, ERR_notimpl,
                       "\"%s_cpu\" not implemented for complex numbers without dtype=", row->name);
    memcpy(a, arg, sizeof *a * (size_t)row->schema.nparam);
    for (int i = 0; i < row->schema.nparam; i++)
        if (a[i].kind == VAL_complex)
            return err_set(err, ERR_notimpl, "\"%s_cpu\" not implemented for complex bounds", row->name);
    a[at].i = dtype_real_of((dtype)arg[at].i);
    tp_tensor *r = NULL;
    bool ok = (fake ? ops_fake(cx, op, OPV_fn, a, got, err) : ops_call(cx, op, OPV_fn, a, got, err)) &&
              ONE(to_dtype, &r, got[0], arg[at]);
    val_clear(&got[0]);
    if (ok)
        out[0] = vT(r);
    return ok;
}

/* Both parts are drawn; a complex normal number has variance 1 in all. */
static bool drawn(op_ctx *cx, op_id op, const tp_val *arg, int at, int ndim, const symint *size, tp_val *out,
                  tp_err *err, bool fake)
{
    const op_row *row = op_row_of(op);
    tp_val a[OP_MAX_PARAMS], got[OP_MAX_RETURNS] = { 0 };
    symint full[TP_MAX_DIMS + 1];
    int dt = dtype_at(row, arg);
    if (ndim + 1 > TP_MAX_DIMS)
        return err_set(err, ERR_runtime, "%s(): too many dimensions", row->name);
    memcpy(full, size, sizeof *full * (size_t)ndim);
    full[ndim] = 2;
    memcpy(a, arg, sizeof *a * (size_t)row->schema.nparam);
    a[at] = vIs(full, ndim + 1);
    a[dt].i = dtype_real_of((dtype)arg[dt].i);
    bool ok = fake ? ops_fake(cx, op, OPV_fn, a, got, err) : ops_call(cx, op, OPV_fn, a, got, err);
    tp_tensor *r = NULL, *s = NULL;
    if (ok && !strncmp(row->name, "randn", 5)) {
        ok = ONE(mul_Tensor, &s, got[0], vF(M_SQRT1_2));
        val_clear(&got[0]);
        got[0] = vT(s);
    }
    ok = ok && ONE(view_as_complex, &r, got[0]);
    val_clear(&got[0]);
    if (!ok)
        return false;
    tensor_unref(r->base); /* nobody else sees that memory */
    r->base = NULL;
    out[0] = vT(r);
    return true;
}
static bool call_draw(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err,
                      bool fake)
{
    return drawn(cx, op, arg, 0, arg[0].n, arg[0].ints, out, err, fake);
}
static bool call_draw_like(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err,
                           bool fake)
{
    const op_row *row = op_row_of(op);
    tp_tensor *t = arg[0].t;
    op_id plain = row->name[4] == 'n' ? OP_randn : OP_rand;
    tp_val a[OP_MAX_PARAMS];
    dtype dt = arg[2].kind == VAL_dtype ? (dtype)arg[2].i : (dtype)t->dt;
    if (!dtype_is_complex(dt))
        return err_set(err, ERR_notimpl, "%s(): of a complex tensor, as %s", row->name, dtype_name(dt));
    if (!op_fill_defaults(op_row_of(plain),
                          (tp_val[]){ vNone, arg[1], vDT(dt), vNone, vDev(tensor_device(t)) }, 5, a, err))
        return false;
    return drawn(cx, plain, a, 0, t->ndim, t->size, out, err, fake);
}
static bool call_normal(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err,
                        bool fake)
{
    tp_tensor *r = NULL;
    tp_val got[1] = { vNone };
    if (val_as_f(&arg[1]) != 0)
        return err_set(err, ERR_notimpl, "normal_(): of complex numbers only with mean 0");
    bool ok = ONE(view_as_real, &r, arg[0]);
    tp_val a[4] = { vT(r), arg[1], vF(val_as_f(&arg[2]) * M_SQRT1_2), arg[3] };
    ok = ok && (fake ? ops_fake(cx, op, OPV_fn, a, got, err) : ops_call(cx, op, OPV_fn, a, got, err));
    val_clear(&got[0]);
    tensor_unref(r);
    if (ok)
        out[0] = vT(tensor_ref(arg[0].t));
    return ok;
}

/* ---- products ---- */
/* a times b by the row, of complex tensors of one type. Owned, or NULL. */
static tp_tensor *product(op_ctx *cx, op_id op, tp_tensor *a, tp_tensor *b, tp_err *err)
{
    const bool fake = false;
    tp_tensor *p[4] = { 0 }, *q[4] = { 0 }, *r = NULL;
    bool ok = true;
    for (int i = 0; ok && i < 4;
         i++) { /* re a, im a, re b, im b; contiguous: the kernels would copy them twice */
        tp_tensor *part = complex_part(i < 2 ? a : b, i & 1);
        ok = (p[i] = tensor_contiguous(part, err)) != NULL;
        tensor_unref(part);
    }
    for (int i = 0; ok && i < 4; i++) /* rr, ri, ir, ii */
        ok = one(cx, op, (tp_val[]){ vT(p[i >> 1]), vT(p[2 + (i & 1)]) }, 2, &q[i], fake, err);
    if (ok)
        r = tensor_new(dtype_complex_of((dtype)q[0]->dt), q[0]->ndim, q[0]->size, err);
    ok = r != NULL;
    for (int i = 0; ok && i < 2; i++) {
        tp_tensor *to = complex_part(r, i), *s = NULL;
        ok = (i ? ONE(add_Tensor, &s, vT(q[1]), vT(q[2])) : ONE(sub_Tensor, &s, vT(q[0]), vT(q[3]))) &&
             tensor_copy(to, s, err);
        tensor_unref(s);
        tensor_unref(to);
    }
    for (int i = 0; i < 4; i++) {
        tensor_unref(p[i]);
        tensor_unref(q[i]);
    }
    if (!ok) {
        tensor_unref(r);
        r = NULL;
    }
    return r;
}

static bool kernel_product(op_call *c)
{
    tp_tensor *r = product(c->cx, c->op, arg_t(c, 0), arg_t(c, 1), c->err);
    bool ok = r && tensor_copy(c->res[0], r, c->err);
    tensor_unref(r);
    return ok;
}

/* beta self + alpha (a times b) */
static bool kernel_add_product(op_call *c)
{
    op_ctx *cx = c->cx;
    tp_err *err = c->err;
    const bool fake = false;
    tp_tensor *a = arg_t(c, 1), *b = arg_t(c, 2), *t = NULL, *s = NULL;
    op_id op = a->ndim == 3 ? OP_bmm : b->ndim == 1 ? OP_mv : OP_mm;
    tp_tensor *r = product(cx, op, a, b, err);
    double beta[2];
    val_as_c(&c->arg[3], beta);
    bool ok = r && ONE(mul_Tensor, &t, vT(r), c->arg[4]);
    if (ok && (beta[0] != 0 || beta[1] != 0)) {
        tensor_unref(r);
        r = t;
        t = NULL;
        ok = ONE(mul_Tensor, &s, c->arg[0], c->arg[3]) && ONE(add_Tensor, &t, vT(s), vT(r));
    }
    ok = ok && tensor_copy(c->res[0], t, err);
    tensor_unref(r);
    tensor_unref(s);
    tensor_unref(t);
    return ok;
}

/* ---- products of all elements ---- */
static void times(double v[2], const double w[2])
{
    double re = v[0] * w[0] - v[1] * w[1];
    v[1] = v[0] * w[1] + v[1] * w[0];
    v[0] = re;
}
/* Along one dimension, or over all (dim < 0): each prefix, or the last. */
static bool fold(op_call *c, int dim, bool prefixes)
{
    dtype dt = (dtype)c->res[0]->dt;
    tp_tensor *x = tensor_cast(arg_t(c, 0), dt, c->err), *src = x ? tensor_contiguous(x, c->err) : NULL;
    tp_tensor *r = tensor_new(dt, c->res[0]->ndim, c->res[0]->size, c->err);
    bool ok = src && r;
    if (ok) {
        int64_t es = (int64_t)dtype_size(dt), n = dim < 0 || !src->ndim ? src->numel : src->size[dim], in = 1;
        for (int d = dim + 1; dim >= 0 && d < src->ndim; d++)
            in *= src->size[d];
        int64_t outer = n && in ? src->numel / (n * in) : prefixes ? 0 : r->numel / MAX(in, 1);
        const char *s = tensor_host(src);
        char *o = tensor_host(r);
        for (int64_t k = 0; k < outer * in; k++) {
            int64_t at = k / in * n * in + k % in;
            double acc[2] = { 1, 0 }, v[2];
            for (int64_t i = 0; i < n; i++) {
                elem_get_c(dt, s + (at + i * in) * es, v);
                times(acc, v);
                if (prefixes)
                    elem_set_c(dt, o + (at + i * in) * es, acc);
            }
            if (!prefixes)
                elem_set_c(dt, o + k * es, acc);
        }
        ok = tensor_copy(c->res[0], r, c->err);
    }
    tensor_unref(x);
    tensor_unref(src);
    tensor_unref(r);
    return ok;
}
static bool kernel_prod(op_call *c)
{
    int dim = -1;
    if (c->row->schema.nparam > 2 && !arg_dim(c, 1, arg_t(c, 0)->ndim, &dim))
        return false;
    return fold(c, dim, false);
}
static bool kernel_cumprod(op_call *c)
{
    int dim = 0;
    return arg_dim(c, 1, arg_t(c, 0)->ndim, &dim) && fold(c, dim, true);
}

static bool kernel_div_mode(op_call *c)
{
    if (c->arg[2].kind == VAL_none)
        return special_div(c);
    return err_set(c->err, ERR_notimpl, "\"div_%s_cpu\" not implemented for '%s'", c->arg[2].s,
                   dtype_rows[c->out[0].dt].gname);
}

/* ---- systems of equations: (A + iB) as the real matrix [[A, -B], [B, A]] ---- */
static bool real_matrix(op_ctx *cx, tp_tensor *z, tp_tensor **r, tp_err *err, bool fake)
{
    tp_tensor *p[2] = { 0 }, *neg = NULL, *top = NULL, *low = NULL;
    bool ok = true;
    for (int i = 0; ok && i < 2; i++)
        ok = (p[i] = value_part(cx, z, i, fake, err)) != NULL;
    ok = ok && ONE(neg, &neg, vT(p[1])) && ONE(cat, &top, vTs(((tp_tensor *[]){ p[0], neg }), 2), vI(-1)) &&
         ONE(cat, &low, vTs(((tp_tensor *[]){ p[1], p[0] }), 2), vI(-1)) &&
         ONE(cat, r, vTs(((tp_tensor *[]){ top, low }), 2), vI(-2));
    tp_tensor *all[] = { p[0], p[1], neg, top, low };
    for (size_t i = 0; i < COUNT(all); i++)
        tensor_unref(all[i]);
    return ok;
}
/* [[X], [Y]] or [[X, -Y], [Y, X]] back to X + iY: the first n columns. Takes r. */
static bool complex_matrix(op_ctx *cx, tp_tensor *r, symint rows_, symint cols, int dim, tp_tensor **z,
                           tp_err *err, bool fake)
{
    tp_tensor *p[2] = { 0 }, *w = NULL;
    bool ok = dim != -2 || ONE(slice_Tensor, &w, vT(r), vI(-1), vI(0), vI(cols), vI(1));
    for (int i = 0; ok && i < 2; i++)
        ok = ONE(slice_Tensor, &p[i], vT(w ? w : r), vI(-2), vI(i ? rows_ : 0), vI(sym_mul(rows_, i + 1)),
                 vI(1));
    if (ok) {
        dtype dt = dtype_complex_of((dtype)r->dt);
        int n = p[0]->ndim;
        symint stride[TP_MAX_DIMS], step = 1;
        for (int k = 0; k < n; k++) { /* matrices are stored by columns */
            int d = k == 0 ? n - 2 : k == 1 ? n - 1 : n - 1 - k;
            stride[d] = step;
            step = sym_mul(step, sym_max(p[0]->size[d], 1));
        }
        *z = fake ? tensor_new_fake(dt, n, p[0]->size, stride, tensor_device(r))
                  : tensor_new_strided(dt, n, p[0]->size, stride, tensor_device(r), err);
        ok = *z != NULL;
        for (int i = 0; ok && !fake && i < 2; i++) {
            tp_tensor *to = complex_part(*z, i);
            ok = tensor_copy(to, p[i], err);
            tensor_unref(to);
        }
    }
    tensor_unref(p[0]);
    tensor_unref(p[1]);
    tensor_unref(w);
    tensor_unref(r);
    return ok;
}
static bool square(const tp_tensor *t, const char *name, tp_err *err)
{
    return (t->ndim >= 2 && sym_eq(t->size[t->ndim - 1], t->size[t->ndim - 2])) ||
           err_set(err, ERR_runtime, "%s: A must be batches of square matrices", name);
}
static bool call_inverse(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err,
                         bool fake)
{
    tp_tensor *m = NULL, *z = NULL;
    tp_val got[OP_MAX_RETURNS] = { 0 }, a[OP_MAX_PARAMS];
    if (!square(arg[0].t, "linalg.inv", err) || !real_matrix(cx, arg[0].t, &m, err, fake))
        return false;
    memcpy(a, arg, sizeof *a * (size_t)op_row_of(op)->schema.nparam);
    a[0] = vT(m);
    symint n = arg[0].t->size[arg[0].t->ndim - 1];
    bool ok = fake ? ops_fake(cx, op, OPV_fn, a, got, err) : ops_call(cx, op, OPV_fn, a, got, err);
    tensor_unref(m);
    if (!ok || !complex_matrix(cx, got[0].t, n, n, -2, &z, err, fake))
        return false;
    out[0] = vT(z);
    out[1] = got[1];
    return true;
}
static bool call_solve(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err,
                       bool fake)
{
    tp_tensor *A = arg[0].t, *b = arg[1].t, *m = NULL, *rhs = NULL, *z = NULL, *p[2] = { 0 };
    tp_val got[OP_MAX_RETURNS] = { 0 }, a[OP_MAX_PARAMS];
    if (!arg[2].b || A->dt != b->dt || b->ndim < 2)
        return err_set(
            err, ERR_notimpl,
            "linalg.solve: complex systems are solved from the left, with a matrix B of the type of A");
    if (!square(A, "linalg.solve", err))
        return false;
    bool ok = real_matrix(cx, A, &m, err, fake);
    for (int i = 0; ok && i < 2; i++)
        ok = (p[i] = value_part(cx, b, i, fake, err)) != NULL;
    ok = ok && ONE(cat, &rhs, vTs(p, 2), vI(-2));
    if (ok) {
        memcpy(a, arg, sizeof *a * (size_t)op_row_of(op)->schema.nparam);
        a[0] = vT(m);
        a[1] = vT(rhs);
        ok = fake ? ops_fake(cx, op, OPV_fn, a, got, err) : ops_call(cx, op, OPV_fn, a, got, err);
    }
    symint n = A->size[A->ndim - 1];
    ok = ok && complex_matrix(cx, got[0].t, n, 0, 0, &z, err, fake);
    tensor_unref(m);
    tensor_unref(rhs);
    tensor_unref(p[0]);
    tensor_unref(p[1]);
    if (!ok)
        return false;
    out[0] = vT(z);
    for (int i = 1; i < 4; i++)
        out[i] = got[i];
    return true;
}
