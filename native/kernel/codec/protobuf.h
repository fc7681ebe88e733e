// Programs for Protobuf payloads. Words: PROTO_WORD in docs/reference/layouts.md; the compiler is
// src/formats/protobuf/columns, the reference implementation src/addon/reference/codec/protobuf.ts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernel/batch.h"
#include "kernel/codec/columns.h"
#include "kernel/codec/decoder.h"
#include "kernel/span.h"

namespace millrace::kernel::codec {

// Field of a message.
struct ProtoField {
  std::int32_t kind = 0;
  std::int32_t flags = 0;
  std::int32_t column = -1;
  // Node of a message, table of a closed enum.
  std::int32_t child = -1;
  // Oneof; -1 for none.
  std::int32_t oneof = -1;
  // Kind of a map's key; -1 for none.
  std::int32_t key = -1;
  // Number of an open enum's default.
  std::int32_t zero = 0;

  bool Has(std::int32_t flag) const { return (flags & flag) != 0; }
  // Column of the values: behind the list, or behind entries and key of the map.
  std::uint32_t ValueColumn() const {
    const auto first = static_cast<std::uint32_t>(column);
    if (Has(layout::kProtoFlagMap)) return first + 3;
    return Has(layout::kProtoFlagRepeated) ? first + 1 : first;
  }
};

struct ProtoTag {
  std::uint32_t tag = 0;
  std::uint32_t field = 0;
  bool is_run = false;
};

// Message at one struct column, or checked only.
struct ProtoNode {
  std::int32_t column = -1;
  std::int32_t spend = 0;
  std::vector<ProtoField> fields;
  std::vector<std::uint32_t> required;
  // Ascending by tag.
  std::vector<ProtoTag> tags;
};

struct ProtoSymbol {
  std::int32_t number = 0;
  std::int32_t index = 0;
};

inline constexpr std::uint32_t kWireVarint = 0;
inline constexpr std::uint32_t kWireFixed64 = 1;
inline constexpr std::uint32_t kWireLength = 2;
inline constexpr std::uint32_t kWireGroup = 3;
inline constexpr std::uint32_t kWireEnd = 4;
inline constexpr std::uint32_t kWireFixed32 = 5;

// Wire type of one value of a kind.
std::uint32_t WireOf(std::int32_t kind);

// Counted fields that the messages of a payload may have.
inline std::int64_t FieldsMax(std::int32_t length) {
  return std::max<std::int64_t>(layout::kProtoLimitFields,
                                std::int64_t{length} * layout::kProtoLimitFieldsPerByte);
}

struct ProtoProgram {
  // The first node is the message of the payload.
  std::vector<ProtoNode> nodes;
  // Tables of closed enums, ascending by number.
  std::vector<std::vector<ProtoSymbol>> enums;
  std::vector<std::vector<std::uint32_t>> oneofs;

  // Symbol of a closed enum; nullptr for a number that the enum lacks. Only the low 32 bits count.
  const ProtoSymbol* FindSymbol(const ProtoField& field, std::uint64_t bits) const;
};

// Reads a program and checks every operand, so that no payload makes the interpreter access memory
// outside its arguments. Returns the position of a word that breaks a rule; -1 for a program.
std::int64_t ReadProtoProgram(Span<const std::int32_t> code, const std::vector<ColumnType>& types,
                              ProtoProgram* out);

// Opens a program. kBadArgument when table or code break a rule; `bad` is then a word of the code,
// or -1 for the table.
Status OpenProtobuf(Span<const std::int32_t> code, Span<const std::int32_t> table,
                    std::unique_ptr<Decoder>* out, std::int64_t* bad);

}  // namespace millrace::kernel::codec
