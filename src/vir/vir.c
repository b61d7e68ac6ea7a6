/* vir.c - building the vector IR: placing, numbering, folding and checking values. */
#include "vir/math/vmath.h"
#include "base/map.h"
#include "ir/graph.h"
#include <math.h>

const char *const vir_op_name[VIR_COUNT] = {
#define VIR(name, n, kind, text) [VIR_##name] = text,
#include "vir/vir.def"
};
enum { K_leaf, K_arith, K_flt, K_int, K_bits, K_cmp, K_math, K_ctl };
static const uint8_t op_kind[VIR_COUNT] = {
#define VIR(name, n, kind, text) [VIR_##name] = K_##kind,
#include "vir/vir.def"
};
static const uint8_t op_nargs[VIR_COUNT] = {
#define VIR(name, n, kind, text) [VIR_##name] = n,
#include "vir/vir.def"
};

static const struct {
    const char *name;
    vir_type type;
    uint8_t size;
} mems[] = {
    [VM_none] = { "none", VT_none, 0 }, [VM_f64] = { "f64", VT_f64, 8 },    [VM_f32] = { "f32", VT_f32, 4 },
    [VM_f16] = { "f16", VT_f32, 2 },    [VM_bf16] = { "bf16", VT_f32, 2 },  [VM_i64] = { "i64", VT_i64, 8 },
    [VM_i32] = { "i32", VT_i32, 4 },    [VM_i16] = { "i16", VT_i32, 2 },    [VM_i8] = { "i8", VT_i32, 1 },
    [VM_u8] = { "u8", VT_i32, 1 },      [VM_bool] = { "bool", VT_mask, 1 },
};
const char *vir_type_name(vir_type t)
{
    static const char *const names[] = { "none", "f64", "f32", "i64", "i32", "mask" };
    return names[t];
}
const char *vir_mem_name(vir_mem m) { return mems[m].name; }
vir_type vir_mem_type(vir_mem m) { return mems[m].type; }
size_t vir_mem_size(vir_mem m) { return mems[m].size; }
int vir_red_parts(vir_red_kind kind)
{
    return kind == RED_welford ? 3 : kind >= RED_argmin && kind != RED_lse ? 2 : 1;
}
vir_type vir_red_part_type(const vir_red_info *r, int part)
{
    if (part && vir_red_places(r->kind))
        return r->itype ? r->itype : VT_i64;
    return r->type;
}
double vir_const_f(const vir_ins *in)
{
    double d;
    memcpy(&d, &in->imm, 8);
    return d;
}

static bool is_flt(vir_type t) { return t == VT_f64 || t == VT_f32; }
static bool is_int(vir_type t) { return t == VT_i64 || t == VT_i32; }

/* Arrays that grow inside the arena: the old copy is left behind. */
static void *grow(arena *a, void *old, int n, int *cap, size_t size)
{
    if (n < *cap)
        return old;
    int ncap = *cap ? *cap * 2 : 8;
    void *p = arena_zalloc(a, size * (size_t)ncap);
    if (n)
        memcpy(p, old, size * (size_t)n);
    *cap = ncap;
    return p;
}

static vir *make(arena *a, const char *name)
{
    vir *k = ARENA_NEW(a, vir);
    k->a = a;
    k->name = arena_strdup(a, name);
    k->n = 1;
    k->loops = grow(a, NULL, 0, &k->caploops, sizeof *k->loops);
    k->nloops = 1;
    return k;
}

vir *vir_make(arena *a, const char *name)
{
    vir *k = make(a, name);
    k->cap = 32;
    k->ins = ARENA_ARR(a, vir_ins, k->cap);
    k->nhash = 64;
    k->hash = ARENA_ARR(a, int32_t, k->nhash);
    return k;
}

vir *vir_make_in(arena *a, const char *name, vir_room *room)
{
    vir *k = make(a, name);
    if (!room->ins) {
        room->cap = 128, room->nhash = 256;
        room->ins = mem_alloc(sizeof *room->ins * (size_t)room->cap);
        room->hash = mem_alloc(sizeof *room->hash * (size_t)room->nhash);
    }
    k->room = room;
    k->ins = room->ins, k->cap = room->cap;
    k->hash = room->hash, k->nhash = room->nhash;
    memset(&k->ins[0], 0, sizeof *k->ins);
    memset(k->hash, 0, sizeof *k->hash * (size_t)k->nhash);
    return k;
}

void vir_room_free(vir_room *r)
{
    free(r->ins);
    free(r->hash);
    *r = (vir_room){ 0 };
}

/* Nothing is added any more. */
static void move_out(vir *k)
{
    if (!k->room)
        return;
    k->ins = arena_dup(k->a, k->ins, sizeof *k->ins * (size_t)k->n);
    k->cap = k->n;
    k->hash = NULL;
    k->room = NULL;
}

static vir_ref bad(vir *k, const char *what)
{
    if (!k->err) {
        k->err = ARENA_NEW(k->a, tp_err);
        err_set(k->err, ERR_internal, "kernel '%s': %s", k->name, what);
    }
    return 0;
}

int vir_buffer(vir *k, vir_mem mem, int flags, const char *name)
{
    k->bufs = grow(k->a, k->bufs, k->nbufs, &k->capbufs, sizeof *k->bufs);
    k->bufs[k->nbufs] = (vir_buf_info){ mem, flags, arena_strdup(k->a, name ? name : "") };
    return k->nbufs++;
}

void vir_note(vir *k, const ir_loc *note) { k->note = note; }

/* --- placing
 * ------------------------------------------------------------------------------------------------- */
static bool region_open(const vir *k, int region)
{
    int r = k->open;
    while (k->loops[r].depth > k->loops[region].depth)
        r = k->loops[r].parent;
    return r == region;
}

/* The deeper of `region` and where x lives; -1 when x is not visible here. */
static int deeper(const vir *k, int region, vir_ref x)
{
    if (!x || region < 0)
        return region;
    int r = k->ins[x].region;
    if (!region_open(k, r))
        return -1;
    return k->loops[r].depth > k->loops[region].depth ? r : region;
}

static void link_into(vir *k, vir_ref x, int region)
{
    vir_loop_info *l = &k->loops[region];
    vir_ins *in = &k->ins[x];
    vir_ref before = 0;
    if (region != k->open) { /* hoisted: stand before the open loop of that region */
        int r = k->open;
        while (k->loops[r].parent != region)
            r = k->loops[r].parent;
        before = k->loops[r].ins;
    }
    in->region = region;
    in->next = before;
    in->prev = before ? k->ins[before].prev : l->last;
    if (in->prev)
        k->ins[in->prev].next = x;
    else
        l->first = x;
    if (before)
        k->ins[before].prev = x;
    else
        l->last = x;
}

static vir_ref append(vir *k, vir_ins in, int region)
{
    if (k->n >= k->cap && k->room) {
        k->room->cap = k->cap *= 2;
        k->room->ins = k->ins = mem_realloc(k->ins, sizeof *k->ins * (size_t)k->cap);
    } else if (k->n >= k->cap) {
        k->ins = grow(k->a, k->ins, k->n, &k->cap, sizeof *k->ins);
    }
    in.note = k->note;
    k->ins[k->n] = in;
    link_into(k, k->n, region);
    return k->n++;
}

static uint64_t ins_key(const vir_ins *in)
{
    uint64_t h = (uint64_t)in->op | (uint64_t)in->type << 8 | (uint64_t)in->mem << 16 |
                 (uint64_t)in->access << 24;
    h ^= (uint64_t)(uint32_t)in->a << 32;
    h = h * 0x9e3779b97f4a7c15ULL + ((uint64_t)(uint32_t)in->b | (uint64_t)(uint32_t)in->c << 32);
    h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9ULL + (uint64_t)in->imm;
    return h ^ h >> 31;
}
static bool ins_same(const vir_ins *x, const vir_ins *y)
{
    return x->op == y->op && x->type == y->type && x->mem == y->mem && x->access == y->access &&
           x->a == y->a && x->b == y->b && x->c == y->c && x->d == y->d && x->imm == y->imm;
}

static void rehash(vir *k)
{
    k->nhash *= 4;
    if (k->room) {
        k->room->nhash = k->nhash;
        k->room->hash = k->hash = mem_realloc(k->hash, sizeof *k->hash * (size_t)k->nhash);
        memset(k->hash, 0, sizeof *k->hash * (size_t)k->nhash);
    } else {
        k->hash = ARENA_ARR(k->a, int32_t, k->nhash);
    }
    for (int i = 1; i < k->n; i++) {
        vir_ins *in = &k->ins[i];
        if (in->hnext == -1)
            continue;
        uint32_t s = (uint32_t)ins_key(in) & (uint32_t)(k->nhash - 1);
        in->hnext = k->hash[s];
        k->hash[s] = i;
    }
}

/* A pure value: numbered, and put in the outermost region where its operands live (at least `region`). */
static vir_ref pure(vir *k, vir_ins in, int region)
{
    if (k->err)
        return 0;
    region = deeper(k, deeper(k, deeper(k, deeper(k, region, in.a), in.b), in.c), in.d);
    if (region < 0)
        return bad(k, "a value is used outside the loop that makes it");
    uint32_t s = (uint32_t)ins_key(&in) & (uint32_t)(k->nhash - 1);
    for (int32_t i = k->hash[s]; i; i = k->ins[i].hnext)
        if (ins_same(&k->ins[i], &in) && k->ins[i].region == region)
            return i;
    in.varying |= k->ins[in.a].varying | k->ins[in.b].varying | k->ins[in.c].varying | k->ins[in.d].varying;
    in.hnext = k->hash[s];
    vir_ref r = append(k, in, region);
    k->hash[s] = r;
    if (k->n > k->nhash)
        rehash(k);
    return r;
}

static vir_ref effect(vir *k, vir_ins in)
{
    if (k->err)
        return 0;
    int r = deeper(k, deeper(k, deeper(k, deeper(k, 0, in.a), in.b), in.c), in.d);
    if (r < 0)
        return bad(k, "a value is used outside the loop that makes it");
    in.hnext = -1;
    return append(k, in, k->open);
}

/* --- leaves
 * -------------------------------------------------------------------------------------------------- */
vir_ref vir_int_arg(vir *k, const char *name)
{
    k->iname = grow(k->a, k->iname, k->nints, &k->capints, sizeof *k->iname);
    k->iname[k->nints] = arena_strdup(k->a, name ? name : "");
    return pure(k, (vir_ins){ .op = VIR_iarg, .type = VT_i64, .imm = k->nints++ }, 0);
}
vir_ref vir_float_arg(vir *k, vir_type t, const char *name)
{
    if (!is_flt(t))
        return bad(k, "a float argument is f64 or f32");
    k->fname = grow(k->a, k->fname, k->nflts, &k->capflts, sizeof *k->fname);
    k->fname[k->nflts] = arena_strdup(k->a, name ? name : "");
    return pure(k, (vir_ins){ .op = VIR_farg, .type = (uint8_t)t, .imm = k->nflts++ }, 0);
}
vir_ref vir_flt(vir *k, vir_type t, double v)
{
    vir_ins in = { .op = VIR_const, .type = (uint8_t)t };
    if (!is_flt(t))
        return bad(k, "vir_flt needs a float type");
    if (t == VT_f32)
        v = (float)v;
    memcpy(&in.imm, &v, 8);
    return pure(k, in, 0);
}
vir_ref vir_imm(vir *k, vir_type t, int64_t v)
{
    if (is_flt(t))
        return vir_flt(k, t, (double)v);
    if (t == VT_i32)
        v = (int32_t)v;
    if (t == VT_mask)
        v = v != 0;
    return pure(k, (vir_ins){ .op = VIR_const, .type = (uint8_t)t, .imm = v }, 0);
}

/* --- arithmetic: checks, small folds, then numbering
 * --------------------------------------------------------- */
static bool is_const(const vir *k, vir_ref x) { return k->ins[x].op == VIR_const; }
static bool is_icon(const vir *k, vir_ref x, int64_t v)
{
    return is_const(k, x) && !is_flt((vir_type)k->ins[x].type) && k->ins[x].imm == v;
}

static int64_t div_floor(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return a % b && ((a < 0) != (b < 0)) ? q - 1 : q;
}

static bool fold_int(vir_op op, int64_t a, int64_t b, int64_t *out)
{
    uint64_t x = (uint64_t)a, y = (uint64_t)b;
    switch (op) {
    case VIR_add: *out = (int64_t)(x + y); return true;
    case VIR_sub: *out = (int64_t)(x - y); return true;
    case VIR_mul: *out = (int64_t)(x * y); return true;
    case VIR_min: *out = MIN(a, b); return true;
    case VIR_max: *out = MAX(a, b); return true;
    case VIR_and: *out = a & b; return true;
    case VIR_or: *out = a | b; return true;
    case VIR_xor: *out = a ^ b; return true;
    case VIR_divf:
        if (b == 0 || b == -1)
            return false;
        *out = div_floor(a, b);
        return true;
    case VIR_modf:
        if (b == 0 || b == -1)
            return false;
        *out = a - div_floor(a, b) * b;
        return true;
    default: return false;
    }
}

static bool commutes(vir_op op)
{
    return op == VIR_add || op == VIR_mul || op == VIR_and || op == VIR_or || op == VIR_xor || op == VIR_eq ||
           op == VIR_ne || op == VIR_mulhu;
}

/* r as x * by, x a quotient (divf) or a rest (modf) of something by a number. */
static const vir_ins *scaled_part(const vir *k, vir_ref r, vir_op op, int64_t *by)
{
    const vir_ins *in = &k->ins[r];
    *by = 1;
    if (in->op == VIR_mul && is_const(k, in->b)) {
        *by = k->ins[in->b].imm;
        in = &k->ins[in->a];
    }
    return in->op == op && is_const(k, in->b) && k->ins[in->b].imm > 0 ? in : NULL;
}

/* (x / n) * (n * by) + (x % n) * by, as of an index that was taken apart and lies in memory in one piece: x * by. 0: it is not. */
static vir_ref join_parts(vir *k, vir_ref q, vir_ref r)
{
    int64_t of_q, of_r, n, all;
    const vir_ins *div = scaled_part(k, q, VIR_divf, &of_q), *mod = scaled_part(k, r, VIR_modf, &of_r);
    if (!div || !mod || div->a != mod->a || k->ins[div->b].imm != k->ins[mod->b].imm)
        return 0;
    n = k->ins[div->b].imm;
    vir_ref x = div->a;
    vir_type t = (vir_type)div->type;
    if (t != VT_i64 || __builtin_mul_overflow(n, of_r, &all) || all != of_q)
        return 0;
    return vir_mul(k, x, vir_imm(k, t, of_r));
}

/* Integer identities that address arithmetic produces all the time. 0: none applies. */
static vir_ref simplify_int(vir *k, vir_op op, vir_ref x, vir_ref y)
{
    int64_t v;
    vir_ref joined;
    vir_type t = vir_type_of(k, x);
    if (is_const(k, x) && is_const(k, y) && fold_int(op, k->ins[x].imm, k->ins[y].imm, &v))
        return vir_imm(k, t, v);
    switch (op) {
    case VIR_add:
        if (is_icon(k, y, 0))
            return x;
        if (is_const(k, y) && k->ins[x].op == VIR_add && is_const(k, k->ins[x].b)) {
            vir_ref c = vir_imm(k, t, (int64_t)((uint64_t)k->ins[k->ins[x].b].imm + (uint64_t)k->ins[y].imm));
            return vir_add(k, k->ins[x].a, c);
        }
        if ((joined = join_parts(k, x, y)) || (joined = join_parts(k, y, x)))
            return joined;
        if (k->ins[x].op == VIR_add && (joined = join_parts(k, k->ins[x].b, y))) /* a + q + r */
            return vir_add(k, k->ins[x].a, joined);
        return 0;
    case VIR_sub:
        if (is_icon(k, y, 0))
            return x;
        if (is_const(k, y))
            return vir_add(k, x, vir_imm(k, t, (int64_t)(0 - (uint64_t)k->ins[y].imm)));
        return 0;
    case VIR_mul: return is_icon(k, y, 1) ? x : is_icon(k, y, 0) ? y : 0;
    case VIR_divf:
    case VIR_divt: return is_icon(k, y, 1) ? x : 0;
    case VIR_modf:
    case VIR_modt: return is_icon(k, y, 1) ? vir_imm(k, t, 0) : 0;
    case VIR_shl:
    case VIR_shr:
    case VIR_sra: return is_icon(k, y, 0) ? x : 0;
    case VIR_min:
    case VIR_max: return x == y ? x : 0;
    default: return 0;
    }
}

static bool operands_ok(vir *k, vir_op op, vir_type t, int n)
{
    if (k->err)
        return false;
    if (op_nargs[op] != n || op_kind[op] == K_ctl)
        return bad(k, "wrong number of operands");
    switch (op_kind[op]) {
    case K_arith: return (is_flt(t) || is_int(t)) ? true : bad(k, "arithmetic on a mask");
    case K_math:
    case K_flt: return is_flt(t) ? true : (bad(k, "a float operation on another type"), false);
    case K_int:
        if (op == VIR_mulhu && t != VT_i32)
            return bad(k, "mulhu is for i32");
        return is_int(t) ? true : (bad(k, "an integer operation on another type"), false);
    case K_bits: return !is_flt(t) ? true : (bad(k, "a bit operation on floats"), false);
    case K_cmp: return t != VT_mask ? true : (bad(k, "comparing masks"), false);
    default: return op == VIR_select;
    }
}

/* Known not to be positive, whatever its operands are. */
static bool never_positive(const vir *k, vir_ref x)
{
    const vir_ins *in = &k->ins[x], *a = &k->ins[in->a], *b = &k->ins[in->b];
    bool square = a->op == VIR_mul && a->a == a->b;
    switch (in->op) {
    case VIR_neg: return a->op == VIR_abs || square;
    case VIR_mul: /* -x * x, x * x * -2 */
        return (a->op == VIR_neg && a->a == in->b) || (b->op == VIR_neg && b->a == in->a) ||
               (square && b->op == VIR_const && vir_const_f(b) <= 0);
    case VIR_min: return a->op == VIR_const && vir_const_f(a) <= 0;
    default: return false;
    }
}

vir_ref vir_op1(vir *k, vir_op op, vir_ref x)
{
    vir_type t = vir_type_of(k, x);
    if (!operands_ok(k, op, t, 1) || !x)
        return k->err ? 0 : bad(k, "missing operand");
    if (op == VIR_neg && is_int(t) && is_const(k, x))
        return vir_imm(k, t, (int64_t)(0 - (uint64_t)k->ins[x].imm));
    if (op == VIR_neg && is_flt(t) && is_const(k, x))
        return vir_flt(k, t, -vir_const_f(&k->ins[x]));
    if ((op == VIR_neg || op == VIR_not) && k->ins[x].op == op)
        return k->ins[x].a;
    if (op == VIR_exp && never_positive(k, x))
        op = VIR_expn;
    return pure(k, (vir_ins){ .op = op, .type = (uint8_t)t, .a = x }, 0);
}

typedef struct range {
    bool known;
    int64_t lo, hi;
} range;
/* What is known of an integer; ends stay below 2**40 in magnitude, so that nothing overflows here. */
static range range_of(const vir *k, vir_ref r, int deep)
{
    const vir_ins *in = &k->ins[r];
    range out = { 0 }, a, b;
    int64_t p[4];
    switch (deep > 8 ? VIR_none : (vir_op)in->op) {
    case VIR_const: out = (range){ true, in->imm, in->imm }; break;
    case VIR_loopvar: {
        const vir_ins *from = &k->ins[k->loops[in->imm].begin], *to = &k->ins[k->loops[in->imm].end];
        if (from->op == VIR_const && to->op == VIR_const)
            out = (range){ from->imm < to->imm, from->imm, to->imm - 1 };
        break;
    }
    case VIR_modf:
        if (k->ins[in->b].op == VIR_const && k->ins[in->b].imm > 0)
            out = (range){ true, 0, k->ins[in->b].imm - 1 };
        break;
    case VIR_divf:
        a = range_of(k, in->a, deep + 1);
        if (a.known && k->ins[in->b].op == VIR_const && k->ins[in->b].imm > 0)
            out = (range){ true, div_floor(a.lo, k->ins[in->b].imm), div_floor(a.hi, k->ins[in->b].imm) };
        break;
    case VIR_add:
    case VIR_sub:
        a = range_of(k, in->a, deep + 1), b = range_of(k, in->b, deep + 1);
        out = in->op == VIR_add ? (range){ a.known && b.known, a.lo + b.lo, a.hi + b.hi }
                                : (range){ a.known && b.known, a.lo - b.hi, a.hi - b.lo };
        break;
    case VIR_mul:
        a = range_of(k, in->a, deep + 1), b = range_of(k, in->b, deep + 1);
        if (!a.known || !b.known || MAX(llabs(a.lo), llabs(a.hi)) >= 1 << 30 ||
            MAX(llabs(b.lo), llabs(b.hi)) >= 1 << 30)
            break;
        p[0] = a.lo * b.lo, p[1] = a.lo * b.hi, p[2] = a.hi * b.lo, p[3] = a.hi * b.hi;
        out = (range){ true, MIN(MIN(p[0], p[1]), MIN(p[2], p[3])), MAX(MAX(p[0], p[1]), MAX(p[2], p[3])) };
        break;
    default: break;
    }
    out.known &= out.lo > -(1LL << 40) && out.hi < 1LL << 40;
    return out;
}
/* Made of the vector loop's variable by arithmetic that may as well wrap at 32 bits, and sure to fit there in the end. */
static bool wraps_well(const vir *k, vir_ref r, int deep)
{
    const vir_ins *in = &k->ins[r];
    if (!in->varying)
        return true;
    if (in->op == VIR_add || in->op == VIR_sub || in->op == VIR_mul)
        return deep < 8 && wraps_well(k, in->a, deep + 1) && wraps_well(k, in->b, deep + 1);
    return in->op == VIR_loopvar;
}
static bool fits_32(const vir *k, vir_ref r)
{
    range v = range_of(k, r, 0);
    return v.known && v.lo >= INT32_MIN && v.hi <= INT32_MAX && wraps_well(k, r, 0);
}

vir_ref vir_op2(vir *k, vir_op op, vir_ref x, vir_ref y)
{
    vir_type t = vir_type_of(k, x);
    if (!operands_ok(k, op, t, 2))
        return 0;
    if (!x || !y || vir_type_of(k, y) != t)
        return bad(k, "operands of different types");
    if (op_kind[op] == K_cmp && t == VT_i64 && (k->ins[x].varying || k->ins[y].varying) && fits_32(k, x) &&
        fits_32(k, y)) /* 64-bit lanes would halve all vectors of the kernel */
        return vir_op2(k, op, vir_cvt(k, VT_i32, x), vir_cvt(k, VT_i32, y));
    if (commutes(op) && (is_const(k, x) || (!is_const(k, y) && x > y))) {
        vir_ref s = x; /* constants to the right, else older first: more values turn out equal */
        x = y, y = s;
    }
    if ((op == VIR_min || op == VIR_max) && is_flt(t) && is_const(k, y) && !is_const(k, x)) {
        vir_ref s = x; /* a constant first: then one machine instruction propagates the other's NaN */
        x = y, y = s;
    }
    if (is_int(t) && op_kind[op] != K_cmp) {
        vir_ref r = simplify_int(k, op, x, y);
        if (r || k->err)
            return r;
    }
    vir_type rt = op_kind[op] == K_cmp ? VT_mask : t;
    return pure(k, (vir_ins){ .op = op, .type = (uint8_t)rt, .a = x, .b = y }, 0);
}

vir_ref vir_op3(vir *k, vir_op op, vir_ref x, vir_ref y, vir_ref z)
{
    vir_type t = vir_type_of(k, y);
    if (!operands_ok(k, op, t, 3))
        return 0;
    if (!x || !y || !z || vir_type_of(k, z) != t || vir_type_of(k, x) != (op == VIR_select ? VT_mask : t))
        return bad(k, "operands of different types");
    if (op == VIR_select && (y == z || is_const(k, x)))
        return y == z || k->ins[x].imm ? y : z;
    if (op == VIR_select && t == VT_mask && (is_const(k, y) || is_const(k, z))) {
        if (is_const(k, y) && is_const(k, z))
            return k->ins[y].imm ? x : vir_not(k, x);
        if (is_const(k, z))
            return k->ins[z].imm ? vir_or(k, vir_not(k, x), y) : vir_and(k, x, y);
        return k->ins[y].imm ? vir_or(k, x, z) : vir_and(k, vir_not(k, x), z);
    }
    return pure(k, (vir_ins){ .op = op, .type = (uint8_t)t, .a = x, .b = y, .c = z }, 0);
}

vir_ref vir_cvt(vir *k, vir_type t, vir_ref x)
{
    vir_ins in;
    if (k->err || !x)
        return bad(k, "missing operand");
    in = k->ins[x];
    if (in.type == t)
        return x;
    if (in.op == VIR_const && !is_flt((vir_type)in.type))
        return vir_imm(k, t, in.imm);
    if (in.op == VIR_const && is_flt(t))
        return vir_flt(k, t, vir_const_f(&in));
    if (t == VT_i32 && in.type == VT_i64) { /* wrapping arithmetic may be narrowed from the leaves */
        if (in.op == VIR_add || in.op == VIR_sub || in.op == VIR_mul)
            return in.varying ? vir_op2(k, (vir_op)in.op, vir_cvt(k, t, in.a), vir_cvt(k, t, in.b))
                              : pure(k, (vir_ins){ .op = VIR_cvt, .type = VT_i32, .a = x }, 0);
        if (in.op == VIR_loopvar && in.varying)
            return pure(k, (vir_ins){ .op = VIR_loopvar, .type = VT_i32, .imm = in.imm, .varying = 1 },
                        (int)in.imm);
    }
    if (t == VT_mask)
        return vir_ne(k, x, vir_imm(k, (vir_type)in.type, 0));
    if (t == VT_f32 && in.type == VT_i64 && in.varying && fits_32(k, x))
        x = vir_cvt(k, VT_i32, x);
    return pure(k, (vir_ins){ .op = VIR_cvt, .type = (uint8_t)t, .a = x }, 0);
}

vir_ref vir_bitcast(vir *k, vir_type t, vir_ref x)
{
    vir_type s = vir_type_of(k, x);
    bool ok = (t == VT_f32 && s == VT_i32) || (t == VT_i32 && s == VT_f32) || (t == VT_f64 && s == VT_i64) ||
              (t == VT_i64 && s == VT_f64);
    if (!ok)
        return bad(k, "bitcast between these types");
    return pure(k, (vir_ins){ .op = VIR_bitcast, .type = (uint8_t)t, .a = x }, 0);
}

vir_ref vir_narrow(vir *k, vir_mem m, vir_ref x)
{
    vir_type t = vir_type_of(k, x);
    if (t != vir_mem_type(m))
        return bad(k, "narrow to a storage type of another kind");
    if (m == VM_f64 || m == VM_f32 || m == VM_i64 || m == VM_i32 || m == VM_bool)
        return x;
    return pure(k, (vir_ins){ .op = VIR_narrow, .type = (uint8_t)t, .mem = (uint8_t)m, .a = x }, 0);
}

vir_ref vir_table(vir *k, int table, vir_ref x)
{
    if (table < 0 || table >= VIR_TABLE_COUNT || vir_type_of(k, x) != VT_i32)
        return bad(k, "no such table, or an index of another type");
    return pure(k, (vir_ins){ .op = VIR_table, .type = VT_i32, .a = x, .imm = table }, 0);
}

vir_ref vir_call(vir *k, const char *fn, vir_ref x, vir_ref y)
{
    int row = vir_call_find(fn);
    vir_type t = vir_type_of(k, x);
    if (row < 0 || !is_flt(t) || vir_calls[row].nargs != (y ? 2 : 1) || (y && vir_type_of(k, y) != t))
        return bad(k, "no such function to call, or wrong operands");
    return pure(k, (vir_ins){ .op = VIR_call, .type = (uint8_t)t, .a = x, .b = y, .imm = row }, 0);
}

vir_ref vir_call_where(vir *k, const char *fn, vir_ref x, vir_ref y, vir_ref mask, vir_ref other)
{
    vir_ref r = vir_call(k, fn, x, y);
    if (!r || vir_type_of(k, mask) != VT_mask || vir_type_of(k, other) != vir_type_of(k, x))
        return bad(k, "call_where needs a mask and a value of the same type");
    vir_ins in = k->ins[r];
    in.c = mask, in.d = other, in.hnext = 0;
    return pure(k, in, 0);
}

vir_ref vir_philox(vir *k, vir_ref seed, vir_ref ctr_lo, vir_ref ctr_hi, int word)
{
    vir_ref c[4], key[2];
    vir_ref sh = vir_int(k, 32);
    vir_ref m0 = vir_imm(k, VT_i32, (int32_t)0xD2511F53), m1 = vir_imm(k, VT_i32, (int32_t)0xCD9E8D57);
    key[0] = vir_cvt(k, VT_i32, seed);
    key[1] = vir_cvt(k, VT_i32, vir_shr(k, seed, sh));
    c[0] = vir_cvt(k, VT_i32, ctr_lo);
    c[1] = vir_cvt(k, VT_i32, vir_shr(k, ctr_lo, sh));
    c[2] = vir_cvt(k, VT_i32, ctr_hi);
    c[3] = vir_cvt(k, VT_i32, vir_shr(k, ctr_hi, sh));
    for (int round = 0; round < 10; round++) {
        vir_ref hi0 = vir_mulhu(k, c[0], m0), lo0 = vir_mul(k, c[0], m0);
        vir_ref hi1 = vir_mulhu(k, c[2], m1), lo1 = vir_mul(k, c[2], m1);
        c[0] = vir_xor(k, vir_xor(k, hi1, c[1]), key[0]);
        c[2] = vir_xor(k, vir_xor(k, hi0, c[3]), key[1]);
        c[1] = lo1;
        c[3] = lo0;
        key[0] = vir_add(k, key[0], vir_imm(k, VT_i32, (int32_t)0x9E3779B9));
        key[1] = vir_add(k, key[1], vir_imm(k, VT_i32, (int32_t)0xBB67AE85));
    }
    return word >= 0 && word < 4 ? c[word] : bad(k, "philox has words 0 to 3");
}

/* --- loops
 * --------------------------------------------------------------------------------------------------- */
vir_ref vir_loop(vir *k, vir_loop_kind kind, vir_ref begin, vir_ref end)
{
    if (k->err)
        return 0;
    if (!begin || !end || vir_type_of(k, begin) != VT_i64 || vir_type_of(k, end) != VT_i64 ||
        k->ins[begin].varying || k->ins[end].varying)
        return bad(k, "loop bounds are uniform i64 values");
    if (kind == LOOP_vector && k->loops[k->open].vector)
        return bad(k, "a vector loop inside a vector loop");
    if (kind == LOOP_parallel) {
        for (int i = 1; i < k->nloops; i++)
            if (k->loops[i].kind == LOOP_parallel)
                return bad(k, "two parallel loops");
        if (k->open)
            return bad(k, "a parallel loop must be outermost");
    }
    int n = k->nloops, parent = k->open;
    k->loops = grow(k->a, k->loops, n, &k->caploops, sizeof *k->loops);
    vir_ref ins = effect(k, (vir_ins){ .op = VIR_loop, .a = begin, .b = end, .imm = n });
    if (!ins)
        return 0;
    k->loops[n] = (vir_loop_info){ .kind = kind,
                                   .ins = ins,
                                   .begin = begin,
                                   .end = end,
                                   .parent = parent,
                                   .depth = k->loops[parent].depth + 1,
                                   .vector = kind == LOOP_vector ? n : k->loops[parent].vector };
    k->nloops++;
    k->open = n;
    return k->loops[n].var = pure(
               k, (vir_ins){ .op = VIR_loopvar, .type = VT_i64, .imm = n, .varying = kind == LOOP_vector },
               n);
}

void vir_end(vir *k)
{
    if (!k->open) {
        bad(k, "vir_end without a loop");
        return;
    }
    k->loops[k->open].closed = true;
    k->open = k->loops[k->open].parent;
}

/* --- memory
 * -------------------------------------------------------------------------------------------------- */
/* idx = base + cst + stride * (vector loop variable) + rest, base and stride uniform, rest in lanes. 0 is
 * absent. */
typedef struct {
    vir_ref base, stride, rest;
    int64_t cst;
} affine;

static vir_ref add0(vir *k, vir_ref x, vir_ref y) { return !x ? y : !y ? x : vir_add(k, x, y); }
static vir_ref mul0(vir *k, vir_ref x, vir_ref u) { return x ? vir_mul(k, x, u) : 0; }

static affine affine_of(vir *k, vir_ref x, int depth)
{
    vir_ins in = k->ins[x];
    affine r = { 0 }, p, q;
    if (in.op == VIR_const) {
        r.cst = in.imm;
        return r;
    }
    if (in.op == VIR_loopvar && in.varying) {
        r.stride = vir_int(k, 1);
        return r;
    }
    if (depth < 24 && (in.op == VIR_add || in.op == VIR_sub)) {
        p = affine_of(k, in.a, depth + 1);
        q = affine_of(k, in.b, depth + 1);
        if (in.op == VIR_sub) {
            q.base = q.base ? vir_neg(k, q.base) : 0;
            q.stride = q.stride ? vir_neg(k, q.stride) : 0;
            q.rest = q.rest ? vir_neg(k, q.rest) : 0;
            q.cst = (int64_t)(0 - (uint64_t)q.cst);
        }
        r.base = add0(k, p.base, q.base);
        r.stride = add0(k, p.stride, q.stride);
        r.rest = add0(k, p.rest, q.rest);
        r.cst = (int64_t)((uint64_t)p.cst + (uint64_t)q.cst);
        return r;
    }
    if (depth < 24 && in.op == VIR_mul && in.varying) {
        vir_ref u = k->ins[in.b].varying ? in.a : in.b, v = u == in.a ? in.b : in.a;
        if (!k->ins[u].varying) {
            vir_ref u64 = vir_cvt(k, VT_i64, u);
            p = affine_of(k, v, depth + 1);
            r.base = mul0(k, p.base, u64);
            r.stride = mul0(k, p.stride, u64);
            r.rest = mul0(k, p.rest, u);
            if (is_const(k, u))
                r.cst = (int64_t)((uint64_t)p.cst * (uint64_t)k->ins[u].imm);
            else
                r.base = p.cst ? add0(k, r.base, vir_mul(k, vir_int(k, p.cst), u64)) : r.base;
            return r;
        }
    }
    if (in.varying)
        r.rest = x;
    else
        r.base = vir_cvt(k, VT_i64, x);
    return r;
}

static bool multiple(const vir *k, vir_ref x, int of, int depth) /* known to be a multiple of 2 or 4 */
{
    const vir_ins *in = &k->ins[x];
    if (!x)
        return true;
    if (in->op == VIR_const)
        return in->imm % of == 0;
    if (depth < 8 && in->op == VIR_mul)
        return multiple(k, in->a, of, depth + 1) || multiple(k, in->b, of, depth + 1);
    return depth < 8 && (in->op == VIR_add || in->op == VIR_sub) && multiple(k, in->a, of, depth + 1) &&
           multiple(k, in->b, of, depth + 1);
}

/* Does f count with the vector loop, from a multiple of `by`? */
static bool counts(const vir *k, const affine *f, int by)
{
    int vec = k->loops[k->open].vector;
    return vec && !f->rest && f->stride && is_icon(k, f->stride, 1) && f->cst % by == 0 &&
           multiple(k, f->base, by, 0) && multiple(k, k->loops[vec].begin, by, 0);
}

static vir_ref two_words(vir *k, vir_ref hi, vir_ref lo)
{
    return vir_or(k, vir_shl(k, vir_cvt(k, VT_i64, hi), vir_int(k, 32)),
                  vir_and(k, vir_cvt(k, VT_i64, lo), vir_int(k, 0xffffffff)));
}

vir_ref vir_draw(vir *k, vir_type t, vir_ref seed, vir_ref first, vir_ref n)
{
    bool wide = t == VT_i64 || t == VT_f64, normal = is_flt(t);
    vir_ref zero = vir_int(k, 0), one = vir_int(k, 1), two = vir_int(k, 2), by = vir_int(k, wide ? 2 : 4);
    if (k->err || !seed || !first || !n || vir_type_of(k, n) != VT_i64 || k->ins[seed].varying ||
        k->ins[first].varying || t == VT_mask)
        return bad(k, "a draw needs a type, a uniform seed and block, and an element");
    affine f = affine_of(k, n, 0);
    if (counts(k, &f, wide ? 2 : 4)) {
        vir_ref at = add0(k, f.base, f.cst ? vir_int(k, f.cst) : 0);
        first = at ? vir_add(k, first, vir_divf(k, at, by)) : first;
        return pure(
            k,
            (vir_ins){
                .op = VIR_draw, .type = (uint8_t)t, .access = VA_unit, .varying = 1, .a = seed, .b = first },
            k->loops[k->open].vector);
    }
    vir_ref block = vir_add(k, first, vir_divf(k, n, by)), w[4], pair[2];
    for (int i = 0; i < 4; i++)
        w[i] = vir_philox(k, seed, block, zero, i);
    if (!wide) { /* the pair that the element belongs to */
        vir_ref late = vir_ge(k, vir_modf(k, n, by), two);
        for (int i = 0; i < 2; i++)
            pair[i] = vir_select(k, late, w[i + 2], w[i]);
    } else
        for (int i = 0; i < 2; i++)
            pair[i] = two_words(k, w[2 * i], w[2 * i + 1]);
    if (normal)
        vmath_normal(k, pair[0], pair[1], pair);
    return vir_select(k, vir_eq(k, vir_modf(k, n, two), one), pair[1], pair[0]);
}

/* rest = (base + cst + loop variable) / by, by 2 or 4, where whole groups of lanes share an element. */
static bool spread_of(vir *k, vir_ref rest, affine *f, vir_ref *by)
{
    vir_ins in = k->ins[rest];
    int vec = k->loops[k->open].vector;
    if (in.op != VIR_divf || in.type != VT_i64 || !vec || (!is_icon(k, in.b, 2) && !is_icon(k, in.b, 4)))
        return false;
    *f = affine_of(k, in.a, 0);
    *by = in.b;
    return counts(k, f, 4);
}

static bool address(vir *k, int buf, vir_ref idx, vir_ins *in)
{
    if (k->err)
        return false;
    if (buf < 0 || buf >= k->nbufs || !idx || !is_int(vir_type_of(k, idx)))
        return bad(k, "a load or store needs a buffer and an integer index");
    size_t size = vir_mem_size(k->bufs[buf].mem);
    vir_type it = vir_type_of(k, idx);
    affine f = affine_of(k, idx, 0);
    if (f.stride && is_icon(k, f.stride, 0))
        f.stride = 0;
    if (f.base && is_icon(k, f.base, 0))
        f.base = 0;
    in->mem = (uint8_t)k->bufs[buf].mem;
    in->access = VA_uniform;
    affine g;
    vir_ref by;
    if (f.rest && !f.stride && in->op == VIR_load && spread_of(k, f.rest, &g, &by)) {
        f.base = add0(k, f.base, g.base ? vir_divf(k, g.base, by) : 0);
        f.cst += g.cst / k->ins[by].imm;
        in->access = VA_spread;
        in->b = by;
    } else if (f.rest) {
        if (f.stride)
            f.rest = vir_add(
                k, f.rest,
                vir_mul(k, vir_cvt(k, it, k->loops[k->loops[k->open].vector].var), vir_cvt(k, it, f.stride)));
        in->access = VA_gather;
        in->b = f.rest;
    } else if (f.stride) {
        in->access = is_icon(k, f.stride, 1) ? VA_unit : VA_strided;
        in->b = in->access == VA_unit ? 0 : f.stride;
    }
    if (f.cst > INT32_MAX / 16 || f.cst < INT32_MIN / 16) { /* too far for a displacement */
        f.base = add0(k, f.base, vir_int(k, f.cst));
        f.cst = 0;
    }
    in->imm = f.cst * (int64_t)size;
    in->a = pure(k, (vir_ins){ .op = VIR_bufptr, .type = VT_i64, .imm = buf }, 0);
    if (f.base)
        in->a = pure(
            k, (vir_ins){ .op = VIR_ptr, .type = VT_i64, .a = in->a, .b = f.base, .imm = (int64_t)size }, 0);
    return !k->err;
}

static bool mask_ok(vir *k, vir_ref mask)
{
    return !mask || vir_type_of(k, mask) == VT_mask ? true : (bad(k, "a mask of another type"), false);
}

vir_ref vir_load(vir *k, int buf, vir_ref idx, vir_ref mask)
{
    vir_ins in = { .op = VIR_load };
    if (!address(k, buf, idx, &in) || !mask_ok(k, mask))
        return 0;
    in.type = (uint8_t)vir_mem_type(k->bufs[buf].mem);
    in.c = mask && is_icon(k, mask, 1) ? 0 : mask;
    int vec = in.access != VA_uniform ? k->loops[k->open].vector : 0;
    in.varying = vec != 0 || (mask && k->ins[mask].varying);
    if (k->bufs[buf].flags == VIR_IN)
        return pure(k, in, vec);
    if (k->bufs[buf].flags == VIR_OUT)
        return bad(k, "a load from an output buffer");
    return effect(k, in);
}

static void store(vir *k, int buf, vir_ref idx, vir_ref v, vir_ref mask, bool add)
{
    vir_ins in = { .op = VIR_store, .add = add, .d = v };
    if (!address(k, buf, idx, &in) || !mask_ok(k, mask))
        return;
    in.c = mask && is_icon(k, mask, 1) ? 0 : mask;
    if (k->bufs[buf].flags == VIR_IN)
        bad(k, "a store to an input buffer");
    else if (!v || vir_type_of(k, v) != vir_mem_type(k->bufs[buf].mem))
        bad(k, "a store of another type than the buffer's");
    else if (in.access == VA_uniform && k->ins[v].varying && !add)
        bad(k, "a store of many lanes to one element");
    else if (add && vir_mem_size(k->bufs[buf].mem) < 4)
        bad(k, "store_add to a narrow buffer");
    else
        effect(k, in);
}
void vir_store(vir *k, int buf, vir_ref idx, vir_ref v, vir_ref mask) { store(k, buf, idx, v, mask, false); }
void vir_store_add(vir *k, int buf, vir_ref idx, vir_ref v, vir_ref mask)
{
    store(k, buf, idx, v, mask, true);
}

/* --- variables and reductions
 * -------------------------------------------------------------------------------- */
vir_ref vir_var(vir *k, vir_ref init)
{
    if (k->err || !init)
        return bad(k, "a variable needs an initial value");
    return effect(k, (vir_ins){ .op = VIR_var,
                                .type = k->ins[init].type,
                                .a = init,
                                .varying = k->loops[k->open].vector != 0 });
}
vir_ref vir_get(vir *k, vir_ref var)
{
    if (k->ins[var].op != VIR_var)
        return bad(k, "get of something that is not a variable");
    return effect(
        k, (vir_ins){ .op = VIR_get, .type = k->ins[var].type, .a = var, .varying = k->ins[var].varying });
}
void vir_set(vir *k, vir_ref var, vir_ref v)
{
    if (k->ins[var].op != VIR_var || !v || k->ins[var].type != k->ins[v].type)
        bad(k, "set of something that is not a variable of that type");
    else if (!k->ins[var].varying && (k->ins[v].varying || k->loops[k->open].vector))
        bad(k, "a variable from outside is set inside a vector loop");
    else
        effect(k, (vir_ins){ .op = VIR_set, .type = k->ins[var].type, .a = var, .b = v });
}

int vir_red(vir *k, vir_red_kind kind, vir_type t)
{
    bool ok = kind == RED_any || kind == RED_all                              ? t == VT_mask
              : kind == RED_welford || kind == RED_softmax || kind == RED_lse ? is_flt(t)
                                                                              : is_flt(t) || is_int(t);
    if (!ok)
        bad(k, "a reduction of a type it does not have");
    k->reds = grow(k->a, k->reds, k->nreds, &k->capreds, sizeof *k->reds);
    k->reds[k->nreds] = (vir_red_info){ .kind = kind, .type = t, .loop = k->open };
    k->reds[k->nreds].ins = effect(k, (vir_ins){ .op = VIR_red, .imm = k->nreds });
    return k->nreds++;
}

int vir_scan(vir *k, vir_red_kind kind, vir_type t)
{
    int red = vir_red(k, kind, t);
    if (kind == RED_any || kind == RED_all || kind == RED_welford || kind == RED_softmax)
        bad(k, "a running result of a kind that has none");
    k->reds[red].scan = true;
    return red;
}

void vir_step(vir *k, int red, vir_ref x, vir_ref idx)
{
    if (k->err)
        return;
    vir_red_info *r = &k->reds[red];
    bool arg = vir_red_places(r->kind);
    if (red < 0 || red >= k->nreds || !x || vir_type_of(k, x) != r->type || arg != (idx != 0)) {
        bad(k, "a reduction step of another type");
        return;
    }
    if (arg) {
        vir_type it = vir_type_of(k, idx);
        if (!is_int(it) || (r->itype && r->itype != it)) {
            bad(k, "the index of a reduction step");
            return;
        }
        r->itype = it;
    }
    if (k->loops[k->open].vector && !k->loops[r->loop].vector)
        r->partials = !r->scan;
    effect(k, (vir_ins){ .op = VIR_step, .a = x, .b = idx, .imm = red });
}

vir_ref vir_fold(vir *k, int red)
{
    if (k->err)
        return 0;
    if (k->open != k->reds[red].loop)
        return bad(k, "a reduction is folded where it was not started");
    effect(k, (vir_ins){ .op = VIR_fold, .imm = red });
    return vir_part(k, red, 0);
}
vir_ref vir_part(vir *k, int red, int part)
{
    if (k->err || part >= vir_red_parts(k->reds[red].kind) || part < 0)
        return bad(k, "no such part of a reduction");
    return effect(k, (vir_ins){ .op = VIR_part,
                                .type = (uint8_t)vir_red_part_type(&k->reds[red], part),
                                .imm = red * 4 + part,
                                .varying = k->loops[k->open].vector != 0 });
}

vir_ref vir_red_identity(vir *k, const vir_red_info *r, int part)
{
    vir_type t = vir_red_part_type(r, part);
    bool lo = r->kind == RED_max || r->kind == RED_argmax || r->kind == RED_softmax ||
              r->kind == RED_cummax || r->kind == RED_lse;
    switch (r->kind) {
    case RED_sum:
    case RED_welford:
    case RED_any: return vir_imm(k, t, 0);
    case RED_prod:
    case RED_all: return vir_imm(k, t, 1);
    default: break;
    }
    if (part == 1 && (r->kind == RED_cummin || r->kind == RED_cummax))
        return vir_imm(k, t, -1);
    if (part == 1) /* arg*: an index no element has, so that any element wins against an empty partial */
        return r->kind == RED_softmax ? vir_imm(k, t, 0) : vir_imm(k, t, t == VT_i32 ? INT32_MAX : INT64_MAX);
    if (is_flt(t))
        return vir_flt(k, t, lo ? -INFINITY : INFINITY);
    if (t == VT_i32)
        return vir_imm(k, t, lo ? INT32_MIN : INT32_MAX);
    return vir_imm(k, t, lo ? INT64_MIN : INT64_MAX);
}

/* --- finishing
 * ----------------------------------------------------------------------------------------------- */
static bool need(vir *k, vir_ref x)
{
    if (!x || !k->ins[x].dead)
        return false;
    k->ins[x].dead = 0;
    return true;
}

/* Marks what a store, directly or through variables, reductions and loop bounds, depends on. */
static void mark_live(vir *k)
{
    bool *var_live = ARENA_ARR(k->a, bool, k->n), *red_live = ARENA_ARR(k->a, bool, k->nreds + 1);
    for (int i = 1; i < k->n; i++)
        k->ins[i].dead = k->ins[i].op != VIR_store && k->ins[i].op != VIR_loop;
    for (bool again = true; again;) {
        again = false;
        for (int i = k->n - 1; i > 0; i--) {
            vir_ins *in = &k->ins[i];
            if (in->dead) {
                bool live = (in->op == VIR_set && var_live[in->a]) || (in->op == VIR_var && var_live[i]) ||
                            ((in->op == VIR_step || in->op == VIR_red || in->op == VIR_fold) &&
                             red_live[in->imm]);
                if (!live)
                    continue;
                in->dead = 0;
                again = true;
            }
            if (in->op == VIR_get && !var_live[in->a])
                var_live[in->a] = again = true;
            if (in->op == VIR_part && !red_live[in->imm / 4])
                red_live[in->imm / 4] = again = true;
            again |= need(k, in->a) | need(k, in->b) | need(k, in->c) | need(k, in->d);
        }
    }
}

/* Some f32 functions are evaluated in f64. */
static bool frag_wide(vir_op op, vir_type t) { return vir_frag_math(op, t)->k->lanes == 8; }

static bool wide64(const vir *k)
{
    for (int i = 1; i < k->n; i++) {
        const vir_ins *in = &k->ins[i];
        if (in->dead)
            continue;
        if (in->type == VT_f64 ||
            (op_kind[in->op] == K_math && frag_wide((vir_op)in->op, (vir_type)in->type)))
            return true;
        if (in->type == VT_i64 && in->varying && (in->uses || in->op == VIR_var))
            return true;
        if (in->op == VIR_store && vir_mem_size((vir_mem)in->mem) == 8 && k->loops[in->region].vector &&
            (in->add || in->access != VA_uniform))
            return true;
    }
    for (int i = 0; i < k->nreds; i++)
        if (!k->ins[k->reds[i].ins].dead &&
            (k->reds[i].type == VT_f64 || k->reds[i].type == VT_i64 || (k->reds[i].itype == VT_i64)))
            return true;
    return false;
}

/* How much work one element is, in rough instructions: light bodies need more vectors in flight. tables: whether it looks
 * into tables, which take the registers that a second vector would need. */
static int weight(const vir *k, bool *tables)
{
    int w = 0;
    for (int i = 1; i < k->n; i++) {
        const vir_ins *in = &k->ins[i];
        if (in->dead || !k->loops[in->region].vector || in->op == VIR_loop)
            continue;
        w += op_kind[in->op] == K_math ? 20 : in->op == VIR_call ? 100 : 1;
        *tables |= in->op == VIR_erf || in->op == VIR_tanh;
    }
    return w;
}

static int choose_ways(const vir *k)
{
    bool inner = false, tables = false;
    int w = weight(k, &tables), comps = 0, shared = 0;
    for (int i = 1; i < k->n; i++)
        if (k->ins[i].op == VIR_draw && !k->ins[i].dead) /* as many vectors share the numbers of one round */
            shared = MAX(shared, k->ins[i].type == VT_i64 || k->ins[i].type == VT_f64 ? 2 : 4);
    if (shared)
        return shared;
    for (int i = 0; i < k->nreds; i++)
        if (k->reds[i].scan && !k->loops[k->reds[i].loop].vector && !k->ins[k->reds[i].ins].dead)
            return 1; /* vectors wait for one another */
    for (int i = 0; i < k->nreds; i++)
        if (!k->ins[k->reds[i].ins].dead)
            comps += vir_red_parts(k->reds[i].kind) * (k->reds[i].kind == RED_softmax ? 3 : 1);
    for (int i = 1; i < k->nloops; i++)
        inner |= k->loops[i].vector && k->loops[i].vector != i;
    if (comps || inner)
        return w <= 12 && comps <= 2 ? 4 : w <= 40 && comps <= 4 ? 2 : 1;
    return w <= 8 || (w <= 50 && !tables) ? 2 : 1;
}

/* --- a scale that cancels
 * exp(x - m) on its way into a row that is divided by its sum (softmax): the last step of the function undoes a factor of 2**64,
 * which its sum may as well have, too. Exact, as it is a power of two. */
static vir_ref buffer_ptr(const vir *k,
                          const vir_ins *in) /* 0: not one element after the other, or under a mask */
{
    return in->access == VA_unit && !in->c ? in->a : 0;
}
static int64_t buffer_no(const vir *k, const vir_ins *in)
{
    const vir_ins *p = &k->ins[in->a];
    return (p->op == VIR_ptr ? &k->ins[p->a] : p)->imm;
}
static bool same_range(const vir *k, int a, int b)
{
    return a != b && k->loops[a].kind == LOOP_vector && k->loops[b].kind == LOOP_vector &&
           k->loops[a].begin == k->loops[b].begin && k->loops[a].end == k->loops[b].end &&
           k->loops[a].parent == k->loops[b].parent;
}
static bool is_one_over(const vir *k, const vir_ins *in, vir_ref of)
{
    return in->op == VIR_div && in->b == of && in->a != of && k->ins[in->a].op == VIR_const &&
           vir_const_f(&k->ins[in->a]) == 1;
}
static bool uses(const vir_ins *in, vir_ref r)
{
    return in->a == r || in->b == r || in->c == r || in->d == r;
}

/* Every user of r is op(r, with) or the other way round. */
static bool only_times(const vir *k, vir_ref r, vir_ref with)
{
    for (int i = 1; i < k->n; i++) {
        const vir_ins *in = &k->ins[i];
        if (!in->dead && uses(in, r) &&
            !(in->op == VIR_mul && ((in->a == r && in->b == with) || (in->b == r && in->a == with))))
            return false;
    }
    return true;
}

static bool scale_cancels(const vir *k, vir_ref e)
{
    const vir_ins *ex = &k->ins[e], *arg = &k->ins[ex->a], *store = NULL, *again = NULL;
    int64_t red = -1;
    vir_ref sum = 0, inv = 0;
    const vir_ins *top = &k->ins[arg->b];
    if (ex->type != VT_f32 || !k->loops[ex->region].vector || arg->op != VIR_sub || top->op != VIR_part ||
        top->imm % 4 || k->reds[top->imm / 4].kind != RED_max)
        return false;
    for (int i = 1; i < k->n; i++) { /* it is summed once and stored once */
        const vir_ins *in = &k->ins[i];
        if (in->dead || !uses(in, e))
            continue;
        if (in->op == VIR_step && red < 0 && k->reds[in->imm].kind == RED_sum && in->region == ex->region)
            red = in->imm;
        else if (in->op == VIR_store && !store && in->d == e && in->mem == VM_f32 && !in->add &&
                 buffer_ptr(k, in) && in->region == ex->region)
            store = in;
        else
            return false;
    }
    if (red < 0 || !store)
        return false;
    for (int i = 1; i < k->n; i++) { /* the sum serves as a divisor only */
        const vir_ins *in = &k->ins[i];
        if (in->dead)
            continue;
        if (in->op == VIR_step && in->imm == red && in->a != e)
            return false;
        if (in->op == VIR_part && in->imm / 4 == red) {
            if (sum)
                return false;
            sum = i;
        } else if (sum && uses(in, sum)) {
            if (inv || !is_one_over(k, in, sum))
                return false;
            inv = i;
        }
    }
    if (!inv)
        return false;
    for (int i = 1; i < k->n; i++) { /* what was stored is read to be multiplied by it, and written over */
        const vir_ins *in = &k->ins[i];
        if (in->dead || (in->op != VIR_load && in->op != VIR_store) ||
            buffer_no(k, in) != buffer_no(k, store) || in == store)
            continue;
        if (buffer_ptr(k, in) != store->a || !same_range(k, in->region, store->region) || in->add)
            return false;
        if (in->op == VIR_load && !only_times(k, i, inv))
            return false;
        if (in->op == VIR_store && again)
            return false;
        again = in->op == VIR_store ? in : again;
    }
    if (!again)
        return false;
    for (int i = 1; i < k->n; i++) { /* and multiplies nothing else */
        const vir_ins *in = &k->ins[i];
        if (in->dead || !uses(in, inv))
            continue;
        const vir_ins *with = &k->ins[in->a == inv ? in->b : in->a];
        if (in->op != VIR_mul || in->a == in->b || with->op != VIR_load ||
            buffer_no(k, with) != buffer_no(k, store))
            return false;
    }
    return true;
}

static void cancel_scales(vir *k)
{
    for (int i = 1; i < k->n; i++)
        if (k->ins[i].op == VIR_expn && !k->ins[i].dead && scale_cancels(k, i))
            k->ins[i].op = VIR_expns;
}

bool vir_finish(vir *k, tp_err *err)
{
    if (k->open)
        bad(k, "a loop is left open");
    if (k->err) {
        if (err && !err_is_set(err))
            *err = *k->err;
        return false;
    }
    mark_live(k);
    cancel_scales(k);
    for (int i = 1; i < k->n; i++)
        k->ins[i].uses = 0;
    for (int i = 1; i < k->n; i++) {
        vir_ins *in = &k->ins[i];
        if (!in->dead)
            k->ins[in->a].uses++, k->ins[in->b].uses++, k->ins[in->c].uses++, k->ins[in->d].uses++;
    }
    k->lanes = wide64(k) ? 8 : 16;
    if (!k->ways)
        k->ways = choose_ways(k);
    if (k->ways < 1 || k->ways > 64 || k->ways & (k->ways - 1))
        return err_set(err, ERR_internal, "kernel '%s': ways is a power of two up to 64, not %d", k->name,
                       k->ways);
    move_out(k);
    return vir_verify(k, err);
}

static bool verify_ins(const vir *k, vir_ref r, tp_err *err)
{
    const vir_ins *in = &k->ins[r];
    const vir_ref ops[4] = { in->a, in->b, in->c, in->d };
    for (int i = 0; i < 4; i++) {
        vir_ref x = ops[i];
        if (!x)
            continue;
        if (x < 0 || x >= k->n)
            return err_set(err, ERR_internal, "kernel '%s': %%%d uses %%%d, which does not exist", k->name, r,
                           x);
        int reg = in->region, want = k->ins[x].region;
        while (k->loops[reg].depth > k->loops[want].depth)
            reg = k->loops[reg].parent;
        if (reg != want)
            return err_set(err, ERR_internal, "kernel '%s': %%%d uses %%%d from another loop", k->name, r, x);
        if (k->ins[x].dead && !in->dead)
            return err_set(err, ERR_internal, "kernel '%s': %%%d uses dead %%%d", k->name, r, x);
    }
    return true;
}

static bool verify_region(const vir *k, int region, uint8_t *seen, tp_err *err)
{
    for (vir_ref r = k->loops[region].first; r; r = k->ins[r].next) {
        const vir_ins *in = &k->ins[r];
        const vir_ref ops[4] = { in->a, in->b, in->c, in->d };
        for (int i = 0; i < 4; i++)
            if (ops[i] && !seen[ops[i]])
                return err_set(err, ERR_internal, "kernel '%s': %%%d uses %%%d before it is made", k->name, r,
                               ops[i]);
        if (in->region != region || !verify_ins(k, r, err))
            return err_set(err, ERR_internal, "kernel '%s': %%%d is in the wrong loop", k->name, r);
        seen[r] = 1;
        if (in->op == VIR_loop && !verify_region(k, (int)in->imm, seen, err))
            return false;
    }
    return true;
}

bool vir_verify(const vir *k, tp_err *err)
{
    uint8_t *seen = mem_zalloc((size_t)k->n + 1);
    bool ok = verify_region(k, 0, seen, err);
    free(seen);
    return ok;
}

/* --- text, hash
 * ---------------------------------------------------------------------------------------------- */
static void print_ins(const vir *k, vir_ref r, int indent, strbuf *out);

static void print_region(const vir *k, int region, int indent, strbuf *out)
{
    for (vir_ref r = k->loops[region].first; r; r = k->ins[r].next)
        if (!k->ins[r].dead)
            print_ins(k, r, indent, out);
}

static const char *const red_names[RED_COUNT] = { "sum",    "prod",   "min",    "max",     "any",
                                                  "all",    "argmin", "argmax", "welford", "softmax",
                                                  "cummin", "cummax", "lse" };

static void print_address(const vir *k, const vir_ins *in, strbuf *out)
{
    strbuf_addf(out, " [%%%d", in->a);
    if (in->imm)
        strbuf_addf(out, "%+lld", (long long)in->imm);
    if (in->access == VA_unit)
        strbuf_add(out, " + lane");
    if (in->access == VA_strided)
        strbuf_addf(out, " + lane * %%%d", in->b);
    if (in->access == VA_gather)
        strbuf_addf(out, " at %%%d", in->b);
    if (in->access == VA_spread)
        strbuf_addf(out, " + lane / %%%d", in->b);
    strbuf_add(out, "]");
    if (in->c)
        strbuf_addf(out, " if %%%d", in->c);
}

static void print_ins(const vir *k, vir_ref r, int indent, strbuf *out)
{
    const vir_ins *in = &k->ins[r];
    static const char *const kinds[] = { "for", "parallel for", "vector for" };
    strbuf_addf(out, "%*s", indent, "");
    if (in->op == VIR_loop) {
        const vir_loop_info *l = &k->loops[in->imm];
        strbuf_addf(out, "%s %%%d in %%%d..%%%d {\n", kinds[l->kind], l->var, l->begin, l->end);
        print_region(k, (int)in->imm, indent + 2, out);
        strbuf_addf(out, "%*s}\n", indent, "");
        return;
    }
    if (in->type)
        strbuf_addf(out, "%%%d = %s", r, in->varying ? "v" : "");
    if (in->type)
        strbuf_addf(out, "%s ", vir_type_name((vir_type)in->type));
    strbuf_add(out, vir_op_name[in->op]);
    switch (in->op) {
    case VIR_const:
        strbuf_addc(out, ' ');
        if (is_flt((vir_type)in->type))
            strbuf_double(out, vir_const_f(in));
        else
            strbuf_addf(out, "%lld", (long long)in->imm);
        break;
    case VIR_iarg:
        strbuf_addf(out, " %lld \"%s\"", (long long)in->imm, k->iname ? k->iname[in->imm] : "");
        break;
    case VIR_farg:
        strbuf_addf(out, " %lld \"%s\"", (long long)in->imm, k->fname ? k->fname[in->imm] : "");
        break;
    case VIR_bufptr: strbuf_addf(out, " %lld \"%s\"", (long long)in->imm, k->bufs[in->imm].name); break;
    case VIR_load:
    case VIR_store:
        strbuf_addf(out, "%s.%s", in->add ? "_add" : "", vir_mem_name((vir_mem)in->mem));
        print_address(k, in, out);
        if (in->d)
            strbuf_addf(out, ", %%%d", in->d);
        break;
    case VIR_red:
        strbuf_addf(out, " #%lld %s %s", (long long)in->imm, red_names[k->reds[in->imm].kind],
                    vir_type_name(k->reds[in->imm].type));
        break;
    case VIR_part: strbuf_addf(out, " #%lld.%lld", (long long)in->imm / 4, (long long)in->imm % 4); break;
    case VIR_step:
    case VIR_fold: strbuf_addf(out, " #%lld", (long long)in->imm); break;
    case VIR_narrow: strbuf_addf(out, ".%s", vir_mem_name((vir_mem)in->mem)); break;
    case VIR_call: strbuf_addf(out, " %s", vir_calls[in->imm].name); break;
    case VIR_input:
    case VIR_loopvar: strbuf_addf(out, " %lld", (long long)in->imm); break;
    }
    if (in->op != VIR_load && in->op != VIR_store) {
        const vir_ref ops[3] = { in->a, in->b, in->c };
        for (int i = 0; i < 3; i++)
            if (ops[i])
                strbuf_addf(out, " %%%d", ops[i]);
    }
    const char *code = in->note ? ir_loc_code(in->note) : NULL;
    if (code)
        strbuf_addf(out, "  # %s:%d %s", in->note->file ? in->note->file : "?", in->note->line, code);
    strbuf_addc(out, '\n');
}

void vir_print(const vir *k, strbuf *out)
{
    strbuf_addf(out, "kernel %s(", k->name);
    for (int i = 0; i < k->nbufs; i++)
        strbuf_addf(out, "%s%s: %s %s", i ? ", " : "", k->bufs[i].name, vir_mem_name(k->bufs[i].mem),
                    k->bufs[i].flags == VIR_IN    ? "in"
                    : k->bufs[i].flags == VIR_OUT ? "out"
                                                  : "inout");
    strbuf_addf(out, ") lanes %d ways %d {\n", k->lanes, k->ways);
    print_region(k, 0, 2, out);
    strbuf_add(out, "}\n");
}

/* Live instructions numbered in program order, so that dead ones, names and building order do not count. */
static void key_region(const vir *k, int region, int32_t *num, int *next, strbuf *out)
{
    for (vir_ref r = k->loops[region].first; r; r = k->ins[r].next) {
        const vir_ins *in = &k->ins[r];
        if (in->dead)
            continue;
        num[r] = ++*next;
        struct {
            uint8_t op, type, mem, access, add, kind, rtype, itype;
            int32_t a, b, c, d;
            int64_t imm;
        } row = { in->op, in->type,   in->mem,    in->access, in->add,    0,      0,
                  0,      num[in->a], num[in->b], num[in->c], num[in->d], in->imm };
        if (in->op == VIR_loop)
            row.kind = (uint8_t)k->loops[in->imm].kind;
        if (in->op == VIR_red) {
            const vir_red_info *rd = &k->reds[in->imm];
            row.kind = (uint8_t)(rd->kind | rd->scan << 7), row.rtype = (uint8_t)rd->type,
            row.itype = (uint8_t)rd->itype;
        }
        strbuf_addn(out, (const char *)&row, sizeof row);
        if (in->op == VIR_loop) {
            key_region(k, (int)in->imm, num, next, out);
            strbuf_addn(out, "}", 1);
        }
    }
}

void vir_key(const vir *k, strbuf *out)
{
    int next = 0;
    int32_t head[2] = { k->lanes, k->ways }, *num = mem_zalloc(sizeof *num * (size_t)k->n);
    strbuf_grow(out, sizeof head + (size_t)k->n * 40);
    strbuf_addn(out, (const char *)head, sizeof head);
    key_region(k, 0, num, &next, out);
    free(num);
}

uint64_t vir_hash(const vir *k)
{
    strbuf b = { 0 };
    vir_key(k, &b);
    uint64_t h = hash_bytes(b.s, b.n, 0);
    strbuf_free(&b);
    return h;
}

vir_ref vir_frag_input(vir *k, vir_type t, int n)
{
    return pure(k, (vir_ins){ .op = VIR_input, .type = (uint8_t)t, .imm = n, .varying = 1 }, 0);
}

vir *vir_copy(const vir *k) { return vir_copy_to(mem_zalloc(sizeof(arena)), k); }

vir *vir_copy_to(arena *a, const vir *k)
{
    vir *c = arena_dup(a, k, sizeof *k);
    c->a = a;
    c->name = arena_strdup(a, k->name);
    c->ins = arena_dup(a, k->ins, sizeof *k->ins * (size_t)k->n);
    for (int i = 0; i < k->n; i++)
        c->ins[i].note = NULL;
    c->loops = arena_dup(a, k->loops, sizeof *k->loops * (size_t)k->nloops);
    c->reds = arena_dup(a, k->reds, sizeof *k->reds * (size_t)k->nreds);
    c->bufs = arena_dup(a, k->bufs, sizeof *k->bufs * (size_t)k->nbufs);
    for (int i = 0; i < k->nbufs; i++)
        c->bufs[i].name = "";
    c->iname = c->fname = NULL;
    c->hash = NULL;
    c->note = NULL;
    return c;
}

void vir_copy_free(vir *k)
{
    arena *a = k->a;
    arena_free(a);
    free(a);
}
