#include "base/profile.h"
#include "base/vec.h"
#include <pthread.h>

enum { MOST = 4 << 20 }; /* events of one recording */

uint8_t profile_on;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static VEC(profile_event) events;
static size_t lost;
static int threads;

/* Takes what e owns. */
static void add(profile_event e)
{
    static __thread int me;
    pthread_mutex_lock(&lock);
    if (!me)
        me = ++threads;
    e.thread = me;
    bool asked = profile_on & ~PROFILES_watch, kept = asked && events.n < MOST;
    if (kept)
        vec_push(&events, e);
    else
        lost += asked;
    pthread_mutex_unlock(&lock);
    if (!kept) {
        free(e.name);
        free(e.file);
        free(e.shapes);
    }
}

void profile_add(profile_kind kind, const char *name, const char *file, int line, int64_t from)
{
    add((profile_event){ .kind = (uint8_t)kind,
                         .name = mem_strdup(name),
                         .file = file ? mem_strdup(file) : NULL,
                         .line = line,
                         .from = from,
                         .to = clock_ns() });
}

void profile_add_op(const char *name, char *shapes, int64_t from)
{
    add((profile_event){
        .kind = PROFILE_op, .name = mem_strdup(name), .shapes = shapes, .from = from, .to = clock_ns() });
}

void profile_add_memory(int64_t bytes, int64_t total)
{
    int64_t now = clock_ns();
    add((profile_event){ .kind = PROFILE_memory, .from = now, .to = now, .bytes = bytes, .total = total });
}

static profile_list taken(uint8_t what)
{
    pthread_mutex_lock(&lock);
    profile_list l = { events.at, events.n, lost };
    memset(&events, 0, sizeof events);
    lost = 0;
    __atomic_store_n(&profile_on, what | (profile_on & PROFILES_watch), __ATOMIC_RELAXED);
    pthread_mutex_unlock(&lock);
    return l;
}

void profile_begin(uint8_t what)
{
    profile_list before = taken(what | PROFILES_times);
    profile_list_free(&before);
}
profile_list profile_end(void) { return taken(0); }
void profile_watch(void) { __atomic_fetch_or(&profile_on, PROFILES_watch, __ATOMIC_RELAXED); }

void profile_list_free(profile_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->at[i].name);
        free(l->at[i].file);
        free(l->at[i].shapes);
    }
    free(l->at);
    memset(l, 0, sizeof *l);
}
