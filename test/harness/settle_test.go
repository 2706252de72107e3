package harness

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/proxy/discovery"
	"github.com/listproxy/listproxy/test/expect"
)

// TestShortSettle: only what this package builds is given an --upstream-settle that is shorter than
// is safe, and takes it. (That others do not, TestSettle in cmd/listproxy tells.)
func TestShortSettle(t *testing.T) {
	program, err := BuildProxy(t.Context())
	expect.NoError(t, err)
	short, least := settleOf(program), discovery.LeastSettle(discovery.SlowestLook)
	if got := settleOf("bin/listproxy"); short >= least || got != least {
		t.Errorf("%v and %v, want less than %v and that", short, got, least)
	}
	// The log's format is looked at after the rest.
	out, err := exec.CommandContext(t.Context(), program, "--cert-dir", t.TempDir(), "--upstream-settle", short.String(), "--log-format", "none").CombinedOutput() // #nosec G204 -- what was just built
	if err == nil || !strings.Contains(string(out), "--log-format") {
		t.Errorf("%v: %s", err, out)
	}
}
