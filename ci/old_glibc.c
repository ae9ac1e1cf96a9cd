// Lets what is linked with it run on glibc 2.28, whatever glibc it was linked on: by the linker's --wrap each name
// below, of which newer glibc has a version of its own, leads here, and from here to the version that old systems have,
// too. ci/manylinux links it into the program and the modules of a wheel. x86-64.
#include <pthread.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#define HIDDEN __attribute__((visibility("hidden")))

// A jump to the old one, which takes and gives the same.
#define OLD(name, version)                                                                                           \
  __asm__(".symver old_" #name "," #name "@GLIBC_" version "\n.text\n.globl __wrap_" #name "\n.hidden __wrap_" #name \
          "\n.type __wrap_" #name ",@function\n__wrap_" #name ":\n jmp *old_" #name "@GOTPCREL(%rip)\n")
// clang-format off
OLD(exp, "2.2.5"); OLD(exp2, "2.2.5"); OLD(hypot, "2.2.5"); OLD(log, "2.2.5"); OLD(log2, "2.2.5"); OLD(pow, "2.2.5");
OLD(dlclose, "2.2.5"); OLD(dlerror, "2.2.5"); OLD(dlopen, "2.2.5"); OLD(dlsym, "2.2.5"); OLD(pthread_create, "2.2.5");
OLD(pthread_detach, "2.2.5"); OLD(pthread_getaffinity_np, "2.3.4"); OLD(pthread_getspecific, "2.2.5");
OLD(pthread_join, "2.2.5"); OLD(pthread_key_create, "2.2.5"); OLD(pthread_key_delete, "2.2.5");
OLD(pthread_mutex_trylock, "2.2.5"); OLD(pthread_once, "2.2.5"); OLD(pthread_rwlock_rdlock, "2.2.5");
OLD(pthread_rwlock_unlock, "2.2.5"); OLD(pthread_rwlock_wrlock, "2.2.5"); OLD(pthread_setaffinity_np, "2.3.4");
OLD(pthread_setspecific, "2.2.5");
// clang-format on

HIDDEN char __libc_single_threaded = 0;  // libstdc++ asks whether it may count without atomic operations: no

HIDDEN unsigned __wrap_arc4random(void) {
  unsigned made = 0;
  while (getrandom(&made, sizeof made, 0) != sizeof made) continue;
  return made;
}

// The first argument of the old ones is the version of the structure that x86-64 has.
int __fxstat(int, int, struct stat*);
int __fxstatat(int, int, const char*, struct stat*, int);
int __lxstat(int, const char*, struct stat*);
int __xstat(int, const char*, struct stat*);
HIDDEN int __wrap_fstat(int file, struct stat* out) { return __fxstat(1, file, out); }
HIDDEN int __wrap_fstat64(int file, struct stat* out) { return __fxstat(1, file, out); }
HIDDEN int __wrap_fstatat(int in, const char* path, struct stat* out, int how) {
  return __fxstatat(1, in, path, out, how);
}
HIDDEN int __wrap_lstat(const char* path, struct stat* out) { return __lxstat(1, path, out); }
HIDDEN int __wrap_lstat64(const char* path, struct stat* out) { return __lxstat(1, path, out); }
HIDDEN int __wrap_stat(const char* path, struct stat* out) { return __xstat(1, path, out); }
HIDDEN int __wrap_stat64(const char* path, struct stat* out) { return __xstat(1, path, out); }

// The old one waits until a time of the wall clock alone.
HIDDEN int __wrap_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                         const struct timespec* until) {
  struct timespec there, here;
  clock_gettime(clock, &there);
  clock_gettime(CLOCK_REALTIME, &here);
  const long long ns =
      (until->tv_sec - there.tv_sec + here.tv_sec) * 1000000000LL + until->tv_nsec - there.tv_nsec + here.tv_nsec;
  const struct timespec at = {ns / 1000000000LL, ns % 1000000000LL};
  return pthread_cond_timedwait(condition, mutex, &at);
}

// The old start of a program has the constructors called by what it is given.
typedef void (*Constructor)(int, char**, char**);
extern Constructor __preinit_array_start[] __attribute__((weak)) HIDDEN,
    __preinit_array_end[] __attribute__((weak)) HIDDEN;
extern Constructor __init_array_start[] __attribute__((weak)) HIDDEN, __init_array_end[] __attribute__((weak)) HIDDEN;
extern void _init(void);
__asm__(".symver old_start,__libc_start_main@GLIBC_2.2.5");
int old_start(int (*)(int, char**, char**), int, char**, int (*)(int, char**, char**), void (*)(void), void (*)(void),
              void*);

static int construct(int count, char** words, char** environment) {
  for (Constructor* one = __preinit_array_start; one != __preinit_array_end; ++one) (*one)(count, words, environment);
  _init();
  for (Constructor* one = __init_array_start; one != __init_array_end; ++one) (*one)(count, words, environment);
  return 0;
}

HIDDEN int __wrap___libc_start_main(int (*main)(int, char**, char**), int count, char** words, void (*init)(void),
                                    void (*end)(void), void (*unload)(void), void* stack) {
  (void)init, (void)end;  // of programs linked on newer glibc there are none
  return old_start(main, count, words, construct, 0, unload, stack);
}
