/* test.h - C tests register themselves: TEST(name) { CHECK(cond); }. tests/c/main.c runs them all. */
#ifndef TAPER_TEST_H
#define TAPER_TEST_H
#include "base/base.h"
#include <stdio.h>

typedef struct test_case {
    const char *name, *file;
    void (*run)(void);
    struct test_case *next;
} test_case;
void test_register(test_case *t);
/* fn, which may CHECK, in a process of its own: what it loads and registers does not stay. */
void test_in_child(void (*fn)(void), const char *name);
void test_fail(const char *file, int line, const char *fmt, ...) TP_PRINTF(3, 4);

#define TEST(id)                                                 \
    static void test_##id(void);                                 \
    __attribute__((constructor)) static void reg_##id(void)      \
    {                                                            \
        static test_case t = { #id, __FILE__, test_##id, NULL }; \
        test_register(&t);                                       \
    }                                                            \
    static void test_##id(void)
#define CHECK(c)                                            \
    do {                                                    \
        if (!(c))                                           \
            test_fail(__FILE__, __LINE__, "CHECK(%s)", #c); \
    } while (0)
#define CHECK_STR(a, b)                                                \
    do {                                                               \
        const char *a_ = (a), *b_ = (b);                               \
        if (strcmp(a_ ? a_ : "(null)", b_ ? b_ : "(null)"))            \
            test_fail(__FILE__, __LINE__, "\"%s\" != \"%s\"", a_, b_); \
    } while (0)
#define CHECK_INT(a, b)                                                    \
    do {                                                                   \
        long long a_ = (long long)(a), b_ = (long long)(b);                \
        if (a_ != b_)                                                      \
            test_fail(__FILE__, __LINE__, "%s: %lld != %lld", #a, a_, b_); \
    } while (0)
#endif
