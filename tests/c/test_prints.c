/* What a program prints, compared with what it prints without the compiler. */
#include "test.h"
#include "debug/prints.h"

static prints_kind kind(const char *eager, const char *again, const char *got, strbuf *why)
{
    strbuf a = { 0 }, b = { 0 }, c = { 0 };
    strbuf_add(&a, eager);
    strbuf_add(&b, again ? again : eager);
    strbuf_add(&c, got);
    prints_kind k = prints_compare(&a, &b, &c, why);
    strbuf_free(&a);
    strbuf_free(&b);
    strbuf_free(&c);
    return k;
}

TEST(prints_differ)
{
    strbuf why = { 0 };
    CHECK(kind("a\nb\nloss 2.8\n", NULL, "a\nb\nloss 4.0\n", &why) == PRINTS_numbers);
    CHECK_STR(strbuf_str(&why), "line 3: 4.0 (compiled), 2.8 (eager)");
    strbuf_free(&why);
    CHECK(kind("tensor([1., nan])\n", NULL, "tensor([1., 2.])\n", NULL) == PRINTS_numbers);
    CHECK(kind("tensor([1., 2.])\n", NULL, "tensor([1., inf])\n", NULL) == PRINTS_numbers);
    CHECK(kind("class 3\n", NULL, "class 4\n", NULL) == PRINTS_numbers); /* whole numbers have no tolerance */
    CHECK(kind("1000000\n", NULL, "1000001\n", NULL) == PRINTS_numbers);
    CHECK(kind("x = -0.5\n", NULL, "x = 0.5\n", NULL) == PRINTS_numbers);
    CHECK(kind("tensor([2., 2.])\n", NULL, "tensor([3., 3.])\n", NULL) == PRINTS_numbers);
    CHECK(kind("2.8\n", NULL, "2.9\n", NULL) == PRINTS_numbers);
    CHECK(kind("True\n", NULL, "False\n", NULL) == PRINTS_text);
    CHECK(kind("torch.Size([2, 3])\n", NULL, "torch.Size([2, 3, 1])\n", NULL) == PRINTS_text);
    CHECK(kind("dtype=float32\n", NULL, "dtype=float64\n", NULL) == PRINTS_text);
    CHECK(kind("a\nb\n", NULL, "a\nb\nb\n", NULL) == PRINTS_lines);
    CHECK(kind("a\n", NULL, "", NULL) == PRINTS_lines);
    /* what differs by itself hides nothing else */
    CHECK(kind("0.131 s, loss 2.8\n", "0.150 s, loss 2.8\n", "0.900 s, loss 4.0\n", NULL) == PRINTS_numbers);
    CHECK(kind("0.7 2.8\n", "0.6 2.8\n", "0.1 4.0\n", NULL) == PRINTS_numbers);
}

TEST(prints_agree)
{
    CHECK(!kind("loss 2.80001\n", NULL, "loss 2.80002\n", NULL));
    CHECK(!kind("[1., 2.]\n", NULL, "[1.0000, 2.0001]\n", NULL));
    CHECK(!kind("error 0.0\n", NULL, "error 1.2e-07\n", NULL));
    CHECK(!kind("0.0123\n", NULL, "0.0124\n", NULL)); /* the last digit is rounded */
    CHECK(!kind("nan -inf\n", NULL, "nan -inf\n", NULL));
    CHECK(!kind("tensor([ 1.,  2.])", NULL, "tensor([1., 2.])", NULL));
    CHECK(!kind("tensor(0.5, grad_fn=<SumBackward0>)\n", NULL,
                "tensor(0.5, grad_fn=<CompiledFunctionBackward>)\n", NULL));
    CHECK(kind("tensor(0.5, grad_fn=<SumBackward0>)\n", NULL, "tensor(0.5)\n", NULL) == PRINTS_text);
    CHECK(!kind("<function f at 0x7f12ab90c0de>\n", NULL, "<function f at 0x7f12ab90ffff>\n", NULL));
    CHECK(!kind("took 0.00 s\n", NULL, "took 0.35 s\n", NULL));
    CHECK(!kind("elapsed: 0.0\n", NULL, "elapsed: 1.5\n", NULL));
    CHECK(!kind("12ms, 3.0x\n", NULL, "450ms, 0.5x\n", NULL));
    CHECK(!kind("[17:35:01] start\n", NULL, "[17:36:02] start\n", NULL));
    CHECK(!kind("2026-11-16 17:35\n", NULL, "2026-11-16 17:36\n", NULL));
    CHECK(!kind("in /tmp/tmpab12/x.bin\n", "in /tmp/tmpc3d4/x.bin\n", "in /tmp/tmpeeee/x.bin\n", NULL));
    CHECK(!kind("0.7\n", "0.6\n", "0.1\n", NULL));
    CHECK(!kind("a b\n", "a\n", "c d e\n", NULL));
    CHECK(!kind("a\n0.3\nb\n", "a\n0.4\n", "a\n0.5\nc\nd\n", NULL));
}

static strbuf text(const char *s)
{
    strbuf b = { 0 };
    strbuf_add(&b, s);
    return b;
}

TEST(prints_of_other_roundings)
{
    strbuf e = text("loss 0.02713 of 10\nlast 0\n"), n = text("loss 0.0141 of 10\nlast 0\n"),
           g = text("loss 0.0391 of 10\nlast 0\n"), far = text("loss 0.5 of 12\nlast 0\n"),
           bad = text("loss 0.0391 of 10\nlast 7\n");
    CHECK(prints_rounded(&e, &e, &n, &g) < 8);
    CHECK(prints_rounded(&e, &e, &n, &e) == 0);
    CHECK(prints_rounded(&e, &e, &e, &far) > 1e9);
    CHECK(prints_rounded(&e, &e, &n, &bad) > 1e9); /* nothing on that line moves */
    strbuf *const all[] = { &e, &n, &g, &far, &bad };
    for (size_t i = 0; i < COUNT(all); i++)
        strbuf_free(all[i]);
}

TEST(prints_in_another_order)
{
    strbuf a = text("done (2, 4.0, 'ThreadPoolExecutor-0_1')\ndone (0, 4.0, 'ThreadPoolExecutor-0_0')\n"),
           b = text("done (0, 4.0, 'ThreadPoolExecutor-0_2')\ndone (2, 4.0, 'ThreadPoolExecutor-0_2')\n"),
           c = text("done (0, 4.0, 'ThreadPoolExecutor-0_2')\ndone (2, 5.0, 'ThreadPoolExecutor-0_2')\n");
    CHECK(prints_reordered(&a, &b));
    CHECK(!prints_reordered(&a, &c));
    strbuf_free(&a);
    strbuf_free(&b);
    strbuf_free(&c);
}
