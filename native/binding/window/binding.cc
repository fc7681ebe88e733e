// Exported functions of admission and of the keyed state of tumbling and sliding windows.
// Signatures: src/addon/raw.ts, with each batch as its buffer. A state belongs to the thread that
// opened it.
#include <memory>

#include "binding/args.h"
#include "binding/handle.h"
#include "binding/register.h"
#include "binding/window/keyed_state.h"
#include "binding/window/values.h"
#include "kernel/window/admit.h"
#include "kernel/window/tables.h"

namespace millrace::binding {
namespace {

using kernel::Accumulator;
using kernel::Rows;
using kernel::Status;

constexpr HandleType kTablesType = {{0x6d31c9f0a8e24b75U, 0x91d40be2f7a35c68U}, "window state"};

using State = KeyedState<kernel::WindowTables, kTablesType>;
using TablesResource = StateResource<kernel::WindowTables>;

bool SliceStart(Call* call, std::size_t index, std::int64_t* out) {
  return call->Integer(index, "sliceStart", -kernel::kSliceLimit, kernel::kSliceLimit, out);
}

bool Tables(const Call& call, State::Handle* out) { return State::Of(call, out); }

// windowAdmit(clock, progress, records, events, from, admitted, refused | null): number
napi_value Admit(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Span<double> clock;
  Span<double> progress;
  Rows<layout::RecordBatch> records;
  Rows<layout::EventBatch> events;
  std::uint32_t from = 0;
  Rows<layout::AdmittedBatch> admitted;
  Rows<layout::RefusedBatch> refused;
  if (!call.HasArguments(7) || !call.Array(0, "clock", &clock) ||
      !call.Array(1, "progress", &progress) || !call.Batch(2, "records", &records) ||
      !call.Batch(3, "events", &events) || !call.Batch(5, "admitted", &admitted) ||
      (!call.IsNull(6) && !call.Batch(6, "refused", &refused)) || !call.Uint32(4, "from", &from)) {
    return nullptr;
  }
  std::uint32_t taken = 0;
  const Status status = kernel::Admit(clock, progress, records, events, from, &admitted,
                                      call.IsNull(6) ? nullptr : &refused, &taken);
  return AnswerNumber(env, status, "batch", taken);
}

// windowOpen(sliceMs, shards, steps | null): state
napi_value OpenTables(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::int64_t slice_ms = 0;
  std::int64_t shards = 0;
  kernel::RowForm form;
  if (!call.HasArguments(3) || !call.Integer(0, "sliceMs", 1, kernel::kDurationMsMax, &slice_ms) ||
      !call.Integer(1, "shards", 1, kernel::WindowTables::kShardsMax, &shards) ||
      !FormOf(&call, 2, &form)) {
    return nullptr;
  }
  return NewHandle(
      env, kTablesType,
      std::make_shared<TablesResource>(slice_ms, static_cast<std::uint32_t>(shards), form));
}

// windowReserve(state, sliceStart, rows)
napi_value Reserve(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<TablesResource> state;
  std::int64_t slice_start = 0;
  std::uint32_t rows = 0;
  if (!call.HasArguments(3) || !Tables(call, &state) || !SliceStart(&call, 1, &slice_start) ||
      !call.Uint32(2, "rows", &rows)) {
    return nullptr;
  }
  return Answer(env, state->tables->Reserve(slice_start, rows), "rows");
}

// windowLoad(state, sliceStart, rows, count)
napi_value Load(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<TablesResource> state;
  std::int64_t slice_start = 0;
  Span<Accumulator> rows;
  std::uint32_t count = 0;
  if (!call.HasArguments(4) || !Tables(call, &state) || !SliceStart(&call, 1, &slice_start) ||
      !RowsOf(&call, 2, "rows", &rows) || !call.Uint32(3, "count", &count)) {
    return nullptr;
  }
  const bool has_rows = count <= rows.size / state->tables->form().page_lines();
  const Status status =
      has_rows ? state->tables->Load(slice_start, rows.data, count) : Status::kTooFewRows;
  return Answer(env, status, "rows");
}

// windowCopy(state, sliceStart, cursor, into): number
napi_value Copy(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<TablesResource> state;
  std::int64_t slice_start = 0;
  Cursor cursor;
  Span<Accumulator> into;
  if (!call.HasArguments(4) || !Tables(call, &state) || !SliceStart(&call, 1, &slice_start) ||
      !CursorOf(&call, 2, &cursor) || !RowsOf(&call, 3, "into", &into)) {
    return nullptr;
  }
  const std::size_t copied = state->tables->Copy(slice_start, &cursor.at, into);
  return AnswerCopied(env, cursor, copied);
}

// windowCopyRange(state, range, sliceStart, cursor, into): number
napi_value CopyRange(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<TablesResource> state;
  std::uint32_t range = 0;
  std::int64_t slice_start = 0;
  Cursor cursor;
  Span<Accumulator> into;
  if (!call.HasArguments(5) || !Tables(call, &state) || !Range(&call, 1, &range) ||
      !SliceStart(&call, 2, &slice_start) || !CursorOf(&call, 3, &cursor) ||
      !RowsOf(&call, 4, "into", &into)) {
    return nullptr;
  }
  const std::size_t copied = state->tables->CopyRange(range, slice_start, &cursor.at, into);
  return AnswerCopied(env, cursor, copied);
}

// windowFind(state, sliceStart, accountId, into): number
napi_value Find(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<TablesResource> state;
  std::int64_t slice_start = 0;
  std::uint64_t account_id = 0;
  Span<Accumulator> into;
  if (!call.HasArguments(4) || !Tables(call, &state) || !SliceStart(&call, 1, &slice_start) ||
      !call.BigUint64(2, "accountId", &account_id) || !RowsOf(&call, 3, "into", &into)) {
    return nullptr;
  }
  const kernel::WindowTables& tables = *state->tables;
  return AnswerRow(env, tables.Row(slice_start, account_id), tables.form(), into);
}

// windowSlices(state, out): number
napi_value Slices(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<TablesResource> state;
  Span<double> out;
  if (!call.HasArguments(2) || !Tables(call, &state) || !call.Array(1, "out", &out)) return nullptr;
  state->tables->OpenSlices(out);
  return ToNumber(env, static_cast<double>(state->tables->slice_count()));
}

// windowDrop(state, sliceStart)
napi_value Drop(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<TablesResource> state;
  std::int64_t slice_start = 0;
  if (!call.HasArguments(2) || !Tables(call, &state) || !SliceStart(&call, 1, &slice_start)) {
    return nullptr;
  }
  state->tables->Drop(slice_start);
  return Undefined(env);
}

// windowSeal(state, sliceStart): run
napi_value Seal(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<TablesResource> state;
  std::int64_t slice_start = 0;
  if (!call.HasArguments(2) || !Tables(call, &state) || !SliceStart(&call, 1, &slice_start)) {
    return nullptr;
  }
  return NewRun(env, state->tables->Seal(slice_start));
}

}  // namespace

void RegisterWindows(napi_env env, napi_value exports) {
  Export(env, exports, "windowAdmit", Admit);
  Export(env, exports, "windowOpen", OpenTables);
  Export(env, exports, "windowClose", State::Close);
  Export(env, exports, "windowAccumulate", State::Accumulate);
  Export(env, exports, "windowDeltaBytesMax", State::Call0<&kernel::WindowTables::DeltaBytesMax>);
  Export(env, exports, "windowEncodeDeltas", State::EncodeDeltas);
  Export(env, exports, "windowApplyDeltas", State::ApplyDeltas);
  Export(env, exports, "windowReserve", Reserve);
  Export(env, exports, "windowLoad", Load);
  Export(env, exports, "windowCopy", Copy);
  Export(env, exports, "windowCopyRange", CopyRange);
  Export(env, exports, "windowFind", Find);
  Export(env, exports, "windowSlices", Slices);
  Export(env, exports, "windowKeys", State::Call0<&kernel::WindowTables::key_count>);
  Export(env, exports, "windowBytes", State::Call0<&kernel::WindowTables::bytes>);
  Export(env, exports, "windowDrop", Drop);
  Export(env, exports, "windowTrim", State::Call0<&kernel::WindowTables::Trim>);
  Export(env, exports, "windowSeal", Seal);
  RegisterRuns(env, exports);
}

}  // namespace millrace::binding
