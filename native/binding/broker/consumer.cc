// Handle of the batch consumer. One thread reads; another sends the broker queries that must not
// delay reading.
#include "broker/consumer.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "binding/async.h"
#include "binding/broker/values.h"
#include "binding/handle.h"
#include "binding/register.h"

namespace millrace::binding {
namespace {

using broker::Event;
using broker::Place;

constexpr HandleType kConsumerType = {{0x6d5f3f0c1b7a4e21U, 0x9c8e2f4417d0ab35U}, "consumer"};

// Time after which a rebalance is completed without the application's answer.
constexpr std::int64_t kRebalanceAnswerMs = 120'000;

// Timeout of leaving the group, equal to librdkafka's timeout of a LeaveGroup request. During a
// rebalance that other members delay, the broker does not even read that request.
constexpr int kLeaveMs = 5000;

const char* NameOf(broker::RebalanceKind kind) {
  switch (kind) {
    case broker::RebalanceKind::kAssigned:
      return "assigned";
    case broker::RebalanceKind::kRevoked:
      return "revoked";
    case broker::RebalanceKind::kLost:
      return "lost";
  }
  return "lost";
}

// Weak reference to the application's function. The function refers to the handle; a strong
// reference would keep an unused consumer from being collected. Destroyed with its consumer, on the
// environment's thread.
class RebalanceFunction {
 public:
  RebalanceFunction(napi_env env, napi_ref reference) : env_(env), reference_(reference) {}
  ~RebalanceFunction() { napi_delete_reference(env_, reference_); }
  RebalanceFunction(const RebalanceFunction&) = delete;
  RebalanceFunction& operator=(const RebalanceFunction&) = delete;
  napi_ref reference() const { return reference_; }

 private:
  napi_env env_;
  napi_ref reference_;
};

class ConsumerHandle final : public Resource,
                             public broker::ConsumerHost,
                             public std::enable_shared_from_this<ConsumerHandle> {
 public:
  ~ConsumerHandle() override { Shut(); }

  // False after a throw, or with `error` set.
  bool Open(napi_env env, const broker::Properties& properties, napi_value on_rebalance,
            std::string* error) {
    if (!channel_->Open(env, "consumer")) return false;
    napi_ref reference = nullptr;
    if (napi_create_reference(env, on_rebalance, 0, &reference) != napi_ok) {
      ThrowType(env, "onRebalance: expected a function");
      return false;
    }
    on_rebalance_ = std::make_shared<RebalanceFunction>(env, reference);
    consumer_ = broker::Consumer::Open(properties, this, error);
    if (consumer_ == nullptr) return false;
    reader_ = std::thread([this] { RunReader(); });
    query_thread_ = std::thread([this] { RunQueries(); });
    return true;
  }

  void Close() override { Shut(); }

  // Posts a job to the reader thread.
  napi_value PostRead(napi_env env, std::unique_ptr<Job> job) {
    napi_value promise = Start(env, channel_, reading_, std::move(job));
    WakeReader();
    return promise;
  }
  napi_value PostQuery(napi_env env, std::unique_ptr<Job> job) {
    return Start(env, channel_, queries_, std::move(job));
  }

  broker::Consumer* consumer() { return consumer_.get(); }
  void Answer() { answered_.store(true); }

  // Leaves the group and frees the client. Runs on the reader thread. A client that could not leave
  // in time is freed on a detached thread: its destructor waits for the last request to time out,
  // about a minute.
  void Leave() {
    const bool left = consumer_->Leave(kLeaveMs);
    // The query thread must not use a client that is being freed.
    queries_stopped_.store(true);
    Refuse(*channel_, queries_.Close());
    if (query_thread_.joinable()) query_thread_.join();
    std::unique_ptr<broker::Consumer> last;
    {
      const std::lock_guard lock(consumer_mutex_);
      last = std::move(consumer_);
    }
    if (!left) std::thread([held = std::move(last)]() mutable { held.reset(); }).detach();
  }

  // Implementation of ConsumerHost.
  bool Stopping() override { return stopping_.load() || queries_stopped_.load(); }
  bool Interrupted() override { return stopping_.load() || reading_.FrontIsExclusive(); }
  void ServeJobs() override {
    while (std::unique_ptr<Job> job = reading_.NextInline()) {
      if (job->Run()) channel_->Send(std::move(job));
    }
  }
  void OnRebalance(broker::RebalanceKind kind, const std::vector<Place>& places) override;

 private:
  void RunReader() {
    while (!stopping_.load()) {
      std::unique_ptr<Job> job = reading_.Next(-1);
      if (job == nullptr) break;
      if (consumer_ == nullptr) job->MarkClosed();
      if (consumer_ == nullptr || job->Run()) channel_->Send(std::move(job));
    }
  }
  void RunQueries() {
    while (!stopping_.load()) {
      std::unique_ptr<Job> job = queries_.Next(-1);
      if (job == nullptr) break;
      if (job->Run()) channel_->Send(std::move(job));
    }
  }
  void WakeReader() {
    const std::lock_guard lock(consumer_mutex_);
    if (consumer_ != nullptr) consumer_->Wake();
  }
  void Shut() {
    stopping_.store(true);
    WakeReader();
    Refuse(*channel_, reading_.Close());
    Refuse(*channel_, queries_.Close());
    if (reader_.joinable()) reader_.join();
    if (query_thread_.joinable()) query_thread_.join();
    consumer_.reset();
    on_rebalance_.reset();
    channel_->Release();
  }

  std::shared_ptr<Channel> channel_ = std::make_shared<Channel>();
  std::shared_ptr<RebalanceFunction> on_rebalance_;
  std::mutex consumer_mutex_;
  std::unique_ptr<broker::Consumer> consumer_;
  JobQueue reading_;
  JobQueue queries_;
  std::thread reader_;
  std::thread query_thread_;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> queries_stopped_ = false;
  std::atomic<bool> answered_ = false;

  friend class RebalanceMessage;
};

class RebalanceMessage final : public Message {
 public:
  RebalanceMessage(std::shared_ptr<ConsumerHandle> handle,
                   const std::shared_ptr<RebalanceFunction>& function, broker::RebalanceKind kind,
                   std::vector<Place> places)
      : handle_(std::move(handle)), function_(function), kind_(kind), places_(std::move(places)) {}
  void Deliver(napi_env env) override {
    const std::shared_ptr<RebalanceFunction> open = function_.lock();
    if (open == nullptr) return;
    napi_value function = nullptr;
    napi_value arguments[2] = {ToText(env, NameOf(kind_)), ToList(env, places_)};
    if (napi_get_reference_value(env, open->reference(), &function) != napi_ok ||
        function == nullptr) {
      handle_->Answer();
      return;
    }
    napi_call_function(env, Undefined(env), function, 2, arguments, nullptr);
  }

 private:
  std::shared_ptr<ConsumerHandle> handle_;
  std::weak_ptr<RebalanceFunction> function_;
  broker::RebalanceKind kind_;
  std::vector<Place> places_;
};

void ConsumerHandle::OnRebalance(broker::RebalanceKind kind, const std::vector<Place>& places) {
  answered_.store(false);
  channel_->Send(
      std::make_unique<RebalanceMessage>(shared_from_this(), on_rebalance_, kind, places));
  const std::int64_t deadline = broker::NowMs() + kRebalanceAnswerMs;
  while (!answered_.load() && !stopping_.load() && broker::NowMs() < deadline) {
    std::unique_ptr<Job> job = reading_.NextInline();
    if (job == nullptr) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    if (job->Run()) channel_->Send(std::move(job));
  }
}

// Job that uses one consumer.
class ConsumerJob : public Job {
 public:
  ConsumerJob(std::shared_ptr<ConsumerHandle> handle, bool is_inline)
      : Job(is_inline), handle_(std::move(handle)) {}

 protected:
  broker::Consumer* consumer() { return handle_->consumer(); }
  std::shared_ptr<ConsumerHandle> handle_;
};

class ConsumeJob final : public ConsumerJob {
 public:
  ConsumeJob(std::shared_ptr<ConsumerHandle> handle, broker::RecordRows into, int wait_ms)
      : ConsumerJob(std::move(handle), false), into_(into), wait_ms_(wait_ms) {}
  bool Run() override {
    const auto from = std::chrono::steady_clock::now();
    consumer()->Consume(into_, wait_ms_, &outcome_);
    took_ms_ =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - from).count();
    ended_us_ = broker::NowUs();
    return true;
  }
  napi_value Result(napi_env env) override {
    return ToConsumed(env, outcome_, took_ms_, ended_us_);
  }

 private:
  broker::RecordRows into_;
  int wait_ms_;
  broker::ConsumeOutcome outcome_;
  double took_ms_ = 0;
  std::int64_t ended_us_ = 0;
};

// Control call: `act` runs on the thread; `event` and `places` are the result.
template <typename Act>
class ControlJob final : public ConsumerJob {
 public:
  ControlJob(std::shared_ptr<ConsumerHandle> handle, std::vector<Place> places, Act act,
             bool is_inline)
      : ConsumerJob(std::move(handle), is_inline), places_(std::move(places)), act_(act) {}
  bool Run() override {
    event_ = act_(*handle_, &places_);
    return true;
  }
  napi_value Result(napi_env env) override { return ToAnswer(env, event_, ToList(env, places_)); }

 private:
  std::vector<Place> places_;
  Act act_;
  Event event_;
};

enum class Where { kReader, kReaderAlone, kQuery };

template <typename Act>
napi_value Control(const Call& call, std::vector<Place> places, Where where, Act act) {
  auto handle = Open<ConsumerHandle>(call, 0, "consumer", kConsumerType);
  if (handle == nullptr) return nullptr;
  auto job =
      std::make_unique<ControlJob<Act>>(handle, std::move(places), act, where == Where::kReader);
  return where == Where::kQuery ? handle->PostQuery(call.env(), std::move(job))
                                : handle->PostRead(call.env(), std::move(job));
}

// (properties, onRebalance) -> handle
napi_value ConsumerOpen(napi_env env, napi_callback_info info) {
  Call call(env, info);
  broker::Properties properties;
  if (!call.HasArguments(2) || !PropertiesOf(call, 0, &properties)) return nullptr;
  napi_valuetype type = napi_undefined;
  if (napi_typeof(env, call[1], &type) != napi_ok || type != napi_function) {
    ThrowType(env, "onRebalance: expected a function");
    return nullptr;
  }
  auto handle = std::make_shared<ConsumerHandle>();
  std::string error;
  if (!handle->Open(env, properties, call[1], &error)) {
    Throw(env, "bad_broker_property", "%s", error.c_str());
    return nullptr;
  }
  return NewHandle(env, kConsumerType, std::move(handle));
}

napi_value ConsumerClose(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (call.HasArguments(1) && CloseHandle(call, 0, "consumer", kConsumerType))
    return Undefined(env);
  return nullptr;
}

// (handle, batch, waitMs) -> promise of [rows, ends, events, topics, duration, receipts]
napi_value ConsumerConsume(napi_env env, napi_callback_info info) {
  Call call(env, info);
  broker::RecordRows into;
  std::int64_t wait_ms = 0;
  if (!call.HasArguments(3) || !call.Batch(1, "batch", &into) ||
      !call.Integer(2, "waitMs", 0, INT32_MAX, &wait_ms)) {
    return nullptr;
  }
  auto handle = Open<ConsumerHandle>(call, 0, "consumer", kConsumerType);
  if (handle == nullptr) return nullptr;
  auto job = std::make_unique<ConsumeJob>(handle, into, static_cast<int>(wait_ms));
  job->Keep(env, call[1]);
  return handle->PostRead(env, std::move(job));
}

// (handle, timeoutMs) -> promise
napi_value ConsumerConnect(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::int64_t timeout = 0;
  if (!call.HasArguments(2) || !call.Integer(1, "timeoutMs", 0, INT32_MAX, &timeout))
    return nullptr;
  return Control(call, {}, Where::kQuery, [timeout](ConsumerHandle& handle, std::vector<Place>*) {
    broker::Consumer* consumer = handle.consumer();
    return broker::Connect(consumer->client(), consumer, static_cast<int>(timeout));
  });
}

// (handle, topics) -> promise
napi_value ConsumerSubscribe(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::vector<std::string> topics;
  if (!call.HasArguments(2) || !Texts(call, 1, "topics", &topics)) return nullptr;
  return Control(call, {}, Where::kReader, [topics](ConsumerHandle& handle, std::vector<Place>*) {
    return handle.consumer()->Subscribe(topics);
  });
}

// (handle, topics, partitions, offsets, …) -> promise
template <typename Act>
napi_value OverPlaces(napi_env env, napi_callback_info info, Where where, Act act) {
  Call call(env, info);
  std::vector<Place> places;
  if (!call.HasArguments(4) || !PlacesOf(call, 1, &places)) return nullptr;
  return Control(call, std::move(places), where, act);
}

template <typename Act>
napi_value OverPlacesWithin(napi_env env, napi_callback_info info, Where where, Act act) {
  Call call(env, info);
  std::vector<Place> places;
  std::int64_t timeout = 0;
  if (!call.HasArguments(5) || !PlacesOf(call, 1, &places) ||
      !call.Integer(4, "timeoutMs", 0, INT32_MAX, &timeout)) {
    return nullptr;
  }
  const int timeout_ms = static_cast<int>(timeout);
  return Control(call, std::move(places), where,
                 [act, timeout_ms](ConsumerHandle& handle, std::vector<Place>* list) {
                   return act(handle, list, timeout_ms);
                 });
}

napi_value ConsumerAssign(napi_env env, napi_callback_info info) {
  return OverPlaces(env, info, Where::kReader, [](ConsumerHandle& handle, std::vector<Place>* at) {
    return handle.consumer()->Assign(*at);
  });
}

napi_value ConsumerPause(napi_env env, napi_callback_info info) {
  return OverPlaces(env, info, Where::kReader, [](ConsumerHandle& handle, std::vector<Place>* at) {
    return handle.consumer()->Pause(*at, true);
  });
}

napi_value ConsumerResume(napi_env env, napi_callback_info info) {
  return OverPlaces(env, info, Where::kReader, [](ConsumerHandle& handle, std::vector<Place>* at) {
    return handle.consumer()->Pause(*at, false);
  });
}

napi_value ConsumerSeek(napi_env env, napi_callback_info info) {
  return OverPlacesWithin(env, info, Where::kReader,
                          [](ConsumerHandle& handle, std::vector<Place>* at, int timeout_ms) {
                            for (const Place& place : *at) {
                              const Event event = handle.consumer()->Seek(place, timeout_ms);
                              if (event.code != 0) return event;
                            }
                            return Event{};
                          });
}

napi_value ConsumerCommit(napi_env env, napi_callback_info info) {
  return OverPlacesWithin(env, info, Where::kQuery,
                          [](ConsumerHandle& handle, std::vector<Place>* at, int timeout_ms) {
                            return handle.consumer()->Commit(*at, timeout_ms);
                          });
}

napi_value ConsumerCommitted(napi_env env, napi_callback_info info) {
  return OverPlacesWithin(env, info, Where::kQuery,
                          [](ConsumerHandle& handle, std::vector<Place>* at, int timeout_ms) {
                            return handle.consumer()->Committed(at, timeout_ms);
                          });
}

// Two entries for each partition: the first has the low offset, the second the high offset.
napi_value ConsumerWatermarks(napi_env env, napi_callback_info info) {
  return OverPlacesWithin(
      env, info, Where::kQuery, [](ConsumerHandle& handle, std::vector<Place>* at, int timeout_ms) {
        std::vector<Place> out;
        for (const Place& place : *at) {
          Place low = place;
          Place high = place;
          const Event event = broker::Watermarks(handle.consumer()->client(), place, timeout_ms,
                                                 &handle, &low.offset, &high.offset);
          if (event.code != 0) return event;
          out.push_back(low);
          out.push_back(high);
        }
        *at = std::move(out);
        return Event{};
      });
}

// (handle) -> promise of the assigned partitions and the next offset of each
napi_value ConsumerPositions(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (!call.HasArguments(1)) return nullptr;
  return Control(call, {}, Where::kReader, [](ConsumerHandle& handle, std::vector<Place>* at) {
    *at = handle.consumer()->Positions();
    return Event{};
  });
}

// (handle): the application has finished its part of a rebalance
napi_value ConsumerAnswer(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (!call.HasArguments(1)) return nullptr;
  auto handle = Open<ConsumerHandle>(call, 0, "consumer", kConsumerType);
  if (handle == nullptr) return nullptr;
  handle->Answer();
  return Undefined(env);
}

// (handle) -> promise; only close may follow
napi_value ConsumerLeave(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (!call.HasArguments(1)) return nullptr;
  return Control(call, {}, Where::kReaderAlone, [](ConsumerHandle& handle, std::vector<Place>*) {
    handle.Leave();
    return Event{};
  });
}

}  // namespace

void RegisterConsumer(napi_env env, napi_value exports) {
  Export(env, exports, "brokerConsumerOpen", ConsumerOpen);
  Export(env, exports, "brokerConsumerConnect", ConsumerConnect);
  Export(env, exports, "brokerConsumerConsume", ConsumerConsume);
  Export(env, exports, "brokerConsumerSubscribe", ConsumerSubscribe);
  Export(env, exports, "brokerConsumerAssign", ConsumerAssign);
  Export(env, exports, "brokerConsumerPause", ConsumerPause);
  Export(env, exports, "brokerConsumerResume", ConsumerResume);
  Export(env, exports, "brokerConsumerSeek", ConsumerSeek);
  Export(env, exports, "brokerConsumerCommit", ConsumerCommit);
  Export(env, exports, "brokerConsumerCommitted", ConsumerCommitted);
  Export(env, exports, "brokerConsumerWatermarks", ConsumerWatermarks);
  Export(env, exports, "brokerConsumerPositions", ConsumerPositions);
  Export(env, exports, "brokerConsumerAnswer", ConsumerAnswer);
  Export(env, exports, "brokerConsumerLeave", ConsumerLeave);
  Export(env, exports, "brokerConsumerClose", ConsumerClose);
}

}  // namespace millrace::binding
