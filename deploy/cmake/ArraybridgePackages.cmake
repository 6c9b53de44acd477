# Debian packages: cpack -G DEB in a build tree. arraybridged (daemon and tool), libarraybridge1 (the C API) and
# libarraybridge-dev (headers, archives).
set(CPACK_PACKAGE_NAME arraybridge)
set(CPACK_PACKAGE_VENDOR arraybridge)
set(CPACK_PACKAGE_CONTACT "arraybridge maintainers <maintainers@arraybridge.org>")
set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL daemon library development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)

set(debian ${CMAKE_CURRENT_SOURCE_DIR}/deploy/debian)
set(CPACK_DEBIAN_DAEMON_PACKAGE_NAME arraybridged)
set(CPACK_DEBIAN_DAEMON_PACKAGE_SECTION utils)
set(CPACK_COMPONENT_DAEMON_DESCRIPTION
  "broker of arrays shared between processes\narraybridged owns host and GPU memory and hands out shares of it, so that\nprocesses of different frameworks use the same array without copying it.\n\nThis package has the daemon, its systemd units and arraybridgectl.")
set(CPACK_DEBIAN_DAEMON_PACKAGE_CONTROL_EXTRA ${debian}/postinst ${debian}/prerm)
set(CPACK_DEBIAN_DAEMON_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libarraybridge1)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${debian}/triggers)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION
  "client library of arraybridged\nA C API to the arrays that an arraybridged shares, for C and every language that\ncan call it. Needs the C and C++ runtime alone.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libarraybridge-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libarraybridge1 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
  "client library of arraybridged, development files\nHeaders for C++ and C and static archives that need the C and C++ runtime\nalone, found by CMake and pkg-config; the protocol for other languages.")

# What every Debian package has: who owns it, and what changed.
string(TIMESTAMP today "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/debian)
foreach(package IN ITEMS arraybridged libarraybridge1 libarraybridge-dev)
  set(changelog ${CMAKE_CURRENT_BINARY_DIR}/debian/${package}.changelog)
  file(WRITE ${changelog} "arraybridge (${PROJECT_VERSION}) unstable; urgency=medium\n\n  * See CHANGELOG.md of the source.\n\n -- ${CPACK_PACKAGE_CONTACT}  ${today}\n")
  execute_process(COMMAND gzip -9nf ${changelog})
endforeach()
install(FILES ${debian}/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/arraybridged COMPONENT daemon)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/debian/arraybridged.changelog.gz
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/arraybridged RENAME changelog.gz COMPONENT daemon)
install(FILES ${debian}/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libarraybridge1 COMPONENT library)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/debian/libarraybridge1.changelog.gz
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libarraybridge1 RENAME changelog.gz COMPONENT library)
install(FILES ${debian}/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libarraybridge-dev COMPONENT development)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/debian/libarraybridge-dev.changelog.gz
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libarraybridge-dev RENAME changelog.gz COMPONENT development)
include(CPack)
