/* internal.h - private to src/events/. */
#ifndef TAPER_EVENTS_INTERNAL_H
#define TAPER_EVENTS_INTERNAL_H
#include "events/events.h"
#include <pthread.h>

typedef struct ev_row {
    const char *name, *help;
    uint8_t component, level, flags;
} ev_row;
typedef struct ev_crow {
    const char *name, *help;
    uint32_t implies;
} ev_crow;
extern const ev_row ev_rows[EV_COUNT];
extern const ev_crow ev_crows[EVC_COUNT];

extern pthread_mutex_t ev_lock; /* around sinks and settings; safe across fork */
void ev_lock_init(void);        /* registers the fork handlers once */
pid_t ev_pid(void);             /* of this process, also after a fork */

const char *ev_short_file(const char *file); /* path below src/ */
void ev_prefix(strbuf *out, char letter, const char *file,
               int line);  /* "V1115 10:20:30.123456 99 sym/env.c:9]" */
void ev_later_ready(void); /* the thread of ev_later is there */
bool ev_digest_later(
    size_t n);              /* has the thread of ev_later a mind to compute the digest of so many bytes? */
void ev_later_chores(void); /* that thread has chores (ev_trace_chore) */
void ev_wait_chores(void);  /* until everything is written, and there are no chores any more */
void ev_later_compiling(int more); /* so many more compiles are open */
void ev_crash_watch(bool on);      /* whether a crash waits for the thread of ev_later */
char ev_letter(int level);
const ev_cid *ev_cid_or_now(const ev_cid *c);

void ev_text_init(void);          /* reads the variables of the text sink */
void ev_refresh(void);            /* recomputes ev_mask and ev_levels; under ev_lock */
uint8_t ev_trace_bits(ev_kind k); /* EVF_trace when the trace wants this kind */
extern bool ev_listened;          /* somebody inside the process wants every text */
bool ev_text_wants(ev_kind k);
int ev_component_level(ev_component c);
int64_t ev_trace_spent(void); /* nanoseconds that this thread ever spent on records */
void ev_trace_spend(
    int64_t ns);          /* so many more, on the text of one; what records cost meanwhile is part of it */
void ev_trace_tidy(void); /* a file without a record goes away */
/* What the thread of ev_later does for the file when it has nothing more urgent to do: a piece of it; true: there is more.
 * busy: that is in the way of a compile, and what can wait does. */
bool ev_trace_chore(bool busy);
bool ev_trace_mend(const void *fault); /* tracefile_mend */
#endif
