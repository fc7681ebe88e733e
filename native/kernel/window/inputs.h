// Inputs of a merge of sorted pages, and which of them has the least row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernel/span.h"
#include "kernel/window/row.h"

namespace millrace::kernel {

// Rows [at, end) of a page. Rows follow after the page unless it is the last one.
struct MergeInput {
  const Accumulator* at = nullptr;
  const Accumulator* end = nullptr;
  bool last = false;

  // True if the next row is on a page that is not there.
  bool starved() const { return at == end && !last; }
};

// Reads the inputs from pages and their cursors, three cells each: the next row, the number of
// rows, 1 for the last page. False if a cursor leaves its page.
inline bool ReadInputs(Span<const Span<const Accumulator>> pages, Span<std::uint32_t> cursors,
                       std::size_t lines, std::vector<MergeInput>* inputs) {
  inputs->resize(pages.size);
  for (std::size_t i = 0; i < pages.size; i++) {
    const std::uint32_t* const cells = cursors.data + i * 3;
    const Span<const Accumulator>& page = pages.data[i];
    if (cells[0] > cells[1] || cells[1] > page.size / lines || cells[2] > 1) return false;
    (*inputs)[i] = {page.data + cells[0] * lines, page.data + cells[1] * lines, cells[2] == 1};
  }
  return true;
}

// Writes the next row of each input to its cursor.
inline void WriteCursors(const std::vector<MergeInput>& inputs,
                         Span<const Span<const Accumulator>> pages, std::size_t lines,
                         Span<std::uint32_t> cursors) {
  for (std::size_t i = 0; i < inputs.size(); i++) {
    const auto read = static_cast<std::size_t>(inputs[i].at - pages.data[i].data);
    cursors.data[i * 3] = static_cast<std::uint32_t>(read / lines);
  }
}

// Heap of the inputs that have rows, by the key of their next row; of equal keys the input with the
// least number is first. Key is copied and compared with <.
template <typename Key>
class LeastInput {
 public:
  struct Entry {
    Key key;
    std::uint32_t input;
  };

  explicit LeastInput(std::size_t inputs) { entries_.reserve(inputs); }

  bool empty() const { return entries_.empty(); }
  // REQUIRES: not empty.
  const Entry& first() const { return entries_.front(); }

  // Adds an input, each at most once.
  void Add(Key key, std::size_t input) {
    entries_.push_back({key, static_cast<std::uint32_t>(input)});
    for (std::size_t at = entries_.size() - 1; at > 0;) {
      const std::size_t parent = (at - 1) / 2;
      if (!IsBefore(entries_[at], entries_[parent])) break;
      std::swap(entries_[at], entries_[parent]);
      at = parent;
    }
  }
  // Sets the key of the first input to that of its next row, which is not before the last one.
  void Advance(Key key) {
    entries_.front().key = key;
    Sink();
  }
  // Removes the first input, which has no more rows.
  void Remove() {
    entries_.front() = entries_.back();
    entries_.pop_back();
    if (!entries_.empty()) Sink();
  }

 private:
  static bool IsBefore(const Entry& a, const Entry& b) {
    return a.key < b.key || (!(b.key < a.key) && a.input < b.input);
  }
  // Moves the first entry to its place.
  void Sink() {
    const std::size_t size = entries_.size();
    const Entry moved = entries_.front();
    std::size_t at = 0;
    for (std::size_t child = 1; child < size; child = 2 * at + 1) {
      if (child + 1 < size && IsBefore(entries_[child + 1], entries_[child])) child++;
      if (!IsBefore(entries_[child], moved)) break;
      entries_[at] = entries_[child];
      at = child;
    }
    entries_[at] = moved;
  }

  std::vector<Entry> entries_;
};

}  // namespace millrace::kernel
