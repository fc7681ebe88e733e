// Handle of the direct client's reader. One thread requests, receives and fills; it goes on
// receiving between two calls.
#include "binding/async.h"
#include "binding/broker/values.h"
#include "binding/handle.h"
#include "binding/register.h"
#include "broker/receipts.h"

// The same test as in binding.gyp, which then leaves the client's sources out.
#if __has_include(<openssl/ssl.h>) && __has_include(<zlib.h>) && __has_include(<lz4frame.h>) && \
    __has_include(<zstd.h>) && __has_include(<snappy-c.h>)

#include <atomic>
#include <chrono>

#include "broker/direct/reader.h"

namespace millrace::binding {
namespace {

using broker::Event;
using broker::Place;
using broker::direct::Reader;

constexpr HandleType kDirectType = {{0x2f9d0b7c64e3158aU, 0xb1503e9d7ac24f68U}, "direct consumer"};

class DirectHandle final : public Resource,
                           public broker::ReaderHost,
                           public std::enable_shared_from_this<DirectHandle> {
 public:
  ~DirectHandle() override { Shut(); }

  // False after a throw, or with `error` set.
  bool Open(napi_env env, const broker::Properties& properties, std::string* error) {
    reader_ = Reader::Open(properties, this, error);
    if (reader_ == nullptr) return false;
    if (!channel_->Open(env, "direct consumer")) return false;
    thread_ = std::thread([this] { Run(); });
    return true;
  }
  void Close() override { Shut(); }

  napi_value Post(napi_env env, std::unique_ptr<Job> job) {
    napi_value promise = Start(env, channel_, jobs_, std::move(job));
    reader_->Wake();
    return promise;
  }
  Reader* reader() { return reader_.get(); }

  // Implementation of ReaderHost.
  bool Stopping() override { return stopping_.load(); }
  bool Interrupted() override { return stopping_.load() || jobs_.FrontIsExclusive(); }
  void ServeJobs() override {
    while (std::unique_ptr<Job> job = jobs_.NextInline()) {
      if (job->Run()) channel_->Send(std::move(job));
    }
  }

 private:
  void Run() {
    while (!stopping_.load()) {
      std::unique_ptr<Job> job = jobs_.Next(0);
      if (job == nullptr) {
        reader_->Idle();
      } else if (job->Run()) {
        channel_->Send(std::move(job));
      }
    }
  }
  void Shut() {
    stopping_.store(true);
    Refuse(*channel_, jobs_.Close());
    if (reader_ != nullptr) reader_->Wake();
    if (thread_.joinable()) thread_.join();
    channel_->Release();
  }

  std::shared_ptr<Channel> channel_ = std::make_shared<Channel>();
  std::unique_ptr<Reader> reader_;
  JobQueue jobs_;
  std::thread thread_;
  std::atomic<bool> stopping_ = false;
};

class DirectConsumeJob final : public Job {
 public:
  DirectConsumeJob(std::shared_ptr<DirectHandle> handle, broker::RecordRows into, int wait_ms)
      : handle_(std::move(handle)), into_(into), wait_ms_(wait_ms) {}
  bool Run() override {
    const std::int64_t from_us = broker::NowUs();
    handle_->reader()->Consume(into_, wait_ms_, &outcome_);
    ended_us_ = broker::NowUs();
    took_ms_ = static_cast<double>(ended_us_ - from_us) / 1000;
    return true;
  }
  napi_value Result(napi_env env) override {
    return ToConsumed(env, outcome_, took_ms_, ended_us_);
  }

 private:
  std::shared_ptr<DirectHandle> handle_;
  broker::RecordRows into_;
  int wait_ms_;
  broker::ConsumeOutcome outcome_;
  double took_ms_ = 0;
  std::int64_t ended_us_ = 0;
};

template <typename Act>
class DirectControlJob final : public Job {
 public:
  DirectControlJob(std::shared_ptr<DirectHandle> handle, std::vector<Place> places, Act act,
                   bool is_inline)
      : Job(is_inline), handle_(std::move(handle)), places_(std::move(places)), act_(act) {}
  bool Run() override {
    event_ = act_(*handle_->reader(), &places_);
    return true;
  }
  napi_value Result(napi_env env) override { return ToAnswer(env, event_, ToList(env, places_)); }

 private:
  std::shared_ptr<DirectHandle> handle_;
  std::vector<Place> places_;
  Act act_;
  Event event_;
};

template <typename Act>
napi_value Control(const Call& call, std::vector<Place> places, bool is_inline, Act act) {
  auto handle = Open<DirectHandle>(call, 0, "consumer", kDirectType);
  if (handle == nullptr) return nullptr;
  return handle->Post(call.env(), std::make_unique<DirectControlJob<Act>>(
                                      handle, std::move(places), act, is_inline));
}

template <typename Act>
napi_value OverPlaces(napi_env env, napi_callback_info info, Act act) {
  Call call(env, info);
  std::vector<Place> places;
  if (!call.HasArguments(4) || !PlacesOf(call, 1, &places)) return nullptr;
  return Control(call, std::move(places), true, act);
}

// () -> null: the direct client is built
napi_value DirectObstacle(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (!call.HasArguments(0)) return nullptr;
  napi_value null = nullptr;
  napi_get_null(env, &null);
  return null;
}

// (properties) -> handle
napi_value DirectOpen(napi_env env, napi_callback_info info) {
  Call call(env, info);
  broker::Properties properties;
  if (!call.HasArguments(1) || !PropertiesOf(call, 0, &properties)) return nullptr;
  auto handle = std::make_shared<DirectHandle>();
  std::string error;
  if (!handle->Open(env, properties, &error)) {
    Throw(env, "bad_broker_property", "%s", error.c_str());
    return nullptr;
  }
  return NewHandle(env, kDirectType, std::move(handle));
}

napi_value DirectClose(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (call.HasArguments(1) && CloseHandle(call, 0, "consumer", kDirectType)) return Undefined(env);
  return nullptr;
}

// (handle, timeoutMs) -> promise
napi_value DirectConnect(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::int64_t timeout = 0;
  if (!call.HasArguments(2) || !call.Integer(1, "timeoutMs", 0, INT32_MAX, &timeout))
    return nullptr;
  const int timeout_ms = static_cast<int>(timeout);
  return Control(call, {}, false, [timeout_ms](Reader& reader, std::vector<Place>*) {
    return reader.Connect(timeout_ms);
  });
}

// (handle, batch, waitMs) -> promise of [rows, ends, events, topics, duration, receipts]
napi_value DirectConsume(napi_env env, napi_callback_info info) {
  Call call(env, info);
  broker::RecordRows into;
  std::int64_t wait_ms = 0;
  if (!call.HasArguments(3) || !call.Batch(1, "batch", &into) ||
      !call.Integer(2, "waitMs", 0, INT32_MAX, &wait_ms)) {
    return nullptr;
  }
  auto handle = Open<DirectHandle>(call, 0, "consumer", kDirectType);
  if (handle == nullptr) return nullptr;
  auto job = std::make_unique<DirectConsumeJob>(handle, into, static_cast<int>(wait_ms));
  job->Keep(env, call[1]);
  return handle->Post(env, std::move(job));
}

napi_value DirectAssign(napi_env env, napi_callback_info info) {
  return OverPlaces(env, info,
                    [](Reader& reader, std::vector<Place>* at) { return reader.Assign(*at); });
}

napi_value DirectPause(napi_env env, napi_callback_info info) {
  return OverPlaces(env, info,
                    [](Reader& reader, std::vector<Place>* at) { return reader.Pause(*at, true); });
}

napi_value DirectResume(napi_env env, napi_callback_info info) {
  return OverPlaces(
      env, info, [](Reader& reader, std::vector<Place>* at) { return reader.Pause(*at, false); });
}

napi_value DirectSeek(napi_env env, napi_callback_info info) {
  return OverPlaces(env, info, [](Reader& reader, std::vector<Place>* at) {
    for (const Place& place : *at) {
      const Event event = reader.Seek(place);
      if (event.code != 0) return event;
    }
    return Event{};
  });
}

// (handle) -> promise of the assigned partitions and the next offset of each
napi_value DirectPositions(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (!call.HasArguments(1)) return nullptr;
  return Control(call, {}, true, [](Reader& reader, std::vector<Place>* at) {
    *at = reader.Positions();
    return Event{};
  });
}

// (handle) -> promise; ends a consume that waits. Only close may follow
napi_value DirectLeave(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (!call.HasArguments(1)) return nullptr;
  return Control(call, {}, false, [](Reader&, std::vector<Place>*) { return Event{}; });
}

}  // namespace

void RegisterDirect(napi_env env, napi_value exports) {
  Export(env, exports, "brokerDirectObstacle", DirectObstacle);
  Export(env, exports, "brokerDirectOpen", DirectOpen);
  Export(env, exports, "brokerDirectConnect", DirectConnect);
  Export(env, exports, "brokerDirectConsume", DirectConsume);
  Export(env, exports, "brokerDirectAssign", DirectAssign);
  Export(env, exports, "brokerDirectPause", DirectPause);
  Export(env, exports, "brokerDirectResume", DirectResume);
  Export(env, exports, "brokerDirectSeek", DirectSeek);
  Export(env, exports, "brokerDirectPositions", DirectPositions);
  Export(env, exports, "brokerDirectLeave", DirectLeave);
  Export(env, exports, "brokerDirectClose", DirectClose);
}

}  // namespace millrace::binding

#else

namespace millrace::binding {
namespace {

// () -> reason that the direct client is not built
napi_value DirectObstacle(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (!call.HasArguments(0)) return nullptr;
  return ToText(env,
                "the addon was built without the headers of OpenSSL, zlib, lz4, zstd or snappy");
}

}  // namespace

void RegisterDirect(napi_env env, napi_value exports) {
  Export(env, exports, "brokerDirectObstacle", DirectObstacle);
}

}  // namespace millrace::binding

#endif
