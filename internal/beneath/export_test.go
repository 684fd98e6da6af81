package beneath

// ForcePlain makes a tree behave as on a kernel without openat2.
func ForcePlain(t *Tree) { t.plain = true }

// OpenStepwise is OpenBelow on a kernel without openat2.
var OpenStepwise = openStepwise
