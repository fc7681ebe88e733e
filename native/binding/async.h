// Work that outlives the call that started it: jobs on threads of their own, and the way back to
// JavaScript.
//
// Invariants: (1) every job that was started settles its promise exactly once, unless its
// environment ends first; (2) the event loop is kept alive while a job is under way, and only then;
// (3) after Channel::Release, or the end of the environment, nothing reaches JavaScript.
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

// Something to be done on the environment's thread.
class Message {
 public:
  virtual ~Message() = default;
  virtual void Deliver(napi_env env) = 0;
};

// The way from other threads into one environment.
class Channel {
 public:
  ~Channel() { Release(); }
  // False after a throw.
  bool Open(napi_env env, const char* name);
  // From any thread. The message is dropped when the environment has ended.
  void Send(std::unique_ptr<Message> message);
  // Lets go; what was sent before is still delivered.
  void Release();
  // On the environment's thread: one more, one fewer, that the event loop has to wait for.
  void Hold(napi_env env);
  void LetGo(napi_env env);

 private:
  std::mutex mutex_;
  napi_threadsafe_function function_ = nullptr;
  std::uint32_t held_ = 0;
};

// A call that answers by a promise.
class Job : public Message {
 public:
  // Inline jobs may run in the middle of another job of their thread.
  explicit Job(bool is_inline = false) : is_inline_(is_inline) {}

  // Makes the promise. Null after a throw.
  napi_value Begin(napi_env env, std::shared_ptr<Channel> channel);
  // Keeps a value (the buffer that is borrowed) from being collected until the job is settled.
  void Keep(napi_env env, napi_value value);

  // On the job's thread. True: the job is done and goes back at once.
  virtual bool Run() = 0;
  // On the environment's thread: what the promise resolves to. Null after a throw, which rejects
  // it.
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

// Jobs waiting for one thread, in order.
class JobQueue {
 public:
  // Takes the job only when it returns true.
  bool Post(std::unique_ptr<Job>& job);
  // The next job, or null after `wait_ms` or when closed. A negative wait has no end.
  std::unique_ptr<Job> Next(int wait_ms);
  // The next job if it is there and inline.
  std::unique_ptr<Job> NextInline();
  bool FrontIsExclusive();
  // Refuses further jobs, wakes the waiter, and hands out what is left.
  std::deque<std::unique_ptr<Job>> Close();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Job>> jobs_;
  bool closed_ = false;
};

// Runs a job on `queue`, or rejects it with `closed` when the queue takes no more. Returns the
// promise.
napi_value Start(napi_env env, const std::shared_ptr<Channel>& channel, JobQueue& queue,
                 std::unique_ptr<Job> job);
// Sends back unrun jobs as closed.
void Refuse(Channel& channel, std::deque<std::unique_ptr<Job>> jobs);

}  // namespace millrace::binding
