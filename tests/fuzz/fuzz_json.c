/* What the JSON reader accepts, the writer writes so that the reader reads the same. */
#include "fuzz.h"
#include "base/json.h"

static void json_write(json_w *w, const json_val *v)
{
    switch (v->type) {
    case JSON_null: json_null(w); break;
    case JSON_bool: json_bool(w, v->b); break;
    case JSON_int: json_int(w, v->i); break;
    case JSON_dbl: json_dbl(w, v->d); break;
    case JSON_str: json_strn(w, v->s, v->n); break;
    case JSON_arr:
    case JSON_obj:
        (v->type == JSON_arr ? json_arr : json_obj)(w);
        for (size_t i = 0; i < v->n; i++) {
            if (v->type == JSON_obj)
                json_key(w, v->members[i].key);
            json_write(w, v->type == JSON_arr ? &v->at[i] : &v->members[i].val);
        }
        json_end(w);
    }
}

static bool has_nul_key(const json_val *v)
{
    for (size_t i = 0; i < v->n && (v->type == JSON_arr || v->type == JSON_obj); i++) {
        if (v->type == JSON_obj && strlen(v->members[i].key) != v->members[i].n_key)
            return true;
        if (has_nul_key(v->type == JSON_arr ? &v->at[i] : &v->members[i].val))
            return true;
    }
    return false;
}

int FUZZ_ENTRY(const uint8_t *data, size_t n)
{
    arena a = { 0 };
    tp_err err = { 0 };
    strbuf one = { 0 }, two = { 0 };
    const json_val *v = json_parse(&a, (const char *)data, n, &err);

    MUST((v == NULL) == (err.kind == ERR_syntax));
    if (v && !has_nul_key(v)) { /* keys with NUL are read but have no spelling as C strings */
        json_w w1 = { &one }, w2 = { &two };
        json_write(&w1, v);
        v = json_parse(&a, one.s, one.n, &err);
        MUST(v != NULL);
        json_write(&w2, v);
        MUST(one.n == two.n && !memcmp(one.s, two.s, one.n));
    }
    strbuf_free(&one);
    strbuf_free(&two);
    arena_free(&a);
    return 0;
}
