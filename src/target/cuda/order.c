/* order.c - see order.h; the kernels are in order_text.c. */
#include "target/cuda/order.h"
#include "target/cuda/kept.h"
#include "target/cuda/order_text.h"

/* A form in 32 bits, as kept.h wants it. */
static uint32_t code_of(const order_form *f)
{
    return (uint32_t)f->kind | (uint32_t)f->dt << 4 | (uint32_t)f->first << 12 | (uint32_t)f->last << 13 |
           (uint32_t)f->rounds << 16;
}
static void write_form(strbuf *b, uint32_t code)
{
    order_text(b, &(order_form){ .kind = code & 15,
                                 .dt = code >> 4 & 255,
                                 .first = code >> 12 & 1,
                                 .last = code >> 13 & 1,
                                 .rounds = (int)(code >> 16) });
}
static cuda_kept kept_of(order_kind kind, dtype dt, bool first, bool last, int rounds)
{
    return (cuda_kept){ "order", write_form, code_of(&(order_form){ kind, dt, first, last, rounds }) };
}

static bool launch(int device, cuda_function f, int64_t blocks, const uint64_t *v, tp_err *err)
{
    return cuda_launch(device, f, blocks, ORDER_THREADS, v, ORDER_PARAMS, cuda_current_queue(device), err) ||
           err_note(err, "in kernel 'order'");
}

static uint64_t address(const void *p) { return (uint64_t)(uintptr_t)p; }

/* Rows that fit a block. */
static bool sort_short(int device, const own_sort *s, uint64_t *v, tp_err *err)
{
    int rounds = 1;
    cuda_function f;
    while (rounds * ORDER_THREADS < s->n)
        rounds *= 2;
    cuda_kept k = kept_of(ORDER_rows, s->dt, true, true, rounds);
    return cuda_kept_get(device, &k, 1, &f, err) && launch(device, f, s->rows, v, err);
}

enum { K_scan, K_count, K_scatter, K_count_next, K_last, K_next, KERNELS };

/* Longer rows: passes over tiles. `tiles` of a row. */
static bool sort_long(int device, const own_sort *s, uint64_t *v, int64_t tiles, tp_err *err)
{
    int rounds = order_rounds(s->dt), passes = order_bits(s->dt) / 8, kb = order_key_bytes(s->dt);
    bool few = tiles <= ORDER_FEW;
    cuda_kept k[KERNELS] = { [K_scan] = kept_of(ORDER_scan, DT_u8, false, false, few ? 1 : 2),
                             [K_count] = kept_of(ORDER_count, s->dt, true, false, rounds),
                             [K_scatter] = kept_of(ORDER_scatter, s->dt, true, passes == 1, rounds),
                             [K_count_next] = kept_of(ORDER_count, s->dt, false, false, rounds),
                             [K_last] = kept_of(ORDER_scatter, s->dt, false, true, rounds),
                             [K_next] = kept_of(ORDER_scatter, s->dt, false, false, rounds) };
    cuda_function f[KERNELS];
    int64_t all = (s->rows * s->n + 63) / 64 * 64, room = all * (kb + 4), totals = s->rows * 256 * 4;
    int used = passes == 1 ? K_count_next : passes == 2 ? K_next : KERNELS;
    if (!cuda_kept_get(device, k, used, f, err))
        return false;
    int buffers = MIN(passes - 1, 2);
    char *p = cuda_alloc(device, (size_t)(room * buffers + totals * (tiles + 1)), err);
    if (!p)
        return false;
    v[ORDER_totals] = address(p + room * buffers);
    v[ORDER_counts] = v[ORDER_totals] + (uint64_t)totals;
    bool ok = true;
    for (int pass = 0; pass < passes && ok; pass++) {
        char *from = p + room * ((pass + 1) % 2), *to = p + room * (pass % 2);
        bool last = pass + 1 == passes;
        v[ORDER_keys] = address(from), v[ORDER_at] = address(from + all * kb);
        v[ORDER_to_keys] = address(to), v[ORDER_to_at] = address(to + all * kb);
        v[ORDER_shift] = (uint64_t)pass * 8;
        ok = launch(device, f[pass ? K_count_next : K_count], s->rows * tiles, v, err) &&
             launch(device, f[K_scan], few ? s->rows : s->rows * 256, v, err) &&
             launch(device,
                    f[!pass  ? K_scatter
                      : last ? K_last
                             : K_next],
                    s->rows * tiles, v, err);
    }
    cuda_free(device, p);
    return ok;
}

own_result cuda_sort(tp_device d, const own_sort *s, tp_err *err)
{
    if (!order_fits(s->dt) || s->n >= INT32_MAX || s->rows >= INT32_MAX)
        return OWN_declined;
    int device = d.index >= 0 ? d.index : cuda_current_device();
    int64_t tiles = (s->n + order_tile(s->dt) - 1) / order_tile(s->dt);
    int bits = order_bits(s->dt);
    if (tiles > 1 && (s->rows * tiles >= INT32_MAX || s->rows >= INT32_MAX / 256))
        return OWN_declined;
    uint64_t v[ORDER_PARAMS] = { [ORDER_in] = address(s->in),
                                 [ORDER_values] = address(s->values),
                                 [ORDER_indices] = address(s->indices),
                                 [ORDER_n] = (uint64_t)s->n,
                                 [ORDER_tiles] = (uint64_t)tiles,
                                 [ORDER_keep] = (uint64_t)s->keep,
                                 [ORDER_flip] = !s->descending ? 0
                                                : bits == 64   ? UINT64_MAX
                                                               : ((uint64_t)1 << bits) - 1 };
    bool ok = !s->rows || (tiles == 1 ? sort_short(device, s, v, err) : sort_long(device, s, v, tiles, err));
    return ok ? OWN_done : OWN_failed;
}
