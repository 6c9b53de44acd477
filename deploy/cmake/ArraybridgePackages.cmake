# SPDX-License-Identifier: Apache-2.0
# Debian packages: run cpack -G DEB in a build tree. arraybridged (the daemon), arraybridge-tools (arraybridgectl),
# libarraybridge1 (the C API) and libarraybridge-dev (headers, archives, messages); the first two
# with ARRAYBRIDGE_PARTS=all only. The Python package is not among them, because it needs a newer NumPy than that of Debian
# 12. The programs in the packages are linked with Debian's zlib (ab_program_of_debian); the components
# Daemon and Tools contain those that need only the C library and libgcc_s.
set(CPACK_PACKAGE_NAME arraybridge)
set(CPACK_PACKAGE_VENDOR arraybridge)
set(CPACK_PACKAGE_CONTACT "arraybridge maintainers <maintainers@arraybridge.org>")
set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL Runtime Development Protocol)
if(ARRAYBRIDGE_PARTS STREQUAL all)
  list(PREPEND CPACK_COMPONENTS_ALL DaemonOfDebian Service ToolsOfDebian ToolsManual)
endif()
set(CPACK_COMPONENT_DAEMONOFDEBIAN_GROUP daemon)
set(CPACK_COMPONENT_SERVICE_GROUP daemon)
set(CPACK_COMPONENT_TOOLSOFDEBIAN_GROUP tools)
set(CPACK_COMPONENT_TOOLSMANUAL_GROUP tools)
set(CPACK_COMPONENT_DEVELOPMENT_GROUP development)
set(CPACK_COMPONENT_PROTOCOL_GROUP development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
if(CMAKE_CROSSCOMPILING)
  set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_SOURCE_DIR}/deploy/aarch64/packages.cmake)
  set(CPACK_ARM64_ROOT ${CMAKE_SYSROOT})
endif()

set(debian ${CMAKE_CURRENT_SOURCE_DIR}/deploy/debian)
set(CPACK_DEBIAN_DAEMON_PACKAGE_NAME arraybridged)
set(CPACK_DEBIAN_DAEMON_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_DAEMON_DESCRIPTION
  "broker of arrays shared between processes\narraybridged owns host and GPU memory and shares it, so that\nprocesses of different frameworks use the same array without copying it.\n\nThis package has the daemon and its systemd units.")
set(CPACK_DEBIAN_DAEMON_PACKAGE_RECOMMENDS "arraybridge-tools (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DAEMON_PACKAGE_CONTROL_EXTRA ${debian}/postinst ${debian}/prerm ${debian}/postrm)
set(CPACK_DEBIAN_DAEMON_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME arraybridge-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOLS_DESCRIPTION
  "command line of arraybridged\narraybridgectl inspects and administers a running arraybridged: shares,\ntheir holders, diagnosis of problems. For operators, and for containers that\nhave no broker of their own.")

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libarraybridge1)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${debian}/triggers)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION
  "client library of arraybridged\nA C API to the arrays that an arraybridged shares, for C and every language\nthat can call it. Needs only the C and C++ runtime.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libarraybridge-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libarraybridge1 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION
  "client library of arraybridged, development files\nHeaders for C++ and C and static archives that need only the C and C++\nruntime, found by CMake and pkg-config; the protocol for other languages.")

# The common files of every Debian package: copyright, third parties' notices, and changelog.
string(TIMESTAMP today "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/debian)
set(package_of_Service arraybridged)
set(package_of_ToolsManual arraybridge-tools)
set(package_of_Runtime libarraybridge1)
set(package_of_Development libarraybridge-dev)
foreach(component Service ToolsManual Runtime Development)
  if(NOT component IN_LIST CPACK_COMPONENTS_ALL)
    continue()
  endif()
  set(package ${package_of_${component}})
  set(changelog ${CMAKE_CURRENT_BINARY_DIR}/debian/${package}.changelog)
  file(WRITE ${changelog} "arraybridge (${PROJECT_VERSION}) unstable; urgency=medium\n\n  * See CHANGELOG.md of the source.\n\n -- ${CPACK_PACKAGE_CONTACT}  ${today}\n")
  execute_process(COMMAND gzip -9nf ${changelog})
  install(FILES ${debian}/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component})
  install(FILES ${changelog}.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} RENAME changelog.gz
    COMPONENT ${component})
  if(TARGET ab_notices_of_debian)
    install(FILES ${CMAKE_BINARY_DIR}/notices/of_debian/THIRD_PARTY_NOTICES.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package}
      COMPONENT ${component})
  endif()
endforeach()
install(FILES ${debian}/libarraybridge1.lintian-overrides DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides
  RENAME libarraybridge1 COMPONENT Runtime)
include(CPack)
