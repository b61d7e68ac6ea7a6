#include "tensor/safetensors.h"
#include "base/file.h"

enum { HEADER_MAX = 100 << 20 }; /* as the format's own library */

static const char *const type_names[DT_COUNT] = {
    [DT_bool] = "BOOL", [DT_u8] = "U8",   [DT_i8] = "I8",        [DT_i16] = "I16",
    [DT_i32] = "I32",   [DT_i64] = "I64", [DT_f16] = "F16",      [DT_bf16] = "BF16",
    [DT_f32] = "F32",   [DT_f64] = "F64", [DT_c64] = "C64",      [DT_u16] = "U16",
    [DT_u32] = "U32",   [DT_u64] = "U64", [DT_f8e4] = "F8_E4M3", [DT_f8e5] = "F8_E5M2",
};

/* ---- reading ---- */
static bool parse_entry(st_file *f, st_entry *e, const json_member *m, tp_err *err)
{
    const json_val *type = json_get(&m->val, "dtype"), *shape = json_get(&m->val, "shape"),
                   *at = json_get(&m->val, "data_offsets");
    const char *tn = json_cstr(type);
    e->name = m->key;
    e->dt = DT_none;
    if (strlen(m->key) != m->n_key)
        return err_set(err, ERR_value, "safetensors: a tensor name holds a NUL character");
    for (int d = 0; tn && d < DT_COUNT; d++)
        if (type_names[d] && !strcmp(tn, type_names[d]))
            e->dt = (dtype)d;
    if ((int)e->dt == DT_none)
        return err_set(err, ERR_value, "safetensors: tensor '%.60s' has the unsupported type '%.20s'", m->key,
                       tn ? tn : "(none)");
    if (!json_is(shape, JSON_arr) || shape->n > TP_MAX_DIMS)
        return err_set(err, ERR_value, "safetensors: tensor '%.60s' has no shape of at most %d dimensions",
                       m->key, TP_MAX_DIMS);
    symint *size = arena_alloc(&f->mem, sizeof *size * (shape->n + 1));
    for (size_t i = 0; i < shape->n; i++) {
        size[i] = json_i64(&shape->at[i], -1);
        if (size[i] < 0 || size[i] >= SYM_LIMIT)
            return err_set(err, ERR_value, "safetensors: tensor '%.60s' has a size that is no size", m->key);
    }
    e->ndim = (int)shape->n;
    e->size = size;
    symint bytes, stride[TP_MAX_DIMS];
    if (!shape_check_sizes(e->ndim, size, err))
        return err_note(err, "safetensors: tensor '%.60s'", m->key);
    shape_contiguous_strides(e->ndim, size, stride);
    if (!shape_storage_bytes(e->dt, e->ndim, size, stride, 0, &bytes, err))
        return err_note(err, "safetensors: tensor '%.60s'", m->key);
    int64_t b = json_is(at, JSON_arr) && at->n == 2 ? json_i64(&at->at[0], -1) : -1,
            n = b >= 0 ? json_i64(&at->at[1], -1) : -1;
    if (b < 0 || n < b || (uint64_t)n > f->ndata || n - b != bytes)
        return err_set(
            err, ERR_value,
            "safetensors: tensor '%.60s' needs %lld bytes, but its offsets [%lld, %lld) are not that "
            "many bytes within the %zu of the file",
            m->key, (long long)bytes, (long long)b, (long long)n, f->ndata);
    e->begin = (size_t)b;
    e->end = (size_t)n;
    return true;
}

static int by_begin(const void *a, const void *b)
{
    const st_entry *x = *(const st_entry *const *)a, *y = *(const st_entry *const *)b;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1)
           : x->end != y->end   ? (x->end < y->end ? -1 : 1)
                                : 0;
}

static bool check_cover(st_file *f, tp_err *err) /* no hole, no overlap, nothing behind */
{
    const st_entry **o = arena_alloc(&f->mem, sizeof *o * (size_t)(f->n + 1));
    size_t at = 0;
    for (int i = 0; i < f->n; i++)
        o[i] = &f->at[i];
    qsort(o, (size_t)f->n, sizeof *o, by_begin);
    for (int i = 0; i < f->n; at = o[i++]->end)
        if (o[i]->begin != at)
            return err_set(err, ERR_value,
                           "safetensors: tensor '%.60s' begins at byte %zu where %zu was expected",
                           o[i]->name, o[i]->begin, at);
    if (at != f->ndata)
        return err_set(err, ERR_value, "safetensors: the tensors end at byte %zu of %zu", at, f->ndata);
    return true;
}

static bool all_strings(const json_val *v)
{
    if (v->type != JSON_obj)
        return false;
    for (size_t i = 0; i < v->n; i++)
        if (v->members[i].val.type != JSON_str)
            return false;
    return true;
}

bool st_parse(st_file *f, const void *bytes, size_t n, tp_err *err)
{
    const uint8_t *p = bytes;
    uint64_t head = 0;
    memset(f, 0, sizeof *f);
    arena_init(&f->mem);
    if (n < 8)
        return err_set(err, ERR_value, "safetensors: %zu bytes are too few for a header", n);
    for (int i = 7; i >= 0; i--)
        head = head << 8 | p[i];
    if (head > HEADER_MAX || head > n - 8)
        return err_set(
            err, ERR_value,
            "safetensors: the header claims %llu bytes of a file of %zu (is it a safetensors file?)",
            (unsigned long long)head, n);
    f->data = p + 8 + head;
    f->ndata = n - 8 - (size_t)head;
    const json_val *top = json_parse(&f->mem, (const char *)p + 8, (size_t)head, err);
    if (!top) {
        err_note(err, "safetensors: header");
        goto fail;
    }
    if (top->type != JSON_obj) {
        err_set(err, ERR_value, "safetensors: the header is a JSON %s, not an object", json_type_name(top));
        goto fail;
    }
    f->at = arena_alloc(&f->mem, sizeof *f->at * (top->n + 1));
    for (size_t i = 0; i < top->n; i++) {
        const json_member *m = &top->members[i];
        if (!strcmp(m->key, "__metadata__")) {
            f->meta = &m->val;
            if (!all_strings(f->meta)) {
                err_set(err, ERR_value, "safetensors: __metadata__ must be an object of strings");
                goto fail;
            }
        } else if (!parse_entry(f, &f->at[f->n], m, err))
            goto fail;
        else
            f->n++;
    }
    if (check_cover(f, err))
        return true;
fail:
    arena_free(&f->mem);
    memset(f, 0, sizeof *f);
    return false;
}

bool st_open(st_file *f, const char *path, tp_err *err)
{
    size_t n;
    char *own = file_read(path, (size_t)1 << 46, &n, err);
    if (!own)
        return false;
    if (!st_parse(f, own, n, err)) {
        free(own);
        return err_note(err, "reading '%s'", path);
    }
    f->own = own;
    return true;
}

void st_free(st_file *f)
{
    arena_free(&f->mem);
    free(f->own);
    memset(f, 0, sizeof *f);
}

const st_entry *st_find(const st_file *f, const char *name)
{
    for (int i = 0; i < f->n; i++)
        if (!strcmp(f->at[i].name, name))
            return &f->at[i];
    return NULL;
}

tp_tensor *st_tensor(const st_file *f, const st_entry *e, tp_err *err)
{
    const uint8_t *p = f->data + e->begin;
    tp_tensor *t = tensor_new(e->dt, e->ndim, e->size, err);
    if (t && e->end > e->begin)
        memcpy(tensor_host(t), p, e->end - e->begin);
    if (t && e->dt == DT_bool) /* any other byte would be a bool that is neither */
        for (size_t i = 0; i < e->end - e->begin; i++)
            ((uint8_t *)tensor_host(t))[i] = ((uint8_t *)tensor_host(t))[i] != 0;
    return t;
}

/* ---- writing ---- */
static bool header(strbuf *out, const char *const *names, tp_tensor *const *t, int n, const char *const *meta,
                   tp_err *err)
{
    strbuf js = { 0 };
    json_w w = { &js };
    uint64_t at = 0;
    json_obj(&w);
    if (meta && meta[0]) {
        json_key(&w, "__metadata__");
        json_obj(&w);
        for (int i = 0; meta[i]; i += 2) {
            json_key(&w, meta[i]);
            json_str(&w, meta[i + 1]);
        }
        json_end(&w);
    }
    for (int i = 0; i < n; i++) {
        if (tensor_is_fake(t[i]) || !sym_all_const(t[i]->size, t[i]->ndim)) {
            strbuf_free(&js);
            return err_set(err, ERR_value, "safetensors: tensor '%.60s' has no data", names[i]);
        }
        uint64_t bytes = (uint64_t)t[i]->numel * dtype_size((dtype)t[i]->dt);
        json_key(&w, names[i]);
        json_obj(&w);
        json_key(&w, "dtype");
        json_str(&w, type_names[t[i]->dt]);
        json_key(&w, "shape");
        json_arr(&w);
        for (int d = 0; d < t[i]->ndim; d++)
            json_int(&w, t[i]->size[d]);
        json_end(&w);
        json_key(&w, "data_offsets");
        json_arr(&w);
        json_int(&w, (int64_t)at);
        json_int(&w, (int64_t)(at + bytes));
        json_end(&w);
        json_end(&w);
        at += bytes;
    }
    json_end(&w);
    while (js.n % 8) /* tensors begin aligned */
        strbuf_addc(&js, ' ');
    for (int i = 0; i < 8; i++)
        strbuf_addc(out, (char)((uint64_t)js.n >> (8 * i)));
    strbuf_addn(out, strbuf_str(&js), js.n);
    strbuf_free(&js);
    return true;
}

bool st_dump(strbuf *out, const char *const *names, tp_tensor *const *t, int n, const char *const *meta,
             tp_err *err)
{
    if (!header(out, names, t, n, meta, err))
        return false;
    for (int i = 0; i < n; i++) {
        size_t es = dtype_size((dtype)t[i]->dt);
        if (tensor_is_contiguous(t[i])) {
            if (t[i]->numel)
                strbuf_addn(out, tensor_host(t[i]), (size_t)t[i]->numel * es);
        } else
            for (int64_t k = 0; k < t[i]->numel; k++)
                strbuf_addn(out, tensor_elem(t[i], k), es);
    }
    return true;
}

bool st_write(const char *path, const char *const *names, tp_tensor *const *t, int n, const char *const *meta,
              tp_err *err)
{
    strbuf b = { 0 };
    bool ok = st_dump(&b, names, t, n, meta, err) && file_write(path, strbuf_str(&b), b.n, err);
    strbuf_free(&b);
    return ok;
}
