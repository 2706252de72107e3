package harness

import (
	"slices"
	"syscall"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// noting is a test that fails without ending this one.
type noting struct {
	testing.TB
	errors, logs int
}

func (n *noting) Helper()             {}
func (n *noting) Failed() bool        { return n.errors > 0 }
func (n *noting) Error(...any)        { n.errors++ }
func (n *noting) Logf(string, ...any) { n.logs++ }

// TestGroup: the end of a test stops those that are in the group, and hears of what was wrong with
// one.
func TestGroup(t *testing.T) {
	t.Setenv(printsEnv, "nothing")
	var g Proxies
	var all []*Proxy
	for range 3 {
		p := launchStandIn(t, newToken())
		t.Cleanup(p.Kill)
		all = append(all, p)
		g.Add(p)
	}
	g.Remove(all[0])
	if !slices.Equal(g.All(), all[1:]) {
		t.Errorf("the group is %v, want %v", g.All(), all[1:])
	}
	// One ends by itself, and not well: its successor's log is told then.
	expect.NoError(t, all[1].Signal(syscall.SIGKILL))
	<-all[1].exited
	said := noting{TB: t}
	g.Stop(&said)
	if said.errors != 1 || said.logs != 1 {
		t.Errorf("%d errors and %d logs, want 1 and 1", said.errors, said.logs)
	}
	<-all[2].exited
	if len(g.All()) != 0 {
		t.Error("there are still some in the group")
	}
	select {
	case <-all[0].exited:
		t.Error("one was stopped that is not in the group any more")
	default:
	}
}
