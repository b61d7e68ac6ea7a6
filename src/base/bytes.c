#define _GNU_SOURCE
#include "base/bytes.h"
#include "base/pool.h"
#include "base/vec.h"
#include <pthread.h>
#ifdef __linux__
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#endif

/* Small blocks are recycled per thread: allocation is most of the cost of an operation on a few elements. */
enum { SMALL = 1024, KEEP = 64 };
static _Thread_local struct {
    void *block[KEEP];
    int n;
} freelist;

/* ---- regions ---- */
/* The first touch of a page costs a fault, and a training step touches thousands of small ones. So blocks of LARGE and
 * more are cut from regions, where what was freed serves other sizes as well, and which ask for huge pages. A region
 * keeps its free spans in order of address; neighbours are joined. Freed pages stay with the process up to IDLE bytes in
 * all: a model asks for the same memory in every step. */
enum { LARGE = 64 << 10, PAGE = 4 << 10, HUGE = 2 << 20, SMALL_SCRIPT = 2 * HUGE };
#define REGION ((size_t)64 << 20)
#define IDLE   ((size_t)128 << 20)
#ifdef __SANITIZE_ADDRESS__
#define RECYCLE 0 /* every block on its own, so that uses after free are seen */
#else
#define RECYCLE 1
#endif

#if defined(__linux__) && RECYCLE
typedef struct span {
    size_t at, n;
    size_t dirty; /* bytes of it that were in use since the system handed them out, at most n */
} span;
typedef struct region {
    char *base;
    size_t size, most; /* most: no free span is longer; may be too large */
    size_t huge, seen; /* from where on huge pages are asked for; up to where pages were touched */
    size_t top;        /* nothing behind it was ever handed out */
    bool walked;       /* by the thread that touches pages ahead: the region has to stay */
    VEC(span) free;    /* by address */
} region;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static VEC(region *) regions;
static size_t idle; /* dirty bytes in all free spans */
static size_t used; /* bytes handed out */
static bool small_pages;
static struct {
    bool runs, stop, refused;
    pthread_cond_t ended;
} walker = { .ended = PTHREAD_COND_INITIALIZER }; /* under lock */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void take_lock(void) { pthread_mutex_lock(&lock); }
static void drop_lock(void) { pthread_mutex_unlock(&lock); }
static void in_child(void) /* which has no walker */
{
    walker.runs = walker.stop = false;
    pthread_cond_init(&walker.ended, NULL);
    for (size_t i = 0; i < regions.n; i++)
        regions.at[i]->walked = false;
    drop_lock();
}
static void set_up(void)
{
    cpu_set_t set;
    walker.refused = sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) < 2;
    pthread_atfork(take_lock, drop_lock, in_child);
}

static char *map_aligned(size_t size) /* to HUGE */
{
    char *p = mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    char *at = (char *)(((uintptr_t)p + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
    if (at > p)
        munmap(p, (size_t)(at - p));
    if (p + HUGE > at)
        munmap(at + size, (size_t)(p + HUGE - at));
    return at;
}

/* Very large blocks have a region of their own. */
static size_t region_size(size_t n) { return n > REGION / 4 ? (n + HUGE - 1) & ~(size_t)(HUGE - 1) : n; }

static region *region_new(size_t n)
{
    size_t size = n > REGION / 4 ? n : REGION;
    char *base = map_aligned(size);
    if (!base)
        return NULL;
    region *r = mem_zalloc(sizeof *r);
    r->base = base;
    r->size = r->most = size;
    r->huge = small_pages ? size : regions.n ? 0 : MIN(size, (size_t)SMALL_SCRIPT);
    if (r->huge < size && madvise(base + r->huge, size - r->huge, MADV_HUGEPAGE))
        r->huge = size; /* there are none */
    vec_push(&r->free, ((span){ 0, size, 0 }));
    vec_push(&regions, r);
    return r;
}

static int64_t my_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A virtual machine whose host has yet to find the memory takes milliseconds for a huge page where clearing it takes a
 * tenth of one; then small pages, which the machine has used before, are the better choice. */
static void no_more_huge(void)
{
    small_pages = true;
    for (size_t i = 0; i < regions.n; i++) {
        region *o = regions.at[i];
        size_t from = MAX(o->seen, o->huge);
        if (from < o->size)
            madvise(o->base + from, o->size - from, MADV_NOHUGEPAGE);
        o->huge = o->size;
    }
}
enum { SLOW_NS = 500 * 1000, PIECE = 256 << 10 };

static size_t step(const region *r) { return r->seen < r->huge ? PIECE : HUGE; }

/* Huge pages are touched here for the first time, one by one; small ones by whoever uses them. */
static void touch(region *r, size_t end)
{
    while (r->seen < end) {
        size_t at = r->seen;
        r->seen += step(r);
        if (at < r->huge)
            continue;
        int64_t t = my_ns();
        *(volatile char *)(r->base + at) = 0;
        if (my_ns() - t >= SLOW_NS)
            no_more_huge();
    }
}

/* ---- pages touched ahead ---- */
/* The first touch of a page is a fault that clears it, and the first step of a program consists of them: a training step
 * needs several times the memory of its model. So while the program builds that and compiles, a thread of its own walks
 * ahead through the memory that will be handed out next: LEAD times what is in use, less than a region. That is
 * what a training step takes: a walk in the middle of it would take its time from the threads that compute. The thread
 * ends when it is far enough. */
enum { LEAD = 4, WORTH = HUGE };

static size_t goal(const region *r)
{
    return used < SMALL_SCRIPT ? 0 : MIN(r->size, r->top + MIN(used * LEAD, REGION));
}

/* Where there is something to do. New walks wait until half of the way is used up: they take time from the program when it
 * computes with all threads. */
static region *next_region(bool on_the_way)
{
    for (size_t i = 0; i < regions.n; i++) {
        region *r = regions.at[i];
        size_t end = goal(r);
        if (r->seen + HUGE <= end && (on_the_way || r->seen + WORTH <= end - (end - r->top) / 2))
            return r;
    }
    return NULL;
}

/* Every page of it is written, each with what it holds, in one instruction: others may use it meanwhile. A system call that
 * fills pages in (MADV_POPULATE_WRITE) takes a third less time, but holds a lock for which the program's own calls
 * wait, some of them for milliseconds: malloc asking for more, new threads, memory for kernels. */
__attribute__((no_sanitize_thread)) static void write_pages(char *p, size_t n)
{
    for (size_t i = 0; i < n; i += PAGE)
        __atomic_fetch_or((volatile char *)p + i, 0, __ATOMIC_RELAXED);
}

/* Under the lock, which is released meanwhile. */
static void walk(region *r)
{
    size_t at = r->seen, n = step(r);
    r->seen += n;
    r->walked = true;
    drop_lock();
    int64_t t = my_ns();
    write_pages(r->base + at, n);
    t = my_ns() - t;
    take_lock();
    r->walked = false;
    if (n == HUGE && t >= SLOW_NS && !small_pages)
        no_more_huge();
}

static void *walk_ahead(void *unused)
{
    take_lock();
    for (region *r; !walker.stop && !walker.refused && (r = next_region(true));)
        walk(r);
    walker.runs = walker.stop = false;
    pthread_cond_broadcast(&walker.ended);
    drop_lock();
    return unused;
}

static void send_ahead(void)
{
    if (walker.runs || walker.refused || !next_region(false) || pool_threads() < 2)
        return;
    walker.runs = thread_apart(walk_ahead, NULL);
    walker.refused = !walker.runs;
}

static void *span_cut(region *r, size_t i, size_t n)
{
    span *s = &r->free.at[i];
    char *p = r->base + s->at;
    size_t clean = s->n - s->dirty, left = s->n - n, dirty = MIN(left, s->dirty);
    if (clean) /* the dirty part comes first, or nearly so */
        dirty = s->dirty > n ? s->dirty - n : 0;
    idle -= s->dirty - dirty;
    *s = (span){ s->at + n, left, dirty };
    if (!left) {
        r->free.n--;
        memmove(s, s + 1, sizeof *s * (r->free.n - i));
    }
    r->top = MAX(r->top, (size_t)(p - r->base) + n);
    used += n;
    touch(r, r->top);
    send_ahead();
    return p;
}

/* The shortest span that is long enough, the lowest of those; memory that nobody used yet only if there is no other. */
static void *region_alloc(size_t n)
{
    region *in = NULL;
    size_t best = SIZE_MAX, at = 0;
    n = region_size(n);
    for (size_t k = 0; k < regions.n; k++) {
        region *r = regions.at[k];
        size_t most = 0;
        if (r->most < n)
            continue;
        for (size_t i = 0; i < r->free.n; i++) {
            const span *s = &r->free.at[i];
            size_t key = s->n + (s->dirty >= n ? 0 : SIZE_MAX / 2);
            if (s->n >= n && key < best)
                in = r, best = key, at = i;
            most = MAX(most, s->n);
        }
        r->most = most;
    }
    if (!in && (in = region_new(n)))
        at = 0;
    return in ? span_cut(in, at, n) : NULL;
}

/* Whole pages of it go back to the system. */
static void give_pages(region *r, size_t at, size_t n)
{
    size_t lo = (at + PAGE - 1) & ~(size_t)(PAGE - 1), hi = (at + n) & ~(size_t)(PAGE - 1);
    if (hi > lo)
        madvise(r->base + lo, hi - lo, MADV_DONTNEED);
}

static void span_join(region *r, span f)
{
    size_t lo = 0, hi = r->free.n;
    while (lo < hi) { /* the first span behind it */
        size_t mid = (lo + hi) / 2;
        if (r->free.at[mid].at < f.at)
            lo = mid + 1;
        else
            hi = mid;
    }
    span *s = r->free.at + lo;
    bool before = lo > 0 && s[-1].at + s[-1].n == f.at, after = lo < r->free.n && f.at + f.n == s->at;
    if (!before && !after) {
        vec_push(&r->free, f);
        s = r->free.at + lo;
        memmove(s + 1, s, sizeof *s * (r->free.n - 1 - lo));
        *s = f;
    } else if (!before) {
        *s = (span){ f.at, f.n + s->n, f.dirty + s->dirty };
    } else {
        s--;
        s->n += f.n;
        s->dirty += f.dirty;
        if (after) {
            s->n += s[1].n;
            s->dirty += s[1].dirty;
            r->free.n--;
            memmove(s + 1, s + 2, sizeof *s * (size_t)(r->free.at + r->free.n - (s + 1)));
        }
    }
    r->most = MAX(r->most, s->n);
}

static void region_end(size_t i)
{
    region *r = regions.at[i];
    idle -= r->free.at[0].dirty;
    munmap(r->base, r->size);
    vec_free(&r->free);
    free(r);
    regions.at[i] = regions.at[--regions.n];
}

static bool unused(const region *r) { return r->free.n == 1 && r->free.at[0].n == r->size && !r->walked; }

static void region_free(char *p, size_t n)
{
    size_t i = 0;
    while (i < regions.n && (p < regions.at[i]->base || p >= regions.at[i]->base + regions.at[i]->size))
        i++;
    assert(i < regions.n);
    region *r = regions.at[i];
    span s = { (size_t)(p - r->base), region_size(n), 0 };
    used -= s.n;
    if (idle + s.n <= IDLE)
        idle += s.dirty = s.n;
    else
        give_pages(r, s.at, s.n);
    span_join(r, s);
    if (unused(r) && !r->free.at[0].dirty)
        region_end(i);
}

static void trim(void)
{
    walker.stop = walker.runs;
    while (walker.runs)
        pthread_cond_wait(&walker.ended, &lock);
    for (size_t i = regions.n; i-- > 0;) {
        region *r = regions.at[i];
        for (size_t k = 0; k < r->free.n; k++) {
            span *s = &r->free.at[k];
            bool last = s->at + s->n == r->size; /* with what was touched ahead */
            if (s->dirty || last)
                give_pages(r, s->at, s->n);
            idle -= s->dirty;
            s->dirty = 0;
            if (last) {
                r->top = s->at;
                r->seen = MIN(r->seen, (s->at + HUGE - 1) & ~(size_t)(HUGE - 1));
            }
        }
        if (unused(r))
            region_end(i);
    }
}

static void *large_new(size_t n)
{
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
    void *p = region_alloc(n);
    if (!p) { /* what is kept may be what is missing */
        trim();
        p = region_alloc(n);
    }
    pthread_mutex_unlock(&lock);
    return p;
}

static void large_free(void *p, size_t n)
{
    pthread_mutex_lock(&lock);
    region_free(p, n);
    pthread_mutex_unlock(&lock);
}

void bytes_trim(void)
{
    pthread_mutex_lock(&lock);
    trim();
    pthread_mutex_unlock(&lock);
}

void bytes_settle(void)
{
    take_lock();
    while (walker.runs)
        pthread_cond_wait(&walker.ended, &lock);
    drop_lock();
}

size_t bytes_regions(void)
{
    size_t n = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < regions.n; i++)
        n += regions.at[i]->size;
    pthread_mutex_unlock(&lock);
    return n;
}
#else
static void *large_new(size_t n)
{
    void *p = NULL;
    return posix_memalign(&p, 64, n) ? NULL : p;
}
static void large_free(void *p, size_t n)
{
    (void)n;
    free(p);
}
void bytes_trim(void) {}
void bytes_settle(void) {}
size_t bytes_regions(void) { return 0; }
#endif

static size_t bytes_round(int64_t n) { return n <= SMALL ? SMALL : ((size_t)n + 63) & ~(size_t)63; }

void *bytes_new(int64_t n)
{
    if (n <= SMALL && freelist.n)
        return freelist.block[--freelist.n];
    size_t want = bytes_round(n);
    void *p = NULL;
    if (want >= LARGE)
        return large_new(want);
    return posix_memalign(&p, 64, want) ? NULL : p;
}

void bytes_free(void *p, int64_t n)
{
    size_t size = bytes_round(n);
    if (RECYCLE && n <= SMALL && freelist.n < KEEP) {
        freelist.block[freelist.n++] = p;
        return;
    }
    if (size >= LARGE)
        large_free(p, size);
    else
        free(p);
}

void *bytes_keep(bytes_kept *k, int64_t n)
{
    if (k->n < n) {
        if (k->p)
            bytes_free(k->p, k->n);
        k->n = (n + 4095) & ~(int64_t)4095;
        k->p = bytes_new(k->n);
        if (!k->p)
            k->n = 0;
    }
    return k->p;
}
