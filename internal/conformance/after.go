package conformance

import (
	"context"
	"encoding/json"
	"os"
)

// end makes the checks that follow every case, and clears up after it.
func (r *runner) end(ctx context.Context, a *attempt) {
	if a.o != nil {
		a.stillWell(ctx)
		if a.own {
			a.note(r.close(ctx, a.o))
		} else if len(a.problems) > 0 {
			_ = r.closeShared(ctx) // the next case gets a session that is whole
		}
	}
	if err := a.onHost(ctx, a.c.HostCheck); err != nil {
		a.problem("host_check: %v", err)
	}
	if why := r.canary.changed(); why != "" {
		a.problem("%s", why)
	}
	_ = os.RemoveAll(a.vars["TMP"].(string))
}

func (a *attempt) stillWell(ctx context.Context) {
	if a.o.works {
		reply, err := a.call(ctx, a.o, "ls", json.RawMessage("{}"))
		if err != nil || reply.Answer.Error != nil {
			a.problem("the session no longer works: %v %v", err, reply.Answer)
		}
	}
	if a.o.sibling != "" {
		if why := changedSince(a.o.sibling, a.o.was); why != "" {
			a.problem("%s", why)
		}
	}
	if !a.own && !a.c.keepsWorkspace() && !a.opts.NoPrograms {
		if err := a.script(ctx, a.o, emptyWorkspace); err != nil {
			a.problem("the workspace can't be emptied: %v", err)
		}
	}
	a.note(a.o.Broken())
}

func (a *attempt) note(problems []string) {
	for _, p := range problems {
		a.problem("%s", p)
	}
}
