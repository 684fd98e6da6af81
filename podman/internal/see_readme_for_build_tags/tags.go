//go:build remote && containers_image_openpgp && exclude_graphdriver_btrfs && exclude_graphdriver_devicemapper && btrfs_noversion

// Package see_readme_for_build_tags has no Go file for a build without the tags that Podman's client needs. Such a
// build stops before it compiles anything, with one error that contains this name instead of hundreds about C
// libraries.
package see_readme_for_build_tags
