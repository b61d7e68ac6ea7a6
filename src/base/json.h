/* json.h - JSON: a streaming writer into a string, and a reader of untrusted text into an arena. */
#ifndef TAPER_JSON_H
#define TAPER_JSON_H
#include "base/arena.h"
#include "base/err.h"
#include "base/strbuf.h"

/* --- writing ----------------------------------------------------------------------------------------
 * json_w w = { &out };  json_obj(&w); json_key(&w, "n"); json_int(&w, 3); json_end(&w);   ->  {"n": 3}
 * Separators are ", " and ": ". Commas are the writer's affair. Bytes that are not UTF-8 become U+FFFD. */
typedef struct json_w {
    strbuf *out;
    int depth;          /* private from here */
    uint64_t is_arr[4]; /* one bit a level */
    bool comma;         /* something stands before, on this level */
} json_w;
enum { JSON_W_DEPTH = 256 };

void json_obj(json_w *w);
void json_arr(json_w *w);
void json_end(json_w *w); /* closes the innermost of the two */
void json_key(json_w *w, const char *key);
void json_str(json_w *w, const char *s); /* NULL writes null */
void json_strn(json_w *w, const char *s, size_t n);
void json_strf(json_w *w, const char *fmt, ...) TP_PRINTF(2, 3);
void json_int(json_w *w, int64_t v);
void json_dbl(json_w *w, double v); /* reads back equal; JSON has no inf or nan: they become null */
void json_bool(json_w *w, bool v);
void json_null(json_w *w);
void json_raw(json_w *w, const char *json);            /* text that is JSON already */
void json_quote(strbuf *out, const char *s, size_t n); /* just the string literal */

/* --- reading ----------------------------------------------------------------------------------------- */
typedef enum { JSON_null, JSON_bool, JSON_int, JSON_dbl, JSON_str, JSON_arr, JSON_obj } json_type;
typedef struct json_member json_member;
typedef struct json_val {
    json_type type;
    union {
        bool b;
        int64_t i;
        double d;
        const char *s;              /* NUL-terminated after n bytes; may also hold NULs */
        const struct json_val *at;  /* arrays: n items */
        const json_member *members; /* objects: n, sorted by key */
    };
    size_t n;
} json_val;
struct json_member {
    const char *key;
    size_t n_key;
    json_val val;
};
enum { JSON_DEPTH = 256 };

/* The value that text[0..n) is, or NULL with ERR_syntax "line:column: ..." (columns count characters).
 * Everything RFC 8259 allows, with these limits: nesting to JSON_DEPTH, whole numbers fit int64_t, others
 * are finite doubles, text is UTF-8 without lone surrogates, keys of one object differ. */
const json_val *json_parse(arena *a, const char *text, size_t n, tp_err *err);

/* All accept NULL and any type: NULL, or the default, when it is not there or not of that type. */
const json_val *json_get(const json_val *obj, const char *key);
const char *json_cstr(const json_val *v); /* NULL also when the string holds a NUL */
int64_t json_i64(const json_val *v, int64_t def);
double json_f64(const json_val *v, double def); /* whole numbers too */
bool json_is(const json_val *v, json_type t);
const char *json_type_name(const json_val *v); /* "string", "object", "missing", ... */
#endif
