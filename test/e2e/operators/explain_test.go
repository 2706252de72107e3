package operators

import (
	"context"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// explained is what listproxy policy explain says of a user's request to a running listproxy.
func explained(t *testing.T, p *harness.Proxy, user string, args ...string) (string, error) {
	t.Helper()
	listproxy, err := harness.BuildProxy(t.Context())
	expect.NoError(t, err)
	args = append([]string{"policy", "explain", "--address", p.URL(), "--certificate-authority", filepath.Join(p.Dir(), "ca.crt"), "--kubeconfig", cp.KubeconfigPath(user)}, args...)
	out, err := exec.CommandContext(t.Context(), listproxy, args...).CombinedOutput() // #nosec G204 -- what was built
	return string(out), err
}

// TestExplainAsksARunningListproxy: listproxy policy explain --address says what becomes of a
// request now; of what memory has it tells nothing to whom kube-apiserver refuses the list; and it
// sends nothing that changes anything.
func TestExplainAsksARunningListproxy(t *testing.T) {
	t.Parallel()
	p := harness.RunProxy(t, harness.ProxyOptions{Upstream: cp.RESTConfig(controlplane.Feed), Args: []string{"--eager", "namespaces", "--log-level", "access"}})
	says := func(user string, words []string, args ...string) string {
		t.Helper()
		out, err := explained(t, p, user, args...)
		if err != nil {
			t.Errorf("%v: %v: %s", args, err, out)
		}
		for _, word := range words {
			if !strings.Contains(out, word) {
				t.Errorf("of %v of %s it does not say %q:\n%s", args, user, word, out)
			}
		}
		return out
	}
	says(controlplane.Admin, []string{
		"from memory now  any\n", "before that    forwarded (unknown-caller)", "listproxy; hit; detail=any", "200 OK", "as the user admin",
	}, "GET", "/api/v1/namespaces?resourceVersion=0")
	says(controlplane.Admin, []string{"forwarded now   most-recent\n", "at this moment", "operations.md", "fwd=bypass; detail=most-recent"}, "GET", "/api/v1/namespaces")
	says(controlplane.Admin, []string{"forwarded now   representation\n"}, "GET", "/api/v1/namespaces?resourceVersion=0", "--header", "Accept: application/json;as=Table;g=meta.k8s.io;v=v1")
	// What nobody asked for yet is begun, as by any list.
	says(controlplane.Admin, []string{"forwarded now   warming\n", "passes by itself"}, "GET", "/api/v1/nodes?resourceVersion=0")
	poll.Until(t, patience, "nodes come from memory", func() bool {
		out, err := explained(t, p, controlplane.Admin, "GET", "/api/v1/nodes?resourceVersion=0")
		return err == nil && strings.HasPrefix(out, "from memory now")
	})

	// Whom kube-apiserver refuses is told the same of what is in memory, of what is not, and of what
	// nobody has.
	first := ""
	for _, resource := range []string{"namespaces", "nodes", "services", "nothings"} {
		out := says(controlplane.Carol, []string{"answer"}, "GET", "/api/v1/"+resource+"?resourceVersion=0")
		_, told, _ := strings.Cut(strings.ReplaceAll(out, resource, "RESOURCE"), "forwarded now")
		told = strings.Split(told, "\n")[0]
		if resource == "nothings" {
			if !strings.Contains(out, "unknown-resource") { // discovery, which everybody may read
				t.Errorf("of what nobody has:\n%s", out)
			}
			continue
		}
		if first == "" {
			first = told
		}
		if told != first || !strings.Contains(out, "not-allowed") || !strings.Contains(out, "403 Forbidden") || strings.Contains(out, "warming") {
			t.Errorf("who may not list %s is told:\n%s", resource, out)
		}
	}
	out := says(controlplane.Admin, []string{"unknown-caller", "401 Unauthorized", "of --header"}, "GET", "/api/v1/namespaces?resourceVersion=0", "--header", "Authorization: Bearer made-up")
	if strings.Contains(out, "before that") {
		t.Errorf("whom kube-apiserver does not know was asked for again:\n%s", out)
	}

	object := kinds.Kind{APIVersion: "v1", Name: "ConfigMap"}.Object("explained")
	const path = "/api/v1/namespaces/default/configmaps"
	if _, err := direct.Do(t.Context(), http.MethodPost, path, object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = direct.Send(context.Background(), http.MethodDelete, path+"/explained", nil) })
	says(controlplane.Admin, []string{"forwarded  not-list\n", "asked    nobody"}, "DELETE", path+"/explained")
	says(controlplane.Admin, []string{"forwarded  not-list\n", "asked    nobody"}, "GET", path+"/explained")
	if _, err := direct.Do(t.Context(), http.MethodGet, path+"/explained", nil); err != nil {
		t.Errorf("explaining has deleted it: %v", err)
	}
	for _, target := range []string{"delete configmaps", "get configmaps"} {
		if strings.Contains(p.Log(), target) {
			t.Errorf("%q was sent", target)
		}
	}
	for _, wrong := range [][]string{{"--as", "x"}, {"--address", "http://127.0.0.1:8081"}, {"--address", ""}, {"--config", "x"}} {
		if out, err := explained(t, p, controlplane.Admin, append([]string{"GET", "/api/v1/pods"}, wrong...)...); err == nil {
			t.Errorf("%v is accepted: %s", wrong, out)
		}
	}
}
