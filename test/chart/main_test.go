package chart

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/controlplane/binaries"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
)

const (
	chart = "../../charts/listproxy"
	// patience ends a wait for something that must come; no test passes because of it.
	patience = 2 * time.Minute
)

var (
	update = flag.Bool("update", false, "write golden files")
	// binary is Helm.
	binary string
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{SetUp: func(s *harness.Suite) (err error) {
		if binary, err = binaries.Tool(s.Context(), harness.Log, "helm"); err != nil {
			return err
		}
		promtool, err = binaries.Tool(s.Context(), harness.Log, "promtool")
		return err
	}})
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
