/* Any bytes are read as a safetensors file or refused; what is read is written back to the same tensors. */
#include "fuzz.h"
#include "tensor/safetensors.h"

int FUZZ_ENTRY(const uint8_t *data, size_t n)
{
    st_file f, g;
    tp_err err = { 0 };
    if (!st_parse(&f, data, n, &err)) {
        MUST(err_is_set(&err));
        return 0;
    }
    const char **names = mem_zalloc(sizeof *names * (size_t)(f.n + 1));
    tp_tensor **t = mem_zalloc(sizeof *t * (size_t)(f.n + 1));
    strbuf out = { 0 };
    int k = 0;
    for (; k < f.n; k++) {
        names[k] = f.at[k].name;
        t[k] = st_tensor(&f, &f.at[k], &err);
        if (!t[k])
            break;
    }
    if (k == f.n) {
        MUST(st_dump(&out, names, t, k, NULL, &err));
        MUST(st_parse(&g, strbuf_str(&out), out.n, &err));
        MUST(g.n == f.n && g.ndata == f.ndata);
        st_free(&g);
    }
    for (int i = 0; i < k; i++)
        tensor_unref(t[i]);
    free(names);
    free(t);
    strbuf_free(&out);
    st_free(&f);
    return 0;
}
