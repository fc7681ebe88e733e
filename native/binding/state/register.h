// Registration functions of the state addon's parts, in the order of src/addon/state-functions.ts.
#pragma once

#include <node_api.h>

namespace millrace::binding {

void RegisterStore(napi_env env, napi_value exports);
void RegisterRun(napi_env env, napi_value exports);
void RegisterScan(napi_env env, napi_value exports);

}  // namespace millrace::binding
