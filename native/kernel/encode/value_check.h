// Check of values that a binary column holds as bytes, which are copied into a payload.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernel/codec/decoder.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel::encode {

// Decodes each value into a batch without columns: the value is one of its type, and with the
// values around it not nested too deep.
class ValueCheck {
 public:
  // @param wraps messages that are written around each value before it is decoded: `decoder` then
  // reads the outermost of them.
  ValueCheck(std::unique_ptr<codec::Decoder> decoder, std::uint32_t wraps)
      : decoder_(std::move(decoder)), wraps_(wraps) {}

  bool IsValue(const std::uint8_t* from, std::uint32_t size);

 private:
  bool Decodes(const std::uint8_t* from, std::size_t size);

  std::unique_ptr<codec::Decoder> decoder_;
  std::uint32_t wraps_;
  std::vector<std::uint8_t> wrapped_;
  // Batch of one row.
  alignas(8) std::uint8_t row_[128] = {};
  std::uint32_t state_[layout::kColumnStateHead] = {};
};

}  // namespace millrace::kernel::encode
