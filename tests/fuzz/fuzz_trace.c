/* Any bytes may stand in a trace file: the page and the summary are whole, every line is counted, and no tag is on the
 * page that is not ours. */
#include "fuzz.h"
#include "base/json.h"
#include "report/report.h"

static size_t count(const strbuf *b, const char *what)
{
    size_t n = 0;
    for (const char *s = strbuf_str(b); (s = strstr(s, what)); s++)
        n++;
    return n;
}

static void check(report *r)
{
    strbuf html = { 0 }, json = { 0 };
    arena mem = { 0 };
    tp_err e = { 0 };
    report_html(r, &html);
    report_json(r, &json);
    MUST(html.n > 8 && !strcmp(html.s + html.n - 8, "</html>\n"));
    MUST(strlen(html.s) == html.n);
    MUST(count(&html, "<script") == 1 && count(&html, "<img") == 0);
    MUST(count(&html, "<svg") == count(&html, "<svg role=\"img\"")); /* pictures of graphs are ours */
    MUST(count(&html, "<svg") == count(&html, "</svg>"));
    MUST(json_parse(&mem, json.s, json.n, &e));
    arena_free(&mem);
    strbuf_free(&html);
    strbuf_free(&json);
}

int FUZZ_ENTRY(const uint8_t *data, size_t n)
{
    report *r = report_new(), *hidden = report_new(), *other = report_new(), *rest = report_new();
    strbuf diff = { 0 };
    const char *text = (const char *)data;

    report_add_text(r, "a.log", text, n);
    check(r);
    report_redact(hidden);
    report_add_text(hidden, "a.log", text, n);
    check(hidden);
    report_add_text(other, "b.log", text, n / 2);
    report_add_text(rest, "b.log", text + n / 2, n - n / 2);
    for (int i = 0; i < 2; i++) {
        strbuf_clear(&diff);
        report_diff_html(i ? other : r, i ? rest : other, &diff);
        MUST(diff.n > 8 && !strcmp(diff.s + diff.n - 8, "</html>\n") && count(&diff, "<script") == 1);
    }
    strbuf_free(&diff);
    report_free(r);
    report_free(hidden);
    report_free(other);
    report_free(rest);
    return 0;
}
