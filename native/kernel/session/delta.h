// The partial sessions of one batch as bytes: what the changelog keeps. The form is
// layout::SessionDeltas.
//
// As for window deltas every byte is determined: the decoder refuses whatever the encoder would not
// have written for some partial sessions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel/batch.h"
#include "kernel/packed.h"
#include "kernel/span.h"
#include "kernel/window/row.h"

namespace millrace::kernel {

// Room that is enough for an encoding.
std::size_t SessionDeltaBytesMax(std::size_t deltas);

// Encodes the rows of all parts, one after the other. kTooFewRows when `out` is shorter than
// SessionDeltaBytesMax, kBadArgument for more than layout::kSessionDeltasFormDeltasMax rows or a
// count above kDeltaCountMax.
// REQUIRES: every row is a session, and one of one event starts with that.
Status EncodeSessionDeltas(const RowParts& parts, std::int64_t gap_ms, Span<std::uint8_t> out,
                           std::size_t* written);

// Decodes one encoding. Returns layout::kDeltaStatus*; `deltas` is of no meaning unless Ok. Rows
// that no events make are refused; memory is bounded by 32 times the bytes.
std::int32_t DecodeSessionDeltas(Span<const std::uint8_t> bytes, std::int64_t gap_ms,
                                 std::vector<Accumulator>* deltas);

}  // namespace millrace::kernel
