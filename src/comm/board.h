/* board.h - memory that the ranks of a host share: where each stands, and why the job ended. link.c keeps the entries of
 * ranks on other hosts alike. Private to comm/. */
#ifndef TAPER_COMM_BOARD_H
#define TAPER_COMM_BOARD_H
#include "comm/comm.h"
#include <stdatomic.h>

enum { BOARD_RING = 32, BOARD_STACK = 4096, BOARD_NOTE = 1024, BOARD_TEXT = 32768, BOARD_HOST = 64 };
enum { RANK_absent, RANK_joined, RANK_left };

/* What a rank started: compared with what the others started under the same number. */
typedef struct board_call {
    _Atomic uint64_t seq; /* number in its group, from 1; 0: being written */
    uint32_t group;       /* what the group is called on this host */
    int16_t kind, op, dt, root;
    int64_t n;
    bool done;
    char where[COMM_WHERE];
} board_call;

typedef struct board_rank {
    _Atomic int state, pid;
    _Atomic uint64_t born;    /* start time of the process: a pid may be used again */
    _Atomic int remote, life; /* on another host: how it was last heard of, a letter of rank_life() */
    _Atomic int acknowledged;
    _Atomic uint32_t answered; /* last request for stacks that was answered */
    board_call last;           /* of any group, point to point as well */
    _Atomic uint64_t ncalls;   /* collectives started, the last of them in recent[] */
    board_call recent[BOARD_RING];
    char host[BOARD_HOST];
    char note[BOARD_NOTE];
    char stack[BOARD_STACK];
} board_rank;

typedef struct board {
    _Atomic uint32_t ready; /* BOARD_MAGIC */
    int size;
    _Atomic int maker; /* pid and start time of who made it */
    _Atomic uint64_t maker_born;
    _Atomic int joined;
    _Atomic int aborted; /* 0, 1: the text is being written, 2 */
    _Atomic uint32_t
        bad_group; /* the collective that ranks disagree about, and those after it, do not move any more */
    _Atomic uint64_t bad_seq;
    _Atomic uint32_t want_stacks, bell;
    char text[BOARD_TEXT];
    board_rank rank[];
} board;

/* The ledger of one group: the last calls of each member. */
typedef struct ledger {
    _Atomic uint32_t ready, joined, bell, sleepers;
    _Atomic int maker;
    _Atomic uint64_t maker_born;
    int size;
    struct {
        _Atomic uint64_t seq; /* of the last collective started */
        board_call ring[BOARD_RING];
    } rank[];
} ledger;

/* Maps the shared file of that name, of nbytes zeros; the first (maker) makes it, the others wait for it, and when all n have
 * mapped it the name is removed. ready, joined and maker must be the fields of the head it begins with. */
typedef struct shared_head {
    _Atomic uint32_t *ready, *joined;
    _Atomic int *maker;
    _Atomic uint64_t *maker_born;
} shared_head;
void *shared_map(const char *name, size_t nbytes, bool maker, int64_t deadline,
                 void (*head)(void *, shared_head *), tp_err *err);
bool shared_name(strbuf *path, const char *name);
void shared_unlink(const char *name);

uint64_t process_born(int pid);      /* start time in clock ticks, 0 when there is none or it is a zombie */
char process_state(int pid);         /* the letter of /proc: R, S, T (stopped), Z ... or 0 */
char rank_life(const board_rank *r); /* R lives, T stopped by a signal, X gone, ? not heard of any more */
void futex_wait(_Atomic uint32_t *p, uint32_t seen, int64_t ns);
void futex_wake(_Atomic uint32_t *p);
#endif
