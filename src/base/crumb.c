#include "base/crumb.h"
#include "base/envvars.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int crumb_state = -1;
static crumb *page;

static void begin(void)
{
    const char *path = env_get(ENV_crumbs);
    int fd = path && *path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd >= 0 && !ftruncate(fd, sizeof *page)) {
        void *p = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        page = p == MAP_FAILED ? NULL : p;
    }
    if (fd >= 0)
        close(fd);
    crumb_state = page != NULL;
}

void crumb_put(const char *stage, const char *what)
{
    if (crumb_state < 0)
        begin();
    if (!page)
        return;
    page->n++;
    snprintf(page->stage, sizeof page->stage, "%s", stage);
    snprintf(page->what, sizeof page->what, "%s", what ? what : "");
}

bool crumb_read(const char *path, crumb *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool ok = fd >= 0 && read(fd, out, sizeof *out) == (ssize_t)sizeof *out && out->stage[0];
    if (fd >= 0)
        close(fd);
    out->stage[sizeof out->stage - 1] = out->what[sizeof out->what - 1] = 0;
    return ok;
}
