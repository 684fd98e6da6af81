package vfs_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// propertyChecks is the number of examples of each property, unless -rapid.checks gives another.
const propertyChecks = "200"

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", propertyChecks); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
