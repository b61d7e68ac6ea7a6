/* image.c - see image.h. Threads apart end with the process: whoever exits waits until each is done with the text at hand, as the
 * driver must not go away below it. A forked child has none of them, and cannot use the driver. */
#include "target/cuda/image.h"
#include "base/map.h"
#include "base/pool.h"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { IMAGE_pending, IMAGE_ready, IMAGE_failed };

typedef struct job { /* texts that threads take one after the other */
    char **text;     /* owned */
    cuda_image **img;
    int n, next, users, device;
} job;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;
static map images;  /* text -> image */
static int threads; /* at work */
static bool stopping;

static int state_of(const cuda_image *m) { return __atomic_load_n(&m->state, __ATOMIC_ACQUIRE); }

static void stop(void)
{
    pthread_mutex_lock(&lock);
    stopping = true;
    pthread_cond_broadcast(&done);
    while (threads)
        pthread_cond_wait(&done, &lock);
    pthread_mutex_unlock(&lock);
}
static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }
static void in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&done, NULL);
    threads = 0;
}
static void set_up(void)
{
    pthread_atfork(before_fork, after_fork, in_child);
    atexit(stop); /* the driver is there already, so that its own end comes after this */
}

static void finish(cuda_image *m, const cuda_cubin *bin, const tp_err *why)
{
    pthread_mutex_lock(&lock);
    if (bin->p)
        m->bin = *bin;
    else
        m->why = *why;
    __atomic_store_n(&m->state, bin->p ? IMAGE_ready : IMAGE_failed, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&done);
    pthread_mutex_unlock(&lock);
}

/* The image of each text; those that nobody has begun become the caller's to assemble: fresh[i]. A text that failed is tried again. */
static void find(const char *const *text, int n, cuda_image **out, bool *fresh)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n; i++) {
        size_t len = strlen(text[i]);
        out[i] = map_getn(&images, text[i], len);
        fresh[i] = !out[i] || state_of(out[i]) == IMAGE_failed;
        if (!fresh[i])
            continue;
        out[i] = mem_zalloc(sizeof *out[i]);
        out[i]->pid = (int)getpid();
        map_putn(&images, text[i], len, out[i]);
    }
    pthread_mutex_unlock(&lock);
}

bool cuda_images(const char *const *text, int n, cuda_image **out, tp_err *err)
{
    bool *fresh = mem_zalloc((size_t)n + 1), ok = true;
    const char **todo = mem_zalloc(sizeof *todo * (size_t)(n + 1));
    cuda_cubin *bin = mem_zalloc(sizeof *bin * (size_t)(n + 1));
    tp_err why = { 0 };
    int m = 0;
    find(text, n, out, fresh);
    for (int i = 0; i < n; i++)
        if (fresh[i])
            todo[m++] = text[i];
    if (m)
        cuda_assemble(-1, todo, m, bin, &why);
    m = 0;
    for (int i = 0; i < n; i++)
        if (fresh[i])
            finish(out[i], &bin[m++], &why);
    for (int i = 0; i < n; i++)
        if (!cuda_image_ready(out[i], true, ok ? err : NULL)) {
            ok = false;
            out[i] = NULL;
        }
    free(fresh), free(todo), free(bin);
    return ok;
}

/* --- threads apart ------------------------------------------------------------------------------------------------ */
static void job_done(job *j)
{
    if (__atomic_sub_fetch(&j->users, 1, __ATOMIC_ACQ_REL))
        return;
    for (int i = 0; i < j->n; i++)
        free(j->text[i]);
    free(j->text), free(j->img), free(j);
}

static void work(job *j)
{
    int i;
    while (!__atomic_load_n(&stopping, __ATOMIC_ACQUIRE) &&
           (i = __atomic_fetch_add(&j->next, 1, __ATOMIC_RELAXED)) < j->n) {
        cuda_cubin bin = { 0 };
        tp_err why = { 0 };
        cuda_assemble(j->device, (const char *const *)&j->text[i], 1, &bin, &why);
        finish(j->img[i], &bin, &why);
    }
    job_done(j);
}

static void *apart(void *arg)
{
    work(arg);
    pthread_mutex_lock(&lock);
    threads--;
    pthread_cond_broadcast(&done);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static bool start_thread(job *j)
{
    pthread_mutex_lock(&lock);
    bool ok = !stopping;
    if (ok) {
        threads++;
        j->users++;
    }
    pthread_mutex_unlock(&lock);
    if (!ok || thread_apart(apart, j))
        return ok;
    pthread_mutex_lock(&lock);
    threads--;
    pthread_mutex_unlock(&lock);
    __atomic_sub_fetch(&j->users, 1, __ATOMIC_ACQ_REL);
    return false;
}

void cuda_images_later(const char *const *text, int n, cuda_image **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    bool *fresh = mem_zalloc((size_t)n + 1), any = false;
    job *j = mem_zalloc(sizeof *j);
    pthread_once(&once, set_up);
    j->text = mem_zalloc(sizeof *j->text * (size_t)(n + 1));
    j->img = mem_zalloc(sizeof *j->img * (size_t)(n + 1));
    j->users = 1;
    j->device = cuda_current_device();
    find(text, n, out, fresh);
    for (int i = 0; i < n; i++)
        if (fresh[i]) {
            j->text[j->n] = mem_strdup(text[i]);
            j->img[j->n++] = out[i];
        }
    for (int i = MIN(pool_threads(), j->n); i > 0; i--)
        any |= start_thread(j);
    if (any)
        job_done(j);
    else /* no thread is to be had: now */
        work(j);
    free(fresh);
}

bool cuda_image_ready(cuda_image *m, bool wait, tp_err *err)
{
    int state = state_of(m);
    if (TP_LIKELY(state == IMAGE_ready))
        return true;
    if (state == IMAGE_pending && m->pid != (int)getpid())
        return err_set(err, ERR_runtime,
                       "CUDA code was being assembled when this process was forked, and is not finished "
                       "here. Start processes "
                       "with the 'spawn' method, or set TAPER_TIERS=0");
    pthread_mutex_lock(&lock);
    while ((state = m->state) == IMAGE_pending && wait && !stopping)
        pthread_cond_wait(&done, &lock);
    bool stopped = stopping;
    pthread_mutex_unlock(&lock);
    if (state == IMAGE_failed && err)
        *err = m->why;
    if (state == IMAGE_pending && wait && stopped)
        err_set(err, ERR_runtime, "the process is ending: CUDA code is not assembled any more");
    return state == IMAGE_ready;
}

cuda_image *cuda_image_of(void *p, size_t n)
{
    cuda_image *m = mem_zalloc(sizeof *m);
    m->bin = (cuda_cubin){ p, n };
    m->state = IMAGE_ready;
    return m;
}
