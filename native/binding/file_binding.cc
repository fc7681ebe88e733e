// Kernel locks on open files. Signature: src/addon/raw.ts.
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

}  // namespace

void RegisterLocks(napi_env env, napi_value exports) {
  Export(env, exports, "tryLockFile", TryLockFile);
}

}  // namespace millrace::binding
