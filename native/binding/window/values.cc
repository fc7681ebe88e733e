#include "binding/window/values.h"

#include <cstring>

namespace millrace::binding {

using kernel::Accumulator;
using kernel::Status;

bool RowsOf(Call* call, std::size_t index, const char* name, Span<Accumulator>* out) {
  Span<std::uint8_t> bytes;
  if (!call->Bytes(index, name, &bytes)) return false;
  if ((reinterpret_cast<std::uintptr_t>(bytes.data) & 7U) != 0) {
    ThrowStatus(call->env(), Status::kNotThisBatch, name);
    return false;
  }
  out->data = reinterpret_cast<Accumulator*>(bytes.data);
  out->size = bytes.size / sizeof(Accumulator);
  return true;
}

bool FormOf(Call* call, std::size_t index, kernel::RowForm* out) {
  if (call->IsNull(index)) return true;
  Span<std::uint32_t> steps;
  if (!call->Array(index, "steps", &steps)) return false;
  if (out->Set({steps.data, steps.size}) == Status::kOk) return true;
  ThrowStatus(call->env(), Status::kBadArgument, "steps");
  return false;
}

bool ValuesOf(Call* call, std::size_t index, kernel::Values* out) {
  if (call->IsNull(index) && call->IsNull(index + 1) && call->IsNull(index + 2) &&
      call->IsNull(index + 3)) {
    return true;
  }
  Span<std::int64_t> cells;
  Span<std::uint8_t> valid;
  Span<std::int64_t> texts;
  std::uint32_t capacity = 0;
  if (!call->Array(index, "values", &cells) || !call->Array(index + 1, "valid", &valid) ||
      !call->Uint32(index + 2, "capacity", &capacity) ||
      (!call->IsNull(index + 3) && !call->Array(index + 3, "texts", &texts))) {
    return false;
  }
  if (capacity == 0 || valid.size < cells.size) {
    ThrowStatus(call->env(), Status::kTooFewRows, "valid");
    return false;
  }
  *out = {cells.data, valid.data, capacity, cells.size / capacity, {texts.data, texts.size}};
  return true;
}

bool CursorOf(Call* call, std::size_t index, Cursor* out) {
  constexpr double kCursorMax = 9007199254740992;  // 2^53
  Span<double> cells;
  if (!call->Array(index, "cursor", &cells)) return false;
  if (cells.size < 1 || !(cells.data[0] >= 0 && cells.data[0] <= kCursorMax)) {
    ThrowStatus(call->env(), Status::kBadArgument, "cursor");
    return false;
  }
  *out = {cells.data, static_cast<std::uint64_t>(cells.data[0])};
  return true;
}

bool Range(Call* call, std::size_t index, std::uint32_t* out) {
  std::int64_t range = 0;
  if (!call->Integer(index, "range", 0, kernel::kCoverRanges - 1, &range)) return false;
  *out = static_cast<std::uint32_t>(range);
  return true;
}

bool CoverOf(Call* call, std::size_t seq, std::size_t covered, kernel::Cover* out) {
  std::int64_t number = 0;
  if (!call->Integer(seq, "seq", 0, std::int64_t{1} << 53, &number)) return false;
  out->seq = static_cast<double>(number);
  if (call->IsNull(covered)) return true;
  Span<double> cells;
  if (!call->Array(covered, "covered", &cells)) return false;
  if (cells.size < kernel::kCoverRanges) {
    ThrowStatus(call->env(), Status::kTooFewRows, "covered");
    return false;
  }
  out->covered = cells.data;
  return true;
}

napi_value Answer(napi_env env, Status status, const char* what) {
  if (status == Status::kOk) return Undefined(env);
  ThrowStatus(env, status, what);
  return nullptr;
}

napi_value AnswerNumber(napi_env env, Status status, const char* what, std::size_t number) {
  if (status == Status::kOk) return ToNumber(env, static_cast<double>(number));
  ThrowStatus(env, status, what);
  return nullptr;
}

napi_value AnswerCopied(napi_env env, const Cursor& cursor, std::size_t copied) {
  *cursor.cell = static_cast<double>(cursor.at);
  return ToNumber(env, static_cast<double>(copied));
}

napi_value AnswerRow(napi_env env, const Accumulator* row, const kernel::RowForm& form,
                     Span<Accumulator> into) {
  if (row != nullptr && into.size >= form.page_lines()) form.ToPage(row, into.data);
  return ToNumber(env, row == nullptr ? 0 : 1);
}

}  // namespace millrace::binding
