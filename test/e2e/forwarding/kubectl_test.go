package forwarding

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
)

// A kubectl runs the real kubectl as the admin.
type kubectl struct {
	name, kubeconfig, home string
	certificate            bool // logs in with a client certificate, not with a token
}

// output is the result of a command.
type output struct {
	Out, Err string
	Code     int
}

// run runs a command in a namespace to its end, and returns an output of any code.
func (k kubectl) run(t *testing.T, c command, ns string) output {
	t.Helper()
	args := append([]string{"-n", ns}, strings.Fields(strings.ReplaceAll(c.line, "{ns}", ns))...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, cp.Binaries().Kubectl, args...) // #nosec G204 -- the tests' own words
	cmd.WaitDelay = time.Second
	cmd.Env = append(controlplane.Environment(k.kubeconfig, k.home), c.env)
	var out, errs bytes.Buffer
	cmd.Stdin = strings.NewReader(c.stdin)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	_, hasExited := errors.AsType[*exec.ExitError](err)
	isUnfinished := err != nil && !hasExited
	if isUnfinished || ctx.Err() != nil {
		t.Fatalf("kubectl %v, %s: %v: %s", args, k.name, err, errs.String())
	}
	return output{Out: out.String(), Err: errs.String(), Code: cmd.ProcessState.ExitCode()}
}

// changing matches what differs between two runs of a command.
var changing = regexp.MustCompile(strings.Join([]string{
	`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`, // UIDs, before ages: one may begin with 1234567d-
	`https://[0-9.]+:[0-9]+`,                    // addresses
	`\b[0-9]+[smhd]([0-9]+[smhd])?\b|<unknown>`, // ages
	`resourceVersion: "[0-9]+"|"resourceVersion": ?"[0-9]+"`,
	`/tmp/[A-Z]+-[0-9]+`, // folders of kubectl diff
	// Times.
	`[0-9-]{10}T[0-9:]{8}Z`,
	`[0-9-]{10} [0-9:]{8}[.][0-9]+ [+-][0-9]{4}`,
	`[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} [+-][0-9]{4}`,
}, "|"))

// spaces matches the padding of a column, whose width depends on ages.
var spaces = regexp.MustCompile(` +`)

// stable returns the output without what differs between two runs, such as the namespace ns.
func (o output) stable(ns string) output {
	stable := func(text string) string {
		text = strings.ReplaceAll(text, ns, "{ns}")
		return spaces.ReplaceAllString(changing.ReplaceAllString(text, "~"), " ")
	}
	return output{Out: stable(o.Out), Err: stable(o.Err), Code: o.Code}
}

// A command is one kubectl command and how it must end.
type command struct {
	line     string
	stdin    string
	env      string
	wantCode int // the exit code, or anyCode
	// tokenOnly means that the output differs between callers with a token and callers with a certificate.
	tokenOnly bool
}

// anyCode is the wantCode of a command whose result depends on chance. Neither its code nor its output is compared.
const anyCode = -1

// isCompared reports whether k must give the same output and code as the kubectl that goes directly to kube-apiserver with a
// token.
func (c command) isCompared(k kubectl) bool {
	return c.wantCode != anyCode && (!c.tokenOnly || !k.certificate)
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

// commands returns the commands, which run one after the other in a namespace of their own, {ns}. There are four pods:
//
//   - web-0 runs on the node of the kubelet
//   - far is on a node that does not exist
//   - pending is on no node
//   - drained is on the node {ns}, which has the name of the namespace
//
// No controller runs, so a Deployment gets no pods.
func commands() (all []command) {
	for _, websockets := range []string{"true", "false"} { // false: SPDY
		for _, c := range []command{
			{line: "exec web-0 -- echo hello"},
			{line: "exec -i web-0 -- sh", stdin: "echo out; echo err >&2; exit 7", wantCode: 7},
			{line: "exec -i web-0 -- sort", stdin: "b\nc\na\n"},
			{line: "exec -i web-0 -- wc -c", stdin: strings.Repeat("0123456789", 100_000)},
			{line: "exec web-0 -- seq 100000"},
			{line: "exec web-0 -- no-such-command", wantCode: 1},
			{line: "exec web-0 -c other -- true", wantCode: 1},
		} {
			c.env = "KUBECTL_REMOTE_COMMAND_WEBSOCKETS=" + websockets
			all = append(all, c)
		}
	}
	return append(all, []command{
		// Reading.
		{line: "get pods"},
		{line: "get pod web-0 -o yaml"},
		{line: "get pods -o json"},
		{line: "get pods --chunk-size=1 -o name"},
		{line: "get pods --all-namespaces -l namespace={ns} --field-selector spec.nodeName={ns} -o wide"},
		{line: "get pods --field-selector spec.nodeName=none,status.phase=Running"},
		{line: "get all,configmaps"},
		{line: "get pod none", wantCode: 1},
		{line: "get unicorns", wantCode: 1},
		{line: "describe pod web-0"},
		{line: "describe node {ns}"},
		{line: "get events"},

		// Through kube-apiserver to a node.
		{line: "logs web-0"},
		{line: "logs web-0 -c other", wantCode: 1},
		{line: "logs pending"},
		{line: "exec far -- true", wantCode: 1},
		{line: "attach far", wantCode: 1},
		{line: "port-forward far :80", wantCode: 1},
		{line: "top pods", wantCode: 1},

		// Writing.
		{line: "diff -f -", stdin: manifest, wantCode: 1},
		{line: "apply -f -", stdin: manifest},
		{line: "apply -f -", stdin: strings.Replace(manifest, "old", "newer", 1)},
		{line: "apply --server-side --field-manager=other -f -", stdin: manifest, wantCode: 1}, // a conflict
		{line: "apply --server-side --force-conflicts -f -", stdin: manifest},
		{line: "diff --server-side --force-conflicts -f -", stdin: manifest},
		{line: "edit configmap applied", env: "KUBE_EDITOR=sed -i s/old/edited/"},
		{line: "get configmap applied -o jsonpath={.data}"},
		{line: "label pods --all color=blue --overwrite"},
		{line: `patch configmap applied --type=json -p [{"op":"add","path":"/metadata/labels/color","value":"red"}]`},
		{line: `patch pod pending --subresource=status -p {"status":{"reason":"Patched"}}`},
		{line: "scale deployment web --replicas=3"},
		{line: "expose deployment web --port=80"},
		{line: "rollout restart deployment web"},
		{line: "patch deployment web --subresource=status --type=merge -p " +
			`{"status":{"observedGeneration":99,"replicas":3,"updatedReplicas":3,"readyReplicas":3,"availableReplicas":3}}`},
		{line: "rollout status deployment web --timeout=60s"},
		{line: "create role reader --verb=get --resource=pods --dry-run=server -o yaml"},
		{line: "wait --for=jsonpath={.data.key}=edited configmap/applied --timeout=20s"},
		{line: "wait --for=condition=Ready pod/none --timeout=60s", wantCode: 1},
		{line: "wait --for=create configmap/applied --timeout=20s"},
		{line: "delete service web --wait --timeout=20s"},
		{line: "apply -f - --prune -l part=of --prune-allowlist=core/v1/ConfigMap", stdin: strings.Split(manifest, "---")[1]},
		{line: "delete -f - --wait=false", stdin: manifest, wantCode: 1},                                       // the ConfigMap was pruned
		{line: "patch deployment web --type=merge -p {\"metadata\":{\"finalizers\":null}}", wantCode: anyCode}, // it may be gone already
		{line: "delete configmap applied", wantCode: 1},

		// A node.
		{line: "cordon {ns}"},
		{line: "drain {ns} --force --dry-run=server"},
		{line: "drain {ns} --force --grace-period=0 --timeout=60s"},
		{line: "uncordon {ns}"},
		{line: "delete node {ns}"},
		{line: "delete pods -l namespace={ns},name!=web-0 --grace-period=0 --force --wait --timeout=60s"},

		// About the API server.
		{line: "auth can-i list pods"},
		{line: "auth can-i --list"},
		{line: "auth can-i list pods --as=alice", wantCode: 1, tokenOnly: true},
		{line: "auth whoami", tokenOnly: true}, // with a certificate there are more extras, which TestAttacks compares
		{line: "api-resources -o wide --sort-by=name"},
		{line: "explain pods.spec.containers"},
		{line: "version"},
		{line: "get pods --as=alice --as-group=none", wantCode: 1, tokenOnly: true},
		{line: "get pods --token=wrong", wantCode: 1, tokenOnly: true},
	}...)
}

// through returns a kubectl with the kubeconfig that the command "listproxy kubeconfig", with these flags, makes of the
// kubeconfig own.
func through(t *testing.T, name, own string, p *harness.Proxy, flags ...string) kubectl {
	t.Helper()
	args := append([]string{
		"kubeconfig", "--kubeconfig", own, "--certificate-authority", filepath.Join(p.Dir(), "tls.crt"),
	}, flags...)
	text, err := exec.CommandContext(t.Context(), p.Binary(), args...).Output() // #nosec G204 -- the program under test
	expect.NoError(t, err)
	home := t.TempDir()
	k := kubectl{name: name, kubeconfig: filepath.Join(home, "listproxy"), home: home}
	expect.NoError(t, os.WriteFile(k.kubeconfig, text, 0o600))
	return k
}

// TestKubectl: kubectl's commands have the same outputs directly and through two listproxies.
//
//   - The first has its defaults. kubectl reaches it as the server of its kubeconfig, with a token.
//   - The second has --consistent-lists=always, --watches and the rights of docs/rbac-impersonation.yaml. kubectl reaches it as
//     the proxy-url of its kubeconfig, with a client certificate. Some of its answers must come from memory.
func TestKubectl(t *testing.T) {
	t.Parallel()
	own := cp.KubeconfigPath(controlplane.Admin)
	kubectls := []kubectl{
		{name: "direct", kubeconfig: own, home: t.TempDir()}, // the first, whose outputs the others must have
		through(t, "server", own, running, "--via=server", "--server="+running.URL()),
	}
	var switched *harness.Proxy
	if !testing.Short() {
		switched = harness.RunProxy(t, harness.ProxyOptions{
			Upstream: impersonator(t),
			Args: []string{
				"--connect-port", "0", "--consistent-lists=always", "--watches", "--eager", "pods,configmaps", "--client-ca-file", cp.CAPath(),
			},
		})
		certificate := filepath.Join(t.TempDir(), "certificate")
		expect.NoError(t, controlplane.WriteKubeconfig(certificate, cp.CertConfig(controlplane.Admin)))
		proxyURL := through(t, "proxy-url", certificate, switched, "--via=proxy-url", "--proxy-url="+switched.ConnectURL().String())
		proxyURL.certificate = true
		kubectls = append(kubectls, proxyURL)
	}
	outputs := make([][]output, len(kubectls)) // of each kubectl, by command
	t.Run("run", func(t *testing.T) {
		for i, k := range kubectls {
			t.Run(k.name, func(t *testing.T) {
				t.Parallel()
				outputs[i] = k.runAll(t)
			})
		}
	})
	want := outputs[0]
	for i, k := range kubectls {
		for n, c := range commands() {
			if d := cmp.Diff(want[n], outputs[i][n]); d != "" && c.isCompared(k) {
				t.Errorf("kubectl %s (-direct +%s):\n%s", c.line, k.name, d)
			}
		}
	}
	if switched != nil {
		requireHits(t, switched)
	}
}

// requireHits requires that a listproxy has answered lists and watches from memory.
func requireHits(t *testing.T, p *harness.Proxy) {
	t.Helper()
	for name, labels := range map[string]map[string]string{
		"listproxy_requests_total": {"decision": "serve", "verb": "list"}, "listproxy_watch_ends_total": nil,
	} {
		sum, _, err := p.Metric(t.Context(), name, labels)
		expect.NoError(t, err)
		if sum == 0 {
			t.Errorf("none of kubectl's requests came from memory: %s", name)
		}
	}
}

// runAll runs all commands in a namespace of their own, and returns their outputs without what is changing.
func (k kubectl) runAll(t *testing.T) (outputs []output) {
	t.Helper()
	ns := newNamespace(t)
	_, err := admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
	expect.NoError(t, err)
	for name, node := range map[string]string{"web-0": kubeletNode, "far": "nobody-knows", "pending": "", "drained": ns} {
		newPod(t, ns, name, node)
	}
	_, err = admin.CoreV1().Events(ns).Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "event"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: ns, Name: "web-0"},
		Type:           corev1.EventTypeWarning, Reason: "Told", Message: "it", FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
	}, metav1.CreateOptions{})
	expect.NoError(t, err)
	for _, c := range commands() {
		o := k.run(t, c, ns)
		if o.Code != c.wantCode && c.isCompared(k) {
			t.Errorf("kubectl %s, %s: code %d, want %d: %s%s", c.line, k.name, o.Code, c.wantCode, o.Out, o.Err)
		}
		if k.certificate && strings.Contains(c.line, "--as=") {
			expect.Says(t, o.Err, "cannot impersonate others through listproxy")
		}
		outputs = append(outputs, o.stable(ns))
	}
	return outputs
}
