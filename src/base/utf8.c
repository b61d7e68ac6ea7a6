#include "base/utf8.h"

int utf8_decode(const char *str, size_t n, uint32_t *cp)
{
    const unsigned char *s = (const unsigned char *)str;
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    int len = !n            ? 0
              : s[0] < 0x80 ? 1
              : s[0] < 0xc0 ? 0
              : s[0] < 0xe0 ? 2
              : s[0] < 0xf0 ? 3
              : s[0] < 0xf8 ? 4
                            : 0;

    if (!len || (size_t)len > n)
        return 0;
    uint32_t c = len == 1 ? s[0] : s[0] & (0x7fu >> len);
    for (int i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3f);
    }
    if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    if (cp)
        *cp = c;
    return len;
}

int utf8_encode(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    int len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = len - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf00 >> len) | c);
    return len;
}

size_t utf8_bad(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        int len = (unsigned char)s[i] < 0x80 ? 1 : utf8_decode(s + i, n - i, NULL);
        if (!len)
            return i;
        i += (size_t)len;
    }
    return n;
}

size_t utf8_count(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; count++) {
        int len = utf8_decode(s + i, n - i, NULL);
        i += len ? (size_t)len : 1;
    }
    return count;
}
