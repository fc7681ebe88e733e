#include "binding/state/store_handle.h"

#include <utility>

namespace millrace::binding {

const HandleType kStoreType = {{0x6f0d2c4b91e857a3U, 0x8c5e31b7f2a94d06U}, "store"};

void StoreSlot::Set(std::shared_ptr<state::Store> store) {
  const std::lock_guard lock(mutex_);
  store_ = std::move(store);
}

std::shared_ptr<state::Store> StoreSlot::Get() {
  const std::lock_guard lock(mutex_);
  return store_;
}

std::shared_ptr<state::Store> StoreSlot::Detach() {
  const std::lock_guard lock(mutex_);
  return std::move(store_);
}

bool StoreHandle::Open(napi_env env) {
  if (!channel_->Open(env, "store")) return false;
  for (std::size_t lane = 0; lane < kLanes; lane++) {
    threads_[lane] = std::thread([this, lane] {
      while (std::unique_ptr<Job> job = jobs_[lane].Next(-1)) {
        job->Run();
        channel_->Send(std::move(job));
      }
    });
  }
  return true;
}

napi_value StoreHandle::Post(napi_env env, Lane lane, std::unique_ptr<Job> job) {
  return Start(env, channel_, jobs_[static_cast<std::size_t>(lane)], std::move(job));
}

void StoreHandle::Shut() {
  for (JobQueue& jobs : jobs_) Refuse(*channel_, jobs.Close());
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
  slot_->Detach();
  channel_->Release();
}

bool StoreOf(Call& call, OpenStore* out) {
  out->handle = Open<StoreHandle>(call, 0, "store", kStoreType);
  if (out->handle == nullptr) return false;
  out->store = out->handle->slot()->Get();
  if (out->store != nullptr) return true;
  Throw(call.env(), kClosed, "store: the store is not open");
  return false;
}

napi_value ToAnswer(napi_env env, const state::Status& status, napi_value payload) {
  napi_value list = nullptr;
  napi_value none = nullptr;
  napi_value error = nullptr;
  napi_get_null(env, &none);
  napi_create_array_with_length(env, 2, &list);
  if (!status.ok()) {
    napi_create_array_with_length(env, 2, &error);
    napi_set_element(env, error, 0, ToNumber(env, static_cast<double>(status.code)));
    napi_set_element(env, error, 1, ToText(env, status.message.data(), status.message.size()));
  }
  napi_set_element(env, list, 0, status.ok() ? none : error);
  napi_set_element(env, list, 1, payload == nullptr ? none : payload);
  return list;
}

bool FamilyOf(Call& call, std::size_t index, const StoreHandle& handle, std::size_t* out) {
  std::int64_t number = 0;
  const auto last = static_cast<std::int64_t>(handle.settings().families.size()) - 1;
  if (!call.Integer(index, "family", 0, last, &number)) return false;
  *out = static_cast<std::size_t>(number);
  return true;
}

bool BoundOf(Call& call, std::size_t index, const char* name, state::Bound* out) {
  if (call.IsNull(index)) return true;
  Span<std::uint8_t> bytes;
  if (!call.Bytes(index, name, &bytes)) return false;
  // One byte more than a key, for the bound that follows the longest key.
  if (bytes.size > state::kKeyBytesMax + 1) {
    Throw(call.env(), kOutOfRange, "%s: %zu bytes, more than a key may have", name, bytes.size);
    return false;
  }
  out->emplace(reinterpret_cast<const char*>(bytes.data), bytes.size);
  return true;
}

bool RowsOf(Call& call, std::size_t index, state::Rows* out) {
  Span<std::uint8_t> prefix;
  if (!call.Bytes(index, "bytes", &out->bytes)) return false;
  const bool has_ends = !call.IsNull(index + 1);
  out->shape = has_ends ? state::Shape::kSpans : state::Shape::kFixed;
  if (has_ends && !call.Array(index + 1, "ends", &out->ends)) return false;
  if (!call.IsNull(index + 3)) {
    out->shape = state::Shape::kKeyed;
    if (!has_ends) {
      Throw(call.env(), kOutOfRange, "ends: a cell is needed for each key");
      return false;
    }
    if (!call.Bytes(index + 3, "keys", &out->keys)) return false;
  }
  if (!call.IsNull(index + 2)) {
    if (!has_ends) out->shape = state::Shape::kRecords;
    if (!call.Bytes(index + 2, "prefix", &prefix)) return false;
    if (prefix.size > state::kKeyBytesMax) {
      Throw(call.env(), kOutOfRange, "prefix: %zu bytes, more than a key may have", prefix.size);
      return false;
    }
    out->prefix.assign(reinterpret_cast<const char*>(prefix.data), prefix.size);
  }
  if (!call.Uint32(index + 4, "count", &out->count) ||
      !call.Uint32(index + 5, "keyBytes", &out->key_bytes) ||
      !call.Uint32(index + 6, "valueBytes", &out->value_bytes) ||
      !call.Uint32(index + 7, "wordAt", &out->word_at) ||
      !call.Uint32(index + 8, "perValue", &out->per_value)) {
    return false;
  }
  if (out->shape == state::Shape::kKeyed) std::swap(out->zero_bytes, out->word_at);
  const state::Status status = out->Check();
  if (status.ok()) return true;
  Throw(call.env(), kOutOfRange, "%s", status.message.c_str());
  return false;
}

void KeepRows(napi_env env, const Call& call, std::size_t index, Job* job) {
  job->Keep(env, call[index]);
  if (!call.IsNull(index + 1)) job->Keep(env, call[index + 1]);
  if (!call.IsNull(index + 3)) job->Keep(env, call[index + 3]);
}

}  // namespace millrace::binding
