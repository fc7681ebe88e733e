// Work that outlives the call that started it: jobs on threads of their own, and a channel back to
// JavaScript.
//
// Invariants: (1) every started job settles its promise exactly once, unless its environment ends
// first; (2) the event loop is kept alive while a job is in flight, and only then; (3) after
// Channel::Release, or the end of the environment, nothing reaches JavaScript.
#pragma once

#include <node_api.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "binding/args.h"

namespace millrace::binding {

// Work to be done on the environment's thread.
class Message {
 public:
  virtual ~Message() = default;
  virtual void Deliver(napi_env env) = 0;
};

// Channel from other threads into one environment: a thread-safe function of Node-API.
class Channel {
 public:
  ~Channel() { Release(); }
  // Creates the thread-safe function. False after a throw.
  bool Open(napi_env env, const char* name);
  // Delivers a message on the environment's thread. Thread-safe. Drops the message when the
  // environment has ended.
  void Send(std::unique_ptr<Message> message);
  // Closes the channel; messages that were sent before are still delivered.
  void Release();
  // Count the jobs that keep the event loop alive. REQUIRES: called on the environment's thread.
  void Ref(napi_env env);
  void Unref(napi_env env);

 private:
  std::mutex mutex_;
  napi_threadsafe_function function_ = nullptr;
  std::uint32_t held_ = 0;
};

// Call whose result is a promise.
class Job : public Message {
 public:
  // An inline job may run in the middle of another job of its thread.
  explicit Job(bool is_inline = false) : is_inline_(is_inline) {}

  // Makes the promise. Null after a throw.
  napi_value Begin(napi_env env, std::shared_ptr<Channel> channel);
  // Protects a value (the borrowed buffer) from garbage collection until the job is settled.
  void Keep(napi_env env, napi_value value);

  // Runs the job on its thread. True: the job is complete and is delivered immediately. False:
  // another owner delivers it later.
  virtual bool Run() = 0;
  // Result of the promise, made on the environment's thread. Null after a throw, which rejects the
  // promise.
  virtual napi_value Result(napi_env env) = 0;

  void MarkClosed() { closed_ = true; }
  bool is_inline() const { return is_inline_; }
  void Deliver(napi_env env) override;

 private:
  bool is_inline_;
  bool closed_ = false;
  napi_deferred deferred_ = nullptr;
  std::vector<napi_ref> kept_;
  std::shared_ptr<Channel> channel_;
};

// Queue of the jobs of one thread, in order.
class JobQueue {
 public:
  // Appends a job. False when the queue is closed; the caller then keeps the job.
  bool Post(std::unique_ptr<Job>& job);
  // Removes and returns the next job; null after `wait_ms` or when the queue is closed. A negative
  // wait has no limit.
  std::unique_ptr<Job> Next(int wait_ms);
  // Removes and returns the next job if it is inline; null otherwise.
  std::unique_ptr<Job> NextInline();
  bool FrontIsExclusive();
  // Refuses further jobs, wakes the waiting thread, and returns the jobs that remain.
  std::deque<std::unique_ptr<Job>> Close();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Job>> jobs_;
  bool closed_ = false;
};

// Posts a job to `queue`, or rejects it with `closed` when the queue is closed. Returns the
// promise.
napi_value Start(napi_env env, const std::shared_ptr<Channel>& channel, JobQueue& queue,
                 std::unique_ptr<Job> job);
// Rejects jobs that were not run with `closed`.
void Refuse(Channel& channel, std::deque<std::unique_ptr<Job>> jobs);

}  // namespace millrace::binding
