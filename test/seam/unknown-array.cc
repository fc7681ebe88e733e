// The argument checks of the addon in a runtime whose Node-API does not know a
// kind of typed array: every typed array is of that kind. It is compiled with
// native/binding/args.cc, whose calls of napi_get_typedarray_info come here.
#include "binding/args.h"

#undef napi_get_typedarray_info
extern "C" napi_status napi_get_typedarray_info(napi_env, napi_value,
                                                napi_typedarray_type *,
                                                std::size_t *, void **,
                                                napi_value *, std::size_t *);

extern "C" napi_status unknown_kind(napi_env env, napi_value value,
                                    napi_typedarray_type *type,
                                    std::size_t *length, void **data,
                                    napi_value *buffer, std::size_t *offset) {
  const napi_typedarray_type unset = *type;
  const napi_status status =
      napi_get_typedarray_info(env, value, type, length, data, buffer, offset);
  *type = unset;
  return status;
}

namespace millrace::binding {
namespace {

// bytesOf(value): number
napi_value SizeOf(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Span<std::uint8_t> bytes;
  if (!call.HasArguments(1) || !call.Bytes(0, "value", &bytes))
    return nullptr;
  return ToNumber(env, static_cast<double>(bytes.size));
}

// float64sOf(value): number
napi_value Float64sOf(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Span<double> cells;
  if (!call.HasArguments(1) || !call.Array(0, "value", &cells))
    return nullptr;
  return ToNumber(env, static_cast<double>(cells.size));
}

} // namespace
} // namespace millrace::binding

NAPI_MODULE_INIT() {
  using namespace millrace::binding;
  Export(env, exports, "bytesOf", SizeOf);
  Export(env, exports, "float64sOf", Float64sOf);
  return exports;
}
