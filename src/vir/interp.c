/* interp.c - the reference meaning of the vector IR: plain C, one element at a time. Slow on purpose. */
#include "vir/vir.h"
#include "vir/math/vnum.h"
#include <math.h>

typedef union val {
    double d;
    float f;
    int64_t i; /* i64, i32 (sign-extended), mask (0 or 1) */
} val;

typedef struct interp {
    const vir *k;
    void *const *bufs;
    const int64_t *ints;
    const double *flts;
    int64_t lo, hi, partial;
    val *v;        /* by value; variables live here too */
    val **red;     /* by reduction: parts x partials */
    const val *in; /* inputs of a fragment */
} interp;

static void run_frag(const vir_frag *f, const val *in, val *out);

static int64_t wrap(vir_type t, int64_t x) { return t == VT_i32 ? (int32_t)x : x; }

static int64_t int_op(vir_op op, vir_type t, int64_t a, int64_t b)
{
    uint64_t x = (uint64_t)a, y = (uint64_t)b;
    int bits = t == VT_i32 ? 32 : 64;
    switch (op) {
    case VIR_add: return wrap(t, (int64_t)(x + y));
    case VIR_sub: return wrap(t, (int64_t)(x - y));
    case VIR_mul: return wrap(t, (int64_t)(x * y));
    case VIR_min: return MIN(a, b);
    case VIR_max: return MAX(a, b);
    case VIR_divt: return b == 0 ? 0 : b == -1 ? wrap(t, (int64_t)(0 - x)) : a / b;
    case VIR_divf:
        return b == 0 ? 0 : b == -1 ? wrap(t, (int64_t)(0 - x)) : a / b - (a % b && (a < 0) != (b < 0));
    case VIR_modt: return b == 0 ? a : b == -1 ? 0 : a % b;
    case VIR_modf: return b == 0 ? a : b == -1 ? 0 : a % b + (a % b && (a < 0) != (b < 0) ? b : 0);
    case VIR_shl: return b < 0 || b >= bits ? 0 : wrap(t, (int64_t)(x << b));
    case VIR_shr: return b < 0 || b >= bits ? 0 : wrap(t, (int64_t)((t == VT_i32 ? (uint32_t)x : x) >> b));
    case VIR_sra: return a >> (b < 0 || b >= bits ? bits - 1 : b);
    case VIR_mulhu: return (int32_t)(((uint64_t)(uint32_t)a * (uint32_t)b) >> 32);
    case VIR_and: return a & b;
    case VIR_or: return a | b;
    case VIR_xor: return a ^ b;
    default: assert(!"integer operation"); return 0;
    }
}

#define FLOAT_OPS(T, suffix)                                                     \
    static T flt_op_##suffix(vir_op op, T a, T b, T c)                           \
    {                                                                            \
        switch (op) {                                                            \
        case VIR_add: return a + b;                                              \
        case VIR_sub: return a - b;                                              \
        case VIR_mul: return a * b;                                              \
        case VIR_div: return a / b;                                              \
        case VIR_min: return vnum_min_##suffix(a, b);                            \
        case VIR_max: return vnum_max_##suffix(a, b);                            \
        case VIR_fmin: return a != a ? b : b != b ? a : vnum_min_##suffix(a, b); \
        case VIR_fmax: return a != a ? b : b != b ? a : vnum_max_##suffix(a, b); \
        case VIR_neg: return -a;                                                 \
        case VIR_abs: return vnum_abs_##suffix(a);                               \
        case VIR_fma: return vnum_fma_##suffix(a, b, c);                         \
        case VIR_sqrt: return (T)sqrt##suffix(a);                                \
        case VIR_floor: return floor##suffix(a);                                 \
        case VIR_ceil: return ceil##suffix(a);                                   \
        case VIR_trunc: return trunc##suffix(a);                                 \
        case VIR_round: return rint##suffix(a);                                  \
        case VIR_copysign: return copysign##suffix(a, b);                        \
        case VIR_scale2: return ldexp##suffix(a, (int)b);                        \
        default: assert(!"float operation"); return 0;                           \
        }                                                                        \
    }
#define floord    floor
#define ceild     ceil
#define truncd    trunc
#define rintd     rint
#define sqrtd     sqrt
#define copysignd copysign
#define ldexpd    ldexp
FLOAT_OPS(float, f)
FLOAT_OPS(double, d)

#define COMPARE(op, a, b)          \
    ((op) == VIR_eq   ? (a) == (b) \
     : (op) == VIR_ne ? (a) != (b) \
     : (op) == VIR_lt ? (a) < (b)  \
     : (op) == VIR_le ? (a) <= (b) \
     : (op) == VIR_gt ? (a) > (b)  \
                      : (a) >= (b))

static val convert(vir_type to, vir_type from, val x)
{
    val r = { .i = 0 };
    if (to == VT_f64)
        r.d = from == VT_f32 ? (double)x.f : (double)x.i;
    else if (to == VT_f32)
        r.f = from == VT_f64 ? (float)x.d : (float)x.i;
    else if (from == VT_f32 || from == VT_f64)
        r.i = to == VT_i64 ? vnum_to_i64(from == VT_f32 ? x.f : x.d)
                           : vnum_to_i32(from == VT_f32 ? x.f : x.d);
    else
        r.i = wrap(to, x.i);
    return r;
}

static val narrow(vir_mem m, val x)
{
    val r = x;
    switch (m) {
    case VM_f16: r.f = vnum_from_f16(vnum_to_f16(x.f)); break;
    case VM_bf16: r.f = vnum_from_bf16(vnum_to_bf16(x.f)); break;
    case VM_i16: r.i = (int16_t)x.i; break;
    case VM_i8: r.i = (int8_t)x.i; break;
    case VM_u8: r.i = (uint8_t)x.i; break;
    default: break;
    }
    return r;
}

static val mem_read(vir_mem m, const char *p)
{
    val r = { .i = 0 };
    switch (m) {
    case VM_f64: memcpy(&r.d, p, 8); break;
    case VM_f32: memcpy(&r.f, p, 4); break;
    case VM_f16: r.f = vnum_from_f16(*(const uint16_t *)p); break;
    case VM_bf16: r.f = vnum_from_bf16(*(const uint16_t *)p); break;
    case VM_i64: memcpy(&r.i, p, 8); break;
    case VM_i32: r.i = *(const int32_t *)p; break;
    case VM_i16: r.i = *(const int16_t *)p; break;
    case VM_i8: r.i = *(const int8_t *)p; break;
    case VM_u8: r.i = *(const uint8_t *)p; break;
    case VM_bool: r.i = *(const uint8_t *)p != 0; break;
    default: break;
    }
    return r;
}

static void mem_write(vir_mem m, char *p, val x)
{
    switch (m) {
    case VM_f64: memcpy(p, &x.d, 8); break;
    case VM_f32: memcpy(p, &x.f, 4); break;
    case VM_f16: *(uint16_t *)p = vnum_to_f16(x.f); break;
    case VM_bf16: *(uint16_t *)p = vnum_to_bf16(x.f); break;
    case VM_i64: memcpy(p, &x.i, 8); break;
    case VM_i32: *(int32_t *)p = (int32_t)x.i; break;
    case VM_i16: *(int16_t *)p = (int16_t)x.i; break;
    case VM_i8:
    case VM_u8: *(uint8_t *)p = (uint8_t)x.i; break;
    case VM_bool: *(uint8_t *)p = x.i != 0; break;
    default: break;
    }
}

static char *place(interp *s, const vir_ins *in)
{
    int64_t lane = s->k->loops[in->region].vector ? s->v[s->k->loops[s->k->loops[in->region].vector].var].i
                                                  : 0;
    int64_t off = in->access == VA_unit      ? lane
                  : in->access == VA_strided ? lane * s->v[in->b].i
                  : in->access == VA_gather  ? s->v[in->b].i
                  : in->access == VA_spread  ? lane / s->v[in->b].i
                                             : 0;
    return (char *)(intptr_t)(s->v[in->a].i + in->imm + off * (int64_t)vir_mem_size((vir_mem)in->mem));
}

static val add_val(vir_type t, val a, val b)
{
    val r = { .i = 0 };
    if (t == VT_f64)
        r.d = a.d + b.d;
    else if (t == VT_f32)
        r.f = a.f + b.f;
    else
        r.i = int_op(VIR_add, t, a.i, b.i);
    return r;
}

static val drawn(vir_type t, uint64_t seed, uint64_t first, int64_t i)
{
    bool wide = t == VT_i64 || t == VT_f64, normal = t == VT_f32 || t == VT_f64;
    uint64_t block = first + (uint64_t)i / (wide ? 2 : 4);
    val w[4], pair[2], r[2];
    for (int j = 0; j < 4; j++)
        w[j].i = (int32_t)vnum_philox(seed, block, j);
    for (int j = 0; j < 2; j++)
        if (wide)
            pair[j].i = (int64_t)((uint64_t)w[2 * j].i << 32 | (uint32_t)w[2 * j + 1].i);
        else
            pair[j] = w[(i & 2) + j];
    if (!normal)
        return pair[i & 1];
    run_frag(vir_frag_normal(t), pair, r);
    return r[i & 1];
}

static val pure_op(interp *s, const vir_ins *in)
{
    const vir *k = s->k;
    vir_type t = (vir_type)in->type, ta = vir_type_of(k, in->a);
    val a = s->v[in->a], b = s->v[in->b], c = s->v[in->c], r = { .i = 0 };
    switch (in->op) {
    case VIR_const:
        r.i = in->imm;
        if (t == VT_f32)
            r.f = (float)vir_const_f(in);
        return r;
    case VIR_iarg: r.i = s->ints[in->imm]; return r;
    case VIR_farg:
        if (t == VT_f32)
            r.f = (float)s->flts[in->imm];
        else
            r.d = s->flts[in->imm];
        return r;
    case VIR_input: return s->in[in->imm];
    case VIR_loopvar: r.i = wrap(t, s->v[k->loops[in->imm].var].i); return r;
    case VIR_bufptr: r.i = (int64_t)(intptr_t)s->bufs[in->imm]; return r;
    case VIR_ptr: r.i = a.i + b.i * in->imm; return r;
    case VIR_select: return a.i ? b : c;
    case VIR_draw: {
        int64_t i = s->v[k->loops[k->loops[in->region].vector].var].i;
        return drawn(t, (uint64_t)a.i, (uint64_t)b.i, i);
    }
    case VIR_cvt: return convert(t, ta, a);
    case VIR_bitcast:
        if (t == VT_i32)
            r.i = vnum_bits_f(a.f);
        else if (t == VT_f32)
            r.f = vnum_f_bits((int32_t)a.i);
        else
            r = a;
        return r;
    case VIR_narrow: return narrow((vir_mem)in->mem, a);
    case VIR_table: r.i = vir_tables[in->imm][a.i & 15]; return r;
    case VIR_call: {
        const vir_call_row *row = &vir_calls[in->imm];
        if (in->c && !c.i)
            return s->v[in->d];
        if (t == VT_f64)
            r.d = row->nargs == 1 ? row->d1(a.d) : row->d2(a.d, b.d);
        else
            r.f = row->nargs == 1 ? row->f1(a.f) : row->f2(a.f, b.f);
        return r;
    }
    case VIR_eq:
    case VIR_ne:
    case VIR_lt:
    case VIR_le:
    case VIR_gt:
    case VIR_ge:
        r.i = ta == VT_f64   ? COMPARE(in->op, a.d, b.d)
              : ta == VT_f32 ? COMPARE(in->op, a.f, b.f)
                             : COMPARE(in->op, a.i, b.i);
        return r;
    default: break;
    }
    if (in->op >= VIR_exp && in->op <= VIR_hypot) {
        val args[2] = { a, b };
        run_frag(vir_frag_math((vir_op)in->op, t), args, &r);
        return r;
    }
    if (t == VT_f64)
        r.d = flt_op_d((vir_op)in->op, a.d, b.d, c.d);
    else if (t == VT_f32)
        r.f = flt_op_f((vir_op)in->op, a.f, b.f, c.f);
    else if (in->op == VIR_neg)
        r.i = wrap(t, (int64_t)(0 - (uint64_t)a.i));
    else if (in->op == VIR_abs)
        r.i = wrap(t, a.i < 0 ? (int64_t)(0 - (uint64_t)a.i) : a.i);
    else if (in->op == VIR_not)
        r.i = t == VT_mask ? !a.i : ~a.i;
    else
        r.i = int_op((vir_op)in->op, t == VT_mask ? VT_i64 : t, a.i, b.i);
    return r;
}

static val *partial(interp *s, int red, int64_t p)
{
    return &s->red[red][p * vir_red_parts(s->k->reds[red].kind)];
}

static int64_t npartials(const vir *k, int red) { return k->reds[red].partials ? k->lanes * k->ways : 1; }

static void red_start(interp *s, int red)
{
    const vir_red_info *r = &s->k->reds[red];
    arena a = { 0 };
    vir *tmp = vir_make(&a, "identity");
    for (int part = 0; part < vir_red_parts(r->kind); part++) {
        const vir_ins *in = &tmp->ins[vir_red_identity(tmp, r, part)];
        interp one = { .k = tmp, .v = (val[1]){ { .i = 0 } } };
        val x = pure_op(&one, in);
        for (int64_t p = 0; p < npartials(s->k, red); p++)
            partial(s, red, p)[part] = x;
    }
    arena_free(&a);
}

static void red_step(interp *s, const vir_ins *in)
{
    const vir_red_info *r = &s->k->reds[in->imm];
    int n = vir_red_parts(r->kind);
    val *p = partial(s, (int)in->imm, r->partials ? s->partial : 0), args[6], out[4];
    memcpy(args, p, sizeof(val) * (size_t)n);
    args[n] = s->v[in->a];
    args[n + 1] = s->v[in->b];
    run_frag(vir_frag_step(r->kind, r->type, r->itype), args, out);
    memcpy(p, out, sizeof(val) * (size_t)n);
}

static void red_fold(interp *s, int red)
{
    const vir_red_info *r = &s->k->reds[red];
    int n = vir_red_parts(r->kind);
    const vir_frag *f = vir_frag_merge(r->kind, r->type, r->itype);
    for (int64_t h = npartials(s->k, red) / 2; h; h /= 2)
        for (int64_t p = 0; p < h; p++) {
            val args[8], out[4];
            memcpy(args, partial(s, red, p), sizeof(val) * (size_t)n);
            memcpy(args + n, partial(s, red, p + h), sizeof(val) * (size_t)n);
            run_frag(f, args, out);
            memcpy(partial(s, red, p), out, sizeof(val) * (size_t)n);
        }
}

static void run_region(interp *s, int region);

static void run_loop(interp *s, int n)
{
    const vir_loop_info *l = &s->k->loops[n];
    bool par = l->kind == LOOP_parallel;
    int64_t b = par ? s->lo : s->v[l->begin].i, e = par ? s->hi : s->v[l->end].i;
    for (int64_t i = b; i < e; i++) {
        s->v[l->var].i = i;
        if (l->kind == LOOP_vector)
            s->partial = (i - b) % (s->k->lanes * s->k->ways);
        run_region(s, n);
    }
}

static void run_region(interp *s, int region)
{
    const vir *k = s->k;
    for (vir_ref r = k->loops[region].first; r; r = k->ins[r].next) {
        const vir_ins *in = &k->ins[r];
        bool on = !in->c || s->v[in->c].i; /* memory only */
        if (in->dead)
            continue;
        switch (in->op) {
        case VIR_loop: run_loop(s, (int)in->imm); break;
        case VIR_load: s->v[r] = on ? mem_read((vir_mem)in->mem, place(s, in)) : (val){ .i = 0 }; break;
        case VIR_store:
            if (on) {
                val x = s->v[in->d];
                if (in->add)
                    x = add_val(vir_type_of(k, in->d), mem_read((vir_mem)in->mem, place(s, in)), x);
                mem_write((vir_mem)in->mem, place(s, in), x);
            }
            break;
        case VIR_var: s->v[r] = s->v[in->a]; break;
        case VIR_get: s->v[r] = s->v[in->a]; break;
        case VIR_set: s->v[in->a] = s->v[in->b]; break;
        case VIR_red: red_start(s, (int)in->imm); break;
        case VIR_step: red_step(s, in); break;
        case VIR_fold: red_fold(s, (int)in->imm); break;
        case VIR_part: s->v[r] = partial(s, (int)in->imm / 4, 0)[in->imm % 4]; break;
        case VIR_loopvar:
            if (k->loops[in->imm].var != r)
                s->v[r] = pure_op(s, in);
            break;
        default: s->v[r] = pure_op(s, in); break;
        }
    }
}

static void run_frag(const vir_frag *f, const val *in, val *out)
{
    val small[256], *v = f->k->n <= 256 ? small : mem_alloc(sizeof(val) * (size_t)f->k->n);
    interp s = { .k = f->k, .v = v, .in = in };
    v[0].i = 0;
    run_region(&s, 0);
    for (int i = 0; i < f->nout; i++)
        out[i] = v[f->out[i]];
    if (v != small)
        free(v);
}

bool vir_interp(const vir *k, void *const *bufs, const int64_t *ints, const double *flts, int64_t lo,
                int64_t hi, tp_err *err)
{
    if (!k->lanes)
        return err_set(err, ERR_internal, "kernel '%s' was not finished", k->name);
    interp s = { .k = k, .bufs = bufs, .ints = ints, .flts = flts, .lo = lo, .hi = hi };
    s.v = mem_zalloc(sizeof(val) * (size_t)k->n);
    s.red = mem_zalloc(sizeof(val *) * (size_t)(k->nreds + 1));
    for (int i = 0; i < k->nreds; i++)
        s.red[i] = mem_zalloc(sizeof(val) * 4 * (size_t)npartials(k, i));
    run_region(&s, 0);
    for (int i = 0; i < k->nreds; i++)
        free(s.red[i]);
    free(s.red);
    free(s.v);
    return true;
}
