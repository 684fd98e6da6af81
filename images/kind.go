package images

import (
	"regexp"
	"slices"
	"strings"

	"github.com/distribution/reference"

	"github.com/wisbox/wisbox/sandbox"
	"sync"
)

// Labels of images built by wisbox. An image based on one of ours has them too, but has other names.
const (
	labelInputs = "wisbox.inputs" // the complete hash whose beginning is the default image's tag
	labelRecipe = "wisbox.recipe" // likewise its base's
	labelPreset = "wisbox.preset" // likewise a preset's
	labelWith   = "wisbox.with"   // the names of the presets
	labelBuilt  = "wisbox.built"  // the name that a user's build gave
	labelBase   = "wisbox.base"   // the Base of the default image

	labelTemplate = "wisbox.template" // the name of a template's image
	labelStart    = "wisbox.start"    // the program that its sandboxes start
	labelReady    = "wisbox.ready"    // the check that succeeds when that is ready
)

// Kind is the origin of an image.
type Kind string

// The kinds of images.
const (
	KindDefault Kind = "default" // the default of sessions
	KindBase    Kind = "base"    // the base of that one
	KindPreset  Kind = "preset"  // the default one with further packages
	KindBuilt   Kind = "built"   // built by wisbox from a user's Containerfile
	KindPulled  Kind = "pulled"  // its name begins with a registry
	KindOther   Kind = "other"   // built on this machine by other means

	KindTemplate Kind = "template" // a template that a client of a server built
)

// State is the relation of an image to this wisbox.
type State string

// The states of an image.
const (
	Current State = "current" // this wisbox's own default, its base, or a preset on it
	Old     State = "old"     // of another wisbox version
	Other   State = "other"   // no version of wisbox needs it, but a user may
)

var ours = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^localhost/wisbox(-base|-with)?:(?:[a-z]+-)*([0-9a-f]{12})$`)
})

// identify recognizes an image as ours only if it has the only name that its own label begins.
func identify(info sandbox.ImageInfo) (Kind, State) {
	tags := slices.DeleteFunc(slices.Clone(info.Tags), func(t string) bool { return t == Latest })
	if len(tags) == 1 {
		if kind, state := identifyOurs(tags[0], info.Labels); kind != "" {
			return kind, state
		}
	}
	switch built := info.Labels[labelBuilt]; {
	case strings.HasPrefix(built, "localhost/") && slices.Contains(tags, built): // a pulled image may claim anything
		return KindBuilt, Other
	case slices.ContainsFunc(tags, IsTemplate):
		return KindTemplate, Other
	case slices.ContainsFunc(tags, func(t string) bool { return Registry(t) != "" }):
		return KindPulled, Other
	}
	return KindOther, Other
}

func identifyOurs(tag string, labels map[string]string) (Kind, State) {
	name := ours().FindStringSubmatch(tag)
	if name == nil {
		return "", ""
	}
	kind, label, current := KindDefault, labelInputs, Default
	switch name[1] {
	case "-base":
		kind, label, current = KindBase, labelRecipe, debianRef()
	case "-with":
		kind, label, current = KindPreset, labelPreset, ""
		if names, err := ParseWith(labels[labelWith]); err == nil {
			current = PresetName(names)
		}
	}
	switch {
	case !strings.HasPrefix(labels[label], name[2]):
		return "", ""
	case tag == current:
		return kind, Current
	}
	return kind, Old
}

// wholly reports whether an image comes from one of our builds and has no other name.
func wholly(info sandbox.ImageInfo) bool {
	switch kind, _ := identify(info); kind {
	case KindDefault, KindBase, KindPreset:
		return true
	case KindBuilt:
		return len(info.Tags) == 1
	}
	return false
}

// Registry returns the registry of an image's name, e.g. docker.io or localhost:5000. It is "" for an ID, for a name
// without a registry, and for names below localhost/, which are built on this machine: these are never pulled.
func Registry(ref string) string {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return ""
	}
	domain := reference.Domain(named)
	if !strings.HasPrefix(ref, domain+"/") && !strings.HasPrefix(ref, "index."+domain+"/") || domain == "localhost" {
		return ""
	}
	return domain
}

// Suggest returns the full name that a short one most likely stands for.
func Suggest(ref string) string {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return "docker.io/library/" + ref
	}
	return reference.TagNameOnly(named).String()
}

// bears reports whether ref refers to the image: one of its names, complete or without tag or host, or the beginning of
// its ID.
func bears(info sandbox.ImageInfo, ref string) bool {
	if ref == "" {
		return false
	}
	if strings.HasPrefix(info.ID, ref) {
		return true
	}
	whole := []string{ref}
	if named, err := reference.ParseNormalizedNamed(ref); err == nil {
		tagged := reference.TagNameOnly(named)
		whole = append(whole, tagged.String(), "localhost/"+strings.TrimPrefix(reference.Path(tagged), "library/")+":"+tagOf(tagged))
	}
	return slices.ContainsFunc(whole, func(name string) bool { return slices.Contains(info.Tags, name) })
}

func tagOf(named reference.Named) string {
	if t, ok := named.(reference.Tagged); ok {
		return t.Tag()
	}
	return ""
}
