#include "binding/async.h"

#include <chrono>
#include <utility>

namespace millrace::binding {
namespace {

void CallIntoJs(napi_env env, napi_value, void*, void* data) {
  const std::unique_ptr<Message> message(static_cast<Message*>(data));
  if (env == nullptr) return;
  napi_handle_scope scope;
  if (napi_open_handle_scope(env, &scope) != napi_ok) return;
  message->Deliver(env);
  napi_close_handle_scope(env, scope);
}

}  // namespace

bool Channel::Open(napi_env env, const char* name) {
  if (napi_create_threadsafe_function(env, nullptr, nullptr, ToText(env, name), 0, 1, nullptr,
                                      nullptr, nullptr, CallIntoJs, &function_) != napi_ok ||
      napi_unref_threadsafe_function(env, function_) != napi_ok) {
    Throw(env, kInternal, "cannot create the thread-safe function of a %s", name);
    return false;
  }
  return true;
}

void Channel::Send(std::unique_ptr<Message> message) {
  const std::lock_guard lock(mutex_);
  if (function_ == nullptr) return;
  const napi_status status =
      napi_call_threadsafe_function(function_, message.get(), napi_tsfn_nonblocking);
  if (status == napi_ok) {
    static_cast<void>(message.release());
  } else if (status == napi_closing) {
    // This status also releases the reference of this thread to the function.
    function_ = nullptr;
  }
}

void Channel::Release() {
  const std::lock_guard lock(mutex_);
  if (function_ == nullptr) return;
  napi_release_threadsafe_function(function_, napi_tsfn_release);
  function_ = nullptr;
}

void Channel::Ref(napi_env env) {
  const std::lock_guard lock(mutex_);
  if (held_++ == 0 && function_ != nullptr) napi_ref_threadsafe_function(env, function_);
}

void Channel::Unref(napi_env env) {
  const std::lock_guard lock(mutex_);
  if (--held_ == 0 && function_ != nullptr) napi_unref_threadsafe_function(env, function_);
}

napi_value Job::Begin(napi_env env, std::shared_ptr<Channel> channel) {
  napi_value promise = nullptr;
  if (napi_create_promise(env, &deferred_, &promise) != napi_ok) {
    Throw(env, kInternal, "cannot make a promise");
    return nullptr;
  }
  channel_ = std::move(channel);
  channel_->Ref(env);
  return promise;
}

void Job::Keep(napi_env env, napi_value value) {
  napi_ref ref = nullptr;
  if (napi_create_reference(env, value, 1, &ref) == napi_ok) kept_.push_back(ref);
}

void Job::Deliver(napi_env env) {
  napi_value value = nullptr;
  if (closed_) {
    Throw(env, kClosed, "the client was closed");
  } else {
    value = Result(env);
  }
  bool thrown = false;
  napi_is_exception_pending(env, &thrown);
  if (thrown) {
    napi_get_and_clear_last_exception(env, &value);
    napi_reject_deferred(env, deferred_, value);
  } else {
    napi_resolve_deferred(env, deferred_, value == nullptr ? Undefined(env) : value);
  }
  for (const napi_ref ref : kept_) napi_delete_reference(env, ref);
  channel_->Unref(env);
}

bool JobQueue::Post(std::unique_ptr<Job>& job) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
  return true;
}

std::unique_ptr<Job> JobQueue::Next(int wait_ms) {
  std::unique_lock lock(mutex_);
  const auto ready = [this] { return closed_ || !jobs_.empty(); };
  if (wait_ms < 0) {
    changed_.wait(lock, ready);
  } else if (!changed_.wait_for(lock, std::chrono::milliseconds(wait_ms), ready)) {
    return nullptr;
  }
  if (jobs_.empty()) return nullptr;
  std::unique_ptr<Job> job = std::move(jobs_.front());
  jobs_.pop_front();
  return job;
}

std::unique_ptr<Job> JobQueue::NextInline() {
  const std::lock_guard lock(mutex_);
  if (jobs_.empty() || !jobs_.front()->is_inline()) return nullptr;
  std::unique_ptr<Job> job = std::move(jobs_.front());
  jobs_.pop_front();
  return job;
}

bool JobQueue::FrontIsExclusive() {
  const std::lock_guard lock(mutex_);
  return !jobs_.empty() && !jobs_.front()->is_inline();
}

std::deque<std::unique_ptr<Job>> JobQueue::Close() {
  std::deque<std::unique_ptr<Job>> left;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    left.swap(jobs_);
  }
  changed_.notify_all();
  return left;
}

napi_value Start(napi_env env, const std::shared_ptr<Channel>& channel, JobQueue& queue,
                 std::unique_ptr<Job> job) {
  napi_value promise = job->Begin(env, channel);
  if (promise == nullptr || queue.Post(job)) return promise;
  job->MarkClosed();
  job->Deliver(env);
  return promise;
}

void Refuse(Channel& channel, std::deque<std::unique_ptr<Job>> jobs) {
  for (std::unique_ptr<Job>& job : jobs) {
    job->MarkClosed();
    channel.Send(std::move(job));
  }
}

}  // namespace millrace::binding
