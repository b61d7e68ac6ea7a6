/* The CUDA driver's wrapper, against a library that runs kernels in the PTX interpreter; and the cache of device memory. */
#include "test.h"
#include "ptx_cases.h"
#include "target/cuda/cuda.h"
#include "target/cuda/driver.h"
#include <sys/wait.h>
#include <unistd.h>

#define FAKE TP_BUILD_DIR "/libtaper_fakecuda.so"

/* --- the pool ----------------------------------------------------------------------------------------- */
typedef struct {
    uint64_t next;
    size_t held, limit;
    size_t sizes[64];
    uint64_t at[64];
    int n, waits;
} machine;
static uint64_t take(void *ctx, size_t n)
{
    machine *m = ctx;
    if (m->held + n > m->limit)
        return 0;
    m->held += n;
    m->at[m->n] = m->next, m->sizes[m->n++] = n;
    m->next += n + 4096;
    return m->at[m->n - 1];
}
static void give(void *ctx, uint64_t p)
{
    machine *m = ctx;
    for (int i = 0; i < m->n; i++)
        if (m->at[i] == p) {
            m->held -= m->sizes[i];
            m->n--, m->at[i] = m->at[m->n], m->sizes[i] = m->sizes[m->n];
            return;
        }
    test_fail(__FILE__, __LINE__, "freed what was not allocated");
}
static void wait_all(void *ctx) { ((machine *)ctx)->waits++; }

TEST(cuda_pool)
{
    static const cuda_pool_ops ops = { take, give, wait_all };
    machine m = { .next = 1 << 20, .limit = 64 << 20 };
    int q1, q2;
    cuda_pool *p = cuda_pool_new(&ops, &m);
    uint64_t a = cuda_pool_alloc(p, 1000, &q1), b = cuda_pool_alloc(p, 1000, &q1),
             c = cuda_pool_alloc(p, 5 << 20, &q1);
    CHECK(a && b == a + 1024 && c);
    CHECK_INT(m.n, 2); /* small ones share a segment */
    CHECK_INT(cuda_pool_size(p, a), 1024);
    cuda_pool_free(p, a);
    CHECK(cuda_pool_alloc(p, 700, &q1) == a); /* the same queue gets it back */
    cuda_pool_free(p, a);
    uint64_t d = cuda_pool_alloc(p, 700, &q2); /* another one does not */
    CHECK(d && d != a && m.n == 3);
    cuda_pool_stats s = cuda_pool_stats_of(p);
    CHECK_INT(s.reserved, (2 + 20 + 2) << 20);
    CHECK_INT(s.allocated, 1024 + (5 << 20) + 1024);
    CHECK_INT(s.nsegment, 3);
    uint64_t e = cuda_pool_alloc(p, 38 << 20, &q1);
    CHECK(e && m.waits == 0);
    cuda_pool_free(p, c);
    CHECK(cuda_pool_alloc(p, 50 << 20, &q1) == 0); /* not even with what is free */
    CHECK_INT(m.waits, 1);
    cuda_pool_free(p, e);
    e = cuda_pool_alloc(p, 60 << 20, &q2); /* what another queue freed is given back to the device first */
    CHECK(e && m.waits == 2);
    s = cuda_pool_stats_of(p);
    CHECK_INT(s.nretry, 2);
    CHECK_INT(s.noom, 1);
    CHECK(!cuda_pool_alloc(p, (size_t)-1, &q1));
    cuda_pool_free(p, e), cuda_pool_free(p, b), cuda_pool_free(p, d);
    cuda_pool_empty(p);
    CHECK_INT(m.held, 0);
    /* random requests never overlap, and all pieces join again */
    uint64_t at[40] = { 0 }, seed = 7;
    size_t size[40];
    for (int i = 0; i < 4000; i++) {
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        int j = (int)(seed >> 33) % 40;
        if (at[j]) {
            cuda_pool_free(p, at[j]);
            at[j] = 0;
            continue;
        }
        size[j] = 1 + (seed >> 40) % ((seed >> 20) % 8 ? 300000 : 3000000);
        at[j] = cuda_pool_alloc(p, size[j], seed >> 50 & 1 ? &q1 : &q2);
        for (int o = 0; o < 40; o++)
            if (o != j && at[o] && at[j] && at[o] < at[j] + size[j] && at[j] < at[o] + size[o])
                test_fail(__FILE__, __LINE__, "two blocks overlap");
    }
    for (int j = 0; j < 40; j++)
        if (at[j])
            cuda_pool_free(p, at[j]);
    s = cuda_pool_stats_of(p);
    CHECK_INT(s.allocated, 0);
    CHECK_INT(s.inactive, 0);
    at[0] = cuda_pool_alloc(p, 100, &q1);
    cuda_pool_delete(p);
    CHECK_INT(m.held, 0);
}

/* --- the driver: each in a process of its own, as it is loaded once ------------------------------------ */
static bool says(const tp_err *err, const char *text)
{
    if (strstr(err->msg, text))
        return true;
    test_fail(__FILE__, __LINE__, "'%s' does not say '%s'", err->msg, text);
    return false;
}

static void in_child(bool (*fn)(void), const char *name)
{
    fflush(NULL);
    pid_t pid = fork();
    int status = 1;
    if (!pid)
        _exit(fn() ? 0 : 1);
    waitpid(pid, &status, 0);
    if (status)
        test_fail(__FILE__, __LINE__, "%s failed (status %d)", name, status);
}

static bool no_driver(void)
{
    tp_err err = { 0 }, again = { 0 };
    cuda_use_library("/nowhere/libcuda.so.1");
    return !cuda_available() && !cuda_init(&err) && says(&err, "no NVIDIA driver was found") &&
           cuda_device_count() == 0 && !cuda_alloc(0, 8, &again) && says(&again, "device='cpu'");
}
static bool old_driver(void)
{
    tp_err err = { 0 };
    setenv("FAKE_CUDA_VERSION", "11040", 1);
    cuda_use_library(FAKE);
    return !cuda_init(&err) && says(&err, "too old. It supports CUDA 11.4, Taper needs 12.0");
}
static bool no_device(void)
{
    tp_err err = { 0 };
    setenv("FAKE_CUDA_DEVICES", "0", 1);
    cuda_use_library(FAKE);
    return !cuda_init(&err) && says(&err, "finds no NVIDIA GPU");
}
static bool wrong_device(void)
{
    tp_err err = { 0 }, old = { 0 };
    cuda_use_library(FAKE);
    if (cuda_use(3, &err) || !says(&err, "cuda:3 does not exist: this machine has 1 CUDA device"))
        return false;
    setenv("FAKE_CUDA_MAJOR", "7", 1);
    return !cuda_use(0, &old) && says(&old, "needs 8.0 or newer");
}
static bool no_memory(void)
{
    tp_err err = { 0 };
    setenv("FAKE_CUDA_MEMORY", "50000000", 1);
    cuda_use_library(FAKE);
    void *x = cuda_alloc(0, 30 << 20, &err), *y = cuda_alloc(0, 30 << 20, &err);
    bool ok = x && !y && err.kind == ERR_oom &&
              says(&err, "CUDA out of memory. Tried to allocate 30.00 MiB") &&
              says(&err, "Taper holds 30.00 MiB: 30.00 MiB in use");
    cuda_free(0, x);
    err = (tp_err){ 0 };
    return ok && cuda_alloc(0, 40 << 20, &err); /* nothing is lost */
}
static bool forked(void)
{
    tp_err err = { 0 };
    cuda_use_library(FAKE);
    if (!cuda_init(&err))
        return false;
    pid_t pid = fork();
    int status = 1;
    if (!pid) {
        bool ok = !cuda_init(&err) && says(&err, "forked process") && says(&err, "'spawn'");
        _exit(ok ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    return status == 0 && cuda_init(&err);
}
static bool bad_text(void)
{
    tp_err err = { 0 };
    const char *text = ".version 7.8\n.target sm_90\n.address_size 64\nnonsense\n";
    cuda_cubin c;
    cuda_use_library(FAKE);
    return !cuda_assemble(0, &text, 1, &c, &err) && says(&err, "CUDA_ERROR_INVALID_PTX") &&
           strstr(err.notes, "directive");
}
static bool fault(void)
{
    tp_err err = { 0 };
    const char *text =
        ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry k(\n\t.param .s64 n)\n{\n\tret;\n}\n";
    cuda_cubin c;
    cuda_module m;
    cuda_function f;
    uint64_t n = 1;
    setenv("FAKE_CUDA_FAULT", "719", 1);
    cuda_use_library(FAKE);
    bool ok = cuda_assemble(0, &text, 1, &c, &err) && cuda_load(0, c.p, &m, &err) &&
              cuda_find(0, m, "k", &f, &err) &&
              cuda_launch(0, f, 1, 32, &n, 1, NULL,
                          &err); /* asynchronous: the fault shows at the next sync */
    return ok && !cuda_sync(0, &err) && says(&err, "CUDA_ERROR_LAUNCH_FAILED");
}
static bool copies(void)
{
    tp_err err = { 0 };
    char in[100], out[100];
    cuda_use_library(FAKE);
    char *x = cuda_alloc(0, 100, &err), *y = cuda_alloc(0, 100, &err), *pin = cuda_pinned(100, &err);
    cuda_queue q;
    if (!x || !y || !pin || !cuda_queue_new(0, &q, &err))
        return false;
    memset(in, 7, sizeof in), memset(pin, 9, 100);
    cuda_set_queue(0, q);
    bool ok = cuda_current_queue(-1) == q && cuda_copy_in(0, x, in, 100, &err) &&
              cuda_copy(0, y, x, 100, &err) && cuda_copy_out(0, out, y, 100, &err) && out[99] == 7 &&
              cuda_copy_in(0, x + 50, pin + 50, 50, &err) && cuda_fill(0, x, 3, 10, &err) &&
              cuda_copy_out(0, out, x, 100, &err) && out[9] == 3 && out[10] == 7 && out[50] == 9;
    cuda_set_queue(0, NULL);
    cuda_queue_free(0, q), cuda_free(0, x), cuda_free(0, y), cuda_pinned_free(pin);
    return ok;
}

/* y = 1.5 x + 0.25 by code that came from compile or load. */
static bool scales(const target_code *c)
{
    enum { N = 1000 };
    tp_device dev = { DEV_cuda, 0 };
    const device_ops *o = &cuda_device_ops;
    tp_err err = { 0 };
    float x[N], y[N];
    int64_t ints[2] = { 1, N };
    void *bufs[2] = { o->alloc(dev, sizeof x, &err), o->alloc(dev, sizeof x, &err) };
    target_args a = { .bufs = bufs, .ints = ints, .par = 1 };
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    bool ok = bufs[0] && bufs[1] && o->copy(dev, bufs[0], DEVICE_CPU, x, sizeof x, &err) &&
              target_cuda.launch(c, &a, &err) && o->sync(dev, &err) &&
              o->copy(dev, bufs[0], dev, bufs[1], sizeof x, &err) &&
              o->copy(DEVICE_CPU, y, dev, bufs[0], sizeof y, &err);
    for (int i = 0; i < N && ok; i++)
        ok = y[i] == 1.5f * (float)i + 0.25f;
    o->free(dev, bufs[0], sizeof x), o->free(dev, bufs[1], sizeof x);
    return ok && !err_is_set(&err);
}
static bool as_target(void)
{
    enum { N = 6 };
    arena a = { 0 };
    tp_err err = { 0 };
    vir *k[N];
    target_code *code[N];
    strbuf bytes = { 0 }, text = { 0 }, keys = { 0 };
    const char *why = NULL;
    cuda_use_library(FAKE);
    for (int i = 0; i < N; i++)
        k[i] = ptx_cases[i].make(&a), vir_finish(k[i], &err);
    bool ok = target_cuda.available(&target_cuda, &why) &&
              target_cuda.compile(&target_cuda, (const vir *const *)k, N, code, &err) && scales(code[0]) &&
              target_cuda.save(code[0], &bytes, &err) && target_cuda.list(&target_cuda, k[0], &text, &err) &&
              strstr(strbuf_str(&text), ".entry");
    target_code *again = ok ? target_cuda.load(&target_cuda, "scale", bytes.s, bytes.n, &err) : NULL;
    target_cuda.key(&target_cuda, &keys);
    ok = again && scales(again) && strstr(strbuf_str(&keys), "driver=13000");
    tp_err cut = { 0 };
    return ok && !target_cuda.load(&target_cuda, "scale", bytes.s, 40, &cut) && says(&cut, "cut off");
}
/* A kernel without a PTX form is left out, the others are there. */
static bool left_out(void)
{
    arena a = { 0 };
    tp_err err = { 0 };
    vir *k[2] = { ptx_cases[0].make(&a), vir_make(&a, "gamma") };
    target_code *code[2];
    int y = vir_buffer(k[1], VM_f32, VIR_OUT, "y");
    vir_ref i = vir_loop(k[1], LOOP_vector, vir_int(k[1], 0), vir_int_arg(k[1], "n"));
    vir_store(k[1], y, i, vir_call(k[1], "lgamma", vir_cvt(k[1], VT_f32, i), 0), 0);
    vir_end(k[1]);
    vir_finish(k[0], &err), vir_finish(k[1], &err);
    cuda_use_library(FAKE);
    return !target_cuda.compile(&target_cuda, (const vir *const *)k, 2, code, &err) && code[0] && !code[1] &&
           scales(code[0]) && err.kind == ERR_notimpl && says(&err, "'lgamma'");
}
static bool unavailable(void)
{
    const char *why = NULL;
    cuda_use_library("/nowhere/libcuda.so.1");
    return !target_cuda.available(&target_cuda, &why) && why && strstr(why, "no NVIDIA driver");
}

TEST(cuda_target)
{
    in_child(as_target, "as_target"), in_child(left_out, "left_out"), in_child(unavailable, "unavailable");
}

TEST(cuda_driver)
{
    if (access(FAKE, R_OK)) {
        test_fail(__FILE__, __LINE__, "%s was not built", FAKE);
        return;
    }
    in_child(no_driver, "no_driver"), in_child(old_driver, "old_driver"), in_child(no_device, "no_device");
    in_child(wrong_device, "wrong_device"), in_child(no_memory, "no_memory"), in_child(forked, "forked");
    in_child(bad_text, "bad_text"), in_child(fault, "fault"), in_child(copies, "copies");
}

/* The program for machines with a GPU, on the same library. */
TEST(cuda_gputest)
{
    /* the stand-in keeps modules and events for ever, as a driver may */
    if (system("ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 " TP_BUILD_DIR "/taper_gputest --driver " FAKE
               " --small --kernels 16 >" TP_BUILD_DIR "/gputest.log 2>&1"))
        test_fail(__FILE__, __LINE__, "see %s/gputest.log", TP_BUILD_DIR);
    int rc = system(TP_BUILD_DIR "/taper_gputest --driver /nowhere/libcuda.so.1 >/dev/null 2>&1");
    CHECK_INT(WEXITSTATUS(rc), 77);
}
