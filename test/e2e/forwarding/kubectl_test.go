package forwarding

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/soak"
)

// output is what a command left behind.
type output struct {
	Out, Err string
	Code     int
}

// kubectl returns a command of the real kubectl through a door, as the admin. It ends with ctx.
func (d *door) kubectl(ctx context.Context, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, cp.Binaries().Kubectl, args...)
	cmd.WaitDelay = time.Second
	cmd.Env = append(controlplane.Environment(d.kubeconfig(controlplane.Admin), d.dir), env...)
	return cmd
}

// run runs kubectl to its end.
func (d *door) run(t *testing.T, env []string, stdin string, args ...string) output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := d.kubectl(ctx, env, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		t.Fatalf("kubectl %v, %s: %v: %s", args, d.name, err, errs.String())
	}
	return output{Out: out.String(), Err: errs.String(), Code: cmd.ProcessState.ExitCode()}
}

// momentary is what differs between two runs in a person's output: ages (and with them the width
// of a column), addresses, identities. These come first: one may begin as an age does, 1234567d-….
var momentary = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|https://[0-9.]+:[0-9]+` +
	`|\b[0-9]+[smhd]([0-9]+[smhd])?\b|<unknown>|[0-9-]{10}T[0-9:]{8}Z|resourceVersion: "[0-9]+"` +
	`|"resourceVersion": ?"[0-9]+"|/tmp/[A-Z]+-[0-9]+|[0-9-]{10} [0-9:]{8}[.][0-9]+ [+-][0-9]{4}|[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} [+-][0-9]{4}`)

var spaces = regexp.MustCompile(` +`)

func (o output) lasting() output {
	for _, s := range []*string{&o.Out, &o.Err} {
		*s = spaces.ReplaceAllString(momentary.ReplaceAllString(*s, "~"), " ")
	}
	return o
}

// command is one kubectl command and how it must end.
type command struct {
	line  string
	stdin string
	code  int
}

// manifest is what the commands apply.
const manifest = `
apiVersion: v1
kind: ConfigMap
metadata: {name: applied, labels: {part: of}}
data: {key: old}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {part: of}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: example.com/web}]}
`

// commands are played one after the other in a namespace of their own, {ns}, with a node of its
// name, and the pods web-0, which runs on the stand-in's node, far, which runs on a node that
// nobody knows, pending, which runs nowhere, and drained, which runs on the node of the namespace.
// Nobody runs deployments.
func commands() []command {
	return []command{
		// Reading.
		{line: "get pods"},
		{line: "get pods -o wide --show-labels"},
		{line: "get pod web-0 -o yaml"},
		{line: "get pods -o yaml --show-managed-fields"},
		{line: "get pods -o json"},
		{line: "get pods -o name"},
		{line: "get pods -o jsonpath={.items[*].metadata.name}"},
		{line: "get pods -o jsonpath-as-json={.items[*].spec.nodeName}"},
		{line: "get pods -o go-template={{range.items}}{{.metadata.name}};{{end}}"},
		{line: "get pods -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName --sort-by=.metadata.name"},
		{line: "get pods -o kyaml"},
		{line: "get pods -o none", code: 1},
		{line: "get pods -L app --no-headers --show-kind --sort-by=.spec.nodeName"},
		{line: "get pods --server-print=false"},
		{line: "get pods --chunk-size=1 -o name"},
		{line: "get pods --all-namespaces -l of={ns} --chunk-size=1 -o name"},
		{line: "get pods --all-namespaces -l of={ns} --field-selector spec.nodeName={ns} -o wide"},
		{line: "get pods --field-selector spec.nodeName=none,status.phase=Running"},
		{line: "get pods --field-selector spec.color=red", code: 1},
		{line: "get pods -l app=(", code: 1},
		{line: "get pod,node,namespace web-0 --ignore-not-found"},
		{line: "get all,configmaps"},
		{line: "get pod none", code: 1},
		{line: "get unicorns", code: 1},
		{line: "get --raw /readyz"},
		{line: "get --raw /api/v1/namespaces/{ns}/pods?limit=1&labelSelector=none"},
		{line: "describe pod web-0"},
		{line: "describe pods -l of={ns}"},
		{line: "describe node {ns}"},
		{line: "get events"},
		{line: "events"},
		{line: "events --for=pod/web-0 --types=Warning -o json"},

		// What goes to a node.
		{line: "logs web-0"},
		{line: "logs -l of={ns},at=web-0 --prefix --tail=1"},
		{line: "logs web-0 -c other", code: 1},
		{line: "logs far", code: 1},
		{line: "logs pending"},
		{line: "exec far -- true", code: 1},
		{line: "exec pending -- true", code: 1},
		{line: "attach far", code: 1},
		{line: "port-forward far :80", code: 1},
		{line: "port-forward pending :80", code: 1},
		{line: "port-forward none :80", code: 1},
		{line: "cp far:/tmp/none /tmp/none", code: 1},
		{line: "top pods", code: 1},
		{line: "top nodes", code: 1},

		// Writing.
		{line: "diff -f -", stdin: manifest, code: 1},
		{line: "apply -f - --dry-run=server", stdin: manifest},
		{line: "apply -f -", stdin: manifest},
		{line: "apply -f -", stdin: strings.Replace(manifest, "old", "newer", 1)},
		{line: "apply view-last-applied configmap/applied"},
		{line: "apply --server-side --field-manager=other -f -", stdin: manifest, code: 1}, // a conflict
		{line: "apply --server-side --force-conflicts -f -", stdin: manifest},
		{line: "diff --server-side --force-conflicts -f -", stdin: manifest},
		{line: "diff -f -", stdin: manifest},
		{line: "get -f - -o name", stdin: manifest},
		{line: "edit configmap applied"},
		{line: "get configmap applied -o jsonpath={.data}"},
		{line: "label configmap applied color=red"},
		{line: "label pods --all color=blue --overwrite"},
		{line: "annotate configmap applied note=it"},
		{line: `patch configmap applied --type=json -p [{"op":"remove","path":"/metadata/labels/color"}]`},
		{line: `patch pod pending --subresource=status -p {"status":{"reason":"Patched"}}`},
		{line: "scale deployment web --replicas=3"},
		{line: "scale deployment web --current-replicas=7 --replicas=3", code: 1},
		{line: "autoscale deployment web --max=5 --dry-run=server -o name"},
		{line: "expose deployment web --port=80"},
		{line: "set image deployment/web main=example.com/web:2"},
		{line: "set env deployment/web --list"},
		{line: "rollout restart deployment web"},
		{line: "rollout history deployment web"},
		{line: "rollout status deployment web --watch=false"},
		{line: "patch deployment web --subresource=status --type=merge -p " +
			`{"status":{"observedGeneration":99,"replicas":3,"updatedReplicas":3,"readyReplicas":3,"availableReplicas":3}}`},
		{line: "rollout status deployment web --timeout=60s"},
		{line: "rollout pause deployment web"},
		{line: "create serviceaccount robot"},
		{line: "create role reader --verb=get --resource=pods --dry-run=server -o yaml"},
		{line: "create configmap Not_A_Name", code: 1},
		{line: "wait --for=jsonpath={.data.key}=edited configmap/applied --timeout=20s"},
		{line: "wait --for=jsonpath={.status.phase}=Running pod/web-0 pod/far --timeout=60s"},
		{line: "wait --for=condition=Ready pod/none --timeout=60s", code: 1},
		{line: "wait --for=create configmap/applied --timeout=20s"},
		{line: "wait --for=delete configmap/none --timeout=20s"},
		{line: "delete service web --wait --timeout=20s"},
		{line: "apply -f - --prune -l part=of --prune-allowlist=core/v1/ConfigMap", stdin: strings.Split(manifest, "---")[1]},
		{line: "delete -f - --wait=false", stdin: manifest, code: 1},                                  // one of them was pruned
		{line: "patch deployment web --type=merge -p {\"metadata\":{\"finalizers\":null}}", code: -1}, // whether it is gone already or not
		{line: "delete configmap applied", code: 1},
		{line: "delete serviceaccount robot"},

		// A node.
		{line: "cordon {ns}"},
		{line: "taint node {ns} key=value:NoSchedule"},
		{line: "drain {ns}", code: 1}, // nothing manages the pod
		{line: "drain {ns} --force --dry-run=client"},
		{line: "drain {ns} --force --dry-run=server"},
		{line: "drain {ns} --force --grace-period=0 --timeout=60s"},
		{line: "uncordon {ns}"},
		{line: "get pods -o name"},
		{line: "delete node {ns}"},
		{line: "delete pods -l of={ns},at!=web-0 --grace-period=0 --force --wait --timeout=60s"},

		// About the API server.
		{line: "auth can-i list pods"},
		{line: "auth can-i --list"},
		{line: "auth can-i list pods --as=alice", code: 1},
		{line: "auth whoami"},
		{line: "api-resources -o wide --sort-by=name"},
		{line: "api-resources --api-group=apps --namespaced=true -o name"},
		{line: "api-versions"},
		{line: "explain pods.spec.containers"},
		{line: "explain deployments.spec --recursive"},
		{line: "explain unicorns", code: 1},
		{line: "version"},
		{line: "cluster-info"},
		{line: "get pods --as=alice --as-group=none", code: 1},
		{line: "get pods --token=wrong", code: 1},
	}
}

// TestKubectl plays the same commands straight and through listproxy, with both switches and
// without, at the same time and in a namespace each.
func TestKubectl(t *testing.T) {
	on := startProcess(t, harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed), Connect: true,
		Args: []string{"--consistent-lists=always", "--watches", "--eager", "pods,configmaps"},
	})
	doors := map[string]*door{"straight": direct, "via": via}
	if !testing.Short() {
		doors["tunnel, with switches"] = doorOf(t, throughTunnel(on))
	}
	played := map[string][]output{}
	var mu sync.Mutex
	t.Run("play", func(t *testing.T) {
		for name, d := range doors {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				outputs := d.play(t)
				mu.Lock()
				defer mu.Unlock()
				played[name] = outputs
			})
		}
	})
	for name := range doors {
		for i, c := range commands() {
			if d := cmp.Diff(played["straight"][i], played[name][i]); d != "" && c.code >= 0 {
				t.Errorf("kubectl %s (-straight +%s):\n%s", c.line, name, d)
			}
		}
	}
	for name, of := range map[string]map[string]string{
		"listproxy_requests_total": {"decision": "serve", "verb": "list"}, "listproxy_watch_ends_total": nil,
	} {
		sum, _, err := soak.Sum(t.Context(), http.DefaultClient, on.AdminURL()+"/metrics", name, of)
		expect.NoError(t, err)
		if t.Logf("with switches: %s %.0f", name, sum); sum == 0 && !testing.Short() {
			t.Errorf("none of kubectl's requests came from memory: %s", name)
		}
	}
}

// play plays the commands through a door.
func (d *door) play(t *testing.T) (outputs []output) {
	t.Helper()
	ns := newNamespace(t)
	if _, err := admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, node := range map[string]string{"web-0": nodeName, "far": "nobody-knows", "pending": "", "drained": ns} {
		newPodOn(t, ns, name, node)
	}
	if _, err := admin.CoreV1().Events(ns).Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "event"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: ns, Name: "web-0"},
		Type:           corev1.EventTypeWarning, Reason: "Told", Message: "it", FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range commands() {
		o := d.run(t, []string{"KUBE_EDITOR=sed -i s/old/edited/"}, c.stdin,
			append(strings.Fields(strings.ReplaceAll(c.line, "{ns}", ns)), "-n", ns)...)
		if c.code >= 0 && o.Code != c.code {
			t.Errorf("kubectl %s, %s: code %d, want %d: %s%s", c.line, d.name, o.Code, c.code, o.Out, o.Err)
		}
		for _, s := range []*string{&o.Out, &o.Err} {
			*s = strings.ReplaceAll(*s, ns, "{ns}")
		}
		outputs = append(outputs, o.lasting())
	}
	return outputs
}

// interactive is a kubectl that runs while the test speaks with it.
type interactive struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string // of its standard output
	errs  bytes.Buffer
	wait  func() error // for its end; once
}

// start starts kubectl through a door.
func (d *door) start(t *testing.T, env []string, args ...string) *interactive {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longPatience)
	k := &interactive{t: t, cmd: d.kubectl(ctx, env, args...), lines: make(chan string, 100)}
	t.Cleanup(cancel)
	var err error
	if k.stdin, err = k.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, in := io.Pipe()
	k.cmd.Stdout, k.cmd.Stderr = in, &k.errs
	go func() {
		scanner := bufio.NewScanner(out)
		for scanner.Scan() {
			k.lines <- scanner.Text()
		}
		close(k.lines)
	}()
	expect.NoError(t, k.cmd.Start())
	k.wait = sync.OnceValue(func() error {
		defer func() { _ = in.Close() }()
		return k.cmd.Wait()
	})
	t.Cleanup(k.kill)
	return k
}

// kill ends kubectl, if it has not ended.
func (k *interactive) kill() {
	_ = k.cmd.Process.Kill()
	_ = k.wait()
}

// want requires a line of output.
func (k *interactive) want(line string) {
	k.t.Helper()
	select {
	case got, ok := <-k.lines:
		if got != line || !ok {
			k.t.Fatalf("kubectl said %q (%v), want %q: %s", got, ok, line, k.errs.String())
		}
	case <-time.After(patience):
		k.t.Fatalf("kubectl did not say %q", line)
	}
}

// end waits for kubectl to end by itself.
func (k *interactive) end() {
	k.t.Helper()
	if err := k.wait(); err != nil {
		k.t.Fatalf("kubectl: %v: %s", err, k.errs.String())
	}
}

// TestKubectlLogsFollow lets a log grow by turns with kubectl's lines; it ends by the end of the
// log, and when the reader goes away.
func TestKubectlLogsFollow(t *testing.T) { eachDoor(t, testKubectlLogsFollow) }

func testKubectlLogsFollow(t *testing.T, via *door) {
	t.Parallel()
	ns := newNamespace(t)
	pod := "talker-" + via.name
	newPod(t, ns, pod)
	for _, leaves := range []bool{false, true} {
		log := kubelet.grow(pod)
		k := via.start(t, nil, "logs", "-n", ns, pod, "-f")
		for line := range strings.Lines(oldLog) {
			k.want(strings.TrimSuffix(line, "\n"))
		}
		for _, line := range []string{"one", "two", "three"} {
			log.lines <- line
			k.want(line)
		}
		if leaves {
			k.kill()
		} else {
			close(log.lines)
			k.end()
		}
		await(t, "the kubelet's request ended", log.ended)
	}
}
