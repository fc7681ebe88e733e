// Event generator: events as a pure function of parameters and a number, and the order in which
// delayed events arrive. Equal byte for byte to the TypeScript reference implementation,
// src/addon/reference/gen.ts; docs/reference/generator.md is the definition. Floating-point
// operations follow the order of the definition and must not be fused.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/batch.h"
#include "kernel/span.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel {

// Checked parameters: every conversion to an integer that depends on them is defined.
struct GenParams {
  std::uint32_t seed_low = 0;
  std::uint32_t seed_high = 0;
  std::uint64_t account_base = 0;
  std::uint32_t power_whole = 0;
  std::uint32_t power_fraction = 0;
  double value_min = 0;
  double value_span = 1;
  double base_ts = 0;
  double per_ms = 1;
  double typical_below = 0;
  double tail_below = 0;
  double typical_max_ms = 0;
  double tail_max_ms = 0;
  double straggler_max_ms = 0;
  double count = 0;
};

// Reads layout::GenParams. kBadArgument when a cell is outside its range.
Status ReadGenParams(Span<double> cells, GenParams* out);

// Fills `seqs` with the next events in the order of arrival; `written` is their number. REQUIRES:
// state is layout::ArrivalState. kSpanOutOfRange when a list names a row outside the pool: the
// queue is damaged.
Status GenArrivals(const GenParams& params, Span<double> state, Rows<layout::ArrivalWheel>* wheel,
                   Rows<layout::ArrivalPool>* pool, Span<double> seqs, std::size_t* written);

// Replaces the content of `into` by records of the events seqs[0, count).
Status GenRecords(const GenParams& params, const Rows<layout::ZipfTable>& zipf,
                  Span<std::uint8_t> noise, Span<double> seqs, std::size_t count,
                  Rows<layout::RecordBatch>* into);

// Replaces the content of `into` by the same events as columns.
Status GenEvents(const GenParams& params, const Rows<layout::ZipfTable>& zipf, Span<double> seqs,
                 std::size_t count, Rows<layout::EventBatch>* into);

}  // namespace millrace::kernel
