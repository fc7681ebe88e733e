// Exported functions of the keyed state of session windows. Signatures: src/addon/raw.ts, with each
// batch as its buffer. A state belongs to the thread that opened it; fired sessions are a sorted
// run.
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "binding/args.h"
#include "binding/handle.h"
#include "binding/register.h"
#include "binding/window/keyed_state.h"
#include "binding/window/values.h"
#include "kernel/session/tables.h"

namespace millrace::binding {
namespace {

using kernel::Accumulator;
using kernel::Rows;
using kernel::Status;

constexpr HandleType kSessionsType = {{0x84c2e17b5a90f36dU, 0x1e7d60b9c35fa482U}, "session state"};

using State = KeyedState<kernel::SessionTables, kSessionsType>;
using SessionsResource = StateResource<kernel::SessionTables>;

bool Sessions(const Call& call, State::Handle* out) { return State::Of(call, out); }

// sessionOpen(gapMs, shards, steps | null): state
napi_value OpenSessions(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::int64_t gap_ms = 0;
  std::int64_t shards = 0;
  kernel::RowForm form;
  if (!call.HasArguments(3) || !call.Integer(0, "gapMs", 1, kernel::kDurationMsMax, &gap_ms) ||
      !call.Integer(1, "shards", 1, kernel::WindowTables::kShardsMax, &shards) ||
      !FormOf(&call, 2, &form)) {
    return nullptr;
  }
  auto resource =
      std::make_shared<SessionsResource>(gap_ms, static_cast<std::uint32_t>(shards), form);
  const Status status = resource->tables->Open();
  if (status != Status::kOk) {
    ThrowStatus(env, status, "state");
    return nullptr;
  }
  return NewHandle(env, kSessionsType, std::move(resource));
}

// sessionReserve(state, rows)
napi_value Reserve(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<SessionsResource> state;
  std::uint32_t rows = 0;
  if (!call.HasArguments(2) || !Sessions(call, &state) || !call.Uint32(1, "rows", &rows))
    return nullptr;
  return Answer(env, state->tables->Reserve(rows), "rows");
}

// sessionLoad(state, rows, count)
napi_value Load(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<SessionsResource> state;
  Span<Accumulator> rows;
  std::uint32_t count = 0;
  if (!call.HasArguments(3) || !Sessions(call, &state) || !RowsOf(&call, 1, "rows", &rows) ||
      !call.Uint32(2, "count", &count)) {
    return nullptr;
  }
  const bool has_rows = count <= rows.size / state->tables->form().page_lines();
  const Status status = has_rows ? state->tables->Load(rows.data, count) : Status::kTooFewRows;
  return Answer(env, status, "rows");
}

// sessionCopy(state, cursor, into): number
napi_value Copy(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<SessionsResource> state;
  Cursor cursor;
  Span<Accumulator> into;
  if (!call.HasArguments(3) || !Sessions(call, &state) || !CursorOf(&call, 1, &cursor) ||
      !RowsOf(&call, 2, "into", &into)) {
    return nullptr;
  }
  const std::size_t copied = state->tables->Copy(&cursor.at, into);
  return AnswerCopied(env, cursor, copied);
}

// sessionCopyRange(state, range, cursor, into): number
napi_value CopyRange(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<SessionsResource> state;
  std::uint32_t range = 0;
  Cursor cursor;
  Span<Accumulator> into;
  if (!call.HasArguments(4) || !Sessions(call, &state) || !Range(&call, 1, &range) ||
      !CursorOf(&call, 2, &cursor) || !RowsOf(&call, 3, "into", &into)) {
    return nullptr;
  }
  const std::size_t copied = state->tables->CopyRange(range, &cursor.at, into);
  return AnswerCopied(env, cursor, copied);
}

// sessionFind(state, accountId, into): number
napi_value Find(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<SessionsResource> state;
  std::uint64_t account_id = 0;
  Span<Accumulator> into;
  if (!call.HasArguments(3) || !Sessions(call, &state) ||
      !call.BigUint64(1, "accountId", &account_id) || !RowsOf(&call, 2, "into", &into)) {
    return nullptr;
  }
  return ToNumber(env, static_cast<double>(state->tables->Find(account_id, into)));
}

// sessionFire(state, watermark): run
napi_value Fire(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<SessionsResource> state;
  double number = 0;
  std::int64_t watermark = 0;
  if (!call.HasArguments(2) || !Sessions(call, &state) || !call.Number(1, "watermark", &number)) {
    return nullptr;
  }
  if (std::isinf(number)) {
    // Every deadline lies between these two values.
    watermark =
        number > 0 ? kernel::SessionDeadlines::kForever - 1 : -kernel::SessionDeadlines::kForever;
  } else if (!call.Integer(1, "watermark", -(std::int64_t{1} << 53), std::int64_t{1} << 53,
                           &watermark)) {
    return nullptr;
  }
  std::unique_ptr<kernel::SortedRun> run;
  const Status status = state->tables->Fire(watermark, &run);
  if (status != Status::kOk) {
    ThrowStatus(env, status, "state");
    return nullptr;
  }
  return NewRun(env, std::move(run));
}

// sessionDetach(state): run
napi_value Detach(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<SessionsResource> state;
  if (!call.HasArguments(1) || !Sessions(call, &state)) return nullptr;
  std::unique_ptr<kernel::SortedRun> run;
  const Status status = state->tables->Detach(&run);
  if (status != Status::kOk) {
    ThrowStatus(env, status, "state");
    return nullptr;
  }
  return NewRun(env, std::move(run));
}

// sessionTrim(state)
napi_value Trim(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<SessionsResource> state;
  if (!call.HasArguments(1) || !Sessions(call, &state)) return nullptr;
  state->tables->Trim();
  return Undefined(env);
}

// sessionLeastEnd(state): number
napi_value LeastEnd(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::shared_ptr<SessionsResource> state;
  if (!call.HasArguments(1) || !Sessions(call, &state)) return nullptr;
  const std::int64_t least = state->tables->least_end();
  return ToNumber(env, least == kernel::SessionDeadlines::kForever
                           ? std::numeric_limits<double>::infinity()
                           : static_cast<double>(least));
}

}  // namespace

void RegisterSessions(napi_env env, napi_value exports) {
  Export(env, exports, "sessionOpen", OpenSessions);
  Export(env, exports, "sessionClose", State::Close);
  Export(env, exports, "sessionAccumulate", State::Accumulate);
  Export(env, exports, "sessionDeltaBytesMax", State::Call0<&kernel::SessionTables::DeltaBytesMax>);
  Export(env, exports, "sessionEncodeDeltas", State::EncodeDeltas);
  Export(env, exports, "sessionApplyDeltas", State::ApplyDeltas);
  Export(env, exports, "sessionReserve", Reserve);
  Export(env, exports, "sessionLoad", Load);
  Export(env, exports, "sessionCopy", Copy);
  Export(env, exports, "sessionCopyRange", CopyRange);
  Export(env, exports, "sessionFind", Find);
  Export(env, exports, "sessionFire", Fire);
  Export(env, exports, "sessionDetach", Detach);
  Export(env, exports, "sessionTrim", Trim);
  Export(env, exports, "sessionLeastEnd", LeastEnd);
  Export(env, exports, "sessionCount", State::Call0<&kernel::SessionTables::session_count>);
  Export(env, exports, "sessionMerged", State::Call0<&kernel::SessionTables::merged_count>);
  Export(env, exports, "sessionBytes", State::Call0<&kernel::SessionTables::bytes>);
}

}  // namespace millrace::binding
