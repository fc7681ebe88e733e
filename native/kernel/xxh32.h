// XXH32 as a stream: the digest of everything a generator wrote, equal however it was cut into
// batches. The twin is src/addon/reference/xxh32.ts, which also starts and ends the stream.
// Source: xxHash specification 0.1.1; seed 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/batch.h"
#include "kernel/span.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel {

// Adds bytes to a streaming XXH32. REQUIRES: state has layout::kXxh32Words words, at most 15 bytes
// kept.
void Xxh32Update(std::uint32_t* state, const std::uint8_t* bytes, std::size_t length);

// Adds the values of a batch in row order.
Status GenDigest(Span<std::uint32_t> state, const Rows<layout::RecordBatch>& records);

}  // namespace millrace::kernel
