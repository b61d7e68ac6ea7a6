#include "base/quarantine.h"
#include "base/envvars.h"
#include "base/file.h"
#include "base/map.h"
#include "base/strbuf.h"
#include <stdio.h>

static map refused, skipped;
int quarantine_functions;

static const char *value_of(const char *line, size_t n, const char *word)
{
    size_t k = strlen(word);
    return n > k && !memcmp(line, word, k) ? line + k : NULL;
}

void quarantine_load(const char *version, void (*set)(const char *name, const char *value))
{
    const char *named = env_get(ENV_quarantine), *path = named ? named : QUARANTINE_FILE, *v;
    size_t n;
    char *text = *path && file_exists(path) ? file_read(path, 1 << 20, &n, NULL) : NULL;
    int rewrites = 0, settings = 0;
    if (!text)
        return;
    for (char *s = text; *s;) {
        size_t k = strcspn(s, "\n");
        char *end = s + k, was = *end;
        *end = 0;
        if (s == text && (!(v = value_of(s, k, "taper ")) || strcmp(v, version))) {
            fprintf(stderr,
                    "taper: %s was written by another version and is ignored: `taper doctor` says whether "
                    "the fault is still there\n",
                    path);
            break;
        }
        if ((v = value_of(s, k, "refuse "))) {
            map_put(&refused, v, &refused);
            rewrites++;
        } else if ((v = value_of(s, k, "skip "))) {
            map_put(&skipped, v, &skipped);
            quarantine_functions++;
        } else if ((v = value_of(s, k, "set TAPER_"))) {
            char *name = mem_strndup(s + 4, strcspn(s + 4, "="));
            const char *value = s[4 + strlen(name)] == '=' ? s + 5 + strlen(name) : NULL;
            if (value && !getenv(name)) {
                setenv(name, value, 1);
                if (set)
                    set(name, value);
            }
            free(name);
            settings++;
        }
        s = end + (was != 0);
    }
    free(text);
    if (rewrites || settings || quarantine_functions)
        fprintf(
            stderr,
            "taper: %s is obeyed: %d rewrite%s refused, %d setting%s, %d function%s not compiled (delete it "
            "to end that)\n",
            path, rewrites, plural(rewrites), settings, plural(settings), quarantine_functions,
            plural(quarantine_functions));
}

bool quarantine_any(void) { return refused.n > 0; }
bool quarantine_skips(const char *function) { return skipped.n && map_get(&skipped, function); }
bool quarantine_refuses(const char *site) { return refused.n && map_get(&refused, site); }
