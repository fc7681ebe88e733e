#include "kernel/shard/deltas.h"

#include <algorithm>
#include <bit>

namespace millrace::kernel {
namespace {

constexpr std::size_t kIndexMin = 64;

}  // namespace

Status ShardDeltas::Prepare(std::uint32_t rows, const RowForm& form) {
  if (deltas.size() < rows * form.lines()) {
    const Status allocated = deltas.Allocate(std::bit_ceil(rows * form.lines()));
    if (allocated != Status::kOk) return allocated;
  }
  index.assign(std::bit_ceil(std::max(kIndexMin, std::size_t{rows} * 2)), 0);
  return Status::kOk;
}

void ShardDeltas::Clear(const RowForm& form) {
  Accumulator* const rows = deltas.rows();
  for (std::size_t i = 0; form.has_sketches() && i < count; i++) {
    form.Free(rows + i * form.lines());
  }
  count = 0;
  encoded.Clear();
}

}  // namespace millrace::kernel
