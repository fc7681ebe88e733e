// Forms of rows for tests: heads alone, or cells of every aggregate.
#pragma once

#include "kernel/rows/form.h"
#include "test/input.h"

namespace millrace::test {

inline kernel::RowForm FormOf(bool has_cells) {
  kernel::RowForm form;
  if (!has_cells) return form;
  const std::uint32_t steps[] = {
      layout::kAggregateCount,     2, layout::kAggregateSum,       2,
      layout::kAggregateMin,       2, layout::kAggregateMax,       2,
      layout::kAggregateFirst,     2, layout::kAggregateLast,      2,
      layout::kAggregateSumDouble, 3, layout::kAggregateMinDouble, 3,
      layout::kAggregateMaxDouble, 3, layout::kAggregateBuckets,   2,
      layout::kAggregateDistinct,  3,
  };
  MILLRACE_CHECK(form.Set({steps, sizeof steps / sizeof *steps}) == kernel::Status::kOk);
  return form;
}

}  // namespace millrace::test
