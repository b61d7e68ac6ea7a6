/* debug.c - tells a debugger about kernels: one small ELF object each, through GDB's JIT interface. */
#include "target/x64/publish.h"
#include "target/x64/debug.h"
#include <elf.h>

/* The interface's names and layout are fixed (GDB manual, "JIT Interface"). */
typedef struct jit_entry {
    struct jit_entry *next, *prev;
    const char *file;
    uint64_t size;
} jit_entry;
struct jit_descriptor {
    uint32_t version, action;
    jit_entry *relevant, *first;
};
extern struct jit_descriptor __jit_debug_descriptor;
void __jit_debug_register_code(void);
__attribute__((used)) struct jit_descriptor __jit_debug_descriptor = { 1, 0, NULL, NULL };
__attribute__((noinline, used)) void __jit_debug_register_code(void) { __asm__ volatile("" ::: "memory"); }

#if defined(__x86_64__)
enum { S_null, S_text, S_symtab, S_strtab, S_shstrtab, S_COUNT };
typedef struct image {
    Elf64_Ehdr eh;
    Elf64_Shdr sh[S_COUNT];
    Elf64_Sym sym[2];
    char shstr[40], str[72];
} image;

/* Called under the publisher's lock. */
void gen_jit_announce(const void *code, size_t n, const char *name)
{
    static const char sections[] = "\0.text\0.symtab\0.strtab\0.shstrtab";
    image *m = mem_zalloc(sizeof *m);
    jit_entry *e = mem_zalloc(sizeof *e);
    memcpy(m->eh.e_ident, ELFMAG, SELFMAG);
    m->eh.e_ident[EI_CLASS] = ELFCLASS64, m->eh.e_ident[EI_DATA] = ELFDATA2LSB,
    m->eh.e_ident[EI_VERSION] = EV_CURRENT;
    m->eh.e_type = ET_REL, m->eh.e_machine = EM_X86_64, m->eh.e_version = EV_CURRENT;
    m->eh.e_shoff = offsetof(image, sh), m->eh.e_ehsize = sizeof m->eh,
    m->eh.e_shentsize = sizeof(Elf64_Shdr);
    m->eh.e_shnum = S_COUNT, m->eh.e_shstrndx = S_shstrtab;
    m->sh[S_text] = (Elf64_Shdr){ .sh_name = 1,
                                  .sh_type = SHT_NOBITS,
                                  .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                                  .sh_addr = (Elf64_Addr)(uintptr_t)code,
                                  .sh_size = n,
                                  .sh_addralign = 16 };
    m->sh[S_symtab] = (Elf64_Shdr){ .sh_name = 7,
                                    .sh_type = SHT_SYMTAB,
                                    .sh_offset = offsetof(image, sym),
                                    .sh_size = sizeof m->sym,
                                    .sh_link = S_strtab,
                                    .sh_info = 1,
                                    .sh_entsize = sizeof(Elf64_Sym),
                                    .sh_addralign = 8 };
    m->sh[S_strtab] = (Elf64_Shdr){ .sh_name = 15,
                                    .sh_type = SHT_STRTAB,
                                    .sh_offset = offsetof(image, str),
                                    .sh_size = sizeof m->str,
                                    .sh_addralign = 1 };
    m->sh[S_shstrtab] = (Elf64_Shdr){ .sh_name = 23,
                                      .sh_type = SHT_STRTAB,
                                      .sh_offset = offsetof(image, shstr),
                                      .sh_size = sizeof m->shstr,
                                      .sh_addralign = 1 };
    memcpy(m->shstr, sections, sizeof sections);
    strncpy(m->str + 1, name, sizeof m->str - 2);
    m->sym[1] = (Elf64_Sym){ .st_name = 1,
                             .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                             .st_shndx = S_text,
                             .st_value = 0,
                             .st_size = n };
    e->file = (const char *)m, e->size = sizeof *m;
    e->next = __jit_debug_descriptor.first;
    if (e->next)
        e->next->prev = e;
    __jit_debug_descriptor.first = __jit_debug_descriptor.relevant = e;
    __jit_debug_descriptor.action = 1;
    __jit_debug_register_code();
}
#else
void gen_jit_announce(const void *code, size_t n, const char *name) {}
#endif
