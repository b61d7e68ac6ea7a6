/* soft.c - is the kernel between the products of attention nothing but a softmax of scaled scores, or the gradient of one? Then a
 * target may compute all of it in its own way (target_attend.soft). Operators are known by their lowering; the order of factors and
 * the number of views and scales do not matter. */
#include "loop/internal.h"
#include <math.h>

typedef struct softness {
    planner *pl;
    const attention *ch;
    const ir_node *product; /* whose elements are the scores */
    double scale;
    ir_node *top, *part; /* one value a row: the maximum, and 1 / sum */
    ir_node *probs;      /* before rounding */
    bool inside;         /* the kernel makes top and part; else it reads them */
} softness;

static ir_node *past_views(ir_node *n)
{
    while (n && lower_row(n)->regroups)
        n = operand(n, 0);
    return n;
}

/* What a copy to another type rounds or widens; n itself where it is no copy. */
static ir_node *past_copy(ir_node *n)
{
    n = past_views(n);
    return n && is_copy(n) ? past_views(operand(n, 0)) : n;
}

static bool is_float(const ir_node *n) { return n && ir_type(n)->dt == DT_f32; }

/* The product behind n, and the numbers that it is multiplied by. */
static ir_node *past_scales(ir_node *n, double *scale)
{
    *scale = 1;
    for (n = past_views(n); n && is_float(n) && lower_row(n)->scales && is_known_number(&n->arg[1]);
         n = past_views(operand(n, 0))) {
        double by = val_as_f(&n->arg[1]);
        *scale = lower_row(n) == &lower_div ? *scale / by : *scale * by;
    }
    return n;
}

/* What a choice by the causal mask keeps, where it puts `beyond` elsewhere; n itself where it is no choice. NULL: another choice. */
static ir_node *past_mask(const softness *s, ir_node *n, double beyond, bool *masked)
{
    const lowering *l = n ? lower_row(n) : NULL;
    causal_band at;
    if (!n || !l->chooses)
        return n;
    const ir_node *cond = operand(n, l->cond);
    const tp_tensor *rows = ir_type(s->product);
    if (!cond || !causal_band_of(cond, &at) || ir_type(cond)->ndim != 2 ||
        !same_sizes(2, ir_type(cond)->size, 2, rows->size + 1) || !is_float(n))
        return NULL;
    const tp_val *kept = &n->arg[at.up_to ? l->yes : l->no];
    tp_val other = n->arg[at.up_to ? l->no : l->yes];
    if (other.kind == VAL_node)
        fill_value(other.node, &other);
    if (kept->kind != VAL_node || !is_known_number(&other) || val_as_f(&other) != beyond ||
        s->ch->reach != (at.up_to ? at.diag : at.diag - 1) + 1)
        return NULL;
    *masked = true;
    return past_views(kept->node);
}

/* A reduction of x along its rows, by the kernel. */
static bool reduces(const softness *s, ir_node *n, uint8_t kind, const ir_node *x)
{
    const info *f = n ? &s->pl->in[n->id] : NULL;
    return n && n->kind == IR_call && f->red && f->g == s->ch->kernel && f->rkind == kind && is_float(n) &&
           operand(n, 0) == x && f->mask == 1u << (ir_type(x)->ndim - 1);
}

/* Is it one value for each row of the matrices, in their order? */
static bool one_a_row(const softness *s, ir_node *n)
{
    const tp_tensor *rows = ir_type(s->product), *t = n ? ir_type(n) : NULL;
    return n && is_float(n) && is_packed(t) &&
           sym_known(SYM_eq, t->numel, sym_mul(rows->size[0], rows->size[1])) && t->ndim > 1 &&
           sym_known(SYM_eq, t->size[t->ndim - 1], 1) &&
           sym_known(SYM_eq, t->size[t->ndim - 2], rows->size[1]);
}

/* exp(masked scale * product - top) * part, or divided by the sum where the kernel makes that. */
static bool is_softmax(softness *s, ir_node *n)
{
    bool masked = false, sums = false;
    if (!n || !is_float(n))
        return false;
    ir_node *e = operand(n, 0), *by = operand(n, 1);
    if (lower_row(n) == &lower_div)
        sums = true;
    else if (lower_row(n) != &lower_mul)
        return false;
    if (e && by && !sums && lower_row(e) != &lower_exp) { /* the other order */
        ir_node *t = e;
        e = by, by = t;
    }
    if (!e || !by || lower_row(e) != &lower_exp || !is_float(e))
        return false;
    ir_node *low = operand(e, 0), *x = low ? operand(low, 0) : NULL, *top = low ? operand(low, 1) : NULL;
    if (!x || !top || lower_row(low) != &lower_sub || !is_float(low) || !val_is_number(&low->arg[2]) ||
        val_as_f(&low->arg[2]) != 1)
        return false;
    ir_node *kept = past_mask(s, past_views(x), -INFINITY, &masked);
    if (!kept || past_scales(kept, &s->scale) != s->product || masked != (s->ch->reach != 0) ||
        !(s->scale > 0) || !isfinite(s->scale))
        return false;
    s->inside = reduces(s, top, RED_max, x);
    if (s->inside) {
        const ir_node *sum = sums ? by : lower_row(by) == &lower_reciprocal ? operand(by, 0) : NULL;
        if (!sum || !reduces(s, (ir_node *)sum, RED_sum, e))
            return false;
    } else if (sums || s->pl->in[top->id].g == s->ch->kernel || s->pl->in[by->id].g == s->ch->kernel)
        return false;
    s->top = top;
    s->part = sums ? NULL : by;
    s->probs = n;
    return one_a_row(s, top) && (sums || one_a_row(s, by));
}

/* Of all that the kernel writes for others than the last products, is there nothing but top and part? */
static bool writes_no_more(const softness *s)
{
    for (int m = 0; m < s->ch->kernel->n; m++) {
        const ir_node *n = s->ch->kernel->member[m];
        const info *f = &s->pl->in[n->id];
        if (f->stored && f->outer && n != s->top && n != s->part)
            return false;
    }
    return true;
}

static bool is_forward(softness *s)
{
    const attention *ch = s->ch;
    s->product = ch->first->library_call;
    return !ch->also && ch->nbetween == 1 && ch->nlast == 1 && ch->how[0] == ATTENTION_product &&
           is_softmax(s, past_copy(ch->between[0])) && s->inside && writes_no_more(s);
}

/* scale * (p dp - p * sum of p dp), 0 beyond the diagonal: the gradient of the product's elements. */
static bool is_gradient(const softness *s, ir_node *n, const ir_node *other)
{
    bool masked = false;
    double scale = 1, more = 1;
    n = past_scales(n, &scale);
    n = n ? past_mask(s, n, 0, &masked) : NULL;
    n = n ? past_scales(n, &more) : NULL;
    if (!n || lower_row(n) != &lower_sub || !is_float(n) || !val_is_number(&n->arg[2]) ||
        val_as_f(&n->arg[2]) != 1 || fabs(scale * more - s->scale) > 1e-6 * s->scale)
        return false;
    ir_node *both = operand(n, 0), *less = operand(n, 1);
    if (!both || !less || lower_row(both) != &lower_mul || lower_row(less) != &lower_mul)
        return false;
    ir_node *dp = operand(both, operand(both, 0) == s->probs),
            *sum = operand(less, operand(less, 0) == s->probs);
    bool of_probs = operand(both, 0) == s->probs || operand(both, 1) == s->probs;
    of_probs &= operand(less, 0) == s->probs || operand(less, 1) == s->probs;
    return of_probs && dp && reduces(s, sum, RED_sum, both) && past_copy(dp) == other;
}

static bool is_backward(softness *s, int scores)
{
    const attention *ch = s->ch;
    if (!ch->also || ch->nbetween != 2 || ch->nlast != 3)
        return false;
    const ir_node *products[2] = { ch->first->library_call, ch->also->library_call };
    s->product = products[scores];
    for (int p = 0; p < 2; p++)
        if (is_softmax(s, past_copy(ch->between[p])) && !s->inside &&
            is_gradient(s, past_copy(ch->between[!p]), products[!scores]) && writes_no_more(s)) {
            s->probs = ch->between[p];
            return true;
        }
    return false;
}

void find_softmax(planner *pl, attention *ch)
{
    softness s = { .pl = pl, .ch = ch };
    attend_kind is = ATTEND_any;
    bool second = false;
    if (!pl->c->caps->softens)
        return;
    if (is_forward(&s))
        is = ATTEND_softmax;
    for (int p = 0; p < 2 && is == ATTEND_any; p++)
        if (is_backward(&s, p))
            is = ATTEND_gradient, second = p;
    if (is == ATTEND_any || !decide(pl->c, DECIDE_attend, ch->between[0]))
        return;
    ch->soft = is;
    ch->scale = s.scale;
    ch->second = second;
    ch->top = is == ATTEND_gradient || pl->in[s.top->id].stored ? s.top : NULL;
    ch->part = s.part && (is == ATTEND_gradient || pl->in[s.part->id].stored) ? s.part : NULL;
    ch->probs = is == ATTEND_gradient ? s.probs : ch->between[0];
}
