/* cc.c - emitted C through the system's compiler into a loaded library; leaves no files behind. */
#define _GNU_SOURCE
#include "target/c/c.h"
#include "base/file.h"
#include "base/proc.h"
#include "ops/host.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SO_LIMIT = 256 << 20, MAX_WORDS = 16 };

const char *gen_cc_name(void)
{
    const char *cc = getenv("CC");
    return cc && *cc ? cc : "cc";
}

/* One run of the compiler; status as of the process. */
typedef enum { FOR_here, FOR_others, AS_text } cc_kind;
static bool run_cc(const char *src, const char *so, const char *flags, cc_kind kind, proc_result *r,
                   tp_err *err)
{
    char *words = mem_strdup(gen_cc_name()), *save = NULL;
    const char *argv[MAX_WORDS + 20];
    int n = 0;
    for (char *w = strtok_r(words, " \t", &save); w && n < MAX_WORDS; w = strtok_r(NULL, " \t", &save))
        argv[n++] = w; /* CC="ccache gcc" is common */
    if (!n)
        argv[n++] = "cc";
    argv[n++] = flags ? flags : "-O2";
    if (kind == FOR_here)
        argv[n++] = "-march=native";
    static const char *const rest[] = {
        "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-fno-math-errno", "-w", "-fPIC"
    };
    for (size_t i = 0; i < COUNT(rest); i++)
        argv[n++] = rest[i];
    argv[n++] = kind == AS_text ? "-S" : "-shared";
    argv[n++] = "-o";
    argv[n++] = so;
    argv[n++] = src;
    if (kind != AS_text)
        argv[n++] = "-lm";
    argv[n] = NULL;
    bool ok = proc_run(&(proc_spec){ .argv = argv, .timeout_ms = 120000, .interrupted = host_interrupted }, r,
                       err);
    free(words);
    return ok;
}

static bool build(const char *text, const char *flags, cc_kind kind, strbuf *so, tp_err *err)
{
    bool ok = false;
    proc_result r = { 0 };
    char *dir = file_temp_dir(NULL, "taper-cc-", err), *src = NULL, *lib = NULL, *bytes = NULL;
    size_t n = 0;
    if (!dir)
        return false;
    src = path_join(dir, "k.c");
    lib = path_join(dir, "k.so");
    if (!file_write(src, text, strlen(text), err) || !run_cc(src, lib, flags, kind, &r, err))
        goto done;
    if (r.status && kind == FOR_here &&
        strstr(strbuf_str(&r.err), "march")) { /* not every compiler knows it */
        proc_result_free(&r);
        r = (proc_result){ 0 };
        if (!run_cc(src, lib, flags, FOR_others, &r, err))
            goto done;
    }
    if (r.timed_out || r.status) {
        strbuf why = { 0 };
        proc_describe(&why, &r);
        const char *text_of = strbuf_str(&r.err);
        err_set(err, ERR_compiler, "the C compiler '%.80s' failed (%s): %.*s", gen_cc_name(),
                strbuf_str(&why), (int)MIN(strcspn(text_of, "\n"), (size_t)300), text_of);
        strbuf_free(&why);
        goto done;
    }
    bytes = file_read(lib, SO_LIMIT, &n, err);
    if (bytes)
        strbuf_addn(so, bytes, n);
    ok = bytes != NULL;
done:
    proc_result_free(&r);
    file_remove_tree(dir, NULL);
    free(bytes);
    free(lib);
    free(src);
    free(dir);
    return ok;
}

bool gen_cc_build(const char *text, const char *flags, strbuf *so, tp_err *err)
{
    return build(text, flags, FOR_here, so, err);
}

bool gen_cc_export(const char *text, bool assembly, strbuf *out, tp_err *err)
{
    return build(text, NULL, assembly ? AS_text : FOR_others, out, err);
}

/* Loaded from memory, so that what was checked is what runs; from a private file where memory cannot be mapped so. */
bool gen_so_load(const void *so, size_t n, gen_lib *lib, tp_err *err)
{
    static atomic_uint count;
    char path[128] = "/proc/self/fd";
    *lib = (gen_lib){ NULL };
    int fd = memfd_create("taper-kernels", MFD_CLOEXEC);
    if (fd >= 0 && fd_write_all(fd, so, n)) {
        /* The loader takes an equal path for the library it has already, so no path comes twice. */
        size_t at = strlen(path);
        for (unsigned c = ++count; c; c >>= 1, at += 2)
            memcpy(path + at, c & 1 ? "/." : "//", 3);
        snprintf(path + at, sizeof path - at, "/%d", fd);
        lib->dl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (fd >= 0)
        close(fd);
    if (lib->dl)
        return true;
    char *dir = file_temp_dir(NULL, "taper-so-", err), *file = dir ? path_join(dir, "k.so") : NULL;
    if (file && file_write(file, so, n, err)) {
        lib->dl = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        if (!lib->dl)
            err_set(err, ERR_compiler, "cannot load compiled kernels: %s", dlerror());
    }
    if (dir)
        file_remove_tree(dir, NULL);
    free(file);
    free(dir);
    return lib->dl != NULL;
}

bool gen_cc_load(const char *text, const char *flags, gen_lib *lib, tp_err *err)
{
    strbuf so = { 0 };
    *lib = (gen_lib){ NULL };
    bool ok = gen_cc_build(text, flags, &so, err) && gen_so_load(so.s, so.n, lib, err);
    strbuf_free(&so);
    return ok;
}

vir_fn gen_lib_find(const gen_lib *lib, const char *name)
{
    vir_fn fn;
    *(void **)&fn = dlsym(lib->dl, name);
    return fn;
}

void gen_lib_free(gen_lib *lib)
{
    if (lib->dl)
        dlclose(lib->dl);
    lib->dl = NULL;
}
