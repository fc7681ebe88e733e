#include "binding/window/work.h"

#include "binding/args.h"

namespace millrace::binding {

void PoolWork::Keep(napi_env env, napi_value value) {
  napi_ref ref = nullptr;
  if (napi_create_reference(env, value, 1, &ref) == napi_ok) kept_.push_back(ref);
}

napi_value PoolWork::Cancelled(napi_env env) {
  Throw(env, kClosed, "the process ends");
  return nullptr;
}

void PoolWork::Run(napi_env, void* data) { static_cast<PoolWork*>(data)->Execute(); }

void PoolWork::Complete(napi_env env, napi_status status, void* data) {
  const std::unique_ptr<PoolWork> work(static_cast<PoolWork*>(data));
  napi_delete_async_work(env, work->work_);
  for (const napi_ref ref : work->kept_) napi_delete_reference(env, ref);
  napi_value value = status == napi_ok ? work->Result(env) : work->Cancelled(env);
  bool thrown = false;
  napi_is_exception_pending(env, &thrown);
  if (thrown) {
    if (napi_get_and_clear_last_exception(env, &value) == napi_ok) {
      napi_reject_deferred(env, work->deferred_, value);
    }
  } else {
    napi_resolve_deferred(env, work->deferred_, value);
  }
}

napi_value StartWork(napi_env env, std::unique_ptr<PoolWork> work, const char* name) {
  napi_value promise = nullptr;
  if (napi_create_promise(env, &work->deferred_, &promise) != napi_ok ||
      napi_create_async_work(env, nullptr, ToText(env, name), PoolWork::Run, PoolWork::Complete,
                             work.get(), &work->work_) != napi_ok ||
      napi_queue_async_work(env, work->work_) != napi_ok) {
    for (const napi_ref ref : work->kept_) napi_delete_reference(env, ref);
    Throw(env, kInternal, "cannot start a %s", name);
    return nullptr;
  }
  static_cast<void>(work.release());
  return promise;
}

}  // namespace millrace::binding
