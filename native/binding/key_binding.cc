// Exported functions of the ids of variable-length keys. Signatures: src/addon/raw.ts.
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

// copyKeys(words, first, rowWords, from, to, slots, ring, generations, bytes, ends, missing,
// state): number
napi_value CopyKeys(napi_env env, napi_callback_info info) {
  Call call(env, info);
  kernel::KeyIds ids;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  kernel::KeyCacheView cache;
  Span<std::int32_t> generations;
  kernel::KeyCopies into;
  if (!call.HasArguments(12) || !call.Array(0, "words", &ids.words) ||
      !call.Uint32(1, "first", &ids.first) || !call.Uint32(2, "rowWords", &ids.row_words) ||
      !call.Uint32(3, "from", &from) || !call.Uint32(4, "to", &to) ||
      !call.Array(5, "slots", &cache.slots) || !call.Array(6, "ring", &cache.ring) ||
      !call.Array(7, "generations", &generations) || !call.Array(8, "bytes", &into.bytes) ||
      !call.Array(9, "ends", &into.ends) || !call.Array(10, "missing", &into.missing) ||
      !call.Array(11, "state", &into.state)) {
    return nullptr;
  }
  std::uint32_t stopped = 0;
  const Status status = kernel::CopyKeys(ids, from, to, cache, generations, into, &stopped);
  if (status == Status::kOk) return ToNumber(env, stopped);
  ThrowStatus(env, status, status == Status::kTooFewRows ? "copies" : "keys");
  return nullptr;
}

}  // namespace

void RegisterKeys(napi_env env, napi_value exports) {
  Export(env, exports, "probeKeys", ProbeKeys);
  Export(env, exports, "copyKeys", CopyKeys);
}

}  // namespace millrace::binding
