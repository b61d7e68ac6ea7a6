/* kept.c - see kept.h. */
#include "target/cuda/kept.h"
#include "base/digest.h"
#include "base/map.h"
#include "target/disk.h"
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static map functions; /* device, entry, form -> cuda_function */

static int key_of(int device, const cuda_kept *k, char *key, size_t n)
{
    return snprintf(key, n, "%d %s %u", device, k->entry, k->form);
}

/* What machine code on disk is of: the text, and what it was assembled with and for. */
typedef struct stored {
    char hex[DIGEST_HEX];
    strbuf config;
    disk_item it;
} stored;
static void stored_init(stored *s, int device, const cuda_kept *k, const char *text)
{
    const cuda_props *p = cuda_props_of(device, NULL);
    *s = (stored){ 0 };
    digest_of(DIGEST_sha256, text, strlen(text), s->hex);
    disk_config(&s->config);
    strbuf_addf(&s->config, "driver=%d\ncapability=%d.%d\n", cuda_driver_version(), p ? p->major : 0,
                p ? p->minor : 0);
    s->it = (disk_item){ "kernel", s->hex, strbuf_str(&s->config), k->entry };
}

static bool load(int device, const cuda_kept *k, const void *code, cuda_function *f, tp_err *err)
{
    cuda_module m;
    return cuda_load(device, code, &m, err) && cuda_find(device, m, k->entry, f, err);
}

static bool load_stored(int device, const cuda_kept *k, const char *text, cuda_function *f)
{
    stored s;
    strbuf code = { 0 };
    char why[DISK_WHY];
    tp_err bad = { 0 };
    stored_init(&s, device, k, text);
    bool ok = disk_get(&s.it, &code, why);
    if (ok && !load(device, k, code.s, f, &bad)) {
        disk_refuse(&s.it, bad.msg);
        ok = false;
    }
    strbuf_free(&code);
    strbuf_free(&s.config);
    return ok;
}

static void store(int device, const cuda_kept *k, const char *text, const cuda_cubin *bin)
{
    stored s;
    stored_init(&s, device, k, text);
    disk_put(&s.it, bin->p, bin->n);
    strbuf_free(&s.config);
}

/* Those of k at todo[0..n), from the disk or assembled. With the lock. */
static bool make(int device, const cuda_kept *k, const int *todo, int n, cuda_function *out, tp_err *err)
{
    strbuf b[CUDA_KEPT_MOST] = { 0 };
    const char *text[CUDA_KEPT_MOST];
    cuda_cubin bin[CUDA_KEPT_MOST] = { 0 };
    int at[CUDA_KEPT_MOST], m = 0;
    for (int i = 0; i < n; i++) {
        const cuda_kept *x = &k[todo[i]];
        x->write(&b[i], x->form);
        if (!load_stored(device, x, strbuf_str(&b[i]), &out[todo[i]]))
            at[m] = todo[i], text[m++] = strbuf_str(&b[i]);
    }
    bool ok = !m || cuda_assemble(device, text, m, bin, err);
    for (int i = 0; i < m; i++) {
        ok = ok && load(device, &k[at[i]], bin[i].p, &out[at[i]], err);
        if (ok)
            store(device, &k[at[i]], text[i], &bin[i]);
        free(bin[i].p);
    }
    for (int i = 0; i < n; i++) {
        char key[96];
        if (ok)
            map_putn(&functions, key, (size_t)key_of(device, &k[todo[i]], key, sizeof key), out[todo[i]]);
        strbuf_free(&b[i]);
    }
    return ok;
}

bool cuda_kept_get(int device, const cuda_kept *k, int n, cuda_function *out, tp_err *err)
{
    int todo[CUDA_KEPT_MOST], m = 0;
    char key[96];
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n; i++)
        if (!(out[i] = map_getn(&functions, key, (size_t)key_of(device, &k[i], key, sizeof key))))
            todo[m++] = i;
    bool ok = !m || make(device, k, todo, m, out, err);
    pthread_mutex_unlock(&lock);
    return ok || err_note(err, "in the kernels of '%s'", k->entry);
}
