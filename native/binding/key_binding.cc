// Exported function of the ids of variable-length keys. Signature: src/addon/raw.ts.
#include "binding/args.h"
#include "binding/register.h"
#include "kernel/keys.h"

namespace millrace::binding {
namespace {

using kernel::Rows;
using kernel::Status;

// probeKeys(events, at, length, words, from, secret, slots, ring, generation, bytesMax, rest,
// state)
napi_value ProbeKeys(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Rows<layout::EventBatch> events;
  kernel::KeyWords keys;
  std::uint32_t from = 0;
  Span<std::uint32_t> secret;
  kernel::KeyCacheView cache;
  std::uint32_t bytes_max = 0;
  Span<std::int32_t> rest;
  Span<double> state;
  if (!call.HasArguments(12) || !call.Batch(0, "events", &events) ||
      !call.Array(1, "at", &keys.at) || !call.Array(2, "length", &keys.length) ||
      !call.Array(3, "words", &keys.words) || !call.Uint32(4, "from", &from) ||
      !call.Array(5, "secret", &secret) || !call.Array(6, "slots", &cache.slots) ||
      !call.Array(7, "ring", &cache.ring) || !call.Int32(8, "generation", &cache.generation) ||
      !call.Uint32(9, "bytesMax", &bytes_max) || !call.Array(10, "rest", &rest) ||
      !call.Array(11, "state", &state)) {
    return nullptr;
  }
  if (secret.size != 2) {
    Throw(env, kOutOfRange, "secret has %zu words, not 2", secret.size);
    return nullptr;
  }
  const kernel::KeySecret key{secret.data[0], secret.data[1]};
  const Status status = kernel::ProbeKeys(events, keys, from, key, cache, bytes_max, rest, state);
  if (status == Status::kOk) return Undefined(env);
  ThrowStatus(env, status, status == Status::kTooFewRows ? "rest" : "keys");
  return nullptr;
}

}  // namespace

void RegisterKeys(napi_env env, napi_value exports) {
  Export(env, exports, "probeKeys", ProbeKeys);
}

}  // namespace millrace::binding
