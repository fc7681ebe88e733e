// Exported functions of the encode kernels. Signatures: src/addon/raw.ts.
#include <memory>
#include <utility>

#include "binding/args.h"
#include "binding/handle.h"
#include "binding/register.h"
#include "kernel/encode/avro.h"
#include "kernel/encode/encoder.h"
#include "kernel/encode/protobuf.h"

namespace millrace::binding {
namespace {

using kernel::Status;
using kernel::encode::Encoder;

constexpr HandleType kEncoder = {{0x5be2170c94f3ad68, 0xd36a08417f92c5eb}, "encoder"};

class Program final : public Resource {
 public:
  explicit Program(std::unique_ptr<Encoder> encoder) : encoder_(std::move(encoder)) {}
  void Close() override { encoder_.reset(); }
  Encoder& encoder() { return *encoder_; }

 private:
  std::unique_ptr<Encoder> encoder_;
};

using OpenProgram = Status (*)(Span<const std::int32_t> code, Span<const std::int32_t> tables,
                               Span<const std::int32_t> table, std::unique_ptr<Encoder>* out,
                               std::int64_t* bad);

// codecOpen…Encoder(code, tables, table): encoder
template <OpenProgram kOpen>
napi_value OpenEncoder(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Span<std::int32_t> code;
  Span<std::int32_t> tables;
  Span<std::int32_t> table;
  if (!call.HasArguments(3) || !call.Array(0, "code", &code) || !call.Array(1, "tables", &tables) ||
      !call.Array(2, "table", &table)) {
    return nullptr;
  }
  std::unique_ptr<Encoder> encoder;
  std::int64_t bad = -1;
  const Status status = kOpen({code.data, code.size}, {tables.data, tables.size},
                              {table.data, table.size}, &encoder, &bad);
  if (status == Status::kOk) {
    return NewHandle(env, kEncoder, std::make_shared<Program>(std::move(encoder)));
  }
  if (bad < 0) {
    Throw(env, kOutOfRange, "program: bad columns or tables");
  } else {
    Throw(env, kOutOfRange, "program: a bad instruction at word %lld", static_cast<long long>(bad));
  }
  return nullptr;
}

// codecEncode(encoder, columns, columnState, from, to, prefix, skips, into, offsets, status,
//             errorColumn, state): number
napi_value Encode(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Span<std::uint8_t> columns;
  Span<std::uint32_t> column_state;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  Span<std::uint8_t> prefix;
  bool skips = false;
  kernel::encode::Frames into;
  if (!call.HasArguments(12)) return nullptr;
  const std::shared_ptr<Program> program = Open<Program>(call, 0, "encoder", kEncoder);
  if (program == nullptr || !call.Bytes(1, "columns", &columns) ||
      !call.Array(2, "columnState", &column_state) || !call.Uint32(3, "from", &from) ||
      !call.Uint32(4, "to", &to) || !call.Array(5, "prefix", &prefix) ||
      !call.Boolean(6, "skips", &skips) || !call.Bytes(7, "into", &into.bytes) ||
      !call.Array(8, "offsets", &into.offsets) || !call.Array(9, "status", &into.status) ||
      !call.Array(10, "errorColumn", &into.error_column) || !call.Array(11, "state", &into.state)) {
    return nullptr;
  }
  std::uint32_t rows = 0;
  const Status status = program->encoder().Encode(columns, column_state, from, to,
                                                  {prefix.data, prefix.size}, skips, into, &rows);
  if (status == Status::kOk) return ToNumber(env, rows);
  const bool is_columns = status == Status::kNotThisBatch || status == Status::kSpanOutOfRange ||
                          status == Status::kRowsBeyondCapacity;
  ThrowStatus(env, status, is_columns ? "columns" : "into");
  return nullptr;
}

// codecCloseEncoder(encoder)
napi_value Close(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (!call.HasArguments(1) || !CloseHandle(call, 0, "encoder", kEncoder)) return nullptr;
  return Undefined(env);
}

}  // namespace

void RegisterEncode(napi_env env, napi_value exports) {
  Export(env, exports, "codecOpenAvroEncoder", OpenEncoder<kernel::encode::OpenAvroEncoder>);
  Export(env, exports, "codecOpenProtobufEncoder",
         OpenEncoder<kernel::encode::OpenProtobufEncoder>);
  Export(env, exports, "codecEncode", Encode);
  Export(env, exports, "codecCloseEncoder", Close);
}

}  // namespace millrace::binding
