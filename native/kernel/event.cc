#include "kernel/event.h"

#include <bit>
#include <cstring>

namespace millrace::kernel {
namespace {

static_assert(std::endian::native == std::endian::little, "columns and events are little-endian");

template <typename T>
T Load(const std::uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

Status DecodeEvents(const Rows<layout::RecordBatch>& records, Rows<layout::EventBatch>* into,
                    std::uint32_t* decoded) {
  using layout::Event;
  if (into->row_capacity < records.row_count) return Status::kTooFewRows;
  const std::uint32_t rows = records.row_count;
  const layout::RecordBatch& in = records.at;
  const layout::EventBatch& out = into->at;
  std::uint32_t good = 0;
  for (std::uint32_t row = 0; row < rows; row++) {
    const std::uint32_t start = in.value_start[row];
    const std::int32_t length = in.value_length[row];
    if (length == static_cast<std::int32_t>(Event::kBytes) &&
        Inside(start, length, records.arena_used)) [[likely]] {
      const std::uint8_t* event = in.arena + start;
      out.account_id[row] = Load<std::uint64_t>(event + Event::kAccountIdAt);
      out.value[row] = Load<std::int64_t>(event + Event::kValueAt);
      out.event_ts[row] = Load<std::int64_t>(event + Event::kEventTsAt);
      out.seq[row] = Load<std::uint64_t>(event + Event::kSeqAt);
      out.status[row] = layout::kEventStatusOk;
      good++;
    } else {
      out.account_id[row] = 0;
      out.value[row] = 0;
      out.event_ts[row] = 0;
      out.seq[row] = 0;
      out.status[row] = static_cast<std::uint8_t>(length < 0 ? layout::kEventStatusNull
                                                             : layout::kEventStatusBadLength);
    }
  }
  out.header->row_count = rows;
  *decoded = good;
  return Status::kOk;
}

}  // namespace millrace::kernel
