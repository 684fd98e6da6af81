package snapshot

import (
	"strings"

	"github.com/wisbox/wisbox/tool"
)

const leastPrefix = 4 // characters of an id that may stand for it

// find returns the ID of the snapshot that a word means: an ID, a label, or the unique beginning
// of an ID. The caller holds the lock.
func (s *Store) find(word, field string) (string, error) {
	id := strings.ToLower(word)
	if checkID(id, field) == nil {
		return id, nil
	}
	infos, err := s.list()
	if err != nil {
		return "", storeError(err)
	}
	named := func(i Info) bool { return word != "" && i.Label == word && i.Call == "" }
	begins := func(i Info) bool { return len(id) >= leastPrefix && strings.HasPrefix(i.ID, id) }
	for _, is := range []func(Info) bool{named, begins} {
		var found []string
		for _, i := range infos {
			if is(i) {
				found = append(found, i.ID)
			}
		}
		switch len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			return "", tool.Errorf(tool.Ambiguous, "%s matches %d snapshots, the last of them %s; give an id", field, len(found), found[len(found)-1]).In(field)
		}
	}
	return "", checkID(id, field)
}
