package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

const repository = "../.."

// page reads a file of this repository.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, name)) // #nosec G304 -- of this repository
	expect.NoError(t, err)
	return string(text)
}

// matches are what the only group of an expression is in a text, each time.
func matches(expression, text string) (found []string) {
	for _, m := range regexp.MustCompile(expression).FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

// TestImageInChart: what Artifact Hub shows as the chart's image is the one that the chart installs.
func TestImageInChart(t *testing.T) {
	about := page(t, "charts/listproxy/Chart.yaml")
	repository := matches(`(?m)^  repository: (\S+)$`, page(t, "charts/listproxy/values.yaml"))
	version := matches(`(?m)^appVersion: (\S+)$`, about)
	expect.Same(t, []string{repository[0] + ":" + version[0]}, matches(`(?m)^ +image: (\S+)$`, about))
	expect.Same(t, version, matches(`(?m)^version: (\S+)$`, about))
}

// TestImageHasItsSource: every folder of this repository that the program is made of is copied to where it
// was, .dockerignore lets it through, and no other comes with it.
func TestImageHasItsSource(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/listproxy")
	list.Dir = repository
	out, err := list.Output()
	expect.NoError(t, err)
	folders := matches(`(?m)^github\.com/listproxy/listproxy/(\w+)`, string(out))
	slices.Sort(folders)
	folders = slices.Compact(folders)

	copies := []string{"FROM --platform=$BUILDPLATFORM $BUILDER AS build", "COPY go.mod go.sum ./"}
	for _, folder := range folders {
		copies = append(copies, "COPY "+folder+" "+folder)
	}
	copies = append(copies, "FROM scratch", "COPY LICENSE /LICENSE")
	dockerfile := page(t, "Dockerfile")
	expect.Same(t, copies, matches(`(?m)^(FROM .*|COPY [^-].*)$`, dockerfile))
	if strings.Contains(dockerfile, "\\\n") {
		t.Error("a continued line, which these tests cannot read")
	}
	expect.Same(t, append([]string{"go.mod", "go.sum", "LICENSE"}, folders...), matches(`(?m)^!(.*)$`, page(t, ".dockerignore")))
}
