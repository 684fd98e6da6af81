package sandbox_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/sandbox"
)

func TestVariablesMayReferToThoseOfTheImage(t *testing.T) {
	image := []string{"HOME=/h", "PATH=/old", "EMPTY=", "PATH=/usr/bin:/bin"}
	spec := sandbox.Spec{Env: map[string]string{
		"PATH": "${containerEnv:PATH}:/x", "A": "${containerEnv:HOME}/a${containerEnv:HOME}", "B": "${containerEnv:NONE}b", "C": "${containerEnv:NONE:c:d}", "D": "${containerEnv:EMPTY:d}",
		"E": "${containerEnv:}$HOME${HOME}", "F": "${containerEnv:A}",
	}}
	assert.Equal(t, "PATH=${containerEnv:PATH}:/x", spec.Variables(image)[6], "only on request")
	spec.ExpandEnv = true
	assert.Equal(t, []string{
		"A=/h/a/h", "B=b", "C=c:d", "D=", "E=${containerEnv:}$HOME${HOME}", "F=", "PATH=/usr/bin:/bin:/x",
	}, spec.Variables(image))
}
