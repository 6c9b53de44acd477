# SPDX-License-Identifier: Apache-2.0
# What our binaries contain of other projects: THIRD_PARTY_NOTICES and an SBOM, made by deploy/notices.py after linking.
# The wheel gets them as .dist-info/licenses and .dist-info/sboms, an installed tree as the component Notices, and every
# Debian package as share/doc/PACKAGE/THIRD_PARTY_NOTICES.gz.
if(NOT CMAKE_GENERATOR STREQUAL "Ninja" OR ARRAYBRIDGE_SANITIZE)
  message(STATUS "THIRD_PARTY_NOTICES is made only by Ninja, and not in builds with sanitizers")
  return()
endif()

set(ab_notices_root "") # with the records of the packages of another machine
if(CMAKE_SYSROOT)
  set(ab_notices_root --root=${CMAKE_SYSROOT})
endif()

# ab_notices(<folder> <targets>...): writes both files into the folder when the targets are linked.
function(ab_notices folder)
  set(maps "")
  foreach(target IN LISTS ARGN)
    get_target_property(map ${target} AB_MAP)
    if(NOT map)
      get_target_property(name ${target} OUTPUT_NAME)
      get_target_property(type ${target} TYPE)
      if(type STREQUAL SHARED_LIBRARY)
        set(name lib${name}.so)
      elseif(NOT name)
        set(name ${target})
      endif()
      set(map ${folder}/${name}.map)
      target_link_options(${target} PRIVATE -Wl,-Map=${map})
      set_target_properties(${target} PROPERTIES AB_MAP ${map})
    endif()
    list(APPEND maps ${map})
  endforeach()
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(OUTPUT ${folder}/THIRD_PARTY_NOTICES ${folder}/THIRD_PARTY_NOTICES.gz ${folder}/arraybridge.cdx.json
    COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/deploy/notices.py ${CMAKE_BINARY_DIR} ${folder} ${maps}
      ${ab_notices_root}
    COMMAND gzip -9nkf ${folder}/THIRD_PARTY_NOTICES
    DEPENDS ${ARGN} ${PROJECT_SOURCE_DIR}/deploy/notices.py COMMENT "Collecting notices" VERBATIM)
endfunction()

set(notices ${CMAKE_BINARY_DIR}/notices)
set(libraries "")
foreach(target ab_client_c _core)
  if(TARGET ${target})
    list(APPEND libraries ${target})
  endif()
endforeach()
set(programs "")
if(ARRAYBRIDGE_PARTS STREQUAL all)
  set(programs arraybridged arraybridgectl)
endif()
ab_notices(${notices} ${programs} ${libraries})
add_custom_target(ab_notices ALL DEPENDS ${notices}/THIRD_PARTY_NOTICES)
if(SKBUILD)
  install(FILES ${notices}/THIRD_PARTY_NOTICES DESTINATION ${SKBUILD_METADATA_DIR}/licenses COMPONENT Python)
  install(FILES ${notices}/arraybridge.cdx.json DESTINATION ${SKBUILD_METADATA_DIR}/sboms COMPONENT Python)
  return()
endif()
install(FILES LICENSE ${notices}/THIRD_PARTY_NOTICES ${notices}/arraybridge.cdx.json
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/arraybridge COMPONENT Notices)
list(TRANSFORM programs APPEND _of_debian)
ab_notices(${notices}/of_debian ${programs} ab_client_c)
add_custom_target(ab_notices_of_debian ALL DEPENDS ${notices}/of_debian/THIRD_PARTY_NOTICES)
