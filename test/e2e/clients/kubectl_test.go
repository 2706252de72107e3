package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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

// run runs a command to its end and returns what it said and its exit code.
func (k kubectl) run(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	err := k.command(ctx, &out, args...).Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		return fmt.Sprintf("%scode %d\n", out.String(), exit.ExitCode()), nil
	}
	return out.String(), err
}

// whileChanging lists in pages until ctx ends: whatever is there, it comes once and in order.
func (k kubectl) whileChanging(ctx context.Context, lists *int) error {
	for ctx.Err() == nil {
		for _, args := range [][]string{
			{"get", "pods", "-A", "--chunk-size=3"},
			{"get", "gadgets", "-A", "--chunk-size=5", "-l", "tier"},
			{"get", "configmaps", "-n", namespaces[0], "--chunk-size=2"},
		} {
			out, err := k.run(ctx, append(args, `-o=jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{"\n"}{end}`)...)
			if ctx.Err() != nil {
				break // it was ended
			}
			keys := strings.Fields(out)
			if err != nil || strings.Contains(out, "code ") || !slices.IsSorted(keys) || len(slices.Compact(slices.Clone(keys))) != len(keys) {
				return fmt.Errorf("kubectl %v: %w\n%s", args, err, out)
			}
			*lists++
		}
	}
	return nil
}

var (
	ages   = regexp.MustCompile(`\b[0-9]+[smhd]([0-9]+[smhd])?\b`)
	spaces = regexp.MustCompile(` +`)
)

// lasting is the output without ages, and the width of their column.
func lasting(out string) string { return spaces.ReplaceAllString(ages.ReplaceAllString(out, "~"), " ") }

// atRest are commands whose output must be the same while nothing changes.
func atRest() [][]string {
	var all [][]string
	for _, line := range []string{
		"get pods -A -o wide --show-labels", "get pods -A -o json", "get pods -A -o name --chunk-size=3", "get pods -A --chunk-size=4",
		"get pods -A -l tier!=web,tier -o name --chunk-size=2", "get pods -A --field-selector spec.nodeName=node-1 -o wide",
		"get pods -A --field-selector spec.nodeName=node-1,status.phase!=Running --chunk-size=2 -o name",
		"get pods -A -l tier=db --field-selector metadata.namespace=team-a -o name", "get pods -n team-a --field-selector metadata.name=a-1 -o name",
		"get pods -A --field-selector spec.none=x", "get pods -A -l tier=(",
		"get configmaps -n team-a -o yaml --chunk-size=1", "get configmaps,pods,gadgets -A -L tier -l tier=web",
		"get gadgets -A", "get gadgets -A -o json --chunk-size=3", "get gadgets -A --field-selector spec.color=red -o name",
		"get --raw /api/v1/pods?resourceVersion=0&labelSelector=tier%3Dweb",
	} {
		all = append(all, strings.Fields(line))
	}
	return all
}

// collection is the revision of a whole list, which --raw shows.
var collection = regexp.MustCompile(`("kind":"[A-Za-z]+List","apiVersion":"[a-z0-9/.]+","metadata":\{"resourceVersion":)"[0-9]+"`)
