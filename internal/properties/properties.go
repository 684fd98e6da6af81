// Package properties has property tests run 200 examples each, where rapid's default is 100. The tests of a package
// that calls rapid.Check import it for that effect; -rapid.checks still decides.
package properties

import (
	"flag"

	_ "pgregory.net/rapid" // defines the flag
)

func init() {
	if err := flag.Set("rapid.checks", "200"); err != nil {
		panic(err)
	}
}
