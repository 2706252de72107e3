package chart

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/pages"
)

// repoRoot is the folder of this repository.
const repoRoot = "../.."

// TestImageInChart: the image that Artifact Hub shows for the chart is the one that the chart installs, and the chart and the
// program have one version.
func TestImageInChart(t *testing.T) {
	chartFile := pages.Read(t, "charts/listproxy/Chart.yaml")
	image := pages.Matches(`(?m)^  repository: (\S+)$`, pages.Read(t, "charts/listproxy/values.yaml"))
	version := pages.Matches(`(?m)^appVersion: (\S+)$`, chartFile)
	expect.Same(t, []string{image[0] + ":" + version[0]}, pages.Matches(`(?m)^ +image: (\S+)$`, chartFile))
	expect.Same(t, version, pages.Matches(`(?m)^version: (\S+)$`, chartFile))
}

// TestImageHasItsSource: the Dockerfile copies, and .dockerignore includes, exactly the folders of this repository that the
// program is built from.
func TestImageHasItsSource(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/listproxy")
	list.Dir = repoRoot
	out, err := list.Output()
	expect.NoError(t, err)
	folders := pages.Matches(`(?m)^github\.com/listproxy/listproxy/(\w+)`, string(out))
	slices.Sort(folders)
	folders = slices.Compact(folders)

	steps := []string{"FROM --platform=$BUILDPLATFORM $BUILDER AS build", "COPY go.mod go.sum ./"}
	for _, folder := range folders {
		steps = append(steps, "COPY "+folder+" "+folder)
	}
	steps = append(steps, "FROM scratch", "COPY LICENSE /LICENSE")
	dockerfile := pages.Read(t, "Dockerfile") // the expression skips COPY --from, which copies no source
	expect.Same(t, steps, pages.Matches(`(?m)^(FROM .*|COPY [^-].*)$`, dockerfile))
	if strings.Contains(dockerfile, "\\\n") {
		t.Error("the Dockerfile has a continued line, which this test cannot read")
	}
	included := pages.Matches(`(?m)^!(.*)$`, pages.Read(t, ".dockerignore"))
	expect.Same(t, append([]string{"go.mod", "go.sum", "LICENSE"}, folders...), included)
}
