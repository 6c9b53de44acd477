// SPDX-License-Identifier: Apache-2.0
// Values of single instructions, by hand or from the manual of PTX.
#include <bit>
#include <cmath>

#include "tests/simulated_cuda/guests/kernel_fixture.h"

namespace arraybridge::cuda {
namespace {

uint64_t F(float value) { return std::bit_cast<uint32_t>(value); }
uint64_t G(double value) { return std::bit_cast<uint64_t>(value); }
const float kNan = std::nanf("");

struct Case {
  const char* body;    // leaves its result in %d0, %r0, %h0, %f0 or %g0
  const char* result;  // that register
  uint64_t expected;
};

class KernelValueTest : public KernelFixture {
 protected:
  void Expect(const std::vector<Case>& cases) {
    for (const Case& each : cases) {
      const std::string result = each.result;
      const std::string type = result[1] == 'h'   ? "b16"
                               : result[1] == 'r' ? "b32"
                               : result[1] == 'f' ? "f32"
                               : result[1] == 'g' ? "f64"
                                                  : "b64";
      const std::string store = "\nst.global.u64 [%out], 0;\nst.global." + type + " [%out], " + result + ";";
      ASSERT_CUDA(Run(each.body + store)) << each.body;
      EXPECT_EQ(Values<uint64_t>(1)[0], each.expected) << each.body;
    }
  }
};

TEST_F(KernelValueTest, Integers) {
  Expect({
      {"add.s32 %r0, 5, -7;", "%r0", 0xFFFFFFFE},
      {"add.sat.s32 %r0, 2147483647, 1;", "%r0", 0x7FFFFFFF},
      {"sub.s64 %d0, 5, 7;", "%d0", uint64_t{0} - 2},
      {"add.cc.u32 %r0, 0xFFFFFFFF, 1; addc.u32 %r0, 5, 0;", "%r0", 6},
      {"sub.cc.u32 %r0, 1, 2; subc.u32 %r0, 9, 0;", "%r0", 8},
      {"mul.lo.s32 %r0, -3, 7;", "%r0", 0xFFFFFFEB},
      {"mul.hi.u32 %r0, 0x80000000, 6;", "%r0", 3},
      {"mul.hi.s64 %d0, -1, 5;", "%d0", ~uint64_t{0}},
      {"mov.u32 %r1, -2; mul.wide.s32 %d0, %r1, 3;", "%d0", uint64_t{0} - 6},
      {"mov.u32 %r1, -2; mul.wide.u32 %d0, %r1, 3;", "%d0", 0x2FFFFFFFA},
      {"mad.lo.s32 %r0, 3, 4, 5;", "%r0", 17},
      {"mov.u32 %r1, -2; mad.wide.s32 %d0, %r1, 4, 3;", "%d0", uint64_t{0} - 5},
      {"div.s32 %r0, -7, 2;", "%r0", 0xFFFFFFFD},
      {"rem.s32 %r0, -7, 2;", "%r0", 0xFFFFFFFF},
      {"div.u32 %r0, 7, 0;", "%r0", 0xFFFFFFFF},
      {"div.s64 %d0, 0x8000000000000000, -1;", "%d0", uint64_t{1} << 63},
      {"neg.s16 %h0, 5;", "%h0", 0xFFFB},
      {"abs.s32 %r0, -9;", "%r0", 9},
      {"min.s32 %r0, -1, 1;", "%r0", 0xFFFFFFFF},
      {"min.u32 %r0, -1, 1;", "%r0", 1},
      {"max.s64 %d0, -1, 1;", "%d0", 1},
      {"sad.u32 %r0, 3, 10, 100;", "%r0", 107},
      {"mul24.lo.u32 %r0, 0xFF000003, 5;", "%r0", 15},
      {"dp4a.s32.s32 %r0, 0xFF020304, 0x01010101, 100;", "%r0", 108},
  });
}

TEST_F(KernelValueTest, Bits) {
  Expect({
      {"and.b32 %r0, 0xF0F0, 0xFF00;", "%r0", 0xF000},
      {"or.b64 %d0, 0xF0, 0x0F;", "%d0", 0xFF},
      {"xor.b16 %h0, 0xFF, 0x0F;", "%h0", 0xF0},
      {"not.b32 %r0, 1;", "%r0", 0xFFFFFFFE},
      {"cnot.b32 %r0, 0;", "%r0", 1},
      {"lop3.b32 %r0, 0xF0, 0xCC, 0xAA, 0x1B;", "%r0", 0xFFFFFF1B},
      {"shl.b32 %r0, 1, 33;", "%r0", 0},
      {"shr.s32 %r0, -8, 40;", "%r0", 0xFFFFFFFF},
      {"shr.u32 %r0, -8, 1;", "%r0", 0x7FFFFFFC},
      {"shr.s64 %d0, -8, 1;", "%d0", uint64_t{0} - 4},
      {"shf.l.wrap.b32 %r0, 0x80000000, 1, 33;", "%r0", 3},
      {"shf.r.clamp.b32 %r0, 7, 5, 99;", "%r0", 5},
      {"bfe.u32 %r0, 0xABCD, 4, 8;", "%r0", 0xBC},
      {"bfe.s32 %r0, 0xABCD, 4, 8;", "%r0", 0xFFFFFFBC},
      {"bfi.b32 %r0, 0xF, 0, 4, 8;", "%r0", 0xF0},
      {"bfind.u32 %r0, 0x100;", "%r0", 8},
      {"bfind.u32 %r0, 0;", "%r0", 0xFFFFFFFF},
      {"brev.b32 %r0, 1;", "%r0", 0x80000000},
      {"popc.b64 %r0, -1;", "%r0", 64},
      {"clz.b32 %r0, 1;", "%r0", 31},
      {"prmt.b32 %r0, 0x33221100, 0x77665544, 0x7531;", "%r0", 0x77553311},
      {"prmt.b32 %r0, 0x00008000, 0, 0x0009;", "%r0", 0xFF},
      {"mov.b64 %d1, 0x1111222233334444; mov.b64 {%r1, %r0}, %d1;", "%r0", 0x11112222},
      {"mov.b32 %r1, 1; mov.b32 %r2, 2; mov.b64 %d0, {%r1, %r2};", "%d0", 0x200000001},
  });
}

TEST_F(KernelValueTest, Reals) {
  Expect({
      {"add.f32 %f0, 0f3F800000, 0f40000000;", "%f0", F(3)},
      {"add.rz.f32 %f0, 0f3F800000, 0f337FFFFF;", "%f0", F(1)},
      {"add.rp.f32 %f0, 0f3F800000, 0f337FFFFF;", "%f0", F(std::nextafter(1.0F, 2.0F))},
      {"sub.f64 %g0, 0d3FF0000000000000, 0d4000000000000000;", "%g0", G(-1)},
      {"mul.sat.f32 %f0, 0f40000000, 0f40000000;", "%f0", F(1)},
      {"mul.ftz.f32 %f0, 0f00400000, 0f40000000;", "%f0", F(0)},
      {"fma.rn.f32 %f0, 0f3F800001, 0f3F800001, 0fBF800002;", "%f0", F(0x1p-46F)},
      {"div.rn.f32 %f0, 0f3F800000, 0f40400000;", "%f0", F(1.0F / 3.0F)},
      {"rcp.rn.f64 %g0, 0d4008000000000000;", "%g0", G(1.0 / 3.0)},
      {"sqrt.rn.f32 %f0, 0f40000000;", "%f0", F(std::sqrt(2.0F))},
      {"rsqrt.approx.f32 %f0, 0f40800000;", "%f0", F(0.5F)},
      {"ex2.approx.f32 %f0, 0f40400000;", "%f0", F(8)},
      {"lg2.approx.f32 %f0, 0f41000000;", "%f0", F(3)},
      {"sin.approx.f32 %f0, 0f00000000;", "%f0", F(0)},
      {"cos.approx.f32 %f0, 0f00000000;", "%f0", F(1)},
      {"neg.f32 %f0, 0f00000000;", "%f0", F(-0.0F)},
      {"abs.f64 %g0, 0dBFF0000000000000;", "%g0", G(1)},
      {"min.f32 %f0, 0f7FC00000, 0f3F800000;", "%f0", F(1)},
      {"max.f32 %f0, 0f80000000, 0f00000000;", "%f0", F(0)},
      {"max.NaN.f32 %f0, 0f7FC00000, 0f3F800000;", "%f0", F(kNan)},
      {"copysign.f32 %f0, 0fBF800000, 0f40000000;", "%f0", F(-2)},
      {"testp.infinite.f32 %p0, 0f7F800000; selp.b32 %r0, 1, 2, %p0;", "%r0", 1},
  });
}

TEST_F(KernelValueTest, Halfs) {
  Expect({
      {"mov.b16 %h1, 0x3C00; add.f16 %h0, %h1, %h1;", "%h0", 0x4000},
      {"mov.b16 %h1, 0x7BFF; add.f16 %h0, %h1, %h1;", "%h0", 0x7C00},
      {"mov.b16 %h1, 0x0001; mul.f16 %h0, %h1, 0x3C00;", "%h0", 0x0001},
      {"mov.b16 %h1, 0x3C00; fma.rn.f16 %h0, %h1, %h1, %h1;", "%h0", 0x4000},
      {"mov.b32 %r1, 0x40003C00; add.f16x2 %r0, %r1, %r1;", "%r0", 0x44004000},
      {"mov.b16 %h1, 0x3F80; add.bf16 %h0, %h1, %h1;", "%h0", 0x4000},
      {"cvt.rn.f16.f32 %h0, 0f3F803000;", "%h0", 0x3C02},
      {"cvt.rn.f16.f32 %h0, 0f3F801000;", "%h0", 0x3C00},
      {"cvt.rn.f16.f32 %h0, 0f33800000;", "%h0", 0x0001},
      {"cvt.rn.bf16.f32 %h0, 0f3F808000;", "%h0", 0x3F80},
      {"mov.b16 %h1, 0xC500; cvt.f32.f16 %f0, %h1;", "%f0", F(-5)},
      {"cvt.rn.f16x2.f32 %r0, 0f3F800000, 0f40000000;", "%r0", 0x3C004000},
      {"mov.b16 %h1, 0x3C00; mov.b16 %h2, 0x4000; setp.lt.f16 %p0, %h1, %h2; selp.b32 %r0, 1, 2, %p0;", "%r0", 1},
  });
}

TEST_F(KernelValueTest, Conversions) {
  Expect({
      {"mov.b32 %r1, 0x1FF; cvt.s32.s8 %r0, %r1;", "%r0", 0xFFFFFFFF},
      {"mov.b32 %r1, -1; cvt.u64.u32 %d0, %r1;", "%d0", 0xFFFFFFFF},
      {"mov.b32 %r1, -1; cvt.s64.s32 %d0, %r1;", "%d0", ~uint64_t{0}},
      {"mov.b32 %r1, 300; cvt.sat.u8.s32 %r0, %r1;", "%r0", 255},
      {"cvt.rzi.s32.f32 %r0, 0fBFC00000;", "%r0", 0xFFFFFFFF},
      {"cvt.rni.s32.f32 %r0, 0f40200000;", "%r0", 2},
      {"cvt.rpi.s32.f32 %r0, 0f3FA00000;", "%r0", 2},
      {"cvt.rzi.u32.f32 %r0, 0fC0000000;", "%r0", 0},
      {"cvt.rzi.s32.f64 %r0, 0d7FF0000000000000;", "%r0", 0x7FFFFFFF},
      {"cvt.rmi.f32.f32 %f0, 0fBF000000;", "%f0", F(-1)},
      {"mov.b32 %r1, 0x01000001; cvt.rn.f32.u32 %f0, %r1;", "%f0", F(16777216)},
      {"mov.b32 %r1, 0x01000001; cvt.rp.f32.u32 %f0, %r1;", "%f0", F(16777218)},
      {"cvt.rn.f32.f64 %f0, 0d3FF0000000000001;", "%f0", F(1)},
      {"cvt.f64.f32 %g0, 0f3FC00000;", "%g0", G(1.5)},
  });
}

TEST_F(KernelValueTest, Comparisons) {
  Expect({
      {"setp.lt.s32 %p0, -1, 1; selp.b32 %r0, 1, 2, %p0;", "%r0", 1},
      {"setp.lo.u32 %p0, -1, 1; selp.b32 %r0, 1, 2, %p0;", "%r0", 2},
      {"setp.eq.f32 %p0, 0f7FC00000, 0f7FC00000; selp.b32 %r0, 1, 2, %p0;", "%r0", 2},
      {"setp.neu.f32 %p0, 0f7FC00000, 0f7FC00000; selp.b32 %r0, 1, 2, %p0;", "%r0", 1},
      {"setp.ne.f32 %p0, 0f7FC00000, 0f3F800000; selp.b32 %r0, 1, 2, %p0;", "%r0", 2},
      {"setp.nan.f32 %p0, 0f7FC00000, 0f3F800000; selp.b32 %r0, 1, 2, %p0;", "%r0", 1},
      {"setp.eq.s32 %p1|%p0, 1, 1; selp.b32 %r0, 1, 2, %p0;", "%r0", 2},
      {"setp.eq.s32 %p1, 1, 1; setp.eq.and.s32 %p0, 1, 1, !%p1; selp.b32 %r0, 1, 2, %p0;", "%r0", 2},
      {"set.gt.u32.s32 %r0, 5, -5;", "%r0", 0xFFFFFFFF},
      {"set.gt.f32.s32 %f0, 5, -5;", "%f0", F(1)},
      {"slct.s32.s32 %r0, 5, 6, -1;", "%r0", 6},
      {"setp.eq.s32 %p1, 1, 1; not.pred %p0, %p1; selp.b32 %r0, 1, 2, %p0;", "%r0", 2},
      {"mov.b32 %r0, 1; setp.eq.s32 %p0, 1, 2; @%p0 mov.b32 %r0, 2; @!%p0 add.s32 %r0, %r0, 4;", "%r0", 5},
  });
}

}  // namespace
}  // namespace arraybridge::cuda
