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

// clusterCache is a process that runs Argo CD's cluster cache (clustercache/main.go). For each line of input it writes the
// facts: what it has in its cache, as a sorted list of texts.
type clusterCache struct {
	name string
	in   io.Writer
	out  *json.Decoder
	stop func()
}

// startCache starts Argo CD's cache of a cluster. The caller calls stop.
func startCache(t *testing.T, name, binary string, cluster *rest.Config) *clusterCache {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary) // #nosec G204 -- the tests' own words
	cmd.Env = environment(t, cluster, t.TempDir())
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	expect.NoError(t, err)
	out, err := cmd.StdoutPipe()
	expect.NoError(t, err)
	errorLog := &logbuffer.Buffer{}
	cmd.Stderr = errorLog
	expect.NoError(t, cmd.Start())
	stop := func() {
		_ = in.Close() // the program ends with its input
		if err := cmd.Wait(); err != nil && t.Context().Err() == nil {
			t.Errorf("%s, %s: %v\n%s", binary, name, err, errorLog)
		}
	}
	return &clusterCache{name: name, in: in, out: json.NewDecoder(bufio.NewReader(out)), stop: stop}
}

// facts asks the process for its facts.
func (k *clusterCache) facts(t *testing.T) (all []string) {
	t.Helper()
	if _, err := io.WriteString(k.in, "\n"); err != nil {
		t.Fatalf("%s: %v", k.name, err)
	}
	if err := k.out.Decode(&all); err != nil {
		t.Fatalf("%s: %v", k.name, err)
	}
	return all
}

// awaitSameAs waits until both caches have the same facts.
func (k *clusterCache) awaitSameAs(t *testing.T, other *clusterCache) {
	t.Helper()
	k.awaitEqual(t, func() string { return cmp.Diff(other.facts(t), k.facts(t)) })
}

// awaitObjects waits until the cache has exactly these objects of the load, each at its revision. Facts of owners do not count.
func (k *clusterCache) awaitObjects(t *testing.T, want []string) {
	t.Helper()
	k.awaitEqual(t, func() string {
		return cmp.Diff(want, slices.DeleteFunc(k.facts(t), func(fact string) bool {
			return !strings.Contains(fact, namePrefix) || strings.Contains(fact, " is below ")
		}))
	})
}

// awaitEqual waits until compare returns no difference.
func (k *clusterCache) awaitEqual(t *testing.T, compare func() string) {
	t.Helper()
	var diff string
	equal := func() bool {
		diff = compare()
		return diff == ""
	}
	if !poll.Await(t, patience, equal) {
		t.Fatalf("%s (-want +got):\n%s", k.name, diff)
	}
}

// TestClusterCache: while a cluster changes, Argo CD's cluster cache has the same facts through listproxy as directly. That
// holds for a listproxy with both switches (--consistent-lists and --watches) off, and for one with both on.
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
	direct := startCache(t, "direct", binary, admin)
	// Step 1: a first cache makes each listproxy load its memory. The second cache, which finds memory filled, is compared.
	var through []*clusterCache
	for name, p := range map[string]*harness.Proxy{"through listproxy": off, "with both switches": switched} {
		first := startCache(t, name, binary, p.RESTConfig(admin))
		direct.awaitObjects(t, load.facts(t))
		first.awaitSameAs(t, direct)
		first.stop()
		through = append(through, startCache(t, name, binary, p.RESTConfig(admin)))
	}
	// Step 2: in each turn all caches come to have the same.
	for turn := range turns {
		if turn > 0 {
			load.change(t, turn)
		}
		objects := load.facts(t)
		direct.awaitObjects(t, objects)
		for _, k := range through {
			k.awaitSameAs(t, direct)
		}
		t.Logf("kube-apiserver %s, turn %d: all caches have %d objects", plane.Version(), turn, len(objects))
	}
	for _, k := range append(through, direct) {
		k.stop()
	}
	// Step 3: listproxy's metrics show what came from memory.
	lists, watches := fromMemory(t, off)
	t.Logf("from memory, with both switches off: %.0f lists", lists)
	if lists == 0 || watches > 0 {
		t.Errorf("with both switches off, %.0f lists and %.0f watches came from memory, want lists only", lists, watches)
	}
	poll.Until(t, patience, "lists and watches have come from memory", func() bool {
		lists, watches := fromMemory(t, switched)
		if lists == 0 || watches == 0 {
			return false // a watch is counted when it ends
		}
		t.Logf("from memory, with both switches: %.0f lists, %.0f watches", lists, watches)
		return true
	})
}
