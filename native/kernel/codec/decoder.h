// Decoder of payloads into columns: what the programs of every format have in common.
#pragma once

#include <cstdint>

#include "kernel/batch.h"
#include "kernel/codec/text.h"
#include "kernel/span.h"

namespace millrace::kernel::codec {

// Payloads in one buffer. A length below 0 is a null value.
struct Payloads {
  Span<const std::uint8_t> bytes;
  Span<const std::uint32_t> start;
  Span<const std::int32_t> length;
};

// kSpanOutOfRange unless the payloads [from, to) exist and lie inside their buffer.
inline Status CheckPayloads(const Payloads& payloads, std::uint32_t from, std::uint32_t to) {
  if (from > to || to > payloads.start.size || to > payloads.length.size) {
    return Status::kSpanOutOfRange;
  }
  for (std::uint32_t i = from; i < to; i++) {
    const std::int32_t length = payloads.length.data[i];
    if (length >= 0 && !Inside(payloads.start.data[i], length, payloads.bytes.size)) {
      return Status::kSpanOutOfRange;
    }
  }
  return Status::kOk;
}

// Last position from which a short text behind its length of one byte may be read as a whole, or
// nullptr: its bytes may reach into the payloads behind it.
inline Bytes LastShortText(const Payloads& payloads) {
  const std::size_t size = payloads.bytes.size;
  return size > kShortText ? payloads.bytes.data + (size - kShortText - 1) : nullptr;
}

// Opened program. Not thread-safe: it has the state of the call in progress.
class Decoder {
 public:
  virtual ~Decoder() = default;

  // Appends rows for the payloads [from, to) to the batch in `buffer` and `state`, and stops before
  // a row that lacks room. `rows` is the number of rows appended; if it is smaller, the state names
  // the buffer and the bytes that it must hold. With `skips` the first row is appended without
  // values, as TOO_LARGE. kTooFewRows when the batch has fewer free rows; nothing is appended then.
  virtual Status Decode(const Payloads& payloads, std::uint32_t from, std::uint32_t to, bool skips,
                        Span<std::uint8_t> buffer, Span<std::uint32_t> state,
                        std::uint32_t* rows) = 0;
};

}  // namespace millrace::kernel::codec
