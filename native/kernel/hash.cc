#include "kernel/hash.h"

#include <cstring>

namespace millrace::kernel {
namespace {

constexpr std::uint32_t Rotate(std::uint32_t x, int bits) {
  return (x << bits) | (x >> (32 - bits));
}

constexpr std::uint32_t Mix(std::uint32_t hash, std::uint32_t block) {
  hash ^= Rotate(block * 0xcc9e2d51U, 15) * 0x1b873593U;
  return Rotate(hash, 13) * 5U + 0xe6546b64U;
}

constexpr std::uint32_t Finish(std::uint32_t hash) {
  hash ^= 8U;  // length in bytes
  hash = (hash ^ (hash >> 16)) * 0x85ebca6bU;
  hash = (hash ^ (hash >> 13)) * 0xc2b2ae35U;
  return hash ^ (hash >> 16);
}

constexpr std::uint32_t Hash(std::uint64_t account_id) {
  const std::uint32_t hash = Mix(kShardHashSeed, static_cast<std::uint32_t>(account_id));
  return Finish(Mix(hash, static_cast<std::uint32_t>(account_id >> 32)));
}

}  // namespace

std::uint32_t ShardHash(std::uint64_t account_id) { return Hash(account_id); }

Status ShardOf(const Rows<layout::EventBatch>& events, std::uint32_t shards,
               Span<std::int32_t> out) {
  if (shards < 1 || shards > 0x7fffffffU) return Status::kBadArgument;
  if (out.size < events.row_count) return Status::kTooFewRows;
  const std::uint64_t* account_id = events.at.account_id;
  const std::uint32_t rows = events.row_count;
  if ((shards & (shards - 1)) == 0) {
    for (std::uint32_t row = 0; row < rows; row++) {
      out.data[row] = static_cast<std::int32_t>(Hash(account_id[row]) & (shards - 1));
    }
    return Status::kOk;
  }
  // Remainder without a division, exact for every 32-bit number. Source: Lemire, Kaser, Kurz,
  // "Faster remainder by direct computation", 2019.
  const std::uint64_t inverse = UINT64_MAX / shards + 1;
  for (std::uint32_t row = 0; row < rows; row++) {
    const std::uint64_t fraction = inverse * Hash(account_id[row]);
    __extension__ using Wide = unsigned __int128;
    out.data[row] = static_cast<std::int32_t>((Wide{fraction} * shards) >> 64);
  }
  return Status::kOk;
}

}  // namespace millrace::kernel
