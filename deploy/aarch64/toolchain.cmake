# SPDX-License-Identifier: Apache-2.0
# Compiles for aarch64 on x86-64: Debian's cross compiler, the libraries of the root that deploy/aarch64/root makes, and
# qemu for programs that a build runs. protoc, gRPC's plugin and dlpack.h are the host's.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
get_filename_component(ARRAYBRIDGE_ARM64_ROOT ${CMAKE_CURRENT_LIST_DIR}/../../build/aarch64-root REALPATH)
if(NOT EXISTS ${ARRAYBRIDGE_ARM64_ROOT}/usr/include)
  message(FATAL_ERROR "${ARRAYBRIDGE_ARM64_ROOT} has no libraries of aarch64: run deploy/aarch64/root")
endif()
set(CMAKE_SYSROOT ${ARRAYBRIDGE_ARM64_ROOT})
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH ${ARRAYBRIDGE_ARM64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH) # dlpack.h comes from a wheel
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${ARRAYBRIDGE_ARM64_ROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${ARRAYBRIDGE_ARM64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${ARRAYBRIDGE_ARM64_ROOT}/usr/share/pkgconfig)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static;-L;${ARRAYBRIDGE_ARM64_ROOT})
