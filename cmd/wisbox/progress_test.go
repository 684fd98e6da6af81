package main

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
)

func TestProgressIsDrawnOnceAMegabyteAndTakenAway(t *testing.T) {
	var out strings.Builder
	p := &progress{out: &out, total: 4 << 20}
	for range 12 {
		_, _ = p.Write(make([]byte, 512<<10))
	}
	drawn := strings.Split(out.String(), "\r")
	assert.Len(t, drawn, 1+6)
	assert.Equal(t, "[#######                       ]  25 %    1.049MB", drawn[1])
	assert.Equal(t, "[##############################] 100 %    6.291MB", drawn[6], "a tar has more bytes than its files")
	p.end()
	assert.True(t, strings.HasSuffix(out.String(), "\r\x1b[K"))
}

func TestProgressWithoutATerminalOrATotal(t *testing.T) {
	quiet := &progress{}
	_, _ = quiet.Write(make([]byte, 2<<20))
	quiet.end()
	assert.Equal(t, "   2.097MB", quiet.String())
}

func TestSizeBelowCountsFiles(t *testing.T) {
	tree := fstest.MapFS{"d/a": {Data: []byte("xx")}, "d/e/b": {Data: []byte("yyy")}, "other": {Data: []byte("z")}}
	assert.EqualValues(t, 5, sizeBelow(tree, "d")())
	assert.EqualValues(t, 2, sizeBelow(tree, "d/a")())
	assert.Zero(t, sizeBelow(tree, "none")())
}
