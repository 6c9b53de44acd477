// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/shares/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace arraybridge::ctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A file's head of this version around this dictionary, padded as NumPy does.
std::string Head(const std::string& dictionary, int version = 1) {
  std::string text = dictionary + "\n";
  const auto length = static_cast<uint32_t>(text.size());
  std::string head = "\x93NUMPY";
  head += static_cast<char>(version);
  head += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) head += static_cast<char>(length >> (8 * i) & 0xff);
  return head + text;
}

std::string Dictionary(const std::string& type, const std::string& shape, const std::string& fortran = "False") {
  return "{'descr': " + type + ", 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
}

std::string WhyNot(const std::string& head, Code code = Code::kInvalidArgument) {
  const auto read = ReadNpyHead(head);
  EXPECT_EQ(read.status().code(), code) << read.status().ToString();
  return read.status().message();
}

TEST(ReadNpyHead, ReadsEachVersion) {
  for (const int version : {1, 2, 3}) {
    const auto read = ReadNpyHead(Head(Dictionary("'<f4'", "(3, 4)"), version));
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(read->dtype, "float32");
    EXPECT_THAT(read->shape, ElementsAre(3, 4));
  }
}

TEST(ReadNpyHead, ReadsEachTypeThatHasAName) {
  for (const auto& [text, name] : std::vector<std::pair<std::string, std::string>>{{"|b1", "bool"},
                                                                                   {"|i1", "int8"},
                                                                                   {"<i2", "int16"},
                                                                                   {"<i4", "int32"},
                                                                                   {"<i8", "int64"},
                                                                                   {"|u1", "uint8"},
                                                                                   {"<u2", "uint16"},
                                                                                   {"<u4", "uint32"},
                                                                                   {"<u8", "uint64"},
                                                                                   {"<f2", "float16"},
                                                                                   {"<f4", "float32"},
                                                                                   {"<f8", "float64"},
                                                                                   {"<c8", "complex64"},
                                                                                   {"<c16", "complex128"},
                                                                                   {"<u1", "uint8"},
                                                                                   {">i1", "int8"}}) {
    const auto read = ReadNpyHead(Head(Dictionary("'" + text + "'", "()")));
    ASSERT_TRUE(read.ok()) << text << ": " << read.status().ToString();
    EXPECT_EQ(read->dtype, name);
    EXPECT_THAT(read->shape, ElementsAre());
  }
}

TEST(ReadNpyHead, TakesPythonsDictionaryAsItMayBeWritten) {
  for (const std::string& dictionary :
       {std::string("{'shape': (3,), 'fortran_order': False, 'descr': '<f4'}"),
        std::string("{\"descr\": \"<f4\" , \"fortran_order\" : False , \"shape\" : ( 3 , ) , }   "),
        Dictionary("'<f4'", "(3,)", "True")}) {  // of one dimension there is one order
    const auto read = ReadNpyHead(Head(dictionary));
    ASSERT_TRUE(read.ok()) << dictionary << ": " << read.status().ToString();
    EXPECT_THAT(read->shape, ElementsAre(3));
  }
}

TEST(ReadNpyHead, SaysWhatItCouldNotShareAsItIs) {
  const auto unable = [](const std::string& type, const std::string& shape = "(2, 2)",
                         const std::string& fortran = "False") {
    return WhyNot(Head(Dictionary(type, shape, fortran)), Code::kUnimplemented);
  };
  EXPECT_THAT(unable("'>f4'"), HasSubstr("big-endian"));
  EXPECT_THAT(unable("'<f4'", "(2, 2)", "True"), HasSubstr("Fortran"));
  EXPECT_THAT(unable("[('x', '<f4'), ('y', '<i8')]"), HasSubstr("structures"));
  EXPECT_THAT(unable("'|V8'"), HasSubstr("bytes without a type"));
  EXPECT_THAT(unable("'<M8[ns]'"), HasSubstr("times"));
  EXPECT_THAT(unable("'<U5'"), HasSubstr("texts"));
  EXPECT_THAT(unable("'|S5'"), HasSubstr("texts"));
  EXPECT_THAT(unable("'|O'"), HasSubstr("pickles"));
  EXPECT_THAT(unable("'<f16'"), HasSubstr("differs between machines"));
}

TEST(ReadNpyHead, SaysWhatIsWrong) {
  EXPECT_THAT(WhyNot(""), HasSubstr("not a .npy file"));
  EXPECT_THAT(WhyNot("PK\x03\x04 is a zip"), HasSubstr("not a .npy file"));
  EXPECT_THAT(WhyNot(Head(Dictionary("'<f4'", "(3,)"), 4)), HasSubstr("format is 4.0"));
  std::string minor = Head(Dictionary("'<f4'", "(3,)"));
  minor[7] = 1;
  EXPECT_THAT(WhyNot(minor), HasSubstr("format is 1.1"));
  EXPECT_THAT(WhyNot(Head(std::string(kNpyHeadBytesMax, ' '))), HasSubstr("the limit is 10012"));
  EXPECT_THAT(WhyNot(std::string("\x93NUMPY\x02\0\xff\xff\xff\xff", 12)), HasSubstr("the limit is"));
  for (const auto& [dictionary, why] : std::vector<std::pair<std::string, std::string>>{
           {"", "not a dictionary"},
           {"[1]", "not a dictionary"},
           {"{'descr': '<f4'", "comma"},
           {"{'descr': '<f4',", "not a dictionary"},
           {"{'descr': '<f4'}", "lacks one of"},
           {Dictionary("'<f4'", "(3,)") + "x", "after its dictionary"},
           {Dictionary("'<f4'", "(3,)") + '\0', "after its dictionary"},
           {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", "once each"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'extra': 1}", "once each"},
           {Dictionary("'<f4'", "(3)"), "not a tuple"},
           {Dictionary("'<f4'", "3"), "not a tuple"},
           {Dictionary("'<f4'", "(3 4)"), "without a comma"},
           {Dictionary("'<f4'", "(3, -4)"), "negative dimension, -4"},
           {Dictionary("'<f4'", "(3.5,)"), "without a comma"},
           {Dictionary("'<f4'", "(99999999999999999999,)"), "not a 64-bit number"},
           {Dictionary("'<f8'", "(4611686018427387904, 4611686018427387904)"), "too many elements"},
           {Dictionary("'<f4'", "(3,)", "0"), "neither True nor False"},
           {Dictionary("'f4'", "(3,)"), "byte order"},
           {Dictionary("'=f4'", "(3,)"), "byte order"},
           {Dictionary("'|f4'", "(3,)"), "byte order"},
           {Dictionary("'<x4'", "(3,)"), "not known"},
           {Dictionary("'<'", "(3,)"), "not known"},
           {Dictionary("''", "(3,)"), "no type"},
           {Dictionary("4", "(3,)"), "not a string"},
           {Dictionary("'<f4\\x27'", "(3,)"), "not a string"}}) {
    EXPECT_THAT(WhyNot(Head(dictionary)), HasSubstr(why)) << dictionary;
  }
  std::string endless = Head(Dictionary("'<f4'", "(3,)"));
  endless.back() = ' ';
  EXPECT_THAT(WhyNot(endless), HasSubstr("end with a line"));
  std::string deep = "(";
  for (int i = 0; i < 65; ++i) deep += "1,";
  EXPECT_THAT(WhyNot(Head(Dictionary("'<f4'", deep + ")"))), HasSubstr("64 dimensions"));
}

// Nothing of a head that is cut off or has one byte changed is read beyond its end, or as another array of more bytes
// than its numbers say.
TEST(ReadNpyHead, TakesNoBrokenHead) {
  const std::string whole = Head(Dictionary("'<f4'", "(3, 4)"));
  for (size_t end = 0; end < whole.size(); ++end) {
    EXPECT_FALSE(ReadNpyHead(std::string(whole.data(), end)).ok()) << end;
  }
  std::mt19937 random(7);
  for (int turn = 0; turn < 20'000; ++turn) {
    std::string changed = whole;
    for (int i = 0; i < 1 + turn % 3; ++i) changed[random() % changed.size()] = static_cast<char>(random());
    const auto read = ReadNpyHead(changed);
    EXPECT_TRUE(!read.ok() || read->compact_bytes().ok());
  }
}

TEST(NpyHead, IsReadAsItWasMeant) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, std::vector<int64_t>{0}, std::vector<int64_t>{7},
                                            std::vector<int64_t>{1, 2, 3}, std::vector<int64_t>(64, 1)}) {
    ArraySpec array;
    array.type = {2, 64};
    array.dtype = "float64";
    array.shape = shape;
    const auto head = NpyHead(array);
    ASSERT_TRUE(head.ok()) << head.status().ToString();
    EXPECT_EQ(head->size() % 64, 0u);  // where the array begins
    const auto read = ReadNpyHead(*head);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(*read, array);
  }
}

TEST(NpyHead, SaysWhatNoReaderWouldKnow) {
  ArraySpec array;
  array.type = {4, 16};
  array.dtype = "bfloat16";
  EXPECT_THAT(NpyHead(array).status().message(), HasSubstr("'bfloat16'"));
  array.type = {0, 64};
  array.dtype = "datetime64[ns]";
  EXPECT_EQ(NpyHead(array).status().code(), Code::kUnimplemented);
}

}  // namespace
}  // namespace arraybridge::ctl
