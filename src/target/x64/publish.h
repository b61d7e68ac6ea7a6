/* publish.h - machine code to memory that may run. Never writable at the address at which it runs. */
#ifndef TAPER_GEN_PUBLISH_H
#define TAPER_GEN_PUBLISH_H
#include "target/x64/x64.h"

/* Stays for the life of the process. name: for perf and backtraces. NULL with an error. */
void *gen_publish(const gen_code *c, const char *name, tp_err *err);
void gen_publish_limit(int64_t bytes); /* for tests: executable memory that may still be had; -1: no limit */
#endif
