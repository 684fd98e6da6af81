package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/wisbox/wisbox/profile"
)

func registerProfile(flags *pflag.FlagSet, into *string, otherwise string) {
	flags.StringVar(into, "profile", "", "`NAME` of the profile, which gives tools their names and shapes: "+strings.Join(profile.Names(), ", ")+" (default "+otherwise+")")
}

func checkProfile(name string) error {
	if name == "" || slices.Contains(profile.Names(), name) {
		return nil
	}
	return usageError{fmt.Errorf("--profile is %q; the profiles are %s", name, strings.Join(profile.Names(), ", "))}
}
