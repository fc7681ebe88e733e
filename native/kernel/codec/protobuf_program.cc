// Reader of programs for Protobuf payloads; the same rules as
// src/addon/reference/codec/proto-program.ts.
#include "kernel/codec/protobuf.h"

namespace millrace::kernel::codec {
namespace {

using namespace layout;

// Flags of a program that decodes; the others belong to programs that encode.
constexpr std::int32_t kDecodeFlags = kProtoFlagRepeated | kProtoFlagPresence | kProtoFlagRequired |
                                      kProtoFlagGroup | kProtoFlagMap | kProtoFlagRaw;

bool IsKey(std::int32_t kind) { return kind >= kProtoKindInt32 && kind <= kProtoKindString; }

// True for a column that values of the kind are appended to.
bool Takes(std::int32_t kind, std::int32_t column_kind) {
  switch (kind) {
    case kProtoKindInt32:
    case kProtoKindUint32:
    case kProtoKindSint32:
    case kProtoKindFixed32:
    case kProtoKindEnum:
      return column_kind == kColumnKindInt32 || column_kind == kColumnKindUint32 ||
             column_kind == kColumnKindFloat32;
    case kProtoKindInt64:
    case kProtoKindSint64:
    case kProtoKindFixed64:
      return column_kind == kColumnKindInt64 || column_kind == kColumnKindUint64 ||
             column_kind == kColumnKindFloat64;
    case kProtoKindBool:
      return column_kind == kColumnKindBool;
    case kProtoKindClosedEnum:
      return column_kind == kColumnKindDictionary;
    case kProtoKindString:
    case kProtoKindBytes:
      return IsText(column_kind);
    default:
      return column_kind == kColumnKindStruct;
  }
}

// True for a field whose values may be in one packed run.
bool IsRunnable(const ProtoField& field) {
  return field.Has(kProtoFlagRepeated) && field.kind != kProtoKindMessage &&
         field.kind != kProtoKindString && field.kind != kProtoKindBytes;
}

class Reader {
 public:
  Reader(Span<const std::int32_t> code, const std::vector<ColumnType>& types, ProtoProgram* out)
      : code_(code), types_(types), out_(out) {}

  std::int64_t Read() {
    if (static_cast<std::int64_t>(code_.size) > kColumnLimitProgramWords) {
      return kColumnLimitProgramWords;
    }
    const std::size_t nodes = Count(kProtoWordNode);
    const std::size_t enums = Count(1);
    const std::size_t oneofs = Count(1);
    if (nodes == 0) return 0;
    std::vector<std::size_t> starts;
    for (std::size_t i = 0; i < nodes && bad_ < 0; i++) {
      starts.push_back(at_);
      Word();
      const std::size_t fields = Count(kProtoWordField);
      Word();
      const std::size_t tags = Count(kProtoWordTag);
      Skip(fields * std::size_t{kProtoWordField} + tags * std::size_t{kProtoWordTag});
    }
    for (std::size_t i = 0; i < enums && bad_ < 0; i++) ReadEnum();
    for (std::size_t i = 0; i < oneofs && bad_ < 0; i++) ReadOneof();
    if (bad_ < 0 && at_ != code_.size) Refuse(at_);
    out_->nodes.resize(nodes);
    for (std::size_t i = 0; i < nodes && bad_ < 0; i++) ReadNode(starts[i], i);
    return bad_;
  }

 private:
  void Refuse(std::size_t at) {
    if (bad_ < 0) bad_ = static_cast<std::int64_t>(at);
  }

  std::int32_t Word() {
    if (at_ < code_.size) return code_.data[at_++];
    Refuse(at_);
    return 0;
  }

  // Reads a count of parts with so many words each, which the code has room for.
  std::size_t Count(std::int32_t words) {
    const std::size_t at = at_;
    const std::int32_t count = Word();
    if (count >= 0 && std::uint64_t(count) * std::uint64_t(words) <= code_.size - at_) {
      return static_cast<std::size_t>(count);
    }
    Refuse(at);
    return 0;
  }

  void Skip(std::size_t words) {
    if (words > code_.size - at_) {
      Refuse(at_);
    } else {
      at_ += words;
    }
  }

  void ReadEnum() {
    std::vector<ProtoSymbol> symbols(Count(2));
    std::int64_t last = INT64_MIN;
    for (ProtoSymbol& symbol : symbols) {
      const std::size_t at = at_;
      symbol.number = Word();
      symbol.index = Word();
      if (symbol.number <= last || symbol.index < 0) Refuse(at);
      last = symbol.number;
    }
    out_->enums.push_back(std::move(symbols));
  }

  void ReadOneof() {
    std::vector<std::uint32_t> members(Count(1));
    // A negative index is too large for any message.
    for (std::uint32_t& member : members) member = static_cast<std::uint32_t>(Word());
    out_->oneofs.push_back(std::move(members));
  }

  void ReadNode(std::size_t start, std::size_t index) {
    ProtoNode& node = out_->nodes[index];
    at_ = start;
    node.column = Word();
    node.fields.resize(Count(kProtoWordField));
    node.spend = Word();
    node.tags.resize(Count(kProtoWordTag));
    const bool is_struct = index > 0 && IsColumn(node.column, kColumnKindStruct);
    // Counted fields bound the memory of frames.
    const bool counts_all = node.spend >= 0 && std::uint64_t(node.spend) >= node.fields.size();
    if ((node.column != -1 && !is_struct) || !counts_all) Refuse(start);
    for (std::size_t i = 0; i < node.fields.size() && bad_ < 0; i++) {
      ReadField(node.fields.size(), &node.fields[i]);
      if (node.fields[i].Has(kProtoFlagRequired)) {
        node.required.push_back(static_cast<std::uint32_t>(i));
      }
    }
    std::int64_t last = -1;
    for (ProtoTag& tag : node.tags) {
      if (bad_ >= 0) return;
      const std::size_t at = at_;
      tag.tag = static_cast<std::uint32_t>(Word());
      tag.field = static_cast<std::uint32_t>(Word());
      const std::int32_t run = Word();
      tag.is_run = run == 1;
      if (tag.tag <= last || tag.field >= node.fields.size() || run < 0 || run > 1 ||
          (tag.is_run && !IsRunnable(node.fields[tag.field]))) {
        Refuse(at);
        return;
      }
      last = tag.tag;
    }
  }

  void ReadField(std::size_t fields, ProtoField* field) {
    const std::size_t at = at_;
    for (std::int32_t* word : {&field->kind, &field->flags, &field->column, &field->child,
                               &field->oneof, &field->key, &field->zero}) {
      *word = Word();
    }
    if (!IsGood(*field, fields)) Refuse(at);
  }

  bool IsGood(const ProtoField& field, std::size_t fields) const {
    if (field.kind < kProtoKindInt32 || field.kind > kProtoKindMessage) return false;
    if ((field.flags & ~kDecodeFlags) != 0) return false;
    const bool is_message = field.kind == kProtoKindMessage;
    if (!is_message && field.Has(kProtoFlagRaw | kProtoFlagGroup)) return false;
    if (field.Has(kProtoFlagMap)) {
      if (!IsKey(field.key) || field.Has(kProtoFlagRepeated)) return false;
    } else if (field.key != -1) {
      return false;
    }
    if (is_message && !IsIndex(field.child, out_->nodes.size())) return false;
    if (field.kind == kProtoKindClosedEnum && !IsIndex(field.child, out_->enums.size())) {
      return false;
    }
    if (field.oneof >= 0) {
      if (field.Has(kProtoFlagMap | kProtoFlagRepeated)) return false;
      if (!IsIndex(field.oneof, out_->oneofs.size())) return false;
      for (const std::uint32_t member : out_->oneofs[static_cast<std::size_t>(field.oneof)]) {
        if (member >= fields) return false;
      }
    }
    return field.column == -1 || IsColumnGood(field);
  }

  static bool IsIndex(std::int32_t index, std::size_t size) {
    return index >= 0 && static_cast<std::size_t>(index) < size;
  }

  bool IsColumn(std::int64_t column, std::int32_t kind) const {
    return column >= 0 && column < static_cast<std::int64_t>(types_.size()) &&
           types_[static_cast<std::size_t>(column)].kind == kind;
  }

  bool IsValueColumn(std::int64_t column, std::int32_t kind) const {
    return column >= 0 && column < static_cast<std::int64_t>(types_.size()) &&
           Takes(kind, types_[static_cast<std::size_t>(column)].kind);
  }

  bool IsColumnGood(const ProtoField& field) const {
    const std::int64_t first = field.column;
    if (first < 0) return false;
    const std::int64_t above =
        field.Has(kProtoFlagMap) ? 3 : (field.Has(kProtoFlagRepeated) ? 1 : 0);
    const bool is_good = field.Has(kProtoFlagRaw) ? IsColumn(first + above, kColumnKindBinary)
                                                  : IsValueColumn(first + above, field.kind);
    if (!is_good) return false;
    if (field.Has(kProtoFlagMap)) {
      return IsColumn(first, kColumnKindMap) && IsValueColumn(first + 2, field.key);
    }
    return !field.Has(kProtoFlagRepeated) || IsColumn(first, kColumnKindList);
  }

  Span<const std::int32_t> code_;
  const std::vector<ColumnType>& types_;
  ProtoProgram* out_;
  std::size_t at_ = 0;
  std::int64_t bad_ = -1;
};

}  // namespace

std::uint32_t WireOf(std::int32_t kind) {
  switch (kind) {
    case kProtoKindFixed32:
      return kWireFixed32;
    case kProtoKindFixed64:
      return kWireFixed64;
    case kProtoKindString:
    case kProtoKindBytes:
    case kProtoKindMessage:
      return kWireLength;
    default:
      return kWireVarint;
  }
}

const ProtoSymbol* ProtoProgram::FindSymbol(const ProtoField& field, std::uint64_t bits) const {
  const auto number = static_cast<std::int32_t>(bits);
  const std::vector<ProtoSymbol>& symbols = enums[static_cast<std::size_t>(field.child)];
  const auto found = std::lower_bound(
      symbols.begin(), symbols.end(), number,
      [](const ProtoSymbol& one, std::int32_t value) { return one.number < value; });
  return found != symbols.end() && found->number == number ? &*found : nullptr;
}

std::int64_t ReadProtoProgram(Span<const std::int32_t> code, const std::vector<ColumnType>& types,
                              ProtoProgram* out) {
  return Reader(code, types, out).Read();
}

}  // namespace millrace::kernel::codec
