/* recording.c - see recording.h. */
#include "run/recording.h"

recordings *recordings_new(void)
{
    recordings *rs = mem_zalloc(sizeof *rs);
    pthread_mutex_init(&rs->lock, NULL);
    return rs;
}

static void clear(recording *r, const target *on)
{
    if (r->made)
        on->drop(r->made);
    free(r->key);
    *r = (recording){ 0 };
}

void recordings_free(recordings *rs, const target *on)
{
    if (!rs)
        return;
    for (int i = 0; i < RECORDINGS; i++)
        clear(&rs->at[i], on);
    pthread_mutex_destroy(&rs->lock);
    free(rs);
}

recording_what recording_look(recordings *rs, const target *on, const uint64_t *key, size_t n, recording **r)
{
    if (pthread_mutex_trylock(&rs->lock))
        return RECORDING_run;
    recording_what what = RECORDING_run;
    recording *oldest = &rs->at[0], *found = NULL;
    for (int i = 0; i < RECORDINGS && !found; i++) {
        recording *x = &rs->at[i];
        if (x->key && x->n == n && !memcmp(x->key, key, n * sizeof *key))
            found = x;
        else if (x->used < oldest->used)
            oldest = x;
    }
    if (found && !found->never)
        what = found->made ? RECORDING_replay : RECORDING_make;
    if (!found) {
        clear(oldest, on);
        oldest->key = memcpy(mem_alloc(MAX(n, 1) * sizeof *key), key, n * sizeof *key);
        oldest->n = n;
    }
    *r = found ? found : oldest;
    (*r)->used = ++rs->clock;
    if (what == RECORDING_run)
        pthread_mutex_unlock(&rs->lock);
    return what;
}

void recording_keep(recording *r, void *made)
{
    r->made = made;
    r->never = !made;
}
void recording_end(recordings *rs) { pthread_mutex_unlock(&rs->lock); }
