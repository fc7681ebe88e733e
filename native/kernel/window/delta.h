// The deltas of one batch as bytes: what the changelog keeps. The form is layout::WindowDeltas.
//
// Every byte is determined: two encodings of the same deltas in the same order are equal, and the
// decoder refuses whatever the encoder would not have written for some deltas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel/batch.h"
#include "kernel/packed.h"
#include "kernel/span.h"
#include "kernel/window/row.h"

namespace millrace::kernel {

// The spare cell of a delta: the number of its slice and, in the high half, what the caller likes.
inline std::uint64_t SliceNumberOf(const Accumulator& delta) { return delta.spare & 0xffffffffU; }

// Room that is enough for an encoding.
std::size_t DeltaBytesMax(std::size_t deltas, std::size_t slices);

// Encodes the rows of all parts, one after the other.
// kTooFewRows when `out` is shorter than DeltaBytesMax, kBadArgument for more than
// layout::kWindowDeltasFormDeltasMax rows or a count above kDeltaCountMax.
// REQUIRES: slice numbers are below slices.size, and last_update_ts lies in the slice.
Status EncodeDeltas(const RowParts& parts, Span<const std::int64_t> slices, std::int64_t slice_ms,
                    Span<std::uint8_t> out, std::size_t* written);

// Decodes one encoding. Returns layout::kDeltaStatus*; the two vectors are filled when it is Ok and
// of no meaning otherwise. Memory is bounded by 26 times the bytes.
std::int32_t DecodeDeltas(Span<const std::uint8_t> bytes, std::int64_t slice_ms,
                          std::vector<std::int64_t>* slices, std::vector<Accumulator>* deltas);

}  // namespace millrace::kernel
