// Exported functions of the finder of fields in JSON documents. Signatures: src/addon/raw.ts.
#include <memory>

#include "binding/args.h"
#include "binding/handle.h"
#include "binding/register.h"
#include "kernel/json/fields.h"

namespace millrace::binding {
namespace {

using kernel::Status;
using kernel::json::FieldFinder;

constexpr HandleType kFinder = {{0x5b7e13c9d2084fa6, 0xa4c1f0863d9e5b72}, "finder"};

class Finder final : public Resource {
 public:
  void Close() override { finder_ = FieldFinder(); }
  FieldFinder& finder() { return finder_; }

 private:
  FieldFinder finder_;
};

// jsonOpenFinder(table, names, fields): finder
napi_value OpenFinder(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Span<std::int32_t> table;
  Span<std::uint8_t> names;
  std::uint32_t fields = 0;
  if (!call.HasArguments(3) || !call.Array(0, "table", &table) || !call.Array(1, "names", &names) ||
      !call.Uint32(2, "fields", &fields)) {
    return nullptr;
  }
  const auto finder = std::make_shared<Finder>();
  const Status status =
      finder->finder().Open({table.data, table.size}, {names.data, names.size}, fields);
  if (status == Status::kOk) return NewHandle(env, kFinder, finder);
  Throw(env, kOutOfRange, "table: the nodes are no tree in preorder");
  return nullptr;
}

// jsonFind(finder, payloads, start, length, from, to, isDocument, kind, starts, ends, integer)
napi_value Find(napi_env env, napi_callback_info info) {
  Call call(env, info);
  PayloadRange range;
  kernel::json::FoundRows into;
  if (!call.HasArguments(11)) return nullptr;
  const std::shared_ptr<Finder> finder = Open<Finder>(call, 0, "finder", kFinder);
  if (finder == nullptr || !call.Payloads(1, &range) ||
      !call.Array(6, "isDocument", &into.is_document) || !call.Array(7, "kind", &into.kind) ||
      !call.Array(8, "starts", &into.start) || !call.Array(9, "ends", &into.end) ||
      !call.Array(10, "integer", &into.integer)) {
    return nullptr;
  }
  const Status status = finder->finder().Find(range.payloads, range.from, range.to, into);
  if (status == Status::kOk) return Undefined(env);
  ThrowPayloadStatus(env, status);
  return nullptr;
}

// jsonCloseFinder(finder)
napi_value CloseFinder(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (!call.HasArguments(1) || !CloseHandle(call, 0, "finder", kFinder)) return nullptr;
  return Undefined(env);
}

}  // namespace

void RegisterJson(napi_env env, napi_value exports) {
  Export(env, exports, "jsonOpenFinder", OpenFinder);
  Export(env, exports, "jsonFind", Find);
  Export(env, exports, "jsonCloseFinder", CloseFinder);
}

}  // namespace millrace::binding
