// Registration functions of the addon's parts, in the order of src/addon/raw.ts.
#pragma once

#include <node_api.h>

namespace millrace::binding {

void RegisterKernels(napi_env env, napi_value exports);
void RegisterCodec(napi_env env, napi_value exports);
void RegisterEncode(napi_env env, napi_value exports);
void RegisterJson(napi_env env, napi_value exports);
void RegisterKeys(napi_env env, napi_value exports);
void RegisterGen(napi_env env, napi_value exports);
void RegisterWindows(napi_env env, napi_value exports);  // calls RegisterRuns at its end
void RegisterRuns(napi_env env, napi_value exports);
void RegisterSessions(napi_env env, napi_value exports);
void RegisterFiles(napi_env env, napi_value exports);
void RegisterBroker(napi_env env, napi_value exports);

}  // namespace millrace::binding
