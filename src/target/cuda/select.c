/* select.c - see order.h; the kernels are in select_text.c. */
#include "target/cuda/kept.h"
#include "target/cuda/order.h"
#include "target/cuda/select_text.h"

static uint32_t code_of(const select_form *f)
{
    return (uint32_t)f->kind | (uint32_t)f->dt << 4 | (uint32_t)f->runs << 12 | (uint32_t)f->right << 13 |
           (uint32_t)f->narrow << 14 | (uint32_t)f->ndim << 16;
}
static void write_form(strbuf *b, uint32_t code)
{
    select_text(b, &(select_form){ .kind = code & 15,
                                   .dt = code >> 4 & 255,
                                   .runs = code >> 12 & 1,
                                   .right = code >> 13 & 1,
                                   .narrow = code >> 14 & 1,
                                   .ndim = (int)(code >> 16) });
}
static cuda_kept kept_of(select_form f) { return (cuda_kept){ "select", write_form, code_of(&f) }; }

static uint64_t address(const void *p) { return (uint64_t)(uintptr_t)p; }
static int device_of(tp_device d) { return d.index >= 0 ? d.index : cuda_current_device(); }
static int64_t tiles_of(int64_t n) { return (n + SELECT_TILE - 1) / SELECT_TILE; }

static bool launch(int device, cuda_function f, int64_t blocks, const uint64_t *v, tp_err *err)
{
    return cuda_launch(device, f, blocks, SELECT_THREADS, v, SELECT_PARAMS, cuda_current_queue(device),
                       err) ||
           err_note(err, "in kernel 'select'");
}

int64_t cuda_select_room(int64_t n) { return (tiles_of(n) + 1) * 4; }

own_result cuda_select_count(tp_device d, own_select *s, tp_err *err)
{
    int device = device_of(d), ndim = s->runs ? 0 : s->ndim;
    int64_t tiles = tiles_of(s->n);
    uint32_t found = 0;
    if (s->dt > DT_f64 || s->n >= INT32_MAX || ndim > SELECT_DIMS)
        return OWN_declined;
    uint64_t v[SELECT_PARAMS] = { [SELECT_in] = address(s->in),
                                  [SELECT_counts] = address(s->room),
                                  [SELECT_n] = (uint64_t)s->n,
                                  [SELECT_tiles] = (uint64_t)tiles };
    cuda_kept k[] = { kept_of((select_form){ .kind = SELECT_count, .dt = s->dt, .runs = s->runs }),
                      kept_of((select_form){ .kind = SELECT_scan, .dt = DT_u8 }),
                      kept_of(
                          (select_form){ .kind = SELECT_write, .dt = s->dt, .runs = s->runs, .ndim = ndim }),
                      kept_of((select_form){ .kind = SELECT_lengths, .dt = DT_u8 }) };
    cuda_function f[COUNT(k)];
    if (!cuda_kept_get(device, k, s->runs ? 4 : 3, f, err) || !launch(device, f[0], tiles, v, err) ||
        !launch(device, f[1], 1, v, err) ||
        !cuda_copy_out(device, &found, (const char *)s->room + tiles * 4, sizeof found, err))
        return OWN_failed;
    s->found = found;
    return OWN_done;
}

bool cuda_select_write(tp_device d, const own_select *s, tp_err *err)
{
    int device = device_of(d), ndim = s->runs ? 0 : s->ndim;
    uint64_t v[SELECT_PARAMS] = {
        [SELECT_in] = address(s->in),         [SELECT_counts] = address(s->room),
        [SELECT_n] = (uint64_t)s->n,          [SELECT_tiles] = (uint64_t)tiles_of(s->n),
        [SELECT_found] = (uint64_t)s->found,  [SELECT_to] = address(s->positions),
        [SELECT_values] = address(s->values), [SELECT_order] = address(s->order),
        [SELECT_group] = address(s->group)
    };
    cuda_kept k[] = { kept_of(
                          (select_form){ .kind = SELECT_write, .dt = s->dt, .runs = s->runs, .ndim = ndim }),
                      kept_of((select_form){ .kind = SELECT_lengths, .dt = DT_u8 }) };
    cuda_function f[COUNT(k)];
    void *starts = NULL;
    for (int i = 0; i < ndim; i++)
        v[SELECT_size + i] = (uint64_t)s->size[i];
    bool ok = cuda_kept_get(device, k, s->runs ? 2 : 1, f, err) &&
              (!s->runs || (starts = cuda_alloc(device, (size_t)MAX(s->found, 1) * 4, err)));
    v[SELECT_starts] = address(starts);
    ok = ok && launch(device, f[0], tiles_of(s->n), v, err);
    if (ok && s->lengths) {
        v[SELECT_to] = address(s->lengths);
        ok = launch(device, f[1], (s->found + SELECT_THREADS - 1) / SELECT_THREADS, v, err);
    }
    cuda_free(device, starts);
    return ok;
}

own_result cuda_search(tp_device d, const own_search *s, tp_err *err)
{
    int device = device_of(d);
    if ((s->dt != DT_f32 && s->dt != DT_f64 && s->dt != DT_i64) || s->n >= INT32_MAX ||
        s->values_n >= INT32_MAX)
        return OWN_declined;
    uint64_t v[SELECT_PARAMS] = { [SELECT_in] = address(s->bounds),       [SELECT_n] = (uint64_t)s->n,
                                  [SELECT_found] = (uint64_t)s->values_n, [SELECT_per] = (uint64_t)s->per,
                                  [SELECT_values] = address(s->values),   [SELECT_to] = address(s->out) };
    cuda_kept k = kept_of(
        (select_form){ .kind = SELECT_search, .dt = s->dt, .right = s->right, .narrow = s->narrow });
    cuda_function f;
    return cuda_kept_get(device, &k, 1, &f, err) &&
                   launch(device, f, (s->values_n + SELECT_THREADS - 1) / SELECT_THREADS, v, err)
               ? OWN_done
               : OWN_failed;
}
