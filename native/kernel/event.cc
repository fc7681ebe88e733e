#include "kernel/event.h"

#include <algorithm>
#include <atomic>
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

// Number of rows at which the bytes of an event have arrived in the cache. Another thread wrote
// them last, so that the first read of each misses.
constexpr std::uint32_t kPrefetchAhead = 16;

// Rows that a thread decodes together.
constexpr std::uint32_t kChunkRows = 1024;

// Decodes the rows [from, to), and returns the number of those with status OK.
std::uint32_t DecodeRows(const Rows<layout::RecordBatch>& records, const layout::EventBatch& out,
                         std::uint32_t from, std::uint32_t to) {
  using layout::Event;
  const layout::RecordBatch& in = records.at;
  std::uint32_t good = 0;
  for (std::uint32_t row = from; row < to; row++) {
    if (row + kPrefetchAhead < to) {
      const std::uint8_t* const next = in.arena + in.value_start[row + kPrefetchAhead];
      __builtin_prefetch(next);
      __builtin_prefetch(next + Event::kSeqAt);
    }
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
  return good;
}

}  // namespace

Status DecodeEvents(const Rows<layout::RecordBatch>& records, Rows<layout::EventBatch>* into,
                    std::uint32_t* decoded) {
  if (into->row_capacity < records.row_count) return Status::kTooFewRows;
  *decoded = DecodeRows(records, into->at, 0, records.row_count);
  into->at.header->row_count = records.row_count;
  return Status::kOk;
}

Status DecodeEvents(const Rows<layout::RecordBatch>& records, Workers* workers,
                    Rows<layout::EventBatch>* into, std::uint32_t* decoded) {
  const std::uint32_t rows = records.row_count;
  if (!Workers::IsWorth(rows)) return DecodeEvents(records, into, decoded);
  if (into->row_capacity < rows) return Status::kTooFewRows;
  std::atomic<std::uint32_t> good{0};
  workers->Run((rows + kChunkRows - 1) / kChunkRows, Workers::Work::kDecode,
               [&](std::uint32_t chunk) {
                 const std::uint32_t from = chunk * kChunkRows;
                 good += DecodeRows(records, into->at, from, std::min(rows, from + kChunkRows));
               });
  *decoded = good;
  into->at.header->row_count = rows;
  return Status::kOk;
}

}  // namespace millrace::kernel
