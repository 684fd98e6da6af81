//go:build !linux

package main

import (
	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
)

// podCommands are for Linux alone, as Pods are.
func (a *app) podCommands() []*cobra.Command { return nil }

func (a *app) inPod(*wisbox.Options) {}

func (a *app) addPodFlag(*cobra.Command) {}
