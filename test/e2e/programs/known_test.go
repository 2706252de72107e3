package programs

import (
	"bufio"
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/controlplane/binaries"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// patience ends a wait for something that must come.
const patience = 3 * time.Minute

// knower is a program that follows a cluster, and says what it knows when it is asked.
type knower struct {
	name   string
	ask    io.Writer
	answer *json.Decoder
	stop   func()
}

// newKnower starts a program with a cluster.
func newKnower(t *testing.T, name, binary string, cluster *rest.Config) *knower {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary) // #nosec G204 -- the tests' own words
	cmd.Env, cmd.WaitDelay = environment(t, cluster, t.TempDir()), time.Second
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	said := &logbuffer.Buffer{}
	cmd.Stderr = said
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	expect.NoError(t, cmd.Start())
	stop := func() {
		_ = in.Close() // ends it
		if err := cmd.Wait(); err != nil && t.Context().Err() == nil {
			t.Errorf("%s, %s: %v\n%s", binary, name, err, said)
		}
	}
	return &knower{name: name, ask: in, answer: json.NewDecoder(bufio.NewReader(out)), stop: stop}
}

// known asks what the program knows.
func (k *knower) known(t *testing.T) (facts []string) {
	t.Helper()
	if _, err := io.WriteString(k.ask, "\n"); err != nil {
		t.Fatalf("%s: %v", k.name, err)
	}
	if err := k.answer.Decode(&facts); err != nil {
		t.Fatalf("%s: %v", k.name, err)
	}
	return facts
}

// agrees waits until a program knows what another one does.
func (k *knower) agrees(t *testing.T, with *knower) {
	t.Helper()
	k.comes(t, func() string { return cmp.Diff(with.known(t), k.known(t)) })
}

// knows waits until a program knows these objects, each at its revision, and no others.
func (k *knower) knows(t *testing.T, want []string) {
	t.Helper()
	k.comes(t, func() string {
		return cmp.Diff(want, slices.DeleteFunc(k.known(t), func(fact string) bool {
			return !strings.Contains(fact, namePrefix) || strings.Contains(fact, " is below ")
		}))
	})
}

// comes waits until nothing differs.
func (k *knower) comes(t *testing.T, differs func() string) {
	t.Helper()
	var diff string
	if !poll.Came(t, patience, func() bool { diff = differs(); return diff == "" }) {
		t.Fatalf("%s (-want +got):\n%s", k.name, diff)
	}
}

// TestClusterCache lets the cache of a cluster that Argo CD keeps follow one that changes, straight and
// through listproxy with both switches off and on, and compares what it knows.
func TestClusterCache(t *testing.T) {
	if !*enabled {
		t.Skip("make programs runs it")
	}
	binary, err := binaries.Tool(t.Context(), harness.Log, binaries.ClusterCache)
	expect.NoError(t, err)
	plane := suite{}.start(t)
	admin := plane.RESTConfig(controlplane.Admin)
	load := newLoad(t, admin)
	load.change(t, 0)
	off := harness.RunProxy(t, harness.ProxyOptions{Upstream: plane.RESTConfig(controlplane.Feed)})
	switched := harness.RunProxy(t, harness.ProxyOptions{Upstream: plane.RESTConfig(controlplane.Feed), Args: withSwitches})
	straight := newKnower(t, "straight", binary, admin)
	// Whoever comes first finds memory still empty. Compared is who comes next.
	var through []*knower
	for name, p := range map[string]*harness.Proxy{"through listproxy": off, "with both switches": switched} {
		first := newKnower(t, name, binary, p.RESTConfig(admin))
		straight.knows(t, load.facts(t))
		first.agrees(t, straight)
		first.stop()
		through = append(through, newKnower(t, name, binary, p.RESTConfig(admin)))
	}
	for turn := range turns {
		if turn > 0 {
			load.change(t, turn)
		}
		objects := load.facts(t)
		straight.knows(t, objects)
		for _, k := range through {
			k.agrees(t, straight)
		}
		t.Logf("kube-apiserver %s, turn %d: %d objects, the same on all sides", plane.Version(), turn, len(objects))
	}
	for _, k := range append(through, straight) {
		k.stop()
	}
	lists, watches := fromMemory(t, off)
	t.Logf("from memory, with both switches off: %.0f lists", lists)
	if lists == 0 || watches > 0 {
		t.Errorf("from memory, with both switches off: %.0f lists, %.0f watches", lists, watches)
	}
	poll.Until(t, patience, "lists and watches have come from memory", func() bool {
		lists, watches := fromMemory(t, switched)
		if lists == 0 || watches == 0 {
			return false // none has ended yet
		}
		t.Logf("from memory, with both switches: %.0f lists, %.0f watches", lists, watches)
		return true
	})
}
