// Fields of messages as a program states them, checked against the columns.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernel/codec/columns.h"
#include "kernel/encode/value_check.h"
#include "kernel/span.h"

namespace millrace::kernel::encode {

// Tag as bytes, written as one word.
struct Tag {
  std::uint64_t bytes = 0;
  std::uint32_t size = 0;
};

struct Field {
  std::int32_t kind = 0;
  std::int32_t flags = 0;
  // Column of the field, and of its values: the item of a list, the value of a map.
  std::uint32_t column = 0;
  std::uint32_t value = 0;
  // Oneof; -1 for none.
  std::int32_t oneof = -1;
  // Kind of a map's key; -1 for none.
  std::int32_t key = -1;
  // Index of the message, the enum's numbers, or the check.
  std::uint32_t child = 0;
  Tag tag;
  // Tag behind a group.
  Tag end;
  Tag key_tag;
  Tag value_tag;

  bool Has(std::int32_t flag) const { return (flags & flag) != 0; }
};

struct Message {
  std::vector<Field> fields;
};

struct PutProgram {
  // The first message is that of the rows.
  std::vector<Message> messages;
  std::vector<std::vector<std::int32_t>> enums;
  std::vector<std::unique_ptr<ValueCheck>> checks;
};

// Reads a program and checks every operand. Returns false where a rule is broken: `bad` is then a
// word of the code, or -1 for a table.
bool ReadPutProgram(Span<const std::int32_t> code, Span<const std::int32_t> tables,
                    const std::vector<codec::ColumnType>& types, PutProgram* out,
                    std::int64_t* bad);

}  // namespace millrace::kernel::encode
