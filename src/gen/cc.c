/* cc.c - emitted C through the system's compiler into a loaded library; leaves no files behind. */
#include "gen/c.h"
#include "base/file.h"
#include "base/proc.h"
#include <dlfcn.h>
#include <stdlib.h>

bool gen_cc_load(const char *text, const char *flags, gen_lib *lib, tp_err *err)
{
    bool ok = false;
    proc_result r = { 0 };
    const char *cc = getenv("CC");
    char *dir = file_temp_dir(NULL, "taper-cc-", err), *src = NULL, *so = NULL;
    *lib = (gen_lib){ NULL };
    if (!dir)
        return false;
    src = path_join(dir, "k.c");
    so = path_join(dir, "k.so");
    const char *argv[] = { cc && *cc ? cc : "cc",
                           flags ? flags : "-O2",
                           "-march=native",
                           "-ffp-contract=off",
                           "-fno-strict-aliasing",
                           "-fwrapv",
                           "-fno-math-errno",
                           "-w",
                           "-shared",
                           "-fPIC",
                           "-o",
                           so,
                           src,
                           "-lm",
                           NULL };
    proc_spec spec = { .argv = argv, .timeout_ms = 120000 };
    if (!file_write(src, text, strlen(text), err) || !proc_run(&spec, &r, err))
        goto done;
    if (r.status) {
        err_set(err, ERR_compiler, "the C compiler '%s' failed: %.400s", argv[0], strbuf_str(&r.err));
        goto done;
    }
    lib->dl = dlopen(so, RTLD_NOW | RTLD_LOCAL);
    if (!lib->dl) {
        err_set(err, ERR_compiler, "cannot load compiled kernels: %s", dlerror());
        goto done;
    }
    ok = true;
done:
    proc_result_free(&r);
    file_remove_tree(dir, NULL);
    free(so);
    free(src);
    free(dir);
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
