// Conversions that the bindings of the window engine share: rows, cursors, covers and sorted runs,
// from and to JavaScript.
#pragma once

#include <node_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "binding/args.h"
#include "kernel/rows/form.h"
#include "kernel/window/range.h"
#include "kernel/window/row.h"
#include "kernel/window/run.h"

namespace millrace::binding {

// Lines of rows in an ArrayBuffer or a view; trailing bytes that make no whole line are ignored.
bool RowsOf(Call* call, std::size_t index, const char* name, Span<kernel::Accumulator>* out);

// Form of rows from its steps, an array or null for rows with only a head.
bool FormOf(Call* call, std::size_t index, kernel::RowForm* out);
// Reads four arguments: an array of values, one with their validity, the cells of a column in both,
// and an array with texts or null; or four times null.
bool ValuesOf(Call* call, std::size_t index, kernel::Values* out);

// Position of a copy, with the cell that it is written back to.
struct Cursor {
  double* cell = nullptr;
  std::uint64_t at = 0;
};
bool CursorOf(Call* call, std::size_t index, Cursor* out);
bool Range(Call* call, std::size_t index, std::uint32_t* out);
// Reads two arguments: the sequence number of a record, and an array with a number for each range,
// or null.
bool CoverOf(Call* call, std::size_t seq, std::size_t covered, kernel::Cover* out);

napi_value Answer(napi_env env, kernel::Status status, const char* what);
napi_value AnswerNumber(napi_env env, kernel::Status status, const char* what, std::size_t number);
napi_value AnswerCopied(napi_env env, const Cursor& cursor, std::size_t copied);
// Copies a stored row to a page, where it exists and `into` has room. Returns the number of rows,
// 0 or 1.
napi_value AnswerRow(napi_env env, const kernel::Accumulator* row, const kernel::RowForm& form,
                     Span<kernel::Accumulator> into);

// Handle of a run that is not sorted yet.
napi_value NewRun(napi_env env, std::unique_ptr<kernel::SortedRun> run);

}  // namespace millrace::binding
