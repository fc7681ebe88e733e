#include "state/row_order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

namespace millrace::state {
namespace {

constexpr std::uint32_t kWord = 8;
// Entries from which on a radix sort is faster than a sort by comparison.
constexpr std::size_t kRadixMin = 128;
constexpr std::size_t kDigits = 256;

}  // namespace

Status RowOrder::Sort() {
  Status status = Locate();
  if (!status.ok()) return status;
  entries_.resize(rows_.count);
  spare_.resize(rows_.count);
  order_.reserve(rows_.count);
  for (std::uint32_t row = 0; row < rows_.count; row++) entries_[row].row = row;
  if (rows_.count > 0) SortFrom(0, rows_.count, 0);
  return {};
}

// Each cell is read once, because the memory of `ends` may change meanwhile.
Status RowOrder::Locate() {
  const bool is_keyed = rows_.shape == Shape::kKeyed;
  const std::size_t size = is_keyed ? rows_.keys.size : rows_.bytes.size;
  const std::size_t prefix = rows_.prefix.size();
  keys_ = is_keyed ? rows_.keys.data : rows_.bytes.data;
  places_.reserve(rows_.count);
  const volatile std::uint32_t* cell = rows_.ends.data;
  std::uint32_t at = 0;
  for (std::uint32_t row = 0; row < rows_.count; row++) {
    const std::uint32_t key_end = *cell++;
    const std::uint32_t end = is_keyed ? key_end : *cell++;
    const std::size_t key_bytes = prefix + key_end - at;
    if (key_end < at || end < key_end || end > size || key_bytes < 1 || key_bytes > kKeyBytesMax ||
        end - key_end > kValueBytesMax) {
      return {Code::kBadRows, "row " + std::to_string(row) + ": it is outside its bounds"};
    }
    places_.push_back({at, key_end, end});
    at = end;
  }
  return {};
}

bool RowOrder::Next(Bytes* key, Bytes* value) {
  if (next_ >= order_.size()) return false;
  const std::uint32_t row = order_[next_++];
  const Place& place = places_[row];
  if (rows_.shape == Shape::kKeyed) {
    keyed_.Compose(row, place.key_at, place.key_end, key, value);
    return true;
  }
  const auto* const text = reinterpret_cast<const char*>(keys_);
  *key = {text + place.key_at, place.key_end - place.key_at};
  *value = {text + place.key_end, place.end - place.key_end};
  return true;
}

// 8 bytes of a key as a big-endian number; bytes behind the key are zeros.
std::uint64_t RowOrder::WordOf(std::uint32_t row, std::uint32_t depth) const {
  const Place& place = places_[row];
  const std::uint32_t length = place.key_end - place.key_at;
  std::uint64_t word = 0;
  const std::uint8_t* const from = keys_ + place.key_at + depth;
  if (length >= depth + kWord) {
    std::memcpy(&word, from, kWord);
  } else if (length > depth) {
    std::memcpy(&word, from, length - depth);
  }
  if constexpr (std::endian::native == std::endian::little) word = __builtin_bswap64(word);
  return word;
}

// Number of bytes from `depth` on that all keys share.
std::uint32_t RowOrder::Shared(std::size_t first, std::size_t last, std::uint32_t depth) const {
  const std::uint8_t* const model = keys_ + places_[entries_[first].row].key_at + depth;
  std::uint32_t shared = LengthOf(entries_[first]) - depth;
  for (std::size_t at = first + 1; at < last && shared > 0; at++) {
    const std::uint8_t* const key = keys_ + places_[entries_[at].row].key_at + depth;
    shared = std::min(shared, LengthOf(entries_[at]) - depth);
    if (std::memcmp(model, key, shared) == 0) continue;
    const std::uint8_t* const other = std::mismatch(model, model + shared, key).first;
    shared = static_cast<std::uint32_t>(other - model);
  }
  return shared;
}

// Appends rows whose keys differ by their lengths alone.
void RowOrder::AppendEnded(std::size_t first, std::size_t last) {
  std::sort(entries_.begin() + static_cast<std::ptrdiff_t>(first),
            entries_.begin() + static_cast<std::ptrdiff_t>(last),
            [this](const Entry& a, const Entry& b) {
              const std::uint32_t length = LengthOf(a);
              const std::uint32_t other = LengthOf(b);
              return length != other ? length < other : a.row < b.row;
            });
  for (std::size_t at = first; at < last; at++) {
    const bool is_last = at + 1 == last || LengthOf(entries_[at + 1]) != LengthOf(entries_[at]);
    if (is_last) order_.push_back(entries_[at].row);
  }
}

// Sorts entries whose keys have the same first `depth` bytes, with zeros behind their ends, and
// appends their rows to the order.
void RowOrder::SortFrom(std::size_t first, std::size_t last, std::uint32_t depth) {
  const auto begin = entries_.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(last);
  const auto rest =
      std::partition(begin, end, [&](const Entry& entry) { return LengthOf(entry) <= depth; });
  // A key that has ended sorts before the longer ones.
  const auto from = first + static_cast<std::size_t>(rest - begin);
  AppendEnded(first, from);
  if (from == last) return;
  const std::uint32_t at = depth + Shared(from, last, depth);
  for (std::size_t i = from; i < last; i++) entries_[i].word = WordOf(entries_[i].row, at);
  SortByWord(from, last);
  for (std::size_t i = from; i < last;) {
    std::size_t next = i + 1;
    while (next < last && entries_[next].word == entries_[i].word) next++;
    if (next == i + 1) {
      order_.push_back(entries_[i].row);
    } else {
      SortFrom(i, next, at + kWord);
    }
    i = next;
  }
}

void RowOrder::SortByWord(std::size_t first, std::size_t last) {
  const std::size_t count = last - first;
  Entry* from = entries_.data() + first;
  if (count < kRadixMin) {
    std::sort(from, from + count, [](const Entry& a, const Entry& b) { return a.word < b.word; });
    return;
  }
  std::array<std::array<std::uint32_t, kDigits>, kWord> counts{};
  for (std::size_t i = 0; i < count; i++) {
    for (std::uint32_t digit = 0; digit < kWord; digit++) {
      counts[digit][(from[i].word >> (digit * 8)) & 0xffU]++;
    }
  }
  Entry* to = spare_.data() + first;
  for (std::uint32_t digit = 0; digit < kWord; digit++) {
    std::array<std::uint32_t, kDigits>& starts = counts[digit];
    // All entries have the same digit.
    if (starts[(from[0].word >> (digit * 8)) & 0xffU] == count) continue;
    std::uint32_t sum = 0;
    for (std::uint32_t& start : starts) {
      const std::uint32_t size = start;
      start = sum;
      sum += size;
    }
    for (std::size_t i = 0; i < count; i++) {
      to[starts[(from[i].word >> (digit * 8)) & 0xffU]++] = from[i];
    }
    std::swap(from, to);
  }
  if (from != entries_.data() + first) std::copy(from, from + count, to);
}

}  // namespace millrace::state
