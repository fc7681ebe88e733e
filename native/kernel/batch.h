// Batches as kernels see them: views over a buffer whose header was checked against the buffer's
// real size.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/span.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel {

// Result of a kernel. Invalid data is never a status of a call: it is written to the status column
// of its row.
enum class [[nodiscard]] Status : std::int32_t {
  kOk = 0,
  kNotThisBatch = 1,  // magic, layout id, alignment, or capacities that the buffer does not hold
  kRowsBeyondCapacity = 2,   // the header states more rows than the batch has
  kArenaBeyondCapacity = 3,  // the header states more arena bytes than the batch has
  kTooFewRows = 4,           // the batch to fill, or the output buffer, has too few rows or bytes
  kSpanOutOfRange = 5,       // a span that was passed as an argument leaves its buffer
  kBadArgument = 6,          // a number outside its range
  kNoMemory = 7,   // allocation failed; the object that was being changed must not be used any more
  kTableFull = 8,  // a table has reached its greatest number of keys
  kNotReady = 9,   // a required earlier call is missing
};

// Batch and the numbers of its header. The header is read once, because its memory may be shared
// with another thread.
template <typename L>
struct Rows {
  L at;
  std::uint32_t row_count = 0;
  std::uint32_t row_capacity = 0;
  std::uint32_t arena_used = 0;
  std::uint32_t arena_capacity = 0;
};

// Spans are u32 offsets and i32 lengths, so an arena stays below 2 GiB, as in RecordBatch.create.
inline constexpr std::uint32_t kArenaBytesMax = 0x7fffffffU - 64;

template <typename L>
inline constexpr bool kHasArena = requires(L batch) { batch.arena; };

template <typename L>
Status View(Span<std::uint8_t> bytes, Rows<L>* out) {
  if (bytes.size < sizeof(layout::BatchHeader) ||
      (reinterpret_cast<std::uintptr_t>(bytes.data) & 7U) != 0) {
    return Status::kNotThisBatch;
  }
  const volatile auto* header = reinterpret_cast<const volatile layout::BatchHeader*>(bytes.data);
  if (header->magic != static_cast<std::uint32_t>(layout::kBatchMagic) ||
      header->layout_id != L::kId) {
    return Status::kNotThisBatch;
  }
  out->row_count = header->row_count;
  out->row_capacity = header->row_capacity;
  std::uint64_t size = 0;
  if constexpr (kHasArena<L>) {
    out->arena_used = header->arena_used;
    out->arena_capacity = header->arena_capacity;
    if (out->arena_capacity > kArenaBytesMax) return Status::kNotThisBatch;
    size = L::Bytes(out->row_capacity, out->arena_capacity);
  } else {
    size = L::Bytes(out->row_capacity);
  }
  if (size > bytes.size) return Status::kNotThisBatch;
  if (out->row_count > out->row_capacity) return Status::kRowsBeyondCapacity;
  if (out->arena_used > out->arena_capacity) return Status::kArenaBeyondCapacity;
  out->at = L::Over(bytes.data, out->row_capacity);
  return Status::kOk;
}

// True when [start, start + length) lies in the first `size` bytes. REQUIRES: length >= 0.
inline bool Inside(std::uint32_t start, std::int32_t length, std::uint64_t size) {
  return std::uint64_t{start} + static_cast<std::uint64_t>(length) <= size;
}

}  // namespace millrace::kernel
