package clients

import (
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
)

// watched is a namespace in which kubectl watches what the test does.
const watched = "watched"

// kubectl runs the real kubectl through a side, as the admin.
type kubectl struct {
	home, config string
}

func newKubectl(t *testing.T, s *side) kubectl {
	t.Helper()
	k := kubectl{home: t.TempDir()}
	k.config = filepath.Join(k.home, "kubeconfig")
	expect.NoError(t, harness.WriteKubeconfig(k.config, s.config))
	return k
}

// command returns a command that says everything to out, and is killed at the end of ctx.
func (k kubectl) command(ctx context.Context, out io.Writer, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, plane.Binaries().Kubectl, args...) // #nosec G204 -- the tests' own words
	cmd.WaitDelay = time.Second
	cmd.Env = controlplane.Environment(k.config, k.home)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd
}
