#include "kernel/keys.h"

#include <bit>
#include <cstring>
#include <limits>

namespace millrace::kernel {
namespace {

// Rows that are worked on together: their entries stay in the processor's cache until they are
// compared or copied. A probe stops between two blocks; PROBE_BLOCK_ROWS of
// src/addon/key-surface.ts is the same number.
constexpr std::uint32_t kBlockRows = 256;

constexpr std::uint32_t kHeaderWords = layout::KeyEntry::kTextAt / 4;
constexpr std::uint32_t kGeneration = layout::KeyEntry::kGenerationAt / 4;
constexpr std::uint32_t kLength = layout::KeyEntry::kLengthAt / 4;

// Four keys of equal length at a time. The operators are those of one number.
using Four = std::uint32_t __attribute__((vector_size(16)));

template <typename T>
constexpr T Rotate(T x, int bits) {
  return (x << bits) | (x >> (32 - bits));
}

// Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF"; halfsiphash.c.
template <typename T>
struct HalfSip {
  T v0;
  T v1;
  T v2;
  T v3;

  void Round() {
    v0 += v1;
    v1 = Rotate(v1, 5) ^ v0;
    v0 = Rotate(v0, 16);
    v2 += v3;
    v3 = Rotate(v3, 8) ^ v2;
    v0 += v3;
    v3 = Rotate(v3, 7) ^ v0;
    v2 += v1;
    v1 = Rotate(v1, 13) ^ v2;
    v2 = Rotate(v2, 16);
  }
  void Block(T m) {
    v3 ^= m;
    Round();
    v0 ^= m;
  }
  void Rounds() {
    Round();
    Round();
    Round();
  }
};

constexpr std::uint32_t WordsOf(std::uint32_t length) { return (length + 3) / 4; }

// The last block: the rest of the bytes, and the length in its highest byte.
std::uint32_t LastBlock(const std::uint32_t* words, std::uint32_t length) {
  const std::uint32_t rest = length & 3U;
  const std::uint32_t bytes = rest == 0 ? 0 : words[length / 4] & ((1U << (rest * 8)) - 1U);
  return (length << 24) | bytes;
}

template <typename T>
HalfSip<T> Begin(const KeySecret& secret, T zero) {
  return {zero + secret.k0, zero + (secret.k1 ^ 0xeeU), zero + (0x6c796765U ^ secret.k0),
          zero + (0x74656462U ^ secret.k1)};
}

// Ends the hash; returns its halves.
template <typename T>
void Finish(HalfSip<T>* state, T* low, T* high) {
  state->v2 ^= 0xeeU;
  state->Rounds();
  *low = state->v1 ^ state->v3;
  state->v1 ^= 0xddU;
  state->Rounds();
  *high = state->v1 ^ state->v3;
}

void HashFour(const KeySecret& secret, const std::uint32_t* const* keys, std::uint32_t length,
              std::uint32_t* low, std::uint32_t* high) {
  HalfSip<Four> state = Begin(secret, Four{});
  const std::uint32_t whole = length / 4;
  for (std::uint32_t at = 0; at < whole; at++) {
    state.Block(Four{keys[0][at], keys[1][at], keys[2][at], keys[3][at]});
  }
  state.Block(Four{LastBlock(keys[0], length), LastBlock(keys[1], length),
                   LastBlock(keys[2], length), LastBlock(keys[3], length)});
  Four lows;
  Four highs;
  Finish(&state, &lows, &highs);
  std::memcpy(low, &lows, sizeof lows);
  std::memcpy(high, &highs, sizeof highs);
}

// The rows of a block with status OK.
struct Block {
  std::uint32_t count = 0;
  std::uint32_t row[kBlockRows];
  const std::uint32_t* key[kBlockRows];
  std::uint32_t length[kBlockRows];
  std::uint32_t low[kBlockRows];
  std::uint32_t high[kBlockRows];
  std::int64_t latest = std::numeric_limits<std::int64_t>::min();
};

// Collects the rows [from, to). False: a key leaves its buffer.
bool Collect(const Rows<layout::EventBatch>& events, const KeyWords& keys, std::uint32_t from,
             std::uint32_t to, Block* block) {
  const auto* words = reinterpret_cast<const std::uint32_t*>(keys.words.data);
  for (std::uint32_t row = from; row < to; row++) {
    if (events.at.status[row] != layout::kEventStatusOk) continue;
    const std::int32_t at = keys.at.data[row];
    const std::int32_t length = keys.length.data[row];
    if (at < 0 || length < 0) return false;
    const std::uint64_t end =
        static_cast<std::uint64_t>(at) + WordsOf(static_cast<std::uint32_t>(length));
    if (end > keys.words.size) return false;
    const std::uint32_t i = block->count++;
    block->row[i] = row;
    block->key[i] = words + at;
    block->length[i] = static_cast<std::uint32_t>(length);
    if (events.at.event_ts[row] > block->latest) block->latest = events.at.event_ts[row];
  }
  return true;
}

void Hash(const KeySecret& secret, Block* block) {
  std::uint32_t i = 0;
  while (i < block->count) {
    const std::uint32_t length = block->length[i];
    if (i + 4 <= block->count && block->length[i + 1] == length && block->length[i + 2] == length &&
        block->length[i + 3] == length) {
      HashFour(secret, block->key + i, length, block->low + i, block->high + i);
      i += 4;
      continue;
    }
    const KeyHash hash = HashKey(secret, block->key[i], length);
    block->low[i] = hash.low;
    block->high[i] = hash.high;
    i++;
  }
}

bool IsPowerOfTwo(const Span<std::int32_t>& slots) {
  return std::has_single_bit(slots.size) && slots.size <= 0x80000000U;
}

bool Contains(const Span<std::int32_t>& values, std::int32_t value) {
  for (std::size_t i = 0; i < values.size; i++) {
    if (values.data[i] == value) return true;
  }
  return false;
}

// Position of the entry of an id; -1: none. False: an entry leaves the ring.
bool FindEntry(const KeyCacheView& cache, std::int32_t low, std::int32_t high, std::int64_t* at) {
  const auto mask = static_cast<std::uint32_t>(cache.slots.size - 1);
  auto slot = static_cast<std::uint32_t>(low) & mask;
  *at = -1;
  for (std::size_t tried = 0; tried < cache.slots.size; tried++, slot = (slot + 1) & mask) {
    const std::int64_t entry = std::int64_t{cache.slots.data[slot]} - 1;
    if (entry < 0) return true;
    if (static_cast<std::uint64_t>(entry) + kHeaderWords > cache.ring.size) return false;
    const std::int32_t* const found = cache.ring.data + entry;
    if (found[0] != low || found[1] != high) continue;
    *at = entry;
    return true;
  }
  return true;
}

// Reads a number of rows or bytes from a state.
bool CountOf(double value, std::size_t most, std::size_t* out) {
  if (!(value >= 0 && value <= static_cast<double>(most))) return false;
  *out = static_cast<std::size_t>(value);
  return static_cast<double>(*out) == value;
}

}  // namespace

KeyHash HashKey(const KeySecret& secret, const std::uint32_t* words, std::uint32_t length) {
  HalfSip<std::uint32_t> state = Begin(secret, std::uint32_t{0});
  const std::uint32_t whole = length / 4;
  for (std::uint32_t at = 0; at < whole; at++) state.Block(words[at]);
  state.Block(LastBlock(words, length));
  KeyHash hash;
  Finish(&state, &hash.low, &hash.high);
  return hash;
}

Status ProbeKeys(const Rows<layout::EventBatch>& events, const KeyWords& keys, std::uint32_t from,
                 const KeySecret& secret, const KeyCacheView& cache, std::uint32_t bytes_max,
                 Span<std::int32_t> rest, Span<double> state) {
  const std::uint32_t rows = events.row_count;
  if (from > rows || !IsPowerOfTwo(cache.slots)) return Status::kBadArgument;
  if (keys.at.size < rows || keys.length.size < rows || state.size < 4 ||
      rest.size < std::uint64_t{kRestWords} * (rows - from)) {
    return Status::kTooFewRows;
  }
  const auto mask = static_cast<std::uint32_t>(cache.slots.size - 1);
  const auto* ring = reinterpret_cast<const std::uint32_t*>(cache.ring.data);
  std::uint32_t listed = 0;
  std::uint64_t bytes = 0;
  std::int64_t latest = std::numeric_limits<std::int64_t>::min();
  std::uint32_t row = from;
  while (row < rows && bytes < bytes_max) {
    const std::uint32_t to = rows - row < kBlockRows ? rows : row + kBlockRows;
    Block block;
    if (!Collect(events, keys, row, to, &block)) return Status::kSpanOutOfRange;
    Hash(secret, &block);
    // Loops of independent reads hide the latency of the memory.
    std::int32_t entry[kBlockRows];
    for (std::uint32_t i = 0; i < block.count; i++) {
      __builtin_prefetch(cache.slots.data + (block.low[i] & mask));
    }
    for (std::uint32_t i = 0; i < block.count; i++) {
      const auto slot = static_cast<std::uint32_t>(cache.slots.data[block.low[i] & mask]);
      entry[i] = static_cast<std::int32_t>(slot - 1U);
      if (entry[i] >= 0) __builtin_prefetch(cache.ring.data + entry[i]);
    }
    for (std::uint32_t i = 0; i < block.count; i++) {
      const std::uint32_t length = block.length[i];
      const std::uint32_t words = WordsOf(length);
      if (entry[i] >= 0) {
        const auto at = static_cast<std::uint64_t>(entry[i]);
        if (at + kHeaderWords > cache.ring.size) return Status::kSpanOutOfRange;
        const std::uint32_t* found = ring + at;
        if (found[0] == block.low[i] && found[1] == block.high[i] &&
            found[kGeneration] == static_cast<std::uint32_t>(cache.generation) &&
            found[kLength] / 2 == length) {
          if (at + kHeaderWords + words > cache.ring.size) return Status::kSpanOutOfRange;
          if (std::memcmp(found + kHeaderWords, block.key[i], std::size_t{words} * 4) == 0) {
            // Writing only where it changes something keeps the line clean.
            if ((found[kLength] & 1U) == 0) {
              cache.ring.data[at + kLength] = static_cast<std::int32_t>(found[kLength] | 1U);
            }
            events.at.account_id[block.row[i]] =
                (std::uint64_t{block.high[i]} << 32) | block.low[i];
            continue;
          }
        }
      }
      std::int32_t* out = rest.data + std::size_t{kRestWords} * listed++;
      out[0] = static_cast<std::int32_t>(block.row[i]);
      out[1] = static_cast<std::int32_t>(block.low[i]);
      out[2] = static_cast<std::int32_t>(block.high[i]);
      bytes += length;
    }
    if (block.latest > latest) latest = block.latest;
    row = to;
  }
  state.data[0] = row;
  state.data[1] = listed;
  state.data[2] = static_cast<double>(bytes);
  state.data[3] = latest == std::numeric_limits<std::int64_t>::min()
                      ? -std::numeric_limits<double>::infinity()
                      : static_cast<double>(latest);
  return Status::kOk;
}

Status CopyKeys(const KeyIds& ids, std::uint32_t from, std::uint32_t to, const KeyCacheView& cache,
                Span<std::int32_t> generations, const KeyCopies& into, std::uint32_t* stopped) {
  std::size_t missing = 0;
  std::size_t end = 0;
  if (into.ends.size < to || into.state.size < 2) return Status::kTooFewRows;
  if (from > to || !IsPowerOfTwo(cache.slots) ||
      !CountOf(into.state.data[0], into.missing.size, &missing) ||
      !CountOf(into.state.data[1], into.bytes.size, &end) || into.bytes.size > UINT32_MAX) {
    return Status::kBadArgument;
  }
  if (into.missing.size - missing < to - from) return Status::kTooFewRows;
  if (to > from &&
      std::uint64_t{to - 1} * ids.row_words + std::uint64_t{ids.first} + 2 > ids.words.size) {
    return Status::kSpanOutOfRange;
  }
  const auto mask = static_cast<std::uint32_t>(cache.slots.size - 1);
  const auto id_of = [&](std::uint32_t row) {
    return ids.words.data + std::size_t{row} * ids.row_words + ids.first;
  };
  std::uint32_t row = from;
  while (row < to) {
    const std::uint32_t block = to - row < kBlockRows ? to : row + kBlockRows;
    // Loops of independent reads hide the latency of the memory.
    for (std::uint32_t i = row; i < block; i++) {
      __builtin_prefetch(cache.slots.data + (static_cast<std::uint32_t>(id_of(i)[0]) & mask));
    }
    for (std::uint32_t i = row; i < block; i++) {
      const std::int32_t slot = cache.slots.data[static_cast<std::uint32_t>(id_of(i)[0]) & mask];
      if (slot > 0) __builtin_prefetch(cache.ring.data + slot - 1);
    }
    for (; row < block; row++) {
      std::int64_t at = 0;
      if (!FindEntry(cache, id_of(row)[0], id_of(row)[1], &at)) return Status::kSpanOutOfRange;
      if (at < 0 || !Contains(generations, cache.ring.data[at + kGeneration])) {
        into.missing.data[missing++] = static_cast<std::int32_t>(row);
      } else {
        const std::uint32_t length = static_cast<std::uint32_t>(cache.ring.data[at + kLength]) / 2;
        if (static_cast<std::uint64_t>(at) + kHeaderWords + WordsOf(length) > cache.ring.size) {
          return Status::kSpanOutOfRange;
        }
        if (length > into.bytes.size - end) break;
        // The address of an empty array may be null, and arrays may overlap.
        if (length > 0) {
          std::memmove(into.bytes.data + end, cache.ring.data + at + kHeaderWords, length);
        }
        end += length;
      }
      into.ends.data[row] = static_cast<std::uint32_t>(end);
    }
    if (row < block) break;
  }
  into.state.data[0] = static_cast<double>(missing);
  into.state.data[1] = static_cast<double>(end);
  *stopped = row;
  return Status::kOk;
}

}  // namespace millrace::kernel
