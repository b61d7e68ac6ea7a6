/* watch.c - the watchdog: ranks that are gone, ranks that do something else, works that take too long.
 * Whoever finds a fault writes one text for all ranks of the host; each of them ends with it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "comm/job.h"
#include "base/clock.h"
#include "base/file.h"
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { COME_MS = 10000, LOOK_MS = 50, STACKS_MS = 1500, GRACE_MS = 1000, END_MS = 4000 };

static void nap_ms(int64_t ms) { nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL); }

/* --- texts ---------------------------------------------------------------------------------------------- */
void call_text(strbuf *b, const board_call *c, const comm_job *j)
{
    uint64_t seq = atomic_load(&c->seq);
    strbuf_add(b, comm_kind_name((comm_kind)c->kind));
    if (seq)
        strbuf_addf(b, " number %llu", (unsigned long long)seq);
    if (comm_kind_reduces((comm_kind)c->kind))
        strbuf_addf(b, ", %s", comm_red_names[c->op]);
    if (c->kind != COMM_barrier && c->n >= 0)
        strbuf_addf(b, " of %lld %s", (long long)c->n, dtype_name((dtype)c->dt));
    else if (c->kind != COMM_barrier)
        strbuf_addf(b, " of %s", dtype_name((dtype)c->dt));
    if (comm_kind_has_root((comm_kind)c->kind))
        strbuf_addf(b, ", root %d", c->root);
    if (c->kind == COMM_send && c->root >= 0)
        strbuf_addf(b, " to rank %d", c->root);
    if (c->kind == COMM_recv && c->root >= 0)
        strbuf_addf(b, " from rank %d", c->root);
    if (c->where[0])
        strbuf_addf(b, ", at %s", c->where);
}

static bool gone(const board_rank *r) { return atomic_load(&r->state) != RANK_absent && rank_life(r) == 'X'; }
static void rank_text(strbuf *b, comm_job *j, int r)
{
    board_rank *x = &j->b->rank[r];
    int state = atomic_load(&x->state), pid = atomic_load(&x->pid);
    strbuf_addf(b, "  rank %d", r);
    if (state == RANK_absent) {
        strbuf_add(b, " runs on another host\n");
        return;
    }
    char life = rank_life(x);
    strbuf_addf(b, j->at.local_size < j->at.size ? " (process %d on %.*s)" : " (process %d)", pid, BOARD_HOST,
                x->host);
    bool in = x->last.kind != COMM_barrier || atomic_load(&x->last.seq);
    if (life == 'X')
        strbuf_add(b, state == RANK_left ? " has left and ended" : " has died");
    else if (state == RANK_left)
        strbuf_add(b, " has left the job");
    else if (life == 'T')
        strbuf_add(b, " is stopped by a signal");
    else if (life == '?')
        strbuf_add(b,
                   " is not heard of any more: it is stopped, or its host or the first rank there is gone");
    else
        strbuf_add(b, in && !x->last.done ? " waits" : " computes");
    if (in) {
        strbuf_add(b, x->last.done ? "; its last call was " : " in ");
        call_text(b, &x->last, j);
    } else
        strbuf_add(b, atomic_load(&x->remote) ? "; no call of it is known"
                                              : "; it has not called a collective yet");
    strbuf_addc(b, '\n');
    if (x->note[0])
        strbuf_addf(b, "    it ended with: %.*s\n", BOARD_NOTE, x->note);
}
static void stack_text(strbuf *b, const board_rank *x, bool answered)
{
    if (!answered) {
        strbuf_add(b,
                   "    (gives no stack: stopped, ended, or in code that does not let other threads run)\n");
        return;
    }
    for (const char *p = x->stack; *p;) {
        size_t n = strcspn(p, "\n");
        strbuf_addf(b, "    %.*s\n", (int)n, p);
        p += n + (p[n] == '\n');
    }
}
void comm_status(comm_job *j, strbuf *out)
{
    for (int r = 0; r < j->at.size; r++)
        rank_text(out, j, r);
}

/* --- the abort ------------------------------------------------------------------------------------------ */
bool watch_claim(comm_job *j)
{
    int none = 0;
    return atomic_compare_exchange_strong(&j->b->aborted, &none, 1);
}
void watch_publish(comm_job *j, const char *text)
{
    snprintf(j->b->text, BOARD_TEXT, "%s", text);
    atomic_store(&j->b->aborted, 2);
    atomic_fetch_add(&j->b->bell, 1);
    futex_wake(&j->b->bell);
}
void comm_abort(comm_job *j, const char *text)
{
    if (watch_claim(j))
        watch_publish(j, text);
}
const char *comm_abort_text(comm_job *j) { return atomic_load(&j->b->aborted) == 2 ? j->b->text : NULL; }
void comm_acknowledge(comm_job *j)
{
    atomic_store(&j->acknowledged, true);
    atomic_store(&j->b->rank[j->at.rank].acknowledged, 1);
}
void comm_note(comm_job *j, const char *text)
{
    snprintf(j->b->rank[j->at.rank].note, BOARD_NOTE, "%s", text);
}

static bool may_answer(const board_rank *x)
{
    return atomic_load(&x->state) == RANK_joined && rank_life(x) == 'R';
}
/* Asks every rank for its stack; true when some rank answered. */
static uint32_t ask_stacks(comm_job *j)
{
    uint32_t want = atomic_fetch_add(&j->b->want_stacks, 1) + 1;
    atomic_fetch_add(&j->b->bell, 1);
    futex_wake(&j->b->bell);
    for (int64_t until = clock_ns() + STACKS_MS * 1000000ll; clock_ns() < until; nap_ms(5)) {
        bool all = true;
        for (int r = 0; r < j->at.size; r++)
            all &= atomic_load(&j->b->rank[r].answered) >= want || !may_answer(&j->b->rank[r]);
        if (all)
            break;
    }
    return want;
}
/* head: what went wrong, the first line. The abort is claimed. */
static void abort_with(comm_job *j, const char *head, bool stacks)
{
    strbuf b = { 0 };
    uint32_t want = stacks ? ask_stacks(j) : 0;
    strbuf_addf(&b, "%s\n", head);
    for (int r = 0; r < j->at.size; r++) {
        board_rank *x = &j->b->rank[r];
        rank_text(&b, j, r);
        if (stacks && atomic_load(&x->state) == RANK_joined)
            stack_text(&b, x, atomic_load(&x->answered) >= want);
    }
    watch_publish(j, b.s);
    strbuf_free(&b);
}

/* --- ranks that do something else ----------------------------------------------------------------------- */
static bool same(const board_call *a, const board_call *b)
{
    return a->kind == b->kind && a->dt == b->dt && a->n == b->n &&
           (!comm_kind_reduces((comm_kind)a->kind) || a->op == b->op) &&
           (!comm_kind_has_root((comm_kind)a->kind) || a->root == b->root);
}
/* What rank r of the job started under that number of a group; false: nothing yet, or so long ago that it is forgotten. */
static bool find_call(const comm_job *j, int r, uint32_t group, uint64_t seq, board_call *out)
{
    for (int k = 0; k < BOARD_RING; k++) {
        const board_call *c = &j->b->rank[r].recent[k];
        if (atomic_load(&c->seq) != seq || c->group != group)
            continue;
        memcpy(out, c, sizeof *out);
        return atomic_load(&c->seq) == seq && out->group == group;
    }
    return false;
}
static int like(const comm_job *j, const board_call *c) /* ranks that do the same */
{
    board_call other;
    int n = 0;
    for (int r = 0; r < j->at.size; r++)
        n += find_call(j, r, c->group, atomic_load(&c->seq), &other) && same(&other, c);
    return n;
}
/* The others may be on their way: who is alone is known when all have come. */
static void let_come(comm_job *j, const comm_group *g, uint32_t group, uint64_t seq)
{
    board_call c;
    for (int64_t until = clock_ns() + MIN(j->timeout_ms, COME_MS) * 1000000ll; clock_ns() < until;
         nap_ms(2)) {
        int here = 0;
        for (int i = 0; i < g->n; i++) {
            const board_rank *x = &j->b->rank[g->ranks[i]];
            here += find_call(j, g->ranks[i], group, seq, &c) || gone(x) ||
                    atomic_load(&x->state) != RANK_joined;
        }
        if (here == g->n)
            break;
    }
}

/* g NULL: the group may be one of other ranks, and who is coming has come. */
static void disagree(comm_job *j, const comm_group *g, uint32_t group, uint64_t seq)
{
    strbuf b = { 0 }, who = { 0 };
    board_call c, most = { 0 };
    int best = 0;
    if (g)
        let_come(j, g, group, seq);
    for (int r = 0; r < j->at.size; r++)
        if (find_call(j, r, group, seq, &c) && like(j, &c) > best) {
            best = like(j, &c);
            most = c;
        }
    for (int r = 0; r < j->at.size; r++)
        if (find_call(j, r, group, seq, &c) && !same(&c, &most))
            strbuf_addf(&who, "%s%d", who.n ? ", " : "", r);
    strbuf_addf(&b, "ranks disagree about collective number %llu of their group: ", (unsigned long long)seq);
    strbuf_addf(&b, best > 1 ? "rank %s does something else\n" : "each does something else than rank %s\n",
                strbuf_str(&who));
    for (int r = 0; r < j->at.size; r++) {
        if (!find_call(j, r, group, seq, &c))
            continue;
        strbuf_addf(&b, "  rank %d calls ", r);
        call_text(&b, &c, j);
        strbuf_addc(&b, '\n');
    }
    watch_publish(j, b.s);
    strbuf_free(&b);
    strbuf_free(&who);
}

static void hold(comm_job *j, uint32_t group,
                 uint64_t seq) /* the abort is claimed: that call and later ones stay */
{
    atomic_store(&j->b->bad_group, group);
    atomic_store(&j->b->bad_seq, seq);
}
void watch_compare(comm_group *g, uint64_t seq)
{
    board_call mine, other;
    if (!find_call(g->j, g->j->at.rank, g->name, seq, &mine))
        return;
    for (int i = 0; i < g->n; i++)
        if (i != g->my && find_call(g->j, g->ranks[i], g->name, seq, &other) && !same(&mine, &other)) {
            if (watch_claim(g->j)) {
                hold(g->j, g->name, seq);
                disagree(g->j, g, g->name, seq);
            }
            return;
        }
}
bool watch_compare_hosts(comm_job *j, int r, const board_call *c)
{
    board_call other;
    uint64_t seq = atomic_load(&c->seq);
    for (int q = 0; q < j->at.size; q++)
        if (q != r && find_call(j, q, c->group, seq, &other) && !same(c, &other) && watch_claim(j)) {
            hold(j, c->group, seq);
            return true;
        }
    return false;
}
void watch_say_hosts(comm_job *j)
{
    disagree(j, NULL, atomic_load(&j->b->bad_group), atomic_load(&j->b->bad_seq));
}
void watch_failed(comm_work *w)
{
    comm_job *j = w->g->j;
    board_call c = { 0 };
    strbuf b = { 0 };
    /* Ranks of other hosts may have called something else: rank 0 finds that out. */
    int64_t until = clock_ns() + (j->at.local_size < j->at.size ? 3 * GRACE_MS * 1000000ll : 0);
    while (clock_ns() < until && atomic_load(&j->b->aborted) != 2)
        nap_ms(5);
    if (atomic_load(&j->b->aborted) == 2) {
        comm_acknowledge(j);
        return;
    }
    if (w->seq && find_call(j, j->at.rank, w->g->name, w->seq, &c)) {
        call_text(&b, &c, j);
        err_note(&w->err, "in %s", b.s);
    }
    strbuf_free(&b);
}

/* --- ranks that do not come ----------------------------------------------------------------------------- */
static bool arrived(const comm_work *w, int i)
{
    const comm_group *g = w->g;
    const board_rank *x = &g->j->b->rank[g->ranks[i]];
    uint64_t last = atomic_load(&g->led->rank[i].seq);
    for (int k = 0; k < BOARD_RING && atomic_load(&x->remote); k++)
        if (x->recent[k].group == g->name)
            last = MAX(last, atomic_load(&x->recent[k].seq));
    return last >= w->seq;
}
/* The rank of the job that this work waits for in vain: dead, or it has left; -1: none. */
static int lost(comm_job *j, const comm_work *w)
{
    for (int i = 0; i < w->g->n; i++) {
        int r = w->g->ranks[i];
        board_rank *x = &j->b->rank[r];
        if (i == w->g->my || atomic_load(&x->state) == RANK_absent)
            continue;
        if (!w->seq && i != w->c.root && w->c.root >= 0)
            continue;
        if (!w->seq && w->c.root < 0 && w->g->n > 2)
            continue; /* from anybody: the others may still send */
        if (gone(x) || (atomic_load(&x->state) == RANK_left && !(w->seq && arrived(w, i))))
            return r;
    }
    return -1;
}
static void say_lost(comm_job *j, const comm_work *w, int r)
{
    strbuf b = { 0 };
    board_rank *x = &j->b->rank[r];
    strbuf_addf(&b, "%s", comm_kind_name(w->c.kind));
    if (w->seq)
        strbuf_addf(&b, " number %llu", (unsigned long long)w->seq);
    strbuf_addf(&b, " cannot finish: rank %d %s", r,
                atomic_load(&x->state) == RANK_left ? "has left the job" : "has died (killed, or crashed)");
    if (x->note[0])
        strbuf_addf(&b, " after %.200s", x->note);
    abort_with(j, b.s, false);
    strbuf_free(&b);
}
static void say_late(comm_job *j, const comm_work *w)
{
    strbuf b = { 0 }, who = { 0 };
    int n = 0;
    bool unknown = false;
    strbuf_addf(&b, "%s", comm_kind_name(w->c.kind));
    if (w->seq)
        strbuf_addf(&b, " number %llu", (unsigned long long)w->seq);
    strbuf_addf(&b, " has waited longer than %.1f s", (double)j->timeout_ms / 1e3);
    for (int i = 0; i < w->g->n; i++) {
        int r = w->g->ranks[i];
        board_rank *x = &j->b->rank[r];
        bool stopped = atomic_load(&x->state) == RANK_joined && rank_life(x) == 'T';
        unknown |= atomic_load(&x->state) == RANK_absent;
        if (atomic_load(&x->state) == RANK_absent || i == w->g->my)
            continue;
        if (stopped || (w->seq ? !arrived(w, i) : i == w->c.root)) {
            strbuf_addf(&who, "%s%d%s", n ? ", " : "", r, stopped ? " (stopped by a signal)" : "");
            n++;
        }
    }
    if (n && w->seq)
        strbuf_addf(&b, ": rank%s %s %s missing", plural(n), who.s, n == 1 ? "is" : "are");
    else if (n)
        strbuf_addf(&b, " for rank %s", who.s);
    else
        strbuf_adds(&b, ", though no rank ", unknown ? "of this host " : "", "is missing", NULL);
    abort_with(j, b.s, true);
    strbuf_free(&b);
    strbuf_free(&who);
}

static void look(comm_job *j)
{
    comm_work *bad = NULL;
    int who = -1;
    pthread_mutex_lock(&j->lock);
    comm_progress(j);
    for (size_t i = 0; i < j->works.n && !bad; i++) {
        comm_work *w = j->works.at[i];
        int r = lost(j, w);
        /* Seen twice, with a pass between: what a rank left behind when it ended has been read by then. */
        if (r >= 0 && ++w->suspected > 2)
            bad = w, who = r;
        else if (clock_ns() - w->since_ns > j->timeout_ms * 1000000)
            bad = w;
    }
    if (bad && watch_claim(j)) {
        if (who >= 0)
            say_lost(j, bad, who);
        else
            say_late(j, bad);
    }
    pthread_mutex_unlock(&j->lock);
}

/* Nobody here has shown the abort: end the process, for it may never look. */
static void end_unless_acknowledged(comm_job *j)
{
    int64_t now = clock_ns();
    if (!j->aborted_ns)
        j->aborted_ns = now;
    if (!atomic_load(&j->acknowledged) && now - j->aborted_ns > END_MS * 1000000ll) {
        fd_write_all(2, j->b->text, strlen(j->b->text));
        _exit(1);
    }
}

static void *watchdog(void *job)
{
    comm_job *j = job;
    int claimed = 0;
    while (!atomic_load(&j->closing)) {
        nap_ms(LOOK_MS);
        int aborted = atomic_load(&j->b->aborted);
        claimed = aborted == 1 ? claimed + 1 : 0;
        if (claimed * LOOK_MS > END_MS + COME_MS) /* who found it has ended since */
            watch_publish(j, "the job was aborted by a rank that ended before it could say why\n");
        if (aborted == 2)
            end_unless_acknowledged(j);
        else if (!atomic_load(&j->closing))
            look(j);
    }
    return NULL;
}

static void *worker(void *job)
{
    comm_job *j = job;
    while (!atomic_load(&j->closing)) {
        uint32_t seen = atomic_load(&j->background);
        comm_group *g = NULL;
        int64_t since = clock_ns();
        bool ended;
        do {
            uint32_t mark = 0;
            pthread_mutex_lock(&j->lock);
            ended = comm_progress(j);
            g = j->works.n ? j->works.at[0]->g : NULL;
            mark = g ? j->be->mark(g->impl) : 0;
            pthread_mutex_unlock(&j->lock);
            since = ended ? clock_ns() : since;
            if (g && !ended)
                j->be->idle(g->impl, mark, clock_ns() - since);
        } while (g && !atomic_load(&j->closing) && atomic_load(&j->b->aborted) == 0);
        futex_wait(&j->background, seen, 50000000);
    }
    return NULL;
}

static bool quiet_thread(pthread_t *t, void *(*fn)(void *), void *arg, tp_err *err)
{
    sigset_t all, old; /* signals are for the threads of the program */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(t, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc == 0 || err_set(err, ERR_os, "cannot start a thread: %s", strerror(rc));
}
bool watch_start(comm_job *j, tp_err *err)
{
    j->has_watchdog = quiet_thread(&j->watchdog, watchdog, j, err);
    j->has_worker = j->has_watchdog && quiet_thread(&j->worker, worker, j, err);
    return j->has_worker;
}
void watch_stop(comm_job *j)
{
    atomic_fetch_add(&j->background, 1);
    futex_wake(&j->background);
    atomic_fetch_add(&j->b->bell, 1);
    futex_wake(&j->b->bell);
    if (j->has_worker)
        pthread_join(j->worker, NULL);
    if (j->has_watchdog)
        pthread_join(j->watchdog, NULL);
    while (atomic_load(&j->listeners))
        nap_ms(1);
}

int comm_listen(comm_job *j)
{
    board_rank *me = &j->b->rank[j->at.rank];
    int64_t aborted = 0;
    int what = 0;
    atomic_fetch_add(&j->listeners, 1); /* comm_close waits for us */
    while (!what && !atomic_load(&j->closing)) {
        uint32_t seen = atomic_load(&j->b->bell);
        if (atomic_load(&me->answered) < atomic_load(&j->b->want_stacks))
            what = 1;
        if (atomic_load(&j->b->aborted) == 2 && !atomic_load(&j->acknowledged)) {
            aborted = aborted ? aborted : clock_ns();
            if (clock_ns() - aborted > GRACE_MS * 1000000ll)
                what = 2;
        }
        if (!what)
            futex_wait(&j->b->bell, seen, 100000000);
    }
    atomic_fetch_sub(&j->listeners, 1);
    return what;
}
void comm_stack(comm_job *j, const char *text)
{
    board_rank *me = &j->b->rank[j->at.rank];
    snprintf(me->stack, BOARD_STACK, "%s", text);
    atomic_store(&me->answered, atomic_load(&j->b->want_stacks));
}
