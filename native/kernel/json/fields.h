// Finds the values of named fields in JSON documents. No value is built: a found value is a kind
// and a place in the bytes, and for an integer its 64 bits.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel/batch.h"
#include "kernel/codec/decoder.h"
#include "kernel/span.h"

namespace millrace::kernel::json {

// JSON_VALUE of src/core/json/finder.ts.
enum class Kind : std::uint8_t {
  kMissing = 0,
  kNull = 1,
  kFalse = 2,
  kTrue = 3,
  kNumber = 4,
  kString = 5,
  kEscaped = 6,  // a string with an escape
  kObject = 7,
  kArray = 8,
  kInteger = 9,  // decimal digits within the range of an i64, other than -0
};

// Greatest nesting of values: it bounds the recursion.
inline constexpr int kDepthMax = 1000;

// Rows to fill; a row has one cell for each field.
struct FoundRows {
  Span<std::uint8_t> is_document;  // 1 for JSON, 0 for other bytes and for null values
  Span<std::uint8_t> kind;
  Span<std::uint32_t> start;  // into the buffer of the payloads, with the quotes of a string
  Span<std::uint32_t> end;
  Span<std::int64_t> integer;  // meaningful for kInteger
};

// A name on the path of a requested field. Nodes lie in preorder, and node 0 is the document.
struct Node {
  std::uint32_t name_start = 0;
  std::uint32_t name_size = 0;
  std::uint32_t first_child = 0;   // 0: none
  std::uint32_t next_sibling = 0;  // 0: none
  std::uint32_t subtree_end = 0;   // index behind the last node below this one
  std::int32_t field = -1;         // field that ends here; -1: none
};

class FieldFinder {
 public:
  // Words of `table` for each node: parent (-1 for node 0), field, start and size of the name in
  // `names`. kBadArgument if the nodes are no tree in preorder.
  Status Open(Span<const std::int32_t> table, Span<const std::uint8_t> names, std::uint32_t fields);

  // Fills rows 0 to `to - from` with what the payloads [from, to) have. kSpanOutOfRange for a span
  // outside its buffer, kTooFewRows if `into` has fewer rows; nothing is written then.
  Status Find(const codec::Payloads& payloads, std::uint32_t from, std::uint32_t to,
              const FoundRows& into);

 private:
  friend class Document;
  std::vector<Node> nodes_;
  std::vector<std::uint8_t> names_;
  std::uint32_t longest_name_ = 0;
  std::uint32_t fields_ = 0;
};

}  // namespace millrace::kernel::json
