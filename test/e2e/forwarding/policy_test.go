package forwarding

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/differential/body"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
)

// TestPolicyFile: the policy file decides which resources are kept and what a limit at resourceVersion=0 means, and --eager
// in which representations a resource is loaded before the first request.
func TestPolicyFile(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "policy.yaml")
	expect.NoError(t, os.WriteFile(config, []byte(`apiVersion: listproxy.io/v1alpha1
kind: Policy
resources:
- {group: "", resource: podtemplates, limitAtZero: honour}
- {group: "", resource: limitranges, cache: never}
- {group: "", resource: secrets, cache: onDemand}
`), 0o600))
	const templates = "/api/v1/namespaces/" + controlplane.TeamA + "/podtemplates"
	direct := direct.as(t, controlplane.Admin)
	for _, name := range []string{"policy-a", "policy-b", "policy-c"} {
		object := kinds.Kind{APIVersion: "v1", Name: "PodTemplate"}.Object(name)
		object["template"] = kinds.Fields{"spec": kinds.Fields{"containers": []kinds.Fields{{"name": "main", "image": "example.com/main:1"}}}}
		_, err := direct.Do(t.Context(), http.MethodPost, templates, object)
		expect.NoError(t, err)
	}
	p := harness.RunProxy(t, harness.ProxyOptions{Upstream: cp.RESTConfig(controlplane.Feed), Args: []string{
		"--config", config, "--eager", "podtemplates,podtemplates/protobuf",
	}})
	via := ask.MustNew(t, p.RESTConfig(cp.RESTConfig(controlplane.Admin)), patience)
	ready, text := p.Ready(t.Context())
	for _, check := range []string{"[+]collection/podtemplates.v1 ok", "[+]collection/podtemplates.v1/protobuf ok"} {
		if !ready || !strings.Contains(text, check) {
			t.Errorf("/readyz (%t) does not say %q: %s", ready, check, text)
		}
	}
	// await waits for an answer whose Cache-Status ends with source. Until then it may be loading, but nothing else.
	await := func(source, target string) ask.Answer {
		t.Helper()
		return getUntil(t, target+": "+source, via, target, func(a ask.Answer) bool {
			found := strings.HasSuffix(a.Source(), source)
			if !found && (a.FromMemory() || strings.HasSuffix(a.Source(), "not-cached")) {
				t.Fatalf("%s: want %q, got %s", target, source, a)
			}
			return found
		})
	}
	await("detail=not-cached", "/api/v1/limitranges?"+ask.AnyVersion)
	await("hit; detail=any", "/api/v1/secrets?"+ask.AnyVersion)
	// limitAtZero: honour gives a page at resourceVersion=0. By default kube-apiserver ignores the limit there.
	page := await("hit; detail=any", templates+"?limit=2&"+ask.AnyVersion)
	revision, err := page.Revision()
	expect.NoError(t, err)
	want := get(t, direct, templates+"?"+ask.FirstPage(2, ask.Exactly(revision)))
	if page.Meta().Continue == "" || !bytes.Equal(page.Body, want.Body) && !body.SameButToken(page.Body, want.Body) {
		t.Errorf("a page at any revision: %s, and directly %s", page, want)
	}
	if all := await("hit; detail=any", "/api/v1/namespaces?limit=1&"+ask.AnyVersion); all.Meta().Continue != "" {
		t.Errorf("a limit at any revision: %s", all)
	}
}
