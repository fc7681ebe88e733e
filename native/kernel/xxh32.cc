#include "kernel/xxh32.h"

#include <bit>
#include <cstring>

namespace millrace::kernel {
namespace {

constexpr std::uint32_t kPrime1 = 0x9e3779b1U;
constexpr std::uint32_t kPrime2 = 0x85ebca77U;
constexpr std::size_t kTotalWord = 4;
constexpr std::size_t kLargeWord = 5;
constexpr std::size_t kKeptWord = 6;
constexpr std::size_t kKeptBytesWord = 8;
constexpr std::size_t kStripe = 16;

inline std::uint32_t Lane(std::uint32_t lane, const std::uint8_t* bytes) {
  std::uint32_t word;
  std::memcpy(&word, bytes, sizeof word);
  lane = std::rotl(lane + word * kPrime2, 13) * kPrime1;
  // Keeps the lane in a scalar register: vectorized 32-bit multiplication is slower where it is
  // emulated.
  __asm__("" : "+r"(lane));
  return lane;
}

inline void Stripe(std::uint32_t (&lanes)[4], const std::uint8_t* bytes) {
  lanes[0] = Lane(lanes[0], bytes);
  lanes[1] = Lane(lanes[1], bytes + 4);
  lanes[2] = Lane(lanes[2], bytes + 8);
  lanes[3] = Lane(lanes[3], bytes + 12);
}

}  // namespace

void Xxh32Update(std::uint32_t* state, const std::uint8_t* bytes, std::size_t length) {
  const std::uint8_t* const end = bytes + length;
  auto* keep = reinterpret_cast<std::uint8_t*>(state + kKeptBytesWord);
  std::size_t kept = state[kKeptWord];
  state[kTotalWord] += static_cast<std::uint32_t>(length);
  if (kept + length < kStripe) {
    std::memcpy(keep + kept, bytes, length);
    state[kKeptWord] = static_cast<std::uint32_t>(kept + length);
    return;
  }
  state[kLargeWord] = 1;
  std::uint32_t lanes[4];
  std::memcpy(lanes, state, sizeof lanes);
  if (kept > 0) {
    std::memcpy(keep + kept, bytes, kStripe - kept);
    bytes += kStripe - kept;
    Stripe(lanes, keep);
  }
  for (; static_cast<std::size_t>(end - bytes) >= kStripe; bytes += kStripe) Stripe(lanes, bytes);
  std::memcpy(state, lanes, sizeof lanes);
  kept = static_cast<std::size_t>(end - bytes);
  std::memcpy(keep, bytes, kept);
  state[kKeptWord] = static_cast<std::uint32_t>(kept);
}

Status GenDigest(Span<std::uint32_t> state, const Rows<layout::RecordBatch>& records) {
  if (state.size != static_cast<std::size_t>(layout::kXxh32Words) ||
      state.data[kKeptWord] >= kStripe) {
    return Status::kBadArgument;
  }
  const layout::RecordBatch& c = records.at;
  for (std::uint32_t row = 0; row < records.row_count; row++) {
    const std::uint32_t start = c.value_start[row];
    const std::int32_t length = c.value_length[row];
    if (length <= 0) continue;
    if (!Inside(start, length, records.arena_capacity)) return Status::kSpanOutOfRange;
    Xxh32Update(state.data, c.arena + start, static_cast<std::size_t>(length));
  }
  return Status::kOk;
}

}  // namespace millrace::kernel
