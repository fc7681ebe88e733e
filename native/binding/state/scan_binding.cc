// Exported functions of a scan.
#include "binding/state/register.h"
#include "binding/state/store_handle.h"
#include "state/cursor.h"

namespace millrace::binding {
namespace {

constexpr HandleType kScanType = {{0xb2579e48d01c63faU, 0x4e83a7d95f60c21bU}, "scan"};

class ScanHandle final : public Resource {
 public:
  ScanHandle(std::shared_ptr<StoreHandle> store, std::shared_ptr<state::Cursor> cursor)
      : store_(std::move(store)), cursor_(std::move(cursor)) {}
  // A page that is being filled is completed.
  void Close() override { cursor_.reset(); }

  StoreHandle& store() { return *store_; }
  const std::shared_ptr<state::Cursor>& cursor() const { return cursor_; }

 private:
  std::shared_ptr<StoreHandle> store_;
  std::shared_ptr<state::Cursor> cursor_;
};

// (store, family, from | null, to | null, shape, keyBytes, valueBytes, keepBlocks) -> handle
napi_value StateScanOpen(napi_env env, napi_callback_info info) {
  Call call(env, info);
  OpenStore open;
  state::ScanSpec spec;
  std::int64_t shape = 0;
  if (!call.HasArguments(8) || !StoreOf(call, &open) ||
      !FamilyOf(call, 1, *open.handle, &spec.family) || !BoundOf(call, 2, "from", &spec.from) ||
      !BoundOf(call, 3, "to", &spec.to) ||
      !call.Integer(4, "shape", 0, static_cast<std::int64_t>(state::Shape::kRecords), &shape) ||
      !call.Uint32(5, "keyBytes", &spec.key_bytes) ||
      !call.Uint32(6, "valueBytes", &spec.value_bytes) ||
      !call.Boolean(7, "keepBlocks", &spec.keep_blocks)) {
    return nullptr;
  }
  spec.shape = static_cast<state::Shape>(shape);
  if (spec.shape == state::Shape::kRecords && spec.value_bytes == 0) {
    Throw(env, kOutOfRange, "valueBytes: a record has at least 1");
    return nullptr;
  }
  auto cursor = std::make_shared<state::Cursor>(open.store, std::move(spec));
  return NewHandle(env, kScanType, std::make_shared<ScanHandle>(open.handle, std::move(cursor)));
}

// (scan) -> promise; the snapshot is taken here
napi_value StateScanStart(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (!call.HasArguments(1)) return nullptr;
  auto handle = Open<ScanHandle>(call, 0, "scan", kScanType);
  if (handle == nullptr) return nullptr;
  auto job = std::make_unique<StateJob<Nothing>>(
      [cursor = handle->cursor()](Nothing*) { return cursor->Start(); });
  return handle->store().Post(env, Lane::kRead, std::move(job));
}

// (scan, page, ends | null) -> promise of the number of rows, 0 at the end
napi_value StateScanNext(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Span<std::uint8_t> page;
  Span<std::uint32_t> ends;
  if (!call.HasArguments(3) || !call.Bytes(1, "page", &page) ||
      (!call.IsNull(2) && !call.Array(2, "ends", &ends))) {
    return nullptr;
  }
  if (page.size > UINT32_MAX) {
    Throw(env, kOutOfRange, "page: more than 4 GiB");
    return nullptr;
  }
  auto handle = Open<ScanHandle>(call, 0, "scan", kScanType);
  if (handle == nullptr) return nullptr;
  auto job = std::make_unique<StateJob<std::uint32_t>>(
      [cursor = handle->cursor(), page, ends](std::uint32_t* rows) {
        return cursor->Next(page, ends, rows);
      },
      [](napi_env to, const std::uint32_t& rows) { return ToNumber(to, rows); });
  KeepRows(env, call, 1, job.get());
  return handle->store().Post(env, Lane::kRead, std::move(job));
}

napi_value StateScanClose(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (call.HasArguments(1) && CloseHandle(call, 0, "scan", kScanType)) return Undefined(env);
  return nullptr;
}

}  // namespace

void RegisterScan(napi_env env, napi_value exports) {
  Export(env, exports, "stateScanOpen", StateScanOpen);
  Export(env, exports, "stateScanStart", StateScanStart);
  Export(env, exports, "stateScanNext", StateScanNext);
  Export(env, exports, "stateScanClose", StateScanClose);
}

}  // namespace millrace::binding
