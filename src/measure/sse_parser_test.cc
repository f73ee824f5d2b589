#include "measure/sse_parser.h"

#include <gtest/gtest.h>

#include <vector>

namespace fathom::measure {
namespace {

struct Fed {
  std::vector<ServerEvent> events;
  std::string error;
};

Fed feed_all(const std::vector<std::string>& pieces, size_t event_bytes_max = 1 << 20) {
  Fed fed;
  SseParser parser(event_bytes_max);
  for (size_t number = 0; number < pieces.size() && fed.error.empty(); ++number) {
    const auto result = parser.feed(pieces[number], static_cast<int64_t>(number) + 1,
                                    [&](ServerEvent&& event) { fed.events.push_back(std::move(event)); });
    if (!result) fed.error = result.error().message;
  }
  return fed;
}

TEST(SseParser, ReadsFieldsCommentsAndLineEndings) {
  const Fed fed = feed_all({"\xEF\xBB\xBF: comment\r\ndata: a\r\ndata:b\r\n\r\nevent: error\rdata:  c\r\r"
                            "id: 7\n\nunknown\ndata\n\n"});
  ASSERT_EQ(fed.error, "");
  ASSERT_EQ(fed.events.size(), 3u);
  EXPECT_EQ(fed.events[0].data, "a\nb");
  EXPECT_EQ(fed.events[0].name, "");
  EXPECT_EQ(fed.events[1].data, " c");
  EXPECT_EQ(fed.events[1].name, "error");
  EXPECT_EQ(fed.events[2].data, "");
  EXPECT_EQ(fed.events[2].name, "");
}

TEST(SseParser, ReadsTheSameWhateverThePieces) {
  const std::string text =
      ": x\r\ndata: {\"text\":\"\xED\x95\x9C\"}\r\n\r\ndata: two\ndata: lines\n\ndata: [DONE]\n\n";
  const Fed whole = feed_all({text});
  ASSERT_EQ(whole.events.size(), 3u);
  for (size_t length = 1; length < text.size(); ++length) {
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size(); at += length) pieces.push_back(text.substr(at, length));
    const Fed fed = feed_all(pieces);
    ASSERT_EQ(fed.events.size(), 3u) << length;
    for (size_t index = 0; index < 3; ++index)
      EXPECT_EQ(fed.events[index].data, whole.events[index].data) << length;
  }
}

TEST(SseParser, AnEventHasTheTimeOfTheBytesThatCompletedIt) {
  const Fed fed = feed_all({"data: a", "\n", "\ndata: b\n\ndata: c", "\n\n"});
  ASSERT_EQ(fed.events.size(), 3u);
  EXPECT_EQ(fed.events[0].arrived_ns, 3);
  EXPECT_EQ(fed.events[1].arrived_ns, 3);
  EXPECT_EQ(fed.events[2].arrived_ns, 4);
}

TEST(SseParser, NamesWhatIsWrong) {
  EXPECT_EQ(feed_all({"data: ok\n\ndata: \xFF\n\n"}).error,
            "invalid UTF-8 in an event: byte 0xff at offset 0 of 1");
  EXPECT_EQ(feed_all({"data: " + std::string(90, 'x') + "\n\n"}, 100).error, "");
  EXPECT_EQ(feed_all({"data: " + std::string(101, 'x') + "\n\n"}, 100).error,
            "event too large: expected at most 100 bytes, found more");
  // Many lines are as large as a long one.
  std::vector<std::string> lines(30, "data: 12345\n");
  EXPECT_EQ(feed_all(lines, 100).error, "event too large: expected at most 100 bytes, found more");
}

TEST(SseParser, KnowsWhenItIsInsideAnEvent) {
  SseParser parser(100);
  const auto feed = [&](const char* text) { (void)parser.feed(text, 1, [](ServerEvent&&) {}); };
  EXPECT_FALSE(parser.is_inside_event());
  feed("data: a\n");
  EXPECT_TRUE(parser.is_inside_event());
  feed("\n");
  EXPECT_FALSE(parser.is_inside_event());
  feed("da");
  EXPECT_TRUE(parser.is_inside_event());
}

TEST(InvalidUtf8, FindsTheFirstWrongByte) {
  const size_t npos = std::string::npos;
  EXPECT_EQ(invalid_utf8_offset("abc \xC3\xA9 \xED\x95\x9C \xF0\x9F\x8C\x8A"), npos);
  EXPECT_EQ(invalid_utf8_offset("\xF4\x8F\xBF\xBF"), npos);
  EXPECT_EQ(invalid_utf8_offset("a\x80"), 1u);
  EXPECT_EQ(invalid_utf8_offset("ab\xC0\xAF"), 2u);          // overlong
  EXPECT_EQ(invalid_utf8_offset("\xE0\x80\x80"), 0u);        // overlong
  EXPECT_EQ(invalid_utf8_offset("\xED\xA0\x80"), 0u);        // surrogate
  EXPECT_EQ(invalid_utf8_offset("\xF4\x90\x80\x80"), 0u);    // beyond U+10FFFF
  EXPECT_EQ(invalid_utf8_offset("xy\xE2\x82"), 2u);          // cut
  EXPECT_EQ(invalid_utf8_offset("\xF0\x9F\x8C x"), 0u);
}

}  // namespace
}  // namespace fathom::measure
