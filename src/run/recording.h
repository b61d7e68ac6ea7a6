/* recording.h - launches of a run of steps as a target recorded them, kept by what they depend on.
 * Knows targets and numbers. May not know plans: the caller says what a recording depends on, its key. */
#ifndef TAPER_RUN_RECORDING_H
#define TAPER_RUN_RECORDING_H
#include "target/target.h"
#include <pthread.h>

enum { RECORDINGS = 4 }; /* of one run of steps: the one used longest ago makes room */
typedef struct recording {
    uint64_t *key; /* owned; NULL: free */
    size_t n;
    void *made; /* NULL: the key was seen, nothing is recorded yet */
    bool never; /* recording it failed */
    uint64_t used;
} recording;
typedef struct recordings {
    pthread_mutex_t lock; /* held from recording_look to recording_end */
    recording at[RECORDINGS];
    uint64_t clock;
} recordings;

typedef enum {
    RECORDING_run,   /* launch one by one: the key is new, or recording failed, or another thread is here */
    RECORDING_make,  /* seen before: record now, then recording_keep */
    RECORDING_replay /* *r is ready */
} recording_what;

recordings *recordings_new(void);
void recordings_free(recordings *rs, const target *on); /* NULL is allowed */
/* What to do with a key. Unless it says run, recording_end must follow. */
recording_what recording_look(recordings *rs, const target *on, const uint64_t *key, size_t n, recording **r);
void recording_keep(recording *r, void *made); /* NULL: it failed, not again */
void recording_end(recordings *rs);
#endif
