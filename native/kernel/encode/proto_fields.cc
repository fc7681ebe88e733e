// The same rules as src/addon/reference/encode/proto-fields.ts.
#include "kernel/encode/proto_fields.h"

#include <utility>

#include "kernel/codec/protobuf.h"
#include "kernel/encode/encoder.h"

namespace millrace::kernel::encode {
namespace {

using namespace layout;
using codec::ColumnType;
using codec::kWireEnd;
using codec::kWireGroup;
using codec::kWireLength;
using codec::WireOf;

constexpr std::int32_t kNumberMax = (1 << 29) - 1;
constexpr std::int32_t kFlagsMask = kProtoFlagRepeated | kProtoFlagRequired | kProtoFlagGroup |
                                    kProtoFlagMap | kProtoFlagRaw | kProtoFlagPacked |
                                    kProtoFlagHidesZero;

Tag TagOf(std::int32_t number, std::uint32_t wire) {
  std::uint8_t bytes[10] = {};
  Tag tag;
  const std::uint8_t* end = PutVarint(bytes, static_cast<std::uint32_t>(number) << 3 | wire);
  tag.size = static_cast<std::uint32_t>(end - bytes);
  std::memcpy(&tag.bytes, bytes, tag.size);
  return tag;
}

// True where values of `kind` come from a column of this kind.
bool Fits(std::int32_t kind, std::int32_t column, bool is_raw) {
  switch (kind) {
    case kProtoKindInt32:
    case kProtoKindSint32:
    case kProtoKindEnum:
      return column == kColumnKindInt32;
    case kProtoKindUint32:
      return column == kColumnKindUint32;
    case kProtoKindBool:
      return column == kColumnKindBool;
    case kProtoKindInt64:
      return column == kColumnKindInt64 || column == kColumnKindUint64;
    case kProtoKindSint64:
      return column == kColumnKindInt64;
    case kProtoKindFixed32:
      return column == kColumnKindInt32 || column == kColumnKindUint32 ||
             column == kColumnKindFloat32;
    case kProtoKindFixed64:
      return column == kColumnKindInt64 || column == kColumnKindUint64 ||
             column == kColumnKindFloat64;
    case kProtoKindString:
      return column == kColumnKindUtf8;
    case kProtoKindBytes:
      return column == kColumnKindBinary;
    case kProtoKindClosedEnum:
      return column == kColumnKindDictionary;
    case kProtoKindMessage:
      return column == (is_raw ? kColumnKindBinary : kColumnKindStruct);
    default:
      return false;
  }
}

bool IsKeyKind(std::int32_t kind) { return kind >= kProtoKindInt32 && kind <= kProtoKindString; }

class Reader {
 public:
  Reader(Span<const std::int32_t> code, std::vector<std::vector<std::int32_t>> tables,
         const std::vector<ColumnType>& types, PutProgram* out)
      : code_(code), tables_(std::move(tables)), types_(types), out_(*out) {}

  // Reads the message whose fields are the columns [first, end). False where a rule is broken.
  bool ReadMessage(std::uint32_t first, std::uint32_t end, std::uint32_t* index) {
    *index = static_cast<std::uint32_t>(out_.messages.size());
    out_.messages.emplace_back();
    Message message;
    for (std::uint32_t column = first; column < end; column = types_[column].next) {
      Field field;
      bad_ = static_cast<std::int64_t>(column) * kProtoPutCount;
      if (!ReadField(column, &field)) return false;
      message.fields.push_back(field);
    }
    out_.messages[*index] = std::move(message);
    return true;
  }

  std::int64_t bad() const { return bad_; }

 private:
  bool ReadField(std::uint32_t column, Field* field) {
    const std::int32_t* words = code_.data + std::size_t{column} * kProtoPutCount;
    const std::int32_t number = words[kProtoPutNumber];
    field->kind = words[kProtoPutKind];
    field->flags = words[kProtoPutFlags];
    field->oneof = words[kProtoPutOneof];
    field->key = words[kProtoPutKey];
    field->column = column;
    const bool is_map = field->Has(kProtoFlagMap);
    const bool is_list = field->Has(kProtoFlagRepeated);
    const bool is_message = field->kind == kProtoKindMessage;
    const std::uint32_t wire = WireOf(field->kind);
    if ((field->flags & ~kFlagsMask) != 0 || number < 1 || number > kNumberMax) return false;
    if (field->oneof < -1 || field->oneof >= static_cast<std::int64_t>(types_.size())) return false;
    if (is_map && is_list) return false;
    if ((is_map || is_list) && (field->Has(kProtoFlagHidesZero) || field->oneof >= 0)) return false;
    if (field->Has(kProtoFlagPacked) && (!is_list || wire == kWireLength)) return false;
    if (field->Has(kProtoFlagGroup) && (!is_message || is_map)) return false;
    if (field->Has(kProtoFlagRaw) && !is_message) return false;
    if (is_map ? !IsMapGood(column, field->key) : field->key != -1) return false;
    const std::int32_t kind = is_map ? kColumnKindMap : kColumnKindList;
    if ((is_map || is_list) && (types_[column].kind != kind || types_[column].nullable)) {
      return false;
    }
    field->value = column + (is_map ? 3U : is_list ? 1U : 0U);
    const ColumnType& value = types_[field->value];
    if (!Fits(field->kind, value.kind, field->Has(kProtoFlagRaw))) return false;
    if (value.nullable && (is_map || is_list)) return false;
    field->tag = TagOf(number, field->Has(kProtoFlagGroup)              ? kWireGroup
                               : is_map || field->Has(kProtoFlagPacked) ? kWireLength
                                                                        : wire);
    field->end = TagOf(number, kWireEnd);
    if (is_map) field->key_tag = TagOf(1, WireOf(field->key));
    field->value_tag = TagOf(2, wire);
    return ReadOperand(words[kProtoPutOperand], value, field);
  }

  bool IsMapGood(std::uint32_t column, std::int32_t key) const {
    return types_[column].kind == kColumnKindMap && IsKeyKind(key) &&
           !types_[column + 2].nullable && Fits(key, types_[column + 2].kind, false) &&
           types_[column + 2].kind != kColumnKindFloat32 &&
           types_[column + 2].kind != kColumnKindFloat64;
  }

  bool ReadOperand(std::int32_t operand, const ColumnType& value, Field* field) {
    const bool has_table = field->kind == kProtoKindClosedEnum || field->Has(kProtoFlagRaw);
    if (!has_table) {
      if (operand != -1) return false;
      if (field->kind != kProtoKindMessage) return true;
      return ReadMessage(field->value + 1, value.next, &field->child);
    }
    if (operand < 0 || static_cast<std::size_t>(operand) >= tables_.size()) return false;
    const std::vector<std::int32_t>& table = tables_[static_cast<std::size_t>(operand)];
    if (field->kind == kProtoKindClosedEnum) {
      field->child = static_cast<std::uint32_t>(out_.enums.size());
      out_.enums.push_back(table);
      return true;
    }
    if (table.empty() || table[0] < 0 || table[0] > kEncodeLimitWraps) return false;
    std::unique_ptr<codec::Decoder> decoder;
    std::int64_t word = -1;
    if (codec::OpenProtobuf({table.data() + 1, table.size() - 1}, {}, &decoder, &word) !=
        Status::kOk) {
      return false;
    }
    field->child = static_cast<std::uint32_t>(out_.checks.size());
    out_.checks.push_back(
        std::make_unique<ValueCheck>(std::move(decoder), static_cast<std::uint32_t>(table[0])));
    return true;
  }

  Span<const std::int32_t> code_;
  std::vector<std::vector<std::int32_t>> tables_;
  const std::vector<ColumnType>& types_;
  PutProgram& out_;
  std::int64_t bad_ = 0;
};

}  // namespace

bool ReadPutProgram(Span<const std::int32_t> code, Span<const std::int32_t> tables,
                    const std::vector<ColumnType>& types, PutProgram* out, std::int64_t* bad) {
  std::vector<std::vector<std::int32_t>> lists;
  *bad = -1;
  if (!ReadTables(tables, &lists)) return false;
  *bad = 0;
  if (code.size != types.size() * kProtoPutCount) return false;
  Reader reader(code, std::move(lists), types, out);
  std::uint32_t root = 0;
  const bool is_good = reader.ReadMessage(0, static_cast<std::uint32_t>(types.size()), &root);
  *bad = is_good ? -1 : reader.bad();
  return is_good;
}

}  // namespace millrace::kernel::encode
