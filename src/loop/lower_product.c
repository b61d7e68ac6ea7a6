/* lower_product.c - matrix products and convolutions whose memory the plan holds. */
#include "loop/internal.h"
#include "ops/ondevice.h"

bool is_product(planner *pl, const ir_node *n)
{
    const target *t = pl->c->target;
    if (lower_row(n)->items)
        return lower_row(n)->product(pl, n);
    return lower_row(n)->product && lower_row(n)->product(pl, n) &&
           tensor_device(ir_type(n)).kind == t->device &&
           (t->device == DEV_cpu || (lower_row(n)->conv ? t->convolve != NULL : t->product != NULL));
}

bool is_half(const tp_tensor *t) { return t->dt == DT_f16 || t->dt == DT_bf16; }

/* Products whose memory the plan can hold: one type. */
static bool product_fits(planner *pl, const ir_node *n)
{
    const tp_tensor *t = ir_type(n);
    int a = lower_row(n)->factor - 1;
    if (!t)
        return false;
    return n->val.kind == VAL_tensor && (t->dt == DT_f32 || t->dt == DT_f64 || is_half(t)) &&
           n->arg[a].kind == VAL_node && n->arg[a + 1].kind == VAL_node &&
           ir_type(n->arg[a].node)->dt == t->dt && ir_type(n->arg[a + 1].node)->dt == t->dt;
}

/* The same of narrow factors with a float result. */
static bool wide_product_fits(planner *pl, const ir_node *n)
{
    const tp_tensor *t = ir_type(n);
    if (!t || t->dt != DT_f32 || n->arg[0].kind != VAL_node || n->arg[1].kind != VAL_node)
        return false;
    dtype dt = (dtype)ir_type(n->arg[0].node)->dt;
    return (dt == DT_f16 || dt == DT_bf16) && ir_type(n->arg[1].node)->dt == dt;
}

/* addmm(x, a, b) where x is the result of a product that nobody else wants: it is added to in place. */
static bool adds_to_product(planner *pl, const ir_node *n)
{
    const ir_node *x = n->arg[0].node;
    bool known = pl->in ? pl->in[x->id].product : map_geti(&pl->sums, (uintptr_t)x) || is_product(pl, x);
    return known && x->nuse == 1 && ir_type(x)->ndim == 2 && lower_row(x)->factor &&
           same_sizes(2, ir_type(x)->size, 2, ir_type(n)->size) &&
           same_sizes(2, ir_type(x)->stride, 2, ir_type(n)->stride);
}
static bool addmm_fits(planner *pl, const ir_node *n) /* what is added is a row, or such a product */
{
    const tp_tensor *row = n->arg[0].kind == VAL_node ? ir_type(n->arg[0].node) : NULL, *t = ir_type(n);
    if (!product_fits(pl, n) || !row || row->dt != t->dt)
        return false;
    bool fits = row->ndim == 1 && sym_known(SYM_eq, row->size[0], t->size[1]);
    return (fits || adds_to_product(pl, n)) && is_known_number(&n->arg[3]) && is_known_number(&n->arg[4]) &&
           val_as_f(&n->arg[3]) == 1 && val_as_f(&n->arg[4]) == 1;
}
static ir_node *addmm_onto(const ir_node *n)
{
    return ir_type(n->arg[0].node)->ndim == 2 ? n->arg[0].node : NULL;
}

bool is_packed(const tp_tensor *t)
{
    symint want[TP_MAX_DIMS];
    shape_contiguous_strides(t->ndim, t->size, want);
    return same_sizes(t->ndim, t->stride, t->ndim, want);
}

/* Convolutions whose memory the plan can hold: one type, everything where it lies. */
static bool convolution_fits(planner *pl, const ir_node *n)
{
    if (n->val.kind != VAL_tensor || n->arg[6].kind != VAL_bool || n->arg[6].b)
        return false;
    const tp_tensor *t = ir_type(n);
    if ((t->dt != DT_f32 && t->dt != DT_f64) || t->ndim < 3 || !is_packed(t) ||
        tensor_device(t).kind != DEV_cpu) /* a device has rows of its own */
        return false;
    for (int i = 0; i < 3; i++) {
        const tp_tensor *x = n->arg[i].kind == VAL_node ? ir_type(n->arg[i].node) : NULL;
        if (x ? x->dt != t->dt || !is_packed(x) : i < 2)
            return false;
    }
    return true;
}

/* Those of a device: one type, and one layout of all three. */
static bool device_convolution_fits(planner *pl, const ir_node *n)
{
    const tp_tensor *t = ir_type(n);
    if (n->val.kind != VAL_tensor || tensor_device(t).kind == DEV_cpu)
        return false;
    bool packed = is_packed(t), last = true;
    const tp_tensor *all[3] = { t, NULL, NULL };
    for (int i = 0; i < 2; i++) {
        all[1 + i] = n->arg[i].kind == VAL_node ? ir_type(n->arg[i].node) : NULL;
        if (!all[1 + i] || all[1 + i]->dt != t->dt)
            return false;
        packed &= is_packed(all[1 + i]);
    }
    memfmt f = t->ndim == 5 ? MF_channels_last_3d : MF_channels_last;
    for (int i = 0; i < 3 && !packed && last; i++)
        last = t->ndim >= 4 && tensor_is_contiguous_as(all[i], f);
    return packed || last;
}

/* Elements that are finished together: a row of a product, a plane of a convolution. */
symint row_of_product(const ir_node *n)
{
    const tp_tensor *t = ir_type(n);
    symint len = t->size[t->ndim - 1];
    for (int d = 2; lower_row(n)->planes && d < t->ndim - 1; d++)
        len = sym_mul(len, t->size[d]);
    return len;
}

bool is_plain_bmm(planner *pl, const ir_node *n)
{
    return n && lower_row(n)->batched && pl->in[n->id].product && n->arg[0].kind == VAL_node &&
           n->arg[1].kind == VAL_node;
}

/* Heads as the kernels of a device read and write them, so far as their types tell: what does not suit is copied by the call. */
static bool heads_fit(const tp_tensor *t)
{
    bool ok = t->ndim == 4 && is_half(t) && sym_known(SYM_eq, t->stride[3], 1);
    for (int d = 0; d < 3 && ok; d++)
        ok = sym_known(SYM_eq, sym_mod(t->stride[d], 8), 0);
    return ok;
}
static bool has_item(const ir_node *n, int i)
{
    for (const ir_use *u = n->uses; u; u = u->next)
        if (u->user->kind == IR_getitem && u->user->arg[1].i == i)
            return true;
    return false;
}
static bool attention_fits(planner *pl, const ir_node *n, int tensors, int results)
{
    const target *t = pl->c->target;
    const tp_tensor *q = n->arg[0].kind == VAL_node ? ir_type(n->arg[0].node) : NULL;
    if (!q || n->kind != IR_call || n->val.kind != VAL_tensors || tensor_device(q).kind != t->device ||
        t->device == DEV_cpu || !ops_owner(tensor_device(q)) || !ops_owner(tensor_device(q))->attend)
        return false;
    for (const ir_use *u = n->uses; u; u = u->next)
        if (u->user->kind != IR_getitem)
            return false;
    for (int i = 0; i < results; i++)
        if (!has_item(n, i))
            return false;
    for (int i = 0; i < tensors; i++)
        if (n->arg[i].kind != VAL_node || !heads_fit(ir_type(n->arg[i].node)))
            return false;
    return true;
}
static bool flash_fits(planner *pl, const ir_node *n) { return attention_fits(pl, n, 3, 1); }
static bool flash_grad_fits(planner *pl, const ir_node *n) { return attention_fits(pl, n, 4, 2); }

const lowering lower_mm = { .product = product_fits, .factor = 0 + 1, .tiles = true };
const lowering lower_bmm = { .product = product_fits, .factor = 0 + 1, .batched = true, .tiles = true };
const lowering lower_bmm_wide = {
    .product = wide_product_fits, .factor = 0 + 1, .batched = true, .tiles = true
};
const lowering lower_addmm = { .product = addmm_fits, .adds_to = addmm_onto, .factor = 1 + 1, .tiles = true };
const lowering lower_baddbmm = { .tiles = true };
const lowering lower_convolution = { .product = convolution_fits, .planes = true, .tiles = true };
const lowering lower_convolution_backward = { .tiles = true };
const lowering lower_flash = { .product = flash_fits, .items = true };
const lowering lower_flash_grad = { .product = flash_grad_fits, .items = true };
const lowering lower_conv_forward = { .product = device_convolution_fits, .conv = CONV_forward + 1 };
const lowering lower_conv_grad_input = { .product = device_convolution_fits, .conv = CONV_grad_input + 1 };
const lowering lower_conv_grad_weight = { .product = device_convolution_fits, .conv = CONV_grad_weight + 1 };
