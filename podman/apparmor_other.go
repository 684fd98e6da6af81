//go:build !linux

package podman

func (i *hostInfo) stacksProfiles() bool { return false }
