package programs

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	var diff string
	if !poll.Came(t, patience, func() bool {
		diff = cmp.Diff(with.known(t), k.known(t))
		return diff == ""
	}) {
		t.Fatalf("-%s +%s:\n%s", with.name, k.name, diff)
	}
}

// finder finds what should be known of some objects and is not, and what is known too much.
type finder func(objects []unstructured.Unstructured, facts []string) string

// knows waits until a program knows some objects, and returns how many facts it knows.
func (k *knower) knows(t *testing.T, objects []unstructured.Unstructured, missing finder) (facts int) {
	t.Helper()
	var lacks string
	if !poll.Came(t, patience, func() bool {
		known := k.known(t)
		facts, lacks = len(known), missing(objects, known)
		return lacks == ""
	}) {
		t.Fatalf("%s: not known: %s", k.name, lacks)
	}
	return facts
}

// follow lets a program follow a cluster that changes, straight and through listproxy with both
// switches off and on, and compares what it knows. Lists says whether lists of it come from memory
// with both off, as docs/compatibility.md has it.
func follow(t *testing.T, tool string, lists bool, missing finder) {
	if !*wanted {
		t.Skip("make programs runs it")
	}
	binary, err := binaries.Tool(t.Context(), harness.Log, tool)
	expect.NoError(t, err)
	plane := suite{}.start(t)
	admin := plane.RESTConfig(controlplane.Admin)
	load := newLoad(t, admin)
	load.change(t, 0)
	off := harness.RunProxy(t, harness.ProxyOptions{Upstream: plane.RESTConfig(controlplane.Feed)})
	on := harness.RunProxy(t, harness.ProxyOptions{Upstream: plane.RESTConfig(controlplane.Feed), Args: withSwitches})
	straight := newKnower(t, "straight", binary, admin)
	// Whoever comes first finds memory still empty. Compared is who comes next.
	var through []*knower
	for name, p := range map[string]*harness.Proxy{"through listproxy": off, "with both switches": on} {
		first := newKnower(t, name, binary, p.RESTConfig(admin))
		straight.knows(t, load.list(t), missing)
		first.agrees(t, straight)
		first.stop()
		through = append(through, newKnower(t, name, binary, p.RESTConfig(admin)))
	}
	for turn := range turns {
		if turn > 0 {
			load.change(t, turn)
		}
		objects := load.list(t)
		facts := straight.knows(t, objects, missing)
		for _, k := range through {
			k.agrees(t, straight)
		}
		t.Logf("kube-apiserver %s, turn %d: %d objects, %d facts, the same on all sides", plane.Version(), turn, len(objects), facts)
	}
	for _, k := range append(through, straight) {
		k.stop()
	}
	n, ended := fromMemory(t, off)
	t.Logf("from memory: %.0f lists", n)
	if (n > 0) != lists || ended > 0 {
		t.Errorf("from memory, with both switches off: %.0f lists, %.0f watches", n, ended)
	}
	poll.Until(t, patience, "lists and watches have come from memory", func() bool {
		lists, watches := fromMemory(t, on)
		if lists == 0 || watches == 0 {
			return false // none has ended yet
		}
		t.Logf("from memory, with both switches: %.0f lists, %.0f watches", lists, watches)
		return true
	})
}

// TestClusterCache runs the cache of a cluster that Argo CD keeps: what it knows of each object is
// the object's own revision.
func TestClusterCache(t *testing.T) {
	follow(t, binaries.ClusterCache, true, func(objects []unstructured.Unstructured, facts []string) string {
		for _, o := range objects {
			gvk := o.GroupVersionKind()
			fact := fmt.Sprintf("%s/%s/%s/%s %s %s", gvk.Group, gvk.Kind, o.GetNamespace(), o.GetName(), o.GetUID(), o.GetResourceVersion())
			if !slices.Contains(facts, fact) {
				return fact
			}
		}
		return gone(objects, facts, func(fact string) bool { return !strings.Contains(fact, " is below ") })
	})
}

// TestDiscovery runs Prometheus' discovery of targets in Kubernetes, in each role: what it knows of
// each object has the object's label of the turn.
func TestDiscovery(t *testing.T) {
	follow(t, binaries.Discovery, false, func(objects []unstructured.Unstructured, facts []string) string {
		var found []unstructured.Unstructured
		for _, o := range objects {
			role := strings.ToLower(o.GetKind())
			if !slices.Contains([]string{"node", "pod", "service", "endpointslice", "ingress"}, role) {
				continue
			}
			found = append(found, o)
			source := role + "/" + o.GetNamespace() + "/" + o.GetName()
			switch role {
			case "service":
				source = strings.Replace(source, role, "svc", 1)
			case "node":
				source = role + "/" + o.GetName()
			}
			label := fmt.Sprintf("%q:%q", "__meta_kubernetes_"+role+"_label_turn", o.GetLabels()["turn"])
			if !slices.ContainsFunc(facts, func(fact string) bool {
				return strings.HasPrefix(fact, role+" "+source+" ") && strings.Contains(fact, label)
			}) {
				return source + " with " + label
			}
		}
		return gone(found, facts, func(string) bool { return true })
	})
}

// gone finds facts of objects that are not there any more: there are more than objects.
func gone(objects []unstructured.Unstructured, facts []string, counts func(fact string) bool) string {
	var own []string
	for _, fact := range facts {
		if name, _, _ := strings.Cut(fact, " {"); strings.Contains(name, namePrefix) && counts(fact) {
			own = append(own, fact)
		}
	}
	if len(own) == len(objects) {
		return ""
	}
	return fmt.Sprintf("that of %d things only %d are left:\n%s", len(own), len(objects), strings.Join(own, "\n"))
}
