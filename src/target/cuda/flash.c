/* flash.c - see flash.h. */
#include "target/cuda/flash.h"
#include "target/cuda/driver.h"
#include "target/cuda/flash_text.h"
#include "target/cuda/kept.h"
#include "ops/op.h"
#include <math.h>

static int64_t launched; /* atomic */
int64_t cuda_flashes(void) { return __atomic_load_n(&launched, __ATOMIC_RELAXED); }

typedef struct side { /* a matrix of each batch by its rows */
    const tp_tensor *t;
    bool turned; /* rows are its last dimension */
} side;

typedef struct flash_call {
    side q, k, v, g, o, dq, dk, dv;
    int64_t batch, m, n; /* batch: matrices of q */
    int64_t groups;      /* matrices of q that share one of k */
    int d;
    dtype dt;
    flash_mask mask;
    bool drops, given;
} flash_call;

static int64_t rows_of(side s) { return s.t->size[s.turned ? 2 : 1]; }
static int64_t width_of(side s) { return s.t->size[s.turned ? 1 : 2]; }
static int64_t row_step(side s) { return s.t->stride[s.t->ndim - (s.turned ? 1 : 2)]; }

/* Elements of a row are neighbours, and rows begin at multiples of 16 bytes, as copies to shared memory want them. */
static bool in_rows(const flash_call *c, side s, int64_t rows)
{
    const tp_tensor *t = s.t;
    return t && t->ndim == 3 && (dtype)t->dt == c->dt && t->size[0] == c->batch && rows_of(s) == rows &&
           width_of(s) == c->d && t->stride[s.turned ? 1 : 2] == 1 && row_step(s) % 8 == 0 &&
           t->stride[0] % 8 == 0 && (uintptr_t)tensor_data(t) % 16 == 0;
}

static bool same_memory(side a, side b)
{
    return tensor_data(a.t) == tensor_data(b.t) && row_step(a) == row_step(b) &&
           a.t->stride[0] == b.t->stride[0];
}

/* The factors and results of a, by their part. False: not for these kernels. */
static bool call_of(const target_attend *a, flash_call *c)
{
    bool grad = a->soft.kind == ATTEND_gradient;
    if (a->soft.kind == ATTEND_any || a->nof != 1 + grad || a->nto != (grad ? 3 : 1))
        return false;
    const attend_of *of = &a->of[grad && a->soft.second], *other = &a->of[grad && !a->soft.second];
    *c = (flash_call){ .q = { of->a, false }, .k = { of->b, true }, .groups = 1 };
    if (of->a->ndim != 3 || of->b->ndim != 3)
        return false;
    c->batch = of->a->size[0], c->m = of->a->size[1], c->n = of->b->size[2];
    c->dt = (dtype)of->a->dt;
    if (of->a->size[2] % 16 || of->a->size[2] < FLASH_LEAST || of->a->size[2] > FLASH_MOST)
        return false;
    c->d = (int)of->a->size[2];
    side q = { 0 }, k = { 0 }, g = { 0 }; /* as the last products read them */
    if (grad)
        c->g = (side){ other->a, false }, c->v = (side){ other->b, true };
    for (int i = 0; i < a->nto; i++) {
        const attend_to *to = &a->to[i];
        side x = { to->x, to->second }, o = { (const tp_tensor *)to->o, to->second };
        bool probs = to->buf == a->soft.probs;
        if (!grad && probs && !to->adds)
            c->v = x, c->o = o;
        else if (grad && probs && to->adds)
            g = x, c->dv = o;
        else if (grad && !probs && to->adds)
            q = x, c->dk = o;
        else if (grad && !probs)
            k = x, c->dq = o;
    }
    bool ok = (c->dt == DT_f16 || c->dt == DT_bf16) && c->batch > 0 && c->m > 0 && c->n > 0 &&
              c->m < FLASH_ALL / 2 && c->n < FLASH_ALL / 2 && a->reach < FLASH_ALL / 2 &&
              in_rows(c, c->q, c->m) && in_rows(c, c->k, c->n) && in_rows(c, c->v, c->n);
    if (!grad)
        return ok && in_rows(c, c->o, c->m);
    return ok && a->soft.top && a->soft.part && in_rows(c, c->g, c->m) && in_rows(c, c->dq, c->m) &&
           in_rows(c, c->dk, c->n) && in_rows(c, c->dv, c->n) && in_rows(c, q, c->m) && in_rows(c, k, c->n) &&
           in_rows(c, g, c->m) && same_memory(q, c->q) && same_memory(k, c->k) && same_memory(g, c->g);
}

bool cuda_flash_fits(const target_attend *a)
{
    flash_call c;
    return call_of(a, &c);
}

int64_t cuda_flash_bytes(const target_attend *a)
{
    flash_call c;
    return a->soft.kind == ATTEND_gradient && call_of(a, &c) ? c.batch * c.m * 2 * (int64_t)sizeof(float) : 1;
}

/* Kernels are assembled once for a device, and kept on disk. A form as a number: */
enum {
    KIND = 0,
    HALF = 2,
    SIZE = 3,
    SMALL = 6,
    MASK = 7,
    DROPS = 9,
    RAGGED = 10,
    GIVEN = 11,
    WIDE = 12
}; /* first bits */
static flash_form form_of(uint32_t n)
{
    flash_kind kind = (flash_kind)(n >> KIND & 3);
    dtype dt = n >> HALF & 1 ? DT_f16 : DT_bf16;
    int d = 16 * (int)((n >> SIZE & 7) + 1);
    bool small = n >> SMALL & 1;
    flash_form f = n >> WIDE & 1 ? flash_wide_of(kind, dt, d) : flash_form_of(kind, dt, d, small);
    f.mask = (flash_mask)(n >> MASK & 3);
    f.drops = n >> DROPS & 1, f.ragged = n >> RAGGED & 1, f.given = n >> GIVEN & 1;
    return f;
}
static void write_form(strbuf *out, uint32_t n)
{
    flash_form f = form_of(n);
    flash_text(out, &f);
}

static void set_matrix(uint64_t *v, int which, side s)
{
    if (!s.t)
        return;
    v[FLASH_q + which] = (uint64_t)(uintptr_t)tensor_data(s.t);
    v[FLASH_batch + which] = (uint64_t)(s.t->stride[0] * 2);
    v[FLASH_row + which] = (uint64_t)(row_step(s) * 2);
    if (s.t->ndim == 4)
        v[FLASH_head + which] = (uint64_t)(s.t->stride[1] * 2);
}

static bool run(const flash_call *c, flash_kind kind, uint64_t *v, int device, tp_err *err)
{
    const cuda_props *p = cuda_props_of(device, err);
    int64_t rows = kind == FLASH_columns ? c->n : c->m,
            batch = kind == FLASH_columns ? c->batch / c->groups : c->batch;
    if (!p)
        return false;
    /* larger blocks read less, but only where there are enough of them for all processors */
    bool small = rows <= 64 || batch * ((rows + 127) / 128) < p->multiprocessors;
    /* forward with a mask waits for the mask: more, smaller blocks were 1.3 times as fast (H200, 1024 rows) */
    bool wide = flash_is_wide(kind, c->d) && p->major == 9 && p->minor == 0 && rows > 64 &&
                !(kind == FLASH_forward && c->mask);
    small &= !wide;
    uint32_t n = (uint32_t)kind << KIND | (c->dt == DT_f16 ? 1u : 0) << HALF |
                 (uint32_t)(c->d / 16 - 1) << SIZE | (small && kind != FLASH_columns ? 1u : 0) << SMALL |
                 (uint32_t)c->mask << MASK | (c->drops ? 1u : 0) << DROPS |
                 (c->drops && c->n % 4 ? 1u : 0) << RAGGED |
                 (c->given && kind == FLASH_rows ? 1u : 0) << GIVEN | (wide ? 1u : 0) << WIDE;
    cuda_kept kept = { "flash", write_form, n };
    flash_form f = form_of(n);
    int per = flash_block_rows(&f);
    cuda_function fn;
    v[FLASH_blocks] = (uint64_t)((rows + per - 1) / per);
    return cuda_kept_get(device, &kept, 1, &fn, err) &&
           cuda_launch(device, fn, batch * (int64_t)v[FLASH_blocks], 32 * f.warps, v, FLASH_PARAMS,
                       cuda_current_queue(device), err);
}

static uint64_t float_bits(double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static void set_call(const flash_call *c, uint64_t *v)
{
    __atomic_fetch_add(&launched, 1, __ATOMIC_RELAXED);
    set_matrix(v, FLASH_q, c->q);
    set_matrix(v, FLASH_k, c->k);
    set_matrix(v, FLASH_v, c->v);
    set_matrix(v, FLASH_g, c->g);
    v[FLASH_m] = (uint64_t)c->m, v[FLASH_n] = (uint64_t)c->n;
}
static bool run_forward(const flash_call *c, uint64_t *v, int device, tp_err *err)
{
    set_matrix(v, FLASH_x, c->o);
    return run(c, FLASH_forward, v, device, err);
}
static bool run_rows(const flash_call *c, uint64_t *v, int device, tp_err *err)
{
    set_matrix(v, FLASH_x, c->dq);
    set_matrix(v, FLASH_y, c->o);
    return run(c, FLASH_rows, v, device, err);
}
static bool run_columns(const flash_call *c, uint64_t *v, int device, tp_err *err)
{
    set_matrix(v, FLASH_x, c->dk);
    set_matrix(v, FLASH_y, c->dv);
    return run(c, FLASH_columns, v, device, err);
}

bool cuda_flash(const target_attend *a, tp_err *err)
{
    flash_call c;
    uint64_t v[FLASH_PARAMS] = { 0 };
    if (!call_of(a, &c))
        return err_set(err, ERR_internal, "attention that is not for one kernel");
    int device = tensor_device(c.q.t).index;
    v[FLASH_reach] = a->reach ? (uint64_t)a->reach : FLASH_ALL;
    v[FLASH_scale] = float_bits(a->soft.scale);
    v[FLASH_heads] = v[FLASH_group] = 1;
    v[FLASH_top] = (uint64_t)(uintptr_t)a->soft.top, v[FLASH_part] = (uint64_t)(uintptr_t)a->soft.part;
    v[FLASH_stats] = (uint64_t)(uintptr_t)a->scratch;
    device = device >= 0 ? device : cuda_current_device();
    set_call(&c, v);
    return a->soft.kind == ATTEND_softmax ? run_forward(&c, v, device, err)
                                          : run_rows(&c, v, device, err) && run_columns(&c, v, device, err);
}

/* --- rows of the table -------------------------------------------------------------------------------- */
bool cuda_attends(dtype dt, int64_t head, tp_device d)
{
    const char *s = getenv("TAPER_CUDA_FLASH");
    return (!s || strcmp(s, "0")) && (dt == DT_f16 || dt == DT_bf16) && head % 16 == 0 &&
           head >= FLASH_LEAST && head <= FLASH_MOST;
}

/* Elements of a row are neighbours, and rows begin at multiples of 16 bytes. */
bool cuda_attends_in_place(const tp_tensor *t)
{
    bool ok = (t->size[3] == 1 || t->stride[3] == 1) && (uintptr_t)tensor_data(t) % 16 == 0;
    for (int d = 0; d < 3; d++)
        ok = ok && (t->size[d] == 1 || t->stride[d] % 8 == 0);
    return ok;
}

typedef struct packing {          /* copies of tensors that do not lie as the kernels want them */
    tp_tensor *made[8], *home[8]; /* home: copied back there in the end; NULL: an operand */
    int n;
} packing;

static side packed_side(packing *p, const tp_tensor *t, bool result, tp_err *err)
{
    if (!t || cuda_attends_in_place(t))
        return (side){ t, false };
    tp_tensor *x = tensor_new_strided((dtype)t->dt, t->ndim, t->size, NULL, tensor_device(t), err);
    if (x && !result && !tensor_copy(x, (tp_tensor *)t, err)) {
        tensor_unref(x);
        x = NULL;
    }
    if (x) {
        p->made[p->n] = x;
        p->home[p->n++] = result ? (tp_tensor *)t : NULL;
    }
    return (side){ x, false };
}

static bool packing_end(packing *p, bool ok, tp_err *err)
{
    for (int i = 0; i < p->n; i++) {
        ok = ok && (!p->home[i] || tensor_copy(p->home[i], p->made[i], err));
        tensor_unref(p->made[i]);
    }
    return ok;
}

own_result cuda_attend_row(tp_device d, const own_attention *a, tp_err *err)
{
    const tp_tensor *q = a->q, *k = a->k;
    flash_call c = { .batch = q->size[0] * q->size[1],
                     .m = q->size[2],
                     .n = k->size[2],
                     .d = (int)q->size[3],
                     .dt = (dtype)q->dt,
                     .groups = q->size[1] / MAX(k->size[1], 1),
                     .mask = !a->mask                 ? FLASH_free
                             : a->mask->dt == DT_bool ? FLASH_bool
                                                      : FLASH_add,
                     .drops = a->state != NULL,
                     .given = a->kind == OWN_grad_query };
    if (!cuda_attends(c.dt, q->size[3], d) || !(a->scale > 0) || !isfinite(a->scale) || c.batch <= 0 ||
        c.m <= 0 || c.n <= 0 || c.m >= FLASH_ALL / 2 || c.n >= FLASH_ALL / 2 || !(a->p >= 0 && a->p < 1))
        return OWN_declined;
    packing p = { 0 };
    struct {
        side *s;
        const tp_tensor *t;
        bool result;
    } all[] = { { &c.q, q, false },
                { &c.k, k, false },
                { &c.v, a->v, false },
                { &c.g, a->g, false },
                { &c.o, a->o, a->kind == OWN_attention },
                { &c.dq, a->dq, true },
                { &c.dk, a->dk, true },
                { &c.dv, a->dv, true } };
    bool ok = true;
    for (size_t i = 0; i < COUNT(all) && ok; i++) {
        *all[i].s = packed_side(&p, all[i].t, all[i].result, err);
        ok = !all[i].t || all[i].s->t;
    }
    uint64_t v[FLASH_PARAMS] = { 0 };
    int device = tensor_device(q).index;
    device = device >= 0 ? device : cuda_current_device();
    v[FLASH_reach] = a->causal ? 1 : FLASH_ALL;
    v[FLASH_scale] = float_bits(a->scale);
    v[FLASH_heads] = (uint64_t)q->size[1], v[FLASH_group] = (uint64_t)c.groups;
    if (a->stats) {
        v[FLASH_top] = (uint64_t)(uintptr_t)tensor_data(a->stats);
        v[FLASH_part] = v[FLASH_top] + (uint64_t)(c.batch * c.m) * sizeof(float);
    }
    v[FLASH_stats] = a->rows ? (uint64_t)(uintptr_t)tensor_data(a->rows) : 0;
    if (a->mask) {
        uint64_t es = dtype_size((dtype)a->mask->dt);
        v[FLASH_bias] = (uint64_t)(uintptr_t)tensor_data(a->mask);
        for (int i = 0; i < 4; i++)
            v[FLASH_bias_batch + i] = (uint64_t)a->mask->stride[i] * es;
    }
    if (a->state) {
        v[FLASH_seed] = (uint64_t)(uintptr_t)tensor_data(a->state);
        v[FLASH_keep] = float_bits(1 - a->p), v[FLASH_more] = float_bits(1 / (1 - a->p));
    }
    if (ok) {
        set_call(&c, v);
        ok = a->kind == OWN_attention    ? run_forward(&c, v, device, err)
             : a->kind == OWN_grad_query ? run_rows(&c, v, device, err)
                                         : run_columns(&c, v, device, err);
    }
    return packing_end(&p, ok, err) ? OWN_done : OWN_failed;
}
