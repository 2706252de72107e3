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

// TestBypass: with bypass the Service leads to the API servers, and without it back to listproxy, even if a tool other than
// Helm applies the rendered manifests. If no API servers are known, the chart refuses bypass.
func TestBypass(t *testing.T) {
	c := newCluster(t)
	r := c.newRelease(t, "listproxy")
	if _, err := r.tryApply(t, "{bypass: true}"); err == nil || !strings.Contains(err.Error(), "no EndpointSlice of the Service kubernetes") {
		t.Fatalf("bypass without known API servers: got %v, want an error", err)
	}
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

	// The commands of docs/clients.md, where another tool has applied the rendered manifests, so that Helm does not own them.
	run := r.shell(t, "service: {clusterIP: 10.0.0.100}")
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
	const install = "helm template listproxy charts/listproxy -n listproxy -f values.yaml --no-hooks | kubectl apply -f -"
	run(install)
	run(findCommand(t, "helm", "--dry-run=server"))
	requireBypass(true)
	run(install)
	run(findCommand(t, "kubectl", "delete endpointslice"))
	requireBypass(false)
}

// shell returns a function that runs command lines of the pages on this cluster, with these values as values.yaml.
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

// findCommand returns the first command line of the pages with a program that contains a text.
func findCommand(t *testing.T, program, part string) string {
	t.Helper()
	lines := documentedCommands(t, program)
	i := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, part) })
	if i < 0 {
		t.Fatalf("no page has a command line %s … %s", program, part)
	}
	return lines[i]
}
