/* serve.c - taper report --serve: the page at an address of this machine, made anew when the traces have grown.
 * Only this machine may ask, and only by its own names: a page from elsewhere cannot read the answer. */
#define _GNU_SOURCE
#include "cli/serve.h"
#include "base/file.h"
#include "report/report.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Asks now and then whether the traces have grown, and then loads the page again where the reader was. */
static const char frame_page[] =
    "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Taper: "
    "running</title><style>html,body{margin:0;height:"
    "100%}iframe{border:0;width:100%;height:100%;display:block}</style></head><body><iframe src=\"/page\" "
    "title=\"report\"></iframe>"
    "<script>(function(){var f=document.querySelector('iframe'),last=null;function "
    "ask(){fetch('/stamp').then(function(r){return "
    "r.text();}).then(function(t){if(last!==null&&t!==last){var "
    "w=f.contentWindow,y=w.scrollY,open=[].map.call("
    "w.document.querySelectorAll('details'),function(x){return x.open;});f.onload=function(){[].forEach.call("
    "f.contentWindow.document.querySelectorAll('details'),function(x,i){if(open[i])x.open=true;});f."
    "contentWindow.scrollTo(0,y);};"
    "w.location.reload();}last=t;}).catch(function(){}).then(function(){setTimeout(ask,1000);});}ask();})();<"
    "/script></body></html>\n";

static uint64_t stamp_of(const char *path)
{
    struct stat st;
    if (stat(path, &st))
        return 0;
    uint64_t v = (uint64_t)st.st_size * 1000003u + (uint64_t)st.st_mtim.tv_nsec +
                 (uint64_t)st.st_mtim.tv_sec * 1000000007u;
    DIR *d = S_ISDIR(st.st_mode) ? opendir(path) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        char *file = NULL;
        if (e->d_name[0] != '.' && asprintf(&file, "%s/%s", path, e->d_name) > 0) {
            v += !stat(file, &st) && S_ISREG(st.st_mode) ? (uint64_t)st.st_size * 31u + (uint64_t)st.st_ino
                                                         : 0;
            free(file);
        }
    }
    if (d)
        closedir(d);
    return v;
}

static void answer(int fd, const char *status, const char *kind, const char *body, size_t n)
{
    char head[256];
    int k = snprintf(
        head, sizeof head,
        "HTTP/1.1 %s\r\nContent-Type: %s; charset=utf-8\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        status, kind, n);
    if (fd_write_all(fd, head, (size_t)k))
        fd_write_all(fd, body, n);
}

static void page(int fd, const serve_what *w)
{
    strbuf b = { 0 };
    tp_err e = { 0 };
    report *r = report_new();
    if (w->redact)
        report_redact(r);
    bool ok = true;
    for (size_t i = 0; i < w->n && ok; i++)
        ok = report_add(r, w->paths[i], &e);
    if (ok)
        report_html(r, &b);
    else
        strbuf_addf(&b, "waiting for a trace: %s\n", e.msg);
    answer(fd, "200 OK", ok ? "text/html" : "text/plain", strbuf_str(&b), b.n);
    report_free(r);
    strbuf_free(&b);
}

/* One request: its first line and who was asked for. */
static void serve_one(int fd, const serve_what *w, int port)
{
    char in[4096], mine[2][64];
    size_t n = 0;
    struct pollfd p = { fd, POLLIN, 0 };
    while (n < sizeof in - 1 && poll(&p, 1, 2000) > 0) { /* nobody holds up the others for longer */
        ssize_t k = read(fd, in + n, sizeof in - 1 - n);
        if (k <= 0)
            break;
        in[n += (size_t)k] = 0;
        if (strstr(in, "\r\n\r\n"))
            break;
    }
    in[n] = 0;
    snprintf(mine[0], sizeof mine[0], "\r\nHost: 127.0.0.1:%d\r\n", port);
    snprintf(mine[1], sizeof mine[1], "\r\nHost: localhost:%d\r\n", port);
    if (strncmp(in, "GET ", 4))
        answer(fd, "405 Method Not Allowed", "text/plain", "only GET\n", 9);
    else if (!strcasestr(in, mine[0]) && !strcasestr(in, mine[1]))
        answer(fd, "403 Forbidden", "text/plain", "another host\n", 13);
    else if (!strncmp(in + 4, "/page ", 6))
        page(fd, w);
    else if (!strncmp(in + 4, "/stamp ", 7)) {
        char text[32];
        uint64_t v = 0;
        for (size_t i = 0; i < w->n; i++)
            v = v * 31 + stamp_of(w->paths[i]);
        answer(fd, "200 OK", "text/plain", text,
               (size_t)snprintf(text, sizeof text, "%llx\n", (unsigned long long)v));
    } else if (!strncmp(in + 4, "/ ", 2))
        answer(fd, "200 OK", "text/html", frame_page, sizeof frame_page - 1);
    else
        answer(fd, "404 Not Found", "text/plain", "no such page\n", 13);
}

bool serve(const serve_what *w, int port, void (*ready)(const char *url), tp_err *err)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t na = sizeof a;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char url[64];
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 16) ||
        getsockname(fd, (struct sockaddr *)&a, &na)) {
        err_set(err, ERR_os, "cannot listen on 127.0.0.1:%d: %s", port, strerror(errno));
        if (fd >= 0)
            close(fd);
        return false;
    }
    signal(SIGPIPE, SIG_IGN);
    port = ntohs(a.sin_port);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", port);
    ready(url);
    for (;;) {
        int c = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (c < 0) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            err_set(err, ERR_os, "serving ended: %s", strerror(errno));
            close(fd);
            return false;
        }
        serve_one(c, w, port);
        close(c);
    }
}
