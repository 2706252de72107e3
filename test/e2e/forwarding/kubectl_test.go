package forwarding

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/controlplane"
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
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "KUBE") && !strings.HasPrefix(kv, "HOME=") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "KUBECONFIG="+d.kubeconfig(controlplane.Admin), "HOME="+d.dir)
	cmd.Env = append(cmd.Env, env...)
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

// TestKubectl plays the same commands straight and through listproxy.
func TestKubectl(t *testing.T) { eachDoor(t, testKubectl) }

func testKubectl(t *testing.T, via *door) {
	ns := newNamespace(t)
	newPod(t, ns, "web-0")
	const manifest = `
apiVersion: v1
kind: ConfigMap
metadata: {name: applied}
data: {key: old}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: example.com/web}]}
`
	commands := []command{
		{line: "get pods"},
		{line: "get pods -o wide --show-labels"},
		{line: "get pod web-0 -o yaml"},
		{line: "get pods -o json"},
		{line: "get pods -o name"},
		{line: "get pods --all-namespaces --chunk-size=1 -o name"},
		{line: "get pod none", code: 1},
		{line: "get unicorns", code: 1},
		{line: "get --raw /readyz"},
		{line: "describe pod web-0"},
		{line: "logs web-0"},
		{line: "logs web-0 -c other", code: 1},
		{line: "diff -f -", stdin: manifest, code: 1},
		{line: "apply -f -", stdin: manifest},
		{line: "apply -f -", stdin: strings.Replace(manifest, "old", "newer", 1)},
		{line: "apply --server-side --field-manager=other -f -", stdin: manifest, code: 1}, // a conflict
		{line: "apply --server-side --force-conflicts -f -", stdin: manifest},
		{line: "diff -f -", stdin: manifest},
		{line: "edit configmap applied"},
		{line: "get configmap applied -o jsonpath={.data}"},
		{line: "label configmap applied color=red"},
		{line: "annotate configmap applied note=it"},
		{line: `patch configmap applied --type=json -p [{"op":"remove","path":"/metadata/labels"}]`},
		{line: "scale deployment web --replicas=3"},
		{line: "set image deployment/web main=example.com/web:2"},
		{line: "rollout restart deployment web"},
		{line: "create serviceaccount robot"},
		{line: "create role reader --verb=get --resource=pods --dry-run=server -o yaml"},
		{line: "create configmap Not_A_Name", code: 1},
		{line: "wait --for=jsonpath={.data.key}=edited configmap/applied --timeout=20s"},
		{line: "delete -f - --wait=false", stdin: manifest},
		{line: "patch deployment web --type=merge -p {\"metadata\":{\"finalizers\":null}}", code: -1}, // whether it is gone already or not
		{line: "delete configmap applied", code: 1},
		{line: "delete serviceaccount robot"},
		{line: "top pods", code: 1},
		{line: "top nodes", code: 1},
		{line: "auth can-i list pods"},
		{line: "auth can-i --list"},
		{line: "auth can-i list pods --as=alice", code: 1},
		{line: "auth whoami"},
		{line: "api-resources"},
		{line: "api-versions"},
		{line: "explain pods.spec.containers"},
		{line: "explain unicorns", code: 1},
		{line: "version"},
		{line: "cluster-info"},
		{line: "get events"},
		{line: "get pods --as=alice --as-group=none", code: 1},
		{line: "get pods --token=wrong", code: 1},
	}
	env := []string{"KUBE_EDITOR=sed -i s/old/edited/"}
	play := func(d *door) []output {
		var outputs []output
		for _, c := range commands {
			o := d.run(t, env, c.stdin, append(strings.Fields(c.line), "-n", ns)...)
			if c.code >= 0 && o.Code != c.code {
				t.Errorf("kubectl %s, %s: code %d, want %d: %s%s", c.line, d.name, o.Code, c.code, o.Out, o.Err)
			}
			outputs = append(outputs, o.lasting())
		}
		return outputs
	}
	want, got := play(direct), play(via)
	for i, c := range commands {
		if d := cmp.Diff(want[i], got[i]); d != "" && c.code >= 0 {
			t.Errorf("kubectl %s (-direct +via):\n%s", c.line, d)
		}
	}
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
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
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

// say writes a line of input.
func (k *interactive) say(line string) {
	k.t.Helper()
	if _, err := io.WriteString(k.stdin, line+"\n"); err != nil {
		k.t.Fatal(err)
	}
}

// end waits for kubectl to end by itself.
func (k *interactive) end() {
	k.t.Helper()
	if err := k.wait(); err != nil {
		k.t.Fatalf("kubectl: %v: %s", err, k.errs.String())
	}
}

// TestKubectlWatch changes objects by turns with kubectl's lines.
func TestKubectlWatch(t *testing.T) { eachDoor(t, testKubectlWatch) }

func testKubectlWatch(t *testing.T, via *door) {
	t.Parallel()
	ns := newNamespace(t)
	newConfigMap(t, ns, "first", nil)
	k := via.start(t, nil, "get", "configmaps", "-n", ns, "--watch", "-o", "name")
	k.want("configmap/first")
	newConfigMap(t, ns, "second", nil)
	k.want("configmap/second")
	newConfigMap(t, ns, "third", nil)
	k.want("configmap/third")
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

// TestKubectlProxy asks through kubectl's own proxy.
func TestKubectlProxy(t *testing.T) { eachDoor(t, testKubectlProxy) }

func testKubectlProxy(t *testing.T, via *door) {
	t.Parallel()
	k := via.start(t, nil, "proxy", "--port=0")
	said, ok := strings.CutPrefix(<-k.lines, "Starting to serve on ")
	if !ok {
		t.Fatalf("kubectl said %q: %s", said, k.errs.String())
	}
	for _, args := range [][]string{{"get", "nodes", "-o", "name"}, {"version"}, {"get", "--raw", "/readyz"}} {
		want := direct.run(t, nil, "", args...)
		got := via.run(t, []string{"KUBECONFIG=" + filepath.Join(t.TempDir(), "none")}, "",
			append(args, "--server=http://"+said)...)
		if d := cmp.Diff(want.lasting(), got.lasting()); d != "" {
			t.Errorf("kubectl %v (-direct +via):\n%s", args, d)
		}
	}
}
