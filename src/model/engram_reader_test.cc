#include "model/engram_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/float_types.h"
#include "tensor/weight.h"

namespace fathom {
namespace {

using Bytes = std::vector<uint8_t>;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "fathom_engram_XXXXXX").string();
    path_ = ::mkdtemp(name.data()) != nullptr ? name : "";
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

void write_file(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

// A table in memory and where its arrays are stored.
struct Table {
  EngramTableInfo info;
  Bytes data;
  Bytes scales;
  Bytes biases;

  std::vector<float> row(int64_t index) const {  // decoded straight from memory
    const auto bytes_at = [&](const Bytes& bytes, const TableArray& array) {
      const auto offset = static_cast<uint64_t>(index) * array.row_bytes;
      return reinterpret_cast<const std::byte*>(bytes.data()) + offset;
    };
    std::vector<float> values(static_cast<size_t>(info.width));
    decode_row({.type = info.type, .rows = 1, .cols = info.width, .data = bytes_at(data, info.data),
                .scales = bytes_at(scales, info.scales), .biases = bytes_at(biases, info.biases),
                .scale_type = info.scale_type, .bits = info.bits, .group = info.group},
               0, values.data());
    for (float& value : values) value = round_to_bf16(value);
    return values;
  }
};

Bytes random_bytes(size_t count, std::mt19937& random) {
  Bytes bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// Random codes with scales near one, so that every row is valid.
void fill(Table& table, std::mt19937& random) {
  const auto rows = static_cast<uint64_t>(table.info.rows);
  table.data = random_bytes(rows * table.info.data.row_bytes, random);
  table.scales = random_bytes(rows * table.info.scales.row_bytes, random);
  table.biases = random_bytes(rows * table.info.biases.row_bytes, random);
  const auto exponent = [&] { return static_cast<uint8_t>(118 + random() % 12); };
  const auto half = [&](uint8_t* at) {  // float16 of either sign around 2^-4
    at[1] = static_cast<uint8_t>((random() % 2 * 0x80) | (0x28 + random() % 8));
  };
  const auto no_nan = [](uint8_t& code) { code = (code & 0x7F) == 0x7F ? code ^ 1 : code; };
  for (uint8_t& scale : table.scales) scale = exponent();
  switch (table.info.type) {
    case DType::kFp8Row32:
      for (uint8_t& code : table.data) no_nan(code);
      break;
    case DType::kEngramRow264:
      for (size_t at = 0; at < table.data.size(); ++at) {
        if (at % 264 < 256) no_nan(table.data[at]);
        else table.data[at] = exponent();
      }
      break;
    case DType::kMXFP4:
      for (size_t at = 0; at < table.data.size(); at += 17) table.data[at] = exponent();
      break;
    case DType::kQ8_0:
      for (size_t at = 0; at < table.data.size(); at += 34) half(&table.data[at]);
      break;
    case DType::kQ4_K:
      for (size_t at = 0; at < table.data.size(); at += 144) half(&table.data[at]), half(&table.data[at + 2]);
      break;
    case DType::kAffine:  // bfloat16: the upper byte holds the sign and most of the exponent
      for (size_t at = 1; at < table.scales.size(); at += 2) table.scales[at] = 0x3C;
      for (size_t at = 1; at < table.biases.size(); at += 2) table.biases[at] = 0xBD;
      break;
    default: break;
  }
}

void store(Table& table, const std::string& path) {
  // Odd offsets: nothing in a safetensors file is aligned.
  Bytes file(37, 0xEE);
  const auto append = [&](TableArray& array, const Bytes& bytes) {
    array.path = path;
    array.offset_bytes = file.size();
    array.stride_bytes = array.row_bytes;
    file.insert(file.end(), bytes.begin(), bytes.end());
  };
  append(table.info.data, table.data);
  if (table.info.scales.row_bytes != 0) append(table.info.scales, table.scales);
  if (table.info.biases.row_bytes != 0) append(table.info.biases, table.biases);
  write_file(path, file);
}

Table make_table(DType type, int64_t rows, int64_t width, const std::string& path, int bits = 0) {
  Table table;
  table.info.type = type;
  table.info.rows = rows;
  table.info.width = width;
  table.info.bits = static_cast<uint16_t>(bits);
  table.info.data.row_bytes = static_cast<uint64_t>(row_bytes_of(type, width, bits));
  if (type == DType::kFp8Row32 || type == DType::kFp4Row32)
    table.info.scales.row_bytes = static_cast<uint64_t>(width / 32);
  if (type == DType::kAffine) {
    table.info.group = 32;
    table.info.scale_type = DType::kBF16;
    table.info.scales.row_bytes = table.info.biases.row_bytes = static_cast<uint64_t>(width / 32 * 2);
  }
  std::mt19937 random(static_cast<uint32_t>(rows * 31 + width + bits));
  fill(table, random);
  store(table, path);
  return table;
}

std::unique_ptr<EngramReader> open_reader(std::vector<EngramTableInfo> infos, int columns, int threads = 3) {
  auto reader = EngramReader::open(std::move(infos), columns, {.io_threads = threads});
  EXPECT_TRUE(reader.ok()) << reader.error().message;
  return reader.ok() ? std::move(reader).value() : nullptr;
}

std::string open_error(const EngramTableInfo& info) {
  const auto reader = EngramReader::open({info}, 1);
  EXPECT_FALSE(reader.ok());
  if (reader.ok()) return "";
  EXPECT_EQ(reader.error().code, ErrorCode::kBadPack);
  return reader.error().message;
}

void expect_contains(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

// Every value of the fetch equals what decoding its row from memory gives.
void expect_rows(const EngramReader::Fetch& fetch, const std::vector<const Table*>& tables,
                 const std::vector<int64_t>& ids, int columns) {
  size_t at = 0;
  for (int64_t token = 0; token < fetch.tokens(); ++token) {
    for (size_t table = 0; table < tables.size(); ++table) {
      const int64_t width = tables[table]->info.width;
      for (int column = 0; column < columns; ++column, ++at) {
        const float* found = fetch.rows(static_cast<int>(table)) + (token * columns + column) * width;
        const std::vector<float> expected =
            ids[at] < 0 ? std::vector<float>(static_cast<size_t>(width), 0.0f) : tables[table]->row(ids[at]);
        ASSERT_EQ(std::memcmp(found, expected.data(), expected.size() * sizeof(float)), 0)
            << "token " << token << " table " << table << " column " << column << " row " << ids[at];
      }
    }
  }
}

std::vector<int64_t> random_ids(int64_t count, int64_t rows, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int64_t> ids(static_cast<size_t>(count));
  const auto limit = static_cast<uint64_t>(rows);
  for (int64_t& id : ids) id = random() % 8 == 0 ? -1 : static_cast<int64_t>(random() % limit);
  return ids;
}

TEST(EngramReader, DecodesEveryEncoding) {
  const TemporaryFolder folder;
  struct Case {
    DType type;
    int64_t width;
    int bits = 0;
  };
  const Case cases[] = {{DType::kFp8Row32, 256},     {DType::kFp8Row32, 32},     {DType::kFp8Row32, 96},
                        {DType::kEngramRow264, 256}, {DType::kEngramRow136, 256}, {DType::kFp4Row32, 64},
                        {DType::kQ8_0, 256},         {DType::kMXFP4, 32},        {DType::kQ4_K, 256},
                        {DType::kAffine, 256, 2},    {DType::kAffine, 256, 3},   {DType::kAffine, 32, 4}};
  for (const Case& one : cases) {
    SCOPED_TRACE(fmt::format("{} {} {}", dtype_name(one.type), one.width, one.bits));
    const Table table = make_table(one.type, 700, one.width, folder.file("table"), one.bits);
    const auto reader = open_reader({table.info}, 3);
    ASSERT_NE(reader, nullptr);
    const std::vector<int64_t> ids = random_ids(3 * 50, 700, 5);
    const auto fetch = reader->start(ids, 50);
    const Result<void> done = fetch->wait();
    ASSERT_TRUE(done.ok()) << done.error().message;
    expect_rows(*fetch, {&table}, ids, 3);
  }
}

TEST(EngramReader, KnownRow) {
  const TemporaryFolder folder;
  Table table = make_table(DType::kEngramRow264, 3, 256, folder.file("table"));
  uint8_t* row = table.data.data() + 264;
  row[0] = 0x38;   // 1.0
  row[31] = 0xC4;  // -3.0
  row[32] = 0x01;  // 2^-9
  row[255] = 0x7E;  // 448
  row[256] = 128;
  row[257] = 120;
  row[263] = 127;
  store(table, folder.file("table"));
  const auto reader = open_reader({table.info}, 1);
  ASSERT_NE(reader, nullptr);
  const auto fetch = reader->start(std::vector<int64_t>{1}, 1);
  ASSERT_TRUE(fetch->wait().ok());
  EXPECT_EQ(fetch->rows(0)[0], 2.0f);
  EXPECT_EQ(fetch->rows(0)[31], -6.0f);
  EXPECT_EQ(fetch->rows(0)[32], 0x1p-16f);
  EXPECT_EQ(fetch->rows(0)[255], 448.0f);
}

TEST(EngramReader, TablesInSeveralFilesOfDifferentEncodings) {
  const TemporaryFolder folder;
  Table first = make_table(DType::kFp8Row32, 500, 64, folder.file("first"));
  const Table second = make_table(DType::kEngramRow136, 800, 256, folder.file("second"));
  write_file(folder.file("scales"), first.scales);  // the scales of the first table lie in a third file
  first.info.scales = {.path = folder.file("scales"), .stride_bytes = 2, .row_bytes = 2};
  const auto reader = open_reader({first.info, second.info}, 4);
  ASSERT_NE(reader, nullptr);
  const std::vector<int64_t> ids = random_ids(2 * 4 * 300, 500, 9);
  const auto fetch = reader->start(ids, 300);
  ASSERT_TRUE(fetch->wait().ok());
  EXPECT_EQ(fetch->tokens(), 300);
  expect_rows(*fetch, {&first, &second}, ids, 4);
}

TEST(EngramReader, DuplicatesAreReadOnceAndMaskedRowsAreZero) {
  const TemporaryFolder folder;
  const Table table = make_table(DType::kEngramRow264, 1000, 256, folder.file("table"));
  const auto reader = open_reader({table.info}, 2);
  ASSERT_NE(reader, nullptr);
  {  // leaves other values in the buffer that the next fetch gets
    const auto before = reader->start(std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}, 4);
    ASSERT_TRUE(before->wait().ok());
  }
  const std::vector<int64_t> ids{900, 7, 7, -1, -1, -5, 900, 7};
  const auto fetch = reader->start(ids, 4);
  ASSERT_TRUE(fetch->wait().ok());
  expect_rows(*fetch, {&table}, ids, 2);
  const EngramReader::Statistics statistics = reader->statistics();
  EXPECT_EQ(statistics.rows_asked, 8 + 5);
  EXPECT_EQ(statistics.rows_read, 8 + 2);
  // The first eight rows touch, so however they are split over the threads no byte is read twice.
  EXPECT_EQ(statistics.bytes_read, (8 + 2) * 264);
}

TEST(EngramReader, NothingToRead) {
  const TemporaryFolder folder;
  const Table table = make_table(DType::kFp8Row32, 10, 32, folder.file("table"));
  const auto reader = open_reader({table.info}, 2);
  ASSERT_NE(reader, nullptr);
  EXPECT_TRUE(reader->start({}, 0)->wait().ok());
  const auto masked = reader->start(std::vector<int64_t>{-1, -1}, 1);
  ASSERT_TRUE(masked->wait().ok());
  EXPECT_EQ(masked->rows(0)[63], 0.0f);
  const auto none = open_reader({}, 2);
  ASSERT_NE(none, nullptr);
  EXPECT_TRUE(none->start({}, 7)->wait().ok());
}

TEST(EngramReader, RowBeyondTheTableIsAnError) {
  const TemporaryFolder folder;
  const Table table = make_table(DType::kFp8Row32, 300, 32, folder.file("table"));
  const auto reader = open_reader({table.info}, 2);
  ASSERT_NE(reader, nullptr);
  const auto fetch = reader->start(std::vector<int64_t>{1, 2, 3, 300}, 2);
  const Result<void> done = fetch->wait();
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, ErrorCode::kInvalidArgument);
  expect_contains(done.error().message, {folder.file("table"), "row 300", "300 rows", "token 1", "column 1"});
  EXPECT_FALSE(fetch->wait().ok()) << "the error stays";
  EXPECT_TRUE(reader->start(std::vector<int64_t>{1, 299}, 1)->wait().ok());
  EXPECT_FALSE(reader->start(std::vector<int64_t>{1, INT64_MAX}, 1)->wait().ok());
}

TEST(EngramReader, InvalidRowsAreErrorsNamingFileAndRow) {
  const TemporaryFolder folder;
  const auto error_of = [&](DType type, int64_t width, auto&& spoil) {
    const std::string path = folder.file("table");
    Table table = make_table(type, 1000, width, path);
    spoil(table);
    store(table, path);
    const auto reader = open_reader({table.info}, 2);
    if (reader == nullptr) return std::string();
    const Result<void> done = reader->start(std::vector<int64_t>{5, 8, 999, 500}, 2)->wait();
    EXPECT_FALSE(done.ok());
    return done.ok() ? std::string() : done.error().message;
  };
  // Row 8 is not one of the rows sampled at opening.
  const std::vector<std::string> expected{folder.file("table"), "row 8 "};
  expect_contains(error_of(DType::kFp8Row32, 64, [](Table& t) { t.data[8 * 64 + 63] = 0xFF; }), expected);
  expect_contains(error_of(DType::kFp8Row32, 64, [](Table& t) { t.scales[8 * 2 + 1] = 255; }), expected);
  expect_contains(error_of(DType::kEngramRow264, 256, [](Table& t) { t.data[8 * 264] = 0x7F; }), expected);
  expect_contains(error_of(DType::kEngramRow264, 256, [](Table& t) { t.data[9 * 264 - 1] = 255; }), expected);
  expect_contains(error_of(DType::kMXFP4, 32, [](Table& t) { t.data[8 * 17] = 255; }), expected);
  expect_contains(error_of(DType::kQ8_0, 32, [](Table& t) { t.data[8 * 34 + 1] = 0x7C; }), expected);
}

TEST(EngramReader, TheFirstFailingRowIsReported) {
  const TemporaryFolder folder;
  Table table = make_table(DType::kFp8Row32, 4000, 32, folder.file("table"));
  for (size_t row = 100; row < 4000; row += 2) table.data[row * 32] = 0x7F;
  // Rows sampled at opening stay valid.
  for (size_t sample = 0; sample < 64; ++sample) table.data[sample * 3999 / 63 * 32] = 0x38;
  store(table, folder.file("table"));
  const auto reader = open_reader({table.info}, 1, 8);
  ASSERT_NE(reader, nullptr);
  std::vector<int64_t> ids(4000);
  for (size_t at = 0; at < ids.size(); ++at) ids[at] = static_cast<int64_t>(3999 - at);
  for (int round = 0; round < 20; ++round) {
    const Result<void> done = reader->start(ids, 4000)->wait();
    ASSERT_FALSE(done.ok());
    expect_contains(done.error().message, {"row 100 "});
  }
}

TEST(EngramReader, TruncatedFileIsRefused) {
  const TemporaryFolder folder;
  for (const DType type : {DType::kFp8Row32, DType::kEngramRow264}) {
    const Table table = make_table(type, 400, 256, folder.file("table"));
    const uint64_t row = 123;
    std::filesystem::resize_file(folder.file("table"), 37 + row * table.info.data.row_bytes + 1);
    expect_contains(open_error(table.info), {folder.file("table"), "row 123", "400 rows"});
    std::filesystem::resize_file(folder.file("table"), 3);
    expect_contains(open_error(table.info), {folder.file("table"), "row 0"});
  }
  const Table whole = make_table(DType::kFp8Row32, 400, 64, folder.file("table"));
  std::filesystem::resize_file(folder.file("table"), std::filesystem::file_size(folder.file("table")) - 1);
  expect_contains(open_error(whole.info), {"scales", "row 399"});
}

TEST(EngramReader, FileThatShrinksLaterIsAnError) {
  const TemporaryFolder folder;
  const Table table = make_table(DType::kEngramRow264, 400, 256, folder.file("table"));
  const auto reader = open_reader({table.info}, 2);
  ASSERT_NE(reader, nullptr);
  std::filesystem::resize_file(folder.file("table"), 37 + 264 * 200);
  EXPECT_TRUE(reader->start(std::vector<int64_t>{0, 199}, 1)->wait().ok());
  const Result<void> done = reader->start(std::vector<int64_t>{10, 399}, 1)->wait();
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, ErrorCode::kIo);
  expect_contains(done.error().message, {folder.file("table"), "rows 399 to 399"});
}

TEST(EngramReader, DescriptionsThatDoNotFitAreRefused) {
  const TemporaryFolder folder;
  const Table table = make_table(DType::kFp8Row32, 40, 64, folder.file("table"));
  const auto with = [&](auto&& change) {
    EngramTableInfo info = table.info;
    change(info);
    return open_error(info);
  };
  expect_contains(with([](auto& i) { i.width = 33; }), {folder.file("table"), "33"});
  expect_contains(with([](auto& i) { i.rows = 0; }), {"0 rows"});
  expect_contains(with([](auto& i) { i.rows = INT64_MAX; }), {"the file ends in row"});
  expect_contains(with([](auto& i) { i.type = DType::kI8; }), {"I8"});
  expect_contains(with([](auto& i) { i.type = DType::kAffine, i.bits = 7; }), {"7 bits"});
  expect_contains(with([](auto& i) { i.type = DType::kAffine, i.bits = 4, i.group = 0; }), {"found 0"});
  expect_contains(with([](auto& i) { i.data.row_bytes = 65; }), {"expected 64 bytes a row, found 65"});
  expect_contains(with([](auto& i) { i.data.stride_bytes = 0; }), {"stride of 0"});
  expect_contains(with([](auto& i) { i.data.offset_bytes = UINT64_MAX - 3; }), {"the file ends in row 0"});
  expect_contains(with([](auto& i) { i.scales = {}; }), {"scales", "expected 2 bytes"});
  EXPECT_FALSE(EngramReader::open({table.info}, 0).ok());
  EXPECT_FALSE(EngramReader::open({table.info}, 1, {.io_threads = 0}).ok());
  EngramTableInfo absent = table.info;
  absent.data.path = folder.file("absent");
  const auto reader = EngramReader::open({absent}, 1);
  ASSERT_FALSE(reader.ok());
  EXPECT_EQ(reader.error().code, ErrorCode::kNotFound);
}

TEST(EngramReader, HolesAreRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.file("table");
  for (const DType type : {DType::kEngramRow264, DType::kEngramRow136, DType::kQ4_K}) {
    Table table = make_table(type, 300, 256, path);
    table.data.assign(table.data.size(), 0);
    store(table, path);
    expect_contains(open_error(table.info), {path, "hole", "sparse"});
  }
  Table table = make_table(DType::kFp8Row32, 300, 256, path);
  Table without_data = table;
  without_data.data.assign(table.data.size(), 0);
  store(without_data, path);
  expect_contains(open_error(without_data.info), {path, "hole", "zero bytes"});
  Table without_scales = table;
  without_scales.scales.assign(table.scales.size(), 0);
  store(without_scales, path);
  expect_contains(open_error(without_scales.info), {path, "hole", "zero bytes"});
  Table odd_scale = table;
  odd_scale.scales[8 * 299 + 5] = 192;
  store(odd_scale, path);
  expect_contains(open_error(odd_scale.info), {path, "row 299", "scale byte 192"});
  odd_scale.scales[8 * 299 + 5] = 191;
  store(odd_scale, path);
  EXPECT_NE(open_reader({odd_scale.info}, 1), nullptr);
  // A scale of zero is what a quantiser may give a row of zeros.
  Table zero_row = table;
  std::fill_n(zero_row.data.begin(), 256, uint8_t{0x80});
  std::fill_n(zero_row.scales.begin(), 8, uint8_t{0});
  store(zero_row, path);
  EXPECT_NE(open_reader({zero_row.info}, 1), nullptr);
}

TEST(EngramReader, HoleInPartOfALargeSparseFileIsFoundQuickly) {
  const TemporaryFolder folder;
  const std::string path = folder.file("table");
  const Table rows = make_table(DType::kEngramRow264, 64, 256, folder.file("rows"));
  EngramTableInfo info = rows.info;
  info.rows = 63 * 6'000'000 + 1;  // every sampled row is a multiple of 6,000,000; about 100 GB
  info.data.path = path;
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_GE(descriptor, 0);
  const auto position = [&](int64_t row) { return static_cast<off_t>(37 + 264 * row); };
  if (::ftruncate(descriptor, position(info.rows)) != 0) GTEST_SKIP() << "no large sparse files here";
  const auto write_samples = [&](int64_t first, int64_t end) {
    for (int64_t sample = first; sample < end; ++sample)
      ASSERT_EQ(::pwrite(descriptor, &rows.data[static_cast<size_t>(264 * sample)], 264,
                         position(sample * 6'000'000)), 264);
  };
  const auto begin = std::chrono::steady_clock::now();
  write_samples(0, 50);
  expect_contains(open_error(info), {path, "rows 300000000 and 306000000", "hole", "bytes allocated"});
  write_samples(51, 64);  // a single zero row is no hole
  const auto reader = open_reader({info}, 2);
  ASSERT_NE(reader, nullptr);
  const auto fetch = reader->start(std::vector<int64_t>{info.rows - 1, 6'000'000}, 1);
  ASSERT_TRUE(fetch->wait().ok());
  EXPECT_EQ(fetch->rows(0)[255], rows.row(63)[255]);
  EXPECT_EQ(fetch->rows(0)[256], rows.row(1)[0]);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  ::close(descriptor);
}

TEST(EngramReader, RowsNeitherMergedNorContiguous) {
  const TemporaryFolder folder;
  const Table rows = make_table(DType::kFp8Row32, 40, 32, folder.file("rows"));
  // The same rows with strides on both sides of the distance up to which reads are merged.
  for (const uint64_t stride : {33u, 4096u, 4128u, 4129u, 9000u}) {
    Table table = rows;
    Bytes file(40 * stride, 0xFF);
    for (size_t row = 0; row < 40; ++row) std::memcpy(&file[row * stride], &rows.data[row * 32], 32);
    write_file(folder.file("table"), file);
    table.info.data = {.path = folder.file("table"), .stride_bytes = stride, .row_bytes = 32};
    const auto reader = open_reader({table.info}, 4);
    ASSERT_NE(reader, nullptr);
    std::vector<int64_t> ids(400);
    for (size_t at = 0; at < ids.size(); ++at) ids[at] = static_cast<int64_t>(at * 7 % 40);
    const auto fetch = reader->start(ids, 100);
    ASSERT_TRUE(fetch->wait().ok());
    for (size_t at = 0; at < ids.size(); ++at)
      ASSERT_EQ(std::memcmp(fetch->rows(0) + at * 32, rows.row(ids[at]).data(), 128), 0) << stride;
    EXPECT_EQ(reader->statistics().rows_read, 40);
  }
}

TEST(EngramReader, SeveralFetchesInFlightAndDroppedOnes) {
  const TemporaryFolder folder;
  const Table table = make_table(DType::kEngramRow264, 5000, 256, folder.file("table"));
  const auto reader = open_reader({table.info}, 8, 2);
  ASSERT_NE(reader, nullptr);
  for (uint32_t round = 0; round < 5; ++round) {
    const std::vector<int64_t> now = random_ids(8 * 60, 5000, round);
    const std::vector<int64_t> next = random_ids(8 * 70, 5000, 100 + round);
    const auto current = reader->start(now, 60);
    const float* place = current->rows(0);
    reader->start(random_ids(8 * 200, 5000, 200 + round), 200);  // dropped at once
    const auto following = reader->start(next, 70);
    ASSERT_TRUE(following->wait().ok());
    ASSERT_TRUE(current->wait().ok());
    EXPECT_EQ(current->rows(0), place);
    expect_rows(*current, {&table}, now, 8);
    expect_rows(*following, {&table}, next, 8);
  }
}

TEST(EngramReader, ManyThreadsAtOnce) {
  const TemporaryFolder folder;
  const Table first = make_table(DType::kFp8Row32, 3000, 32, folder.file("first"));
  const Table second = make_table(DType::kAffine, 3000, 64, folder.file("second"), 4);
  const auto reader = open_reader({first.info, second.info}, 3, 4);
  ASSERT_NE(reader, nullptr);
  std::vector<std::jthread> threads;
  for (uint32_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (uint32_t round = 0; round < 12; ++round) {
        const int64_t tokens = 1 + (thread * 7 + round * 5) % 40;
        const std::vector<int64_t> ids = random_ids(tokens * 6, 3000, thread * 100 + round);
        const auto fetch = reader->start(ids, tokens);
        ASSERT_TRUE(fetch->wait().ok());
        expect_rows(*fetch, {&first, &second}, ids, 3);
      }
    });
  }
}

// The tables of a small model in the layout of the release, at the row ids stored beside it.
TEST(EngramReader, GoldenTables) {
  const std::string folder = FATHOM_SOURCE_DIR "/tests/data/golden/g3_candidate_engram/";
  const auto header_of = [](const std::string& path, uint64_t& data_begin) {
    std::ifstream file(path, std::ios::binary);
    uint64_t length = 0;
    file.read(reinterpret_cast<char*>(&length), 8);
    std::string text(length, ' ');
    file.read(text.data(), static_cast<std::streamsize>(length));
    data_begin = 8 + length;
    return nlohmann::json::parse(text);
  };
  uint64_t begin = 0;
  const nlohmann::json model = header_of(folder + "model.safetensors", begin);
  std::vector<EngramTableInfo> infos;
  for (const std::string layer : {"layers.1", "layers.2"}) {
    const nlohmann::json& weight = model.at(layer + ".engram.embed.weight");
    const nlohmann::json& scale = model.at(layer + ".engram.embed.scale");
    const auto array = [&](const nlohmann::json& tensor) {
      const uint64_t row_bytes = tensor["shape"][1];
      return TableArray{.path = folder + "model.safetensors",
                        .offset_bytes = begin + tensor["data_offsets"][0].get<uint64_t>(),
                        .stride_bytes = row_bytes, .row_bytes = row_bytes};
    };
    infos.push_back({.type = DType::kFp8Row32, .rows = weight["shape"][0], .width = weight["shape"][1],
                     .data = array(weight), .scales = array(scale), .biases = {}});
  }
  const nlohmann::json golden = header_of(folder + "golden.safetensors", begin);
  std::vector<int32_t> stored_ids(81 * 2 * 6);
  std::ifstream file(folder + "golden.safetensors", std::ios::binary);
  file.seekg(static_cast<std::streamoff>(
      begin + golden.at("inputs/engram_hash_prefill")["data_offsets"][0].get<uint64_t>()));
  file.read(reinterpret_cast<char*>(stored_ids.data()), static_cast<std::streamsize>(stored_ids.size() * 4));
  const std::vector<int64_t> ids(stored_ids.begin(), stored_ids.end());

  const auto reader = open_reader(infos, 6);
  ASSERT_NE(reader, nullptr);
  const auto fetch = reader->start(ids, 81);
  ASSERT_TRUE(fetch->wait().ok());
  EXPECT_EQ(reader->statistics().rows_asked, 972);
  EXPECT_EQ(reader->statistics().rows_read, 296 + 339);
  // Computed from the bytes of the file by other means; exact in float64.
  const double sums[2] = {139.89486694335938, 88.12217712402344};
  const double weighted_sums[2] = {8307.232360839844, 7272.612655639648};
  for (int table = 0; table < 2; ++table) {
    double sum = 0;
    double weighted = 0;
    for (int at = 0; at < 81 * 6 * 32; ++at) {
      sum += fetch->rows(table)[at];
      weighted += fetch->rows(table)[at] * (at % 101);
    }
    EXPECT_EQ(sum, sums[table]);
    EXPECT_EQ(weighted, weighted_sums[table]);
  }
  const float* token40 = fetch->rows(1) + 40 * 6 * 32;
  EXPECT_EQ(token40[0], -1.0f);
  EXPECT_EQ(token40[1], -1.875f);
  EXPECT_EQ(token40[191], 1.75f);
}

}  // namespace
}  // namespace fathom
