/* job.c - joining a job, groups, and works: started in order, moved on by whoever waits, or by a thread in the background. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "comm/job.h"
#include "comm/nccl.h"
#include "base/clock.h"
#include "base/digest.h"
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const struct kind_row {
    const char *name;
    bool root, reduces;
} kinds[COMM_KINDS] = {
#define COMM(name, in, out, root, reduces) { #name, root, reduces },
#include "comm/comm.def"
};
const char *comm_kind_name(comm_kind k) { return kinds[k].name; }
bool comm_kind_reduces(comm_kind k) { return kinds[k].reduces; }
bool comm_kind_has_root(comm_kind k) { return kinds[k].root; }
bool comm_is_p2p(comm_kind k) { return k == COMM_send || k == COMM_recv; }

enum { AFTER_MS = 200 }; /* a work may still finish so long after an abort */

int comm_rank(const comm_job *j) { return j->at.rank; }
int comm_size(const comm_job *j) { return j->at.size; }
int64_t comm_timeout_ms(const comm_job *j) { return j->timeout_ms; }
int comm_group_rank(const comm_group *g) { return g->my; }
int comm_group_size(const comm_group *g) { return g->n; }
int comm_work_source(const comm_work *w) { return w->source; }

/* --- the job -------------------------------------------------------------------------------------------- */
static void board_head(void *p, shared_head *h)
{
    board *b = p;
    *h = (shared_head){ &b->ready, (_Atomic uint32_t *)&b->joined, &b->maker, &b->maker_born };
}
static bool board_join(comm_job *j, int64_t deadline, tp_err *err)
{
    char name[200];
    const comm_place *at = &j->at;
    snprintf(name, sizeof name, "%s.board", at->key);
    j->board_bytes = sizeof(board) + (size_t)at->size * sizeof(board_rank);
    j->b = shared_map(name, j->board_bytes, at->local_rank == 0, deadline, board_head, err);
    if (!j->b)
        return err_note(err, "joining as rank %d of %d: the first rank of this host has not come", at->rank,
                        at->size);
    board_rank *me = &j->b->rank[at->rank];
    int free_slot = RANK_absent;
    if (!atomic_compare_exchange_strong(&me->state, &free_slot, RANK_joined))
        return err_set(err, ERR_runtime, "rank %d is taken by process %d already", at->rank,
                       atomic_load(&me->pid));
    atomic_store(&me->pid, (int)getpid());
    atomic_store(&me->born, process_born(getpid()));
    gethostname(me->host, sizeof me->host - 1);
    atomic_fetch_add(&j->b->joined, 1);
    atomic_fetch_add(&j->b->bell, 1);
    futex_wake(&j->b->bell);
    while (atomic_load(&j->b->joined) < at->local_size) {
        uint32_t seen = atomic_load(&j->b->bell);
        if (clock_ns() > deadline) {
            strbuf who = { 0 };
            for (int r = 0; r < at->size; r++)
                if (atomic_load(&j->b->rank[r].state) == RANK_absent)
                    strbuf_addf(&who, "%s%d", who.n ? ", " : "", r);
            err_set(err, ERR_runtime, "rank %d of %d waited %.1f s for the others to join: missing %s",
                    at->rank, at->size, (double)j->timeout_ms / 1e3, strbuf_str(&who));
            strbuf_free(&who);
            if (at->local_rank == 0)
                shared_unlink(name);
            return false;
        }
        if (atomic_load(&j->b->joined) < at->local_size)
            futex_wait(&j->b->bell, seen, 50000000);
    }
    if (at->local_rank == 0)
        shared_unlink(name);
    return true;
}

comm_job *comm_open(const comm_spec *s, tp_err *err)
{
    comm_job *j = mem_zalloc(sizeof *j);
    int64_t deadline = clock_ns() + s->timeout_ms * 1000000;
    j->be = strcmp(s->backend, "mpi") == 0 ? &comm_mpi : &comm_shm;
    j->timeout_ms = s->timeout_ms;
    j->at = (comm_place){ s->rank, s->size, -1, -1, "", "", -1 };
    snprintf(j->at.key, sizeof j->at.key, "%s", s->key ? s->key : "");
    pthread_mutex_init(&j->queue, NULL);
    pthread_mutex_init(&j->lock, NULL);
    if (s->size > COMM_MAX_RANKS && j->be == &comm_shm) {
        err_set(err, ERR_value, "%d ranks: at most %d on one host", s->size, COMM_MAX_RANKS);
        goto fail;
    }
    if (!j->be->open(s, &j->at, err) || !board_join(j, deadline, err) || !watch_start(j, err))
        goto fail;
    j->link = link_start(j);
    return j;
fail:
    if (j->b)
        munmap(j->b, j->board_bytes);
    free(j);
    return NULL;
}

static void leave(comm_job *j)
{
    board_rank *me = &j->b->rank[j->at.rank];
    atomic_store(&me->state, RANK_left);
    atomic_fetch_add(&j->b->bell, 1);
    futex_wake(&j->b->bell);
}
void comm_wait_acknowledged(comm_job *j)
{
    comm_acknowledge(j);
    for (int k = 0; k < 150; k++) {
        bool all = true;
        for (int r = 0; r < j->at.size; r++) {
            board_rank *b = &j->b->rank[r];
            all &= atomic_load(&b->state) != RANK_joined || atomic_load(&b->acknowledged) ||
                   rank_life(b) != 'R';
        }
        if (all)
            return;
        nanosleep(&(struct timespec){ 0, 20000000 }, NULL);
    }
}

static void group_free(comm_group *g);
static void abort_devices(comm_job *j)
{
    for (size_t i = 0; i < j->groups.n; i++)
        if (j->groups.at[i]->on_device)
            comm_nccl_free(j->groups.at[i]->on_device, true);
}
void comm_close(comm_job *j)
{
    bool aborted = atomic_load(&j->b->aborted) == 2;
    while (!aborted && atomic_load(&j->npending)) { /* works that somebody started and did not wait for */
        pthread_mutex_lock(&j->lock);
        comm_progress(j);
        pthread_mutex_unlock(&j->lock);
        sched_yield();
        aborted = atomic_load(&j->b->aborted) == 2;
    }
    if (aborted) {
        comm_wait_acknowledged(j);
        abort_devices(j);
    }
    atomic_store(&j->closing, true);
    watch_stop(j);
    leave(j);
    link_stop(j->link);
    while (j->groups.n && !aborted)
        group_free(vec_pop(&j->groups));
    j->be->close(aborted);
    if (aborted)
        return; /* works may hold buffers that the back end still writes to: nothing is given back */
    munmap(j->b, j->board_bytes);
    for (size_t i = 0; i < j->group_names.n; i++)
        free(j->group_names.at[i]);
    vec_free(&j->group_names);
    vec_free(&j->groups);
    vec_free(&j->works);
    vec_free(&j->incoming);
    free(j);
}

/* --- groups --------------------------------------------------------------------------------------------- */
static void ledger_head(void *p, shared_head *h)
{
    ledger *l = p;
    *h = (shared_head){ &l->ready, &l->joined, &l->maker, &l->maker_born };
}
static bool is_local(const comm_job *j, int r)
{
    const board_rank *x = &j->b->rank[r];
    return atomic_load(&x->state) != RANK_absent && !atomic_load(&x->remote);
}

/* A name that the members agree on without talking: the ranks, and how many groups of them there were before. */
static void name_group(comm_job *j, const int *ranks, int n, char *out, size_t size, uint32_t *number)
{
    strbuf b = { 0 };
    int before = 0;
    uint32_t h = 2166136261u;
    for (int i = 0; i < n; i++)
        strbuf_addf(&b, "%d,", ranks[i]);
    for (size_t i = 0; i < j->group_names.n; i++)
        before += strcmp(j->group_names.at[i], b.s) == 0;
    for (size_t i = 0; i < b.n; i++)
        h = (h ^ (uint8_t)b.s[i]) * 16777619u;
    *number = h + (uint32_t)before * 40503u;
    snprintf(out, size, "%s.%08x.%d", j->at.key, h, before);
    vec_push(&j->group_names, strbuf_take(&b));
}

comm_group *comm_group_new(comm_job *j, const int *ranks, int n, tp_err *err)
{
    comm_group *g = mem_zalloc(sizeof *g);
    int64_t deadline = clock_ns() + j->timeout_ms * 1000000;
    char id[180], name[200];
    int first = -1, locals = 0;
    g->j = j;
    g->n = n;
    g->my = -1;
    g->ranks = mem_alloc((size_t)n * sizeof(int));
    memcpy(g->ranks, ranks, (size_t)n * sizeof(int));
    for (int i = 0; i < n; i++) {
        if (ranks[i] == j->at.rank)
            g->my = i;
        if (is_local(j, ranks[i])) {
            first = first < 0 ? ranks[i] : first;
            locals++;
        }
    }
    if (g->my < 0) {
        err_set(err, ERR_value, "rank %d is not a member of the group it makes", j->at.rank);
        goto fail;
    }
    name_group(j, ranks, n, id, sizeof id, &g->name);
    snprintf(name, sizeof name, "%s.calls", id);
    g->led_bytes = sizeof(ledger) + (size_t)n * sizeof g->led->rank[0];
    g->led = shared_map(name, g->led_bytes, first == j->at.rank, deadline, ledger_head, err);
    if (!g->led)
        goto fail;
    if ((int)atomic_fetch_add(&g->led->joined, 1) + 1 == locals)
        shared_unlink(name);
    pthread_mutex_lock(&j->lock);
    g->impl = j->be->group(id, ranks, n, g->my, locals == n, deadline, err);
    pthread_mutex_unlock(&j->lock);
    if (!g->impl) {
        munmap(g->led, g->led_bytes);
        goto fail;
    }
    vec_push(&j->groups, g);
    return g;
fail:
    free(g->ranks);
    free(g);
    return NULL;
}

bool comm_group_on(comm_group *g, tp_device on, const char *id, tp_err *err)
{
    if (g->on_device)
        return err_set(err, ERR_value, "this group has been joined on a device already");
    g->on_device = comm_nccl_group(on, id, g->n, g->my, clock_ns() + g->j->timeout_ms * 1000000, g->j, err);
    return g->on_device != NULL;
}
tp_device comm_group_device(const comm_group *g)
{
    return g->on_device ? comm_nccl_device(g->on_device) : DEVICE_CPU;
}

static void group_free(comm_group *g)
{
    if (g->on_device)
        comm_nccl_free(g->on_device, false);
    g->j->be->group_free(g->impl);
    munmap(g->led, g->led_bytes);
    free(g->ranks);
    free(g);
}

/* --- works ---------------------------------------------------------------------------------------------- */
static bool on_device(const comm_work *w) { return w->c.on.kind != DEV_cpu; }
static const comm_backend *moves(const comm_work *w) { return on_device(w) ? &comm_nccl : w->g->j->be; }
static void *moved_by(const comm_work *w) { return on_device(w) ? w->g->on_device : w->g->impl; }

static void write_call(board_call *slot, const board_call *c, uint64_t seq)
{
    atomic_store(&slot->seq, 0);
    memcpy((char *)slot + sizeof slot->seq, (const char *)c + sizeof slot->seq, sizeof *c - sizeof slot->seq);
    atomic_store(&slot->seq, seq);
}
static void record(comm_work *w)
{
    comm_group *g = w->g;
    const comm_call *c = &w->c;
    board_rank *me = &g->j->b->rank[g->j->at.rank];
    board_call *last = &me->last;
    board_call mine = { .group = g->name,
                        .kind = (int16_t)c->kind,
                        .op = (int16_t)c->op,
                        .dt = (int16_t)c->dt,
                        .root = (int16_t)c->root,
                        .n = c->in_count || c->out_count ? -1 : c->n };
    memcpy(mine.where, c->where, sizeof mine.where);
    if (w->seq) {
        write_call(&g->led->rank[g->my].ring[w->seq % BOARD_RING], &mine, w->seq);
        atomic_store(&g->led->rank[g->my].seq, w->seq);
        write_call(&me->recent[atomic_load(&me->ncalls) % BOARD_RING], &mine, w->seq);
        atomic_fetch_add(&me->ncalls, 1);
    }
    memcpy((char *)last + sizeof last->seq, (char *)&mine + sizeof last->seq, sizeof mine - sizeof last->seq);
    atomic_store(&last->seq, w->seq);
}

static bool check(const comm_group *g, const comm_call *c, tp_err *err)
{
    if ((comm_kind_has_root(c->kind) || c->kind == COMM_send) && (c->root < 0 || c->root >= g->n))
        return err_set(err, ERR_value, "rank %d of a group of %d", c->root, g->n);
    if (c->kind == COMM_recv && c->root >= g->n)
        return err_set(err, ERR_value, "rank %d of a group of %d", c->root, g->n);
    if (c->on.kind != DEV_cpu && (!g->on_device || !device_eq(c->on, comm_nccl_device(g->on_device))))
        return err_set(err, ERR_value,
                       "the tensor is on %s:%d, where this group was not joined: call torch.cuda.set_device, "
                       "or pass device_id=, before "
                       "init_process_group",
                       device_name((dev_kind)c->on.kind), c->on.index);
    return !comm_kind_reduces(c->kind) || comm_red_fits(c->dt, c->op, err);
}

static bool abort_error(comm_job *j, tp_err *err)
{
    comm_acknowledge(j);
    return err_set(err, ERR_runtime, "%s", comm_abort_text(j));
}

comm_work *comm_start(comm_group *g, const comm_call *c, bool background, tp_err *err)
{
    comm_job *j = g->j;
    if (!check(g, c, err))
        return NULL;
    if (atomic_load(&j->b->aborted) == 2) {
        abort_error(j, err);
        return NULL;
    }
    void *after = NULL;
    if (c->on.kind != DEV_cpu && !(after = comm_nccl_ready(g->on_device, c, err)))
        return NULL;
    comm_work *w = mem_zalloc(sizeof *w);
    w->g = g;
    w->c = *c;
    w->c.after = after;
    w->source = -1;
    w->since_ns = clock_ns();
    if (c->in_count || c->out_count) {
        w->counts = mem_alloc(2 * (size_t)g->n * sizeof(int64_t));
        for (int i = 0; i < g->n; i++) {
            w->counts[i] = c->in_count ? c->in_count[i] : c->n;
            w->counts[g->n + i] = c->out_count ? c->out_count[i] : c->n;
        }
        w->c.in_count = w->counts;
        w->c.out_count = w->counts + g->n;
    }
    atomic_fetch_add(&j->npending, 1);
    pthread_mutex_lock(&j->queue);
    if (!comm_is_p2p(c->kind))
        w->seq = ++g->seq;
    record(w);
    pthread_mutex_unlock(&j->queue);
    comm_record(w);
    if (w->seq) /* before it starts: a back end must not meet calls that do not fit */
        watch_compare(g, w->seq);
    pthread_mutex_lock(&j->queue);
    vec_push(&j->incoming, w);
    pthread_mutex_unlock(&j->queue);
    if (background) {
        atomic_fetch_add(&j->background, 1);
        futex_wake(&j->background);
    }
    return w;
}

static void end_work(comm_job *j, comm_work *w, int state)
{
    if (w->req)
        moves(w)->drop(moved_by(w), w->req);
    w->req = NULL;
    if (w->c.after)
        comm_nccl_forget(w->g->on_device, w->c.after);
    if (w->seq && state > 0)
        w->g->led->rank[w->g->my].ring[w->seq % BOARD_RING].done = true;
    j->b->rank[j->at.rank].last.done = true;
    atomic_store(&w->state, state);
    atomic_fetch_sub(&j->npending, 1);
    atomic_fetch_add(&j->finished, 1);
    futex_wake(&j->finished);
}

static bool has_earlier(comm_job *j, size_t i) /* a collective of the same group */
{
    for (size_t k = 0; k < i; k++)
        if (j->works.at[k] && j->works.at[k]->g == j->works.at[i]->g && j->works.at[k]->seq)
            return true;
    return false;
}

static int step(comm_job *j, comm_work *w)
{
    int state = -1;
    if (w->req || (!w->refused && (w->req = moves(w)->start(moved_by(w), &w->c, &w->err))))
        state = moves(w)->test(moved_by(w), w->req, &w->source, &w->err);
    if (state < 0)
        watch_failed(w);
    return state;
}

static bool is_bad(const comm_work *w)
{
    const board *b = w->g->j->b;
    uint64_t bad = atomic_load(&b->bad_seq);
    return bad && w->seq >= bad && w->g->name == atomic_load(&b->bad_group);
}

static bool may_run(comm_job *j, size_t i)
{
    return !j->works.at[i]->seq || (!has_earlier(j, i) && !is_bad(j->works.at[i]));
}

/* What may start on devices starts together: a send and a receive that wait for one another do not wait for each other's turn. */
static void start_on_devices(comm_job *j)
{
    tp_err err = { 0 };
    work_list now = { 0 };
    for (size_t i = 0; i < j->works.n; i++)
        if (on_device(j->works.at[i]) && !j->works.at[i]->req && may_run(j, i))
            vec_push(&now, j->works.at[i]);
    bool ok = !now.n || comm_nccl_begin(&err);
    for (size_t i = 0; i < now.n && ok; i++) {
        now.at[i]->req = comm_nccl.start(now.at[i]->g->on_device, &now.at[i]->c, &now.at[i]->err);
        now.at[i]->refused = !now.at[i]->req;
    }
    if (now.n && ok && !comm_nccl_end(&err))
        ok = false;
    for (size_t i = 0; i < now.n && !ok; i++)
        if (!now.at[i]->refused) {
            now.at[i]->err = err;
            now.at[i]->refused = true;
            if (now.at[i]->req)
                comm_nccl.drop(now.at[i]->g->on_device, now.at[i]->req);
            now.at[i]->req = NULL;
        }
    vec_free(&now);
}

void comm_hold(comm_job *j, bool hold)
{
    atomic_fetch_add(&j->holding, hold ? 1 : -1);
    if (hold)
        return;
    atomic_fetch_add(&j->background, 1);
    futex_wake(&j->background);
}

bool comm_progress(comm_job *j)
{
    bool ended = false;
    size_t kept = 0;
    pthread_mutex_lock(&j->queue);
    for (size_t i = 0; i < j->incoming.n && !j->holding; i++)
        vec_push(&j->works, j->incoming.at[i]);
    j->incoming.n = j->holding ? j->incoming.n : 0;
    pthread_mutex_unlock(&j->queue);
    start_on_devices(j);
    for (size_t i = 0; i < j->works.n; i++) {
        comm_work *w = j->works.at[i];
        int state = may_run(j, i) ? step(j, w) : 0;
        if (state) {
            end_work(j, w, state);
            j->works.at[i] = NULL;
            ended = true;
        }
    }
    for (size_t i = 0; i < j->works.n; i++)
        if (j->works.at[i])
            j->works.at[kept++] = j->works.at[i];
    j->works.n = kept;
    return ended;
}

bool comm_test(comm_work *w, bool *done, tp_err *err)
{
    comm_job *j = w->g->j;
    if (!atomic_load(&w->state) && pthread_mutex_trylock(&j->lock) == 0) {
        comm_progress(j);
        pthread_mutex_unlock(&j->lock);
    }
    int state = atomic_load(&w->state);
    *done = state != 0;
    if (!state && atomic_load(&j->b->aborted) == 2) {
        *done = true;
        return abort_error(j, err);
    }
    if (state < 0)
        *err = w->err;
    return state >= 0;
}

bool comm_wait(comm_work *w, int64_t ms, bool *done, tp_err *err)
{
    comm_job *j = w->g->j;
    int64_t since = clock_ns();
    for (*done = true;;) {
        uint32_t ended = atomic_load(&j->finished), seen = moves(w)->mark(moved_by(w));
        if (atomic_load(&w->state))
            break;
        /* What all ranks have given their part to still finishes: the error belongs to the call that cannot. */
        if (atomic_load(&j->b->aborted) == 2) {
            w->aborted_ns = w->aborted_ns ? w->aborted_ns : clock_ns();
            if (clock_ns() - w->aborted_ns > AFTER_MS * 1000000ll)
                return abort_error(j, err);
        }
        if (pthread_mutex_trylock(&j->lock) == 0) {
            comm_progress(j);
            pthread_mutex_unlock(&j->lock);
            int64_t waited = clock_ns() - since;
            if (!atomic_load(&w->state))
                moves(w)->idle(moved_by(w), seen, waited);
        } else
            futex_wait(&j->finished, ended, 1000000);
        if (ms >= 0 && !atomic_load(&w->state) && clock_ns() - since > ms * 1000000) {
            *done = false;
            return true;
        }
    }
    if (atomic_load(&w->state) > 0)
        return true;
    *err = w->err;
    return false;
}

void comm_work_free(comm_work *w)
{
    tp_err err = { 0 };
    comm_job *j = w->g->j;
    bool done;
    while (!atomic_load(&w->state) && atomic_load(&j->b->aborted) != 2)
        comm_wait(w, -1, &done, &err);
    if (!atomic_load(&w->state))
        return; /* aborted: the back end may still write, and the process ends */
    free(w->counts);
    free(w);
}
