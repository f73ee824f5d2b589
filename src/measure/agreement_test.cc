#include "measure/agreement.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fathom::measure {
namespace {

// Four observers, twelve units, with gaps: the paper gives 0.815 for ordinal values.
TEST(AgreementTest, GivesThePublishedValueOfKrippendorffsExample) {
  const JudgeAgreement agreement = ordinal_agreement({{1, 1, 1},
                                                 {2, 2, 3, 2},
                                                 {3, 3, 3, 3},
                                                 {3, 3, 3, 3},
                                                 {2, 2, 2, 2},
                                                 {1, 2, 3, 4},
                                                 {4, 4, 4, 4},
                                                 {1, 1, 2, 1},
                                                 {2, 2, 2, 2},
                                                 {5, 5, 5},
                                                 {1, 1},
                                                 {3}});
  EXPECT_NEAR(agreement.alpha, 0.815, 0.0005);
  EXPECT_EQ(agreement.texts, 11);
  EXPECT_EQ(agreement.values, 40);
}

TEST(AgreementTest, IsOneForAgreementAndBelowZeroForTheOpposite) {
  EXPECT_DOUBLE_EQ(ordinal_agreement({{0, 0}, {4, 4}, {2, 2}}).alpha, 1);
  // Two texts, each 0 and 4: ranks 1 and 3, observed 4 * 4 = 16, expected 2 * 2 * 2 * 4 / 3 = 32 / 3.
  EXPECT_DOUBLE_EQ(ordinal_agreement({{0, 4}, {4, 0}}).alpha, -0.5);
}

TEST(AgreementTest, DependsOnTheOrderOfValuesNotOnTheirSteps) {
  const double near = ordinal_agreement({{0, 1}, {1, 2}, {2, 2}, {0, 0}}).alpha;
  const double far = ordinal_agreement({{0, 10}, {10, 400}, {400, 400}, {0, 0}}).alpha;
  EXPECT_DOUBLE_EQ(near, far);
}

TEST(AgreementTest, IsNotDefinedWithoutPairsOrWithoutDifferences) {
  for (const auto& values : std::vector<std::vector<std::vector<int32_t>>>{{}, {{1}, {2}, {}}, {{3, 3}, {3, 3}}}) {
    EXPECT_TRUE(std::isnan(ordinal_agreement(values).alpha));
  }
  EXPECT_EQ(ordinal_agreement({{3, 3}, {3, 3}}).texts, 2);
  EXPECT_EQ(ordinal_agreement({{1}, {2}}).texts, 0);
}

}  // namespace
}  // namespace fathom::measure
