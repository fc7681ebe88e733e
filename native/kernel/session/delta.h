// Encoding of the partial sessions of one batch for the changelog. The layout is
// layout::SessionDeltas.
//
// Every byte is determined, as for window deltas: the decoder refuses bytes that the encoder would
// not have written for any partial sessions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel/batch.h"
#include "kernel/packed.h"
#include "kernel/span.h"
#include "kernel/window/row.h"

namespace millrace::kernel {

// Upper bound of the bytes of an encoding.
std::size_t SessionDeltaBytesMax(const RowParts& parts);

// Encodes the rows of all parts in order. kTooFewRows when `out` is shorter than
// SessionDeltaBytesMax, kBadArgument for more than layout::kSessionDeltasFormDeltasMax rows or a
// count above kDeltaCountMax. REQUIRES: every row is a session; a session of one event starts at
// that event.
Status EncodeSessionDeltas(const RowParts& parts, std::int64_t gap_ms, Span<std::uint8_t> out,
                           std::size_t* written);

// Encodes the columns of one shard, and joins those of all shards to the encoding of all rows.
// `least` is the least start in all shards, 0 without rows. REQUIRES: as EncodeSessionDeltas; `out`
// has room for SessionDeltaBytesMax of all rows.
void EncodeSessionShard(const RowParts& parts, std::int64_t least, ShardColumns* into);
Status JoinSessionDeltas(Span<const ShardColumns* const> shards, std::int64_t least,
                         std::int64_t gap_ms, std::uint8_t* out, std::size_t* written);

// Decodes one encoding and returns layout::kDeltaStatus*. `deltas` is valid only for
// kDeltaStatusOk; a delta takes the lines of a stored row, whose blocks the caller frees, whatever
// the verdict. Heads that no events can produce
// are refused; memory is bounded by 32 times the bytes, or 56 times for rows with cells.
std::int32_t DecodeSessionDeltas(Span<const std::uint8_t> bytes, std::int64_t gap_ms,
                                 const RowForm& form, std::vector<Accumulator>* deltas);

}  // namespace millrace::kernel
