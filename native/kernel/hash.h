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

std::uint32_t ShardHash(std::uint64_t account_id);

// Writes the shard of each row's account_id into out[0, row_count). kTooFewRows when `out` is
// shorter, kBadArgument unless 1 <= shards <= 2^31 - 1.
Status ShardOf(const Rows<layout::EventBatch>& events, std::uint32_t shards,
               Span<std::int32_t> out);

}  // namespace millrace::kernel
