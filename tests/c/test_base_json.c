/* JSON: what is written, what is read, what is refused and where. */
#include "test.h"
#include "base/json.h"

TEST(json_writes_nested_values)
{
    strbuf b = { 0 };
    json_w w = { &b };
    json_obj(&w);
    json_key(&w, "a");
    json_arr(&w);
    json_int(&w, INT64_MIN);
    json_dbl(&w, 0.1);
    json_dbl(&w, 0.0 / 0.0);
    json_arr(&w);
    json_end(&w);
    json_obj(&w);
    json_end(&w);
    json_end(&w);
    json_key(&w, "q\"");
    json_strn(&w, "x\0\n\x01\xff\xc3\xa9", 7);
    json_key(&w, "t");
    json_bool(&w, true);
    json_key(&w, "n");
    json_str(&w, NULL);
    json_key(&w, "f");
    json_strf(&w, "%d%%", 5);
    json_end(&w);
    CHECK_STR(b.s, "{\"a\": [-9223372036854775808, 0.1, null, [], {}], \"q\\\"\": "
                   "\"x\\u0000\\n\\u0001\\ufffd\xc3\xa9\", "
                   "\"t\": true, \"n\": null, \"f\": \"5%\"}");
    arena a = { 0 };
    tp_err err = { 0 };
    CHECK(json_parse(&a, b.s, b.n, &err) != NULL);
    arena_free(&a);
    strbuf_free(&b);
}

static void write_value(json_w *w, const json_val *v)
{
    switch (v->type) {
    case JSON_null: json_null(w); break;
    case JSON_bool: json_bool(w, v->b); break;
    case JSON_int: json_int(w, v->i); break;
    case JSON_dbl: json_dbl(w, v->d); break;
    case JSON_str: json_strn(w, v->s, v->n); break;
    case JSON_arr:
        json_arr(w);
        for (size_t i = 0; i < v->n; i++)
            write_value(w, &v->at[i]);
        json_end(w);
        break;
    case JSON_obj:
        json_obj(w);
        for (size_t i = 0; i < v->n; i++) {
            json_key(w, v->members[i].key);
            write_value(w, &v->members[i].val);
        }
        json_end(w);
    }
}

static void check_read(const char *text, const char *want)
{
    arena a = { 0 };
    tp_err err = { 0 };
    strbuf b = { 0 };
    json_w w = { &b };
    const json_val *v = json_parse(&a, text, strlen(text), &err);
    if (v)
        write_value(&w, v);
    CHECK_STR(v ? strbuf_str(&b) : err.msg, want);
    strbuf_free(&b);
    arena_free(&a);
}

TEST(json_reads_exactly)
{
    check_read(" [ ] ", "[]");
    check_read("{\"b\":1,\"a\":{\"c\":[true,false,null]}}",
               "{\"a\": {\"c\": [true, false, null]}, \"b\": 1}");
    check_read("[9223372036854775807,-9223372036854775808,-0,0]",
               "[9223372036854775807, -9223372036854775808, 0, 0]");
    check_read("[1.5,-0.0,1e3,2E-3,0.1e+1]", "[1.5, -0.0, 1000.0, 0.002, 1.0]");
    check_read("[5e-324,1.7976931348623157e308]", "[5e-324, 1.7976931348623157e+308]");
    check_read("\"\\u00e9\\ud83d\\ude00\\/\\b\\f\\\"\"", "\"\xc3\xa9\xf0\x9f\x98\x80/\\u0008\\u000c\\\"\"");
    check_read("\"\\u0000\"", "\"\\u0000\"");
}

TEST(json_refuses_with_line_and_column)
{
    check_read("", "1:1: expected a value, found the end");
    check_read("[1,\n 2,,3]", "2:4: expected a value");
    check_read("[1 2]", "1:4: expected ',' or ']'");
    check_read("{\"a\" 1}", "1:6: expected ':'");
    check_read("{a:1}", "1:2: expected a key in double quotes");
    check_read("{\"a\":1,}", "1:8: expected a key in double quotes");
    check_read("{\"a\":1,\"a\":2}", "1:1: two members of this object have the same key");
    check_read("[9223372036854775808]", "1:2: whole number does not fit 64 bits");
    check_read("[01]", "1:2: number with a leading zero");
    check_read("[1.]", "1:4: expected a digit");
    check_read("-", "1:2: expected a digit");
    check_read("[1e999]", "1:2: number is too large");
    check_read("\"a\nb\"", "1:3: control character in a string; write it as an escape");
    check_read("\"\xc3\xa9\\x\"", "1:3: unknown escape in a string");
    check_read("\"\\ud800\"", "1:2: high surrogate without its low half");
    check_read("\"\\udc00\"", "1:2: low surrogate without its high half");
    check_read("\"\\u12g4\"", "1:6: expected four hexadecimal digits after \\u");
    check_read("\"\xff\"", "1:2: malformed UTF-8");
    check_read("\"abc", "1:1: string without closing quote");
    check_read("\"abc\\", "1:5: unknown escape in a string");
    check_read("[] x", "1:4: expected the end after the value");
    check_read("nul", "1:1: expected a value");
    check_read("NaN", "1:1: expected a value");
}

TEST(json_depth_is_limited)
{
    enum { N = 1000000 };
    arena a = { 0 };
    tp_err err = { 0 };
    char *s = mem_alloc(N);
    memset(s, '[', N);
    CHECK(!json_parse(&a, s, N, &err));
    CHECK_STR(err.msg, "1:258: nested too deeply");
    free(s);
    arena_free(&a);
}

TEST(json_lookups_tolerate_anything)
{
    arena a = { 0 };
    const char *t = "{\"s\":\"x\",\"z\":\"a\\u0000b\",\"i\":3,\"d\":2.5,\"o\":{\"k\":[1]}}";
    const json_val *v = json_parse(&a, t, strlen(t), NULL);
    CHECK_STR(json_cstr(json_get(v, "s")), "x");
    CHECK(json_cstr(json_get(v, "z")) == NULL);
    CHECK(json_cstr(json_get(v, "i")) == NULL);
    CHECK_INT(json_i64(json_get(v, "i"), 9), 3);
    CHECK_INT(json_i64(json_get(v, "d"), 9), 9);
    CHECK(json_f64(json_get(v, "i"), 9) == 3.0 && json_f64(json_get(v, "d"), 9) == 2.5);
    CHECK(json_get(json_get(json_get(v, "nope"), "k"), "k") == NULL);
    CHECK(json_is(json_get(json_get(v, "o"), "k"), JSON_arr));
    CHECK_STR(json_type_name(json_get(v, "nope")), "missing");
    arena_free(&a);
}

TEST(json_cut_anywhere_never_reads_past_the_end)
{
    const char *t =
        "{\"k\\u00e9\": [1.5e+3, -2, true, null, \"\\ud83d\\ude00\"], \"o\": {\"a\": \"\xc3\xa9\"}}";
    for (size_t n = 0; n < strlen(t); n++) {
        arena a = { 0 };
        tp_err err = { 0 };
        char *exact = mem_alloc(n); /* the sanitizer watches its end */
        memcpy(exact, t, n);
        CHECK(!json_parse(&a, exact, n, &err));
        CHECK(err.kind == ERR_syntax);
        free(exact);
        arena_free(&a);
    }
}

/* Whatever needs escaping is found at every place among the eight characters that are looked at together. */
TEST(json_quote_at_every_place)
{
    static const struct {
        char c;
        const char *want;
    } odd[] = { { '"', "\\\"" },    { '\\', "\\\\" }, { '\n', "\\n" }, { 1, "\\u0001" },
                { 127, "\\u007f" }, { '!', "!" },     { '~', "~" } };
    for (int n = 1; n < 40; n++)
        for (int at = 0; at < n; at++)
            for (size_t k = 0; k < COUNT(odd); k++) {
                char in[64], want[80];
                memset(in, 'a' + n % 20, (size_t)n);
                in[n] = 0;
                snprintf(want, sizeof want, "\"%.*s%s%s\"", at, in, odd[k].want, in + at + 1);
                in[at] = odd[k].c;
                strbuf b = { 0 };
                json_quote(&b, in, (size_t)n);
                CHECK_STR(strbuf_str(&b), want);
                strbuf_free(&b);
            }
}
