package wisbox_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/conformance"
)

// provenElsewhere are rows of the list of faults whose tests have names other than TestFault_ROW_…:
// by package, the tests that prove the required outcome.
var provenElsewhere = map[string]map[string][]string{
	"F04": {"snapshot": {"TestAProcessKilledAnywhereLeavesAValidStore"}},
	"F05": {"snapshot": {"TestAProcessKilledAnywhereLeavesAValidStore"}},
	"F08": {"integration": {"TestADeadServiceIsSaidAndFilesStillWork"}, "podman": {"TestASocketThatIsDeadWrongOrForeign", "TestAHungServiceIsUnavailable"}},
	"F12": {"integration": {"TestAMissingImageIsNamedAndNothingIsLeft"}, "podman": {"TestAMissingImageIsNamedWithWhatToDo"}},
	"F15": {"vfs": {"TestAFullDiskLeavesTheOldFileWhole"}, "overlay": {"TestOnAFullFileSystemNothingIsHalfMadeAndRemovalWorks"}, "snapshot": {"TestAFullDiskChangesNothing"}},
	"F16": {"vfs": {"TestAFullDiskLeavesTheOldFileWhole"}, "overlay": {"TestOnAFullFileSystemNothingIsHalfMadeAndRemovalWorks"}, "integration": {"TestDiskOfManyFilesEndsAtTheLimitOfInodes"}},
	"F17": {"overlay": {"TestAReadOnlyFileSystemIsAnErrorAndNothingIsHalfMade", "TestAReadOnlyStateRootIsAnErrorThatSaysSo"}},
	"F22": {"overlay": {"TestClocksThatJumpReapNothingEarly", "TestASweepByAClockOfYesterdayOrTomorrowReapsNothing"}},
	"F24": {"integration/mcp": {"TestTheEndOfTheInputEndsServerProgramAndSession"}, "mcpserver": {"TestTheEndOfInputEndsCallsThatGoOn"}},
	"F27": {"podman": {"TestAHungServiceIsUnavailable", "TestAFaultThatStaysIsTriedThreeTimes", "TestAPodmanThatDoesNotStartIsSaidSo", "TestNothingButOurWordsReachesTheText"}},
	"F28": {"podman": {"TestAPassingFaultIsTriedAgain", "TestAFaultThatStaysIsTriedThreeTimes"}},
	"F29": {"podman": {"TestAFailedCreateLeavesNothing", "TestAnAnswerThatWasLostLeavesNothing"}, ".": {"TestContainersWhoseSessionIsGoneAreSwept"}},
	"F30": {"podman": {"TestRemoveTriesAgainAndChecks"}},
	"F33": {"integration/mcp": {"TestOverHTTPTheProgramEndsWithItsCaller"}, "mcpserver": {"TestACallEndsWhenItsHTTPClientIsGone"}},
	"F39": {"agent": {"TestProtocolErrorsLoseTheConnection", "TestAgentEndsOnGarbage"}},
	"F41": {"snapshot": {"TestADamagedFileIsNamedAndNothingIsChanged"}},
	"F43": {"integration": {"TestDiskFloodEndsAtTheLimitAndTheOtherSessionGoesOn"}},
}

// TestEveryFaultHasItsTest compares the list of faults with the existing tests.
func TestEveryFaultHasItsTest(t *testing.T) {
	names, _ := testNames(t)
	rows := map[string]bool{}
	for _, name := range slices.Concat(slices.Collect(maps.Values(names))...) {
		if row := regexp.MustCompile(`^TestFault_(F\d\d)_`).FindStringSubmatch(name); row != nil {
			rows[row[1]] = true
		}
	}
	for row, packages := range provenElsewhere {
		rows[row] = true
		for pkg, proofs := range packages {
			assert.Subset(t, names[pkg], proofs, "%s: %s", row, pkg)
		}
	}
	for _, row := range listedFaults(t) {
		assert.True(t, rows[row], "%s has no test", row)
	}
}

func listedFaults(t *testing.T) (rows []string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(conformance.Dir("integration/testdata/cases"), "faults.md"))
	require.NoError(t, err)
	for _, row := range regexp.MustCompile(`(?m)^\| (F\d\d) \|`).FindAllStringSubmatch(string(raw), -1) {
		rows = append(rows, row[1])
	}
	require.NotEmpty(t, rows)
	return rows
}
