// Exported functions of the kernels. Signatures: src/addon/raw.ts.
#include <memory>

#include "binding/args.h"
#include "binding/handle.h"
#include "binding/register.h"
#include "kernel/event.h"
#include "kernel/frame.h"
#include "kernel/hash.h"
#include "kernel/shard/workers.h"

namespace millrace::binding {
namespace {

using kernel::Rows;
using kernel::Status;

constexpr std::uint32_t kShardsMax = 256;

constexpr HandleType kDecoderType = {{0x52c7e90d4f1ab836U, 0xb83e6d15907fc2a4U}, "event decoder"};

// Threads that decode events together.
class EventDecoder final : public Resource {
 public:
  explicit EventDecoder(std::uint32_t shards) : workers(kernel::Workers::Shared(shards)) {}
  void Close() override { workers.reset(); }
  std::shared_ptr<kernel::Workers> workers;
};

// shardOf(events, shards, out)
napi_value ShardOf(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Rows<layout::EventBatch> events;
  std::int64_t shards = 0;
  Span<std::int32_t> out;
  if (!call.HasArguments(3) || !call.Batch(0, "events", &events) ||
      !call.Integer(1, "shards", 1, INT32_MAX, &shards) || !call.Array(2, "out", &out)) {
    return nullptr;
  }
  const Status status = kernel::ShardOf(events, static_cast<std::uint32_t>(shards), out);
  if (status == Status::kOk) return Undefined(env);
  ThrowStatus(env, status, "out");
  return nullptr;
}

// decodeEvents(records, into): number
napi_value DecodeEvents(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Rows<layout::RecordBatch> records;
  Rows<layout::EventBatch> into;
  if (!call.HasArguments(2) || !call.Batch(0, "records", &records) ||
      !call.Batch(1, "into", &into)) {
    return nullptr;
  }
  std::uint32_t decoded = 0;
  const Status status = kernel::DecodeEvents(records, &into, &decoded);
  if (status == Status::kOk) return ToNumber(env, decoded);
  ThrowStatus(env, status, "into");
  return nullptr;
}

// eventDecoderOpen(shards): decoder
napi_value OpenEventDecoder(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::int64_t shards = 0;
  if (!call.HasArguments(1) || !call.Integer(0, "shards", 1, kShardsMax, &shards)) return nullptr;
  return NewHandle(env, kDecoderType,
                   std::make_shared<EventDecoder>(static_cast<std::uint32_t>(shards)));
}

// eventDecoderDecode(decoder, records, into): number
napi_value DecodeByThreads(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Rows<layout::RecordBatch> records;
  Rows<layout::EventBatch> into;
  if (!call.HasArguments(3)) return nullptr;
  const auto decoder = Open<EventDecoder>(call, 0, "decoder", kDecoderType);
  if (decoder == nullptr || !call.Batch(1, "records", &records) || !call.Batch(2, "into", &into)) {
    return nullptr;
  }
  std::uint32_t decoded = 0;
  const Status status = kernel::DecodeEvents(records, decoder->workers.get(), &into, &decoded);
  if (status == Status::kOk) return ToNumber(env, decoded);
  ThrowStatus(env, status, "into");
  return nullptr;
}

// eventDecoderClose(decoder)
napi_value CloseEventDecoder(napi_env env, napi_callback_info info) {
  const Call call(env, info);
  return CloseHandle(call, 0, "decoder", kDecoderType) ? Undefined(env) : nullptr;
}

// tuneWorkers(rowsMin, cores)
napi_value TuneWorkers(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::uint32_t rows_min = 0;
  std::uint32_t cores = 0;
  if (!call.HasArguments(2) || !call.Uint32(0, "rowsMin", &rows_min) ||
      !call.Uint32(1, "cores", &cores)) {
    return nullptr;
  }
  kernel::Workers::Tune(rows_min, cores);
  return Undefined(env);
}

// scanFrames(records, protobuf, into): number
napi_value ScanFrames(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Rows<layout::RecordBatch> records;
  bool protobuf = false;
  Rows<layout::FrameBatch> into;
  if (!call.HasArguments(3) || !call.Batch(0, "records", &records) ||
      !call.Boolean(1, "protobuf", &protobuf) || !call.Batch(2, "into", &into)) {
    return nullptr;
  }
  std::uint32_t framed = 0;
  const Status status = kernel::ScanFrames(records, protobuf, &into, &framed);
  if (status == Status::kOk) return ToNumber(env, framed);
  ThrowStatus(env, status, "into");
  return nullptr;
}

// writeFrames(payloads, payloadStart, payloadLength, count, schemaId, messageIndexes, into): number
napi_value WriteFrames(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Span<std::uint8_t> payloads;
  Span<std::uint32_t> start;
  Span<std::int32_t> length;
  std::uint32_t count = 0;
  std::uint32_t schema_id = 0;
  Span<std::int32_t> indexes;
  Rows<layout::RecordBatch> into;
  if (!call.HasArguments(7) || !call.Array(0, "payloads", &payloads) ||
      !call.Array(1, "payloadStart", &start) || !call.Array(2, "payloadLength", &length) ||
      !call.Uint32(3, "count", &count) || !call.Uint32(4, "schemaId", &schema_id) ||
      (!call.IsNull(5) && !call.Array(5, "messageIndexes", &indexes)) ||
      !call.Batch(6, "into", &into)) {
    return nullptr;
  }
  kernel::FramePrefix prefix;
  // An empty array may have no memory, and null data would mean "no indexes".
  if (!call.IsNull(5) && indexes.size == 0) {
    ThrowStatus(env, Status::kBadArgument, "messageIndexes");
    return nullptr;
  }
  Status status = kernel::MakeFramePrefix(schema_id, {indexes.data, indexes.size}, &prefix);
  if (status != Status::kOk) {
    ThrowStatus(env, status, "messageIndexes");
    return nullptr;
  }
  std::uint32_t taken = 0;
  status = kernel::WriteFrames({payloads.data, payloads.size}, {start.data, start.size},
                               {length.data, length.size}, count, prefix, &into, &taken);
  if (status == Status::kOk) return ToNumber(env, taken);
  ThrowStatus(env, status, "payloads");
  return nullptr;
}

}  // namespace

void RegisterKernels(napi_env env, napi_value exports) {
  Export(env, exports, "shardOf", ShardOf);
  Export(env, exports, "decodeEvents", DecodeEvents);
  Export(env, exports, "eventDecoderOpen", OpenEventDecoder);
  Export(env, exports, "eventDecoderDecode", DecodeByThreads);
  Export(env, exports, "eventDecoderClose", CloseEventDecoder);
  Export(env, exports, "tuneWorkers", TuneWorkers);
  Export(env, exports, "scanFrames", ScanFrames);
  Export(env, exports, "writeFrames", WriteFrames);
}

}  // namespace millrace::binding
