package overlay

import (
	"regexp"
	"strings"
	"sync"

	"github.com/oklog/ulid/v2"

	"github.com/wisbox/wisbox/tool/answer"
)

// idPattern excludes characters that split engine filters, and names that look like an option.
var idPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`) })

// CheckID reports whether id can name a session: 1 to 63 lower-case ASCII letters,
// digits and hyphens, not starting with a hyphen. The error is invalid.
func CheckID(id string) error {
	if idPattern().MatchString(id) {
		return nil
	}
	return answer.Errorf(answer.Invalid, "a session's name must have 1 to 63 lower-case letters, digits and hyphens, and not start with a hyphen").In("session")
}

// newID returns a random ID that sorts by its creation time.
func newID() string { return strings.ToLower(ulid.Make().String()) }
