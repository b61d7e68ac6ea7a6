#define _GNU_SOURCE
#include "base/file.h"
#include "base/clock.h"
#include "base/strbuf.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static bool fail(tp_err *err, const char *what, const char *path)
{
    return err_set(err, ERR_os, "cannot %s '%s': %s", what, path, strerror(errno));
}

char *path_join(const char *dir, const char *name)
{
    strbuf b = { 0 };
    if (*dir && *name != '/') {
        strbuf_add(&b, dir);
        if (dir[strlen(dir) - 1] != '/')
            strbuf_addc(&b, '/');
    }
    strbuf_add(&b, name);
    return strbuf_take(&b);
}

bool file_exists(const char *path) { return access(path, F_OK) == 0; }

bool file_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

char *file_read(const char *path, size_t limit, size_t *n, tp_err *err)
{
    struct stat st;
    strbuf b = { 0 };
    bool ok = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st)) {
        fail(err, "open", path);
        goto done;
    }
    if (S_ISDIR(st.st_mode)) {
        errno = EISDIR;
        fail(err, "read", path);
        goto done;
    }
    if (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode)) /* /dev/zero has no end */
        limit = MIN(limit, (size_t)1 << 20);
    /* Sizes are only a hint (pipes and /proc say 0), so read until the end and count. */
    for (;;) {
        char chunk[1 << 16];
        ssize_t r = read(fd, chunk, sizeof chunk);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0) {
            fail(err, "read", path);
            goto done;
        }
        if (r == 0)
            break;
        if ((size_t)r > limit - b.n) {
            err_set(err, ERR_os, "'%s' is larger than the limit of %zu bytes", path, limit);
            goto done;
        }
        strbuf_addn(&b, chunk, (size_t)r);
    }
    ok = true;
done:
    if (fd >= 0)
        close(fd);
    if (!ok) {
        strbuf_free(&b);
        return NULL;
    }
    if (n)
        *n = b.n;
    strbuf_addn(&b, "", 0); /* an empty file is an empty string, not NULL */
    return strbuf_take(&b);
}

bool fd_write_all(int fd, const void *p, size_t n)
{
    for (const char *s = p; n;) {
        ssize_t w = write(fd, s, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return false;
        s += w;
        n -= (size_t)w;
    }
    return true;
}

bool file_write(const char *path, const void *p, size_t n, tp_err *err)
{
    static _Atomic unsigned serial;
    strbuf tmp = { 0 };
    bool ok = false;
    int fd;

    strbuf_addf(&tmp, "%s.tmp.%d.%u", path, (int)getpid(), serial++);
    fd = open(tmp.s, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) {
        fail(err, "write", path);
        goto done;
    }
    ok = fd_write_all(fd, p, n);
    int saved = errno;
    ok = close(fd) == 0 && ok;
    if (!ok)
        errno = saved;
    ok = ok && rename(tmp.s, path) == 0;
    if (!ok) {
        fail(err, "write", path);
        unlink(tmp.s);
    }
done:
    strbuf_free(&tmp);
    return ok;
}

static bool mkdirs(const char *path, mode_t last_mode, tp_err *err)
{
    char *p = mem_strdup(path);
    bool ok = true;
    size_t n = strlen(p);

    while (n > 1 && p[n - 1] == '/')
        p[--n] = 0;
    if (n && !mkdir(p, last_mode)) { /* mostly only the last one is missing */
        free(p);
        return true;
    }
    for (size_t i = 1; ok && i <= n; i++) {
        if (p[i] != '/' && i != n)
            continue;
        char c = p[i];
        p[i] = 0;
        if (mkdir(p, i == n ? last_mode : 0777) && errno != EEXIST) {
            int why = errno; /* looking changes it */
            ok = file_is_dir(p);
            errno = why;
            if (!ok)
                fail(err, "create directory", p);
        }
        p[i] = c;
    }
    if (ok && !file_is_dir(p)) {
        errno = n ? ENOTDIR : ENOENT;
        ok = fail(err, "create directory", p);
    }
    free(p);
    return ok;
}

bool file_mkdirs(const char *path, tp_err *err) { return mkdirs(path, 0777, err); }

bool file_private_dir(const char *path, tp_err *err)
{
    struct stat st;
    char *p = mem_strdup(path); /* lstat("link/") would follow the link */
    bool ok = false;
    size_t n = strlen(p);

    while (n > 1 && p[n - 1] == '/')
        p[--n] = 0;
    if (lstat(p, &st) && (!mkdirs(p, 0700, err) || lstat(p, &st))) {
        fail(err, "create directory", p);
        goto done;
    }
    if (S_ISLNK(st.st_mode))
        err_set(err, ERR_os, "'%s' is a symbolic link; expected a directory of our own", p);
    else if (!S_ISDIR(st.st_mode))
        err_set(err, ERR_os, "'%s' is not a directory", p);
    else if (st.st_uid != geteuid())
        err_set(err, ERR_os, "'%s' belongs to user %u, not to user %u who runs this", p, (unsigned)st.st_uid,
                (unsigned)geteuid());
    else if (st.st_mode & 077)
        err_set(err, ERR_os, "'%s' has mode %04o and is open to others; expected 0700", p,
                (unsigned)(st.st_mode & 07777));
    else
        ok = true;
done:
    free(p);
    return ok;
}

/* Removes the entries of the directory open as fd (which it closes). */
static bool empty_dir(int fd, int depth)
{
    DIR *d = fdopendir(fd);
    bool ok = d != NULL && depth < 200;

    if (!d) {
        close(fd);
        return false;
    }
    for (struct dirent *e; ok && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        if (!unlinkat(dirfd(d), e->d_name, 0))
            continue;
        int sub = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        ok = sub >= 0 && empty_dir(sub, depth + 1) && !unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
    }
    closedir(d);
    return ok;
}

bool file_remove_tree(const char *path, tp_err *err)
{
    if (!unlink(path) || errno == ENOENT)
        return true;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || !empty_dir(fd, 0) || rmdir(path))
        return fail(err, "remove", path);
    return true;
}

char *file_temp_dir(const char *parent, const char *prefix, tp_err *err)
{
    strbuf b = { 0 };
    if (!parent)
        parent = getenv("TMPDIR");
    strbuf_addf(&b, "%s/%sXXXXXX", parent && *parent ? parent : "/tmp", prefix);
    if (mkdtemp(b.s))
        return strbuf_take(&b);
    fail(err, "create directory", b.s);
    strbuf_free(&b);
    return NULL;
}
