package chart

import (
	"context"
	"debug/elf"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
)

const (
	repository = "../.."
	// imageVersion is what the program of these tests says that it is.
	imageVersion = "v1.2.3-test"
)

// An instruction of a Dockerfile.
type instruction struct{ word, rest string }

// Parts of the Dockerfile, as readDockerfile returns them.
const (
	preamble = iota
	buildStage
	runStage
)

// readDockerfile reads the instructions of the Dockerfile, part by part. It knows what that file
// uses.
func readDockerfile(t *testing.T) [][]instruction {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "Dockerfile"))
	expect.NoError(t, err)
	stages := [][]instruction{nil} // the first is what stands before all stages
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.HasSuffix(line, `\`) {
			t.Fatalf("a continued line, which this test cannot read: %s", line)
		}
		word, rest, _ := strings.Cut(line, " ")
		if word == "FROM" {
			stages = append(stages, nil)
		}
		stages[len(stages)-1] = append(stages[len(stages)-1], instruction{word, rest})
	}
	if len(stages) != 3 {
		t.Fatalf("%d stages, not one to build and one to run", len(stages)-1)
	}
	return stages
}

// all returns what stands behind a word, each time.
func all(stage []instruction, word string) []string {
	var found []string
	for _, i := range stage {
		if i.word == word {
			found = append(found, i.rest)
		}
	}
	return found
}

// image is the program, once it was built.
var image struct {
	sync.Mutex
	path string
}

// buildImage runs the Dockerfile's own command to build the program, for this machine's platform and
// with [imageVersion], and returns where it is.
func buildImage(t *testing.T) string {
	t.Helper()
	harness.Long(t)
	image.Lock()
	defer image.Unlock()
	if image.path != "" {
		return image.path
	}
	var compile string
	for _, run := range all(readDockerfile(t)[buildStage], "RUN") {
		if strings.Contains(run, "go build") {
			compile = run
		}
	}
	bin, err := filepath.Abs(filepath.Join(repository, "bin"))
	expect.NoError(t, err)
	out := filepath.Join(bin, "listproxy-image")
	moved := regexp.MustCompile(` -o /listproxy `).ReplaceAllLiteralString(compile, " -o '"+out+"' ")
	if moved == compile {
		t.Fatalf("the Dockerfile does not build /listproxy: %q", compile)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", moved) // #nosec G204 -- the repository's own command
	cmd.Dir = repository
	cmd.Env = append(os.Environ(), "TARGETOS=linux", "TARGETARCH="+runtime.GOARCH, "VERSION="+imageVersion, "GOFLAGS=-buildvcs=false")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", moved, err, output)
	}
	image.path = out
	return out
}

// TestImageIsStatic: the program needs no other file, since there is none in the image; and it says
// the version that it was built with.
func TestImageIsStatic(t *testing.T) {
	path := buildImage(t)
	program, err := elf.Open(path)
	expect.NoError(t, err)
	defer func() { _ = program.Close() }()
	for _, part := range program.Progs {
		if part.Type == elf.PT_INTERP || part.Type == elf.PT_DYNAMIC {
			t.Errorf("has a %v: it is not static", part.Type)
		}
	}
	out, err := exec.CommandContext(t.Context(), path, "--version").Output() // #nosec G204 -- built just now
	if err != nil || string(out) != "listproxy "+imageVersion+"\n" {
		t.Errorf("--version: %q, %v", out, err)
	}
}

// TestImageHasItsSource: every folder of this repository that the program is made of is copied,
// .dockerignore lets it through, and no other comes with it.
func TestImageHasItsSource(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if .Main}}{{$.ImportPath}}{{end}}{{end}}", "./cmd/listproxy")
	list.Dir = repository
	out, err := list.Output()
	expect.NoError(t, err)
	folders := map[string]bool{}
	for pkg := range strings.FieldsSeq(string(out)) {
		inside := strings.TrimPrefix(pkg, "github.com/listproxy/listproxy/")
		folders[strings.Split(inside, "/")[0]] = true
	}
	want := slices.Sorted(maps.Keys(folders))

	var copied []string
	for _, c := range all(readDockerfile(t)[buildStage], "COPY") {
		if c == "go.mod go.sum ./" {
			continue
		}
		from, to, _ := strings.Cut(c, " ")
		if from != to {
			t.Errorf("COPY %s: not to where it was", c)
		}
		copied = append(copied, from)
	}
	slices.Sort(copied)
	if diff := cmp.Diff(want, copied); diff != "" {
		t.Errorf("copied (-want +got):\n%s", diff)
	}

	text, err := os.ReadFile(filepath.Join(repository, ".dockerignore"))
	expect.NoError(t, err)
	var passed []string
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok && !strings.HasPrefix(name, "go.") && name != "LICENSE" {
			passed = append(passed, name)
		}
	}
	slices.Sort(passed)
	if diff := cmp.Diff(want, passed); diff != "" {
		t.Errorf("let through by .dockerignore (-want +got):\n%s", diff)
	}
}
