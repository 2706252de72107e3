package chart

import (
	"bytes"
	"encoding/json"
	"errors"
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
	// binary is Helm.
	binary string
	chart  = "../../charts/listproxy"
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{SetUp: func(s *harness.Suite) (err error) {
		if binary, err = binaries.Tool(s.Context(), harness.Log, "helm"); err != nil {
			return err
		}
		if promtool, err = binaries.Tool(s.Context(), harness.Log, "promtool"); err != nil {
			return err
		}
		copied, err := s.Dir()
		if err == nil {
			chart, err = overlaid(chart, copied)
		}
		return err
	}})
}

// overlaid returns the chart; as a copy in a folder if the go command's -overlay, of which Helm does not know, replaces
// files of it: a mutant's.
func overlaid(chart, into string) (string, error) {
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
	for file, by := range overlay.Replace {
		_, in, found := strings.Cut(filepath.ToSlash(file), "/charts/listproxy/")
		if !found {
			continue
		}
		content, err := os.ReadFile(by) // #nosec G304 -- of a mutant
		if err == nil {
			err = os.CopyFS(into, os.DirFS(chart))
		}
		return into, errors.Join(err, os.WriteFile(filepath.Join(into, in), content, 0o600)) // #nosec G703 -- of a mutant
	}
	return chart, nil
}

// command makes a Helm that knows nothing of the caller's repositories, plugins and clusters.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...) // #nosec G204 -- the program under test
	cmd.Env = controlplane.Environment("", t.TempDir())
	return cmd
}

// helm runs Helm and returns its standard output; the error has what it complained of.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := command(t, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("helm %s: %w: %s%s", args[0], err, stderr.String(), stdout.String())
	}
	return stdout.String(), nil
}

// mustHelm is helm where nothing may go wrong.
func mustHelm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := helm(t, args...)
	expect.NoError(t, err)
	return out
}

// values writes values to a file and returns its path.
func values(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "values.yaml")
	expect.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
