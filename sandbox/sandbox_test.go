package sandbox_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/sandbox"
)

// TestFilesInMemoryLeaveAnEighthOfIt: no kill frees them, and with all of them full a program must still be able to run.
func TestFilesInMemoryLeaveAnEighthOfIt(t *testing.T) {
	for _, l := range []sandbox.Limits{
		{}, {Memory: 16 << 20}, {Memory: 100 << 20}, {Memory: 512 << 20}, {Memory: 4 << 30}, {Memory: 4 << 30, Tmp: 1 << 30},
		{Tmp: 512 << 20}, {Memory: 64 << 20, Tmp: 1 << 20},
	} {
		l = l.WithDefaults()
		assert.LessOrEqual(t, l.Tmp+l.Home()+l.Memory/4, l.Memory/8*7, "%+v", l)
		assert.GreaterOrEqual(t, l.Home(), min(l.Tmp, l.Memory/8), "%+v", l)
		assert.LessOrEqual(t, l.Home(), l.Tmp, "%+v", l)
	}
	assert.EqualValues(t, 256<<20, sandbox.Limits{}.WithDefaults().Home())
}
