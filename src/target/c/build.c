/* build.c - C text of kernels to functions. */
#include "target/c/build.h"
#include "base/digest.h"
#include "events/events.h"
#include "target/c/c.h"
#include "target/disk.h"
#include "target/target.h"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* By structure, so that a library serves equal kernels of other graphs and processes. */
static void symbol_of(const vir *k, char *buf, size_t n)
{
    snprintf(buf, n, "taper_%016llx", (unsigned long long)vir_hash(k));
}

/* -march=native makes code for this very processor. */
static void processor(strbuf *b)
{
    char text[4096], hex[DIGEST_HEX];
    size_t n = 0;
    int fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
    ssize_t r = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[MAX(r, 0)] = 0;
    static const char *const lines[] = { "model name", "flags", "Features", "CPU part", "isa" };
    digest d;
    digest_init(&d, DIGEST_sha256);
    for (const char *p = text; *p; p += n + (p[n] == '\n')) {
        n = strcspn(p, "\n");
        for (size_t i = 0; i < COUNT(lines); i++)
            if (!strncmp(p, lines[i], strlen(lines[i])))
                digest_add(&d, p, n);
        if (!n)
            break; /* the first processor tells */
    }
    digest_hex(&d, hex);
    strbuf_addf(b, "processor=%.16s\n", hex);
}

void cbuild_key(strbuf *out)
{
    processor(out);
    strbuf_add(out, "compiler=");
    for (const char *s = gen_cc_name(); *s; s++)
        strbuf_addc(out, (unsigned char)*s < 32 ? ' ' : *s);
    strbuf_addc(out, '\n');
}

/* The text as a loaded library, from the disk cache or by the compiler. */
static bool library(const char *text, int n, const char *first, gen_lib *lib, tp_err *err)
{
    char hex[DIGEST_HEX], why[DISK_WHY] = "", what[160];
    strbuf config = { 0 }, so = { 0 };
    bool ok = false;
    digest_of(DIGEST_sha256, text, strlen(text), hex);
    disk_config(&config);
    target_key(&target_c, &config);
    snprintf(what, sizeof what, "%.100s%s", first, n > 1 ? " and others" : "");
    disk_item it = { "library", hex, strbuf_str(&config), what };
    if (disk_get(&it, &so, why)) {
        tp_err bad = { 0 };
        ok = gen_so_load(so.s, so.n, lib, &bad);
        if (ok && ev_log_on(EVC_cache, EV_INFO))
            ev_log(EVC_cache, EV_INFO, NULL, "disk cache hit: %d kernel%s as C (id %.16s, %zu bytes)", n,
                   plural(n), hex, so.n);
        if (!ok)
            disk_refuse(&it, bad.msg);
        strbuf_clear(&so);
    } else if (ev_log_on(EVC_cache, EV_INFO))
        ev_log(EVC_cache, EV_INFO, NULL, "disk cache miss: %d kernel%s as C (id %.16s): %s", n, plural(n),
               hex, why);
    if (!ok && gen_cc_build(text, NULL, &so, err) && gen_so_load(so.s, so.n, lib, err)) {
        ok = true;
        if (ev_log_on(EVC_inductor, EV_DEBUG))
            ev_log(EVC_inductor, EV_DEBUG, NULL, "%d kernel%s built as C by '%s': %zu bytes", n, plural(n),
                   gen_cc_name(), so.n);
        disk_put(&it, so.s, so.n);
    }
    strbuf_free(&config);
    strbuf_free(&so);
    return ok;
}

bool cbuild_kernels(const vir *const *k, int n, vir_fn *fn, tp_err *err)
{
    gen_c_unit u = { 0 };
    strbuf text = { 0 };
    gen_lib lib = { NULL };
    char name[40];
    bool ok = false;
    for (int i = 0; i < n; i++) {
        symbol_of(k[i], name, sizeof name);
        gen_c_kernel(&u, k[i], name);
    }
    gen_c_text(&u, &text);
    if (!library(strbuf_str(&text), n, k[0]->name, &lib, err))
        goto done;
    ok = true;
    for (int i = 0; i < n && ok; i++) {
        symbol_of(k[i], name, sizeof name);
        fn[i] = gen_lib_find(&lib, name);
        if (!fn[i])
            ok = err_set(err, ERR_compiler, "the built library has no '%s'", name);
    }
    if (!ok)
        gen_lib_free(&lib);
done:
    gen_c_free(&u);
    strbuf_free(&text);
    return ok;
}
