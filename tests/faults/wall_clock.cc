// SPDX-License-Identifier: Apache-2.0
// A library for LD_PRELOAD that moves the wall clock of a process while it runs. The file $WALL_CLOCK holds the
// distance from the real clock in nanoseconds (int64, native order); each process that maps it sees a change at once.
// The monotonic clocks are the kernel's. Deadlines by the wall clock are passed on to the kernel in the kernel's time,
// so that a sleep ends when the moved clock says so, as long as the clock is not moved during the sleep.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

constexpr int64_t kSecond = 1'000'000'000;

const volatile int64_t* MapOffset() {
  static const int64_t none = 0;
  const char* const path = std::getenv("WALL_CLOCK");
  const int fd = path == nullptr ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return &none;
  void* const mapped = ::mmap(nullptr, sizeof none, PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  return mapped == MAP_FAILED ? &none : static_cast<const volatile int64_t*>(mapped);
}

int64_t Offset() {
  static const volatile int64_t* const offset = MapOffset();
  return *offset;
}

timespec Moved(const timespec& time, int64_t by) {
  int64_t nanoseconds = time.tv_nsec + by % kSecond;
  timespec moved{};
  moved.tv_sec = time.tv_sec + by / kSecond;
  if (nanoseconds < 0) moved.tv_sec -= 1, nanoseconds += kSecond;
  if (nanoseconds >= kSecond) moved.tv_sec += 1, nanoseconds -= kSecond;
  moved.tv_nsec = nanoseconds;
  return moved;
}

bool IsWall(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE; }

// The next definition of this function, which is libc's.
template <class Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static const auto next = Next<int (*)(clockid_t, timespec*)>("clock_gettime");
  const int result = next(clock, time);
  if (result == 0 && IsWall(clock)) *time = Moved(*time, Offset());
  return result;
}

EXPORTED int gettimeofday(timeval* time, void*) noexcept {
  timespec now{};
  const int result = clock_gettime(CLOCK_REALTIME, &now);
  *time = {now.tv_sec, now.tv_nsec / 1000};
  return result;
}

EXPORTED time_t time(time_t* time) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (time != nullptr) *time = now.tv_sec;
  return now.tv_sec;
}

EXPORTED int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                    const timespec* until) {
  static const auto next =
      Next<int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)>("pthread_cond_clockwait");
  const timespec real = IsWall(clock) ? Moved(*until, -Offset()) : *until;
  return next(condition, mutex, clock, &real);
}

EXPORTED int sem_timedwait(sem_t* semaphore, const timespec* until) {
  static const auto next = Next<int (*)(sem_t*, const timespec*)>("sem_timedwait");
  const timespec real = Moved(*until, -Offset());
  return next(semaphore, &real);
}

// Abseil, below gRPC, waits on futexes by itself.
EXPORTED long syscall(long number, ...) noexcept {
  static const auto next = Next<long (*)(long, ...)>("syscall");
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& each : arguments) each = va_arg(list, long);
  va_end(list);
  timespec real{};
  if (number == SYS_futex && (arguments[1] & FUTEX_CLOCK_REALTIME) != 0 && arguments[3] != 0) {
    real = Moved(*reinterpret_cast<const timespec*>(arguments[3]), -Offset());
    arguments[3] = reinterpret_cast<long>(&real);
  }
  return next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}
