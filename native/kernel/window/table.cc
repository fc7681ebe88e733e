#include "kernel/window/table.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace millrace::kernel {
namespace {

// Number of rows that are prefetched together: the rows of a range lie anywhere in memory.
constexpr std::size_t kAtOnce = 32;

}  // namespace

Status AccumulatorTable::Open(std::size_t keys_expected, const Pools& pools, const RowForm& form) {
  pools_ = pools;
  form_ = &form;
  lines_ = form.lines();
  segment_bits_ = kSegmentBits - SegmentShift(form);
  const Status status = index_.Open(keys_expected, pools.index);
  if (status != Status::kOk) return status;
  return AddSegment(std::clamp(std::bit_ceil(keys_expected), KeyIndex::kSlotsMin, segment_rows()));
}

Status AccumulatorTable::Reserve(std::size_t keys_expected) {
  if (count_ > 0) return Status::kOk;
  Status status = index_.Reserve(keys_expected);
  while (status == Status::kOk && capacity_ < keys_expected) status = AddRows();
  return status;
}

Status AccumulatorTable::AddSegment(std::size_t rows) {
  RowMemory memory;
  const std::size_t lines = rows * lines_;
  const bool is_pooled = pools_.rows != nullptr && lines == pools_.rows->rows();
  const Status status = is_pooled ? pools_.rows->Acquire(&memory) : memory.Allocate(lines);
  if (status != Status::kOk) return status;
  segments_.push_back(std::move(memory));
  capacity_ += rows;
  return Status::kOk;
}

Status AccumulatorTable::AddRows() {
  if (capacity_ >= segment_rows()) return AddSegment(segment_rows());
  const Status status = segments_.back().Double();
  if (status == Status::kOk) capacity_ *= 2;
  return status;
}

std::size_t AccumulatorTable::Copy(std::uint64_t* cursor, Span<Accumulator> into) const {
  std::size_t copied = 0;
  const std::size_t lines = form_->page_lines();
  for (; *cursor < count_ && (copied + 1) * lines <= into.size; ++*cursor) {
    form_->ToPage(RowAt(*cursor), into.data + copied++ * lines);
  }
  return copied;
}

bool AccumulatorTable::CopyRange(std::uint32_t range, std::uint64_t* cursor, Span<Accumulator> into,
                                 std::size_t* copied) const {
  const Accumulator* rows[kAtOnce];
  std::size_t count = 0;
  const std::size_t lines = form_->page_lines();
  const auto flush = [&] {
    for (std::size_t i = 0; i < count; i++) {
      form_->ToPage(rows[i], into.data + (*copied)++ * lines);
    }
    count = 0;
  };
  const bool is_through = index_.VisitRange(range, cursor, [&](const KeyEntry& entry) {
    if ((*copied + count + 1) * lines > into.size) return false;
    rows[count] = RowAt(entry.number - 1);
    __builtin_prefetch(rows[count]);
    if (++count == kAtOnce) flush();
    return true;
  });
  flush();
  return is_through;
}

void AccumulatorTable::FreeRows() {
  // A table without an open form, or one that was moved from, has no segments.
  if (segments_.empty() || !form_->has_sketches()) return;
  for (std::size_t i = 0; i < count_; i++) form_->Free(RowAt(i));
}

void AccumulatorTable::Release(std::vector<RowMemory>* rows, std::vector<RowMemory>* index) {
  // Behind the last row a segment may hold rows of its former use, and whole segments may be
  // unused.
  std::size_t left = count_;
  for (RowMemory& memory : segments_) {
    const std::size_t held = std::min(left, memory.size() / lines_);
    memory.Hold(held * lines_);
    left -= held;
    rows->push_back(std::move(memory));
  }
  segments_.clear();
  index_.Release(index);
}

}  // namespace millrace::kernel
