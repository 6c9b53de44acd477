# SPDX-License-Identifier: Apache-2.0
# One static library per room, and the common flags of our targets.

# ab_flags(<target>): warnings, sanitizers, includes from the repository root.
function(ab_flags target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Wno-sign-conversion -Wshadow -fno-semantic-interposition)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    target_compile_options(${target} PRIVATE -Wthread-safety -Wno-unknown-warning-option)
  endif()
  if(ARRAYBRIDGE_UNITY)
    # The files that include several have absolute paths, which ccache would take for a difference between checkouts.
    target_compile_options(${target} PRIVATE -ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)
    # A nested class is its file's own, though the compiler sees another file that includes this one.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
  if(ARRAYBRIDGE_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(ARRAYBRIDGE_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)  # so that libFuzzer measures its coverage
  endif()
  if(ARRAYBRIDGE_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${ARRAYBRIDGE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=${ARRAYBRIDGE_SANITIZE})
    if(ARRAYBRIDGE_SANITIZE MATCHES "undefined")
      # The vptr check opens a pipe, so it reports false errors if descriptors are exhausted; with clang 14 also in
      # libstdc++'s RTTI.
      target_compile_options(${target} PRIVATE -fno-sanitize=vptr)
    endif()
    # ThreadSanitizer runs a fence and does not reason with it, as g++ warns: nor need it.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
  endif()
endfunction()

# ab_compile_quickly(<target>): for code whose speed nobody notices. -Og takes two thirds of the time of -O2, and less than -Os.
function(ab_compile_quickly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Og>)
endfunction()

# ab_room(<name> <sources>...): a static library.
function(ab_room name)
  add_library(${name} STATIC ${ARGN})
  ab_flags(${name})
endfunction()

# ab_structs(<path> <namespace> <protos>...): <path>.h and <path>.cc below generated/, with structs of the messages.
function(ab_structs path namespace)
  find_package(Python 3.9 REQUIRED COMPONENTS Interpreter)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  set(output ${CMAKE_CURRENT_BINARY_DIR}/generated/${folder}/${path})
  get_filename_component(folder ${output} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE protos)
  set(generate ${PROJECT_SOURCE_DIR}/proto/wire/generate.py)
  add_custom_command(OUTPUT ${output}.h ${output}.cc
    COMMAND ${Python_EXECUTABLE} ${generate} ${namespace} ${output}.h ${output}.cc ${protos}
    DEPENDS ${generate} ${protos} VERBATIM)
  if(NOT TARGET ab_structs)
    add_custom_target(ab_structs) # all of these headers
  endif()
  string(MAKE_C_IDENTIFIER "ab_structs_${path}" target)
  add_custom_target(${target} DEPENDS ${output}.h)
  add_dependencies(ab_structs ${target})
endfunction()

# ab_program_of_debian(<program> <component>): links the program's objects a second time, for the Debian packages: with
# the system's zlib, which Debian updates. Only cpack uses it.
function(ab_program_of_debian program component)
  if(SKBUILD)
    return()
  endif()
  set(target ${program}_of_debian)
  get_target_property(libraries ${program} LINK_LIBRARIES)
  get_target_property(options ${program} LINK_OPTIONS)
  add_executable(${target} $<TARGET_OBJECTS:${program}>)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${program} LINKER_LANGUAGE CXX AB_SYSTEM_ZLIB ON
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/of_debian)
  target_link_libraries(${target} PRIVATE ${libraries})
  if(options)
    target_link_options(${target} PRIVATE ${options})
  endif()
  target_link_options(${target} PRIVATE -Wl,-z,relro,-z,now)
  install(TARGETS ${target} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()

# ab_test(<name> SOURCES ... LIBRARIES ...): one GoogleTest binary, which ctest knows as <name>. Names in
# AB_TESTS_WITH_THREADS get the label threads.
function(ab_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  add_executable(${name} ${arg_SOURCES})
  ab_flags(${name})
  # {.name = "a"} leaves the rest of a call at its default: that is what designated initializers are for.
  target_compile_options(${name} PRIVATE -Wno-missing-field-initializers)
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} GTest::gmock GTest::gtest_main Threads::Threads)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300)
  if(name IN_LIST AB_TESTS_WITH_THREADS)
    set_tests_properties(${name} PROPERTIES LABELS threads)
  endif()
  if(name MATCHES "cuda|conformance")
    # LeakSanitizer's tracer sometimes crashes on a driver that was loaded late; the simulated driver has a leak check
    # of its own.
    set_tests_properties(${name} PROPERTIES ENVIRONMENT_MODIFICATION "ASAN_OPTIONS=path_list_append:detect_leaks=0")
  endif()
endfunction()

# ab_fuzz(<name> SOURCES ... LIBRARIES ...): one libFuzzer target, built by fuzz_targets; its seeds lie in corpus/<name>.
# Without ARRAYBRIDGE_FUZZ it is a test that runs the seeds.
function(ab_fuzz name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  add_executable(${name} ${arg_SOURCES})
  ab_flags(${name})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} Threads::Threads)
  if(ARRAYBRIDGE_FUZZ)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzz_targets ${name})
  else()
    target_link_libraries(${name} PRIVATE fuzz_seeds)
    add_test(NAME ${name} COMMAND ${name} ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 60)
  endif()
endfunction()
