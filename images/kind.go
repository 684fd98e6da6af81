package images

import (
	"regexp"
	"slices"
	"strings"

	"github.com/distribution/reference"

	"github.com/wisbox/wisbox/sandbox"
)

// Labels of what wisbox makes. An image that somebody has made on top of one of ours
// has them too, but other names.
const (
	labelInputs = "wisbox.inputs" // the whole hash that the default image's tag is the beginning of
	labelRecipe = "wisbox.recipe" // likewise its base's
	labelPreset = "wisbox.preset" // likewise a preset's
	labelWith   = "wisbox.with"   // the names of the presets
	labelBuilt  = "wisbox.built"  // the name that a person's build gave
	labelBase   = "wisbox.base"   // the Base of the default image

	labelTemplate = "wisbox.template" // the name of a template's image
	labelStart    = "wisbox.start"    // what its sandboxes begin with
	labelReady    = "wisbox.ready"    // what succeeds when that is ready
)

// Kind says what an image is made of.
type Kind string

// The kinds of images.
const (
	KindDefault Kind = "default" // what sessions run in when none is named
	KindBase    Kind = "base"    // what that one stands on
	KindPreset  Kind = "preset"  // the default one and more packages
	KindBuilt   Kind = "built"   // from a person's Containerfile, by wisbox
	KindPulled  Kind = "pulled"  // its name begins with a registry
	KindOther   Kind = "other"   // made on this machine by other means

	KindTemplate Kind = "template" // of a template that a client of a server built
)

// State says what an image is to this wisbox.
type State string

// The states of an image.
const (
	Current State = "current" // this wisbox's own default, its base, or a preset on it
	Old     State = "old"     // another wisbox's
	Other   State = "other"   // no version of wisbox needs it: a person does
)

var ours = regexp.MustCompile(`^localhost/wisbox(-base|-with)?:(?:[a-z]+-)*([0-9a-f]{12})$`)

// identify takes for ours only what has the one name that its own label begins.
func identify(info sandbox.ImageInfo) (Kind, State) {
	tags := slices.DeleteFunc(slices.Clone(info.Tags), func(t string) bool { return t == Latest })
	if len(tags) == 1 {
		if kind, state := identifyOurs(tags[0], info.Labels); kind != "" {
			return kind, state
		}
	}
	switch built := info.Labels[labelBuilt]; {
	case strings.HasPrefix(built, "localhost/") && slices.Contains(tags, built): // what is pulled may claim anything
		return KindBuilt, Other
	case slices.ContainsFunc(tags, IsTemplate):
		return KindTemplate, Other
	case slices.ContainsFunc(tags, func(t string) bool { return Registry(t) != "" }):
		return KindPulled, Other
	}
	return KindOther, Other
}

func identifyOurs(tag string, labels map[string]string) (Kind, State) {
	name := ours.FindStringSubmatch(tag)
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

// wholly reports whether an image is of a build of ours and has no name but that.
func wholly(info sandbox.ImageInfo) bool {
	switch kind, _ := identify(info); kind {
	case KindDefault, KindBase, KindPreset:
		return true
	case KindBuilt:
		return len(info.Tags) == 1
	}
	return false
}

// Registry is the registry that an image's name begins with, as docker.io or
// localhost:5000. It is "" for an id, for a name without one and for those below
// localhost/, which are made on this machine: none of these is ever pulled.
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

// Suggest is the full name that a short one most likely means.
func Suggest(ref string) string {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return "docker.io/library/" + ref
	}
	return reference.TagNameOnly(named).String()
}

// bears reports whether ref is what a person wrote for the image: a name of its, whole
// or without tag or host, or the beginning of its id.
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
