# The addon `millrace`: kernels, generator and broker client behind Node-API. It links the librdkafka that node-rdkafka
# built, by a path relative to itself, so that a process has one copy of it: from the project's own node_modules, or
# beside this package where it is installed as a dependency.
{
  'variables': {
    'rdkafka_dir%': '<!(node -p "require(\'node:path\').dirname(require.resolve(\'node-rdkafka/package.json\'))")/build/deps',
    # node-pre-gyp says where its builds go; a plain node-gyp leaves the addon in build/Release alone.
    'module_path%': '',
    # The store's library may be missing; then there is no state addon, and the rest is built all the same.
    'rocksdb%': '<!(c++ -E -x c++ -include rocksdb/c.h /dev/null >/dev/null 2>&1 && echo yes || echo no)',
    # The direct client reads compressed batches and speaks TLS by itself; without one of these libraries it is not built.
    'direct%': '<!(c++ -E -x c++ -include openssl/ssl.h -include zlib.h -include lz4frame.h -include zstd.h -include snappy-c.h /dev/null >/dev/null 2>&1 && echo yes || echo no)',
  },
  'targets': [
    {
      'target_name': 'millrace',
      'sources': [
        '<!@(node -p "[\'binding\',\'binding/broker\',\'binding/window\',\'kernel\',\'kernel/codec\',\'kernel/encode\',\'kernel/gen\',\'kernel/json\',\'kernel/rows\',\'kernel/session\',\'kernel/shard\',\'kernel/window\',\'broker\'].flatMap((d)=>fs.readdirSync(\'native/\'+d).filter((f)=>f.endsWith(\'.cc\')).sort().map((f)=>\'native/\'+d+\'/\'+f)).join(\' \')")',
      ],
      'include_dirs': ['native'],
      'defines': ['NAPI_VERSION=9'],
      'cflags_cc!': ['-std=gnu++17', '-std=gnu++20', '-O3'],
      'cflags!': ['-O3'],
      'cflags_cc': [
        # A system header is spared our warnings.
        '-isystem', '<(rdkafka_dir)/include',
        '-std=c++20', '-Wall', '-Wextra', '-Wconversion', '-Werror', '-fno-exceptions', '-fno-rtti',
        '-fvisibility=hidden', '-O2', '-fno-omit-frame-pointer', '-ffp-contract=off',
      ],
      'conditions': [
        ['direct=="yes"', {
          'sources': [
            '<!@(node -p "[\'broker/wire\',\'broker/direct\'].flatMap((d)=>fs.readdirSync(\'native/\'+d).filter((f)=>f.endsWith(\'.cc\')).sort().map((f)=>\'native/\'+d+\'/\'+f)).join(\' \')")',
          ],
          'libraries': ['-lssl', '-lcrypto', '-lz', '-llz4', '-lzstd', '-lsnappy'],
        }],
        ['OS=="linux"', {
          'libraries': [
            '<(rdkafka_dir)/librdkafka.so.1',
            "-Wl,-rpath,'$$ORIGIN/../../node_modules/node-rdkafka/build/deps'",
            "-Wl,-rpath,'$$ORIGIN/../../../node-rdkafka/build/deps'",
            '-Wl,--version-script=<(module_root_dir)/native/exports.map',
            # A worker that ends must not take away the code of a client that is still being freed.
            '-Wl,-z,nodelete',
          ],
        }],
        ['OS=="mac"', {
          'libraries': [
            '<(rdkafka_dir)/librdkafka.dylib',
            '-Wl,-rpath,@loader_path/../../node_modules/node-rdkafka/build/deps',
            '-Wl,-rpath,@loader_path/../../../node-rdkafka/build/deps',
          ],
          'xcode_settings': {
            'CLANG_CXX_LANGUAGE_STANDARD': 'c++20',
            'MACOSX_DEPLOYMENT_TARGET': '12.0',
            'GCC_ENABLE_CPP_EXCEPTIONS': 'NO',
            'GCC_ENABLE_CPP_RTTI': 'NO',
            'GCC_SYMBOLS_PRIVATE_EXTERN': 'YES',
            'OTHER_CPLUSPLUSFLAGS': ['-isystem', '<(rdkafka_dir)/include', '-Wall', '-Wextra', '-Wconversion', '-Werror', '-fno-omit-frame-pointer', '-ffp-contract=off'],
          },
        }],
      ],
    },
  ],
  'conditions': [
    ['module_path!=""', {
      'targets': [
        {
          # Puts the addon where the loader looks first.
          'target_name': 'install_addon',
          'type': 'none',
          'dependencies': ['millrace'],
          'copies': [{ 'files': ['<(PRODUCT_DIR)/millrace.node'], 'destination': '<(module_path)' }],
        },
      ],
    }],
    ['rocksdb=="yes"', {
      'targets': [
        {
          # The embedded store, an addon of its own. It shares the seam's code and no state with the other.
          'target_name': 'millrace_state',
          'sources': [
            'native/binding/args.cc', 'native/binding/async.cc', 'native/binding/handle.cc',
            '<!@(node -p "[\'binding/state\',\'state\'].flatMap((d)=>fs.readdirSync(\'native/\'+d).filter((f)=>f.endsWith(\'.cc\')).sort().map((f)=>\'native/\'+d+\'/\'+f)).join(\' \')")',
          ],
          'include_dirs': ['native'],
          'defines': ['NAPI_VERSION=9'],
          'cflags_cc!': ['-std=gnu++17', '-std=gnu++20', '-O3'],
          'cflags!': ['-O3'],
          'cflags_cc': [
            '-std=c++20', '-Wall', '-Wextra', '-Wconversion', '-Werror', '-fno-exceptions', '-fno-rtti',
            '-fvisibility=hidden', '-O2', '-fno-omit-frame-pointer',
          ],
          'libraries': ['-lrocksdb'],
          'conditions': [
            ['OS=="linux"', {
              'libraries': ['-Wl,--version-script=<(module_root_dir)/native/exports.map'],
            }],
            ['OS=="mac"', {
              'xcode_settings': {
                'CLANG_CXX_LANGUAGE_STANDARD': 'c++20',
                'MACOSX_DEPLOYMENT_TARGET': '12.0',
                'GCC_ENABLE_CPP_EXCEPTIONS': 'NO',
                'GCC_ENABLE_CPP_RTTI': 'NO',
                'GCC_SYMBOLS_PRIVATE_EXTERN': 'YES',
                'OTHER_CPLUSPLUSFLAGS': ['-Wall', '-Wextra', '-Wconversion', '-Werror', '-fno-omit-frame-pointer'],
              },
            }],
          ],
        },
      ],
    }],
    ['rocksdb=="yes" and module_path!=""', {
      'targets': [
        {
          'target_name': 'install_state_addon',
          'type': 'none',
          'dependencies': ['millrace_state'],
          'copies': [{ 'files': ['<(PRODUCT_DIR)/millrace_state.node'], 'destination': '<(module_path)' }],
        },
      ],
    }],
  ],
}
