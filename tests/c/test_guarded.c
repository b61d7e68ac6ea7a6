/* Inputs that a graph was not compiled for, and what a crash left behind. */
#include "test.h"
#include "base/crumb.h"
#include "debug/guarded.h"
#include <signal.h>

static void says(const char *want, dtype dt, int nd, const symint *size, const symint *stride)
{
    static const char text[] = "# symbol: s0 = 7 in [2, int_oo]\n"
                               "# guard: s0 <= 64\n"
                               "def forward(self, x: \"f32[4, s0][s0, 1]cpu\", y: \"f32[s0][1]cpu\"):\n"
                               "    a: \"f32[4, s0][s0, 1]cpu\" = taper.ops.aten.mul.Tensor(x, y)\n"
                               "    return (a,)\n";
    tp_err err = { 0 };
    ir_graph *g = ir_parse(text, strlen(text), "test", NULL, &err);
    if (!g) {
        test_fail(__FILE__, __LINE__, "%s", err.msg);
        return;
    }
    strbuf why = { 0 };
    tp_val in[2] = { vT(tensor_new_strided(dt, nd, size, stride, DEVICE_CPU, &err)),
                     vT(tensor_new(DT_f32, 1, (symint[]){ 7 }, &err)) };
    CHECK(guarded(g, in, 2, &why) == (want == NULL));
    if (want && !strstr(strbuf_str(&why), want))
        test_fail(__FILE__, __LINE__, "'%s' is not in '%s'", want, strbuf_str(&why));
    strbuf_free(&why);
    val_clear(&in[0]);
    val_clear(&in[1]);
    ir_graph_free(g);
}

TEST(guarded_inputs)
{
    says(NULL, DT_f32, 2, (symint[]){ 4, 7 }, (symint[]){ 7, 1 });
    says("is float64, the graph was compiled for float32", DT_f64, 2, (symint[]){ 4, 7 }, (symint[]){ 7, 1 });
    says("has 1 dimensions", DT_f32, 1, (symint[]){ 7 }, (symint[]){ 1 });
    says("has size 5 in dimension 0", DT_f32, 2, (symint[]){ 5, 7 }, (symint[]){ 7, 1 });
    says("has strides 1 in dimension 0", DT_f32, 2, (symint[]){ 4, 7 }, (symint[]){ 1, 4 });
    says("has size 7 in dimension 0, the graph was compiled for s0", DT_f32, 2, (symint[]){ 4, 6 },
         (symint[]){ 6, 1 });
}

TEST(crumb_addresses)
{
    crumb c = { .signal = SIGSEGV, .nbuf = 2, .buf = { { 0x10000, 4096, "x" }, { 0x20000, 64, "out" } } };
    static const struct {
        uint64_t at;
        const char *want;
    } rows[] = { { 0x20040, "address 0x20040 is 1 bytes behind the end of buffer 'out' (64 bytes)" },
                 { 0xfff0, "address 0xfff0 is 16 bytes before buffer 'x' (4096 bytes)" },
                 { 0x10010, "address 0x10010 is byte 16 of buffer 'x' (4096 bytes)" },
                 { 8, "address 0x8 (a null pointer)" },
                 { 0, "" } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        strbuf b = { 0 };
        c.address = rows[i].at;
        crumb_describe(&c, &b);
        CHECK_STR(strbuf_str(&b), rows[i].want);
        strbuf_free(&b);
    }
}
