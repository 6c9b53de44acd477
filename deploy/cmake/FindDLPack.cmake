# SPDX-License-Identifier: Apache-2.0
# dlpack.h with the versioned struct and the exchange API. Distribution packages are older (Debian 12: 0.6), so it comes
# from the apache-tvm-ffi wheel, which is only needed to build: DLPACK_ROOT, else the folder of the wheel according to
# ${Python_EXECUTABLE}.
find_path(DLPack_INCLUDE_DIR dlpack/dlpack.h HINTS ${DLPACK_ROOT} ${DLPACK_ROOT}/include NO_CMAKE_SYSTEM_PATH)
if(NOT DLPack_INCLUDE_DIR)
  if(NOT Python_EXECUTABLE)
    find_package(Python 3.9 REQUIRED COMPONENTS Interpreter)
  endif()
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c
      "import importlib.util as u, pathlib; print(pathlib.Path(u.find_spec('tvm_ffi').origin).parent / 'include')"
    OUTPUT_VARIABLE dlpack_hint OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  find_path(DLPack_INCLUDE_DIR dlpack/dlpack.h HINTS ${dlpack_hint} NO_DEFAULT_PATH)
endif()
if(DLPack_INCLUDE_DIR)
  file(STRINGS ${DLPack_INCLUDE_DIR}/dlpack/dlpack.h dlpack_lines REGEX "#define DLPACK_M(AJOR|INOR)_VERSION")
  string(REGEX REPLACE ".*MAJOR_VERSION ([0-9]+).*MINOR_VERSION ([0-9]+).*" "\\1.\\2" DLPack_VERSION "${dlpack_lines}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(DLPack REQUIRED_VARS DLPack_INCLUDE_DIR VERSION_VAR DLPack_VERSION
  REASON_FAILURE_MESSAGE "Pass -DDLPACK_ROOT=<folder above dlpack/dlpack.h>, or -DPython_EXECUTABLE=<a Python that has apache-tvm-ffi>.")
if(DLPack_FOUND AND NOT TARGET DLPack::dlpack)
  add_library(DLPack::dlpack INTERFACE IMPORTED GLOBAL)
  target_include_directories(DLPack::dlpack SYSTEM INTERFACE ${DLPack_INCLUDE_DIR})
endif()
