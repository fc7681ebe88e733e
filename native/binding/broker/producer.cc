// Handle of the batch producer. One thread sends rows and collects their delivery reports.
#include "broker/producer.h"

#include <atomic>

#include "binding/async.h"
#include "binding/broker/values.h"
#include "binding/handle.h"
#include "binding/register.h"

namespace millrace::binding {
namespace {

using broker::Event;

constexpr HandleType kProducerType = {{0x2b94c7e85d1f4a60U, 0xa1f03c5be7724d98U}, "producer"};

// Interval at which the idle thread checks for connection errors.
constexpr int kIdleMs = 500;
constexpr int kReportWaitMs = 100;

class ProducerHandle final : public Resource, public broker::ProducerHost {
 public:
  ~ProducerHandle() override { Shut(); }

  bool Open(napi_env env, const broker::Properties& properties, std::string* error) {
    if (!channel_->Open(env, "producer")) return false;
    producer_ = broker::Producer::Open(properties, this, error);
    if (producer_ == nullptr) return false;
    thread_ = std::thread([this] { RunThread(); });
    return true;
  }

  void Close() override { Shut(); }

  napi_value Post(napi_env env, std::unique_ptr<Job> job) {
    napi_value promise = Start(env, channel_, jobs_, std::move(job));
    const std::lock_guard lock(producer_mutex_);
    if (producer_ != nullptr) producer_->Wake();
    return promise;
  }

  broker::Producer* producer() { return producer_.get(); }
  bool Fatal(Event* event) {
    const std::lock_guard lock(producer_mutex_);
    return producer_ != nullptr && producer_->Fatal(event);
  }

  // Flushes, purges the rows that are left, and frees the client. Runs on the producer thread.
  Event Leave(int timeout_ms) {
    const Event event = producer_->Flush(timeout_ms);
    producer_->Purge();
    std::unique_ptr<broker::Producer> last;
    {
      const std::lock_guard lock(producer_mutex_);
      last = std::move(producer_);
    }
    return event;
  }

  // Implementation of ProducerHost.
  bool Stopping() override { return stopping_.load(); }
  void OnComplete(void* flight) override {
    channel_->Send(std::unique_ptr<Message>(static_cast<Job*>(flight)));
  }

 private:
  void RunThread() {
    while (!stopping_.load()) {
      const bool idle = producer_ == nullptr || producer_->idle();
      std::unique_ptr<Job> job = jobs_.Next(idle ? kIdleMs : 0);
      if (job == nullptr) {
        if (producer_ != nullptr && !stopping_.load()) producer_->Poll(idle ? 0 : kReportWaitMs);
        continue;
      }
      if (producer_ == nullptr) job->MarkClosed();
      Job* raw = job.release();
      if (producer_ == nullptr || raw->Run()) channel_->Send(std::unique_ptr<Message>(raw));
    }
    if (producer_ != nullptr) producer_->Purge();
  }
  void Shut() {
    stopping_.store(true);
    {
      const std::lock_guard lock(producer_mutex_);
      if (producer_ != nullptr) producer_->Wake();
    }
    Refuse(*channel_, jobs_.Close());
    if (thread_.joinable()) thread_.join();
    producer_.reset();
    channel_->Release();
  }

  std::shared_ptr<Channel> channel_ = std::make_shared<Channel>();
  std::mutex producer_mutex_;
  std::unique_ptr<broker::Producer> producer_;
  JobQueue jobs_;
  std::thread thread_;
  std::atomic<bool> stopping_ = false;
};

class ProduceJob final : public Job {
 public:
  ProduceJob(std::shared_ptr<ProducerHandle> handle, broker::InFlightBatch flight)
      : handle_(std::move(handle)), flight_(std::move(flight)) {
    flight_.owner = static_cast<Job*>(this);
  }
  // The job is delivered when its batch is complete, which may happen inside Send.
  bool Run() override {
    valid_ = true;
    const std::shared_ptr<ProducerHandle> handle = handle_;
    if (handle->producer()->Send(&flight_)) return false;
    valid_ = false;
    return true;
  }
  // [failed, events]
  napi_value Result(napi_env env) override {
    if (!valid_) {
      Throw(env, kOutOfRange, "batch: a span leaves the arena, or a topic index its list");
      return nullptr;
    }
    napi_value list = nullptr;
    napi_create_array_with_length(env, 2, &list);
    napi_set_element(env, list, 0, ToNumber(env, flight_.failed));
    napi_set_element(env, list, 1, ToList(env, flight_.events));
    return list;
  }

 private:
  std::shared_ptr<ProducerHandle> handle_;
  broker::InFlightBatch flight_;
  bool valid_ = false;
};

template <typename Act>
class ControlJob final : public Job {
 public:
  ControlJob(std::shared_ptr<ProducerHandle> handle, Act act)
      : handle_(std::move(handle)), act_(act) {}
  bool Run() override {
    event_ = act_(*handle_);
    return true;
  }
  napi_value Result(napi_env env) override { return ToAnswer(env, event_); }

 private:
  std::shared_ptr<ProducerHandle> handle_;
  Act act_;
  Event event_;
};

class TransactionJob final : public Job {
 public:
  TransactionJob(std::shared_ptr<ProducerHandle> handle, broker::TransactionStep step,
                 int timeout_ms)
      : handle_(std::move(handle)), step_(step), timeout_ms_(timeout_ms) {}
  bool Run() override {
    outcome_ = handle_->producer()->Transact(step_, timeout_ms_);
    return true;
  }
  // [event | null, retriable 1 + abortable 2]
  napi_value Result(napi_env env) override {
    const int flags = (outcome_.retriable ? 1 : 0) + (outcome_.abortable ? 2 : 0);
    return ToAnswer(env, outcome_.event, ToNumber(env, flags));
  }

 private:
  std::shared_ptr<ProducerHandle> handle_;
  broker::TransactionStep step_;
  int timeout_ms_;
  broker::TransactionOutcome outcome_;
};

// (handle, timeoutMs) -> promise
template <typename Act>
napi_value Within(napi_env env, napi_callback_info info, Act act) {
  Call call(env, info);
  std::int64_t timeout = 0;
  if (!call.HasArguments(2) || !call.Integer(1, "timeoutMs", 0, INT32_MAX, &timeout))
    return nullptr;
  auto handle = Open<ProducerHandle>(call, 0, "producer", kProducerType);
  if (handle == nullptr) return nullptr;
  const int timeout_ms = static_cast<int>(timeout);
  const auto bound = [act, timeout_ms](ProducerHandle& of) { return act(of, timeout_ms); };
  auto job = std::make_unique<ControlJob<decltype(bound)>>(handle, bound);
  return handle->Post(env, std::move(job));
}

// (properties) -> handle
napi_value ProducerOpen(napi_env env, napi_callback_info info) {
  Call call(env, info);
  broker::Properties properties;
  if (!call.HasArguments(1) || !PropertiesOf(call, 0, &properties)) return nullptr;
  auto handle = std::make_shared<ProducerHandle>();
  std::string error;
  if (!handle->Open(env, properties, &error)) {
    Throw(env, "bad_broker_property", "%s", error.c_str());
    return nullptr;
  }
  return NewHandle(env, kProducerType, std::move(handle));
}

napi_value ProducerClose(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (call.HasArguments(1) && CloseHandle(call, 0, "producer", kProducerType))
    return Undefined(env);
  return nullptr;
}

// (handle, batch, topics, status, offset) -> promise of [failed, events]
napi_value ProducerProduce(napi_env env, napi_callback_info info) {
  Call call(env, info);
  broker::InFlightBatch flight;
  Span<std::int32_t> status;
  Span<std::int64_t> offset;
  if (!call.HasArguments(5) || !call.Batch(1, "batch", &flight.batch) ||
      !Texts(call, 2, "topics", &flight.topics) || !call.Array(3, "status", &status) ||
      !call.Array(4, "offset", &offset)) {
    return nullptr;
  }
  if (status.size < flight.batch.row_count || offset.size < flight.batch.row_count) {
    Throw(env, kOutOfRange, "status and offset need a cell for each row");
    return nullptr;
  }
  flight.status = status.data;
  flight.offset = offset.data;
  auto handle = Open<ProducerHandle>(call, 0, "producer", kProducerType);
  if (handle == nullptr) return nullptr;
  auto job = std::make_unique<ProduceJob>(handle, std::move(flight));
  job->Keep(env, call[1]);
  job->Keep(env, call[3]);
  job->Keep(env, call[4]);
  return handle->Post(env, std::move(job));
}

napi_value ProducerConnect(napi_env env, napi_callback_info info) {
  return Within(env, info, [](ProducerHandle& handle, int timeout_ms) {
    broker::Producer* producer = handle.producer();
    return broker::Connect(producer->client(), producer, timeout_ms);
  });
}

// (handle, step, timeoutMs) -> promise; steps 0 init, 1 begin, 2 commit, 3 abort
napi_value ProducerTransact(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::int64_t step = 0;
  std::int64_t timeout = 0;
  if (!call.HasArguments(3) || !call.Integer(1, "step", 0, 3, &step) ||
      !call.Integer(2, "timeoutMs", 0, INT32_MAX, &timeout)) {
    return nullptr;
  }
  auto handle = Open<ProducerHandle>(call, 0, "producer", kProducerType);
  if (handle == nullptr) return nullptr;
  return handle->Post(
      env, std::make_unique<TransactionJob>(handle, static_cast<broker::TransactionStep>(step),
                                            static_cast<int>(timeout)));
}

napi_value ProducerFlush(napi_env env, napi_callback_info info) {
  return Within(env, info, [](ProducerHandle& handle, int timeout_ms) {
    return handle.producer()->Flush(timeout_ms);
  });
}

napi_value ProducerLeave(napi_env env, napi_callback_info info) {
  return Within(env, info,
                [](ProducerHandle& handle, int timeout_ms) { return handle.Leave(timeout_ms); });
}

// (handle) -> the fatal error of the client, or null
napi_value ProducerFatal(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (!call.HasArguments(1)) return nullptr;
  auto handle = Open<ProducerHandle>(call, 0, "producer", kProducerType);
  if (handle == nullptr) return nullptr;
  Event event;
  napi_value none = nullptr;
  napi_get_null(env, &none);
  return handle->Fatal(&event) ? ToValue(env, event) : none;
}

}  // namespace

void RegisterProducer(napi_env env, napi_value exports) {
  Export(env, exports, "brokerProducerOpen", ProducerOpen);
  Export(env, exports, "brokerProducerConnect", ProducerConnect);
  Export(env, exports, "brokerProducerProduce", ProducerProduce);
  Export(env, exports, "brokerProducerTransact", ProducerTransact);
  Export(env, exports, "brokerProducerFlush", ProducerFlush);
  Export(env, exports, "brokerProducerFatal", ProducerFatal);
  Export(env, exports, "brokerProducerLeave", ProducerLeave);
  Export(env, exports, "brokerProducerClose", ProducerClose);
}

}  // namespace millrace::binding
