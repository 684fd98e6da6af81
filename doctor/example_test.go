package doctor_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/wisbox/wisbox/doctor"
)

// The machine of this example has no Podman: each line that isn't ok has a remedy.
func ExampleExamine() {
	machine := well()
	machine.noPodman = errors.New("no socket answers")
	report := doctor.Examine(context.Background(), machine, &doctor.Options{Line: func(l doctor.Line) {
		if l.Name == "podman" {
			fmt.Println(l.Name, l.Status, l.Fix != "")
		}
	}})
	fmt.Println(report.Broken())
	// Output:
	// podman broken true
	// true
}
