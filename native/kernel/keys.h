// Ids of variable-length keys: HalfSipHash-1-3 of each key of an event batch, and the search of its
// entry in the cache of keys (src/engine/keys/cache.ts), whose layout is layout::KeyEntry.
#pragma once

#include <cstdint>

#include "kernel/batch.h"
#include "kernel/span.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel {

// Keys of the rows of a batch: each begins at word at[row], and is followed by zeros up to a whole
// word.
struct KeyWords {
  Span<std::int32_t> at;
  Span<std::int32_t> length;
  Span<std::int32_t> words;
};

// The cache of keys: position of an entry in `ring`, in words, plus 1; 0: empty.
struct KeyCacheView {
  // A power of two of slots.
  Span<std::int32_t> slots;
  Span<std::int32_t> ring;
  // Generation whose entries are used.
  std::int32_t generation = 0;
};

struct KeySecret {
  std::uint32_t k0 = 0;
  std::uint32_t k1 = 0;
};

struct KeyHash {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
};

// REQUIRES: the words of the key are accessible.
KeyHash HashKey(const KeySecret& secret, const std::uint32_t* words, std::uint32_t length);

// A row without an entry of the generation in the first slot of its search.
struct RestRow {
  std::int32_t row = 0;
  std::int32_t low = 0;
  std::int32_t high = 0;
};
inline constexpr std::uint32_t kRestWords = 3;

// Sets account_id of each row with status OK from row `from` on whose key is cached, marks the
// entry as used, and lists the other ones in `rest`, kRestWords cells a row. Stops after a block
// of rows once the keys of the listed rows have `bytes_max` bytes. Writes to state[0] the row at
// which it stopped, to state[1] the number of listed rows, to state[2] their bytes, and to state[3]
// the greatest event_ts of all rows with status OK, -Infinity if there is none.
// kTooFewRows: keys, rest or state are too short. kSpanOutOfRange: a key or an entry leaves its
// buffer. kBadArgument: `from` is after the last row, or the slots are no power of two.
Status ProbeKeys(const Rows<layout::EventBatch>& events, const KeyWords& keys, std::uint32_t from,
                 const KeySecret& secret, const KeyCacheView& cache, std::uint32_t bytes_max,
                 Span<std::int32_t> rest, Span<double> state);

// Ids of the rows of a page: low and high word, from word `first` of a row on.
struct KeyIds {
  Span<std::int32_t> words;
  std::uint32_t first = 0;
  std::uint32_t row_words = 0;
};

// Keys of rows, one after the other. state[0]: number of missing rows so far; state[1]: end of the
// last key. ends[row] is the end of the key of a row; a missing one has no bytes.
struct KeyCopies {
  Span<std::uint8_t> bytes;
  Span<std::uint32_t> ends;
  Span<std::int32_t> missing;
  Span<double> state;
};

// Copies the cached keys of the rows [from, to) behind those of earlier rows, and lists the rows
// without an entry of one of the generations. `stopped` is `to`, or the row whose key has no room;
// a later call continues there.
// kTooFewRows: ends, missing or state are too short. kSpanOutOfRange: an id or an entry leaves its
// buffer. kBadArgument: a number outside its range, or the slots are no power of two.
Status CopyKeys(const KeyIds& ids, std::uint32_t from, std::uint32_t to, const KeyCacheView& cache,
                Span<std::int32_t> generations, const KeyCopies& into, std::uint32_t* stopped);

}  // namespace millrace::kernel
