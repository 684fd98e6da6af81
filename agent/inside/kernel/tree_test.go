package kernel

import "testing"

func TestAPIDIsThatOfOneProcess(t *testing.T) {
	for text, want := range map[string]int{"1": 1, "4194304": 4194304} {
		if pid, ok := parsePID(text); !ok || pid != want {
			t.Errorf("%q: %d, %v", text, pid, ok)
		}
	}
	for _, text := range []string{"0", "-1", "-20", "", "self", "99999999999999999999"} {
		if pid, ok := parsePID(text); ok {
			t.Errorf("%q is process %d", text, pid)
		}
	}
}
