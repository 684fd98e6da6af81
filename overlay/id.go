package overlay

import (
	"regexp"
	"strings"
	"sync"

	"github.com/oklog/ulid/v2"

	"github.com/wisbox/wisbox/tool"
)

// idPattern leaves out what splits engine filters or looks like an option.
var idPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`) })

// CheckID says whether id can name a session: 1 to 63 lower-case ASCII letters,
// digits and hyphens, not starting with a hyphen. The error is invalid.
func CheckID(id string) error {
	if idPattern().MatchString(id) {
		return nil
	}
	return tool.Errorf(tool.Invalid, "a session's name has 1 to 63 lower-case letters, digits and hyphens, and does not start with a hyphen").In("session")
}

// newID is random and sorts by the time it was made.
func newID() string { return strings.ToLower(ulid.Make().String()) }
