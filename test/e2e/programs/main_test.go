package programs

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/controlplane/binaries"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
)

var (
	wanted   = flag.Bool("programs", false, "run the other projects' tests and programs, about 45 minutes")
	switches = flag.Bool("programs.switches", true, "run the tests with --consistent-lists=always and --watches")
)

func TestMain(m *testing.M) { harness.Main(m, harness.Options{}) }

// suite is a program that tests a cluster, and reports as Ginkgo does.
type suite struct {
	// name of the binary that has it.
	name string
	// dir is the folder that it runs in, where it needs one.
	dir string
	// args and env are added to; args say which of its tests run.
	args, env []string
	// server and proxy are arguments of kube-apiserver and of listproxy.
	server, proxy []string
	// few: it may ask for too few lists and watches for any to come from memory.
	few bool
	// streams: it has no lists but streaming ones, so nothing comes from memory without switches.
	streams bool
}

// passed are names of tests: whether they have.
type passed map[string]bool

// withSwitches are listproxy's arguments for the newest state and watches from memory.
var withSwitches = []string{"--consistent-lists=always", "--watches"}

// compare runs a suite straight and through listproxy. It demands so many tests that pass straight,
// and, with both switches, that listproxy has answered lists and watches of them from memory.
func compare(t *testing.T, s suite, atLeast int) {
	if !*wanted {
		t.Skip("make programs runs it")
	}
	binary, err := binaries.Tool(t.Context(), harness.Log, s.name)
	expect.NoError(t, err)
	straight := s.run(t, binary, s.start(t).RESTConfig(controlplane.Admin))
	if n := straight.count(); n < atLeast {
		t.Errorf("only %d tests pass straight at kube-apiserver", n)
	}
	plane, args := s.start(t), s.proxy
	if *switches {
		args = slices.Concat(withSwitches, args)
	}
	proxy := harness.RunProxy(t, harness.ProxyOptions{Upstream: plane.RESTConfig(controlplane.Feed), Args: args})
	through := s.run(t, binary, proxy.RESTConfig(plane.RESTConfig(controlplane.Admin)))
	for _, name := range slices.Sorted(maps.Keys(straight)) {
		if straight[name] && !through[name] {
			t.Errorf("passes straight, and not through listproxy: %s", name)
		}
	}
	lists, watches := fromMemory(t, proxy)
	t.Logf("kube-apiserver %s, switches %t: %d of %d tests pass straight, %d of %d through listproxy; from memory: %.0f lists, %.0f watches",
		plane.Version(), *switches, straight.count(), len(straight), through.count(), len(through), lists, watches)
	if *switches && !s.few && (lists == 0 || watches == 0) {
		t.Errorf("from memory came %.0f lists and %.0f watches: nothing was shown", lists, watches)
	}
	if !*switches && (watches > 0 || s.streams && lists > 0) {
		t.Errorf("without switches %.0f lists and %.0f watches came from memory", lists, watches)
	}
}

func (s suite) start(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	return harness.RunControlPlane(t, controlplane.Options{APIServerArgs: s.server})
}

func (p passed) count() (n int) {
	for _, did := range p {
		if did {
			n++
		}
	}
	return n
}

// run runs a suite against a cluster. Each test has two tries: some of them measure time.
func (s suite) run(t *testing.T, binary string, cluster *rest.Config) passed {
	t.Helper()
	home := t.TempDir()
	report := filepath.Join(home, "report.json")
	args := append([]string{
		"-test.timeout=0", "-ginkgo.timeout=30m", "-ginkgo.flake-attempts=2", "-ginkgo.no-color", "-ginkgo.json-report=" + report,
		"-kubeconfig=" + kubeconfigIn(home),
	}, s.args...)
	cmd := exec.CommandContext(t.Context(), binary, args...) // #nosec G204 -- the tests' own words
	cmd.Dir, cmd.WaitDelay = s.dir, time.Second
	cmd.Env = append(environment(t, cluster, home), s.env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run() // fails where a test does
	results, failures, readErr := read(report)
	if readErr != nil {
		t.Fatalf("%s: %v, %v\n%s", s.name, readErr, err, binaries.Tail(out.Bytes()))
	}
	for _, name := range slices.Sorted(maps.Keys(failures)) {
		t.Logf("%s: failed at %s: %s\n%s", s.name, cluster.Host, name, failures[name])
	}
	return results
}

// kubeconfigIn is where a program finds its kubeconfig.
func kubeconfigIn(home string) string { return filepath.Join(home, "kubeconfig") }

// environment writes a kubeconfig, and is what a program needs to find it, and nothing else of
// Kubernetes.
func environment(t *testing.T, cluster *rest.Config, home string) []string {
	t.Helper()
	expect.NoError(t, controlplane.WriteKubeconfig(kubeconfigIn(home), cluster))
	return controlplane.Environment(kubeconfigIn(home), home)
}

// read reads a report of Ginkgo's: what of the tests that ran has passed, and why the others have
// not.
func read(path string) (passed, map[string]string, error) {
	text, err := os.ReadFile(path) // #nosec G304 -- the test's own file
	if err != nil {
		return nil, nil, err
	}
	var reports []struct {
		SpecReports []struct {
			ContainerHierarchyTexts           []string
			LeafNodeType, LeafNodeText, State string
			Failure                           struct{ Message string }
		}
	}
	if err := json.Unmarshal(text, &reports); err != nil {
		return nil, nil, fmt.Errorf("the report: %w", err)
	}
	results, failures := passed{}, map[string]string{}
	for _, report := range reports {
		for _, spec := range report.SpecReports {
			if spec.State == "skipped" || spec.State == "pending" {
				continue
			}
			name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
			did := spec.State == "passed"
			switch {
			case !did:
				failures[name] = spec.LeafNodeType + ": " + spec.Failure.Message
			case spec.LeafNodeType != "It":
				continue // what comes before and after all
			}
			before, twice := results[name]
			results[name] = did && (before || !twice)
		}
	}
	return results, failures, nil
}

// fromMemory is how many lists and watches a listproxy has answered from memory.
func fromMemory(t *testing.T, p *harness.Proxy) (lists, watches float64) {
	t.Helper()
	lists, _, err := p.Metric(t.Context(), "listproxy_requests_total", map[string]string{"decision": "serve", "verb": "list"})
	expect.NoError(t, err)
	watches, _, err = p.Metric(t.Context(), "listproxy_watch_ends_total", nil)
	expect.NoError(t, err)
	return lists, watches
}
