/* Any text may stand in TAPER_LOGS: it is applied, or refused with an explanation. */
#include "fuzz.h"
#include "events/events.h"

int FUZZ_ENTRY(const uint8_t *data, size_t n)
{
    char *s = mem_strndup((const char *)data, n);
    strbuf why = { 0 };

    MUST(ev_set_logs_string(s, &why) || why.n > 0);
    ev_reset_logs();
    strbuf_free(&why);
    free(s);
    return 0;
}
