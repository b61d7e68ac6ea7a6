/* link.c - one thread on the first rank of each host: sends what has changed, takes what the others send. Rank 0 compares
 * the collectives of ranks on different hosts, which no board of one host can. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "comm/job.h"
#include "base/clock.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    TOKEN = 16,
    MOST = 1 << 17,
    TICK_MS = 50,
    REACH_MS = 10000,
    CONNECT_MS = 1000,
    DEAD_MS = 15000,
    COME_MS = 400,
    ALIVE_MS = 500,
    SILENT_MS = 2500
};
enum { MSG_hello = 0x7461, MSG_rank, MSG_want, MSG_abort, MSG_alive };

typedef struct msg_head {
    uint32_t kind, nbytes; /* of what follows */
} msg_head;
typedef struct hello_msg {
    uint8_t token[TOKEN];
    uint32_t layout; /* sizes of what is sent: the same build on every host */
    int32_t rank;
} hello_msg;
typedef struct rank_msg { /* note, stack and calls follow */
    int32_t rank, state, pid, life, acknowledged, fresh;
    uint32_t note, stack, calls; /* bytes, bytes, number */
    char host[BOARD_HOST];
    board_call last;
} rank_msg;

typedef struct peer {
    int fd, rank; /* its rank, -1: it has not said hello */
    int64_t heard_ns;
    bool silent;
    strbuf in;
} peer;
struct comm_link {
    comm_job *j;
    pthread_t thread;
    _Atomic bool stop;
    int listener;
    uint8_t token[TOKEN];
    VEC(peer) peers;
    strbuf *sent;     /* a rank: what was last sent of it, but for calls */
    uint64_t *ncalls; /* a rank: calls that were sent */
    int *via;         /* a rank: the rank whose link tells of it, -1: none */
    uint32_t wanted;
    int64_t alive_ns; /* when the others were last told that we are there */
    int64_t
        differ_ns; /* when ranks were seen to call different things: said a little later, when the others have come */
};

/* --- addresses ------------------------------------------------------------------------------------------ */
int link_listen(char *out, size_t size)
{
    uint8_t token[TOKEN];
    struct ifaddrs *all = NULL;
    strbuf b = { 0 };
    struct sockaddr_in a = { .sin_family = AF_INET };
    socklen_t len = sizeof a;
    out[0] = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || getrandom(token, TOKEN, 0) != TOKEN || bind(fd, (struct sockaddr *)&a, sizeof a) ||
        listen(fd, 64) || getsockname(fd, (struct sockaddr *)&a, &len) || getifaddrs(&all)) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    for (int i = 0; i < TOKEN; i++)
        strbuf_addf(&b, "%02x", token[i]);
    strbuf_addf(&b, " %d", ntohs(a.sin_port));
    for (struct ifaddrs *p = all; p; p = p->ifa_next) {
        char text[INET_ADDRSTRLEN];
        if (!p->ifa_addr || p->ifa_addr->sa_family != AF_INET || (p->ifa_flags & IFF_LOOPBACK) ||
            !inet_ntop(AF_INET, &((struct sockaddr_in *)p->ifa_addr)->sin_addr, text, sizeof text) ||
            b.n + strlen(text) + 2 > size)
            continue;
        strbuf_addf(&b, " %s", text);
    }
    freeifaddrs(all);
    snprintf(out, size, "%s", b.s);
    strbuf_free(&b);
    return fd;
}

static bool read_token(const char *text, uint8_t *token)
{
    for (int i = 0; i < TOKEN; i++) {
        unsigned v;
        if (sscanf(text + 2 * i, "%2x", &v) != 1)
            return false;
        token[i] = (uint8_t)v;
    }
    return true;
}

static int connect_to(const char *address, int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), bad = 0;
    socklen_t len = sizeof bad;
    if (fd < 0 || inet_pton(AF_INET, address, &a.sin_addr) != 1)
        goto fail;
    if (connect(fd, (struct sockaddr *)&a, sizeof a)) {
        struct pollfd p = { fd, POLLOUT, 0 };
        if (errno != EINPROGRESS || poll(&p, 1, CONNECT_MS) != 1 ||
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &bad, &len) || bad)
            goto fail;
    }
    return fd;
fail:
    if (fd >= 0)
        close(fd);
    return -1;
}
/* A way to rank 0 by any of its addresses. */
static int reach(comm_link *l)
{
    int64_t until = clock_ns() + REACH_MS * 1000000ll;
    while (!atomic_load(&l->stop) && clock_ns() < until) {
        char text[sizeof l->j->at.link], *rest = NULL;
        snprintf(text, sizeof text, "%s", l->j->at.link);
        char *p = strtok_r(text, " ", &rest), *port = strtok_r(NULL, " ", &rest);
        for (p = port ? strtok_r(NULL, " ", &rest) : NULL; p; p = strtok_r(NULL, " ", &rest)) {
            int fd = connect_to(p, atoi(port));
            if (fd >= 0)
                return fd;
        }
        poll(NULL, 0, 100);
    }
    return -1;
}

static void prepare(int fd)
{
    int one = 1, dead = DEAD_MS;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead, sizeof dead);
}

/* --- sending -------------------------------------------------------------------------------------------- */
static void hang_up(comm_link *l, peer *p)
{
    if (p->fd < 0)
        return;
    close(p->fd);
    p->fd = -1;
    strbuf_free(&p->in);
    for (int r = 0; r < l->j->at.size && p->rank >= 0; r++) {
        board_rank *x = &l->j->b->rank[r];
        if (l->via[r] == p->rank && atomic_load(&x->state) == RANK_joined)
            atomic_store(&x->life, r == p->rank ? 'X' : '?');
    }
}

static void put(comm_link *l, peer *p, uint32_t kind, const void *data, size_t n)
{
    msg_head h = { kind, (uint32_t)n };
    strbuf b = { 0 };
    strbuf_addn(&b, (const char *)&h, sizeof h);
    strbuf_addn(&b, data, n);
    int64_t until = clock_ns() + DEAD_MS * 1000000ll;
    for (size_t at = 0; at < b.n && p->fd >= 0;) {
        ssize_t k = send(p->fd, b.s + at, b.n - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k > 0)
            at += (size_t)k;
        else if (k < 0 && (errno == EAGAIN || errno == EINTR) && clock_ns() < until)
            poll(&(struct pollfd){ p->fd, POLLOUT, 0 }, 1, 20);
        else
            hang_up(l, p);
    }
    strbuf_free(&b);
}
static void put_all(comm_link *l, const peer *but, uint32_t kind, const void *data, size_t n)
{
    for (size_t i = 0; i < l->peers.n; i++)
        if (&l->peers.at[i] != but && l->peers.at[i].rank >= 0 && l->peers.at[i].fd >= 0)
            put(l, &l->peers.at[i], kind, data, n);
}

/* Rank r as this board has it, with the calls after the first `from` that are still known. */
static void describe(comm_job *j, int r, uint64_t from, strbuf *head, strbuf *calls)
{
    const board_rank *x = &j->b->rank[r];
    uint64_t n = atomic_load(&x->ncalls);
    uint32_t want = atomic_load(&j->b->want_stacks);
    bool fresh = want && atomic_load(&x->answered) >= want;
    rank_msg m;
    memset(&m, 0, sizeof m);
    m.rank = r;
    m.state = atomic_load(&x->state);
    m.pid = atomic_load(&x->pid);
    m.life = rank_life(x);
    m.acknowledged = atomic_load(&x->acknowledged);
    m.fresh = fresh;
    m.note = (uint32_t)strnlen(x->note, BOARD_NOTE);
    m.stack = fresh ? (uint32_t)strnlen(x->stack, BOARD_STACK) : 0;
    memcpy(m.host, x->host, sizeof m.host);
    memcpy(&m.last, &x->last, sizeof m.last);
    for (uint64_t k = MAX(from, n < BOARD_RING ? 0 : n - BOARD_RING); k < n; k++, m.calls++)
        strbuf_addn(calls, (const char *)&x->recent[k % BOARD_RING], sizeof(board_call));
    strbuf_addn(head, (const char *)&m, sizeof m);
    strbuf_addn(head, x->note, m.note);
    strbuf_addn(head, x->stack, m.stack);
}

static bool is_ours(const comm_link *l, int r)
{
    const board_rank *x = &l->j->b->rank[r];
    return atomic_load(&x->state) != RANK_absent && !atomic_load(&x->remote);
}
static void send_changes(comm_link *l)
{
    comm_job *j = l->j;
    for (int r = 0; r < j->at.size; r++) {
        strbuf head = { 0 }, calls = { 0 };
        if (!is_ours(l, r))
            continue;
        uint64_t n = atomic_load(&j->b->rank[r].ncalls);
        describe(j, r, l->ncalls[r], &head, &calls);
        strbuf *old = &l->sent[r];
        if (calls.n || old->n != head.n || memcmp(old->s, head.s, head.n)) {
            strbuf_clear(old);
            strbuf_addn(old, head.s, head.n);
            strbuf_addn(&head, strbuf_str(&calls), calls.n);
            put_all(l, NULL, MSG_rank, head.s, head.n);
            l->ncalls[r] = n;
        }
        strbuf_free(&head);
        strbuf_free(&calls);
    }
}
static void send_everything(comm_link *l, peer *to)
{
    for (int r = 0; r < l->j->at.size; r++) {
        strbuf head = { 0 }, calls = { 0 };
        if (atomic_load(&l->j->b->rank[r].state) != RANK_absent && l->via[r] != to->rank) {
            describe(l->j, r, 0, &head, &calls);
            strbuf_addn(&head, strbuf_str(&calls), calls.n);
            put(l, to, MSG_rank, head.s, head.n);
        }
        strbuf_free(&head);
        strbuf_free(&calls);
    }
}

/* --- taking --------------------------------------------------------------------------------------------- */
static bool call_is_sane(const board_call *c)
{
    return c->kind >= 0 && c->kind < COMM_KINDS && c->op >= 0 && c->op < CRED_COUNT && c->dt >= 0 &&
           c->dt < DT_COUNT;
}
static void copy_call(board_call *to, const board_call *from)
{
    board_call c = *from;
    c.where[COMM_WHERE - 1] = 0;
    atomic_store(&to->seq, 0);
    memcpy((char *)to + sizeof to->seq, (const char *)&c + sizeof c.seq, sizeof c - sizeof c.seq);
    atomic_store(&to->seq, atomic_load(&c.seq));
}

static bool take_rank(comm_link *l, peer *p, const char *data, size_t n)
{
    comm_job *j = l->j;
    rank_msg m;
    if (n < sizeof m)
        return false;
    memcpy(&m, data, sizeof m);
    if (m.rank < 0 || m.rank >= j->at.size || is_ours(l, m.rank) || m.note >= BOARD_NOTE ||
        m.stack >= BOARD_STACK || m.calls > BOARD_RING || m.state < RANK_joined || m.state > RANK_left ||
        !call_is_sane(&m.last) || n != sizeof m + m.note + m.stack + (size_t)m.calls * sizeof(board_call))
        return false;
    board_rank *x = &j->b->rank[m.rank];
    const char *rest = data + sizeof m;
    l->via[m.rank] = p->rank;
    memcpy(x->note, rest, m.note);
    x->note[m.note] = 0;
    if (m.fresh) {
        memcpy(x->stack, rest + m.note, m.stack);
        x->stack[m.stack] = 0;
        atomic_store(&x->answered, atomic_load(&j->b->want_stacks));
    }
    memcpy(x->host, m.host, sizeof x->host - 1);
    copy_call(&x->last, &m.last);
    atomic_store(&x->pid, m.pid);
    atomic_store(&x->life, m.life);
    atomic_store(&x->acknowledged, m.acknowledged);
    atomic_store(&x->remote, 1);
    for (uint32_t i = 0; i < m.calls; i++) {
        board_call c;
        memcpy(&c, rest + m.note + m.stack + i * sizeof c, sizeof c);
        if (!call_is_sane(&c))
            return false;
        uint64_t at = atomic_load(&x->ncalls);
        copy_call(&x->recent[at % BOARD_RING], &c);
        atomic_store(&x->ncalls, at + 1);
        if (j->at.rank == 0 && watch_compare_hosts(j, m.rank, &c))
            l->differ_ns = clock_ns();
    }
    atomic_store(&x->state, m.state);
    return true;
}

static void take_want(comm_link *l)
{
    l->wanted = atomic_fetch_add(&l->j->b->want_stacks, 1) + 1;
    atomic_fetch_add(&l->j->b->bell, 1);
    futex_wake(&l->j->b->bell);
}
static uint32_t layout(void) { return (uint32_t)(sizeof(rank_msg) * 1000 + sizeof(board_call)); }

static bool take(comm_link *l, peer *p, uint32_t kind, const char *data, size_t n)
{
    bool hub = l->j->at.rank == 0;
    if (kind == MSG_hello && hub && p->rank < 0) {
        hello_msg h;
        if (n != sizeof h)
            return false;
        memcpy(&h, data, sizeof h);
        if (memcmp(h.token, l->token, TOKEN) || h.layout != layout() || h.rank <= 0 ||
            h.rank >= l->j->at.size)
            return false;
        p->rank = h.rank;
        send_everything(l, p);
        return true;
    }
    if (p->rank < 0)
        return false;
    if (kind == MSG_rank) {
        if (!take_rank(l, p, data, n))
            return false;
    } else if (kind == MSG_want) {
        take_want(l);
    } else if (kind == MSG_abort) {
        strbuf text = { 0 };
        strbuf_addn(&text, data, n);
        if (watch_claim(l->j))
            watch_publish(l->j, strbuf_str(&text));
        strbuf_free(&text);
        return true; /* the board tells the others */
    } else
        return kind == MSG_alive;
    if (hub)
        put_all(l, p, kind, data, n);
    return true;
}

/* A link over which nothing comes: the process is stopped, or its host is gone. What it said before stands. */
static void set_silent(comm_link *l, peer *p, bool silent)
{
    p->silent = silent;
    for (int r = 0; r < l->j->at.size; r++) {
        int from = silent ? 'R' : '?';
        if (l->via[r] == p->rank)
            atomic_compare_exchange_strong(&l->j->b->rank[r].life, &from, silent ? '?' : 'R');
    }
}

static void hear(comm_link *l, peer *p)
{
    char buf[8192];
    ssize_t n = recv(p->fd, buf, sizeof buf, MSG_DONTWAIT);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            hang_up(l, p);
        return;
    }
    strbuf_addn(&p->in, buf, (size_t)n);
    p->heard_ns = clock_ns();
    if (p->silent)
        set_silent(l, p, false);
    for (msg_head h; p->fd >= 0 && p->in.n >= sizeof h;) {
        memcpy(&h, p->in.s, sizeof h);
        if (h.nbytes > MOST) {
            hang_up(l, p);
            break;
        }
        size_t whole = sizeof h + h.nbytes;
        if (p->in.n < whole)
            break;
        if (!take(l, p, h.kind, p->in.s + sizeof h, h.nbytes)) {
            hang_up(l, p);
            break;
        }
        if (p->fd < 0)
            break;
        memmove(p->in.s, p->in.s + whole, p->in.n - whole);
        p->in.n -= whole;
    }
}

/* --- the thread ----------------------------------------------------------------------------------------- */
static void tick(comm_link *l, bool *told)
{
    board *b = l->j->b;
    uint32_t want = atomic_load(&b->want_stacks);
    if (l->differ_ns && clock_ns() - l->differ_ns > COME_MS * 1000000ll) {
        l->differ_ns = 0;
        watch_say_hosts(l->j);
    }
    send_changes(l);
    if (clock_ns() - l->alive_ns > ALIVE_MS * 1000000ll) {
        l->alive_ns = clock_ns();
        put_all(l, NULL, MSG_alive, "", 0);
    }
    for (size_t i = 0; i < l->peers.n; i++)
        if (!l->peers.at[i].silent && clock_ns() - l->peers.at[i].heard_ns > SILENT_MS * 1000000ll)
            set_silent(l, &l->peers.at[i], true);
    if (want != l->wanted) {
        l->wanted = want;
        put_all(l, NULL, MSG_want, "", 0);
    }
    if (atomic_load(&b->aborted) == 2 && !*told) {
        *told = true;
        put_all(l, NULL, MSG_abort, b->text, strnlen(b->text, BOARD_TEXT - 1));
    }
}

static void accept_one(comm_link *l)
{
    int fd = accept4(l->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    prepare(fd);
    vec_push(&l->peers, ((peer){ .fd = fd, .rank = -1, .heard_ns = clock_ns() }));
}

static void *link_thread(void *arg)
{
    comm_link *l = arg;
    comm_job *j = l->j;
    int64_t pause = TICK_MS * MAX(1, j->at.size / 64), next = 0;
    VEC(struct pollfd) fds = { 0 };
    bool told = false;
    if (j->at.rank != 0) {
        hello_msg h = { .layout = layout(), .rank = j->at.rank };
        int fd = reach(l);
        if (fd < 0)
            return NULL;
        prepare(fd);
        memcpy(h.token, l->token, TOKEN);
        vec_push(&l->peers, ((peer){ .fd = fd, .rank = 0, .heard_ns = clock_ns() }));
        put(l, &l->peers.at[0], MSG_hello, &h, sizeof h);
    }
    while (!atomic_load(&l->stop)) {
        fds.n = 0;
        for (size_t i = 0; i < l->peers.n; i++)
            vec_push(&fds, ((struct pollfd){ l->peers.at[i].fd, POLLIN, 0 })); /* -1 is passed over */
        if (l->listener >= 0)
            vec_push(&fds, ((struct pollfd){ l->listener, POLLIN, 0 }));
        int64_t left = (next - clock_ns()) / 1000000;
        poll(fds.at, fds.n, (int)MAX(0, MIN(left, pause)));
        size_t npeers = l->peers.n;
        for (size_t i = 0; i < npeers; i++)
            if (fds.at[i].revents && l->peers.at[i].fd >= 0)
                hear(l, &l->peers.at[i]);
        if (l->listener >= 0 && fds.at[npeers].revents)
            accept_one(l);
        if (clock_ns() >= next) {
            tick(l, &told);
            next = clock_ns() + pause * 1000000;
        }
    }
    tick(l, &told);
    vec_free(&fds);
    return NULL;
}

comm_link *link_start(comm_job *j)
{
    if (j->at.local_size == j->at.size || j->at.local_rank != 0 || !j->at.link[0])
        return NULL;
    comm_link *l = mem_zalloc(sizeof *l);
    sigset_t all, old;
    l->j = j;
    l->listener = j->at.listener;
    l->sent = mem_zalloc((size_t)j->at.size * sizeof *l->sent);
    l->ncalls = mem_zalloc((size_t)j->at.size * sizeof *l->ncalls);
    l->via = mem_alloc((size_t)j->at.size * sizeof *l->via);
    for (int r = 0; r < j->at.size; r++)
        l->via[r] = -1;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bool ok = read_token(j->at.link, l->token) && pthread_create(&l->thread, NULL, link_thread, l) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (ok)
        return l;
    free(l->sent);
    free(l->ncalls);
    free(l->via);
    free(l);
    return NULL;
}

void link_stop(comm_link *l)
{
    if (!l)
        return;
    atomic_store(&l->stop, true);
    pthread_join(l->thread, NULL);
    for (size_t i = 0; i < l->peers.n; i++) {
        if (l->peers.at[i].fd >= 0)
            close(l->peers.at[i].fd);
        strbuf_free(&l->peers.at[i].in);
    }
    if (l->listener >= 0)
        close(l->listener);
    for (int r = 0; r < l->j->at.size; r++)
        strbuf_free(&l->sent[r]);
    vec_free(&l->peers);
    free(l->sent);
    free(l->ncalls);
    free(l->via);
    free(l);
}
