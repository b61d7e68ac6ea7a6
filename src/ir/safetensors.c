/* safetensors.c - the safetensors format: u64 header length, JSON header, bytes. */
#include "ir/safetensors.h"
#include "base/file.h"
#include "base/json.h"
#include "base/map.h"
#include "base/vec.h"

typedef struct entry {
    char *name;
    tp_tensor *t;
} entry;
typedef struct note {
    char *key, *value;
} note;
struct safetensors {
    VEC(entry) at;
    VEC(note) notes;
    map by_name; /* index + 1 */
};

static const struct {
    const char *name;
    dtype dt;
} types[] = {
    { "BOOL", DT_bool }, { "U8", DT_u8 },   { "I8", DT_i8 },     { "I16", DT_i16 }, { "I32", DT_i32 },
    { "I64", DT_i64 },   { "F16", DT_f16 }, { "BF16", DT_bf16 }, { "F32", DT_f32 }, { "F64", DT_f64 },
};

safetensors *safetensors_new(void) { return mem_zalloc(sizeof(safetensors)); }

void safetensors_free(safetensors *st)
{
    if (!st)
        return;
    for (size_t i = 0; i < st->at.n; i++) {
        free(st->at.at[i].name);
        tensor_unref(st->at.at[i].t);
    }
    for (size_t i = 0; i < st->notes.n; i++) {
        free(st->notes.at[i].key);
        free(st->notes.at[i].value);
    }
    vec_free(&st->at);
    vec_free(&st->notes);
    map_free(&st->by_name);
    free(st);
}

void safetensors_add(safetensors *st, const char *name, tp_tensor *t)
{
    entry e = { mem_strdup(name), tensor_ref(t) };
    vec_push(&st->at, e);
    map_put(&st->by_name, name, (void *)(uintptr_t)st->at.n);
}

void safetensors_note(safetensors *st, const char *key, const char *value)
{
    note n = { mem_strdup(key), mem_strdup(value) };
    vec_push(&st->notes, n);
}

tp_tensor *safetensors_get(const safetensors *st, const char *name)
{
    uintptr_t i = (uintptr_t)map_get(&st->by_name, name);
    return i ? st->at.at[i - 1].t : NULL;
}

const char *safetensors_meta(const safetensors *st, const char *key)
{
    for (size_t i = 0; i < st->notes.n; i++)
        if (!strcmp(st->notes.at[i].key, key))
            return st->notes.at[i].value;
    return NULL;
}

int safetensors_count(const safetensors *st) { return (int)st->at.n; }
const char *safetensors_name(const safetensors *st, int i) { return st->at.at[i].name; }
tp_tensor *safetensors_at(const safetensors *st, int i) { return st->at.at[i].t; }

static size_t bytes_of(const tp_tensor *t) { return (size_t)t->numel * dtype_size((dtype)t->dt); }

bool safetensors_write(const safetensors *st, const char *path, tp_err *err)
{
    strbuf b = { 0 };
    json_w w = { &b };
    size_t at = 0;

    strbuf_addn(&b, "\0\0\0\0\0\0\0\0", 8);
    json_obj(&w);
    if (st->notes.n) {
        json_key(&w, "__metadata__");
        json_obj(&w);
        for (size_t i = 0; i < st->notes.n; i++) {
            json_key(&w, st->notes.at[i].key);
            json_str(&w, st->notes.at[i].value);
        }
        json_end(&w);
    }
    for (size_t i = 0; i < st->at.n; i++) {
        const tp_tensor *t = st->at.at[i].t;
        json_key(&w, st->at.at[i].name);
        json_obj(&w);
        json_key(&w, "dtype");
        for (size_t k = 0; k < COUNT(types); k++)
            if (types[k].dt == (dtype)t->dt)
                json_str(&w, types[k].name);
        json_key(&w, "shape");
        json_arr(&w);
        for (int d = 0; d < t->ndim; d++)
            json_int(&w, t->size[d]);
        json_end(&w);
        json_key(&w, "data_offsets");
        json_arr(&w);
        json_int(&w, (int64_t)at);
        json_int(&w, (int64_t)(at += bytes_of(t)));
        json_end(&w);
        json_end(&w);
    }
    json_end(&w);
    while (b.n % 8)
        strbuf_addc(&b, ' ');
    uint64_t n = b.n - 8;
    for (int i = 0; i < 8; i++)
        b.s[i] = (char)(n >> (8 * i));
    for (size_t i = 0; i < st->at.n; i++)
        if (st->at.at[i].t->numel)
            strbuf_addn(&b, tensor_data(st->at.at[i].t), bytes_of(st->at.at[i].t));
    bool ok = file_write(path, b.s, b.n, err);
    strbuf_free(&b);
    return ok;
}

static bool read_one(safetensors *st, const json_member *m, const char *data, size_t n, tp_err *err)
{
    const json_val *shape = json_get(&m->val, "shape"), *off = json_get(&m->val, "data_offsets");
    const char *type = json_cstr(json_get(&m->val, "dtype"));
    symint size[TP_MAX_DIMS], bytes = 0;
    int dt = -1;

    for (size_t k = 0; type && k < COUNT(types); k++)
        if (!strcmp(types[k].name, type))
            dt = (int)types[k].dt;
    if (dt < 0)
        return err_set(err, ERR_value, "tensor '%.100s': unknown dtype", m->key);
    if (!json_is(shape, JSON_arr) || shape->n > TP_MAX_DIMS || !json_is(off, JSON_arr) || off->n != 2)
        return err_set(err, ERR_value, "tensor '%.100s': 'shape' and 'data_offsets' were expected", m->key);
    for (size_t i = 0; i < shape->n; i++) {
        size[i] = json_i64(&shape->at[i], -1);
        if (size[i] < 0 || size[i] >= SYM_TAG)
            return err_set(err, ERR_value, "tensor '%.100s': bad size", m->key);
    }
    symint stride[TP_MAX_DIMS];
    int nd = (int)shape->n;
    int64_t a = json_i64(&off->at[0], -1), z = json_i64(&off->at[1], -1);
    if (!shape_check_sizes(nd, size, err))
        return false;
    shape_contiguous_strides(nd, size, stride);
    if (!shape_storage_bytes((dtype)dt, nd, size, stride, 0, &bytes, err))
        return false;
    if (a < 0 || z < a || (uint64_t)z > n || z - a != bytes)
        return err_set(err, ERR_value, "tensor '%.100s': its bytes are not where the header says", m->key);
    tp_tensor *t = tensor_new((dtype)dt, nd, size, err);
    if (!t)
        return false;
    if (bytes)
        memcpy(tensor_data(t), data + a, (size_t)bytes);
    if (dt == DT_bool)
        for (int64_t i = 0; i < bytes; i++)
            ((uint8_t *)tensor_data(t))[i] = ((uint8_t *)tensor_data(t))[i] != 0;
    safetensors_add(st, m->key, t);
    tensor_unref(t);
    return true;
}

safetensors *safetensors_read(const char *path, tp_err *err)
{
    enum { MAX_HEADER = 100 << 20 };
    size_t n;
    char *text = file_read(path, (size_t)1 << 36, &n, err);
    safetensors *st = safetensors_new();
    arena mem = { 0 };
    uint64_t head = 0;
    bool ok = false;

    if (!text)
        goto done;
    for (int i = 0; i < 8 && n >= 8; i++)
        head |= (uint64_t)(unsigned char)text[i] << (8 * i);
    if (n < 8 || head > n - 8 || head > MAX_HEADER) {
        err_set(err, ERR_value, "'%s' is not a safetensors file", path);
        goto done;
    }
    const json_val *v = json_parse(&mem, text + 8, head, err);
    if (!json_is(v, JSON_obj)) {
        err_set(err, ERR_value, "'%s': the header is not an object", path);
        goto done;
    }
    for (size_t i = 0; i < v->n; i++) {
        const json_member *m = &v->members[i];
        if (strcmp(m->key, "__metadata__")) {
            if (!read_one(st, m, text + 8 + head, n - 8 - head, err))
                goto done;
            continue;
        }
        for (size_t k = 0; json_is(&m->val, JSON_obj) && k < m->val.n; k++)
            if (json_cstr(&m->val.members[k].val))
                safetensors_note(st, m->val.members[k].key, json_cstr(&m->val.members[k].val));
    }
    ok = true;
done:
    arena_free(&mem);
    free(text);
    if (!ok) {
        safetensors_free(st);
        st = NULL;
    }
    return st;
}
