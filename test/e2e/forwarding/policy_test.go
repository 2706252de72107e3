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
	"github.com/listproxy/listproxy/test/harness/poll"
)

// templates is the list that the policy of TestPolicyFile is about.
const templates = "/api/v1/namespaces/" + controlplane.TeamA + "/podtemplates"

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
	p := harness.RunProxy(t, harness.ProxyOptions{Upstream: cp.RESTConfig(controlplane.Feed), Args: []string{
		"--config", config, "--eager", "podtemplates,podtemplates/protobuf",
	}})
	directly := direct.clientOf(t, controlplane.Admin)
	client := ask.MustNew(t, p.RESTConfig(cp.RESTConfig(controlplane.Admin)), patience)

	t.Run("--eager: loaded before the first request, in each representation", func(t *testing.T) {
		ready, text := p.Ready(t.Context())
		if !ready {
			t.Errorf("/readyz says that listproxy is not ready: %s", text)
		}
		expect.Says(t, text, "[+]collection/podtemplates.v1 ok", "[+]collection/podtemplates.v1/protobuf ok")
	})
	t.Run("cache: never", func(t *testing.T) {
		awaitSource(t, client, "detail=not-cached", "/api/v1/limitranges?"+ask.AnyVersion)
	})
	t.Run("cache: onDemand", func(t *testing.T) {
		awaitSource(t, client, "hit; detail=any", "/api/v1/secrets?"+ask.AnyVersion)
	})
	t.Run("limitAtZero: honour gives a page at resourceVersion=0", func(t *testing.T) {
		for _, name := range []string{"policy-a", "policy-b", "policy-c"} {
			object := kinds.Kind{APIVersion: "v1", Name: "PodTemplate"}.Object(name)
			object["template"] = kinds.Fields{"spec": kinds.Fields{"containers": []kinds.Fields{{"name": "main", "image": "example.com/main:1"}}}}
			_, err := directly.Do(t.Context(), http.MethodPost, templates, object)
			expect.NoError(t, err)
		}
		var page ask.Answer
		poll.Until(t, patience, "a first page from memory", func() bool {
			page = awaitSource(t, client, "hit; detail=any", templates+"?limit=2&"+ask.AnyVersion)
			return page.Meta().Continue != "" // until memory has the three templates
		})
		revision, err := page.Revision()
		expect.NoError(t, err)
		want := get(t, directly, templates+"?"+ask.FirstPage(2, ask.Exactly(revision)))
		if !bytes.Equal(page.Body, want.Body) && !body.SameButToken(page.Body, want.Body) { // but for a slash in the token
			t.Errorf("the page is %s, want %s", page, want)
		}
	})
	t.Run("without limitAtZero, a limit at resourceVersion=0 is ignored, as by kube-apiserver", func(t *testing.T) {
		all := awaitSource(t, client, "hit; detail=any", "/api/v1/namespaces?limit=1&"+ask.AnyVersion)
		if all.Meta().Continue != "" {
			t.Errorf("got a page, want the whole list: %s", all)
		}
	})
}

// awaitSource waits for an answer whose Cache-Status ends with source, since the resource may still be loading. Any other
// answer from memory, or not-cached, ends the test.
func awaitSource(t *testing.T, client *ask.Client, source, target string) ask.Answer {
	t.Helper()
	return getUntil(t, target+": "+source, client, target, func(a ask.Answer) bool {
		found := strings.HasSuffix(a.Source(), source)
		if !found && (a.FromMemory() || strings.HasSuffix(a.Source(), "not-cached")) {
			t.Fatalf("%s: got %s, want %q", target, a, source)
		}
		return found
	})
}
