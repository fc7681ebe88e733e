// Column batch of the fuzz drivers of codec programs, and the call that fills it.
#pragma once

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "kernel/codec/decoder.h"
#include "test/input.h"

namespace millrace::test {

using kernel::Status;
using kernel::codec::Decoder;

inline constexpr std::uint32_t kSlots = layout::kColumnSlotCount;
inline constexpr std::uint32_t kHead = layout::kColumnStateHead;
inline constexpr int kGrowthsMax = 64;
inline constexpr std::uint32_t kBufferBytesMax = 1 << 20;

// Column batch whose buffers have exactly the capacities that the fuzzer chose.
class Batch {
 public:
  Batch(std::size_t columns, std::uint32_t rows, std::uint32_t bytes)
      : columns_(columns), rows_(rows), capacity_(columns * kSlots, bytes) {
    Place();
  }

  kernel::Span<std::uint8_t> buffer() { return {buffer_->data(), buffer_->size()}; }
  kernel::Span<std::uint32_t> state() { return {state_.data(), state_.size()}; }
  std::uint8_t status(std::uint32_t row) const { return buffer_->data()[Errors() + row]; }
  std::uint32_t error_at(std::uint32_t row) const {
    return reinterpret_cast<std::uint32_t*>(buffer_->data())[row];
  }

  // Grows the buffer that the kernel asked for. False if it would become too large.
  bool Grow() {
    const std::uint32_t slot = state_[layout::kColumnStateNeedSlot];
    const std::uint32_t need = state_[layout::kColumnStateNeedBytes];
    MILLRACE_CHECK(slot < capacity_.size() && need > capacity_[slot]);
    if (need > kBufferBytesMax) return false;
    const auto old = std::move(buffer_);
    const std::vector<std::uint32_t> places = state_;
    const std::vector<std::uint32_t> capacities = capacity_;
    capacity_[slot] = need * 2;
    Place();
    std::memcpy(buffer_->data(), old->data(), Errors() + layout::Align(rows_));
    for (std::size_t i = 0; i < capacities.size(); i++) {
      std::memcpy(buffer_->data() + state_[kHead + columns_ + 2 * i],
                  old->data() + places[kHead + columns_ + 2 * i], capacities[i]);
    }
    for (std::size_t i = 0; i < kHead + columns_; i++) state_[i] = places[i];
    return true;
  }

 private:
  std::size_t Errors() const {
    return static_cast<std::size_t>(layout::Align(rows_ * sizeof(std::uint32_t)));
  }

  void Place() {
    state_.assign(kHead + columns_ * (1 + 2 * kSlots), 0);
    state_[layout::kColumnStateRowCapacity] = rows_;
    std::size_t at = Errors() + static_cast<std::size_t>(layout::Align(rows_));
    std::size_t end = at;
    for (std::size_t i = 0; i < capacity_.size(); i++) {
      state_[kHead + columns_ + 2 * i] = static_cast<std::uint32_t>(at);
      state_[kHead + columns_ + 2 * i + 1] = capacity_[i];
      end = at + capacity_[i];
      at += (capacity_[i] + 7) / 8 * 8;
    }
    buffer_ = std::make_unique<Buffer>(end);
  }

  std::size_t columns_;
  std::uint32_t rows_;
  std::vector<std::uint32_t> capacity_;
  std::vector<std::uint32_t> state_;
  std::unique_ptr<Buffer> buffer_;
};

// Decodes one payload, alone in its memory, and grows the batch as needed. False when the batch has
// become too large.
inline bool DecodeRow(Decoder* decoder, Buffer* payload, std::uint32_t row, Batch* batch) {
  const std::uint32_t start = 0;
  const auto length = static_cast<std::int32_t>(payload->size());
  for (int growths = 0; growths < kGrowthsMax; growths++) {
    std::uint32_t rows = 0;
    const Status status =
        decoder->Decode({{payload->data(), payload->size()}, {&start, 1}, {&length, 1}}, 0, 1,
                        false, batch->buffer(), batch->state(), &rows);
    MILLRACE_CHECK(status == Status::kOk);
    if (rows == 1) {
      MILLRACE_CHECK(batch->state().data[layout::kColumnStateRowCount] == row + 1);
      MILLRACE_CHECK(batch->status(row) <= layout::kColumnStatusIncompatible);
      MILLRACE_CHECK(batch->error_at(row) <= payload->size());
      return true;
    }
    if (!batch->Grow()) return false;
  }
  return false;
}

inline std::vector<std::int32_t> TakeWords(Input* input, std::size_t count) {
  std::vector<std::int32_t> words(count);
  for (std::int32_t& word : words) word = input->Take<std::int32_t>();
  return words;
}

}  // namespace millrace::test
