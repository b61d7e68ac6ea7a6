/* cbuild.c - C text of kernels to functions. */
#include "run/cbuild.h"
#include "events/events.h"
#include "gen/c.h"
#include <stdio.h>

/* By structure, so that a library serves equal kernels of other graphs and processes. */
static void symbol_of(const vir *k, char *buf, size_t n)
{
    snprintf(buf, n, "taper_%016llx", (unsigned long long)vir_hash(k));
}

bool cbuild_kernels(const vir *const *k, int n, vir_fn *fn, tp_err *err)
{
    gen_c_unit u = { 0 };
    strbuf text = { 0 }, so = { 0 };
    gen_lib lib = { NULL };
    char name[40];
    bool ok = false;
    for (int i = 0; i < n; i++) {
        symbol_of(k[i], name, sizeof name);
        gen_c_kernel(&u, k[i], name);
    }
    gen_c_text(&u, &text);
    if (!gen_cc_build(strbuf_str(&text), NULL, &so, err) || !gen_so_load(so.s, so.n, &lib, err))
        goto done;
    ok = true;
    for (int i = 0; i < n && ok; i++) {
        symbol_of(k[i], name, sizeof name);
        fn[i] = gen_lib_find(&lib, name);
        if (!fn[i])
            ok = err_set(err, ERR_compiler, "the built library has no '%s'", name);
    }
    if (ok && ev_log_on(EVC_inductor, EV_DEBUG))
        ev_log(EVC_inductor, EV_DEBUG, NULL, "%d kernels built as C by '%s': %zu bytes", n, gen_cc_name(),
               so.n);
    if (!ok)
        gen_lib_free(&lib);
done:
    gen_c_free(&u);
    strbuf_free(&text);
    strbuf_free(&so);
    return ok;
}
