package serve

import (
	"strings"
	"testing"
	"time"

	"github.com/wisbox/wisbox/agent/inside/kernel"
	"github.com/wisbox/wisbox/agent/wire"
)

// TestAProgramThatNobodyTakesEnds after its time, and its end has the reason.
func TestAProgramThatNobodyTakesEnds(t *testing.T) {
	s, c := alone(t)
	due := time.Until(s.timers[0].due)
	if due < unclaimed/2 || due > unclaimed {
		t.Fatalf("it ends after %v", due)
	}
	s.timers[0].due = time.Now()
	s.turn(true)
	if c.over == nil || c.over.Status != "cancelled" || !strings.Contains(strings.Join(c.over.Notices, ""), "nobody had taken it over") {
		t.Fatalf("it ended as %+v", c.over)
	}
	if list := s.list(); len(list) != 1 || !list[0].Ended {
		t.Fatalf("a later attach gets %+v", list)
	}
}

// TestAProgramThatIsTakenInTimeGoesOn, and a second host is refused.
func TestAProgramThatIsTakenInTimeGoesOn(t *testing.T) {
	s, c := alone(t)
	conn := &conn{server: s, calls: map[uint32]*call{}}
	id := []byte{0, 0, 0, 0, 0, 0, 0, 1}
	if !conn.attach(7, id) || c.conn != conn || len(s.timers) != 0 {
		t.Fatal("it was not taken")
	}
	conn.out = nil
	if !conn.attach(8, id) || c.number != 7 || !strings.Contains(string(conn.out), "held") {
		t.Fatalf("it was taken twice: %s", conn.out)
	}
}

// alone returns a server with a detached program whose host is lost.
func alone(t *testing.T) (*server, *call) {
	t.Helper()
	loop, err := newLoop()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{loop: loop, possible: maxSlots, events: kernel.NewEvents(), calls: map[*call]bool{}, pools: map[string]*pool{"": {}}, detached: map[uint64]*call{}}
	s.nobody = &conn{server: s, lost: true}
	c := &call{conn: &conn{server: s}, id: 1, number: 3, began: time.Now(), rings: [wire.Channels]*ring{}}
	s.calls[c], s.detached[1] = true, c
	c.leave()
	return s, c
}

// TestACallWaitsForAProcessThatIsOnItsWay, and not for one that is unavailable.
func TestACallWaitsForAProcessThatIsOnItsWay(t *testing.T) {
	s, c := alone(t)
	p := &pool{waiting: []*call{c}, births: 1}
	s.pools[""] = p
	s.noProcess(c, p)
	if c.over != nil || len(p.waiting) != 1 {
		t.Fatal("it did not wait")
	}
	p.births = 0
	s.noProcess(c, p)
	if c.over == nil || c.over.Status != "pids_limit" {
		t.Fatalf("it ended as %+v", c.over)
	}
}
