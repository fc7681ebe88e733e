// Input of the fuzz drivers of encode programs. Grammar: u16 words of the column table, u16 words
// of code, u16 words of the tables, u16 bytes of the batch, u8 rows, u16 bytes of the frames, u8
// bytes of the prefix; then table, code and tables; then the words of the batch's state and its
// bytes. Missing input reads as zero.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernel/encode/encoder.h"
#include "test/input.h"

namespace millrace::test {

using kernel::Status;
using kernel::encode::Encoder;

inline constexpr std::uint32_t kFrameBytesMax = 1 << 20;
inline constexpr int kFrameGrowthsMax = 64;

using OpenEncoder = Status (*)(kernel::Span<const std::int32_t> code,
                               kernel::Span<const std::int32_t> tables,
                               kernel::Span<const std::int32_t> table,
                               std::unique_ptr<Encoder>* out, std::int64_t* bad);

inline std::vector<std::int32_t> TakeList(Input* input, std::size_t count) {
  std::vector<std::int32_t> words(count);
  for (std::int32_t& word : words) word = input->Take<std::int32_t>();
  return words;
}

// Frames of one call, each buffer alone in its memory.
class FrameBuffers {
 public:
  FrameBuffers(std::uint32_t rows, std::uint32_t bytes)
      : bytes_(std::make_unique<Buffer>(bytes)),
        offsets_(rows + 1),
        status_(rows),
        error_column_(rows) {}

  kernel::encode::Frames frames() {
    return {bytes_->span(),
            {offsets_.data(), offsets_.size()},
            {status_.data(), status_.size()},
            {error_column_.data(), error_column_.size()},
            {state_, layout::kFramesStateCount}};
  }

  // Grows the bytes as the kernel asked. False if they would become too many.
  bool Grow() {
    const std::uint32_t need = state_[layout::kFramesStateNeedBytes];
    MILLRACE_CHECK(need > bytes_->size());
    if (need > kFrameBytesMax) return false;
    const auto old = std::move(bytes_);
    bytes_ = std::make_unique<Buffer>(need);
    if (old->size() > 0) std::memcpy(bytes_->data(), old->data(), old->size());
    return true;
  }

  void Check(std::uint32_t rows, std::size_t columns, std::size_t prefix) const {
    MILLRACE_CHECK(state_[layout::kFramesStateRowCount] == rows);
    for (std::uint32_t row = 0; row < rows; row++) {
      const std::uint32_t size = offsets_[row + 1] - offsets_[row];
      MILLRACE_CHECK(offsets_[row] <= offsets_[row + 1] && offsets_[row + 1] <= bytes_->size());
      MILLRACE_CHECK(status_[row] <= layout::kEncodeStatusNoValue);
      MILLRACE_CHECK(status_[row] == layout::kEncodeStatusOk ? size >= prefix : size == 0);
      MILLRACE_CHECK(error_column_[row] == 0 || error_column_[row] < columns);
    }
  }

 private:
  std::unique_ptr<Buffer> bytes_;
  std::vector<std::uint32_t> offsets_;
  std::vector<std::uint8_t> status_;
  std::vector<std::uint32_t> error_column_;
  std::uint32_t state_[layout::kFramesStateCount] = {};
};

// Opens a program and encodes the rows of a batch, all from the input.
inline int FuzzEncoder(OpenEncoder open, const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const auto table_words = input.Take<std::uint16_t>();
  const auto code_words = input.Take<std::uint16_t>();
  const auto tables_words = input.Take<std::uint16_t>();
  const auto batch_bytes = input.Take<std::uint16_t>();
  const auto rows = input.Take<std::uint8_t>();
  const auto frame_bytes = input.Take<std::uint16_t>();
  const auto prefix_bytes = input.Take<std::uint8_t>();
  if (table_words + code_words + tables_words > 4096) return 0;
  const std::vector<std::int32_t> table = TakeList(&input, table_words);
  const std::vector<std::int32_t> code = TakeList(&input, code_words);
  const std::vector<std::int32_t> tables = TakeList(&input, tables_words);
  std::unique_ptr<Encoder> encoder;
  std::int64_t bad = -1;
  const Status status = open({code.data(), code.size()}, {tables.data(), tables.size()},
                             {table.data(), table.size()}, &encoder, &bad);
  MILLRACE_CHECK((status == Status::kOk) == (encoder != nullptr));
  if (encoder == nullptr) return 0;
  const std::size_t columns = table.size() / layout::kColumnCellCount;
  std::vector<std::uint32_t> state(layout::kColumnStateHead +
                                   columns * (1 + 2 * layout::kColumnSlotCount));
  for (std::uint32_t& word : state) word = input.Take<std::uint32_t>();
  Buffer batch(batch_bytes);
  input.TakeBytes(batch.data(), batch.size());
  Buffer prefix(prefix_bytes);
  FrameBuffers into(rows, frame_bytes);
  std::uint32_t from = 0;
  for (int growths = 0; growths < kFrameGrowthsMax && from < rows; growths++) {
    std::uint32_t done = 0;
    const Status encoded =
        encoder->Encode(batch.span(), {state.data(), state.size()}, from, rows,
                        {prefix.data(), prefix.size()}, false, into.frames(), &done);
    if (encoded != Status::kOk) return 0;
    from += done;
    into.Check(from, columns, prefix.size());
    if (from < rows && !into.Grow()) return 0;
  }
  return 0;
}

}  // namespace millrace::test
