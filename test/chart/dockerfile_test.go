package chart

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
)

const (
	repository = "../.."
	// imageVersion is what the program of these tests says that it is.
	imageVersion = "v1.2.3-test"
)

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

// image is the program, once it was built.
var image string

// buildImage runs the Dockerfile's own command to build the program, for this machine's platform and
// with [imageVersion], and returns where it is.
func buildImage(t *testing.T) string {
	t.Helper()
	harness.Long(t)
	if image != "" {
		return image
	}
	out, err := filepath.Abs(filepath.Join(repository, "bin", "listproxy-image"))
	expect.NoError(t, err)
	compile := matches(`(?m)^RUN (.* go build .*)$`, page(t, "Dockerfile"))
	if len(compile) != 1 || !strings.Contains(compile[0], " -o /listproxy ") {
		t.Fatalf("the Dockerfile does not build /listproxy once: %q", compile)
	}
	moved := strings.Replace(compile[0], " -o /listproxy ", " -o '"+out+"' ", 1)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", moved) // #nosec G204 -- the repository's own command
	cmd.Dir = repository
	cmd.Env = append(os.Environ(), "TARGETOS=linux", "TARGETARCH="+runtime.GOARCH, "VERSION="+imageVersion, "GOFLAGS=-buildvcs=false")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", moved, err, output)
	}
	image = out
	return out
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
