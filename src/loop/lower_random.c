/* lower_random.c - numbers drawn from a sequence, each by its position in it. */
#include "loop/internal.h"

/* An integer from low to high - 1, as the eager kernel makes it of a word or of two. */
static vir_ref draw_int(vir *k, vir_ref seed, vir_ref first, vir_ref at, int64_t lo, int64_t span, int bits,
                        dtype dt)
{
    bool narrow = !bits && lo >= INT32_MIN && lo + span - 1 <= INT32_MAX;
    if (bits) {
        vir_ref v = vir_draw(k, VT_i64, seed, first, at);
        v = bits < 64 ? vir_and(k, v, vir_int(k, (int64_t)((1ull << bits) - 1))) : v;
        return loop_convert(k, vir_add(k, v, vir_int(k, lo)), DT_i64, dt);
    }
    vir_ref v = vir_draw(k, VT_i32, seed, first, at);
    if (span < 1ll << 32)
        v = vir_mulhu(k, v, vir_imm(k, VT_i32, (int32_t)(uint32_t)span));
    if (narrow && dtype_size(dt) < 8)
        return loop_convert(k, vir_add(k, v, vir_imm(k, VT_i32, lo)), DT_i32, dt);
    v = vir_cvt(k, VT_i64, v);
    if (span > 1ll << 31)
        v = vir_and(k, v, vir_int(k, 0xffffffff));
    return loop_convert(k, vir_add(k, v, vir_int(k, lo)), DT_i64, dt);
}

/* A number of the words that its element has in the sequence. */
static vir_ref eval_draw(walk *w, ir_node *n, const lin *idx)
{
    lin at = address(w, ir_type(n), idx), seed = lin_const(0), first = lin_const(1);
    vir *k = w->k;
    ir_node *state = n->arg[0].node;
    dtype dt = (dtype)ir_type(n)->dt;
    if (w->dry)
        vec_push(&w->seen, ((access){ .at = at, .drawn = n }));
    vir_ref mask = w->mask;
    w->mask = 0;
    vir_ref s = emit_load(w, state, &seed), b = emit_load(w, state, &first);
    w->mask = mask;
    if (w->dry)
        return 0;
    vir_ref i = vir_cvt(k, VT_i64, emit_lin(w, &at));
    if (lower_row(n) == &lower_philox_normal)
        return vir_draw(k, loop_type(dt), s, b, i);
    if (lower_row(n) == &lower_philox_int)
        return draw_int(k, s, b, i, n->arg[2].i, n->arg[3].i, (int)n->arg[4].i, dt);
    bool wide = dt == DT_f64;
    vir_type it = wide ? VT_i64 : VT_i32;
    vir_ref bits = vir_shr(k, vir_draw(k, it, s, b, i), vir_imm(k, it, wide ? 11 : 8));
    return vir_mul(k, vir_cvt(k, loop_type(dt), bits), vir_flt(k, loop_type(dt), wide ? 0x1p-53 : 0x1p-24));
}

/* Numbers that share a block of the sequence lie in one row. */
static int64_t draw_block(const ir_node *n)
{
    bool wide = lower_row(n) == &lower_philox_int ? n->arg[4].i != 0 : ir_type(n)->dt == DT_f64;
    return wide ? 2 : 4;
}

static bool rows_in_blocks(const ir_node *n)
{
    const tp_tensor *t = ir_type(n);
    symint row = t->ndim ? t->size[t->ndim - 1] : 1;
    return t->ndim < 2 || (!sym_is_expr(row) && row % draw_block(n) == 0);
}

static bool draw_apart(const ir_node *n) { return !rows_in_blocks(n); }

static const char *draw_folds(planner *pl, const ir_node *n, const char **what)
{
    if (n->arg[0].kind == VAL_node)
        *what = "numbers are drawn where they are used";
    return NULL;
}
static void draw_operands(planner *pl, ir_node *n)
{
    if (pl->in[n->id].folds)
        operand_in_memory(pl, n->arg[0].node);
}
#define DRAW                                                                                 \
    .folds = draw_folds, .value = eval_draw, .operands = draw_operands, .apart = draw_apart, \
    .block = draw_block
const lowering lower_philox_uniform = { DRAW };
const lowering lower_philox_normal = { DRAW };
const lowering lower_philox_int = { DRAW };
const lowering lower_rng_reserve = { .reserves = true };
