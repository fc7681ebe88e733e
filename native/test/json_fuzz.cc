// Fuzzes the finder of JSON fields with hostile trees of names and hostile documents. Input: u8
// nodes, u8 fields, u8 bytes of names, i8 parent, i8 field, u8 start and u8 size of each node, the
// names, then a document.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernel/json/fields.h"
#include "test/input.h"

namespace {

using namespace millrace;
using kernel::Status;
using kernel::json::FieldFinder;
using kernel::json::Kind;

// Cells of one document.
struct Found {
  explicit Found(std::uint32_t fields)
      : is_document(1), kind(fields), start(fields), end(fields), integer(fields) {}
  kernel::json::FoundRows Rows() {
    return {{is_document.data(), is_document.size()},
            {kind.data(), kind.size()},
            {start.data(), start.size()},
            {end.data(), end.size()},
            {integer.data(), integer.size()}};
  }

  std::vector<std::uint8_t> is_document;
  std::vector<std::uint8_t> kind;
  std::vector<std::uint32_t> start;
  std::vector<std::uint32_t> end;
  std::vector<std::int64_t> integer;
};

// The first byte of a value says its kind.
bool IsKindOf(Kind kind, std::uint8_t first) {
  switch (kind) {
    case Kind::kNull:
      return first == 'n';
    case Kind::kFalse:
      return first == 'f';
    case Kind::kTrue:
      return first == 't';
    case Kind::kString:
    case Kind::kEscaped:
      return first == '"';
    case Kind::kObject:
      return first == '{';
    case Kind::kArray:
      return first == '[';
    case Kind::kNumber:
    case Kind::kInteger:
      return first == '-' || (first >= '0' && first <= '9');
    default:
      return false;
  }
}

void CheckField(const Found& found, std::size_t field, test::Buffer* buffer) {
  const auto kind = static_cast<Kind>(found.kind[field]);
  if (kind == Kind::kMissing) return;
  const std::uint32_t start = found.start[field];
  const std::uint32_t end = found.end[field];
  MILLRACE_CHECK(start < end && end <= buffer->size());
  MILLRACE_CHECK(IsKindOf(kind, buffer->data()[start]));
  if (kind != Kind::kInteger) return;
  const std::string digits(reinterpret_cast<const char*>(buffer->data() + start), end - start);
  MILLRACE_CHECK(std::to_string(found.integer[field]) == digits);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  test::Input input(data, size);
  const auto nodes = input.Take<std::uint8_t>();
  const auto fields = input.Take<std::uint8_t>();
  const auto name_bytes = input.Take<std::uint8_t>();
  std::vector<std::int32_t> table;
  for (std::uint32_t i = 0; i < nodes; i++) {
    table.push_back(input.Take<std::int8_t>());
    table.push_back(input.Take<std::int8_t>());
    table.push_back(input.Take<std::uint8_t>());
    table.push_back(input.Take<std::uint8_t>());
  }
  test::Buffer names(name_bytes);
  input.TakeBytes(names.data(), names.size());
  FieldFinder finder;
  const Status status =
      finder.Open({table.data(), table.size()}, {names.data(), names.size()}, fields);
  if (status != Status::kOk) return 0;
  const std::size_t head = 3U + 4U * nodes + name_bytes;
  // The document ends with its buffer: the sanitizers detect every access behind it.
  test::Buffer buffer(size > head ? size - head : 0);
  input.TakeBytes(buffer.data(), buffer.size());
  const std::uint32_t start[] = {0};
  const std::int32_t length[] = {static_cast<std::int32_t>(buffer.size())};
  Found found(fields);
  MILLRACE_CHECK(finder.Find({{buffer.data(), buffer.size()}, {start, 1}, {length, 1}}, 0, 1,
                             found.Rows()) == Status::kOk);
  if (found.is_document[0] == 0) return 0;
  for (std::size_t field = 0; field < fields; field++) CheckField(found, field, &buffer);
  return 0;
}
