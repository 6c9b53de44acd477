# gRPC and Protocol Buffers as archives. Debian's gRPCConfig.cmake knows only the shared libraries; pkg-config's static
# closure names the absl archives. Gives the target grpc_static, and PROTOC, GRPC_CPP_PLUGIN.
find_package(PkgConfig REQUIRED)
pkg_check_modules(PC_GRPC REQUIRED grpc++ grpc protobuf)
find_program(PROTOC protoc REQUIRED)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)

set(grpc_archive_names grpcpp_channelz grpc++_reflection grpc++ grpc address_sorting re2 upb cares gpr protobuf ssl crypto z)
foreach(flag IN LISTS PC_GRPC_STATIC_LIBRARIES)
  if(flag MATCHES "^absl_")
    list(APPEND grpc_archive_names ${flag})
  endif()
endforeach()
list(REMOVE_DUPLICATES grpc_archive_names)
set(grpc_archives "")
foreach(name IN LISTS grpc_archive_names)
  find_library(LIB_${name} lib${name}.a REQUIRED)  # the .a in the name is what makes it static
  mark_as_advanced(LIB_${name})
  list(APPEND grpc_archives ${LIB_${name}})
endforeach()
find_library(LIB_protobuf_only libprotobuf.a REQUIRED)

add_library(grpc_static INTERFACE)
target_link_libraries(grpc_static INTERFACE
  -Wl,--start-group ${grpc_archives} -Wl,--end-group Threads::Threads ${CMAKE_DL_LIBS} atomic)
add_library(protobuf_static INTERFACE)
target_link_libraries(protobuf_static INTERFACE ${LIB_protobuf_only} ${LIB_z} Threads::Threads)
