# SPDX-License-Identifier: Apache-2.0
# gRPC and Protocol Buffers as archives. Debian's gRPCConfig.cmake knows only the shared libraries; pkg-config's static
# closure has the absl archives. Defines the targets grpc_static, which has no TLS, protobuf_static, and PROTOC,
# GRPC_CPP_PLUGIN. zlib is an archive, too, but the system's shared library for a program with the property
# AB_SYSTEM_ZLIB. pkg_check_modules() would run pkg-config 20 times, and each walk over absl's modules takes more than a
# second.
find_program(PKG_CONFIG pkg-config REQUIRED)
if(NOT DEFINED CACHE{GRPC_STATIC_FLAGS})
  execute_process(COMMAND ${PKG_CONFIG} --static --libs-only-l grpc++_unsecure
    OUTPUT_VARIABLE grpc_flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(GRPC_STATIC_FLAGS "${grpc_flags}" CACHE INTERNAL "pkg-config's flags for a static gRPC")
endif()
separate_arguments(grpc_flags UNIX_COMMAND "${GRPC_STATIC_FLAGS}")
find_program(PROTOC protoc REQUIRED)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)

set(grpc_archive_names grpcpp_channelz grpc++_unsecure grpc_unsecure address_sorting upb cares gpr protobuf)
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
find_library(LIB_z libz.a REQUIRED)
mark_as_advanced(LIB_z)
set(either_z $<IF:$<BOOL:$<TARGET_PROPERTY:AB_SYSTEM_ZLIB>>,z,${LIB_z}>)

add_library(grpc_static INTERFACE)
target_link_libraries(grpc_static INTERFACE -Wl,--start-group ${grpc_archives} -Wl,--end-group
  ${either_z} Threads::Threads ${CMAKE_DL_LIBS} atomic)
add_library(protobuf_static INTERFACE)
target_link_libraries(protobuf_static INTERFACE ${LIB_protobuf_only} ${either_z} Threads::Threads)
