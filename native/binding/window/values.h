// What the bindings of the window engine share: rows, cursors, covers and sorted runs, from and to
// JavaScript.
#pragma once

#include <node_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "binding/args.h"
#include "kernel/window/range.h"
#include "kernel/window/row.h"
#include "kernel/window/run.h"

namespace millrace::binding {

// Rows in an ArrayBuffer or a view; a rest that makes no row is left alone.
bool RowsOf(Call* call, std::size_t index, const char* name, Span<kernel::Accumulator>* out);

// A place in a copy, which goes back to the cell it came from.
struct Cursor {
  double* cell = nullptr;
  std::uint64_t at = 0;
};
bool CursorOf(Call* call, std::size_t index, Cursor* out);
bool Range(Call* call, std::size_t index, std::uint32_t* out);
// Two arguments: the number of a record, and a number a range or null.
bool CoverOf(Call* call, std::size_t seq, std::size_t covered, kernel::Cover* out);

napi_value Answer(napi_env env, kernel::Status status, const char* what);
napi_value AnswerNumber(napi_env env, kernel::Status status, const char* what, std::size_t number);
napi_value AnswerCopied(napi_env env, const Cursor& cursor, std::size_t copied);
// Copies the row, where there is one and room for it, and answers how many there are.
napi_value AnswerRow(napi_env env, const kernel::Accumulator* row, Span<kernel::Accumulator> into);

// A handle of a run that is not sorted yet.
napi_value NewRun(napi_env env, std::unique_ptr<kernel::SortedRun> run);

}  // namespace millrace::binding
