package journal_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/internal/journal"
)

func TestAnEventHasTheModeThatTookEffect(t *testing.T) {
	for args, want := range map[string]string{
		`{"file_path":"f","content":"x"}`:                    "create",
		`{"file_path":"f","content":"x","mode":"overwrite"}`: "overwrite",
		`{"file_path":"f","content":"x","mode":"append"}`:    "append",
	} {
		assert.Equal(t, want, journal.ForTool("write_file", json.RawMessage(args)).Mode, args)
	}
	assert.Empty(t, journal.ForTool("ls", json.RawMessage(`{}`)).Mode)
}
