/* target.c - CUDA as a value of struct target. Kernels of one call are assembled on threads, several to a module. */
#include "target/cuda/cuda.h"
#include "base/pool.h"
#include "ops/attention.h"
#include "target/cuda/attend.h"
#include "target/cuda/check.h"
#include "target/cuda/conv.h"
#include "target/cuda/driver.h"
#include "target/cuda/flash.h"
#include "target/cuda/image.h"
#include "target/cuda/order.h"
#include "target/cuda/product.h"
#include "target/cuda/ptx.h"
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

enum { FORMAT = 6, ENTRY = 64 }; /* of saved code; bytes of an entry's name */

typedef struct cuda_code {
    target_code c; /* first */
    ptx_kernel p;
    cuda_image *img;
    char entry[ENTRY];
    cuda_function fn[CUDA_MAX_DEVICES];
} cuda_code;

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static bool available(const target *t, const char **why)
{
    static _Thread_local char text[sizeof(((tp_err *)0)->msg)];
    tp_err err = { 0 };
    if (cuda_init(&err) && cuda_use(-1, &err))
        return true;
    snprintf(text, sizeof text, "%s", err.msg);
    *why = text;
    return false;
}

static ptx_opts options(void)
{
    const cuda_props *p = cuda_props_of(-1, NULL);
    return (ptx_opts){ .sm = p && p->major < 9 ? 80 : 90, .lift = true };
}

/* What profilers show: what the kernel does, without its number in the graph, so that equal kernels of other graphs make
 * equal texts, and its number in the module. */
static void entry_name(const vir *k, int i, char *out, size_t n)
{
    const char *s = k->name;
    size_t at = 0;
    if (*s == 'k' && s[1] >= '0' && s[1] <= '9')
        for (s++; *s >= '0' && *s <= '9';)
            s++;
    while (*s == '_')
        s++;
    for (; *s && at + 16 < n; s++)
        out[at++] = isalnum((unsigned char)*s) ? *s : '_';
    snprintf(out + at, n - at, "%sk%d", at ? "_" : "", i);
    if (out[0] >= '0' && out[0] <= '9')
        out[0] = '_';
}

/* Kernels [from, to) as one module. Those that have no PTX form stay NULL. */
static bool write_module(const target *t, const vir *const *k, int from, int to, target_code **out,
                         char **text, tp_err *err)
{
    ptx_unit u = { .opts = options() };
    strbuf b = { 0 };
    bool all = true;
    for (int i = from; i < to; i++) {
        cuda_code *c = mem_zalloc(sizeof *c);
        tp_err own = { 0 };
        entry_name(k[i], i - from, c->entry, sizeof c->entry);
        if (ptx_add(&u, k[i], c->entry, &c->p, &own)) {
            c->c.on = t;
            c->c.name = strdup(k[i]->name);
            c->c.hash = vir_hash(k[i]);
            out[i] = &c->c;
            continue;
        }
        all = false;
        if (err && !err_is_set(err))
            *err = own;
        free(c);
    }
    ptx_text(&u, &b);
    *text = strbuf_take(&b);
    ptx_free(&u);
    return all;
}

/* later: assembled on threads apart, while the caller goes on. */
static bool build(const target *t, const vir *const *k, int n, target_code **out, bool later, tp_err *err)
{
    int threads = MAX(pool_threads(), 1), each = (n + threads - 1) / threads,
        nmod = each ? (n + each - 1) / each : 0;
    char **text = mem_zalloc(sizeof *text * (size_t)(nmod + 1));
    cuda_image **img = mem_zalloc(sizeof *img * (size_t)(nmod + 1));
    double start = now_us();
    tp_err first = { 0 };
    bool all = true;
    memset(out, 0, sizeof *out * (size_t)n);
    for (int m = 0; m < nmod; m++)
        all &= write_module(t, k, m * each, MIN(n, (m + 1) * each), out, &text[m], &first);
    if (later)
        cuda_images_later((const char *const *)text, nmod, img);
    else if (!cuda_images((const char *const *)text, nmod, img, all ? &first : NULL))
        all = false;
    double took = (now_us() - start) / MAX(n, 1);
    for (int m = 0; m < nmod; m++) {
        for (int i = m * each; i < MIN(n, (m + 1) * each); i++) {
            cuda_code *c = (cuda_code *)out[i];
            if (c && !img[m]) {
                free((char *)c->c.name), free(c);
                out[i] = NULL;
            } else if (c) {
                c->img = img[m];
                c->c.compile_us = took;
                if (!later)
                    c->c.ncode = c->c.nbytes = img[m]->bin.n;
            }
        }
        free(text[m]);
    }
    free(text), free(img);
    if (!all && err && !err_is_set(err))
        *err = first;
    return all;
}
static bool compile(const target *t, const vir *const *k, int n, target_code **out, tp_err *err)
{
    return build(t, k, n, out, false, err);
}
static bool begin(const target *t, const vir *const *k, int n, target_code **out, tp_err *err)
{
    return build(t, k, n, out, true, err);
}

static bool ready(const target_code *code, bool wait, tp_err *err)
{
    cuda_code *c = (cuda_code *)code;
    bool ok = cuda_image_ready(c->img, wait, err);
    if (ok && !c->c.ncode)
        c->c.ncode = c->c.nbytes = c->img->bin.n;
    else if (!ok && err && err_is_set(err))
        err_note(err, "in kernel '%s'", code->name);
    return ok;
}

/* The function on a device, loaded at its first launch there. */
static cuda_function function_on(cuda_code *c, int device, tp_err *err)
{
    cuda_function f = __atomic_load_n(&c->fn[device], __ATOMIC_ACQUIRE);
    if (f)
        return f;
    if (!ready(&c->c, true, err))
        return NULL;
    pthread_mutex_lock(&loading);
    cuda_module *m = &c->img->module[device];
    if ((*m || cuda_load(device, c->img->bin.p, m, err)) && cuda_find(device, *m, c->entry, &f, err))
        __atomic_store_n(&c->fn[device], f, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&loading);
    return f;
}

bool cuda_launch_rows(const target_code *code, const target_args *a, int64_t lo, int64_t hi, tp_err *err)
{
    cuda_code *c = (cuda_code *)code;
    int device = a->index >= 0 ? a->index : cuda_current_device();
    cuda_function f = function_on(c, device, err);
    uint64_t few[64], *params = few;
    int n = ptx_nparams(&c->p);
    if (!f)
        return false;
    if (n > (int)COUNT(few))
        params = mem_alloc(sizeof *params * (size_t)n);
    ptx_params(&c->p, a->bufs, a->ints, a->flts, lo, hi, params);
    bool ok = cuda_launch(device, f, ptx_blocks(&c->p, a->ints, lo, hi), c->p.threads, params, n,
                          a->queue ? a->queue : cuda_current_queue(device), err);
    if (params != few)
        free(params);
    return ok || err_note(err, "in kernel '%s'", code->name);
}

static bool launch(const target_code *c, const target_args *a, tp_err *err)
{
    return cuda_launch_rows(c, a, 0, a->par, err);
}

/* --- saved code: format, entry, layout, machine code ------------------------------------------------ */
typedef struct saved {
    uint32_t format, size; /* of this struct */
    uint64_t hash;
    char entry[ENTRY];
    ptx_kernel p;
} saved;

static bool save(const target_code *code, strbuf *out, tp_err *err)
{
    const cuda_code *c = (const cuda_code *)code;
    saved s;
    if (!ready(code, true, err))
        return false;
    memset(&s, 0, sizeof s); /* padding too: equal code, equal bytes */
    s.format = FORMAT, s.size = sizeof s, s.hash = code->hash;
    memcpy(s.entry, c->entry, sizeof s.entry);
    memcpy(&s.p, &c->p, sizeof s.p);
    strbuf_addn(out, (const char *)&s, sizeof s);
    strbuf_addn(out, c->img->bin.p, c->img->bin.n);
    return true;
}

static target_code *load(const target *t, const char *name, const void *p, size_t n, tp_err *err)
{
    saved s;
    if (n <= sizeof s) {
        err_set(err, ERR_value, "saved CUDA code of kernel '%s' is cut off", name);
        return NULL;
    }
    memcpy(&s, p, sizeof s);
    if (s.format != FORMAT || s.size != sizeof s || !memchr(s.entry, 0, sizeof s.entry) ||
        s.p.count.n > COUNT(s.p.count.at) || s.p.nlifted < 0 || s.p.nlifted > (int)COUNT(s.p.lifted) ||
        s.p.threads < 32 || s.p.threads > 1024 || s.p.per < 1 || s.p.grid > PTX_tiles ||
        (s.p.grid == PTX_tiles && (s.p.tile < 1 || s.p.tile > s.p.threads))) {
        err_set(err, ERR_value, "saved CUDA code of kernel '%s' is of another version", name);
        return NULL;
    }
    cuda_code *c = mem_zalloc(sizeof *c);
    size_t ncode = n - sizeof s;
    c->img = cuda_image_of(memcpy(mem_alloc(ncode), (const char *)p + sizeof s, ncode), ncode);
    c->p = s.p;
    memcpy(c->entry, s.entry, sizeof c->entry);
    c->c = (target_code){ .on = t,
                          .name = strdup(name),
                          .hash = s.hash,
                          .ncode = c->img->bin.n,
                          .nbytes = c->img->bin.n,
                          .cached = true };
    return &c->c;
}

static void key(const target *t, strbuf *out)
{
    const cuda_props *p = cuda_props_of(-1, NULL);
    strbuf_addf(out, "driver=%d\ncapability=%d.%d\nformat=%d\ncudnn=%lld\nflash=%d\n", cuda_driver_version(),
                p ? p->major : 0, p ? p->minor : 0, FORMAT, (long long)cuda_cudnn_version(),
                cuda_attends(DT_bf16, 64, (tp_device){ DEV_cuda, -1 }));
}

static bool list(const target *t, const vir *k, strbuf *out, tp_err *err)
{
    ptx_unit u = { .opts = options() };
    ptx_kernel p;
    char name[ENTRY];
    entry_name(k, 0, name, sizeof name);
    bool ok = ptx_add(&u, k, name, &p, err);
    if (ok)
        ptx_text(&u, out);
    ptx_free(&u);
    return ok;
}

/* --- recordings: on a queue of the thread's own, as the first queue cannot be recorded ----------------------------- */
typedef struct recording {
    cuda_graph g;
    int device;
} recording;
static _Thread_local cuda_queue aside[CUDA_MAX_DEVICES], before;
static _Thread_local int recorded_on;

static bool record(int index, tp_err *err)
{
    int d = index >= 0 ? index : cuda_current_device();
    if (cuda_recording()) /* by the user: these launches become part of it */
        return err_set(err, ERR_runtime, "launches are being recorded already");
    if ((!aside[d] && !cuda_queue_new(d, &aside[d], err)) || !cuda_record_begin(d, aside[d], err))
        return false;
    recorded_on = d;
    before = cuda_current_queue(d);
    cuda_set_queue(d, aside[d]);
    return true;
}
static void *recorded(tp_err *err)
{
    int d = recorded_on;
    cuda_graph g;
    cuda_set_queue(d, before);
    if (!cuda_record_end(d, aside[d], &g, err))
        return NULL;
    recording *r = mem_alloc(sizeof *r);
    *r = (recording){ g, d };
    return r;
}
static bool replay(void *r, tp_err *err)
{
    const recording *x = r;
    return cuda_graph_launch(x->device, x->g, cuda_current_queue(x->device), err);
}
static void drop(void *r)
{
    recording *x = r;
    cuda_graph_free(x->device, x->g);
    free(x);
}

static const own_kernels own = { .sort = cuda_sort,
                                 .select_room = cuda_select_room,
                                 .select_count = cuda_select_count,
                                 .select_write = cuda_select_write,
                                 .search = cuda_search,
                                 .attend = cuda_attend_row,
                                 .attends_in_place = cuda_attends_in_place };

__attribute__((constructor)) static void offer(void)
{
    ops_own_kernels(DEV_cuda, &own);
    device_register(DEV_cuda, &cuda_device_ops);
    conv_on_device(DEV_cuda, cuda_convolves);
    attention_on_device(DEV_cuda, cuda_attends);
    cuda_at_sync(cuda_late);
}

const target target_cuda = {
    .name = "cuda",
    .level = "",
    .device = DEV_cuda,
    .caps = { .ways = 64, /* 1024 partial results of a long row: 128 threads of 8 neighbours */
              .strip = -1,
              .chunk = 1024,
              .column_chunk = 128, /* few rows are left for a thread: many blocks instead */
              .scatter_chunk = 1024,
              .scatter_ranges = 4096,  /* warps: 132 processors hold 32 blocks each */
              .scatter_row = 128,      /* four floats a lane */
              .park_bytes = INT64_MAX, /* rows are parked in device memory, which the second cache serves */
              .share_worth = 1,
              .share_rows = 1,
              .share_rows_after = 1,
              .parts_worth = 1 << 14,
              .parts_most = 528,
              .parts_least = 8,
              .column_parts = 4096,
              .column_threads = 132 * 2048,
              .few_results = 1 << 15,
              .lanes = 16,
              .gather_bytes = 1,
              .slow_steps = true,
              .attends = true,
              .repeats = true,
              .images_last = true, /* cuDNN turns other images around, before and behind its kernel */
              .softens = true,
              .activates = true,
              .row_align = 8, /* 16 bytes: cuBLASLt's fast kernels */
              .asynchronous = true },
    .available = available,
    .compile = compile,
    .begin = begin,
    .ready = ready,
    .launch = launch,
    .product = cuda_product,
    .product_allocates = cuda_product_allocates,
    .convolve = cuda_convolve,
    .convolve_bytes = cuda_convolve_bytes,
    .attend = cuda_attend,
    .attend_bytes = cuda_attend_bytes,
    .inside = cuda_inside,
    .forget = cuda_forget,
    .record = record,
    .records = cuda_recording,
    .recorded = recorded,
    .replay = replay,
    .drop = drop,
    .save = save,
    .load = load,
    .key = key,
    .list = list,
};
