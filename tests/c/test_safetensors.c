/* safetensors files: round trips, and the fuzz target on damaged ones. */
#include "test.h"
#define FUZZ_ENTRY fuzz_safetensors
#include "../fuzz/fuzz_safetensors.c"

static tp_tensor *ramp(dtype dt, int ndim, const symint *size)
{
    tp_err err = { 0 };
    tp_tensor *t = tensor_new(dt, ndim, size, &err);
    for (int64_t i = 0; i < t->numel; i++)
        elem_set_f(dt, tensor_elem(t, i), (double)i);
    return t;
}

static void dump(strbuf *b)
{
    tp_err err = { 0 };
    symint turned[2] = { 3, 2 }, stride[2] = { 1, 3 };
    tp_tensor *w = ramp(DT_f32, 2, (symint[]){ 2, 3 });
    tp_tensor *t[4] = { w, tensor_view(w, 2, turned, stride, 0), ramp(DT_bf16, 0, NULL),
                        ramp(DT_bool, 1, (symint[]){ 0 }) };
    const char *names[4] = { "w", "turned", "scalar", "empty" };
    CHECK(st_dump(b, names, t, 4, (const char *const[]){ "format", "pt", NULL }, &err));
    for (int i = 0; i < 4; i++)
        tensor_unref(t[i]);
}

TEST(safetensors_round_trip)
{
    strbuf b = { 0 };
    st_file f;
    tp_err err = { 0 };
    dump(&b);
    CHECK(st_parse(&f, strbuf_str(&b), b.n, &err));
    CHECK(f.n == 4 && !st_find(&f, "nosuch"));
    CHECK(!strcmp(json_cstr(json_get(f.meta, "format")), "pt"));
    const st_entry *e = st_find(&f, "turned");
    CHECK(e && e->ndim == 2 && e->size[0] == 3 && e->dt == DT_f32);
    tp_tensor *t = st_tensor(&f, e, &err);
    CHECK(elem_get_f(DT_f32, tensor_elem(t, 1)) == 3 && tensor_is_contiguous(t));
    tensor_unref(t);
    st_free(&f);
    strbuf_free(&b);
}

TEST(safetensors_storage_failure_is_an_error)
{
    strbuf b = { 0 };
    st_file f;
    tp_err err = { 0 };
    dump(&b);
    CHECK(st_parse(&f, strbuf_str(&b), b.n, &err));
    storage_fail_after(1);
    CHECK(!st_tensor(&f, st_find(&f, "w"), &err) && err.kind == ERR_memory);
    storage_fail_after(0);
    st_free(&f);
    strbuf_free(&b);
}

TEST(safetensors_damaged_files)
{
    strbuf b = { 0 };
    uint64_t s = 88172645463325252ull;
    dump(&b);
    for (int i = 0; i < 20000; i++) {
        size_t n = b.n;
        char *p = mem_alloc(n);
        memcpy(p, b.s, n);
        for (int k = 0; k < 3; k++) {
            s ^= s << 13, s ^= s >> 7, s ^= s << 17;
            size_t at = (size_t)(s >> 8) % (n > 400 && (s & 1) ? 400 : n);
            p[at] = (s >> 3) & 1 ? "0123456789[]{},:\"-"[(s >> 40) % 18] : (char)(s >> 48);
        }
        if (s & 64)
            n = (size_t)(s >> 20) % (n + 1);
        char *exact = mem_alloc(n ? n : 1);
        memcpy(exact, p, n);
        fuzz_safetensors((const uint8_t *)exact, n);
        free(exact);
        free(p);
    }
    strbuf_free(&b);
}
