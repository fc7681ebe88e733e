// Exported functions of a run.
#include "binding/state/register.h"
#include "binding/state/store_handle.h"
#include "state/run.h"

namespace millrace::binding {
namespace {

constexpr HandleType kRunType = {{0x1d83f5a06c72be49U, 0x97a4e60c3b1f85d2U}, "run"};

class RunHandle final : public Resource {
 public:
  RunHandle(std::shared_ptr<StoreHandle> store, std::shared_ptr<state::Run> run)
      : store_(std::move(store)), run_(std::move(run)) {}
  // A page that is being written is completed; the run's files are deleted with the run.
  void Close() override { run_.reset(); }

  StoreHandle& store() { return *store_; }
  const std::shared_ptr<state::Run>& run() const { return run_; }

 private:
  std::shared_ptr<StoreHandle> store_;
  std::shared_ptr<state::Run> run_;
};

// (store, family) -> handle
napi_value StateRunOpen(napi_env env, napi_callback_info info) {
  Call call(env, info);
  OpenStore open;
  std::size_t family = 0;
  if (!call.HasArguments(2) || !StoreOf(call, &open) || !FamilyOf(call, 1, *open.handle, &family))
    return nullptr;
  auto run = std::make_shared<state::Run>(open.store, family);
  return NewHandle(env, kRunType, std::make_shared<RunHandle>(open.handle, std::move(run)));
}

// (run, isSorted, …rows) -> promise
napi_value StateRunAppend(napi_env env, napi_callback_info info) {
  Call call(env, info);
  bool is_sorted = false;
  state::Rows rows;
  if (!call.HasArguments(2 + kRowsArguments) || !call.Boolean(1, "isSorted", &is_sorted) ||
      !RowsOf(call, 2, &rows)) {
    return nullptr;
  }
  if (!is_sorted && rows.shape != state::Shape::kSpans && rows.shape != state::Shape::kKeyed) {
    Throw(env, kOutOfRange, "rows of this shape must be sorted");
    return nullptr;
  }
  auto handle = Open<RunHandle>(call, 0, "run", kRunType);
  if (handle == nullptr) return nullptr;
  auto job = std::make_unique<StateJob<Nothing>>(
      [run = handle->run(), rows = std::move(rows), is_sorted](Nothing*) {
        return is_sorted ? run->Append(rows) : run->AppendUnsorted(rows);
      });
  KeepRows(env, call, 2, job.get());
  return handle->store().Post(env, Lane::kRun, std::move(job));
}

// (run) -> promise of [rows, bytes, files]
napi_value StateRunFinish(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (!call.HasArguments(1)) return nullptr;
  auto handle = Open<RunHandle>(call, 0, "run", kRunType);
  if (handle == nullptr) return nullptr;
  const auto make = [](napi_env to, const state::RunReport& report) {
    napi_value list = nullptr;
    napi_create_array_with_length(to, 3, &list);
    napi_set_element(to, list, 0, ToNumber(to, static_cast<double>(report.rows)));
    napi_set_element(to, list, 1, ToNumber(to, static_cast<double>(report.bytes)));
    napi_set_element(to, list, 2, ToNumber(to, report.files));
    return list;
  };
  auto job = std::make_unique<StateJob<state::RunReport>>(
      [run = handle->run()](state::RunReport* out) { return run->Finish(out); }, make);
  return handle->store().Post(env, Lane::kRun, std::move(job));
}

napi_value StateRunClose(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (call.HasArguments(1) && CloseHandle(call, 0, "run", kRunType)) return Undefined(env);
  return nullptr;
}

}  // namespace

void RegisterRun(napi_env env, napi_value exports) {
  Export(env, exports, "stateRunOpen", StateRunOpen);
  Export(env, exports, "stateRunAppend", StateRunAppend);
  Export(env, exports, "stateRunFinish", StateRunFinish);
  Export(env, exports, "stateRunClose", StateRunClose);
}

}  // namespace millrace::binding
