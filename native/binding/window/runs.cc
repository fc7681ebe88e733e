// Exported functions of sorted runs and their merge. Only the sort of a run uses another thread;
// the run is locked until the sort has ended. Signatures: src/addon/raw.ts.
#include <memory>
#include <utility>
#include <vector>

#include "binding/args.h"
#include "binding/handle.h"
#include "binding/register.h"
#include "binding/window/values.h"
#include "kernel/session/merge.h"
#include "kernel/window/run.h"

namespace millrace::binding {
namespace {

using kernel::Accumulator;
using kernel::Status;

constexpr HandleType kRunType = {{0x2f8be5d7046c4a19U, 0xb35e79c1d0f82a46U}, "sorted run"};

class RunResource : public Resource {
 public:
  enum class Stage { kNew, kSorting, kSorted, kClosed };

  explicit RunResource(std::unique_ptr<kernel::SortedRun> sealed) : run(std::move(sealed)) {}
  // A sort in flight keeps the resource and its rows until it has ended.
  void Close() override {
    if (stage != Stage::kSorting) run.reset();
    stage = Stage::kClosed;
  }
  std::unique_ptr<kernel::SortedRun> run;
  Stage stage = Stage::kNew;
};

bool Run(const Call& call, std::shared_ptr<RunResource>* out) {
  *out = Open<RunResource>(call, 0, "run", kRunType);
  return *out != nullptr;
}

// Sort on a thread of libuv's pool, and the promise of its end. It also keeps the handle: without a
// reference the garbage collector would close the handle during the sort.
struct Sort {
  std::shared_ptr<RunResource> resource;
  napi_ref handle = nullptr;
  napi_deferred deferred = nullptr;
  napi_async_work work = nullptr;

  static void Execute(napi_env, void* data) { static_cast<Sort*>(data)->resource->run->Sort(); }

  static void Complete(napi_env env, napi_status status, void* data) {
    const std::unique_ptr<Sort> sort(static_cast<Sort*>(data));
    RunResource& resource = *sort->resource;
    napi_delete_async_work(env, sort->work);
    napi_delete_reference(env, sort->handle);
    if (status != napi_ok || resource.stage == RunResource::Stage::kClosed) {
      resource.run.reset();
      napi_value error = nullptr;
      Throw(env, kClosed, "run: the sorted run was closed");
      if (napi_get_and_clear_last_exception(env, &error) == napi_ok) {
        napi_reject_deferred(env, sort->deferred, error);
      }
      return;
    }
    resource.stage = RunResource::Stage::kSorted;
    napi_resolve_deferred(env, sort->deferred, Undefined(env));
  }
};

// windowRunSort(run): Promise<void>
napi_value SortRun(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<RunResource> resource;
  if (!call.HasArguments(1) || !Run(call, &resource)) return nullptr;
  if (resource->stage != RunResource::Stage::kNew) {
    ThrowStatus(env, Status::kBadArgument, "run");
    return nullptr;
  }
  auto sort = std::make_unique<Sort>();
  sort->resource = resource;
  napi_value promise = nullptr;
  if (napi_create_promise(env, &sort->deferred, &promise) != napi_ok ||
      napi_create_reference(env, call[0], 1, &sort->handle) != napi_ok ||
      napi_create_async_work(env, nullptr, ToText(env, "millrace sort"), Sort::Execute,
                             Sort::Complete, sort.get(), &sort->work) != napi_ok ||
      napi_queue_async_work(env, sort->work) != napi_ok) {
    Throw(env, kInternal, "cannot start to sort");
    return nullptr;
  }
  resource->stage = RunResource::Stage::kSorting;
  static_cast<void>(sort.release());
  return promise;
}

// windowRunRows(run): number
napi_value RunRows(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<RunResource> resource;
  if (!call.HasArguments(1) || !Run(call, &resource)) return nullptr;
  return ToNumber(env, static_cast<double>(resource->run->row_count()));
}

// windowRunBytes(run): number
napi_value RunBytes(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<RunResource> resource;
  if (!call.HasArguments(1) || !Run(call, &resource)) return nullptr;
  if (resource->stage != RunResource::Stage::kSorted) {
    ThrowStatus(env, Status::kNotReady, "run");
    return nullptr;
  }
  return ToNumber(env, static_cast<double>(resource->run->bytes()));
}

// windowRunRead(run, from, into): number
napi_value RunRead(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<RunResource> resource;
  std::int64_t from = 0;
  Span<Accumulator> into;
  if (!call.HasArguments(3) || !Run(call, &resource) ||
      !call.Integer(1, "from", 0, std::int64_t{1} << 53, &from) ||
      !RowsOf(&call, 2, "into", &into)) {
    return nullptr;
  }
  if (resource->stage != RunResource::Stage::kSorted) {
    ThrowStatus(env, Status::kNotReady, "run");
    return nullptr;
  }
  return ToNumber(env,
                  static_cast<double>(resource->run->Read(static_cast<std::size_t>(from), into)));
}

// windowRunFind(run, accountId, into): number
napi_value RunFind(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<RunResource> resource;
  std::uint64_t account_id = 0;
  Span<Accumulator> into;
  if (!call.HasArguments(3) || !Run(call, &resource) ||
      !call.BigUint64(1, "accountId", &account_id) || !RowsOf(&call, 2, "into", &into)) {
    return nullptr;
  }
  if (resource->stage != RunResource::Stage::kSorted ||
      resource->run->order() != kernel::SortedRun::Order::kByKey) {
    ThrowStatus(env, Status::kNotReady, "run");
    return nullptr;
  }
  return AnswerRow(env, resource->run->Row(account_id), resource->run->form(), into);
}

// windowRunClose(run)
napi_value CloseRun(napi_env env, napi_callback_info info) {
  const Call call(env, info);
  return CloseHandle(call, 0, "run", kRunType) ? Undefined(env) : nullptr;
}

// Reads the page of each input of a merge.
bool PagesOf(Call* call, std::size_t index, std::vector<Span<const Accumulator>>* pages) {
  bool is_array = false;
  std::uint32_t count = 0;
  napi_env env = call->env();
  const napi_value array = (*call)[index];
  if (napi_is_array(env, array, &is_array) != napi_ok || !is_array ||
      napi_get_array_length(env, array, &count) != napi_ok) {
    ThrowType(env, "pages: expected an array");
    return false;
  }
  if (count > kernel::kMergeRunsMax) {
    ThrowStatus(env, Status::kBadArgument, "pages");
    return false;
  }
  pages->resize(count);
  for (std::uint32_t i = 0; i < count; i++) {
    napi_value page = nullptr;
    Span<std::uint8_t> bytes;
    if (napi_get_element(env, array, i, &page) != napi_ok || !BytesOf(env, page, &bytes)) {
      ThrowType(env, "pages: expected ArrayBuffers or views that are not detached");
      return false;
    }
    if ((reinterpret_cast<std::uintptr_t>(bytes.data) & 7U) != 0) {
      ThrowStatus(env, Status::kNotThisBatch, "pages");
      return false;
    }
    (*pages)[i] = {reinterpret_cast<const Accumulator*>(bytes.data),
                   bytes.size / sizeof(Accumulator)};
  }
  return true;
}

// windowMerge(pages, cursors, into, steps | null): number
napi_value Merge(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::vector<Span<const Accumulator>> pages;
  Span<std::uint32_t> cursors;
  Span<Accumulator> into;
  kernel::RowForm form;
  if (!call.HasArguments(4) || !call.Array(1, "cursors", &cursors) ||
      !RowsOf(&call, 2, "into", &into) || !FormOf(&call, 3, &form) || !PagesOf(&call, 0, &pages)) {
    return nullptr;
  }
  std::size_t written = 0;
  const Status status =
      kernel::MergeRuns(form, {pages.data(), pages.size()}, cursors, into, &written);
  return AnswerNumber(env, status, "pages", written);
}

// sessionMerge(gapMs, pages, cursors, open, into, steps | null): number
napi_value MergeSessionRuns(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::int64_t gap_ms = 0;
  std::vector<Span<const Accumulator>> pages;
  Span<std::uint32_t> cursors;
  Span<Accumulator> open;
  Span<Accumulator> into;
  kernel::RowForm form;
  if (!call.HasArguments(6) || !call.Integer(0, "gapMs", 1, kernel::kDurationMsMax, &gap_ms) ||
      !call.Array(2, "cursors", &cursors) || !RowsOf(&call, 3, "open", &open) ||
      !RowsOf(&call, 4, "into", &into) || !FormOf(&call, 5, &form) || !PagesOf(&call, 1, &pages)) {
    return nullptr;
  }
  if (open.size < form.page_lines()) {
    ThrowStatus(env, Status::kTooFewRows, "open");
    return nullptr;
  }
  std::size_t written = 0;
  const Status status = kernel::MergeSessions(form, gap_ms, {pages.data(), pages.size()}, cursors,
                                              open.data, into, &written);
  return AnswerNumber(env, status, "pages", written);
}

}  // namespace

napi_value NewRun(napi_env env, std::unique_ptr<kernel::SortedRun> run) {
  return NewHandle(env, kRunType, std::make_shared<RunResource>(std::move(run)));
}

void RegisterRuns(napi_env env, napi_value exports) {
  Export(env, exports, "windowRunSort", SortRun);
  Export(env, exports, "windowRunRows", RunRows);
  Export(env, exports, "windowRunBytes", RunBytes);
  Export(env, exports, "windowRunRead", RunRead);
  Export(env, exports, "windowRunFind", RunFind);
  Export(env, exports, "windowRunClose", CloseRun);
  Export(env, exports, "windowMerge", Merge);
  Export(env, exports, "sessionMerge", MergeSessionRuns);
}

}  // namespace millrace::binding
