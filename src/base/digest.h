/* digest.h - MD5 (trace payloads), SHA-1 and SHA-256 (content addresses). */
#ifndef TAPER_DIGEST_H
#define TAPER_DIGEST_H
#include "base/base.h"

typedef enum { DIGEST_md5, DIGEST_sha1, DIGEST_sha256 } digest_kind;
enum { DIGEST_HEX = 65 }; /* room for the longest in hex, with NUL */

typedef struct digest { /* private */
    digest_kind kind;
    uint32_t h[8];
    uint64_t total;
    unsigned char block[64];
} digest;

void digest_init(digest *d, digest_kind k);
void digest_add(digest *d, const void *p, size_t n);
void digest_hex(digest *d, char out[DIGEST_HEX]); /* ends d; lower case */
/* The three steps in one. */
void digest_of(digest_kind k, const void *p, size_t n, char out[DIGEST_HEX]);
#endif
