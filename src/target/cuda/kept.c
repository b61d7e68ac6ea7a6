/* kept.c - see kept.h. */
#include "target/cuda/kept.h"
#include "base/map.h"
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static map functions; /* device, entry, form -> cuda_function */

static int key_of(int device, const cuda_kept *k, char *key, size_t n)
{
    return snprintf(key, n, "%d %s %u", device, k->entry, k->form);
}

/* Machine code of those at todo[0..n), loaded. With the lock. */
static bool make(int device, const cuda_kept *k, const int *todo, int n, cuda_function *out, tp_err *err)
{
    strbuf b[CUDA_KEPT_MOST] = { 0 };
    const char *text[CUDA_KEPT_MOST];
    cuda_cubin bin[CUDA_KEPT_MOST] = { 0 };
    for (int i = 0; i < n; i++) {
        k[todo[i]].write(&b[i], k[todo[i]].form);
        text[i] = strbuf_str(&b[i]);
    }
    bool ok = cuda_assemble(device, text, n, bin, err);
    for (int i = 0; i < n; i++) {
        cuda_function f = NULL;
        cuda_module m;
        char key[96];
        ok = ok && cuda_load(device, bin[i].p, &m, err) && cuda_find(device, m, k[todo[i]].entry, &f, err);
        if (ok) {
            map_putn(&functions, key, (size_t)key_of(device, &k[todo[i]], key, sizeof key), f);
            out[todo[i]] = f;
        }
        free(bin[i].p);
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
