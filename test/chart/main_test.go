package chart

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/controlplane/binaries"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
)

// patience ends a wait for something that must come; no test passes because of it.
const patience = 2 * time.Minute

var (
	update = flag.Bool("update", false, "write golden files")
	// helmBinary is the path of Helm, and chart that of the chart.
	helmBinary string
	chart      = "../../charts/listproxy"
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{SetUp: func(s *harness.Suite) (err error) {
		if helmBinary, err = binaries.Tool(s.Context(), harness.Log, "helm"); err != nil {
			return err
		}
		if promtool, err = binaries.Tool(s.Context(), harness.Log, "promtool"); err != nil {
			return err
		}
		dir, err := s.Dir()
		if err == nil {
			chart, err = applyOverlay(chart, dir)
		}
		return err
	}})
}

// applyOverlay returns the path of the chart to test: chart, or dir with a changed copy of it if a mutant (test/mutants)
// changes one of its files. A mutant changes files by the go command's -overlay in GOFLAGS, which Helm does not know.
func applyOverlay(chart, dir string) (string, error) {
	_, path, mutated := strings.Cut(os.Getenv("GOFLAGS"), "-overlay=")
	if !mutated {
		return chart, nil
	}
	text, err := os.ReadFile(path) // #nosec G304 -- of a mutant
	if err != nil {
		return "", err
	}
	var overlay struct{ Replace map[string]string }
	if err := json.Unmarshal(text, &overlay); err != nil {
		return "", err
	}
	for file, replacement := range overlay.Replace {
		_, name, found := strings.Cut(filepath.ToSlash(file), "/charts/listproxy/")
		if !found {
			continue
		}
		content, err := os.ReadFile(replacement) // #nosec G304 -- of a mutant
		if err != nil {
			return "", err
		}
		if err := os.CopyFS(dir, os.DirFS(chart)); err != nil {
			return "", err
		}
		return dir, os.WriteFile(filepath.Join(dir, name), content, 0o600) // #nosec G703 -- of a mutant
	}
	return chart, nil
}

// helm runs Helm, without the user's repositories, plugins and clusters, and returns its standard output. An error contains
// all output.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), helmBinary, args...) // #nosec G204 -- the program under test
	cmd.Env = controlplane.Environment("", t.TempDir())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("helm %s: %w: %s%s", args[0], err, stderr.String(), stdout.String())
	}
	return stdout.String(), nil
}

// mustHelm runs helm, and ends the test on an error.
func mustHelm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := helm(t, args...)
	expect.NoError(t, err)
	return out
}

// writeValues writes values of the chart to a file and returns its path.
func writeValues(t *testing.T, text string) string {
	t.Helper()
	return writeFile(t, "values.yaml", []byte(text))
}

// writeFile writes a file and returns its path.
func writeFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	expect.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}
