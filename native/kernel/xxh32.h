// Streaming XXH32: the digest of all bytes that a generator wrote, independent of the batches that
// they were written in. The TypeScript reference implementation is src/addon/reference/xxh32.ts,
// which also starts and ends the stream. Source: xxHash specification 0.1.1; seed 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/batch.h"
#include "kernel/span.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel {

// Adds bytes to a streaming XXH32. REQUIRES: state has layout::kXxh32Words words, of which at most
// 15 bytes are buffered.
void Xxh32Update(std::uint32_t* state, const std::uint8_t* bytes, std::size_t length);

// Adds the values of a batch to the digest, in row order.
Status GenDigest(Span<std::uint32_t> state, const Rows<layout::RecordBatch>& records);

}  // namespace millrace::kernel
