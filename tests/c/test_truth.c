/* test_truth.c - formulas that share no code with the kernels: what they give, and what they say of a result of the wrong size; whether
 * random numbers are of their distribution; the last word of a child that is ended. */
#include "base/proc.h"
#include "debug/audit.h"
#include "debug/chance.h"
#include "debug/truth.h"
#include "test.h"
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

static tp_tensor *counted(dtype dt, int ndim, const symint *size)
{
    tp_tensor *t = tensor_new(dt, ndim, size, NULL);
    for (int64_t k = 0; k < t->numel; k++)
        elem_set_f(dt, tensor_elem(t, k), (double)k);
    return t;
}
static double is(const tp_tensor *t, int64_t k) { return elem_get_f((dtype)t->dt, tensor_elem(t, k)); }

TEST(truth_of_moved_dimensions)
{
    tp_tensor *x = counted(DT_f64, 3, (symint[]){ 2, 3, 4 }),
              *like = counted(DT_f64, 3, (symint[]){ 4, 3, 2 }),
              *no = counted(DT_f64, 3, (symint[]){ 4, 2, 3 });
    tp_val a[3] = { vT(x), vIs(((symint[]){ 0, 1 }), 2), vIs(((symint[]){ -1, -2 }), 2) };
    tp_tensor *t = truth_of(OP_movedim_intlist, a, 0, like), *u = truth_of(OP_movedim_intlist, a, 0, no);
    CHECK(t && is(t, 0) == 0 && is(t, 1) == 12 && is(t, 2) == 4 && is(t, 6) == 1);
    CHECK(u && isnan(is(u, 0))); /* there is no result of that size */
    tensor_unref(t);
    tensor_unref(u);
    tensor_unref(x);
    tensor_unref(like);
    tensor_unref(no);
}

TEST(truth_of_composites)
{
    tp_tensor *x = counted(DT_f64, 2, (symint[]){ 1, 3 }), *y = counted(DT_f64, 2, (symint[]){ 1, 3 }),
              *two = counted(DT_f64, 2, (symint[]){ 1, 6 }), *nine = counted(DT_f64, 2, (symint[]){ 1, 9 }),
              *col = counted(DT_f64, 1, (symint[]){ 2 });
    elem_set_f(DT_f64, tensor_elem(y, 0), 5);
    tp_val a[3] = { vT(x), vT(y), vNone }, b[2] = { vT(col), vT(x) };
    tp_tensor *cross = truth_of(OP_cross, a, 0, x), *kron = truth_of(OP_kron, a, 0, nine),
              *outer = truth_of(OP_kron, b, 0, two);
    /* (0, 1, 2) x (5, 1, 2) */
    CHECK(cross && is(cross, 0) == 0 && is(cross, 1) == 10 && is(cross, 2) == -5);
    CHECK(kron && is(kron, 3) == 5 && is(kron, 4) == 1 && is(kron, 8) == 4);
    CHECK(outer && is(outer, 2) == 0 && is(outer, 5) == 2);
    tp_tensor *const all[] = { x, y, two, nine, col, cross, kron, outer };
    for (size_t i = 0; i < COUNT(all); i++)
        tensor_unref(all[i]);
}

TEST(truth_of_types_that_meet)
{
    tp_tensor *x = counted(DT_f32, 1, (symint[]){ 1 }), *n = counted(DT_f64, 0, NULL),
              *like = counted(DT_bool, 1, (symint[]){ 1 }), *u = counted(DT_u8, 1, (symint[]){ 2 });
    elem_set_f(DT_f32, tensor_elem(x, 0), 0.1);
    elem_set_f(DT_f64, tensor_elem(n, 0), 0.1); /* as float32 it is no smaller */
    tp_val a[2] = { vT(x), vT(n) }, s[2] = { vT(u), vNone };
    tp_tensor *t = truth_whole(OP_gt_Tensor, a, 0, like);
    CHECK(t && is(t, 0) == 0);
    CHECK(truth_dtype(OP_sum, s) == DT_i64);
    tp_tensor *const all[] = { x, n, like, u, t };
    for (size_t i = 0; i < COUNT(all); i++)
        tensor_unref(all[i]);
}

TEST(autocast_has_a_list_of_its_own)
{
    char path[] = "/tmp/taper-audit-XXXXXX", text[400] = "";
    int fd = mkstemp(path);
    setenv("TAPER_AUDIT", path, 1);
    audit_cast(OP_mse_loss, DT_f32, DT_bf16);
    audit_cast(OP_mm, DT_bf16, DT_bf16);
    CHECK(read(fd, text, sizeof text - 1) == 0);
    audit_cast(OP_mse_loss, DT_bf16, DT_bf16);
    CHECK(read(fd, text, sizeof text - 1) > 0 && strstr(text, "autocast|mse_loss|") == text &&
          strstr(text, "where it is"));
    unsetenv("TAPER_AUDIT");
    unlink(path);
    close(fd);
}

TEST(truth_of_uneven_parts)
{
    tp_tensor *x = counted(DT_f64, 1, (symint[]){ 8 }), *like = counted(DT_f64, 1, (symint[]){ 3 });
    tp_val a[3] = { vT(x), vI(3), vI(0) };
    tp_tensor *t = truth_of(OP_tensor_split_sections, a, 1, like);
    CHECK(t && is(t, 0) == 3 && is(t, 2) == 5);
    tensor_unref(t);
    tensor_unref(x);
    tensor_unref(like);
}

TEST(truth_of_result_types)
{
    tp_tensor *u = counted(DT_u8, 1, (symint[]){ 2 }), *i = counted(DT_i8, 1, (symint[]){ 2 }),
              *h = counted(DT_f16, 1, (symint[]){ 2 }), *b = counted(DT_bf16, 0, NULL),
              *w = counted(DT_bf16, 1, (symint[]){ 2 });
    CHECK(truth_dtype(OP_add_Tensor, (tp_val[]){ vT(u), vT(i), vI(1) }) == DT_i16);
    CHECK(truth_dtype(OP_mul_Tensor, (tp_val[]){ vT(h), vT(w) }) == DT_f32);
    CHECK(truth_dtype(OP_mul_Tensor, (tp_val[]){ vT(h), vT(b) }) ==
          DT_f16); /* without dimensions it does not count */
    CHECK(truth_dtype(OP_mul_Tensor, (tp_val[]){ vT(i), vT(b) }) == DT_bf16);
    CHECK(truth_dtype(OP_sin, (tp_val[]){ vT(u) }) == DT_none);
    tp_tensor *const all[] = { u, i, h, b, w };
    for (size_t k = 0; k < COUNT(all); k++)
        tensor_unref(all[k]);
}

TEST(truth_of_a_transform)
{
    tp_tensor *x = counted(DT_f64, 1, (symint[]){ 4 }), *like = tensor_new(DT_c128, 1, (symint[]){ 3 }, NULL);
    tp_val a[4] = { vT(x), vIs(((symint[]){ 0 }), 1), vI(1), vB(true) };
    tp_tensor *t = truth_complex(OP__fft_r2c, a, 0, like);
    double v[2];
    CHECK(t != NULL);
    elem_get_c(DT_c128, tensor_elem(t, 0), v);
    CHECK(fabs(v[0] - 3) < 1e-12 && fabs(v[1]) < 1e-12);
    elem_get_c(DT_c128, tensor_elem(t, 1), v);
    CHECK(fabs(v[0] + 1) < 1e-12 && fabs(v[1] - 1) < 1e-12);
    tensor_unref(t);
    tensor_unref(x);
    tensor_unref(like);
}

/* Of another call than the one that draws: numbers of the wrong distribution. */
TEST(draws_are_of_their_distribution)
{
    strbuf why = { 0 };
    tp_tensor *x = counted(DT_f32, 1, (symint[]){ 500 });
    for (int64_t k = 0; k < x->numel; k++)
        elem_set_f(DT_f32, tensor_elem(x, k), 0.25);
    CHECK(!chance_wrong(op_ctx_cur(), OP_bernoulli, (tp_val[]){ vT(x), vNone }, &why));
    CHECK(!chance_wrong(op_ctx_cur(), OP_uniform_, (tp_val[]){ vT(x), vF(2), vF(5), vNone }, &why));
    CHECK(!chance_wrong(op_ctx_cur(), OP_exponential_, (tp_val[]){ vT(x), vF(3), vNone }, &why));
    CHECK(!chance_wrong(op_ctx_cur(), OP_dropout, (tp_val[]){ vT(x), vF(0.3), vB(true) }, &why));
    CHECK(why.n == 0);
    tensor_unref(x);
    strbuf_free(&why);
}

static void says_where(int sig)
{
    static const char text[] = "here";
    if (write(2, text, 4) < 0)
        _exit(2);
    _exit(3);
}
static int waits(void *arg)
{
    signal(SIGABRT, says_where);
    __atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 1000; i++)
        pause();
    return 0;
}
static bool is_waiting(void *arg) { return __atomic_load_n((int *)arg, __ATOMIC_ACQUIRE); }
TEST(what_is_ended_says_where_it_was)
{
    proc_result r = { 0 };
    int *ready = mmap(NULL, sizeof *ready, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(ready != MAP_FAILED);
    CHECK(!proc_run(
        &(proc_spec){
            .fn = waits, .arg = ready, .interrupted = is_waiting, .data = ready, .last_word = SIGABRT },
        &r, NULL));
    CHECK(r.interrupted && !strcmp(strbuf_str(&r.err), "here"));
    munmap(ready, sizeof *ready);
    proc_result_free(&r);
}
