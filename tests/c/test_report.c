/* test_report.c - traces to pages: every kind of record, damaged files, hostile text. */
#include "test.h"
#include "base/digest.h"
#include "base/file.h"
#include <stdio.h>
#include "events/events.h"
#include "report/report.h"
#define FUZZ_ENTRY fuzz_trace
#include "../fuzz/fuzz_trace.c"

#define AT "V0131 10:00:00.123456 77 front/x.c:5] "
#define ID ", \"frame_id\": 0, \"frame_compile_id\": 0, \"attempt\": 0"

static void rec(strbuf *t, const char *event, const char *ids, const char *payload)
{
    char md5[DIGEST_HEX];
    strbuf_addf(t, AT "{%s%s", event, ids);
    if (payload) {
        digest_of(DIGEST_md5, payload, strlen(payload), md5);
        strbuf_addf(t, ", \"has_payload\": \"%s\"", md5);
    }
    strbuf_add(t, "}\n");
    for (const char *p = payload; p && *p;) {
        size_t n = strcspn(p, "\n");
        strbuf_addf(t, "\t%.*s\n", (int)n, p);
        p += n + (p[n] == '\n');
    }
}

static void pages(const strbuf *t, strbuf *html, strbuf *json)
{
    report *r = report_new();
    report_add_text(r, "trace.log", strbuf_str(t), t->n);
    report_html(r, html);
    report_json(r, json);
    report_free(r);
}

#define HAS(b, s)   CHECK(strstr(strbuf_str(&(b)), (s)) != NULL)
#define LACKS(b, s) CHECK(strstr(strbuf_str(&(b)), (s)) == NULL)

TEST(report_shows_every_kind_of_record)
{
    strbuf t = { 0 }, h = { 0 }, j = { 0 };
    rec(&t, "\"str\": [\"model.py\", 3]", "", NULL);
    rec(&t,
        "\"dynamo_start\": {\"stack\": [{\"line\": 9, \"name\": \"main\", \"filename\": 3, \"loc\": "
        "\"step(x)\"}, {\"line\": 2, \"name\": \"step\", \"filename\": 3}]}",
        ID, NULL);
    rec(&t, "\"dynamo_output_graph\": {\"sizes\": {}}", ID, "def forward(self):\n    return (sin,)");
    rec(&t, "\"aot_backward_graph\": {}", ID, "the backward text");
    rec(&t, "\"dynamo_guards\": {}", ID, "[{\"code\": \"L['x'].size() == 4\"}]");
    rec(&t,
        "\"create_symbol\": {\"symbol\": \"s7\", \"val\": \"5\", \"vr\": \"[2, int_oo]\", \"source\": "
        "\"L['n']\"}",
        ID, NULL);
    rec(&t, "\"artifact\": {\"name\": \"dynamo_graph_break_reason\", \"encoding\": \"string\"}", ID,
        "print was called");
    rec(&t, "\"artifact\": {\"name\": \"recompile_reasons\", \"encoding\": \"json\"}",
        ", \"frame_id\": 0, \"frame_compile_id\": 1", "[\"size changed 4 to 5\"]");
    rec(&t,
        "\"compilation_metrics\": {\"graph_op_count\": 3, \"fail_type\": \"Unsupported\", \"fail_reason\": "
        "\"cannot do it\", \"duration_us\": 2500000}",
        ", \"frame_id\": 1, \"frame_compile_id\": 0", NULL);
    pages(&t, &h, &j);
    HAS(j, "\"problems\": 0");
    HAS(j, "\"compiles\": 3, \"functions\": 2, \"recompiles\": 1, \"graph_breaks\": 1, \"errors\": 1");
    HAS(j, "\"id\": \"0/0\", \"file\": \"trace.log\", \"rank\": null, \"status\": \"graph break\", "
           "\"function\": "
           "\"step\", \"source\": \"model.py\", \"line\": 2");
    HAS(j, "\"recompile_reasons\": [\"size changed 4 to 5\"]");
    HAS(j, "\"error\": \"Unsupported: cannot do it\"");
    HAS(h, "class=\"tag break\" href=\"#c0\">[0/0] <span aria-hidden=\"true\">\xe2\x97\x90</span> graph "
           "break</a>");
    HAS(h, "class=\"tag error\" href=\"#c2\">[1/0] <span aria-hidden=\"true\">\xe2\x9c\x95</span> error</a>");
    HAS(h, "<b>1 compile failed. 1 compile did not end. Graphs break at 1 place, so the program runs in "
           "pieces. 1 of 3 compiles was "
           "needed because a guard failed. </b>");
    HAS(h, " 2 functions or parts of one were compiled, 3 times in all, which took 2.50\xc2\xa0s.");
    HAS(h, "the backward text");
    HAS(h, "L[&#39;x&#39;].size() == 4");
    HAS(h, "s7");
    HAS(h, "step(x)");
    HAS(h, "Every line was understood");
    strbuf_free(&t);
    strbuf_free(&h);
    strbuf_free(&j);
}

TEST(report_escapes_everything)
{
    static const char bad[] = "<script>alert(1)</script><img src=x onerror=\\\"a()\\\">";
    static const char raw[] = "<script>alert(1)</script>\"'>";
    strbuf t = { 0 }, h = { 0 }, j = { 0 }, e = { 0 };
    strbuf_addf(&e, "\"str\": [\"%s\", 0]", bad);
    rec(&t, strbuf_str(&e), "", NULL);
    strbuf_clear(&e);
    strbuf_addf(
        &e,
        "\"dynamo_start\": {\"stack\": [{\"line\": 1, \"name\": \"%s\", \"filename\": 0, \"loc\": \"%s\"}]}",
        bad, bad);
    rec(&t, strbuf_str(&e), ID, NULL);
    static const char *const events[] = { "dynamo_output_graph", "dynamo_guards", "dynamo_cpp_guards_str",
                                          "aot_joint_graph",     "<script>",      "graph_dump" };
    for (size_t i = 0; i < 6; i++) {
        strbuf_clear(&e);
        strbuf_addf(&e, "\"%s\": {\"name\": \"%s\"}", events[i], bad);
        rec(&t, strbuf_str(&e), ID, raw);
    }
    strbuf_clear(&e);
    strbuf_addf(
        &e, "\"create_symbol\": {\"symbol\": \"%s\", \"val\": \"%s\", \"vr\": \"%s\", \"source\": \"%s\"}",
        bad, bad, bad, bad);
    rec(&t, strbuf_str(&e), ID, NULL);
    static const char *const names[] = { "dynamo_graph_break_reason", "recompile_reasons", "dynamo_error",
                                         bad };
    for (size_t i = 0; i < 4; i++) {
        strbuf_clear(&e);
        strbuf_addf(&e, "\"artifact\": {\"name\": \"%s\"}", names[i]);
        rec(&t, strbuf_str(&e), ID, raw);
    }
    strbuf_clear(&e);
    strbuf_addf(&e,
                "\"compilation_metrics\": {\"co_name\": \"%s\", \"co_filename\": \"%s\", \"%s\": \"%s\", "
                "\"fail_type\": \"%s\", \"fail_reason\": \"%s\"}",
                bad, bad, bad, bad, bad, bad);
    rec(&t, strbuf_str(&e), ID, NULL);
    strbuf_addf(&t, AT "{<script>alert(1)</script>\n<script>\n");

    report *r = report_new();
    report_add_text(r, "<script>alert(1)</script>.log", strbuf_str(&t), t.n);
    report_html(r, &h);
    report_free(r);
    const char *s = strstr(strbuf_str(&h), "<script>"); /* ours, the last thing on the page */
    CHECK(s && !strncmp(s, "<script>(function(){", 20) && !strstr(s + 1, "<script"));
    LACKS(h, "<img");
    HAS(h, "&lt;script&gt;alert(1)&lt;/script&gt;.log");
    HAS(h, "&lt;img src=x onerror=&quot;a()&quot;&gt;");
    strbuf_free(&t);
    strbuf_free(&h);
    strbuf_free(&j);
    strbuf_free(&e);
}

TEST(report_counts_damage_and_goes_on)
{
    strbuf t = { 0 }, h = { 0 }, j = { 0 };
    strbuf_add(&t, "garbage\n\torphan payload\n");
    strbuf_add(&t, AT "{\"dynamo_output_graph\": \n");
    strbuf_add(&t, AT "[1, 2]\n");
    strbuf_add(&t, AT "{\"frame_id\": 1}\n");
    strbuf_add(&t, AT "{\"str\": [1, 2]}\n");
    strbuf_add(&t, AT "{\"dynamo_start\": {\"stack\": [{\"filename\": -5}, 3, null]}" ID "}\n");
    rec(&t, "\"aot_forward_graph\": {}", ID, "whole and sound");
    strbuf_add(&t, AT "{\"aot_backward_graph\": {}" ID ", \"has_payload\": \"" EV_NO_DIGEST
                      "\"}\n\tno digest yet\n");
    strbuf_add(&t, AT "{\"dynamo_output_graph\": {}" ID
                      ", \"has_payload\": \"10000000000000000000000000000000\"}\n");
    strbuf_add(&t, "\tcut in the mid");
    pages(&t, &h, &j);
    HAS(h, "no digest yet");
    HAS(j, "\"records\": 5, \"problems\": 7, \"bad_checksums\": 1, \"compiles\": 1");
    HAS(j, "{\"file\": \"trace.log\", \"line\": 2, \"why\": \"a payload line without its record\"}");
    HAS(h, "trace.log:3</span> the envelope is not a JSON object");
    HAS(h, "whole and sound");
    HAS(h, "cut in the mid");
    HAS(h, "<b>Damaged:</b>");
    strbuf_free(&h);
    strbuf_free(&j);

    uint64_t seed = 7; /* any bytes changed, any cut: no crash, always a whole page */
    for (int round = 0; round < 400; round++) {
        strbuf m = { 0 }, a = { 0 }, b = { 0 };
        strbuf_addn(&m, t.s, t.n);
        for (int k = 0; k < 6; k++) {
            seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
            m.s[(seed >> 33) % m.n] = (char)(seed >> 24);
        }
        m.n = (seed >> 40) % m.n + 1;
        pages(&m, &a, &b);
        CHECK(a.n > 8 && !strcmp(a.s + a.n - 8, "</html>\n"));
        strbuf_free(&m);
        strbuf_free(&a);
        strbuf_free(&b);
    }
    strbuf_free(&t);
}

TEST(report_keeps_processes_apart)
{
    strbuf a = { 0 }, b = { 0 }, j = { 0 };
    rec(&a, "\"str\": [\"a.py\", 0]", "", NULL);
    rec(&b, "\"str\": [\"b.py\", 0]", "", NULL);
    static const char start[] =
        "\"dynamo_start\": {\"stack\": [{\"line\": 1, \"name\": \"f\", \"filename\": 0}]}";
    rec(&a, start, ID ", \"rank\": 0", NULL);
    rec(&b, start, ID ", \"rank\": 1", NULL);
    report *r = report_new();
    report_add_text(r, "r0.log", a.s, a.n);
    report_add_text(r, "r1.log", b.s, b.n);
    report_json(r, &j);
    HAS(j, "\"files\": 2");
    HAS(j, "\"compiles\": 2");
    HAS(j, "\"rank\": 1, \"status\": \"unfinished\", \"function\": \"f\", \"source\": \"b.py\"");
    tp_err e = { 0 };
    CHECK(!report_add(r, "/nonexistent/x.log", &e) && e.kind == ERR_os);
    report_free(r);
    strbuf_free(&a);
    strbuf_free(&b);
    strbuf_free(&j);
}

/* Lines swapped, doubled, joined and cut, bytes changed: as when processes write into one file, or a disk is full. */
static uint64_t next_random(uint64_t *seed)
{
    return *seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL, *seed >> 33;
}

static void damage(strbuf *m, const char *text, size_t n, uint64_t *seed)
{
    size_t start[256], lines = 0;
    for (size_t i = 0; i < n && lines < 255; i++)
        if (!i || text[i - 1] == '\n')
            start[lines++] = i;
    start[lines] = n;
    for (size_t i = 0; i < lines; i++) {
        size_t k = next_random(seed) % 16 ? i : next_random(seed) % lines;
        size_t len = start[k + 1] - start[k],
               cut = next_random(seed) % 16 ? len : next_random(seed) % (len + 1);
        strbuf_addn(m, text + start[k], cut);
    }
    for (uint64_t k = next_random(seed) % 4; k > 0 && m->n; k--)
        m->s[next_random(seed) % m->n] = (char)next_random(seed);
}

TEST(report_takes_any_damage)
{
    static const char *const seeds[] = { "tests/fuzz/corpus/trace/graph", "tests/fuzz/corpus/trace/metrics" };
    uint64_t seed = 11;
    for (size_t i = 0; i < COUNT(seeds); i++) {
        char path[600];
        tp_err e = { 0 };
        size_t n;
        snprintf(path, sizeof path, "%s/%s", TP_SOURCE_DIR, seeds[i]);
        char *text = file_read(path, 1 << 20, &n, &e);
        CHECK(text != NULL);
        if (!text)
            return;
        report *r = report_new();
        strbuf j = { 0 };
        report_add_text(r, "seed", text, n);
        report_json(r, &j);
        HAS(j, "\"problems\": 0, \"bad_checksums\": 0");
        report_free(r);
        strbuf_free(&j);
        for (int round = 0; round < 60; round++) {
            strbuf m = { 0 };
            damage(&m, text, n, &seed);
            fuzz_trace((const uint8_t *)strbuf_str(&m), m.n);
            strbuf_free(&m);
        }
        free(text);
    }
}
