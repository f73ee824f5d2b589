#include "format/safetensors.h"

#include <gtest/gtest.h>

#include "format/safetensors_writer.h"
#include "format/test_files.h"

namespace fathom {
namespace {

std::string file_of(const std::string& header, const std::string& data = {}) {
  return raw<uint64_t>(header.size()) + header + data;
}

// The message of the error, or of success an empty string.
std::string fault_of(const std::string& bytes) {
  const auto parsed = parse_safetensors(as_span(bytes), "x");
  return parsed.ok() ? std::string() : parsed.error().message;
}

TEST(Safetensors, ReadsUnalignedData) {
  // An odd header length puts every tensor at an odd address.
  const std::string header =
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("__metadata__":{"format":"mlx"},"b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}})";
  ASSERT_EQ(header.size() % 2, 1u);
  const std::string bytes = file_of(header, raw(1.5f) + raw(-2.0f) + "\x07");
  const auto parsed = parse_safetensors(as_span(bytes), "x");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  ASSERT_EQ(parsed->tensors.size(), 2u);
  const TensorEntry& a = parsed->tensors[0];
  EXPECT_EQ(a.type, DType::kF32);
  EXPECT_EQ(a.offset_bytes, 8 + header.size());
  float value;
  std::memcpy(&value, a.data + 4, 4);
  EXPECT_EQ(value, -2.0f);
  EXPECT_EQ(parsed->tensors[1].shape.size(), 0u);
  EXPECT_EQ(static_cast<int>(*parsed->tensors[1].data), 7);
  EXPECT_EQ(parsed->metadata.at("format"), "mlx");
}

TEST(Safetensors, UnknownTypeIsKeptByName) {
  const std::string bytes = file_of(R"({"a":{"dtype":"F6_E3M2","shape":[4],"data_offsets":[0,3]}})", "abc");
  const auto parsed = parse_safetensors(as_span(bytes), "x");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_FALSE(parsed->tensors[0].type.has_value());
  EXPECT_EQ(parsed->tensors[0].type_name, "F6_E3M2");
  EXPECT_EQ(parsed->tensors[0].size_bytes, 3u);
}

TEST(Safetensors, RefusesBrokenHeaders) {
  EXPECT_EQ(fault_of("abc"), "x: 3 bytes, expected a safetensors header of at least 8");
  EXPECT_EQ(fault_of(raw<uint64_t>(100) + "{}"), "x: the header claims 100 bytes, the file has 10");
  EXPECT_EQ(fault_of(raw<uint64_t>(~uint64_t{0}) + "{}"),
            "x: the header claims 18446744073709551615 bytes, the file has 10");
  EXPECT_NE(fault_of(file_of("{\"a\"")).find("not valid JSON"), std::string::npos);
  EXPECT_NE(fault_of(file_of("[]")).find("unexpected array"), std::string::npos);
  EXPECT_NE(fault_of(file_of("7")).find("unexpected number"), std::string::npos);
  EXPECT_NE(fault_of(file_of(R"({"a":{"dtype":"U8","shape":[1]}})")).find("data_offsets has 0"),
            std::string::npos);
  EXPECT_NE(fault_of(file_of(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})"))
                .find("negative number -1"),
            std::string::npos);
  EXPECT_NE(
      fault_of(file_of(R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})")).find("number 1.5"),
      std::string::npos);
  EXPECT_NE(fault_of(file_of(R"({"a":{"dtype":["U8"],"shape":[1],"data_offsets":[0,1]}})"))
                .find("tensor a: unexpected"),
            std::string::npos);
  EXPECT_NE(
      fault_of(file_of(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "a")).find("empty name"),
      std::string::npos);
  // The parser keeps no stack of its own depth, so deep nesting is a plain error.
  EXPECT_NE(fault_of(file_of(std::string(100000, '{'))), "");
}

TEST(Safetensors, RefusesWrongExtents) {
  const std::string one = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  EXPECT_EQ(
      fault_of(file_of("{" + one + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", "123456")),
      "x: tensors a and b overlap: the first ends at byte 117, the second begins at 115");
  EXPECT_NE(fault_of(file_of("{" + one + "," + one + "}", "1234")).find("tensor a is listed twice"),
            std::string::npos);
  EXPECT_NE(fault_of(file_of("{" + one + "}", "12"))
                .find("truncated: tensor a ends at byte 65, the file has 63 bytes"),
            std::string::npos);
  EXPECT_NE(fault_of(file_of(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,4]}})", "1234"))
                .find("F32 [4] takes 16 bytes, data_offsets give 4"),
            std::string::npos);
  EXPECT_NE(fault_of(file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", "1234"))
                .find("not in order"),
            std::string::npos);
  EXPECT_NE(fault_of(file_of(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296,4],"data_offsets":[0,4]}})",
                             "1234"))
                .find("too many elements"),
            std::string::npos);
}

TEST(Safetensors, LenientOpenCollectsProblems) {
  const std::string bytes = file_of(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,4]},)"
                                    R"("b":{"dtype":"U8","shape":[9],"data_offsets":[4,13]}})",
                                    "12345");
  Problems problems;
  const auto parsed = parse_safetensors(as_span(bytes), "x", &problems);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(problems.size(), 2u);
  ASSERT_EQ(parsed->tensors.size(), 2u);
  EXPECT_EQ(parsed->tensors[1].data, nullptr);
}

TEST(Safetensors, EveryTruncationOfARealFileIsAnError) {
  const std::string whole =
      read_bytes(std::string(FATHOM_SOURCE_DIR) + "/tests/data/golden/g1_dense_short/model.safetensors");
  ASSERT_GT(whole.size(), 1000000u);
  ASSERT_EQ(fault_of(whole), "");
  for (size_t size = 0; size < whole.size(); size += size < 64 ? 1 : 9973)
    EXPECT_NE(fault_of(whole.substr(0, size)), "") << size;
}

class SafetensorsFolder : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& tensor, const std::string& bytes) {
    auto writer = SafetensorsWriter::create(
        folder_.file(name),
        {{.name = tensor, .type = DType::kU8, .shape = {static_cast<int64_t>(bytes.size())}}});
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->write(as_span(bytes)).ok());
    ASSERT_TRUE(writer->finish().ok());
  }
  std::string open_fault() {
    const auto opened = open_safetensors(folder_.path());
    return opened.ok() ? std::string() : opened.error().message;
  }
  TemporaryFolder folder_;
};

TEST_F(SafetensorsFolder, OpensShards) {
  write("model-1.safetensors", "a", "one");
  write("model-2.safetensors", "b", "four");
  EXPECT_NE(open_fault().find("2 .safetensors files but no"), std::string::npos);
  write_bytes(folder_.file("model.safetensors.index.json"),
              R"({"metadata":{},"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}})");
  const auto opened = open_safetensors(folder_.path());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const TensorEntry* b = opened->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->file, 1);
  EXPECT_EQ(std::memcmp(b->data, "four", 4), 0);
  EXPECT_EQ(opened->find("c"), nullptr);
}

TEST_F(SafetensorsFolder, RefusesAnIndexThatLies) {
  write("model-1.safetensors", "a", "one");
  write("model-2.safetensors", "a", "two");
  const std::string index = folder_.file("model.safetensors.index.json");
  write_bytes(index, R"({"weight_map":{"a":"model-1.safetensors","b":"model-3.safetensors"}})");
  EXPECT_NE(open_fault().find("missing shard model-3.safetensors"), std::string::npos);
  write_bytes(index, R"({"weight_map":{"a":"model-1.safetensors","b":"model-1.safetensors"}})");
  EXPECT_NE(open_fault().find("tensor b is not in model-1.safetensors"), std::string::npos);
  write_bytes(index, R"({"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}})");
  EXPECT_NE(open_fault().find("tensor a is already in"), std::string::npos);
  write_bytes(index, R"({"weight_map":{"a":"../model-1.safetensors"}})");
  EXPECT_NE(open_fault().find("not a plain file name"), std::string::npos);
  write_bytes(index, R"({"weight_map":{"a":)" + std::string(100000, '[') + std::string(100000, ']') + "}}");
  EXPECT_NE(open_fault().find("nested deeper than 64 levels"), std::string::npos);
  write_bytes(index, R"({"weight_map":[]})");
  EXPECT_NE(open_fault().find("no weight_map"), std::string::npos);
}

TEST_F(SafetensorsFolder, OpensAHugeSparseFileWithoutReadingIt) {
  constexpr int64_t kBytes = int64_t{100} << 30;
  const std::string path = folder_.file("model.safetensors");
  const std::string header =
      fmt::format(R"({{"a":{{"dtype":"U8","shape":[{0}],"data_offsets":[0,{0}]}}}})", kBytes);
  write_bytes(path, file_of(header));
  std::filesystem::resize_file(path, 8 + header.size() + static_cast<uint64_t>(kBytes));
  const auto opened = open_safetensors(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(opened->tensors[0].size_bytes, static_cast<uint64_t>(kBytes));
  const auto info = file_info(path);
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(describe_sparseness(*info),
            fmt::format("sparse: {} of {} bytes are allocated", info->allocated_bytes, info->size_bytes));
  EXPECT_LT(info->allocated_bytes, 1u << 20);
}

TEST_F(SafetensorsFolder, WriterThatStopsEarlyLeavesNothing) {
  {
    auto writer = SafetensorsWriter::create(folder_.file("a.safetensors"),
                                            {{.name = "a", .type = DType::kF32, .shape = {2}}});
    ASSERT_TRUE(writer.ok());
    EXPECT_NE(writer->finish().error().message.find("the plan says"), std::string::npos);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  EXPECT_FALSE(
      SafetensorsWriter::create(folder_.file("b"), {{.name = "b", .type = DType::kQ8_0, .shape = {32}}})
          .ok());
}

}  // namespace
}  // namespace fathom
