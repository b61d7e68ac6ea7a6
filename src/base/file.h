/* file.h - files and directories, with errors as ERR_os ("cannot open 'x': No such file or directory"). */
#ifndef TAPER_FILE_H
#define TAPER_FILE_H
#include "base/err.h"

/* The whole file, NUL-terminated, owned by the caller; NULL when it cannot be read or exceeds limit bytes. */
char *file_read(const char *path, size_t limit, size_t *n, tp_err *err);
/* Readers see the old content or the new, never a part: temporary file beside it, fsync-free, then rename. */
bool file_write(const char *path, const void *p, size_t n, tp_err *err);
bool file_mkdirs(const char *path, tp_err *err); /* like mkdir -p; existing is fine */
/* A directory only we can use: made 0700 where missing (its parents as by mkdir -p), refused when it is a
 * symbolic link, belongs to somebody else, or others may enter it. */
bool file_private_dir(const char *path, tp_err *err);
bool file_exists(const char *path);
bool file_is_dir(const char *path);
bool file_remove_tree(const char *path, tp_err *err); /* does not follow links; a missing path is fine */
/* A fresh directory "<parent>/<prefix>XXXXXX" (mode 0700), owned by the caller; parent NULL: TMPDIR or /tmp.
 */
char *file_temp_dir(const char *parent, const char *prefix, tp_err *err);
bool fd_write_all(int fd, const void *p, size_t n); /* false with errno set */
char *path_join(const char *dir, const char *name); /* owned by the caller; an absolute name stands alone */
#endif
