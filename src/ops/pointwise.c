/* pointwise.c - shape rules of pointwise operators, and the runner that feeds packed blocks to the loops. */
#include "ops/pw.h"
#include "ops/iter.h"
#include "ops/provider.h"
#include <math.h>
#include <stdlib.h>

/* ---- which instruction set ---- */
isa_kind isa_current(void)
{
    static int chosen = -1;
    if (TP_LIKELY(chosen >= 0))
        return (isa_kind)chosen;
    chosen = ops_provided_isa();
    return (isa_kind)chosen;
}

ISA_DECL(conv_fn *, conv_pick, (dtype d, dtype s));
conv_fn *conv_of(dtype d, dtype s) { return ISA_PICK(conv_pick)(d, s); }

const uint8_t ctype_of[DT_COUNT] = {
    [DT_bool] = CT_b8, [DT_u8] = CT_i32,  [DT_i8] = CT_i32,   [DT_i16] = CT_i32, [DT_i32] = CT_i32,
    [DT_i64] = CT_i64, [DT_f16] = CT_f32, [DT_bf16] = CT_f32, [DT_f32] = CT_f32, [DT_f64] = CT_f64
};
const uint8_t ctype_dtype[CT_COUNT] = { DT_f32, DT_f64, DT_i32, DT_i64, DT_bool };

/* ---- the loops, by instruction set ---- */
#define DECL_T(nm, t, isa)  pw_loop pw_##nm##_##t##isa;
#define DECL_F(nm, isa)     DECL_T(nm, f32, isa) DECL_T(nm, f64, isa)
#define DECL_I(nm, isa)     DECL_T(nm, i32, isa) DECL_T(nm, i64, isa)
#define DECL_FI(nm, isa)    DECL_F(nm, isa) DECL_I(nm, isa)
#define DECL_IB(nm, isa)    DECL_I(nm, isa) DECL_T(nm, b8, isa)
#define DECL_FIB(nm, isa)   DECL_F(nm, isa) DECL_IB(nm, isa)
#define ENTRY_T(nm, t, isa) [CT_##t] = pw_##nm##_##t##isa,
#define ENTRY_F(nm, isa)    ENTRY_T(nm, f32, isa) ENTRY_T(nm, f64, isa)
#define ENTRY_I(nm, isa)    ENTRY_T(nm, i32, isa) ENTRY_T(nm, i64, isa)
#define ENTRY_FI(nm, isa)   ENTRY_F(nm, isa) ENTRY_I(nm, isa)
#define ENTRY_IB(nm, isa)   ENTRY_I(nm, isa) ENTRY_T(nm, b8, isa)
#define ENTRY_FIB(nm, isa)  ENTRY_F(nm, isa) ENTRY_IB(nm, isa)
#define BOOL_S              false
#define BOOL_B              true

#define PW(nm, nin, res, types, f, i, b) DECL_##types(nm, )
#include "ops/pw_slow.def"
#define SLOW_ROW(nm, nin, res, types) [PW_##nm] = { nin, BOOL_##res, { ENTRY_##types(nm, ) } },

/* One table an instruction set: its own loops, the shared slow ones, the hand-written few. */
#define PW(nm, nin, res, types, f, i, b) DECL_##types(nm, _base)
#include "ops/pw.def"
DECL_FIB(where, _base)
static const pw_row rows_base[PW_COUNT] = {
#define PW(nm, nin, res, types, f, i, b) [PW_##nm] = { nin, BOOL_##res, { ENTRY_##types(nm, _base) } },
#include "ops/pw.def"
#define PW(nm, nin, res, types, f, i, b) SLOW_ROW(nm, nin, res, types)
#include "ops/pw_slow.def"
    [PW_where] = { 3, false, { ENTRY_FIB(where, _base) } },
};
#if defined(__x86_64__)
#define PW(nm, nin, res, types, f, i, b) DECL_##types(nm, _avx2) DECL_##types(nm, _avx512)
#include "ops/pw.def"
DECL_FIB(where, _avx2)
DECL_FIB(where, _avx512)
static const pw_row rows_avx2[PW_COUNT] = {
#define PW(nm, nin, res, types, f, i, b) [PW_##nm] = { nin, BOOL_##res, { ENTRY_##types(nm, _avx2) } },
#include "ops/pw.def"
#define PW(nm, nin, res, types, f, i, b) SLOW_ROW(nm, nin, res, types)
#include "ops/pw_slow.def"
    [PW_where] = { 3, false, { ENTRY_FIB(where, _avx2) } },
};
static const pw_row rows_avx512[PW_COUNT] = {
#define PW(nm, nin, res, types, f, i, b) [PW_##nm] = { nin, BOOL_##res, { ENTRY_##types(nm, _avx512) } },
#include "ops/pw.def"
#define PW(nm, nin, res, types, f, i, b) SLOW_ROW(nm, nin, res, types)
#include "ops/pw_slow.def"
    [PW_where] = { 3, false, { ENTRY_FIB(where, _avx512) } },
};
static const pw_row *const tables[] = { rows_base, rows_avx2, rows_avx512 };
#else
static const pw_row *const tables[] = { rows_base };
#endif
/* short forms of slow loops */
#define FAST(nm) \
    ISA_DECL(void, nm, (int64_t n, void *o, const void *a, const void *b, const void *c, const pw_par *p))
FAST(pw_fmod_fast);
FAST(pw_remainder_fast);
FAST(pw_div_floor_fast);
FAST(pw_fmod_f64_fast);
FAST(pw_remainder_f64_fast);
FAST(pw_div_floor_f64_fast);
FAST(pw_div_floor_whole);
static pw_loop *fast_form(pw_id id, ctype ct)
{
    if (ct == CT_i64)
        return id == PW_div_floor ? ISA_PICK(pw_div_floor_whole) : NULL;
    if (ct != CT_f32 && ct != CT_f64)
        return NULL;
    switch (id) {
    case PW_fmod: return ct == CT_f32 ? ISA_PICK(pw_fmod_fast) : ISA_PICK(pw_fmod_f64_fast);
    case PW_remainder: return ct == CT_f32 ? ISA_PICK(pw_remainder_fast) : ISA_PICK(pw_remainder_f64_fast);
    case PW_div_floor: return ct == CT_f32 ? ISA_PICK(pw_div_floor_fast) : ISA_PICK(pw_div_floor_f64_fast);
    default: return NULL;
    }
}
const pw_row *pw_row_of(pw_id id) { return pw_row_for(isa_current(), id); }
const pw_row *pw_row_for(isa_kind isa, pw_id id) { return &tables[isa][id]; }

/* ---- the runner ---- */
#define STRIDED(T, dst, src)        \
    for (int64_t i = 0; i < n; i++) \
    *(T *)(dst) = *(const T *)(src)
void gather_packed(int64_t n, void *d, const char *s, int64_t st, size_t es)
{
    switch (es) {
    case 1: STRIDED(uint8_t, (char *)d + i, s + i * st); break;
    case 2: STRIDED(uint16_t, (char *)d + i * 2, s + i * st); break;
    case 4: STRIDED(uint32_t, (char *)d + i * 4, s + i * st); break;
    case 16: STRIDED(wide_elem, (char *)d + i * 16, s + i * st); break;
    default: STRIDED(uint64_t, (char *)d + i * 8, s + i * st);
    }
}
void scatter_packed(int64_t n, char *d, int64_t st, const void *s, size_t es)
{
    switch (es) {
    case 1: STRIDED(uint8_t, d + i * st, (const char *)s + i); break;
    case 2: STRIDED(uint16_t, d + i * st, (const char *)s + i * 2); break;
    case 4: STRIDED(uint32_t, d + i * st, (const char *)s + i * 4); break;
    case 16: STRIDED(wide_elem, d + i * st, (const char *)s + i * 16); break;
    default: STRIDED(uint64_t, d + i * st, (const char *)s + i * 8);
    }
}

/* Blocks lie a little more than a page apart: the processor takes a load for dependent on a store a page away. */
enum { BLOCK = 512, APART = BLOCK + 40, PW_MAX_IN = 3 };
typedef struct plan {
    pw_loop *loop;
    const pw_par *par;
    int nin;
    bool direct;                  /* no operand needs converting */
    uint8_t es[PW_MAX_IN + 1];    /* element bytes as stored; operand 0 is the result */
    uint8_t ces[PW_MAX_IN + 1];   /* element bytes in the loop */
    conv_fn *conv[PW_MAX_IN + 1]; /* NULL: stored as computed */
    pw_loop *half, *one[2];       /* 16-bit operands as they are stored; input k is one number; or NULL */
} plan;

ISA_DECL(void, fill_packed, (int64_t n, void *buf, const void *v, size_t es));

/* Blocks through buffers: strided, broadcast or converted operands are packed first. */
static void run_blocks(const plan *p, int64_t n, char *const *ptr, const int64_t *st)
{
    _Alignas(64) uint64_t buf[PW_MAX_IN + 1][APART], tmp[APART];
    const void *in[PW_MAX_IN] = { 0 };

    for (int k = 1; k <= p->nin; k++) /* broadcast operands are packed once */
        if (st[k] == 0) {
            uint64_t v;
            const void *src = ptr[k];
            if (p->conv[k]) {
                p->conv[k](1, &v, src);
                src = &v;
            }
            ISA_PICK(fill_packed)(MIN(n, BLOCK), buf[k], src, p->ces[k]);
            in[k - 1] = buf[k];
        }
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t m = MIN(n - at, BLOCK);
        for (int k = 1; k <= p->nin; k++) {
            const char *src = ptr[k] + at * st[k];
            if (st[k] == 0)
                continue;
            if (st[k] != p->es[k]) {
                void *to = p->conv[k] ? (void *)tmp : (void *)buf[k];
                gather_packed(m, to, src, st[k], p->es[k]);
                src = to;
            }
            if (p->conv[k]) {
                p->conv[k](m, buf[k], src);
                src = (char *)buf[k];
            }
            in[k - 1] = src;
        }
        char *out = ptr[0] + at * st[0];
        bool packed = st[0] == p->es[0];
        void *to = !p->conv[0] && packed ? (void *)out : (void *)buf[0];
        p->loop(m, to, in[0], in[1], in[2], p->par);
        if (p->conv[0]) {
            void *fin = packed ? (void *)out : (void *)tmp;
            p->conv[0](m, fin, buf[0]);
            to = fin;
        }
        if (!packed)
            scatter_packed(m, out, st[0], to, p->es[0]);
    }
}

static void run_span(void *arg, int64_t n, char *const *ptr, const int64_t *st)
{
    const plan *p = arg;
    bool packed = p->direct || p->half;
    for (int k = 0; packed && k <= p->nin; k++)
        packed = st[k] == p->es[k];
    if (packed && p->half)
        p->half(n, ptr[0], ptr[1], ptr[2], NULL, p->par);
    else if (p->one[0] && st[0] == p->es[0] && (st[1] ? st[1] == p->es[1] && !st[2] : st[2] == p->es[2]))
        p->one[st[1] != 0](n, ptr[0], ptr[1], ptr[2], NULL, p->par);
    else if (packed)
        p->loop(n, ptr[0], ptr[1], p->nin > 1 ? ptr[2] : NULL, p->nin > 2 ? ptr[3] : NULL, p->par);
    else
        run_blocks(p, n, ptr, st);
}

bool no_kernel(op_call *c, dtype dt)
{
    return err_set(c->err, ERR_notimpl, "\"%s_cpu\" not implemented for '%s'", c->row->name,
                   dtype_rows[dt].gname);
}

/* A number has the type of the tensors it meets: 3.14 beside bfloat16 is 3.140625, and -1 beside uint8 is 255. */
static float number_in(dtype dt, double v)
{
    uint16_t half;
    if (dt != DT_f16 && dt != DT_bf16)
        return (float)v;
    elem_set_f(dt, &half, v);
    return (float)elem_get_f(dt, &half);
}

static int32_t integer_in(dtype dt, int64_t v)
{
    return dt == DT_u8 ? (uint8_t)v : dt == DT_i8 ? (int8_t)v : dt == DT_i16 ? (int16_t)v : (int32_t)v;
}

bool pw_apply(op_call *c, pw_id id, dtype dt, tp_tensor *out, const pw_in *in, int nin, const pw_par *par)
{
    static const pw_par zero;
    const pw_row *row = pw_row_of(id);
    ctype ct = (ctype)ctype_of[dt];
    dtype cdt = (dtype)ctype_dtype[ct], odt = row->to_bool ? DT_bool : cdt;
    tp_tensor *op[ITER_MAX] = { out };
    union {
        double d;
        float f;
        int64_t l;
        int32_t i;
        uint8_t b;
    } num[PW_MAX_IN];
    plan p = { .loop = row->loop[ct], .par = par ? par : &zero, .nin = nin, .direct = true };
    iter it;

    if (!p.loop)
        return no_kernel(c, dt);
    pw_loop *fast = fast_form(id, ct);
    if (fast)
        p.loop = fast;
    p.es[0] = (uint8_t)dtype_size((dtype)out->dt);
    p.ces[0] = (uint8_t)dtype_size(odt);
    p.conv[0] = out->dt == odt ? NULL : conv_of((dtype)out->dt, odt);
    bool wide = c->row->flags & OPF_WIDENUM;
    for (int k = 0; k < nin; k++) {
        tp_tensor *t = in[k].t;
        dtype want = in[k].is_mask ? DT_bool : cdt;
        op[k + 1] = t;
        p.ces[k + 1] = (uint8_t)dtype_size(want);
        if (t) {
            p.es[k + 1] = (uint8_t)dtype_size((dtype)t->dt);
            p.conv[k + 1] = t->dt == want ? NULL : conv_of(want, (dtype)t->dt);
        } else {
            const tp_val *v = in[k].num;
            p.es[k + 1] = p.ces[k + 1]; /* stride 0 differs: never taken for packed */
            switch (ct) {
            case CT_f32: num[k].f = wide ? (float)val_as_f(v) : number_in(dt, val_as_f(v)); break;
            case CT_f64: num[k].d = val_as_f(v); break;
            case CT_i32: num[k].i = integer_in(dt, val_as_i(v)); break;
            case CT_i64: num[k].l = val_as_i(v); break;
            default: num[k].b = val_as_f(v) != 0;
            }
        }
        p.direct = p.direct && !p.conv[k + 1];
    }
    p.direct = p.direct && !p.conv[0];
    const pw_quick_row *quick = ct == CT_f32 ? ISA_PICK(pw_quick)(id) : NULL;
    if (quick && p.direct) {
        p.one[0] = quick->x;
        p.one[1] = quick->y;
    } else if (quick && in[0].t && in[1].t && in[0].t->dt == in[1].t->dt && out->dt == in[0].t->dt)
        p.half = out->dt == DT_f16 ? quick->f16 : out->dt == DT_bf16 ? quick->bf16 : NULL;
    iter_init(&it, nin + 1, op);
    for (int k = 0; k < nin; k++)
        if (!in[k].t)
            it.data[k + 1] = (char *)&num[k];
    iter_run(&it, run_span, &p, 0);
    return true;
}

dtype pw_join(const op_call *c)
{
    const op_schema *s = &c->row->schema;
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

void pw_numbers(const op_call *c, pw_par *par)
{
    const op_schema *s = &c->row->schema;
    int n = 0;
    for (int i = 0; i < s->nparam && n < 4; i++) {
        int t = s->param[i].type;
        if (t != PT_scalar && t != PT_float && t != PT_int && t != PT_bool)
            continue;
        const tp_val *v = &c->arg[i];
        par->f[n] = v->kind == VAL_none ? 0 : val_as_f(v);
        par->i[n++] = v->kind == VAL_none ? 0 : val_as_i(v);
    }
}

bool pw_run(op_call *c, pw_id id, const pw_par *par)
{
    const op_schema *s = &c->row->schema;
    pw_in in[PW_MAX_IN];
    int nin = 0;
    for (int i = 0; i < s->nparam && nin < PW_MAX_IN; i++) {
        const tp_val *v = &c->arg[i];
        if (s->param[i].type == PT_tensor && v->kind != VAL_none)
            in[nin++] = (pw_in){ v->kind == VAL_tensor ? v->t : NULL, v, false };
    }
    dtype dt = c->out[0].dt == DT_bool ? pw_join(c) : (dtype)c->out[0].dt;
    return pw_apply(c, id, dt, c->res[0], in, nin, par);
}

/* A kernel for every loop, with all number arguments as its parameters. */
static bool run_plain(op_call *c, pw_id id)
{
    pw_par p = { { 0 }, { 0 } };
    const op_schema *s = &c->row->schema;
    if (!dtype_is_float((dtype)c->out[0].dt) && c->out[0].dt != DT_bool)
        for (int i = 0; i < s->nparam; i++) /* a NaN has no integer */
            if (s->param[i].type == PT_scalar && c->arg[i].kind == VAL_float &&
                !fill_value_ok(DT_i64, &c->arg[i], c->err))
                return false;
    pw_numbers(c, &p);
    return pw_run(c, id, &p);
}
#define PW(name, nin, res, types, f, i, b) \
    bool eager_##name(op_call *c) { return run_plain(c, PW_##name); }
#include "ops/pw.def"
#define PW(name, nin, res, types, f, i, b) \
    bool eager_##name(op_call *c) { return run_plain(c, PW_##name); }
#include "ops/pw_slow.def"
