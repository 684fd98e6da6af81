package beneath

// ForcePlain makes a tree work as on a kernel without openat2.
func ForcePlain(t *Tree) { t.plain = true }

// OpenStepwise is OpenBelow as on a kernel without openat2.
var OpenStepwise = openStepwise
