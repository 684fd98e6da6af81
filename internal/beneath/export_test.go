package beneath

// ForcePlain makes a tree work as on a kernel without openat2.
func ForcePlain(t *Tree) { t.plain = true }
