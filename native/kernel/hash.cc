#include "kernel/hash.h"

namespace millrace::kernel {

Status ShardOf(const Rows<layout::EventBatch>& events, std::uint32_t shards,
               Span<std::int32_t> out) {
  if (shards < 1 || shards > 0x7fffffffU) return Status::kBadArgument;
  if (out.size < events.row_count) return Status::kTooFewRows;
  const std::uint64_t* account_id = events.at.account_id;
  const std::uint32_t rows = events.row_count;
  if ((shards & (shards - 1)) == 0) {
    for (std::uint32_t row = 0; row < rows; row++) {
      out.data[row] = static_cast<std::int32_t>(ShardHash(account_id[row]) & (shards - 1));
    }
    return Status::kOk;
  }
  const ShardOwner owner(shards);
  for (std::uint32_t row = 0; row < rows; row++) {
    out.data[row] = static_cast<std::int32_t>(owner(account_id[row]));
  }
  return Status::kOk;
}

}  // namespace millrace::kernel
