/* Preloaded: lets the n-th allocation that the compiled reader and its columns make fail, and counts what they hold. */
#define _GNU_SOURCE
#include <link.h>
#include <stdlib.h>
#include <string.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void __libc_free(void *);

static struct { char *start, *end; } ours[2]; /* where the code of the two modules lies */
static int known = 0;
static long at = 0, calls = 0, held = 0;

static int look(struct dl_phdr_info *object, size_t size, void *data) {
    (void)size, (void)data;
    if (!strstr(object->dlpi_name, "/ingest/_scanner.") && !strstr(object->dlpi_name, "/frames/_arrow.")) return 0;
    for (int i = 0; i < object->dlpi_phnum && known < 2; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
        ours[known].start = (char *)object->dlpi_addr + part->p_vaddr;
        ours[known].end = ours[known].start + part->p_memsz;
        known++;
    }
    return 0;
}

/* From now on the n-th such allocation returns NULL; with 0, none does. Returns how many of the two modules are loaded. */
int memory_arm(long n) {
    if (!known) dl_iterate_phdr(look, NULL);
    calls = 0;
    at = n;
    return known;
}
long memory_calls(void) { return calls; }
long memory_held(void) { return held; }

static int is_ours(void *caller) {
    for (int i = 0; i < known; i++)
        if ((char *)caller >= ours[i].start && (char *)caller < ours[i].end) return 1;
    return 0;
}

/* What they hold, by address: a call of free() at a function's end tells nothing of who made it. */
enum { BUCKETS = 1 << 14, PLACES = 8 };
static void *memory_of[BUCKETS][PLACES];

static void **bucket(void *memory) { return memory_of[((size_t)memory >> 4) * 0x9E3779B1u % BUCKETS]; }

static void *kept(void *memory) {
    void **places = bucket(memory);
    for (int i = 0; i < PLACES; i++)
        if (__sync_bool_compare_and_swap(&places[i], NULL, memory)) {
            __sync_add_and_fetch(&held, 1);
            return memory;
        }
    abort();
}

static int strikes(void) { return __sync_add_and_fetch(&calls, 1) == at; }

void *malloc(size_t size) {
    if (!is_ours(__builtin_return_address(0))) return __libc_malloc(size);
    return strikes() ? NULL : kept(__libc_malloc(size));
}

void *calloc(size_t count, size_t size) {
    if (!is_ours(__builtin_return_address(0))) return __libc_calloc(count, size);
    return strikes() ? NULL : kept(__libc_calloc(count, size));
}

void free(void *memory) {
    if (memory && known) {
        void **places = bucket(memory);
        for (int i = 0; i < PLACES; i++)
            if (places[i] == memory && __sync_bool_compare_and_swap(&places[i], memory, NULL))
                __sync_sub_and_fetch(&held, 1);
    }
    __libc_free(memory);
}
