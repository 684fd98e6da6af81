package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	units "github.com/docker/go-units"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
)

// parseServices parses the values of --service.
func parseServices(specs []string) (all []sandbox.Companion, err error) {
	for _, spec := range specs {
		c, err := parseService(spec)
		if err != nil {
			return nil, usageError{fmt.Errorf("--service %q: %w", spec, err)}
		}
		all = append(all, c)
	}
	return all, nil
}

// parseService parses NAME=IMAGE and the settings after it, separated by commas.
func parseService(spec string) (c sandbox.Companion, err error) {
	head, rest, more := strings.Cut(spec, ",")
	var ok bool
	if c.Name, c.Image, ok = strings.Cut(head, "="); !ok {
		return c, errors.New("the image is missing; write NAME=IMAGE")
	}
	if err := checkImage("--service", c.Image); err != nil {
		return c, fmt.Errorf("%q is not an image; write its name as docker.io/library/redis:7", c.Image)
	}
	for more {
		var part string
		part, rest, more = strings.Cut(rest, ",")
		if err := serviceOption(&c, part); err != nil {
			return c, err
		}
	}
	return c, nil
}

func serviceOption(c *sandbox.Companion, part string) (err error) {
	key, value, _ := strings.Cut(part, "=")
	switch key {
	case "env":
		name, text, ok := strings.Cut(value, "=")
		if !ok || name == "" {
			return fmt.Errorf("%q is not a variable; write env=K=V", part)
		}
		if c.Env == nil {
			c.Env = map[string]string{}
		}
		c.Env[name] = text
	case "port":
		n, wrong := strconv.ParseUint(value, 10, 16)
		if wrong != nil || n == 0 {
			return fmt.Errorf("port is %q; write a number from 1 to 65535", value)
		}
		c.Port = uint16(n)
	case "memory":
		if c.Memory, err = units.RAMInBytes(value); err != nil || c.Memory <= 0 || c.Memory == math.MaxInt64 {
			return fmt.Errorf("memory is %q; write a size such as 512m or 2g", value)
		}
	case "dir":
		c.Dirs = append(c.Dirs, value)
	default:
		return fmt.Errorf("unknown option %q; the options are env=K=V, port=N, memory=SIZE and dir=DIR", part)
	}
	return err
}

// isService distinguishes a service's name from a process's id, which begins with a digit.
func isService(name string) bool { return name != "" && name[0] >= 'a' && name[0] <= 'z' }

func (a *app) runServiceLogs(ctx context.Context, follow bool, lines int, session, name string) error {
	if follow {
		return usageError{errors.New("--follow is for processes; the output of a service can't be followed")}
	}
	return a.withSession(ctx, session, func(s *wisbox.Session) error {
		o := &wisbox.OutputOptions{Stdout: a.out, Stderr: a.err, Tail: lines}
		if a.json {
			o.Stdout, o.Stderr = &pieces{a: a, stream: "stdout"}, &pieces{a: a, stream: "stderr"}
		}
		return s.ServiceOutput(ctx, name, o)
	})
}
