package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
	if _, err := os.Stat("../go.mod"); err != nil {
		t.Skip("the sources are not here")
	}
	have, rows := testsOf(t), map[string]bool{}
	for name := range have {
		if row := regexp.MustCompile(`\.TestFault_(F\d\d)_`).FindStringSubmatch(name); row != nil {
			rows[row[1]] = true
		}
	}
	for row, packages := range provenElsewhere {
		rows[row] = true
		for pkg, names := range packages {
			for _, name := range names {
				assert.True(t, have[pkg+"."+name], "%s: there is no %s in %s", row, name, pkg)
			}
		}
	}
	for _, row := range listedFaults(t) {
		assert.True(t, rows[row], "%s has no test", row)
	}
}

// testsOf gives "package.TestName" of the whole repository.
func testsOf(t *testing.T) map[string]bool {
	t.Helper()
	found, name := map[string]bool{}, regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	require.NoError(t, filepath.WalkDir("..", func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		raw, err := os.ReadFile(path)
		rel, _ := filepath.Rel("..", filepath.Dir(path))
		for _, m := range name.FindAllStringSubmatch(string(raw), -1) {
			found[rel+"."+m[1]] = true
		}
		return err
	}))
	return found
}

// listedFaults are the rows of the shared list, or of the one known here.
func listedFaults(t *testing.T) (rows []string) {
	t.Helper()
	dir := os.Getenv("WISBOX_CONFORMANCE")
	if dir == "" {
		dir = "../../shared/conformance"
	}
	raw, err := os.ReadFile(filepath.Join(dir, "faults.md"))
	if err != nil {
		for i := range 43 {
			rows = append(rows, fmt.Sprintf("F%02d", i+1))
		}
		return rows
	}
	for _, row := range regexp.MustCompile(`(?m)^\| (F\d\d) \|`).FindAllStringSubmatch(string(raw), -1) {
		rows = append(rows, row[1])
	}
	return rows
}
