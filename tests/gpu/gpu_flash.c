/* gpu_flash.c - attention in one kernel on a GPU: the cases of the C tests, and times of sizes that models have. */
#include "gpu_flash.h"
#include "flash_cases.h"
#include "target/cuda/driver.h"
#include <stdio.h>

enum { MAX_BUFS = 16, TIMED = 20 };

/* Parameters that are addresses of host buffers become those of their copies. */
static void on_device(uint64_t *params, const ptx_buffer *bufs, void *const *dev, int n)
{
    static const int at[] = { FLASH_q,   FLASH_k,    FLASH_v,     FLASH_g,    FLASH_x,   FLASH_y,
                              FLASH_top, FLASH_part, FLASH_stats, FLASH_bias, FLASH_seed };
    for (size_t i = 0; i < COUNT(at); i++)
        for (int b = 0; b < n; b++)
            if (params[at[i]] == (uint64_t)(uintptr_t)bufs[b].p) {
                params[at[i]] = (uint64_t)(uintptr_t)dev[b];
                break;
            }
}

static bool take_time(const flash_case *c, const flash_form *f, cuda_function fn, int64_t blocks,
                      const uint64_t *params, tp_err *err)
{
    static const char *const names[] = { "forward", "rows", "columns" };
    const int products[] = { 2, f->given ? 3 : 5, 4 };
    cuda_event e[2];
    float ms = 1, best = 1e30f;
    bool ok = cuda_event_new(0, true, &e[0], err) && cuda_event_new(0, true, &e[1], err);
    for (int r = 0; r < 3 && ok; r++) {
        ok = cuda_event_record(0, e[0], NULL, err);
        for (int i = 0; i < TIMED && ok; i++)
            ok = cuda_launch(0, fn, blocks, 32 * f->warps, params, FLASH_PARAMS, NULL, err);
        ok = ok && cuda_event_record(0, e[1], NULL, err) && cuda_event_wait(0, e[1], err) &&
             cuda_event_ms(0, e[0], e[1], &ms, err);
        best = MIN(best, ms / TIMED);
    }
    if (ok) {
        double flops = 2.0 * products[f->kind] * c->batch * c->m * c->n * c->d / (c->reach ? 2 : 1);
        printf("flash %s%-8s %4d x %d x %d, heads of %d%s: %.4f ms, %.0f TFLOP/s\n", f->wide ? "wide " : "",
               names[f->kind], c->batch, c->m, c->n, c->d,
               c->reach  ? ", causal"
               : c->mask ? ", mask"
                         : "",
               best, flops / best / 1e9);
        cuda_event_free(0, e[0]), cuda_event_free(0, e[1]);
    }
    return ok;
}

static bool launch(void *ctx, const flash_case *c, const flash_form *f, int64_t blocks,
                   const uint64_t *host_params, const ptx_buffer *bufs, int nbufs, tp_err *err)
{
    const bool *timed = ctx;
    uint64_t params[FLASH_PARAMS];
    void *dev[MAX_BUFS] = { 0 };
    strbuf b = { 0 };
    cuda_cubin bin = { 0 };
    cuda_module m;
    cuda_function fn;
    memcpy(params, host_params, sizeof params);
    flash_text(&b, f);
    const char *text = strbuf_str(&b);
    bool ok = cuda_assemble(0, &text, 1, &bin, err) && cuda_load(0, bin.p, &m, err) &&
              cuda_find(0, m, "flash", &fn, err);
    bool loaded = ok;
    for (int i = 0; i < nbufs && ok; i++)
        ok = (dev[i] = cuda_alloc(0, bufs[i].size, err)) &&
             cuda_copy_in(0, dev[i], bufs[i].p, bufs[i].size, err);
    on_device(params, bufs, dev, nbufs);
    ok = ok && cuda_launch(0, fn, blocks, 32 * f->warps, params, FLASH_PARAMS, NULL, err) &&
         cuda_sync(0, err);
    for (int i = 0; i < nbufs && ok; i++)
        ok = cuda_copy_out(0, bufs[i].p, dev[i], bufs[i].size, err);
    ok = ok && (!*timed || take_time(c, f, fn, blocks, params, err));
    for (int i = 0; i < nbufs; i++)
        if (dev[i])
            cuda_free(0, dev[i]);
    if (loaded)
        cuda_unload(0, m);
    free(bin.p);
    strbuf_free(&b);
    return ok;
}

void gpu_flash(bool small)
{
    static const flash_case agree[] = {
        { DT_bf16, 64, 2, 197, 197, 0, .grow = 1 },
        { DT_f16, 64, 1, 130, 130, 1, .grow = 4, .small = true },
        { DT_bf16, 16, 3, 33, 70, 0, .gap = 16, .small = true, .grow = 1 },
        { DT_f16, 32, 1, 40, 300, 5, .grow = 1 },
        { DT_bf16, 80, 1, 140, 150, 0, .gap = 80, .grow = 1 },
        { DT_bf16, 96, 1, 50, 100, 51, .grow = 1 },
        { DT_f16, 128, 2, 140, 129, 1, .gap = 8, .grow = 1 },
        { DT_bf16, 64, 8, 140, 140, 1, .grow = 1, .heads = 4, .group = 2, .mixed = true, .given = true },
        { DT_f16, 32, 4, 140, 170, 0, .grow = 1, .heads = 2, .mask = FLASH_bool, .given = true, .gap = 8 },
        { DT_bf16, 64, 4, 170, 150, 0, .grow = 1, .heads = 4, .group = 2, .mask = FLASH_add, .given = true },
        { DT_bf16, 64, 2, 170, 180, 1, .grow = 1, .drops = 0.25f, .given = true },
        { DT_bf16, 64, 2, 270, 280, 1, .grow = 1, .given = true, .wide = true },
        { DT_f16, 128, 2, 270, 180, 0, .grow = 1, .given = true, .wide = true, .gap = 8 },
        { DT_bf16, 128, 4, 270, 280, 0, .grow = 1, .heads = 2, .mask = FLASH_add, .given = true,
          .wide = true },
        { DT_f16, 128, 2, 133, 170, 0, .grow = 1, .heads = 2, .drops = 0.5f, .mask = FLASH_bool },
    };
    static const flash_case models[] = {
        { DT_bf16, 64, 96, 512, 512, 1, .grow = 1, .check = 1, .heads = 12, .mixed = true, .given = true },
        { DT_bf16, 64, 96, 512, 512, 1, .grow = 1, .check = 1, .heads = 12, .mixed = true, .given = true,
          .wide = true },
        { DT_bf16, 64, 384, 197, 197, 0, .grow = 1, .check = 1, .given = true, .wide = true },
        { DT_bf16, 64, 64, 1024, 1024, 0, .grow = 1, .check = 1, .given = true },
        { DT_bf16, 64, 64, 1024, 1024, 0, .grow = 1, .check = 1, .given = true, .wide = true },
        { DT_bf16, 64, 64, 1024, 1024, 1, .grow = 1, .check = 1, .given = true, .wide = true },
        { DT_bf16, 64, 64, 1024, 1024, 0, .grow = 1, .check = 1, .given = true, .mask = FLASH_add,
          .wide = true },
        { DT_bf16, 64, 64, 1024, 1024, 1, .grow = 1, .check = 1, .given = true, .drops = 0.1f, .wide = true },
        { DT_bf16, 128, 32, 2048, 2048, 1, .grow = 1, .check = 1, .given = true },
        { DT_bf16, 128, 32, 2048, 2048, 1, .grow = 1, .check = 1, .given = true, .wide = true },
        { DT_bf16, 128, 32, 2048, 2048, 0, .grow = 1, .check = 1, .given = true, .wide = true },
        { DT_bf16, 64, 64, 2048, 2048, 0, .grow = 1, .check = 1 },
        { DT_f16, 128, 32, 2048, 2048, 1, .grow = 1, .check = 1 },
    };
    for (size_t i = 0; i < COUNT(agree); i++)
        flash_check(&agree[i], launch, &(bool){ false });
    for (size_t i = 0; i < COUNT(models) && !small; i++)
        flash_check(&models[i], launch, &(bool){ true });
}
