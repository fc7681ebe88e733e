// Exported functions of the codec kernels. Signatures: src/addon/raw.ts.
#include <memory>
#include <utility>

#include "binding/args.h"
#include "binding/handle.h"
#include "binding/register.h"
#include "kernel/codec/avro.h"
#include "kernel/codec/decoder.h"
#include "kernel/codec/protobuf.h"

namespace millrace::binding {
namespace {

using kernel::Status;
using kernel::codec::Decoder;

constexpr HandleType kProgram = {{0x1c9d40b7a1e65f23, 0x8f02d6c35be97a41}, "program"};

class Program final : public Resource {
 public:
  explicit Program(std::unique_ptr<Decoder> decoder) : decoder_(std::move(decoder)) {}
  void Close() override { decoder_.reset(); }
  Decoder& decoder() { return *decoder_; }

 private:
  std::unique_ptr<Decoder> decoder_;
};

// Handle of an opened program; an exception where the program breaks a rule at the word `bad`.
napi_value Opened(napi_env env, Status status, std::unique_ptr<Decoder> decoder, std::int64_t bad) {
  if (status == Status::kOk) {
    return NewHandle(env, kProgram, std::make_shared<Program>(std::move(decoder)));
  }
  if (bad < 0) {
    Throw(env, kOutOfRange, "program: the columns are no tree");
  } else {
    Throw(env, kOutOfRange, "program: a bad instruction at word %lld", static_cast<long long>(bad));
  }
  return nullptr;
}

// codecOpenAvro(code, pool, table): program
napi_value OpenAvro(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Span<std::int32_t> code;
  Span<std::uint8_t> pool;
  Span<std::int32_t> table;
  if (!call.HasArguments(3) || !call.Array(0, "code", &code) || !call.Array(1, "pool", &pool) ||
      !call.Array(2, "table", &table)) {
    return nullptr;
  }
  std::unique_ptr<Decoder> decoder;
  std::int64_t bad = -1;
  const Status status = kernel::codec::OpenAvro({code.data, code.size}, {pool.data, pool.size},
                                                {table.data, table.size}, &decoder, &bad);
  return Opened(env, status, std::move(decoder), bad);
}

// codecOpenProtobuf(code, table): program
napi_value OpenProtobuf(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Span<std::int32_t> code;
  Span<std::int32_t> table;
  if (!call.HasArguments(2) || !call.Array(0, "code", &code) || !call.Array(1, "table", &table)) {
    return nullptr;
  }
  std::unique_ptr<Decoder> decoder;
  std::int64_t bad = -1;
  const Status status =
      kernel::codec::OpenProtobuf({code.data, code.size}, {table.data, table.size}, &decoder, &bad);
  return Opened(env, status, std::move(decoder), bad);
}

// codecDecode(program, payloads, start, length, from, to, skips, into, state): number
napi_value Decode(napi_env env, napi_callback_info info) {
  Call call(env, info);
  PayloadRange range;
  bool skips = false;
  Span<std::uint8_t> into;
  Span<std::uint32_t> state;
  if (!call.HasArguments(9)) return nullptr;
  const std::shared_ptr<Program> program = Open<Program>(call, 0, "program", kProgram);
  if (program == nullptr || !call.Payloads(1, &range) || !call.Boolean(6, "skips", &skips) ||
      !call.Bytes(7, "into", &into) || !call.Array(8, "state", &state)) {
    return nullptr;
  }
  std::uint32_t rows = 0;
  const Status status =
      program->decoder().Decode(range.payloads, range.from, range.to, skips, into, state, &rows);
  if (status == Status::kOk) return ToNumber(env, rows);
  ThrowPayloadStatus(env, status);
  return nullptr;
}

// codecClose(program)
napi_value Close(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (!call.HasArguments(1) || !CloseHandle(call, 0, "program", kProgram)) return nullptr;
  return Undefined(env);
}

}  // namespace

void RegisterCodec(napi_env env, napi_value exports) {
  Export(env, exports, "codecOpenAvro", OpenAvro);
  Export(env, exports, "codecOpenProtobuf", OpenProtobuf);
  Export(env, exports, "codecDecode", Decode);
  Export(env, exports, "codecClose", Close);
}

}  // namespace millrace::binding
