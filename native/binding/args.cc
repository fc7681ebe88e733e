#include "binding/args.h"

#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace millrace::binding {
namespace {

void ThrowFormatted(napi_env env, const char* code, bool type_error, const char* format,
                    std::va_list values) {
  bool pending = false;
  if (napi_is_exception_pending(env, &pending) != napi_ok || pending) return;
  char message[kMessageBytes];
  std::vsnprintf(message, sizeof message, format, values);
  if (type_error) {
    napi_throw_type_error(env, code, message);
  } else {
    napi_throw_error(env, code, message);
  }
}

// Greatest value of the enumeration's range, which no array type has. A runtime leaves the type
// unset for a kind of array that its Node-API does not know.
constexpr auto kUnknownType = static_cast<napi_typedarray_type>(15);

// Bytes of a cell; 0 for an unknown type, so that its size is not guessed.
std::size_t CellBytes(napi_typedarray_type type) {
  switch (type) {
    case napi_int8_array:
    case napi_uint8_array:
    case napi_uint8_clamped_array:
      return 1;
    case napi_int16_array:
    case napi_uint16_array:
      return 2;
    case napi_int32_array:
    case napi_uint32_array:
    case napi_float32_array:
      return 4;
    case napi_float64_array:
    case napi_bigint64_array:
    case napi_biguint64_array:
      return 8;
    default:
      return 0;
  }
}

bool Detached(napi_env env, napi_value buffer) {
  bool detached = false;
  return napi_is_detached_arraybuffer(env, buffer, &detached) != napi_ok || detached;
}

}  // namespace

void Throw(napi_env env, const char* code, const char* format, ...) {
  std::va_list values;
  va_start(values, format);
  ThrowFormatted(env, code, false, format, values);
  va_end(values);
}

void ThrowType(napi_env env, const char* format, ...) {
  std::va_list values;
  va_start(values, format);
  ThrowFormatted(env, "ERR_INVALID_ARG_TYPE", true, format, values);
  va_end(values);
}

void ThrowStatus(napi_env env, kernel::Status status, const char* what) {
  switch (status) {
    case kernel::Status::kOk:
      return;
    case kernel::Status::kNotThisBatch:
      return Throw(env, kLayoutMismatch, "%s: the buffer is not a batch of the expected layout",
                   what);
    case kernel::Status::kRowsBeyondCapacity:
      return Throw(env, kLayoutMismatch, "%s: the header says more rows than the batch has", what);
    case kernel::Status::kArenaBeyondCapacity:
      return Throw(env, kLayoutMismatch, "%s: the header says more arena bytes than the batch has",
                   what);
    case kernel::Status::kTooFewRows:
      return Throw(env, kOutOfRange, "%s: too few rows", what);
    case kernel::Status::kSpanOutOfRange:
      return Throw(env, kOutOfRange, "%s: a span leaves its buffer", what);
    case kernel::Status::kBadArgument:
      return Throw(env, kOutOfRange, "%s: a number outside its range", what);
    case kernel::Status::kNoMemory:
      return Throw(env, kInternal, "%s: no memory left", what);
    case kernel::Status::kTableFull:
      return Throw(env, kInternal, "%s: more keys in one slice of one shard than a table takes",
                   what);
    case kernel::Status::kNotReady:
      return Throw(env, kOutOfRange, "%s: not ready yet", what);
  }
  Throw(env, kInternal, "%s: unknown status %d", what, static_cast<int>(status));
}

void ThrowPayloadStatus(napi_env env, kernel::Status status) {
  ThrowStatus(env, status, status == kernel::Status::kSpanOutOfRange ? "payloads" : "into");
}

bool BytesOf(napi_env env, napi_value value, Span<std::uint8_t>* out) {
  bool is = false;
  void* data = nullptr;
  std::size_t size = 0;
  if (napi_is_arraybuffer(env, value, &is) == napi_ok && is) {
    if (Detached(env, value) || napi_get_arraybuffer_info(env, value, &data, &size) != napi_ok) {
      return false;
    }
  } else if (napi_is_typedarray(env, value, &is) == napi_ok && is) {
    napi_typedarray_type type = kUnknownType;
    napi_value buffer;
    if (napi_get_typedarray_info(env, value, &type, &size, &data, &buffer, nullptr) != napi_ok ||
        CellBytes(type) == 0 || Detached(env, buffer)) {
      return false;
    }
    size *= CellBytes(type);
  } else if (napi_is_dataview(env, value, &is) == napi_ok && is) {
    napi_value buffer;
    if (napi_get_dataview_info(env, value, &size, &data, &buffer, nullptr) != napi_ok ||
        Detached(env, buffer)) {
      return false;
    }
  } else {
    return false;
  }
  out->data = static_cast<std::uint8_t*>(data);
  out->size = size;
  return true;
}

Call::Call(napi_env env, napi_callback_info info) : env_(env) {
  count_ = kArgumentsMax;
  if (napi_get_cb_info(env, info, &count_, values_, nullptr, &data_) != napi_ok) count_ = 0;
}

bool Call::HasArguments(std::size_t count) {
  if (count_ == count) return true;
  ThrowType(env_, "expected %zu arguments, not %zu", count, count_);
  return false;
}

bool Call::IsNull(std::size_t index) const {
  napi_valuetype type = napi_undefined;
  return napi_typeof(env_, values_[index], &type) == napi_ok && type == napi_null;
}

bool Call::Boolean(std::size_t index, const char* name, bool* out) {
  if (napi_get_value_bool(env_, values_[index], out) == napi_ok) return true;
  ThrowType(env_, "%s: expected a boolean", name);
  return false;
}

bool Call::Number(std::size_t index, const char* name, double* out) {
  if (napi_get_value_double(env_, values_[index], out) == napi_ok) return true;
  ThrowType(env_, "%s: expected a number", name);
  return false;
}

bool Call::Integer(std::size_t index, const char* name, std::int64_t least, std::int64_t greatest,
                   std::int64_t* out) {
  double number = 0;
  if (!Number(index, name, &number)) return false;
  // The comparison is written so that NaN fails.
  if (!(number >= static_cast<double>(least) && number <= static_cast<double>(greatest)) ||
      number != std::floor(number)) {
    Throw(env_, kOutOfRange, "%s: expected a whole number from %lld to %lld, not %g", name,
          static_cast<long long>(least), static_cast<long long>(greatest), number);
    return false;
  }
  *out = static_cast<std::int64_t>(number);
  return true;
}

bool Call::Uint32(std::size_t index, const char* name, std::uint32_t* out) {
  std::int64_t number = 0;
  if (!Integer(index, name, 0, INT64_C(0xffffffff), &number)) return false;
  *out = static_cast<std::uint32_t>(number);
  return true;
}

bool Call::Int32(std::size_t index, const char* name, std::int32_t* out) {
  std::int64_t number = 0;
  if (!Integer(index, name, INT32_MIN, INT32_MAX, &number)) return false;
  *out = static_cast<std::int32_t>(number);
  return true;
}

bool Call::BigUint64(std::size_t index, const char* name, std::uint64_t* out) {
  bool lossless = false;
  if (napi_get_value_bigint_uint64(env_, values_[index], out, &lossless) != napi_ok) {
    ThrowType(env_, "%s: expected a bigint", name);
    return false;
  }
  if (lossless) return true;
  Throw(env_, kOutOfRange, "%s: expected a bigint from 0 to 2^64 - 1", name);
  return false;
}

bool Call::Text(std::size_t index, const char* name, std::size_t bytes_max, std::string* out) {
  std::size_t length = 0;
  if (napi_get_value_string_utf8(env_, values_[index], nullptr, 0, &length) != napi_ok) {
    ThrowType(env_, "%s: expected a string", name);
    return false;
  }
  if (length > bytes_max) {
    Throw(env_, kOutOfRange, "%s: %zu bytes, more than %zu", name, length, bytes_max);
    return false;
  }
  out->resize(length + 1);
  if (napi_get_value_string_utf8(env_, values_[index], out->data(), length + 1, &length) !=
      napi_ok) {
    ThrowType(env_, "%s: expected a string", name);
    return false;
  }
  out->resize(length);
  return true;
}

bool Call::TypedArray(std::size_t index, const char* name, napi_typedarray_type type,
                      std::size_t cell_bytes, const char* type_name, Span<std::uint8_t>* out) {
  napi_typedarray_type real = kUnknownType;
  std::size_t length = 0;
  void* data = nullptr;
  napi_value buffer;
  bool is = false;
  if (napi_is_typedarray(env_, values_[index], &is) != napi_ok || !is ||
      napi_get_typedarray_info(env_, values_[index], &real, &length, &data, &buffer, nullptr) !=
          napi_ok ||
      real != type) {
    ThrowType(env_, "%s: expected a %s", name, type_name);
    return false;
  }
  if (Detached(env_, buffer)) {
    ThrowType(env_, "%s: the buffer is detached", name);
    return false;
  }
  if (reinterpret_cast<std::uintptr_t>(data) % cell_bytes != 0) {
    ThrowType(env_, "%s: the memory is not aligned to %zu", name, cell_bytes);
    return false;
  }
  out->data = static_cast<std::uint8_t*>(data);
  out->size = length;
  return true;
}

namespace {

template <typename T>
bool As(bool ok, const Span<std::uint8_t>& bytes, Span<T>* out) {
  if (!ok) return false;
  out->data = reinterpret_cast<T*>(bytes.data);
  out->size = bytes.size;
  return true;
}

}  // namespace

bool Call::Array(std::size_t index, const char* name, Span<std::uint8_t>* out) {
  return TypedArray(index, name, napi_uint8_array, 1, "Uint8Array", out);
}

bool Call::Array(std::size_t index, const char* name, Span<std::int32_t>* out) {
  Span<std::uint8_t> cells;
  return As(TypedArray(index, name, napi_int32_array, 4, "Int32Array", &cells), cells, out);
}

bool Call::Array(std::size_t index, const char* name, Span<std::uint32_t>* out) {
  Span<std::uint8_t> cells;
  return As(TypedArray(index, name, napi_uint32_array, 4, "Uint32Array", &cells), cells, out);
}

bool Call::Array(std::size_t index, const char* name, Span<std::int64_t>* out) {
  Span<std::uint8_t> cells;
  return As(TypedArray(index, name, napi_bigint64_array, 8, "BigInt64Array", &cells), cells, out);
}

bool Call::Array(std::size_t index, const char* name, Span<std::uint64_t>* out) {
  Span<std::uint8_t> cells;
  return As(TypedArray(index, name, napi_biguint64_array, 8, "BigUint64Array", &cells), cells, out);
}

bool Call::Array(std::size_t index, const char* name, Span<double>* out) {
  Span<std::uint8_t> cells;
  return As(TypedArray(index, name, napi_float64_array, 8, "Float64Array", &cells), cells, out);
}

bool Call::Bytes(std::size_t index, const char* name, Span<std::uint8_t>* out) {
  if (BytesOf(env_, values_[index], out)) return true;
  ThrowType(env_, "%s: expected an ArrayBuffer or a view that is not detached", name);
  return false;
}

bool Call::Payloads(std::size_t index, PayloadRange* out) {
  Span<std::uint8_t> bytes;
  Span<std::uint32_t> start;
  Span<std::int32_t> length;
  if (!Array(index, "payloads", &bytes) || !Array(index + 1, "start", &start) ||
      !Array(index + 2, "length", &length) || !Uint32(index + 3, "from", &out->from) ||
      !Uint32(index + 4, "to", &out->to)) {
    return false;
  }
  out->payloads = {{bytes.data, bytes.size}, {start.data, start.size}, {length.data, length.size}};
  return true;
}

napi_value ToNumber(napi_env env, double value) {
  napi_value out = nullptr;
  napi_create_double(env, value, &out);
  return out;
}

napi_value ToText(napi_env env, const char* text, std::size_t length) {
  napi_value out = nullptr;
  napi_create_string_utf8(env, text, length, &out);
  return out;
}

napi_value Undefined(napi_env env) {
  napi_value out = nullptr;
  napi_get_undefined(env, &out);
  return out;
}

void Export(napi_env env, napi_value exports, const char* name, napi_callback callback,
            void* data) {
  napi_value function;
  if (napi_create_function(env, name, NAPI_AUTO_LENGTH, callback, data, &function) != napi_ok ||
      napi_set_named_property(env, exports, name, function) != napi_ok) {
    Throw(env, kInternal, "cannot export %s", name);
  }
}

}  // namespace millrace::binding
