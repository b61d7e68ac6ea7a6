/* target.c - machine code of x86-64 as a target: one value for each instruction set. */
#include "target/cpu/cpu.h"
#include "target/x64/mir.h"
#include "target/x64/publish.h"
#include "base/clock.h"
#include "base/vec.h"

typedef struct x64_code {
    target_code base;
    bool leaf; /* as gen_code says */
} x64_code;

static gen_isa isa_of(const target *t) { return t == &target_avx512 ? ISA_avx512 : ISA_avx2; }

static bool x64_available(const target *t, const char **why)
{
    gen_isa host = gen_isa_host();
    *why = host == ISA_none ? "this machine has no AVX2 and FMA" : "this machine has no AVX-512";
    return host >= isa_of(t);
}

static target_code *publish(const target *t, const gen_code *c, const char *name, tp_err *err)
{
    void *fn = gen_publish(c, name, err);
    if (!fn)
        return NULL;
    x64_code *x = target_code_new(t, name, sizeof *x);
    *(void **)&x->base.fn = fn;
    x->base.ncode = c->ncode;
    x->base.nbytes = c->n;
    x->leaf = c->leaf;
    return &x->base;
}

static bool x64_compile(const target *t, const vir *const *k, int n, target_code **out, tp_err *err)
{
    bool ok = true;
    for (int i = 0; i < n; i++) {
        gen_code code = { 0 };
        int64_t t0 = clock_ns();
        out[i] = gen_x64(k[i], isa_of(t), &code, NULL, err) ? publish(t, &code, k[i]->name, err) : NULL;
        if (out[i])
            out[i]->compile_us = (double)(clock_ns() - t0) / 1000;
        ok &= out[i] != NULL;
        gen_code_free(&code);
    }
    return ok;
}

/* --- code as bytes -------------------------------------------------------------------------------------------------- */
/* The one address in emitted code is that of the helper, as the operand of a mov: found by its value, taken out by save and
 * put in again by load. An entry of the list: twice the place, + 1 for the helper of AVX-512. */
typedef struct saved {
    uint32_t ncode, nbytes, leaf, nreloc;
} saved;
enum { MOST_CODE = 1 << 26 };

static bool save_code(const target_code *c, strbuf *out, tp_err *err)
{
    uint64_t helper[2] = { (uint64_t)(uintptr_t)x64_helper(false), (uint64_t)(uintptr_t)x64_helper(true) };
    if (helper[0] <= UINT32_MAX || helper[1] <= UINT32_MAX)
        return err_set(err, ERR_notimpl, "code of this program cannot move");
    const void *code;
    memcpy(&code, &c->fn, sizeof code);
    char *copy = mem_alloc(c->nbytes);
    memcpy(copy, code, c->nbytes);
    VEC(uint32_t) at = { 0 };
    for (size_t i = 0; i + 8 <= c->ncode; i++)
        for (uint32_t h = 0; h < 2; h++)
            if (!memcmp(copy + i, &helper[h], 8)) {
                vec_push(&at, (uint32_t)i * 2 + h);
                memset(copy + i, 0, 8);
            }
    saved s = { (uint32_t)c->ncode, (uint32_t)c->nbytes, ((const x64_code *)c)->leaf, (uint32_t)at.n };
    strbuf_addn(out, (const char *)&s, sizeof s);
    strbuf_addn(out, (const char *)at.at, sizeof *at.at * at.n);
    strbuf_addn(out, copy, c->nbytes);
    vec_free(&at);
    free(copy);
    return true;
}

static target_code *load_code(const target *t, const char *name, const void *p, size_t n, tp_err *err)
{
    saved s;
    target_code *made = NULL;
    if (n >= sizeof s)
        memcpy(&s, p, sizeof s);
    if (n < sizeof s || s.leaf > 1 || !s.ncode || s.nbytes > MOST_CODE || s.ncode > s.nbytes ||
        s.nreloc > s.ncode || n != sizeof s + sizeof(uint32_t) * s.nreloc + s.nbytes) {
        err_set(err, ERR_value, "a kernel does not read back");
        return NULL;
    }
    gen_code c = { .ncode = s.ncode, .n = s.nbytes, .leaf = s.leaf, .bytes = mem_alloc(s.nbytes) };
    memcpy(c.bytes, (const char *)p + n - s.nbytes, s.nbytes);
    for (uint32_t i = 0; i < s.nreloc; i++) {
        uint32_t at;
        memcpy(&at, (const char *)p + sizeof s + i * sizeof at, sizeof at);
        uint64_t h = (uint64_t)(uintptr_t)x64_helper(at & 1);
        if ((size_t)(at / 2) + 8 > c.ncode) {
            err_set(err, ERR_value, "a kernel does not read back");
            goto done;
        }
        memcpy(c.bytes + at / 2, &h, 8);
    }
    made = publish(t, &c, name, err);
done:
    gen_code_free(&c);
    return made;
}

static void x64_key(const target *t, strbuf *out) { strbuf_adds(out, "cpu=", t->level, "\n", NULL); }

static bool x64_list(const target *t, const vir *k, strbuf *out, tp_err *err)
{
    gen_code code = { 0 };
    strbuf text = { 0 };
    bool ok = gen_x64(k, isa_of(t), &code, &text, err);
    if (ok)
        strbuf_adds(out, "machine code:\n", strbuf_str(&text), NULL);
    gen_code_free(&code);
    strbuf_free(&text);
    return ok;
}

#define X64_TARGET(l)                                                                                        \
    {                                                                                                        \
        .name = "x64", .level = l, .device = DEV_cpu, .caps = { CPU_CAPS, CPU_LIBRARY_CAPS, .quick = true }, \
        .fallback = &target_interp, .available = x64_available, .compile = x64_compile, CPU_FUNCTIONS,       \
        .save = save_code, .load = load_code, .key = x64_key, .list = x64_list                               \
    }
const target target_avx512 = X64_TARGET("avx512");
const target target_avx2 = X64_TARGET("avx2");
