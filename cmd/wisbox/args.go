package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/distribution/reference"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wisbox/wisbox/tool"
)

// usageError marks an error of the command line.
type usageError struct{ error }

// asUsage turns an error about the value of a flag or an argument into a usage error, and returns
// other errors unchanged.
func asUsage(err error) error {
	if tool.KindOf(err) != tool.Invalid {
		return err
	}
	return usageError{err}
}

// listedBy says where the values of an argument are listed.
var listedBy = map[string]string{
	"SESSION": "; wisbox ls lists the sessions", "PROCESS": "; wisbox ps lists the processes",
	"SNAPSHOT": "; wisbox snapshot list SESSION lists them", "TEMPLATE": "; wisbox template list lists them",
}

// exactArgs is cobra.ExactArgs with a usage error that names the missing argument. A last name in
// brackets is optional.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names) && !strings.HasPrefix(names[len(args)], "["):
			return usageError{fmt.Errorf("%s is missing%s; see: %s --help", names[len(args)], listedBy[names[len(args)]], cmd.CommandPath())}
		case len(args) > len(names):
			return usageError{fmt.Errorf("unexpected argument %q; see: %s --help", args[len(names)], cmd.CommandPath())}
		}
		return nil
	}
}

// atLeast is for commands whose last argument may be repeated.
func atLeast(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return exactArgs(names...)(cmd, args[:min(len(args), len(names))])
	}
}

func noArgs(cmd *cobra.Command, args []string) error { return exactArgs()(cmd, args) }

// group returns a command that only has subcommands.
func group(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(below...)
	return cmd
}

// noSuchCommand refuses an argument in the place of a subcommand.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if near := meant(cmd, args[0]); len(near) > 0 {
		hint = fmt.Sprintf("; did you mean %s?", strings.Join(near, " or "))
	}
	if line := commandFirst(cmd, args); line != "" {
		hint = "; the command comes first: " + line
	}
	return usageError{fmt.Errorf("unknown command %q%s; see: %s --help", args[0], hint, cmd.CommandPath())}
}

// wanted says what a flag's value must be, by its type.
var wanted = map[string]string{
	"float64": "it must be a number",
	"int":     "it must be a whole number that fits in 64 bits",
	"int64":   "it must be a whole number that fits in 64 bits",
	"time":    "it must be a time such as 90, 90s or 2h; a number is seconds",
	"size":    "write a size such as 512m or 2g",
	"bool":    "it must be true or false",
}

// flagError reports an invalid flag in wisbox's words.
func (a *app) flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return usageError{fmt.Errorf("%w; %s", err, a.rightSpelling(cmd, unknown))}
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if want, ok := wanted[bad.GetFlag().Value.Type()]; ok {
			err = fmt.Errorf("--%s is %q; %s", bad.GetFlag().Name, bad.GetValue(), want)
		}
	}
	return usageError{fmt.Errorf("%w; see: %s --help", err, cmd.CommandPath())}
}

// named replaces a field's name at the beginning of an error with the flag.
func named(err error, flags *pflag.FlagSet) error {
	e := tool.AsError(err)
	field, rest, _ := strings.Cut(e.Message, " ")
	if flag := flags.Lookup(strings.ReplaceAll(field, "_", "-")); flag != nil {
		return tool.Errorf(e.Kind, "--%s %s", flag.Name, rest).In(flag.Name).Because(err)
	}
	return err
}

// checkImage refuses a text that is neither the name nor the ID of an image. The field is a flag, as --image, or an
// argument.
func checkImage(field, image string) error {
	if _, err := reference.ParseAnyReference(image); image != "" && err != nil {
		return usageError{fmt.Errorf("%s is %q; write the name of an image as localhost/wisbox:1", field, image)}
	}
	return nil
}
