#define _GNU_SOURCE /* registers by name */
#include "base/crumb.h"
#include "base/envvars.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

int crumb_state = -1;
static crumb *page;

/* ---- the last moment ---- */
static const int deadly[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT };
static struct sigaction before[COUNT(deadly)];

/* Only writes to the page; then the signal does what it would have done. */
static void on_signal(int sig, siginfo_t *info, void *context)
{
    page->signal = sig;
    bool touched = (sig == SIGSEGV || sig == SIGBUS) && info->si_code > 0; /* nobody sent it */
    page->address = touched ? (uint64_t)(uintptr_t)info->si_addr : 0;
#if defined __x86_64__
    page->code = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#endif
    for (size_t i = 0; i < COUNT(deadly); i++)
        if (deadly[i] == sig)
            sigaction(sig, &before[i], NULL);
    raise(sig);
}

static void begin(void)
{
    const char *path = env_get(ENV_crumbs);
    int fd = path && *path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd >= 0 && !ftruncate(fd, sizeof *page)) {
        void *p = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        page = p == MAP_FAILED ? NULL : p;
    }
    if (fd >= 0)
        close(fd);
    crumb_state = page != NULL;
    struct sigaction a = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_NODEFER };
    for (size_t i = 0; page && i < COUNT(deadly); i++)
        sigaction(deadly[i], &a, &before[i]);
}

/* ---- dropping ---- */
void crumb_put(const char *stage, const char *what)
{
    if (crumb_state < 0)
        begin();
    if (!page)
        return;
    page->n++;
    page->nbuf = 0;
    page->node[0] = 0;
    page->eager[0] = 0;
    page->signal = 0;
    snprintf(page->stage, sizeof page->stage, "%s", stage);
    snprintf(page->what, sizeof page->what, "%s", what ? what : "");
}

void crumb_put_function(const char *name)
{
    if (page)
        snprintf(page->function, sizeof page->function, "%s", name);
}

static _Thread_local const char *between;

void crumb_put_eager(const char *op)
{
    if (crumb_state < 0)
        begin();
    if (!page || (page->stage[0] && strcmp(page->stage, CRUMB_PROGRAM)))
        return;
    page->n++;
    snprintf(page->stage, sizeof page->stage, "%s", CRUMB_PROGRAM);
    snprintf(page->eager, sizeof page->eager, "%s", op ? op : between ? between : "");
}

const char *crumb_put_between(const char *what)
{
    const char *before_ = between;
    between = what;
    crumb_put_eager(NULL);
    return before_;
}

void crumb_put_node(const char *name, const char *file, int line)
{
    page->n++;
    page->line = line;
    snprintf(page->node, sizeof page->node, "%s", name ? name : "");
    snprintf(page->file, sizeof page->file, "%s", file ? file : "");
}

void crumb_put_buffer(const char *name, const void *at, size_t bytes)
{
    if (page->nbuf >= CRUMB_BUFFERS)
        return;
    page->buf[page->nbuf].at = (uint64_t)(uintptr_t)at;
    page->buf[page->nbuf].bytes = bytes;
    snprintf(page->buf[page->nbuf].name, sizeof page->buf[0].name, "%s", name ? name : "");
    page->nbuf++;
}

/* ---- reading ---- */
bool crumb_read(const char *path, crumb *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    memset(out, 0, sizeof *out);
    bool ok = fd >= 0 && read(fd, out, sizeof *out) == (ssize_t)sizeof *out && out->stage[0];
    if (fd >= 0)
        close(fd);
    char *const text[] = { out->stage + sizeof out->stage,       out->what + sizeof out->what,
                           out->function + sizeof out->function, out->node + sizeof out->node,
                           out->file + sizeof out->file,         out->eager + sizeof out->eager };
    for (size_t i = 0; i < COUNT(text); i++)
        text[i][-1] = 0;
    out->nbuf = MIN(MAX(out->nbuf, 0), (int)CRUMB_BUFFERS);
    for (int i = 0; i < out->nbuf; i++)
        out->buf[i].name[sizeof out->buf[i].name - 1] = 0;
    return ok;
}

void crumb_describe(const crumb *c, strbuf *out)
{
    if (!c->address)
        return;
    int near = -1;
    uint64_t best = 1ull << 40; /* farther away it belongs to none */
    strbuf_addf(out, "address 0x%llx", (unsigned long long)c->address);
    for (int i = 0; i < c->nbuf; i++) {
        uint64_t lo = c->buf[i].at, hi = lo + c->buf[i].bytes,
                 off = c->address < lo    ? lo - c->address
                       : c->address >= hi ? c->address - hi + 1
                                          : 0;
        if (off < best) {
            best = off;
            near = i;
        }
    }
    if (c->address < 4096)
        strbuf_add(out, " (a null pointer)");
    else if (near >= 0) {
        uint64_t lo = c->buf[near].at, bytes = c->buf[near].bytes;
        const char *name = c->buf[near].name;
        if (!best)
            strbuf_addf(out, " is byte %llu of buffer '%s' (%llu bytes)",
                        (unsigned long long)(c->address - lo), name, (unsigned long long)bytes);
        else
            strbuf_addf(out, " is %llu bytes %s buffer '%s' (%llu bytes)", (unsigned long long)best,
                        c->address < lo ? "before" : "behind the end of", name, (unsigned long long)bytes);
    }
}
