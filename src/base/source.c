/* source.c - lines of source files. */
#define _GNU_SOURCE
#include "base/source.h"
#include "base/file.h"
#include "base/map.h"
#include "base/strbuf.h"
#include "base/utf8.h"
#include "base/vec.h"
#include <ctype.h>
#include <iconv.h>
#include <pthread.h>
#include <sys/stat.h>

enum { SOURCE_MOST = 16 << 20 };

typedef struct source_file {
    char *text; /* NULL: not the text of a program */
    VEC(char *) line;
} source_file;

static map files; /* name -> source_file; under lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void take_lock(void) { pthread_mutex_lock(&lock); }
static void drop_lock(void) { pthread_mutex_unlock(&lock); }
static void at_fork(void) { pthread_atfork(take_lock, drop_lock, drop_lock); }

/* The encoding that a comment in one of the first two lines declares: "coding" and ':' or '=', then the name, of which
 * letters and digits are kept. False: none is declared. */
static bool declared(const char *s, char *name, size_t n)
{
    for (int i = 0; i < 2; i++) {
        const char *eol = s + strcspn(s, "\r\n"), *p = s + strspn(s, " \t\f");
        const char *at = *p == '#' ? memmem(p, (size_t)(eol - p), "coding", 6) : NULL;
        if (at && (at[6] == ':' || at[6] == '=')) {
            size_t k = 0;
            for (p = at + 7 + strspn(at + 7, " \t"); isalnum((unsigned char)*p) || (*p && strchr("-_.", *p));
                 p++)
                if (isalnum((unsigned char)*p) && k + 1 < n)
                    name[k++] = (char)tolower((unsigned char)*p);
            name[k] = 0;
            return k > 0;
        }
        if (*p != '#' && p != eol) /* only a comment or nothing may stand before it */
            return false;
        s = eol + (*eol == '\r' && eol[1] == '\n') + (*eol != 0);
    }
    return false;
}

/* Takes text; NULL when it is not what name says. Names of encodings without their hyphens are known to iconv as they are
 * to Python. */
static char *to_utf8(char *text, size_t *n, const char *name)
{
    iconv_t cd = iconv_open("UTF-8", name);
    char *out = NULL;
    if (cd != (iconv_t)-1) {
        size_t from = *n, left = 4 * *n;
        char *in = text, *to = out = mem_alloc(left + 1);
        if (iconv(cd, &in, &from, &to, &left) == (size_t)-1) {
            free(out);
            out = NULL;
        } else
            *to = 0, *n = (size_t)(to - out);
        iconv_close(cd);
    }
    free(text);
    return out;
}

static source_file *source_read(const char *file)
{
    source_file *f = mem_zalloc(sizeof *f);
    tp_err err = { 0 };
    size_t n;
    char name[40], *s = file_read(file, SOURCE_MOST, &n, &err);
    if (s && strlen(s) == n && declared(s, name, sizeof name) && strncmp(name, "utf8", 4))
        s = to_utf8(s, &n, name);
    if (!s || strlen(s) != n || utf8_bad(s, n) < n) {
        free(s);
        return f;
    }
    f->text = s;
    if (!strncmp(s, "\xef\xbb\xbf", 3))
        s += 3;
    while (*s) {
        char *eol = s + strcspn(s, "\r\n"), *next = eol + (*eol == '\r' && eol[1] == '\n') + (*eol != 0);
        vec_push(&f->line, s);
        while (eol > s && isspace((unsigned char)eol[-1]))
            eol--;
        s = next;
        *eol = 0;
    }
    return f;
}

bool source_is_read(const char *file)
{
    pthread_once(&once, at_fork);
    take_lock();
    const source_file *f = map_get(&files, file);
    drop_lock();
    return f && f->text;
}

bool source_is_file(const char *file)
{
    struct stat st;
    return *file == '/' && (source_is_read(file) || (stat(file, &st) == 0 && S_ISREG(st.st_mode)));
}

const char *source_line(const char *file, int line)
{
    pthread_once(&once, at_fork);
    take_lock();
    source_file *f = map_get(&files, file);
    if (!f)
        map_put(&files, file, f = source_read(file));
    drop_lock();
    return !f->text ? NULL : line < 1 || (size_t)line > f->line.n ? "" : f->line.at[line - 1];
}

const char *source_line_stripped(const char *file, int line)
{
    const char *s = source_line(file, line);
    while (s && isspace((unsigned char)*s))
        s++;
    return s;
}
