/* events.h - the one stream of compile events; text logs (TAPER_LOGS) and trace files (TAPER_TRACE) read it.
 *
 *   if (ev_on(EV_graph_breaks))                          one relaxed byte load when nobody listens
 *       ev_text(EV_graph_breaks, NULL, "Graph break at %s", where);
 *   if (ev_log_on(EVC_dynamic, EV_INFO))
 *       ev_log(EVC_dynamic, EV_INFO, NULL, "produce_guards");
 *   if (ev_trace_on(EV_dynamo_output_graph))
 *       ev_json(EV_dynamo_output_graph, NULL, "{\"sizes\": {}}", code);
 *
 * The compile id argument is NULL for "the compile this thread is in" (ev_cid_set). New kinds are rows of
 * events.def. Everything here may be called from any thread. */
#ifndef TAPER_EVENTS_H
#define TAPER_EVENTS_H
#include "base/err.h"
#include "base/json.h"
#include "base/strbuf.h"

typedef enum { EV_DEBUG = 10, EV_INFO = 20, EV_WARNING = 30, EV_ERROR = 40, EV_CRITICAL = 50 } ev_level;
typedef enum {
#define EV_COMPONENT(name, implies, help) EVC_##name,
#include "events/events.def"
    EVC_COUNT
} ev_component;
typedef enum {
#define EV(name, component, level, flags, help) EV_##name,
#include "events/events.def"
    EV_COUNT
} ev_kind;
enum {
    EVF_log = 1,
    EVF_trace = 2,
    EVF_off = 4,
    EVF_vis = 8,
    EVF_slow = 16,
    EVF_free = 32,
    EVF_bare = 64,
    EVF_none = 128
};

/* --- is anybody listening? ------------------------------------------------------------------------------ */
extern uint8_t ev_mask[EV_COUNT];    /* EVF_log | EVF_trace bits that are live; read through these: */
extern uint8_t ev_levels[EVC_COUNT]; /* a message of a component shows from this level on */
#ifdef TAPER_NO_EVENTS /* to measure what the checks cost: every question is answered at compile time */
static inline bool ev_on(ev_kind k) { return false; }
static inline bool ev_text_on(ev_kind k) { return false; }
static inline bool ev_trace_on(ev_kind k) { return false; }
static inline bool ev_log_on(ev_component c, ev_level l) { return false; }
#else
static inline uint8_t ev_listeners(ev_kind k) { return __atomic_load_n(&ev_mask[k], __ATOMIC_RELAXED); }
static inline bool ev_on(ev_kind k) { return TP_UNLIKELY(ev_listeners(k)); }
static inline bool ev_text_on(ev_kind k) { return TP_UNLIKELY(ev_listeners(k) & EVF_log); }
static inline bool ev_trace_on(ev_kind k) { return TP_UNLIKELY(ev_listeners(k) & EVF_trace); }
static inline bool ev_log_on(ev_component c, ev_level l)
{
    return TP_UNLIKELY(l >= __atomic_load_n(&ev_levels[c], __ATOMIC_RELAXED));
}
#endif

/* --- which compile -------------------------------------------------------------------------------------- */
typedef struct ev_cid {
    int frame, compile, attempt; /* prints 0/1, or 0/1_2 when attempt is not 0 */
} ev_cid;
void ev_cid_set(const ev_cid *c); /* of this thread; NULL: in no compile */
const ev_cid *ev_cid_now(void);   /* NULL when in no compile */
void ev_cid_print(strbuf *out, const ev_cid *c);

/* --- emitting ---------------------------------------------------------------------------------------- */
/* Text of an artifact; shown only when its log is on. Every line of the text gets the prefix. */
#define ev_text(kind, cid, ...) ev_text_at((kind), (cid), __FILE__, __LINE__, __VA_ARGS__)
/* A message of a component. */
#define ev_log(component, level, cid, ...) \
    ev_log_at((component), (level), (cid), __FILE__, __LINE__, __VA_ARGS__)
/* A trace record: metadata is one JSON value on one line; payload may be NULL. */
#define ev_json(kind, cid, metadata, payload) \
    ev_json_at((kind), (cid), __FILE__, __LINE__, (metadata), (payload))
/* The trace record "artifact"; encoding "string" or "json". */
#define ev_artifact(name, encoding, cid, payload) \
    ev_artifact_at((name), (encoding), (cid), __FILE__, __LINE__, (payload))
/* Phases for timelines: 'B' and 'E' around a piece of work, 'i' for an instant. args: a JSON object or NULL.
 */
#define ev_phase(name, ph, cid, args) ev_phase_at((name), (ph), (cid), __FILE__, __LINE__, (args))

void ev_text_at(ev_kind k, const ev_cid *cid, const char *file, int line, const char *fmt, ...)
    TP_PRINTF(5, 6);
void ev_log_at(ev_component c, ev_level l, const ev_cid *cid, const char *file, int line, const char *fmt,
               ...) TP_PRINTF(6, 7);
void ev_json_at(ev_kind k, const ev_cid *cid, const char *file, int line, const char *metadata,
                const char *payload);
void ev_artifact_at(const char *name, const char *encoding, const ev_cid *cid, const char *file, int line,
                    const char *payload);
void ev_phase_at(const char *name, char ph, const ev_cid *cid, const char *file, int line, const char *args);

/* Trace records by ev_batch_put, of this thread and of one compile, between ev_batch(true) and ev_batch(false), are put
 * into the file together. For many small ones in a row: a killed process loses those of the batch it was in. */
void ev_batch(bool on);
#define ev_batch_put(kind, metadata) ev_batch_json((kind), __FILE__, __LINE__, (metadata))
void ev_batch_json(ev_kind k, const char *file, int line, const strbuf *metadata);
/* In place of the digest of a payload: the process ended before it was computed. */
#define EV_NO_DIGEST "00000000000000000000000000000000"
/* A compile is to be expected: the file is made now, not within the compile. */
void ev_trace_prepare(void);
/* A record that takes long to make: fn(copy of arg) is called on another thread, in the same compile, while the caller
 * goes on; or at once, when there is no such thread. One record a call, and one call at a time: the next
 * waits for the one before, so that a killed process loses one record at most. What the record is made of
 * must not change until it is written: who frees or changes an object to keep calls ev_wait(object) before. Who lets code of the program go on calls
 * ev_settle before: so whatever the program sees happened after the records were written. */
typedef void ev_later_fn(void *arg);
enum { EV_LATER_NODES = 64 }; /* smaller graphs are printed sooner than another thread wakes up */
void ev_later(ev_later_fn *fn, const void *arg, size_t n, const void *keep, const void *also);
/* The same, but as that thread is busy now, it is handed over at the next ev_catch_up, ev_later or ev_wait of it: in the
 * middle of a stage that takes long, and has no record of its own to hand over. One at a time; the order of records is the
 * same where there is no such thread. */
void ev_put_off(ev_later_fn *fn, const void *arg, size_t n, const void *keep);
void ev_catch_up(void);
void ev_later_soon(void); /* such a record comes soon: the thread that it is handed to wakes up meanwhile */
void ev_now(ev_later_fn *fn, void *arg); /* a small one, here: its time counts as the trace's */
/* An empty buffer for the text of a record, given back by ev_scratch_done. The thread of ev_later keeps its buffers:
 * memory that comes and goes there would make the compiling thread stop, too. */
strbuf *ev_scratch(void);
void ev_scratch_done(strbuf *b);
void ev_wait(const void *kept); /* until it is free again; NULL: until everything is written */
extern int ev_unwritten;
static inline void ev_settle(void)
{
    if (TP_UNLIKELY(__atomic_load_n(&ev_unwritten, __ATOMIC_RELAXED)))
        ev_wait(NULL);
}

/* --- the user's stack -------------------------------------------------------------------------------- */
typedef struct ev_frame {
    const char *file, *name, *loc; /* loc: the source line, NULL when unknown */
    int line;
    bool library;       /* a frame of Taper's own, between those of the program */
    const char *locals; /* JSON, name to kind; NULL when nobody listens or unknown */
} ev_frame;
/* How to find the user's stack now, outermost first: writes up to max frames, returns how many. Strings
 * must live until the event call ends. Set by front; the core has none. */
typedef int ev_stack_fn(void *data, ev_frame *f, int max);
void ev_set_stack_source(ev_stack_fn *fn, void *data);
int ev_user_stack(ev_frame *f, int max);
/* A stack as the trace file holds it: file names are numbers, announced once by "str" records. */
void ev_json_stack(json_w *w, const ev_frame *f, int n);
void ev_json_user_stack(json_w *w);
/* True the first time that this is asked of the trace file: what need not be said again. */
bool ev_trace_first(const char *what);

/* --- settings ---------------------------------------------------------------------------------------- */
/* Reads the environment. False when TAPER_LOGS is bad or asks for help: why holds what to tell the user. */
bool ev_init(strbuf *why);
bool ev_set_logs_string(const char *settings, strbuf *why); /* the grammar of TAPER_LOGS */
/* taper._logging.set_logs(**kw). A component takes an integer level, an artifact a bool. name "all": the
 * root. in_modules: the entry stood in modules={...}, where unknown names are allowed when is_module says so.
 * Ignored, with a warning, when TAPER_LOGS is set. */
typedef struct ev_setting {
    const char *name;
    enum { EV_SET_none, EV_SET_bool, EV_SET_int, EV_SET_other } type;
    int value;
    const char *shown; /* repr of the value, for messages */
    bool in_modules;
} ev_setting;
bool ev_set_logs(const ev_setting *s, int n, strbuf *why);
void ev_set_logs_default(void); /* the preset DEFAULT_LOGGING */
/* config.log_level and config.debug: from INFO down graph breaks and the component dynamo at that level show; debug
 * shows each graph and its guards. Adds to what set_logs chose; the environment variable wins over both. */
/* The level of a component that was set for it alone, by its name; 0: none. */
int ev_own_level(const char *component);
bool ev_set_own_level(const char *component, int level);
/* Others who show messages (Python's logging): false, they are not wanted on standard error. */
typedef bool ev_relay_fn(int level, const char *component, const char *artifact, const char *file, int line,
                         const char *text);
void ev_relay(ev_relay_fn *fn);
void ev_set_logs_config(int level, bool debug);
void ev_reset_logs(void);
/* Whether a dotted name is an importable module (asked of front); NULL: no name is. */
void ev_set_module_test(bool (*is_module)(void *data, const char *name), void *data);
/* The effective level of a logger name like "taper.front.trace" that settings named; 0 when none did. */
int ev_module_level(const char *name);
void ev_help(strbuf *out, bool all);
/* Names of components and artifacts, in order of the table; NULL after the last. */
const char *ev_component_name(int i);
const char *ev_artifact_name(int i);
int ev_rank(void); /* of this process in a distributed run (RANK), or -1 */
/* One line and an example for each name, for `taper logs`. */
void ev_list(strbuf *out, bool all);
void ev_list_json(strbuf *out, bool all);        /* {"components": [...], "artifacts": [...]} */
bool ev_describe(strbuf *out, const char *name); /* false: no such name */

/* --- sinks ------------------------------------------------------------------------------------------- */
/* Text lines go to fd 2 (and the TAPER_LOGS_OUT file); or to this function instead of fd 2. */
void ev_set_writer(void (*write)(void *data, const char *text, size_t n), void *data);
/* One listener inside the process: it gets every text of an artifact and every message of a component (artifact is NULL),
 * also those that no log shows. Called on the thread that speaks. */
typedef void ev_listener(void *data, const char *component, const char *artifact, const ev_cid *cid,
                         const char *text);
void ev_listen(ev_listener *fn, void *data);                  /* NULL: nobody */
bool ev_trace_start(const char *dir, bool slow, tp_err *err); /* the file is made at the first record */
void ev_trace_stop(void);
const char *ev_trace_path(void); /* NULL until the file exists */
#endif
