/* test_device.c - the table of devices: a device whose bytes the process may not touch gets its memory, its copies and its
 * kernels from its row, and a call that has no kernel there is refused. */
#include "ops/op.h"
#include "target/cuda/driver.h"
#include "test.h"
#include <stdlib.h>

/* A device in ordinary memory, with its addresses moved so that a host access would fault. */
enum { FAR = 1 << 30 };
static int64_t alive, copies, kernels;
static char *near(const void *p) { return (char *)((uintptr_t)p - ((uintptr_t)FAR << 20)); }

static void *far_alloc(tp_device d, int64_t nbytes, tp_err *err)
{
    alive++;
    return (void *)((uintptr_t)malloc((size_t)nbytes) + ((uintptr_t)FAR << 20));
}
static void far_free(tp_device d, void *p, int64_t nbytes)
{
    alive--;
    free(near(p));
}
static bool far_copy(tp_device to, void *dst, tp_device from, const void *src, int64_t nbytes, tp_err *err)
{
    copies++;
    memcpy(to.kind == DEV_cuda ? near(dst) : dst, from.kind == DEV_cuda ? near(src) : src, (size_t)nbytes);
    return true;
}
static bool far_fill(tp_device d, void *p, uint8_t byte, int64_t nbytes, tp_err *err)
{
    memset(near(p), byte, (size_t)nbytes);
    return true;
}
static bool far_sync(tp_device d, tp_err *err) { return err_set(err, ERR_runtime, "a late error"); }
static int far_count(void) { return 1; }
static int far_current(void) { return 0; }
static const device_ops far_ops = { "cuda",   false,    far_alloc, far_free,   far_copy,
                                    far_fill, far_sync, far_count, far_current };
static const tp_device FAR_DEVICE = { DEV_cuda, 0 };

static bool far_kernel(op_call *c) /* adds 2 to float vectors, whatever the row */
{
    kernels++;
    const float *x = (const float *)(void *)near(tensor_data(arg_t(c, 0)));
    float *y = (float *)(void *)near(tensor_data(c->res[0]));
    for (int64_t i = 0; i < c->res[0]->numel; i++)
        y[i] = x[i] + 2;
    return true;
}

static void absent(void)
{
    tp_err err = { 0 };
    symint n = 4, none = 0;
    cuda_use_library("/nowhere/libcuda.so.1");
    CHECK(!tensor_new_strided(DT_f32, 1, &n, NULL, FAR_DEVICE, &err));
    CHECK(strstr(err.msg, "CUDA is not available: no NVIDIA driver was found") &&
          strstr(err.msg, "Use device='cpu'"));
    err = (tp_err){ 0 };
    CHECK(!tensor_new_strided(DT_f32, 1, &none, NULL, FAR_DEVICE, &err));
    CHECK(err_is_set(&err));
    err = (tp_err){ 0 };
    CHECK(!device_sync(FAR_DEVICE, &err));
    CHECK(device_sync(DEVICE_CPU, NULL));
}

static void rows(void)
{
    tp_err err = { 0 };
    symint n = 4;
    device_register(DEV_cuda, &far_ops);
    ops_on_device(DEV_cuda, NULL);
    tp_tensor *x = tensor_new(DT_f32, 1, &n, &err), *back = tensor_new(DT_f32, 1, &n, &err);
    tp_tensor *d = tensor_new_strided(DT_f32, 1, &n, NULL, FAR_DEVICE, &err), *v = NULL;
    CHECK(x && back && d && alive == 1);
    CHECK(!tensor_is_fake(d) && (d->storage->flags & ST_device));
    for (int i = 0; i < 4; i++)
        ((float *)tensor_host(x))[i] = (float)i;
    CHECK(tensor_copy(d, x, &err) && tensor_copy(back, d, &err) && copies == 2);
    CHECK(!memcmp(tensor_host(back), tensor_host(x), 16));

    /* a view needs no kernel, anything else does */
    tp_val arg[OP_MAX_PARAMS] = { vT(d), vI(0), vI(1), vI(3), vI(1) }, out[OP_MAX_RETURNS] = { 0 };
    CHECK(ops_call(op_ctx_cur(), OP_slice_Tensor, OPV_fn, arg, out, &err));
    v = out[0].t;
    CHECK(v && v->storage == d->storage && v->numel == 2);
    tp_val one[OP_MAX_PARAMS] = { vT(d) };
    CHECK(!ops_call(op_ctx_cur(), OP_exp, OPV_fn, one, out, &err));
    CHECK_STR(err.msg, "'exp' has no kernel for device 'cuda'; move its arguments to the CPU first");
    err = (tp_err){ 0 };

    /* with one, results are made on the device */
    ops_on_device(DEV_cuda, far_kernel);
    CHECK(ops_call(op_ctx_cur(), OP_exp, OPV_fn, one, out, &err) && kernels == 1);
    CHECK(out[0].t && device_eq(tensor_device(out[0].t), FAR_DEVICE) && alive == 2);
    CHECK(out[0].t && tensor_copy(back, out[0].t, &err));
    CHECK(((float *)tensor_host(back))[3] == 5);
    tensor_unref(out[0].t);

    /* in place, into its own memory */
    CHECK(ops_call(op_ctx_cur(), OP_exp, OPV_inplace, one, out, &err) && out[0].t == d && kernels == 2);
    tensor_unref(d);
    CHECK(tensor_copy(back, d, &err) && ((float *)tensor_host(back))[0] == 2);
    CHECK(!device_sync(FAR_DEVICE, &err));
    CHECK_STR(err.msg, "a late error");

    tensor_unref(v);
    tensor_unref(d);
    tensor_unref(x);
    tensor_unref(back);
    CHECK(alive == 0);
}

/* Each in a process of its own, as they load a driver or replace a row of the table. */
TEST(device_absent) { test_in_child(absent, "absent"); }
TEST(device_rows) { test_in_child(rows, "rows"); }
