#include "kernel/json/fields.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace millrace::kernel::json {
namespace {

using codec::Block;
using codec::Bytes;
using codec::LoadBlock;

// Bytes that a string is scanned by at a time.
constexpr std::ptrdiff_t kBlockBytes = sizeof(Block);
// A node of the words of FieldFinder::Open.
constexpr std::size_t kNodeWords = 4;

bool IsDigit(std::uint8_t byte) { return byte >= '0' && byte <= '9'; }

// Value of a hexadecimal digit; -1 for another byte.
int HexOf(std::uint8_t byte) {
  if (IsDigit(byte)) return byte - '0';
  const int letter = byte | 0x20;
  return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

// Number of bytes before the first quote, backslash or control character of a block; 16: none.
int PlainBytes(Block block) {
#ifdef __SSE2__
  const auto ends = reinterpret_cast<Block>((block == '"') | (block == '\\') | (block < 0x20));
  const int mask = _mm_movemask_epi8(reinterpret_cast<__m128i>(ends));
  return mask == 0 ? static_cast<int>(kBlockBytes) : __builtin_ctz(static_cast<unsigned>(mask));
#else
  for (int i = 0; i < kBlockBytes; i++) {
    if (block[i] == '"' || block[i] == '\\' || block[i] < 0x20) return i;
  }
  return static_cast<int>(kBlockBytes);
#endif
}

// Byte that an escape of two characters stands for; 0: there is no such escape.
std::uint8_t EscapedByte(std::uint8_t letter) {
  switch (letter) {
    case '"':
    case '\\':
    case '/':
      return letter;
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return 0;
  }
}

void AppendUtf8(std::vector<std::uint8_t>* into, std::uint32_t point) {
  const auto add = [into](std::uint32_t byte) { into->push_back(static_cast<std::uint8_t>(byte)); };
  if (point < 0x80) {
    add(point);
    return;
  }
  if (point < 0x800) {
    add(0xc0 | (point >> 6U));
  } else if (point < 0x10000) {
    add(0xe0 | (point >> 12U));
    add(0x80 | ((point >> 6U) & 0x3fU));
  } else {
    add(0xf0 | (point >> 18U));
    add(0x80 | ((point >> 12U) & 0x3fU));
    add(0x80 | ((point >> 6U) & 0x3fU));
  }
  add(0x80 | (point & 0x3fU));
}

std::uint32_t UnitAt(Bytes digits) {
  std::uint32_t unit = 0;
  for (int i = 0; i < 4; i++) unit = (unit << 4U) | static_cast<std::uint32_t>(HexOf(digits[i]));
  return unit;
}

// Text of the inside of a string, or a longer text than `bytes_max` as soon as it is longer. A
// surrogate without its partner becomes three bytes that no UTF-8 has, so it equals no name.
// REQUIRES: the escapes are valid
void Unescape(Bytes at, Bytes end, std::size_t bytes_max, std::vector<std::uint8_t>* text) {
  text->clear();
  while (at < end && text->size() <= bytes_max) {
    if (*at != '\\') {
      text->push_back(*at++);
      continue;
    }
    if (at[1] != 'u') {
      text->push_back(EscapedByte(at[1]));
      at += 2;
      continue;
    }
    std::uint32_t point = UnitAt(at + 2);
    at += 6;
    const bool is_high = point >= 0xd800 && point < 0xdc00;
    if (is_high && end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
      const std::uint32_t low = UnitAt(at + 2);
      if (low >= 0xdc00 && low < 0xe000) {
        point = 0x10000 + ((point - 0xd800) << 10U) + (low - 0xdc00);
        at += 6;
      }
    }
    AppendUtf8(text, point);
  }
}

}  // namespace

// One document during its scan. Accepts exactly what JSON.parse accepts as UTF-8, up to kDepthMax;
// of a repeated key the last value applies, with everything below it.
class Document {
 public:
  Document(const FieldFinder& finder, Bytes buffer, Bytes from, Bytes to, Bytes readable)
      : finder_(finder), buffer_(buffer), from_(from), at_(from), to_(to), readable_(readable) {}

  // Cells of the row.
  std::uint8_t* kind = nullptr;
  std::uint32_t* start = nullptr;
  std::uint32_t* end = nullptr;
  std::int64_t* integer = nullptr;

  bool Scan() {
    SkipSpace();
    if (!Value(0, true, 0)) return false;
    SkipSpace();
    return at_ == to_ && (!has_high_bit_ ||
                          codec::IsUtf8(from_, static_cast<std::uint32_t>(to_ - from_), readable_));
  }

 private:
  void SkipSpace() {
    while (at_ < to_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) at_++;
  }

  bool Take(std::uint8_t byte) {
    if (at_ >= to_ || *at_ != byte) return false;
    at_++;
    return true;
  }

  // Scans a value. `is_named`: `node` is the node of the value.
  bool Value(std::uint32_t node, bool is_named, int depth) {
    const Bytes first = at_;
    if (first >= to_ || depth > kDepthMax) return false;
    const Kind found = KindAt(node, is_named, depth);
    if (found == Kind::kMissing) return false;
    const std::int32_t field = is_named ? finder_.nodes_[node].field : -1;
    if (field >= 0) {
      kind[field] = static_cast<std::uint8_t>(found);
      start[field] = static_cast<std::uint32_t>(first - buffer_);
      end[field] = static_cast<std::uint32_t>(at_ - buffer_);
      if (found == Kind::kInteger) integer[field] = integer_;
    }
    return true;
  }

  // Scans a value and returns its kind; kMissing: it is invalid.
  Kind KindAt(std::uint32_t node, bool is_named, int depth) {
    switch (*at_) {
      case '"':
        if (!String()) return Kind::kMissing;
        return is_escaped_ ? Kind::kEscaped : Kind::kString;
      case '{':
        return Object(node, is_named, depth) ? Kind::kObject : Kind::kMissing;
      case '[':
        return Array(depth) ? Kind::kArray : Kind::kMissing;
      case 'n':
        return Word("null", 4) ? Kind::kNull : Kind::kMissing;
      case 'f':
        return Word("false", 5) ? Kind::kFalse : Kind::kMissing;
      case 't':
        return Word("true", 4) ? Kind::kTrue : Kind::kMissing;
      default:
        return Number();
    }
  }

  bool Word(const char* word, std::ptrdiff_t size) {
    if (to_ - at_ < size || std::memcmp(at_, word, static_cast<std::size_t>(size)) != 0) {
      return false;
    }
    at_ += size;
    return true;
  }

  bool SkipDigits() {
    const Bytes first = at_;
    while (at_ < to_ && IsDigit(*at_)) at_++;
    return at_ > first;
  }

  Kind Number() {
    const bool is_negative = Take('-');
    const Bytes first = at_;
    std::uint64_t magnitude = 0;
    bool is_wide = false;
    for (; at_ < to_ && IsDigit(*at_); at_++) {
      is_wide = is_wide || __builtin_mul_overflow(magnitude, std::uint64_t{10}, &magnitude) ||
                __builtin_add_overflow(magnitude, std::uint64_t{*at_} - '0', &magnitude);
    }
    if (at_ == first || (*first == '0' && at_ > first + 1)) return Kind::kMissing;
    bool is_integer = !is_wide && !(is_negative && magnitude == 0);
    if (Take('.')) {
      is_integer = false;
      if (!SkipDigits()) return Kind::kMissing;
    }
    if (at_ < to_ && (*at_ | 0x20) == 'e') {
      is_integer = false;
      at_++;
      if (at_ < to_ && (*at_ == '-' || *at_ == '+')) at_++;
      if (!SkipDigits()) return Kind::kMissing;
    }
    constexpr std::uint64_t kGreatest = std::numeric_limits<std::int64_t>::max();
    if (!is_integer || magnitude > kGreatest + (is_negative ? 1 : 0)) return Kind::kNumber;
    integer_ = static_cast<std::int64_t>(is_negative ? 0 - magnitude : magnitude);
    return Kind::kInteger;
  }

  // Scans a string and sets is_escaped_.
  bool String() {
    is_escaped_ = false;
    at_++;
    while (SkipPlain()) {
      if (*at_ == '"') {
        at_++;
        return true;
      }
      if (*at_ != '\\' || !Escape()) return false;
    }
    return false;
  }

  // Goes to the next quote, backslash or control character. False: the document has none.
  bool SkipPlain() {
    while (readable_ - at_ >= kBlockBytes) {
      const Block block = LoadBlock(at_);
      const int plain = PlainBytes(block);
      // The bytes behind the string may count too: then the encoding is checked for nothing.
      has_high_bit_ = has_high_bit_ || codec::HasHighBit(block);
      at_ += plain;
      if (at_ >= to_) return false;
      if (plain < kBlockBytes) return true;
    }
    for (; at_ < to_; at_++) {
      if (*at_ == '"' || *at_ == '\\' || *at_ < 0x20) return true;
      has_high_bit_ = has_high_bit_ || *at_ >= 0x80;
    }
    return false;
  }

  bool Escape() {
    is_escaped_ = true;
    at_++;
    if (at_ >= to_) return false;
    const std::uint8_t letter = *at_++;
    if (letter != 'u') return EscapedByte(letter) != 0;
    if (to_ - at_ < 4) return false;
    for (int i = 0; i < 4; i++) {
      if (HexOf(*at_++) < 0) return false;
    }
    return true;
  }

  bool Array(int depth) {
    at_++;
    SkipSpace();
    if (Take(']')) return true;
    for (;;) {
      if (!Value(0, false, depth + 1)) return false;
      SkipSpace();
      if (Take(']')) return true;
      if (!Take(',')) return false;
      SkipSpace();
    }
  }

  bool Object(std::uint32_t node, bool is_named, int depth) {
    at_++;
    SkipSpace();
    if (Take('}')) return true;
    const std::uint32_t first_child = is_named ? finder_.nodes_[node].first_child : 0;
    for (;;) {
      const Bytes key = at_;
      if (key >= to_ || *key != '"' || !String()) return false;
      const std::uint32_t child = first_child == 0 ? 0 : ChildNamed(first_child, key + 1, at_ - 1);
      if (child != 0) Forget(child);
      SkipSpace();
      if (!Take(':')) return false;
      SkipSpace();
      if (!Value(child, child != 0, depth + 1)) return false;
      SkipSpace();
      if (Take('}')) return true;
      if (!Take(',')) return false;
      SkipSpace();
    }
  }

  // The node of a key among siblings; 0: none.
  std::uint32_t ChildNamed(std::uint32_t child, Bytes name, Bytes end_of_name) {
    if (is_escaped_) {
      Unescape(name, end_of_name, finder_.longest_name_, &text_);
      name = text_.data();
      end_of_name = name + text_.size();
    }
    const auto size = static_cast<std::size_t>(end_of_name - name);
    for (; child != 0; child = finder_.nodes_[child].next_sibling) {
      const Node& node = finder_.nodes_[child];
      if (node.name_size == size &&
          std::equal(name, end_of_name, finder_.names_.data() + node.name_start)) {
        return child;
      }
    }
    return 0;
  }

  // Forgets the values that an earlier key of this name had.
  void Forget(std::uint32_t node) {
    for (std::uint32_t i = node; i < finder_.nodes_[node].subtree_end; i++) {
      const std::int32_t field = finder_.nodes_[i].field;
      if (field >= 0) kind[field] = static_cast<std::uint8_t>(Kind::kMissing);
    }
  }

  const FieldFinder& finder_;
  Bytes buffer_;
  Bytes from_;
  Bytes at_;
  Bytes to_;
  Bytes readable_;  // end of the buffer
  std::vector<std::uint8_t> text_;
  std::int64_t integer_ = 0;
  bool is_escaped_ = false;
  bool has_high_bit_ = false;
};

Status FieldFinder::Open(Span<const std::int32_t> table, Span<const std::uint8_t> names,
                         std::uint32_t fields) {
  const std::size_t count = table.size / kNodeWords;
  if (count == 0 || table.size % kNodeWords != 0) return Status::kBadArgument;
  std::vector<Node> nodes(count);
  std::vector<std::uint32_t> last_child(count, 0);
  std::vector<std::uint32_t> path;  // from node 0 to the node before
  for (std::uint32_t i = 0; i < count; i++) {
    const std::int32_t* words = table.data + i * kNodeWords;
    const std::int32_t parent = words[0];
    Node& node = nodes[i];
    node.field = words[1];
    if (node.field < -1 || node.field >= static_cast<std::int64_t>(fields) || words[2] < 0 ||
        words[3] < 0 || !Inside(static_cast<std::uint32_t>(words[2]), words[3], names.size)) {
      return Status::kBadArgument;
    }
    node.name_start = static_cast<std::uint32_t>(words[2]);
    node.name_size = static_cast<std::uint32_t>(words[3]);
    longest_name_ = std::max(longest_name_, node.name_size);
    while (!path.empty() && static_cast<std::int64_t>(path.back()) != parent) path.pop_back();
    if (path.empty() != (i == 0) || (i == 0 && parent != -1)) return Status::kBadArgument;
    if (i > 0) {
      std::uint32_t& last = last_child[path.back()];
      (last == 0 ? nodes[path.back()].first_child : nodes[last].next_sibling) = i;
      last = i;
    }
    path.push_back(i);
    for (const std::uint32_t above : path) nodes[above].subtree_end = i + 1;
  }
  nodes_ = std::move(nodes);
  names_.assign(names.data, names.data + names.size);
  fields_ = fields;
  return Status::kOk;
}

Status FieldFinder::Find(const codec::Payloads& payloads, std::uint32_t from, std::uint32_t to,
                         const FoundRows& into) {
  const Status status = CheckPayloads(payloads, from, to);
  if (status != Status::kOk) return status;
  const std::size_t rows = to - from;
  const std::size_t cells = rows * fields_;
  if (into.is_document.size < rows || into.kind.size < cells || into.start.size < cells ||
      into.end.size < cells || into.integer.size < cells) {
    return Status::kTooFewRows;
  }
  const Bytes buffer = payloads.bytes.data;
  const Bytes readable = buffer + payloads.bytes.size;
  std::fill_n(into.kind.data, cells, static_cast<std::uint8_t>(Kind::kMissing));
  for (std::size_t row = 0; row < rows; row++) {
    const std::int32_t length = payloads.length.data[from + row];
    into.is_document.data[row] = 0;
    if (length < 0) continue;
    const Bytes first = buffer + payloads.start.data[from + row];
    Document document(*this, buffer, first, first + length, readable);
    document.kind = into.kind.data + row * fields_;
    document.start = into.start.data + row * fields_;
    document.end = into.end.data + row * fields_;
    document.integer = into.integer.data + row * fields_;
    into.is_document.data[row] = document.Scan() ? 1 : 0;
  }
  return Status::kOk;
}

}  // namespace millrace::kernel::json
