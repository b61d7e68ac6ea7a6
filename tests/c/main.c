/* main.c - runs the registered C tests; arguments filter by substring of the name. */
#include "test.h"
#include <unistd.h>
#include <sys/wait.h>
#include <stdarg.h>

static test_case *all;
static int failures_here;

void test_register(test_case *t) { t->next = all, all = t; }

void test_in_child(void (*fn)(void), const char *name)
{
    fflush(NULL);
    pid_t pid = fork();
    int status = 1;
    if (!pid) {
        failures_here = 0;
        fn();
        fflush(NULL);
        _exit(failures_here != 0);
    }
    waitpid(pid, &status, 0);
    if (status)
        test_fail(__FILE__, __LINE__, "%s failed (status %d)", name, status);
}

void test_fail(const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    failures_here++;
    fprintf(stderr, "  %s:%d: ", file, line);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

int main(int argc, char **argv)
{
    int passed = 0, failed = 0;
    for (test_case *t = all; t; t = t->next) {
        bool want = argc < 2;
        for (int i = 1; i < argc; i++)
            want |= strstr(t->name, argv[i]) != NULL;
        if (!want)
            continue;
        failures_here = 0;
        t->run();
        if (failures_here)
            fprintf(stderr, "FAIL %s (%s)\n", t->name, t->file);
        failures_here ? failed++ : passed++;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
