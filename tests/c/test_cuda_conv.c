/* Where cuDNN is looked for; what it is asked for and what not. */
#include "test.h"
#include "target/cuda/conv.h"
#include "target/cuda/driver.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAKE     TP_BUILD_DIR "/libtaper_fakecuda.so"
#define FAKE_DNN TP_BUILD_DIR "/libtaper_fakecudnn.so"

static const tp_device first = { DEV_cuda, 0 };

/* A process of its own: the library is looked for once. */
static int in_child(int (*body)(void))
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(body());
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int found_beside_packages(void)
{
    char dir[] = "/tmp/taper-packages-XXXXXX", path[200], all[200];
    const char *const parts[] = { "nvidia", "nvidia/cudnn", "nvidia/cudnn/lib" };
    if (!mkdtemp(dir))
        return 1;
    for (size_t i = 0; i < COUNT(parts); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, parts[i]);
        mkdir(path, 0700);
    }
    snprintf(path, sizeof path, "%s/nvidia/cudnn/lib/libcudnn.so.9", dir);
    bool linked = !symlink(FAKE_DNN, path);
    snprintf(all, sizeof all, "/nowhere::%s:/nowhere/else", dir);
    cuda_packages(all);
    bool ok = linked && cuda_cudnn_version() > 0;
    unlink(path);
    for (size_t i = COUNT(parts); i-- > 0;) {
        snprintf(path, sizeof path, "%s/%s", dir, parts[i]);
        rmdir(path);
    }
    rmdir(dir);
    return !ok;
}

static int asked(void)
{
    setenv("TAPER_CUDNN_LIBRARY", FAKE_DNN, 1);
    cuda_use_library(FAKE);
    conv_geom g = {
        2, 4, 6, 2, { 1, 9, 8 }, { 1, 5, 4 }, { 1, 3, 3 }, { 1, 2, 2 }, { 0, 1, 1 }, { 1, 1, 1 }
    };
    bool ok = true;
    for (int k = 0; k < CONV_KINDS; k++) {
        ok &= cuda_convolves((conv_kind)k, DT_bf16, &g, first);
        ok &= cuda_convolves((conv_kind)k, DT_f32, NULL, first);
        ok &= !cuda_convolves((conv_kind)k, DT_f64, &g, first) &&
              !cuda_convolves((conv_kind)k, DT_f64, NULL, first);
    }
    conv_geom bad = g;
    bad.out[1] = 4; /* fewer windows than the image has */
    ok &= !cuda_convolves(CONV_forward, DT_f32, &bad, first);
    bad = g, bad.n = 0;
    ok &= !cuda_convolves(CONV_forward, DT_f32, &bad, first);
    bad = g, bad.n = (int64_t)1 << 30; /* more elements than 32 bits count */
    ok &= !cuda_convolves(CONV_forward, DT_f32, &bad, first);
    bad = g, bad.groups = 3;
    ok &= !cuda_convolves(CONV_forward, DT_f32, &bad, first);
    return !ok;
}

static int switched_off(void)
{
    setenv("TAPER_CUDNN_LIBRARY", FAKE_DNN, 1);
    setenv("TAPER_CONVOLUTIONS", "own", 1);
    return cuda_cudnn_version() != 0;
}

TEST(cuda_conv_library)
{
    unsetenv("TAPER_CUDNN_LIBRARY");
    unsetenv("TAPER_CUDA_LIBRARY");
    CHECK_INT(in_child(found_beside_packages), 0);
    CHECK_INT(in_child(switched_off), 0);
}
TEST(cuda_conv_asked) { CHECK_INT(in_child(asked), 0); }
