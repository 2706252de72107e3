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
	enabled  = flag.Bool("programs", false, "run the other projects' tests and programs, about 45 minutes")
	switches = flag.Bool("programs.switches", true, "run the tests with --consistent-lists=always and --watches")
)

func TestMain(m *testing.M) { harness.Main(m, harness.Options{}) }

// suite is a program of another project that tests a cluster, and writes a report of Ginkgo.
type suite struct {
	binary string // the name of the program
	dir    string // the folder in which it runs, or ""
	// args and env are appended to the usual ones. args select tests.
	args, env []string
	// serverArgs and proxyArgs are arguments of kube-apiserver and of listproxy.
	serverArgs, proxyArgs []string
	// mayMissMemory means that the suite sends so few lists and watches that none may come from memory.
	mayMissMemory bool
	// onlyStreams means that all lists are streaming lists, which are watches. Without --watches none of them may come from
	// memory.
	onlyStreams bool
}

// results has the names of the tests that ran, and whether each has passed.
type results map[string]bool

// withSwitches are listproxy's arguments for consistent lists and watches from memory.
var withSwitches = []string{"--consistent-lists=always", "--watches"}

// compare runs a suite directly at kube-apiserver, and then through listproxy before another kube-apiserver. At least minPassed
// tests must pass directly, and each test that passes directly must pass through listproxy. With both switches, lists and
// watches must have come from memory.
func compare(t *testing.T, s suite, minPassed int) {
	if !*enabled {
		t.Skip("make programs runs it")
	}
	binary, err := binaries.Tool(t.Context(), harness.Log, s.binary)
	expect.NoError(t, err)
	direct := s.run(t, binary, s.start(t).RESTConfig(controlplane.Admin))
	if n := direct.passed(); n < minPassed {
		t.Errorf("%d tests pass directly at kube-apiserver, want at least %d", n, minPassed)
	}
	plane := s.start(t)
	args := s.proxyArgs
	if *switches {
		args = slices.Concat(withSwitches, args)
	}
	proxy := harness.RunProxy(t, harness.ProxyOptions{Upstream: plane.RESTConfig(controlplane.Feed), Args: args})
	through := s.run(t, binary, proxy.RESTConfig(plane.RESTConfig(controlplane.Admin)))
	for _, name := range slices.Sorted(maps.Keys(direct)) {
		if direct[name] && !through[name] {
			t.Errorf("%s passes directly, but not through listproxy", name)
		}
	}
	lists, watches := fromMemory(t, proxy)
	t.Logf("kube-apiserver %s, switches %t: %d of %d tests pass directly, %d of %d through listproxy; from memory: %.0f lists, %.0f watches",
		plane.Version(), *switches, direct.passed(), len(direct), through.passed(), len(through), lists, watches)
	hasBoth := lists > 0 && watches > 0
	if *switches && !s.mayMissMemory && !hasBoth {
		t.Errorf("%.0f lists and %.0f watches came from memory, want some of both", lists, watches)
	}
	hasUnexpectedLists := s.onlyStreams && lists > 0
	if !*switches && (watches > 0 || hasUnexpectedLists) {
		t.Errorf("without switches %.0f lists and %.0f watches came from memory, want none", lists, watches)
	}
}

// start starts a control plane for one run of the suite.
func (s suite) start(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	return harness.RunControlPlane(t, controlplane.Options{APIServerArgs: s.serverArgs})
}

// passed returns the number of tests that have passed.
func (r results) passed() (n int) {
	for _, hasPassed := range r {
		if hasPassed {
			n++
		}
	}
	return n
}

// run runs the suite against a cluster. Each test has two tries, since some measure time.
func (s suite) run(t *testing.T, binary string, cluster *rest.Config) results {
	t.Helper()
	home := t.TempDir()
	report := filepath.Join(home, "report.json")
	args := append([]string{
		"-test.timeout=0", "-ginkgo.timeout=30m", "-ginkgo.flake-attempts=2", "-ginkgo.no-color", "-ginkgo.json-report=" + report,
		"-kubeconfig=" + kubeconfigIn(home),
	}, s.args...)
	cmd := exec.CommandContext(t.Context(), binary, args...) // #nosec G204 -- the tests' own words
	cmd.Dir = s.dir
	cmd.WaitDelay = time.Second
	cmd.Env = append(environment(t, cluster, home), s.env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run() // fails if a test fails
	found, failures, readErr := readReport(report)
	if readErr != nil {
		t.Fatalf("%s: %v, %v\n%s", s.binary, readErr, err, binaries.Tail(out.Bytes()))
	}
	for _, name := range slices.Sorted(maps.Keys(failures)) {
		t.Logf("%s: failed at %s: %s\n%s", s.binary, cluster.Host, name, failures[name])
	}
	return found
}

// kubeconfigIn returns the path of the kubeconfig of a program with a home folder.
func kubeconfigIn(home string) string { return filepath.Join(home, "kubeconfig") }

// environment writes a kubeconfig for a cluster into home, and returns the environment of a program that finds no other
// kubeconfig.
func environment(t *testing.T, cluster *rest.Config, home string) []string {
	t.Helper()
	expect.NoError(t, controlplane.WriteKubeconfig(kubeconfigIn(home), cluster))
	return controlplane.Environment(kubeconfigIn(home), home)
}

// readReport reads a report of Ginkgo. It returns the results of the tests that ran, and the messages of those that failed.
func readReport(path string) (_ results, failures map[string]string, _ error) {
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
	all, failures := results{}, map[string]string{}
	for _, report := range reports {
		for _, spec := range report.SpecReports {
			if spec.State == "skipped" || spec.State == "pending" {
				continue
			}
			name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
			hasPassed := spec.State == "passed"
			switch {
			case !hasPassed:
				failures[name] = spec.LeafNodeType + ": " + spec.Failure.Message
			case spec.LeafNodeType != "It":
				continue // set-up and tear-down of the suite
			}
			passedBefore, isRepeated := all[name] // two tests may have the same name
			all[name] = hasPassed && (passedBefore || !isRepeated)
		}
	}
	return all, failures, nil
}

// fromMemory returns the numbers of lists and watches that a listproxy has answered from memory.
func fromMemory(t *testing.T, p *harness.Proxy) (lists, watches float64) {
	t.Helper()
	lists, _, err := p.Metric(t.Context(), "listproxy_requests_total", map[string]string{"decision": "serve", "verb": "list"})
	expect.NoError(t, err)
	watches, _, err = p.Metric(t.Context(), "listproxy_watch_ends_total", nil)
	expect.NoError(t, err)
	return lists, watches
}
