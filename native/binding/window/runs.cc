// Exported functions of sorted runs and their merge. A sort, a read and a merge may run on a thread
// of libuv's pool; a run is locked until its sort has ended, and a read keeps it. Signatures:
// src/addon/raw.ts.
#include <memory>
#include <utility>
#include <vector>

#include "binding/args.h"
#include "binding/handle.h"
#include "binding/register.h"
#include "binding/window/values.h"
#include "binding/window/work.h"
#include "kernel/session/merge.h"
#include "kernel/window/ahead.h"
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
  // Reads in flight share it.
  std::shared_ptr<kernel::SortedRun> run;
  Stage stage = Stage::kNew;
};

bool Run(const Call& call, std::shared_ptr<RunResource>* out) {
  *out = Open<RunResource>(call, 0, "run", kRunType);
  return *out != nullptr;
}

// Sort of a run. It keeps the handle: without a reference the garbage collector would close the
// handle during the sort.
class SortWork final : public PoolWork {
 public:
  explicit SortWork(std::shared_ptr<RunResource> resource) : resource_(std::move(resource)) {}
  void Execute() override { resource_->run->Sort(); }
  napi_value Result(napi_env env) override {
    if (resource_->stage == RunResource::Stage::kClosed) return Cancelled(env);
    resource_->stage = RunResource::Stage::kSorted;
    return Undefined(env);
  }
  napi_value Cancelled(napi_env env) override {
    resource_->run.reset();
    Throw(env, kClosed, "run: the sorted run was closed");
    return nullptr;
  }

 private:
  std::shared_ptr<RunResource> resource_;
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
  auto work = std::make_unique<SortWork>(resource);
  work->Keep(env, call[0]);
  napi_value promise = StartWork(env, std::move(work), "millrace sort");
  if (promise != nullptr) resource->stage = RunResource::Stage::kSorting;
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

// Arguments of a read: run, from, into. The run is sorted.
bool ReadOf(Call* call, std::shared_ptr<RunResource>* resource, std::size_t* from,
            Span<Accumulator>* into) {
  std::int64_t first = 0;
  if (!call->HasArguments(3) || !Run(*call, resource) ||
      !call->Integer(1, "from", 0, std::int64_t{1} << 53, &first) ||
      !RowsOf(call, 2, "into", into)) {
    return false;
  }
  if ((*resource)->stage != RunResource::Stage::kSorted) {
    ThrowStatus(call->env(), Status::kNotReady, "run");
    return false;
  }
  *from = static_cast<std::size_t>(first);
  return true;
}

// windowRunRead(run, from, into): number
napi_value RunRead(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<RunResource> resource;
  std::size_t from = 0;
  Span<Accumulator> into;
  if (!ReadOf(&call, &resource, &from, &into)) return nullptr;
  return ToNumber(env, static_cast<double>(resource->run->Read(from, into)));
}

class ReadWork final : public PoolWork {
 public:
  ReadWork(std::shared_ptr<const kernel::SortedRun> run, std::size_t from, Span<Accumulator> into)
      : run_(std::move(run)), from_(from), into_(into) {}
  void Execute() override { rows_ = run_->Read(from_, into_); }
  napi_value Result(napi_env env) override { return ToNumber(env, static_cast<double>(rows_)); }

 private:
  std::shared_ptr<const kernel::SortedRun> run_;
  std::size_t from_;
  Span<Accumulator> into_;
  std::size_t rows_ = 0;
};

// windowRunReadAside(run, from, into): Promise<number>
napi_value RunReadAside(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<RunResource> resource;
  std::size_t from = 0;
  Span<Accumulator> into;
  if (!ReadOf(&call, &resource, &from, &into)) return nullptr;
  auto work = std::make_unique<ReadWork>(resource->run, from, into);
  work->Keep(env, call[2]);
  return StartWork(env, std::move(work), "millrace read");
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

// Reads the pages of a merge. @param kept receives the values that own them; may be null
bool PagesOf(Call* call, std::size_t index, std::vector<Span<const Accumulator>>* pages,
             std::vector<napi_value>* kept = nullptr) {
  bool is_array = false;
  std::uint32_t count = 0;
  napi_env env = call->env();
  const napi_value array = (*call)[index];
  if (napi_is_array(env, array, &is_array) != napi_ok || !is_array ||
      napi_get_array_length(env, array, &count) != napi_ok) {
    ThrowType(env, "pages: expected an array");
    return false;
  }
  if (count > (kept == nullptr ? 1 : 2) * kernel::kMergeRunsMax) {
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
    if (kept != nullptr) kept->push_back(page);
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

class MergeWork final : public PoolWork {
 public:
  MergeWork(kernel::RowForm form, std::vector<Span<const Accumulator>> pages,
            Span<std::uint32_t> cursors, Span<Accumulator> into)
      : form_(std::move(form)), pages_(std::move(pages)), cursors_(cursors), into_(into) {}
  void Execute() override {
    status_ =
        kernel::MergeRunsAhead(form_, {pages_.data(), pages_.size()}, cursors_, into_, &rows_);
  }
  napi_value Result(napi_env env) override { return AnswerNumber(env, status_, "pages", rows_); }

 private:
  kernel::RowForm form_;
  std::vector<Span<const Accumulator>> pages_;
  Span<std::uint32_t> cursors_;
  Span<Accumulator> into_;
  Status status_ = Status::kOk;
  std::size_t rows_ = 0;
};

// windowMergeAhead(pages, cursors, into, steps | null): Promise<number>
napi_value MergeAhead(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::vector<Span<const Accumulator>> pages;
  std::vector<napi_value> kept;
  Span<std::uint32_t> cursors;
  Span<Accumulator> into;
  kernel::RowForm form;
  if (!call.HasArguments(4) || !call.Array(1, "cursors", &cursors) ||
      !RowsOf(&call, 2, "into", &into) || !FormOf(&call, 3, &form) ||
      !PagesOf(&call, 0, &pages, &kept)) {
    return nullptr;
  }
  auto work = std::make_unique<MergeWork>(std::move(form), std::move(pages), cursors, into);
  for (napi_value page : kept) work->Keep(env, page);
  for (const std::size_t index : {std::size_t{1}, std::size_t{2}}) work->Keep(env, call[index]);
  return StartWork(env, std::move(work), "millrace merge");
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
  Export(env, exports, "windowRunReadAside", RunReadAside);
  Export(env, exports, "windowRunFind", RunFind);
  Export(env, exports, "windowRunClose", CloseRun);
  Export(env, exports, "windowMerge", Merge);
  Export(env, exports, "windowMergeAhead", MergeAhead);
  Export(env, exports, "sessionMerge", MergeSessionRuns);
}

}  // namespace millrace::binding
