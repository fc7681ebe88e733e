// Encoding of the deltas of one batch for the changelog. The layout is layout::WindowDeltas.
//
// Every byte is determined: two encodings of the same deltas in the same order are equal, and the
// decoder refuses bytes that the encoder would not have written for any deltas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel/batch.h"
#include "kernel/packed.h"
#include "kernel/span.h"
#include "kernel/window/row.h"

namespace millrace::kernel {

// Slice number of a delta: the low half of its spare cell. The caller may use the high half.
inline std::uint64_t SliceNumberOf(const Accumulator& delta) { return delta.spare & 0xffffffffU; }

// Upper bound of the bytes of an encoding.
std::size_t DeltaBytesMax(const RowParts& parts, std::size_t slices);

// Encodes the rows of all parts in order. kTooFewRows when `out` is shorter than DeltaBytesMax,
// kBadArgument for more than layout::kWindowDeltasFormDeltasMax rows or a count above
// kDeltaCountMax. REQUIRES: slice numbers are below slices.size, and last_update_ts lies in the
// slice.
Status EncodeDeltas(const RowParts& parts, Span<const std::int64_t> slices, std::int64_t slice_ms,
                    Span<std::uint8_t> out, std::size_t* written);

// Encodes the columns of one shard, and joins those of all shards to the encoding of all rows.
// REQUIRES: as EncodeDeltas; the slices are those of the whole batch; `out` has room for
// DeltaBytesMax of all rows.
void EncodeShard(const RowParts& parts, Span<const std::int64_t> slices, ShardColumns* into);
Status JoinDeltas(Span<const ShardColumns* const> shards, Span<const std::int64_t> slices,
                  std::int64_t slice_ms, std::uint8_t* out, std::size_t* written);

// Decodes one encoding and returns layout::kDeltaStatus*. The two vectors are valid only for
// kDeltaStatusOk; a delta takes the lines of a stored row, whose blocks the caller frees, whatever
// the verdict. Memory is bounded by 26 times the
// bytes, or 48 times for rows with cells.
std::int32_t DecodeDeltas(Span<const std::uint8_t> bytes, std::int64_t slice_ms,
                          const RowForm& form, std::vector<std::int64_t>* slices,
                          std::vector<Accumulator>* deltas);

}  // namespace millrace::kernel
