#define _GNU_SOURCE
#include "base/proc.h"
#include "base/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

extern char **environ;
enum { TICK_MS = 50, LAST_TICKS = 60, OUTPUT_LIMIT = 16 << 20 };
enum { IN, OUT, ERR, N_PIPES };

struct proc {
    pid_t pid;
    int fd[N_PIPES]; /* our ends; -1 once closed */
    int pidfd;       /* becomes readable when the child ends; -1 where the kernel has none */
    const char *input;
    size_t n_input, limit;
    bool (*interrupted)(void *);
    int last_word;
    void *data;
    int64_t began, deadline; /* ns; 0: none */
    bool ended;              /* reaped; r.status is valid */
    proc_result r;
};

static void shut(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* In the child, between fork and exec: only async-signal-safe calls. Reports errno through `report`. */
static void become(const proc_spec *s, int theirs[N_PIPES], int report, char **argv)
{
    sigset_t none;
    int e;

    setpgid(0, 0);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    for (int i = 0; i < N_PIPES; i++)
        if (dup2(theirs[i], i) < 0)
            goto fail;
    if (s->memory_limit) {
        struct rlimit l = { s->memory_limit, s->memory_limit };
        setrlimit(RLIMIT_AS, &l);
    }
    struct rlimit no_core = { 0, 0 };
    setrlimit(RLIMIT_CORE, &no_core);
    if (s->cwd && chdir(s->cwd))
        goto fail;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    if (s->fn) {
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        close(report);
        int status = s->fn(s->arg);
        fflush(stdout);
        fflush(stderr);
        _exit(status);
    }
#if defined(SYS_close_range)
    syscall(SYS_close_range, 3u, ~0u, 4u /* CLOEXEC */);
#endif
    execvpe(argv[0], argv, (char *const *)(s->env ? s->env : (const char *const *)environ));
fail:
    e = errno;
    if (write(report, &e, sizeof e) < 0)
        _exit(126);
    _exit(127);
}

proc *proc_start(const proc_spec *s, tp_err *err)
{
    int ours[N_PIPES] = { -1, -1, -1 }, theirs[N_PIPES] = { -1, -1, -1 }, report[2] = { -1, -1 }, e = 0;
    const char *name = s->fn ? "(function)" : s->argv[0];
    proc *p = NULL;
    pid_t pid = -1;

    for (int i = 0; i < N_PIPES; i++) {
        int ends[2];
        if (i == IN && !s->n_input) {
            theirs[IN] = open("/dev/null", O_RDONLY | O_CLOEXEC);
            if (theirs[IN] < 0)
                goto done;
            continue;
        }
        if (pipe2(ends, O_CLOEXEC))
            goto done;
        ours[i] = ends[i == IN];
        theirs[i] = ends[i != IN];
        fcntl(ours[i], F_SETFL, O_NONBLOCK);
    }
    if (pipe2(report, O_CLOEXEC))
        goto done;
    if (s->fn) { /* what is buffered must not come out twice */
        fflush(stdout);
        fflush(stderr);
    }
    pid = fork();
    if (pid < 0)
        goto done;
    if (!pid)
        become(s, theirs, report[1], (char **)s->argv);
    setpgid(pid, pid); /* both sides do it: whoever comes first */
    shut(&report[1]);
    ssize_t got;
    do
        got = read(report[0], &e, sizeof e);
    while (got < 0 && errno == EINTR);
    if (got == sizeof e) {
        waitpid(pid, NULL, 0);
        errno = e;
        goto done;
    }
    p = mem_zalloc(sizeof *p);
    p->pid = pid;
    memcpy(p->fd, ours, sizeof ours);
    ours[IN] = ours[OUT] = ours[ERR] = -1; /* now p's */
    p->pidfd = -1;
#if defined(SYS_pidfd_open)
    p->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
#endif
    p->input = s->input;
    p->n_input = s->n_input;
    p->limit = s->output_limit ? s->output_limit : OUTPUT_LIMIT;
    p->interrupted = s->interrupted;
    p->last_word = s->last_word;
    p->data = s->data;
    p->began = clock_ns();
    p->deadline = s->timeout_ms ? p->began + s->timeout_ms * 1000000 : 0;
done:
    if (!p)
        err_set(err, ERR_os, "cannot start '%s': %s", name, strerror(errno));
    for (int i = 0; i < N_PIPES; i++) {
        shut(&ours[i]);
        shut(&theirs[i]);
    }
    shut(&report[0]);
    shut(&report[1]);
    return p;
}

static void feed(proc *p)
{
    while (p->fd[IN] >= 0 && p->n_input) {
        /* A child that closes stdin early must not kill us with SIGPIPE. */
        sigset_t pipe_set, old;
        sigemptyset(&pipe_set);
        sigaddset(&pipe_set, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &pipe_set, &old);
        ssize_t w = write(p->fd[IN], p->input, MIN(p->n_input, (size_t)1 << 16));
        int e = errno;
        if (w < 0 && e == EPIPE && !sigismember(&old, SIGPIPE)) {
            struct timespec zero = { 0, 0 };
            sigtimedwait(&pipe_set, NULL, &zero);
        }
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (w < 0 && e == EINTR)
            continue;
        if (w < 0 && e == EAGAIN)
            return;
        if (w < 0)
            break;
        p->input += w;
        p->n_input -= (size_t)w;
    }
    shut(&p->fd[IN]);
}

static void drain(proc *p, int i, strbuf *to)
{
    char chunk[1 << 14];
    while (p->fd[i] >= 0) {
        ssize_t r = read(p->fd[i], chunk, sizeof chunk);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0 && errno == EAGAIN)
            return;
        if (r <= 0) {
            shut(&p->fd[i]);
            return;
        }
        size_t take = MIN((size_t)r, p->limit - MIN(p->limit, to->n));
        strbuf_addn(to, chunk, take);
        p->r.truncated |= take < (size_t)r;
    }
}

/* Reaps the child if it has ended (or, with force, once the SIGKILL has done its work). */
static void reap(proc *p, bool force)
{
    int st;
    pid_t got;

    if (p->ended)
        return;
    do
        got = waitpid(p->pid, &st, force ? 0 : WNOHANG);
    while (got < 0 && errno == EINTR);
    if (got == 0)
        return;
    p->ended = true;
    p->r.status = got < 0 ? 255 : WIFSIGNALED(st) ? -WTERMSIG(st) : WEXITSTATUS(st);
    p->r.wall_ns = clock_ns() - p->began;
}

static bool step(proc *p)
{
    feed(p);
    drain(p, OUT, &p->r.out);
    drain(p, ERR, &p->r.err);
    reap(p, false);
    if (p->ended)
        return true;
    p->r.timed_out = p->deadline && clock_ns() >= p->deadline;
    p->r.interrupted = p->interrupted && p->interrupted(p->data);
    return p->r.timed_out || p->r.interrupted;
}

int proc_wait_any(proc **p, int n)
{
    struct pollfd *f = mem_alloc((size_t)n * 4 * sizeof *f);
    int which = -1;

    for (;;) {
        int wait = -1;
        nfds_t k = 0;
        for (int i = 0; i < n && which < 0; i++)
            if (step(p[i]))
                which = i;
        if (which >= 0)
            break;
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < N_PIPES; j++)
                if (p[i]->fd[j] >= 0)
                    f[k++] = (struct pollfd){ p[i]->fd[j], j == IN ? POLLOUT : POLLIN, 0 };
            if (p[i]->pidfd >= 0)
                f[k++] = (struct pollfd){ p[i]->pidfd, POLLIN, 0 };
            int64_t ms = p[i]->interrupted || p[i]->pidfd < 0 ? TICK_MS : INT32_MAX;
            if (p[i]->deadline)
                ms = MIN(ms, MAX(0, p[i]->deadline - clock_ns()) / 1000000 + 1);
            if (ms < INT32_MAX)
                wait = wait < 0 ? (int)ms : MIN(wait, (int)ms);
        }
        poll(f, k, wait);
    }
    free(f);
    return which;
}

/* Under a sanitizer: what it says of a child is not one of the child's failures that callers expect. */
static void pass_on_reports(const strbuf *err)
{
#ifdef __SANITIZE_ADDRESS__
    if (strstr(strbuf_str(err), "runtime error: "))
        fprintf(stderr, "%s", strbuf_str(err));
#endif
}

void proc_end(proc *p, proc_result *r)
{
    if (p->last_word && (p->r.timed_out || p->r.interrupted)) {
        kill(p->pid, p->last_word);
        for (int i = 0; i < LAST_TICKS && !p->ended; i++) {
            nanosleep(&(struct timespec){ .tv_nsec = TICK_MS * 1000000L }, NULL);
            reap(p, false);
        }
    }
    kill(-p->pid, SIGKILL); /* the child if it still runs, and whatever it started */
    reap(p, true);
    drain(p, OUT, &p->r.out);
    drain(p, ERR, &p->r.err);
    pass_on_reports(&p->r.err);
    for (int i = 0; i < N_PIPES; i++)
        shut(&p->fd[i]);
    shut(&p->pidfd);
    if (r)
        *r = p->r;
    else
        proc_result_free(&p->r);
    free(p);
}

bool proc_run(const proc_spec *s, proc_result *r, tp_err *err)
{
    proc *p = proc_start(s, err);
    memset(r, 0, sizeof *r);
    if (!p)
        return false;
    proc_wait_any(&p, 1);
    proc_end(p, r);
    return r->interrupted ? err_set(err, ERR_interrupt, "interrupted") : true;
}

void proc_describe(strbuf *out, const proc_result *r)
{
    if (r->timed_out)
        strbuf_addf(out, "no answer after %.1f s", (double)r->wall_ns / 1e9);
    else if (r->interrupted)
        strbuf_add(out, "interrupted");
    else if (r->status < 0)
        strbuf_addf(out, "killed by signal %d (%s)", -r->status, strsignal(-r->status));
    else
        strbuf_addf(out, "exit status %d", r->status);
}

void proc_result_free(proc_result *r)
{
    strbuf_free(&r->out);
    strbuf_free(&r->err);
}
