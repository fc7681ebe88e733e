// Preloaded into one process of a chaos run (LD_PRELOAD): a full disk and a stepped wall clock,
// without privileges. A file that the owner of the run maps too holds both faults.
//
// Full disk: a write that would extend a regular file below the folder fails with ENOSPC. Writes
// within a file succeed, as on a real disk. Invariant: a refused call changes nothing.
// Clock: calls that read the time of day are shifted; monotonic time is not. Absolute deadlines
// of that time are shifted back, because the kernel waits by its own clock.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

// Layout of the file; src/devstack/fault-shim.ts has its offsets.
struct control {
  uint32_t is_full;
  uint32_t unused;
  uint64_t refused;
  int64_t clock_ns;
  uint64_t clock_reads;
  char folder[4064];
};
_Static_assert(sizeof(struct control) == 4096, "the control file is one page");

static struct control inert;
static struct control* control = &inert;

#define REAL(name)               \
  static __typeof__(name)* real; \
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void map_control(void) {
  const char* path = getenv("MILLRACE_CHAOS_CONTROL");
  if (path == NULL) return;
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void* page = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (page != MAP_FAILED) control = page;
}

// --- full disk -------------------------------------------------------------------------------

static int is_below_folder(int fd) {
  char link[32];
  char path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return 0;
  path[length] = '\0';
  size_t prefix = strnlen(control->folder, sizeof control->folder);
  return prefix > 0 && strncmp(path, control->folder, prefix) == 0 && path[prefix] == '/';
}

// End of the file after a write: at its offset, or of `at` where that is not negative.
static int is_refused(int fd, int64_t at, int64_t bytes) {
  if (__atomic_load_n(&control->is_full, __ATOMIC_RELAXED) == 0 || bytes <= 0) return 0;
  int before = errno;
  struct stat file;
  int refused = 0;
  if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode)) {
    if (at < 0) at = (fcntl(fd, F_GETFL) & O_APPEND) != 0 ? file.st_size : lseek(fd, 0, SEEK_CUR);
    refused = at + bytes > file.st_size && is_below_folder(fd);
  }
  errno = before;
  if (!refused) return 0;
  __atomic_fetch_add(&control->refused, 1, __ATOMIC_RELAXED);
  errno = ENOSPC;
  return 1;
}

static int64_t bytes_of(const struct iovec* parts, int count) {
  int64_t bytes = 0;
  for (int i = 0; i < count; i++) bytes += (int64_t)parts[i].iov_len;
  return bytes;
}

ssize_t write(int fd, const void* from, size_t bytes) {
  REAL(write);
  return is_refused(fd, -1, (int64_t)bytes) ? -1 : real(fd, from, bytes);
}

ssize_t writev(int fd, const struct iovec* parts, int count) {
  REAL(writev);
  return is_refused(fd, -1, bytes_of(parts, count)) ? -1 : real(fd, parts, count);
}

ssize_t pwrite(int fd, const void* from, size_t bytes, off_t at) {
  REAL(pwrite);
  return is_refused(fd, at, (int64_t)bytes) ? -1 : real(fd, from, bytes, at);
}

ssize_t pwrite64(int fd, const void* from, size_t bytes, off64_t at) {
  REAL(pwrite64);
  return is_refused(fd, at, (int64_t)bytes) ? -1 : real(fd, from, bytes, at);
}

ssize_t pwritev(int fd, const struct iovec* parts, int count, off_t at) {
  REAL(pwritev);
  return is_refused(fd, at, bytes_of(parts, count)) ? -1 : real(fd, parts, count, at);
}

ssize_t pwritev64(int fd, const struct iovec* parts, int count, off64_t at) {
  REAL(pwritev64);
  return is_refused(fd, at, bytes_of(parts, count)) ? -1 : real(fd, parts, count, at);
}

// These return the error instead of setting errno.
int posix_fallocate(int fd, off_t at, off_t bytes) {
  REAL(posix_fallocate);
  return is_refused(fd, at, bytes) ? ENOSPC : real(fd, at, bytes);
}

int posix_fallocate64(int fd, off64_t at, off64_t bytes) {
  REAL(posix_fallocate64);
  return is_refused(fd, at, bytes) ? ENOSPC : real(fd, at, bytes);
}

int fallocate(int fd, int mode, off_t at, off_t bytes) {
  REAL(fallocate);
  return mode == 0 && is_refused(fd, at, bytes) ? -1 : real(fd, mode, at, bytes);
}

int fallocate64(int fd, int mode, off64_t at, off64_t bytes) {
  REAL(fallocate64);
  return mode == 0 && is_refused(fd, at, bytes) ? -1 : real(fd, mode, at, bytes);
}

// --- clock -----------------------------------------------------------------------------------

#define NS_PER_S 1000000000LL

// A deadline below this many seconds is one of monotonic time: no machine runs for 30 years.
#define WALL_SECONDS_MIN 1000000000LL

static int64_t step_ns(void) { return __atomic_load_n(&control->clock_ns, __ATOMIC_RELAXED); }

static void shift(struct timespec* time, int64_t ns) {
  int64_t whole = (int64_t)time->tv_nsec + ns % NS_PER_S;
  time->tv_sec += ns / NS_PER_S + (whole >= NS_PER_S) - (whole < 0);
  time->tv_nsec = (whole + NS_PER_S) % NS_PER_S;
}

static void shift_read(struct timespec* time) {
  int64_t ns = step_ns();
  if (ns == 0) return;
  __atomic_fetch_add(&control->clock_reads, 1, __ATOMIC_RELAXED);
  shift(time, ns);
}

int clock_gettime(clockid_t id, struct timespec* time) {
  REAL(clock_gettime);
  int result = real(id, time);
  if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) shift_read(time);
  return result;
}

int gettimeofday(struct timeval* restrict time, void* restrict zone) {
  REAL(gettimeofday);
  int result = real(time, zone);
  if (result == 0) {
    struct timespec fine = {time->tv_sec, time->tv_usec * 1000};
    shift_read(&fine);
    time->tv_sec = fine.tv_sec;
    time->tv_usec = fine.tv_nsec / 1000;
  }
  return result;
}

time_t time(time_t* into) {
  struct timespec now = {0, 0};
  clock_gettime(CLOCK_REALTIME, &now);
  if (into != NULL) *into = now.tv_sec;
  return now.tv_sec;
}

int timespec_get(struct timespec* time, int base) {
  REAL(timespec_get);
  int result = real(time, base);
  if (result == TIME_UTC) shift_read(time);
  return result;
}

// The deadline by the kernel's clock.
static const struct timespec* unshifted(const struct timespec* until, struct timespec* copy) {
  int64_t ns = step_ns();
  if (ns == 0 || until == NULL || until->tv_sec < WALL_SECONDS_MIN) return until;
  *copy = *until;
  shift(copy, -ns);
  return copy;
}

// glibc has an old version of the condition variables, which dlsym may find first.
static void* condition_function(const char* name) {
#ifdef __GLIBC__
  void* found = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
  if (found != NULL) return found;
#endif
  return dlsym(RTLD_NEXT, name);
}

int pthread_cond_timedwait(pthread_cond_t* restrict condition, pthread_mutex_t* restrict mutex,
                           const struct timespec* restrict until) {
  static __typeof__(pthread_cond_timedwait)* real;
  if (real == NULL) *(void**)&real = condition_function("pthread_cond_timedwait");
  struct timespec copy;
  return real(condition, mutex, unshifted(until, &copy));
}

int pthread_mutex_timedlock(pthread_mutex_t* restrict mutex,
                            const struct timespec* restrict until) {
  REAL(pthread_mutex_timedlock);
  struct timespec copy;
  return real(mutex, unshifted(until, &copy));
}

int sem_timedwait(sem_t* restrict semaphore, const struct timespec* restrict until) {
  REAL(sem_timedwait);
  struct timespec copy;
  return real(semaphore, unshifted(until, &copy));
}

// The functions of C11 do not go through those of POSIX; librdkafka waits by them.
int cnd_timedwait(cnd_t* restrict condition, mtx_t* restrict mutex,
                  const struct timespec* restrict until) {
  REAL(cnd_timedwait);
  struct timespec copy;
  return real(condition, mutex, unshifted(until, &copy));
}

int mtx_timedlock(mtx_t* restrict mutex, const struct timespec* restrict until) {
  REAL(mtx_timedlock);
  struct timespec copy;
  return real(mutex, unshifted(until, &copy));
}
