// Check of programs for Avro payloads; the same rules as src/addon/reference/codec/avro-program.ts.
#include <initializer_list>

#include "kernel/codec/avro.h"

namespace millrace::kernel::codec {
namespace {

using namespace layout;

class ProgramCheck {
 public:
  ProgramCheck(Span<const std::int32_t> code, std::size_t pool_bytes,
               const std::vector<ColumnType>& types)
      : code_(code), pool_bytes_(pool_bytes), types_(types), starts_(code.size) {}

  std::int64_t FirstBadWord() {
    const auto size = static_cast<std::int64_t>(code_.size);
    if (size > kColumnLimitProgramWords) return kColumnLimitProgramWords;
    std::int64_t last = -1;
    for (std::int64_t pc = 0; pc < size;) {
      const std::int64_t words = WordsAt(pc);
      if (words == 0 || pc + words > size) return pc;
      starts_[static_cast<std::size_t>(pc)] = 1;
      last = pc;
      pc += words;
    }
    // Control cannot leave the code: every path ends at an END.
    if (last < 0 || At(last) != kAvroOpEnd) return last < 0 ? 0 : last;
    for (std::int64_t pc = 0; pc < size; pc += WordsAt(pc)) {
      if (!IsGood(pc)) return pc;
    }
    return -1;
  }

 private:
  // Word at `at`; -1 behind the code.
  std::int32_t At(std::int64_t at) const {
    return at < static_cast<std::int64_t>(code_.size) ? code_.data[at] : -1;
  }

  // Words of an instruction without the table behind it; 0 for none.
  static std::int64_t FixedWords(std::int32_t op) {
    switch (op) {
      case kAvroOpEnd:
      case kAvroOpSkipInt:
      case kAvroOpSkipLong:
      case kAvroOpSkipBool:
      case kAvroOpSkipBytes:
      case kAvroOpSkipText:
      case kAvroOpRefuse:
        return 1;
      case kAvroOpOptional:
      case kAvroOpLazy:
      case kAvroOpConstBytes:
        return 4;
      case kAvroOpRecord:
      case kAvroOpArray:
      case kAvroOpPick:
      case kAvroOpDecimal:
      case kAvroOpEnum:
      case kAvroOpConstBool:
      case kAvroOpConstInt:
        return 3;
      case kAvroOpSkipFixed:
      case kAvroOpSkipIndex:
      case kAvroOpCheckEnum:
      case kAvroOpCall:
      case kAvroOpJump:
      case kAvroOpUnion:
      case kAvroOpMap:
      case kAvroOpNull:
      case kAvroOpClose:
        return 2;
      default:
        return op >= kAvroOpBool && op <= kAvroOpFixed ? 2 : 0;
    }
  }

  std::int64_t WordsAt(std::int64_t pc) const {
    const std::int32_t op = At(pc);
    const std::int64_t words = FixedWords(op);
    if (op != kAvroOpUnion && op != kAvroOpCheckEnum && op != kAvroOpEnum) return words;
    const std::int32_t count = At(pc + words - 1);
    return count < 0 || count > kColumnLimitProgramWords ? 0 : words + count;
  }

  bool IsStart(std::int64_t at) const {
    return at >= 0 && at < static_cast<std::int64_t>(code_.size) &&
           starts_[static_cast<std::size_t>(at)] == 1;
  }
  bool IsAhead(std::int64_t pc, std::int64_t to) const { return to > pc && IsStart(to); }

  bool IsColumn(std::int32_t column) const {
    return column >= 0 && static_cast<std::size_t>(column) < types_.size();
  }
  bool IsKind(std::int32_t column, std::initializer_list<std::int32_t> kinds) const {
    if (!IsColumn(column)) return false;
    for (const std::int32_t kind : kinds) {
      if (types_[static_cast<std::size_t>(column)].kind == kind) return true;
    }
    return false;
  }

  bool IsGood(std::int64_t pc) const {
    const std::int32_t a = At(pc + 1);
    const std::int32_t b = At(pc + 2);
    switch (At(pc)) {
      case kAvroOpSkipFixed:
      case kAvroOpSkipIndex:
        return a >= 0;
      case kAvroOpCall: {
        const std::int32_t op = IsStart(a) ? At(a) : -1;
        return op == kAvroOpRecord || op == kAvroOpArray || op == kAvroOpMap || op == kAvroOpRefuse;
      }
      case kAvroOpJump:
        return IsAhead(pc, a);
      case kAvroOpUnion:
        for (std::int32_t i = 0; i < a; i++) {
          if (!IsAhead(pc, At(pc + 2 + i))) return false;
        }
        return true;
      case kAvroOpOptional:
        return (a == 0 || a == 1) && IsColumn(b) && IsAhead(pc, At(pc + 3));
      case kAvroOpRecord:
        return a >= 0 && (b == -1 || IsKind(b, {kColumnKindStruct}));
      case kAvroOpArray:
        return (a == 0 || a == 1) && (b == -1 || IsKind(b, {kColumnKindList}));
      case kAvroOpMap:
        return a == -1 || (IsKind(a, {kColumnKindMap}) && IsKind(a + 2, {kColumnKindUtf8}));
      case kAvroOpNull:
        return IsColumn(a);
      default:
        return IsValueGood(pc);
    }
  }

  bool IsValueGood(std::int64_t pc) const {
    const std::int32_t column = At(pc + 1);
    const std::int32_t b = At(pc + 2);
    switch (At(pc)) {
      case kAvroOpLazy:
        return IsKind(column, {kColumnKindBinary}) && b >= -1 && b <= 255 &&
               IsLazyGood(pc, At(pc + 3));
      case kAvroOpPick:
        return IsKind(column, {kColumnKindUnion}) && b >= 0 && b < Children(column);
      case kAvroOpBool:
      case kAvroOpConstBool:
        return IsKind(column, {kColumnKindBool});
      case kAvroOpInt:
        return IsKind(column, {kColumnKindInt32});
      case kAvroOpLong:
      case kAvroOpIntToLong:
        return IsKind(column, {kColumnKindInt64});
      case kAvroOpFloat:
      case kAvroOpIntToFloat:
      case kAvroOpLongToFloat:
        return IsKind(column, {kColumnKindFloat32});
      case kAvroOpDouble:
      case kAvroOpIntToDouble:
      case kAvroOpLongToDouble:
      case kAvroOpFloatToDouble:
        return IsKind(column, {kColumnKindFloat64});
      case kAvroOpBytes:
      case kAvroOpText:
        return IsKind(column, {kColumnKindUtf8, kColumnKindBinary});
      case kAvroOpFixed:
        return IsKind(column, {kColumnKindFixed});
      case kAvroOpDecimal:
        return IsKind(column, {kColumnKindDecimal128, kColumnKindDecimal256}) && b >= 0 &&
               b <= Size(column);
      case kAvroOpEnum:
        return IsKind(column, {kColumnKindDictionary});
      case kAvroOpConstInt:
        return IsKind(column, {kColumnKindInt32, kColumnKindDictionary});
      case kAvroOpConstBytes:
        return IsConstantGood(column, b, At(pc + 3));
      case kAvroOpClose:
        return IsKind(column, {kColumnKindList, kColumnKindMap, kColumnKindStruct});
      default:
        return true;
    }
  }

  bool IsConstantGood(std::int32_t column, std::int64_t at, std::int64_t length) const {
    if (at < 0 || length < 0 || at + length > static_cast<std::int64_t>(pool_bytes_)) return false;
    return IsKind(column, {kColumnKindUtf8, kColumnKindBinary}) ||
           (IsKind(column, {kColumnKindInt64, kColumnKindFloat32, kColumnKindFloat64,
                            kColumnKindFixed, kColumnKindDecimal128, kColumnKindDecimal256}) &&
            length == Size(column));
  }

  // The block of a lazy value ends before `to`, its jumps stay inside, and it has no other.
  bool IsLazyGood(std::int64_t pc, std::int64_t to) const {
    if (!IsAhead(pc + 3, to) || !IsStart(to - 1) || At(to - 1) != kAvroOpEnd) return false;
    for (std::int64_t at = pc + 4; at < to; at += WordsAt(at)) {
      const std::int32_t op = At(at);
      if (op == kAvroOpLazy) return false;
      if (op == kAvroOpJump && At(at + 1) >= to) return false;
      if (op == kAvroOpOptional && At(at + 3) >= to) return false;
      if (op != kAvroOpUnion) continue;
      for (std::int32_t i = 0; i < At(at + 1); i++) {
        if (At(at + 2 + i) >= to) return false;
      }
    }
    return true;
  }

  std::int64_t Size(std::int32_t column) const {
    return types_[static_cast<std::size_t>(column)].size;
  }

  std::int32_t Children(std::int32_t column) const {
    const std::uint32_t end = types_[static_cast<std::size_t>(column)].next;
    std::int32_t count = 0;
    for (auto at = static_cast<std::uint32_t>(column) + 1; at < end; at = types_[at].next) count++;
    return count;
  }

  Span<const std::int32_t> code_;
  std::size_t pool_bytes_;
  const std::vector<ColumnType>& types_;
  // 1 where an instruction starts.
  std::vector<std::uint8_t> starts_;
};

}  // namespace

void CheckAvroProgram(Span<const std::int32_t> code, std::size_t pool_bytes,
                      const std::vector<ColumnType>& types, std::int64_t* bad) {
  *bad = ProgramCheck(code, pool_bytes, types).FirstBadWord();
}

}  // namespace millrace::kernel::codec
