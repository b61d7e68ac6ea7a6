/* quarantine.h - rewrites that are refused, settings that hold and functions that run as written, from a file that taper doctor wrote after it had found a fault:
 *   taper 0.1.0
 *   refuse fuse:relu@model.py:5
 *   set TAPER_EMITTER=c
 *   skip forward@model.py:3
 * It counts for that version alone, and a line on stderr says so. */
#ifndef TAPER_QUARANTINE_H
#define TAPER_QUARANTINE_H
#include "base/err.h"

#define QUARANTINE_FILE "taper_quarantine"
/* TAPER_QUARANTINE, or the file in this directory; once, at the start. set (may be NULL) gets every setting that is made. */
void quarantine_load(const char *version, void (*set)(const char *name, const char *value));
bool quarantine_any(void); /* is some rewrite refused? */
bool quarantine_refuses(const char *site);
extern int quarantine_functions;             /* how many run as they are written */
bool quarantine_skips(const char *function); /* NAME@FILE:LINE */
#endif
