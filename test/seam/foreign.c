// An addon of another project or of other sources. It reports the identity that it was compiled with.
#include <node_api.h>

static void number(napi_env env, napi_value exports, const char* name, double value) {
  napi_value number;
  napi_create_double(env, value, &number);
  napi_set_named_property(env, exports, name, number);
}

NAPI_MODULE_INIT() {
#ifdef LAYOUT
  number(env, exports, "layoutFingerprint", LAYOUT);
#endif
#ifdef ABI
  number(env, exports, "abi", ABI);
#endif
  number(env, exports, "answer", 42);
  return exports;
}
