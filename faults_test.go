package wisbox_test

import (
	"fmt"
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

// faults is how many rows the team's list of faults has, F01 and up.
const faults = 43

// provenElsewhere are the rows of the team's list of faults whose tests have
// other names than TestFault_ROW_…: by package, what proves the required outcome.
var provenElsewhere = map[string]map[string][]string{
	"F04": {"snapshot": {"TestAProcessKilledAnywhereLeavesAValidStore"}},
	"F05": {"snapshot": {"TestAProcessKilledAnywhereLeavesAValidStore"}},
	"F08": {"integration": {"TestADeadServiceIsSaidAndFilesStillWork"}, "podman": {"TestASocketThatIsDeadWrongOrForeign", "TestAHungServiceIsUnavailableWithinFiveSeconds"}},
	"F12": {"integration": {"TestAMissingImageIsNamedAndNothingIsLeft"}, "podman": {"TestAMissingImageIsNamedWithWhatToDo"}},
	"F15": {"vfs": {"TestAFullDiskLeavesTheOldFileWhole"}, "overlay": {"TestOnAFullFileSystemNothingIsHalfMadeAndRemovalWorks"}, "snapshot": {"TestAFullDiskChangesNothing"}},
	"F16": {"vfs": {"TestAFullDiskLeavesTheOldFileWhole"}, "overlay": {"TestOnAFullFileSystemNothingIsHalfMadeAndRemovalWorks"}, "integration": {"TestDiskOfManyFilesEndsAtTheLimitOfInodes"}},
	"F17": {"overlay": {"TestAReadOnlyFileSystemIsAnErrorAndNothingIsHalfMade", "TestAReadOnlyStateRootIsAnErrorThatSaysSo"}},
	"F22": {"overlay": {"TestClocksThatJumpReapNothingEarly", "TestASweepByAClockOfYesterdayOrTomorrowReapsNothing"}},
	"F24": {"integration/mcp": {"TestTheEndOfTheInputEndsServerProgramAndSession"}, "mcpserver": {"TestTheEndOfInputEndsCallsThatGoOn"}},
	"F27": {"podman": {"TestAHungServiceIsUnavailableWithinFiveSeconds", "TestAFaultThatStaysIsTriedThreeTimes", "TestAPodmanThatDoesNotStartIsSaidSo", "TestNothingButOurWordsReachesTheText"}},
	"F28": {"podman": {"TestAPassingFaultIsTriedAgain", "TestAFaultThatStaysIsTriedThreeTimes"}},
	"F29": {"podman": {"TestAFailedCreateLeavesNothing", "TestAnAnswerThatWasLostLeavesNothing"}, ".": {"TestContainersWhoseSessionIsGoneAreSwept"}},
	"F30": {"podman": {"TestRemoveTriesAgainAndChecks"}},
	"F33": {"integration/mcp": {"TestOverHTTPTheProgramEndsWithItsCaller"}, "mcpserver": {"TestACallEndsWhenItsHTTPClientIsGone"}},
	"F39": {"agent": {"TestProtocolErrorsLoseTheConnection", "TestAgentEndsOnGarbage"}},
	"F41": {"snapshot": {"TestADamagedFileIsNamedAndNothingIsChanged"}},
	"F43": {"integration": {"TestDiskFloodEndsAtTheLimitAndTheOtherSessionGoesOn"}},
}

// TestEveryFaultHasItsTest holds the list of faults against the tests that exist.
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

// listedFaults are the rows of the shared list, or of the one known here.
func listedFaults(t *testing.T) (rows []string) {
	t.Helper()
	dir, missing := conformance.SharedDir()
	if missing != "" {
		for n := 1; n <= faults; n++ {
			rows = append(rows, fmt.Sprintf("F%02d", n))
		}
		return rows
	}
	raw, err := os.ReadFile(filepath.Join(dir, "faults.md"))
	require.NoError(t, err)
	for _, row := range regexp.MustCompile(`(?m)^\| (F\d\d) \|`).FindAllStringSubmatch(string(raw), -1) {
		rows = append(rows, row[1])
	}
	assert.GreaterOrEqual(t, len(rows), faults)
	return rows
}
