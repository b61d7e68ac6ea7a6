#include "base/profile.h"
#include "base/vec.h"
#include <pthread.h>

enum { MOST = 4 << 20 }; /* events of one recording */

bool profile_on;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static VEC(profile_event) events;
static size_t lost;
static int threads;

void profile_add(profile_kind kind, const char *name, const char *file, int line, int64_t from)
{
    static __thread int me;
    int64_t to = clock_ns();
    pthread_mutex_lock(&lock);
    if (!me)
        me = ++threads;
    if (!profile_on || events.n >= MOST)
        lost += profile_on;
    else {
        profile_event e = { (uint8_t)kind, me, mem_strdup(name), file ? mem_strdup(file) : NULL, line,
                            from,          to };
        vec_push(&events, e);
    }
    pthread_mutex_unlock(&lock);
}

static profile_list taken(bool on)
{
    pthread_mutex_lock(&lock);
    profile_list l = { events.at, events.n, lost };
    memset(&events, 0, sizeof events);
    lost = 0;
    __atomic_store_n(&profile_on, on, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&lock);
    return l;
}

void profile_begin(void)
{
    profile_list before = taken(true);
    profile_list_free(&before);
}
profile_list profile_end(void) { return taken(false); }

void profile_list_free(profile_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->at[i].name);
        free(l->at[i].file);
    }
    free(l->at);
    memset(l, 0, sizeof *l);
}
