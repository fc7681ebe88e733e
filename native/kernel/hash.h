// The shard hash: MurmurHash3 x86_32 of the eight little-endian bytes of an account_id, as an
// unsigned number, modulo the shards. docs/reference/shard-hash.md is the definition, with vectors.
#pragma once

#include <cstdint>

#include "kernel/batch.h"
#include "kernel/span.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel {

// Part of the published definition; src/addon/surface.ts has the same number.
inline constexpr std::uint32_t kShardHashSeed = 0x4d524331U;

namespace murmur {

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

}  // namespace murmur

constexpr std::uint32_t ShardHash(std::uint64_t account_id) {
  const std::uint32_t low = murmur::Mix(kShardHashSeed, static_cast<std::uint32_t>(account_id));
  return murmur::Finish(murmur::Mix(low, static_cast<std::uint32_t>(account_id >> 32)));
}

// Shard of a key: the hash modulo the shards, without a division, exact for every 32-bit number.
// Source: Lemire, Kaser, Kurz, "Faster remainder by direct computation", 2019.
// REQUIRES: shards >= 1.
class ShardOwner {
 public:
  explicit constexpr ShardOwner(std::uint32_t shards)
      : shards_(shards), inverse_(UINT64_MAX / shards + 1) {}
  constexpr std::uint32_t operator()(std::uint64_t account_id) const {
    const std::uint64_t fraction = inverse_ * ShardHash(account_id);
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint32_t>((Wide{fraction} * shards_) >> 64);
  }

 private:
  std::uint32_t shards_;
  std::uint64_t inverse_;
};

// Writes the shard of each row's account_id into out[0, row_count). kTooFewRows when `out` is
// shorter, kBadArgument unless 1 <= shards <= 2^31 - 1.
Status ShardOf(const Rows<layout::EventBatch>& events, std::uint32_t shards,
               Span<std::int32_t> out);

}  // namespace millrace::kernel
