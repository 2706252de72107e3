package chart

import (
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
)

// TestBypass: with the value bypass the Service leads to the API servers, and without it back to listproxy. That holds even if
// a tool other than Helm applies the rendered manifests. If the cluster names no API servers, the chart refuses bypass.
func TestBypass(t *testing.T) {
	c := newCluster(t)
	r := c.newRelease(t, "listproxy")
	if _, err := r.tryApply(t, "{bypass: true}"); err == nil || !strings.Contains(err.Error(), "no EndpointSlice of the Service kubernetes") {
		t.Fatalf("bypass without known API servers: got %v, want an error", err)
	}
	// In a cluster with a kube-apiserver that reconciles endpoints, this EndpointSlice names the API servers.
	_, port, err := net.SplitHostPort(strings.TrimPrefix(c.cp.URL(), "https://"))
	expect.NoError(t, err)
	c.kubectl(t, fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kubernetes, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}
addressType: IPv4
ports: [{name: https, port: %s}]
endpoints: [{addresses: [192.0.2.1], conditions: {ready: true}}]
`, port), "create", "-f", "-")

	// Another tool than Helm applies the manifests. Then bypass is switched on and off by the commands in docs/clients.md.
	run := r.shell(t, "service: {clusterIP: 10.0.0.100}")
	const install = "helm template listproxy charts/listproxy -n listproxy -f values.yaml --no-hooks | kubectl apply -f -"
	switchOn := findCommand(t, "helm", "--dry-run=server")            // helm template … --set bypass=true | kubectl apply
	removeSlices := findCommand(t, "kubectl", "delete endpointslice") // which "kubectl apply" does not do
	requireBypass := func(want bool) {
		t.Helper()
		service := run("kubectl -n listproxy get service listproxy -o yaml")
		endpoints := run("kubectl -n listproxy get endpointslices -o name --ignore-not-found")
		if got := strings.Contains(service, "listproxy.io/bypass"); got != want {
			t.Errorf("the Service leads past listproxy: %t, want %t:\n%s", got, want, service)
		}
		if hasEndpoints := endpoints != ""; hasEndpoints != want {
			t.Errorf("the EndpointSlices of the bypass are %q, want some: %t", endpoints, want)
		}
	}
	run(install)
	run(switchOn)
	requireBypass(true)
	run(install)
	run(removeSlices)
	requireBypass(false)
}

// shell returns a function that runs a command line of the documentation with this cluster, chart and release. values become
// the file values.yaml that the command line may name.
func (r *release) shell(t *testing.T, values string) func(line string) string {
	t.Helper()
	admin := r.c.cp.KubeconfigPath(controlplane.Admin)
	replacer := strings.NewReplacer("helm template", helmBinary+" template --kubeconfig "+admin, "charts/listproxy", chart,
		"-f values.yaml", "-f "+writeValues(t, values), "kubectl ", r.c.cp.Binaries().Kubectl+" --kubeconfig "+admin+" ")
	return func(line string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "sh", "-ec", replacer.Replace(line)).CombinedOutput() // #nosec G204 -- of the page
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return string(out)
	}
}

// findCommand returns the first command line in the documentation that runs a program and contains the text part.
func findCommand(t *testing.T, program, part string) string {
	t.Helper()
	lines := documentedCommands(t, program)
	i := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, part) })
	if i < 0 {
		t.Fatalf("no page has a command line %s … %s", program, part)
	}
	return lines[i]
}
