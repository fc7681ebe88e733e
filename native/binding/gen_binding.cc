// Exported functions of the generator. Signatures: src/addon/gen-surface.ts, with each batch as its
// buffer.
#include "binding/args.h"
#include "binding/register.h"
#include "kernel/gen/events.h"
#include "kernel/xxh32.h"

namespace millrace::binding {
namespace {

using kernel::Rows;
using kernel::Status;

bool Params(Call* call, std::size_t index, kernel::GenParams* out) {
  Span<double> cells;
  if (!call->Array(index, "params", &cells)) return false;
  const Status status = kernel::ReadGenParams(cells, out);
  if (status == Status::kOk) return true;
  ThrowStatus(call->env(), status, "params");
  return false;
}

napi_value Answer(Call* call, Status status, const char* what) {
  if (status == Status::kOk) return Undefined(call->env());
  ThrowStatus(call->env(), status, what);
  return nullptr;
}

// genArrivals(params, state, wheel, pool, seqs): number
napi_value GenArrivals(napi_env env, napi_callback_info info) {
  Call call(env, info);
  kernel::GenParams params;
  Span<double> state;
  Rows<layout::ArrivalWheel> wheel;
  Rows<layout::ArrivalPool> pool;
  Span<double> seqs;
  if (!call.HasArguments(5) || !Params(&call, 0, &params) || !call.Array(1, "state", &state) ||
      !call.Batch(2, "wheel", &wheel) || !call.Batch(3, "pool", &pool) ||
      !call.Array(4, "seqs", &seqs)) {
    return nullptr;
  }
  std::size_t written = 0;
  const Status status = kernel::GenArrivals(params, state, &wheel, &pool, seqs, &written);
  if (status != Status::kOk) {
    ThrowStatus(env, status, "queue");
    return nullptr;
  }
  return ToNumber(env, static_cast<double>(written));
}

// genRecords(params, zipf, noise, seqs, count, into)
napi_value GenRecords(napi_env env, napi_callback_info info) {
  Call call(env, info);
  kernel::GenParams params;
  Rows<layout::ZipfTable> zipf;
  Span<std::uint8_t> noise;
  Span<double> seqs;
  std::uint32_t count = 0;
  Rows<layout::RecordBatch> into;
  if (!call.HasArguments(6) || !Params(&call, 0, &params) || !call.Batch(1, "zipf", &zipf) ||
      !call.Array(2, "noise", &noise) || !call.Array(3, "seqs", &seqs) ||
      !call.Uint32(4, "count", &count) || !call.Batch(5, "into", &into)) {
    return nullptr;
  }
  return Answer(&call, kernel::GenRecords(params, zipf, noise, seqs, count, &into), "into");
}

// genEvents(params, zipf, seqs, count, into)
napi_value GenEvents(napi_env env, napi_callback_info info) {
  Call call(env, info);
  kernel::GenParams params;
  Rows<layout::ZipfTable> zipf;
  Span<double> seqs;
  std::uint32_t count = 0;
  Rows<layout::EventBatch> into;
  if (!call.HasArguments(5) || !Params(&call, 0, &params) || !call.Batch(1, "zipf", &zipf) ||
      !call.Array(2, "seqs", &seqs) || !call.Uint32(3, "count", &count) ||
      !call.Batch(4, "into", &into)) {
    return nullptr;
  }
  return Answer(&call, kernel::GenEvents(params, zipf, seqs, count, &into), "into");
}

// genDigest(state, records)
napi_value GenDigest(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Span<std::uint32_t> state;
  Rows<layout::RecordBatch> records;
  if (!call.HasArguments(2) || !call.Array(0, "state", &state) ||
      !call.Batch(1, "records", &records)) {
    return nullptr;
  }
  return Answer(&call, kernel::GenDigest(state, records), "records");
}

}  // namespace

void RegisterGen(napi_env env, napi_value exports) {
  Export(env, exports, "genArrivals", GenArrivals);
  Export(env, exports, "genRecords", GenRecords);
  Export(env, exports, "genEvents", GenEvents);
  Export(env, exports, "genDigest", GenDigest);
}

}  // namespace millrace::binding
