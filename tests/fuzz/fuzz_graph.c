/* fuzz_graph.c - the graph reader on any bytes: it reads or refuses, never crashes or leaks; what it reads verifies,
 * prints, reads back equal, and survives the passes. tools/fuzz.py builds and runs it. */
#include "ir/pass.h"
#include "ir/text.h"
#include "fuzz.h"

static void must(bool ok, const char *what, const tp_err *e)
{
    if (ok)
        return;
    fprintf(stderr, "%s: %s\n", what, e->msg);
    abort();
}

int FUZZ_ENTRY(const uint8_t *data, size_t n)
{
    tp_err e = { 0 };
    ir_graph *g = ir_parse((const char *)data, n, "fuzz", NULL, &e);
    if (!g) {
        must(err_is_set(&e), "refused without a reason", &e);
        return 0;
    }
    strbuf a = { 0 }, b = { 0 };
    must(ir_verify(g, &e), "what was read does not verify", &e);
    ir_print(&a, g, IR_PRINT_all);
    ir_graph *h = ir_parse(strbuf_str(&a), a.n, "again", NULL, &e);
    if (!h)
        fputs(strbuf_str(&a), stderr);
    must(h != NULL, "what was printed does not read back", &e);
    ir_print(&b, h, IR_PRINT_all);
    if (a.n != b.n || memcmp(a.s, b.s, a.n)) {
        fprintf(stderr, "--- first\n%s--- second\n%s", a.s, b.s);
        must(false, "printed differently", &e);
    }
    must(ir_hash(g) == ir_hash(h), "another hash", &e);
    tp_comp c = { .err = &e, .verify = true };
    must(pass_run_named(&c, h, NULL), "a pass failed", &e);
    ir_graph_free(h);
    ir_graph_free(g);
    strbuf_free(&a);
    strbuf_free(&b);
    return 0;
}
