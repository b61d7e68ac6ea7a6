/* lowered.c - runs kernels of single operators over tensors of any layout; keeps them by what they depend on. */
#include "ops/lowered.h"
#include "base/map.h"
#include "ops/iter.h"
#include "ops/pw.h"
#include <pthread.h>
#include <stdatomic.h>

_Static_assert(sizeof(lowered_key) == 24, "keys are compared as three words");

/* ---- the table ---- */
static lowered_make_fn *make;
void ops_lower_with(lowered_make_fn *fn) { make = fn; }

enum { RECENT = 512 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static map kernels;                           /* lowered_key -> lowered; they stay */
static const lowered *_Atomic recent[RECENT]; /* by the hash of the key: found without the lock */

static __attribute__((noinline)) const lowered *find(const lowered_key *key, size_t slot, tp_err *err)
{
    pthread_mutex_lock(&lock);
    lowered *k = map_getn(&kernels, key, sizeof *key), *made = NULL;
    pthread_mutex_unlock(&lock);
    if (!k) { /* without the lock: a thread that is faster wins */
        made = mem_zalloc(sizeof *made);
        made->key = *key;
        if (!make(made, err)) {
            free(made);
            return NULL;
        }
        pthread_mutex_lock(&lock);
        k = map_getn(&kernels, key, sizeof *key);
        if (!k)
            map_putn(&kernels, key, sizeof *key, k = made);
        pthread_mutex_unlock(&lock);
        if (k != made)
            free(made);
    }
    atomic_store_explicit(&recent[slot], k, memory_order_release);
    return k;
}

static const lowered *kernel_of(const lowered_key *key, tp_err *err)
{
    uint64_t w[3], v[3];
    memcpy(w, key, sizeof w);
    uint64_t h = (w[0] * 0x9e3779b97f4a7c15ull ^ w[1]) * 0xbf58476d1ce4e5b9ull ^ w[2];
    size_t slot = (size_t)(h * 0x94d049bb133111ebull >> 55);
    const lowered *k = atomic_load_explicit(&recent[slot], memory_order_acquire);
    if (TP_LIKELY(k != NULL)) {
        memcpy(v, &k->key, sizeof v);
        if (TP_LIKELY(!((w[0] ^ v[0]) | (w[1] ^ v[1]) | (w[2] ^ v[2]))))
            return k;
    }
    return find(key, slot, err);
}

/* ---- running ---- */
/* Blocks lie a little more than a page apart: the processor takes a load for dependent on a store a page away. */
enum { BLOCK = 512, APART = BLOCK + 40 };
typedef struct job {
    const lowered *k;
    const double *flts;
    uint8_t es[LOWERED_IN + 1]; /* element bytes; operand 0 is the result */
    bool packed;                /* no operand has steps of its own */
} job;

/* Elements that are apart in memory are packed first, or unpacked. */
static void run_blocks(const job *j, int64_t n, char *const *ptr, const int64_t *st)
{
    const lowered_key *key = &j->k->key;
    _Alignas(64) uint64_t buf[LOWERED_IN + 1][APART];
    void *bufs[LOWERED_IN + 1];
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t m = MIN(n - at, BLOCK);
        for (int i = 0; i <= key->nin; i++) {
            bool apart = st[i] != j->es[i] && !(i && key->one >> (i - 1) & 1);
            bufs[i] = apart ? (void *)buf[i] : (void *)(ptr[i] + at * st[i]);
            if (apart && i)
                gather_packed(m, buf[i], ptr[i] + at * st[i], st[i], j->es[i]);
        }
        j->k->run(j->k, bufs, &m, j->flts);
        if (bufs[0] == buf[0])
            scatter_packed(m, ptr[0] + at * st[0], st[0], buf[0], j->es[0]);
    }
}

static void run_span(void *arg, int64_t n, char *const *ptr, const int64_t *st)
{
    const job *j = arg;
    if (TP_LIKELY(j->packed))
        j->k->run(j->k, (void *const *)ptr, &n, j->flts);
    else
        run_blocks(j, n, ptr, st);
}

bool lowered_run(op_call *c)
{
    const op_schema *s = &c->row->schema;
    tp_tensor *out = c->res[0], *op[LOWERED_IN + 1] = { out };
    lowered_key key = { .op = (uint16_t)c->op, .dt = c->out[0].dt, .to = out->dt };
    uint64_t num[LOWERED_IN];
    double flts[LOWERED_FLTS];
    job j = { .flts = flts, .packed = true };
    iter it;

    assert(s->nparam <= LOWERED_ARGS);
    if (!dtype_is_float((dtype)key.dt))
        return no_kernel(c, (dtype)key.dt);
    if (!out->numel)
        return true;
    for (int i = 0; i < s->nparam; i++) {
        const tp_val *v = &c->arg[i];
        key.kind[i] = v->kind;
        if (v->kind == VAL_none)
            continue;
        if (s->param[i].type == PT_tensor) {
            key.kind[i] = VAL_tensor;
            op[key.nin + 1] = v->kind == VAL_tensor ? v->t : NULL;
            key.in[key.nin] = key.dt;
            if (v->kind == VAL_tensor)
                key.in[key.nin] = v->t->dt;
            else /* a number has the type of the tensors it meets: 3.14 beside bfloat16 is 3.140625 */
                elem_set_f((dtype)key.dt, &num[key.nin], val_as_f(v));
            key.nin++;
        } else if (v->kind == VAL_str)
            strncpy(key.text, v->s, LOWERED_TEXT - 1);
        else if (s->param[i].type == PT_bool)
            key.set |= (uint8_t)(v->b << i);
        else
            key.kind[i] = VAL_float;
    }
    iter_init(&it, key.nin + 1, op);
    for (int i = 0; i <= key.nin; i++) {
        dtype dt = (dtype)(i ? key.in[i - 1] : key.to);
        j.es[i] = (uint8_t)dtype_size(dt);
        if (i && !op[i])
            it.data[i] = (char *)&num[i - 1];
        if (out->numel == 1 || it.stride[i][0] == j.es[i])
            continue;
        if (i && it.stride[i][0] == 0)
            key.one |= (uint8_t)(1 << (i - 1));
        else
            j.packed = false;
    }
    j.k = kernel_of(&key, c->err);
    if (!j.k)
        return false;
    for (int i = 0; i < j.k->nflt; i++) {
        int a = j.k->flt[i].a, b = j.k->flt[i].b;
        flts[i] = val_as_f(&c->arg[a]) * (a == b ? 1 : val_as_f(&c->arg[b]));
    }
    iter_run(&it, run_span, &j, 0);
    return true;
}
bool eager_lowered(op_call *c) { return lowered_run(c); }
