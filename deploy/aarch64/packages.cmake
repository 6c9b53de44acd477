# SPDX-License-Identifier: Apache-2.0
# Debian packages of aarch64 made on x86-64: dpkg-shlibdeps asks the records that deploy/aarch64/root keeps, and looks for the
# libraries where they lie.
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS
  ${CPACK_ARM64_ROOT}/lib/aarch64-linux-gnu ${CPACK_ARM64_ROOT}/usr/lib/aarch64-linux-gnu)
set(ENV{DEB_HOST_ARCH} arm64)
set(ENV{DPKG_ADMINDIR} ${CPACK_ARM64_ROOT}/var/lib/dpkg)
