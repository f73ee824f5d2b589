#include "format/gguf.h"

#include <gtest/gtest.h>

#include "format/gguf_writer.h"
#include "format/test_files.h"

namespace fathom {
namespace {

std::string text(std::string_view value) { return raw<uint64_t>(value.size()) + std::string(value); }
std::string head(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
  return "GGUF" + raw(version) + raw(tensors) + raw(keys);
}
std::string record(std::string_view name, std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
  std::string bytes = text(name) + raw<uint32_t>(static_cast<uint32_t>(dims.size()));
  for (const uint64_t dim : dims) bytes += raw(dim);
  return bytes + raw(type) + raw(offset);
}
std::string key(std::string_view name, GgufType type, const std::string& value) {
  return text(name) + raw(static_cast<uint32_t>(type)) + value;
}
std::string pad(std::string bytes, size_t alignment, size_t data) {
  bytes.resize((bytes.size() + alignment - 1) / alignment * alignment + data);
  return bytes;
}
std::string fault_of(const std::string& bytes) {
  const auto parsed = parse_gguf(as_span(bytes), "x");
  return parsed.ok() ? std::string() : parsed.error().message;
}

TEST(Gguf, ReadsEveryScalarType) {
  const std::string bytes =
      head(0, 12) + key("u8", GgufType::kU8, raw<uint8_t>(200)) + key("i8", GgufType::kI8, raw<int8_t>(-3)) +
      key("u16", GgufType::kU16, raw<uint16_t>(65000)) + key("i16", GgufType::kI16, raw<int16_t>(-300)) +
      key("u32", GgufType::kU32, raw<uint32_t>(4000000000)) +
      key("i32", GgufType::kI32, raw<int32_t>(-70000)) + key("f32", GgufType::kF32, raw(1.5f)) +
      key("bool", GgufType::kBool, raw<uint8_t>(1)) + key("s", GgufType::kString, text("abc")) +
      key("u64", GgufType::kU64, raw<uint64_t>(1) + std::string()) +
      key("i64", GgufType::kI64, raw<int64_t>(-(int64_t{1} << 40))) + key("f64", GgufType::kF64, raw(0.1));
  for (const uint32_t version : {2u, 3u}) {
    std::string file = bytes;
    file.replace(4, 4, raw(version));
    const auto parsed = parse_gguf(as_span(file), "x");
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    const GgufKeys& keys = parsed->keys;
    EXPECT_EQ(*keys.integer("u8", 0, 255), 200);
    EXPECT_EQ(*keys.integer("i8", -10, 0), -3);
    EXPECT_EQ(*keys.integer("u16", 0, 70000), 65000);
    EXPECT_EQ(*keys.integer("i16", -1000, 0), -300);
    EXPECT_EQ(*keys.integer("u32", 0, int64_t{1} << 40), 4000000000);
    EXPECT_EQ(*keys.integer("i32", -100000, 0), -70000);
    EXPECT_EQ(*keys.integer("u64", 0, 1), 1);
    EXPECT_EQ(*keys.integer("i64", -(int64_t{1} << 50), 0), -(int64_t{1} << 40));
    EXPECT_EQ(*keys.number("f32"), 1.5);
    EXPECT_EQ(*keys.number("f64"), 0.1);
    EXPECT_EQ(*keys.number("i8"), -3.0);
    EXPECT_EQ(*keys.string("s"), "abc");
    EXPECT_TRUE(*keys.boolean("bool"));
  }
}

TEST(Gguf, GettersNameKeyExpectedAndFound) {
  const std::string bytes =
      head(0, 3) + key("a", GgufType::kF32, raw(1.5f)) +
      key("b", GgufType::kArray, raw(uint32_t{8}) + raw<uint64_t>(2) + text("x") + text("yz")) +
      key("c", GgufType::kU64, raw(~uint64_t{0}));
  const auto parsed = parse_gguf(as_span(bytes), "m.gguf");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const GgufKeys& keys = parsed->keys;
  EXPECT_EQ(keys.integer("a", 0, 9).error().message, "m.gguf: key a: expected an integer, found f32");
  EXPECT_EQ(keys.string("b").error().message, "m.gguf: key b: expected string, found array of string");
  EXPECT_EQ(keys.integers("b").error().message,
            "m.gguf: key b: expected array of integers, found array of string");
  EXPECT_EQ(keys.integer("c", 0, 9).error().message,
            "m.gguf: key c: expected 0 to 9, found 9223372036854775807");
  EXPECT_EQ(keys.integer("zz", 0, 9).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(keys.strings("b")->at(1), "yz");
}

TEST(Gguf, StringArraysAreViewsIntoTheFile) {
  std::string elements;
  for (int i = 0; i < 129280; ++i) elements += text(std::to_string(i));
  const std::string bytes =
      head(0, 1) + key("t", GgufType::kArray, raw(uint32_t{8}) + raw<uint64_t>(129280) + elements);
  const auto parsed = parse_gguf(as_span(bytes), "x");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const auto tokens = parsed->keys.strings("t");
  ASSERT_EQ(tokens->size(), 129280u);
  EXPECT_EQ(tokens->back(), "129279");
  EXPECT_GE(tokens->back().data(), bytes.data());
  EXPECT_LT(tokens->back().data(), bytes.data() + bytes.size());
}

TEST(Gguf, RefusesBrokenHeaders) {
  EXPECT_NE(fault_of("GGU").find("truncated: the magic"), std::string::npos);
  EXPECT_NE(fault_of("GGML" + head(0, 0).substr(4)).find("expected GGUF"), std::string::npos);
  EXPECT_NE(fault_of(head(0, 0, 1)).find("GGUF version 1, expected 2 or 3"), std::string::npos);
  EXPECT_NE(fault_of(head(0, 0, 0x03000000)).find("big-endian"), std::string::npos);
  EXPECT_NE(fault_of(head(0, ~uint64_t{0})).find("keys cannot fit"), std::string::npos);
  EXPECT_NE(fault_of(head(~uint64_t{0}, 0)).find("tensors cannot fit"), std::string::npos);
  // 37 bytes: one key with an empty name and a one-byte value.
  const std::string empty_key = head(0, 1) + key("", GgufType::kU8, "x");
  ASSERT_EQ(empty_key.size(), 37u);
  EXPECT_EQ(fault_of(empty_key), "x: key 0 has an empty name");
  EXPECT_NE(fault_of(head(0, 1) + key("a", static_cast<GgufType>(13), "xxxx")).find("value type 13"),
            std::string::npos);
  EXPECT_NE(fault_of(head(0, 1) + raw<uint64_t>(1 << 30) + "abcdefghij").find("truncated"),
            std::string::npos);
  EXPECT_NE(
      fault_of(head(0, 2) + key("a", GgufType::kU8, "x") + key("a", GgufType::kU8, "x")).find("there twice"),
      std::string::npos);
  const std::string nested = raw(uint32_t{9}) + raw<uint64_t>(1) + std::string(20, '\0');
  EXPECT_NE(fault_of(head(0, 1) + key("a", GgufType::kArray, nested)).find("array of arrays"),
            std::string::npos);
  for (const uint32_t element : {0u, 8u, 12u})
    EXPECT_NE(fault_of(head(0, 1) + key("a", GgufType::kArray, raw(element) + raw(~uint64_t{0})))
                  .find("elements of at least"),
              std::string::npos);
  EXPECT_NE(
      fault_of(head(0, 1) + key("general.alignment", GgufType::kU32, raw<uint32_t>(48))).find("power of two"),
      std::string::npos);
  EXPECT_NE(
      fault_of(head(0, 1) + key("general.alignment", GgufType::kU32, raw<uint32_t>(0))).find("expected 1 to"),
      std::string::npos);
}

TEST(Gguf, ChecksTensorExtents) {
  const auto with = [](const std::string& records, uint64_t count, size_t data) {
    return pad(head(count, 0) + records, 32, data);
  };
  EXPECT_EQ(fault_of(with(record("a", {32, 2}, 8, 0) + record("b", {2}, 0, 96), 2, 104)), "");
  EXPECT_NE(
      fault_of(with(record("a", {32, 2}, 8, 0) + record("b", {2}, 0, 64), 2, 104)).find("a and b overlap"),
      std::string::npos);
  EXPECT_NE(fault_of(with(record("a", {32, 2}, 8, 0) + record("b", {2}, 0, 96), 2, 103))
                .find("truncated: tensor b"),
            std::string::npos);
  EXPECT_NE(fault_of(with(record("a", {2}, 0, 16), 1, 64)).find("not a multiple of the alignment 32"),
            std::string::npos);
  EXPECT_NE(fault_of(with(record("a", {33}, 8, 0), 1, 64)).find("whole blocks of Q8_0"), std::string::npos);
  EXPECT_NE(fault_of(with(record("a", {uint64_t{1} << 40, uint64_t{1} << 40}, 0, 0), 1, 64)).find("too many"),
            std::string::npos);
  EXPECT_NE(fault_of(with(record("a", {~uint64_t{0}}, 0, 0), 1, 64)).find("dimension 0"), std::string::npos);
  EXPECT_NE(fault_of(with(record("a", {1, 1, 1, 1, 1}, 0, 0), 1, 64)).find("5 dimensions"),
            std::string::npos);
  EXPECT_NE(fault_of(with(record("a", {2}, 0, ~uint64_t{31}), 1, 64)).find("beyond 64 bits"),
            std::string::npos);
  EXPECT_NE(fault_of(with(record("", {2}, 0, 0), 1, 64)).find("empty name"), std::string::npos);
}

TEST(Gguf, UnknownTypesAreKeptByName) {
  const std::string bytes =
      pad(head(2, 0) + record("a", {32, 2}, 7, 0) + record("b", {32}, 4711, 64), 32, 128);
  const auto parsed = parse_gguf(as_span(bytes), "x");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_FALSE(parsed->tensors[0].type.has_value());
  EXPECT_EQ(parsed->tensors[0].type_name, "Q5_1");
  EXPECT_EQ(parsed->tensors[1].type_name, "type 4711");
  EXPECT_EQ(parsed->tensors[0].shape, (std::vector<int64_t>{2, 32}));
}

class GgufFolder : public ::testing::Test {
 protected:
  // Shard `number` of `count` with one tensor "t<number>" holding `number` as F32.
  void write_shard(int number, int count, uint32_t alignment = 32, const std::string& rename = {}) {
    GgufWriter writer(alignment);
    writer.add_u16("split.no", static_cast<uint16_t>(number));
    writer.add_u16("split.count", static_cast<uint16_t>(count));
    writer.add_i32("split.tensors.count", count);
    writer.add_tensor(rename.empty() ? "t" + std::to_string(number) : rename, DType::kF32, {1});
    ASSERT_TRUE(writer.begin(shard(number, count)).ok());
    const float value = static_cast<float>(number);
    ASSERT_TRUE(writer.write(std::as_bytes(std::span(&value, 1))).ok());
    ASSERT_TRUE(writer.finish().ok());
  }
  std::string shard(int number, int count) {
    return folder_.file(fmt::format("m-{:05}-of-{:05}.gguf", number + 1, count));
  }
  std::string open_fault(const std::string& path) {
    const auto opened = open_gguf(path);
    return opened.ok() ? std::string() : opened.error().message;
  }
  TemporaryFolder folder_;
};

TEST_F(GgufFolder, OpensShardsOfDifferentAlignment) {
  write_shard(0, 3, 16384);
  write_shard(1, 3);
  EXPECT_NE(open_fault(shard(0, 3)).find("missing shard"), std::string::npos);
  write_shard(2, 3, 64);
  const auto opened = open_gguf(shard(0, 3));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(opened->store.files.size(), 3u);
  EXPECT_EQ(opened->store.find("t0")->offset_bytes % 16384, 0u);
  float value;
  std::memcpy(&value, opened->store.find("t2")->data, 4);
  EXPECT_EQ(value, 2.0f);
  EXPECT_NE(open_fault(shard(1, 3)).find("shard 2 of 3; open the first"), std::string::npos);
  write_shard(2, 3, 32, "t1");
  EXPECT_NE(open_fault(shard(0, 3)).find("tensor t1 is already in"), std::string::npos);
}

TEST_F(GgufFolder, ChecksTheShardsAgainstTheFirst) {
  write_shard(0, 2);
  std::filesystem::copy(shard(0, 2), shard(1, 2));
  EXPECT_NE(open_fault(shard(0, 2)).find("split.no 0 of 2, expected 1 of 2"), std::string::npos);
  std::filesystem::rename(shard(0, 2), folder_.file("other.gguf"));
  EXPECT_NE(open_fault(folder_.file("other.gguf")).find("expected the name"), std::string::npos);
}

TEST_F(GgufFolder, WriterAndReaderAgree) {
  const std::string path = folder_.file("a.gguf");
  GgufWriter writer(128);
  writer.add_string("s", "text");
  writer.add_bool("b", true);
  writer.add_f32s("f", {1.0f, 0.5f});
  writer.add_i32s("i", {-1, 2});
  writer.add_u64s("u", {uint64_t{1} << 50});
  writer.add_strings("l", {"", "ab"});
  writer.add_tensor("q", DType::kQ8_0, {2, 64});
  writer.add_tensor("h", DType::kF16, {3, 1, 5});
  ASSERT_TRUE(writer.begin(path).ok());
  EXPECT_FALSE(writer.write(as_span("short")).ok());
  ASSERT_TRUE(writer.write(as_span(std::string(2 * 68, 'q'))).ok());
  EXPECT_FALSE(writer.finish().ok());
  ASSERT_TRUE(writer.write(as_span(std::string(30, 'h'))).ok());
  ASSERT_TRUE(writer.finish().ok());
  const auto opened = open_gguf(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(*opened->keys.integers("i"), (std::vector<int64_t>{-1, 2}));
  EXPECT_EQ(*opened->keys.numbers("f"), (std::vector<double>{1.0, 0.5}));
  EXPECT_EQ(opened->keys.integers("u")->at(0), int64_t{1} << 50);
  EXPECT_EQ(opened->keys.strings("l")->at(0), "");
  const TensorEntry* h = opened->store.find("h");
  EXPECT_EQ(h->shape, (std::vector<int64_t>{3, 1, 5}));
  EXPECT_EQ(h->offset_bytes % 128, 0u);
  EXPECT_EQ(static_cast<char>(h->data[29]), 'h');
}

TEST_F(GgufFolder, EveryTruncationAndBitFlipIsSurvived) {
  const std::string path = folder_.file("a.gguf");
  GgufWriter writer;
  writer.add_string("general.name", "x");
  writer.add_strings("l", {"one", "two"});
  writer.add_tensor("t", DType::kQ8_0, {2, 32});
  ASSERT_TRUE(writer.begin(path).ok());
  ASSERT_TRUE(writer.write(as_span(std::string(68, 'q'))).ok());
  ASSERT_TRUE(writer.finish().ok());
  const std::string whole = read_bytes(path);
  const size_t end = whole.size() - 28;  // padding after the last tensor is not needed
  for (size_t size = 0; size < end; ++size) EXPECT_NE(fault_of(whole.substr(0, size)), "") << size;
  EXPECT_EQ(fault_of(whole.substr(0, end)), "");
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const auto parsed = parse_gguf(as_span(flipped), "x");
    if (!parsed.ok()) continue;
    for (const TensorEntry& tensor : parsed->tensors)
      EXPECT_LE(tensor.offset_bytes + tensor.size_bytes, flipped.size());
  }
}

}  // namespace
}  // namespace fathom
