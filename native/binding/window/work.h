// Work on a thread of libuv's pool, and the promise of its result.
#pragma once

#include <node_api.h>

#include <memory>
#include <vector>

namespace millrace::binding {

class PoolWork {
 public:
  virtual ~PoolWork() = default;

  // Protects a value (a borrowed buffer) from garbage collection until the work is complete.
  void Keep(napi_env env, napi_value value);

  // Runs on a thread of the pool.
  virtual void Execute() = 0;
  // Result of the promise, made on the environment's thread. Null after a throw, which rejects the
  // promise.
  virtual napi_value Result(napi_env env) = 0;
  // Error of work that did not run because the environment ends. Throws.
  virtual napi_value Cancelled(napi_env env);

 private:
  friend napi_value StartWork(napi_env, std::unique_ptr<PoolWork>, const char*);
  static void Run(napi_env env, void* data);
  static void Complete(napi_env env, napi_status status, void* data);

  std::vector<napi_ref> kept_;
  napi_deferred deferred_ = nullptr;
  napi_async_work work_ = nullptr;
};

// Starts the work. The work is destroyed on the environment's thread. Returns the promise, or null
// after a throw.
napi_value StartWork(napi_env env, std::unique_ptr<PoolWork> work, const char* name);

}  // namespace millrace::binding
