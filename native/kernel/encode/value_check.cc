#include "kernel/encode/value_check.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "kernel/encode/encoder.h"

namespace millrace::kernel::encode {
namespace {

// Field 1 of a message, a message.
constexpr std::uint8_t kWrapTag = 1 << 3 | 2;

}  // namespace

bool ValueCheck::IsValue(const std::uint8_t* from, std::uint32_t size) {
  if (size > std::uint32_t{layout::kEncodeLimitPayloadBytes}) return false;
  if (wraps_ == 0) return Decodes(from, size);
  // Tags and lengths of the messages around the value, written from the innermost outwards.
  std::uint8_t heads[6 * layout::kEncodeLimitWraps];
  std::size_t begun = sizeof heads;
  for (std::uint32_t i = 0; i < wraps_; i++) {
    std::uint8_t length[10];
    const std::uint8_t* end = PutVarint(length, sizeof heads - begun + size);
    begun -= static_cast<std::size_t>(end - length) + 1;
    heads[begun] = kWrapTag;
    std::copy(static_cast<const std::uint8_t*>(length), end, heads + begun + 1);
  }
  wrapped_.assign(heads + begun, std::end(heads));
  wrapped_.insert(wrapped_.end(), from, from + size);
  return Decodes(wrapped_.data(), wrapped_.size());
}

bool ValueCheck::Decodes(const std::uint8_t* from, std::size_t size) {
  constexpr std::size_t kStatusAt = 64;
  const std::uint32_t start = 0;
  const auto length = static_cast<std::int32_t>(size);
  state_[layout::kColumnStateRowCount] = 0;
  state_[layout::kColumnStateRowCapacity] = 1;
  std::uint32_t rows = 0;
  const Status status = decoder_->Decode({{from, size}, {&start, 1}, {&length, 1}}, 0, 1, false,
                                         {row_, sizeof row_}, {state_, std::size(state_)}, &rows);
  return status == Status::kOk && rows == 1 && row_[kStatusAt] == layout::kColumnStatusOk;
}

}  // namespace millrace::kernel::encode
