package wisbox

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/tool"
)

// spec declares an operation. All lists of operations are derived from [specs]: the wire's, the tenants' and the
// metrics'.
type spec struct {
	name string // on the wire

	// A value of op performs it in a session, place where the sessions are. [portOp] has neither.
	op    func() operation
	place placeDo

	// The answer of a session without a holder, which then starts none; nil starts one. err is the client's.
	rests func(ctx context.Context, h *held, err error) (any, error)

	programs bool   // is about programs that outlive a killed holder
	joins    bool   // starts or joins a program that outlives its caller
	events   string // the tools of its events, see [EventTools]
	input    bool   // needs an input stream
	output   bool   // needs an output stream
	repeats  bool   // is sent again if the connection breaks before its answer
	atOnce   int    // how many one tenant may do at the same time; 0 is any number
	notPods  string // what it makes, which sessions on Kubernetes lack

	// tenants has the arguments that a tenant may give it; nil refuses it.
	tenants *tenantSpec
}

// in returns the operation O of a session.
func in[O any, P interface {
	*O
	operation
}]() func() operation {
	return func() operation { return P(new(O)) }
}

const (
	programArgs = "argv dir env timeout tty lifetime"
	processArgs = programArgs + " keep_stdin at_once hold tag wait_port wait_time"
)

// specs are the operations: in a session, then where the sessions are.
//
// A tenant can't copy into other sessions, change limits beyond its key's, apply or branch to folders of this machine,
// or be passed a descriptor by dial; it has no services. Operations that need memory or descriptors of this process
// have an atOnce.
var specs []*spec

func init() { // a literal would be an initialization cycle
	declare([]*spec{
		{name: "call", op: in[callOp](), tenants: withArgs("tool own args")},
		{
			name: "evaluate", op: in[evaluateOp](), output: true, tenants: checked("code globals reads writes timeout state sandbox fuel memory context env language",
				func(_ *guest, o *evaluateOp) error { return checkRunEnv(o.Env) }),
		},
		{
			name: "context_change", op: in[changeContextOp](), events: "context_create context_restart context_remove",
			tenants: checked("change context", func(_ *guest, o *changeContextOp) error { return checkRunEnv(o.Context.Env) }),
		},
		{name: "contexts", op: in[contextsOp](), rests: restsAs([]evaltool.Context{}), tenants: withArgs("")},
		{name: "run", op: in[runOp](), events: "run", tenants: checked(programArgs, func(_ *guest, o *runOp) error { return o.ordinary() })},
		{name: "start", op: in[startOp](), events: "start", tenants: checked(programArgs, func(_ *guest, o *startOp) error { return o.ordinary() })},
		{name: "process_start", op: in[startProcessOp](), tenants: checked(processArgs, func(_ *guest, o *startProcessOp) error { return o.ordinary() })},
		{name: "process_begin", op: in[startAttachedOp](), joins: true, tenants: checked(processArgs+" join", func(_ *guest, o *startAttachedOp) error { return o.ordinary() })},
		{name: "processes", op: in[processesOp](), programs: true, rests: restsAs([]ProcessInfo{}), tenants: withArgs("")},
		{name: "running", op: in[runningOp](), rests: restsAs([]Event{}), tenants: withArgs("")},
		{name: "process_output", op: in[outputOp](), programs: true, rests: failsAs(errNoProcesses), tenants: withArgs("process_id tail follow")},
		{name: "service_output", op: in[serviceOutputOp](), rests: failsAs(errNoService)},
		{name: "process_signal", op: in[signalOp](), programs: true, rests: failsAs(errNoProcesses), tenants: withArgs("process_id signal")},
		{name: "process_input", op: in[inputOp](), programs: true, rests: failsAs(errNoProcesses), tenants: withArgs("process_id data end")},
		{name: "process_resize", op: in[resizeOp](), programs: true, rests: failsAs(errNoProcesses), tenants: withArgs("process_id size")},
		{name: "process_attach", op: in[attachOp](), programs: true, joins: true, rests: failsAs(errNoProcesses), events: "process_attach", tenants: withArgs("process_id replay close_stdin hold input")},
		{name: "import", op: in[importOp](), events: "import", input: true, tenants: withArgs("dest")},
		{name: "export", op: in[exportOp](), events: "export", output: true, atOnce: 8, tenants: withArgs("path sparse leave_out")},
		{name: "diff", op: in[diffOp](), events: "diff", atOnce: 8, tenants: withArgs("path from to all lines patch")},
		{name: "apply", op: in[applyOp](), events: "apply"},
		{name: "branch", op: in[branchOp](), events: "branch"},
		{name: "changes", op: in[changesOp](), events: "diff apply branch", output: true, atOnce: 8, tenants: withArgs("all ignored below for")},
		{name: "steps", op: in[stepsOp](), tenants: withArgs("n")},
		{name: "undo", op: in[undoOp](), events: "undo", tenants: withArgs("step")},
		{name: "snapshots_remove", op: in[removeSnapshotsOp](), events: "snapshot_remove", tenants: withArgs("ids")},
		{name: "save", op: in[saveOp](), events: "save", output: true, atOnce: 8, tenants: withArgs("")},
		{name: "copy", op: in[copyOp](), events: "clone"},
		{name: "template", op: in[templateOp](), events: "template", notPods: "a template", tenants: checked("name", (*guest).ownTemplate)},
		{name: "secrets", op: in[secretsOp](), events: "secret", tenants: checked("secrets", valuesAlone)},
		{name: "limits", op: in[limitsOp](), events: "update"},
		{name: "inspect", op: in[inspectOp](), rests: restingInspection, tenants: hiding(withArgs(""), inspected)},
		{name: "usage", op: in[usageOp](), rests: restingUsage, tenants: withArgs("")},
		{name: "egress", op: in[egressOp](), rests: restingEgress, tenants: hiding(withArgs(""), networked)},
		{
			name: "egress_rules", op: in[egressRulesOp](), events: "egress",
			tenants: hiding(checked("allow deny replace", func(g *guest, o *egressRulesOp) error { return g.checkRules(o.Allow) }), networked),
		},
		{name: "reset", op: in[resetOp](), events: "reset", tenants: withArgs("")},
		{
			name: "inside", op: in[insideOp](), events: "inside_open inside_write inside_move inside_remove inside_mkdir inside_chmod",
			tenants: withArgs("do path to mode attrs stat list open write move remove mkdir watch"),
		},
		{name: "pause", op: in[pauseOp](), events: "pause", tenants: withArgs("")},
		{name: "resume", op: in[resumeOp](), events: "resume", tenants: withArgs("from_files")},
		{name: "dial", op: in[dialOp]()},
		{name: "await_end", op: in[awaitEndOp](), tenants: withArgs("")},
		{name: portOp, tenants: withArgs("port")},

		{name: "open", place: placeOp(openFor), atOnce: 8, tenants: placed("Options", (*guest).open)},
		{name: "load", place: placeOp(loadFor), input: true, atOnce: 2, tenants: placed("Options Name WithSettings", (*guest).load)},
		{name: "fork", place: placeOp(forkFor), notPods: "a clone", atOnce: 2, tenants: placed("Name To N Idle", (*guest).fork)},
		{name: "fill", place: placeOp(fillFor), input: true, atOnce: 4, tenants: placed("Name", (*guest).fill)},
		{name: "attach", place: placeOp(attachFor), repeats: true, tenants: placed("Name", (*guest).attach)},
		{name: "look", place: placeOp(lookFor), atOnce: 4, tenants: placed("Name do path", (*guest).look)},
		{name: "watch", place: placeOp(watchFor), output: true, atOnce: 4, tenants: placed("Name Path", (*guest).watch)},
		{name: "touch", place: placeOp(touchFor), repeats: true, tenants: placed("Name", (*guest).touch)},
		{name: "log", place: placeOp(logFor), output: true, atOnce: 8, tenants: placed("Name Connections", (*guest).log)},
		{name: "list", place: placeOp(listFor), repeats: true, atOnce: 2, tenants: placed("", (*guest).list)},
		{name: "stop", place: placeOp(stopFor), tenants: placed("Name", (*guest).stop)},
		{name: "remove", place: placeOp(removeFor), tenants: placed("Name", (*guest).remove)},
		{name: "rename", place: placeOp(renameFor), notPods: "another name for a session", tenants: placed("Name To", (*guest).rename)},
		{name: "templates", place: placeOp(templatesFor), repeats: true, notPods: "a template", atOnce: 2, tenants: placed("", (*guest).templates)},
		{name: "template_find", place: placeOp(findTemplateFor), repeats: true, notPods: "a template", tenants: placed("Ref Owner", (*guest).findTemplate)},
		{name: "template_remove", place: placeOp(removeTemplateFor), notPods: "a template", tenants: placed("Name", (*guest).removeTemplate)},
	})
}

// declare makes all the operations.
func declare(all []*spec) {
	specs = all
	clear(specByName)
	clear(specByType)
	for _, s := range specs {
		specByName[s.name] = s
		if s.op != nil {
			specByType[reflect.TypeOf(s.op()).Elem()] = s
		}
	}
}

var (
	specByName = map[string]*spec{}
	specByType = map[reflect.Type]*spec{}
)

// specOf returns the spec of a session's operation.
func specOf(op operation) *spec { return specByType[reflect.Indirect(reflect.ValueOf(op)).Type()] }

// eventOf begins the record of an operation.
func eventOf(op operation) Event {
	if r, ok := op.(recorder); ok {
		return r.event()
	}
	return Event{Tool: specOf(op).events}
}

// streams returns an error if a request lacks a stream that the operation needs.
func (s *spec) streams(io hold.Streams) error {
	switch {
	case s.input && io.Stdin == nil:
		return errNoInput
	case s.output && io.Stdout == nil:
		return errNoOutput
	}
	return nil
}

// EventTools returns the values of [Event.Tool] that aren't names of tools but of a session's own methods, sorted.
func EventTools() []string {
	var all []string
	for _, s := range specs {
		all = append(all, strings.Fields(s.events)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// requestOf returns the operation's form on the wire.
func requestOf(c journal.Call, op operation) (hold.Request, error) {
	if call, ok := op.(callOp); ok {
		if err := call.check(); err != nil {
			return hold.Request{}, err
		}
	}
	raw, err := json.Marshal(op)
	_, look := op.(usageOp) // clients may request it every few seconds
	return hold.Request{Op: specOf(op).name, Call: c.ID, Args: raw, Look: look}, err
}

// operationOf returns the operation of a request. It is the inverse of requestOf.
func operationOf(req hold.Request) (operation, error) {
	s, ok := specByName[req.Op]
	if !ok || s.op == nil {
		return nil, errUnknownOperation(req.Op)
	}
	op := s.op()
	if err := json.Unmarshal(req.Args, op); err != nil {
		return nil, errUnreadable(req.Op, err)
	}
	return op, nil
}

func errUnknownOperation(name string) error {
	return tool.Errorf(tool.Unsupported, "unknown operation %q", clip.Text(name))
}

func errUnreadable(op string, cause error) error {
	return tool.Errorf(tool.Invalid, "the arguments of %s can't be read", op).Because(cause)
}
