/* source.h - lines of source files, for texts that show them. A file is read when a line of it is first asked for, and kept
 * as it was then. Any thread may ask. */
#ifndef TAPER_SOURCE_H
#define TAPER_SOURCE_H
#include "base/base.h"

/* The line, from 1 on, in UTF-8 without the white space behind it; NULL: the file cannot be read as the text of a program.
 * A line beyond the end is empty. Stays as long as the process does. */
const char *source_line(const char *file, int line);
const char *source_line_stripped(const char *file, int line); /* without that before it, too */
/* Can it be read later? A file on disk whose name does not depend on the current directory. */
bool source_is_file(const char *file);
bool source_is_read(const char *file);
#endif
