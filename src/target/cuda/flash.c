/* flash.c - see flash.h. */
#include "target/cuda/flash.h"
#include "target/cuda/driver.h"
#include "target/cuda/flash_text.h"
#include <math.h>
#include <pthread.h>

static int64_t launched; /* atomic */
int64_t cuda_flashes(void) { return __atomic_load_n(&launched, __ATOMIC_RELAXED); }

typedef struct side { /* a matrix of each batch by its rows */
    const tp_tensor *t;
    bool turned; /* rows are its last dimension */
} side;

typedef struct flash_call {
    side q, k, v, g, o, dq, dk, dv;
    int64_t batch, m, n;
    int d;
    dtype dt;
} flash_call;

static int64_t rows_of(side s) { return s.t->size[s.turned ? 2 : 1]; }
static int64_t width_of(side s) { return s.t->size[s.turned ? 1 : 2]; }
static int64_t row_step(side s) { return s.t->stride[s.turned ? 2 : 1]; }

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
    *c = (flash_call){ .q = { of->a, false }, .k = { of->b, true } };
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

/* Kernels are assembled once for a device. */
static cuda_function kernel_of(int device, const flash_form *f, tp_err *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static cuda_function made[CUDA_MAX_DEVICES][FLASH_KINDS][2][FLASH_MOST / 16][2];
    cuda_function *at = &made[device][f->kind][f->dt == DT_f16][f->d / 16 - 1][flash_block_rows(f) > 64];
    pthread_mutex_lock(&lock);
    cuda_function fn = *at;
    if (!fn) {
        strbuf b = { 0 };
        cuda_cubin bin = { 0 };
        cuda_module m;
        flash_text(&b, f);
        const char *text = strbuf_str(&b);
        if (cuda_assemble(device, &text, 1, &bin, err) && cuda_load(device, bin.p, &m, err) &&
            cuda_find(device, m, "flash", &fn, err))
            *at = fn;
        free(bin.p);
        strbuf_free(&b);
    }
    pthread_mutex_unlock(&lock);
    return fn;
}

static void set_matrix(uint64_t *v, int which, side s)
{
    if (!s.t)
        return;
    v[FLASH_q + which] = (uint64_t)(uintptr_t)tensor_data(s.t);
    v[FLASH_batch + which] = (uint64_t)(s.t->stride[0] * 2);
    v[FLASH_row + which] = (uint64_t)(row_step(s) * 2);
}

static bool run(const flash_call *c, flash_kind kind, uint64_t *v, int device, tp_err *err)
{
    const cuda_props *p = cuda_props_of(device, err);
    int64_t rows = kind == FLASH_columns ? c->n : c->m;
    if (!p)
        return false;
    /* larger blocks read less, but only where there are enough of them for all processors */
    bool small = rows <= 64 || c->batch * ((rows + 127) / 128) < p->multiprocessors;
    flash_form f = flash_form_of(kind, c->dt, c->d, small);
    int per = flash_block_rows(&f);
    cuda_function fn = kernel_of(device, &f, err);
    v[FLASH_blocks] = (uint64_t)((rows + per - 1) / per);
    return fn && cuda_launch(device, fn, c->batch * (int64_t)v[FLASH_blocks], 32 * f.warps, v, FLASH_PARAMS,
                             cuda_current_queue(device), err);
}

bool cuda_flash(const target_attend *a, tp_err *err)
{
    flash_call c;
    uint64_t v[FLASH_PARAMS] = { 0 };
    float scale = (float)a->soft.scale;
    uint32_t bits;
    if (!call_of(a, &c))
        return err_set(err, ERR_internal, "attention that is not for one kernel");
    int device = tensor_device(c.q.t).index;
    device = device >= 0 ? device : cuda_current_device();
    memcpy(&bits, &scale, sizeof bits);
    set_matrix(v, FLASH_q, c.q);
    set_matrix(v, FLASH_k, c.k);
    set_matrix(v, FLASH_v, c.v);
    set_matrix(v, FLASH_g, c.g);
    v[FLASH_m] = (uint64_t)c.m, v[FLASH_n] = (uint64_t)c.n;
    v[FLASH_reach] = a->reach ? (uint64_t)a->reach : FLASH_ALL;
    v[FLASH_scale] = bits;
    v[FLASH_heads] = v[FLASH_group] = 1;
    v[FLASH_top] = (uint64_t)(uintptr_t)a->soft.top, v[FLASH_part] = (uint64_t)(uintptr_t)a->soft.part;
    v[FLASH_stats] = (uint64_t)(uintptr_t)a->scratch;
    __atomic_fetch_add(&launched, 1, __ATOMIC_RELAXED);
    if (a->soft.kind == ATTEND_softmax) {
        set_matrix(v, FLASH_x, c.o);
        return run(&c, FLASH_forward, v, device, err);
    }
    set_matrix(v, FLASH_x, c.dq);
    if (!run(&c, FLASH_rows, v, device, err))
        return false;
    set_matrix(v, FLASH_x, c.dk);
    set_matrix(v, FLASH_y, c.dv);
    return run(&c, FLASH_columns, v, device, err);
}
