/* vjp.c - the vjp column as data: rules, what they save, names of the steps. */
#include "grad/vjp.h"
#include "base/envvars.h"
#include "ops/decomp.h"
#include <pthread.h>
#include <ctype.h>

/* A token in the table whose rule is not written yet is a hole like `none`; a test lists those. The files of
 * rules are named here so that a static library keeps them. */
#define OP(id, schema, shape, eager, vjp, decomp, lower, flags, py) \
    __attribute__((weak)) vjp_fn vjp_##vjp;                         \
    extern const char vjp_saves_##vjp[] __attribute__((weak));
#include "ops/ops.def"

#define VJP_FILES(F) F(pointwise) F(reduce) F(shape) F(index) F(linalg) F(nn) F(complex)
#define DECLARE(f)   extern const char vjp_file_##f;
#define ADDRESS(f)   &vjp_file_##f,
VJP_FILES(DECLARE)
const char *const vjp_files[] = { VJP_FILES(ADDRESS) };

static const vjp_row rules[OP_COUNT] = {
#define OP(id, schema, shape, eager, vjp, decomp, lower, flags, py) \
    [OP_##id] = { vjp_##vjp, vjp_saves_##vjp },
#include "ops/ops.def"
};
static vjp_info infos[OP_COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* PyTorch numbers the derivative formulas of one name; most are number 0. */
static const uint8_t formula_number[OP_COUNT] = {
#define FORMULA(id, n) [OP_##id] = n,
#include "ops/ops.def"
};

static const char *step_name(op_id op, const op_row *r)
{
    if (!strcmp(r->name, "copy_"))
        return "CopyBackwards";
    strbuf b = { 0 };
    bool up = true;
    size_t n = strlen(r->name); /* nll_loss_forward is the step NllLossBackward0 */
    if (n > 8 && !strcmp(r->name + n - 8, "_forward"))
        n -= 8;
    for (const char *p = r->name; p < r->name + n; p++) {
        if (*p == '_') {
            up = true;
            continue;
        }
        strbuf_addc(&b, up ? (char)toupper((unsigned char)*p) : *p);
        up = isdigit((unsigned char)*p); /* Log1PBackward0 */
    }
    strbuf_addf(&b, "Backward%d", formula_number[op]);
    return strbuf_take(&b); /* lives as long as the process */
}

static void parse_saves(vjp_info *v, const char *s)
{
    while (*s) {
        if (*s == ' ') {
            s++;
            continue;
        }
        int at = 0;
        bool flat = *s == '~';
        if (*s == 'c') {
            v->as_is = true;
            s++;
            continue;
        }
        s += flat;
        if (*s == 'r') {
            s++;
            at = 128;
        }
        if (isdigit((unsigned char)*s))
            at += (int)strtol(s, (char **)&s, 10);
        if (flat)
            v->no_grad |= 1u << (at - 128);
        else if (*s == '?' || *s == '!') {
            int unless = *s == '!' ? 128 : 0;
            assert(v->ncond < COUNT(v->cond));
            v->cond[v->ncond].arg = (uint8_t)at;
            v->cond[v->ncond++].when = (uint8_t)(unless + strtol(s + 1, (char **)&s, 10));
        } else if (at >= 128)
            v->need_out |= 1u << (at - 128);
        else
            v->need_in |= 1u << at;
        assert(*s == ' ' || !*s);
    }
}

static void build(void)
{
    for (int i = 0; i < OP_COUNT; i++) {
        const op_row *r = op_row_of((op_id)i);
        vjp_info *v = &infos[i];
        v->fn = rules[i].fn;
        v->name = step_name((op_id)i, r);
        for (int k = 0; k < r->schema.nparam; k++) {
            if (r->schema.param[k].type == PT_tensor)
                v->tmask |= 1u << k;
            else if (r->schema.param[k].type == PT_tensors)
                v->lmask |= 1u << k;
        }
        if (v->fn)
            parse_saves(v, rules[i].saves);
    }
}

const vjp_info *vjp_info_of(op_id op)
{
    pthread_once(&once, build);
    return &infos[op];
}

static bool vjp_hole(vjp *g)
{
    return err_set(g->b->err, ERR_notimpl, "the derivative for '%s' is not implemented.", g->row->full);
}

const vjp_row *vjp_row_of(op_id op)
{
    static const vjp_row hole = { vjp_hole, "" };
    return rules[op].fn ? &rules[op] : &hole;
}

tp_tensor *vh_reshape(bld *b, tp_tensor *t, int ndim, const symint *size)
{
    symint st[TP_MAX_DIMS];
    if (!t)
        return NULL;
    if (!view_strides(t, ndim, size, st))
        t = b_op(b, clone, vT(t), vMF(MF_contiguous));
    return b_op(b, view, vT(t), vIs(size, ndim));
}

bool vh_plain(const bld *b)
{
    static _Atomic int always = -1;
    if (TP_UNLIKELY(always < 0))
        always = env_on(ENV_plain_derivatives);
    return b->cx->grad_mode || always;
}

tp_val vh_square(bld *b, tp_val a) { return vT(b_op(b, mul_Tensor, a, a)); }

tp_val vh_zeros(bld *b, const tp_tensor *m)
{
    return vT(b_op(b, zeros, vIs(m->size, m->ndim), vDT(m->dt), vNone, vDev(tensor_device(m))));
}

int vh_dim(const tp_val *v, int ndim) { return (int)(v->i < 0 ? v->i + MAX(ndim, 1) : v->i); }
