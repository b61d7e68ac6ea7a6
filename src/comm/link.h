/* link.h - the boards of several hosts, kept alike over TCP. Private to comm/.
 * The first rank of every host talks to rank 0, which passes on what it hears. Only what the watchdog reads goes this way:
 * where each rank stands, its last collectives, stacks that were asked for, why the job is aborted. */
#ifndef TAPER_COMM_LINK_H
#define TAPER_COMM_LINK_H
#include "base/base.h"

struct comm_job;
typedef struct comm_link comm_link;
/* Rank 0: opens a socket and writes its addresses and a secret, which MPI brings to the others; -1: none (out is empty). */
int link_listen(char *out, size_t size);
/* NULL: one host, or this process is not the first of its host. */
comm_link *link_start(struct comm_job *j);
void link_stop(comm_link *l); /* says that this rank has left */
#endif
