// System calls on open files that Node.js does not have. Signatures: src/addon/raw.ts.
#include <poll.h>
#include <sys/file.h>

#include <cerrno>

#include "binding/args.h"
#include "binding/register.h"

namespace millrace::binding {
namespace {

// tryLockFile(fd): number. Acquires an exclusive flock(2) without waiting. Returns 0, or the errno:
// EWOULDBLOCK where another open file description holds the lock. The lock belongs to the open file
// description, so it ends when its last descriptor is closed.
napi_value TryLockFile(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::int64_t fd = 0;
  if (!call.HasArguments(1) || !call.Integer(0, "fd", 0, INT32_MAX, &fd)) return nullptr;
  int result = 0;
  do {
    result = flock(static_cast<int>(fd), LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  return ToNumber(env, result == 0 ? 0 : errno);
}

// hasReader(fd): number. Returns 0 where fd is a pipe or socket that nothing reads any more,
// else 1. A write would report it too, but a program that has nothing to write makes none.
napi_value HasReader(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::int64_t fd = 0;
  if (!call.HasArguments(1) || !call.Integer(0, "fd", 0, INT32_MAX, &fd)) return nullptr;
  // poll(2) always reports errors and hang-ups; no event is requested.
  pollfd state{.fd = static_cast<int>(fd), .events = 0, .revents = 0};
  const bool is_known = poll(&state, 1, 0) == 1;
  return ToNumber(env, is_known && (state.revents & (POLLERR | POLLHUP)) != 0 ? 0 : 1);
}

}  // namespace

void RegisterFiles(napi_env env, napi_value exports) {
  Export(env, exports, "tryLockFile", TryLockFile);
  Export(env, exports, "hasReader", HasReader);
}

}  // namespace millrace::binding
