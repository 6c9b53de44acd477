# SPDX-License-Identifier: Apache-2.0
# gRPC and Protocol Buffers as archives. Debian's gRPCConfig.cmake knows only the shared libraries; pkg-config's static
# closure has the absl archives. Defines the targets grpc_static, protobuf_static, crypto_either, and PROTOC,
# GRPC_CPP_PLUGIN. OpenSSL and zlib are archives, too, but shared libraries of the system for a program with the
# property AB_SYSTEM_TLS. pkg_check_modules() would run pkg-config 20 times, and each walk over absl's modules takes
# more than a second.
find_program(PKG_CONFIG pkg-config REQUIRED)
if(NOT DEFINED CACHE{GRPC_STATIC_FLAGS})
  execute_process(COMMAND ${PKG_CONFIG} --static --libs-only-l grpc++
    OUTPUT_VARIABLE grpc_flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(GRPC_STATIC_FLAGS "${grpc_flags}" CACHE INTERNAL "pkg-config's flags for a static gRPC")
endif()
separate_arguments(grpc_flags UNIX_COMMAND "${GRPC_STATIC_FLAGS}")
find_program(PROTOC protoc REQUIRED)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)

set(grpc_archive_names grpcpp_channelz grpc++ grpc address_sorting re2 upb cares gpr protobuf)
list(FILTER grpc_flags INCLUDE REGEX "^-labsl_")
list(TRANSFORM grpc_flags REPLACE "^-l" "")
list(APPEND grpc_archive_names ${grpc_flags})
list(REMOVE_DUPLICATES grpc_archive_names)
set(grpc_archives "")
foreach(name IN LISTS grpc_archive_names)
  find_library(LIB_${name} lib${name}.a REQUIRED)  # the .a in the name selects the static library
  mark_as_advanced(LIB_${name})
  list(APPEND grpc_archives ${LIB_${name}})
endforeach()
find_library(LIB_protobuf_only libprotobuf.a REQUIRED)
foreach(name ssl crypto z)
  find_library(LIB_${name} lib${name}.a REQUIRED)
  mark_as_advanced(LIB_${name})
  set(either_${name} $<IF:$<BOOL:$<TARGET_PROPERTY:AB_SYSTEM_TLS>>,${name},${LIB_${name}}>)
endforeach()

add_library(grpc_static INTERFACE)
target_link_libraries(grpc_static INTERFACE -Wl,--start-group ${grpc_archives} -Wl,--end-group
  ${either_ssl} ${either_crypto} ${either_z} Threads::Threads ${CMAKE_DL_LIBS} atomic)
add_library(protobuf_static INTERFACE)
target_link_libraries(protobuf_static INTERFACE ${LIB_protobuf_only} ${either_z} Threads::Threads)
add_library(crypto_either INTERFACE)
target_link_libraries(crypto_either INTERFACE ${either_crypto} ${CMAKE_DL_LIBS} Threads::Threads)
